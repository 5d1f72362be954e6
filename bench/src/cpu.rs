//! The processor time of a thread, and what the machine gave to others meanwhile.

use core::time::Duration;

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeVal,
};
use rustix::time::{ClockId, clock_gettime};

/// Processor time that a thread has used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuTime {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
}

impl CpuTime {
    /// That of the calling thread. Nothing where the kernel does not tell.
    pub(crate) fn of_this_thread() -> Self {
        let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) else { return Self::default() };
        Self { user: duration(usage.user_time()), system: duration(usage.system_time()) }
    }

    /// The time used since.
    pub(crate) fn since(self, earlier: Self) -> Self {
        let user = self.user.saturating_sub(earlier.user);
        Self { user, system: self.system.saturating_sub(earlier.system) }
    }
}

/// The processor time that the calling thread has used, to the nanosecond: that of [`CpuTime`] may
/// be some milliseconds behind.
pub(crate) fn exact() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

fn duration(time: TimeVal) -> Duration {
    let seconds = Duration::from_secs(time.tv_sec().unsigned_abs());
    seconds + Duration::from_micros(time.tv_usec().unsigned_abs())
}
