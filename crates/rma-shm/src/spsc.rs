//! A bounded ring of [`Line`]s from one thread to one other, without locks and locked instructions.
//!
//! It is not a queue for many producers, and it wakes nobody (see [`doorbell`](crate::doorbell)).
//!
//! # Who owns what
//!
//! The ring has two indexes that only grow, wrapping at 2^32. `tail` counts the lines ever
//! published and is written by the producer alone; `head` counts the lines ever taken and is
//! written by the consumer alone. Line `i` lies in entry `i mod capacity`. The consumer owns the
//! entries `head..tail`, the producer owns the others. An entry changes hands only by a Release
//! store of an index, seen by an Acquire load on the other side: so the consumer sees whole lines,
//! and the producer writes over none that is still being read.
//!
//! Each side keeps its own index, and its last sight of the other's, in itself. It reads the
//! other's index only when the ring looks full (or empty) by what it saw last, so in a steady flow
//! each index line crosses between the cores once per burst, not once per line. The indexes lie 128
//! bytes apart, two cache lines, because the adjacent-line prefetcher fetches pairs.
//!
//! # Where it lies
//!
//! A ring lies in a [`Mapping`](crate::Mapping), so that its other end may be in another process:
//! one side [formats](RingMemory::format) it and the other [joins](RingMemory::join) it, and each
//! makes its [end](RingMemory::into_producer). The two agree on the capacity by other means. The
//! ring's label says it, too, and is compared with it once: it protects from mistakes, and nothing
//! is found by what it says.
//!
//! | offset in bytes | what | written by |
//! |---|---|---|
//! | 0 | [label](crate::Label): kind `1RMAring`, version 1, size: the capacity | who formats it |
//! | 128 | `tail`, in the lower half of a word | producer |
//! | 256 | `head`, in the lower half of a word | consumer |
//! | 384 | the entries, 64 each | producer; the consumer zeroes secret ones |
//!
//! # The other side is not trusted
//!
//! The entries are made of atomic words, so that a producer that goes on writing while the consumer
//! reads makes garbage, not undefined behaviour. [`Consumer::pop`] copies a line once; whoever
//! decodes it works on that copy.
//!
//! An index only grows, and the two are never more than `capacity` apart. What the other side's
//! index says against that is impossible in a ring that both sides use properly. It is counted
//! (`impossible_indexes`), and the side that saw it behaves as if nothing had happened since its
//! last sight: the consumer finds no new lines, the producer no new room, until the index makes
//! sense again. So room that a producer has once seen stays, and a line that a consumer has once
//! seen can be taken. A call does the same small, fixed amount of work whatever the other side
//! does, and never touches an entry outside the ring.

use crate::{line::Line, prefetch::prefetch_line};
use core::fmt;
use crossbeam_utils::CachePadded;

mod memory;
mod place;

pub use memory::RingMemory;
use place::Place;

/// The largest number of entries a ring may have: 8 MiB of lines. The point is to have a limit: a
/// ring never needs more entries than twice the command slots that an application can have.
pub const CAPACITY_MAX: usize = 131_072;

/// [`Producer::push_unpublished`] and [`Producer::push_pair_unpublished`] keep back fewer lines
/// than this: they publish whenever the index reaches or passes a multiple of it. More: the
/// consumer begins later. Fewer: more exchanges of the index's cache line.
const TOGETHER_MAX: u32 = 16;

/// How far before a line is taken its entry is asked for, in lines.
const AHEAD: u32 = 8;

/// The reason why a ring could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// Entries are found with a mask, and the number of entries is bounded.
    #[error(
        "a ring of {capacity} entries cannot be made: use a power of two between 1 and {CAPACITY_MAX}"
    )]
    Capacity {
        /// The number of entries asked for.
        capacity: usize,
    },
}

/// The ring has no free entry; the line was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ring is full: take lines out before pushing more, or make it larger")]
pub struct Full;

/// How many entries a ring has: a power of two of at most [`CAPACITY_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity(u32);

/// How many lines a ring has room for, for each thing that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinesEach {
    /// One, which is pushed by itself.
    One = 1,
    /// Two, which may be pushed as a pair.
    Two = 2,
}

impl Capacity {
    /// As many as that.
    ///
    /// # Errors
    ///
    /// [`RingError::Capacity`] unless `entries` is a power of two, 1..=[`CAPACITY_MAX`].
    pub const fn new(entries: usize) -> Result<Self, RingError> {
        if entries.is_power_of_two() && entries <= CAPACITY_MAX {
            Ok(Self(entries as u32))
        } else {
            Err(RingError::Capacity { capacity: entries })
        }
    }

    /// The least that has room for `each` lines for each of `count` things: a thing's command, or
    /// its completion.
    #[must_use]
    pub const fn for_lines(count: u16, each: LinesEach) -> Self {
        Self((count as u32).next_power_of_two() * each as u32)
    }

