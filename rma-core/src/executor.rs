//! The CommandExecutor: transfers of any size over one portal (1RMA §4.4, §6).
//!
//! It cuts calls into ops of at most 4 KiB, issues them as fast as congestion control and the portal's slots allow,
//! issues again what failed in passing, and tells the application what became of each call. It does in software what
//! the paper's NIC does not: chunking, pacing, congestion control, retry and ordering.
//!
//! # Who goes next
//!
//! Calls to one remote NIC in one direction share a congestion window; such a pair is a *path* (not in the paper).
//! Paths that may issue take turns, an op each; in a path the two classes of service take turns, and in a class the
//! calls do. So a call of one op waits for at most one op of each other call, however large those are. Ops of the
//! class [`Throughput`](crate::op::ClassOfService::Throughput) leave some of the portal's slots free, so that bulk
//! transfers to hosts that do not answer cannot take all of them until they time out.
//!
//! # How to drive it
//!
//! [`CommandExecutor::submit`] takes a call; [`CommandExecutor::poll`] takes completions and issues ops: call it
//! whenever there may be a completion, and not later than [`CommandExecutor::poll_timeout`] says;
//! [`CommandExecutor::poll_outcome`] gives back calls that are over. It reads no clock: time is an argument. It
//! belongs to one thread, as its portal does.
//!
//! # What it is not
//!
//! No order among calls or within one, but for [`CommandExecutor::fence`]. No memory of its own: data moves between
//! registered regions. Nothing that one executor does is seen by another, also not its congestion windows.
//!
//! Invariants: each call has one outcome; every byte of it is either transferred or told as missing; a call is over
//! only when none of its ops is under way. After it was made the executor allocates only for calls of several pieces,
//! and for failures.

// What is done for every op is `#[inline]` here, in `cc` and in `portal`: the refusals are large, and results that could
// hold one would go through memory (28 of the 115 ns that an op took without).

mod call;
mod calls;
mod config;
mod cut;
mod paths;
#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

pub use call::{
    Call, CallError, CallId, CallStatus, Missing, Outcome, PIECES_MAX, Piece, RetryPolicy,
};
pub use config::{ExecutorConfig, ExecutorConfigError, PayloadLenMax};

use self::{
    calls::{Calls, Phase, Span},
    cut::Cut,
    paths::{Issue, Paths, Turn},
};
use crate::{
    cc::{CongestionControl, Direction, Feedback, Held},
    command::{Command, CommandOp, Completion, Transfer},
    op::{ClassOfService, OpStatus, OpType},
    portal::CommandPortal,
    time::Instant,
};

/// An op under way, by its command slot.
#[derive(Clone, Copy, Debug)]
struct Op {
    call: u16,
    span: Span,
    /// What it takes of its path's window.
    charge: u32,
    /// What all ops of the path took of it when this one had been issued.
    outstanding: u64,
}

/// See the module.
//= 1rma#4.4-executor
#[derive(Debug)]
pub struct CommandExecutor<P: AsMut<CommandPortal> = CommandPortal> {
    portal: P,
    /// The first of the portal's slots.
    first_slot: u16,
    /// By command slot.
    ops: Box<[Op]>,
    calls: Calls,
    paths: Paths,
    cc: CongestionControl,
    /// With IPv4 and with IPv6.
    cuts: [Cut; 2],
    /// Calls that wait for those before a fence, in the order of submission, and some that have been given up.
    held: VecDeque<CallId>,
    /// Whether something was submitted since the last fence.
    fence_parts: bool,
    /// How many fences there were that part anything, and how many of them have been passed.
    fences: u32,
    passed: u32,
    /// Calls that have been let past all fences before them and are not over.
    active: usize,
    deadlines: BinaryHeap<Reverse<(Instant, CallId)>>,
    /// Calls that are over and whose outcomes have not been taken.
    over: VecDeque<u16>,
    /// Whether the application has asked for something since the last [`CommandExecutor::poll`].
    asked: bool,
}

