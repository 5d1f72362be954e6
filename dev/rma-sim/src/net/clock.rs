//! The clock of one node: it starts anywhere, runs too fast or too slow, and never goes backwards.
//!
//! A simulation runs on true time. A NIC sees its own node's clock and nothing else, so whatever
//! the protocol concludes from comparing two hosts' clocks is wrong here. What a NIC wants to be
//! woken for is converted back: the first instant of true time at which its clock shows that.

use rma_core::time::Instant;

/// The difference of a node's clock from true time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOptions {
    /// The time that the clock shows when the node starts.
    pub starts_at: Instant,
    /// How much faster than true time it runs, in parts per million; more than -1,000,000. A quartz
    /// is off by some 50, one that has lost its mind by 1000.
    pub drift_ppm: i32,
}

/// A running clock.
#[derive(Clone, Copy, Debug)]
pub struct LocalClock {
    started: Instant,
    options: ClockOptions,
    /// Nanoseconds that it counts in one of true time, times 2^32.
    rate: u64,
}

impl LocalClock {
    /// A clock that starts at true time `started`.
    #[must_use]
    pub fn new(started: Instant, options: ClockOptions) -> Self {
        let millionths = 1_000_000_i64.saturating_add(options.drift_ppm.into()).max(1);
        let rate = ((millionths as u128) << u32::BITS) / 1_000_000;
        Self { started, options, rate: rate as u64 }
    }

    /// Returns the clock's time at true time `at`; what it showed first for any time before its
    /// start.
    #[must_use]
    pub fn show(&self, at: Instant) -> Instant {
        let passed = u128::from(at.nanos_since(self.started)) * u128::from(self.rate);
        plus(self.options.starts_at, passed >> u32::BITS)
    }

    /// The first instant of true time at which the clock shows `local` or more.
    #[must_use]
    pub fn when(&self, local: Instant) -> Instant {
        let passed = u128::from(local.nanos_since(self.options.starts_at)) << u32::BITS;
        plus(self.started, passed.div_ceil(self.rate.into()))
    }

    /// The most nanoseconds that the clock advances in one of true time: how late it may wake a
    /// NIC, by its own measure, is less than this.
    #[must_use]
    pub const fn step_nanos(&self) -> u64 {
        self.rate.div_ceil(1 << u32::BITS)
    }
}

fn plus(instant: Instant, nanos: u128) -> Instant {
    let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
    Instant::from_nanos(instant.as_nanos().saturating_add(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    fn clock(starts_at: u64, drift_ppm: i32) -> LocalClock {
        let starts_at = Instant::from_nanos(starts_at);
        LocalClock::new(Instant::from_nanos(500), ClockOptions { starts_at, drift_ppm })
    }

    #[test]
    fn a_clock_without_drift_is_true_time_and_an_offset() {
        let clock = clock(7_000, 0);
        assert_eq!(clock.show(Instant::from_nanos(500)).as_nanos(), 7_000);
        assert_eq!(clock.show(Instant::from_nanos(1_500)).as_nanos(), 8_000);
        assert_eq!(clock.when(Instant::from_nanos(8_000)).as_nanos(), 1_500);
        assert_eq!(clock.step_nanos(), 1);
    }

    #[test]
    fn a_drifting_clock_is_off_by_what_it_says() {
        let second = Instant::from_nanos(500 + 1_000_000_000);
        assert_eq!(clock(0, 1000).show(second).as_nanos().div_ceil(1000), 1_001_000);
        assert_eq!(clock(0, -1000).show(second).as_nanos().div_ceil(1000), 999_000);
    }

    #[test]
    fn a_clock_never_goes_backwards_and_wakes_at_the_first_instant_that_is_not_early() {
        let mut prng = Prng::new(1);
        for _ in 0..10_000 {
            let clock = clock(prng.magnitude(1 << 50), prng.below(2001) as i32 - 1000);
            let at = Instant::from_nanos(510 + prng.magnitude(1 << 40));
            let before = Instant::from_nanos(at.as_nanos() - 1);
            assert!(clock.show(before) <= clock.show(at));
            assert!(clock.show(at).nanos_since(clock.show(before)) <= clock.step_nanos());
            let local = clock.show(at) + core::time::Duration::from_nanos(prng.below(3));
            let woken = clock.when(local);
            let just_before = Instant::from_nanos(woken.as_nanos() - 1);
            assert!(clock.show(woken) >= local && clock.show(just_before) < local);
        }
    }
}
