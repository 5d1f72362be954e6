//! The four hops of a mutation, WRITE or Rekey (1RMA §5): request, solicitation, solicited data in
//! any order, acknowledgement.
//!
//! Hop 1, request, after the common header; the tag follows at once:
//!
//! ```text
//! +---------------------------------------------------------------+
//! |                         region offset                         |
//! |                                                               |
//! +-------------------------------+-------------------------------+
//! |            op size            |           reserved            |
//! +-------------------------------+-------------------------------+
//! |                     timeout, microseconds                     |
//! +---------------------------------------------------------------+
//! ```
//!
//! Hop 2, solicitation, the responder's "read request"; the tag follows at once:
//!
//! ```text
//! +-------------------------------+-------------------------------+
//! |         pending write         |       payload length max      |
//! +-------------------------------+-------------------------------+
//! ```
//!
//! Hop 3, solicited data; payload and tag follow. Cut as responses to a read are, see
//! [`super::read`], and with the payload's length where they have it:
//!
//! ```text
//! +-------------------------------+-------------------------------+
//! |         pending write         |         payload length        |
//! +-------------------------------+-------------------------------+
//! |           op offset           |           reserved            |
//! +-------------------------------+-------------------------------+
//! ```
//!
//! Hop 4, acknowledgement, whose status octet in the common header says how the op ended:
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
};
use crate::{
    error::DropReason,
    limits::{GRANULE, OP_SIZE_MAX, REGION_KEY_LEN, TAG_LEN, WORD_LEN},
    op::{OpStatus, OpType},
};

mod field {
    use super::{HEADER_LEN, Range};
    pub(super) const REGION_OFFSET: Range<usize> = HEADER_LEN..HEADER_LEN + 8;
    pub(super) const OP_SIZE: Range<usize> = REGION_OFFSET.end..REGION_OFFSET.end + 2;
    pub(super) const REQUEST_RESERVED: Range<usize> = OP_SIZE.end..OP_SIZE.end + 2;
    pub(super) const TIMEOUT: Range<usize> = REQUEST_RESERVED.end..REQUEST_RESERVED.end + 4;

    pub(super) const PENDING: Range<usize> = HEADER_LEN..HEADER_LEN + 2;
    pub(super) const PAYLOAD_LEN_MAX: Range<usize> = PENDING.end..PENDING.end + 2;
    pub(super) const PAYLOAD_LEN: Range<usize> = PENDING.end..PENDING.end + 2;
    pub(super) const OP_OFFSET: Range<usize> = PAYLOAD_LEN.end..PAYLOAD_LEN.end + 2;
    pub(super) const DATA_RESERVED: Range<usize> = OP_OFFSET.end..OP_OFFSET.end + 2;

    pub(super) const RESERVED: Range<usize> = HEADER_LEN..HEADER_LEN + 4;
}

/// Octets of a mutation request's header.
pub const MUTATION_REQUEST_HEADER_LEN: usize = field::TIMEOUT.end;

/// Octets of a mutation request: header and tag.
pub const MUTATION_REQUEST_LEN: usize = MUTATION_REQUEST_HEADER_LEN + TAG_LEN;

/// Octets of a solicitation's header.
pub const SOLICITATION_HEADER_LEN: usize = field::PAYLOAD_LEN_MAX.end;

/// Octets of a solicitation: header and tag.
pub const SOLICITATION_LEN: usize = SOLICITATION_HEADER_LEN + TAG_LEN;

/// Octets of the header of solicited data.
pub const DATA_HEADER_LEN: usize = field::DATA_RESERVED.end;

/// Octets of solicited data that are not payload: header and tag.
pub const DATA_OVERHEAD: usize = DATA_HEADER_LEN + TAG_LEN;

/// Octets of an acknowledgement's header.
pub const ACKNOWLEDGEMENT_HEADER_LEN: usize = field::RESERVED.end;

/// Octets of an acknowledgement: header and tag.
pub const ACKNOWLEDGEMENT_LEN: usize = ACKNOWLEDGEMENT_HEADER_LEN + TAG_LEN;

