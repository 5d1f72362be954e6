//! Time in picoseconds, of which an octet takes 800 at 10 Gbit/s: sums are exact.

use core::ops::{Add, AddAssign, Mul, Sub};

/// A time since a run began, or a span of it, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Picos(pub u64);

impl Picos {
    /// When a run begins.
    pub const ZERO: Self = Self(0);

    /// So many nanoseconds.
    #[must_use]
    pub const fn nanos(nanos: u64) -> Self {
        Self(nanos * 1_000)
    }

    /// In microseconds.
    #[must_use]
    pub const fn as_micros(self) -> f64 {
        self.0 as f64 * 1e-6
    }

    /// In seconds.
    #[must_use]
    pub const fn as_secs(self) -> f64 {
        self.0 as f64 * 1e-12
    }
}

impl Add for Picos {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Picos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Picos {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Mul<u64> for Picos {
    type Output = Self;

    fn mul(self, times: u64) -> Self {
        Self(self.0 * times)
    }
}
