//! Frames that move data: RD and GD, by which F guides Z, and RDA and GDA, which answer them (the
//! paper, §III-B).
//!
//! RD and GD have one header; an RD has the chunk behind it, a GD nothing:
//!
//! ```text
//! +---------------------------------------------------------------+
//! |                             slot                              |
//! +---------------------------------------------------------------+
//! |                          generation                           |
//! +---------------------------------------------------------------+
//! |                           MR or MW                            |
//! +---------------------------------------------------------------+
//! |                           MR offset                           |
//! |                                                               |
//! +---------------------------------------------------------------+
//! |                          WQE length                           |
//! +---------------------------------------------------------------+
//! |                         chunk offset                          |
//! +---------------------------------------------------------------+
//! |                           sequence                            |
//! +-------------------------------+---------------+---------------+
//! |         chunk length          |     copy      |   reserved    |
//! +-------------------------------+---------------+---------------+
//! ```
//!
//! RDA, and GDA, which goes on behind it and has the chunk behind:
//!
//! ```text
//! +---------------------------------------------------------------+
//! |                         chunk offset                          |
//! +---------------------------------------------------------------+
//! |                           sequence                            |
//! +-------------------------------+---------------+---------------+
//! |   receive delay, microseconds |    result     |     copy      |
//! +-------------------------------+---------------+---------------+
//! |         chunk length          |           reserved            |
//! +-------------------------------+-------------------------------+
//! ```
//!
//! Between two stateful sides (RC) there is no Z: who asks is F of its half of the connection, and
//! "Z" who answers.
//!
//! Op, in the common header, is that of the work request whose data it is, as whoever posted it
//! named it. Chunks begin at multiples of [`GRANULE`] and are whole granules, but for the end of a
//! message.

use core::ops::Range;

use rma_core::limits::{GRANULE, TAG_LEN};

use super::{
    answer::Answer,
    common::{self, Common, FrameType, HEADER_LEN, Header, Marks},
    work::EA_OF_Z_LEN_MIN,
};
use crate::{
    error::Malformed,
    keys::{Binding, KeyMessage, OpenSpan},
    limits::{CHUNK_LEN_MAX, MESSAGE_LEN_MAX},
    names::{Generation, MrId, MrName, Sequence, Side, Slot},
    octets::{u16_at, u32_at, u64_at},
    verbs::WqeOp,
};

mod field {
    use super::{HEADER_LEN, Range};

    pub(super) const SLOT: Range<usize> = HEADER_LEN..HEADER_LEN + 4;
    pub(super) const GENERATION: Range<usize> = SLOT.end..SLOT.end + 4;
    pub(super) const MR: Range<usize> = GENERATION.end..GENERATION.end + 4;
    pub(super) const MR_OFFSET: Range<usize> = MR.end..MR.end + 8;
    pub(super) const WQE_LEN: Range<usize> = MR_OFFSET.end..MR_OFFSET.end + 4;
    pub(super) const CHUNK_OFFSET: Range<usize> = WQE_LEN.end..WQE_LEN.end + 4;
    pub(super) const SEQUENCE: Range<usize> = CHUNK_OFFSET.end..CHUNK_OFFSET.end + 4;
    pub(super) const CHUNK_LEN: Range<usize> = SEQUENCE.end..SEQUENCE.end + 2;
    pub(super) const COPY: usize = CHUNK_LEN.end;
    pub(super) const RESERVED: usize = COPY + 1;

    pub(super) const ANSWER_OFFSET: Range<usize> = HEADER_LEN..HEADER_LEN + 4;
    pub(super) const ANSWER_SEQUENCE: Range<usize> = ANSWER_OFFSET.end..ANSWER_OFFSET.end + 4;
    pub(super) const DELAY: Range<usize> = ANSWER_SEQUENCE.end..ANSWER_SEQUENCE.end + 2;
    pub(super) const RESULT: usize = DELAY.end;
    pub(super) const ANSWER_COPY: usize = RESULT + 1;

