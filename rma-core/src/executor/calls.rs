//! The calls of one executor: what each has still to issue, and what became of the rest.
//!
//! Bytes are issued in the order of the pieces, so what was transferred needs no map: it is all
//! that lies before the cursor, but for the spans of ops that failed.

use core::{
    ops::{Index, IndexMut},
    time::Duration,
};

use super::{
    call::{Call, CallId, CallStatus, Missing, Outcome, Piece, RetryPolicy},
    cut::Cut,
    paths::Next,
    peers::{Heard, Peer},
    publishing::Publishing,
};
use crate::{
    addr::HostAddr,
    cc::RemoteWindowId,
    crypto::DerivedRegionKey,
    op::{ClassOfService, OpStatus, OpType, TransferType},
    region::RegionId,
    time::Instant,
};

/// The tries that a [`RetryPolicy`] leaves an op.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tries {
    timeouts: u8,
    refusals: u8,
}

impl Tries {
    pub(super) const NONE: Self = Self { timeouts: 0, refusals: 0 };

    pub(super) const fn of(retry: RetryPolicy) -> Self {
        Self { timeouts: retry.timeouts, refusals: retry.refusals }
    }

    /// Returns the tries left after an op that ended with `status`; `None` if the executor does not
    /// issue that op again.
    pub(super) const fn after(self, status: OpStatus) -> Option<Self> {
        let Self { timeouts, refusals } = self;
        match status {
            OpStatus::Timeout if timeouts > 0 => Some(Self { timeouts: timeouts - 1, ..self }),
            OpStatus::Nack | OpStatus::DispatchTimeout if refusals > 0 => {
                Some(Self { refusals: refusals - 1, ..self })
            }
            _ => None,
        }
    }
}

/// The bytes of one op.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) piece: u16,
    /// How often it may still fail.
    tries: Tries,
    pub(super) len: u32,
    /// In the piece.
    pub(super) offset: u64,
}

impl Span {
    pub(super) const NONE: Self = Self { piece: 0, tries: Tries::NONE, len: 0, offset: 0 };

    /// The bytes that a publishing op stands for.
    pub(super) const fn new(piece: u16, offset: u64, len: u32) -> Self {
        Self { piece, tries: Tries::NONE, len, offset }
    }

    pub(super) const fn missing(self, tried: Option<OpStatus>) -> Missing {
        let Self { piece, len, offset, .. } = self;
        Missing { piece: piece as usize, offset, len: len as u64, tried }
    }
}

/// A [`Piece`], as its call keeps it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) remote_region: RegionId,
    pub(super) local_region: RegionId,
    pub(super) key: DerivedRegionKey,
    pub(super) remote_offset: u64,
    pub(super) local_offset: u64,
    pub(super) len: u64,
}

impl Extent {
    pub(super) const NONE: Self = Self {
        remote_region: RegionId::from_bits(0),
        local_region: RegionId::from_bits(0),
        key: DerivedRegionKey::from_bytes([0; 16]),
        remote_offset: 0,
        local_offset: 0,
        len: 0,
    };

    fn of(piece: &Piece<'_>) -> Self {
        Self {
            remote_region: piece.grant.region,
            local_region: piece.local.id(),
            key: piece.grant.key,
            remote_offset: piece.remote_offset,
            local_offset: piece.local_offset,
            len: piece.len,
        }
    }
}

/// The bound on the time of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// A deadline of its own.
    Deadline,
    /// [`ExecutorConfig::stall`](super::ExecutorConfig::stall), from its last success.
    Stall,
    /// [`RetryPolicy::outlast`], as that is longer, from its last success.
    Outlast,
}

/// The kind of a call's ops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    /// The last one publishes; if there are others, they are WRITEs.
    Publishing,
}

impl Kind {
    /// Returns the transfer type of ops that publish nothing.
    #[inline]
    pub(super) const fn transfer_type(self) -> TransferType {
        match self {
            Self::Read => TransferType::Read,
            Self::Write | Self::Publishing => TransferType::Write,
        }
    }
}

impl From<TransferType> for Kind {
    #[inline]
    fn from(transfer_type: TransferType) -> Self {
        match transfer_type {
            TransferType::Read => Self::Read,
            TransferType::Write => Self::Write,
        }
    }
}

