//! Read slots (§4.5): a sender has messages in memory of its own, and any number of receivers READ
//! them, from where they lie to where they are wanted. The sender issues nothing for that.
//!
//! | | how a receiver learns of messages | hops to delivery | ops of a receiver |
//! |---|---|---|---|
//! | [`detached_bell`] | READs bells, which say where messages lie | 4, or more | 2, or more |
//! | [`inlined_bell`] | READs a slot, which is a bell and a message | 2, or more | 1, or more |
//! | [`notify_receiver`] | a NOTIFY brings the newest bell | 5 | 1, and 1 of the sender |
//!
//! The fourth, [`indirect_read`], is the other way round: the receiver lends the memory, and the
//! sender writes. What is said here is not of it.
//!
//! Message k has slot k mod `slots`, which is its bell at least. The sender stores the message and
//! then its bell, and neither changes until all receivers that count have the message: as with
//! [read rings](crate::read_ring), where it is said who counts, and what becomes of a receiver that
//! tells nothing ([`ReceiveError::Ejected`](crate::ReceiveError::Ejected)). Here a message is
//! *processed* when it is in the memory of each.
//!
//! # Without a copy
//!
//! A sender's region may be the application's. A message that lies there is sent by
//! [`SendRegion`]; as receivers read it there, it must not change until it is
//! [`SendState::Processed`]. A receiver either has memory for messages, into which they land and
//! in which they stay until they are given back, or reads each to where the application says
//! ([`ReceiveInto`](crate::ReceiveInto)).

use core::{ops::Range, time::Duration};
use std::sync::Arc;

use rma_core::{
    gate::{Gate, Peer},
    grant::Grant,
    op::OpType,
    region::{Permissions, RegisteredRegion},
    time::Instant,
};
use rma_shm::Region;

use crate::{
    close::{Registered, gives_back, opened},
    flow,
    into::{Finds, IntoReceiver},
    link::Link,
    read_ring::{check_readers, published},
    readers::{Reader, Readers},
    reading::{Reading, ReadingMemory},
    ring::{Position, WORD},
    sender::{Outgoing, SendError, SendHandle, SendRegion, SendState, Sender, checked_len},
    table::Kind,
    terms::{Agreed, Needs, OpenError, Side, Terms, within},
};

mod bells;
pub mod detached_bell;
pub mod indirect_read;
pub mod inlined_bell;
mod looking;
pub mod notify_receiver;
pub mod receiver;

/// The settings that the sender of read slots is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct ReadSlotConfig {
    /// The application's name for the channel.
    pub name: u64,
    /// How many messages there may be that somebody has not read: 1 to 128.
    pub slots: u16,
    /// The longest message, in bytes: 1 to 2^28 - 1.
    pub len_max: u32,
    /// How many bytes there are for messages that are copied to be sent, each padded to 8: a
    /// multiple of 8, room for the longest at least, and less than 2^31. With none nothing is
    /// copied. Where bells are inlined messages are copied to their slots, and this says nothing.
    pub copies: u32,
    /// How many receivers there can be at a time; at most 64.
    pub readers: u16,
    /// For how long a receiver counts that tells nothing, although there is something: as
    /// [`ReadRingConfig::reader_timeout`](crate::read_ring::ReadRingConfig::reader_timeout).
    pub reader_timeout: Duration,
}

impl Default for ReadSlotConfig {
    fn default() -> Self {
        Self {
            name: 0,
            slots: 64,
            len_max: 4088,
            copies: 1 << 16,
            readers: 8,
            reader_timeout: Duration::from_secs(10),
        }
    }
}

/// The most slots: so that a bell tells its message from all others by the last byte of its number.
pub(crate) const SLOTS_MAX: u16 = 128;

/// The longest message: so that its length and its place fit a bell.
const LEN_MAX: u64 = (1 << 28) - 1;

impl ReadSlotConfig {
    fn check(&self) -> Result<(), OpenError> {
        let Self { slots, len_max, readers, reader_timeout, .. } = *self;
        within("the number of slots", slots, 1..=SLOTS_MAX.into(), "it must be 1 to 128")?;
        within("the longest message", len_max, 1..=LEN_MAX, "it must be 1 to 2^28 - 1")?;
        check_readers(readers, reader_timeout)
    }
}

/// The places of a sender's messages, and the way in which it announces them.
pub(crate) trait Bells: core::fmt::Debug + Sized {
    /// The kind of channel.
    const KIND: Kind;

    /// How many bytes of the memory of messages are the channel's.
    fn len(config: &ReadSlotConfig) -> u64;

    /// Of messages in `memory`, which is as long as that at least.
    fn open(host: &dyn Gate, config: &ReadSlotConfig, memory: &Region) -> Result<Self, OpenError>;

