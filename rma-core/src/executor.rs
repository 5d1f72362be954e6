//! The CommandExecutor: transfers of any size over one portal (1RMA §4.4, §6).
//!
//! It cuts calls into ops of at most 4 KiB, issues them as fast as congestion control and the
//! portal's slots allow, issues again what failed in passing, and tells the application what became
//! of each call. It does in software what the paper's NIC does not: chunking, pacing, congestion
//! control, retry and ordering.
//!
//! # Who goes next
//!
//! Calls to one remote NIC in one direction share a congestion window; such a pair is a *path* (not
//! in the paper). Paths that may issue take turns, an op each; in a path the two classes of service
//! take turns, and in a class the calls do. So a call of one op waits for at most one op of each
//! other call, however large those are. Ops of the class
//! [`Throughput`](crate::op::ClassOfService::Throughput) leave some of the portal's slots free, so
//! that bulk transfers to hosts that do not answer cannot take all of them until they time out.
//!
//! # Who does not answer
//!
//! A remote NIC from which nothing comes for a whole timeout is *silent* (not in the paper). Its
//! windows stay as they are, and it gets one op at a time, a probe, until it answers; then what
//! waits goes on. Calls with it stay for as long as their [`RetryPolicy::outlast`] says, and end
//! with [`CallStatus::PeerSilent`], all of them in one poll if their times are over together:
//! without retries as soon as it is known to be dead, which takes four ops that time out or a probe
//! that does, and by default within three timeouts of its last answer. Calls with other hosts go on
//! meanwhile.
//!
//! # How to drive it
//!
//! [`CommandExecutor::submit`] takes a call; [`CommandExecutor::poll`] takes completions and issues
//! ops: call it whenever there may be a completion, and not later than
//! [`CommandExecutor::poll_timeout`] says; [`CommandExecutor::poll_outcome`] gives back calls that
//! are over. It reads no clock: time is an argument. It belongs to one thread, as its portal does.
//!
//! # What it is not
//!
//! No order among calls or within one, but for [`CommandExecutor::fence`], [`Call::after`] and
//! [`Call::publish`]. No memory of its own:
//! data moves between registered regions. Nothing that one executor does is seen by another, also
//! not its congestion windows.
//!
//! Invariants: each call has one outcome; every byte of it is either transferred or told as
//! missing; a call is over only when none of its ops is under way. After it was made the executor
//! allocates only for calls of several pieces, and for failures.

// Every op's code is `#[inline]` here, in `cc` and in `portal`: the refusals are large, and results
// that could hold one would go through memory (28 of the 115 ns that an op took without, by
// `issue_ops_per_s` when this was written).

mod after;
mod call;
mod calls;
mod config;
mod cut;
mod not_ready;
mod paths;
mod peers;
mod publishing;
mod recorded;
mod silence;
mod stalls;
#[cfg(test)]
mod tests;

use core::time::Duration;
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

pub use call::{
    Call, CallError, CallId, CallStatus, Missing, OpCall, Outcome, PIECES_MAX, Piece, Publish,
    RetryPolicy,
};
pub use config::{ExecutorConfig, ExecutorConfigError, PayloadLenMax};
pub use peers::SilentPeers;

use self::{
    after::After,
    calls::{Calls, Course, End, Kind, Patience, Phase, Span, Terms},
    cut::Cut,
    not_ready::NotReady,
    paths::{Issue, Paths, Turn},
    peers::{Heard, Peers},
    publishing::Publishing,
    stalls::Stalls,
};
use crate::{
    addr::HostAddr,
    cc::{CongestionControl, Feedback, Held, RemoteWindowId},
    command::{Command, CommandOp, Completion, Transfer},
    grant::Grant,
    op::{ClassOfService, Moves, OpStatus, TransferType},
    portal::CommandPortal,
    time::{Instant, nanos},
};

/// An op under way, by its command slot.
#[derive(Clone, Copy, Debug)]
struct Op {
    call: u16,
    span: Span,
    /// The charge on its path's window.
    charge: u32,
    /// The charge of all ops of the path when this one had been issued.
    outstanding: u64,
    /// Its number among all ops, from 1, and when it was issued.
    issued: (u64, Instant),
    /// Whether it was issued to a silent remote NIC, to see if it answers.
    is_probe: bool,
}

impl Op {
    const NONE: Self = Self {
        call: 0,
        span: Span::NONE,
        charge: 0,
        outstanding: 0,
        issued: (0, Instant::ZERO),
        is_probe: false,
    };
}

