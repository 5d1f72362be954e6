//! Figure 4: requests through send/recv whose server copies them into a log, or answers them where
//! they lie.

use std::fs;

use rma_bench::drawing::Picture;

use super::stand::{self, ALL, LONGEST, SIZES, SLOTS, Stand, over, panel};
use crate::{
    channels::log::Logged,
    paper::{
        claims::{Claim, least},
        figure::{About, Figure, FigureFailed, Kind},
        points::Points,
        run::Run,
    },
};

/// Requests of a round, as many under way as there may be: for nothing, and counted.
const COUNTS: (u64, u64) = (2_000, 20_000);
/// The same of what is one at a time.
const ALONE: (u64, u64) = (100, 1_000);

/// Both ways, and whether the server copies.
const WAYS: [(&str, bool); 2] = [("answered where they lie", false), ("copied into a log", true)];
/// The end of the names of latencies.
const LATENCY: &str = ", latency";
/// The name of the difference that the paper has a number of.
const MORE: &str = "requests a second more without a copy, mean of all sizes (paper: 0.2 M)";

/// Send/recv, normal.
#[derive(Debug)]
pub(super) struct Copies;

/// Bytes of the log: a quarter of the memory that is free, and more than a cache holds.
fn log_len() -> usize {
    let told = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = told.lines().find_map(|it| it.strip_prefix("MemAvailable:")).unwrap_or_default();
    let kib: usize = free.trim().trim_end_matches(" kB").parse().unwrap_or_default();
    (kib * 1024 / 4).max(256 << 20)
}

fn latency(name: &str) -> String {
    format!("{name}{LATENCY}")
}

/// The width of a series' intervals with a copy, over that without: the least of all sizes.
fn wider(points: &Points) -> f64 {
    let width = |name: &str| {
        let values = points.of(&latency(name)).iter();
        values.map(|it| it.interval.map_or(f64::NAN, |[low, high]| high - low)).collect::<Vec<_>>()
    };
    let [without, with] = WAYS.map(|(name, _)| width(name));
    least(with.iter().zip(&without).map(|(of, to)| of / to))
}

impl Figure for Copies {
    fn about(&self) -> About {
        About {
            id: "channels-4",
            title: "Requests through send/recv, with a copy and without",
            says: "a copy makes requests slower, with more deviation, and fewer by 0.2 M a second, more so for large ones",
            kind: Kind::Veth,
            seconds: 60,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let log = log_len();
        let how = format!(
            "a log of {:.1} GiB, a quarter of the memory that is free (the paper's has 8); latencies one at a time, 5 % to 95 %",
            log as f64 / f64::from(1 << 30)
        );
        let mut stand = Stand::new(&self.about(), run, &how)?;
        let interrupt = run.interrupt;
        let mut all = WAYS.map(|_| [const { Vec::new() }; 2]);
        for size in SIZES {
            let rounds = stand.rounds(
                |pair| Logged::open(pair, size, SLOTS, log),
                |requests, pair| {
                    let mut rate = |keeps| requests.rate(pair, keeps, COUNTS, interrupt);
                    let rates = [rate(false)?, rate(true)?];
                    let mut alone = |keeps| requests.latency(pair, keeps, ALONE, interrupt);
                    Ok((rates, [alone(false)?, alone(true)?]))
                },
            )?;
            for (way, [rates, latencies]) in all.iter_mut().enumerate() {
                rates.extend(stand::rate(size, rounds.iter().map(|it| it.0[way]).collect()));
                let of_way: Vec<_> = rounds.iter().map(|it| it.1[way].clone()).collect();
                latencies.extend(stand::median(size, &of_way));
            }
        }
        for ((name, _), [rates, latencies]) in WAYS.into_iter().zip(all) {
            stand.points.push(name, rates);
            stand.points.push(latency(name), latencies);
        }
        let rates = WAYS.map(|(name, _)| stand.points.of(name));
        let more = rates[0].iter().zip(rates[1]).map(|(of, to)| of.y - to.y).sum::<f64>();
        let sizes = rates[0].len().max(1);
        stand.points.number(MORE, more / sizes as f64, "requests/s");
        Ok(stand.finish())
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let [(without, _), (with, _)] = WAYS;
        if !stand::has_verdict(points) {
            return Vec::new();
        }
        let rates = over(points, without, with, ALL);
        let latencies = over(points, &latency(with), &latency(without), ALL);
        let at_least = |id: &str, says: &str, formula: &str, value: f64| {
            Claim::at_least(&format!("channels-4-{id}"), says, formula, value, 1.0).shape()
        };
        let large = over(points, without, with, [LONGEST, LONGEST]);
        let growth = least(large) / rates.first().copied().unwrap_or(f64::NAN);
        vec![
            at_least(
                "rate",
                "a server that need not copy serves more requests, of every size",
                "least of requests/s without / with a copy",
                least(rates),
            ),
            at_least(
                "latency",
                "a request takes longer where it is copied, of every size",
                "least of p50 with / without a copy",
                least(latencies),
            ),
            at_least(
                "large",
                "the difference is more pronounced for large messages",
                "(requests/s without / with a copy) of the largest size over that of the smallest",
                growth,
            ),
            at_least(
                "deviation",
                "latencies deviate more where requests are copied, of every size",
                "least of (p95 - p5) with / without a copy",
                wider(points),
            ),
        ]
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let rates = WAYS.map(|(name, _)| name.to_owned());
        let latencies = WAYS.map(|(name, _)| latency(name));
        Some(Picture {
            title: self.about().title.to_owned(),
            conditions: points.conditions.clone(),
            panels: vec![
                panel(points, "Latency", "a request and its answer, us", &latencies, LATENCY),
                panel(points, "Throughput", "requests a second", &rates, ""),
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::stand::tests::points, *};

    #[test]
    fn each_claim_fails_of_one_size() {
        let failing = |rates: [f64; 2], latencies: [f64; 2], width: f64| {
            let [without, with] = WAYS.map(|(name, _)| latency(name));
            let mut points = points(
                &Copies.about(),
                &[16, LONGEST],
                &[
                    (WAYS[0].0, &[4.0, 4.0]),
                    (WAYS[1].0, &rates),
                    (&without, &[9.0, 9.0]),
                    (&with, &latencies),
                ],
            );
            for (series, width) in points.series[2..].iter_mut().zip([1.0, width]) {
                series.values =
                    series.values.iter().map(|it| it.within(1.0, 1.0 + width)).collect();
            }
            let failing = Copies.claims(&points).into_iter().filter(|it| !it.holds);
            failing.map(|it| it.id).collect::<Vec<_>>()
        };
        assert!(failing([4.0, 3.9], [9.0, 9.0], 1.0).is_empty());
        assert_eq!(failing([4.01, 3.9], [9.0, 9.0], 1.0), ["channels-4-rate"]);
        assert_eq!(failing([3.9, 3.95], [9.0, 9.0], 1.0), ["channels-4-large"]);
        assert_eq!(failing([4.0, 3.9], [9.0, 8.9], 1.0), ["channels-4-latency"]);
        assert_eq!(failing([4.0, 3.9], [9.0, 9.0], 0.9), ["channels-4-deviation"]);
    }
}
