//! The cost of lost frames: goodput and latency of reads, and those of a NIC with connections
//! beside.

use core::time::Duration;

use rma_bench::drawing::{Axis, Mark, Picture, Scale as Places};
use rma_core::{
    cc::{Algorithm, CcConfigBuilder},
    executor::RetryPolicy,
};
use rma_sim::{
    baselines::{
        Constants, RdmaOptions, Service, System,
        figures::{Point, Setting, under_loss},
    },
    flows::{
        RATE,
        report::Report,
        traffic::{Destination, Traffic},
        workload::{Fabric, Front, Source, Workload},
    },
    net::link::Faults,
    prng::Chance,
};

use crate::paper::{
    claims::{Claim, least, most},
    drawn::picture,
    figure::{About, Figure, FigureFailed, Kind},
    one_rma::simulated::{Axes, COMMON, OP, both, panel, reports, value},
    points::{Points, Value},
    run::Run,
};

/// The figure.
#[derive(Debug)]
pub(super) struct Loss;

const SEEDS: u64 = 3;

/// Of a million frames.
const LOSSES: [u32; 6] = [0, 100, 1_000, 10_000, 20_000, 50_000];

/// The window, in KiB.
const WINDOW: u32 = 96;

/// The load where goodput is measured, and where latency is.
const ALL: f64 = 1.2;
const SOME: f64 = 0.2;

/// Reads of one length.
#[derive(Clone, Copy, Debug)]
struct Size {
    name: &'static str,
    len: u64,
    /// The load where goodput is measured.
    all: Asked,
    /// The load where latency is measured.
    some: Asked,
}

/// So many reads of each seed.
#[derive(Clone, Copy, Debug)]
struct Asked {
    load: f64,
    ops: u32,
}

const SIZES: [Size; 2] = [
    Size {
        name: "4 KiB",
        len: OP,
        all: Asked { load: ALL, ops: 10_000 },
        some: Asked { load: SOME, ops: 10_000 },
    },
    Size {
        name: "4 MiB",
        len: 4 << 20,
        all: Asked { load: ALL, ops: 50 },
        some: Asked { load: SOME, ops: 200 },
    },
];

const OURS: &str = "1RMA, windows fixed";
const AIMD: &str = "1RMA, Algorithm 1";
const THEIRS: &str = "connection RDMA";
const ALL_OF_THEM: [&str; 3] = [AIMD, OURS, THEIRS];

/// Timeouts of an op after which its call fails: as good as none, as a connection has none.
const TIMEOUTS: u8 = 100;
const GOODPUT: &str = "goodput";
const P99: &str = "p99";
const FAILED: &str = "calls that fail";
const LATE: &str = "not over at the end";

fn name(what: &str, size: &Size, whose: &str) -> String {
    format!("{what}, {}, {whose}", size.name)
}

fn percent(ppm: u32) -> f64 {
    f64::from(ppm) / 1e4
}

fn traffic(size: &Size, load: f64) -> Traffic {
    Traffic { load, destination: Destination::Fixed(1), ..Traffic::reads(size.len) }
}

fn workload(size: &Size, ppm: u32, Asked { load, ops }: Asked, of: Algorithm) -> Workload {
    let traffic = traffic(size, load);
    let bytes = traffic.framing.wire_bytes(size.len) as f64 * f64::from(ops);
    let length = Duration::from_secs_f64(bytes / (RATE as f64 * load));
    let cc = CcConfigBuilder::default().with(|it| it.algorithm = of);
    let mut retry = RetryPolicy::DEFAULT;
    retry.timeouts = TIMEOUTS;
    let front = Front::Executor { cc, retry };
    let faults = Faults { loss: Chance::ppm(ppm), ..Faults::default() };
    let fabric = Fabric { faults, ..Fabric::paper(WINDOW << 10) };
    let workload = Workload::of(&traffic, front, fabric, length);
    Workload { sources: vec![Source { host: 0, traffic }], ..workload }
}

/// Runs of connections, by seed.
fn connections(
    run: &Run<'_>,
    size: &Size,
    losses: &[u32],
    Asked { load, ops }: Asked,
) -> Result<Vec<Vec<Point>>, FigureFailed> {
    let seeds: Vec<u64> = run.seeds(SEEDS).collect();
    let jobs: Vec<_> =
        losses.iter().flat_map(|&loss| seeds.iter().map(move |&seed| (loss, seed))).collect();
    let points = run.each(&jobs, |&(loss, seed)| {
        let system = System::Rdma(RdmaOptions::lossless(Service::PacketByPacket));
        let setting = Setting { system, constants: Constants::default(), seed, measured: ops };
        under_loss(&setting, Chance::ppm(loss), size.len, load)
    })?;
    let points: Result<Vec<Point>, _> = points.into_iter().collect();
    let points = points.map_err(|error| FigureFailed::Settings(error.to_string()))?;
    Ok(points.chunks(seeds.len().max(1)).map(<[Point]>::to_vec).collect())
}

