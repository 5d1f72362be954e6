//! Circular buffers of messages (the paper's §4.3): positions, room, and records.
//!
//! A ring is a circular region (`Region::circular` of `rma-shm`): what is written or read at its
//! end goes on at its beginning, so no record is cut in two. Here is what both ends agree on, and
//! how a receiver finds the next message: [`zeroing`] and [`without_zeroing`] are the two ways in
//! which a record says by itself that it is there; of [`detached`] records a bell elsewhere says
//! so, and of [`immediate`] ones an event. Not here: which ops carry a record, and how the sender
//! learns the tail.
//!
//! # Positions
//!
//! A [`Position`] is how many bytes of the ring have been used up since its beginning: it only ever
//! grows, and its remainder by the ring's length says where in the ring it is. So full and empty
//! are told apart without a word that stays free, and a position says by itself how many times the
//! ring has been gone around.
//!
//! # Whom it believes
//!
//! Nobody. A ring's memory is written by whoever has a grant for it, and tails come from the other
//! side. A length, a lap or a position that cannot be is [`Malformed`]; nothing is read outside the
//! ring, and nothing here panics on what is in it.

use std::collections::VecDeque;

use rma_core::region::RegisteredRegion;
use thiserror::Error;

pub mod detached;
pub mod immediate;
pub mod without_zeroing;
pub mod zeroing;

/// Bytes of a word: what lands in one piece, and what bells are.
pub const WORD: u64 = 8;

/// How many bytes of a ring have been used up since its beginning. It never falls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position(u64);

impl Position {
    /// The beginning.
    pub const ZERO: Self = Self(0);

    /// The position that `bits` stands for, as it is told to another host.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The number that stands for it.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// `bytes` further on.
    #[must_use]
    pub(crate) const fn after(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// How many bytes it is from `earlier` to here.
    pub(crate) const fn since(self, earlier: Self) -> u64 {
        self.0.wrapping_sub(earlier.0)
    }
}

/// How long a ring is: what both ends have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLen(u64);

impl RingLen {
    /// The shortest ring, in bytes.
    pub const MIN: u64 = 128;
    /// The longest, in bytes: a ring need not be longer than what is under way to its receiver and
    /// what it has not processed.
    pub const MAX: u64 = 1 << 30;
    /// 64 KiB.
    pub const DEFAULT: Self = Self(64 << 10);

    /// A ring of `bytes` bytes.
    ///
    /// # Errors
    /// Unless it is a power of two, from [`RingLen::MIN`] to [`RingLen::MAX`].
    pub const fn new(bytes: u64) -> Result<Self, RingLenError> {
        if bytes.is_power_of_two() && Self::MIN <= bytes && bytes <= Self::MAX {
            Ok(Self(bytes))
        } else {
            Err(RingLenError { bytes })
        }
    }

    /// In bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the offset of a position in the ring, in bytes.
    pub(crate) const fn offset(self, position: Position) -> u64 {
        position.0 & (self.0 - 1)
    }

    /// How many times the ring was gone around before a position, as far as 32 bits tell: what a
    /// record says beside its length, so that what was left of an earlier lap is not taken for one
    /// of this.
    pub(crate) const fn lap(self, position: Position) -> u32 {
        (position.0 >> self.0.trailing_zeros()) as u32
    }

