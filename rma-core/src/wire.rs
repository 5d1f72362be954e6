//! The frames of 1RMA, octet by octet. Normative text: `docs/WIRE.md`.
//!
//! A frame of the right length and type, whose fields have defined values, is [`Claimed`]: it says
//! nothing about who sent it. What a NIC believes is made from claims only after the frame's tag
//! has been checked, in [`crate::nic`].
//!
//! Every frame is a header in clear, a payload that is encrypted (bytes of an op, or one word), and
//! a tag:
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
//! |  by type, see `read`, `mutation`, `recorded`, `settle` and    |
//! |  `failure`                                                    |
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
pub mod recorded;
pub mod settle;

use failure::FAILURE_HEADER_LEN;
pub use failure::Failure;
pub use frame::Claimed;
pub(crate) use frame::Frame;
use frame::{Meaning, Payload, claimed};
pub use header::Header;
use header::HeaderView;
use mutation::{
    ACKNOWLEDGEMENT_HEADER_LEN, DATA_HEADER_LEN, MUTATION_REQUEST_HEADER_LEN,
    SOLICITATION_HEADER_LEN,
};
pub use mutation::{Acknowledgement, Mutation, MutationRequest, Solicitation, SolicitedData};
use read::{REQUEST_HEADER_LEN, RESPONSE_HEADER_LEN};
pub use read::{Request, Response};
pub use recorded::{AcknowledgementWithResult, RecordedRequest};
use recorded::{RECORDED_REQUEST_HEADER_LEN, RESULT_HEADER_LEN};
use settle::{SETTLE_REQUEST_HEADER_LEN, SETTLEMENT_HEADER_LEN};
pub use settle::{SettleRequest, Settlement};

use crate::{
    crypto::Direction,
    error::DropReason,
    limits::{TAG_LEN, WORD_LEN},
    op::ClassOfService,
};

// A row for each kind of frame: what it is looked at as, which way it goes, how long its header is,
// whether a payload follows, and the types of frames that are of this kind, with their codes.
frames! {
    /// Hop 1 of a read.
    ReadRequest(Request), ToResponder, REQUEST_HEADER_LEN => {
        /// Hop 1 of a read.
        ReadRequest = 1,
    }
    /// Hop 2 of a read.
    ReadResponse(Response), ToInitiator, RESPONSE_HEADER_LEN + Bytes => {
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
    SolicitedData(SolicitedData), ToResponder, DATA_HEADER_LEN + Bytes => {
        /// Hop 3 of a mutation: some of its data.
        SolicitedData = 7,
    }
    /// Hop 4 of a mutation.
    Acknowledgement(Acknowledgement), ToInitiator, ACKNOWLEDGEMENT_HEADER_LEN => {
        /// Hop 4 of a mutation: how it ended.
        Acknowledgement = 8,
    }
    /// Hop 1 of a recorded mutation.
    RecordedRequest(RecordedRequest), ToResponder, RECORDED_REQUEST_HEADER_LEN + Word => {
        /// Hop 1 of a recorded mutation. Its immediate is encrypted.
        RecordedRequest = 9,
    }
    /// Hop 4 of a recorded mutation that has a result.
    AcknowledgementWithResult(AcknowledgementWithResult), ToInitiator, RESULT_HEADER_LEN + Word => {
        /// Hop 4 of a recorded mutation that was applied, with its result, which is encrypted.
        AcknowledgementWithResult = 10,
    }
    /// Hop 1 of a SETTLE.
    SettleRequest(SettleRequest), ToResponder, SETTLE_REQUEST_HEADER_LEN => {
        /// Hop 1 of a SETTLE.
        SettleRequest = 11,
    }
    /// Hop 2 of a SETTLE.
    Settlement(Settlement), ToInitiator, SETTLEMENT_HEADER_LEN + Word => {
        /// Hop 2 of a SETTLE: what became of an op, and its result, which is encrypted.
        Settlement = 12,
    }
}

/// The version of the wire format that this crate speaks.
pub const VERSION: u8 = 2;

/// The most octets that a frame with a payload has besides: those of solicited data.
pub const OVERHEAD_MAX: usize = mutation::DATA_OVERHEAD;

/// The length of the largest frame: solicited data with a whole op as payload.
pub const FRAME_LEN_MAX: usize = OVERHEAD_MAX + crate::limits::OP_SIZE_MAX as usize;

/// The length of a frame that any op can be carried by: solicited data with one granule of payload.
/// A path that cannot carry it carries no 1RMA.
pub const FRAME_LEN_MIN: usize = OVERHEAD_MAX + crate::limits::GRANULE as usize;

const _: () = assert!(OVERHEAD_MAX >= read::RESPONSE_OVERHEAD, "the bounds hold for responses");

/// Octets of a frame that tell how long it is, all of them in its header. The shortest frame is
/// longer.
const LEN_TOLD_BY: usize = header::HEADER_LEN + 4;

/// The offsets of the octets in which a frame with a payload says its length.
const PAYLOAD_LEN: core::ops::Range<usize> = header::HEADER_LEN + 2..LEN_TOLD_BY;

/// How long the frame is that `octets` begin with, whatever else is in it and behind it.
///
/// # Errors
/// The reason why there is no such frame: it is of another version, or of no type that this version
/// has, or there are fewer octets than it says. Never panics, whatever the octets.
#[inline]
pub fn frame_len(octets: &[u8]) -> Result<usize, DropReason> {
    let head: &[u8; LEN_TOLD_BY] = octets.first_chunk().ok_or(DropReason::Length)?;
    let frame_type = header::frame_type_of(head)?;
    let payload_len = match frame_type.payload() {
        Payload::None => 0,
        Payload::Bytes => {
            u16::from_be_bytes([head[PAYLOAD_LEN.start], head[PAYLOAD_LEN.start + 1]]).into()
        }
        Payload::Word => WORD_LEN,
    };
    let len = frame_type.header_len() + payload_len + TAG_LEN;
    if len > octets.len() { Err(DropReason::Length) } else { Ok(len) }
}

/// The word that is the payload of a frame of one of the kinds that have such, decrypted or not. 0
/// of a frame that is too short for one, which no such frame is.
#[must_use]
#[inline]
pub fn word_of(frame: &[u8]) -> u64 {
    let end = frame.len().saturating_sub(TAG_LEN);
    let word = frame.get(..end).and_then(|rest| rest.last_chunk::<WORD_LEN>());
    word.map_or(0, |octets| u64::from_be_bytes(*octets))
}

#[cfg(test)]
mod tests;