/// The target of a call's ops, and the action there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    pub(super) path: RemoteWindowId,
    pub(super) kind: Kind,
}

/// How long a call may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// When it began.
    pub(super) since: Instant,
    /// How long it stays with a silent remote NIC, in nanoseconds.
    pub(super) outlast: u64,
    pub(super) patience: Patience,
    /// How many fences had been set before it.
    pub(super) fence: u32,
}

/// The reason why no more ops of a call are issued. What it was silent for is in [`Rest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Failed(OpStatus),
    Silent,
    DeadlineExceeded,
    Cancelled,
    Unknown,
    PredecessorFailed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Free,
    /// Waits for what was submitted before a fence.
    Held,
    /// Waits for calls that it comes after.
    Awaiting,
    Active,
    /// Nothing of it is under way, and the application has not been told.
    Over,
}

/// Two cache lines: what a call of one piece needs, if none of its ops fails. With a list of its
/// pieces elsewhere, and those of failed ops here, an op took 7 ns more by `issue_ops_per_s` when
/// this was written, as hundreds of calls do not fit into the nearest cache.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct CallState {
    pub(super) phase: Phase,
    generation: u32,
    pub(super) path: RemoteWindowId,
    pub(super) class: ClassOfService,
    pub(super) kind: Kind,
    pub(super) patience: Patience,
    /// When an op of it was OK the last time; if none was, when it was let past the fences before
    /// it.
    pub(super) since: Instant,
    /// How long it stays with a silent remote NIC, in nanoseconds.
    pub(super) outlast: u64,
    /// How many fences had been set before it.
    pub(super) fence: u32,
    cut: Cut,
    tries: Tries,
    /// Its first piece, and how many it has.
    first: Extent,
    pieces: u16,
    /// The first byte that no op has been issued for.
    piece: u16,
    offset: u64,
    /// Ops under way.
    pub(super) outstanding: u32,
    retries: u32,
    pub(super) bytes_done: u64,
    /// The reason why no more ops are issued, if that is not because all were.
    pub(super) end: Option<End>,
    /// `None` until it, or an earlier call in this place, has needed it.
    rest: Option<Box<Rest>>,
}

const _: () = assert!(size_of::<CallState>() == 128);

/// The further state of calls of several pieces, of those that publish, and of those with ops that
/// have failed.
#[derive(Debug, Default)]
struct Rest {
    /// The pieces after the first.
    extents: Vec<Extent>,
    /// Failed, and to be issued again.
    again: Vec<(Span, OpStatus)>,
    /// Failed, and not to be issued again.
    failed: Vec<(Span, OpStatus)>,
    /// How long its remote NIC had been silent when it was given up, in nanoseconds, and how many
    /// ops had timed out.
    silence: (u64, u32),
    /// Of a call that publishes.
    publishing: Option<Publishing>,
}

impl CallState {
    const fn free() -> Self {
        Self {
            phase: Phase::Free,
            generation: 0,
            path: RemoteWindowId::NONE,
            class: ClassOfService::Latency,
            kind: Kind::Read,
            patience: Patience::Deadline,
            since: Instant::ZERO,
            outlast: 0,
            fence: 0,
            cut: Cut::NONE,
            tries: Tries::NONE,
            first: Extent::NONE,
            pieces: 0,
            piece: 0,
            offset: 0,
            outstanding: 0,
            retries: 0,
            bytes_done: 0,
            end: None,
            rest: None,
        }
    }

    /// A piece.
    pub(super) fn extent(&self, piece: u16) -> &Extent {
        match (piece, &self.rest) {
            (1.., Some(rest)) => &rest.extents[usize::from(piece) - 1],
            _ => &self.first,
        }
    }

    fn again(&self) -> &[(Span, OpStatus)] {
        self.rest.as_ref().map_or(&[], |rest| &rest.again)
    }

    /// `None` if its time is over, as that has come when it was to be looked at; or else when to
    /// look again.
    pub(super) fn ends_at(&self, now: Instant) -> Option<Instant> {
        let waits = matches!(self.phase, Phase::Held | Phase::Awaiting);
        let since = if waits { now } else { self.since };
        let at = since.after_nanos(self.outlast);
        (self.patience == Patience::Outlast && at > now).then_some(at)
    }

