//! The ops of a load.

use rma_xdp::{OpType, ops::Moves};

/// An op as a load issues it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadOp {
    /// READ of bytes that nobody changes meanwhile.
    Read,
    /// WRITE, whose bytes land in any order.
    Write,
    /// WRITE whose last word lands last.
    OrderedWrite,
    /// WRITE_WITH_IMM, whose bytes land in any order before its event.
    WriteWithImm,
    /// SEND of a message to a receive queue.
    Send,
    /// COMPARE_SWAP of a word for itself.
    CompareSwap,
    /// FETCH_ADD of nothing.
    FetchAdd,
}

impl LoadOp {
    /// The type of op that the grant has to permit.
    #[must_use]
    pub const fn op_type(self) -> OpType {
        match self {
            Self::Read => OpType::Read,
            Self::Write | Self::OrderedWrite => OpType::Write,
            Self::WriteWithImm => OpType::WriteWithImm,
            Self::Send => OpType::Send,
            Self::CompareSwap => OpType::CompareSwap,
            Self::FetchAdd => OpType::FetchAdd,
        }
    }

    /// The op in words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OrderedWrite => "ordered WRITE",
            _ => self.op_type().shape().name,
        }
    }

    /// The direction in which data moves.
    #[must_use]
    pub const fn moves(self) -> Moves {
        self.op_type().shape().moves
    }

    /// Whether the region holds other bytes afterwards.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::OrderedWrite | Self::WriteWithImm)
    }

    /// Whether it reads and changes one word.
    #[must_use]
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }
}
