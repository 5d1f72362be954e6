//! Calls that begin when earlier ones are OK (not in the paper): who waits for whom.
//!
//! Invariant: a call is in the list of another exactly while it waits for it, at most in two.

use super::{
    CommandExecutor,
    call::{CallError, CallId},
    calls::{End, Phase},
};
use crate::time::Instant;

/// How many calls one may wait for.
const PREDECESSORS: usize = 2;

/// The end of a list.
const NONE: u32 = u32::MAX;

/// The calls that wait for other calls. A call that waits has a node for each that it waits for.
#[derive(Debug)]
pub(super) struct After {
    /// By call: the first node of those that wait for it.
    first: Box<[u32]>,
    /// By node: the next of the same list.
    next: Box<[u32]>,
    /// By node: the call that is waited for.
    of: Box<[Option<u16>]>,
    /// How many nodes are in lists.
    waiting: usize,
    /// Calls that wait for nothing any longer: all was OK, or not.
    resolved: Vec<(u16, bool)>,
}

impl After {
    pub(super) fn new(calls: u16) -> Self {
        let calls = usize::from(calls);
        Self {
            first: vec![NONE; calls].into(),
            next: vec![NONE; PREDECESSORS * calls].into(),
            of: vec![None; PREDECESSORS * calls].into(),
            waiting: 0,
            resolved: Vec::with_capacity(calls),
        }
    }

    /// Whether anybody waits.
    #[inline]
    pub(super) const fn any(&self) -> bool {
        self.waiting > 0
    }

    /// Whether `call` waits, or has not been told that it does not any longer.
    pub(super) fn waits(&self, call: u16) -> bool {
        let [first, second] = Self::nodes(call);
        self.of[first].is_some()
            || self.of[second].is_some()
            || self.resolved.iter().any(|&(resolved, _)| resolved == call)
    }

    /// Whether somebody has to be told.
    #[inline]
    pub(super) const fn has_resolved(&self) -> bool {
        !self.resolved.is_empty()
    }

    const fn nodes(call: u16) -> [usize; PREDECESSORS] {
        let first = PREDECESSORS * call as usize;
        [first, first + 1]
    }

    /// `call` waits for `before`, in its `place`th list.
    fn link(&mut self, call: u16, place: usize, before: u16) {
        let node = Self::nodes(call)[place];
        self.of[node] = Some(before);
        self.next[node] = core::mem::replace(&mut self.first[usize::from(before)], node as u32);
        self.waiting += 1;
    }

    fn unlink(&mut self, node: usize) {
        let Some(before) = self.of[node].take() else { return };
        self.waiting -= 1;
        let mut at = self.first[usize::from(before)];
        if at == node as u32 {
            self.first[usize::from(before)] = self.next[node];
            return;
        }
        while at != NONE {
            let next = self.next[at as usize];
            if next == node as u32 {
                self.next[at as usize] = self.next[node];
                return;
            }
            at = next;
        }
    }

    /// `call` is over: it waits for nothing.
    pub(super) fn forget(&mut self, call: u16) {
        Self::nodes(call).into_iter().for_each(|node| self.unlink(node));
        self.resolved.retain(|&(resolved, _)| resolved != call);
    }

    /// `before` is over, well or not.
    fn resolve(&mut self, before: u16, is_ok: bool) {
        loop {
            let node = self.first[usize::from(before)];
            if node == NONE {
                return;
            }
            let call = (node as usize / PREDECESSORS) as u16;
            self.unlink(node as usize);
            if !is_ok {
                self.forget(call);
                self.resolved.push((call, false));
            } else if !self.waits(call) {
                self.resolved.push((call, true));
            }
        }
    }
}

impl CommandExecutor {
    /// Whether a call may come after these.
    #[inline]
    pub(super) fn check_after(
        &self,
        after: [Option<CallId>; PREDECESSORS],
    ) -> Result<(), CallError> {
        let gone = |call: &CallId| !self.calls.is_current(*call);
        match after.into_iter().flatten().find(gone) {
            Some(call) => Err(CallError::NoSuchPredecessor { call }),
            None => Ok(()),
        }
    }

    /// The call at `index`, which begins, comes after these.
    #[cold]
    pub(super) fn follow(&mut self, index: u16, after: [Option<CallId>; PREDECESSORS]) {
        for (place, before) in after.into_iter().enumerate() {
            let Some(CallId { index: before, .. }) = before else { continue };
            if self.calls[before].phase != Phase::Over {
                self.after.link(index, place, before);
            } else if !self.calls[before].went_well() {
                self.after.forget(index);
                self.after.resolved.push((index, false));
                return;
            }
        }
    }

    /// The call at `index` is over: tells those that wait for it.
    #[cold]
    pub(super) fn tell_after(&mut self, index: u16) {
        let is_ok = self.calls[index].went_well();
        self.after.resolve(index, is_ok);
    }

    /// Calls that wait for no other any more begin, or end. Returns how many.
    #[inline]
    pub(super) fn release_after(&mut self, now: Instant) -> usize {
        if self.after.has_resolved() { self.release_all_after(now) } else { 0 }
    }

    #[cold]
    fn release_all_after(&mut self, now: Instant) -> usize {
        let mut released = 0;
        while let Some((index, is_ok)) = self.after.resolved.pop() {
            released += 1;
            match self.calls[index].phase {
                Phase::Held | Phase::Awaiting if !is_ok => {
                    self.stop(index, End::PredecessorFailed);
                }
                Phase::Awaiting => self.start(now, index),
                // It waits for a fence still; or is over.
                _ => {}
            }
        }
        released
    }
}
