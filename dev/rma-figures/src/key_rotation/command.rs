//! `rma-figures key-rotation`: one rotation of each kind, drawn, with what all of them cost.

use std::{fs, io, path::PathBuf};

use clap::Args;
use rma_bench::{
    aead, error::PairError, interrupt::Interrupt, latency::Table, line, machine::Machine,
    pair::Place,
};
use rma_lab::{Lab, LabConfig, LabError};

use super::{
    scene::{CLIENTS_MAX, Kind, Rotations, Scene},
    stage::rotate,
};

/// The arguments of `key-rotation`.
#[derive(Args, Clone, Debug)]
pub struct KeyRotationArgs {
    /// Kinds to draw, separated by commas. Default: all.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub kind: Vec<Kind>,
    /// Number of clients, which probe without a pause.
    #[arg(long, default_value_t = 100, value_parser = clients)]
    pub clients: usize,
    /// Rotations of each kind; the median one is drawn.
    #[arg(long, default_value_t = 31, value_parser = clap::value_parser!(u64).range(1..))]
    pub rotations: u64,
    /// Also write the drawing of each kind, with all clients, to PREFIX-KIND.svg.
    #[arg(long, value_name = "PREFIX")]
    pub svg: Option<PathBuf>,
    /// Use kernel UDP sockets on loopback, even if AF_XDP would work.
    #[arg(long)]
    pub udp: bool,
}

fn clients(text: &str) -> Result<usize, String> {
    let clients = text.parse().ok().filter(|it| (1..=CLIENTS_MAX).contains(it));
    clients.ok_or_else(|| format!("from 1 to {CLIENTS_MAX}"))
}

/// An error that kept rotations from being shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyRotationError {
    /// They could not be made.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// The file could not be written.
    #[error("cannot write {}: {error}; choose another place", path.display())]
    Svg {
        /// The file for the drawing.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
}

/// MTU of the veth pair.
const MTU: u32 = 3400;

/// Rotates, prints and draws.
///
/// # Errors
/// If something could not be set up; if a file cannot be written; on Ctrl-C.
pub fn key_rotation(args: &KeyRotationArgs, interrupt: &Interrupt) -> Result<(), KeyRotationError> {
    let lab = lab(args.udp)?;
    let place = lab.as_ref().map_or(Place::Loopback, Place::Lab);
    let hosts = if lab.is_some() {
        format!("AF_XDP on a veth pair, MTU {MTU}")
    } else {
        "kernel UDP sockets on loopback".to_owned()
    };
    let conditions = format!(
        "{} clients that probe 64 B without a pause over {hosts}; their keys from a service over TLS 1.3; {}; {}",
        args.clients,
        aead::words(),
        Machine::here().machine
    );
    line!("{conditions}");
    let kinds = if args.kind.is_empty() { &Kind::ALL[..] } else { &args.kind };
    for &kind in kinds {
        let scene = Scene {
            kind,
            clients: args.clients,
            rotations: args.rotations,
            histories: args.rotations.min(64) as usize,
            port: rma_xdp::config::DEFAULT_PORT,
        };
        let rotations = rotate(place, scene, interrupt)?;
        line!("\n{}, {} rotations\n", kind.words(), rotations.count);
        line!("{}", words(&rotations));
        let Some(median) = rotations.median() else {
            line!("  no op failed: nothing to draw");
            continue;
        };
        line!("{}", median.text());
        if let Some(prefix) = &args.svg {
            let name = clap::ValueEnum::to_possible_value(&kind).expect("none is hidden");
            let mut path = prefix.clone().into_os_string();
            path.push(format!("-{}.svg", name.get_name()));
            let path = PathBuf::from(path);
            let conditions =
                format!("{conditions}; the median one of {} rotations", rotations.count);
            let drawn = median.picture(kind.words(), &conditions).and_then(|it| it.file());
            let Some(svg) = drawn else { continue };
            fs::write(&path, svg)
                .map_err(|error| KeyRotationError::Svg { path: path.clone(), error })?;
            line!("written to {}", path.display());
        }
    }
    Ok(())
}

/// Two namespaces, if they can be had and nobody wants to do without.
fn lab(udp: bool) -> Result<Option<Lab>, PairError> {
    if udp {
        return Ok(None);
    }
    match Lab::new(&LabConfig { mtu: MTU, ..LabConfig::default() }) {
        Ok(lab) => Ok(Some(lab)),
        Err(error @ (LabError::NotRoot { .. } | LabError::MissingCapability { .. })) => {
            line!("note: {error}");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// A table, and what it does not say.
fn words(rotations: &Rotations) -> String {
    let mut rows = vec![
        rotations.reads.summary("READ 64 B: a round trip"),
        rotations.gaps.summary("unavailability of a client"),
    ];
    if rotations.kind == Kind::Reactive {
        rows.push(rotations.fetching.summary("  of it, the fetch"));
        rows.push(rotations.extra.summary("  the rest"));
    }
    format!(
        "{}\n  {:.3} fetches for each client and rotation; {} ops refused, {} failed otherwise; {} of {} reads of another \
         region failed\n",
        Table(&rows),
        rotations.fetches_per_client(),
        rotations.refused,
        rotations.failed_otherwise,
        rotations.other_failed,
        rotations.other_ops
    )
}
