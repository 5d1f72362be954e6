//! The failure notice: a responder refuses a request (1RMA §4.2, "Authentication failures"; §4.5).
//!
//! After the common header, whose status octet says why, come four reserved octets of zero and the
//! tag. A notice is shorter than the request that caused it, so it amplifies nothing. It answers
//! the first hop of an op, whatever the op.
//!
//! ```text
//! +---------------------------------------------------------------+
//! |                           reserved                            |
//! +---------------------------------------------------------------+
//! ```

use super::{
    FrameType, Meaning,
    header::{HEADER_LEN, Header, HeaderView},
};
use crate::{error::DropReason, limits::TAG_LEN, op::OpStatus};

mod field {
    use super::HEADER_LEN;
    use core::ops::Range;
    pub(super) const RESERVED: Range<usize> = HEADER_LEN..HEADER_LEN + 4;
    pub(super) const END: usize = RESERVED.end;
}

/// Octets of a notice's header.
pub const FAILURE_HEADER_LEN: usize = field::END;

/// Octets of a notice: header and tag.
pub const FAILURE_LEN: usize = FAILURE_HEADER_LEN + TAG_LEN;

const _: () = assert!(FAILURE_LEN < super::read::REQUEST_LEN, "a notice amplifies nothing");

/// The meaning of a failure notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The common header: the request's, with the responder's engine and counter.
    pub header: Header,
    /// The status for which the request was refused, one for which [`Failure::may_carry`] holds.
    pub status: OpStatus,
}

impl Failure {
    /// Whether a responder may send `status`: the others are the initiating NIC's own.
    #[must_use]
    pub const fn may_carry(status: OpStatus) -> bool {
        match status {
            OpStatus::RemoteAuthenticationFailure
            | OpStatus::Nack
            | OpStatus::RemoteOutOfBounds
            | OpStatus::RemotePermissionDenied
            | OpStatus::RemoteNotReady => true,
            OpStatus::Ok
            | OpStatus::Timeout
            | OpStatus::DispatchTimeout
            | OpStatus::InvalidCommand => false,
        }
    }

    /// Writes the header. The tag is the caller's to write.
    pub fn emit(&self, out: &mut [u8; FAILURE_HEADER_LEN]) {
        let common = out.first_chunk_mut().expect("a notice is longer than the common header");
        self.header.emit(FrameType::Failure, self.status as u8, common);
        out[field::RESERVED].fill(0);
    }
}

impl Meaning for Failure {
    fn parse(frame: &[u8]) -> Result<Self, DropReason> {
        let common = HeaderView::parse(frame)?;
        // `Err` carries the slice again; a length is all there is to say.
        let Ok(octets) = <&[u8; FAILURE_LEN]>::try_from(frame) else {
            return Err(DropReason::Length);
        };
        if octets[field::RESERVED].iter().any(|&octet| octet != 0) {
            return Err(DropReason::Field);
        }
        let status = OpStatus::from_code(common.status())
            .filter(|&status| Self::may_carry(status))
            .ok_or(DropReason::NoticeStatus)?;
        Ok(Self { header: common.header(), status })
    }
}