    /// The first word of a record at `position`, which is never 0: its length and its lap.
    pub(crate) const fn head(self, position: Position, len: u32) -> u64 {
        len as u64 | (self.lap(position) as u64) << 32
    }
}

/// A ring cannot be that long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a ring of {bytes} bytes: give a power of two from {} to {}", RingLen::MIN, RingLen::MAX)]
pub struct RingLenError {
    /// The length that was asked for.
    pub bytes: u64,
}

/// Malformed content of a ring, or a malformed report about it. The other side is broken or
/// hostile; the ring is of no further use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Malformed {
    /// A record has a length, or a lap, that cannot be.
    #[error(
        "the record at position {position} begins with {head:#018x}: no length of 1 to {len_max} bytes and lap {lap}; \
         set the channel up anew"
    )]
    Record {
        /// The position of the record.
        position: u64,
        /// The word that stands there.
        head: u64,
        /// The longest message.
        len_max: u32,
        /// The lap that it should be of.
        lap: u32,
    },
    /// A sender says that it has sent messages up to where none can be.
    #[error(
        "the sender is said to have sent up to {told:#x}, and that cannot be where {from:#x} is processed; set the \
         channel up anew"
    )]
    Head {
        /// The position that it says.
        told: u64,
        /// Up to where this receiver has processed messages.
        from: u64,
    },
    /// A bell tells a head that cannot be.
    #[error(
        "the sender is said to have used the ring up to {told}, and it can be from {head} to {end}; set the channel up \
         anew"
    )]
    UsedUp {
        /// The position in the bell.
        told: u64,
        /// The position that was told before.
        head: u64,
        /// The end of the room.
        end: u64,
    },
    /// An event tells of a message that cannot be there.
    #[error(
        "an event tells of {len} bytes at offset {offset} of the ring, with immediate {immediate:#018x}; no message can \
         be there now; set the channel up anew"
    )]
    Place {
        /// The offset in the ring at which the op wrote.
        offset: u64,
        /// How many bytes.
        len: u32,
        /// The immediate of its sender.
        immediate: u64,
    },
    /// A message of a duplex channel is too short for the tail that rides on it.
    #[error(
        "a message of {len} bytes has none behind the tail that it carries: is the other end's channel duplex? Set it \
         up anew"
    )]
    Ride {
        /// How many bytes it has.
        len: u32,
    },
    /// A tail that the receiver is said to have reached cannot be.
    #[error(
        "the receiver is said to have processed the ring up to {told}, and that was from {tail} to {head} when it was \
         told; set the channel up anew"
    )]
    Tail {
        /// The tail that was told.
        told: u64,
        /// The tail that was known before.
        tail: u64,
        /// The position up to which the ring was used.
        head: u64,
    },
    /// A message is told of that the sender cannot have sent: it is beyond what may be under way,
    /// or has come before.
    #[error(
        "message {number} is told of, and the next is {next}, with {room} under way at most; set the channel up anew"
    )]
    Number {
        /// The number of the message.
        number: u64,
        /// The number that comes next.
        next: u64,
        /// How many there may be from that on.
        room: u64,
    },
    /// A bell is neither that of the message that comes next, nor what stood there before.
    #[error(
        "the bell of message {number} is {bell:#018x}: no length of 1 to {len_max} bytes with that number above it;          set the channel up anew"
    )]
    Bell {
        /// Of which message it should be.
        number: u64,
        /// The bell's value.
        bell: u64,
        /// The longest message.
        len_max: u32,
    },
    /// An event tells of bytes where no message can lie.
    #[error(
        "an event tells of {len} bytes up to {end} with immediate {immediate:#x}, where no message of this channel          lies; set the channel up anew"
    )]
    Event {
        /// The immediate.
        immediate: u64,
        /// The end of its bytes, in the region that they were written to.
        end: u64,
        /// How many they are.
        len: u32,
    },
    /// A buffer is lent for a message that none can be lent for, or where none can be.
    #[error(
        "a buffer at {offset} of a memory of {end} bytes is lent for message {number}, and none can be lent for that \
         there; set the channel up anew"
    )]
    Offer {
        /// For which message.
        number: u64,
        /// The offset of the buffer.
        offset: u64,
        /// The end of the receiver's memory.
        end: u64,
    },
}

/// A message that has come: where it is in the ring.
///
/// It stays there until it is given back to the reader that it came from.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a record that is not given back is never overwritten, and the ring fills up"]
pub struct Record {
    pub(crate) position: Position,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

impl Record {
    /// Returns the position at which it begins: its name.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.position
    }

    /// How many bytes the message has; at least one.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no message is empty")]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Returns the offset of the message in the ring's region, in bytes. The message is one run of
    /// bytes from there: the region is circular.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the range of the message in the region, in bytes.
    pub(crate) const fn range(&self) -> core::ops::Range<u64> {
        self.offset..self.offset + self.len as u64
    }
}

/// A receiver's end of a ring, whichever way its records say that they are there.
pub trait Reads: core::fmt::Debug {
    /// Takes the next message, if it is there.
    ///
    /// # Errors
    /// If what is there cannot be a record. It stays so.
    fn poll(&mut self) -> Result<Option<Record>, Malformed>;

    /// Whether something stands where the next message would, to be taken or refused.
    fn has_next(&self) -> bool;

