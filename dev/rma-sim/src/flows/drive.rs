//! Applications over a simulated network: each looks when something has come for it, or when it
//! wanted to, and else nobody looks at it.
//!
//! Invariants: the promises that the run checks hold after every event; otherwise it panics, as
//! then no number of it means anything. Applications that want to look at one instant do so in
//! their order.

use core::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use rma_core::time::Instant;

use crate::{
    check::watch::Watch,
    net::{frame::NodeId, node::Condition, sim::Sim, trace::Seen},
};

/// The software of one host, which tells the log of all hosts what it sees.
pub(super) trait App<Log> {
    /// Its thread looks, and does what it can. Returns when it wants to look again.
    fn turn(&mut self, sim: &mut Sim, log: &mut Log) -> Option<Instant>;

    /// Something has happened at its NIC. Returns whether it has to look at once.
    fn tell(&mut self, seen: &Seen, log: &mut Log) -> bool;
}

/// A network with applications.
pub(super) struct Drive<A, Log> {
    pub(super) sim: Sim,
    watch: Watch,
    pub(super) apps: Vec<A>,
    nodes: Vec<NodeId>,
    /// By node.
    app_of: Vec<Option<usize>>,
    wake_at: Vec<Option<Instant>>,
    /// Those that differ from `wake_at` are of no use any more.
    wakes: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Something has come for them.
    rings: BTreeSet<usize>,
    seen: Vec<Seen>,
    pub(super) log: Log,
}

impl<Log, A: App<Log>> Drive<A, Log> {
    /// `apps` at their hosts, one each, which look first when the time begins.
    pub(super) fn new(mut sim: Sim, watch: Watch, apps: Vec<(NodeId, A)>, log: Log) -> Self {
        if matches!(watch, Watch::Light(_)) {
            sim.set_quiet();
        }
        let mut app_of = vec![None; sim.nodes().count()];
        let (nodes, apps): (Vec<_>, Vec<_>) = apps.into_iter().unzip();
        for (index, node) in nodes.iter().enumerate() {
            app_of[node.index()] = Some(index);
        }
        Self {
            wakes: (0..apps.len()).map(|index| Reverse((Instant::ZERO, index))).collect(),
            wake_at: vec![Some(Instant::ZERO); apps.len()],
            sim,
            watch,
            apps,
            nodes,
            app_of,
            rings: BTreeSet::new(),
            seen: Vec::new(),
            log,
        }
    }

    /// Does all that happens before `end`, and lets time pass until then.
    pub(super) fn run_until(&mut self, end: Instant) {
        while self.step(end) {}
        self.sim.advance_to(end);
    }

    /// The run is over.
    pub(super) fn check_end(&mut self) {
        self.watch.check_end(&self.sim).unwrap_or_else(|broken| panic!("{broken}"));
    }

    /// Takes a host down, and its application with it.
    pub(super) fn crash(&mut self, node: NodeId) {
        self.sim.crash(node);
        self.take_seen();
    }

    /// Does what comes next. Returns false if that is not before `end`.
    fn step(&mut self, end: Instant) -> bool {
        let event = self.sim.next_at();
        match (event, self.next_wake()) {
            (event, Some((at, index))) if event.is_none_or(|event| at < event) => {
                if at >= end {
                    return false;
                }
                self.sim.advance_to(at);
                self.rings.insert(index);
            }
            (Some(at), _) if at < end => {
                self.sim.step();
            }
            _ => return false,
        }
        self.take_seen();
        while let Some(index) = self.rings.pop_first() {
            self.turn(index);
        }
        true
    }

    fn next_wake(&mut self) -> Option<(Instant, usize)> {
        while let Some(&Reverse((at, index))) = self.wakes.peek() {
            if self.wake_at[index] == Some(at) {
                return Some((at, index));
            }
            self.wakes.pop();
        }
        None
    }

    fn turn(&mut self, index: usize) {
        let is_up = self.sim.condition(self.nodes[index]) == Condition::Running;
        let wake_at =
            if is_up { self.apps[index].turn(&mut self.sim, &mut self.log) } else { None };
        if self.wake_at[index] != wake_at {
            self.wake_at[index] = wake_at;
            self.wakes.extend(wake_at.map(|at| Reverse((at, index))));
        }
        self.take_seen();
    }

    fn take_seen(&mut self) {
        let mut all = core::mem::take(&mut self.seen);
        all.clear();
        self.sim.swap_seen(&mut all);
        for seen in &all {
            self.watch.take(&self.sim, seen).unwrap_or_else(|broken| panic!("{broken}"));
            if let Some(app) = self.app_of[seen.node.index()]
                && self.apps[app].tell(seen, &mut self.log)
            {
                self.rings.insert(app);
            }
        }
        self.watch.check(&self.sim).unwrap_or_else(|broken| panic!("{broken}"));
        self.seen = all;
    }
}
