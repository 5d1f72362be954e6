//! The frames of StaR, octet by octet. Normative text: `docs/STAR-WIRE.md`.
//!
//! A frame of the right length and type, whose fields have defined values, is [`Claimed`]: it says
//! nothing about who sent it. What a side believes is made from claims only after the frame's tag
//! has been checked.
//!
//! Every frame is a header in clear, a payload that is encrypted (most have one), and a tag. All
//! integers are big-endian. Every frame tells its own length, and which side sent it: of packets of
//! several frames see [`rma_core::packet`]. Nothing that is received makes anything here panic.

mod answer;
pub mod common;
pub mod data;
pub mod entries;
pub mod state;
pub mod switch;
pub mod told;
pub mod work;

pub use answer::Answer;
pub use common::{FrameType, HEADER_LEN, Header, KeyPhase, VERSION};
pub use data::{ChunkAnswer, Gd, Gda, Guide, Rd, Rda};
pub use entries::{Cqe, Wqe, WqeKind};
pub use state::{State, StateKind};
pub use switch::Switch;
pub use told::{Initial, Rule};
pub use work::{Cqep, EaEntry, EaOfF, EaOfZ, Wqep};

use common::{Common, frame_type_of};
use data::{GDA_HEADER_LEN, GUIDE_HEADER_LEN, RDA_HEADER_LEN};
use entries::WQE_LEN;
use rma_core::{
    crypto::Iv,
    error::DropReason,
    limits::{GRANULE, TAG_LEN},
};
use state::STATE_HEADER_LEN;
use work::{TAKEN_LEN, WORK_HEADER_LEN};

use crate::{
    error::Malformed,
    keys::{Binding, KeyMessage},
    limits::{CHUNK_LEN_MAX, ENTRIES_MAX, INLINE_MAX, STATE_LEN_MAX},
    names::{MrId, MrName, Qpn, Side},
};

/// Octets of the longest header: an RD's and a GD's.
pub const HEADER_LEN_MAX: usize = GUIDE_HEADER_LEN;

/// The length of the longest frame: an RD with the longest chunk.
pub const FRAME_LEN_MAX: usize = GUIDE_HEADER_LEN + CHUNK_LEN_MAX as usize + TAG_LEN;

/// The length of a frame that any message can be carried by: an RD with one granule. A path that
/// cannot carry it carries no StaR.
pub const FRAME_LEN_MIN: usize = GUIDE_HEADER_LEN + GRANULE as usize + TAG_LEN;

const _: () = assert!(
    WORK_HEADER_LEN + ENTRIES_MAX as usize * (WQE_LEN + INLINE_MAX)
        < GUIDE_HEADER_LEN + CHUNK_LEN_MAX as usize
        && STATE_HEADER_LEN + STATE_LEN_MAX as usize <= GUIDE_HEADER_LEN + CHUNK_LEN_MAX as usize,
    "no frame is longer than the longest RD"
);
const _: () = assert!(WORK_HEADER_LEN + WQE_LEN + TAG_LEN <= FRAME_LEN_MIN, "a path carries a WQE");

/// The claims of a frame. None of them has been authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed<T>(T);

impl<T: Copy> Claimed<T> {
    /// The claims. To be believed only after the frame's tag has been checked.
    #[must_use]
    #[inline]
    pub const fn claims(&self) -> T {
        self.0
    }
}

/// A frame whose header makes sense.
//= star#III-B-seven-types
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameView {
    /// Z posts WQEs at F.
    Wqep(Claimed<Wqep>),
    /// F tells Z that WQEs are complete.
    Cqep(Claimed<Cqep>),
    /// Z has taken frames of F.
    EaOfZ(Claimed<EaOfZ>),
    /// F has taken what Z posted.
    EaOfF(Claimed<EaOfF>),
    /// F brings data to Z.
    Rd(Claimed<Rd>),
    /// Z has taken an RD.
    Rda(Claimed<Rda>),
    /// F asks Z for data.
    Gd(Claimed<Gd>),
    /// Z gives the data.
    Gda(Claimed<Gda>),
    /// State of the connection.
    State(Claimed<State>),
}

