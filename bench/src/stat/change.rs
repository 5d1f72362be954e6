//! The difference of two scrapes of a host, for people and machines.

use core::time::Duration;
use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use super::scrape::{Buckets, Counts, Scrape};

/// A difference. Counts are of the whole time between the scrapes, and no rates.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Change {
    /// When the later scrape was taken, in milliseconds since the beginning of 1970.
    pub(super) unix_ms: i64,
    /// Seconds between the scrapes.
    pub(super) seconds: f64,
    /// Whether counters have gone back: the host was started again, and what is here is since then.
    pub(super) restarted: bool,
    /// Ops that ended, by status: OK, and those that there were.
    pub(super) completions: Counts,
    /// Frames that were received.
    pub(super) frames_in: u64,
    /// Frames that were sent.
    pub(super) frames_out: u64,
    /// Packets that were received.
    pub(super) packets_in: u64,
    /// Packets that were sent.
    pub(super) packets_out: u64,
    /// How long ops that ended with OK waited until they entered service.
    pub(super) issue_delay_us: Quantiles,
    /// How long these ops took.
    pub(super) total_delay_us: Quantiles,
    /// Dropped frames and packets, by reason, those that there were.
    pub(super) dropped: Counts,
}

/// Bounds that so many delays stay within, in microseconds; none if there was no delay, or if the
/// bucket has no bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Quantiles {
    /// At least half of them.
    p50_at_most: Option<f64>,
    /// At least 99 %.
    p99_at_most: Option<f64>,
}

/// The moment of a later scrape.
#[derive(Clone, Copy, Debug)]
pub(super) struct When {
    /// Milliseconds since the beginning of 1970.
    pub(super) unix_ms: i64,
    /// The time since the earlier scrape.
    pub(super) passed: Duration,
}

impl Change {
    /// From `before` to `after`. If any counter has gone back, all that `after` has.
    pub(super) fn between(before: &Scrape, after: &Scrape, when: When) -> Self {
        let restarted = || {
            let change = Self::grown(&Scrape::default(), after, when);
            change.map(|change| Self { restarted: true, ..change })
        };
        Self::grown(before, after, when).or_else(restarted).expect("nothing is below zero")
    }

    /// `None` if a counter has gone back.
    fn grown(before: &Scrape, after: &Scrape, when: When) -> Option<Self> {
        let counts = growth(&before.counts, &after.counts)?;
        let count = |name| counts.get(name).copied().unwrap_or(0);
        let mut completions = growth(&before.completions, &after.completions)?;
        completions.retain(|status, count| status == "OK" || *count > 0);
        let mut dropped = growth(&before.dropped, &after.dropped)?;
        dropped.retain(|_, count| *count > 0);
        let delays = |before, after| growth(before, after).map(|it| Quantiles::of(&it));
        Some(Self {
            unix_ms: when.unix_ms,
            seconds: when.passed.as_secs_f64(),
            restarted: false,
            completions,
            frames_in: count("frames_in"),
            frames_out: count("frames_out"),
            packets_in: count("packets_in"),
            packets_out: count("packets_out"),
            issue_delay_us: delays(&before.issue_delay, &after.issue_delay)?,
            total_delay_us: delays(&before.total_delay, &after.total_delay)?,
            dropped,
        })
    }
}

/// How much each count of `after` is above that of `before`; `None` if one is below.
fn growth<K: Ord + Clone>(
    before: &BTreeMap<K, u64>,
    after: &BTreeMap<K, u64>,
) -> Option<BTreeMap<K, u64>> {
    let above = |(key, count): (&K, &u64)| {
        Some((key.clone(), count.checked_sub(before.get(key).copied().unwrap_or(0))?))
    };
    after.iter().map(above).collect()
}

impl Quantiles {
    fn of(buckets: &Buckets) -> Self {
        let all = buckets.get(&u64::MAX).copied().unwrap_or(0);
        let bound = |percent: u64| {
            let enough = (u128::from(all) * u128::from(percent)).div_ceil(100) as u64;
            let bucket = buckets.iter().find(|&(_, count)| enough > 0 && *count >= enough);
            bucket.filter(|(bound, _)| **bound < u64::MAX).map(|(bound, _)| *bound as f64 / 1e3)
        };
        Self { p50_at_most: bound(50), p99_at_most: bound(99) }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {:.1} s  ", TimeOfDay(self.unix_ms), self.seconds)?;
        if self.restarted {
            write!(f, "RESTARTED, since then:  ")?;
        }
        let Self { frames_in, frames_out, packets_in, packets_out, .. } = self;
        let is_long = |list: &Counts| list.len() > IN_LINE;
        if !is_long(&self.completions) {
            write!(f, "completions {}  ", List(&self.completions))?;
        }
        write!(f, "frames in {frames_in} out {frames_out}  ")?;
        write!(f, "packets in {packets_in} out {packets_out}")?;
        for (name, delay) in [("issue", self.issue_delay_us), ("total", self.total_delay_us)] {
            if let Some(p50) = delay.p50_at_most {
                let p99 = delay.p99_at_most.map_or("-".to_owned(), Self::micros);
                write!(f, "  {name} delay p50 ≤ {} p99 ≤ {p99} µs", Self::micros(p50))?;
            }
        }
        if !self.dropped.is_empty() && !is_long(&self.dropped) {
            write!(f, "  dropped {}", List(&self.dropped))?;
        }
        for (what, list) in [("completions", &self.completions), ("dropped", &self.dropped)] {
            for (name, count) in list.iter().filter(|_| is_long(list)) {
                write!(f, "\n           {what} {name} {count}")?;
            }
        }
        Ok(())
    }
}

