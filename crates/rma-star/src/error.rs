//! Errors of octets that are no frame, or no entry of one.

use rma_core::error::DropReason;

/// The reason why octets that were received mean nothing. Counted, and answered by nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// Shorter or longer than a frame of its type can be, or than it says.
    Length,
    /// A version of the wire format that is not spoken here.
    Version,
    /// A frame type that does not exist.
    FrameType,
    /// A field with a value that is not defined, or a reserved bit that is set.
    Field,
}

impl From<Malformed> for DropReason {
    fn from(why: Malformed) -> Self {
        match why {
            Malformed::Length => Self::Length,
            Malformed::Version => Self::Version,
            Malformed::FrameType => Self::FrameType,
            Malformed::Field => Self::Field,
        }
    }
}