    /// Whether an op must be issued.
    pub(super) fn has_next(&self) -> bool {
        self.end.is_none() && (self.piece < self.pieces || !self.again().is_empty())
    }

    /// The next op. The caller knows that there is one.
    pub(super) fn next(&self) -> Next {
        if let [before @ .., (span, _)] = self.again() {
            let is_last = before.is_empty() && self.piece == self.pieces;
            return Next { len: span.len, is_last };
        }
        let left = self.extent(self.piece).len - self.offset;
        let len = self.cut.next(left);
        Next { len, is_last: u64::from(len) == left && self.piece + 1 == self.pieces }
    }

    /// Takes the next op. The caller knows that there is one.
    #[inline]
    pub(super) fn take_next(&mut self) -> Span {
        self.outstanding += 1;
        if let Some(rest) = &mut self.rest
            && let Some((span, _)) = rest.again.pop()
        {
            self.retries += 1;
            return span;
        }
        let (piece, offset, len) = (self.piece, self.offset, self.next().len);
        self.offset += u64::from(len);
        if self.offset == self.extent(piece).len {
            (self.piece, self.offset) = (self.piece + 1, 0);
        }
        Span { piece, tries: self.tries, len, offset }
    }

    /// An op failed. Whether it must be issued again; if it is not, and the call has not been given
    /// up before, the call `end`s so. `heard`: what that says about the remote NIC, with which the
    /// call `stays` or not if it is silent.
    pub(super) fn fail(
        &mut self,
        span: Span,
        status: OpStatus,
        heard: Heard,
        stays: bool,
        end: End,
    ) -> bool {
        let is_silence = matches!(heard, Heard::Silence | Heard::PastSilence);
        let tries = match is_silence && stays {
            true => Some(span.tries),
            false => span.tries.after(status),
        };
        let rest = self.rest.get_or_insert_default();
        if self.end.is_none()
            && end != End::Silent
            && let Some(tries) = tries
        {
            rest.again.push((Span { tries, ..span }, status));
            return true;
        }
        rest.failed.push((span, status));
        self.end.get_or_insert(end);
        false
    }

    #[inline(always)]
    const fn keep(&mut self, terms: Terms) {
        (self.since, self.outlast) = (terms.since, terms.outlast);
        (self.patience, self.fence) = (terms.patience, terms.fence);
    }

    /// Notes for the outcome for how long its remote NIC has been silent, and how many ops have
    /// timed out.
    pub(super) fn note_silence(&mut self, now: Instant, peer: &Peer) {
        self.rest.get_or_insert_default().silence = peer.silence(now);
    }

    /// Returns the status that it ended with, if not all bytes were transferred.
    fn status(&self) -> Option<CallStatus> {
        let end = self.end?;
        if self.publishing().is_some_and(Publishing::is_only_asked_about) {
            // The reason why nobody has answered says nothing of the op's fate.
            return Some(CallStatus::Unknown);
        }
        Some(match end {
            End::Failed(status) => CallStatus::Failed(status),
            End::Silent => {
                let (nanos, tried) = self.rest.as_ref().map_or((0, 0), |rest| rest.silence);
                CallStatus::PeerSilent { since: Duration::from_nanos(nanos), tried }
            }
            End::DeadlineExceeded => CallStatus::DeadlineExceeded,
            End::Cancelled => CallStatus::Cancelled,
            End::Unknown => CallStatus::Unknown,
            End::PredecessorFailed => CallStatus::PredecessorFailed,
        })
    }

    /// Lists the pieces that were not transferred, in order.
    fn missing(&self) -> Vec<Missing> {
        let publishing = self.publishing();
        // The waiting op is the publishing one, or the question about it.
        let again = if publishing.is_some_and(Publishing::is_last) { &[] } else { self.again() };
        let tried = self.rest.iter().flat_map(|rest| &rest.failed).chain(again);
        let tried = tried.map(|&(span, status)| span.missing(Some(status)));
        let tried = tried.chain(publishing.and_then(Publishing::missing));
        let untried = (self.piece..self.pieces).map(|piece| {
            let offset = if piece == self.piece { self.offset } else { 0 };
            let len = self.extent(piece).len - offset;
            Missing { piece: piece.into(), offset, len, tried: None }
        });
        Missing::in_order(tried.chain(untried).collect())
    }
}

