//! The time and the date, as the operating system has them.
//!
//! Only threads of this crate, and those that drive loops themselves, read it: everything else is
//! told what it says.

use rma_core::time::Instant;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::time::{Now, WallTime};

/// Returns the present time: CLOCK_BOOTTIME, which goes on while the host is suspended, and the
/// wall's.
#[must_use]
pub fn now() -> Now {
    let boot = clock_gettime(ClockId::Boottime);
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Realtime);
    Now {
        // In 584 years.
        boot: Instant::from_nanos(boot.tv_sec.unsigned_abs() * 1_000_000_000 + boot.tv_nsec as u64),
        wall: WallTime::from_unix_millis(tv_sec * 1000 + tv_nsec / 1_000_000),
    }
}
