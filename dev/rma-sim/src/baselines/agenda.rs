//! Events in the order of their times, those of one time in the order in which
//! they were made.

use core::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use rma_core::time::Instant;

#[derive(Debug)]
struct Timed<E> {
    at: Instant,
    order: u64,
    event: E,
}

impl<E> Timed<E> {
    const fn key(&self) -> (Instant, u64) {
        (self.at, self.order)
    }
}

impl<E> Ord for Timed<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl<E> PartialOrd for Timed<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Timed<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Timed<E> {}

/// The events to come, and the time.
#[derive(Debug)]
pub(super) struct Agenda<E> {
    events: BinaryHeap<Reverse<Timed<E>>>,
    made: u64,
    now: Instant,
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Self { events: BinaryHeap::new(), made: 0, now: Instant::ZERO }
    }
}

impl<E> Agenda<E> {
    pub(super) const fn now(&self) -> Instant {
        self.now
    }

    /// Lets `event` happen at `at`, which is not before now.
    pub(super) fn at(&mut self, at: Instant, event: E) {
        debug_assert!(at >= self.now, "{at:?} is over at {:?}", self.now);
        self.made += 1;
        self.events.push(Reverse(Timed { at, order: self.made, event }));
    }

    /// Goes to the next event.
    pub(super) fn next(&mut self) -> Option<E> {
        let Reverse(next) = self.events.pop()?;
        self.now = next.at;
        Some(next.event)
    }
}