/// The part of calls that publish.
impl CallState {
    /// The call's last op goes by itself, when all others are done.
    pub(super) fn publish(&mut self, publishing: Publishing) {
        let Publishing { span, .. } = publishing;
        let rest = self.rest.get_or_insert_default();
        let last = match span.piece {
            0 => &mut self.first,
            piece => &mut rest.extents[usize::from(piece) - 1],
        };
        last.len -= u64::from(span.len);
        if last.len == 0 {
            self.pieces -= 1;
        }
        rest.publishing = Some(publishing);
    }

    pub(super) fn publishing(&self) -> Option<&Publishing> {
        self.rest.as_ref()?.publishing.as_ref().filter(|_| self.kind == Kind::Publishing)
    }

    /// Of a call of [`Kind::Publishing`].
    pub(super) fn publishing_mut(&mut self) -> &mut Publishing {
        let rest = self.rest.get_or_insert_default();
        rest.publishing.as_mut().expect("a call that publishes says what")
    }

    /// Whether all but the publishing op is done.
    pub(super) fn is_body_done(&self) -> bool {
        self.end.is_none() && self.outstanding == 0 && !self.has_next()
    }

    /// Has the publishing op, or what asks about it, issued in its turn.
    pub(super) fn queue_publishing(&mut self, len: u32) {
        let span = Span { len, ..self.publishing_mut().span };
        let again = &mut self.rest.get_or_insert_default().again;
        if again.is_empty() {
            again.push((span, OpStatus::Ok));
        }
    }

    /// Takes it out of its turn.
    pub(super) fn unqueue_publishing(&mut self) {
        self.rest.get_or_insert_default().again.clear();
    }

    /// Takes it. The first attempt, and what asks, are no retries.
    pub(super) fn take_publishing(&mut self, is_retry: bool) -> Span {
        let span = self.take_next();
        self.retries -= u32::from(!is_retry);
        span
    }

    /// The publishing op was applied.
    pub(super) fn published(&mut self, result: Option<u64>) {
        let len = self.publishing_mut().publish(result);
        self.bytes_done += u64::from(len);
    }

    /// Whether all of it was transferred. It is over.
    pub(super) fn went_well(&self) -> bool {
        self.end.is_none() || self.missing().is_empty()
    }

    /// Returns the type of its ops, as its outcome says.
    fn op_type(&self) -> OpType {
        self.publishing().map_or(self.kind.transfer_type().op_type(), Publishing::call_type)
    }
}

/// All calls that there can be.
#[derive(Debug)]
pub(super) struct Calls {
    entries: Box<[CallState]>,
    free: Vec<u16>,
}

impl Calls {
    pub(super) fn new(count: u16) -> Self {
        Self {
            entries: (0..count).map(|_| CallState::free()).collect(),
            free: (0..count).rev().collect(),
        }
    }

    pub(super) const fn count(&self) -> u16 {
        self.entries.len() as u16
    }