const _: () = assert!(
    super::failure::FAILURE_LEN < MUTATION_REQUEST_LEN && SOLICITATION_LEN < MUTATION_REQUEST_LEN,
    "no answer to a request is longer than it"
);

/// The change that a mutation makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Bytes of the region.
    Write {
        /// The offset in the remote region at which the op begins, in bytes.
        region_offset: u64,
        /// How many bytes: 1 to [`OP_SIZE_MAX`].
        op_size: u16,
    },
    /// The region's key.
    Rekey,
    /// Bytes of the region, the last word of them last. Offset and size are multiples of
    /// [`WORD_LEN`]. This and what follows are recorded: see [`super::recorded`].
    OrderedWrite {
        /// As of a WRITE.
        region_offset: u64,
        /// As of a WRITE.
        op_size: u16,
    },
    /// A posted buffer of a receive queue.
    Send {
        /// How many bytes: 1 to [`OP_SIZE_MAX`].
        op_size: u16,
    },
    /// Bytes of the region, and an event in its queue.
    WriteWithImm {
        /// As of a WRITE.
        region_offset: u64,
        /// As of a WRITE.
        op_size: u16,
        /// Whether the bytes land as those of an ordered WRITE.
        ordered: bool,
    },
    /// No bytes, and an event in a receive queue.
    Notify,
    /// One word of the region, if it has the value that is expected.
    CompareSwap {
        /// The offset of the word, in bytes: a multiple of [`WORD_LEN`].
        region_offset: u64,
    },
    /// One word of the region, by a sum.
    FetchAdd {
        /// The offset of the word, in bytes: a multiple of [`WORD_LEN`].
        region_offset: u64,
    },
}

impl Mutation {
    /// The type of op that the key is bound to.
    #[must_use]
    pub const fn op_type(&self) -> OpType {
        match self {
            Self::Write { .. } | Self::OrderedWrite { .. } => OpType::Write,
            Self::Rekey => OpType::Rekey,
            Self::Send { .. } => OpType::Send,
            Self::WriteWithImm { .. } => OpType::WriteWithImm,
            Self::Notify => OpType::Notify,
            Self::CompareSwap { .. } => OpType::CompareSwap,
            Self::FetchAdd { .. } => OpType::FetchAdd,
        }
    }

    /// How many bytes of data the op has.
    #[must_use]
    pub const fn op_size(&self) -> u32 {
        match self {
            Self::Write { op_size, .. }
            | Self::OrderedWrite { op_size, .. }
            | Self::Send { op_size }
            | Self::WriteWithImm { op_size, .. } => *op_size as u32,
            Self::Rekey => REGION_KEY_LEN as u32,
            Self::Notify | Self::FetchAdd { .. } => WORD_LEN as u32,
            Self::CompareSwap { .. } => 2 * WORD_LEN as u32,
        }
    }

    /// Offset and size of the bytes of the region, if it is bytes that change.
    pub(crate) const fn span(&self) -> Option<(u64, u32)> {
        match self {
            Self::Write { region_offset, op_size }
            | Self::OrderedWrite { region_offset, op_size }
            | Self::WriteWithImm { region_offset, op_size, .. } => {
                Some((*region_offset, *op_size as u32))
            }
            Self::CompareSwap { region_offset } | Self::FetchAdd { region_offset } => {
                Some((*region_offset, WORD_LEN as u32))
            }
            Self::Rekey | Self::Send { .. } | Self::Notify => None,
        }
    }

    pub(crate) const fn region_offset(&self) -> u64 {
        match self {
            Self::Write { region_offset, .. }
            | Self::OrderedWrite { region_offset, .. }
            | Self::WriteWithImm { region_offset, .. }
            | Self::CompareSwap { region_offset }
            | Self::FetchAdd { region_offset } => *region_offset,
            Self::Rekey | Self::Send { .. } | Self::Notify => 0,
        }
    }
}

