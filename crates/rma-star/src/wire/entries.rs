//! The entries of WQEPs and CQEPs: work queue elements and completion queue elements, as they
//! travel between Z and F.
//!
//! A [`Wqe`] is a work request of Z that F carries out, a [`Cqe`] tells Z how one of them ended.
//! Both travel encrypted under K_c, and are believed no more than their sender is: their fields
//! are checked when they are read, and never make a reader panic.

use crate::{
    error::Malformed,
    keys::{FrameKey, KEY_LEN, OpenSpan},
    limits::{INLINE_MAX, MESSAGE_LEN_MAX},
    names::{Generation, MrId, Sequence, Slot},
    octets::{u16_at, u32_at, u64_at},
    verbs::{WcStatus, WqeOp},
};

mod field {
    use core::ops::Range;

    pub(super) const SLOT: Range<usize> = 0..4;
    pub(super) const GENERATION: Range<usize> = SLOT.end..8;
    pub(super) const SEQUENCE: Range<usize> = GENERATION.end..12;

    pub(super) const WQE_OP: usize = SEQUENCE.end;
    pub(super) const WQE_FLAGS: usize = WQE_OP + 1;
    pub(super) const OPEN_BEFORE: Range<usize> = WQE_FLAGS + 1..16;
    pub(super) const MR: Range<usize> = OPEN_BEFORE.end..20;
    pub(super) const LEN: Range<usize> = MR.end..24;
    pub(super) const MR_OFFSET: Range<usize> = LEN.end..32;
    pub(super) const REMOTE_OFFSET: Range<usize> = MR_OFFSET.end..40;
    pub(super) const REMOTE_MR: Range<usize> = REMOTE_OFFSET.end..44;
    pub(super) const WQE_IMMEDIATE: Range<usize> = REMOTE_MR.end..48;
    pub(super) const KEY: Range<usize> = WQE_IMMEDIATE.end..64;

    pub(super) const BYTE_LEN: Range<usize> = SEQUENCE.end..16;
    pub(super) const STATUS: usize = BYTE_LEN.end;
    pub(super) const CQE_OP: usize = STATUS + 1;
    pub(super) const CQE_FLAGS: usize = CQE_OP + 1;
    pub(super) const CQE_RESERVED: usize = CQE_FLAGS + 1;
    pub(super) const CQE_IMMEDIATE: Range<usize> = CQE_RESERVED + 1..24;
}

/// Bits of the flags of a WQE and of a CQE.
mod flag {
    pub(super) const IMMEDIATE: u8 = 1;
    /// Of a WQE.
    pub(super) const INLINE: u8 = 2;
    /// Of a CQE.
    pub(super) const OF_WRITE: u8 = 2;
}

/// Octets of a WQE.
pub const WQE_LEN: usize = field::KEY.end;

/// Octets of a CQE.
pub const CQE_LEN: usize = field::CQE_IMMEDIATE.end;

/// The request of one of Z's WQEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WqeKind {
    /// To move data.
    Transfer(WqeOp),
    /// To change the roles of the two sides (ours). No data, no MR, no completion.
    Switch,
}

impl WqeKind {
    const SWITCH: u8 = 4;

    const fn code(self) -> u8 {
        match self {
            Self::Transfer(op) => op.code(),
            Self::Switch => Self::SWITCH,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        if code == Self::SWITCH {
            Some(Self::Switch)
        } else {
            WqeOp::from_code(code).map(Self::Transfer)
        }
    }
}

/// A work request of Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wqe {
    /// Its slot at Z: never [`Slot::NONE`].
    pub slot: Slot,
    /// The use of the slot.
    pub generation: Generation,
    /// Its place in its queue.
    pub sequence: Sequence,
    /// How many there are before it in its queue, back to the oldest that Z has no completion of:
    /// Z has those of all that are older, and no EA need say so (ours). 0 of a SWITCH.
    pub open_before: u16,
    /// The kind of work.
    pub kind: WqeKind,
    /// Z's memory: where data lands, or comes from.
    pub mr: MrId,
    /// The offset in `mr` at which it begins, in octets.
    pub mr_offset: u64,
    /// How long it is, in octets: 0 to [`MESSAGE_LEN_MAX`].
    pub len: u32,
    /// F's memory, of a READ or WRITE: its MR or MW. 0 of all others.
    pub remote_mr: MrId,
    /// The offset in `remote_mr` at which it begins, in octets. 0 of all others.
    pub remote_offset: u64,
    /// The immediate with the data of a SEND or WRITE, which completes a RECV of F.
    pub immediate: Option<u32>,
    /// Whether the data of a SEND or WRITE is in the WQEP that this WQE is in. Then `len` is at
    /// most [`INLINE_MAX`].
    pub is_inline: bool,
    /// K_w: what F seals the frames of this WQE under. Zeros of a SWITCH.
    pub key: FrameKey,
}

