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

#[macro_use]
mod frame;
pub mod failure;
pub mod header;
pub mod mutation;
pub mod read;

use failure::FAILURE_HEADER_LEN;
pub use failure::Failure;
pub use frame::Claimed;
pub(crate) use frame::Frame;
use frame::{Meaning, claimed};
pub use header::Header;
use header::HeaderView;
use mutation::{
    ACKNOWLEDGEMENT_HEADER_LEN, DATA_HEADER_LEN, MUTATION_REQUEST_HEADER_LEN,
    SOLICITATION_HEADER_LEN,
};
pub use mutation::{Acknowledgement, Mutation, MutationRequest, Solicitation, SolicitedData};
use read::{REQUEST_HEADER_LEN, RESPONSE_HEADER_LEN};
pub use read::{Request, Response};

use crate::{crypto::Direction, error::DropReason, limits::TAG_LEN, op::ClassOfService};

// A row for each kind of frame: what it is looked at as, which way it goes, how long its header is,
// and the types of frames that are of this kind, with their codes.
frames! {
    /// Hop 1 of a read.
    ReadRequest(Request), ToResponder, REQUEST_HEADER_LEN => {
        /// Hop 1 of a read.
        ReadRequest = 1,
    }
    /// Hop 2 of a read.
    ReadResponse(Response), ToInitiator, RESPONSE_HEADER_LEN => {
        /// Hop 2 of a read: some of its data.
        ReadResponse = 2,
    }
    /// The responder refused a request.
    Failure(Failure), ToInitiator, FAILURE_HEADER_LEN => {
        /// The responder refused a request.
        Failure = 3,
    }
    /// Hop 1 of a write or a Rekey.
    MutationRequest(MutationRequest), ToResponder, MUTATION_REQUEST_HEADER_LEN => {
        /// Hop 1 of a write.
        WriteRequest = 4,
        /// Hop 1 of a Rekey.
        RekeyRequest = 5,
    }
    /// Hop 2 of a mutation.
    Solicitation(Solicitation), ToInitiator, SOLICITATION_HEADER_LEN => {
        /// Hop 2 of a mutation: the responder asks for its data.
        Solicitation = 6,
    }
    /// Hop 3 of a mutation.
    SolicitedData(SolicitedData), ToResponder, DATA_HEADER_LEN => {
        /// Hop 3 of a mutation: some of its data.
        SolicitedData = 7,
    }
    /// Hop 4 of a mutation.
    Acknowledgement(Acknowledgement), ToInitiator, ACKNOWLEDGEMENT_HEADER_LEN => {
        /// Hop 4 of a mutation: how it ended.
        Acknowledgement = 8,
    }
}

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
