//! The results of each second, as a line for people, and all of them as JSON.

use std::{fmt, time::Duration};

use hdrhistogram::Histogram;
use serde::Serialize;

/// The events in a span of time.
#[derive(Clone, Debug)]
pub struct Tally {
    /// From when an op was to begin until it was over: gets alone, in nanoseconds.
    pub latency: Histogram<u64>,
    /// The counts of that time.
    pub counts: Counts,
}

/// Numbers of things that happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Gets that found the value.
    pub hits: u64,
    /// Gets that no replica had the value for.
    pub misses: u64,
    /// Gets to which no replica answered.
    pub failed: u64,
    /// Gets that were not begun, as too many were under way.
    pub shed: u64,
    /// Values that are not what was put under their version: there may be none.
    pub wrong: u64,
    /// Copies that were put.
    pub puts: u64,
    /// Copies that were not, as their server was away or full.
    pub puts_lost: u64,
    /// Entries and records that were torn.
    pub torn: u64,
    /// Times that a get went on to another replica, as one did not answer.
    pub failovers: u64,
    /// Times that another key of a region has come.
    pub refetches: u64,
}

impl Counts {
    /// Returns the counts since `before`.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            hits: self.hits - before.hits,
            misses: self.misses - before.misses,
            failed: self.failed - before.failed,
            shed: self.shed - before.shed,
            wrong: self.wrong - before.wrong,
            puts: self.puts - before.puts,
            puts_lost: self.puts_lost - before.puts_lost,
            torn: self.torn - before.torn,
            failovers: self.failovers - before.failovers,
            refetches: self.refetches - before.refetches,
        }
    }

    /// Gets that came to an end.
    #[must_use]
    pub const fn gets(&self) -> u64 {
        self.hits + self.misses + self.failed
    }

    /// The part of gets that found the value.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        self.hits as f64 / self.gets().max(1) as f64
    }
}

impl Default for Tally {
    fn default() -> Self {
        // Up to a minute, which no get takes.
        let latency = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("three digits");
        Self { latency, counts: Counts::default() }
    }
}

/// One second of a run, or all of it.
#[derive(Clone, Debug, Serialize)]
pub struct Second {
    /// When it ended, in seconds since the run began.
    pub at: f64,
    /// Gets that ended, a second.
    pub rate: f64,
    /// The part of gets that found the value.
    pub hit_rate: f64,
    /// The median of the gets' latency in microseconds.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The 99.9th percentile.
    pub p999_us: f64,
    /// The counts of the second.
    #[serde(flatten)]
    pub counts: Counts,
    /// The events: killed, back, rotated.
    pub events: Vec<String>,
}

/// The heading above the lines.
pub const HEADER: &str = "     s   gets/s   hit %     p50 us     p99 us   p99.9 us  puts  torn  failover  refetch  what happened";

impl Second {
    /// Of a tally over `time`, which ended `at`.
    #[must_use]
    pub fn new(at: Duration, time: Duration, tally: &Tally, events: Vec<String>) -> Self {
        let micros = |quantile| tally.latency.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            at: at.as_secs_f64(),
            rate: tally.counts.gets() as f64 / time.as_secs_f64(),
            hit_rate: tally.counts.hit_rate(),
            p50_us: micros(0.5),
            p99_us: micros(0.99),
            p999_us: micros(0.999),
            counts: tally.counts,
            events,
        }
    }
}

impl fmt::Display for Second {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, rate, hit_rate, p50_us, p99_us, p999_us, counts, events } = self;
        let Counts { puts, torn, failovers, refetches, failed, wrong, shed, .. } = counts;
        write!(
            f,
            "{at:6.1} {rate:8.0} {:7.2} {p50_us:10.0} {p99_us:10.0} {p999_us:10.0} {puts:5} {torn:5} {failovers:9} {refetches:8}  {}",
            hit_rate * 100.0,
            events.join(", ")
        )?;
        for (count, what) in [(failed, "failed"), (shed, "shed"), (wrong, "WRONG")] {
            if *count > 0 {
                write!(f, "  {count} {what}")?;
            }
        }
        Ok(())
    }
}