impl<P: AsMut<CommandPortal>> CommandExecutor<P> {
    /// An executor over `portal`, of which nothing may be under way.
    ///
    /// # Errors
    /// The first setting that cannot work, with its value and the rule.
    ///
    /// # Panics
    /// If an op of the portal is under way.
    pub fn new(mut portal: P, config: ExecutorConfig) -> Result<Self, ExecutorConfigError> {
        let cc = config.build()?;
        let slots = {
            let portal = portal.as_mut();
            assert_eq!(portal.outstanding(), 0, "an executor has its portal to itself");
            portal.slots().clone()
        };
        let payload = config.payload_len_max;
        let none = Op { call: 0, span: Span::NONE, charge: 0, outstanding: 0 };
        Ok(Self {
            portal,
            first_slot: slots.start,
            ops: vec![none; slots.len()].into(),
            calls: Calls::new(config.calls),
            paths: Paths::new(config.cc.remotes, config.calls, slots.len()),
            cc: CongestionControl::new(cc),
            cuts: [payload.ipv4, payload.ipv6].map(|payload| Cut::new(payload, config.op_size_max)),
            held: VecDeque::with_capacity(2 * usize::from(config.calls)),
            fence_parts: false,
            fences: 0,
            passed: 0,
            active: 0,
            // Twice as many, so that they seldom have to be looked through.
            deadlines: BinaryHeap::with_capacity(2 * usize::from(config.calls)),
            over: VecDeque::with_capacity(config.calls.into()),
            asked: false,
        })
    }

    /// Takes a call. Its first ops may be issued at once, with all others in the next [`CommandExecutor::poll`].
    ///
    /// Until the call is over, the local bytes of a read may change at any moment, and those of a write must not.
    ///
    /// # Errors
    /// If the call cannot be right, or there is no room for it. Then nothing was issued.
    pub fn submit(&mut self, now: Instant, call: &Call<'_>) -> Result<CallId, CallError> {
        self.begin(now, call, false)
    }

    /// [`CommandExecutor::fence`] and then [`CommandExecutor::submit`]; but if the call is refused, there is no fence either.
    ///
    /// # Errors
    /// As [`CommandExecutor::submit`].
    pub fn submit_fenced(&mut self, now: Instant, call: &Call<'_>) -> Result<CallId, CallError> {
        self.begin(now, call, true)
    }

    #[inline]
    fn begin(
        &mut self,
        now: Instant,
        call: &Call<'_>,
        is_fenced: bool,
    ) -> Result<CallId, CallError> {
        let op_type = self.check_op_type(call)?;
        let index =
            self.calls.take().ok_or(CallError::TooManyCalls { calls: self.calls.count() })?;
        let responder = call.pieces[0].grant.responder;
        let path = match self.cc.hold(responder, Direction::of(op_type)) {
            Ok(Held { id, is_new }) => {
                if is_new {
                    self.paths.begin(id);
                }
                id
            }
            Err(error) => {
                self.calls.give_back(index);
                return Err(error.into());
            }
        };
        if is_fenced {
            // Nothing can fail any more.
            self.fence();
        }
        let cut = self.cuts[usize::from(!responder.is_ipv4())];
        let id = self.calls.begin(index, call, path, cut, self.fences);
        if let Some(deadline) = call.deadline {
            self.expect(deadline, id);
        }
        (self.asked, self.fence_parts) = (true, true);
        if self.fences == self.passed {
            self.activate(now, index);
        } else {
            self.hold(id);
        }
        Ok(id)
    }

    /// What kind of ops a call has that can be right.
    #[inline]
    fn check_op_type(&mut self, call: &Call<'_>) -> Result<OpType, CallError> {
        let op_type = call::check(call.pieces)?;
        let portal = self.portal.as_mut();
        for (piece, it) in call.pieces.iter().enumerate() {
            let usable =
                portal.check_grant(it.grant, op_type).and_then(|()| portal.check_local(it.local));
            usable.map_err(|error| CallError::Submit { piece, error })?;
        }
        Ok(op_type)
    }

    /// Whether `call` can be right: what [`CommandExecutor::submit`] looks at before it looks for room. For who keeps
    /// calls until there is some.
    ///
    /// # Errors
    /// As [`CommandExecutor::submit`], but for want of room.
    pub fn check(&mut self, call: &Call<'_>) -> Result<(), CallError> {
        self.check_op_type(call).map(drop)
    }

    /// With which class of service `call` would be: its own, or what suits it.
    #[must_use]
    pub fn class_of(&self, call: &Call<'_>) -> ClassOfService {
        let is_ipv4 = call.pieces.first().is_none_or(|it| it.grant.responder.is_ipv4());
        call.class.unwrap_or_else(|| self.cuts[usize::from(!is_ipv4)].class(call.pieces))
    }

