//! The replica that fails (§7.1): ops that go to the other one slow down, and nobody goes without
//! service.

use core::time::Duration;
use std::collections::BTreeMap;

use rma_bench::drawing::{Mark, Picture};
use rma_core::{cc::CcConfigBuilder, executor::RetryPolicy};
use rma_sim::flows::{
    report::Ended,
    traffic::{Arrivals, Destination, Traffic},
    workload::{Death, Fabric, Front, Source, Workload, watch},
};

use super::simulated::{Axes, COMMON, OP, failed, one_panel};
use crate::paper::{
    claims::{Claim, most},
    figure::{About, Figure, FigureFailed, Kind},
    points::{Points, Value},
    run::Run,
};

/// The figure.
#[derive(Debug)]
pub(super) struct Replica;

const SEEDS: u64 = 20;
const CLIENTS: u16 = 8;
/// The servers: half of the clients read from each.
const SERVERS: [u16; 2] = [CLIENTS, CLIENTS + 1];
/// The load of each client, of a link: both servers are at 40 %, and the one that is left at 80 %.
const LOAD: f64 = 0.1;

const DEATH: u64 = 400;
const LENGTH: u64 = 1_000;
/// The time over which latencies are taken together, in microseconds.
const BIN: u64 = 10;

const LATENCY: &str = "mean latency at R1, us";
const SETTLED: &str = "until latency at R1 is what it stays";
const GAP: &str = "longest time between two OKs of a client";
const LOST: &str = "calls that ended otherwise than OK";

/// The results of a run.
#[derive(Clone, Debug, Default)]
struct Kept {
    /// By time since the beginning: sum of latencies at R1, in nanoseconds, and how many.
    bins: BTreeMap<u64, (u64, u64)>,
    /// By client: when the last call was OK.
    last: BTreeMap<u16, u64>,
    gap: u64,
    lost: u64,
}

impl Kept {
    fn take(&mut self, ended: &Ended) {
        let now = ended.at.as_nanos();
        if !ended.is_ok {
            self.lost += 1;
            return;
        }
        let last = self.last.insert(ended.host, now);
        self.gap = self.gap.max(last.map_or(0, |it| now - it));
        if ended.destination == SERVERS[1] {
            let (sum, count) = self.bins.entry(now / 1_000 / BIN).or_default();
            *sum += now - ended.offered.as_nanos();
            *count += 1;
        }
    }

    /// A client that had no OK until the end was without service for as long.
    fn ended(mut self) -> Self {
        let end = LENGTH * 1_000;
        self.gap =
            self.last.values().fold(self.gap, |gap, last| gap.max(end.saturating_sub(*last)));
        self.lost += u64::from(CLIENTS).saturating_sub(self.last.len() as u64);
        self
    }
}

fn workload(seed: u64) -> Workload {
    let hosts = u32::from(CLIENTS) + 2;
    let source = |host: u16| {
        let destination = Destination::Fixed(SERVERS[usize::from(host % 2)]);
        let arrivals = Arrivals::Static;
        let traffic = Traffic { hosts, load: LOAD, arrivals, destination, ..Traffic::reads(OP) };
        Source { host, traffic }
    };
    // A client that can turn to another replica does so at the first timeout.
    let retry = RetryPolicy::DEFAULT.with(|it| {
        it.timeouts = 0;
        it.outlast = Some(Duration::ZERO);
    });
    let front = Front::Executor { cc: CcConfigBuilder::default(), retry };
    let sources: Vec<Source> = (0..CLIENTS).map(source).collect();
    let death =
        Death { host: SERVERS[0], at: Duration::from_micros(DEATH), replica: Some(SERVERS[1]) };
    let length = Duration::from_micros(LENGTH);
    let of = Workload::of(&sources[0].traffic, front, Fabric::paper(96 << 10), length);
    Workload { seed, sources, death: Some(death), ..of }
}

/// Until when, from the death on, bins differ by more than a quarter from what the last third of
/// them is, in microseconds.
fn settled(latency: &[Value]) -> f64 {
    let after: Vec<&Value> = latency.iter().filter(|it| it.x >= DEATH as f64).collect();
    let late = &after[after.len() * 2 / 3..];
    let level = late.iter().map(|it| it.y).sum::<f64>() / late.len() as f64;
    let far = after.iter().rposition(|it| (it.y / level - 1.0).abs() > 0.25);
    far.map_or(0.0, |it| after[it].x + BIN as f64 - DEATH as f64)
}

