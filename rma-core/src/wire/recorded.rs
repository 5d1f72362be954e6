//! Recorded mutations: ordered WRITE, SEND, WRITE_WITH_IMM, NOTIFY, COMPARE_SWAP and FETCH_ADD (not
//! in 1RMA; what the channels of "Efficient RDMA communication protocols" are built of).
//!
//! They take the four hops of [`super::mutation`], with hops 2 and 3 as they are there, a request
//! of their own, and, where the op has a result, an acknowledgement of its own. The target records
//! how each of them ends, so that its initiator can ask: see [`super::settle`].
//!
//! Hop 1, request, after the common header; the immediate, which is encrypted, and the tag follow:
//!
//! ```text
//! +---------------------------------------------------------------+
//! |                         region offset                         |
//! |                                                               |
//! +-------------------------------+---------------+---------------+
//! |            op size            |    op type    |     flags     |
//! +-------------------------------+---------------+---------------+
//! |                     timeout, microseconds                     |
//! +---------------------------------------------------------------+
//! |                         done: counter                         |
//! |                                                               |
//! +-------------------------------+-------------------------------+
//! |        done: number           |           reserved            |
//! +-------------------------------+-------------------------------+
//! ```
//!
//! Hop 4 of an op that has a result, if it was applied; the result, which is encrypted, and the tag
//! follow:
//!
//! ```text
//! +---------------------------------------------------------------+
//! |                           reserved                            |
//! +---------------------------------------------------------------+
//! ```

use core::ops::Range;

use super::{
    FrameType, Meaning,
    header::{HEADER_LEN, Header, HeaderView, read},
    mutation::{ACKNOWLEDGEMENT_LEN, Mutation, MutationRequest, SOLICITATION_LEN},
};
use crate::{
    command::{RecordedOp, Transfer},
    error::DropReason,
    limits::{OP_SIZE_MAX, TAG_LEN, WORD_LEN, are_words},
    op::{OpStatus, OpType},
    outcome::Done,
};

mod field {
    use super::{HEADER_LEN, Range};
    pub(super) const REGION_OFFSET: Range<usize> = HEADER_LEN..HEADER_LEN + 8;
    pub(super) const OP_SIZE: Range<usize> = REGION_OFFSET.end..REGION_OFFSET.end + 2;
    pub(super) const OP_TYPE: usize = OP_SIZE.end;
    pub(super) const FLAGS: usize = OP_TYPE + 1;
    pub(super) const TIMEOUT: Range<usize> = FLAGS + 1..FLAGS + 5;
    pub(super) const DONE_COUNTER: Range<usize> = TIMEOUT.end..TIMEOUT.end + 8;
    pub(super) const DONE_NUMBER: Range<usize> = DONE_COUNTER.end..DONE_COUNTER.end + 2;
    pub(super) const REQUEST_RESERVED: Range<usize> = DONE_NUMBER.end..DONE_NUMBER.end + 2;

    pub(super) const RESERVED: Range<usize> = HEADER_LEN..HEADER_LEN + 4;
}

/// The only flag: no byte lands before all data has come, and the last word lands last.
const ORDERED: u8 = 1;

/// Octets of a recorded request's header.
pub const RECORDED_REQUEST_HEADER_LEN: usize = field::REQUEST_RESERVED.end;

/// Octets of a recorded request: header, immediate and tag.
pub const RECORDED_REQUEST_LEN: usize = RECORDED_REQUEST_HEADER_LEN + WORD_LEN + TAG_LEN;

/// Octets of the header of an acknowledgement with a result.
pub const RESULT_HEADER_LEN: usize = field::RESERVED.end;

/// Octets of an acknowledgement with a result: header, result and tag.
pub const RESULT_LEN: usize = RESULT_HEADER_LEN + WORD_LEN + TAG_LEN;

//= channels#P10-answers-shorter
const _: () = assert!(
    RESULT_LEN < RECORDED_REQUEST_LEN
        && SOLICITATION_LEN < RECORDED_REQUEST_LEN
        && ACKNOWLEDGEMENT_LEN < RECORDED_REQUEST_LEN,
    "no answer to a request is longer than it"
);

