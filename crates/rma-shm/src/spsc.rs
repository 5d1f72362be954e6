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

use crate::{
    line::Line,
    prefetch::prefetch_line,
    sync::{Arc, AtomicU32, AtomicU64, Ordering},
};
use core::fmt;
use crossbeam_utils::CachePadded;

mod memory;

#[doc(hidden)]
pub use memory::RingMemory;

/// The largest number of entries a ring may have: 4 MiB of lines. The point is to have a limit: a
/// ring never needs more entries than an application has command slots.
pub const CAPACITY_MAX: usize = 65_536;

/// How many lines [`Producer::push_unpublished`] keeps back at most. More: the consumer begins
/// later. Fewer: more exchanges of the index's cache line.
const TOGETHER_MAX: u32 = 16;

/// How far before a line is taken its entry is asked for, in lines.
const AHEAD: u32 = 8;

/// Why a ring could not be made.
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

/// One line in shared memory. A cache line of its own, so that neighbours do not contend.
#[repr(C, align(64))]
struct Entry([AtomicU64; Line::WORDS]);

#[cfg(not(loom))]
const _: () = assert!(size_of::<Entry>() == size_of::<Line>());

impl Entry {
    fn new() -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Relaxed: the index that publishes the entry orders it.
    fn store(&self, line: &Line) {
        for (word, value) in self.0.iter().zip(line.0) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn load(&self) -> Line {
        Line(core::array::from_fn(|i| self.0[i].load(Ordering::Relaxed)))
    }
}

struct Shared {
    /// Written by the producer only: one past the newest published line.
    tail: CachePadded<AtomicU32>,
    /// Written by the consumer only: the oldest line not yet taken.
    head: CachePadded<AtomicU32>,
    /// A power of two of them.
    entries: Box<[Entry]>,
}

impl Shared {
    /// The entry of line `index`. The mask keeps it inside the ring whatever `index` is.
    fn entry(&self, index: u32) -> &Entry {
        &self.entries[index as usize & (self.entries.len() - 1)]
    }

