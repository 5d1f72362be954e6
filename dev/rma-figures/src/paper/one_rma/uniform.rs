//! Figure 10: latency by offered load, 40 hosts that read from each other at random (§7.1).

use rma_bench::drawing::{Axis, Picture, Scale as Places};
use rma_core::{cc::CcConfigBuilder, executor::RetryPolicy};
use rma_sim::{
    baselines::{Constants, figures::figure_10},
    flows::{
        report::Report,
        traffic::Traffic,
        workload::{Fabric, Front, Workload},
    },
};

use super::{
    compared::{self, CONNECTIONS, MODELS, Runs, SOFTWARE, micros, only, sensitivity},
    simulated::{Axes, COMMON, OP, both, op_micros, panel, reports, rtt_micros, time_for, value},
};
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

/// The load at which the constants of the models are varied.
const VARIED: f64 = 0.7;

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

/// Adds what the paper compares 1RMA with.
fn others(
    run: &Run<'_>,
    loads: &[f64],
    runs: Runs<'_>,
    points: &mut Points,
) -> Result<(), FigureFailed> {
    for other in [CONNECTIONS, SOFTWARE] {
        let all = other.points(run, loads, runs, |setting, &load| figure_10(setting, load))?;
        for (what, part) in [("p50", 0.5), ("p99", 0.99)] {
            let slowdown = |it: &_| micros(it, part) / rtt_micros();
            let values = loads.iter().zip(&all).map(|(&x, it)| compared::value(x, it, slowdown));
            points.push(other.name(what), values.collect());
        }
    }
    Ok(())
}

/// Those of 1RMA beside others.
fn compared_claims(points: &Points) -> Vec<Claim> {
    let over = |what: &str, one: &str, other: &str| {
        let [one, other] = [one, other].map(|it| it.replace("{}", what));
        let all = both(points, (&one, &other)).filter(|it| it[0] <= 0.7);
        most(all.map(|[_, one, other]| one / other))
    };
    let [ours, connections, software] =
        [name("{}", WINDOWS[0]), CONNECTIONS.name("{}"), SOFTWARE.name("{}")];
    let worst = |one: &str, other: &str| most(["p50", "p99"].map(|it| over(it, one, other)));
    vec![
        Claim::at_most(
            "1rma-10-connections",
            "1RMA is as quick as connections whose states a NIC holds",
            "1RMA's latency over connections', the greatest of p50 and p99 up to 70 % load, window 96 KiB",
            worst(&ours, &connections),
            1.1,
        ),
        // Four digits are stored: this is anything below 1.
        Claim::at_most(
            "1rma-10-software",
            "one-sided RDMA and 1RMA are quicker than two-sided software",
            "1RMA's and connections' latency over software's, the greatest of p50 and p99 up to 70 % load",
            most([worst(&ours, &software), worst(&connections, &software)]),
            0.9999,
        )
        .shape(),
    ]
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
                "READs of 4 KiB by chance, each from any of 39 others, Algorithm 1, {COMMON}; dispatch timeout 10 us, \
                 timeout 20 us; {} seeds; latency over 5 us; \
                 {MODELS}",
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
        let constants = &Constants::default();
        let measured = (OPS / SEEDS) as u32;
        others(run, loads, Runs { seeds: SEEDS, measured, constants }, &mut points)?;
        if loads.contains(&VARIED) {
            let ours = only(&points, VARIED);
            let claims = |run: &Run<'_>, constants: &Constants| {
                let mut points = ours.clone();
                points.series.retain(|it| it.name.starts_with("1RMA"));
                others(run, &[VARIED], Runs { seeds: 1, measured, constants }, &mut points)?;
                Ok(compared_claims(&points))
            };
            points.tables.push(sensitivity(
                run,
                "Claims at 70 % load, by constants of the models",
                claims,
            )?);
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
        let mut claims = compared_claims(points);
        claims.extend([
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
        ]);
        claims
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let axes = Axes {
            y: Axis { name: "latency over 5 us", scale: Places::Auto },
            ..Axes::linear("offered over the links' rate", "")
        };
        let panels = ["p50", "p99"].map(|what| {
            let [ours, tight] = WINDOWS.map(|it| name(what, it));
            let names = [ours, tight, CONNECTIONS.name(what), SOFTWARE.name(what)];
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
        let software: &[_] = &[[0.1, theory(0.1) * 1.2], [0.7, theory(0.7) * 1.2], [0.9, 3.0]];
        let [c50, c99] = ["p50", "p99"].map(|it| CONNECTIONS.name(it));
        let [s50, s99] = ["p50", "p99"].map(|it| SOFTWARE.name(it));
        let ours = [(&*mean, values), (&p50, values), (&p99, values)];
        let others = [(&*c50, values), (&c99, values), (&s50, software), (&s99, software)];
        let good = points(&Uniform, &[&ours[..], &others].concat());
        assert!(broken(&Uniform, &good).is_empty());
        let fails = |name: &str, x, y| broken(&Uniform, &with(&good, name, x, y));
        assert_eq!(fails(&mean, 0.7, theory(0.7) * 1.031), ["theory"]);
        assert_eq!(fails(&mean, 0.1, theory(0.1) * 0.969), ["theory"]);
        assert_eq!(fails(&p99, 0.7, 1.0), ["grows"]);
        assert_eq!(fails(&c99, 0.7, theory(0.7) / 1.101), ["connections"]);
        assert_eq!(fails(&c50, 0.1, theory(0.1) / 1.101), ["connections"]);
        assert!(fails(&c99, 0.9, 1.0).is_empty());
        assert_eq!(fails(&s50, 0.1, theory(0.1)), ["software"]);
        assert_eq!(fails(&s99, 0.7, theory(0.7)), ["software"]);
        assert_eq!(fails(&c99, 0.7, theory(0.7) * 1.2), ["software"]);
        // 4210 octets take 0.3368 us, and half of the load waits for half of one at each stage.
        assert!((theory(0.5) * 5.0 - 5.6736).abs() < 0.0001);
    }
}
