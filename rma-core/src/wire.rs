//! The frames of 1RMA, octet by octet. Normative text: `docs/WIRE.md`.
//!
//! A frame of the right length and type, whose fields have defined values, is [`Claimed`]: it says
//! nothing about who sent it. What a NIC believes is made from claims only after the frame's tag
//! has been checked, in [`crate::nic`].
//!
//! Every frame is a header in clear, a payload that is encrypted (read responses and solicited data
//! only), and a tag:
//!
//! ```text
//!  0               1               2               3
//! +---------------+---------------+---------------+---------------+
//! |    version    |  frame type   |     class     |    status     |
//! +---------------+---------------+---------------+---------------+
//! |                        initiator PID                          |
//! +---------------------------------------------------------------+
//! |                           RegionId                            |
//! +-------------------------------+-------------------------------+
//! |         command slot          |          engine id            |
//! +-------------------------------+-------------------------------+
//! |                        slot generation                        |
//! +---------------------------------------------------------------+
//! |                            counter                            |
//! |                                                               |
//! +---------------------------------------------------------------+
//! |  by type, see `read`, `mutation` and `failure`                |
//! ```
//!
//! All integers are big-endian. Offsets and limits live in the private `field` modules, so that the
//! code has no bare numbers.

pub mod failure;
mod frame;
pub mod header;
pub mod mutation;
pub mod read;

pub use failure::Failure;
pub(crate) use frame::Frame;
use frame::Meaning;
pub use frame::{Claimed, FrameType, FrameView};
pub use header::Header;
pub use mutation::{Acknowledgement, Mutation, MutationRequest, Solicitation, SolicitedData};
pub use read::{Request, Response};

use crate::limits::TAG_LEN;

/// The version of the wire format that this crate speaks.
pub const VERSION: u8 = 1;

/// The length of the largest frame: a response with a whole op as payload.
pub const FRAME_LEN_MAX: usize = read::RESPONSE_OVERHEAD + crate::limits::OP_SIZE_MAX as usize;

/// The length of the shortest frame that can carry any op: a response with one granule of payload.
/// A path that cannot carry it carries no 1RMA.
pub const FRAME_LEN_MIN: usize = read::RESPONSE_OVERHEAD + crate::limits::GRANULE as usize;

const _: () =
    assert!(mutation::DATA_OVERHEAD == read::RESPONSE_OVERHEAD, "both bounds hold for both");

/// The parts of a frame as AES-GCM sees them.
#[derive(Debug)]
pub struct Sealed<'a> {
    /// The header: authenticated, in clear.
    pub header: &'a [u8],
    /// The payload: encrypted and authenticated. Empty but for read responses and solicited data.
    pub payload: &'a mut [u8],
    /// The tag that authenticates header and payload.
    pub tag: &'a mut [u8; TAG_LEN],
}

/// Splits a frame with a header of `header_len` octets into its parts.
///
/// Returns `None` if the frame is shorter than header and tag, which a parsed frame never is.
#[must_use]
pub fn split(frame: &mut [u8], header_len: usize) -> Option<Sealed<'_>> {
    let (header, rest) = frame.split_at_mut_checked(header_len)?;
    let (payload, tag) = rest.split_last_chunk_mut::<TAG_LEN>()?;
    Some(Sealed { header, payload, tag })
}

#[cfg(test)]
mod tests;
