//! `rma-bench doctor`: what is wrong with this machine and its interfaces, and what mends it.

mod identity;
pub mod mend;
pub mod peer;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::Args;
use rma_doctor::{
    Finding, Look, Snapshot, Wanted, check,
    page::{Count, Page},
    snapshot::SnapshotError,
};
use serde::Serialize;

use crate::{cores::Cores, interrupt::Interrupt, line};
use mend::{MendArgs, NotMended};
use peer::PeerArgs;

/// Arguments of `doctor`.
#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    /// The interface; without it all that have an address.
    interface: Option<String>,
    /// Print one object of JSON instead of text.
    #[arg(long)]
    json: bool,
    /// Show what is as it should be, and what does not apply, as well.
    #[arg(long)]
    all: bool,
    /// Write what was seen to a file, to send with a report: addresses are hashed, and hardware
    /// addresses, serials and host names are not in it.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Judge what was saved, in place of this machine.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["save", "interface"])]
    from: Option<PathBuf>,
    /// Engines that a host is to have, each with a queue of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    engines: u32,
    /// Cores that threads are to be pinned to, the engine's first.
    #[arg(long, value_name = "LIST")]
    cores: Option<Cores>,
    /// Judge for --busy-poll.
    #[arg(long)]
    busy_poll: bool,
    #[command(flatten)]
    mend: MendArgs,
    #[command(flatten)]
    peer: PeerArgs,
}

/// An error that `doctor` ends with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DoctorError {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file is no snapshot.
    #[error("{}: {source}", path.display())]
    Snapshot {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: SnapshotError,
    },
    /// The findings could not be written.
    #[error("findings as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The interface could not be looked at.
    #[error("{0}")]
    Interface(String),
    /// Something could not be mended, or undone.
    #[error(transparent)]
    Mend(#[from] NotMended),
    /// Something is to be mended.
    #[error("{0} to mend")]
    ToMend(usize),
}

impl DoctorError {
    /// The exit status of a program that ends with it.
    #[must_use]
    pub const fn status(&self) -> u8 {
        if matches!(self, Self::ToMend(_)) { 3 } else { 1 }
    }
}

/// Findings, as programs read them.
#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    findings: &'a [Finding],
    /// The other host, and the path to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<peer::Page>,
}

/// Looks, or reads what was saved, and prints what it finds.
///
/// # Errors
///
/// [`DoctorError::ToMend`] if something is to be mended; otherwise that of a file or the interface.
pub fn run(args: &DoctorArgs, interrupt: &Interrupt) -> Result<(), DoctorError> {
    let interface = args.interface.as_deref();
    if args.mend.undo {
        return Ok(args.mend.run(interface, &[])?);
    }
    let snapshot = match &args.from {
        Some(path) => read(path)?,
        None => look(interface)?,
    };
    if let Some(path) = &args.save {
        let failed = |source| DoctorError::Snapshot { path: path.clone(), source };
        let text = snapshot.json().map_err(failed)?;
        fs::write(path, text).map_err(|source| DoctorError::File { path: path.clone(), source })?;
    }
    let mut findings = check(&snapshot, &wanted(args));
    findings.extend(args.peer.identity());
    if args.mend.is_wanted() {
        return Ok(args.mend.run(interface, &findings)?);
    }
    let peer = args.peer.examine(interface, interrupt);
    let to_mend = Count::of(&findings).mend + peer.as_ref().map_or(0, peer::Page::to_mend);
    if args.json {
        let report = Report { schema: "rma-bench doctor 1", findings: &findings, peer };
        line!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        let page = Page { snapshot: &snapshot, findings: &findings, verbose: args.all };
        line!("{}", page.to_string().trim_end());
        peer.iter().for_each(peer::Page::say);
    }
    match to_mend {
        0 => Ok(()),
        count => Err(DoctorError::ToMend(count)),
    }
}

fn wanted(args: &DoctorArgs) -> Wanted {
    let mut wanted = Wanted::default();
    wanted.engines = args.engines;
    wanted.cores = args.cores.as_ref().map_or_else(Vec::new, |it| it.all().to_vec());
    wanted.busy_poll = args.busy_poll;
    wanted
}

fn look(interface: Option<&str>) -> Result<Snapshot, DoctorError> {
    let snapshot = Look::at(interface).snapshot();
    let seen = snapshot.interfaces.first().map(|it| it.link.get());
    match (interface, seen) {
        (Some(_), Some(Err(why))) => Err(DoctorError::Interface(why.0)),
        _ => Ok(snapshot),
    }
}

fn read(path: &Path) -> Result<Snapshot, DoctorError> {
    let failed = |source| DoctorError::File { path: path.to_owned(), source };
    let text = fs::read_to_string(path).map_err(failed)?;
    let failed = |source| DoctorError::Snapshot { path: path.to_owned(), source };
    Snapshot::from_json(&text).map_err(failed)
}