    /// The number of entries.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

const _: () = assert!(Capacity::for_lines(u16::MAX, LinesEach::Two).get() == CAPACITY_MAX);

/// Makes a ring of `capacity` entries for two threads of this process, all memory allocated now.
/// For two processes, each makes one end of a [`RingMemory`].
///
/// # Errors
///
/// [`RingError::Capacity`] unless `capacity` is a power of two, 1..=[`CAPACITY_MAX`].
pub fn ring(capacity: usize) -> Result<(Producer, Consumer), RingError> {
    let memory = RingMemory::heap(Capacity::new(capacity)?);
    Ok((memory.clone().into_producer(), memory.into_consumer()))
}

/// The private state of a side. The other side cannot write it.
struct Side {
    place: Place,
    /// This side's own index, the truth of which the shared one is a copy.
    own: u32,
    /// The other side's index when it was last looked at and made sense. It only grows, and is at
    /// most `capacity` away from `own`, always: [`Side::look`] admits no other.
    other_seen: u32,
    impossible_indexes: u64,
}

impl Side {
    fn new(place: Place, own: u32, other_seen: u32) -> CachePadded<Self> {
        CachePadded::new(Self { place, own, other_seen, impossible_indexes: 0 })
    }

    /// Takes note of the other side's index, unless it is impossible: grown by more than
    /// `growth_max` since it was last seen. An index that shrank has grown by almost 2^32.
    fn look(&mut self, other: u32, growth_max: u32) {
        if other.wrapping_sub(self.other_seen) <= growth_max {
            self.other_seen = other;
        } else {
            self.impossible_indexes = self.impossible_indexes.wrapping_add(1);
        }
    }

    /// Producer: how many lines the consumer had not taken when its index was last seen.
    fn untaken_seen(&self) -> u32 {
        self.own.wrapping_sub(self.other_seen)
    }

    /// Producer: how many lines there was room for when the consumer's index was last seen.
    fn room_seen(&self) -> usize {
        (self.place.capacity() - self.untaken_seen()) as usize
    }

    /// Consumer: how many lines were there to be taken when the producer's index was last seen.
    fn waiting_seen(&self) -> u32 {
        self.other_seen.wrapping_sub(self.own)
    }

    /// `other` if it is possible, else what was seen last.
    fn believed(&self, other: u32, growth_max: u32) -> u32 {
        if other.wrapping_sub(self.other_seen) <= growth_max { other } else { self.other_seen }
    }
}

/// The end that publishes lines. One thread at a time: [`Producer::push`] takes `&mut self`.
pub struct Producer(CachePadded<Side>);

/// The end that takes lines, in the order in which they were pushed. One thread at a time.
pub struct Consumer(CachePadded<Side>);

impl Producer {
    /// Publishes a copy of `line`, or refuses it if there is no room.
    ///
    /// # Errors
    ///
    /// [`Full`] while all entries hold lines that the consumer has not taken, or while the
    /// consumer's index is impossible.
    #[inline]
    pub fn push(&mut self, line: &Line) -> Result<(), Full> {
        self.store(line)?;
        self.publish();
        Ok(())
    }

    /// [`Producer::push`] of one of several lines: the consumer may not see it before
    /// [`Producer::publish`]. It sees the first of many before the last was pushed.
    ///
    /// A consumer that looks for lines takes the index's cache line away each time, and the
    /// producer has to get it back for each line that it publishes by itself (13 of the 115 ns that
    /// an op took of an application's thread, by `issue_ops_per_s` when this was written).
    ///
    /// # Errors
    ///
    /// As [`Producer::push`].
    #[inline]
    pub fn push_unpublished(&mut self, line: &Line) -> Result<(), Full> {
        if self.0.room_seen() == 0 {
            // Or there would never be room again.
            self.publish();
        }
        self.store(line)?;
        if self.0.own.is_multiple_of(TOGETHER_MAX) {
            self.publish();
        }
        Ok(())
    }

    /// [`Producer::push_unpublished`] of two lines that belong together: the consumer never sees
    /// `first` without `second`, as one store publishes both.
    ///
    /// A consumer that has taken the first has seen the second. If it does not trust its producer,
    /// it expects a first without a second all the same.
    ///
    /// # Errors
    ///
    /// [`Full`] as in [`Producer::push`], and while there is room for one line only; then neither
    /// is taken. A ring of one entry never has room.
    #[inline]
    pub fn push_pair_unpublished(&mut self, first: &Line, second: &Line) -> Result<(), Full> {
        if self.0.room_seen() < 2 {
            // Or there might never be room again.
            self.publish();
        }
        if !self.has_room_for(2) {
            return Err(Full);
        }
        self.append(first);
        self.append(second);
        if self.0.own % TOGETHER_MAX < 2 {
            // The second line, or the first, was the last that may be kept back with others.
            self.publish();
        }
        Ok(())
    }

