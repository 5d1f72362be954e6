//! Calls to a [`CommandExecutor`](super::CommandExecutor), and their outcomes.

use core::{fmt, time::Duration};

use thiserror::Error;

use crate::{
    addr::HostAddr,
    cc::AllHeld,
    error::SubmitError,
    grant::Grant,
    limits::WORD_LEN,
    op::{ClassOfService, Moves, OpStatus, OpType, TransferType},
    outcome::{OpName, Verdict},
    portal::{Change, Placement},
    region::{RegionId, RegisteredRegion},
    time::Instant,
};

/// The most pieces that a call may have.
pub const PIECES_MAX: usize = 1024;

/// A run of bytes that is one both in a remote and in a local region.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The permission to read or write the remote bytes.
    pub grant: &'a Grant,
    /// The offset in the remote region, in bytes.
    pub remote_offset: u64,
    /// The local region: where a read's data lands, or a write's data comes from.
    pub local: &'a RegisteredRegion,
    /// The offset in `local`, in bytes.
    pub local_offset: u64,
    /// How many bytes; at least one.
    pub len: u64,
}

/// One read or write of any size, scattered or gathered over any number of pieces.
///
/// All pieces are with one host, and all grants for one type of op. There is no order among the
/// bytes of a call: an application that polls memory may see any of them first.
#[derive(Clone, Copy, Debug)]
#[must_use]
#[non_exhaustive]
pub struct Call<'a> {
    /// The pieces to transfer. At least one piece, at most [`PIECES_MAX`]; those that are written
    /// must not overlap.
    pub pieces: &'a [Piece<'a>],
    /// With which class of service. `None`: [`ClassOfService::Latency`] if one op can do it, or
    /// else [`ClassOfService::Throughput`].
    pub class: Option<ClassOfService>,
    /// The policy for ops that fail.
    pub retry: RetryPolicy,
    /// When to give up: no op is issued from then on. The call is over when those that are under
    /// way are, which promise P1 bounds. `None`: when no op was OK for
    /// [`ExecutorConfig::stall`](super::ExecutorConfig::stall).
    pub deadline: Option<Instant>,
    /// The way in which the last bytes of a write go, which tell that all of it is there.
    pub publish: Publish<'a>,
    /// Earlier calls that this one comes after: it begins when they are OK, and ends with
    /// [`CallStatus::PredecessorFailed`] if one of them is not. No other call waits for that.
    pub after: [Option<CallId>; 2],
}

/// The last op of a write: the *publishing* one (not in the paper).
///
/// All others go before it, in parallel and in any order; it goes when they are done. It is
/// recorded by its target and never repeated blindly: see [`RetryPolicy`].
#[derive(Clone, Copy, Debug, Default)]
pub enum Publish<'a> {
    /// As all others, with them: there is no publishing op.
    #[default]
    Plain,
    /// As an ordered WRITE: who sees its last aligned word by a load that acquires sees all bytes
    /// of the call. The last piece has at least 8 bytes, and its end in the remote region is a
    /// multiple of 8.
    Ordered,
    /// As a WRITE_WITH_IMM: its event comes after all bytes of the call.
    WithImmediate {
        /// The permission for it, at the region of the last piece: K_d is bound to the op type.
        grant: &'a Grant,
        /// The immediate of the event.
        immediate: u64,
        /// When the bytes of this op land. [`Placement::Ordered`] asks of the last piece what
        /// [`Publish::Ordered`] does.
        placement: Placement,
    },
}

impl Publish<'_> {
    /// Whether there is a publishing op.
    #[inline]
    pub(super) const fn is_plain(&self) -> bool {
        matches!(self, Self::Plain)
    }

    /// Whether the bytes of the publishing op land in order.
    pub(super) const fn is_ordered(&self) -> bool {
        matches!(self, Self::Ordered | Self::WithImmediate { placement: Placement::Ordered, .. })
    }
}

/// A call of one recorded op: SEND, NOTIFY, COMPARE_SWAP, FETCH_ADD, an ordered WRITE or a
/// WRITE_WITH_IMM (not in the paper).
///
/// It counts as the bytes that it moves, or as its operands if it moves none: those are what an
/// [`Outcome`] tells as done or missing.
#[derive(Clone, Copy, Debug)]
#[must_use]
#[non_exhaustive]
pub struct OpCall<'a> {
    /// The permission for it.
    pub grant: &'a Grant,
    /// The change that it makes.
    pub change: Change<'a>,
    /// With which class of service.
    pub class: ClassOfService,
    /// The policy for an op that fails.
    pub retry: RetryPolicy,
    /// As [`Call::deadline`].
    pub deadline: Option<Instant>,
    /// As [`Call::after`].
    pub after: [Option<CallId>; 2],
}