impl Wqe {
    /// The request to the stateful side for a change of roles (ours). It is no work request, and
    /// takes no place in a queue.
    pub const SWITCH: Self = Self {
        slot: Slot(0),
        generation: Generation(0),
        sequence: Sequence(0),
        open_before: 0,
        kind: WqeKind::Switch,
        mr: MrId(0),
        mr_offset: 0,
        len: 0,
        remote_mr: MrId(0),
        remote_offset: 0,
        immediate: None,
        is_inline: false,
        key: FrameKey::from_bytes([0; KEY_LEN]),
    };

    /// How many octets of inline data it has.
    #[must_use]
    pub const fn inline_len(&self) -> usize {
        if self.is_inline { self.len as usize } else { 0 }
    }

    /// The span that it opens, which its K_w is bound to. `None` of a SWITCH.
    #[must_use]
    pub const fn span(&self) -> Option<OpenSpan> {
        let Self { slot, generation, mr, mr_offset, len, .. } = *self;
        match self.kind {
            WqeKind::Transfer(op) => Some(OpenSpan { op, slot, generation, mr, mr_offset, len }),
            WqeKind::Switch => None,
        }
    }

    /// The oldest of its queue that Z has no completion of.
    #[must_use]
    pub const fn oldest_open(&self) -> Sequence {
        Sequence(self.sequence.0.wrapping_sub(self.open_before as u32))
    }

    /// Writes every octet of it.
    pub fn emit(&self, out: &mut [u8; WQE_LEN]) {
        let immediate = if self.immediate.is_some() { flag::IMMEDIATE } else { 0 };
        let inline = if self.is_inline { flag::INLINE } else { 0 };
        out[field::SLOT].copy_from_slice(&self.slot.0.to_be_bytes());
        out[field::GENERATION].copy_from_slice(&self.generation.0.to_be_bytes());
        out[field::SEQUENCE].copy_from_slice(&self.sequence.0.to_be_bytes());
        out[field::WQE_OP] = self.kind.code();
        out[field::WQE_FLAGS] = immediate | inline;
        out[field::OPEN_BEFORE].copy_from_slice(&self.open_before.to_be_bytes());
        out[field::MR].copy_from_slice(&self.mr.0.to_be_bytes());
        out[field::LEN].copy_from_slice(&self.len.to_be_bytes());
        out[field::MR_OFFSET].copy_from_slice(&self.mr_offset.to_be_bytes());
        out[field::REMOTE_OFFSET].copy_from_slice(&self.remote_offset.to_be_bytes());
        out[field::REMOTE_MR].copy_from_slice(&self.remote_mr.0.to_be_bytes());
        out[field::WQE_IMMEDIATE].copy_from_slice(&self.immediate.unwrap_or(0).to_be_bytes());
        out[field::KEY].copy_from_slice(self.key.expose());
    }

    /// The WQE of these octets.
    ///
    /// # Errors
    /// If a field has a value that is not defined, alone or for the op that this is.
    //= star#III-B-wqep
    pub fn parse(octets: &[u8; WQE_LEN]) -> Result<Self, Malformed> {
        let flags = octets[field::WQE_FLAGS];
        let immediate = u32_at(octets, field::WQE_IMMEDIATE.start);
        let mut key = [0; KEY_LEN];
        key.copy_from_slice(&octets[field::KEY]);
        let wqe = Self {
            slot: Slot(u32_at(octets, field::SLOT.start)),
            generation: Generation(u32_at(octets, field::GENERATION.start)),
            sequence: Sequence(u32_at(octets, field::SEQUENCE.start)),
            open_before: u16_at(octets, field::OPEN_BEFORE.start),
            kind: WqeKind::from_code(octets[field::WQE_OP]).ok_or(Malformed::Field)?,
            mr: MrId(u32_at(octets, field::MR.start)),
            mr_offset: u64_at(octets, field::MR_OFFSET.start),
            len: u32_at(octets, field::LEN.start),
            remote_mr: MrId(u32_at(octets, field::REMOTE_MR.start)),
            remote_offset: u64_at(octets, field::REMOTE_OFFSET.start),
            immediate: (flags & flag::IMMEDIATE != 0).then_some(immediate),
            is_inline: flags & flag::INLINE != 0,
            key: FrameKey::from_bytes(key),
        };
        let defined = flags & !(flag::IMMEDIATE | flag::INLINE) == 0
            && (wqe.immediate.is_some() || immediate == 0)
            && wqe.is_defined();
        if defined { Ok(wqe) } else { Err(Malformed::Field) }
    }