/// Adds all of one size.
fn push(
    points: &mut Points,
    run: &Run<'_>,
    size: &Size,
    losses: &[u32],
) -> Result<(), FigureFailed> {
    let part = |all: &[Vec<Report>], of: &dyn Fn(&Report) -> f64| -> Vec<Value> {
        losses.iter().zip(all).map(|(&x, it)| value(percent(x), it, of)).collect()
    };
    for (whose, cc) in [(AIMD, Algorithm::Aimd), (OURS, Algorithm::Fixed)] {
        let all = reports(run, losses, SEEDS, |&ppm| workload(size, ppm, size.all, cc))?;
        points.push(name(GOODPUT, size, whose), part(&all, &Report::payload));
        let failed = part(&all, &|it| it.calls().failed as f64);
        points.push(name(FAILED, size, whose), failed);
        let all = reports(run, losses, SEEDS, |&ppm| workload(size, ppm, size.some, cc))?;
        let p99 = |it: &Report| it.latencies_of(size.len).map_or(f64::NAN, |it| it.quantile(0.99));
        points.push(name(P99, size, whose), part(&all, &p99));
        let late = |it: &Report| {
            let calls = it.calls();
            (calls.waiting + calls.under_way + calls.shed) as f64 / calls.offered as f64
        };
        points.push(name(LATE, size, whose), part(&all, &late));
    }
    let theirs = |asked, of: &dyn Fn(&Point) -> f64| -> Result<Vec<Value>, FigureFailed> {
        let all = connections(run, size, losses, asked)?;
        let of = |all: &[Point]| all.iter().map(of).collect::<Vec<_>>();
        let all = losses.iter().zip(&all);
        Ok(all.map(|(&x, it)| Value::of(percent(x), &mut of(it))).collect())
    };
    let goodput = theirs(size.all, &|it| it.outcome.goodput(RATE, 1))?;
    points.push(name(GOODPUT, size, THEIRS), goodput);
    let p99 = theirs(size.some, &|it| it.latencies().at(0.99).as_secs_f64() * 1e6)?;
    points.push(name(P99, size, THEIRS), p99);
    Ok(())
}