    pub(super) const GDA_CHUNK_LEN: Range<usize> = ANSWER_COPY + 1..ANSWER_COPY + 3;
    pub(super) const GDA_RESERVED: Range<usize> = GDA_CHUNK_LEN.end..GDA_CHUNK_LEN.end + 2;
}

/// Octets of the header of an RD and a GD.
pub const GUIDE_HEADER_LEN: usize = field::RESERVED + 1;

/// Octets of an RDA's header.
pub const RDA_HEADER_LEN: usize = field::ANSWER_COPY + 1;

/// Octets of a GDA's header.
pub const GDA_HEADER_LEN: usize = field::GDA_RESERVED.end;

const _: () = assert!(
    RDA_HEADER_LEN < GUIDE_HEADER_LEN && EA_OF_Z_LEN_MIN < GUIDE_HEADER_LEN + TAG_LEN,
    "what acknowledges an RD is shorter than it"
);
const _: () = assert!(
    GDA_HEADER_LEN < GUIDE_HEADER_LEN,
    "a GD is answered by what it asks for, or by less than it is"
);

/// F's guidance of Z in an RD and in a GD: enough to do it and to answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guide {
    /// The common header.
    pub header: Header,
    /// The op of the work request that the data is of. RD: a RECV or READ of Z, or a WRITE of F.
    /// GD: a SEND or WRITE of Z, or a READ of F.
    pub op: WqeOp,
    /// The WQE's slot. [`Slot::NONE`] if it is F's own, [`Slot::RC`] if both sides are stateful.
    pub slot: Slot,
    /// The use of the slot. 0 if there is none. Of a RECV in RC, its place in its queue.
    pub generation: Generation,
    /// Z's memory. 0 of a RECV in RC.
    pub mr: MrId,
    /// The offset in it at which the WQE begins, in octets. 0 of a RECV in RC.
    pub mr_offset: u64,
    /// How long the WQE is: up to [`MESSAGE_LEN_MAX`]. Of a RECV in RC, how long the message is.
    pub wqe_len: u32,
    /// The offset in the WQE at which the chunk begins, in octets: a multiple of [`GRANULE`].
    pub chunk_offset: u32,
    /// How long the chunk is: up to [`CHUNK_LEN_MAX`], and 0 only of an RD that completes a message
    /// of no octets.
    pub chunk_len: u16,
    /// Of an RD that completes a RECV, the RECV's place in its queue, which Z's application is
    /// told; of any other frame a number of F's. Z gives it back. Of an RD in RC, which of the RDs
    /// of its half it is: each copy has the next number, and is taken once.
    pub sequence: Sequence,
    /// The number of this copy of the frame, counted by F. Z gives it back and does not look at it.
    /// Each copy has an IV of its own, by which its answer is bound to it.
    pub copy: u8,
}

impl Guide {
    /// The span of Z that the WQE opened. `None` of F's own ops, and in RC.
    #[must_use]
    pub const fn span(&self) -> Option<OpenSpan> {
        let Self { op, slot, generation, mr, mr_offset, wqe_len: len, .. } = *self;
        match slot {
            Slot::NONE | Slot::RC => None,
            _ => Some(OpenSpan { op, slot, generation, mr, mr_offset, len }),
        }
    }

    /// Returns the message that the frame's key is derived from: a K_w of Z's WQE, or the K_m of
    /// F's own op, for which `name_of` tells the name of the memory region of Z. `None` in RC,
    /// where both sides keep the key.
    #[must_use]
    pub fn key_message(
        &self,
        binding: &Binding,
        name_of: impl FnOnce(MrId) -> MrName,
    ) -> Option<KeyMessage> {
        match self.span() {
            Some(span) => Some(KeyMessage::of_wqe(binding, &span)),
            None if self.is_rc() => None,
            None => Some(KeyMessage::of_mr(binding, self.op, name_of(self.mr))),
        }
    }

    /// Whether it is of a connection both of whose sides are stateful.
    #[must_use]
    pub fn is_rc(&self) -> bool {
        self.slot == Slot::RC
    }

