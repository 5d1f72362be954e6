//! Read slot, inlined bell (§4.5): a slot is a bell and, behind it, a message. The sender stores
//! the message and then the bell; receivers READ the slot that is next until its bell is set.
//!
//! ```text
//! | bell | message, padded to 8 |
//! ```
//!
//! A look is one op, which reads its first word first ([`RegisteredRegion::store`]): if that is the
//! bell, the message is in what follows. A message of more than 4088 bytes does not fit the op with
//! its bell, and is read when its bell is known. So is any of which nobody has said beforehand
//! where it must go: all that go to an [`Into`]. A [`Receiver`] has a buffer for the next one,
//! unless all are full.
//!
//! Slots are as long as the longest message. A message that is copied is copied to its slot; one
//! that is not must be written there: [`SlotSender::place`].

use std::collections::VecDeque;

use rma_core::{
    executor::Piece,
    gate::{Gate, Peer},
    grant::Grant,
    op::OpType,
    region::RegisteredRegion,
    time::Instant,
};
use rma_shm::Region;

use super::{
    Bells, Joined, ReadSlotConfig, SlotSender,
    bells::{Messages, bell},
    looking::Looks,
    receiver::SlotReceiver,
};
use crate::{
    into::{Fault, Finds, Found, IntoReceiver},
    link::Link,
    read_ring::receiver::Pace,
    reading::submit,
    ring::{Malformed, Position, WORD, padded, word_at},
    table::Kind,
    terms::{OpenError, Side, Terms},
};

/// The sender's end.
pub type Sender = SlotSender<InSlots>;

/// The receiver's end that has memory for messages.
pub type Receiver = SlotReceiver<SlotFinds>;

/// The receiver's end that reads into the application's memory: it READs a bell, and then the
/// message.
pub type Into = IntoReceiver<SlotFinds>;

/// The places of slots.
#[derive(Clone, Copy, Debug)]
struct Slots {
    count: u64,
    len_max: u32,
}

impl Slots {
    /// How long a slot is.
    const fn stride(self) -> u64 {
        WORD + padded(self.len_max)
    }

    /// Returns the offset of a message's slot.
    const fn of(self, number: Position) -> u64 {
        number.to_bits() % self.count * self.stride()
    }
}

/// Bells before messages.
#[derive(Debug)]
pub struct InSlots(Slots);

impl InSlots {
    const fn slots(config: &ReadSlotConfig) -> Slots {
        Slots { count: config.slots as u64, len_max: config.len_max }
    }
}

impl Bells for InSlots {
    const KIND: Kind = Kind::ReadSlotInlined;

    fn len(config: &ReadSlotConfig) -> u64 {
        let slots = Self::slots(config);
        slots.count * slots.stride()
    }

    fn open(_: &dyn Gate, config: &ReadSlotConfig, memory: &Region) -> Result<Self, OpenError> {
        let slots = Self::slots(config);
        for number in 0..slots.count {
            // The application's content there is no bell. The memory is long enough.
            let _ = memory.store_release(slots.of(Position::from_bits(number)), 0);
        }
        Ok(Self(slots))
    }

    fn before(&self) -> u64 {
        WORD
    }

    fn take(&mut self, number: Position, _: u32, _: Position) -> Option<u64> {
        Some(self.0.of(number) + WORD)
    }

    fn may_lie(&self, number: Position, offset: u64) -> bool {
        offset == self.0.of(number) + WORD
    }

    //= channels#4.5-inlined
    fn ring(&mut self, memory: &RegisteredRegion, number: Position, _: u64, len: u32) {
        // The memory has all slots.
        let _ = memory.store(self.0.of(number), bell(number, 0, len).to_le());
    }
}

impl Sender {
    /// Admits `peer` as a receiver of all that is sent from now on, and returns the terms to send
    /// to it.
    ///
    /// # Errors
    /// If there are too many receivers, or the host has no room.
    pub fn admit(&mut self, host: &dyn Gate, peer: Peer) -> Result<Terms, OpenError> {
        let (_, grants) = self.admit_to(host, peer)?;
        Ok(Terms::new(self.agreed(), Side::Sender, grants))
    }

