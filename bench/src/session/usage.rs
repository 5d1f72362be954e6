//! The usage of a server: all that it has used and seen since it began.

use core::{fmt::Debug, time::Duration};
use std::collections::BTreeMap;

use rma_core::time::Instant;
use rma_xdp::{
    HostOf,
    engine::EngineKind,
    metrics::NotSent,
    time::{Clock, TscClock},
};
use serde::{Deserialize, Serialize};

use crate::{
    cpu::{CoreTimes, CpuTime},
    inbox::Received,
};

/// A time between two turns above which the engine did not run.
const GAP: Duration = Duration::from_micros(100);

/// All that a server has used and seen since it began. Times are in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// For how long it has served.
    pub(crate) elapsed_us: u64,
    /// Processor time of the engine's thread: its own. Of all threads, if engines have some.
    pub(crate) user_us: u64,
    /// That of the kernel for it.
    pub(crate) system_us: u64,
    /// Time that the engine's turns took in which there was something to do. Where engines have
    /// threads, all processor time.
    pub(crate) busy_us: u64,
    /// How often more than 100 µs went by between two turns: what comes meanwhile waits. 0 where
    /// engines have threads, of which nobody knows.
    pub(crate) gaps: u64,
    /// The longest of these times.
    pub(crate) longest_gap_us: Option<u64>,
    /// All of these times together, if it tells.
    #[serde(default)]
    pub(crate) gap_us: Option<u64>,
    /// The cores that the next two are of; 0 if the kernel does not tell.
    #[serde(default)]
    pub(crate) cores: u32,
    /// Time of these cores for interrupts that the kernel had put off.
    #[serde(default)]
    pub(crate) softirq_us: u64,
    /// Time of these cores that a hypervisor took away.
    #[serde(default)]
    pub(crate) steal_us: u64,
    /// Frames that came.
    pub(crate) frames_received: u64,
    /// Frames that left.
    pub(crate) frames_sent: u64,
    /// Frames that came and were dropped, by reason; without those that there were none of.
    pub(crate) drops: BTreeMap<String, u64>,
    /// Frames that were dropped instead of sent, likewise.
    pub(crate) not_sent: BTreeMap<String, u64>,
    /// Messages that came into the queue.
    pub(crate) messages: u64,
    /// Their bytes.
    pub(crate) message_bytes: u64,
}

impl Usage {
    /// The difference between an earlier one of the same server and this. The longest gap is kept
    /// if it came meanwhile, and is unknown otherwise.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let by_reason = |now: &BTreeMap<String, u64>, then: &BTreeMap<String, u64>| {
            let left = |(reason, count): (&String, &u64)| {
                let count = count.saturating_sub(then.get(reason).copied().unwrap_or(0));
                (count > 0).then(|| (reason.clone(), count))
            };
            now.iter().filter_map(left).collect()
        };
        let is_new = self.longest_gap_us > earlier.longest_gap_us;
        Self {
            elapsed_us: self.elapsed_us.saturating_sub(earlier.elapsed_us),
            user_us: self.user_us.saturating_sub(earlier.user_us),
            system_us: self.system_us.saturating_sub(earlier.system_us),
            busy_us: self.busy_us.saturating_sub(earlier.busy_us),
            gaps: self.gaps.saturating_sub(earlier.gaps),
            longest_gap_us: self.longest_gap_us.filter(|_| is_new),
            gap_us: self.gap_us.zip(earlier.gap_us).map(|(now, then)| now.saturating_sub(then)),
            cores: if earlier.cores == self.cores { self.cores } else { 0 },
            softirq_us: self.softirq_us.saturating_sub(earlier.softirq_us),
            steal_us: self.steal_us.saturating_sub(earlier.steal_us),
            frames_received: self.frames_received.saturating_sub(earlier.frames_received),
            frames_sent: self.frames_sent.saturating_sub(earlier.frames_sent),
            drops: by_reason(&self.drops, &earlier.drops),
            not_sent: by_reason(&self.not_sent, &earlier.not_sent),
            messages: self.messages.saturating_sub(earlier.messages),
            message_bytes: self.message_bytes.saturating_sub(earlier.message_bytes),
        }
    }
}

impl Usage {
    /// The time of cores that was nobody's there, if it is known.
    pub(crate) fn core_times(&self) -> Option<CoreTimes> {
        let [softirq, steal] = [self.softirq_us, self.steal_us].map(Duration::from_micros);
        (self.cores > 0).then_some(CoreTimes { cores: self.cores, softirq, steal })
    }

