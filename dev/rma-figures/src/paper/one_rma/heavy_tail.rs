//! Figure 13: small ops among large ones, 40 hosts that read from each other at random (§7.2).

use rma_bench::drawing::{Axis, Mark, Picture, Scale as Places};
use rma_sim::{
    baselines::{Constants, figures::figure_13},
    flows::{
        RATE,
        report::Report,
        traffic::{Size, Traffic},
        workload::{Fabric, Workload},
    },
};

use super::{
    compared::{self, BY_MESSAGES, BY_TURNS, MODELS, Other, Runs, SOFTWARE, only, sensitivity},
    simulated::{Axes, OP, WARM_UP, op_micros, panel, reports, rtt_micros, value},
    uniform::executor,
};
use crate::paper::{
    claims::{Claim, least},
    drawn::picture,
    figure::{About, Figure, FigureFailed, Kind},
    points::Points,
    run::Run,
};

/// The figure.
#[derive(Debug)]
pub(super) struct HeavyTail;

const SEEDS: u64 = 3;
/// Small ops of each point, of all seeds.
const SMALL: u64 = 15_000;

/// Reads of each seed of the systems beside it, of which 85 % are small.
const OTHERS: u32 = 12_000;

const HOSTS: u32 = 40;

/// The window, in KiB.
const WINDOW: u32 = 96;

const LARGE: u64 = 200 << 10;

/// The rates of links, in Gbit/s: that of 1RMA in the paper, and that of its baselines.
const GBPS: [u64; 2] = [100, 40];

/// 85 % of ops are small, 90 % of bytes are of large ones.
fn sizes() -> Vec<Size> {
    vec![Size { len: OP, share: 0.85 }, Size { len: LARGE, share: 0.15 }]
}

fn rate(gbps: u64) -> u64 {
    RATE / 100 * gbps
}

pub(super) fn name(what: &str, gbps: u64) -> String {
    format!("1RMA {what}, {gbps} Gbit/s")
}

/// A series of another system.
fn of(other: &Other, what: &str, gbps: u64) -> String {
    other.name(&format!("{what}, {gbps} Gbit/s"))
}

/// Adds what the paper compares 1RMA with.
fn others(
    run: &Run<'_>,
    loads: &[f64],
    runs: Runs<'_>,
    points: &mut Points,
) -> Result<(), FigureFailed> {
    for other in [BY_TURNS, BY_MESSAGES, SOFTWARE] {
        for gbps in GBPS {
            let make = |setting: &_, &load: &f64| figure_13(setting, rate(gbps), load);
            let all = other.points(run, loads, runs, make)?;
            for (what, part) in [("p50", 0.5), ("p99", 0.99)] {
                let values = loads.iter().zip(&all);
                let values = values.map(|(&x, it)| compared::value(x, it, |it| it.slowdown(part)));
                points.push(of(&other, what, gbps), values.collect());
            }
        }
    }
    Ok(())
}

/// The paper's: 6 to 10 times as slow.
const TIMES: [f64; 2] = [6.0, 10.0];

/// Those of 1RMA beside others.
fn compared_claims(points: &Points) -> Vec<Claim> {
    let over = |other: &Other, what, gbps, load| {
        let at = |name: &str| points.at(name, load);
        let ours = at(&name(what, GBPS[0]));
        at(&of(other, what, gbps)).zip(ours).map_or(f64::NAN, |(it, ours)| it / ours)
    };
    let mut claims = Vec::new();
    for (other, id) in [(BY_TURNS, "turns"), (BY_MESSAGES, "messages")] {
        for (what, times) in [("p50", 2.0), ("p99", 4.0)] {
            claims.push(Claim::between(
                &format!("1rma-13-{id}-{what}"),
                "at 50 % load the slowdowns of the baselines are 6 to 10 times as large",
                &format!("{}, over 1RMA's at 100 Gbit/s, 50 % load", of(&other, what, GBPS[1])),
                over(&other, what, GBPS[1], 0.5),
                TIMES,
                0.15,
            ));
            claims.push(Claim::at_least(
                &format!("1rma-13-{id}-{what}-100"),
                "small ops of connections are slowed several times as much on the same links too",
                &format!("{}, over 1RMA's, 50 % load", of(&other, what, GBPS[0])),
                over(&other, what, GBPS[0], 0.5),
                times,
            ));
        }
        let loads = points.of(&name("p99", GBPS[0])).iter().map(|it| it.x);
        let ratios: Vec<f64> = loads.map(|it| over(&other, "p99", GBPS[0], it)).collect();
        claims.push(
            Claim::at_least(
                &format!("1rma-13-{id}-more"),
                "the difference in the tail grows with load",
                &format!(
                    "the least of its ratios over that at the load before: {}, over 1RMA's",
                    of(&other, "p99", GBPS[0])
                ),
                least(ratios.windows(2).map(|it| it[1] / it[0])),
                1.0,
            )
            .shape(),
        );
    }
    claims.retain(|it| !it.value.is_nan());
    claims
}

