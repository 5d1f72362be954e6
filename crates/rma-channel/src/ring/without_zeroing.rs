//! Records that clear the bell of the next one (the paper's §4.3, inlined bell without zeroing):
//! the receiver reads and frees, and writes nothing.
//!
//! Each message goes *below* the one before it. Its record is
//!
//! ```text
//! | 0 | message, padded to words | length u32 | lap u32 |
//!   the next bell                  this record's bell
//! ```
//!
//! and its topmost word, the *bell*, is the lowest word of the record before: the one that said 0.
//! So one op unsets the bell of the message that comes next and sets its own. The bell lands last,
//! as the op that carries it is ordered.
//!
//! The paper needs messages in order, as one op writes 0 where the next op writes a length. Ops
//! here have no order. So what has gathered while an op is under way goes as one *run*: records one
//! below the other, of which only the topmost bell tells the receiver anything; the others are in
//! their places by then. [`Writer`] makes runs. Whoever has more than an op's worth writes the run
//! *without* its topmost bell first, by any ops in any order, and then that one word, an ordered
//! WRITE after the bytes of its run and of the run before: [`Run::split`].
//!
//! A sender keeps an image of the ring, from where it writes. The bell of a run is the lowest word
//! of the run before, as which it is 0; so it comes into the image only when the op that carries it
//! as 0 is over: [`Writer::set_bell`]. (An op may be read from memory until it is over. With the
//! bell in its place too soon, the run before would bring it along.)
//!
//! Invariant: the word at the next bell is 0 until the message that it belongs to is whole, and all
//! before it. Therefore one word stays free: the 0 of the newest record must not fall on the bell
//! of the oldest that is not freed.

use core::ops::Range;

use rma_core::region::RegisteredRegion;

use super::{
    Malformed, Position, Reads, Record, RingLen, Room, Taking, WORD, len_in, padded, word_at,
};

/// How many bytes of the ring a message of `len` bytes uses up: its own and its bell.
#[must_use]
pub const fn footprint(len: u32) -> u64 {
    padded(len) + WORD
}

/// Returns the offset in the region of the bell of the record at `position`: positions count down
/// from the last word.
const fn bell_offset(ring: RingLen, position: Position) -> u64 {
    ring.get() - WORD - ring.offset(position)
}

/// Messages that go together: records one below the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The position of the first, topmost record.
    pub position: Position,
    /// The offset of the run's lowest byte in the receiver's region; from there on it is one run of
    /// bytes, as the region is circular.
    pub remote_offset: u64,
    /// How many bytes it has, the 0 at its bottom and the bell at its top included.
    pub len: u64,
    /// How many messages.
    pub messages: u32,
    /// The topmost bell, as it stands in memory on this host.
    pub(crate) bell: u64,
}

impl Run {
    /// From where to where in the ring it goes: the next run begins where it ends.
    pub(crate) const fn positions(&self) -> Range<Position> {
        self.position..self.position.after(self.len - WORD)
    }

    /// Up to where the run's bytes go first, by any ops in any order; the rest goes when those have
    /// landed, and those of the run before, by one op, as which the topmost bell lands last.
    /// `last`: how many bytes the last op has if the run is cut into ops. One op carries a shorter
    /// run, of which only the bell is left for the second.
    ///
    /// A bell alone would be an op more where the last op has room for it. With one op in five less
    /// a busy ring carries 4.9 million messages of 64 B a second, not 4.4.
    #[must_use]
    pub const fn split(&self, last: u32) -> u64 {
        let bell = self.bell_word();
        match self.len.saturating_sub(last as u64).next_multiple_of(WORD) {
            0 => bell,
            before if before < bell => before,
            _ => bell,
        }
    }

    /// Returns the offset of the topmost bell in the run.
    pub(crate) const fn bell_word(&self) -> u64 {
        self.len - WORD
    }
}

/// The sender's end of a ring: it makes runs in an image of the receiver's region, from where they
/// are written to the same place there.
#[derive(Debug)]
pub struct Writer {
    image: RegisteredRegion,
    ring: RingLen,
    room: Room,
    len_max: u32,
    /// The first record that is in no run that was taken.
    run: Position,
    messages: u32,
    /// The bell of the next run.
    bell: u64,
}

