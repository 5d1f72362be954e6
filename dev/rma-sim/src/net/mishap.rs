//! The mishaps of nodes, besides links' faults: pauses, crashes, restarts, clocks that step,
//! regions that change while ops are under way.
//!
//! Each node has its own schedule, drawn from its own generator, so that one node's mishaps shift
//! no other's. This module says when and what; [`crate::load::scenario`] does it, as a restart
//! means that software registers its regions again.

use core::time::Duration;

use rma_core::time::Instant;

use crate::{
    net::{clock::ClockOptions, frame::NodeId},
    prng::{Chance, Prng},
};

/// How often nodes are struck, and how hard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MishapOptions {
    /// How many mishaps each node has.
    pub count: u32,
    /// The mean time between two mishaps of a node.
    pub gap: Duration,
    /// How many of them are crashes.
    pub crash: Chance,
    /// How many of the others are changes of the node's own regions: a key is rotated, a region is
    /// deregistered and registered anew. The rest are pauses.
    pub change: Chance,
    /// How often a node is stopped in the midst of handling a solicitation or solicited data, for
    /// as long as a pause may take. Beside `count`.
    pub stall: Chance,
    /// The longest pause.
    pub pause_max: Duration,
    /// The longest time between a crash and the restart.
    pub down_max: Duration,
    /// How many of the restarts come with new keys and contents. Otherwise all is as it was, names
    /// of regions included: what an attacker who replays old frames would wish for.
    pub new_keys: Chance,
    /// How far a clock may be set back or forward across a restart.
    pub clock_step_max: Duration,
}

/// A mishap of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mishap {
    /// Its software is stopped for so long.
    Pause(Duration),
    /// A key or a region of its own changes.
    Change(Change),
    /// All its state is gone.
    Crash,
    /// It starts anew.
    Restart {
        /// Whether keys and contents are new, too.
        new_keys: bool,
    },
}

/// A change in a table of regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The key of a region that others use.
    Key,
    /// Such a region goes and comes back.
    Target,
    /// So does the local end of the node's own ops.
    Local,
}

#[derive(Debug)]
struct Schedule {
    prng: Prng,
    left: u32,
    next: Option<(Instant, Mishap)>,
}

/// The schedules of all nodes.
#[derive(Debug)]
pub(crate) struct Mishaps {
    options: MishapOptions,
    nodes: Vec<Schedule>,
}

impl Mishaps {
    pub(crate) fn new(options: MishapOptions, nodes: usize, prng: &Prng) -> Self {
        let schedule = |node| Schedule { prng: prng.fork(node), left: options.count, next: None };
        let mut mishaps = Self { options, nodes: (0..nodes as u64).map(schedule).collect() };
        for node in 0..nodes {
            mishaps.draw(node, Instant::ZERO);
        }
        mishaps
    }

    /// The next mishap of all.
    pub(crate) fn next(&self) -> Option<(Instant, NodeId)> {
        let next =
            |(index, node): (usize, &Schedule)| node.next.map(|(at, _)| (at, NodeId(index as u16)));
        self.nodes.iter().enumerate().filter_map(next).min()
    }

    /// Returns the mishap of `node` at `now`, which has one scheduled; schedules what follows.
    pub(crate) fn strike(&mut self, now: Instant, node: NodeId) -> Mishap {
        let (_, mishap) = self.nodes[node.index()].next.take().expect("scheduled");
        match mishap {
            Mishap::Crash => {
                let schedule = &mut self.nodes[node.index()];
                let down = magnitude(&mut schedule.prng, self.options.down_max);
                let new_keys = schedule.prng.chance(self.options.new_keys);
                schedule.next = Some((now + down, Mishap::Restart { new_keys }));
            }
            Mishap::Pause(length) => self.draw(node.index(), now + length),
            Mishap::Restart { .. } | Mishap::Change(_) => self.draw(node.index(), now),
        }
        mishap
    }

    /// The clock of `node` after a restart, where it showed `local`.
    pub(crate) fn restarted_clock(
        &mut self,
        node: NodeId,
        local: Instant,
        clock: ClockOptions,
    ) -> ClockOptions {
        let prng = &mut self.nodes[node.index()].prng;
        let step = magnitude(prng, self.options.clock_step_max);
        let back = local.as_nanos().saturating_sub(step.as_nanos() as u64);
        let starts_at = prng.choose(&[local, local + step, Instant::from_nanos(back)]);
        ClockOptions { starts_at, ..clock }
    }

    fn draw(&mut self, node: usize, from: Instant) {
        let Self { options, nodes } = self;
        let Schedule { prng, left, next } = &mut nodes[node];
        if *left == 0 {
            return;
        }
        *left -= 1;
        let gap = prng.below(2 * nanos(options.gap)) + 1;
        let pause = Mishap::Pause(magnitude(prng, options.pause_max));
        let change = prng.choose(&[Change::Key, Change::Target, Change::Local]);
        let mishap = match (prng.chance(options.crash), prng.chance(options.change)) {
            (true, _) => Mishap::Crash,
            (false, true) => Mishap::Change(change),
            (false, false) => pause,
        };
        *next = Some((from + Duration::from_nanos(gap), mishap));
    }
}

fn magnitude(prng: &mut Prng, most: Duration) -> Duration {
    Duration::from_nanos(prng.magnitude(nanos(most).max(1)))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: MishapOptions = MishapOptions {
        count: 40,
        gap: Duration::from_micros(50),
        crash: Chance::ppm(500_000),
        change: Chance::ppm(500_000),
        stall: Chance::NEVER,
        pause_max: Duration::from_micros(100),
        down_max: Duration::from_micros(100),
        new_keys: Chance::ppm(500_000),
        clock_step_max: Duration::from_micros(100),
    };

    #[test]
    fn each_crash_is_followed_by_its_restart_and_all_come_to_an_end() {
        let mut mishaps = Mishaps::new(OPTIONS, 3, &Prng::new(1));
        let (mut down, mut struck, mut last) = ([false; 3], [0; 3], Instant::ZERO);
        while let Some((at, node)) = mishaps.next() {
            assert!(at >= last);
            last = at;
            match mishaps.strike(at, node) {
                Mishap::Restart { .. } => assert!(core::mem::take(&mut down[node.index()])),
                mishap => {
                    assert!(!down[node.index()]);
                    down[node.index()] = mishap == Mishap::Crash;
                    struck[node.index()] += 1;
                }
            }
        }
        assert_eq!((down, struck), ([false; 3], [40; 3]));
    }

    #[test]
    fn a_clock_goes_on_or_steps_either_way() {
        let mut mishaps = Mishaps::new(OPTIONS, 1, &Prng::new(1));
        let local = Instant::from_nanos(1_000_000);
        let mut steps = std::collections::BTreeSet::new();
        for _ in 0..100 {
            let clock = mishaps.restarted_clock(NodeId(0), local, ClockOptions::default());
            steps.insert(clock.starts_at.cmp(&local));
        }
        assert_eq!(steps.len(), 3);
    }
}
