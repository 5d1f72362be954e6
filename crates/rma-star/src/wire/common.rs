//! The header that all frames begin with.
//!
//! ```text
//!  0               1               2               3
//! +---------------+---------------+---------------+---------------+
//! |    version    |  frame type   |     flags     |   reserved    |
//! +---------------+---------------+---------------+---------------+
//! |                            PD of Z                            |
//! +---------------------------------------------------------------+
//! |                           QPN of Z                            |
//! +---------------------------------------------------------------+
//! |                           QPN of F                            |
//! +---------------------------------------------------------------+
//! |                       connection nonce                        |
//! +-------------------------------+-------------------------------+
//! |              era              |           engine id           |
//! +-------------------------------+-------------------------------+
//! |                            counter                            |
//! |                                                               |
//! +---------------------------------------------------------------+
//! |                             time                              |
//! +---------------------------------------------------------------+
//! ```
//!
//! The flags, from the high bit: op (2 bits), A, C, key phase, Z, 2 reserved bits of 0.

use rma_core::crypto::{EngineId, Iv};

use crate::{
    clock::Time32,
    error::Malformed,
    names::{ConnectionName, Era, Nonce, PdId, Qpn, Side},
    octets::{u16_at, u32_at, u64_at},
    verbs::WqeOp,
};

mod field {
    use core::ops::Range;

    pub(super) const VERSION: usize = 0;
    pub(super) const FRAME_TYPE: usize = 1;
    pub(super) const FLAGS: usize = 2;
    pub(super) const OCTET_RESERVED: usize = 3;
    pub(super) const PD: Range<usize> = 4..8;
    pub(super) const QPN_Z: Range<usize> = PD.end..12;
    pub(super) const QPN_F: Range<usize> = QPN_Z.end..16;
    pub(super) const NONCE: Range<usize> = QPN_F.end..20;
    pub(super) const ERA: Range<usize> = NONCE.end..22;
    pub(super) const ENGINE: Range<usize> = ERA.end..24;
    pub(super) const COUNTER: Range<usize> = ENGINE.end..32;
    pub(super) const TIME: Range<usize> = COUNTER.end..36;
}

/// Bits of the flags octet.
mod flag {
    pub(super) const OP_SHIFT: u32 = 6;
    pub(super) const WANTS_ANSWER: u8 = 1 << 5;
    pub(super) const COMPLETES: u8 = 1 << 4;
    pub(super) const ODD_PHASE: u8 = 1 << 3;
    pub(super) const FROM_Z: u8 = 1 << 2;
    pub(super) const RESERVED: u8 = 0b11;
}

/// Octets of the common header.
pub const HEADER_LEN: usize = field::TIME.end;

/// The version of the wire format that this crate speaks.
pub const VERSION: u8 = 1;

/// The purpose of a frame (the paper's PTYPE). No type is one of 1RMA's, so a frame that comes to
/// the wrong port is none.
//= star#III-B-seven-types
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameType {
    /// Z posts WQEs at F.
    Wqep = 0x21,
    /// F tells Z that WQEs are complete.
    Cqep = 0x22,
    /// An event was taken: a WQEP by F, a CQEP, STATE or RD by Z.
    Ea = 0x23,
    /// F brings data to Z.
    Rd = 0x24,
    /// Z has taken an RD.
    Rda = 0x25,
    /// F asks Z for data.
    Gd = 0x26,
    /// Z gives the data that a GD asked for.
    Gda = 0x27,
    /// State of a connection goes to the other side (the paper's M).
    State = 0x28,
}

impl FrameType {
    /// All types, in the order of their codes.
    pub const ALL: [Self; 8] =
        [Self::Wqep, Self::Cqep, Self::Ea, Self::Rd, Self::Rda, Self::Gd, Self::Gda, Self::State];

    #[inline]
    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code.checked_sub(Self::Wqep as u8)?)).copied()
    }
}

/// The phase of the K_p that a frame's key was derived under: the one in use, and the one before it
/// or after it, change places at each rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyPhase {
    /// The first K_p, the third, and so on.
    Even,
    /// The others.
    Odd,
}

//= star#IV-A-format
/// The meaning of the common header. Type and flags belong to the frames that begin with it, all
/// but the phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The connection of the frame.
    pub connection: ConnectionName,
    /// The phase of the K_p.
    pub phase: KeyPhase,
    /// The engine that sealed this frame; with the frame's direction, the sender part of its IV.
    pub engine: EngineId,
    /// The counter part of the frame's IV.
    pub counter: u64,
    /// To Z: when the frame expires. From Z: its clock when it was sealed.
    pub time: Time32,
}

impl Header {
    /// The IV of the frame that this header begins, sent by `sender`.
    #[must_use]
    pub const fn iv(&self, sender: Side) -> Iv {
        Iv::new(sender.direction(), self.engine, self.counter)
    }
}

/// The further flags of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) sender: Side,
    pub(super) op: WqeOp,
    pub(super) wants_answer: bool,
    pub(super) completes: bool,
}

