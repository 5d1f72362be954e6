//! Ring buffer, IMM-based (§4.3): one WRITE_WITH_IMM a message, any number of them under way and in
//! any order, and an event for each, which a receiver may sleep for.
//!
//! There is nothing in the ring but messages: the event says where and how long. So nothing is
//! beside a message that is sent where it lies.
//!
//! A message takes a receive of the ring's queue until its event is read. The sender counts, beside
//! bytes, the messages that are not processed, so that there is always a receive for the next one:
//! it never finds the receiver not ready.

use core::ops::Range;

use rma_core::{
    executor::Piece,
    gate::Gate,
    grant::Grant,
    op::OpType,
    portal::{CommandPortal, Source},
    receive_queue::{ReceiveQueue, ReceiveQueueLayout},
    region::{Permissions, RegisteredRegion},
    time::Instant,
};
use rma_shm::Region;

use super::{RingConfig, RingReceiver, SenderParts, open_receiver, open_sender};
use crate::{
    close::{Close, Registered, opened},
    duplex::Hears,
    flow,
    link::Link,
    receiver::Blocking,
    ring::{
        Position, Room,
        immediate::{Reader, footprint, immediate},
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
    /// Opens a receiver's end: a ring that is empty, and the queue of its events.
    ///
    /// # Errors
    /// If a message of the greatest length has no place in the ring, there can be no such number of
    /// messages, or the host has no room.
    pub fn open(host: &dyn Gate, config: RingConfig) -> Result<Half<Self>, OpenError> {
        opened(host, |host| {
            let RingConfig { peer, len, len_max, messages, .. } = config;
            config.check(footprint(len_max))?;
            let layout = ReceiveQueueLayout::new(messages, 0)?;
            let queue = host.receive_queue(layout, Permissions::NONE).map_err(OpenError::Host)?;
            let memory = Region::circular(len.get() as usize)?;
            let permissions = Permissions::WRITE | Permissions::NOTIFY;
            let ring = flow::region_with_events(host, memory, permissions, &queue)?;
            let grant = |op_type| host.grant(&ring, peer, op_type);
            let grants = [grant(OpType::Write), grant(OpType::WriteWithImm)];
            let grants = grants.into_iter().collect::<Result<_, _>>().map_err(OpenError::Host)?;
            let reader = Reader::new(ring, queue, len, len_max);
            open_receiver(host, config, Kind::RingImmediate, reader, grants)
        })
    }
}

impl Blocking for Receiver {
    fn queue(&self) -> &ReceiveQueue {
        self.reader.queue()
    }
}

//= channels#4.3-immediate
/// The sender's end.
#[derive(Debug)]
pub struct Sender {
    parts: SenderParts,
    room: Room,
    sending: Sending,
    /// For WRITE_WITH_IMM into the ring.
    grant: Grant,
    /// How many receives the ring's queue has.
    messages: u16,
}

impl Sender {
    /// Opens a sender's end: a ring that is empty.
    ///
    /// # Errors
    /// If a message of the greatest length has no place in the ring, there can be no such number of
    /// messages, or the host has no room.
    pub fn open(host: &dyn Gate, config: RingConfig) -> Result<Half<Self>, OpenError> {
        opened(host, |host| {
            config.check(footprint(config.len_max))?;
            let messages = ReceiveQueueLayout::new(config.messages, 0)?.receives();
            let (kind, needs) = (Kind::RingImmediate, &[OpType::Write, OpType::WriteWithImm]);
            open_sender(host, config, kind, needs, move |parts, grants| {
                let (room, grant) = (Room::new(parts.len.get()), grants[0]);
                Self { parts, room, sending: Sending::default(), grant, messages }
            })
        })
    }

    /// Takes the place of a message of `len` bytes.
    fn take(&mut self, len: u32) -> Result<Position, SendError> {
        self.sending.check()?;
        let is_full = self.sending.count() >= self.messages.into();
        let position = if is_full { None } else { self.room.take(footprint(len)) };
        position.ok_or(SendError::Full)
    }

    /// Writes a message from where it lies.
    fn write<P: AsMut<CommandPortal>>(
        &mut self,
        link: &mut Link<P>,
        now: Instant,
        position: Position,
        Source { region: local, offset: local_offset, len }: Source<'_>,
    ) -> Result<SendHandle, SendError> {
        let (grant, remote_offset) = (&self.parts.grant, self.parts.len.offset(position));
        let piece = Piece { grant, remote_offset, local, local_offset, len: len.into() };
        let immediate = immediate(position, len);
        let submitted = link.submit_with_imm(now, &piece, &self.grant, immediate);
        let call = submitted.map_err(|error| {
            self.room.untake(footprint(len));
            refused(error)
        })?;
        self.sending.publish(position..self.room.head(), call);
        Ok(SendHandle(position))
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
        let position = self.take(len)?;
        let (image, offset) = (self.parts.image.clone(), self.parts.len.offset(position));
        // The image is as long as the ring: or else nothing is written, and the call is refused.
        let _ = image.write(offset, message);
        let sent = self.write(link, now, position, Source { region: &image, offset, len })?;
        link.count_copied(message.len());
        Ok(sent)
    }

    fn poll(&mut self, link: &mut Link<P>, _: Instant) -> Result<(), SendError> {
        self.sending.poll(link, &self.parts.tail, &mut self.room)
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
        let len = checked_place(region, &range, 0, 0, self.parts.len_max)?;
        let position = self.take(len)?;
        self.write(link, now, position, Source { region, offset: range.start, len })
    }
}

#[cfg(test)]
mod tests;
