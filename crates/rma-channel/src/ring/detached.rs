//! Records that say how long they are and nothing else: that they are there is said by a bell
//! elsewhere (the paper's §4.3, detached bell).
//!
//! ```text
//! position, a multiple of 8             the next record's
//! | length u32 | lap u32 | message, padded to words | …
//! ```
//!
//! The bell is a word of the receiver's that holds the head: up to where the ring is used up. It is
//! set after the bytes of all that it covers, so one bell may cover any number of messages, and the
//! newest says all. Nothing is cleared.
//!
//! Invariant: the receiver looks at no byte that is not before the head.

use rma_core::region::RegisteredRegion;

use super::{Malformed, Position, Reads, Record, RingLen, Taking, WORD, len_in, padded, word_at};

/// How many bytes of the ring a message of `len` bytes uses up: its length and its own.
#[must_use]
pub const fn footprint(len: u32) -> u64 {
    WORD + padded(len)
}

/// The word that the record of a message of `len` bytes at `position` begins with.
pub(crate) const fn first_word(ring: RingLen, position: Position, len: u32) -> u64 {
    ring.head(position, len).to_le()
}

/// The receiver's end of a ring.
#[derive(Debug)]
pub struct Reader {
    taking: Taking,
    /// A word, which the sender writes.
    bell: RegisteredRegion,
    /// The latest head that was told.
    head: Position,
}

impl Reader {
    /// Of a ring that is empty, for messages of up to `len_max` bytes. `ring` is circular and `len`
    /// bytes long; `bell` is a word, zero.
    #[must_use]
    pub fn new(ring: RegisteredRegion, bell: RegisteredRegion, len: RingLen, len_max: u32) -> Self {
        Self { taking: Taking::new(ring, len, len_max), bell, head: Position::ZERO }
    }

    /// The bell, for tests to set.
    #[cfg(test)]
    pub(crate) const fn bell(&self) -> &RegisteredRegion {
        &self.bell
    }

    /// The latest head, if it can be what the bell says. It never goes back.
    fn look(&self) -> Result<Position, Malformed> {
        let told = Position::from_bits(word_at(&self.bell, 0));
        let (head, tail, len) = (self.head, self.taking.tail, self.taking.len.get());
        if head.since(told) <= len {
            return Ok(head);
        }
        if told.since(head) > len - head.since(tail) {
            let (told, end) = (told.to_bits(), tail.after(len).to_bits());
            return Err(Malformed::UsedUp { told, head: head.to_bits(), end });
        }
        Ok(told)
    }
}

impl Reads for Reader {
    fn taking(&self) -> &Taking {
        &self.taking
    }

    fn taking_mut(&mut self) -> &mut Taking {
        &mut self.taking
    }

    fn poll(&mut self) -> Result<Option<Record>, Malformed> {
        let Taking { len: ring, len_max, next: position, .. } = self.taking;
        if position == self.head {
            self.head = self.look()?;
        }
        let there = self.head.since(position);
        if there == 0 {
            return Ok(None);
        }
        let offset = ring.offset(position);
        let head = word_at(&self.taking.ring, offset);
        let len = len_in(head, ring, len_max, position, |len| footprint(len) <= there)?;
        Ok(Some(self.taking.take(footprint(len), offset + WORD, len)))
    }

    fn has_next(&self) -> bool {
        self.head != self.taking.next || self.look() != Ok(self.taking.next)
    }
}