impl FrameView {
    /// Looks at a received frame.
    ///
    /// # Errors
    /// The reason why the frame is not one that this version defines. Never panics, whatever the
    /// octets.
    pub fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        let common = Common::parse(frame)?;
        let sender = common.marks.sender;
        let view = match common.frame_type {
            FrameType::Wqep => Self::Wqep(Claimed(Wqep::parse(&common, header_of(frame)?)?)),
            FrameType::Cqep => Self::Cqep(Claimed(Cqep::parse(&common, header_of(frame)?)?)),
            FrameType::Ea if sender == Side::Stateless => {
                Self::EaOfZ(Claimed(EaOfZ::parse(&common, header_of(frame)?)?))
            }
            FrameType::Ea => Self::EaOfF(Claimed(EaOfF::parse(&common, header_of(frame)?)?)),
            FrameType::Rd => Self::Rd(Claimed(Rd::parse(&common, header_of(frame)?)?)),
            FrameType::Rda => Self::Rda(Claimed(Rda::parse(&common, header_of(frame)?)?)),
            FrameType::Gd => Self::Gd(Claimed(Gd::parse(&common, header_of(frame)?)?)),
            FrameType::Gda => Self::Gda(Claimed(Gda::parse(&common, header_of(frame)?)?)),
            FrameType::State => Self::State(Claimed(State::parse(&common, header_of(frame)?)?)),
        };
        if frame.len() == view.len() { Ok(view) } else { Err(Malformed::Length) }
    }

    /// The common header that the frame claims.
    #[must_use]
    #[inline]
    pub const fn header(&self) -> &Header {
        match self {
            Self::Wqep(it) => &it.0.header,
            Self::Cqep(it) => &it.0.header,
            Self::EaOfZ(it) => &it.0.header,
            Self::EaOfF(it) => &it.0.header,
            Self::Rd(it) => &it.0.guide.header,
            Self::Rda(it) => &it.0.0.header,
            Self::Gd(it) => &it.0.guide.header,
            Self::Gda(it) => &it.0.answer.header,
            Self::State(it) => &it.0.header,
        }
    }

    /// The side that claims to have sent it. A side takes the other's frames only.
    #[must_use]
    #[inline]
    pub const fn sender(&self) -> Side {
        match self {
            Self::Wqep(_) | Self::EaOfZ(_) | Self::Rda(_) | Self::Gda(_) => Side::Stateless,
            Self::Cqep(_) | Self::EaOfF(_) | Self::Rd(_) | Self::Gd(_) => Side::Stateful,
            Self::State(it) => it.0.sender,
        }
    }

    /// The IV that it claims to be sealed with.
    #[must_use]
    #[inline]
    pub const fn iv(&self) -> Iv {
        self.header().iv(self.sender())
    }

    /// Octets of its header.
    #[must_use]
    #[inline]
    pub const fn header_len(&self) -> usize {
        match self {
            Self::Wqep(_) | Self::Cqep(_) | Self::EaOfZ(_) | Self::EaOfF(_) => WORK_HEADER_LEN,
            Self::Rd(_) | Self::Gd(_) => GUIDE_HEADER_LEN,
            Self::Rda(_) => RDA_HEADER_LEN,
            Self::Gda(_) => GDA_HEADER_LEN,
            Self::State(_) => STATE_HEADER_LEN,
        }
    }

    /// Octets of its payload, between header and tag.
    #[must_use]
    #[inline]
    pub const fn payload_len(&self) -> usize {
        match self {
            Self::Wqep(it) => it.0.payload_len(),
            Self::Cqep(it) => it.0.payload_len(),
            Self::EaOfZ(it) => it.0.payload_len(),
            Self::EaOfF(_) => TAKEN_LEN,
            Self::Rd(it) => it.0.guide.chunk_len as usize,
            Self::Gda(it) => it.0.chunk_len as usize,
            Self::State(it) => it.0.payload_len as usize,
            Self::Rda(_) | Self::Gd(_) => 0,
        }
    }

    const fn len(&self) -> usize {
        self.header_len() + self.payload_len() + TAG_LEN
    }

    /// Returns the message that the frame's key is derived from, as far as its header tells: all
    /// that Z needs to open what comes to it. `None` of an RDA and a GDA, which are under the key
    /// of what they answer, and of what two stateful sides send each other. `name_of` tells the
    /// name of a memory region of Z.
    #[must_use]
    pub fn key_message(
        &self,
        binding: &Binding,
        name_of: impl FnOnce(MrId) -> MrName,
    ) -> Option<KeyMessage> {
        match self {
            Self::Wqep(_) | Self::Cqep(_) | Self::EaOfZ(_) | Self::EaOfF(_) | Self::State(_) => {
                Some(KeyMessage::of_connection(binding))
            }
            Self::Rd(it) => it.0.guide.key_message(binding, name_of),
            Self::Gd(it) => it.0.guide.key_message(binding, name_of),
            Self::Rda(_) | Self::Gda(_) => None,
        }
    }
}

