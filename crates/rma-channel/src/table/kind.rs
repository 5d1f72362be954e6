//! The names of the twenty, in the table's order.

use core::fmt;

/// A channel: how messages go from one to another (Table 2, in its order).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Send/recv, normal (§4.1).
    SendRecvNormal = 1,
    /// Send/recv, shared receive (§4.1).
    SendRecvShared,
    /// Send/recv, bufferless (§4.1).
    SendRecvBufferless,
    /// Write slot, detached bell (§4.2).
    WriteSlotDetached,
    /// Write slot, inlined bell (§4.2).
    WriteSlotInlined,
    /// Write slot, immediate (§4.2, "IMM-based").
    WriteSlotImmediate,
    /// Write slot, reserve slot (§4.2).
    WriteSlotReserve,
    /// Ring buffer, detached bell (§4.3).
    RingDetached,
    /// Ring buffer, immediate (§4.3, "IMM-based").
    RingImmediate,
    /// Ring buffer, inlined bell with zeroing (§4.3).
    RingWithZeroing,
    /// Ring buffer, inlined bell without zeroing (§4.3).
    RingWithoutZeroing,
    /// Shared ring buffer, immediate (§4.4, "IMM-based").
    SharedRingImmediate,
    /// Shared ring buffer, inlined bell with zeroing (§4.4).
    SharedRingWithZeroing,
    /// Read slot, detached bell (§4.5).
    ReadSlotDetached,
    /// Read slot, inlined bell (§4.5).
    ReadSlotInlined,
    /// Read slot, notify receiver (§4.5).
    ReadSlotNotify,
    /// Read slot, indirect read (§4.5).
    ReadSlotIndirect,
    /// Read ring buffer, detached bell (§4.6).
    ReadRingDetached,
    /// Read ring buffer, inlined bell (§4.6).
    ReadRingInlined,
    /// Read ring buffer, notify receiver (§4.6).
    ReadRingNotify,
}

impl Kind {
    /// All, in the table's order.
    pub const ALL: [Self; 20] = [
        Self::SendRecvNormal,
        Self::SendRecvShared,
        Self::SendRecvBufferless,
        Self::WriteSlotDetached,
        Self::WriteSlotInlined,
        Self::WriteSlotImmediate,
        Self::WriteSlotReserve,
        Self::RingDetached,
        Self::RingImmediate,
        Self::RingWithZeroing,
        Self::RingWithoutZeroing,
        Self::SharedRingImmediate,
        Self::SharedRingWithZeroing,
        Self::ReadSlotDetached,
        Self::ReadSlotInlined,
        Self::ReadSlotNotify,
        Self::ReadSlotIndirect,
        Self::ReadRingDetached,
        Self::ReadRingInlined,
        Self::ReadRingNotify,
    ];

    /// The kind with this number, which is its place in the table, from 1 on.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1..=20 => Some(Self::ALL[code as usize - 1]),
            _ => None,
        }
    }

    /// Its name, as the table has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SendRecvNormal => "send/recv, normal",
            Self::SendRecvShared => "send/recv, shared receive",
            Self::SendRecvBufferless => "send/recv, bufferless",
            Self::WriteSlotDetached => "write slot, detached bell",
            Self::WriteSlotInlined => "write slot, inlined bell",
            Self::WriteSlotImmediate => "write slot, immediate",
            Self::WriteSlotReserve => "write slot, reserve slot",
            Self::RingDetached => "ring buffer, detached bell",
            Self::RingImmediate => "ring buffer, immediate",
            Self::RingWithZeroing => "ring buffer, inlined bell with zeroing",
            Self::RingWithoutZeroing => "ring buffer, inlined bell without zeroing",
            Self::SharedRingImmediate => "shared ring buffer, immediate",
            Self::SharedRingWithZeroing => "shared ring buffer, inlined bell with zeroing",
            Self::ReadSlotDetached => "read slot, detached bell",
            Self::ReadSlotInlined => "read slot, inlined bell",
            Self::ReadSlotNotify => "read slot, notify receiver",
            Self::ReadSlotIndirect => "read slot, indirect read",
            Self::ReadRingDetached => "read ring buffer, detached bell",
            Self::ReadRingInlined => "read ring buffer, inlined bell",
            Self::ReadRingNotify => "read ring buffer, notify receiver",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_its_place_in_the_table() {
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!((kind as usize, Kind::from_code(kind as u8)), (index + 1, Some(kind)));
        }
        assert_eq!((Kind::from_code(0), Kind::from_code(21)), (None, None));
    }
}
