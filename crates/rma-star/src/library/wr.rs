//! The things that applications post and get back: memory, work requests and completions, in verbs'
//! words.

use core::ops::Range;
use std::sync::Arc;

use rma_shm::{Forked, Region};
use thiserror::Error;

use crate::{
    names::{MrId, PdId},
    verbs::{WcStatus, WqeOp},
};

/// A memory region of this host as its application has it: `struct ibv_mr`. It keeps the memory.
#[derive(Clone, Debug)]
pub struct Mr {
    id: MrId,
    pd: PdId,
    memory: Arc<Region>,
    span: Range<u64>,
}

impl Mr {
    /// The memory region that the engine has registered by this number: `span` of `memory`, in
    /// bytes, in protection domain `pd`. Whatever is wrong here, the engine does not believe.
    #[must_use]
    pub const fn new(id: MrId, pd: PdId, memory: Arc<Region>, span: Range<u64>) -> Self {
        Self { id, pd, memory, span }
    }

    /// Its number, which peers name it by.
    #[must_use]
    pub const fn id(&self) -> MrId {
        self.id
    }

    /// The protection domain that it is of.
    #[must_use]
    pub const fn pd(&self) -> PdId {
        self.pd
    }

    /// The memory that it is a span of.
    #[must_use]
    pub const fn memory(&self) -> &Arc<Region> {
        &self.memory
    }

    /// How long it is, in bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.span.end.saturating_sub(self.span.start)
    }

    /// Whether it has no byte.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `length` bytes from `offset` on. That they are there is checked when they are posted.
    #[must_use]
    pub const fn slice(&self, offset: u64, length: u32) -> Sge<'_> {
        Sge { mr: self, offset, length }
    }

    /// Copies bytes out of it. `None` if they are not there.
    pub(super) fn copy_out(&self, offset: u64, bytes: &mut [u8]) -> Option<()> {
        self.memory.copy_out(self.span.start.checked_add(offset)?, bytes).ok()
    }
}

/// The local end of a work request: `struct ibv_sge`. The work request has these bytes until it is
/// complete.
#[derive(Clone, Copy, Debug)]
pub struct Sge<'m> {
    /// The memory region.
    pub mr: &'m Mr,
    /// The offset of the first byte.
    pub offset: u64,
    /// How many there are.
    pub length: u32,
}

/// The remote end of a READ or WRITE: `wr.rdma` of a `struct ibv_send_wr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// The memory region or window, as its host has told.
    pub mr: MrId,
    /// The offset of the first byte.
    pub offset: u64,
}

impl Remote {
    /// Names the place at `offset` of the memory region or window that its host tells of as `rkey`.
    #[must_use]
    pub const fn of(rkey: u32, offset: u64) -> Self {
        Self { mr: MrId(rkey), offset }
    }
}

/// A work request for the send queue: `struct ibv_send_wr`.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'m> {
    pub(super) wr_id: u64,
    pub(super) op: WqeOp,
    pub(super) sge: Sge<'m>,
    pub(super) remote: Remote,
    pub(super) immediate: Option<u32>,
    pub(super) is_inline: bool,
}

impl<'m> SendWr<'m> {
    const fn new(wr_id: u64, op: WqeOp, sge: Sge<'m>, remote: Remote) -> Self {
        Self { wr_id, op, sge, remote, immediate: None, is_inline: false }
    }

    /// Sends a message, which a RECV of the peer takes: `IBV_WR_SEND`.
    #[must_use]
    pub const fn send(wr_id: u64, sge: Sge<'m>) -> Self {
        Self::new(wr_id, WqeOp::Send, sge, Remote { mr: MrId(0), offset: 0 })
    }

    /// Writes into memory of the peer: `IBV_WR_RDMA_WRITE`.
    #[must_use]
    pub const fn write(wr_id: u64, sge: Sge<'m>, remote: Remote) -> Self {
        Self::new(wr_id, WqeOp::Write, sge, remote)
    }

    /// Reads memory of the peer: `IBV_WR_RDMA_READ`.
    #[must_use]
    pub const fn read(wr_id: u64, sge: Sge<'m>, remote: Remote) -> Self {
        Self::new(wr_id, WqeOp::Read, sge, remote)
    }

    /// With an immediate, for the peer's completion: `IBV_WR_SEND_WITH_IMM`,
    /// `IBV_WR_RDMA_WRITE_WITH_IMM`. A WRITE with one takes a RECV of the peer, which waits for it
    /// as for a message; nothing comes into that one's memory. Not of READs.
    #[must_use]
    pub const fn with_imm(mut self, immediate: u32) -> Self {
        self.immediate = Some(immediate);
        self
    }

