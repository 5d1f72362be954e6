//! Frames that begin and end work: WQEP, CQEP and EA (the paper, §III-B).
//!
//! All three are a header of 40 octets, the last four by type, and entries, which are encrypted
//! under K_c. WQEP; behind the WQEs comes the data of those that are inline, in their order:
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |     count     |   reserved    |         inline length         |
//! +---------------+---------------+-------------------------------+
//! ```
//!
//! CQEP, which says all that an EA of F does; its payload is an EA of F's, and CQEs behind it:
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |     count     | STATE number  |             parts             |
//! +---------------+---------------+-------------------------------+
//! ```
//!
//! EA of Z, with an entry for each frame that it answers; below it such an entry:
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |     count     |   reserved    |   receive delay, microseconds |
//! +---------------+---------------+-------------------------------+
//!
//! +---------------------------------------------------------------+
//! |                 counter of the answered frame                 |
//! |                                                               |
//! +---------------------------------------------------------------+
//! |                    which entries were taken                   |
//! +---------------+-----------------------------------------------+
//! |    result     |                   reserved                    |
//! +---------------+-----------------------------------------------+
//! ```
//!
//! EA of F, which says all that F has taken so far; below it its payload:
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! | STATE number  |   reserved    |             parts             |
//! +---------------+---------------+-------------------------------+
//!
//! +---------------------------------------------------------------+
//! |            sequence below which all others are taken          |
//! +---------------------------------------------------------------+
//! |             sequence below which all RECVs are taken          |
//! +---------------------------------------------------------------+
//! ```

use core::ops::Range;

use rma_core::limits::TAG_LEN;

use super::{
    answer::Answer,
    common::{self, Common, FrameType, HEADER_LEN, Header, Marks},
    entries::{CQE_LEN, Cqe, WQE_LEN, Wqe},
};
use crate::{
    error::Malformed,
    limits::{ANSWERED_MAX, ENTRIES_MAX, INLINE_MAX},
    names::{Side, Taken},
    octets::{u16_at, u32_at, u64_at},
};

mod field {
    use super::{HEADER_LEN, Range};

    pub(super) const COUNT: usize = HEADER_LEN;
    pub(super) const SHORT_RESERVED: usize = COUNT + 1;
    pub(super) const LAST: Range<usize> = SHORT_RESERVED + 1..SHORT_RESERVED + 3;
    pub(super) const CQEP_STATE: usize = COUNT + 1;

    pub(super) const ENTRY_COUNTER: Range<usize> = 0..8;
    pub(super) const ENTRY_TAKEN: Range<usize> = ENTRY_COUNTER.end..12;
    pub(super) const ENTRY_RESULT: usize = ENTRY_TAKEN.end;
    pub(super) const ENTRY_RESERVED: Range<usize> = ENTRY_RESULT + 1..16;
}

/// Octets of the header of a WQEP, a CQEP and an EA.
pub const WORK_HEADER_LEN: usize = field::LAST.end;

/// Octets of an entry of an EA of Z.
pub const EA_ENTRY_LEN: usize = field::ENTRY_RESERVED.end;

/// Octets of the payload of an EA of F, with which a CQEP's begins.
pub const TAKEN_LEN: usize = 8;

/// Octets of the shortest EA of Z: one frame is answered.
pub(super) const EA_OF_Z_LEN_MIN: usize = WORK_HEADER_LEN + EA_ENTRY_LEN + TAG_LEN;

const _: () = assert!(
    EA_OF_Z_LEN_MIN < WORK_HEADER_LEN + TAKEN_LEN + CQE_LEN + TAG_LEN
        && WORK_HEADER_LEN + TAKEN_LEN < WORK_HEADER_LEN + WQE_LEN,
    "an acknowledgement is shorter than what it answers"
);
const _: () = assert!(
    EA_ENTRY_LEN < TAKEN_LEN + CQE_LEN,
    "an acknowledgement of several frames is shorter than they are together"
);

/// The meaning of a WQEP's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wqep {
    /// The common header.
    pub header: Header,
    /// How many WQEs there are: 1 to [`ENTRIES_MAX`].
    pub count: u8,
    /// Octets of inline data behind them: of all together, at most [`INLINE_MAX`] for each.
    pub inline_len: u16,
}

impl Wqep {
    /// Writes the header. Payload and tag are the caller's to write.
    pub fn emit(&self, out: &mut [u8; WORK_HEADER_LEN]) {
        begin(&self.header, FrameType::Wqep, Marks::of(Side::Stateless).answered(), out);
        out[field::COUNT] = self.count;
        out[field::SHORT_RESERVED] = 0;
        out[field::LAST].copy_from_slice(&self.inline_len.to_be_bytes());
    }

