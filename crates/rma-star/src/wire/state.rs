//! Frames about the connection itself: STATE (the paper's M, §III-C1). A part of what is told
//! follows, encrypted under K_c:
//!
//! ```text
//! +-------------------------------+-------------------------------+
//! |             part              |              of               |
//! +---------------+---------------+-------------------------------+
//! |     kind      |    number     |        payload length         |
//! +---------------+---------------+-------------------------------+
//! ```

use core::ops::Range;

use rma_core::limits::TAG_LEN;

use super::common::{self, Common, FrameType, HEADER_LEN, Header, Marks};
use crate::{
    error::Malformed,
    limits::{STATE_LEN_MAX, STATE_LEN_MIN},
    names::Side,
    octets::u16_at,
};

mod field {
    use super::{HEADER_LEN, Range};

    pub(super) const PART: Range<usize> = HEADER_LEN..HEADER_LEN + 2;
    pub(super) const OF: Range<usize> = PART.end..PART.end + 2;
    pub(super) const KIND: usize = OF.end;
    pub(super) const NUMBER: usize = KIND + 1;
    pub(super) const PAYLOAD_LEN: Range<usize> = NUMBER + 1..NUMBER + 3;
}

/// Octets of a STATE's header.
pub const STATE_HEADER_LEN: usize = field::PAYLOAD_LEN.end;

const _: () = assert!(
    super::work::EA_OF_Z_LEN_MIN < STATE_HEADER_LEN + STATE_LEN_MIN as usize + TAG_LEN,
    "an acknowledgement is shorter than what it answers"
);
/// The kind of a STATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum StateKind {
    /// The facts about Z that F must know to begin.
    Initial = 1,
    /// MRs and MWs of Z that are shared with F, with their K_m, or no longer are.
    Rules = 2,
    /// F asks for the rule of an MR or MW.
    Ask = 3,
    /// The roles are to change, or Z's answer to that.
    Switch = 4,
    /// All that F knows of the connection.
    Transfer = 5,
    /// The roles have changed.
    Commit = 6,
    /// The roles will not change.
    Abort = 7,
    /// Its sender has ended the connection.
    Close = 8,
}

impl StateKind {
    /// All kinds, in the order of their codes, of which the first is 1.
    pub const ALL: [Self; 8] = [
        Self::Initial,
        Self::Rules,
        Self::Ask,
        Self::Switch,
        Self::Transfer,
        Self::Commit,
        Self::Abort,
        Self::Close,
    ];

    /// The kind of this code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code.checked_sub(1)?)).copied()
    }
}

/// The meaning of a STATE's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The common header.
    pub header: Header,
    /// The side that sends it. Z tells by an EA what it has taken of F's, and F of Z's.
    pub sender: Side,
    /// The kind of state.
    pub kind: StateKind,
    /// The number of the STATE among its sender's, counted modulo 2^8: one is under way at a time.
    pub number: u8,
    /// The number of the part: below `of`.
    pub part: u16,
    /// How many parts there are: at least 1.
    pub of: u16,
    /// Octets of this part: [`STATE_LEN_MIN`] to [`STATE_LEN_MAX`].
    pub payload_len: u16,
}

impl State {
    /// Of one part, which is this payload. Writes that behind the place of the header, and returns
    /// the header's octets.
    pub(crate) fn write_whole(
        header: Header,
        sender: Side,
        kind: StateKind,
        number: u8,
        payload: &[u8],
        out: &mut [u8],
    ) -> [u8; STATE_HEADER_LEN] {
        let payload_len = payload.len() as u16;
        let mut octets = [0; STATE_HEADER_LEN];
        Self { header, sender, kind, number, part: 0, of: 1, payload_len }.emit(&mut octets);
        out[STATE_HEADER_LEN..][..payload.len()].copy_from_slice(payload);
        octets
    }

    /// Writes the header. Payload and tag are the caller's to write.
    pub fn emit(&self, out: &mut [u8; STATE_HEADER_LEN]) {
        let common = out.first_chunk_mut().expect("longer than the common header");
        let marks = Marks::of(self.sender).answered();
        common::emit(&self.header, FrameType::State, marks, common);
        out[field::PART].copy_from_slice(&self.part.to_be_bytes());
        out[field::OF].copy_from_slice(&self.of.to_be_bytes());
        out[field::KIND] = self.kind as u8;
        out[field::NUMBER] = self.number;
        out[field::PAYLOAD_LEN].copy_from_slice(&self.payload_len.to_be_bytes());
    }

    //= star#III-C1-state
    pub(super) fn parse(
        common: &Common,
        octets: &[u8; STATE_HEADER_LEN],
    ) -> Result<Self, Malformed> {
        let sender = common.marks.sender;
        let state = Self {
            header: common.marked(Marks::of(sender).answered())?,
            sender,
            kind: StateKind::from_code(octets[field::KIND]).ok_or(Malformed::Field)?,
            number: octets[field::NUMBER],
            part: u16_at(octets, field::PART.start),
            of: u16_at(octets, field::OF.start),
            payload_len: u16_at(octets, field::PAYLOAD_LEN.start),
        };
        let defined =
            state.part < state.of && (STATE_LEN_MIN..=STATE_LEN_MAX).contains(&state.payload_len);
        if defined { Ok(state) } else { Err(Malformed::Field) }
    }
}

/// Octets of the payload that a STATE's header tells of, whatever else is in it.
pub(super) fn payload_len(octets: &[u8; STATE_HEADER_LEN]) -> usize {
    u16_at(octets, field::PAYLOAD_LEN.start).into()
}
