//! The granules of an op: how its data is cut into frames, and which of them have arrived: read
//! responses and solicited data alike, and whatever another service cuts so. Normative text:
//! `docs/WIRE.md`, section 5.
//!
//! What is sent is cut by [`cut`] alone, and what is received is checked by
//! [`Granules::may_be_cut`]: a receiver takes any cut at whole granules, not this one only.
//!
//! [`cut`] and the check are for data of any length. A [`Granules`] is one word, and so tracks what
//! has arrived of up to [`OP_SIZE_MAX`](crate::limits::OP_SIZE_MAX) bytes.

use crate::limits::GRANULE;

/// How many of the `left` bytes of an op go into the next frame: as few frames as `most` bytes each
/// allow, whole granules but for the last. At least a granule, if there is as much left, whatever
/// `most` says.
///
/// All but the last are full: the receiver opens one while the next is under way, so what it waits
/// for in the end is the last one alone, and that should be short. But not tiny, which would be a
/// frame for nearly nothing: then the rest is cut evenly. (Measured when this was written, on a
/// veth pair in turns with the raw floor: 4 KiB at an MTU of 3400 took 7.3 µs in place of 7.5.)
#[must_use]
pub fn cut(left: usize, most: usize) -> usize {
    const GRANULE_LEN: usize = GRANULE as usize;
    if left <= most {
        return left;
    }
    let most = (most / GRANULE_LEN).max(1) * GRANULE_LEN;
    let frames = left.div_ceil(most);
    let last = left - (frames - 1) * most;
    if last >= most / 4 { most } else { left.div_ceil(frames).next_multiple_of(GRANULE_LEN) }
}

/// The granules of an op that have arrived: one bit each, of at most 64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granules(u64);

impl Granules {
    /// No granule.
    pub const NONE: Self = Self(0);

    /// Those of the bytes from `start` to `end`, exclusive, of an op: at most
    /// [`OP_SIZE_MAX`](crate::limits::OP_SIZE_MAX). What is above has no bits.
    #[must_use]
    pub const fn of(start: u32, end: u32) -> Self {
        let (first, past) = (start / GRANULE, end.div_ceil(GRANULE));
        Self(ones(past) & !ones(first))
    }

    /// Whether the cut from `start` to `end` is one that an op of `size` bytes may have, if `start`
    /// is where a granule begins.
    #[must_use]
    pub const fn may_be_cut(start: u32, end: u32, size: u32) -> bool {
        start < end && end <= size && (end.is_multiple_of(GRANULE) || end == size)
    }

    /// Whether one of them is among `other` as well.
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// These and `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The lowest `count` bits, of at most 64.
const fn ones(count: u32) -> u64 {
    if count >= u64::BITS { u64::MAX } else { (1 << count) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cuts(mut left: usize, most: usize) -> Vec<usize> {
        let mut cuts = Vec::new();
        while left > 0 {
            cuts.push(cut(left, most));
            left -= cuts.last().unwrap();
        }
        cuts
    }

    #[test]
    fn an_op_is_cut_into_few_frames_with_a_short_but_not_tiny_last_one() {
        assert_eq!(cuts(4096, 4096), [4096]);
        assert_eq!(cuts(4096, 3324), [3264, 832]);
        assert_eq!(cuts(4096, 1424), [1408, 1408, 1280]);
        assert_eq!(cuts(100, 1424), [100]);
        assert_eq!(cuts(1424, 1424), [1424]);
        assert_eq!(cuts(1425, 1424), [768, 657]);
    }

    #[test]
    fn every_cut_of_every_size_is_allowed_on_the_wire() {
        for most in [64, 65, 127, 128, 500, 1424, 3324, 4095] {
            for size in 1..=4096 {
                let mut start = 0;
                for cut in cuts(size, most) {
                    assert!(cut <= most.max(64));
                    let end = start + cut as u32;
                    assert!(Granules::may_be_cut(start, end, size as u32));
                    start = end;
                }
                assert_eq!(start, size as u32);
            }
        }
    }

    #[test]
    fn granules_are_the_bits_of_the_bytes() {
        assert_eq!(Granules::of(0, 1).0, 1);
        assert_eq!(Granules::of(0, 64).0, 1);
        assert_eq!(Granules::of(0, 65).0, 0b11);
        assert_eq!(Granules::of(64, 128).0, 0b10);
        assert_eq!(Granules::of(0, 4096).0, u64::MAX);
        assert_eq!(Granules::of(4032, 4096).0, 1 << 63);
    }

    #[test]
    fn a_cut_outside_the_op_or_inside_a_granule_is_not_allowed() {
        assert!(Granules::may_be_cut(64, 100, 100));
        assert!(!Granules::may_be_cut(64, 99, 100));
        assert!(!Granules::may_be_cut(64, 128, 100));
        assert!(!Granules::may_be_cut(64, 64, 100));
    }
}
