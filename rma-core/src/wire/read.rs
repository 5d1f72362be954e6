//! The two hops of a read (1RMA §3.1): request, and responses in any order.
//!
//! Request, after the common header; the tag follows at once, there is no payload:
//!
//! ```text
//! +---------------------------------------------------------------+
//! |                         region offset                         |
//! |                                                               |
//! +-------------------------------+-------------------------------+
//! |            op size            |        payload length max     |
//! +-------------------------------+-------------------------------+
//! ```
//!
//! Response, after the common header; payload and tag follow:
//!
//! ```text
//! +-------------------------------+-------------------------------+
//! |           op offset           |         payload length        |
//! +-------------------------------+-------------------------------+
//! ```
//!
//! A response's payload begins at a multiple of [`GRANULE`] and is whole granules long, unless it
//! ends the op. So each granule arrives in one frame, and one bit tells whether it has.

use super::{
    FrameType, Meaning,
    header::{HEADER_LEN, Header, HeaderView, read},
};
use crate::{
    error::DropReason,
    limits::{GRANULE, OP_SIZE_MAX, TAG_LEN},
};

mod field {
    use super::HEADER_LEN;
    use core::ops::Range;
    pub(super) const REGION_OFFSET: Range<usize> = HEADER_LEN..HEADER_LEN + 8;
    pub(super) const OP_SIZE: Range<usize> = REGION_OFFSET.end..REGION_OFFSET.end + 2;
    pub(super) const PAYLOAD_LEN_MAX: Range<usize> = OP_SIZE.end..OP_SIZE.end + 2;
    pub(super) const REQUEST_END: usize = PAYLOAD_LEN_MAX.end;

    pub(super) const OP_OFFSET: Range<usize> = HEADER_LEN..HEADER_LEN + 2;
    pub(super) const PAYLOAD_LEN: Range<usize> = OP_OFFSET.end..OP_OFFSET.end + 2;
    pub(super) const RESPONSE_END: usize = PAYLOAD_LEN.end;
}

/// Octets of a request's header.
pub const REQUEST_HEADER_LEN: usize = field::REQUEST_END;

/// Octets of a request: header and tag.
pub const REQUEST_LEN: usize = REQUEST_HEADER_LEN + TAG_LEN;

/// Octets of a response's header.
pub const RESPONSE_HEADER_LEN: usize = field::RESPONSE_END;

/// Octets of a response that are not payload: header and tag.
pub const RESPONSE_OVERHEAD: usize = RESPONSE_HEADER_LEN + TAG_LEN;

/// The meaning of a read request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The common header.
    pub header: Header,
    /// The offset in the remote region at which the op begins, in bytes.
    pub region_offset: u64,
    /// How many bytes are asked for: 1 to [`OP_SIZE_MAX`].
    pub op_size: u16,
    /// The largest payload of one response that the initiator can receive, in bytes: at least one
    /// [`GRANULE`]. More than [`OP_SIZE_MAX`] tells how long packets of several may be.
    pub payload_len_max: u16,
}

impl Request {
    /// Writes the header. The tag is the caller's to write.
    pub fn emit(&self, out: &mut [u8; REQUEST_HEADER_LEN]) {
        let common = out.first_chunk_mut().expect("a request is longer than the common header");
        self.header.emit(FrameType::ReadRequest, 0, common);
        out[field::REGION_OFFSET].copy_from_slice(&self.region_offset.to_be_bytes());
        out[field::OP_SIZE].copy_from_slice(&self.op_size.to_be_bytes());
        out[field::PAYLOAD_LEN_MAX].copy_from_slice(&self.payload_len_max.to_be_bytes());
    }
}

impl Meaning for Request {
    fn parse(frame: &[u8]) -> Result<Self, DropReason> {
        let common = HeaderView::parse(frame)?;
        // `Err` carries the slice again; a length is all there is to say.
        let Ok(octets) = <&[u8; REQUEST_LEN]>::try_from(frame) else {
            return Err(DropReason::Length);
        };
        let request = Self {
            header: common.header(),
            region_offset: u64::from_be_bytes(read(octets, field::REGION_OFFSET.start)),
            op_size: u16::from_be_bytes(read(octets, field::OP_SIZE.start)),
            payload_len_max: u16::from_be_bytes(read(octets, field::PAYLOAD_LEN_MAX.start)),
        };
        let defined = common.status() == 0
            && (1..=OP_SIZE_MAX).contains(&u32::from(request.op_size))
            && u32::from(request.payload_len_max) >= GRANULE;
        if defined { Ok(request) } else { Err(DropReason::Field) }
    }
}

/// The meaning of a response's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The common header: the request's, with the responder's engine and counter.
    pub header: Header,
    /// The offset in the op at which the payload begins, in bytes: a multiple of [`GRANULE`].
    pub op_offset: u16,
    /// Octets of payload: at least 1.
    pub payload_len: u16,
}

impl Response {
    /// Writes the header. Payload and tag are the caller's to write.
    pub fn emit(&self, out: &mut [u8; RESPONSE_HEADER_LEN]) {
        let common = out.first_chunk_mut().expect("a response is longer than the common header");
        self.header.emit(FrameType::ReadResponse, 0, common);
        out[field::OP_OFFSET].copy_from_slice(&self.op_offset.to_be_bytes());
        out[field::PAYLOAD_LEN].copy_from_slice(&self.payload_len.to_be_bytes());
    }

    /// The bytes of the op that this response covers, end exclusive, as `u32` so that the sum fits.
    #[must_use]
    pub const fn span(&self) -> (u32, u32) {
        let start = self.op_offset as u32;
        (start, start + self.payload_len as u32)
    }
}

impl Meaning for Response {
    fn parse(frame: &[u8]) -> Result<Self, DropReason> {
        let common = HeaderView::parse(frame)?;
        let octets: &[u8; RESPONSE_HEADER_LEN] = frame.first_chunk().ok_or(DropReason::Length)?;
        let response = Self {
            header: common.header(),
            op_offset: u16::from_be_bytes(read(octets, field::OP_OFFSET.start)),
            payload_len: u16::from_be_bytes(read(octets, field::PAYLOAD_LEN.start)),
        };
        if frame.len() != RESPONSE_OVERHEAD + usize::from(response.payload_len) {
            return Err(DropReason::Length);
        }
        let (start, end) = response.span();
        let defined = common.status() == 0
            && response.payload_len > 0
            && start.is_multiple_of(GRANULE)
            && end <= OP_SIZE_MAX;
        if defined { Ok(response) } else { Err(DropReason::Field) }
    }
}