/// How many times as slow connections are that are served by messages, as the paper has it.
fn times_as_slow(points: &Points, what: &str) -> Option<Mark> {
    let at = |name: &str| points.at(name, 0.5);
    let [ours, theirs] = [at(&name(what, GBPS[0]))?, at(&of(&BY_MESSAGES, what, GBPS[1]))?];
    let name = format!("{:.1}, paper {} to {}", theirs / ours, TIMES[0], TIMES[1]);
    Some(Mark::Ratio { x: 0.5, between: [ours, theirs], name })
}

impl Figure for HeavyTail {
    fn about(&self) -> About {
        About {
            id: "1rma-13",
            title: "Small ops among large ones, 40 hosts, uniform at random",
            says: "1RMA slows small ops minimally; at 50 % load the slowdowns of the baselines are 6 to 10 times as \
                   large, at the median and in the tail.",
            kind: Kind::Simulation,
            seconds: 60,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let loads: &[f64] = run.pick(&[0.5], &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]);
        let mut points = Points::new(
            &self.about(),
            format!(
                "READs by chance, each from any of 39 others, 85 % of 4 KiB and 15 % of 200 KiB, Algorithm 1, window \
                 {WINDOW} KiB, idle RTT 5 us, MTU 9000, one switch; a model of AES-GCM, light checks; {} seeds; latency of \
                 those of 4 KiB over that on an idle network; {MODELS}",
                run.seeds(SEEDS).count()
            ),
        );
        for &gbps in run.pick(&GBPS[..1], &GBPS) {
            let all = reports(run, loads, SEEDS, |&load| {
                let traffic = Traffic {
                    hosts: HOSTS,
                    load,
                    sizes: sizes(),
                    rate: rate(gbps),
                    ..Traffic::reads(OP)
                };
                let bytes: f64 = sizes().iter().map(|it| it.len as f64 * it.share).sum();
                let small = 0.85 * rate(gbps) as f64 * load * f64::from(HOSTS) / bytes;
                let length = core::time::Duration::from_secs_f64((SMALL / SEEDS) as f64 / small);
                let fabric = Fabric { rate: rate(gbps), ..Fabric::paper(WINDOW << 10) };
                let workload = Workload::of(&traffic, executor(), fabric, length + WARM_UP * 2);
                Workload { warm_up: WARM_UP * 2, ..workload }
            })?;
            let part = |of: &dyn Fn(&Report) -> f64| {
                loads.iter().zip(&all).map(|(&x, it)| value(x, it, of)).collect()
            };
            let small = |it: &Report| it.latencies_of(OP).cloned().unwrap_or_default();
            points.push(name("p50", gbps), part(&|it| small(it).quantile(0.5) / rtt_micros()));
            points.push(name("p99", gbps), part(&|it| small(it).quantile(0.99) / rtt_micros()));
            let failed =
                |it: &Report| 1.0 - it.ops().ended[0] as f64 / it.ops().ended().max(1) as f64;
            points.push(name("ops that are not OK", gbps), part(&failed));
        }
        let constants = &Constants::default();
        let measured = OTHERS;
        others(run, loads, Runs { seeds: SEEDS, measured, constants }, &mut points)?;
        let mut ours = only(&points, 0.5);
        ours.series.retain(|it| it.name.starts_with("1RMA"));
        let claims = |run: &Run<'_>, constants: &Constants| {
            let mut points = ours.clone();
            others(run, &[0.5], Runs { seeds: 1, measured, constants }, &mut points)?;
            Ok(compared_claims(&points))
        };
        points.tables.push(sensitivity(run, "Claims by constants of the models", claims)?);
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let at_half = |what| points.at(&name(what, GBPS[0]), 0.5).unwrap_or(f64::NAN);
        // A transfer of 200 KiB, as a connection sends it whole.
        let large = LARGE as f64 / OP as f64 * op_micros() / rtt_micros();
        let own = vec![
            Claim::at_most(
                "1rma-13-small",
                "small ops are slowed minimally: not one in a hundred waits as long as a large op takes",
                "p99 slowdown at 50 % load, 100 Gbit/s, against 1 + 200 KiB / (RTT × bandwidth)",
                at_half("p99"),
                1.0 + large,
            ),
            Claim::at_least(
                "1rma-13-grows",
                "the tail grows with load",
                "p99 at the highest load over that at the lowest, 100 Gbit/s",
                {
                    let values = points.of(&name("p99", GBPS[0]));
                    let ends = values.first().zip(values.last());
                    ends.filter(|_| values.len() > 1).map_or(f64::NAN, |(a, b)| b.y / a.y)
                },
                1.0,
            )
            .shape(),
        ];
        let own = own.into_iter().filter(|it| !it.value.is_nan());
        own.chain(compared_claims(points)).collect()
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let axes = Axes {
            y: Axis { name: "latency of 4 KiB over idle", scale: Places::Auto },
            ..Axes::linear("offered over the links' rate", "")
        };
        let others = [BY_TURNS, BY_MESSAGES, SOFTWARE];
        let panels = GBPS.iter().flat_map(|&gbps| ["p50", "p99"].map(|what| (gbps, what)));
        let panels = panels.map(|(gbps, what)| {
            // The paper has its baselines at 40 Gbit/s, and 1RMA at 100.
            let is_theirs = gbps == GBPS[1];
            let mut names = vec![name(what, gbps)];
            names.extend(is_theirs.then(|| name(what, GBPS[0])));
            names.extend(others.iter().map(|it| of(it, what, gbps)));
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let mut panel = panel(points, &format!("{what}, {gbps} Gbit/s"), axes, &names);
            panel.marks.extend(times_as_slow(points, what).filter(|_| is_theirs));
            panel
        });
        Some(picture(self, points, panels.collect()))
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
        let p99 = name("p99", 100);
        let mut all: Vec<(String, &[[f64; 2]])> = vec![
            (p99.clone(), &[[0.1, 1.1], [0.5, 1.6], [0.7, 2.5]]),
            (name("p50", 100), &[[0.5, 1.0]]),
        ];
        for other in [BY_TURNS, BY_MESSAGES] {
            all.push((of(&other, "p99", 100), &[[0.1, 2.2], [0.5, 6.4], [0.7, 12.0]]));
            all.push((of(&other, "p50", 100), &[[0.5, 2.0]]));
            all.push((of(&other, "p99", 40), &[[0.5, 12.8]]));
            all.push((of(&other, "p50", 40), &[[0.5, 7.0]]));
        }
        let all: Vec<(&str, &[[f64; 2]])> = all.iter().map(|(name, it)| (&**name, *it)).collect();
        let good = points(&HeavyTail, &all);
        assert!(broken(&HeavyTail, &good).is_empty());
        let fails = |x, y| broken(&HeavyTail, &with(&good, &p99, x, y));
        assert!(fails(0.5, 4.4).contains(&"small".to_owned()));
        assert_eq!(fails(0.7, 1.09), ["grows"]);
        for (other, id) in [(BY_TURNS, "turns"), (BY_MESSAGES, "messages")] {
            let fails = |what, gbps, x, y| {
                let broken = broken(&HeavyTail, &with(&good, &of(&other, what, gbps), x, y));
                broken.into_iter().map(|it| it.replace(id, "")).collect::<Vec<_>>()
            };
            assert_eq!(fails("p50", 40, 0.5, 5.0), ["-p50"]);
            assert_eq!(fails("p50", 40, 0.5, 11.6), ["-p50"]);
            assert_eq!(fails("p99", 40, 0.5, 5.0 * 1.6), ["-p99"]);
            assert_eq!(fails("p50", 100, 0.5, 1.99), ["-p50-100"]);
            assert_eq!(fails("p99", 100, 0.5, 3.99 * 1.6), ["-p99-100"]);
            assert_eq!(fails("p99", 100, 0.7, 3.99 * 2.5), ["-more"]);
        }
    }
}