/// Transfers of any size over one portal: an application submits calls, polls, and takes outcomes.
///
/// The [module](crate::executor) says how the executor shares a portal among calls, and what it
/// promises.
///
/// ```
/// use std::sync::Arc;
///
/// use rma_core::{
///     addr::{HostAddr, Pid},
///     command::Completion,
///     crypto::DerivedRegionKey,
///     executor::{Call, CallStatus, CommandExecutor, ExecutorConfig, Piece},
///     grant::Grant,
///     op::{OpStatus, OpType},
///     portal::{PortalConfig, portal},
///     region::{NicTag, RegionId, RegisteredRegion},
///     time::Instant,
/// };
/// use rma_shm::Region;
///
/// // What an application gets: a portal and a region from its host's driver, and a grant from the
/// // host whose memory it reads.
/// let (here, pid, nic) = (HostAddr::from([192, 0, 2, 1]), Pid(7), NicTag(1));
/// let (portal, mut engines_end) =
///     portal(PortalConfig { slots: 0..16, pid, addresses: here.into(), bell: None, flag: None, nic });
/// let memory = Arc::new(Region::new(1 << 16)?);
/// let local = RegisteredRegion::new(RegionId::from_bits(1), memory, nic);
/// let grant = Grant {
///     responder: HostAddr::from([192, 0, 2, 2]),
///     region: RegionId::from_bits(9),
///     region_len: 1 << 20,
///     initiator: here,
///     pid,
///     op_type: OpType::Read,
///     key: DerivedRegionKey::from_bytes([3; 16]),
/// };
///
/// let mut executor = CommandExecutor::new(portal, ExecutorConfig::default())?;
/// let piece = Piece { grant: &grant, remote_offset: 0, local: &local, local_offset: 0, len: 64 };
/// let call = executor.submit(Instant::from_nanos(1_000), &Call::of(&[piece]))?;
/// executor.poll(Instant::from_nanos(2_000));
///
/// // What an engine does with it: a NIC carries the op out, and gives one completion.
/// let command = engines_end.take().expect("the op has been issued").expect("it can be read");
/// engines_end.complete(&Completion::new(command.slot, OpStatus::Ok, 200, 5_000));
///
/// executor.poll(Instant::from_nanos(9_000));
/// let outcome = executor.poll_outcome().expect("the call is over");
/// assert_eq!((outcome.call, outcome.status), (call, CallStatus::Ok));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
//= 1rma#4.4-executor
#[derive(Debug)]
pub struct CommandExecutor {
    portal: CommandPortal,
    /// The first of the portal's slots.
    first_slot: u16,
    /// By command slot.
    ops: Box<[Op]>,
    /// The number of the next op.
    issued: u64,
    calls: Calls,
    paths: Paths,
    peers: Peers,
    cc: CongestionControl,
    /// With IPv4 and with IPv6.
    cuts: [Cut; 2],
    /// Calls that wait for those before a fence, in the order of submission, and some that have
    /// been given up.
    held: VecDeque<CallId>,
    /// Whether something was submitted since the last fence.
    fence_parts: bool,
    /// How many fences there were that part anything, and how many of them have been passed.
    fences: u32,
    passed: u32,
    /// Calls that have been let past all fences before them and are not over.
    active: usize,
    /// How long calls stay with a silent remote NIC by default, in nanoseconds.
    outlast: u64,
    stalls: Stalls,
    /// When calls must be looked at that have deadlines, or outlast more than they may stall.
    deadlines: BinaryHeap<Reverse<(Instant, CallId)>>,
    /// Calls that are over and whose outcomes have not been taken.
    over: VecDeque<u16>,
    /// For those of one remote NIC, while they are looked at.
    waiting: Vec<u16>,
    /// The calls that wait for others.
    after: After,
    /// Publishing ops that wait for their time, by it.
    resting: BinaryHeap<Reverse<(Instant, CallId)>>,
    /// Calls that were given up and whose publishing ops must be asked about at once.
    urgent: Vec<CallId>,
    /// The places where no receives were posted.
    not_ready: NotReady,
    /// Whether the application has asked for something since the last [`CommandExecutor::poll`].
    asked: bool,
}

