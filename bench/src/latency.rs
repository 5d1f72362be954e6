//! Distributions of latency: recording, a table for people, fields for machines.

use core::time::Duration;
use std::fmt;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Latencies of one kind of exchange.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

/// The longest latency that is told apart; longer ones count as this.
const LONGEST: Duration = Duration::from_secs(60);

impl Latencies {
    /// None yet. Resolution: three significant digits.
    ///
    /// # Panics
    /// Never: the bounds are constants that the histogram accepts.
    #[must_use]
    pub fn new() -> Self {
        let most = LONGEST.as_nanos() as u64;
        Self(Histogram::new_with_bounds(1, most, 3).expect("constants that are valid"))
    }

    /// Records one.
    pub fn record(&mut self, latency: Duration) {
        self.record_nanos(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Records one, in nanoseconds.
    pub fn record_nanos(&mut self, latency: u64) {
        self.0.saturating_record(latency);
    }

    /// Adds nanoseconds recorded elsewhere.
    ///
    /// # Panics
    /// If `other` holds values longer than a minute.
    pub fn add(&mut self, other: &Histogram<u64>) {
        self.0.add(other).expect("no exchange takes a minute");
    }

    /// Adds what another recorded.
    ///
    /// # Panics
    /// Never: all have the same bounds.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("the same bounds");
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// Those that are not among `others`, which were all recorded here as well.
    ///
    /// # Panics
    /// If one was not.
    #[must_use]
    pub fn without(&self, others: &Self) -> Self {
        let mut rest = self.clone();
        rest.0.subtract(&others.0).expect("a part of these");
        rest
    }

    /// All of them, in nanoseconds.
    pub(crate) const fn histogram(&self) -> &Histogram<u64> {
        &self.0
    }

    /// How many were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency, in microseconds, that a share `quantile` of all stays within.
    #[must_use]
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e3
    }

    /// [`Latencies::quantile_us`], if at least ten of them are beyond: of fewer it says nothing.
    #[must_use]
    pub fn percentile_us(&self, quantile: f64) -> Option<f64> {
        let beyond = self.count() as f64 * (1.0 - quantile);
        // A thousandth is not quite one in binary.
        (beyond + 1e-6 >= 10.0).then(|| self.quantile_us(quantile))
    }

    /// The shortest, the mean and the standard deviation, in microseconds.
    #[must_use]
    pub fn min_mean_stdev_us(&self) -> [f64; 3] {
        [self.0.min() as f64, self.0.mean(), self.0.stdev()].map(|nanos| nanos / 1e3)
    }

    /// Returns the share that took from `low` to below `high` microseconds.
    #[must_use]
    pub fn share_between_us(&self, low: f64, high: f64) -> f64 {
        let nanos = |micros: f64| (micros * 1e3) as u64;
        let count = self.0.count_between(nanos(low), nanos(high).saturating_sub(1));
        count as f64 / self.count().max(1) as f64
    }

    /// The longest, in microseconds.
    #[must_use]
    pub fn max_us(&self) -> f64 {
        self.0.max() as f64 / 1e3
    }

    /// Returns the summary that most callers want.
    #[must_use]
    pub fn summary(&self, name: &str) -> Summary {
        Summary {
            name: name.to_owned(),
            count: self.count(),
            p50_us: self.quantile_us(0.5),
            p90_us: self.quantile_us(0.9),
            p99_us: self.quantile_us(0.99),
            p99_9_us: self.quantile_us(0.999),
            max_us: self.max_us(),
        }
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

/// One row of a table of latencies, in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Of what.
    pub name: String,
    /// How many ops were measured.
    pub count: u64,
    /// Half stay within it.
    pub p50_us: f64,
    /// 90 % stay within it.
    pub p90_us: f64,
    /// 99 % stay within it.
    pub p99_us: f64,
    /// 99.9 % stay within it.
    pub p99_9_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// A table of latencies for people.
#[derive(Debug)]
pub struct Table<'a>(pub &'a [Summary]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = "latency in µs";
        let names = self.0.iter().map(|row| row.name.as_str()).chain([title]);
        let width = names.map(|name| name.chars().count()).max().unwrap_or(0);
        writeln!(
            f,
            "  {:width$}  {:>9}  {:>8}  {:>8}  {:>8}  {:>8}  {:>9}",
            title, "count", "p50", "p90", "p99", "p99.9", "max"
        )?;
        for row in self.0 {
            let Summary { name, count, p50_us, p90_us, p99_us, p99_9_us, max_us } = row;
            writeln!(
                f,
                "  {name:width$}  {count:>9}  {p50_us:>8.2}  {p90_us:>8.2}  {p99_us:>8.2}  \
                 {p99_9_us:>8.2}  {max_us:>9.2}"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_told_only_with_ten_samples_beyond() {
        let mut latencies = Latencies::new();
        (1..1000).for_each(|micros| latencies.record(Duration::from_micros(micros)));
        assert_eq!(latencies.percentile_us(0.99), None);
        latencies.record(Duration::from_micros(1000));
        assert!(
            latencies.percentile_us(0.99).is_some() && latencies.percentile_us(0.999).is_none()
        );
    }

    #[test]
    fn a_table_shows_what_was_recorded() {
        let mut latencies = Latencies::new();
        for micros in 1..=1000 {
            latencies.record(Duration::from_micros(micros));
        }
        let summary = latencies.summary("READ 64 B");
        assert_eq!(summary.count, 1000);
        assert!((summary.p50_us - 500.0).abs() < 1.0, "{summary:?}");
        assert!((summary.p99_us - 990.0).abs() < 1.0, "{summary:?}");
        let table = Table(&[summary]).to_string();
        assert!(table.contains("READ 64 B") && table.contains("1000"), "{table}");
    }
}