/// Hop 1 of a recorded mutation. The immediate is the frame's payload: see [`super::word_of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    /// The common header.
    pub header: Header,
    /// The change that the initiator asks for: never a plain WRITE or a Rekey.
    pub mutation: Mutation,
    /// As [`MutationRequest::timeout_micros`].
    pub timeout_micros: u32,
    /// An op of the same initiator, process and region whose end is known.
    pub done: Option<Done>,
}

impl RecordedRequest {
    /// Returns the part that it has in common with requests of other mutations.
    #[must_use]
    pub const fn as_mutation(&self) -> MutationRequest {
        let Self { header, mutation, timeout_micros, .. } = *self;
        MutationRequest { header, mutation, timeout_micros }
    }

    /// Writes the header. Immediate and tag are the caller's to write.
    ///
    /// # Panics
    /// If the mutation is not a recorded one.
    pub fn emit(&self, out: &mut [u8; RECORDED_REQUEST_HEADER_LEN]) {
        let mutation = &self.mutation;
        assert!(mutation.is_recorded(), "other mutations have requests of their own");
        let common = out.first_chunk_mut().expect("a request is longer than the common header");
        self.header.emit(FrameType::RecordedRequest, 0, common);
        let done = self.done.filter(|done| done.counter > 0);
        let Done { counter, number } = done.unwrap_or(Done { counter: 0, number: 0 });
        out[field::REGION_OFFSET].copy_from_slice(&mutation.region_offset().to_be_bytes());
        out[field::OP_SIZE].copy_from_slice(&(mutation.op_size() as u16).to_be_bytes());
        out[field::OP_TYPE] = mutation.op_type() as u8;
        out[field::FLAGS] = if mutation.is_ordered() { ORDERED } else { 0 };
        out[field::TIMEOUT].copy_from_slice(&self.timeout_micros.to_be_bytes());
        out[field::DONE_COUNTER].copy_from_slice(&counter.to_be_bytes());
        out[field::DONE_NUMBER].copy_from_slice(&number.to_be_bytes());
        out[field::REQUEST_RESERVED].fill(0);
    }
}

/// The recorded mutation of such fields, if there is one.
fn mutation(op_type: u8, flags: u8, region_offset: u64, op_size: u16) -> Option<Mutation> {
    let ordered = match flags {
        0 => false,
        ORDERED => true,
        _ => return None,
    };
    let mutation = match OpType::from_code(op_type)? {
        OpType::Write => Mutation::OrderedWrite { region_offset, op_size },
        OpType::Send => Mutation::Send { op_size },
        OpType::WriteWithImm => Mutation::WriteWithImm { region_offset, op_size, ordered },
        OpType::Notify => Mutation::Notify,
        OpType::CompareSwap => Mutation::CompareSwap { region_offset },
        OpType::FetchAdd => Mutation::FetchAdd { region_offset },
        OpType::Read | OpType::Rekey => return None,
    };
    let is_so = (mutation.is_ordered(), mutation.region_offset(), mutation.op_size())
        == (ordered, region_offset, op_size.into());
    (is_so && mutation.is_defined()).then_some(mutation)
}

impl Meaning for RecordedRequest {
    fn parse(frame: &[u8]) -> Result<Self, DropReason> {
        let common = HeaderView::parse(frame)?;
        let Ok(octets) = <&[u8; RECORDED_REQUEST_LEN]>::try_from(frame) else {
            return Err(DropReason::Length);
        };
        let counter = u64::from_be_bytes(read(octets, field::DONE_COUNTER.start));
        let number = u16::from_be_bytes(read(octets, field::DONE_NUMBER.start));
        let timeout_micros = u32::from_be_bytes(read(octets, field::TIMEOUT.start));
        let mutation = mutation(
            octets[field::OP_TYPE],
            octets[field::FLAGS],
            u64::from_be_bytes(read(octets, field::REGION_OFFSET.start)),
            u16::from_be_bytes(read(octets, field::OP_SIZE.start)),
        );
        let defined = common.status() == 0
            && (counter > 0 || number == 0)
            && octets[field::REQUEST_RESERVED] == [0; 2]
            && timeout_micros > 0;
        let mutation = mutation.filter(|_| defined).ok_or(DropReason::Field)?;
        let done = (counter > 0).then_some(Done { counter, number });
        Ok(Self { header: common.header(), mutation, timeout_micros, done })
    }
}