impl CommandExecutor {
    /// An executor over `portal`, of which nothing may be under way.
    ///
    /// # Errors
    /// The first setting that cannot work, with its value and the rule.
    ///
    /// # Panics
    /// If an op of the portal is under way.
    pub fn new(portal: CommandPortal, config: ExecutorConfig) -> Result<Self, ExecutorConfigError> {
        let cc = config.build()?;
        assert_eq!(portal.outstanding(), 0, "an executor has its portal to itself");
        let slots = portal.slots().clone();
        let payload = config.payload_len_max;
        let timeout = nanos(config.timeout);
        Ok(Self {
            portal,
            first_slot: slots.start,
            ops: vec![Op::NONE; slots.len()].into(),
            issued: 1,
            calls: Calls::new(config.calls),
            paths: Paths::new(config.cc.remotes, config.calls, slots.len()),
            peers: Peers::new(config.cc.remotes, slots.len(), timeout),
            cc: CongestionControl::new(cc),
            cuts: [payload.ipv4, payload.ipv6].map(|payload| Cut::new(payload, config.op_size_max)),
            held: VecDeque::with_capacity(2 * usize::from(config.calls)),
            fence_parts: false,
            fences: 0,
            passed: 0,
            active: 0,
            outlast: timeout.saturating_mul(OUTLAST.0) / OUTLAST.1,
            stalls: Stalls::new(&config),
            // Twice as many, so that they seldom have to be looked through.
            deadlines: BinaryHeap::with_capacity(2 * usize::from(config.calls)),
            over: VecDeque::with_capacity(config.calls.into()),
            waiting: Vec::with_capacity(config.calls.into()),
            after: After::new(config.calls),
            resting: BinaryHeap::with_capacity(config.calls.into()),
            urgent: Vec::with_capacity(slots.len()),
            not_ready: NotReady::new(config.calls),
            asked: false,
        })
    }

    /// Takes a call. Its first ops may be issued at once, with all others in the next
    /// [`CommandExecutor::poll`].
    ///
    /// Until the call is over, the local bytes of a read may change at any moment, and those of a
    /// write must not.
    ///
    /// # Errors
    /// If the call cannot be right, or there is no room for it. Then nothing was issued.
    pub fn submit(&mut self, now: Instant, call: &Call<'_>) -> Result<CallId, CallError> {
        self.begin(now, call, false)
    }

