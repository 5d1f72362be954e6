//! Ops as an application names them, before they are checked.

use crate::{
    grant::Grant,
    limits::WORD_LEN,
    op::{ClassOfService, OpType},
    region::RegisteredRegion,
};

/// A read of 1 to [`OP_SIZE_MAX`](crate::limits::OP_SIZE_MAX) bytes.
#[derive(Clone, Copy, Debug)]
pub struct ReadOp<'a> {
    /// The permission to read.
    pub grant: &'a Grant,
    /// The offset in the remote region, in bytes. The responder checks it.
    pub remote_offset: u64,
    /// The region that the data lands in.
    pub sink: &'a RegisteredRegion,
    /// The offset in `sink`, in bytes.
    pub sink_offset: u64,
    /// How many bytes.
    pub op_size: u32,
    /// With which class of service.
    pub class: ClassOfService,
}

/// A write of 1 to [`OP_SIZE_MAX`](crate::limits::OP_SIZE_MAX) bytes.
#[derive(Clone, Copy, Debug)]
pub struct WriteOp<'a> {
    /// The permission to write.
    pub grant: &'a Grant,
    /// The offset in the remote region, in bytes. The responder checks it.
    pub remote_offset: u64,
    /// The region that the data comes from.
    pub source: &'a RegisteredRegion,
    /// The offset in `source`, in bytes.
    pub source_offset: u64,
    /// How many bytes.
    pub op_size: u32,
    /// With which class of service.
    pub class: ClassOfService,
}

/// Bytes of a local region.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The region that they are in.
    pub region: &'a RegisteredRegion,
    /// The offset at which they begin in it, in bytes.
    pub offset: u64,
    /// How many bytes: 1 to [`OP_SIZE_MAX`](crate::limits::OP_SIZE_MAX).
    pub len: u32,
}

/// When the bytes of a WRITE_WITH_IMM land.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// As they come, in any order.
    #[default]
    Any,
    /// When all of them have come, the last aligned word last. Offset and length are multiples of 8
    /// then.
    Ordered,
}

/// An op that its target records (not in the paper). It is applied in whole or not at all, at most
/// once, and what became of it can be asked.
#[derive(Clone, Copy, Debug)]
pub struct RecordedOp<'a> {
    /// The permission for it.
    pub grant: &'a Grant,
    /// The change that it makes.
    pub change: Change<'a>,
    /// With which class of service.
    pub class: ClassOfService,
}

/// The change that a recorded op makes at its target.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Bytes of the region, the last aligned word last: who sees that word by a load that acquires
    /// sees all of them. Offset and length are multiples of 8. The grant is one for WRITE.
    OrderedWrite {
        /// The offset in the remote region, in bytes.
        remote_offset: u64,
        /// The bytes.
        source: Source<'a>,
    },
    /// A posted buffer of a receive queue, and an event there.
    Send {
        /// The message: no longer than the queue's buffers.
        message: Source<'a>,
        /// The immediate of the event.
        immediate: u64,
    },
    /// Bytes of the region, and an event in the queue that the region names.
    WriteWithImm {
        /// The offset in the remote region, in bytes.
        remote_offset: u64,
        /// The bytes.
        source: Source<'a>,
        /// The immediate of the event.
        immediate: u64,
        /// When the bytes land: before the event, in any case.
        placement: Placement,
    },
    /// An event in a receive queue, without a message: the bufferless send.
    Notify {
        /// The immediate of the event.
        immediate: u64,
    },
    /// An aligned word of the region: replaced by `new` if it is `expected`. The completion's
    /// result is what was there.
    CompareSwap {
        /// The offset in the remote region, in bytes: a multiple of 8.
        remote_offset: u64,
        /// The expected value of the word.
        expected: u64,
        /// The new value.
        new: u64,
    },
    /// An aligned word of the region: `addend` is added, modulo 2^64. The completion's result is
    /// what was there.
    FetchAdd {
        /// The offset in the remote region, in bytes: a multiple of 8.
        remote_offset: u64,
        /// The addend.
        addend: u64,
    },
}

impl Change<'_> {
    /// The type of op that its grant is for.
    #[must_use]
    pub const fn op_type(&self) -> OpType {
        match self {
            Self::OrderedWrite { .. } => OpType::Write,
            Self::Send { .. } => OpType::Send,
            Self::WriteWithImm { .. } => OpType::WriteWithImm,
            Self::Notify { .. } => OpType::Notify,
            Self::CompareSwap { .. } => OpType::CompareSwap,
            Self::FetchAdd { .. } => OpType::FetchAdd,
        }
    }

    /// How many bytes of data the op has: those that it moves, or its operands.
    pub(crate) const fn op_size(&self) -> u32 {
        match self {
            Self::OrderedWrite { source, .. }
            | Self::Send { message: source, .. }
            | Self::WriteWithImm { source, .. } => source.len,
            Self::Notify { .. } | Self::FetchAdd { .. } => WORD_LEN as u32,
            Self::CompareSwap { .. } => 2 * WORD_LEN as u32,
        }
    }

    /// Returns the offset of its change in the remote region, in bytes. 0 of what changes no bytes.
    pub(crate) const fn remote_offset(&self) -> u64 {
        match *self {
            Self::OrderedWrite { remote_offset, .. }
            | Self::WriteWithImm { remote_offset, .. }
            | Self::CompareSwap { remote_offset, .. }
            | Self::FetchAdd { remote_offset, .. } => remote_offset,
            Self::Send { .. } | Self::Notify { .. } => 0,
        }
    }
}