impl Marks {
    /// Those of a frame of `sender` that is about no op in particular. Their op is written as 0.
    pub(super) const fn of(sender: Side) -> Self {
        Self { sender, op: WqeOp::Send, wants_answer: false, completes: false }
    }

    /// The same, of a frame that is always answered.
    pub(super) const fn answered(self) -> Self {
        Self { wants_answer: true, ..self }
    }
}

/// Writes every octet of the common header, so that a reused buffer leaks nothing.
pub(super) fn emit(
    header: &Header,
    frame_type: FrameType,
    marks: Marks,
    out: &mut [u8; HEADER_LEN],
) {
    let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
    let connection = &header.connection;
    out[field::VERSION] = VERSION;
    out[field::FRAME_TYPE] = frame_type as u8;
    out[field::FLAGS] = marks.op.code() << flag::OP_SHIFT
        | bit(marks.wants_answer, flag::WANTS_ANSWER)
        | bit(marks.completes, flag::COMPLETES)
        | bit(header.phase == KeyPhase::Odd, flag::ODD_PHASE)
        | bit(marks.sender == Side::Stateless, flag::FROM_Z);
    out[field::OCTET_RESERVED] = 0;
    out[field::PD].copy_from_slice(&connection.pd.0.to_be_bytes());
    out[field::QPN_Z].copy_from_slice(&connection.qpn_z.to_bits().to_be_bytes());
    out[field::QPN_F].copy_from_slice(&connection.qpn_f.to_bits().to_be_bytes());
    out[field::NONCE].copy_from_slice(&connection.nonce.0.to_be_bytes());
    out[field::ERA].copy_from_slice(&connection.era.0.to_be_bytes());
    out[field::ENGINE].copy_from_slice(&header.engine.0.to_be_bytes());
    out[field::COUNTER].copy_from_slice(&header.counter.to_be_bytes());
    out[field::TIME].copy_from_slice(&header.time.0.to_be_bytes());
}

/// A common header whose fields have defined values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Common {
    pub(super) frame_type: FrameType,
    pub(super) marks: Marks,
    pub(super) header: Header,
}

impl Common {
    pub(super) fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        let octets: &[u8; HEADER_LEN] = frame.first_chunk().ok_or(Malformed::Length)?;
        let frame_type = frame_type_of(octets)?;
        let flags = octets[field::FLAGS];
        let is_set = |bit: u8| flags & bit != 0;
        let marks = Marks {
            sender: sender_of(octets),
            op: WqeOp::from_code(flags >> flag::OP_SHIFT).ok_or(Malformed::Field)?,
            wants_answer: is_set(flag::WANTS_ANSWER),
            completes: is_set(flag::COMPLETES),
        };
        let connection = ConnectionName {
            pd: PdId(u32_at(octets, field::PD.start)),
            qpn_z: Qpn::from_bits(u32_at(octets, field::QPN_Z.start)),
            qpn_f: Qpn::from_bits(u32_at(octets, field::QPN_F.start)),
            nonce: Nonce(u32_at(octets, field::NONCE.start)),
            era: Era(u16_at(octets, field::ERA.start)),
        };
        let header = Header {
            connection,
            phase: if is_set(flag::ODD_PHASE) { KeyPhase::Odd } else { KeyPhase::Even },
            engine: EngineId(u16_at(octets, field::ENGINE.start)),
            counter: u64_at(octets, field::COUNTER.start),
            time: Time32(u32_at(octets, field::TIME.start)),
        };
        if is_set(flag::RESERVED) || octets[field::OCTET_RESERVED] != 0 {
            return Err(Malformed::Field);
        }
        Ok(Self { frame_type, marks, header })
    }

    /// The header, if the frame has just these marks.
    //= star#ours-no-field-ignored
    pub(super) fn marked(&self, marks: Marks) -> Result<Header, Malformed> {
        if self.marks == marks { Ok(self.header) } else { Err(Malformed::Field) }
    }
}

/// The side that sent the frame that `octets` begin.
#[inline]
pub(super) const fn sender_of(octets: &[u8; HEADER_LEN]) -> Side {
    if octets[field::FLAGS] & flag::FROM_Z != 0 { Side::Stateless } else { Side::Stateful }
}

/// The queue pair of the side that the frame which `octets` begin is for.
#[inline]
pub(super) fn destination_of(octets: &[u8; HEADER_LEN]) -> Qpn {
    let at = match sender_of(octets) {
        Side::Stateless => field::QPN_F,
        Side::Stateful => field::QPN_Z,
    };
    Qpn::from_bits(u32_at(octets, at.start))
}

/// The type of the frame that `octets` begin.
#[inline]
pub(super) fn frame_type_of(octets: &[u8; HEADER_LEN]) -> Result<FrameType, Malformed> {
    if octets[field::VERSION] != VERSION {
        return Err(Malformed::Version);
    }
    FrameType::from_code(octets[field::FRAME_TYPE]).ok_or(Malformed::FrameType)
}