    /// [`CommandExecutor::fence`] and then [`CommandExecutor::submit`]; but if the call is refused,
    /// there is no fence either.
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
        let transfer_type = self.check_transfer(call)?;
        let publishes = !call.publish.is_plain();
        let follows = call.after[0].is_some() || call.after[1].is_some();
        if follows {
            self.check_after(call.after)?;
        }
        let moves = transfer_type.op_type().shape().moves;
        let responder = call.pieces[0].grant.responder;
        let (index, path) = self.take_place(responder, moves)?;
        if is_fenced {
            // Nothing can fail any longer.
            self.fence();
        }
        let cut = self.cut(responder);
        let terms = self.terms(now, call.deadline, call.retry.outlast);
        let kind = if publishes { Kind::Publishing } else { transfer_type.into() };
        let id = self.calls.begin(index, call, Course { path, kind }, cut, terms);
        if publishes {
            self.publish_last(index, call);
        }
        if follows {
            self.follow(index, call.after);
        }
        self.enter(now, id, call.deadline, terms);
        Ok(id)
    }

    /// How many bytes the last op of a piece of `len` bytes has that goes to whom `grant` is of:
    /// for callers who issue the last op of a transfer themselves, and want none more than one call
    /// has.
    #[must_use]
    pub fn last_op_len(&self, grant: &Grant, len: u64) -> u32 {
        self.cut(grant.responder).last(len)
    }

    const fn cut(&self, responder: HostAddr) -> Cut {
        self.cuts[!responder.is_ipv4() as usize]
    }

    /// A place among the calls, and on the path to `responder`.
    // Called for every call: a call of this costs more.
    #[inline(always)]
    fn take_place(
        &mut self,
        responder: HostAddr,
        moves: Moves,
    ) -> Result<(u16, RemoteWindowId), CallError> {
        let index =
            self.calls.take().ok_or(CallError::TooManyCalls { calls: self.calls.count() })?;
        match self.cc.hold(responder, moves) {
            Ok(Held { id, is_new }) => {
                if is_new {
                    self.begin_path(id, responder, moves);
                }
                Ok((index, id))
            }
            Err(error) => {
                self.calls.give_back(index);
                Err(error.into())
            }
        }
    }

    /// A call has begun: it has its turns now, or waits.
    #[inline(always)]
    fn enter(&mut self, now: Instant, id: CallId, deadline: Option<Instant>, terms: Terms) {
        match (deadline, terms.patience) {
            (Some(deadline), _) => self.expect(deadline, id),
            (None, Patience::Outlast) => self.expect(now.after_nanos(terms.outlast), id),
            (None, _) => {}
        }
        (self.asked, self.fence_parts) = (true, true);
        if self.fences == self.passed {
            self.activate(now, id.index);
        } else {
            self.hold(id);
        }
    }

    /// Checks a transfer, and returns its type.
    #[inline]
    fn check_transfer(&mut self, call: &Call<'_>) -> Result<TransferType, CallError> {
        let transfer_type = call::check(call.pieces)?;
        let op_type = transfer_type.op_type();
        let portal = &mut self.portal;
        for (piece, it) in call.pieces.iter().enumerate() {
            let usable =
                portal.check_grant(it.grant, op_type).and_then(|()| portal.check_local(it.local));
            usable.map_err(|error| CallError::Submit { piece, error })?;
        }
        if !call.publish.is_plain() {
            self.check_publish(call)?;
        }
        Ok(transfer_type)
    }

    /// Whether `call` can be right: what [`CommandExecutor::submit`] looks at before it looks for
    /// room. For who keeps calls until there is some.
    ///
    /// # Errors
    /// As [`CommandExecutor::submit`], but for want of room.
    pub fn check(&mut self, call: &Call<'_>) -> Result<(), CallError> {
        self.check_transfer(call).map(drop)
    }

    /// With which class of service `call` would be: its own, or what suits it.
    #[must_use]
    pub fn class_of(&self, call: &Call<'_>) -> ClassOfService {
        let is_ipv4 = call.pieces.first().is_none_or(|it| it.grant.responder.is_ipv4());
        call.class.unwrap_or_else(|| self.cuts[usize::from(!is_ipv4)].class(call.pieces))
    }

    /// A path that is new, or was another's.
    fn begin_path(&mut self, id: RemoteWindowId, responder: HostAddr, moves: Moves) {
        let twin = self.cc.find(responder, moves.other());
        let is_silent = self.peers.begin(id, moves, twin);
        self.paths.begin(id, is_silent);
    }

    /// How long a call may take.
    #[inline(always)]
    fn terms(&self, now: Instant, deadline: Option<Instant>, outlast: Option<Duration>) -> Terms {
        let outlast = outlast.map_or(self.outlast, nanos);
        let patience = match deadline {
            Some(_) => Patience::Deadline,
            None if outlast > self.stalls.stall() => Patience::Outlast,
            None => Patience::Stall,
        };
        Terms { since: now, outlast, patience, fence: self.fences }
    }

    /// From now on, what is submitted waits until everything that was submitted before is over,
    /// well or not.
    pub fn fence(&mut self) {
        if core::mem::take(&mut self.fence_parts) {
            self.fences = self.fences.wrapping_add(1);
            self.asked = true;
        }
    }

    /// Gives up a call: no more ops of it are issued. It is over when those that are under way are.
    /// Of a call that is over, or whose outcome was taken, nothing changes.
    pub fn cancel(&mut self, call: CallId) {
        if self.calls.is_current(call) {
            self.stop(call.index, End::Cancelled);
            self.asked = true;
        }
    }

    /// Takes the completions that there are, and issues what may be issued. Returns how much there
    /// was to do; 0 if nothing, and then there are no outcomes that there were not before.
    // A function of its own: in one with all that its caller does, an op took 95 ns instead of 78.
    #[inline(never)]
    pub fn poll(&mut self, now: Instant) -> usize {
        self.asked = false;
        let mut work = 0;
        // No more than there are slots, or an engine that answers faster than this thread asks
        // could keep it here.
        for _ in 0..self.ops.len() {
            let Some(completion) = self.portal.poll() else { break };
            self.complete(now, &completion);
            work += 1;
        }
        work + self.expire(now) + self.attend(now) + self.issue(now)
    }

    /// When [`CommandExecutor::poll`] has something to do even if no completion comes;
    /// [`Instant::ZERO`] if at once.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        // A call that ended as it began may have left others to be told.
        if self.asked || self.after.has_resolved() {
            return Some(Instant::ZERO);
        }
        let deadline = self.deadlines.peek().map(|&Reverse((at, _))| at);
        let stalls = self.stalls.first(|call| self.calls[call].since).map(|(_, at)| at);
        let resting = self.resting.peek().map(|&Reverse((at, _))| at);
        let times =
            [deadline, stalls, resting, self.paths.poll_timeout(), self.peers.poll_timeout()];
        times.into_iter().flatten().min()
    }

    /// The outcome of a call that is over. Its [`CallId`] may be another call's from now on.
    pub fn poll_outcome(&mut self) -> Option<Outcome> {
        let index = self.over.pop_front()?;
        let cc = &mut self.cc;
        let leave = |path| {
            cc.release(path);
            cc.addr(path)
        };
        Some(self.calls.end(index, leave))
    }

    /// How many calls are not over, or their outcomes have not been taken.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls.in_use()
    }

    /// How many calls have something that has not been issued: for want of a window or a slot, or
    /// as its time or the passing of a fence has not come. Looks at as many places of calls, at
    /// most, as there have been calls at once.
    #[must_use]
    pub fn calls_waiting(&self) -> usize {
        self.calls.waiting()
    }

    /// How many ops are under way.
    #[must_use]
    pub fn ops_outstanding(&mut self) -> usize {
        self.portal.outstanding()
    }

    /// The portal, to wait for completions. They must be taken by [`CommandExecutor::poll`] alone.
    pub const fn portal(&self) -> &CommandPortal {
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

    /// Lets a call have its turns, unless it waits for others.
    fn activate(&mut self, now: Instant, index: u16) {
        self.active += 1;
        if (self.after.any() || self.after.has_resolved()) && self.after.waits(index) {
            self.calls[index].phase = Phase::Awaiting;
            return;
        }
        self.start(now, index);
    }

    /// Lets a call have its turns that waits for nothing.
    // For every call, and for those that have waited: a call of this costs more.
    #[inline(always)]
    fn start(&mut self, now: Instant, index: u16) {
        let call = &mut self.calls[index];
        call.phase = Phase::Active;
        call.since = now;
        let path = call.path;
        if call.patience == Patience::Stall {
            self.stalls.push(index);
        }
        self.paths.enqueue(now, path, call.class, index);
        if self.paths.is_barred(path) {
            self.meet_silence(now, index);
        }
    }

    /// Has a call wait for a fence to be passed. Those that were given up go when there are many of
    /// them.
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

    /// Ends calls whose time is over. Returns how many.
    fn expire(&mut self, now: Instant) -> usize {
        let mut expired = 0;
        while let Some((call, at)) = self.stalls.first(|call| self.calls[call].since)
            && at <= now
        {
            self.stop(call, End::DeadlineExceeded);
            expired += 1;
        }
        while let Some(&Reverse((at, call))) = self.deadlines.peek()
            && (at <= now || !self.calls.is_current(call))
        {
            self.deadlines.pop();
            if !self.calls.is_current(call) {
                continue;
            }
            match self.calls[call.index].ends_at(now) {
                Some(later) => self.deadlines.push(Reverse((later, call))),
                None => {
                    self.stop(call.index, End::DeadlineExceeded);
                    expired += 1;
                }
            }
        }
        expired
    }

    /// Issues no more ops of a call.
    fn stop(&mut self, index: u16, end: End) {
        let call = &mut self.calls[index];
        match call.phase {
            Phase::Held | Phase::Awaiting => {
                self.active -= usize::from(call.phase == Phase::Awaiting);
                call.end = Some(end);
                self.after.forget(index);
                self.finish(index, false);
            }
            Phase::Active if call.kind == Kind::Publishing => self.stop_publishing(index, end),
            Phase::Active => {
                call.end.get_or_insert(end);
                self.forget_stall(index);
                self.settle(index);
            }
            Phase::Free | Phase::Over => {}
        }
    }

    /// A call that is active ends, or will with its ops.
    fn forget_stall(&mut self, index: u16) {
        let patience = &mut self.calls[index].patience;
        if *patience == Patience::Stall {
            *patience = Patience::Deadline;
            self.stalls.remove(index);
        }
    }

    /// Takes a call out of its turns if it has nothing to issue, and ends it if nothing of it is
    /// under way either.
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
        if was_active && call.patience == Patience::Stall {
            self.stalls.remove(index);
        }
        call.phase = Phase::Over;
        self.over.push_back(index);
        self.active -= usize::from(was_active);
        if self.after.any() {
            self.tell_after(index);
        }
    }

    fn complete(&mut self, now: Instant, completion: &Completion) {
        let op = usize::from(completion.slot.0 - self.first_slot);
        let Op { call: index, span, charge, outstanding, issued, is_probe } = self.ops[op];
        let call = &mut self.calls[index];
        if call.kind == Kind::Publishing {
            return self.complete_publishing(now, completion, self.ops[op]);
        }
        let (path, class) = (call.path, call.class);
        let heard = self.peers.hear(now, path, completion.status, issued.0, issued.1);
        // Silence is not congestion.
        //= 1rma#6-remote-failures
        //= type=deviation
        if !matches!(heard, Heard::Silence | Heard::PastSilence) {
            let feedback = Feedback::of(completion, span.len, now);
            self.cc.on_completion(path, &feedback, outstanding);
        }
        self.paths.on_completion(path, class, charge);
        call.outstanding -= 1;
        if heard != Heard::Answer || is_probe {
            self.note(now, path, heard, is_probe);
        }
        if completion.status != OpStatus::Ok {
            let (stays, end) = self.judge(now, index, heard, completion.status);
            if self.calls[index].fail(span, completion.status, heard, stays, end) {
                self.paths.enqueue(now, path, class, index);
            }
            self.settle(index);
            return;
        }
        let call = &mut self.calls[index];
        call.bytes_done += u64::from(span.len);
        // If it has nothing to issue, it has no turns either.
        if call.outstanding == 0 && !call.has_next() {
            self.finish(index, true);
        } else {
            self.renew(now, index);
        }
    }

    /// A call that is not over has a success.
    #[inline]
    fn renew(&mut self, now: Instant, index: u16) {
        let call = &mut self.calls[index];
        if call.since != now {
            call.since = now;
            if call.patience == Patience::Stall {
                self.stalls.renew(index);
            }
        }
    }

    /// Issues ops, a path's turn after the other's, until there is no slot, no window or nothing to
    /// issue.
    //= 1rma#6-congestion-control
    fn issue(&mut self, now: Instant) -> usize {
        let mut free = self.ops.len() - self.portal.outstanding();
        let mut issued = self.ask_urgently(now, free);
        free -= issued;
        let released = self.release_after(now) + self.release_held(now) + self.wake_resting(now);
        self.paths.wake(now);
        let probes = self.probe(now, free);
        (issued, free) = (issued + probes, free - probes);
        while free > 0
            && let Some(path) = self.paths.next()
        {
            let window = self.cc.window(path);
            let next_of = |call| self.calls[call].next();
            if let Turn::Issue(issue) = self.paths.turn(now, &window, next_of) {
                self.issue_op(now, &issue, false);
                issued += 1;
                free -= 1;
            }
        }
        if issued > 0 {
            self.portal.ring();
        }
        released + issued
    }

    // It has two callers, and that for probes is seldom there: a call costs more.
    #[inline(always)]
    fn issue_op(&mut self, now: Instant, issue: &Issue, is_probe: bool) {
        let &Issue { call: index, charge, outstanding } = issue;
        let call = &mut self.calls[index];
        if call.kind == Kind::Publishing && call.publishing().is_some_and(Publishing::is_last) {
            return self.issue_publishing(now, issue, is_probe);
        }
        let span = call.take_next();
        let extent = call.extent(span.piece);
        let transfer = Transfer {
            op_size: span.len,
            remote_offset: extent.remote_offset + span.offset,
            local_region: extent.local_region,
            local_offset: extent.local_offset + span.offset,
        };
        let portal = &mut self.portal;
        let slot = portal.take_slot().expect("one is free");
        // Of a broken engine nothing worse comes than that the op never ends.
        let _ = portal.put(&Command {
            slot,
            class: call.class,
            responder: self.cc.addr(call.path),
            remote_region: extent.remote_region,
            key: extent.key,
            op: CommandOp::part(call.kind.transfer_type(), transfer),
        });
        let issued = (self.issued, now);
        self.note_issued(slot, Op { call: index, span, charge, outstanding, issued, is_probe });
    }
}

/// [`RetryPolicy::outlast`] by default, in timeouts: two, and a quarter for the probe that finds
/// the remote NIC back after a pause of two. Longer: a call whose peer is dead takes longer to say
/// so. With three quarters more, no call would end within three timeouts that was a probe at the
/// end of its time.
const OUTLAST: (u64, u64) = (9, 4);
