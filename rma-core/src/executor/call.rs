//! What an application asks of a [`CommandExecutor`](super::CommandExecutor), and what it gets
//! back.

use core::{fmt, time::Duration};

use thiserror::Error;

use crate::{
    addr::HostAddr,
    cc::AllHeld,
    error::SubmitError,
    grant::Grant,
    op::{ClassOfService, Moves, OpStatus, OpType, TransferType},
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
    /// Where in the remote region, in bytes.
    pub remote_offset: u64,
    /// The local region: where a read's data lands, or a write's data comes from.
    pub local: &'a RegisteredRegion,
    /// Where in `local`, in bytes.
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
    /// What to transfer. At least one piece, at most [`PIECES_MAX`]; those that are written must
    /// not overlap.
    pub pieces: &'a [Piece<'a>],
    /// With which class of service. `None`: [`ClassOfService::Latency`] if one op can do it, or
    /// else [`ClassOfService::Throughput`].
    pub class: Option<ClassOfService>,
    /// What to do when ops fail.
    pub retry: RetryPolicy,
    /// When to give up: no op is issued from then on. The call is over when those that are under
    /// way are, which promise P1 bounds. `None`: when no op was OK for
    /// [`ExecutorConfig::stall`](super::ExecutorConfig::stall).
    pub deadline: Option<Instant>,
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
        Self { pieces, class: None, retry: RetryPolicy::DEFAULT, deadline: None }
    }
}

/// What to do when an op of a call fails: how often it is issued again, and how long a call stays
/// with a remote NIC that does not answer.
///
/// Only NACK, TIMEOUT and DISPATCH_TIMEOUT are ever retried: they are about congestion, loss and
/// silence. A write may be repeated after any of them, as an op that was reported as failed changes
/// nothing any more (promise P2). The others say that the same op would fail again.
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
}

impl RetryPolicy {
    /// Two timeouts, so that lost frames are made good, 100 refusals, and a pause of two timeouts
    /// is outlasted.
    pub const DEFAULT: Self = Self { timeouts: 2, refusals: 100, outlast: None };

    /// Every failure ends the call, and so does a remote NIC that is silent: for applications that
    /// have another replica.
    pub const NONE: Self = Self { timeouts: 0, refusals: 0, outlast: Some(Duration::ZERO) };
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

/// How a call ended.
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
        }
    }
}

/// Bytes of a call that were not transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Of which piece, by its place in [`Call::pieces`].
    pub piece: usize,
    /// Where in the piece, in bytes.
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
    /// How the last op that tried ended. Then the bytes at the sink, or at the target, may have
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

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    /// Of which call.
    pub call: CallId,
    /// What its ops did.
    pub op_type: OpType,
    /// With which remote NIC.
    pub responder: HostAddr,
    /// In which of its regions: that of the first bytes that are missing, or of the first piece if
    /// none are.
    pub region: RegionId,
    /// How it ended.
    pub status: CallStatus,
    /// How many bytes were transferred.
    pub bytes_done: u64,
    /// How many ops were issued again.
    pub retries: u32,
    /// What was not transferred, by piece and offset; everything else was. Empty if the call is OK,
    /// and only then.
    pub missing: Vec<Missing>,
}

impl Outcome {
    /// What became of a call that was given up before an executor took it: all of it is missing,
    /// and nothing has changed. `call` names no other call. For who keeps calls until there is room
    /// for them.
    ///
    /// # Panics
    /// If it has no pieces.
    pub fn not_begun(call: &Call<'_>, status: CallStatus) -> Self {
        let pieces = call.pieces.iter().enumerate();
        let missing =
            pieces.map(|(piece, it)| Missing { piece, offset: 0, len: it.len, tried: None });
        let missing = missing.collect();
        let Grant { op_type, responder, region, .. } = *call.pieces[0].grant;
        let (call, retries) = (CallId::NONE, 0);
        Self { call, op_type, responder, region, status, bytes_done: 0, retries, missing }
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

/// Why a call was refused. Caused by the caller, never by the network; then nothing was issued.
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
        /// Where in the piece, in bytes.
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
        /// What it is for.
        granted: OpType,
    },
    /// The grant or the local region is not one for this portal.
    #[error("piece {piece}: {error}")]
    Submit {
        /// The piece, by its place in the call.
        piece: usize,
        /// What is wrong with it.
        error: SubmitError,
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

/// What `pieces` transfer, once they have been found to make sense by themselves.
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

#[inline]
fn check_piece(piece: usize, it: &Piece<'_>) -> Result<(), CallError> {
    let &Piece { grant, remote_offset, local, local_offset, len } = it;
    let outside =
        |offset: u64, region_len| offset.checked_add(len).is_none_or(|end| end > region_len);
    if len == 0 {
        return Err(CallError::EmptyPiece { piece });
    }
    if outside(remote_offset, grant.region_len) {
        let (region, region_len, offset) = (grant.region, grant.region_len, remote_offset);
        return Err(CallError::RemoteOutOfBounds { piece, region, region_len, offset, len });
    }
    if outside(local_offset, local.len()) {
        let (region, region_len, offset) = (local.id(), local.len(), local_offset);
        return Err(CallError::LocalOutOfBounds { piece, region, region_len, offset, len });
    }
    Ok(())
}

/// Whether two pieces change the same bytes: local ones if they are read, remote ones if they are
/// written.
fn check_overlap(moves: Moves, pieces: &[Piece<'_>]) -> Result<(), CallError> {
    let changed = |index: usize| {
        let piece = &pieces[index];
        let (region, offset) = match moves {
            Moves::In => (piece.local.id(), piece.local_offset),
            Moves::Out => (piece.grant.region, piece.remote_offset),
        };
        (region, offset, offset + piece.len)
    };
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    order.sort_unstable_by_key(|&index| changed(index));
    for pair in order.windows(2) {
        let (before, after) = (changed(pair[0]), changed(pair[1]));
        if before.0 == after.0 && before.2 > after.1 {
            let (first, second) = (pair[0].min(pair[1]), pair[0].max(pair[1]));
            return Err(CallError::Overlap { first, second });
        }
    }
    Ok(())
}

settings!(RetryPolicy);
