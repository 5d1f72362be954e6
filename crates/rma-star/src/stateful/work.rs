//! Work requests that the stateful side knows: those of its own applications, and those that Z has
//! told it of (§III-C: it keeps the state of both sides).
//!
//! All six ops are one thing here, a [`Transfer`]: bytes are pushed to Z's memory by RDs, or pulled
//! from it by GDs.

use core::fmt;

use rma_core::{op::Moves, time::Instant};

use crate::{
    clock::ZTime,
    keys::FrameKey,
    limits::INLINE_MAX,
    mr_table::Access,
    names::{Generation, MrId, Side, Slot},
    verbs::{WcStatus, WqeOp},
};

/// The direction of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// To Z, by RDs.
    Push = 0,
    /// From Z, by GDs.
    Pull = 1,
}

impl Way {
    /// The same as congestion control has it, seen from this host.
    pub(super) const fn moves(self) -> Moves {
        match self {
            Self::Push => Moves::Out,
            Self::Pull => Moves::In,
        }
    }
}

/// A place in a memory region or window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) mr: MrId,
    pub(super) offset: u64,
}

/// A work request.
#[derive(Debug)]
pub(super) struct Work {
    /// The row of its connection.
    pub(super) connection: u16,
    /// The side whose application has posted it.
    pub(super) owner: Side,
    /// Its slot at its owner.
    pub(super) slot: u32,
    pub(super) generation: u32,
    /// Its place in its queue.
    pub(super) sequence: u32,
    pub(super) op: WqeOp,
    pub(super) immediate: Option<u32>,
    /// Of a RECV: whether a WRITE with an immediate has taken it.
    pub(super) is_of_write: bool,
    /// The memory of this host.
    pub(super) here: Place,
    /// The memory of Z.
    pub(super) there: Place,
    pub(super) len: u32,
    /// K_w, of one of Z's.
    pub(super) key: FrameKey,
    /// The message, if it came with the work request.
    pub(super) inline: Option<Inline>,
    /// Of one of Z's: when the WQEP was sealed, by Z's clock, and when it came.
    pub(super) told: (ZTime, Instant),
    /// The RECV that a message goes to. Of a RECV whose completion Z is told of: the work request
    /// of this host that is complete when Z has it.
    pub(super) partner: Option<u16>,
    /// In RC, the place of the peer's RECV that a message of this host goes to.
    pub(super) recv: Option<u32>,
    /// The transfer of its data, once that has begun.
    pub(super) transfer: Option<Transfer>,
    /// The status that it ends with: what Z is told in a CQE, and what is reported of one that did
    /// not end well.
    pub(super) status: WcStatus,
    /// How many octets a message has.
    pub(super) byte_len: u32,
}

/// A message that came with its work request.
#[derive(Clone, Copy)]
pub(super) struct Inline(pub(super) [u8; INLINE_MAX]);

impl fmt::Debug for Inline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inline(..)")
    }
}

/// Bytes on their way between this host and Z.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) way: Way,
    /// The op, slot, use and span that its frames name.
    pub(super) op: WqeOp,
    pub(super) slot: Slot,
    pub(super) generation: Generation,
    pub(super) there: Place,
    pub(super) wqe_len: u32,
    /// K_w or K_m.
    pub(super) key: FrameKey,
    /// The memory of this host, and what is done to it.
    pub(super) here: Place,
    pub(super) access: Access,
    /// Octets of the message.
    pub(super) len: u32,
    /// How many of them, from the first, have had a frame.
    pub(super) begun: u32,
    /// Frames that are not answered.
    pub(super) unanswered: u32,
}

impl Transfer {
    /// Whether there is a chunk that has had no frame.
    pub(super) const fn has_left(&self) -> bool {
        self.begun < self.len
    }

    /// The same between two stateful sides (RC): frames name the place of the peer's RECV, if it is
    /// a message that goes to one, or else its memory.
    pub(super) fn of_rc(self, place: Option<u32>) -> Self {
        let transfer = Self { slot: Slot::RC, wqe_len: self.len, ..self };
        match (self.op, place) {
            (WqeOp::Send, Some(place)) => Self {
                op: WqeOp::Recv,
                generation: Generation(place),
                there: Place::default(),
                ..transfer
            },
            _ => transfer,
        }
    }

    /// Whether everything has been answered.
    pub(super) const fn is_done(&self) -> bool {
        !self.has_left() && self.unanswered == 0
    }
}

impl Work {
    /// Whether a RECV of the other side takes part.
    pub(super) const fn needs_recv(&self) -> bool {
        matches!(self.op, WqeOp::Send)
            || (matches!(self.op, WqeOp::Write) && self.immediate.is_some())
    }

    /// Whether it is the only one of its queue that moves (RC's order).
    pub(super) const fn is_exclusive(&self) -> bool {
        !matches!(self.op, WqeOp::Send)
    }

    /// Whether its message is here although it is Z's to give: it was inline, or has no octets.
    pub(super) const fn is_at_hand(&self) -> bool {
        matches!(self.owner, Side::Stateless)
            && matches!(self.op, WqeOp::Send | WqeOp::Write)
            && (self.inline.is_some() || self.len == 0)
    }

    /// Returns the transfer of its data, with `recv` if one takes part and with `key` of the
    /// registry if it is this host's own.
    pub(super) fn transfer_with(&self, recv: Option<&Self>, key: FrameKey) -> Transfer {
        let is_own = matches!(self.owner, Side::Stateful);
        // The side whose slot and span the frames name.
        let (named, way) = match (is_own, self.op) {
            (true, WqeOp::Send) => (recv.unwrap_or(self), Way::Push),
            (true, WqeOp::Write) | (false, WqeOp::Read) => (self, Way::Push),
            _ => (self, Way::Pull),
        };
        let is_message = self.op == WqeOp::Send;
        let access = match (is_own, self.op) {
            (true, WqeOp::Send | WqeOp::Write) => Access::LOCAL_READ,
            (true, _) | (false, WqeOp::Send | WqeOp::Recv) => Access::LOCAL_WRITE,
            (false, WqeOp::Write) => Access::REMOTE_WRITE,
            (false, WqeOp::Read) => Access::REMOTE_READ,
        };
        let here = if is_message && !is_own { recv.unwrap_or(self).here } else { self.here };
        let is_named_by_slot = matches!(named.owner, Side::Stateless);
        Transfer {
            way,
            op: named.op,
            slot: if is_named_by_slot { Slot(named.slot) } else { Slot::NONE },
            generation: Generation(if is_named_by_slot { named.generation } else { 0 }),
            there: named.there,
            wqe_len: named.len,
            key: if is_named_by_slot { named.key } else { key },
            here,
            access,
            len: self.len,
            begun: 0,
            unanswered: 0,
        }
    }
}
