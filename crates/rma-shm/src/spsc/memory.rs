//! A ring's memory, as a process has it that maps it: every word may be read and written, at any
//! time, by rules or against them.
//!
//! It is what tests and fuzzers play a hostile process with; nothing else needs it. All of it is
//! atomic words, so whatever is written here is no undefined behaviour on either side.

use super::{Consumer, Producer, Shared};
use crate::{
    line::Line,
    sync::{Arc, Ordering},
};
use core::fmt;

/// All words of one ring.
#[derive(Clone)]
pub struct RingMemory(Arc<Shared>);

impl Producer {
    /// The ring's memory, to break the rules with.
    #[doc(hidden)]
    #[must_use]
    pub fn memory(&self) -> RingMemory {
        RingMemory(Arc::clone(&self.0.shared))
    }
}

impl Consumer {
    /// The ring's memory, to break the rules with.
    #[doc(hidden)]
    #[must_use]
    pub fn memory(&self) -> RingMemory {
        RingMemory(Arc::clone(&self.0.shared))
    }
}

impl RingMemory {
    /// How many lines have been published, modulo 2^32, by what the memory says.
    #[must_use]
    pub fn tail(&self) -> u32 {
        self.0.tail.load(Ordering::Acquire)
    }

    /// Writes the index that belongs to the producer.
    pub fn set_tail(&self, tail: u32) {
        self.0.tail.store(tail, Ordering::Release);
    }

    /// How many lines have been taken, modulo 2^32, by what the memory says.
    #[must_use]
    pub fn head(&self) -> u32 {
        self.0.head.load(Ordering::Acquire)
    }

    /// Writes the index that belongs to the consumer.
    pub fn set_head(&self, head: u32) {
        self.0.head.store(head, Ordering::Release);
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
        self.0.entry(index).0[word % Line::WORDS].store(value, Ordering::Relaxed);
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
