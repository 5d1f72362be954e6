//! The places of a region that the ops of a load go to.

use rand::{Rng, SeedableRng, rngs::SmallRng};

use crate::client::Area;

/// Bytes of a cache line, which measured ops begin at, as one would lay out what must be read fast.
pub(crate) const LINE: u64 = 64;

/// Random places of an area, and which of them were written to.
#[derive(Debug)]
pub(crate) struct Places {
    random: SmallRng,
    offset: u64,
    stride: u64,
    count: u64,
    written: Box<[bool]>,
    /// How many turns were taken.
    turns: u64,
}

impl Places {
    /// Lines at which ops of `size` bytes begin, which fit `area`.
    pub(crate) fn new(area: Area, size: u32, seed: u64) -> Self {
        // An area may be no longer than a short op.
        let lines = area.len.saturating_sub(u64::from(size).max(8)) / LINE;
        Self::every(LINE, area.offset, lines + 1, seed)
    }

    /// Places one beside the other for calls of `size` bytes, which fit `area`.
    pub(crate) fn of_calls(area: Area, size: u64, seed: u64) -> Self {
        Self::every(size, area.offset, (area.len / size).max(1), seed)
    }

    fn every(stride: u64, offset: u64, count: u64, seed: u64) -> Self {
        let written = vec![false; count as usize].into();
        let mut random = SmallRng::seed_from_u64(seed);
        let turns = random.random_range(0..1 << 16);
        Self { random, offset, stride, count, written, turns }
    }

    /// The offset in the region of one of them.
    #[inline]
    pub(crate) fn draw(&mut self) -> u64 {
        self.offset + self.random.random_range(0..self.count) * self.stride
    }

    /// A number that is drawn together with the places.
    #[inline]
    pub(crate) fn draw_below(&mut self, end: u32) -> u32 {
        self.random.random_range(0..end)
    }

    /// The next of so many that have their turns.
    #[inline]
    pub(crate) fn turn(&mut self, of: usize) -> usize {
        self.turns += 1;
        (self.turns % of as u64) as usize
    }

    /// Notes that an op has written there.
    #[inline]
    pub(crate) fn wrote(&mut self, offset: u64) {
        self.written[((offset - self.offset) / self.stride) as usize] = true;
    }

    /// Those that were written to.
    pub(crate) fn written(&self) -> impl Iterator<Item = u64> {
        let places = (0_u64..).zip(&self.written).filter(|(_, written)| **written);
        places.map(|(place, _)| self.offset + place * self.stride)
    }
}