    //= star#III-B-wqep
    pub(super) fn parse(
        common: &Common,
        octets: &[u8; WORK_HEADER_LEN],
    ) -> Result<Self, Malformed> {
        let wqep = Self {
            header: common.marked(Marks::of(Side::Stateless).answered())?,
            count: octets[field::COUNT],
            inline_len: u16_at(octets, field::LAST.start),
        };
        let inline_max = usize::from(wqep.count) * INLINE_MAX;
        let defined = is_count(wqep.count, ENTRIES_MAX)
            && octets[field::SHORT_RESERVED] == 0
            && usize::from(wqep.inline_len) <= inline_max;
        if defined { Ok(wqep) } else { Err(Malformed::Field) }
    }

    pub(super) const fn payload_len(&self) -> usize {
        wqep_len_of(self.count, self.inline_len)
    }

    /// The WQEs of an opened payload, each with its inline data, in order. The first that is
    /// malformed is the last; so is inline data that no WQE has.
    pub fn wqes<'a>(
        &self,
        payload: &'a [u8],
    ) -> impl Iterator<Item = Result<(Wqe, &'a [u8]), Malformed>> + use<'a> {
        let entries = payload.get(..usize::from(self.count) * WQE_LEN).unwrap_or_default();
        let mut inline = &payload[entries.len()..];
        let mut entries = entries.as_chunks().0.iter();
        let mut is_over = false;
        core::iter::from_fn(move || {
            if is_over {
                return None;
            }
            let Some(entry) = entries.next() else {
                is_over = true;
                return (!inline.is_empty()).then_some(Err(Malformed::Length));
            };
            let wqe = Wqe::parse(entry).and_then(|wqe| {
                let (data, rest) =
                    inline.split_at_checked(wqe.inline_len()).ok_or(Malformed::Length)?;
                inline = rest;
                Ok((wqe, data))
            });
            is_over = wqe.is_err();
            Some(wqe)
        })
    }
}

/// The meaning of a CQEP's header. It says what an EA of F says, too (ours).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cqep {
    /// The common header.
    pub header: Header,
    /// How many CQEs there are: 1 to [`ENTRIES_MAX`].
    pub count: u8,
    /// Whether it wants an EA. If not, one comes only if Z has not taken all of it.
    pub wants_answer: bool,
    /// As of an [`EaOfF`].
    pub state_number: u8,
    /// As of an [`EaOfF`].
    pub state_parts: u16,
}

impl Cqep {
    /// Writes the header. Payload and tag are the caller's to write.
    pub fn emit(&self, out: &mut [u8; WORK_HEADER_LEN]) {
        begin(&self.header, FrameType::Cqep, Self::marks(self.wants_answer), out);
        out[field::COUNT] = self.count;
        out[field::CQEP_STATE] = self.state_number;
        out[field::LAST].copy_from_slice(&self.state_parts.to_be_bytes());
    }

    const fn marks(wants_answer: bool) -> Marks {
        Marks { wants_answer, ..Marks::of(Side::Stateful) }
    }

    //= star#III-B-cqep
    pub(super) fn parse(
        common: &Common,
        octets: &[u8; WORK_HEADER_LEN],
    ) -> Result<Self, Malformed> {
        let wants_answer = common.marks.wants_answer;
        let cqep = Self {
            header: common.marked(Self::marks(wants_answer))?,
            count: octets[field::COUNT],
            wants_answer,
            state_number: octets[field::CQEP_STATE],
            state_parts: u16_at(octets, field::LAST.start),
        };
        if is_count(cqep.count, ENTRIES_MAX) { Ok(cqep) } else { Err(Malformed::Field) }
    }

    pub(super) const fn payload_len(&self) -> usize {
        cqep_len_of(self.count)
    }

    /// Reads from an opened payload the places below which F has taken all. `None` if it is too
    /// short to say so.
    #[must_use]
    pub fn taken(payload: &[u8]) -> Option<Taken> {
        payload.first_chunk().copied().map(Taken::from_octets)
    }

    /// The CQEs of an opened payload, in order.
    pub fn cqes(payload: &[u8]) -> impl Iterator<Item = Result<Cqe, Malformed>> {
        payload.get(TAKEN_LEN..).unwrap_or_default().as_chunks().0.iter().map(Cqe::parse)
    }
}

/// The meaning of the header of an EA of Z: which frames of F were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EaOfZ {
    /// The common header.
    pub header: Header,
    /// How many frames it answers: 1 to [`ANSWERED_MAX`].
    pub count: u8,
    /// For how long the first of them waited at Z before it was taken, in microseconds: 65,535 of
    /// longer.
    pub delay_micros: u16,
}

impl EaOfZ {
    /// Writes the header. Payload and tag are the caller's to write.
    pub fn emit(&self, out: &mut [u8; WORK_HEADER_LEN]) {
        begin(&self.header, FrameType::Ea, Marks::of(Side::Stateless), out);
        out[field::COUNT] = self.count;
        out[field::SHORT_RESERVED] = 0;
        out[field::LAST].copy_from_slice(&self.delay_micros.to_be_bytes());
    }

