//! Records whose receiver clears them (the paper's §4.3, inlined bell with zeroing; §4.4, shared).
//!
//! ```text
//! position, a multiple of 64                                     the next record's
//! | length u32 | lap u32 | message, padded to words | done |  …  |
//! ```
//!
//! Free memory is zero. The receiver polls the first word until it is not, checks it, and polls
//! `done` until it is the record's position with its lowest bit set: that word lands last, as the
//! op that ends the record is ordered. Then the whole message is there. Once it is processed the
//! receiver zeroes the record and only then frees it.
//!
//! Invariant: what [`Reader::poll`] returns is whole, and each record is returned once, in the
//! order of positions. Records may land in any order: one that is missing holds up those behind it.

use rma_core::region::RegisteredRegion;

use super::{
    Malformed, Position, Reads, Record, RingLen, Taking, WORD, len_in, padded, word_at, zero,
};

/// The alignment of records: at multiples of this many bytes, a cache line.
pub const ALIGN: u64 = 64;

/// The length of a record's words besides its message: the words before it and after it.
const WORDS: u64 = 2 * WORD;

/// How many bytes of the ring a message of `len` bytes uses up.
#[must_use]
pub const fn footprint(len: u32) -> u64 {
    (WORDS + padded(len)).next_multiple_of(ALIGN)
}

/// A place in the ring that a message must go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The position of the record, which is its name.
    pub position: Position,
    /// The offset in the receiver's region, in bytes.
    pub remote_offset: u64,
    /// How many bytes are written, from there on: the first word, the message and the last word.
    pub len: u64,
    head: u64,
}

impl Place {
    /// The offset of a record's message in the record, in bytes.
    pub const MESSAGE: u64 = WORD;

    /// The place of a message of `len` bytes at `position`: what a sender of a shared ring makes of
    /// what it has reserved.
    #[must_use]
    pub const fn at(ring: RingLen, position: Position, len: u32) -> Self {
        let head = ring.head(position, len);
        let (remote_offset, len) = (ring.offset(position), WORDS + padded(len));
        Self { position, remote_offset, len, head }
    }

    /// The word that the record begins with, as it stands in memory.
    #[must_use]
    pub const fn first_word(&self) -> [u8; WORD as usize] {
        self.head.to_le_bytes()
    }

    /// The word that the record ends with, as it stands in memory: it is to land last.
    #[must_use]
    pub const fn last_word(&self) -> [u8; WORD as usize] {
        done(self.position).to_le_bytes()
    }

    /// Makes the record around its message, of `len` bytes, which stands in memory already:
    /// `offset` is where the record begins there. Beyond that memory nothing is written.
    pub(crate) fn surround(&self, memory: &RegisteredRegion, offset: u64, len: u32) {
        let end = offset + self.len - WORD;
        let message_end = offset + Self::MESSAGE + u64::from(len);
        let _ = memory.write(offset, &self.first_word());
        let _ = memory.write(message_end, &[0; 8][..(end - message_end) as usize]);
        let _ = memory.write(end, &self.last_word());
    }
}

/// Returns the word that ends a record at `position`: never 0, and no other record's.
const fn done(position: Position) -> u64 {
    position.to_bits() | 1
}

/// The receiver's end of a ring.
#[derive(Debug)]
pub struct Reader {
    taking: Taking,
}

impl Reader {
    /// Of a ring that is empty, for messages of up to `len_max` bytes. `ring` is circular, `len`
    /// bytes long, and zero.
    #[must_use]
    pub fn new(ring: RegisteredRegion, len: RingLen, len_max: u32) -> Self {
        Self { taking: Taking::new(ring, len, len_max) }
    }

    /// The first word of the next record: 0 if there is none.
    fn head(&self) -> u64 {
        // All of a full ring is taken and not given back: the oldest record begins here.
        let Taking { ring, len, next, tail, .. } = &self.taking;
        let is_full = next.since(*tail) == len.get();
        if is_full { 0 } else { word_at(ring, len.offset(*next)) }
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
        let (offset, head) = (ring.offset(position), self.head());
        if head == 0 {
            return Ok(None);
        }
        let len = len_in(head, ring, len_max, position, |len| footprint(len) <= ring.get())?;
        let offset = offset + WORD;
        if word_at(&self.taking.ring, offset + padded(len)) != done(position) {
            return Ok(None);
        }
        Ok(Some(self.taking.take(footprint(len), offset, len)))
    }

    fn has_next(&self) -> bool {
        self.head() != 0
    }

    //= channels#4.3-with-zeroing
    fn give_back(&mut self, record: Record) -> Option<Position> {
        // Within the ring, as the record was found there.
        zero(&self.taking.ring, record.offset - WORD, WORDS + padded(record.len));
        self.taking.give_back(record.position)
    }
}
