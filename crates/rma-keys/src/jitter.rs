//! Random parts of waiting times, so that clients do not come all at once. No secret depends on
//! them: a seed, and the same seed gives the same run.

use core::time::Duration;

/// SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Debug)]
pub(crate) struct Jitter(pub(crate) u64);

impl Jitter {
    /// A random number: what another one begins with.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A random part of `whole`.
    pub(crate) fn part_of(&mut self, whole: Duration) -> Duration {
        let nanos = (whole.as_nanos() * u128::from(self.next())) >> 64;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}