/// Hop 1 of a plain WRITE or a Rekey: what the initiator would like to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MutationRequest {
    /// The common header.
    pub header: Header,
    /// The change that the initiator asks for: nothing that is recorded, on the wire.
    pub mutation: Mutation,
    /// How long the initiator will wait for the acknowledgement once it has the solicitation, in
    /// microseconds, rounded down; at least 1. The responder changes nothing after that long (§5.1,
    /// "time out last").
    pub timeout_micros: u32,
}

impl MutationRequest {
    /// Writes the header. The tag is the caller's to write.
    pub fn emit(&self, out: &mut [u8; MUTATION_REQUEST_HEADER_LEN]) {
        let common = out.first_chunk_mut().expect("a request is longer than the common header");
        debug_assert!(!self.mutation.is_recorded(), "those have requests of their own");
        let frame_type = match self.mutation {
            Mutation::Rekey => FrameType::RekeyRequest,
            _ => FrameType::WriteRequest,
        };
        self.header.emit(frame_type, 0, common);
        let op_size = self.mutation.op_size() as u16;
        out[field::REGION_OFFSET].copy_from_slice(&self.mutation.region_offset().to_be_bytes());
        out[field::OP_SIZE].copy_from_slice(&op_size.to_be_bytes());
        out[field::REQUEST_RESERVED].fill(0);
        out[field::TIMEOUT].copy_from_slice(&self.timeout_micros.to_be_bytes());
    }
}

impl Meaning for MutationRequest {
    fn parse(frame: &[u8]) -> Result<Self, DropReason> {
        let common = HeaderView::parse(frame)?;
        let Ok(octets) = <&[u8; MUTATION_REQUEST_LEN]>::try_from(frame) else {
            return Err(DropReason::Length);
        };
        let region_offset = u64::from_be_bytes(read(octets, field::REGION_OFFSET.start));
        let op_size = u16::from_be_bytes(read(octets, field::OP_SIZE.start));
        let timeout_micros = u32::from_be_bytes(read(octets, field::TIMEOUT.start));
        let mutation = if common.frame_type() == FrameType::RekeyRequest {
            Mutation::Rekey
        } else {
            Mutation::Write { region_offset, op_size }
        };
        let defined = common.status() == 0
            && (1..=OP_SIZE_MAX).contains(&u32::from(op_size))
            && (u32::from(op_size), region_offset)
                == (mutation.op_size(), mutation.region_offset())
            && octets[field::REQUEST_RESERVED] == [0; 2]
            && timeout_micros > 0;
        if !defined {
            return Err(DropReason::Field);
        }
        Ok(Self { header: common.header(), mutation, timeout_micros })
    }
}

/// Hop 2: the responder has room for the op's data, and asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solicitation {
    /// The common header: the request's, with the responder's engine and counter.
    pub header: Header,
    /// The responder's name for the op from now on.
    pub pending: u16,
    /// The largest payload of one frame that the responder can receive, in bytes: at least one
    /// [`GRANULE`]. More than an op's size tells how long packets of several may be.
    pub payload_len_max: u16,
}

impl Solicitation {
    /// Writes the header. The tag is the caller's to write.
    pub fn emit(&self, out: &mut [u8; SOLICITATION_HEADER_LEN]) {
        let common = out.first_chunk_mut().expect("longer than the common header");
        self.header.emit(FrameType::Solicitation, 0, common);
        out[field::PENDING].copy_from_slice(&self.pending.to_be_bytes());
        out[field::PAYLOAD_LEN_MAX].copy_from_slice(&self.payload_len_max.to_be_bytes());
    }
}

impl Meaning for Solicitation {
    fn parse(frame: &[u8]) -> Result<Self, DropReason> {
        let common = HeaderView::parse(frame)?;
        let Ok(octets) = <&[u8; SOLICITATION_LEN]>::try_from(frame) else {
            return Err(DropReason::Length);
        };
        let solicitation = Self {
            header: common.header(),
            pending: u16::from_be_bytes(read(octets, field::PENDING.start)),
            payload_len_max: u16::from_be_bytes(read(octets, field::PAYLOAD_LEN_MAX.start)),
        };
        let defined = common.status() == 0 && u32::from(solicitation.payload_len_max) >= GRANULE;
        if defined { Ok(solicitation) } else { Err(DropReason::Field) }
    }
}