impl<'a> OpCall<'a> {
    /// A call of this op, in the latency class, with the default policy and no deadline of its own.
    pub const fn of(grant: &'a Grant, change: Change<'a>) -> Self {
        let (class, retry) = (ClassOfService::Latency, RetryPolicy::DEFAULT);
        Self { grant, change, class, retry, deadline: None, after: [None; 2] }
    }

    /// This call as `change` leaves it.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

impl<'a> Call<'a> {
    /// This call as `change` leaves it: `Call::of(&pieces).with(|it| it.retry =
    /// RetryPolicy::NONE)`.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// A call of `pieces`, with the default policy and no deadline of its own.
    pub const fn of(pieces: &'a [Piece<'a>]) -> Self {
        Self {
            pieces,
            class: None,
            retry: RetryPolicy::DEFAULT,
            deadline: None,
            publish: Publish::Plain,
            after: [None; 2],
        }
    }
}

/// The policy for a call's ops that fail: how often an op is issued again, and how long a call
/// stays with a remote NIC that does not answer.
///
/// Only NACK, TIMEOUT and DISPATCH_TIMEOUT are ever retried: they are about congestion, loss and
/// silence. A write may be repeated after any of them, as an op that was reported as failed changes
/// nothing any more (promise P2). The others say that the same op would fail again.
///
/// # Recorded ops
///
/// An op that publishes, or is a call of its own ([`OpCall`]), is never repeated while it may have
/// been applied: somebody may have consumed what it published (not in the paper). After NACK,
/// DISPATCH_TIMEOUT, and a TIMEOUT before its data was sent, it was not, and is issued again as
/// any. After any other TIMEOUT its target is asked what became of it (SETTLE), again and again,
/// until it says so, the call's deadline is over, or the target may have forgotten, which takes
/// four timeouts; `outlast` does not count meanwhile. Then it is done, or is issued again as after
/// a TIMEOUT, or the call ends with [`CallStatus::Unknown`]. A call whose deadline comes while its
/// op is under way is asked about once: so it is over by its deadline, the bound of its op and that
/// of one SETTLE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct RetryPolicy {
    /// After TIMEOUT, if the remote NIC answers other ops: so this is for loss. More: more lost
    /// frames are made good.
    pub timeouts: u8,
    /// After NACK or DISPATCH_TIMEOUT, which come soon. Each of them cuts a congestion window to a
    /// tenth, so that the next ones are further and further apart, up to RTT / `cwnd_min`.
    pub refusals: u8,
    /// How long the call stays with a remote NIC that answers nothing at all: from its last answer,
    /// or from the call's beginning if that was later. TIMEOUTs in that time do not count. `None`:
    /// a little more than twice the NIC's timeout
    /// ([`ExecutorConfig::timeout`](super::ExecutorConfig::timeout)), so that a pause of two
    /// timeouts fails no call. Longer: the call outlasts longer pauses, restarts and failovers (a
    /// host that has restarted has new keys, so the ops fail then, but the call ends as soon as it
    /// can be known). Shorter: the application can turn to another replica sooner; with zero, as
    /// soon as the remote NIC is known to be silent.
    pub outlast: Option<Duration>,
    /// For how long an op is offered again to a queue that has no receive posted, which it says at
    /// once (REMOTE_NOT_READY), counted from when it first said so. The op backs off, and no window
    /// is cut: a slow application is no congestion. Longer: a slower receiver is waited for. With
    /// zero the call fails with REMOTE_NOT_READY at once.
    pub not_ready: Duration,
}

impl RetryPolicy {
    /// Two timeouts, so that lost frames are made good, 100 refusals, a pause of two timeouts is
    /// outlasted, and a receiver has a second to post a receive.
    pub const DEFAULT: Self =
        Self { timeouts: 2, refusals: 100, outlast: None, not_ready: Duration::from_secs(1) };