impl Change {
    fn micros(micros: f64) -> String {
        if micros < 10.0 { format!("{micros:.2}") } else { format!("{micros:.0}") }
    }
}

/// The most counts of a list that stand in the line of all else. Of a longer one each has a line.
const IN_LINE: usize = 3;

/// Counts, each behind its name.
struct List<'a>(&'a Counts);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items: Vec<_> = self.0.iter().map(|(name, count)| format!("{name} {count}")).collect();
        f.write_str(&items.join(", "))
    }
}

/// A time of day in UTC, from milliseconds since the beginning of 1970.
pub(super) struct TimeOfDay(pub(super) i64);

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.div_euclid(1000).rem_euclid(86_400);
        write!(f, "{:02}:{:02}:{:02}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames received, ops that were OK, delays of up to 4.096 µs and of all, drops.
    fn scrape(numbers: [u64; 5]) -> Scrape {
        let [frames, ok, quick, all, dropped] = numbers;
        let text = format!(
            "rma_ops_completed_total{{status=\"OK\"}} {ok}\nrma_ops_completed_total{{status=\"NACK\"}} 7\n\
             rma_frames_received_total {frames}\nrma_frames_dropped_total{{reason=\"WrongTag\"}} {dropped}\n\
             rma_issue_delay_seconds_bucket{{op=\"READ\",le=\"0.000004096\"}} {quick}\n\
             rma_issue_delay_seconds_bucket{{op=\"READ\",le=\"0.000016384\"}} {all}\n\
             rma_issue_delay_seconds_bucket{{op=\"READ\",le=\"+Inf\"}} {all}\n"
        );
        Scrape::read(&text).unwrap()
    }

    fn at(hour: i64) -> When {
        When { unix_ms: hour * 3_600_000 + 1000, passed: Duration::from_millis(1004) }
    }

    #[test]
    fn a_line_has_what_changed_and_of_failures_and_drops_those_that_there_were() {
        let before = scrape([1000, 500, 90, 100, 0]);
        let change = Change::between(&before, &scrape([1800, 900, 289, 301, 3]), at(12));
        let line = "12:00:01Z  1.0 s  completions OK 400  frames in 800 out 0  packets in 0 out 0  \
                    issue delay p50 ≤ 4.10 p99 ≤ 4.10 µs  dropped WrongTag 3";
        assert_eq!(change.to_string(), line);
        let json = serde_json::to_value(&change).unwrap();
        assert_eq!(json["completions"], serde_json::json!({ "OK": 400 }));
        assert_eq!(json["issue_delay_us"]["p99_at_most"], 4.096);
        assert_eq!(json["total_delay_us"]["p50_at_most"], serde_json::Value::Null);
    }

    #[test]
    fn of_a_long_list_each_count_has_a_line_below() {
        let same = scrape([1000, 500, 90, 100, 5]);
        let mut change = Change::between(&same, &same, at(23));
        change.dropped = ["A", "B", "C", "D"].map(|it| (it.to_owned(), 1)).into();
        assert_eq!(
            change.to_string(),
            "23:00:01Z  1.0 s  completions OK 0  frames in 0 out 0  packets in 0 out 0\n           \
             dropped A 1\n           dropped B 1\n           dropped C 1\n           dropped D 1"
        );
    }

    #[test]
    fn a_second_without_ops_is_a_line_of_zeros_without_delays() {
        let same = scrape([1000, 500, 90, 100, 5]);
        let line = Change::between(&same, &same, at(23)).to_string();
        assert_eq!(
            line,
            "23:00:01Z  1.0 s  completions OK 0  frames in 0 out 0  packets in 0 out 0"
        );
    }

    #[test]
    fn a_counter_that_goes_back_is_told_and_nothing_is_counted_from_before() {
        let before = scrape([1000, 500, 90, 100, 5]);
        let change = Change::between(&before, &scrape([1200, 20, 1, 2, 0]), at(0));
        assert!(change.restarted);
        assert_eq!((change.frames_in, change.completions["OK"]), (1200, 20));
        assert!(change.to_string().contains("RESTARTED, since then:  completions NACK 7, OK 20"));
    }

    #[test]
    fn quantiles_are_the_bounds_of_buckets_and_an_unbounded_one_has_none() {
        let of = |buckets: [(u64, u64); 3]| {
            let it = Quantiles::of(&buckets.into());
            [it.p50_at_most, it.p99_at_most]
        };
        assert_eq!(of([(128, 0), (256, 0), (u64::MAX, 0)]), [None, None]);
        assert_eq!(of([(128, 1), (256, 1), (u64::MAX, 1)]), [Some(0.128), Some(0.128)]);
        assert_eq!(of([(128, 50), (256, 98), (u64::MAX, 100)]), [Some(0.128), None]);
        assert_eq!(of([(128, 49), (256, 99), (u64::MAX, 100)]), [Some(0.256), Some(0.256)]);
    }
}
