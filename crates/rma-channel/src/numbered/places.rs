//! The places of numbered messages.

use crate::ring::Position;

/// Equal pieces of memory, which messages take in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// How many: 1 to the most receives that a queue can have, so that each can have one.
    pub(crate) count: u16,
    /// How far apart, in bytes: a multiple of 8.
    pub(crate) stride: u64,
    /// The longest message, in bytes.
    pub(crate) len_max: u32,
}

impl Places {
    /// All of them, in bytes.
    pub(crate) const fn len(&self) -> u64 {
        self.count as u64 * self.stride
    }

    /// Returns the index of a message's place.
    pub(crate) const fn index(&self, number: Position) -> u64 {
        number.to_bits() % self.count as u64
    }

    /// Returns the offset of a message's place, in bytes.
    pub(crate) const fn offset(&self, number: Position) -> u64 {
        self.index(number) * self.stride
    }
}