    fn capacity(&self) -> u32 {
        self.entries.len() as u32
    }
}

/// Makes a ring of `capacity` entries, all memory allocated now.
///
/// # Errors
///
/// [`RingError::Capacity`] unless `capacity` is a power of two, 1..=[`CAPACITY_MAX`].
pub fn ring(capacity: usize) -> Result<(Producer, Consumer), RingError> {
    ring_with_first_index(capacity, 0)
}

/// [`ring`], with both indexes at `first` in the beginning. Nobody can tell the difference, which
/// is what tests use it for: they start shortly before the indexes wrap.
///
/// # Errors
///
/// As [`ring`].
#[doc(hidden)]
pub fn ring_with_first_index(
    capacity: usize,
    first: u32,
) -> Result<(Producer, Consumer), RingError> {
    if !capacity.is_power_of_two() || capacity > CAPACITY_MAX {
        return Err(RingError::Capacity { capacity });
    }
    let shared = Arc::new(Shared {
        tail: CachePadded::new(AtomicU32::new(first)),
        head: CachePadded::new(AtomicU32::new(first)),
        entries: (0..capacity).map(|_| Entry::new()).collect(),
    });
    let producer = Producer(Side::new(Arc::clone(&shared), first));
    Ok((producer, Consumer(Side::new(shared, first))))
}

/// What a side keeps for itself. The other side cannot write it.
struct Side {
    shared: Arc<Shared>,
    /// This side's own index, the truth of which the shared one is a copy.
    own: u32,
    /// The other side's index when it was last looked at and made sense. It only grows, and is at
    /// most `capacity` away from `own`, always: [`Side::look`] admits no other.
    other_seen: u32,
    impossible_indexes: u64,
}

impl Side {
    fn new(shared: Arc<Shared>, first: u32) -> CachePadded<Self> {
        CachePadded::new(Self { shared, own: first, other_seen: first, impossible_indexes: 0 })
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
        (self.shared.capacity() - self.untaken_seen()) as usize
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
    /// an op took of an application's thread).
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

    /// Lets the consumer see all lines that were pushed.
    #[inline]
    pub fn publish(&mut self) {
        let side = &*self.0;
        side.shared.tail.store(side.own, Ordering::Release);
    }

    #[inline]
    fn store(&mut self, line: &Line) -> Result<(), Full> {
        if !self.has_room_for(1) {
            return Err(Full);
        }
        let side = &mut *self.0;
        side.shared.entry(side.own).store(line);
        side.own = side.own.wrapping_add(1);
        Ok(())
    }

    /// Whether `lines` lines can be pushed without a refusal, whatever the consumer does meanwhile:
    /// room that was seen is not lost again.
    #[inline]
    pub fn has_room_for(&mut self, lines: usize) -> bool {
        let side = &mut *self.0;
        if lines > side.room_seen() {
            // Looks full: only now touch the consumer's line.
            let head = side.shared.head.load(Ordering::Acquire);
            side.look(head, side.untaken_seen());
        }
        lines <= side.room_seen()
    }

    /// The number of lines that the consumer has not taken yet, published or not, 0..=capacity. It
    /// may shrink at any time; only this side makes it grow.
    #[must_use]
    pub fn len(&self) -> usize {
        let side = &*self.0;
        let head = side.shared.head.load(Ordering::Acquire);
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
        self.0.shared.entries.len()
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
            // an op took of a bare portal. None that it has yet to write: that would take it away
            // from there.
            let ahead = side.shared.entry(side.own.wrapping_add(AHEAD));
            prefetch_line(core::ptr::from_ref(ahead).cast());
        }
        let entry = side.shared.entry(side.own);
        let line = entry.load();
        if is_secret(&line) {
            entry.store(&Line::ZERO);
        }
        side.own = side.own.wrapping_add(1);
        side.shared.head.store(side.own, Ordering::Release);
        Some(line)
    }

    /// Whether [`Consumer::pop`] has a line to take, which it then keeps.
    #[inline]
    pub fn has_line(&mut self) -> bool {
        let side = &mut *self.0;
        if side.own == side.other_seen {
            // Looks empty: only now touch the producer's line.
            let tail = side.shared.tail.load(Ordering::Acquire);
            side.look(tail, side.shared.capacity());
        }
        side.own != side.other_seen
    }