    /// For READ of bells that have a region of their own.
    fn grant(&self, _: &dyn Gate, _: Peer) -> Result<Option<Grant>, OpenError> {
        Ok(None)
    }

    /// How many bytes are written before a message that lies where the application has it.
    fn before(&self) -> u64 {
        0
    }

    /// Takes a place for a message that is copied, of which the slot is free; what is before
    /// `freed` has been read.
    fn take(&mut self, number: Position, len: u32, freed: Position) -> Option<u64>;

    /// Whether message `number` may be sent from there.
    fn may_lie(&self, number: Position, offset: u64) -> bool;

    /// A message is there, and says so.
    fn ring(&mut self, memory: &RegisteredRegion, number: Position, place: u64, len: u32);

    /// Issues the ops that are due.
    fn poll(&mut self, _: &mut Link, _: Instant, _: &mut Readers) -> Result<(), SendError> {
        Ok(())
    }
}

/// The sender's end of read slots, whichever way receivers learn of messages.
#[derive(Debug)]
#[expect(private_bounds, reason = "the three kinds of bells are all there are")]
pub struct SlotSender<B: Bells> {
    memory: RegisteredRegion,
    readers: Readers,
    config: ReadSlotConfig,
    /// The number of the next message.
    head: Position,
    bells: B,
    /// All that it gives back when it is closed.
    registered: Registered,
}

#[expect(private_bounds, reason = "the three kinds of bells are all there are")]
impl<B: Bells> SlotSender<B> {
    /// Opens a sender's end, without messages and without receivers.
    ///
    /// # Errors
    /// If it cannot be like that, or the host has no room.
    pub fn open(host: &dyn Gate, config: ReadSlotConfig) -> Result<Self, OpenError> {
        config.check()?;
        let memory = Arc::new(Region::new(B::len(&config) as usize)?);
        Self::open_in(host, config, memory)
    }

    /// The same in the application's memory, of which the channel takes the beginning:
    /// [`ReadSlotConfig::copies`] bytes, or where bells are inlined all slots. What is beyond,
    /// which may be nothing, is the application's to send messages from, unless bells are inlined.
    /// No message goes on behind the end of circular memory.
    ///
    /// # Errors
    /// As [`SlotSender::open`], and if the memory is shorter than that; or not shorter than 2^31,
    /// unless bells are inlined.
    pub fn open_in(
        host: &dyn Gate,
        config: ReadSlotConfig,
        memory: Arc<Region>,
    ) -> Result<Self, OpenError> {
        config.check()?;
        let (value, what) = (memory.len() as u64, "the memory of slots, in bytes,");
        if value < B::len(&config) {
            let why = "room for what is copied, or for all slots where bells are inlined";
            return Err(OpenError::Settings { what, value, why });
        }
        opened(host, |host| {
            let bells = B::open(host, &config, &memory)?;
            let memory = flow::region(host, memory, Permissions::READ)?;
            let readers = Readers::new(config.readers, config.reader_timeout);
            let (head, registered) = (Position::ZERO, Registered::default());
            Ok(Self { memory, readers, config, head, bells, registered })
        })
    }

    /// A seat for `peer`, and grants for its seat, for messages, and for bells elsewhere.
    fn admit_to(&mut self, host: &dyn Gate, peer: Peer) -> Result<(usize, Vec<Grant>), OpenError> {
        let memory = host.grant(&self.memory, peer, OpType::Read).map_err(OpenError::Host)?;
        let bells = self.bells.grant(host, peer)?;
        let (readers, registered) = (&mut self.readers, &mut self.registered);
        let (index, [read, write]) = readers.admit(host, registered, peer, self.head)?;
        Ok((index, [read, write, memory].into_iter().chain(bells).collect()))
    }

    fn agreed(&self) -> Agreed {
        let ReadSlotConfig { name, slots, len_max, reader_timeout, .. } = self.config;
        let timeout = reader_timeout.as_nanos() as u64;
        Agreed { kind: B::KIND, name, numbers: [slots.into(), len_max.into(), timeout] }
    }

    /// The region that messages are read from.
    #[must_use]
    pub const fn memory(&self) -> &RegisteredRegion {
        &self.memory
    }

    /// The receivers that were admitted, and whether slots wait for them.
    pub fn readers(&self) -> impl Iterator<Item = Reader> + '_ {
        self.readers.iter()
    }

    /// Whether the next message has a slot.
    fn has_slot(&mut self, now: Instant) -> bool {
        let is_free = |freed| self.head.since(freed) < self.config.slots.into();
        is_free(self.readers.freed()) || is_free(self.readers.poll(now, self.head))
    }

    fn publish(&mut self, link: &mut Link, now: Instant, place: u64, len: u32) -> SendHandle {
        let number = self.head;
        self.bells.ring(&self.memory, number, place, len);
        self.head = number.after(1);
        // The message is there. What a link refuses is told by the next poll.
        let _ = self.bells.poll(link, now, &mut self.readers);
        SendHandle(number)
    }
}

