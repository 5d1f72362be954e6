//! When to connect again: after a random time, whose limit doubles with each try in vain.
//!
//! The whole of it is random, so that clients which lost a service together come back apart.

use core::time::Duration;

/// The limit of the first time. Longer, and a service that is back is found later; shorter, and all
/// its clients come at once.
const FIRST: Duration = Duration::from_millis(200);

/// The limit of the last one.
const LAST: Duration = Duration::from_secs(10);

/// How often it has been in vain.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::io) struct Backoff(pub(in crate::io) u32);

impl Backoff {
    /// How long to wait, by a random number.
    pub(in crate::io) fn next(&mut self, random: u64) -> Duration {
        let limit = FIRST.saturating_mul(1 << self.0.min(16)).min(LAST);
        self.0 = self.0.saturating_add(1);
        let nanos = (u128::from(random) * limit.as_nanos()) >> 64;
        Duration::from_nanos(nanos as u64)
    }

    /// It was not in vain.
    pub(in crate::io) const fn succeeded(&mut self) {
        self.0 = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_doubles_from_200_ms_to_10_s_and_all_of_it_is_random() {
        let mut backoff = Backoff::default();
        let limits: Vec<u128> = (0..8).map(|_| backoff.next(u64::MAX).as_millis()).collect();
        assert_eq!(limits, [199, 399, 799, 1599, 3199, 6399, 9999, 9999]);
        assert_eq!(backoff.next(0), Duration::ZERO);
        (0..100).for_each(|_| assert!(backoff.next(u64::MAX) <= LAST));
        backoff.succeeded();
        assert_eq!(backoff.next(1 << 63), Duration::from_millis(100));
    }
}