    /// The ring, and how much of it was taken.
    #[doc(hidden)]
    fn taking(&self) -> &Taking;

    /// The same, to take more.
    #[doc(hidden)]
    fn taking_mut(&mut self) -> &mut Taking;

    /// Gives a message back, which is one of this ring: its bytes are free as soon as all before it
    /// are. Returns up to where the ring is free now, if that is news for the sender.
    fn give_back(&mut self, record: Record) -> Option<Position> {
        self.taking_mut().give_back(record.position)
    }

    /// Up to where the ring is free.
    fn tail(&self) -> Position {
        self.taking().tail
    }

    /// Returns the position of the next record.
    fn next(&self) -> Position {
        self.taking().next
    }

    /// The ring's memory, to copy messages out of.
    fn ring(&self) -> &RegisteredRegion {
        &self.taking().ring
    }
}

/// A ring as its receiver has it, and how much of it was taken and given back.
#[derive(Debug)]
pub struct Taking {
    ring: RegisteredRegion,
    len: RingLen,
    len_max: u32,
    /// The position of the next record.
    next: Position,
    /// Up to where records were given back.
    tail: Position,
    held: Held,
}

impl Taking {
    /// Of a ring that is empty, for messages of up to `len_max` bytes.
    fn new(ring: RegisteredRegion, len: RingLen, len_max: u32) -> Self {
        let (next, tail) = (Position::ZERO, Position::ZERO);
        Self { ring, len, len_max, next, tail, held: Held::default() }
    }

    /// Takes the next record, which uses up `footprint` bytes; its message lies at `offset`.
    fn take(&mut self, footprint: u64, offset: u64, len: u32) -> Record {
        let position = self.next;
        self.held.take(position, footprint);
        self.next = position.after(footprint);
        Record { position, offset, len }
    }

    fn give_back(&mut self, position: Position) -> Option<Position> {
        let freed = self.held.give_back(position);
        self.tail = self.tail.after(freed);
        (freed > 0).then_some(self.tail)
    }
}

/// Decodes `head`, the word that says that a record is at `position`: how long its message is.
/// `fits`: whether there can be one so long.
pub(crate) fn len_in(
    head: u64,
    ring: RingLen,
    len_max: u32,
    position: Position,
    fits: impl FnOnce(u32) -> bool,
) -> Result<u32, Malformed> {
    let len = head as u32;
    let is_record = 0 < len && len <= len_max && fits(len) && head == ring.head(position, len);
    let (position, lap) = (position.to_bits(), ring.lap(position));
    if is_record { Ok(len) } else { Err(Malformed::Record { position, head, len_max, lap }) }
}

/// Zeroes `len` bytes of memory from `offset` on.
pub(crate) fn zero(memory: &RegisteredRegion, offset: u64, len: u64) {
    const ZEROS: [u8; 256] = [0; 256];
    let mut at = 0;
    while at < len {
        let now = (len - at).min(ZEROS.len() as u64);
        // Within the memory, as who calls this has checked.
        let _ = memory.write(offset + at, &ZEROS[..now as usize]);
        at += now;
    }
}

/// How much of what a receiver has its sender has used up, and how much of that is free again: of
/// bytes of a ring, or of other things that are used in turn.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// How many there are to use.
    capacity: u64,
    head: Position,
    tail: Position,
}

impl Room {
    /// All of `capacity` is free.
    pub(crate) const fn new(capacity: u64) -> Self {
        Self { capacity, head: Position::ZERO, tail: Position::ZERO }
    }

    /// Up to where the ring is used up.
    #[must_use]
    pub const fn head(&self) -> Position {
        self.head
    }

    /// Up to where the receiver has processed it, as far as is known.
    #[must_use]
    pub const fn tail(&self) -> Position {
        self.tail
    }

    /// How much is free, as far as is known.
    #[must_use]
    pub const fn free(&self) -> u64 {
        self.capacity - self.head.since(self.tail)
    }

    /// Uses up so many, and tells where they begin; `None` if there are not so many.
    pub(crate) fn take(&mut self, count: u64) -> Option<Position> {
        if count > self.free() {
            return None;
        }
        let at = self.head;
        self.head = at.after(count);
        Some(at)
    }