    /// Returns the offset in [`SlotSender::memory`] for the next message, if its slot is free: the
    /// application may write it there, and then [send it](crate::SendRegion). `None`: a reader may
    /// still read the message there.
    pub fn place(&mut self, now: Instant) -> Option<u64> {
        self.has_slot(now).then(|| self.bells.0.of(self.head) + WORD)
    }
}

/// The most bytes that a look reads: one op.
const LOOK_MAX: u64 = 4096;

/// Finds messages by reading slots.
#[derive(Debug)]
pub struct SlotFinds {
    grant: Grant,
    slots: Slots,
    /// The word in which a bell lands when its message has no place.
    word: RegisteredRegion,
    pace: Pace,
    messages: Messages,
    /// The place of the next message.
    place: Option<(RegisteredRegion, u64)>,
    /// The place at which the look under way lands, if its message does as well.
    landing: Option<(RegisteredRegion, u64)>,
    /// Whether there is no look to be made.
    waits: bool,
}

impl Looks for SlotFinds {
    const KIND: Kind = Kind::ReadSlotInlined;
    const GRANTS: &[OpType] = &[OpType::Read, OpType::Write, OpType::Read];

    fn open(host: &dyn Gate, joined: &Joined, pace: Pace) -> Result<Self, OpenError> {
        let &Joined { slots, len_max, .. } = joined;
        let (count, reach) = (slots.into(), len_max.into());
        let messages = Messages { slots: count, len_max, reach, next: Position::ZERO };
        let (grant, word) = (joined.grants[2], super::own(host, WORD)?);
        let (slots, place, landing) = (Slots { count, len_max }, None, None);
        Ok(Self { grant, slots, word, pace, messages, place, landing, waits: false })
    }
}

impl SlotFinds {
    /// The message that a look has found, if it has.
    fn found(&self) -> Result<Option<Found>, Malformed> {
        let Messages { next, len_max, .. } = self.messages;
        let word = match &self.landing {
            Some((region, offset)) => word_at(region, offset - WORD),
            None => word_at(&self.word, 0),
        };
        let Some(it) = self.messages.rung(word)? else { return Ok(None) };
        if it.remote_offset != 0 {
            return Err(Malformed::Bell { number: next.to_bits(), bell: word, len_max });
        }
        let remote_offset = self.slots.of(next) + WORD;
        let landed = self.landing.is_some() && WORD + u64::from(it.len) <= LOOK_MAX;
        Ok(Some(Found { remote_offset, landed, ..it }))
    }

    fn look(&mut self, link: &mut Link, now: Instant) -> Result<(), Fault> {
        self.landing.clone_from(&self.place);
        let (local, local_offset, len) = match &self.landing {
            Some((region, offset)) => (region, offset - WORD, self.slots.stride().min(LOOK_MAX)),
            None => (&self.word, 0, WORD),
        };
        let (grant, remote_offset) = (&self.grant, self.slots.of(self.messages.next));
        let piece = Piece { grant, remote_offset, local, local_offset, len };
        self.pace.began(submit(link, now, &piece)?, now);
        Ok(())
    }
}

impl Finds for SlotFinds {
    fn begin(&mut self, start: Position) {
        self.messages.next = start;
    }

    fn land(&mut self, place: Option<(&RegisteredRegion, u64)>) {
        self.place = place.map(|(region, offset)| (region.clone(), offset));
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.pace.poll_timeout().filter(|_| !self.waits)
    }

    fn poll(
        &mut self,
        link: &mut Link,
        now: Instant,
        tail: Position,
        found: &mut VecDeque<Found>,
    ) -> Result<Option<Instant>, Fault> {
        let mut nothing = None;
        if let Some(issued) = self.pace.take(link)? {
            let it = self.found().map_err(Fault::Malformed)?;
            self.pace.found(issued, it.is_some());
            match it {
                Some(it) => {
                    self.messages.next = it.end;
                    found.push_back(it);
                }
                None => nothing = Some(issued),
            }
        }
        let Messages { slots, next, .. } = self.messages;
        // The place is that of what has been found, if anything has.
        self.waits = !found.is_empty() || next.since(tail) >= slots;
        if !self.waits && self.pace.is_time(now) {
            self.look(link, now)?;
        }
        Ok(nothing)
    }
}
