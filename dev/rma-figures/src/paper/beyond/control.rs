//! Congestion control of each kind in scenes that the paper has and some that it has not, and one
//! of an application's own.

use core::time::Duration;

use rma_bench::drawing::{Mark, Picture};
use rma_core::{
    cc::{Algorithm, CcConfigBuilder},
    op::OpStatus,
    time::Instant,
};
use rma_sim::{
    check::watch::Checks,
    flows::{
        Arrivals, Flow, FlowOptions, Log, RTT, Rates,
        plot::rows,
        rates::{Demand, rtts},
        run as simulate,
        scenes::{DEMAND, Scene},
    },
    net::model_aead::Seals,
};

use super::fast::Fast;
use crate::paper::{
    claims::{Claim, least, most},
    figure::{About, Figure, FigureFailed, Kind},
    one_rma::simulated::{Axes, one_panel},
    points::{Points, Table, Value},
    run::Run,
};

/// The figure.
#[derive(Debug)]
pub(super) struct Control;

const SEEDS: u64 = 3;

const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::Aimd,
    Algorithm::Swift,
    Algorithm::TotalDelayOnly,
    Algorithm::Fixed,
    Algorithm::Own(&Fast),
];

/// A scene of READs back to back, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Play {
    Ramp,
    Jitter,
    Join,
    Leave,
    TwoClients,
    Incast,
}

use Play::{Incast, Jitter, Join, Leave, Ramp, TwoClients};

const PLAYS: [Play; 6] = [Ramp, Jitter, Join, Leave, TwoClients, Incast];

/// Servers of the incast.
const MANY: u16 = 32;

/// How much longer a frame may take each way, in the scene of jitter.
const JITTER: Duration = Duration::from_micros(2);

/// The call of the transfer that leaves: 4 MiB on half of a link take 0.7 ms.
const LEAVES: u64 = 4 << 20;

/// The end of each run, where shares have to stay.
const END: Duration = Duration::from_micros(500);

impl Play {
    const fn called(self) -> &'static str {
        match self {
            Ramp => "ramp",
            Jitter => "ramp, up to 2 us of jitter each way",
            Join => "a second transfer joins",
            Leave => "one of two leaves",
            TwoClients => "a second client joins",
            Incast => "one reads from 32",
        }
    }

    /// Its place on the axis, from 1.
    fn place(self) -> f64 {
        let place = PLAYS.iter().position(|it| *it == self);
        place.map_or(0.0, |it| it as f64 + 1.0)
    }

    fn options(self, algorithm: Algorithm, seed: u64) -> FlowOptions {
        let scene = match self {
            Ramp | Jitter | Incast => Scene::Ramp,
            Join | Leave => Scene::Join,
            TwoClients => Scene::TwoClients,
        };
        let mut options = scene.options(seed);
        match self {
            Jitter => (options.rtt, options.jitter) = (RTT, JITTER),
            Leave => {
                let from = begin(&options.flows[0]);
                options.flows[1].len = LEAVES;
                options.flows[1].arrivals = Arrivals::Once { from };
            }
            Incast => {
                let of = |server| Flow { server, len: 1 << 20, ..options.flows[0] };
                options.flows = (1..=MANY).map(of).collect();
                options.nodes = MANY + 1;
                options.length = Duration::from_millis(3);
            }
            Ramp | Join | TwoClients => {}
        }
        let cc = CcConfigBuilder::default().with(|it| it.algorithm = algorithm);
        FlowOptions { cc, seals: Seals::Model, checks: Checks::Light, ..options }
    }

    /// The transfers that share the link at the end.
    fn stay(self, options: &FlowOptions) -> Vec<usize> {
        if self == Leave { vec![0] } else { (0..options.flows.len()).collect() }
    }

    /// Shares of many transfers show over longer times.
    fn demand(self) -> Demand {
        let window = if self == Incast { DEMAND.window * 16 } else { DEMAND.window };
        Demand { window, ..DEMAND }
    }
}

const fn begin(flow: &Flow) -> Duration {
    match flow.arrivals {
        Arrivals::BackToBack { from, .. } | Arrivals::Once { from } => from,
        Arrivals::Poisson { .. } => Duration::ZERO,
    }
}

