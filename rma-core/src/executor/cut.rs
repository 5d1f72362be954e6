//! The cutting of transfers into ops (1RMA §4.4).
//!
//! An op carries at most 4 KiB, and travels in as many frames as its payload needs. A cut that
//! leaves a nearly empty last frame in each op wastes a frame's worth of work, and one that fills
//! only few frames wastes requests: the cut is the one with the fewest frames for a byte, requests
//! included. All but the last op of a piece have that size.

use super::call::Piece;
use crate::{
    limits::{GRANULE, OP_SIZE_MAX},
    op::ClassOfService,
};

/// The size of ops, for one size of frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    op_size: u32,
    op_size_max: u32,
}

impl Cut {
    /// Of a call that is none.
    pub(super) const NONE: Self = Self { op_size: 0, op_size_max: 0 };

    /// The best cut if a frame carries at most `payload_len_max` bytes; at most `op_size_max` in an
    /// op.
    //= 1rma#4.4-executor
    pub(super) fn new(payload_len_max: u32, op_size_max: u32) -> Self {
        let op_size_max = op_size_max.clamp(1, OP_SIZE_MAX);
        // Frames are cut at granules.
        let payload = (payload_len_max / GRANULE * GRANULE).max(GRANULE);
        let whole_frames = (1..=op_size_max / payload).map(|frames| frames * payload);
        let cost = |&size: &u32| {
            // In frames for a number of bytes that all sizes can be compared by.
            let frames = 1 + size.div_ceil(payload);
            u64::from(frames) * u64::from(u32::MAX) / u64::from(size)
        };
        // The largest of the cheapest.
        let best = whole_frames.chain([op_size_max]).rev().min_by_key(cost);
        Self { op_size: best.expect("there is one at least"), op_size_max }
    }

    /// The class that suits a call which says none: that of small ops if one op can do it.
    pub(super) fn class(self, pieces: &[Piece<'_>]) -> ClassOfService {
        match pieces {
            [piece] if piece.len <= self.op_size_max.into() => ClassOfService::Latency,
            _ => ClassOfService::Throughput,
        }
    }

    /// How many bytes the next op takes of `left`, at least 1. What fits one op is not cut.
    pub(super) fn next(self, left: u64) -> u32 {
        if left <= self.op_size_max.into() { left as u32 } else { self.op_size }
    }

    /// How many bytes the last op of `len` has, which is at least 1.
    pub(super) fn last(self, len: u64) -> u32 {
        let (most, op_size) = (u64::from(self.op_size_max), u64::from(self.op_size));
        let before = len.saturating_sub(most).div_ceil(op_size);
        (len - before * op_size) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= 1rma#4.4-executor
    //= type=test
    #[test]
    fn the_cut_follows_the_frame_so_that_no_tiny_last_frame_is_sent() {
        for (payload, op_size) in [
            (8944, 4096), // jumbo frames: one each
            (4096, 4096),
            (3316, 3264), // MTU 3400: one full frame, and not a quarter of a second one
            (2100, 4096), // two, nearly full
            (1416, 4096), // MTU 1500: two full ones, and most of a third
            (1000, 3840), // four full ones
            (64, 4096),
            (63, 4096), // smaller than a granule: cannot be, and does no harm
        ] {
            assert_eq!(Cut::new(payload, OP_SIZE_MAX).op_size, op_size, "{payload}");
        }
    }

    #[test]
    fn the_last_op_is_what_cutting_leaves() {
        for cut in [Cut::new(3316, OP_SIZE_MAX), Cut::new(1416, OP_SIZE_MAX), Cut::new(8944, 512)] {
            for len in (1..20_000).step_by(7) {
                let (mut left, mut last) = (len, 0);
                while left > 0 {
                    last = cut.next(left);
                    left -= u64::from(last);
                }
                assert_eq!(cut.last(len), last, "{len}");
            }
        }
    }

    #[test]
    fn the_last_op_of_a_piece_takes_all_that_one_op_can() {
        let cut = Cut::new(3316, OP_SIZE_MAX);
        assert_eq!(cut.next(1 << 40), 3264);
        assert_eq!(cut.next(4097), 3264);
        assert_eq!(cut.next(4096), 4096, "one request for two frames, not two");
        assert_eq!(cut.next(1), 1);
        let small = Cut::new(8944, 512);
        assert_eq!((small.next(4096), small.next(100)), (512, 100));
    }
}
