//! The date by which certificates are judged.
//!
//! `rustls` asks for it in the midst of a handshake. Here whoever drives connections says it
//! before, once a turn, so that no clock is read on the way, and a test can be at any date.

use core::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use rustls::{pki_types::UnixTime, time_provider::TimeProvider};

use crate::time::WallTime;

/// A date that is set from outside. Before that it is none, and no certificate is good.
#[derive(Debug)]
pub struct Wall(AtomicI64);

impl Wall {
    /// No date yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicI64::new(i64::MIN))
    }

    /// It is `date` now.
    pub fn set(&self, date: WallTime) {
        self.0.store(date.unix_millis(), Ordering::Relaxed);
    }
}

impl Default for Wall {
    fn default() -> Self {
        Self::new()
    }
}

impl TimeProvider for Wall {
    fn current_time(&self) -> Option<UnixTime> {
        let millis = u64::try_from(self.0.load(Ordering::Relaxed)).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_millis(millis)))
    }
}

/// A date as `rustls` has it; one before 1970 is 1970.
pub(super) fn unix_time(date: WallTime) -> UnixTime {
    let millis = u64::try_from(date.unix_millis()).unwrap_or(0);
    UnixTime::since_unix_epoch(Duration::from_millis(millis))
}

/// The same date, as this crate has it.
pub(super) fn wall_time(time: UnixTime) -> WallTime {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    WallTime::from_unix_millis(seconds.saturating_mul(1000))
}