/// The numbers of a run.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// How long it took to settle; as long as it was looked at, if it did not.
    settled: f64,
    jain: f64,
    /// Ops of a thousand that were not OK.
    failed: f64,
    /// The 99th percentile of the delay in the network and at the other NIC beyond an idle round
    /// trip, in microseconds.
    queue: f64,
    /// That of the wait in the host's own NIC.
    issue: f64,
}

fn outcome(play: Play, options: &FlowOptions) -> Outcome {
    let log = simulate(options);
    let flows = play.stay(options);
    let rates = Rates::new(&log, options.flows.len(), options.length);
    let since = match play {
        Leave => log.calls.iter().find(|it| it.flow == 1).map_or(rates.end(), |it| it.ended),
        _ => Instant::ZERO + options.flows.iter().map(begin).max().unwrap_or_default(),
    };
    let settled = rates.settled(&flows, since, &play.demand());
    let from = Instant::ZERO + (options.length - END);
    let shares: Vec<f64> = flows.iter().map(|&flow| rates.share(flow, from, rates.end())).collect();
    let bad = log.ops.iter().filter(|it| it.status != OpStatus::Ok).count();
    let queue = |it: Duration| it.saturating_sub(RTT);
    Outcome {
        settled: rtts(settled.unwrap_or_else(|| rates.end().since(since))),
        jain: jain(&shares),
        failed: bad as f64 * 1e3 / log.ops.len().max(1) as f64,
        queue: p99(&log, |total, issue| queue(total.saturating_sub(issue))),
        issue: p99(&log, |_, issue| issue),
    }
}

/// 1 if all are equal, and 1 over their number if one has all.
fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|it| it * it).sum();
    if squares > 0.0 { sum * sum / (squares * shares.len() as f64) } else { 0.0 }
}

/// The 99th percentile of what `of` makes of the delays, total and of issue, of ops that were OK,
/// in microseconds.
fn p99(log: &Log, of: impl Fn(Duration, Duration) -> Duration) -> f64 {
    let ok = log.ops.iter().filter(|it| it.status == OpStatus::Ok);
    let mut all: Vec<Duration> = ok.map(|it| of(it.total_delay, it.issue_delay)).collect();
    all.sort_unstable();
    all.get(all.len() * 99 / 100).map_or(0.0, |it| it.as_nanos() as f64 / 1e3)
}

/// A quantity of a run.
struct Quantity {
    name: &'static str,
    of: fn(&Outcome) -> f64,
}

const SETTLED: Quantity = Quantity { name: "settled, RTT", of: |it| it.settled };
const JAIN: Quantity = Quantity { name: "Jain's index", of: |it| it.jain };
const FAILED: Quantity = Quantity { name: "not OK of 1,000 ops", of: |it| it.failed };
const QUEUE: Quantity = Quantity { name: "queue p99, us", of: |it| it.queue };
const ISSUE: Quantity = Quantity { name: "issue delay p99, us", of: |it| it.issue };
const QUANTITIES: [Quantity; 5] = [SETTLED, JAIN, FAILED, QUEUE, ISSUE];

fn name(quantity: &Quantity, algorithm: Algorithm) -> String {
    format!("{}, {}", quantity.name, algorithm.name())
}

/// The table of all scenes: what claims are of, in the reader's order.
fn table(points: &Points, plays: &[Play]) -> Table {
    let heads = ["scene", "congestion control"].into_iter();
    let row = |play: Play, algorithm: Algorithm| {
        let cell = |it: &Quantity| {
            let value = points.at(&name(it, algorithm), play.place());
            value.map_or_else(String::new, |it| it.to_string())
        };
        let first = [play.called(), algorithm.name()].map(str::to_owned);
        first.into_iter().chain(QUANTITIES.iter().map(cell)).collect()
    };
    let rows = plays.iter().flat_map(|&play| ALGORITHMS.map(|it| row(play, it)));
    Table {
        title: "Scenes and congestion control, medians of seeds".to_owned(),
        heads: heads.chain(QUANTITIES.iter().map(|it| it.name)).map(str::to_owned).collect(),
        rows: rows.collect(),
    }
}

