//! Figure 13: small ops among large ones, 40 hosts that read from each other at random (§7.2).

use rma_bench::drawing::Picture;
use rma_sim::flows::{
    RATE,
    report::Report,
    traffic::{Size, Traffic},
    workload::{Fabric, Workload},
};

use super::{
    simulated::{Axes, OP, WARM_UP, op_micros, panel, reports, rtt_micros, value},
    uniform::executor,
};
use crate::paper::{
    claims::Claim,
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
                "simulation: READs by chance, each from any of 39 others, 85 % of 4 KiB and 15 % of 200 KiB, Algorithm 1, window \
                 {WINDOW} KiB, idle RTT 5 us, MTU 9000, one switch; a model of AES-GCM, light checks; {} seeds; latency of \
                 those of 4 KiB over that on an idle network",
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
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let at_half = |what| points.at(&name(what, GBPS[0]), 0.5).unwrap_or(f64::NAN);
        // A transfer of 200 KiB, as a connection sends it whole.
        let large = LARGE as f64 / OP as f64 * op_micros() / rtt_micros();
        vec![
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
        ]
        .into_iter()
        .filter(|it| !it.value.is_nan())
        .collect()
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let axes = Axes::linear("offered over the links' rate", "latency of 4 KiB over idle");
        let panels = GBPS.map(|gbps| {
            let names = ["p50", "p99"].map(|it| name(it, gbps));
            let title = format!("{gbps} Gbit/s");
            panel(points, &title, axes, &names.each_ref().map(String::as_str))
        });
        Some(picture(self, points, panels.to_vec()))
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
        let good = points(&HeavyTail, &[(&p99, &[[0.1, 1.1], [0.5, 1.6], [0.7, 2.5]])]);
        assert!(broken(&HeavyTail, &good).is_empty());
        let fails = |x, y| broken(&HeavyTail, &with(&good, &p99, x, y));
        assert_eq!(fails(0.5, 4.4), ["small"]);
        assert_eq!(fails(0.7, 1.09), ["grows"]);
    }
}
