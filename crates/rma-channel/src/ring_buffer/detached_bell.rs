//! Ring buffer, detached bell (§4.3): messages go by plain WRITEs, in parallel and in any order,
//! and then the head, in a word of the receiver's elsewhere.
//!
//! The paper needs messages in order, so that the bell arrives after what it tells of. Ops here
//! have no order, so the sender waits until the bytes are there, a round trip, and then sets the
//! bell: one ordered WRITE for all that has landed, whatever has gathered by then, and one at a
//! time. So a message alone takes two ops, and many take little more than one each.
//!
//! What is sent where it lies needs a word before it, for its length.

use core::ops::Range;

use rma_core::{
    executor::{Call, CallId, OpCall, Piece},
    gate::Gate,
    grant::Grant,
    op::OpType,
    portal::{Change, CommandPortal, Source},
    region::{Permissions, RegisteredRegion},
    time::Instant,
};
use rma_shm::Region;

use super::{RingConfig, RingReceiver, SenderParts, circular, open_receiver, open_sender};
use crate::{
    close::{Close, Registered, opened},
    duplex::Hears,
    flow,
    link::Link,
    ring::{
        Position, Room, WORD,
        detached::{Reader, first_word, footprint},
    },
    sender::{
        self, Outgoing, SendError, SendHandle, SendRegion, SendState, checked_len, checked_place,
        refused,
    },
    sending::Sending,
    table::Kind,
    terms::{Half, OpenError},
};

/// The receiver's end.
pub type Receiver = RingReceiver<Reader>;

impl Receiver {
    /// Opens a receiver's end: a ring that is empty, and its bell.
    ///
    /// # Errors
    /// If a message of the greatest length has no place in the ring, or the host has no room.
    pub fn open(host: &dyn Gate, config: RingConfig) -> Result<Half<Self>, OpenError> {
        opened(host, |host| {
            let RingConfig { peer, len, len_max, .. } = config;
            config.check(footprint(len_max))?;
            let ring = circular(host, len, Permissions::WRITE)?;
            let bell = flow::region(host, Region::new(WORD as usize)?, Permissions::WRITE)?;
            let grant = |region| host.grant(region, peer, OpType::Write);
            let grants = [grant(&ring), grant(&bell)].into_iter().collect::<Result<_, _>>();
            let reader = Reader::new(ring, bell, len, len_max);
            let grants = grants.map_err(OpenError::Host)?;
            open_receiver(host, config, Kind::RingDetached, reader, grants)
        })
    }
}

//= channels#4.3-detached
/// The sender's end.
#[derive(Debug)]
pub struct Sender {
    parts: SenderParts,
    room: Room,
    sending: Sending,
    /// For WRITE of the bell.
    bell: Grant,
    /// A word of this host, which the bell is set from.
    word: RegisteredRegion,
    /// The bell that is under way, and the head that it tells.
    ringing: Option<(CallId, Position)>,
}

impl Sender {
    /// Opens a sender's end: a ring that is empty.
    ///
    /// # Errors
    /// If a message of the greatest length has no place in the ring, or the host has no room.
    pub fn open(host: &dyn Gate, config: RingConfig) -> Result<Half<Self>, OpenError> {
        opened(host, |host| {
            config.check(footprint(config.len_max))?;
            let word = flow::region(host, Region::new(WORD as usize)?, Permissions::NONE)?;
            let kind = Kind::RingDetached;
            open_sender(host, config, kind, &[OpType::Write; 2], move |parts, grants| {
                let (room, bell) = (Room::new(parts.len.get()), grants[0]);
                Self { parts, room, sending: Sending::default(), bell, word, ringing: None }
            })
        })
    }