    /// Every failure ends the call, and so does a remote NIC that is silent: for applications that
    /// have another replica.
    pub const NONE: Self =
        Self { timeouts: 0, refusals: 0, outlast: Some(Duration::ZERO), not_ready: Duration::ZERO };
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The name of a call, until its outcome has been taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId {
    pub(super) index: u16,
    pub(super) generation: u32,
}

impl CallId {
    /// Of a call that never was: no executor has so many.
    const NONE: Self = Self { index: u16::MAX, generation: 0 };

    /// A small number that no other call has at the same time: below
    /// [`ExecutorConfig::calls`](super::ExecutorConfig::calls). Lets an application keep what
    /// belongs to a call in a table.
    #[must_use]
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

/// The end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallStatus {
    /// All bytes were transferred.
    Ok,
    /// An op failed in this way, and was not to be retried.
    Failed(OpStatus),
    /// The remote NIC is silent: nothing has come from it for longer than [`RetryPolicy::outlast`],
    /// and every op that it was asked since has timed out. What of the call was not issued by then
    /// was not issued at all.
    PeerSilent {
        /// How long it had been silent when the call was given up: since the first op that got no
        /// answer was issued.
        since: Duration,
        /// How many ops had timed out since, those of other calls among them.
        tried: u32,
    },
    /// The deadline came first; or, if the call had none, no op of it was OK for
    /// [`ExecutorConfig::stall`](super::ExecutorConfig::stall).
    DeadlineExceeded,
    /// The application gave up.
    Cancelled,
    /// The call's recorded op, or the one that it asked about, may have been applied, or not, and
    /// its target could not be asked: it did not answer in time, or has forgotten. Which of the two
    /// is final: nothing changes any longer. [`Outcome::in_doubt`] is the op.
    Unknown,
    /// A call that this one was to come [`after`](Call::after) was not OK. Nothing was issued.
    PredecessorFailed,
}

impl fmt::Display for CallStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.write_str("OK"),
            Self::Failed(status) => status.fmt(f),
            Self::PeerSilent { since, tried } => {
                let (ms, ops) = (since.as_millis(), if *tried == 1 { "op" } else { "ops" });
                write!(f, "no answer for {ms} ms ({tried} {ops} timed out)")
            }
            Self::DeadlineExceeded => f.write_str("the deadline has passed"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Unknown => f.write_str("it is not known whether the op was applied"),
            Self::PredecessorFailed => f.write_str("a call before it failed"),
        }
    }
}

/// Bytes of a call that were not transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Of which piece, by its place in [`Call::pieces`].
    pub piece: usize,
    /// The offset in the piece, in bytes.
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
    /// The status of the last op that tried; the bytes at the sink, or at the target, may have
    /// changed in part. `None`: no op has tried, and nothing has changed.
    pub tried: Option<OpStatus>,
}

impl Missing {
    /// These, in the order of pieces and bytes, with those made one that touch and ended alike: as
    /// an [`Outcome`] has them.
    #[must_use]
    pub fn in_order(mut all: Vec<Self>) -> Vec<Self> {
        all.sort_unstable_by_key(|missing| (missing.piece, missing.offset));
        all.dedup_by(|next, before| {
            let joins = next.piece == before.piece
                && next.offset == before.offset + before.len
                && next.tried == before.tried;
            if joins {
                before.len += next.len;
            }
            joins
        });
        all
    }
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    /// Of which call.
    pub call: CallId,
    /// The type of its ops.
    pub op_type: OpType,
    /// With which remote NIC.
    pub responder: HostAddr,
    /// In which of its regions: that of the first bytes that are missing, or of the first piece if
    /// none are.
    pub region: RegionId,
    /// The status that it ended with.
    pub status: CallStatus,
    /// How many bytes were transferred.
    pub bytes_done: u64,
    /// How many ops were issued again.
    pub retries: u32,
    /// The bytes that were not transferred, by piece and offset; everything else was. Empty if the
    /// call is OK, and only then.
    pub missing: Vec<Missing>,
    /// The word that a COMPARE_SWAP or a FETCH_ADD found, if it is OK; or if the call asked about
    /// one, and that was applied.
    pub result: Option<u64>,
    /// Of [`CallStatus::Unknown`]: what the target calls the op of which nobody knows whether it
    /// was applied, to ask by later ([`CommandExecutor::submit_settle`]). There is one such op at
    /// most: the call's only one, or the one that was to publish. `None` if its target has not told
    /// its name.
    ///
    /// [`CommandExecutor::submit_settle`]: super::CommandExecutor::submit_settle
    pub in_doubt: Option<OpName>,
    /// The target's verdict, if the call asked about an op and is OK.
    pub verdict: Option<Verdict>,
}