    /// Whether the fields fit each other.
    fn is_defined(&self) -> bool {
        let gives = matches!(self.kind, WqeKind::Transfer(WqeOp::Send | WqeOp::Write));
        let is_remote = matches!(self.kind, WqeKind::Transfer(WqeOp::Write | WqeOp::Read));
        let is_nothing = self.open_before == 0
            && self.mr == MrId(0)
            && self.mr_offset == 0
            && self.len == 0
            && *self.key.expose() == [0; KEY_LEN];
        self.slot != Slot::NONE
            && self.len <= MESSAGE_LEN_MAX
            && self.mr_offset.checked_add(self.len.into()).is_some()
            && (is_remote || (self.remote_mr == MrId(0) && self.remote_offset == 0))
            && self.remote_offset.checked_add(self.len.into()).is_some()
            && (gives || (self.immediate.is_none() && !self.is_inline))
            && (!self.is_inline || self.len as usize <= INLINE_MAX)
            && (self.kind != WqeKind::Switch || is_nothing)
    }
}

/// The end of one of Z's work requests, as F tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cqe {
    /// The WQE's slot. [`Slot::NONE`] of a probe, which asks whether the connection is there, and
    /// of which all but `op` is 0.
    pub slot: Slot,
    /// The use of the slot.
    pub generation: Generation,
    /// Its place in its queue.
    pub sequence: Sequence,
    /// How many octets the message has that a RECV took, or the WRITE. Of all others the WQE's
    /// length.
    pub byte_len: u32,
    /// The status that it ended with.
    pub status: WcStatus,
    /// The op that ended.
    pub op: WqeOp,
    /// The immediate that came with the data: of a RECV only.
    pub immediate: Option<u32>,
    /// Whether a WRITE with an immediate has taken the RECV, and not a message: then nothing is in
    /// the RECV's memory, which may be shorter than `byte_len`. Of a RECV with an immediate only.
    pub is_of_write: bool,
}

impl Cqe {
    /// The question whether a connection is still there; it reports no WQE (ours).
    pub const PROBE: Self = Self {
        slot: Slot::NONE,
        generation: Generation(0),
        sequence: Sequence(0),
        byte_len: 0,
        status: WcStatus::Success,
        op: WqeOp::Send,
        immediate: None,
        is_of_write: false,
    };

    /// Writes every octet of it.
    pub fn emit(&self, out: &mut [u8; CQE_LEN]) {
        out[field::SLOT].copy_from_slice(&self.slot.0.to_be_bytes());
        out[field::GENERATION].copy_from_slice(&self.generation.0.to_be_bytes());
        out[field::SEQUENCE].copy_from_slice(&self.sequence.0.to_be_bytes());
        out[field::BYTE_LEN].copy_from_slice(&self.byte_len.to_be_bytes());
        out[field::STATUS] = self.status.code();
        out[field::CQE_OP] = self.op.code();
        let immediate = if self.immediate.is_some() { flag::IMMEDIATE } else { 0 };
        let of_write = if self.is_of_write { flag::OF_WRITE } else { 0 };
        out[field::CQE_FLAGS] = immediate | of_write;
        out[field::CQE_RESERVED] = 0;
        out[field::CQE_IMMEDIATE].copy_from_slice(&self.immediate.unwrap_or(0).to_be_bytes());
    }

    /// The CQE of these octets.
    ///
    /// # Errors
    /// If a field has a value that is not defined, alone or for the op that this is.
    //= star#III-B-cqep
    pub fn parse(octets: &[u8; CQE_LEN]) -> Result<Self, Malformed> {
        let flags = octets[field::CQE_FLAGS];
        let immediate = u32_at(octets, field::CQE_IMMEDIATE.start);
        let cqe = Self {
            slot: Slot(u32_at(octets, field::SLOT.start)),
            generation: Generation(u32_at(octets, field::GENERATION.start)),
            sequence: Sequence(u32_at(octets, field::SEQUENCE.start)),
            byte_len: u32_at(octets, field::BYTE_LEN.start),
            status: WcStatus::from_code(octets[field::STATUS]).ok_or(Malformed::Field)?,
            op: WqeOp::from_code(octets[field::CQE_OP]).ok_or(Malformed::Field)?,
            immediate: (flags & flag::IMMEDIATE != 0).then_some(immediate),
            is_of_write: flags & flag::OF_WRITE != 0,
        };
        let defined = flags & !(flag::IMMEDIATE | flag::OF_WRITE) == 0
            && octets[field::CQE_RESERVED] == 0
            && (cqe.immediate.is_some() || immediate == 0)
            && (cqe.immediate.is_none() || cqe.op == WqeOp::Recv)
            && (cqe.immediate.is_some() || !cqe.is_of_write)
            && cqe.byte_len <= MESSAGE_LEN_MAX
            && (cqe.slot != Slot::NONE || cqe == Self::PROBE);
        if defined { Ok(cqe) } else { Err(Malformed::Field) }
    }
}