    /// Writes a message from where it lies: before it there is a word in memory for its length.
    fn write<P: AsMut<CommandPortal>>(
        &mut self,
        link: &mut Link<P>,
        now: Instant,
        position: Position,
        Source { region: local, offset, len }: Source<'_>,
    ) -> Result<SendHandle, SendError> {
        let (ring, local_offset) = (self.parts.len, offset - WORD);
        // The place was checked, or is in the image.
        let _ = local.store(local_offset, first_word(ring, position, len));
        let (grant, remote_offset) = (&self.parts.grant, ring.offset(position));
        let len_of_record = WORD + u64::from(len);
        let piece = Piece { grant, remote_offset, local, local_offset, len: len_of_record };
        let call = link.submit(now, &Call::of(&[piece])).map_err(|error| {
            self.room.untake(footprint(len));
            refused(error)
        })?;
        self.sending.begin(position..self.room.head(), call);
        Ok(SendHandle(position))
    }

    /// Sets the bell to what has landed, unless one is under way.
    fn ring<P: AsMut<CommandPortal>>(
        &mut self,
        link: &mut Link<P>,
        now: Instant,
    ) -> Result<(), SendError> {
        let Some(head) = self.sending.landed().filter(|_| self.ringing.is_none()) else {
            return Ok(());
        };
        // Only this end stores there, and no bell is under way.
        let _ = self.word.store(0, head.to_bits().to_le());
        let source = Source { region: &self.word, offset: 0, len: WORD as u32 };
        let change = Change::OrderedWrite { remote_offset: 0, source };
        match link.submit_op(now, &OpCall::of(&self.bell, change)).map_err(refused) {
            Ok(call) => self.ringing = Some((call, head)),
            // Others of the link are over sooner or later.
            Err(SendError::Full) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Up to where the receiver has processed messages, as far as is known.
    #[must_use]
    pub const fn tail(&self) -> Position {
        self.room.tail()
    }
}

impl Close for Sender {
    fn registered(&mut self) -> &mut Registered {
        &mut self.parts.registered
    }
}

impl Hears for Sender {
    fn hear(&mut self, tail: Position) {
        self.sending.hear(tail);
    }
}

impl Outgoing for Sender {
    fn len_max(&self) -> u32 {
        self.parts.len_max
    }

    fn beside(&self) -> (u64, u64) {
        (WORD, 0)
    }

    fn test(&self, handle: SendHandle) -> SendState {
        self.sending.test(handle.0, &self.room)
    }
}

impl<P: AsMut<CommandPortal>> sender::Sender<P> for Sender {
    fn send(
        &mut self,
        link: &mut Link<P>,
        now: Instant,
        message: &[u8],
    ) -> Result<SendHandle, SendError> {
        let len = checked_len(message.len(), self.parts.len_max)?;
        self.sending.check()?;
        let position = self.room.take(footprint(len)).ok_or(SendError::Full)?;
        let (image, at) = (self.parts.image.clone(), self.parts.len.offset(position));
        let source = Source { region: &image, offset: at + WORD, len };
        // The image is as long as the ring: or else nothing is written, and the call is refused.
        let _ = image.write(source.offset, message);
        let sent = self.write(link, now, position, source)?;
        link.count_copied(message.len());
        Ok(sent)
    }

    fn poll(&mut self, link: &mut Link<P>, now: Instant) -> Result<(), SendError> {
        if let Some((call, head)) = self.ringing
            && let Some(outcome) = link.take(call)
        {
            self.ringing = None;
            self.sending.rung(head, outcome.status);
        }
        let polled = self.sending.poll(link, &self.parts.tail, &mut self.room);
        // Messages that landed before a failed one are announced all the same.
        self.ring(link, now)?;
        polled
    }
}

impl<P: AsMut<CommandPortal>> SendRegion<P> for Sender {
    fn send_region(
        &mut self,
        link: &mut Link<P>,
        now: Instant,
        region: &RegisteredRegion,
        range: Range<u64>,
    ) -> Result<SendHandle, SendError> {
        let len = checked_place(region, &range, WORD, 0, self.parts.len_max)?;
        self.sending.check()?;
        let position = self.room.take(footprint(len)).ok_or(SendError::Full)?;
        self.write(link, now, position, Source { region, offset: range.start, len })
    }
}

#[cfg(test)]
mod tests;