/// When the second transfer joins, and what is shown.
const JOINED: Duration = Duration::from_micros(400);
const SHOWN: [Duration; 2] = [Duration::from_micros(350), Duration::from_micros(900)];

/// The rate of the transfer that joins, over time.
fn joining(algorithm: Algorithm) -> Vec<Value> {
    let options = Join.options(algorithm, 1);
    let log = simulate(&options);
    let rows = rows(&options, &log, (SHOWN[0], SHOWN[1]), RTT * 4);
    let gbps = |it: &rma_sim::flows::plot::Row| it.gbps.get(1).copied().unwrap_or(0.0);
    rows.iter().map(|it| Value::new(it.at.as_nanos() as f64 / 1e3, gbps(it))).collect()
}

fn rate(algorithm: Algorithm) -> String {
    format!("second transfer, {}", algorithm.name())
}

impl Figure for Control {
    fn about(&self) -> About {
        About {
            id: "beyond-control",
            title: "Congestion control of five kinds, one of an application's own",
            says: "Algorithm 1 settles within some RTT of a transfer that joins, fairly and without failures; of 32 at once ops fail, \
                   fewer than without control. An application may bring another one.",
            kind: Kind::Simulation,
            seconds: 8,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let plays: &[Play] = run.pick(&PLAYS[..2], &PLAYS);
        let seeds: Vec<u64> = run.seeds(SEEDS).collect();
        let mut points = Points::new(
            &self.about(),
            format!(
                "READs of 4 MiB (of 1 MiB from 32 hosts) back to back, 100 Gbit/s, idle RTT 5 us with 0.2 us of jitter \
                 each way, MTU 9000, one switch, window 64 KiB, timeout 25 us; a model of AES-GCM, light checks; settled: 95 % of \
                 the link and shares within 20 % over 4 RTT (64 of 32 hosts), else as long as it was looked at; Jain's index of the last 500 us; {} seeds, the \
                 curves of seed 1 over 4 RTT",
                seeds.len()
            ),
        );
        let jobs: Vec<(Play, Algorithm, u64)> = ALGORITHMS
            .into_iter()
            .flat_map(|algorithm| plays.iter().map(move |&play| (play, algorithm)))
            .flat_map(|(play, algorithm)| seeds.iter().map(move |&seed| (play, algorithm, seed)))
            .collect();
        let all = run.each(&jobs, |&(play, algorithm, seed)| {
            outcome(play, &play.options(algorithm, seed))
        })?;
        let cases: Vec<&[Outcome]> = all.chunks(seeds.len().max(1)).collect();
        for (algorithm, cases) in ALGORITHMS.into_iter().zip(cases.chunks(plays.len())) {
            for quantity in &QUANTITIES {
                let of = |(play, it): (&Play, &&[Outcome])| {
                    Value::of(play.place(), &mut it.iter().map(quantity.of).collect::<Vec<_>>())
                };
                let values = plays.iter().zip(cases).map(of).collect();
                points.push(name(quantity, algorithm), values);
            }
        }
        points.tables.push(table(&points, plays));
        let drawn = run.pick(&ALGORITHMS[..1], &ALGORITHMS);
        let curves = run.each(drawn, |&algorithm| joining(algorithm))?;
        for (&algorithm, curve) in drawn.iter().zip(curves) {
            points.push(rate(algorithm), curve);
        }
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let of = |quantity, algorithm| points.of(&name(quantity, algorithm)).iter();
        let aimd = Algorithm::Aimd;
        let joined = |algorithm| points.at(&name(&SETTLED, algorithm), Join.place());
        let slower = joined(Algorithm::TotalDelayOnly).zip(joined(aimd));
        let mut claims = vec![
            Claim::at_least(
                "beyond-control-fair",
                "Algorithm 1 ends with fair shares in every scene",
                "the least Jain's index, median of seeds; bound set after the first run",
                least(of(&JAIN, aimd).map(|it| it.y)),
                0.95,
            ),
            Claim::at_most(
                "beyond-control-ok",
                "and no op fails on the way, unless 32 answer at once",
                "the most ops of 1,000 that are not OK, Algorithm 1, all scenes but that of 32, median of seeds; bound set after the first run",
                most(of(&FAILED, aimd).filter(|it| it.x < Incast.place()).map(|it| it.y)),
                0.0,
            ),
            Claim::at_least(
                "beyond-control-own",
                "one of an application's own works as well: fair shares in every scene",
                "the least Jain's index, FAST, median of seeds; bound set after the first run",
                least(of(&JAIN, Algorithm::Own(&Fast)).map(|it| it.y)),
                0.9,
            ),
        ];
        if let Some((slower, own)) = slower {
            claims.push(
                Claim::at_least(
                    "beyond-control-split",
                    "where the local NIC is congested, looking at the total delay alone settles later",
                    "settling of total delay only over that of Algorithm 1, a second transfer joins",
                    slower / own,
                    1.0,
                )
                .shape(),
            );
        }
        let crowded = |algorithm| points.at(&name(&FAILED, algorithm), Incast.place());
        if let Some((own, without)) = crowded(aimd).zip(crowded(Algorithm::Fixed)) {
            claims.push(
                Claim::at_most(
                    "beyond-control-incast",
                    "of 32 at once, it fails fewer ops than fixed windows do",
                    "ops of 1,000 that are not OK, Algorithm 1 over fixed, one reads from 32",
                    own / without,
                    0.5,
                )
                .shape(),
            );
        }
        claims
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let mut only = points.clone();
        let names = ALGORITHMS.map(rate);
        only.series.retain(|it| names.contains(&it.name));
        for series in &mut only.series {
            series.name = series.name.rsplit(", ").next().unwrap_or_default().to_owned();
        }
        let axes = Axes::linear("time, us", "Gbit/s of the transfer that joins");
        let mut picture = one_panel(self, &only, axes);
        picture.panels.iter_mut().for_each(|it| {
            let x = JOINED.as_micros() as f64;
            it.marks.push(Mark::Place { x, name: "it begins".to_owned() });
            it.marks.push(Mark::Level { y: 50.0, name: "half of the link".to_owned() });
        });
        Some(picture)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::one_rma::simulated::tests::{broken, points, with};

    #[test]
    fn each_claim_fails_of_the_least_value_that_makes_its_sentence_false() {
        let [jain, failed, settled] =
            [&JAIN, &FAILED, &SETTLED].map(|it| name(it, Algorithm::Aimd));
        let own = name(&JAIN, Algorithm::Own(&Fast));
        let total = name(&SETTLED, Algorithm::TotalDelayOnly);
        let fixed = name(&FAILED, Algorithm::Fixed);
        let good = points(
            &Control,
            &[
                (&jain, &[[1.0, 1.0], [6.0, 0.96]]),
                (&failed, &[[1.0, 0.0], [6.0, 80.0]]),
                (&settled, &[[1.0, 4.8], [3.0, 4.6]]),
                (&own, &[[1.0, 1.0], [6.0, 0.92]]),
                (&total, &[[1.0, 4.8], [3.0, 500.0]]),
                (&fixed, &[[1.0, 0.0], [6.0, 850.0]]),
            ],
        );
        assert!(broken(&Control, &good).is_empty());
        let fails = |name: &str, x, y| broken(&Control, &with(&good, name, x, y));
        assert_eq!(fails(&jain, 6.0, 0.949), ["fair"]);
        assert_eq!(fails(&failed, 1.0, 0.1), ["ok"]);
        assert_eq!(fails(&own, 6.0, 0.899), ["own"]);
        assert_eq!(fails(&total, 3.0, 4.5), ["split"]);
        assert_eq!(fails(&failed, 6.0, 426.0), ["incast"]);
        assert!((jain_of([1.0, 0.0]) - 0.5).abs() < 1e-12 && jain_of([0.0, 0.0]) < 1e-12);
    }

    fn jain_of(shares: [f64; 2]) -> f64 {
        jain(&shares)
    }
}