    /// The bytes travel with the work request, which saves a round trip: `IBV_SEND_INLINE`. At most
    /// [`INLINE_MAX`](crate::limits::INLINE_MAX) of a SEND or WRITE. Other than with verbs the work
    /// request still has its bytes until it is complete: they are fetched if they came too late.
    #[must_use]
    pub const fn inline(mut self) -> Self {
        self.is_inline = true;
        self
    }
}

/// A work request for the receive queue: `struct ibv_recv_wr`.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'m> {
    /// The application's name for it, which its completion repeats.
    pub wr_id: u64,
    /// The place that the message goes to.
    pub sge: Sge<'m>,
}

/// A completion: `struct ibv_wc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wc {
    /// The application's name for the work request.
    pub wr_id: u64,
    /// The status that it ended with. The other fields mean something only with
    /// [`WcStatus::Success`].
    pub status: WcStatus,
    /// The op.
    pub opcode: WqeOp,
    /// How many bytes were moved. Of a RECV that a WRITE has taken: that it has written, elsewhere.
    pub byte_len: u32,
    /// The immediate of the message or WRITE that a RECV has taken, if it had one.
    pub imm: Option<u32>,
    /// Whether it is a RECV that a WRITE with an immediate has taken:
    /// `IBV_WC_RECV_RDMA_WITH_IMM` in place of `IBV_WC_RECV`. There is no message in its memory.
    pub is_of_write: bool,
    /// The QPN of this host's queue pair, as [`Qpn::to_bits`](crate::names::Qpn::to_bits) gives it.
    pub qp_num: u32,
}

impl Wc {
    /// An empty completion, for arrays to poll into.
    pub const EMPTY: Self = Self {
        wr_id: 0,
        status: WcStatus::WrFlushErr,
        opcode: WqeOp::Send,
        byte_len: 0,
        imm: None,
        is_of_write: false,
        qp_num: 0,
    };
}

/// The reason why nothing was posted. The refused call has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PostError {
    /// The queue pair was destroyed, or is of another portal.
    #[error(
        "this portal has no such queue pair: it was closed, or is another portal's; create one"
    )]
    NoSuchQp,
    /// The connection is not set up yet.
    #[error(
        "the queue pair has no connection yet; connect it, and wait until its state is \
         QpState::Ready"
    )]
    NotReady,
    /// The connection has failed or was closed.
    #[error(
        "the queue pair is in its error state: its connection has failed or was closed; close it \
         and connect anew"
    )]
    QpInError,
    /// The queue has as many work requests as it was made for.
    #[error(
        "the queue is full with {depth} work requests; poll completions first, or create it \
         deeper"
    )]
    QueueFull {
        /// How many it was made for.
        depth: u16,
    },
    /// The completion queue has no place for one more completion. Poll it.
    #[error(
        "the completion queue has no room besides {capacity} completions; poll it, or create it \
         larger"
    )]
    CqFull {
        /// How many it was made for.
        capacity: u32,
    },
    /// All slots of the portal are in use, or have been used 2^32 times and rest for good.
    #[error("all slots of the portal are in use, or used up: it was made with {slots}")]
    SlotsFull {
        /// How many it was made with.
        slots: u32,
    },
    /// The engine does not take what is posted: it stands still.
    #[error(
        "the engine has not taken earlier posts: it stands still, or has ended; try again later"
    )]
    EngineStalled,
    /// The memory region is of another protection domain than the queue pair.
    #[error("the memory region is of {of:?}, the queue pair of {qp:?}")]
    NotInPd {
        /// That of the memory region.
        of: PdId,
        /// That of the queue pair.
        qp: PdId,
    },
    /// The memory region is not so long.
    #[error("{length} bytes from {offset} on of a memory region of {len}")]
    OutOfBounds {
        /// The offset of the first byte.
        offset: u64,
        /// How many were asked for.
        length: u32,
        /// How many the memory region has.
        len: u64,
    },
    /// A message that is too long.
    #[error("a message of {length} bytes: it may have {max}")]
    TooLong {
        /// How long it is.
        length: u32,
        /// How long it may be.
        max: u32,
    },
    /// An immediate, or inline data, of an op that has none.
    #[error("a {op:?} has no immediate, or no inline data")]
    NotOfOp {
        /// The op.
        op: WqeOp,
    },
    /// The portal is that of the process which this one was forked from.
    #[error(transparent)]
    Forked(#[from] Forked),
}
