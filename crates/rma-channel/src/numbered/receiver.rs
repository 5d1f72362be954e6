//! The receiver's end of channels whose messages are told of by events.

use core::{fmt, ops::Range};
use std::sync::Arc;

use rma_core::{
    receive_queue::{Event, Receive, ReceiveQueue},
    region::RegisteredRegion,
    time::Instant,
};

use super::places::Places;
use crate::{
    arrivals::Arrivals,
    close::{Registered, gives_back},
    duplex::Tails,
    flow::{Rides, Teller},
    link::Link,
    receiver::{Blocking, Claim, Claims, ReceiveError, Receiver, read},
    ring::{Malformed, Position, Record},
};

/// The form in which a channel's events tell of messages.
pub trait Tells: fmt::Debug {
    /// Whether a message lies in the buffer of its receive, which is its own until it is given
    /// back. Otherwise receives are posted again at once.
    const KEEPS_RECEIVE: bool;

    /// The message that an event tells of, if it can be one: `next` is the number that comes next,
    /// and `region` where messages lie.
    fn message(
        &self,
        event: &Event,
        next: Position,
        region: &RegisteredRegion,
    ) -> Result<Record, Malformed>;
}

/// The receiver's end of a channel of numbered messages, which events tell of.
#[derive(Debug)]
pub struct EventReceiver<T> {
    tells: T,
    queue: ReceiveQueue,
    /// The memory that messages lie in: the queue's buffers, or slots.
    pub(super) memory: RegisteredRegion,
    /// How far apart.
    stride: u64,
    arrivals: Arrivals<Record>,
    teller: Teller,
    /// The malformed input that came.
    malformed: Option<Malformed>,
    /// All that it gives back when it is closed.
    registered: Registered,
}

impl<T: Tells> EventReceiver<T> {
    pub(crate) fn new(
        tells: T,
        queue: ReceiveQueue,
        memory: RegisteredRegion,
        places: Places,
        teller: Teller,
    ) -> Self {
        let (stride, arrivals) = (places.stride, Arrivals::new(places.count.into()));
        let (malformed, registered) = (None, Registered::default());
        Self { tells, queue, memory, stride, arrivals, teller, malformed, registered }
    }

    /// Up to which message all are processed.
    #[must_use]
    pub const fn tail(&self) -> Position {
        self.arrivals.tail()
    }

    /// Returns the place of one of this receiver's messages: in the memory that it was opened with,
    /// or in a buffer of its queue, with its range in bytes. It stays there until it is given back.
    #[must_use]
    pub const fn place(&self, claim: &Claim) -> (&RegisteredRegion, Range<u64>) {
        (&self.memory, claim.record.range())
    }

    /// Takes the events that there are.
    fn gather(&mut self) -> Result<(), Malformed> {
        while let Some(event) = self.queue.poll() {
            let message = self.tells.message(&event, self.arrivals.next(), &self.memory)?;
            self.arrivals.insert(message.position, message)?;
            if !T::KEEPS_RECEIVE {
                // It was polled just now.
                let _ = self.queue.post(event.receive);
            }
        }
        Ok(())
    }
}

gives_back!(EventReceiver<T: Tells>);

impl<T: Tells> Tails for EventReceiver<T> {
    fn tail(&self) -> Position {
        self.tail()
    }

    fn ride(&mut self, rides: Arc<Rides>) {
        self.teller.ride(rides);
    }
}

impl<T: Tells> Claims for EventReceiver<T> {
    fn claim(&mut self) -> Result<Option<Claim>, ReceiveError> {
        if self.malformed.is_none() {
            self.malformed = self.gather().err();
        }
        match self.malformed {
            Some(malformed) => Err(malformed.into()),
            None => Ok(self.arrivals.take().map(|(_, record)| Claim { record, from: None })),
        }
    }

    fn read(&self, claim: &Claim, offset: usize, bytes: &mut [u8]) -> usize {
        read(&self.memory, &claim.record, offset, bytes)
    }

    fn free(&mut self, claim: Claim) {
        if T::KEEPS_RECEIVE {
            // The event's number of the receive; and before the sender is told that there is room.
            let _ = self.queue.post(Receive((claim.record.offset / self.stride) as u16));
        }
        self.arrivals.give_back(claim.record.position);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.teller.poll_timeout()
    }
}

impl<T: Tells> Receiver for EventReceiver<T> {
    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), ReceiveError> {
        let is_all = self.arrivals.is_all() && !self.queue.has_event();
        // A failed report is repeated.
        self.teller.poll(link, now, self.arrivals.tail(), is_all)?;
        Ok(())
    }
}

impl<T: Tells> Blocking for EventReceiver<T> {
    fn queue(&self) -> &ReceiveQueue {
        &self.queue
    }
}
