//! `rma-figures flows`: the convergence of congestion control in simulation, drawn with characters
//! and as CSV (figure 15 of the paper).

use core::time::Duration;
use std::{fs, io, path::PathBuf};

use clap::Args;
use rma_bench::{interrupt::Interrupt, line};
use rma_sim::flows::{
    Arrivals, FlowOptions, Log, RTT,
    plot::{Row, csv, rows, table},
    run as simulate,
    scenes::{DEMAND, Scene, settling},
};

/// The arguments of `flows`.
#[derive(Args, Clone, Debug)]
pub struct FlowsArgs {
    /// Scene to draw: ramp, join, join-total-delay-only or two-clients. Default: all.
    #[arg(long, value_name = "NAME", value_parser = scene)]
    pub scene: Option<Scene>,
    /// Seed of the flows' first times and of the frames' delays.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the whole run to this file as comma-separated values, one line for each round trip.
    #[arg(long, value_name = "FILE", requires = "scene")]
    pub csv: Option<PathBuf>,
}

fn scene(name: &str) -> Result<Scene, String> {
    let named = Scene::ALL.into_iter().find(|scene| scene.name() == name);
    named.ok_or_else(|| format!("the scenes are {}", Scene::ALL.map(Scene::name).join(", ")))
}

/// An error that kept a run from being shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlowsError {
    /// The file could not be written.
    #[error("cannot write {}: {error}; choose another file", path.display())]
    Csv {
        /// The file for the rows.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
}

/// Runs and draws.
///
/// # Errors
/// If the file cannot be written.
pub fn run(args: &FlowsArgs, interrupt: &Interrupt) -> Result<(), FlowsError> {
    for scene in Scene::ALL.into_iter().filter(|scene| args.scene.is_none_or(|it| it == *scene)) {
        if interrupt.is_set() {
            break;
        }
        let options = scene.options(args.seed);
        let log = simulate(&options);
        if let Some(path) = &args.csv {
            let all = csv(&drawn(&options, &log, Duration::ZERO, options.length));
            fs::write(path, all).map_err(|error| FlowsError::Csv { path: path.clone(), error })?;
        }
        let begins = options.flows.iter().map(|flow| match flow.arrivals {
            Arrivals::BackToBack { from, .. } => from,
            Arrivals::Poisson { .. } => Duration::ZERO,
        });
        let last = begins.max().unwrap_or_default();
        let settling = settling(&options, &log, &DEMAND);
        let since = if settling.happened { "settled after" } else { "not settled within" };
        line!(
            "{scene}, seed {}: {since} {:.1} RTT of 5 us, {} of {} ops were not OK",
            args.seed,
            settling.rtts,
            settling.failures,
            log.ops.len(),
        );
        line!(
            "Gbit/s with all headers; delays in us (d: issue delay, 10 us at the right); the local window in ops"
        );
        let from = last.saturating_sub(RTT * SHOWN_BEFORE);
        line!("{}", table(&drawn(&options, &log, from, last + RTT * SHOWN_AFTER)));
    }
    Ok(())
}

/// Round trips before the last flow begins, and after.
const SHOWN_BEFORE: u32 = 4;
const SHOWN_AFTER: u32 = 32;

fn drawn(options: &FlowOptions, log: &Log, from: Duration, to: Duration) -> Vec<Row> {
    rows(options, log, (from, to), RTT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scene_is_found_by_its_name_and_others_are_told() {
        for wanted in Scene::ALL {
            assert_eq!(scene(wanted.name()), Ok(wanted));
        }
        let error = scene("figure-15").unwrap_err();
        assert_eq!(error, "the scenes are ramp, join, join-total-delay-only, two-clients");
    }
}
