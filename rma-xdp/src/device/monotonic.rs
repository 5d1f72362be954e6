//! The time that control threads measure pauses by. Engines have a clock of their own.

use core::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time since boot.
pub(crate) fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}
