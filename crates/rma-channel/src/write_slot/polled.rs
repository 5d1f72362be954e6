//! The receiver's end of slots whose bells are words that it polls.

use core::{fmt, marker::PhantomData, ops::Range};
use std::sync::Arc;

use rma_core::{region::RegisteredRegion, time::Instant};

use super::rung;
use crate::{
    close::{Registered, gives_back},
    duplex::Tails,
    flow::{Rides, Teller},
    link::Link,
    numbered::Places,
    receiver::{Claim, Claims, ReceiveError, Receiver, read},
    ring::{Held, Malformed, Position, Record, word_at},
};

/// The layout of messages and their bells.
pub trait Lies: fmt::Debug {
    /// Returns the offset of a message's bell in the memory of bells.
    fn bell(places: &Layout, number: Position) -> u64;

    /// Returns the offset of a message of `len` bytes in the memory of slots.
    fn message(places: &Layout, number: Position, len: u32) -> u64;
}

/// The slots of a channel.
#[derive(Clone, Copy, Debug)]
pub struct Layout(pub(crate) Places);

/// The receiver's end of slots whose bells are polled: the next message is there when the bell of
/// its slot is not what it was.
#[derive(Debug)]
pub struct Polled<L> {
    lies: PhantomData<L>,
    /// The slots.
    memory: RegisteredRegion,
    /// The region of bells: the same, or another region.
    bells: RegisteredRegion,
    layout: Layout,
    /// By slot: the bell that was taken last.
    taken: Box<[u64]>,
    next: Position,
    tail: Position,
    held: Held,
    teller: Teller,
    /// The malformed word that stood there.
    malformed: Option<Malformed>,
    /// All that it gives back when it is closed.
    registered: Registered,
}

impl<L: Lies> Polled<L> {
    /// Slots in `memory`, with bells in `bells`, which are made 0.
    pub(crate) fn new(
        memory: RegisteredRegion,
        bells: RegisteredRegion,
        places: Places,
        teller: Teller,
    ) -> Self {
        let (layout, taken) = (Layout(places), vec![0; places.count.into()].into());
        for slot in 0..places.count {
            // The bells' places were made for these slots.
            let _ = bells.store(L::bell(&layout, Position::from_bits(slot.into())), 0);
        }
        Self {
            lies: PhantomData,
            memory,
            bells,
            layout,
            taken,
            next: Position::ZERO,
            tail: Position::ZERO,
            held: Held::default(),
            teller,
            malformed: None,
            registered: Registered::default(),
        }
    }

    /// Up to which message all are processed.
    #[must_use]
    pub const fn tail(&self) -> Position {
        self.tail
    }

    /// Returns the place of one of this receiver's messages, in the memory that it was opened with:
    /// its range in bytes. It stays there until it is given back.
    #[must_use]
    pub const fn place(&self, claim: &Claim) -> (&RegisteredRegion, Range<u64>) {
        (&self.memory, claim.record.range())
    }

    /// The bell of the next message's slot, and that which was taken last.
    fn bell(&self) -> (u64, u64) {
        let bell = word_at(&self.bells, L::bell(&self.layout, self.next));
        (bell, self.taken[self.layout.0.index(self.next) as usize])
    }

    fn has_next(&self) -> bool {
        let (bell, taken) = self.bell();
        bell != taken
    }

    /// The next message, if its bell has rung.
    fn poll_bell(&mut self) -> Result<Option<Record>, Malformed> {
        let (bell, taken) = self.bell();
        if bell == taken {
            return Ok(None);
        }
        let (number, len_max) = (self.next, self.layout.0.len_max);
        let (position, len) = rung(bell, number, len_max)?;
        if position != number {
            return Err(Malformed::Bell { number: number.to_bits(), bell, len_max });
        }
        self.taken[self.layout.0.index(number) as usize] = bell;
        self.next = number.after(1);
        self.held.take(number, 1);
        let offset = L::message(&self.layout, number, len);
        Ok(Some(Record { position, offset, len }))
    }
}

gives_back!(Polled<L: Lies>);

impl<L: Lies> Tails for Polled<L> {
    fn tail(&self) -> Position {
        self.tail()
    }

    fn ride(&mut self, rides: Arc<Rides>) {
        self.teller.ride(rides);
    }
}

impl<L: Lies> Claims for Polled<L> {
    fn claim(&mut self) -> Result<Option<Claim>, ReceiveError> {
        if let Some(malformed) = self.malformed {
            return Err(malformed.into());
        }
        let record = self.poll_bell().inspect_err(|&error| self.malformed = Some(error))?;
        Ok(record.map(|record| Claim { record, from: None }))
    }

    fn read(&self, claim: &Claim, offset: usize, bytes: &mut [u8]) -> usize {
        read(&self.memory, &claim.record, offset, bytes)
    }

    fn free(&mut self, claim: Claim) {
        self.tail = self.tail.after(self.held.give_back(claim.record.position));
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.teller.poll_timeout()
    }
}

impl<L: Lies> Receiver for Polled<L> {
    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), ReceiveError> {
        let is_all = self.tail == self.next && !self.has_next();
        // A failed report is repeated.
        self.teller.poll(link, now, self.tail, is_all)?;
        Ok(())
    }
}
