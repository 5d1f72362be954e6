//! The one clock: nanoseconds since it was made, suspended time included.
//!
//! It is the kernel's CLOCK_BOOTTIME, which runs on while the machine is suspended: a target must
//! know how long ago it solicited data (WIRE 3.7), wherever that time was spent. Between two looks
//! at it, a tenth of a millisecond apart, the time stamp counter goes on from the last one, as
//! reading that takes half as long. The counter may stand still or begin anew while the machine is
//! suspended; but then threads stop long before the machine does and go on long after it, so more
//! than a look's distance has passed on the counter, or it has gone back. Either way the next
//! reading is a look.
//!
//! Invariant: it never goes back.

use core::{cell::Cell, time::Duration};

use rma_core::time::{Clock, Instant};
use rustix::time::{ClockId, clock_gettime};

/// How long the counter goes on by itself, in nanoseconds. Longer: nothing is saved, and a machine
/// that suspends faster than that could do so unseen. Shorter: more readings cost as much as the
/// kernel's clock does.
const LOOK_EVERY: u64 = 100_000;

/// How much of the counter may pass while the kernel's clock is read, in nanoseconds, for the two
/// to belong together: several times what it takes. The clock is wrong by no more than that. If
/// more has passed, as the thread was stopped, or the kernel's clock is a slow one, the reading is
/// right and the next is a look as well.
const LOOK_WITHIN: u64 = 2_000;

/// A clock that costs a few nanoseconds to read, never goes backwards, and runs on while the
/// machine is suspended.
///
/// Each has its own epoch: instants of two clocks have nothing to do with each other. One thread at
/// a time reads it.
#[derive(Clone, Debug)]
pub struct TscClock {
    counter: quanta::Clock,
    /// CLOCK_BOOTTIME when the clock was made.
    epoch: u64,
    /// The last look, at the counter and at the kernel's clock. `None`: they did not belong
    /// together.
    look: Cell<Option<(u64, u64)>>,
    /// The last reading.
    last: Cell<u64>,
}

impl TscClock {
    /// A clock whose epoch is now. The first one in a process calibrates the counter, which takes
    /// some milliseconds.
    #[must_use]
    pub fn new() -> Self {
        let counter = quanta::Clock::new();
        Self { counter, epoch: boottime(), look: Cell::new(None), last: Cell::new(0) }
    }

    /// Returns the last reading.
    pub(crate) const fn last(&self) -> Instant {
        Instant::from_nanos(self.last.get())
    }

    /// Returns the kernel's time since the epoch.
    #[cold]
    fn look(&self) -> u64 {
        let before = self.counter.raw();
        let now = boottime().saturating_sub(self.epoch);
        let after = self.counter.raw();
        let belong_together =
            after >= before && self.counter.delta_as_nanos(before, after) <= LOOK_WITHIN;
        self.look.set(belong_together.then_some((before, now)));
        now
    }

    /// How far the counter has come since the last look; `None` if it is time for another.
    #[inline]
    fn extrapolated(&self) -> Option<u64> {
        let (counter, at) = self.look.get()?;
        let raw = self.counter.raw();
        let since = self.counter.delta_as_nanos(counter, raw);
        (raw >= counter && since < LOOK_EVERY).then_some(at + since)
    }
}

impl Default for TscClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TscClock {
    #[inline]
    fn now(&self) -> Instant {
        let now = self.extrapolated().unwrap_or_else(|| self.look()).max(self.last.get());
        self.last.set(now);
        Instant::from_nanos(now)
    }
}

/// Nanoseconds since the machine was started, suspended time included.
fn boottime() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let since = Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.try_into().unwrap_or(0));
    // In 584 years.
    since.as_nanos().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_ascends_from_zero() {
        let older = TscClock::new();
        let clock = TscClock::new();
        let (first, second) = (clock.now(), clock.now());
        assert!(first <= second);
        let longer = older.now();
        assert!(second <= longer, "{second:?} since later than {longer:?}");
    }

    #[test]
    fn it_is_the_kernels_boot_time_at_every_reading() {
        let clock = TscClock::new();
        for _ in 0..100_000 {
            let before = boottime() - clock.epoch;
            let now = clock.now().as_nanos();
            let after = boottime() - clock.epoch;
            // Wrong by what may pass during a look, and by what the counter's rate is off in
            // between.
            let error = LOOK_WITHIN + LOOK_EVERY / 1000;
            assert!(
                (before.saturating_sub(error)..=after + error).contains(&now),
                "{before} {now} {after}"
            );
        }
    }

    #[test]
    fn a_counter_that_went_back_is_a_reason_to_look() {
        let clock = TscClock::new();
        let first = clock.now().as_nanos();
        while boottime() - clock.epoch < first + 1_000_000 {}
        // As after a sleep in which the counter began anew.
        clock.look.set(Some((u64::MAX, first)));
        assert!(clock.now().as_nanos() >= first + 1_000_000);
    }
}
