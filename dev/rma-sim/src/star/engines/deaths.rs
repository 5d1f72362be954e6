//! A host dies at each step of its work: within what time all of the other one ends (S1).

use core::time::Duration;

use super::{
    options::{Options, Outcome, Workload},
    run::Run,
};

/// Turns of the host that dies, each of which is its last once: those of more than a call, and of
/// more than a WRITE or READ.
const STEPS: u32 = 32;

/// Bytes of a WRITE or READ: many frames.
const LEN: u32 = 20_000;

/// A host has died.
#[derive(Clone, Debug)]
pub struct Death {
    /// The workload of its connections.
    pub workload: Workload,
    /// Whether the stateless side of them lives.
    pub stateless_lives: bool,
    /// After how many turns of its work it died.
    pub step: u32,
    /// The outcome of the run.
    pub outcome: Outcome,
    /// T_dead of the side that lives.
    pub bound: Duration,
}

impl Death {
    /// The slowest work request of the side that lives, over the bound. Infinite if one has not
    /// ended in twice that time.
    #[must_use]
    pub fn over_bound(&self) -> f64 {
        if self.outcome.open > 0 {
            return f64::INFINITY;
        }
        self.outcome.slowest_end.as_secs_f64() / self.bound.as_secs_f64()
    }
}

/// Two connections between two hosts, of which either one dies at each step, whichever is the
/// stateless side, with each workload and the default settings.
pub fn deaths() -> impl Iterator<Item = Death> {
    let runs = [Workload::Rpc, Workload::Write(LEN), Workload::Read(LEN)]
        .into_iter()
        .flat_map(|workload| {
            [true, false].map(|server_is_stateless| (workload, server_is_stateless))
        })
        .flat_map(|run| [0, 1].map(|dies| (run, dies)))
        .flat_map(|run| (0..STEPS).map(move |step| (run, step)));
    runs.map(|(((workload, server_is_stateless), dies), step)| {
        let options = Options {
            clients: 1,
            connections: 2,
            workload,
            server_is_stateless,
            ..Options::default()
        };
        let stateless_lives = (dies == 1) == server_is_stateless;
        let Options { verbs, star, .. } = &options;
        let bound = if stateless_lives { verbs.ends_within() } else { star.ends_within() };
        let mut run = Run::new(options);
        run.kill_after(dies, step);
        run.run_for(2 * bound);
        Death { workload, stateless_lives, step, outcome: run.outcome(), bound }
    })
}
