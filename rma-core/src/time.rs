//! The protocol's time: nanoseconds since an epoch that the caller chooses.
//!
//! Time is an argument here: the engine reads its clock once a turn, the simulator advances a
//! virtual one. Where a reading from the start of the turn is not good enough, a [`Clock`] is the
//! argument; the two places that need one are in the hops of a mutation (promise P2).

use core::{ops::Add, time::Duration};

/// A point in time: nanoseconds since an arbitrary epoch. Never goes backwards within one `Nic`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The epoch itself; where a simulation starts.
    pub const ZERO: Self = Self(0);

    /// The instant `nanos` nanoseconds after the epoch.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the epoch.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time passed since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }

    /// The instant `nanos` nanoseconds later.
    pub(crate) const fn after_nanos(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    /// [`Instant::since`] in nanoseconds.
    #[must_use]
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(nanos(rhs)))
    }
}

/// `duration` in nanoseconds; what does not fit (584 years) becomes `u64::MAX`.
#[must_use]
pub(crate) const fn nanos(duration: Duration) -> u64 {
    let nanos = duration.as_nanos();
    if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 }
}

/// The source of a NIC's time.
pub trait Clock {
    /// The time now. Never goes backwards.
    fn now(&self) -> Instant;
}

/// A clock that stands still.
impl Clock for Instant {
    fn now(&self) -> Instant {
        *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_saturates_when_the_argument_is_later() {
        let early = Instant::from_nanos(5);
        let late = early + Duration::from_nanos(7);
        assert_eq!(late.since(early), Duration::from_nanos(7));
        assert_eq!(early.since(late), Duration::ZERO);
    }

    #[test]
    fn far_futures_saturate_instead_of_wrapping() {
        assert_eq!(Instant::from_nanos(1) + Duration::MAX, Instant::from_nanos(u64::MAX));
    }
}
