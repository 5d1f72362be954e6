//! The one clock: nanoseconds since it was made, from the time stamp counter.

use rma_core::time::{Clock, Instant};

/// A clock that costs a few nanoseconds to read and never goes backwards.
///
/// Each has its own epoch: instants of two clocks have nothing to do with each other.
#[derive(Clone, Debug)]
pub struct TscClock {
    clock: quanta::Clock,
    epoch: u64,
}

impl TscClock {
    /// A clock whose epoch is now. The first one in a process calibrates the counter, which takes some
    /// milliseconds.
    #[must_use]
    pub fn new() -> Self {
        let clock = quanta::Clock::new();
        let epoch = clock.raw();
        Self { clock, epoch }
    }
}

impl Default for TscClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TscClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.clock.delta_as_nanos(self.epoch, self.clock.raw()))
    }
}

/// Nanoseconds since 1970. `None` if that is negative or more than fits.
#[must_use]
pub(crate) fn wall_clock_nanos() -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "this is the clock module")]
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH).ok()?;
    since.as_nanos().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_ascends_from_zero() {
        let clock = TscClock::new();
        let (first, second) = (clock.now(), clock.now());
        assert!(first <= second);
        assert!(second.as_nanos() < 1_000_000_000, "{second:?}");
    }
}
