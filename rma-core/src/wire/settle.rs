//! SETTLE: an initiator asks what became of a recorded op, and its target knows or has forgotten
//! (not in the paper). Two hops.
//!
//! Hop 1, settle request, after the common header; the tag follows at once:
//!
//! ```text
//! +---------------------------------------------------------------+
//! |                  counter of the solicitation                  |
//! |                                                               |
//! +-------------------------------+---------------+---------------+
//! |         its engine id         |    op type    |       0       |
//! +-------------------------------+---------------+---------------+
//! |          its number           |           reserved            |
//! +-------------------------------+-------------------------------+
//! ```
//!
//! Hop 2, settlement; the op's result, which is encrypted, and the tag follow:
//!
//! ```text
//! +-------------------------------+-------------------------------+
//! |            verdict            |           reserved            |
//! +-------------------------------+-------------------------------+
//! ```

use core::ops::Range;

use super::{
    FrameType, Meaning,
    failure::FAILURE_LEN,
    header::{HEADER_LEN, Header, HeaderView, read},
};
use crate::{
    crypto::EngineId,
    error::DropReason,
    limits::{TAG_LEN, WORD_LEN},
    op::OpType,
    outcome::{OpName, Verdict},
};

mod field {
    use super::{HEADER_LEN, Range};
    pub(super) const COUNTER: Range<usize> = HEADER_LEN..HEADER_LEN + 8;
    pub(super) const ENGINE: Range<usize> = COUNTER.end..COUNTER.end + 2;
    pub(super) const OP_TYPE: usize = ENGINE.end;
    pub(super) const ZERO: usize = OP_TYPE + 1;
    pub(super) const NUMBER: Range<usize> = ZERO + 1..ZERO + 3;
    pub(super) const REQUEST_RESERVED: Range<usize> = NUMBER.end..NUMBER.end + 2;

    pub(super) const VERDICT: Range<usize> = HEADER_LEN..HEADER_LEN + 2;
    pub(super) const RESERVED: Range<usize> = VERDICT.end..VERDICT.end + 2;
}

/// Octets of a settle request's header.
pub const SETTLE_REQUEST_HEADER_LEN: usize = field::REQUEST_RESERVED.end;

/// Octets of a settle request: header and tag.
pub const SETTLE_REQUEST_LEN: usize = SETTLE_REQUEST_HEADER_LEN + TAG_LEN;

/// Octets of a settlement's header.
pub const SETTLEMENT_HEADER_LEN: usize = field::RESERVED.end;

/// Octets of a settlement: header, result and tag.
pub const SETTLEMENT_LEN: usize = SETTLEMENT_HEADER_LEN + WORD_LEN + TAG_LEN;

const _: () = assert!(
    SETTLEMENT_LEN < SETTLE_REQUEST_LEN && FAILURE_LEN < SETTLE_REQUEST_LEN,
    "no answer to a request is longer than it"
);

/// Hop 1: which op the initiator asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettleRequest {
    /// The common header, with the op's region.
    pub header: Header,
    /// The op's type: one that has records.
    pub op_type: OpType,
    /// The op's name.
    pub name: OpName,
}

impl SettleRequest {
    /// Writes the header. The tag is the caller's to write.
    pub fn emit(&self, out: &mut [u8; SETTLE_REQUEST_HEADER_LEN]) {
        let common = out.first_chunk_mut().expect("a request is longer than the common header");
        self.header.emit(FrameType::SettleRequest, 0, common);
        out[field::COUNTER].copy_from_slice(&self.name.counter.to_be_bytes());
        out[field::ENGINE].copy_from_slice(&self.name.engine.0.to_be_bytes());
        out[field::OP_TYPE] = self.op_type as u8;
        out[field::ZERO] = 0;
        out[field::NUMBER].copy_from_slice(&self.name.number.to_be_bytes());
        out[field::REQUEST_RESERVED].fill(0);
    }
}

impl Meaning for SettleRequest {
    fn parse(frame: &[u8]) -> Result<Self, DropReason> {
        let common = HeaderView::parse(frame)?;
        let Ok(octets) = <&[u8; SETTLE_REQUEST_LEN]>::try_from(frame) else {
            return Err(DropReason::Length);
        };
        let name = OpName {
            engine: EngineId(u16::from_be_bytes(read(octets, field::ENGINE.start))),
            counter: u64::from_be_bytes(read(octets, field::COUNTER.start)),
            number: u16::from_be_bytes(read(octets, field::NUMBER.start)),
        };
        let defined = common.status() == 0
            && octets[field::ZERO] == 0
            && octets[field::REQUEST_RESERVED] == [0; 2];
        let op_type = OpType::from_code(octets[field::OP_TYPE]);
        let op_type = op_type.filter(|it| defined && it.may_be_recorded());
        Ok(Self { header: common.header(), op_type: op_type.ok_or(DropReason::Field)?, name })
    }
}

/// Hop 2: what became of it. The result is the frame's payload: see [`super::word_of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The common header: the request's, with the responder's engine and counter.
    pub header: Header,
    /// The verdict on the op.
    pub verdict: Verdict,
}

impl Settlement {
    /// Writes the header. Result and tag are the caller's to write.
    pub fn emit(&self, out: &mut [u8; SETTLEMENT_HEADER_LEN]) {
        let common = out.first_chunk_mut().expect("longer than the common header");
        self.header.emit(FrameType::Settlement, 0, common);
        out[field::VERDICT].copy_from_slice(&(self.verdict as u16).to_be_bytes());
        out[field::RESERVED].fill(0);
    }
}

impl Meaning for Settlement {
    fn parse(frame: &[u8]) -> Result<Self, DropReason> {
        let common = HeaderView::parse(frame)?;
        let Ok(octets) = <&[u8; SETTLEMENT_LEN]>::try_from(frame) else {
            return Err(DropReason::Length);
        };
        let verdict = Verdict::from_code(u16::from_be_bytes(read(octets, field::VERDICT.start)));
        let defined = common.status() == 0 && octets[field::RESERVED] == [0; 2];
        let verdict = verdict.filter(|_| defined).ok_or(DropReason::Field)?;
        Ok(Self { header: common.header(), verdict })
    }
}
