//! Figure 10: latency by offered load, 40 hosts that read from each other at random (§7.1).

use rma_bench::drawing::Picture;
use rma_core::{cc::CcConfigBuilder, executor::RetryPolicy};
use rma_sim::flows::{
    report::Report,
    traffic::Traffic,
    workload::{Fabric, Front, Workload},
};

use super::simulated::{Axes, COMMON, OP, op_micros, panel, reports, rtt_micros, time_for, value};
use crate::paper::{
    claims::{Claim, least, most},
    drawn::picture,
    figure::{About, Figure, FigureFailed, Kind},
    points::Points,
    run::Run,
};

/// The figure.
#[derive(Debug)]
pub(super) struct Uniform;

const SEEDS: u64 = 4;
/// Ops of each point, of all seeds.
const OPS: u64 = 100_000;

const HOSTS: u32 = 40;

/// The windows, in KiB: one with slack for jitter, as the paper asks for, and the bandwidth-delay
/// product, which has none.
const WINDOWS: [u32; 2] = [96, 64];

/// Through executors with the paper's congestion control.
pub(super) fn executor() -> Front {
    Front::Executor { cc: CcConfigBuilder::default(), retry: RetryPolicy::DEFAULT }
}

fn name(what: &str, window: u32) -> String {
    format!("1RMA {what}, window {window} KiB")
}

/// The mean slowdown of queues alone: a request waits at the client's device and at the server's
/// port, behind others' answers; an answer at the server's device and at the client's port; each
/// an M/D/1 queue.
fn theory(load: f64) -> f64 {
    1.0 + 4.0 * op_micros() * load / (2.0 * (1.0 - load)) / rtt_micros()
}

impl Figure for Uniform {
    fn about(&self) -> About {
        About {
            id: "1rma-10",
            title: "Latency by offered load, 40 hosts, uniform at random",
            says: "One-sided RDMA and 1RMA have an advantage over two-sided software; the NIC of connections is within \
                   its cache.",
            kind: Kind::Simulation,
            seconds: 45,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let loads: &[f64] = run.pick(&[0.3, 0.7], &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]);
        let mut points = Points::new(
            &self.about(),
            format!(
                "simulation: READs of 4 KiB by chance, each from any of 39 others, Algorithm 1, {COMMON}; dispatch timeout 10 us, \
                 timeout 20 us; {} seeds; latency over 5 us",
                run.seeds(SEEDS).count()
            ),
        );
        for &window in run.pick(&WINDOWS[..1], &WINDOWS) {
            let all = reports(run, loads, SEEDS, |&load| {
                let traffic = Traffic { hosts: HOSTS, load, ..Traffic::reads(OP) };
                let length = time_for(OPS / SEEDS, HOSTS, load);
                Workload::of(&traffic, executor(), Fabric::paper(window << 10), length)
            })?;
            let slowdown = |of: &dyn Fn(&Report) -> f64| {
                let slowdown = |it: &Report| of(it) / rtt_micros();
                loads.iter().zip(&all).map(|(&x, it)| value(x, it, slowdown)).collect()
            };
            let delays = |it: &Report| it.latencies_of(OP).cloned().unwrap_or_default();
            points.push(name("mean", window), slowdown(&|it| delays(it).mean()));
            points.push(name("p50", window), slowdown(&|it| delays(it).quantile(0.5)));
            points.push(name("p99", window), slowdown(&|it| delays(it).quantile(0.99)));
            let failed =
                |it: &Report| 1.0 - it.ops().ended[0] as f64 / it.ops().ended().max(1) as f64;
            let failed = loads.iter().zip(&all).map(|(&x, it)| value(x, it, failed)).collect();
            points.push(name("ops that are not OK", window), failed);
        }
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let means = points.of(&name("mean", WINDOWS[0])).iter().filter(|it| it.x <= 0.7);
        let off = means.map(|it| (it.y / theory(it.x) - 1.0).abs());
        let rises = ["p50", "p99"].into_iter().flat_map(|what| {
            let values: Vec<f64> =
                points.of(&name(what, WINDOWS[0])).iter().map(|it| it.y).collect();
            values.windows(2).map(|it| it[1] / it[0]).collect::<Vec<_>>()
        });
        vec![
            Claim::at_most(
                "1rma-10-theory",
                "up to 70 % the mean is 5 us and four M/D/1 queues",
                "the greatest distance from it, relative, window 96 KiB",
                most(off),
                0.03,
            )
            .theory(),
            Claim::at_least(
                "1rma-10-grows",
                "latency grows with load",
                "the least slowdown over that of the load before, p50 and p99, window 96 KiB",
                least(rises),
                1.0,
            )
            .shape(),
        ]
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let axes = Axes::linear("offered over the links' rate", "latency over 5 us");
        let panels = ["p50", "p99"].map(|what| {
            let names = WINDOWS.map(|it| name(what, it));
            panel(points, what, axes, &names.each_ref().map(String::as_str))
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
        let [mean, p50, p99] = ["mean", "p50", "p99"].map(|it| name(it, 96));
        let values: &[_] = &[[0.1, theory(0.1)], [0.7, theory(0.7)], [0.9, 4.0]];
        let good = points(&Uniform, &[(&mean, values), (&p50, values), (&p99, values)]);
        assert!(broken(&Uniform, &good).is_empty());
        let fails = |name: &str, x, y| broken(&Uniform, &with(&good, name, x, y));
        assert_eq!(fails(&mean, 0.7, theory(0.7) * 1.031), ["theory"]);
        assert_eq!(fails(&mean, 0.1, theory(0.1) * 0.969), ["theory"]);
        assert_eq!(fails(&p99, 0.7, 1.0), ["grows"]);
        // 4210 octets take 0.3368 us, and half of the load waits for half of one at each stage.
        assert!((theory(0.5) * 5.0 - 5.6736).abs() < 0.0001);
    }
}
