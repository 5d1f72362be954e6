//! Figure 16d: goodput and latency by the depth of the queue above which a server refuses (§7.5).

use rma_bench::drawing::{Mark, Picture};
use rma_sim::flows::{report::Report, workload::Nack};

use super::{
    nacks::{Case, conditions, run_cases},
    simulated::{Axes, OP, panel, value},
};
use crate::paper::{
    claims::{Claim, least, most},
    drawn::picture,
    figure::{About, Figure, FigureFailed, Kind},
    points::{Points, Value},
    run::Run,
};

/// The figure.
#[derive(Debug)]
pub(super) struct Threshold;

/// The window for which claims are, and those beside it, in KiB.
const WINDOW: u32 = 128;
const BESIDE: [u32; 2] = [64, 96];

/// The paper's threshold, (timeout − RTT − dispatch timeout) × bandwidth, in KB.
const PAPER: f64 = 62.5;

const GOODPUT: &str = "goodput";
const RETRIES: &str = "retries an op";
const MEDIAN: &str = "median latency, us";
const MEAN: &str = "mean latency, us";
const P99: &str = "p99 latency, us";

fn name(what: &str, window: u32) -> String {
    if window == WINDOW { what.to_owned() } else { format!("{what}, window {window} KiB") }
}

/// Delays of no op at all cannot be stored.
fn latencies(thresholds: &[f64], all: &[Vec<Report>], of: impl Fn(&Report) -> f64) -> Vec<Value> {
    let has_ops = |reports: &&Vec<Report>| reports.iter().all(|it| of(it).is_finite());
    let there = thresholds.iter().zip(all).filter(|(_, it)| has_ops(it));
    there.map(|(&x, it)| value(x, it, &of)).collect()
}

impl Figure for Threshold {
    fn about(&self) -> About {
        About {
            id: "1rma-16d",
            title: "Goodput and latency by the NACK threshold",
            says: "Above some threshold goodput collapses; below, more ops are retried and the median is higher, \
                   but no goodput is lost.",
            kind: Kind::Simulation,
            seconds: 20,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let thresholds: &[f64] = run.pick(
            &[16.0, PAPER, 250.0],
            &[8.0, 16.0, 32.0, 48.0, PAPER, 96.0, 128.0, 160.0, 192.0, 224.0, 250.0, 300.0],
        );
        let mut points = Points::new(&self.about(), conditions(run));
        let windows = run.pick(&[WINDOW], &[WINDOW, BESIDE[0], BESIDE[1]]);
        for &window in windows {
            let case = |&kb: &f64| Case { window, nack: Nack::Above((kb * 1e3) as u64) };
            let all = run_cases(run, &thresholds.iter().map(case).collect::<Vec<_>>())?;
            let part = |of: fn(&Report) -> f64| {
                thresholds.iter().zip(&all).map(|(&x, it)| value(x, it, of)).collect()
            };
            points.push(name(GOODPUT, window), part(Report::goodput));
            let retries = |it: &Report| {
                let calls = it.calls();
                calls.retried as f64 / (calls.ok + calls.failed).max(1) as f64
            };
            points.push(name(RETRIES, window), part(retries));
            let delays = |it: &Report| it.latencies_of(OP).cloned().unwrap_or_default();
            let median = |it: &Report| delays(it).quantile(0.5);
            points.push(name(MEDIAN, window), latencies(thresholds, &all, median));
            let mean = |it: &Report| delays(it).mean();
            points.push(name(MEAN, window), latencies(thresholds, &all, mean));
            let p99 = |it: &Report| delays(it).quantile(0.99);
            points.push(name(P99, window), latencies(thresholds, &all, p99));
        }
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let goodput = || points.of(GOODPUT).iter();
        // Where something comes back at all.
        let steps = |name: &str| {
            let values: Vec<f64> = points.of(name).iter().map(|it| it.y).collect();
            values.windows(2).map(|it| it[1] - it[0]).collect::<Vec<_>>()
        };
        let ends = |name: &str| {
            let values = points.of(name);
            let median = |it: Option<&Value>| it.map_or(f64::NAN, |it| it.y);
            median(values.first()) / median(values.last())
        };
        vec![
            Claim::at_least(
                "1rma-16d-below",
                "up to the paper's threshold no goodput is lost",
                "the least goodput up to 62.5 KB",
                least(goodput().filter(|it| it.x <= PAPER).map(|it| it.y)),
                0.95,
            ),
            Claim::at_most(
                "1rma-16d-collapse",
                "above some threshold goodput collapses",
                "the greatest goodput from 250 KB, four times the paper's",
                most(goodput().filter(|it| it.x >= 4.0 * PAPER).map(|it| it.y)),
                0.5,
            ),
            Claim::at_most(
                "1rma-16d-retries",
                "the lower the threshold, the more ops are retried",
                "the greatest rise of retries an op from one threshold to the next",
                most(steps(RETRIES)),
                0.02,
            )
            .shape(),
            Claim::at_least(
                "1rma-16d-median",
                "the lower the threshold, the higher the median",
                "median at the lowest threshold over that at the highest with goodput",
                ends(MEDIAN),
                1.0,
            ),
        ]
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let thresholds = "NACK threshold, KB";
        let all = |what: &str| [WINDOW, BESIDE[0], BESIDE[1]].map(|it| name(what, it));
        let drawn = |title: &str, unit, names: Vec<String>| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let mut panel = panel(points, title, Axes::linear(thresholds, unit), &names);
            let name = "the paper's: 62.5 KB".to_owned();
            panel.marks.push(Mark::Place { x: PAPER, name });
            panel
        };
        let latencies = [MEDIAN, MEAN, P99].map(|it| name(it, WINDOW)).to_vec();
        let panels = vec![
            drawn("Goodput", "over the server's link", all(GOODPUT).to_vec()),
            drawn("Latency, window 128 KiB", "us", latencies),
        ];
        Some(picture(self, points, panels))
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::simulated::tests::{broken, points, with},
        *,
    };

    #[test]
    fn each_claim_fails_of_the_least_value_that_makes_its_sentence_false() {
        let good = points(
            &Threshold,
            &[
                (GOODPUT, &[[16.0, 0.96], [62.5, 0.96], [128.0, 0.7], [250.0, 0.5]]),
                (RETRIES, &[[16.0, 0.5], [62.5, 0.5], [128.0, 0.3], [250.0, 0.0]]),
                (MEDIAN, &[[16.0, 20.0], [62.5, 19.0], [128.0, 20.0]]),
            ],
        );
        assert!(broken(&Threshold, &good).is_empty());
        let fails = |name, x, y| broken(&Threshold, &with(&good, name, x, y));
        assert_eq!(fails(GOODPUT, 62.5, 0.949), ["below"]);
        assert_eq!(fails(GOODPUT, 250.0, 0.501), ["collapse"]);
        assert_eq!(fails(RETRIES, 250.0, 0.321), ["retries"]);
        assert_eq!(fails(MEDIAN, 128.0, 20.01), ["median"]);
    }
}