impl Writer {
    /// Of a ring that is empty, for messages of up to `len_max` bytes. `image` is circular and as
    /// long as the ring.
    #[must_use]
    pub const fn new(image: RegisteredRegion, len: RingLen, len_max: u32) -> Self {
        let (room, run) = (Room::new(len.get() - WORD), Position::ZERO);
        Self { image, ring: len, room, len_max, run, messages: 0, bell: 0 }
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

    /// Returns the image that runs are written from: at their [`Run::remote_offset`].
    #[must_use]
    pub const fn image(&self) -> &RegisteredRegion {
        &self.image
    }

    /// How many bytes the next run would have: 0 if there is none to take.
    #[must_use]
    pub const fn gathered(&self) -> u64 {
        if self.messages == 0 { 0 } else { self.room.head().since(self.run) + WORD }
    }

    /// Adds a message to the next run. `None`: the ring is full, and there may be room later.
    ///
    /// # Panics
    /// If the message is empty, or longer than the longest.
    pub fn add(&mut self, message: &[u8]) -> Option<Position> {
        let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
        assert!(0 < len && len <= self.len_max, "{len} bytes are no message");
        let ring = self.ring;
        let position = self.room.take(footprint(len))?;
        let (bell, head) = (bell_offset(ring, position), ring.head(position, len).to_le());
        let next = bell_offset(ring, self.room.head());
        // Upwards from the next bell, around the end of the region if it comes to that. The image
        // is as long as the ring: or else nothing is written.
        let _ = self.image.store(next, 0);
        let _ = self.image.write(next + WORD, message);
        let pad = &[0; WORD as usize][..(padded(len) - u64::from(len)) as usize];
        let _ = self.image.write(next + WORD + u64::from(len), pad);
        if self.messages == 0 {
            self.bell = head;
        } else {
            let _ = self.image.store(bell, head);
        }
        self.messages += 1;
        Some(position)
    }

    /// Takes a place for a message of `len` bytes that is written from elsewhere, as a run of its
    /// own. What has gathered was taken before. `None`: the ring is full, and there may be room
    /// later.
    ///
    /// # Panics
    /// If the message is empty, or longer than the longest, or something has gathered.
    pub fn take_place(&mut self, len: u32) -> Option<Run> {
        assert!(0 < len && len <= self.len_max, "{len} bytes are no message");
        assert_eq!(self.messages, 0, "what has gathered goes first");
        let position = self.room.take(footprint(len))?;
        self.bell = self.ring.head(position, len).to_le();
        self.messages = 1;
        self.take_run()
    }

    /// Gives back the place that was taken last: nothing was issued of its message.
    pub(crate) const fn untake_place(&mut self, run: &Run) {
        self.room.untake(run.len - WORD);
        self.run = run.position;
    }

    /// Puts the bell of a run into the image. The run before it must be over, as far as its bytes
    /// go: the bell is one of them, and 0 there.
    pub fn set_bell(&self, run: &Run) {
        let _ = self.image.store(bell_offset(self.ring, run.position), run.bell);
    }

    /// Takes what has gathered, to be written once its bell is set ([`Writer::set_bell`]), but for
    /// its body, which may be written at once. `None` if nothing has.
    //= channels#4.3-without-zeroing
    pub fn take_run(&mut self) -> Option<Run> {
        let messages = core::mem::take(&mut self.messages);
        let (position, head) = (self.run, self.room.head());
        if messages == 0 {
            return None;
        }
        self.run = head;
        let remote_offset = bell_offset(self.ring, head);
        let len = head.since(position) + WORD;
        Some(Run { position, remote_offset, len, messages, bell: self.bell })
    }

    /// Takes a run back, which was the last one taken, and to which nothing has been added since:
    /// nothing was issued of it.
    pub(crate) fn untake_run(&mut self, run: &Run) {
        (self.run, self.messages, self.bell) = (run.position, run.messages, run.bell);
    }
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

    /// The bell of the next record: 0 if there is none.
    fn bell(&self) -> u64 {
        let Taking { ring, len, next, .. } = &self.taking;
        word_at(ring, bell_offset(*len, *next))
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
        let Taking { len: ring, len_max, next: position, tail, .. } = self.taking;
        let head = self.bell();
        if head == 0 {
            return Ok(None);
        }
        // As far as its sender may be ahead of what was given back: one word stays free.
        let used = |len| position.since(tail) + footprint(len) + WORD;
        let len = len_in(head, ring, len_max, position, |len| used(len) <= ring.get())?;
        let offset = bell_offset(ring, position.after(footprint(len))) + WORD;
        Ok(Some(self.taking.take(footprint(len), offset, len)))
    }

    fn has_next(&self) -> bool {
        self.bell() != 0
    }
}
