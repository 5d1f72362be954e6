//! Ring buffer, IMM-based (§4.3): one WRITE_WITH_IMM a message, any number of them under way and in
//! any order, and an event for each, which a receiver may sleep for.
//!
//! There is nothing in the ring but messages: the event says where and how long. So nothing is
//! beside a message that is sent where it lies.
//!
//! A message takes a receive of the ring's queue until its event is read. The sender counts, beside
//! bytes, the messages that are not processed, so that there is always a receive for the next one:
//! it never finds the receiver not ready.

use rma_core::{
    executor::{CallError, CallId, Piece},
    gate::Gate,
    grant::Grant,
    op::OpType,
    portal::Source,
    receive_queue::{ReceiveQueue, ReceiveQueueLayout},
    region::Permissions,
    time::Instant,
};
use rma_shm::Region;

use super::{
    RingConfig, RingReceiver, SenderParts, open_receiver, open_sender,
    sender::{Carries, Each, RingSender},
};
use crate::{
    close::opened,
    flow,
    link::Link,
    receiver::Blocking,
    ring::{
        Position,
        immediate::{Reader, footprint, immediate},
    },
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

/// The sender's end.
pub type Sender = RingSender<Each<Whole>>;

//= channels#4.3-immediate
/// Messages that go by a WRITE_WITH_IMM each.
#[derive(Debug)]
pub struct Whole {
    /// For WRITE_WITH_IMM into the ring.
    pub(super) grant: Grant,
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
                Each::new(parts, Whole { grant: grants[0], messages })
            })
        })
    }
}

impl Carries for Whole {
    const BESIDE: (u64, u64) = (0, 0);
    const FOOTPRINT: fn(u32) -> u64 = footprint;

    fn is_full(&self, count: usize) -> bool {
        count >= self.messages.into()
    }

    fn carry(
        &self,
        parts: &SenderParts,
        link: &mut Link,
        now: Instant,
        position: Position,
        Source { region: local, offset: local_offset, len }: Source<'_>,
    ) -> Result<CallId, CallError> {
        let (grant, remote_offset) = (&parts.grant, parts.len.offset(position));
        let piece = Piece { grant, remote_offset, local, local_offset, len: len.into() };
        link.submit_with_imm(now, &piece, &self.grant, immediate(position, len))
    }
}

#[cfg(test)]
mod tests;