/// Hop 3: some of the op's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SolicitedData {
    /// The common header: the request's, with a new counter.
    pub header: Header,
    /// The responder's name for the op, from the solicitation.
    pub pending: u16,
    /// The offset in the op at which the payload begins, in bytes: a multiple of [`GRANULE`].
    pub op_offset: u16,
    /// Octets of payload: at least 1.
    pub payload_len: u16,
}

impl SolicitedData {
    /// Writes the header. Payload and tag are the caller's to write.
    pub fn emit(&self, out: &mut [u8; DATA_HEADER_LEN]) {
        let common = out.first_chunk_mut().expect("longer than the common header");
        self.header.emit(FrameType::SolicitedData, 0, common);
        out[field::PENDING].copy_from_slice(&self.pending.to_be_bytes());
        out[field::PAYLOAD_LEN].copy_from_slice(&self.payload_len.to_be_bytes());
        out[field::OP_OFFSET].copy_from_slice(&self.op_offset.to_be_bytes());
        out[field::DATA_RESERVED].fill(0);
    }

    /// The bytes of the op that this frame covers, end exclusive, as `u32` so that the sum fits.
    #[must_use]
    pub const fn span(&self) -> (u32, u32) {
        let start = self.op_offset as u32;
        (start, start + self.payload_len as u32)
    }
}

impl Meaning for SolicitedData {
    fn parse(frame: &[u8]) -> Result<Self, DropReason> {
        let common = HeaderView::parse(frame)?;
        let octets: &[u8; DATA_HEADER_LEN] = frame.first_chunk().ok_or(DropReason::Length)?;
        let data = Self {
            header: common.header(),
            pending: u16::from_be_bytes(read(octets, field::PENDING.start)),
            op_offset: u16::from_be_bytes(read(octets, field::OP_OFFSET.start)),
            payload_len: u16::from_be_bytes(read(octets, field::PAYLOAD_LEN.start)),
        };
        if frame.len() != DATA_OVERHEAD + usize::from(data.payload_len) {
            return Err(DropReason::Length);
        }
        let (start, end) = data.span();
        let defined = common.status() == 0
            && data.payload_len > 0
            && octets[field::DATA_RESERVED] == [0; 2]
            && start.is_multiple_of(GRANULE)
            && end <= OP_SIZE_MAX;
        if defined { Ok(data) } else { Err(DropReason::Field) }
    }
}

/// Hop 4: how the op ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The common header: the request's, with the responder's engine and counter.
    pub header: Header,
    /// A status for which [`Acknowledgement::may_carry`] holds.
    pub status: OpStatus,
}

impl Acknowledgement {
    /// Whether a responder may end a solicited op with `status`: done, or the key that it came
    /// under is no longer the region's, or no receive is posted any more that it needs.
    #[must_use]
    pub const fn may_carry(status: OpStatus) -> bool {
        matches!(
            status,
            OpStatus::Ok | OpStatus::RemoteAuthenticationFailure | OpStatus::RemoteNotReady
        )
    }

    /// Writes the header. The tag is the caller's to write.
    pub fn emit(&self, out: &mut [u8; ACKNOWLEDGEMENT_HEADER_LEN]) {
        let common = out.first_chunk_mut().expect("longer than the common header");
        self.header.emit(FrameType::Acknowledgement, self.status as u8, common);
        out[field::RESERVED].fill(0);
    }
}

impl Meaning for Acknowledgement {
    fn parse(frame: &[u8]) -> Result<Self, DropReason> {
        let common = HeaderView::parse(frame)?;
        let Ok(octets) = <&[u8; ACKNOWLEDGEMENT_LEN]>::try_from(frame) else {
            return Err(DropReason::Length);
        };
        if octets[field::RESERVED] != [0; 4] {
            return Err(DropReason::Field);
        }
        let status = OpStatus::from_code(common.status())
            .filter(|&status| Self::may_carry(status))
            .ok_or(DropReason::NoticeStatus)?;
        Ok(Self { header: common.header(), status })
    }
}
