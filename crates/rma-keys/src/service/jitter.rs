//! Random parts of waiting times, so that clients do not come all at once. No secret depends on
//! them: a seed, and the same seed gives the same run.

use core::time::Duration;

/// SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Debug)]
pub(super) struct Jitter(pub(super) u64);

impl Jitter {
    /// A random part of `whole`.
    pub(super) fn part_of(&mut self, whole: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let nanos = (whole.as_nanos() * u128::from(mixed)) >> 64;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}