impl Figure for Replica {
    fn about(&self) -> About {
        About {
            id: "1rma-7.1",
            title: "A replica fails, and the other one takes its clients",
            says: "Ops that R1 serves slow down as it absorbs the new traffic, and settle within 100 us; there is no \
                   period of unavailability.",
            kind: Kind::Simulation,
            seconds: 8,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let seeds: Vec<u64> = run.seeds(SEEDS).collect();
        let all = run.each(&seeds, |&seed| {
            let mut kept = Kept::default();
            let report = watch(&workload(seed), &mut |ended| kept.take(ended));
            report.map(|_| kept.ended())
        })?;
        let all: Vec<Kept> = all.into_iter().collect::<Result<_, _>>().map_err(failed)?;
        let mean = |bin: u64| {
            let bins = all.iter().filter_map(|it| it.bins.get(&bin));
            let (sum, count) = bins.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
            (count > 0).then(|| Value::new((bin * BIN) as f64, sum as f64 / count as f64 / 1e3))
        };
        let latency: Vec<Value> = (10..LENGTH / BIN).filter_map(mean).collect();
        let mut points = Points::new(
            &self.about(),
            format!(
                "8 clients read 4 KiB at a static rate of 10 Gbit/s each, 4 from each of two servers, of which one \
                 dies at {DEATH} us; Algorithm 1, window 96 KiB, {COMMON}; dispatch timeout 10 us, timeout 20 us; {} seeds",
                seeds.len()
            ),
        );
        points.number(SETTLED, settled(&latency), "us");
        points.push(LATENCY, latency);
        points.number(GAP, most(all.iter().map(|it| it.gap as f64 / 1e3)), "us");
        points.number(LOST, all.iter().map(|it| it.lost as f64).sum(), "");
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let of = |name| points.value(name).unwrap_or(f64::NAN);
        let settles = Claim::at_most(
            "1rma-7.1-settles",
            "ops at the other replica slow down, and settle within 100 us",
            "the time after which each 10 us of all seeds are within 25 % of the last third, us",
            of(SETTLED),
            100.0,
        );
        let mean = |from: f64, to: f64| {
            let values = points.of(LATENCY).iter().filter(|it| it.x >= from && it.x < to);
            let values: Vec<f64> = values.map(|it| it.y).collect();
            values.iter().sum::<f64>() / values.len() as f64
        };
        vec![
            settles.paper("< 100 us"),
            Claim::at_least(
                "1rma-7.1-slower",
                "ops at the other replica slow down as it absorbs the new traffic",
                "mean latency at R1 in the last third over that before the failure",
                mean(800.0, 1e9) / mean(0.0, DEATH as f64),
                1.0,
            )
            .shape(),
            Claim::at_most(
                "1rma-7.1-available",
                "there is no period of unavailability: a client waits for one timeout and one more RTT",
                "the longest time between two OKs of a client, all seeds, us",
                of(GAP),
                25.0,
            ),
            Claim::at_most("1rma-7.1-accounted", "no call is lost", LOST, of(LOST), 0.0),
        ]
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let mut picture = one_panel(self, points, Axes::linear("time, us", "latency, us"));
        picture.panels.iter_mut().for_each(|it| {
            it.marks.push(Mark::Place { x: DEATH as f64, name: "R0 fails".to_owned() });
            it.marks
                .push(Mark::Place { x: (DEATH + 100) as f64, name: "paper: settled".to_owned() });
        });
        Some(picture)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::simulated::tests::broken, *};

    #[test]
    fn each_claim_fails_of_the_least_value_that_makes_its_sentence_false() {
        let fails = |settled, gap, lost, later| {
            let mut points = Points::new(&Replica.about(), "");
            points.push(LATENCY, vec![Value::new(300.0, 5.0), Value::new(900.0, later)]);
            points.number(SETTLED, settled, "us");
            points.number(GAP, gap, "us");
            points.number(LOST, lost, "");
            broken(&Replica, &points)
        };
        assert!(fails(100.0, 25.0, 0.0, 5.0).is_empty());
        assert_eq!(fails(101.0, 25.0, 0.0, 5.0), ["settles"]);
        assert_eq!(fails(100.0, 25.1, 0.0, 5.0), ["available"]);
        assert_eq!(fails(100.0, 25.0, 1.0, 5.0), ["accounted"]);
        assert_eq!(fails(100.0, 25.0, 0.0, 4.99), ["slower"]);
    }

    #[test]
    fn latency_has_settled_after_the_last_time_it_was_elsewhere() {
        let value = |(at, y): (u64, f64)| Value::new((DEATH + at * BIN) as f64, y);
        let latency: Vec<Value> =
            (0..30).map(|at| value((at, if at == 4 { 8.0 } else { 5.0 }))).collect();
        assert!((settled(&latency) - 50.0).abs() < 1e-9);
        assert!(settled(&latency[5..]).abs() < 1e-9);
    }
}