    /// The octets of the MR that the chunk is: where they begin, and where they end.
    #[must_use]
    pub const fn octets_of_mr(&self) -> Range<u64> {
        // Neither overflows: a guide whose WQE ends beyond 2^64 is malformed.
        let start = self.mr_offset.saturating_add(self.chunk_offset as u64);
        start..start.saturating_add(self.chunk_len as u64)
    }

    fn emit(&self, frame_type: FrameType, marks: Marks, out: &mut [u8; GUIDE_HEADER_LEN]) {
        let common = out.first_chunk_mut().expect("longer than the common header");
        common::emit(&self.header, frame_type, Marks { op: self.op, ..marks }, common);
        out[field::SLOT].copy_from_slice(&self.slot.0.to_be_bytes());
        out[field::GENERATION].copy_from_slice(&self.generation.0.to_be_bytes());
        out[field::MR].copy_from_slice(&self.mr.0.to_be_bytes());
        out[field::MR_OFFSET].copy_from_slice(&self.mr_offset.to_be_bytes());
        out[field::WQE_LEN].copy_from_slice(&self.wqe_len.to_be_bytes());
        out[field::CHUNK_OFFSET].copy_from_slice(&self.chunk_offset.to_be_bytes());
        out[field::SEQUENCE].copy_from_slice(&self.sequence.0.to_be_bytes());
        out[field::CHUNK_LEN].copy_from_slice(&self.chunk_len.to_be_bytes());
        out[field::COPY] = self.copy;
        out[field::RESERVED] = 0;
    }

    fn parse(common: &Common, octets: &[u8; GUIDE_HEADER_LEN]) -> Result<Self, Malformed> {
        let guide = Self {
            header: common.header,
            op: common.marks.op,
            slot: Slot(u32_at(octets, field::SLOT.start)),
            generation: Generation(u32_at(octets, field::GENERATION.start)),
            mr: MrId(u32_at(octets, field::MR.start)),
            mr_offset: u64_at(octets, field::MR_OFFSET.start),
            wqe_len: u32_at(octets, field::WQE_LEN.start),
            chunk_offset: u32_at(octets, field::CHUNK_OFFSET.start),
            chunk_len: u16_at(octets, field::CHUNK_LEN.start),
            sequence: Sequence(u32_at(octets, field::SEQUENCE.start)),
            copy: octets[field::COPY],
        };
        let is_sound = octets[field::RESERVED] == 0 && guide.is_sound();
        if is_sound { Ok(guide) } else { Err(Malformed::Field) }
    }

    /// Whether the span is one, and the chunk lies in it and is cut as it must be.
    fn is_sound(&self) -> bool {
        let len = u32::from(self.chunk_len);
        let end = self.chunk_offset.checked_add(len).filter(|&end| end <= self.wqe_len);
        // A message may be shorter than the RECV that it is for.
        let may_end = self.op == WqeOp::Recv || end == Some(self.wqe_len);
        end.is_some()
            && self.wqe_len <= MESSAGE_LEN_MAX
            && self.mr_offset.checked_add(self.wqe_len.into()).is_some()
            && len <= CHUNK_LEN_MAX
            && self.chunk_offset.is_multiple_of(GRANULE)
            && (len.is_multiple_of(GRANULE) || may_end)
            && self.has_defined_place()
    }

    /// Whether it says where the data is in the one way that fits its slot.
    fn has_defined_place(&self) -> bool {
        let has_generation = self.generation != Generation(0);
        match (self.slot, self.op) {
            (Slot::RC, WqeOp::Recv) => self.mr == MrId(0) && self.mr_offset == 0,
            (Slot::RC | Slot::NONE, _) => !has_generation,
            _ => true,
        }
    }
}

/// The meaning of an RD's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rd {
    /// The place that the chunk goes to.
    pub guide: Guide,
    /// A: whether it wants an RDA of its own. Otherwise an EA may answer it together with others
    /// (ours). Never in RC.
    pub wants_answer: bool,
    /// C: whether it ends a message without immediate, and completes the RECV that it is for; all
    /// other chunks have been answered (ours).
    pub completes: bool,
}

