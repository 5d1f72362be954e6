//! The processor time of a thread or of this program, and what the machine gave others meanwhile.

use core::time::Duration;
use std::fs;

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeVal,
};
use rustix::time::{ClockId, clock_gettime};

/// Processor time that was used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuTime {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
}

impl CpuTime {
    /// That of the calling thread. Nothing where the kernel does not tell.
    pub(crate) fn of_this_thread() -> Self {
        Self::of(UsageWho::RUSAGE_THREAD)
    }

    /// That of all threads of this program, likewise.
    pub(crate) fn of_this_program() -> Self {
        Self::of(UsageWho::RUSAGE_SELF)
    }

    fn of(whose: UsageWho) -> Self {
        let Ok(usage) = getrusage(whose) else { return Self::default() };
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

/// Time of some cores that was nobody's here, since the machine was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CoreTimes {
    /// How many cores these are.
    pub(crate) cores: u32,
    /// For interrupts that the kernel put off: of the network, and others.
    pub(crate) softirq: Duration,
    /// Taken away by a hypervisor.
    pub(crate) steal: Duration,
}

impl CoreTimes {
    /// Those of these cores. `None` if the kernel does not tell of all of them.
    pub(crate) fn of(cores: &[usize]) -> Option<Self> {
        Self::read(&fs::read_to_string("/proc/stat").ok()?, cores)
    }

    fn read(text: &str, cores: &[usize]) -> Option<Self> {
        /// The kernel's unit in this file, on every architecture that this runs on.
        const TICK: Duration = Duration::from_millis(10);
        let mut all = Self::default();
        for line in text.lines().filter_map(|it| it.strip_prefix("cpu")) {
            let mut words = line.split_ascii_whitespace();
            // That of all cores has no number.
            let is_one = !line.starts_with(' ');
            let core = words.next().and_then(|it| it.parse().ok());
            if !is_one || core.is_none_or(|it| !cores.contains(&it)) {
                continue;
            }
            // user nice system idle iowait irq softirq steal
            let mut words = words.skip(6).map(|it| it.parse::<u32>().ok().map(|it| TICK * it));
            all.softirq += words.next()??;
            all.steal += words.next()??;
            all.cores += 1;
        }
        (all.cores > 0 && all.cores as usize == cores.len()).then_some(all)
    }

    /// The difference between an earlier one and this.
    pub(crate) fn since(self, earlier: Self) -> Self {
        let softirq = self.softirq.saturating_sub(earlier.softirq);
        Self { softirq, steal: self.steal.saturating_sub(earlier.steal), ..self }
    }
}

fn duration(time: TimeVal) -> Duration {
    let seconds = Duration::from_secs(time.tv_sec().unsigned_abs());
    seconds + Duration::from_micros(time.tv_usec().unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_cores_are_those_of_the_kernel_and_unknown_if_one_is_missing() {
        let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 4 5 6 70 8 0 0\ncpu1 1 2 3 4 5 6 5 2 0 0\n\
                    cpu10 1 2 3 4 5 6 1 1 0 0\nintr 7\n";
        let of = |cores: &[usize]| CoreTimes::read(text, cores);
        let millis = Duration::from_millis;
        let (softirq, steal) = (millis(750), millis(100));
        assert_eq!(of(&[0, 1]), Some(CoreTimes { cores: 2, softirq, steal }));
        assert_eq!(of(&[0, 10]).unwrap().since(of(&[0, 10]).unwrap()).steal, Duration::ZERO);
        assert_eq!([of(&[2]), of(&[]), of(&[0, 2])], [None; 3]);
        assert_eq!(CoreTimes::read("cpu0 1 2 3 4 5 6 7", &[0]), None, "of a kernel without steal");
    }
}