impl Figure for Loss {
    fn about(&self) -> About {
        About {
            id: "beyond-loss",
            title: "Goodput and latency of reads by loss",
            says: "Each op is tried again alone, so a lost frame costs that op only, where a connection goes back to it; but Algorithm 1 \
                   takes it for congestion.",
            kind: Kind::Simulation,
            seconds: 25,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let losses: &[u32] = run.pick(&[LOSSES[0], LOSSES[3]], &LOSSES);
        let mut points = Points::new(
            &self.about(),
            format!(
                "READs by chance of one host from another, through an executor with Algorithm 1 or windows of 16 ops, window {WINDOW} KiB, \
                 timeout 20 us, {COMMON}; each frame is lost by the same chance; goodput where {ALL} of the link is asked for, \
                 p99 where {SOME} is; a model of connections, 16 reads outstanding, go-back-N after 20 us; {} seeds",
                run.seeds(SEEDS).count()
            ),
        );
        for size in run.pick(&SIZES[..1], &SIZES) {
            push(&mut points, run, size, losses)?;
        }
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let small = &SIZES[0];
        let over = |what, whose: [&'static str; 2], size: &Size, from: f64| {
            let names = whose.map(|it| name(what, size, it));
            let all = both(points, (&names[0], &names[1])).filter(|it| it[0] >= from);
            all.map(|[_, one, other]| one / other).collect::<Vec<_>>()
        };
        let sizes = || SIZES.iter().filter(|it| !points.of(&name(P99, it, OURS)).is_empty());
        let failed = |whose: &'static str, to: f64| {
            let all = sizes().flat_map(move |it| points.of(&name(FAILED, it, whose)));
            all.filter(move |it| it.x <= to).map(Value::most)
        };
        let p99 = |x| points.at(&name(P99, small, OURS), x).unwrap_or(f64::NAN);
        let rare = points.of(&name(P99, small, OURS)).iter().filter(|it| it.x <= RARE);
        vec![
            Claim::at_most(
                "beyond-loss-ok",
                "with fixed windows no call fails, up to 5 %",
                "calls that fail, all seeds, both sizes",
                most(failed(OURS, 5.0)),
                0.0,
            ),
            Claim::at_most(
                "beyond-loss-rare",
                "where less than one op in a hundred is hit, the 99th percentile of small reads stays, if windows do",
                "the greatest p99 up to 0.1 % over that without loss, 4 KiB, windows fixed",
                most(rare.map(|it| it.y / p99(0.0))),
                1.1,
            ),
            Claim::at_least(
                "beyond-loss-goodput",
                "with fixed windows goodput is no less than that of a connection",
                "the least goodput over the connection's, from 0.01 %, both sizes",
                least(sizes().flat_map(|it| over(GOODPUT, [OURS, THEIRS], it, 0.01))),
                1.0,
            )
            .shape(),
            Claim::at_least(
                "beyond-loss-p99",
                "at 5 % the 99th percentile is half of it at most; below, a gap tells a connection of a loss before the timeout",
                "the least p99 of the connection over ours with fixed windows, at 5 %, both sizes; scope and bound set after the first run",
                least(sizes().flat_map(|it| over(P99, [THEIRS, OURS], it, 5.0))),
                2.0,
            )
            .shape(),
            Claim::at_most(
                "beyond-loss-congestion",
                "Algorithm 1 takes loss for congestion: from 1 % on most of the goodput is gone",
                "the greatest goodput by Algorithm 1 over that of fixed windows, both sizes",
                most(sizes().flat_map(|it| over(GOODPUT, [AIMD, OURS], it, 1.0))),
                0.5,
            )
            .shape(),
        ]
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let x = Axis { name: "frames lost, %", scale: Places::Log };
        let panels = [(GOODPUT, "payload over the link's rate"), (P99, "p99 latency, us")];
        let panels = panels.into_iter().flat_map(|(what, unit)| {
            SIZES.iter().map(move |size| {
                let scale = if what == P99 { Places::Auto } else { Places::Linear };
                let axes = Axes { x, y: Axis { name: unit, scale } };
                let names = ALL_OF_THEM.map(|it| name(what, size, it));
                let title = format!("{}, {what}", size.name);
                let mut panel = panel(points, &title, axes, &names.each_ref().map(String::as_str));
                for (curve, whose) in panel.curves.iter_mut().zip(ALL_OF_THEM) {
                    whose.clone_into(&mut curve.name);
                    // A logarithmic axis has no 0.
                    curve.points.retain(|it| it.x > 0.0);
                }
                let y = points.at(&names[0], 0.0);
                let level = |y| Mark::Level { y, name: "1RMA, nothing lost".to_owned() };
                panel.marks.extend(y.map(level));
                panel
            })
        });
        Some(picture(self, points, panels.collect()))
    }
}

/// Both frames of an op are lost together less often than one op in a hundred, in percent.
const RARE: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::one_rma::simulated::tests::{broken, points, with};

    #[test]
    fn each_claim_fails_of_the_least_value_that_makes_its_sentence_false() {
        let [goodput, p99] =
            [GOODPUT, P99].map(|what| [OURS, THEIRS].map(|it| name(what, &SIZES[0], it)));
        let failed = name(FAILED, &SIZES[0], OURS);
        let aimd = name(GOODPUT, &SIZES[0], AIMD);
        let good = points(
            &Loss,
            &[
                (&goodput[0], &[[0.0, 0.9], [0.1, 0.8], [5.0, 0.1]]),
                (&goodput[1], &[[0.0, 0.97], [0.1, 0.5], [5.0, 0.1]]),
                (&p99[0], &[[0.0, 6.0], [0.1, 6.5], [5.0, 80.0]]),
                (&p99[1], &[[0.0, 5.0], [0.1, 30.0], [5.0, 160.0]]),
                (&failed, &[[0.0, 0.0], [5.0, 0.0]]),
                (&aimd, &[[0.1, 0.7], [5.0, 0.04]]),
            ],
        );
        assert!(broken(&Loss, &good).is_empty());
        let fails = |name: &str, x, y| broken(&Loss, &with(&good, name, x, y));
        assert_eq!(fails(&failed, 5.0, 1.0), ["ok"]);
        assert_eq!(fails(&p99[0], 0.1, 6.61), ["rare"]);
        assert_eq!(fails(&goodput[0], 5.0, 0.099), ["goodput"]);
        assert_eq!(fails(&p99[0], 5.0, 80.1), ["p99"]);
        assert_eq!(fails(&aimd, 5.0, 0.051), ["congestion"]);
    }
}
