//! The numbers of a run: how many calls and ops came to what, and how long they took. They take as
//! much room after a second as after a microsecond.

use core::time::Duration;

use hdrhistogram::Histogram;
use rma_core::{op::OpStatus, time::Instant};

/// Delays, to three digits.
#[derive(Clone, Debug, PartialEq)]
pub struct Delays {
    nanos: Histogram<u64>,
    sum: u128,
}

/// The fates of the calls of a host. While it runs and at its end,
/// `offered = shed + ok + failed + waiting + under_way`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Those that its generators made.
    pub offered: u64,
    /// Those for which there was no room to wait in.
    pub shed: u64,
    /// Those that were tried again after a failure, as often as that was.
    pub retried: u64,
    /// Those that ended with OK.
    pub ok: u64,
    /// Those that ended otherwise.
    pub failed: u64,
    /// Those that wait for an executor, or a command slot.
    pub waiting: u64,
    /// Those that an executor, or the NIC, has.
    pub under_way: u64,
}

/// The fates of the ops of a host: those that calls were cut into, as often as they were issued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ops {
    /// Those that the NIC took.
    pub issued: u64,
    /// How many ended with each status, in the order of [`OpStatus::ALL`].
    pub ended: [u64; OpStatus::ALL.len()],
    /// Bytes on the wire of those that ended with OK after the warm-up.
    pub wire_bytes: u64,
    /// Their payload.
    pub payload: u64,
}

/// The latencies of calls of one length.
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies {
    /// How many bytes a call transfers.
    pub len: u64,
    /// From when they were offered to when software knew that they were OK: of those offered after
    /// the warm-up.
    pub delays: Delays,
}

/// The numbers of one host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostReport {
    /// Its number.
    pub host: u16,
    /// Its calls.
    pub calls: Counts,
    /// Its ops.
    pub ops: Ops,
}

/// The numbers of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Of each host that begins calls, in their order.
    pub hosts: Vec<HostReport>,
    /// Latencies of all hosts, by length.
    pub latencies: Vec<Latencies>,
    /// How long those ops of all hosts waited to enter service that were OK after the warm-up.
    pub issue_delay: Delays,
    /// The most bytes that waited at a port of the switch, with what was leaving.
    pub longest_queue: u64,
    /// For how long it was measured: what is left behind the warm-up.
    pub measured: Duration,
    /// The rate of a link, in bytes a second.
    pub rate: u64,
}

/// A call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// When software knew of it.
    pub at: Instant,
    /// When it was offered.
    pub offered: Instant,
    /// The host that began it.
    pub host: u16,
    /// The host that it ended with.
    pub destination: u16,
    /// How many bytes it transfers.
    pub len: u64,
    /// Whether it is OK.
    pub is_ok: bool,
    /// How often it was tried again.
    pub retries: u32,
}

impl Default for Delays {
    fn default() -> Self {
        let nanos = Histogram::new_with_max(LONGEST, DIGITS).expect("there may be so many digits");
        Self { nanos, sum: 0 }
    }
}

/// Digits of a delay.
const DIGITS: u8 = 3;

/// The longest delay that is told from longer ones, in nanoseconds: 17 s.
const LONGEST: u64 = 1 << 34;

impl Delays {
    pub(super) fn add(&mut self, delay: Duration) {
        self.nanos.saturating_record(delay.as_nanos() as u64);
        self.sum += delay.as_nanos();
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.nanos.len()
    }

    /// The mean, in microseconds; not a number if there are none.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.count() as f64 / 1e3
    }

    /// The value that this part of them does not exceed, in microseconds; not a number without any.
    #[must_use]
    pub fn quantile(&self, part: f64) -> f64 {
        if self.count() == 0 { f64::NAN } else { self.nanos.value_at_quantile(part) as f64 / 1e3 }
    }
}

impl Counts {
    pub(super) fn check(&self, host: u16) {
        let Self { offered, shed, ok, failed, waiting, under_way, .. } = *self;
        assert_eq!(offered, shed + ok + failed + waiting + under_way, "host {host}: {self:?}");
    }

    fn join(self, other: Self) -> Self {
        Self {
            offered: self.offered + other.offered,
            shed: self.shed + other.shed,
            retried: self.retried + other.retried,
            ok: self.ok + other.ok,
            failed: self.failed + other.failed,
            waiting: self.waiting + other.waiting,
            under_way: self.under_way + other.under_way,
        }
    }
}

impl Ops {
    /// How many have ended with this status.
    #[must_use]
    pub const fn with(&self, status: OpStatus) -> u64 {
        self.ended[status as usize]
    }

    /// How many have ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.ended.iter().sum()
    }

    fn join(&mut self, other: &Self) {
        self.issued += other.issued;
        self.ended.iter_mut().zip(other.ended).for_each(|(sum, it)| *sum += it);
        self.wire_bytes += other.wire_bytes;
        self.payload += other.payload;
    }
}

impl Report {
    /// The calls of all hosts.
    #[must_use]
    pub fn calls(&self) -> Counts {
        self.hosts.iter().fold(Counts::default(), |sum, host| sum.join(host.calls))
    }

    /// The ops of all hosts.
    #[must_use]
    pub fn ops(&self) -> Ops {
        let mut sum = Ops::default();
        self.hosts.iter().for_each(|host| sum.join(&host.ops));
        sum
    }

    /// The latencies of calls of `len` bytes.
    #[must_use]
    pub fn latencies_of(&self, len: u64) -> Option<&Delays> {
        self.latencies.iter().find(|it| it.len == len).map(|it| &it.delays)
    }

    /// The part of one link that ops used which ended with OK, in bytes on the wire.
    #[must_use]
    pub fn goodput(&self) -> f64 {
        self.share(self.ops().wire_bytes)
    }

    /// The same of their payload.
    #[must_use]
    pub fn payload(&self) -> f64 {
        self.share(self.ops().payload)
    }

    fn share(&self, bytes: u64) -> f64 {
        bytes as f64 / (self.rate as f64 * self.measured.as_secs_f64())
    }

    /// The part of all ops that ended with `status`.
    #[must_use]
    pub fn part(&self, status: OpStatus) -> f64 {
        let ops = self.ops();
        ops.with(status) as f64 / ops.ended().max(1) as f64
    }

    /// Whether hosts were offered more than they could take: calls were shed, or wait for more than
    /// one in twenty of the time.
    #[must_use]
    pub fn is_saturated(&self) -> bool {
        let calls = self.calls();
        (calls.shed + calls.waiting) * 20 > calls.offered
    }
}