    pub(super) fn in_use(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// How many have something that has not been issued. Entries that were never used come last,
    /// and are not looked at.
    pub(super) fn waiting(&self) -> usize {
        let waits = |call: &&CallState| match call.phase {
            Phase::Held | Phase::Awaiting => true,
            Phase::Active => call.has_next(),
            Phase::Free | Phase::Over => false,
        };
        let in_use = self.entries.iter().filter(|call| call.phase != Phase::Free);
        in_use.take(self.in_use()).filter(waits).count()
    }

    pub(super) fn take(&mut self) -> Option<u16> {
        self.free.pop()
    }

    pub(super) fn give_back(&mut self, index: u16) {
        self.free.push(index);
    }

    /// Begins a call in an entry that was taken.
    // It has two callers, and few calls are fenced: a call of this costs more.
    #[inline(always)]
    pub(super) fn begin(
        &mut self,
        index: u16,
        call: &Call<'_>,
        course: Course,
        cut: Cut,
        terms: Terms,
    ) -> CallId {
        let (first, others) = call.pieces.split_first().expect("a call has a piece");
        let state = &mut self[index];
        state.phase = Phase::Held;
        Course { path: state.path, kind: state.kind } = course;
        state.class = call.class.unwrap_or_else(|| cut.class(call.pieces));
        state.keep(terms);
        state.cut = cut;
        state.tries = Tries::of(call.retry);
        (state.first, state.pieces) = (Extent::of(first), call.pieces.len() as u16);
        if !others.is_empty() {
            let rest = state.rest.get_or_insert_default();
            rest.extents.extend(others.iter().map(Extent::of));
        }
        CallId { index, generation: state.generation }
    }

    /// Begins a call of one recorded op in an entry that was taken.
    pub(super) fn begin_op(
        &mut self,
        index: u16,
        path: RemoteWindowId,
        class: ClassOfService,
        publishing: Publishing,
        terms: Terms,
    ) -> CallId {
        let state = &mut self[index];
        state.phase = Phase::Held;
        (state.path, state.kind, state.class) = (path, Kind::Publishing, class);
        state.keep(terms);
        (state.cut, state.tries) = (Cut::NONE, Tries::NONE);
        let (remote_region, len) = (publishing.region, publishing.span.len.into());
        (state.first, state.pieces) = (Extent { remote_region, len, ..Extent::NONE }, 1);
        state.publish(publishing);
        CallId { index, generation: state.generation }
    }

    /// Returns the id of the call in an entry.
    pub(super) fn id(&self, index: u16) -> CallId {
        CallId { index, generation: self[index].generation }
    }

    /// Whether `call` names a call that is not over, or whose outcome has not been taken.
    pub(super) fn is_current(&self, call: CallId) -> bool {
        self.phase(call).is_some_and(|phase| phase != Phase::Free)
    }

    /// Whether `call` waits for what was submitted before a fence.
    pub(super) fn is_held(&self, call: CallId) -> bool {
        self.phase(call) == Some(Phase::Held)
    }

    /// Of the call that `call` names, if its entry is not another's by now, nor of another
    /// executor.
    fn phase(&self, call: CallId) -> Option<Phase> {
        let state = self.entries.get(call.index())?;
        (state.generation == call.generation).then_some(state.phase)
    }

    /// Takes the outcome of a call that is over; its entry is free from now on. `leave`: gives its
    /// path back, and says with which remote NIC it was.
    #[inline]
    pub(super) fn end(
        &mut self,
        index: u16,
        leave: impl FnOnce(RemoteWindowId) -> HostAddr,
    ) -> Outcome {
        let state = &mut self[index];
        let responder = leave(state.path);
        let missing = if state.end.is_some() { state.missing() } else { Vec::new() };
        let piece = missing.first().map_or(0, |first| first.piece as u16);
        // One that was given up while its last ops were under way may have come to a good end.
        let status = state.status().filter(|_| !missing.is_empty()).unwrap_or(CallStatus::Ok);
        let publishing = state.publishing();
        let in_doubt = publishing.filter(|_| status == CallStatus::Unknown);
        let outcome = Outcome {
            call: CallId { index, generation: state.generation },
            op_type: state.op_type(),
            responder,
            region: state.extent(piece).remote_region,
            status,
            bytes_done: state.bytes_done,
            retries: state.retries,
            missing,
            result: publishing.and_then(Publishing::result),
            in_doubt: in_doubt.and_then(Publishing::in_doubt),
            verdict: publishing.and_then(Publishing::verdict),
        };
        state.phase = Phase::Free;
        state.generation = state.generation.wrapping_add(1);
        (state.piece, state.offset) = (0, 0);
        (state.retries, state.bytes_done, state.end) = (0, 0, None);
        if let Some(rest) = &mut state.rest {
            rest.extents.clear();
            rest.again.clear();
            rest.failed.clear();
            rest.publishing = None;
        }
        self.free.push(index);
        outcome
    }
}

impl Index<u16> for Calls {
    type Output = CallState;

    fn index(&self, index: u16) -> &CallState {
        &self.entries[usize::from(index)]
    }
}

impl IndexMut<u16> for Calls {
    fn index_mut(&mut self, index: u16) -> &mut CallState {
        &mut self.entries[usize::from(index)]
    }
}
