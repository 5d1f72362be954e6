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
pub mod header;
pub mod mutation;
pub mod read;

pub use failure::Failure;
pub use header::{FrameType, Header};
pub use mutation::{Acknowledgement, Mutation, MutationRequest, Solicitation, SolicitedData};
pub use read::{Request, Response};

use crate::{error::DropReason, limits::TAG_LEN, op::ClassOfService};

/// The version of the wire format that this crate speaks.
pub const VERSION: u8 = 1;

/// The length of the largest frame: a response with a whole op as payload.
pub const FRAME_LEN_MAX: usize = read::RESPONSE_OVERHEAD + crate::limits::OP_SIZE_MAX as usize;

/// The length of the shortest frame that can carry any op: a response with one granule of payload.
/// A path that cannot carry it carries no 1RMA.
pub const FRAME_LEN_MIN: usize = read::RESPONSE_OVERHEAD + crate::limits::GRANULE as usize;

const _: () =
    assert!(mutation::DATA_OVERHEAD == read::RESPONSE_OVERHEAD, "both bounds hold for both");

/// What a frame of one kind says.
trait Meaning: Sized {
    /// Reads a frame. Never panics, whatever the bytes.
    fn parse(frame: &[u8]) -> Result<Self, DropReason>;
}

/// What a frame claims. Nothing of it has been authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed<T>(T);

impl<T: Copy> Claimed<T> {
    /// The claims. To be believed only after the frame's tag has been checked.
    #[must_use]
    pub const fn claims(&self) -> T {
        self.0
    }
}

fn claimed<T: Meaning>(frame: &[u8]) -> Result<Claimed<T>, DropReason> {
    T::parse(frame).map(Claimed)
}

/// A frame whose header makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameView {
    /// Hop 1 of a read.
    ReadRequest(Claimed<Request>),
    /// Hop 2 of a read.
    ReadResponse(Claimed<Response>),
    /// The responder refused a request.
    Failure(Claimed<Failure>),
    /// Hop 1 of a write or a Rekey.
    MutationRequest(Claimed<MutationRequest>),
    /// Hop 2 of a mutation.
    Solicitation(Claimed<Solicitation>),
    /// Hop 3 of a mutation.
    SolicitedData(Claimed<SolicitedData>),
    /// Hop 4 of a mutation.
    Acknowledgement(Claimed<Acknowledgement>),
}

impl FrameView {
    /// Looks at a received frame.
    ///
    /// # Errors
    /// Why the frame is not one that this version defines. Never panics, whatever the bytes.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Self, DropReason> {
        let header = header::HeaderView::parse(frame)?;
        match header.frame_type() {
            FrameType::ReadRequest => claimed(frame).map(Self::ReadRequest),
            FrameType::ReadResponse => claimed(frame).map(Self::ReadResponse),
            FrameType::Failure => claimed(frame).map(Self::Failure),
            FrameType::WriteRequest | FrameType::RekeyRequest => {
                claimed(frame).map(Self::MutationRequest)
            }
            FrameType::Solicitation => claimed(frame).map(Self::Solicitation),
            FrameType::SolicitedData => claimed(frame).map(Self::SolicitedData),
            FrameType::Acknowledgement => claimed(frame).map(Self::Acknowledgement),
        }
    }
}

impl FrameView {
    /// The class of service that the frame claims.
    #[must_use]
    pub const fn class(&self) -> ClassOfService {
        match self {
            Self::ReadRequest(it) => it.0.header.class,
            Self::ReadResponse(it) => it.0.header.class,
            Self::Failure(it) => it.0.header.class,
            Self::MutationRequest(it) => it.0.header.class,
            Self::Solicitation(it) => it.0.header.class,
            Self::SolicitedData(it) => it.0.header.class,
            Self::Acknowledgement(it) => it.0.header.class,
        }
    }
}

/// The parts of a frame as AES-GCM sees them.
#[derive(Debug)]
pub struct Sealed<'a> {
    /// The header: authenticated, in clear.
    pub header: &'a [u8],
    /// The payload: encrypted and authenticated. Empty but for read responses and solicited data.
    pub payload: &'a mut [u8],
    /// The tag.
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