impl Rd {
    /// Writes the header. Payload and tag are the caller's to write.
    pub fn emit(&self, out: &mut [u8; GUIDE_HEADER_LEN]) {
        let Self { wants_answer, completes, .. } = *self;
        let marks = Marks { wants_answer, completes, ..Marks::of(Side::Stateful) };
        self.guide.emit(FrameType::Rd, marks, out);
    }

    //= star#III-B-rd
    pub(super) fn parse(
        common: &Common,
        octets: &[u8; GUIDE_HEADER_LEN],
    ) -> Result<Self, Malformed> {
        let Marks { op, wants_answer, completes, .. } = common.marks;
        let marks = Marks { op, wants_answer, completes, ..Marks::of(Side::Stateful) };
        common.marked(marks)?;
        let guide = Guide::parse(common, octets)?;
        let is_own = matches!(guide.slot, Slot::NONE | Slot::RC);
        let ends = u32::from(guide.chunk_len) + guide.chunk_offset == guide.wqe_len;
        let defined = match op {
            _ if guide.is_rc() && wants_answer => false,
            WqeOp::Recv if guide.is_rc() => ends || !completes,
            WqeOp::Recv => !is_own,
            WqeOp::Read => !is_own && !completes,
            WqeOp::Write => is_own && !completes,
            WqeOp::Send => false,
        };
        let is_empty = guide.chunk_len == 0;
        let may_be_empty = completes && guide.chunk_offset == 0;
        let defined = defined && (!is_empty || may_be_empty);
        if defined { Ok(Self { guide, wants_answer, completes }) } else { Err(Malformed::Field) }
    }
}

/// The meaning of a GD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gd {
    /// The chunk that is asked for: of one octet at least.
    pub guide: Guide,
}

impl Gd {
    /// Writes the header. The tag is the caller's to write.
    pub fn emit(&self, out: &mut [u8; GUIDE_HEADER_LEN]) {
        self.guide.emit(FrameType::Gd, Marks::of(Side::Stateful).answered(), out);
    }

    //= star#III-B-gd
    pub(super) fn parse(
        common: &Common,
        octets: &[u8; GUIDE_HEADER_LEN],
    ) -> Result<Self, Malformed> {
        let op = common.marks.op;
        common.marked(Marks { op, ..Marks::of(Side::Stateful).answered() })?;
        let guide = Guide::parse(common, octets)?;
        let is_own = matches!(guide.slot, Slot::NONE | Slot::RC);
        let defined = match op {
            WqeOp::Send | WqeOp::Write => !is_own,
            WqeOp::Read => is_own,
            WqeOp::Recv => false,
        };
        if defined && guide.chunk_len > 0 { Ok(Self { guide }) } else { Err(Malformed::Field) }
    }
}

/// The common part of RDA and GDA: their answer to an RD or GD. Their AAD has its IV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkAnswer {
    /// The common header: the answered frame's, with Z's engine, counter and time.
    pub header: Header,
    /// The op of the answered frame.
    pub op: WqeOp,
    /// The offset in the WQE of its chunk.
    pub chunk_offset: u32,
    /// The WQE's place in its queue, as the answered frame said.
    pub sequence: Sequence,
    /// The number of the copy.
    pub copy: u8,
    /// For how long it waited at Z before it was taken, in microseconds: 65,535 of longer.
    pub delay_micros: u16,
    /// The answer to that chunk.
    pub answer: Answer,
}

impl ChunkAnswer {
    /// Says `answer` to what `guide` guides. `header` is Z's.
    #[must_use]
    pub const fn to(guide: &Guide, header: Header, answer: Answer, delay_micros: u16) -> Self {
        let Guide { op, chunk_offset, sequence, copy, .. } = *guide;
        Self { header, op, chunk_offset, sequence, copy, delay_micros, answer }
    }

