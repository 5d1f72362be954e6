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

use super::{Held, Malformed, Position, Reads, Record, RingLen, Room, WORD, padded, word_at};

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

    /// Makes the record of `message`, which has the announced length, in `image`, which is as long
    /// as the place and is then written.
    ///
    /// # Panics
    /// If they are not.
    pub fn fill(&self, message: &[u8], image: &mut [u8]) {
        assert_eq!((self.head as u32) as usize, message.len(), "as long as was said");
        assert_eq!(self.len, image.len() as u64, "an image is as long as its place");
        let (first, rest) = image.split_at_mut(WORD as usize);
        let (body, last) = rest.split_at_mut(rest.len() - WORD as usize);
        first.copy_from_slice(&self.first_word());
        body[..message.len()].copy_from_slice(message);
        body[message.len()..].fill(0);
        last.copy_from_slice(&self.last_word());
    }
}

/// Returns the word that ends a record at `position`: never 0, and no other record's.
const fn done(position: Position) -> u64 {
    position.to_bits() | 1
}

/// The sender's end of a ring of its own.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    ring: RingLen,
    room: Room,
    len_max: u32,
}

impl Writer {
    /// Of a ring that is empty, for messages of up to `len_max` bytes.
    #[must_use]
    pub const fn new(len: RingLen, len_max: u32) -> Self {
        Self { ring: len, room: Room::new(len.get()), len_max }
    }

    /// Returns the account of used and free room.
    #[must_use]
    pub const fn room(&self) -> &Room {
        &self.room
    }

    /// The same, to be told of.
    pub const fn room_mut(&mut self) -> &mut Room {
        &mut self.room
    }

    /// Takes the place of a message of `len` bytes. `None`: the ring is full, and there may be
    /// room later.
    ///
    /// # Panics
    /// If `len` is 0, or more than the longest message.
    pub fn take(&mut self, len: u32) -> Option<Place> {
        assert!(0 < len && len <= self.len_max, "{len} bytes are no message");
        let position = self.room.take(footprint(len))?;
        Some(Place::at(self.ring, position, len))
    }
}

/// The receiver's end of a ring.
#[derive(Debug)]
pub struct Reader {
    ring: RegisteredRegion,
    len: RingLen,
    len_max: u32,
    /// The position of the next record.
    next: Position,
    /// Up to where records were given back.
    tail: Position,
    held: Held,
}

impl Reader {
    /// Of a ring that is empty, for messages of up to `len_max` bytes. `ring` is circular, `len`
    /// bytes long, and zero.
    #[must_use]
    pub fn new(ring: RegisteredRegion, len: RingLen, len_max: u32) -> Self {
        let (next, tail) = (Position::ZERO, Position::ZERO);
        Self { ring, len, len_max, next, tail, held: Held::default() }
    }

    /// The first word of the next record: 0 if there is none.
    fn head(&self) -> u64 {
        // All of a full ring is taken and not given back: the oldest record begins here.
        let is_full = self.next.since(self.tail) == self.len.get();
        if is_full { 0 } else { word_at(&self.ring, self.len.offset(self.next)) }
    }

    //= channels#4.3-with-zeroing
    fn zero(&self, offset: u64, len: u64) {
        const ZEROS: [u8; 256] = [0; 256];
        let mut at = 0;
        while at < len {
            let now = (len - at).min(ZEROS.len() as u64);
            // Within the ring, as the record was found there.
            let _ = self.ring.write(offset + at, &ZEROS[..now as usize]);
            at += now;
        }
    }
}

impl Reads for Reader {
    fn poll(&mut self) -> Result<Option<Record>, Malformed> {
        let Self { len: ring, len_max, next: position, .. } = *self;
        let (offset, head) = (ring.offset(position), self.head());
        if head == 0 {
            return Ok(None);
        }
        let (len, lap) = (head as u32, ring.lap(position));
        let fits = 0 < len && len <= len_max && footprint(len) <= ring.get();
        if !fits || head != ring.head(position, len) {
            let position = position.to_bits();
            return Err(Malformed::Record { position, head, len_max, lap });
        }
        let offset = offset + WORD;
        if word_at(&self.ring, offset + padded(len)) != done(position) {
            return Ok(None);
        }
        self.held.take(position, footprint(len));
        self.next = position.after(footprint(len));
        Ok(Some(Record { position, offset, len }))
    }

    fn has_next(&self) -> bool {
        self.head() != 0
    }

    fn give_back(&mut self, record: Record) -> Option<Position> {
        let Record { position, offset, len } = record;
        self.zero(offset - WORD, WORDS + padded(len));
        let freed = self.held.give_back(position);
        self.tail = self.tail.after(freed);
        (freed > 0).then_some(self.tail)
    }

    fn tail(&self) -> Position {
        self.tail
    }

    fn next(&self) -> Position {
        self.next
    }

    fn ring(&self) -> &RegisteredRegion {
        &self.ring
    }
}