    /// The same, with what was taken from its cores.
    pub(crate) fn with_cores(self, times: Option<CoreTimes>) -> Self {
        let CoreTimes { cores, softirq, steal } = times.unwrap_or_default();
        Self { cores, softirq_us: micros(softirq), steal_us: micros(steal), ..self }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Measures the turns of an engine, or what engines with threads of their own use.
#[derive(Debug)]
pub(crate) struct Meter {
    /// Whether an engine turns on this thread.
    is_here: bool,
    clock: TscClock,
    began: Instant,
    last: Instant,
    busy: Duration,
    gaps: u64,
    longest: Duration,
    still: Duration,
    cpu: CpuTime,
}

impl Meter {
    /// From now on, of this thread's engine, or of engines that have threads.
    pub(crate) fn new(is_here: bool) -> Self {
        let clock = TscClock::new();
        let (began, cpu) = (clock.now(), used(is_here));
        let (busy, gaps, longest, still) = (Duration::ZERO, 0, Duration::ZERO, Duration::ZERO);
        Self { is_here, clock, began, last: began, busy, gaps, longest, still, cpu }
    }

    /// A turn is over, in which there was something to do or not; or, where engines have threads,
    /// another look at them. Returns how long it has been measured for.
    #[inline]
    pub(crate) fn turned(&mut self, worked: bool) -> Duration {
        let now = self.clock.now();
        let step = now.since(self.last);
        self.last = now;
        if worked {
            self.busy += step;
        }
        if step > GAP && self.is_here {
            self.gaps += 1;
            self.longest = self.longest.max(step);
            self.still += step;
        }
        now.since(self.began)
    }

    /// Returns all that is known of `host`, which has received so many messages.
    pub(crate) fn usage(&self, host: &HostOf<impl EngineKind>, received: Received) -> Usage {
        let Self { is_here, began, last, busy, gaps, longest, still, cpu, .. } = *self;
        let used = used(is_here).since(cpu);
        let mut of_engines = Usage::default();
        for engine in host.engines() {
            let counters = &engine.counters;
            of_engines.frames_received += counters.frames_received();
            of_engines.frames_sent += counters.frames_sent();
            let not_sent = NotSent::ALL.map(|reason| (reason, counters.not_sent(reason)));
            add(&mut of_engines.drops, counters.all_drops());
            add(&mut of_engines.not_sent, not_sent.into_iter().filter(|&(_, count)| count > 0));
        }
        Usage {
            elapsed_us: micros(last.since(began)),
            user_us: micros(used.user),
            system_us: micros(used.system),
            busy_us: micros(if is_here { busy } else { used.user + used.system }),
            gaps,
            longest_gap_us: (gaps > 0).then(|| micros(longest)),
            gap_us: is_here.then_some(micros(still)),
            messages: received.messages,
            message_bytes: received.bytes,
            ..of_engines
        }
    }
}

/// The processor time of this thread's engine, or of engines that have threads.
fn used(is_here: bool) -> CpuTime {
    if is_here { CpuTime::of_this_thread() } else { CpuTime::of_this_program() }
}

/// Adds the counts of one engine.
fn add<R: Debug>(all: &mut BTreeMap<String, u64>, counts: impl Iterator<Item = (R, u64)>) {
    for (reason, count) in counts {
        *all.entry(format!("{reason:?}")).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_since_an_earlier_one_has_the_longest_gap_only_if_it_is_new() {
        let of = |gaps, longest_gap_us, drops: &[(&str, u64)]| Usage {
            gaps,
            longest_gap_us,
            drops: drops.iter().map(|&(it, count)| (it.to_owned(), count)).collect(),
            ..Usage::default()
        };
        let earlier = of(3, Some(200), &[("WrongTag", 2), ("Version", 1)]);
        let later = of(5, Some(200), &[("WrongTag", 2), ("Version", 4), ("Closed", 1)]);
        assert_eq!(later.since(&earlier), of(2, None, &[("Version", 3), ("Closed", 1)]));
        assert_eq!(of(4, Some(201), &[]).since(&earlier), of(1, Some(201), &[]));
        assert_eq!(earlier.since(&later), Usage::default(), "of two servers");
        let cores = |cores, millis| {
            let time = Duration::from_millis(millis);
            let times = CoreTimes { cores, softirq: time, steal: time };
            Usage::default().with_cores((cores > 0).then_some(times))
        };
        assert_eq!(cores(2, 9).since(&cores(2, 4)), cores(2, 5));
        assert_eq!(cores(2, 9).since(&cores(0, 0)).core_times(), None, "unknown, and not 9 ms");
    }
}
