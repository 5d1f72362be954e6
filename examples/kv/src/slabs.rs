//! The places of records in the values: cells of some sizes, each cell in a slab of its size.
//!
//! It knows no memory, only places in it. A cell that is given back rests before it is given out
//! again, as a client may be about to read it: for twice as long as its READ may take. So cells
//! run short before they run out, and [`Slabs::excess`] names whose to take back by then.
//! Invariant: no two cells that are in use or rest overlap.

use core::time::Duration;
use std::collections::VecDeque;

use rma_core::time::Instant;

use crate::layout::{RECORD_LEN_MAX, Tag};

/// How long a slab is. Longer, and few sizes have one in a small memory; it holds the largest cell.
pub const SLAB_LEN: u64 = 256 << 10;

/// The smallest cell.
const CELL_MIN: u64 = 128;

/// One cell in so many must be free, or soon.
const SPARE: usize = 8;

/// Places for records.
#[derive(Debug)]
pub struct Slabs {
    rests: Duration,
    /// Of which size each slab is that is in use, and which of its cells is the slab's first.
    slabs: Vec<(usize, usize)>,
    slabs_max: usize,
    sizes: Vec<Size>,
}

/// The cells of one size.
#[derive(Debug)]
struct Size {
    len: u64,
    /// The offset of each cell, and the tag of its record.
    cells: Vec<(u64, Option<Tag>)>,
    free: Vec<usize>,
    resting: VecDeque<(Instant, usize)>,
    /// The cell whose record is taken back next, of those that have one.
    hand: usize,
}

impl Slabs {
    /// In a memory of so many octets, in which cells rest for so long.
    #[must_use]
    pub fn new(len: u64, rests: Duration) -> Self {
        // 128, 192, 256, 384 and so on: a quarter is lost on average.
        let lens = (0..).flat_map(|it| [CELL_MIN << it, (CELL_MIN << it) * 3 / 2]);
        let mut sizes: Vec<Size> = Vec::new();
        for len in lens {
            let (cells, free, resting) = Default::default();
            sizes.push(Size { len, cells, free, resting, hand: 0 });
            if len >= RECORD_LEN_MAX as u64 {
                break;
            }
        }
        Self { rests, slabs: Vec::new(), slabs_max: (len / SLAB_LEN) as usize, sizes }
    }

    /// A cell for `tag`'s record of `len` octets: where it begins. `None`: none is free.
    pub fn take(&mut self, now: Instant, len: usize, tag: Tag) -> Option<u64> {
        let of = self.sizes.iter().position(|it| it.len >= len as u64)?;
        let has_slabs = self.slabs.len() < self.slabs_max;
        let size = &mut self.sizes[of];
        while let Some(&(until, cell)) = size.resting.front()
            && until <= now
        {
            size.resting.pop_front();
            size.free.push(cell);
        }
        if size.free.is_empty() && has_slabs {
            let start = self.slabs.len() as u64 * SLAB_LEN;
            let first = size.cells.len();
            self.slabs.push((of, first));
            let places = (0..SLAB_LEN / size.len).map(|it| (start + it * size.len, None));
            size.cells.extend(places);
            size.free.extend((first..size.cells.len()).rev());
        }
        let cell = size.free.pop()?;
        size.cells[cell].1 = Some(tag);
        Some(size.cells[cell].0)
    }

    /// Gives the cell back that begins there. It rests.
    pub fn give_back(&mut self, now: Instant, offset: u64) {
        let Some(&(of, first)) = self.slabs.get((offset / SLAB_LEN) as usize) else { return };
        let size = &mut self.sizes[of];
        let cell = first + (offset % SLAB_LEN / size.len) as usize;
        if size.cells[cell].1.take().is_some() {
            size.resting.push_back((now + self.rests, cell));
        }
    }

    /// Returns the record to give back as cells of this size run short, and its offset.
    #[must_use]
    pub fn excess(&mut self, len: usize) -> Option<(Tag, u64)> {
        let size = self.sizes.iter_mut().find(|it| it.len >= len as u64)?;
        let spare = size.free.len() + size.resting.len();
        if self.slabs.len() < self.slabs_max || spare >= size.cells.len().div_ceil(SPARE) {
            return None;
        }
        for _ in 0..size.cells.len() {
            let (offset, held) = size.cells[size.hand];
            size.hand = (size.hand + 1) % size.cells.len();
            if let Some(tag) = held {
                return Some((tag, offset));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESTS: Duration = Duration::from_millis(10);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_cell_rests_before_it_is_given_out_again() {
        let mut slabs = Slabs::new(SLAB_LEN, RESTS);
        let len = RECORD_LEN_MAX;
        let first = slabs.take(at(0), len, Tag(1)).unwrap();
        let second = slabs.take(at(0), len, Tag(2)).unwrap();
        assert!(second.abs_diff(first) >= len as u64);
        assert_eq!(slabs.take(at(0), len, Tag(3)), None, "a slab has two of these");
        assert_eq!(slabs.take(at(0), 100, Tag(3)), None, "and there is no other");
        slabs.give_back(at(0), first);
        slabs.give_back(at(1), first);
        assert_eq!(slabs.take(at(9), len, Tag(3)), None);
        assert_eq!(slabs.take(at(10), len, Tag(3)), Some(first));
        assert_eq!(slabs.take(at(99), len, Tag(4)), None, "given back once");
    }

    #[test]
    fn the_records_that_lie_longest_are_to_go_when_cells_run_short() {
        let mut slabs = Slabs::new(SLAB_LEN, RESTS);
        let cells = (SLAB_LEN / CELL_MIN) as usize;
        for tag in 0..cells as u64 {
            assert!(slabs.take(at(0), 100, Tag(tag)).is_some(), "cell {tag}");
        }
        let mut gone = Vec::new();
        while let Some((tag, offset)) = slabs.excess(100) {
            slabs.give_back(at(0), offset);
            gone.push(tag.0);
        }
        assert_eq!(gone.len(), cells / SPARE);
        assert!(gone.is_sorted(), "in the order in which they came");
        assert_eq!(slabs.take(at(0), 100, Tag(7)), None, "they rest");
        assert!(slabs.take(at(10), 100, Tag(7)).is_some());
    }
}