    /// The receiver says that it has processed the ring up to `tail`. What is older than what is
    /// known changes nothing: what the receiver tells may come in any order.
    ///
    /// # Errors
    /// If it cannot have, as nothing is there yet.
    pub fn told(&mut self, tail: Position) -> Result<(), Malformed> {
        self.tail = self.newest(tail)?;
        Ok(())
    }

    /// The later of `tail`, which was told, and what is known.
    pub(crate) const fn newest(&self, tail: Position) -> Result<Position, Malformed> {
        if tail.since(self.tail) <= self.head.since(self.tail) {
            return Ok(tail);
        }
        // The tail on a message that nobody took for long may be older than all that is known.
        if self.tail.since(tail) <= self.capacity || tail.0 < self.tail.0 {
            return Ok(self.tail);
        }
        let (told, tail, head) = (tail.0, self.tail.0, self.head.0);
        Err(Malformed::Tail { told, tail, head })
    }

    /// Gives back the last that were taken: nothing was issued for them.
    pub(crate) const fn untake(&mut self, count: u64) {
        self.head = Position(self.head.0.wrapping_sub(count));
    }
}

/// The parts of a ring that its receiver has taken and not given back, in order.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// The position of each record that was taken, its length in bytes, and whether it was given
    /// back.
    records: VecDeque<(Position, u64, bool)>,
}

impl Held {
    pub(crate) fn take(&mut self, position: Position, bytes: u64) {
        self.records.push_back((position, bytes, false));
    }

    /// A record was given back. Returns how many bytes are free from the oldest one on: records may
    /// come back in any order, and the ring is freed in its own.
    pub(crate) fn give_back(&mut self, position: Position) -> u64 {
        let index = self.records.partition_point(|&(at, ..)| at < position);
        if let Some((at, _, back)) = self.records.get_mut(index)
            && *at == position
        {
            *back = true;
        }
        let mut freed = 0;
        while let Some(&(_, bytes, true)) = self.records.front() {
            freed += bytes;
            self.records.pop_front();
        }
        freed
    }
}

/// Bytes of a message in a ring: whole words.
pub(crate) const fn padded(len: u32) -> u64 {
    (len as u64).next_multiple_of(WORD)
}

/// The word at `offset` of a ring, which is one of its words: as whoever wrote it meant it, since
/// records are little-endian on every host.
pub(crate) fn word_at(ring: &RegisteredRegion, offset: u64) -> u64 {
    // The offset is within the ring, which is as long as was agreed on: or else nothing is there.
    ring.load(offset).map_or(0, u64::from_le)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_a_power_of_two_long() {
        for bytes in [0, 1, 64, 129, 192, RingLen::MAX * 2, u64::MAX] {
            let error = RingLen::new(bytes).unwrap_err();
            assert!(error.to_string().contains(&bytes.to_string()), "{error}");
        }
        let len = RingLen::new(256).unwrap();
        let at = Position::ZERO.after(3 * 256 + 72);
        assert_eq!((len.offset(at), len.lap(at), len.get()), (72, 3, 256));
    }

    #[test]
    fn room_is_what_the_receiver_has_given_back() {
        let mut room = Room::new(128);
        let first = room.take(64).unwrap();
        let second = room.take(64).unwrap();
        assert_eq!((room.free(), room.take(1)), (0, None), "full, and every byte is used");
        room.told(second).unwrap();
        assert_eq!(room.free(), 64);
        room.told(first).unwrap();
        assert_eq!(room.tail(), second, "what is told late is nothing new");
        let beyond = room.head().after(8);
        let error = room.told(beyond).unwrap_err();
        assert_eq!(error, Malformed::Tail { told: 136, tail: 64, head: 128 });
        assert_eq!(room.tail(), second);
    }

    #[test]
    fn a_ring_is_freed_in_its_own_order_whatever_order_records_come_back_in() {
        let mut held = Held::default();
        let at = |bytes| Position::ZERO.after(bytes);
        for (position, bytes) in [(0, 64), (64, 128), (192, 64)] {
            held.take(at(position), bytes);
        }
        assert_eq!(held.give_back(at(64)), 0);
        assert_eq!(held.give_back(at(64)), 0, "twice");
        assert_eq!(held.give_back(at(8)), 0, "none");
        assert_eq!(held.give_back(at(0)), 192);
        assert_eq!(held.give_back(at(192)), 64);
    }
}
