//! Read slot, detached bell (§4.5): the sender stores a message's bell in a word elsewhere, which
//! says where the message lies. Receivers READ bells until they are set, and then the messages.
//!
//! A look reads the bells of several messages, which are then read at the same time, and at that of
//! the next look if there is more than one.

use std::collections::VecDeque;

use rma_core::{
    gate::{Gate, Peer},
    grant::Grant,
    op::OpType,
    region::RegisteredRegion,
    time::Instant,
};
use rma_shm::Region;

use super::{
    Bells, Joined, ReadSlotConfig, SlotSender,
    bells::{BellLook, BellWords, open_look},
    looking::Looks,
    receiver::SlotReceiver,
};
use crate::{
    into::{Fault, Finds, Found, IntoReceiver},
    link::Link,
    read_ring::receiver::Pace,
    ring::Position,
    table::Kind,
    terms::{OpenError, Side, Terms},
};

/// The sender's end.
pub type Sender = SlotSender<Elsewhere>;

/// The receiver's end that has memory for messages.
pub type Receiver = SlotReceiver<BellFinds>;

/// The receiver's end that reads into the application's memory.
pub type Into = IntoReceiver<BellFinds>;

/// Bells in a region of their own.
#[derive(Debug)]
pub struct Elsewhere(BellWords);

impl Bells for Elsewhere {
    const KIND: Kind = Kind::ReadSlotDetached;

    fn len(config: &ReadSlotConfig) -> u64 {
        config.copies.into()
    }

    fn open(host: &dyn Gate, config: &ReadSlotConfig, memory: &Region) -> Result<Self, OpenError> {
        BellWords::open(host, config, memory).map(Self)
    }

    fn grant(&self, host: &dyn Gate, peer: Peer) -> Result<Option<Grant>, OpenError> {
        self.0.grant(host, peer)
    }

    fn take(&mut self, number: Position, len: u32, freed: Position) -> Option<u64> {
        self.0.take(number, len, freed)
    }

    fn may_lie(&self, _: Position, offset: u64) -> bool {
        self.0.may_lie(offset)
    }

    //= channels#4.5-detached
    fn ring(&mut self, _: &RegisteredRegion, number: Position, place: u64, len: u32) {
        self.0.ring(number, place, len);
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
}

/// Finds messages by looking at bells.
#[derive(Debug)]
pub struct BellFinds {
    look: BellLook,
}

impl Looks for BellFinds {
    const KIND: Kind = Kind::ReadSlotDetached;
    const GRANTS: &[OpType] = &[OpType::Read, OpType::Write, OpType::Read, OpType::Read];

    fn open(host: &dyn Gate, joined: &Joined, pace: Pace) -> Result<Self, OpenError> {
        Ok(Self { look: open_look(host, joined, pace)? })
    }
}

impl Finds for BellFinds {
    fn begin(&mut self, start: Position) {
        self.look.messages().next = start;
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.look.poll_timeout()
    }

    fn poll(
        &mut self,
        link: &mut Link,
        now: Instant,
        tail: Position,
        found: &mut VecDeque<Found>,
    ) -> Result<Option<Instant>, Fault> {
        let nothing = self.look.take(link, found)?;
        let messages = self.look.messages();
        // Of what is known, and has not come.
        let waiting = messages.next.since(tail);
        let room = messages.slots.saturating_sub(waiting);
        // Known messages are asked for first: a look before it would make it wait. And a message
        // that comes alone is waited for: with a look beside it the way of 64 B took 1.25 times as
        // long as its two READs, without 1.1.
        let may_look = found.is_empty() && waiting != 1;
        self.look.begin(link, now, if may_look { room } else { 0 })?;
        Ok(nothing)
    }
}