impl Outcome {
    /// Makes the outcome of a call that was given up before an executor took it: all of it is
    /// missing, and nothing has changed. `call` names no other call. For callers that keep calls
    /// until there is room for them.
    ///
    /// # Panics
    /// If it has no pieces.
    pub fn not_begun(call: &Call<'_>, status: CallStatus) -> Self {
        let pieces = call.pieces.iter().enumerate();
        let missing =
            pieces.map(|(piece, it)| Missing { piece, offset: 0, len: it.len, tried: None });
        let missing = missing.collect();
        let Grant { op_type, responder, region, .. } = *call.pieces[0].grant;
        Self { missing, ..Self::nothing(op_type, responder, region, status) }
    }

    /// [`Outcome::not_begun`] of a call of one recorded op.
    pub fn op_not_begun(call: &OpCall<'_>, status: CallStatus) -> Self {
        let Grant { responder, region, .. } = *call.grant;
        let (op_type, len) = (call.change.op_type(), call.change.op_size().into());
        let missing = vec![Missing { piece: 0, offset: 0, len, tried: None }];
        Self { missing, ..Self::nothing(op_type, responder, region, status) }
    }

    /// [`Outcome::not_begun`] of a call that was to ask about the op called `name`: what became of
    /// that is as unknown as before.
    pub fn settle_not_begun(grant: &Grant, name: OpName) -> Self {
        let Grant { op_type, responder, region, .. } = *grant;
        let missing = vec![Missing { piece: 0, offset: 0, len: 0, tried: None }];
        let nothing = Self::nothing(op_type, responder, region, CallStatus::Unknown);
        Self { missing, in_doubt: Some(name), ..nothing }
    }

    /// Of no call, in which nothing was done.
    const fn nothing(
        op_type: OpType,
        responder: HostAddr,
        region: RegionId,
        status: CallStatus,
    ) -> Self {
        Self {
            call: CallId::NONE,
            op_type,
            responder,
            region,
            status,
            bytes_done: 0,
            retries: 0,
            missing: Vec::new(),
            result: None,
            in_doubt: None,
            verdict: None,
        }
    }

    /// The part of `pieces`, those of the call, that is missing: what to ask of another replica,
    /// with the grants that `grant_of` has for each. One piece for each [`Missing`], in their
    /// order.
    ///
    /// A call of these is another call: its outcome counts in *its* pieces. If it fails as well,
    /// the rest of the rest is what its outcome's `remaining` makes of the pieces that this
    /// returned, and not of the first call's.
    ///
    /// These may be more than [`PIECES_MAX`], if ops failed here and there: one call is too small
    /// for them then. Make several, of [`PIECES_MAX`] at most each
    /// (`remaining.chunks(PIECES_MAX)`).
    ///
    /// # Panics
    /// If `pieces` are fewer than the call's. Those of yet another call are not told apart.
    pub fn remaining<'a>(
        &self,
        pieces: &[Piece<'a>],
        grant_of: impl Fn(&Piece<'a>) -> &'a Grant,
    ) -> Vec<Piece<'a>> {
        let piece = |missing: &Missing| {
            let whole = &pieces[missing.piece];
            Piece {
                grant: grant_of(whole),
                remote_offset: whole.remote_offset + missing.offset,
                local_offset: whole.local_offset + missing.offset,
                len: missing.len,
                ..*whole
            }
        };
        self.missing.iter().map(piece).collect()
    }
}