    /// From now on, what is submitted waits until everything that was submitted before is over, well or not.
    pub fn fence(&mut self) {
        if core::mem::take(&mut self.fence_parts) {
            self.fences = self.fences.wrapping_add(1);
            self.asked = true;
        }
    }

    /// Gives up a call: no more ops of it are issued. It is over when those that are under way are. Of a call that is
    /// over, or whose outcome was taken, nothing changes.
    pub fn cancel(&mut self, call: CallId) {
        if self.calls.is_current(call) {
            self.stop(call.index, CallStatus::Cancelled);
            self.asked = true;
        }
    }

    /// Takes the completions that there are, and issues what may be issued. Returns how much there was to do; 0 if
    /// nothing, and then there are no outcomes that there were not before.
    pub fn poll(&mut self, now: Instant) -> usize {
        self.asked = false;
        let mut work = 0;
        // No more than there are slots, or an engine that answers faster than this thread asks could keep it here.
        for _ in 0..self.ops.len() {
            let Some(completion) = self.portal.as_mut().poll() else { break };
            self.complete(now, &completion);
            work += 1;
        }
        work + self.expire(now) + self.issue(now)
    }

    /// When [`CommandExecutor::poll`] has something to do even if no completion comes; [`Instant::ZERO`] if at once.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.asked {
            return Some(Instant::ZERO);
        }
        let deadline = self.deadlines.peek().map(|&Reverse((at, _))| at);
        [deadline, self.paths.poll_timeout()].into_iter().flatten().min()
    }

    /// The outcome of a call that is over. Its [`CallId`] may be another call's from now on.
    pub fn poll_outcome(&mut self) -> Option<Outcome> {
        let index = self.over.pop_front()?;
        Some(self.calls.end(index))
    }

    /// How many calls are not over, or their outcomes have not been taken.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls.in_use()
    }

    /// How many calls have something that has not been issued: for want of a window or a slot, or as its time or the
    /// passing of a fence has not come. Looks at as many places of calls, at most, as there have been calls at once.
    #[must_use]
    pub fn calls_waiting(&self) -> usize {
        self.calls.waiting()
    }

    /// How many ops are under way.
    #[must_use]
    pub fn ops_outstanding(&mut self) -> usize {
        self.portal.as_mut().outstanding()
    }

    /// The portal, to wait for completions. They are to be taken by [`CommandExecutor::poll`] alone.
    pub const fn portal(&self) -> &P {
        &self.portal
    }

    /// Congestion control, to look at its windows.
    #[must_use]
    pub const fn congestion_control(&self) -> &CongestionControl {
        &self.cc
    }

    /// Takes note of a deadline. Those of calls that are over go when there are many of them.
    fn expect(&mut self, deadline: Instant, call: CallId) {
        let Self { deadlines, calls, .. } = self;
        if deadlines.len() == deadlines.capacity() {
            deadlines.retain(|Reverse((_, call))| calls.is_current(*call));
        }
        deadlines.push(Reverse((deadline, call)));
    }

    /// Lets a call have its turns.
    fn activate(&mut self, now: Instant, index: u16) {
        self.active += 1;
        let call = &mut self.calls[index];
        call.phase = Phase::Active;
        self.paths.enqueue(now, call.path, call.class, index);
    }

    /// Has a call wait for a fence to be passed. Those that were given up go when there are many of them.
    fn hold(&mut self, call: CallId) {
        let Self { held, calls, .. } = self;
        if held.len() == held.capacity() {
            held.retain(|&call| calls.is_held(call));
        }
        held.push_back(call);
    }

    /// The call that has waited longest for a fence.
    fn first_held(&mut self) -> Option<u16> {
        while let Some(&call) = self.held.front() {
            if self.calls.is_held(call) {
                return Some(call.index);
            }
            self.held.pop_front();
        }
        None
    }

    /// Calls with nothing before them any more begin. Returns how many.
    fn release_held(&mut self, now: Instant) -> usize {
        let mut released = 0;
        while self.passed != self.fences {
            let fence = self.first_held().map_or(self.fences, |index| self.calls[index].fence);
            if fence != self.passed {
                if self.active > 0 {
                    break;
                }
                // All that was before it is over.
                self.passed = fence;
            }
            while let Some(index) = self.first_held()
                && self.calls[index].fence == self.passed
            {
                self.held.pop_front();
                self.activate(now, index);
                released += 1;
            }
            if self.active > 0 {
                break;
            }
        }
        released
    }

    /// Ends calls whose deadline has come. Returns how many.
    fn expire(&mut self, now: Instant) -> usize {
        let mut expired = 0;
        while let Some(&Reverse((at, call))) = self.deadlines.peek()
            && (at <= now || !self.calls.is_current(call))
        {
            self.deadlines.pop();
            if self.calls.is_current(call) {
                self.stop(call.index, CallStatus::DeadlineExceeded);
                expired += 1;
            }
        }
        expired
    }

    /// Issues no more ops of a call.
    fn stop(&mut self, index: u16, status: CallStatus) {
        let call = &mut self.calls[index];
        match call.phase {
            Phase::Held => {
                call.status = Some(status);
                self.finish(index, false);
            }
            Phase::Active => {
                call.status.get_or_insert(status);
                self.settle(index);
            }
            Phase::Free | Phase::Over => {}
        }
    }

    /// Takes a call out of its turns if it has nothing to issue, and ends it if nothing of it is under way either.
    fn settle(&mut self, index: u16) {
        let call = &self.calls[index];
        if call.has_next() {
            return;
        }
        self.paths.dequeue(call.path, call.class, index);
        if call.outstanding == 0 {
            self.finish(index, true);
        }
    }

    /// A call is over.
    fn finish(&mut self, index: u16, was_active: bool) {
        let call = &mut self.calls[index];
        call.phase = Phase::Over;
        self.cc.release(call.path);
        self.over.push_back(index);
        self.active -= usize::from(was_active);
    }

    fn complete(&mut self, now: Instant, completion: &Completion) {
        let op = usize::from(completion.slot.0 - self.first_slot);
        let Op { call: index, span, charge, outstanding } = self.ops[op];
        let call = &mut self.calls[index];
        let feedback = Feedback::of(completion, span.len, now);
        self.cc.on_completion(call.path, &feedback, outstanding);
        self.paths.on_completion(call.path, call.class, charge);
        call.outstanding -= 1;
        if completion.status != OpStatus::Ok {
            if call.fail(span, completion.status) {
                self.paths.enqueue(now, call.path, call.class, index);
            }
            self.settle(index);
            return;
        }
        call.bytes_done += u64::from(span.len);
        // If it has nothing to issue, it has no turns either.
        if call.outstanding == 0 && !call.has_next() {
            self.finish(index, true);
        }
    }

    /// Issues ops, a path's turn after the other's, until there is no slot, no window or nothing to issue.
    //= 1rma#6-congestion-control
    fn issue(&mut self, now: Instant) -> usize {
        let released = self.release_held(now);
        self.paths.wake(now);
        let mut issued = 0;
        let mut free = self.ops.len() - self.portal.as_mut().outstanding();
        while free > 0
            && let Some(path) = self.paths.next()
        {
            let window = self.cc.window(path);
            let next_of = |call| self.calls[call].next();
            if let Turn::Issue(issue) = self.paths.turn(now, &window, next_of) {
                self.issue_op(&issue);
                issued += 1;
                free -= 1;
            }
        }
        if issued > 0 {
            self.portal.as_mut().ring();
        }
        released + issued
    }

    fn issue_op(&mut self, issue: &Issue) {
        let &Issue { call: index, charge, outstanding } = issue;
        let call = &mut self.calls[index];
        let span = call.take_next();
        let extent = call.extent(span.piece);
        let transfer = Transfer {
            op_size: span.len,
            remote_offset: extent.remote_offset + span.offset,
            local_region: extent.local_region,
            local_offset: extent.local_offset + span.offset,
        };
        let portal = self.portal.as_mut();
        let slot = portal.take_slot().expect("one is free");
        portal.put(&Command {
            slot,
            class: call.class,
            responder: call.responder,
            remote_region: extent.remote_region,
            key: extent.key,
            op: match call.op_type {
                OpType::Write => CommandOp::Write(transfer),
                OpType::Read | OpType::Rekey => CommandOp::Read(transfer),
            },
        });
        self.ops[usize::from(slot.0 - self.first_slot)] =
            Op { call: index, span, charge, outstanding };
    }
}
