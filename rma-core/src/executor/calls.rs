//! The calls of one executor: what each has still to issue, and what became of the rest.
//!
//! Bytes are issued in the order of the pieces, so what was transferred needs no map: it is all that lies before the
//! cursor, but for the spans of ops that failed.

use core::ops::{Index, IndexMut};

use super::{
    call::{Call, CallId, CallStatus, Missing, Outcome, Piece, RetryPolicy},
    cut::Cut,
    paths::Next,
};
use crate::{
    addr::HostAddr,
    cc::RemoteWindowId,
    crypto::DerivedRegionKey,
    op::{ClassOfService, OpStatus, OpType},
    region::RegionId,
};

/// The bytes of one op.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) piece: u16,
    /// How often it may still fail.
    retry: RetryPolicy,
    pub(super) len: u32,
    /// In the piece.
    pub(super) offset: u64,
}

impl Span {
    pub(super) const NONE: Self = Self { piece: 0, retry: RetryPolicy::NONE, len: 0, offset: 0 };

    const fn missing(self, tried: OpStatus) -> Missing {
        let Self { piece, len, offset, .. } = self;
        Missing { piece: piece as usize, offset, len: len as u64, tried: Some(tried) }
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
    len: u64,
}

impl Extent {
    const NONE: Self = Self {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Free,
    /// Waits for what was submitted before a fence.
    Held,
    Active,
    /// Nothing of it is under way, and the application has not been told.
    Over,
}

/// Two cache lines: what a call of one piece needs, if none of its ops fails. With a list of its pieces elsewhere, and
/// those of failed ops here, it was 7 ns more of an op, as hundreds of calls do not fit into the nearest cache.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct CallState {
    pub(super) phase: Phase,
    generation: u32,
    pub(super) path: RemoteWindowId,
    pub(super) class: ClassOfService,
    pub(super) op_type: OpType,
    pub(super) responder: HostAddr,
    /// How many fences had been set before it.
    pub(super) fence: u32,
    cut: Cut,
    retry: RetryPolicy,
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
    /// Why no more ops are issued, if that is not because all were.
    pub(super) status: Option<CallStatus>,
    /// `None` until it, or an earlier call in this place, has needed it.
    rest: Option<Box<Rest>>,
}

const _: () = assert!(size_of::<CallState>() == 128);

/// What only calls of several pieces have, and those of which ops have failed.
#[derive(Debug, Default)]
struct Rest {
    /// The pieces after the first.
    extents: Vec<Extent>,
    /// Failed, and to be issued again.
    again: Vec<(Span, OpStatus)>,
    /// Failed, and not to be issued again.
    failed: Vec<(Span, OpStatus)>,
}

impl CallState {
    const fn free() -> Self {
        Self {
            phase: Phase::Free,
            generation: 0,
            path: RemoteWindowId::NONE,
            class: ClassOfService::Latency,
            op_type: OpType::Read,
            responder: HostAddr::from_octets([0; 16]),
            fence: 0,
            cut: Cut::NONE,
            retry: RetryPolicy::NONE,
            first: Extent::NONE,
            pieces: 0,
            piece: 0,
            offset: 0,
            outstanding: 0,
            retries: 0,
            bytes_done: 0,
            status: None,
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

    /// Whether an op is to be issued.
    pub(super) fn has_next(&self) -> bool {
        self.status.is_none() && (self.piece < self.pieces || !self.again().is_empty())
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
        Span { piece, retry: self.retry, len, offset }
    }

    /// An op failed. Whether it is to be issued again.
    pub(super) fn fail(&mut self, span: Span, status: OpStatus) -> bool {
        let rest = self.rest.get_or_insert_default();
        if self.status.is_none()
            && let Some(retry) = span.retry.after(status)
        {
            rest.again.push((Span { retry, ..span }, status));
            return true;
        }
        rest.failed.push((span, status));
        self.status.get_or_insert(CallStatus::Failed(status));
        false
    }

    /// What was not transferred, in order.
    fn missing(&self) -> Vec<Missing> {
        let tried = self.rest.iter().flat_map(|rest| rest.failed.iter().chain(&rest.again));
        let tried = tried.map(|&(span, status)| span.missing(status));
        let untried = (self.piece..self.pieces).map(|piece| {
            let offset = if piece == self.piece { self.offset } else { 0 };
            let len = self.extent(piece).len - offset;
            Missing { piece: piece.into(), offset, len, tried: None }
        });
        Missing::in_order(tried.chain(untried).collect())
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

    /// How many have something that has not been issued. Entries that were never used come last, and are not looked at.
    pub(super) fn waiting(&self) -> usize {
        let waits = |call: &&CallState| match call.phase {
            Phase::Held => true,
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
    #[inline]
    pub(super) fn begin(
        &mut self,
        index: u16,
        call: &Call<'_>,
        path: RemoteWindowId,
        cut: Cut,
        fence: u32,
    ) -> CallId {
        let (first, others) = call.pieces.split_first().expect("a call has a piece");
        let state = &mut self[index];
        state.phase = Phase::Held;
        state.path = path;
        state.class = call.class.unwrap_or_else(|| cut.class(call.pieces));
        (state.op_type, state.responder) = (first.grant.op_type, first.grant.responder);
        state.fence = fence;
        state.cut = cut;
        state.retry = call.retry;
        (state.first, state.pieces) = (Extent::of(first), call.pieces.len() as u16);
        if !others.is_empty() {
            let rest = state.rest.get_or_insert_default();
            rest.extents.extend(others.iter().map(Extent::of));
        }
        CallId { index, generation: state.generation }
    }

    /// Whether `call` names a call that is not over, or whose outcome has not been taken.
    pub(super) fn is_current(&self, call: CallId) -> bool {
        self.phase(call).is_some_and(|phase| phase != Phase::Free)
    }

    /// Whether `call` waits for what was submitted before a fence.
    pub(super) fn is_held(&self, call: CallId) -> bool {
        self.phase(call) == Some(Phase::Held)
    }

    /// Of the call that `call` names, if its entry is not another's by now, nor of another executor.
    fn phase(&self, call: CallId) -> Option<Phase> {
        let state = self.entries.get(call.index())?;
        (state.generation == call.generation).then_some(state.phase)
    }

    /// What became of a call that is over; its entry is free from now on.
    #[inline]
    pub(super) fn end(&mut self, index: u16) -> Outcome {
        let state = &mut self[index];
        let missing = if state.status.is_some() { state.missing() } else { Vec::new() };
        let outcome = Outcome {
            call: CallId { index, generation: state.generation },
            // One that was given up while its last ops were under way may have come to a good end.
            status: state.status.filter(|_| !missing.is_empty()).unwrap_or(CallStatus::Ok),
            bytes_done: state.bytes_done,
            retries: state.retries,
            missing,
        };
        state.phase = Phase::Free;
        state.generation = state.generation.wrapping_add(1);
        (state.piece, state.offset) = (0, 0);
        (state.retries, state.bytes_done, state.status) = (0, 0, None);
        if let Some(rest) = &mut state.rest {
            rest.extents.clear();
            rest.again.clear();
            rest.failed.clear();
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
