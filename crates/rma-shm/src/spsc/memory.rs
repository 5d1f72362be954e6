//! A ring's memory, as everybody has it who has it mapped: all words may be read and written, at
//! any time, by rules or against them. The two ends are made of it.

use super::{Capacity, Consumer, Producer, Side, place::Place};
use crate::line::Line;
#[cfg(not(loom))]
use crate::mapping::{LayoutError, Mapping};
use core::fmt;
#[cfg(not(loom))]
use std::sync::Arc;

/// The memory of one ring, before or beside its ends.
///
/// One side formats it and the other joins it, or one process makes both ends. There should be one
/// producer and one consumer of it, wherever they are; if there are more, what they pass is
/// garbage, and that is all.
///
/// Its words can be read and written here in spite of the ends' ownership, as a process can that
/// has the memory mapped: to look at what a dead process has left, to begin anew, and to play a
/// hostile one.
#[derive(Clone)]
pub struct RingMemory(Place);

impl RingMemory {
    /// The memory of an empty ring that only this process has.
    #[must_use]
    pub fn heap(capacity: Capacity) -> Self {
        Self(Place::heap(capacity))
    }

    /// The bytes that a ring takes in a mapping.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn footprint(capacity: Capacity) -> usize {
        Place::footprint(capacity)
    }

    /// Makes an empty ring at offset `at` of `mapping`, over whatever was there.
    ///
    /// # Errors
    ///
    /// If its [footprint](Self::footprint) does not fit there.
    #[cfg(not(loom))]
    pub fn format(
        mapping: &Arc<Mapping>,
        at: usize,
        capacity: Capacity,
    ) -> Result<Self, LayoutError> {
        Place::format(mapping, at, capacity).map(Self)
    }

    /// The ring that another process has formatted at offset `at` of `mapping`. The capacity is
    /// what both have agreed on: the memory is only asked whether it says the same.
    ///
    /// # Errors
    ///
    /// If its [footprint](Self::footprint) does not fit there, or there is no such ring.
    #[cfg(not(loom))]
    pub fn join(
        mapping: &Arc<Mapping>,
        at: usize,
        capacity: Capacity,
    ) -> Result<Self, LayoutError> {
        Place::join(mapping, at, capacity).map(Self)
    }

    /// The end that publishes lines, after those that have been published already.
    ///
    /// The memory is asked once how many these are, and how many have been taken of them. Is that
    /// impossible, the ring looks full until it makes sense.
    #[must_use]
    pub fn into_producer(self) -> Producer {
        let (tail, head) = (self.tail(), self.head());
        let capacity = self.0.capacity();
        let mut side = Side::new(self.0, tail, tail.wrapping_sub(capacity));
        side.look(head, capacity);
        Producer(side)
    }

    /// The end that takes lines, after those that have been taken already. The memory is asked once
    /// how many these are.
    #[must_use]
    pub fn into_consumer(self) -> Consumer {
        let head = self.head();
        Consumer(Side::new(self.0, head, head))
    }

    /// How many lines have been published, modulo 2^32, by what the memory says.
    #[must_use]
    pub fn tail(&self) -> u32 {
        self.0.tail()
    }

    /// Writes the index that belongs to the producer.
    pub fn set_tail(&self, tail: u32) {
        self.0.set_tail(tail);
    }

    /// How many lines have been taken, modulo 2^32, by what the memory says.
    #[must_use]
    pub fn head(&self) -> u32 {
        self.0.head()
    }

    /// Writes the index that belongs to the consumer.
    pub fn set_head(&self, head: u32) {
        self.0.set_head(head);
    }

    /// The line in the entry of line `index`.
    #[must_use]
    pub fn line(&self, index: u32) -> Line {
        self.0.entry(index).load()
    }

    /// Writes the entry of line `index`, whoever it belongs to.
    pub fn set_line(&self, index: u32, line: &Line) {
        self.0.entry(index).store(line);
    }

    /// Writes one of the eight words of the entry of line `index`. `word` counts modulo eight.
    pub fn set_word(&self, index: u32, word: usize, value: u64) {
        self.0.entry(index).store_word(word, value);
    }
}

impl fmt::Debug for RingMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingMemory")
            .field("tail", &self.tail())
            .field("head", &self.head())
            .field("capacity", &self.0.capacity())
            .finish()
    }
}