    /// Lets the consumer see all lines that were pushed.
    #[inline]
    pub fn publish(&mut self) {
        let side = &*self.0;
        side.place.set_tail(side.own);
    }

    #[inline]
    fn store(&mut self, line: &Line) -> Result<(), Full> {
        if !self.has_room_for(1) {
            return Err(Full);
        }
        self.append(line);
        Ok(())
    }

    /// Writes `line` into the next entry, which is known to be the producer's.
    #[inline]
    fn append(&mut self, line: &Line) {
        let side = &mut *self.0;
        side.place.entry(side.own).store(line);
        side.own = side.own.wrapping_add(1);
    }

    /// Whether `lines` lines can be pushed without a refusal, whatever the consumer does meanwhile:
    /// room that was seen is not lost again.
    #[inline]
    pub fn has_room_for(&mut self, lines: usize) -> bool {
        let side = &mut *self.0;
        if lines > side.room_seen() {
            // Looks full: only now touch the consumer's line.
            let head = side.place.head();
            side.look(head, side.untaken_seen());
        }
        lines <= side.room_seen()
    }

    /// The number of lines that the consumer has not taken yet, published or not, 0..=capacity. It
    /// may shrink at any time; only this side makes it grow.
    #[must_use]
    pub fn len(&self) -> usize {
        let side = &*self.0;
        let head = side.place.head();
        side.own.wrapping_sub(side.believed(head, side.untaken_seen())) as usize
    }

    /// Whether the consumer has taken every line.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of entries.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.place.capacity() as usize
    }

    /// How often the consumer's index was found to be impossible. Not 0: the consumer is broken or
    /// hostile.
    #[must_use]
    pub fn impossible_indexes(&self) -> u64 {
        self.0.impossible_indexes
    }
}

impl Consumer {
    /// Takes the oldest line, or `None` if there is none (or while the producer's index is
    /// impossible).
    ///
    /// The line is a copy that no one else can change. Its content is untrusted.
    #[inline]
    pub fn pop(&mut self) -> Option<Line> {
        self.pop_and_wipe_if(|_| false)
    }

    /// [`Consumer::pop`], but of a line that `is_secret` nothing is left in the ring: its entry is
    /// zeroed before it is the producer's again. Other entries stay as they are, which costs
    /// nothing: their cache lines are only read.
    pub fn pop_and_wipe_if(&mut self, is_secret: impl FnOnce(&Line) -> bool) -> Option<Line> {
        if !self.has_line() {
            return None;
        }
        let side = &mut *self.0;
        if side.waiting_seen() > AHEAD {
            // A line that the other core has just written takes long to come: 33 of the 100 ns that
            // an op of a bare portal took, by `portal_commands_per_s` when this was written. No
            // line is asked for that the other core has yet to write: that would take it away from
            // there.
            let ahead = side.place.entry(side.own.wrapping_add(AHEAD));
            prefetch_line(core::ptr::from_ref(ahead).cast());
        }
        let entry = side.place.entry(side.own);
        let line = entry.load();
        if is_secret(&line) {
            entry.store(&Line::ZERO);
        }
        side.own = side.own.wrapping_add(1);
        side.place.set_head(side.own);
        Some(line)
    }

    /// Whether [`Consumer::pop`] has a line to take, which it then keeps.
    #[inline]
    pub fn has_line(&mut self) -> bool {
        let side = &mut *self.0;
        if side.own == side.other_seen {
            // Looks empty: only now touch the producer's line.
            let tail = side.place.tail();
            side.look(tail, side.place.capacity());
        }
        side.own != side.other_seen
    }

    /// The number of lines that wait to be taken, 0..=capacity. It may grow at any time; only this
    /// side makes it shrink. Always looks at the producer's index, so an engine may ask it after
    /// [`Doorbell::prepare_sleep`](crate::Doorbell::prepare_sleep).
    #[must_use]
    pub fn len(&self) -> usize {
        let side = &*self.0;
        let tail = side.place.tail();
        let growth_max = side.place.capacity() - side.waiting_seen();
        side.believed(tail, growth_max).wrapping_sub(side.own) as usize
    }

    /// Whether no line waits to be taken. As [`Consumer::len`], it always looks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of entries.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.place.capacity() as usize
    }

    /// How often the producer's index was found to be impossible. Not 0: the producer is broken or
    /// hostile.
    #[must_use]
    pub fn impossible_indexes(&self) -> u64 {
        self.0.impossible_indexes
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt("Producer", self.len(), f)
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt("Consumer", self.len(), f)
    }
}

impl Side {
    fn fmt(&self, name: &str, len: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("index", &self.own)
            .field("len", &len)
            .field("capacity", &self.place.capacity())
            .field("impossible_indexes", &self.impossible_indexes)
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