    fn emit<const LEN: usize>(&self, frame_type: FrameType, out: &mut [u8; LEN]) {
        const { assert!(LEN >= RDA_HEADER_LEN) };
        let common = out.first_chunk_mut().expect("longer than the common header");
        let marks = Marks { op: self.op, ..Marks::of(Side::Stateless) };
        common::emit(&self.header, frame_type, marks, common);
        out[field::ANSWER_OFFSET].copy_from_slice(&self.chunk_offset.to_be_bytes());
        out[field::ANSWER_SEQUENCE].copy_from_slice(&self.sequence.0.to_be_bytes());
        out[field::DELAY].copy_from_slice(&self.delay_micros.to_be_bytes());
        out[field::RESULT] = self.answer as u8;
        out[field::ANSWER_COPY] = self.copy;
    }

    /// Parses the answer, if the frame has an op for which `may_have` holds.
    fn parse<const LEN: usize>(
        common: &Common,
        octets: &[u8; LEN],
        may_have: impl FnOnce(WqeOp) -> bool,
    ) -> Result<Self, Malformed> {
        const { assert!(LEN >= RDA_HEADER_LEN) };
        let op = common.marks.op;
        let answer = Self {
            header: common.marked(Marks { op, ..Marks::of(Side::Stateless) })?,
            op,
            chunk_offset: u32_at(octets, field::ANSWER_OFFSET.start),
            sequence: Sequence(u32_at(octets, field::ANSWER_SEQUENCE.start)),
            copy: octets[field::ANSWER_COPY],
            delay_micros: u16_at(octets, field::DELAY.start),
            answer: Answer::from_code(octets[field::RESULT]).ok_or(Malformed::Field)?,
        };
        let defined = may_have(op) && answer.chunk_offset.is_multiple_of(GRANULE);
        if defined { Ok(answer) } else { Err(Malformed::Field) }
    }
}

/// The meaning of an RDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rda(pub ChunkAnswer);

impl Rda {
    /// Writes the header. The tag is the caller's to write.
    pub fn emit(&self, out: &mut [u8; RDA_HEADER_LEN]) {
        self.0.emit(FrameType::Rda, out);
    }

    //= star#III-B-rda
    pub(super) fn parse(common: &Common, octets: &[u8; RDA_HEADER_LEN]) -> Result<Self, Malformed> {
        ChunkAnswer::parse(common, octets, |op| op != WqeOp::Send).map(Self)
    }
}

/// The meaning of a GDA's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gda {
    /// The answer to the GD. Never [`Answer::Busy`]: Z remembers no GD.
    pub answer: ChunkAnswer,
    /// How long the chunk is that follows: as asked for if the answer is [`Answer::Done`],
    /// otherwise 0.
    pub chunk_len: u16,
}

impl Gda {
    /// Writes the header. Payload and tag are the caller's to write.
    pub fn emit(&self, out: &mut [u8; GDA_HEADER_LEN]) {
        self.answer.emit(FrameType::Gda, out);
        out[field::GDA_CHUNK_LEN].copy_from_slice(&self.chunk_len.to_be_bytes());
        out[field::GDA_RESERVED].fill(0);
    }

    //= star#III-B-gda
    pub(super) fn parse(common: &Common, octets: &[u8; GDA_HEADER_LEN]) -> Result<Self, Malformed> {
        let answer = ChunkAnswer::parse(common, octets, |op| op != WqeOp::Recv)?;
        let chunk_len = u16_at(octets, field::GDA_CHUNK_LEN.start);
        let defined = octets[field::GDA_RESERVED] == [0; 2]
            && u32::from(chunk_len) <= CHUNK_LEN_MAX
            && answer.answer != Answer::Busy
            && (answer.answer == Answer::Done) == (chunk_len > 0);
        if defined { Ok(Self { answer, chunk_len }) } else { Err(Malformed::Field) }
    }
}

/// Octets of the payload that such a header tells of, whatever else is in it; as the next.
pub(super) fn rd_payload_len(octets: &[u8; GUIDE_HEADER_LEN]) -> usize {
    u16_at(octets, field::CHUNK_LEN.start).into()
}

pub(super) fn gda_payload_len(octets: &[u8; GDA_HEADER_LEN]) -> usize {
    u16_at(octets, field::GDA_CHUNK_LEN.start).into()
}
