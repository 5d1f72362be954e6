//! A checker's memory of frames and ops, which does not grow with a run's length.
//!
//! Nothing that is forgotten can matter any longer:
//!
//! - *Frames.* What a frame meant is asked only by whoever shows that frame: the network when a
//!   copy of it arrives or is lost, or one who has recorded it. They hold it. So the checker
//!   remembers a frame until nobody holds it.
//! - *Ops.* An op is asked about by its number, and numbers are never used again. They stand in
//!   commands under way, in what responders have accepted or refused and not told, and in frames.
//!   The checker looks for the least that is left there, and forgets all ops before.
//! - *Requests that nobody will be told of.* One that was refused at once is told within a timeout,
//!   or never: [`notices`](super::notices) ignores it after that. One that was accepted is
//!   answered, or refused later: a read within a timeout, a mutation within a dispatch timeout, or
//!   in the first turn after a stop; and the notice of that waits for a timeout at most. One that
//!   is older than all three together, at a node that has run for as long, is neither in a queue of
//!   its NIC nor waits to be told. Had the NIC told of it all the same, that would now be found as
//!   a notice that nobody asked for.
//!
//! Kept for ever: counters as ranges ([`ivs`](super::ivs)), a row for each stranger, region and key
//! that has been there, and the records of ops that targets record, as a NIC may keep those for as
//! long as it has room.

use core::ops::{Index, IndexMut};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Weak},
};

use rma_core::time::Instant;

use super::{
    Checker, settings,
    state::{FrameNumber, NodeState, Op, OpIndex},
};
use crate::net::{
    frame::{Frame, NodeId},
    node::Condition,
    sim::Sim,
};

/// The meaning of a frame.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meant {
    /// `None` for failure notices.
    pub(super) op: Option<OpIndex>,
    /// The solicitation that solicited data answers, and an acknowledgement belongs to.
    pub(super) solicitation: Option<FrameNumber>,
}

impl Meant {
    pub(super) fn op(self) -> OpIndex {
        self.op.expect("set when the frame was sent, but for failure notices")
    }
}

/// The meanings of frames, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Meanings {
    /// The number of the first of `all`.
    first: FrameNumber,
    all: VecDeque<Meaning>,
    /// Those before them that are held for long.
    held: BTreeMap<FrameNumber, Meaning>,
}

#[derive(Debug)]
struct Meaning {
    frame: Weak<Frame>,
    meant: Meant,
}

impl Meanings {
    /// The next frame was sent.
    pub(super) fn push(&mut self, frame: &Arc<Frame>, meant: Meant) {
        self.all.push_back(Meaning { frame: Arc::downgrade(frame), meant });
    }

    /// The meaning of a frame that was sent.
    pub(super) fn of(&self, frame: &Frame) -> Meant {
        let place = frame.number.checked_sub(self.first);
        place.map_or_else(|| &self.held[&frame.number], |it| &self.all[it as usize]).meant
    }

    fn forget(&mut self) {
        while self.all.len() > BEHIND || self.all.front().is_some_and(|it| !it.is_held()) {
            if let Some(held) = self.all.pop_front().filter(Meaning::is_held) {
                self.held.insert(self.first, held);
            }
            self.first += 1;
        }
    }

    /// Looks at those that are held for long, and returns the ops of all.
    fn ops(&mut self) -> impl Iterator<Item = OpIndex> {
        self.held.retain(|_, it| it.is_held());
        self.held.values().chain(&self.all).filter_map(|it| it.meant.op)
    }
}

impl Meaning {
    fn is_held(&self) -> bool {
        self.frame.strong_count() > 0
    }
}

/// So many frames may have been sent after one that is held for long.
const BEHIND: usize = 1 << 12;

/// Ops that entered service, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Ops {
    /// The number of the first that is not forgotten.
    first: OpIndex,
    all: VecDeque<Op>,
    /// How many there are when those that are over are looked for.
    look_at: usize,
}

impl Ops {
    /// The number of the next op.
    pub(super) fn next(&self) -> OpIndex {
        self.first + self.all.len()
    }

    pub(super) fn push(&mut self, op: Op) {
        self.all.push_back(op);
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Op> {
        self.all.iter_mut()
    }
}

impl Index<OpIndex> for Ops {
    type Output = Op;

    fn index(&self, index: OpIndex) -> &Op {
        &self.all[index - self.first]
    }
}

impl IndexMut<OpIndex> for Ops {
    fn index_mut(&mut self, index: OpIndex) -> &mut Op {
        &mut self.all[index - self.first]
    }
}

impl Checker {
    /// Forgets what is over.
    pub(super) fn forget(&mut self, sim: &Sim) {
        self.meant.forget();
        if self.ops.all.len() < self.ops.look_at {
            return;
        }
        for node in sim.engines().filter(|&it| sim.condition(it) == Condition::Running) {
            self.forget_untold(sim, node);
        }
        let all = self.nodes.iter().flat_map(NodeState::ops).chain(self.meant.ops());
        let first = all.min().unwrap_or(self.ops.next());
        self.ops.all.drain(..first - self.ops.first);
        self.ops.first = first;
        // To look costs a step for each slot, and so little for each op if there are as many. Tests
        // forget as soon as they can.
        let slots = self.nodes.iter().map(|state| state.slots.len());
        let slots = if cfg!(test) { 0 } else { slots.sum() };
        self.ops.look_at = 2 * self.ops.all.len() + slots;
        self.keys.iter_mut().for_each(|keys| keys.forget(first));
    }

    /// How many frames and ops it remembers.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.meant.all.len() + self.meant.held.len() + self.ops.all.len()
    }

    /// Forgets the requests that `node`, which runs, will not tell of any more.
    fn forget_untold(&mut self, sim: &Sim, node: NodeId) {
        let timing = settings(sim, node).timing;
        let longest = timing.dispatch_timeout + 2 * timing.timeout + sim.wake_slack(node);
        let now = sim.local_now(node);
        let runs_since = sim.resumed_at(node).map(|at| sim.local_at(node, at));
        let is_over = |at: Instant| {
            let since = runs_since.map_or(at, |resumed| at.max(resumed));
            now.since(since) > longest
        };
        let state = &mut self.nodes[node.index()];
        state.notices.forget(now, timing.timeout, is_over);
        state.overtaken.retain(|&(_, at)| !is_over(at));
    }
}