/// The reason why a call was refused. Caused by the caller, never by the network; then nothing was
/// issued.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// There is nothing to transfer, or in too many pieces.
    #[error(
        "a call has {pieces} pieces: it must have 1..={PIECES_MAX}; split more into several calls"
    )]
    Pieces {
        /// How many it has.
        pieces: usize,
    },
    /// A piece has no bytes.
    #[error("piece {piece} has no bytes; leave it out")]
    EmptyPiece {
        /// The piece, by its place in the call.
        piece: usize,
    },
    /// A piece reaches outside the remote region.
    #[error(
        "piece {piece}: {len} bytes at offset {offset} do not fit into remote region {region} of {region_len} bytes"
    )]
    RemoteOutOfBounds {
        /// The piece, by its place in the call.
        piece: usize,
        /// The region.
        region: RegionId,
        /// Its length in bytes, when the grant was made.
        region_len: u64,
        /// The refused offset.
        offset: u64,
        /// The refused length.
        len: u64,
    },
    /// A piece reaches outside the local region.
    #[error(
        "piece {piece}: {len} bytes at offset {offset} do not fit into local region {region} of {region_len} bytes"
    )]
    LocalOutOfBounds {
        /// The piece, by its place in the call.
        piece: usize,
        /// The region.
        region: RegionId,
        /// Its length in bytes.
        region_len: u64,
        /// The refused offset.
        offset: u64,
        /// The refused length.
        len: u64,
    },
    /// A piece reaches outside its buffer, beyond which are others'.
    #[error(
        "piece {piece}: {len} bytes at offset {offset} do not fit into its buffer of {buffer_len} bytes; make the \
         piece shorter, or the buffer longer"
    )]
    OutsideBuffer {
        /// The piece, by its place in the call.
        piece: usize,
        /// The length of the buffer in bytes.
        buffer_len: u64,
        /// The refused offset.
        offset: u64,
        /// The refused length.
        len: u64,
    },
    /// An outcome says that something is missing which the transfer of the rest has not: it is
    /// another transfer's.
    #[error(
        "{len} bytes at offset {offset} of piece {piece} are missing, and this transfer has no such bytes; ask for \
         the rest with all pieces of the transfer that failed, and buffers as long as they were then"
    )]
    NotOfThisTransfer {
        /// Of which piece they are missing.
        piece: usize,
        /// The offset in the piece, in bytes.
        offset: u64,
        /// How many bytes.
        len: u64,
    },
    /// Two pieces would change the same bytes, and there is no order among them.
    #[error(
        "pieces {first} and {second} change the same bytes; make them two calls with a fence between them"
    )]
    Overlap {
        /// One of the two pieces, by its place in the call.
        first: usize,
        /// The other piece, by its place in the call.
        second: usize,
    },
    /// Pieces of one call are with two hosts.
    #[error("piece {piece} is with another host than the first; make one call for each host")]
    AnotherHost {
        /// The piece, by its place in the call.
        piece: usize,
    },
    /// The grant of the first piece is for something else than reads and writes.
    #[error(
        "the grant is for {granted}, and calls read or write; ask for a grant for READ or WRITE"
    )]
    NoTransfer {
        /// The op type that it is for.
        granted: OpType,
    },
    /// The grant or the local region is not one for this portal.
    #[error("piece {piece}: {error}")]
    Submit {
        /// The piece, by its place in the call.
        piece: usize,
        /// The fault.
        error: SubmitError,
    },
    /// A call that will come first is none: its outcome has been taken, and tells.
    #[error(
        "a call that this one waits for is over, and its outcome was taken; leave it out of \
         `after`"
    )]
    NoSuchPredecessor {
        /// The id of the predecessor.
        call: CallId,
    },
    /// A read publishes nothing.
    #[error(
        "a call of {granted} publishes nothing; leave `publish` as it is, or ask for a grant for WRITE"
    )]
    NothingToPublish {
        /// The op type that its grants are for.
        granted: OpType,
    },
    /// The publishing op would be at another region than the last piece.
    #[error("the grant to publish is not for the region of the last piece, {piece}")]
    PublishElsewhere {
        /// The last piece, by its place in the call.
        piece: usize,
    },
    /// The end of what is published in order is not the end of a word.
    #[error(
        "piece {piece}: {len} bytes at offset {offset} do not end with a whole word; the last piece of an ordered \
         call ends at a multiple of {WORD_LEN} and has that many bytes at least"
    )]
    Misaligned {
        /// The last piece, by its place in the call.
        piece: usize,
        /// Its offset in the remote region.
        offset: u64,
        /// How many bytes it has.
        len: u64,
    },
    /// As many calls as there can be are not over, or their outcomes have not been taken.
    #[error("all {calls} calls of this executor are in use; take outcomes, or raise `calls`")]
    TooManyCalls {
        /// How many there are.
        calls: u16,
    },
    /// As many remote NICs as there can be have calls.
    #[error(transparent)]
    TooManyRemotes(#[from] AllHeld),
}

