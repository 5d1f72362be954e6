//! Records of a ring that its sender writes and others read (§4.6, figure 3).
//!
//! ```text
//! position, a multiple of 8
//! | length u32 | lap u32 | message, padded to words | 0 … 0, `ahead` and one word more |
//!   the bell                                           where the next record goes
//! ```
//!
//! The sender stores the message, then zeros beyond it, and then, with Release, the bell. So a READ
//! whose *first* word is a bell that is set has the message as far as it goes, as a responder loads
//! the first word of a READ before all others. Of the words behind the record it has zeros, or what
//! was stored there later: a word at which the next record begins is 0, or that record's bell.
//!
//! The paper clears the next bell alone: `ahead` is 0 then. Whoever is to find several bells in one
//! READ needs zeros for as many bytes as such a READ has (not in the paper): the words in the
//! middle of it are loaded in any order, so what was left there by the lap before could be taken
//! for a bell behind one that is. Each byte is zeroed once a lap either way.
//!
//! What a bell in the *middle* of a READ says is true: that record is there. But its message may
//! have been loaded before it was stored, so it must be read again.

use rma_core::region::RegisteredRegion;

use crate::ring::{Malformed, Position, RingLen, WORD, len_in, padded, word_at};

/// How many bytes of the ring a message of `len` bytes uses up.
pub(crate) const fn footprint(len: u32) -> u64 {
    WORD + padded(len)
}

/// How many bytes of a ring messages may use up, so that zeros beyond the newest fall on none.
pub(crate) const fn capacity(ring: RingLen, ahead: u32) -> u64 {
    ring.get().saturating_sub(WORD + padded(ahead))
}

/// The accesses of a ring's writer to its memory.
pub(crate) trait Memory {
    /// Stores bytes, in any order.
    fn put(&self, offset: u64, bytes: &[u8]);
    /// Stores a word after all that was stored before.
    fn publish(&self, offset: u64, word: u64);
}

impl Memory for RegisteredRegion {
    fn put(&self, offset: u64, bytes: &[u8]) {
        // The ring is as long as was said.
        let _ = self.write(offset, bytes);
    }

    fn publish(&self, offset: u64, word: u64) {
        let _ = self.store(offset, word.to_le());
    }
}

/// The sender's end of a ring.
#[derive(Debug)]
pub(crate) struct Writer<M = RegisteredRegion> {
    memory: M,
    ring: RingLen,
    ahead: u64,
    head: Position,
    /// From the head up to here all is zero.
    zeroed: Position,
}

impl<M: Memory> Writer<M> {
    /// Of a ring that is zero.
    pub(crate) const fn new(memory: M, ring: RingLen, ahead: u32) -> Self {
        let ahead = padded(ahead) + WORD;
        let (head, zeroed) = (Position::ZERO, Position::ZERO.after(ahead));
        Self { memory, ring, ahead, head, zeroed }
    }

    /// Up to where messages were written.
    pub(crate) const fn head(&self) -> Position {
        self.head
    }

    pub(crate) const fn memory(&self) -> &M {
        &self.memory
    }

    //= channels#4.6-inlined
    /// Writes a message, if there is room: memory before `freed` may change.
    pub(crate) fn write(&mut self, freed: Position, message: &[u8]) -> Option<Position> {
        let (position, len) = (self.head, message.len() as u32);
        let end = position.after(footprint(len));
        if end.since(freed) > self.ring.get() - self.ahead {
            return None;
        }
        let offset = self.ring.offset(position);
        let pad = &[0; WORD as usize][..(padded(len) - u64::from(len)) as usize];
        self.memory.put(offset + WORD, message);
        self.memory.put(offset + WORD + u64::from(len), pad);
        let zeros = end.after(self.ahead);
        let from =
            if end.since(position) > self.zeroed.since(position) { end } else { self.zeroed };
        self.zero(from, zeros.since(from));
        self.memory.publish(offset, self.ring.head(position, len));
        (self.head, self.zeroed) = (end, zeros);
        Some(position)
    }

    fn zero(&self, from: Position, len: u64) {
        const ZEROS: [u8; 256] = [0; 256];
        let mut at = 0;
        while at < len {
            let now = (len - at).min(ZEROS.len() as u64);
            self.memory.put(self.ring.offset(from.after(at)), &ZEROS[..now as usize]);
            at += now;
        }
    }
}

/// Reads the bell at `position` of a ring's memory, where a record may begin: its length, if one
/// does.
pub(crate) fn bell(
    memory: &RegisteredRegion,
    ring: RingLen,
    len_max: u32,
    position: Position,
) -> Result<Option<u32>, Malformed> {
    record(word_at(memory, ring.offset(position)), ring, len_max, position)
}

/// Decodes the word at `position`: how long the record is that begins there, if one does.
pub(crate) fn record(
    head: u64,
    ring: RingLen,
    len_max: u32,
    position: Position,
) -> Result<Option<u32>, Malformed> {
    if head == 0 { Ok(None) } else { len_in(head, ring, len_max, position, |_| true).map(Some) }
}

#[cfg(test)]
mod tests;
