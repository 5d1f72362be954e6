//! How many frames packets have: a histogram, that shows what sharing gains. One thread counts, any
//! may read.
//!
//! A packet has at most [`FRAMES_MAX`] frames, so packets are counted by their exact number of
//! frames, with one addition for each, and only who reads puts them into buckets.

use core::ops::AddAssign;

use super::FRAMES_MAX;
use crate::tally::Tally;

/// How many packets there were, by their frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PacketSizes {
    /// How many packets fell into each bucket: with more frames than the bound before, at most its
    /// own ([`PacketSizes::bound_frames`]).
    pub counts: [u64; Self::BUCKETS],
    /// The frames of all packets together. Read in the same instant as `counts`.
    pub sum_frames: u64,
}

impl PacketSizes {
    /// How many buckets there are: for 1, 2, 4, 8, 16 and 32 frames.
    pub const BUCKETS: usize = FRAMES_MAX.ilog2() as usize + 1;

    /// The most frames of a packet that falls into a bucket. No packet has more than the last.
    ///
    /// # Panics
    /// If there is no such bucket.
    #[must_use]
    pub const fn bound_frames(bucket: usize) -> usize {
        assert!(bucket < Self::BUCKETS, "no such bucket");
        1 << bucket
    }

    /// How many packets there were.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.counts.iter().sum()
    }
}

const _: () = assert!(FRAMES_MAX.is_power_of_two(), "the last bucket ends with the longest packet");

impl AddAssign for PacketSizes {
    /// The packets of two NICs of one host together.
    fn add_assign(&mut self, other: Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, more)| *sum += more);
        self.sum_frames += other.sum_frames;
    }
}

/// The histogram while it is counted: packets of 1 frame, of 2, and so on.
#[derive(Debug, Default)]
pub struct PacketSizeCells([Tally; FRAMES_MAX]);

impl PacketSizeCells {
    /// A packet of so many frames, for the one thread that counts. One of none, or of more than a
    /// packet may have, counts as the nearest that may be.
    #[inline]
    pub fn count(&self, frames: usize) {
        self.0[frames.clamp(1, FRAMES_MAX) - 1].add(1);
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn load(&self) -> PacketSizes {
        let mut sizes = PacketSizes::default();
        for (packets, frames) in self.0.iter().map(Tally::load).zip(1_u64..) {
            sizes.counts[frames.next_power_of_two().ilog2() as usize] += packets;
            sizes.sum_frames += packets * frames;
        }
        sizes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_falls_into_the_first_bucket_whose_bound_it_does_not_exceed() {
        for frames in 1..=FRAMES_MAX {
            let cells = PacketSizeCells::default();
            cells.count(frames);
            let sizes = cells.load();
            let bucket =
                (0..PacketSizes::BUCKETS).find(|&it| frames <= PacketSizes::bound_frames(it));
            assert_eq!(sizes.counts.iter().position(|&it| it == 1), bucket, "{frames} frames");
            assert_eq!((sizes.packets(), sizes.sum_frames), (1, frames as u64));
        }
    }

    #[test]
    fn an_impossible_size_counts_as_the_nearest_and_sums_add_up() {
        let cells = PacketSizeCells::default();
        for frames in [0, 1, 3, 4, FRAMES_MAX, FRAMES_MAX + 1, usize::MAX] {
            cells.count(frames);
        }
        let mut sizes = cells.load();
        assert_eq!((sizes.counts, sizes.sum_frames), ([2, 0, 2, 0, 0, 3], 2 + 7 + 96));
        sizes += sizes;
        assert_eq!((sizes.counts, sizes.sum_frames), ([4, 0, 4, 0, 0, 6], 210));
    }
}