/// Checks `pieces`, and returns the type of their transfer.
#[inline]
pub(super) fn check(pieces: &[Piece<'_>]) -> Result<TransferType, CallError> {
    let first = pieces.first().filter(|_| pieces.len() <= PIECES_MAX);
    let first = first.ok_or(CallError::Pieces { pieces: pieces.len() })?;
    let granted = first.grant.op_type;
    let transfer_type = granted.shape().transfer.ok_or(CallError::NoTransfer { granted })?;
    for (index, piece) in pieces.iter().enumerate() {
        check_piece(index, piece)?;
        if piece.grant.responder != first.grant.responder {
            return Err(CallError::AnotherHost { piece: index });
        }
    }
    if pieces.len() > 1 {
        check_overlap(granted.shape().moves, pieces)?;
    }
    Ok(transfer_type)
}

/// Whether a call may publish as it says: what can be told without a portal.
#[cold]
pub(super) fn check_publish(call: &Call<'_>) -> Result<(), CallError> {
    let piece = call.pieces.len() - 1;
    let last = &call.pieces[piece];
    let granted = last.grant.op_type;
    if granted != OpType::Write {
        return Err(CallError::NothingToPublish { granted });
    }
    if let Publish::WithImmediate { grant, .. } = call.publish
        && (grant.responder, grant.region) != (last.grant.responder, last.grant.region)
    {
        return Err(CallError::PublishElsewhere { piece });
    }
    let (offset, len, word) = (last.remote_offset, last.len, WORD_LEN as u64);
    if call.publish.is_ordered() && ((offset + len) % word != 0 || len < word) {
        return Err(CallError::Misaligned { piece, offset, len });
    }
    Ok(())
}

#[inline]
fn check_piece(piece: usize, it: &Piece<'_>) -> Result<(), CallError> {
    let &Piece { grant, remote_offset, local, local_offset, len } = it;
    if len == 0 {
        return Err(CallError::EmptyPiece { piece });
    }
    if remote_offset.checked_add(len).is_none_or(|end| end > grant.region_len) {
        let (region, region_len, offset) = (grant.region, grant.region_len, remote_offset);
        return Err(CallError::RemoteOutOfBounds { piece, region, region_len, offset, len });
    }
    if !local.memory().holds(local_offset, len) {
        let (region, region_len, offset) = (local.id(), local.len(), local_offset);
        return Err(CallError::LocalOutOfBounds { piece, region, region_len, offset, len });
    }
    Ok(())
}

/// Whether two pieces change the same bytes: local ones if they are read, remote ones if they are
/// written. Whether a remote region is circular is known to its host alone.
fn check_overlap(moves: Moves, pieces: &[Piece<'_>]) -> Result<(), CallError> {
    // Region, begin, end, index of the piece.
    let mut changed: Vec<(RegionId, u64, u64, usize)> = Vec::with_capacity(pieces.len());
    for (index, piece) in pieces.iter().enumerate() {
        let (region, offset, len) = match moves {
            Moves::In => (piece.local.id(), piece.local_offset, piece.local.len()),
            Moves::Out => (piece.grant.region, piece.remote_offset, piece.grant.region_len),
        };
        // Of a plain region nothing is beyond the end, and the offset is what it was.
        let start = offset % len;
        let end = start + piece.len;
        changed.push((region, start, end.min(len), index));
        if end > len {
            changed.push((region, 0, end - len, index));
        }
    }
    changed.sort_unstable();
    for pair in changed.windows(2) {
        let (before, after) = (pair[0], pair[1]);
        if before.0 == after.0 && before.2 > after.1 {
            let (first, second) = (before.3.min(after.3), before.3.max(after.3));
            return Err(CallError::Overlap { first, second });
        }
    }
    Ok(())
}

/// How far the publishing op of `call`, which ends its last piece, reaches back, in bytes: what the
/// last of its ops has if it is cut as any, and whole words if it is ordered.
pub(super) fn tail_len(call: &Call<'_>, cut: super::cut::Cut) -> u32 {
    let last = &call.pieces[call.pieces.len() - 1];
    let tail = u64::from(cut.last(last.len));
    let word = WORD_LEN as u64;
    if !call.publish.is_ordered() {
        return tail as u32;
    }
    let end = last.remote_offset + last.len;
    let start = (end - tail).next_multiple_of(word).min(end - word);
    (end - start) as u32
}

settings!(RetryPolicy);
