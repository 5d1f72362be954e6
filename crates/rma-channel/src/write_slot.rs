//! Write slots (§4.2): a receiver has slots of one length, *mailboxes*, which messages are written
//! into.
//!
//! | | a message's bell | ops for each message | whose slots |
//! |---|---|---|---|
//! | [`detached_bell`] | a word elsewhere, or an event | two, one after the other | its sender's |
//! | [`inlined_bell`] | the word behind the message | one | its sender's |
//! | [`immediate`] | an event | one | its sender's |
//! | [`reserve_slot`] | an event | two or more: one takes the slot | all senders' |
//!
//! Both sides can do without a copy: a message is written from where it lies, to where the receiver
//! has chosen its slots to be ([`immediate::Receiver::open_in`]), and is there until it is given
//! back ([`immediate::Receiver::place`]). Messages are of 1 byte up to what was agreed on, several
//! ops' worth included, and each takes a whole slot.
//!
//! Where slots are one sender's, message k goes to slot k mod `slots`. The
//! receiver tells its sender the tail, the number up to which messages are processed, when an
//! eighth of the slots are, or all that has come and nothing more comes; the sender uses no slot
//! before that.
//!
//! No bell has to be cleared: it holds its message's number, so whoever polls it tells it from that
//! of the message before. (In the paper the receiver clears it, and so the sender has to wait for
//! that.) And as slots do not touch each other, any number of messages are under way, in any order.
//!
//! # When something fails
//!
//! As with [rings](crate::ring_buffer): each message is published once or not at all, and its
//! sender knows which, or that it does not know. One that was not is a hole that the receiver does
//! not get past: the channel is broken from then on, and its sender is told at which message.

use rma_core::{gate::Peer, limits::RECEIVES_MAX};

use crate::{
    numbered::{Opening, Places},
    ring::{Malformed, Position, WORD, padded},
    table::Kind,
    terms::{OpenError, within},
};

pub mod detached_bell;
pub mod immediate;
pub mod inlined_bell;
pub mod polled;
pub mod reserve_slot;

/// The settings that both ends of slots have to be opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct SlotConfig {
    /// The application's name for the channel: whatever tells it from others between the two.
    pub name: u64,
    /// The peer at the other end.
    pub peer: Peer,
    /// How many slots there are, and so how many messages may be under way or unprocessed. 1 to
    /// 32768.
    pub slots: u16,
    /// The longest message, in bytes: 1 to [`SlotConfig::LEN_MAX`].
    pub len_max: u32,
}

impl SlotConfig {
    /// The longest message that slots can be made for, in bytes: 1 GiB.
    pub const LEN_MAX: u32 = 1 << 30;

    /// 64 slots for messages of up to 4 KiB, to or from `peer`.
    pub const fn with_peer(peer: Peer) -> Self {
        Self { name: 0, peer, slots: 64, len_max: 4096 }
    }

    /// How far apart slots are that have `behind` bytes for a bell.
    const fn stride(&self, behind: u64) -> u64 {
        padded(self.len_max) + behind
    }

    /// An end of this kind, whose slots have `behind` bytes for a bell; `option` is what else both
    /// ends have to agree on.
    fn opening(&self, kind: Kind, behind: u64, option: u64) -> Result<Opening, OpenError> {
        let Self { name, peer, slots: count, len_max } = *self;
        check_slots(count.into(), len_max.into())?;
        let places = Places { count, stride: self.stride(behind), len_max };
        Ok(Opening { kind, name, peer, places, option })
    }
}

/// Refuses slots that there cannot be so many of, or for messages so long.
fn check_slots(count: u64, len_max: u64) -> Result<(), OpenError> {
    within("the number of slots", count, 1..=RECEIVES_MAX.into(), "it must be 1 to 32768")?;
    let longest = SlotConfig::LEN_MAX.into();
    within("the longest message", len_max, 1..=longest, "it must be 1 byte to 1 GiB")
}

/// The bell of a message: its length, and of its number as much as tells it from all others whose
/// bells may stand, or arrive, in its place.
pub(crate) const fn bell(number: Position, len: u32) -> u64 {
    len as u64 | number.to_bits() << u32::BITS
}

/// The message that a bell is of, if it can be one of which the next is number `next`.
pub(crate) fn rung(bell: u64, next: Position, len_max: u32) -> Result<(Position, u32), Malformed> {
    let len = bell as u32;
    let ahead = ((bell >> u32::BITS) as u32).wrapping_sub(next.to_bits() as u32);
    if (1..=len_max).contains(&len) {
        return Ok((next.after(ahead.into()), len));
    }
    Err(Malformed::Bell { number: next.to_bits(), bell, len_max })
}

/// How long a bell is, in bytes.
const BELL: u64 = WORD;

rma_core::settings!(SlotConfig);
