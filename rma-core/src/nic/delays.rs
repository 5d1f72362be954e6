//! Histograms of delays: what `issue_delay` and `total_delay` of a host's ops were (1RMA §4.5).
//!
//! Buckets are powers of two of nanoseconds: coarse, but then a bucket is found with one
//! instruction, and the same buckets suit a veth pair and a congested network. One thread counts,
//! any may read. Not for measuring: `rma-bench` keeps every digit.

use core::{array, ops::AddAssign};

use crate::tally::Tally;

/// The first bucket has what took up to 2^7 ns = 128 ns: no op is faster.
const FIRST_LOG: u32 = 7;
/// The last bound is 2^34 ns = 17 s: above all sensible timeouts. Then comes the bucket without a
/// bound.
const LAST_LOG: u32 = 34;

/// The distribution of delays, as far as powers of two tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DelayHistogram {
    /// How many delays fell into each bucket: longer than the bound before, at most its own
    /// ([`DelayHistogram::bound_nanos`]).
    pub counts: [u64; Self::BUCKETS],
    /// The sum of all delays in nanoseconds. Read an instant after `counts`, it may have an op
    /// more.
    pub sum_nanos: u64,
}

impl DelayHistogram {
    /// How many buckets there are.
    pub const BUCKETS: usize = (LAST_LOG - FIRST_LOG + 2) as usize;

    /// The longest delay that falls into a bucket, in nanoseconds; `None` for the last one, which
    /// has no bound.
    ///
    /// # Panics
    /// If there is no such bucket.
    #[must_use]
    pub const fn bound_nanos(bucket: usize) -> Option<u64> {
        assert!(bucket < Self::BUCKETS, "no such bucket");
        if bucket + 1 == Self::BUCKETS { None } else { Some(1 << (FIRST_LOG + bucket as u32)) }
    }

    /// How many delays there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn bucket(nanos: u64) -> usize {
        // The first bucket's bits are set, so that nothing below it needs a branch.
        let log = (nanos.saturating_sub(1) | ((1 << FIRST_LOG) - 1)).ilog2() + 1;
        (log - FIRST_LOG).min(Self::BUCKETS as u32 - 1) as usize
    }
}

impl AddAssign for DelayHistogram {
    /// The delays of two NICs of one host together.
    fn add_assign(&mut self, other: Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, more)| *sum += more);
        self.sum_nanos += other.sum_nanos;
    }
}

/// A histogram while it is counted.
#[derive(Debug, Default)]
pub(super) struct DelayCells {
    counts: [Tally; DelayHistogram::BUCKETS],
    sum_nanos: Tally,
}

impl DelayCells {
    /// For the engine thread alone.
    pub(super) fn count(&self, nanos: u64) {
        self.counts[DelayHistogram::bucket(nanos)].add(1);
        self.sum_nanos.add(nanos);
    }

    pub(super) fn load(&self) -> DelayHistogram {
        DelayHistogram {
            counts: array::from_fn(|bucket| self.counts[bucket].load()),
            sum_nanos: self.sum_nanos.load(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_falls_into_the_first_bucket_whose_bound_it_does_not_exceed() {
        let edges = (0..64).flat_map(|log| [(1_u64 << log) - 1, 1 << log, (1 << log) + 1]);
        for nanos in edges.chain([0, u64::MAX]) {
            let right = (0..DelayHistogram::BUCKETS)
                .find(|&it| DelayHistogram::bound_nanos(it).is_none_or(|bound| nanos <= bound));
            assert_eq!(Some(DelayHistogram::bucket(nanos)), right, "{nanos} ns");
        }
    }

    #[test]
    fn every_delay_is_counted_with_its_sum() {
        let cells = DelayCells::default();
        for nanos in [0, 128, 129, 1 << 34, (1 << 34) + 1] {
            cells.count(nanos);
        }
        let histogram = cells.load();
        assert_eq!((histogram.counts[0], histogram.counts[1]), (2, 1));
        assert_eq!(histogram.counts[DelayHistogram::BUCKETS - 2..], [1, 1]);
        assert_eq!((histogram.count(), histogram.sum_nanos), (5, (1 << 35) + 258));
    }
}
