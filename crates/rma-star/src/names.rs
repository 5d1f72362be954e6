//! The names on the wire: sides, and the numbers of Z's and F's objects.
//!
//! A name says nothing about who uses it: it is a claim, until a tag under a key that is derived
//! from it has been found right.

use core::fmt;

use rma_core::crypto::Direction;

/// The side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Side {
    /// F, the stateful side.
    Stateful = 0,
    /// Z, the stateless side.
    Stateless = 1,
}

impl Side {
    /// The direction in the IVs of what this side sends: Z answers, as a responder of 1RMA does.
    #[must_use]
    pub const fn direction(self) -> Direction {
        match self {
            Self::Stateful => Direction::ToResponder,
            Self::Stateless => Direction::ToInitiator,
        }
    }
}

/// Makes newtypes of 32-bit names that are opaque to whoever did not give them.
macro_rules! names {
    ($($(#[$doc:meta])* $name:ident,)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);
    )+};
}

names! {
    /// The number of a protection domain of Z. Its row has the secret K_p.
    PdId,
    /// The number of a memory region of Z, or of a memory window: both are named from one space.
    /// The low half of an [`MrName`].
    MrId,
    /// The use of a slot. Compared for equality only.
    Generation,
    /// The use of its QPN by Z's queue pair. Counted by Z alone.
    Nonce,
    /// The place of a work request in its queue, counted modulo 2^32 by whoever posts: the queue of
    /// RECVs, or that of all other ops.
    Sequence,
}

impl Sequence {
    /// The place behind this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// How many places this one is behind `earlier`, which must be before it by less than 2^32.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// The later of both, by their distance: sequences may wrap.
    #[must_use]
    pub const fn later(self, other: Self) -> Self {
        if other.since(self).cast_signed() > 0 { other } else { self }
    }
}

/// The places below which the stateful side has taken all of each queue, as EAs and CQEPs say them
/// and a word of the QP keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Of the queue of SENDs, WRITEs and READs.
    pub send: Sequence,
    /// Of the queue of RECVs.
    pub recv: Sequence,
}

impl Taken {
    /// As a word.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.send.0 as u64) << 32 | self.recv.0 as u64
    }

    /// Of any word.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self { send: Sequence((bits >> 32) as u32), recv: Sequence(bits as u32) }
    }

    /// As octets of a frame.
    #[must_use]
    pub const fn to_octets(self) -> [u8; 8] {
        self.to_bits().to_be_bytes()
    }

    /// Of any octets.
    #[must_use]
    pub const fn from_octets(octets: [u8; 8]) -> Self {
        Self::from_bits(u64::from_be_bytes(octets))
    }

    /// The later of both, queue by queue: acknowledgements may come in any order.
    #[must_use]
    pub const fn later(self, other: Self) -> Self {
        Self { send: self.send.later(other.send), recv: self.recv.later(other.recv) }
    }
}

/// All of the name of a memory region of Z, or of a memory window, which never comes twice. Its low
/// half travels, as an [`MrId`]; keys are bound to all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MrName(pub u64);

impl MrName {
    /// Returns the part of it that frames carry.
    #[must_use]
    pub const fn id(self) -> MrId {
        MrId(self.0 as u32)
    }
}

/// The number of roles that a connection has had: one more after each switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Era(pub u16);

/// The number of a place for an outstanding WQE of Z, in the portal of its queue pair.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

impl Slot {
    /// No slot: the op is F's own, or a completion is a probe. No WQE of Z has it.
    pub const NONE: Self = Self(u32::MAX);

    /// No slot either: both sides are stateful (RC), and whoever gets the frame knows its RECVs and
    /// its memory. No WQE of Z has it.
    pub const RC: Self = Self(u32::MAX - 1);
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NONE => f.write_str("Slot(none)"),
            Self::RC => f.write_str("Slot(RC)"),
            Self(slot) => write!(f, "Slot({slot})"),
        }
    }
}

/// The number of a queue pair at its host: its portal, and the place within that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Qpn(u32);

impl Qpn {
    /// Bits of the place within the portal.
    pub const INDEX_BITS: u32 = 20;

    /// The most portals that a host names. They are numbered host-wide, in equal parts for its
    /// engines, so a QPN names its engine.
    pub const PORTALS: u32 = 1 << (u32::BITS - Self::INDEX_BITS);

    /// The most queue pairs of one portal.
    pub const INDEXES: u32 = 1 << Self::INDEX_BITS;

    /// Queue pair `index` of portal `portal`. `None` if one of them is not below
    /// [`Qpn::PORTALS`] and [`Qpn::INDEXES`].
    #[must_use]
    pub const fn new(portal: u32, index: u32) -> Option<Self> {
        if portal < Self::PORTALS && index < Self::INDEXES {
            Some(Self(portal << Self::INDEX_BITS | index))
        } else {
            None
        }
    }

    /// The queue pair of this number: every value is one.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The number, as it is on the wire.
    #[must_use]
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// Returns the number of its portal.
    #[must_use]
    pub const fn portal(self) -> u32 {
        self.0 >> Self::INDEX_BITS
    }

    /// Returns its number within its portal.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0 & (Self::INDEXES - 1)
    }
}

/// The name of a connection in every header, and in every key but for the hosts' addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ConnectionName {
    /// The protection domain of Z that the connection belongs to.
    pub pd: PdId,
    /// Z's queue pair.
    pub qpn_z: Qpn,
    /// F's queue pair.
    pub qpn_f: Qpn,
    /// The nonce of Z's queue pair: this use of its QPN.
    pub nonce: Nonce,
    /// Since which switch the two have these roles.
    pub era: Era,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qpn_is_a_portal_and_a_place_within_it() {
        let qpn = Qpn::new(0xabc, 0x5_4321).unwrap();
        assert_eq!(qpn.to_bits(), 0xabc5_4321);
        assert_eq!((qpn.portal(), qpn.index()), (0xabc, 0x5_4321));
        assert_eq!(Qpn::from_bits(u32::MAX), Qpn::new(0xfff, 0xf_ffff).unwrap());
        assert_eq!(Qpn::new(Qpn::PORTALS, 0), None);
        assert_eq!(Qpn::new(0, Qpn::INDEXES), None);
    }

    #[test]
    fn sequences_go_on_behind_their_last_value() {
        let last = Sequence(u32::MAX);
        assert_eq!(last.next(), Sequence(0));
        assert_eq!(Sequence(2).since(last), 3);
    }
}