/// The first `LEN` octets of a frame.
fn header_of<const LEN: usize>(frame: &[u8]) -> Result<&[u8; LEN], Malformed> {
    frame.first_chunk().ok_or(Malformed::Length)
}

/// How long the frame is that `octets` begin with, whatever is behind it.
///
/// # Errors
/// The reason why there is no such frame: it is of another version, or of no type that this version
/// has, or there are fewer octets than it says. Never panics, whatever the octets.
#[inline]
pub fn frame_len(octets: &[u8]) -> Result<usize, DropReason> {
    Ok(told_len(octets)?)
}

/// The queue pair that the frame `octets` is for, by what it claims: that of the side which has not
/// sent it. In RC, where both sides are stateful, that is of the half that the frame is of. `None`
/// if it is no frame of this version.
#[must_use]
#[inline]
pub fn destination_of(octets: &[u8]) -> Option<Qpn> {
    let head: &[u8; HEADER_LEN] = octets.first_chunk()?;
    frame_type_of(head).ok()?;
    Some(common::destination_of(head))
}

fn told_len(octets: &[u8]) -> Result<usize, Malformed> {
    let head: &[u8; HEADER_LEN] = header_of(octets)?;
    let frame_type = frame_type_of(head)?;
    let (header_len, payload_len) = match frame_type {
        FrameType::Wqep => (WORK_HEADER_LEN, work::wqep_payload_len(header_of(octets)?)),
        FrameType::Cqep => (WORK_HEADER_LEN, work::cqep_payload_len(header_of(octets)?)),
        FrameType::Ea if common::sender_of(head) == Side::Stateless => {
            (WORK_HEADER_LEN, work::ea_of_z_payload_len(header_of(octets)?))
        }
        FrameType::Ea => (WORK_HEADER_LEN, TAKEN_LEN),
        FrameType::Rd => (GUIDE_HEADER_LEN, data::rd_payload_len(header_of(octets)?)),
        FrameType::Rda => (RDA_HEADER_LEN, 0),
        FrameType::Gd => (GUIDE_HEADER_LEN, 0),
        FrameType::Gda => (GDA_HEADER_LEN, data::gda_payload_len(header_of(octets)?)),
        FrameType::State => (STATE_HEADER_LEN, state::payload_len(header_of(octets)?)),
    };
    let len = header_len + payload_len + TAG_LEN;
    if len > octets.len() { Err(Malformed::Length) } else { Ok(len) }
}

#[cfg(test)]
mod tests;
