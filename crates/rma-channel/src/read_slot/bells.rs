//! Bells that say where a message lies, and how long it is (§4.5): words in a region of their own,
//! one for each slot, and how a receiver finds messages by them.
//!
//! ```text
//! | length, 28 bits | place, in words, 28 bits | number mod 256 |
//! ```
//!
//! A bell that is inlined says place 0, as its message is beside it.
//!
//! As there are at most 128 slots, the number tells a bell from the one that stood in its place
//! before, and from all that may be under way. A bell is one word, so it is whole in whichever part
//! of a READ it comes. No length is 0, so what was never stored is no bell.

use std::collections::VecDeque;

use rma_core::{
    executor::Piece,
    gate::{Gate, Peer},
    grant::Grant,
    op::OpType,
    region::{Permissions, RegisteredRegion},
    time::Instant,
};
use rma_shm::Region;

use super::{Joined, ReadSlotConfig};
use crate::{
    flow,
    into::{Fault, Found},
    link::Link,
    read_ring::receiver::Pace,
    reading::submit,
    ring::{Malformed, Position, WORD, padded, word_at},
    terms::OpenError,
};

/// The bell of a message.
pub(super) const fn bell(number: Position, place: u64, len: u32) -> u64 {
    number.to_bits() & 0xff | (place / WORD) << 8 | (len as u64) << 36
}

/// The last byte of the number of the message that a bell is of.
pub(super) const fn tag(bell: u64) -> u8 {
    bell as u8
}

/// How long a region can be so that places in it fit a bell.
const REACH_MAX: u64 = 1 << 31;

/// A sender's bells, and where it copies messages to.
#[derive(Debug)]
pub(super) struct BellWords {
    words: RegisteredRegion,
    slots: u64,
    copies: Copies,
}

impl BellWords {
    /// Of messages in `memory`.
    pub(super) fn open(
        host: &dyn Gate,
        config: &ReadSlotConfig,
        memory: &Region,
    ) -> Result<Self, OpenError> {
        let (slots, copies) = (u64::from(config.slots), config.copies);
        let settings = |what, value, why| Err(OpenError::Settings { what, value, why });
        if !copies.is_multiple_of(8) || copies > 0 && u64::from(copies) < padded(config.len_max) {
            let why = "a multiple of 8, with room for the longest message";
            return settings("the memory for copies", copies.into(), why);
        }
        let reach = memory.len() as u64;
        if reach >= REACH_MAX {
            let why = "less than 2^31: have fewer messages, or shorter ones";
            return settings("the memory of slots, in bytes,", reach, why);
        }
        let words = Region::new((slots * WORD) as usize)?;
        let words = flow::region(host, words, Permissions::READ)?;
        Ok(Self { words, slots, copies: Copies { len: copies.into(), used: VecDeque::new() } })
    }

    pub(super) fn grant(&self, host: &dyn Gate, peer: Peer) -> Result<Option<Grant>, OpenError> {
        host.grant(&self.words, peer, OpType::Read).map(Some).map_err(OpenError::Host)
    }

    pub(super) fn take(&mut self, number: Position, len: u32, freed: Position) -> Option<u64> {
        self.copies.take(number, freed, padded(len))
    }

    /// Whether a message that the application sends in place may begin at `offset`: behind the
    /// copies.
    pub(super) const fn may_lie(&self, offset: u64) -> bool {
        offset >= self.copies.len
    }

    /// Stores a bell, after all that was stored before. Returns it.
    pub(super) fn ring(&self, number: Position, place: u64, len: u32) -> u64 {
        let bell = bell(number, place, len);
        // There is a word for each slot.
        let _ = self.words.store(number.to_bits() % self.slots * WORD, bell.to_le());
        bell
    }
}

/// Memory that messages are copied to, around and around, none of them in two parts.
#[derive(Debug)]
struct Copies {
    len: u64,
    /// The messages that somebody may read, in order: number, where it begins, where it ends.
    used: VecDeque<(Position, u64, u64)>,
}