/// Hop 4 of a recorded mutation that has a result, and was applied. The result is the frame's
/// payload: see [`super::word_of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcknowledgementWithResult {
    /// The common header: the request's, with the responder's engine and counter.
    pub header: Header,
}

impl AcknowledgementWithResult {
    /// Writes the header. Result and tag are the caller's to write.
    pub fn emit(&self, out: &mut [u8; RESULT_HEADER_LEN]) {
        let common = out.first_chunk_mut().expect("longer than the common header");
        self.header.emit(FrameType::AcknowledgementWithResult, OpStatus::Ok as u8, common);
        out[field::RESERVED].fill(0);
    }
}

impl Meaning for AcknowledgementWithResult {
    fn parse(frame: &[u8]) -> Result<Self, DropReason> {
        let common = HeaderView::parse(frame)?;
        let Ok(octets) = <&[u8; RESULT_LEN]>::try_from(frame) else {
            return Err(DropReason::Length);
        };
        let defined = common.status() == OpStatus::Ok as u8 && octets[field::RESERVED] == [0; 4];
        if defined { Ok(Self { header: common.header() }) } else { Err(DropReason::Field) }
    }
}

impl Mutation {
    /// Whether the target records how the op ends: of all but plain WRITE and Rekey.
    #[must_use]
    #[inline]
    pub const fn is_recorded(&self) -> bool {
        !matches!(self, Self::Write { .. } | Self::Rekey)
    }

    /// Whether no byte of it lands before all of it has come, and then the last word last. Of ops
    /// that place bytes of a region only.
    #[must_use]
    #[inline]
    pub const fn is_ordered(&self) -> bool {
        matches!(self, Self::OrderedWrite { .. } | Self::WriteWithImm { ordered: true, .. })
    }

    /// Whether its target answers with a result when it has been applied.
    #[must_use]
    #[inline]
    pub const fn has_result(&self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    //= channels#2.2-one-receive-each
    /// Whether it consumes a posted receive.
    #[must_use]
    #[inline]
    pub const fn consumes_receive(&self) -> bool {
        matches!(self, Self::Send { .. } | Self::WriteWithImm { .. } | Self::Notify)
    }

    //= channels#2.3-whole-words
    /// Whether its size and offset are ones that such an op may have: what is ordered or atomic is
    /// about whole, aligned words.
    #[must_use]
    pub(crate) const fn is_defined(&self) -> bool {
        let (size, offset) = (self.op_size(), self.region_offset());
        let needs_words = self.is_ordered() || self.has_result();
        1 <= size && size <= OP_SIZE_MAX && (are_words(offset, size) || !needs_words)
    }

    /// Returns the mutation that a recorded op asks its target for.
    pub(crate) const fn of(op: &RecordedOp) -> Self {
        match *op {
            RecordedOp::OrderedWrite(Transfer { remote_offset, op_size, .. }) => {
                Self::OrderedWrite { region_offset: remote_offset, op_size: op_size as u16 }
            }
            RecordedOp::Send { message, .. } => Self::Send { op_size: message.op_size as u16 },
            RecordedOp::WriteWithImm { transfer, ordered, .. } => Self::WriteWithImm {
                region_offset: transfer.remote_offset,
                op_size: transfer.op_size as u16,
                ordered,
            },
            RecordedOp::Notify { .. } => Self::Notify,
            RecordedOp::CompareSwap { remote_offset, .. } => {
                Self::CompareSwap { region_offset: remote_offset }
            }
            RecordedOp::FetchAdd { remote_offset, .. } => {
                Self::FetchAdd { region_offset: remote_offset }
            }
        }
    }
}