    //= star#III-B-ea
    pub(super) fn parse(
        common: &Common,
        octets: &[u8; WORK_HEADER_LEN],
    ) -> Result<Self, Malformed> {
        let header = common.marked(Marks::of(Side::Stateless))?;
        let count = octets[field::COUNT];
        let delay_micros = u16_at(octets, field::LAST.start);
        let defined = is_count(count, ANSWERED_MAX) && octets[field::SHORT_RESERVED] == 0;
        if defined { Ok(Self { header, count, delay_micros }) } else { Err(Malformed::Field) }
    }

    pub(super) const fn payload_len(&self) -> usize {
        self.count as usize * EA_ENTRY_LEN
    }

    /// The entries of an opened payload, in order.
    pub fn entries(payload: &[u8]) -> impl Iterator<Item = Result<EaEntry, Malformed>> {
        payload.as_chunks().0.iter().map(EaEntry::parse)
    }
}

/// Z's answer about one frame of F.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EaEntry {
    /// The frame's counter. Its engine is F's for this connection.
    pub counter: u64,
    /// Of a CQEP, which of its CQEs were taken, or had been before: a bit each, the first is the
    /// lowest. Of any other frame 0.
    pub taken: u32,
    /// The answer to that frame.
    pub answer: Answer,
}

impl EaEntry {
    /// Writes every octet of it.
    pub fn emit(&self, out: &mut [u8; EA_ENTRY_LEN]) {
        out[field::ENTRY_COUNTER].copy_from_slice(&self.counter.to_be_bytes());
        out[field::ENTRY_TAKEN].copy_from_slice(&self.taken.to_be_bytes());
        out[field::ENTRY_RESULT] = self.answer as u8;
        out[field::ENTRY_RESERVED].fill(0);
    }

    fn parse(octets: &[u8; EA_ENTRY_LEN]) -> Result<Self, Malformed> {
        let answer = Answer::from_code(octets[field::ENTRY_RESULT]).ok_or(Malformed::Field)?;
        if octets[field::ENTRY_RESERVED] != [0; 3] {
            return Err(Malformed::Field);
        }
        let counter = u64_at(octets, field::ENTRY_COUNTER.start);
        Ok(Self { counter, taken: u32_at(octets, field::ENTRY_TAKEN.start), answer })
    }
}

/// The meaning of the header of an EA of F: all that F has taken of this connection, not what this
/// frame answers. Nobody at Z would know what a counter stood for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EaOfF {
    /// The common header.
    pub header: Header,
    /// The number of the last STATE of Z that F has had a part of, and took. 0 if none.
    pub state_number: u8,
    /// The parts of it that F has taken: all below this. 0 if none.
    pub state_parts: u16,
}

impl EaOfF {
    /// Writes the header. Payload and tag are the caller's to write.
    pub fn emit(&self, out: &mut [u8; WORK_HEADER_LEN]) {
        begin(&self.header, FrameType::Ea, Marks::of(Side::Stateful), out);
        out[field::COUNT] = self.state_number;
        out[field::SHORT_RESERVED] = 0;
        out[field::LAST].copy_from_slice(&self.state_parts.to_be_bytes());
    }

    //= star#III-B-ea
    pub(super) fn parse(
        common: &Common,
        octets: &[u8; WORK_HEADER_LEN],
    ) -> Result<Self, Malformed> {
        let header = common.marked(Marks::of(Side::Stateful))?;
        if octets[field::SHORT_RESERVED] != 0 {
            return Err(Malformed::Field);
        }
        let state_parts = u16_at(octets, field::LAST.start);
        Ok(Self { header, state_number: octets[field::COUNT], state_parts })
    }
}

const fn wqep_len_of(count: u8, inline_len: u16) -> usize {
    count as usize * WQE_LEN + inline_len as usize
}

const fn cqep_len_of(count: u8) -> usize {
    TAKEN_LEN + count as usize * CQE_LEN
}

/// Octets of the payload that such a header tells of, whatever else is in it; as the next two.
pub(super) fn wqep_payload_len(octets: &[u8; WORK_HEADER_LEN]) -> usize {
    wqep_len_of(octets[field::COUNT], u16_at(octets, field::LAST.start))
}

pub(super) fn cqep_payload_len(octets: &[u8; WORK_HEADER_LEN]) -> usize {
    cqep_len_of(octets[field::COUNT])
}

pub(super) fn ea_of_z_payload_len(octets: &[u8; WORK_HEADER_LEN]) -> usize {
    usize::from(octets[field::COUNT]) * EA_ENTRY_LEN
}

fn begin(header: &Header, frame_type: FrameType, marks: Marks, out: &mut [u8; WORK_HEADER_LEN]) {
    let common = out.first_chunk_mut().expect("longer than the common header");
    common::emit(header, frame_type, marks, common);
}

fn is_count(count: u8, max: u8) -> bool {
    (1..=max).contains(&count)
}