gives_back!(SlotSender<B: Bells>);

impl<B: Bells> Outgoing for SlotSender<B> {
    fn len_max(&self) -> u32 {
        self.config.len_max
    }

    fn beside(&self) -> (u64, u64) {
        (self.bells.before(), 0)
    }

    fn test(&self, handle: SendHandle) -> SendState {
        published(handle, self.readers.freed(), self.head)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.readers.poll_timeout(self.head)
    }
}

impl<B: Bells> Sender for SlotSender<B> {
    fn send(
        &mut self,
        link: &mut Link,
        now: Instant,
        message: &[u8],
    ) -> Result<SendHandle, SendError> {
        let len = checked_len(message.len(), self.config.len_max)?;
        if !self.has_slot(now) {
            return Err(SendError::Full);
        }
        let number = self.head;
        let offset = match self.bells.take(number, len, self.readers.freed()) {
            Some(offset) => offset,
            None => {
                let freed = self.readers.poll(now, number);
                self.bells.take(number, len, freed).ok_or(SendError::Full)?
            }
        };
        // The memory is as long as was said.
        let _ = self.memory.write(offset, message);
        link.count_copied(message.len());
        Ok(self.publish(link, now, offset, len))
    }

    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), SendError> {
        self.bells.poll(link, now, &mut self.readers)?;
        self.readers.poll(now, self.head);
        Ok(())
    }
}

impl<B: Bells> SendRegion for SlotSender<B> {
    /// From [`SlotSender::memory`], and where the channel copies nothing to; or where bells are
    /// inlined, from the next slot.
    fn send_region(
        &mut self,
        link: &mut Link,
        now: Instant,
        region: &RegisteredRegion,
        range: Range<u64>,
    ) -> Result<SendHandle, SendError> {
        let Range { start, end } = range;
        let len = checked_len(end.saturating_sub(start) as usize, self.config.len_max)?;
        if !self.has_slot(now) {
            return Err(SendError::Full);
        }
        // Memory that goes around goes on in copies, and bells have no places beyond it.
        let is_there = region.id() == self.memory.id()
            && end <= region.len()
            && start.is_multiple_of(WORD)
            && self.bells.may_lie(self.head, start);
        if !is_there {
            let (len, (before, behind)) = (region.len(), self.beside());
            return Err(SendError::Place { start, end, len, before, behind });
        }
        Ok(self.publish(link, now, start, len))
    }
}

/// A receiver's knowledge of its sender.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    slots: u16,
    len_max: u32,
    timeout: Duration,
    agreed: Agreed,
    grants: Vec<Grant>,
}

/// Checks the terms of a channel of this kind and name.
fn check(
    host: &dyn Gate,
    kind: Kind,
    name: u64,
    grants: &'static [OpType],
    terms: &Terms,
) -> Result<Joined, OpenError> {
    let Agreed { numbers, .. } = terms.agreed();
    let agreed = Agreed { kind, name, numbers };
    let needs = Needs { us: host.identity(), agreed, side: Side::Receiver, grants };
    let grants = needs.check(terms)?.to_vec();
    let config = ReadSlotConfig {
        slots: numbers[0].min(u16::MAX.into()) as u16,
        len_max: numbers[1].min(u32::MAX.into()) as u32,
        reader_timeout: Duration::from_nanos(numbers[2]),
        ..ReadSlotConfig::default()
    };
    config.check()?;
    let ReadSlotConfig { slots, len_max, reader_timeout: timeout, .. } = config;
    Ok(Joined { slots, len_max, timeout, agreed, grants })
}

impl Joined {
    /// A receiver that finds messages so, and reads them into the application's memory.
    fn into_receiver<F: Finds>(
        self,
        host: &dyn Gate,
        finds: F,
    ) -> Result<IntoReceiver<F>, OpenError> {
        let memory = ReadingMemory::open(host)?;
        let seat = [self.grants[0], self.grants[1]];
        let reading = Reading::new(memory, seat, self.timeout, self.slots.into());
        Ok(IntoReceiver::new(finds, self.grants[2], reading))
    }
}

/// A region of a receiver's, which nobody else may use.
fn own(host: &dyn Gate, len: u64) -> Result<RegisteredRegion, OpenError> {
    flow::region(host, Region::new(len as usize)?, Permissions::NONE)
}

rma_core::settings!(ReadSlotConfig);

#[cfg(test)]
mod tests;