impl Copies {
    fn take(&mut self, number: Position, freed: Position, len: u64) -> Option<u64> {
        while let Some(&(first, ..)) = self.used.front()
            && number.since(first) > number.since(freed)
        {
            self.used.pop_front();
        }
        let (first, last) = match (self.used.front(), self.used.back()) {
            (Some(&(_, first, _)), Some(&(.., last))) => (first, last),
            _ => (self.len, 0),
        };
        let is_whole = last <= first;
        let at = match is_whole {
            true if len <= first - last => last,
            false if len <= self.len - last => last,
            false if len <= first => 0,
            _ => return None,
        };
        self.used.push_back((number, at, at + len));
        Some(at)
    }
}

/// How many bells are read at a time.
const RUN: u64 = 16;

/// A receiver's looks at bells.
#[derive(Debug)]
pub(super) struct BellLook {
    grant: Grant,
    /// The region in which bells land.
    image: RegisteredRegion,
    pace: Pace,
    /// The messages that the look under way asks for.
    asked: u64,
    messages: Messages,
}

/// The limits of messages, and the position of the next one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Messages {
    pub(super) slots: u64,
    pub(super) len_max: u32,
    /// How long the region is that they lie in.
    pub(super) reach: u64,
    /// The position of the next message.
    pub(super) next: Position,
}

impl Messages {
    /// The next message, if `word` is its bell.
    pub(super) fn rung(&self, word: u64) -> Result<Option<Found>, Malformed> {
        let Self { len_max, next: position, .. } = *self;
        let (len, place) = ((word >> 36) as u32, (word >> 8 & LEN_BITS) * WORD);
        if len == 0 || tag(word) != position.to_bits() as u8 {
            return Ok(None);
        }
        if len > len_max || place + u64::from(len) > self.reach {
            return Err(Malformed::Bell { number: position.to_bits(), bell: word, len_max });
        }
        let (end, landed) = (position.after(1), false);
        Ok(Some(Found { position, end, remote_offset: place, len, landed }))
    }
}

const LEN_BITS: u64 = (1 << 28) - 1;

/// Opens the look at the bells of a sender, of which the last grant is.
pub(super) fn open_look(
    host: &dyn Gate,
    joined: &Joined,
    pace: Pace,
) -> Result<BellLook, OpenError> {
    let &Joined { slots, len_max, .. } = joined;
    let (reach, next) = (joined.grants[2].region_len, Position::ZERO);
    let messages = Messages { slots: slots.into(), len_max, reach, next };
    BellLook::open(host, joined.grants[3], messages, pace)
}

impl BellLook {
    fn open(
        host: &dyn Gate,
        grant: Grant,
        messages: Messages,
        pace: Pace,
    ) -> Result<Self, OpenError> {
        let image = super::own(host, RUN * WORD)?;
        Ok(Self { grant, image, pace, asked: 0, messages })
    }

    pub(super) const fn messages(&mut self) -> &mut Messages {
        &mut self.messages
    }

    /// Takes what a look has found. Returns when it was issued, if it has found nothing.
    pub(super) fn take(
        &mut self,
        link: &mut Link,
        found: &mut VecDeque<Found>,
    ) -> Result<Option<Instant>, Fault> {
        let Some(issued) = self.pace.take(link)? else { return Ok(None) };
        let mut count = 0;
        while count < self.asked {
            let word = word_at(&self.image, count * WORD);
            let Some(it) = self.messages.rung(word).map_err(Fault::Malformed)? else { break };
            self.messages.next = it.end;
            found.push_back(it);
            count += 1;
        }
        self.pace.found(issued, count > 0);
        Ok((count == 0).then_some(issued))
    }

    /// Looks at the bells of up to `most` messages, if it is time.
    pub(super) fn begin(&mut self, link: &mut Link, now: Instant, most: u64) -> Result<(), Fault> {
        if !self.pace.is_time(now) {
            return Ok(());
        }
        let Messages { slots, next, .. } = self.messages;
        let index = next.to_bits() % slots;
        self.asked = most.min(RUN).min(slots - index);
        if self.asked == 0 {
            return Ok(());
        }
        let (grant, local, len) = (&self.grant, &self.image, self.asked * WORD);
        let piece = Piece { grant, remote_offset: index * WORD, local, local_offset: 0, len };
        self.pace.began(submit(link, now, &piece)?, now);
        Ok(())
    }

    /// When a look must be made, if there are pauses between them, and there is one to be made.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.pace.poll_timeout().filter(|_| self.asked > 0)
    }
}