    /// The number of lines that wait to be taken, 0..=capacity. It may grow at any time; only this
    /// side makes it shrink. Always looks at the producer's index, so an engine may ask it after
    /// [`Doorbell::prepare_sleep`](crate::Doorbell::prepare_sleep).
    #[must_use]
    pub fn len(&self) -> usize {
        let side = &*self.0;
        let tail = side.shared.tail.load(Ordering::Acquire);
        let growth_max = side.shared.capacity() - side.waiting_seen();
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
        self.0.shared.entries.len()
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
            .field("capacity", &self.shared.capacity())
            .field("impossible_indexes", &self.impossible_indexes)
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Shortly before the indexes wrap.
    const FIRST: u32 = u32::MAX - 2;

    fn line(n: u64) -> Line {
        Line(core::array::from_fn(|i| n * 8 + i as u64))
    }

    #[test]
    fn capacity_is_a_power_of_two_within_the_limit() {
        for capacity in [0, 3, 6, 100, CAPACITY_MAX + 1, 2 * CAPACITY_MAX, usize::MAX, 1 << 63] {
            let error = ring(capacity).unwrap_err();
            assert_eq!(error, RingError::Capacity { capacity });
            assert!(error.to_string().contains(&capacity.to_string()));
        }
        for capacity in [1, 2, 64, CAPACITY_MAX] {
            assert_eq!(ring(capacity).unwrap().0.capacity(), capacity);
        }
    }

    #[test]
    fn lines_come_out_in_order_across_the_wrap_of_the_indexes() {
        for capacity in [1, 2, 4, 8] {
            let (mut producer, mut consumer) = ring_with_first_index(capacity, FIRST).unwrap();
            for round in 0..5 {
                for n in 0..capacity as u64 {
                    producer.push(&line(round * 100 + n)).unwrap();
                }
                assert_eq!(producer.push(&line(0)), Err(Full));
                assert_eq!((producer.len(), consumer.len()), (capacity, capacity));
                for n in 0..capacity as u64 {
                    assert_eq!(consumer.pop(), Some(line(round * 100 + n)));
                }
                assert_eq!(consumer.pop(), None);
                assert!(producer.is_empty() && consumer.is_empty());
            }
            assert_eq!((producer.impossible_indexes(), consumer.impossible_indexes()), (0, 0));
        }
    }

    #[test]
    fn lines_that_are_not_published_are_seen_when_they_are_or_when_there_are_many() {
        let (mut producer, mut consumer) = ring_with_first_index(32, FIRST).unwrap();
        // The index is a multiple of what is kept back after these.
        for n in 0..3 {
            assert!(!consumer.has_line(), "{n}");
            producer.push_unpublished(&line(n)).unwrap();
        }
        for n in 0..3 {
            assert_eq!(consumer.pop(), Some(line(n)));
        }
        producer.push_unpublished(&line(3)).unwrap();
        assert_eq!((consumer.len(), producer.len()), (0, 1));
        producer.publish();
        assert_eq!(consumer.pop(), Some(line(3)));
        producer.push_unpublished(&line(4)).unwrap();
        producer.push(&line(5)).unwrap();
        assert_eq!((consumer.pop(), consumer.pop()), (Some(line(4)), Some(line(5))));
    }

    #[test]
    fn a_ring_that_is_full_has_published_all_it_holds() {
        let (mut producer, mut consumer) = ring(4).unwrap();
        for n in 0..4 {
            producer.push_unpublished(&line(n)).unwrap();
        }
        assert!(!consumer.has_line());
        assert_eq!(producer.push_unpublished(&line(4)), Err(Full));
        assert_eq!(consumer.pop(), Some(line(0)));
        assert_eq!(producer.push_unpublished(&line(4)), Ok(()));
    }

    #[test]
    fn an_impossible_tail_is_counted_and_looks_empty_until_it_makes_sense_again() {
        let (mut producer, mut consumer) = ring_with_first_index(4, FIRST).unwrap();
        let shared = Arc::clone(&producer.0.shared);
        for forged in [FIRST.wrapping_add(5), FIRST.wrapping_sub(1), 1 << 31, u32::MAX / 2] {
            let before = consumer.impossible_indexes();
            shared.tail.store(forged, Ordering::Release);
            assert_eq!((consumer.pop(), consumer.len()), (None, 0));
            assert_eq!(consumer.impossible_indexes(), before + 1);
        }
        producer.push(&line(9)).unwrap();
        assert_eq!(consumer.pop(), Some(line(9)));
    }

    #[test]
    fn an_impossible_head_is_counted_and_looks_full_until_it_makes_sense_again() {
        let (mut producer, mut consumer) = ring_with_first_index(2, FIRST).unwrap();
        let shared = Arc::clone(&producer.0.shared);
        producer.push(&line(0)).unwrap();
        producer.push(&line(1)).unwrap();
        for forged in [FIRST.wrapping_sub(1), FIRST.wrapping_add(3), 1 << 31] {
            let before = producer.impossible_indexes();
            shared.head.store(forged, Ordering::Release);
            assert_eq!((producer.push(&line(7)), producer.len()), (Err(Full), 2));
            assert_eq!(producer.impossible_indexes(), before + 1);
        }
        assert_eq!(consumer.pop(), Some(line(0)), "the consumer trusts its own index");
        producer.push(&line(2)).unwrap();
        assert_eq!((consumer.pop(), consumer.pop()), (Some(line(1)), Some(line(2))));
    }

    #[test]
    fn room_that_was_seen_stays_though_the_consumer_takes_its_index_back() {
        let (mut producer, mut consumer) = ring_with_first_index(4, FIRST).unwrap();
        let memory = producer.memory();
        for n in 0..4 {
            producer.push(&line(n)).unwrap();
        }
        assert!(!producer.has_room_for(1) && !producer.has_room_for(usize::MAX));
        assert_eq!((consumer.pop(), consumer.pop()), (Some(line(0)), Some(line(1))));
        assert!(producer.has_room_for(2) && !producer.has_room_for(3));
        assert_eq!(producer.impossible_indexes(), 0, "an honest consumer, so far");
        memory.set_head(FIRST);
        assert!(producer.has_room_for(2) && !producer.has_room_for(3));
        assert_eq!((producer.impossible_indexes(), producer.len()), (1, 2));
        assert_eq!((producer.push(&line(4)), producer.push(&line(5))), (Ok(()), Ok(())));
    }

    #[test]
    fn a_line_that_was_seen_can_be_taken_though_the_producer_takes_its_index_back() {
        let (mut producer, mut consumer) = ring_with_first_index(4, FIRST).unwrap();
        let memory = consumer.memory();
        producer.push(&line(0)).unwrap();
        producer.push(&line(1)).unwrap();
        assert!(consumer.has_line());
        memory.set_tail(FIRST);
        assert_eq!(consumer.len(), 2);
        assert_eq!((consumer.pop(), consumer.pop()), (Some(line(0)), Some(line(1))));
        assert_eq!((consumer.has_line(), consumer.impossible_indexes()), (false, 1));
    }

    #[test]
    fn a_hostile_tail_never_yields_more_than_capacity_lines_per_look() {
        let (producer, mut consumer) = ring_with_first_index(8, FIRST).unwrap();
        producer.0.shared.tail.store(FIRST.wrapping_add(8), Ordering::Release);
        let taken = core::iter::from_fn(|| consumer.pop()).count();
        assert_eq!(taken, 8);
    }

    #[test]
    fn of_a_secret_line_nothing_is_left_in_the_ring_and_others_stay() {
        let (mut producer, mut consumer) = ring_with_first_index(4, FIRST).unwrap();
        let memory = consumer.memory();
        for n in 1..=3 {
            producer.push(&line(n)).unwrap();
        }
        for n in 1..=3 {
            let popped = consumer.pop_and_wipe_if(|found| *found == line(2));
            assert_eq!(popped, Some(line(n)), "a copy of it is what the caller gets");
        }
        let left = [0, 1, 2].map(|n| memory.line(FIRST.wrapping_add(n)));
        assert_eq!(left, [line(1), Line::ZERO, line(3)]);
        assert_eq!(consumer.pop_and_wipe_if(|_| true), None);
    }

    #[test]
    fn two_threads_pass_whole_lines_in_order() {
        const LINES: u64 = 200_000;
        let (mut producer, mut consumer) = ring_with_first_index(16, FIRST).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for n in 0..LINES {
                    while producer.push(&line(n)).is_err() {
                        std::thread::yield_now();
                    }
                }
            });
            for n in 0..LINES {
                let taken = loop {
                    match consumer.pop() {
                        Some(taken) => break taken,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!(taken, line(n));
            }
        });
        assert!(consumer.is_empty());
    }

    #[test]
    fn each_side_and_each_index_has_two_cache_lines_of_its_own() {
        assert_eq!(align_of::<Producer>(), 128);
        assert_eq!(align_of::<Consumer>(), 128);
        let distance =
            core::mem::offset_of!(Shared, head).abs_diff(core::mem::offset_of!(Shared, tail));
        assert!(distance >= 128);
    }
}
