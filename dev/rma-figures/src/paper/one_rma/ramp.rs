//! Figure 15a: how fast one transfer fills a link (§7.4).

use core::time::Duration;

use rma_bench::drawing::{Mark, Picture};
use rma_core::op::OpStatus;
use rma_sim::flows::{Log, OpRecord, scenes::Scene};

use super::{
    scene::{CONDITIONS, Played, curve, failures, options, played, seeds, settlings, slowest},
    simulated::{Axes, one_panel},
};
use crate::paper::{
    claims::Claim,
    figure::{About, Figure, FigureFailed, Kind},
    points::Points,
    run::Run,
};

/// The figure.
#[derive(Debug)]
pub(super) struct Ramp;

const SETTLED: &str = "slowest to settle";
const FAILED: &str = "ops that were not OK, and runs that did not settle";
const SERVICE: &str = "ops in service";
const WINDOW: &str = "local window";

/// Windows that transfers begin with, in ops; the first is ours by default.
const INITIAL: [f64; 4] = [16.0, 8.0, 4.0, 1.0];

fn name(initial: f64) -> String {
    if initial > 15.0 {
        "from a window of 16 ops, ours".to_owned()
    } else {
        format!("from {initial}")
    }
}

fn settled_from(initial: f64) -> String {
    format!("to settle from a window of {initial}")
}

/// The ops that were OK in the second half of a run, which is settled.
fn late(log: &Log, length: Duration) -> impl Iterator<Item = &OpRecord> {
    let half = length.as_nanos() as u64 / 2;
    log.ops.iter().filter(move |it| it.at.as_nanos() > half && it.status == OpStatus::Ok)
}

/// Ops between issue and completion, by Little's law: their rate times how long each takes.
fn in_service(Played { options, log, .. }: &Played) -> f64 {
    let delays =
        late(log, options.length).map(|it| (it.total_delay - it.issue_delay).as_secs_f64());
    delays.sum::<f64>() / (options.length.as_secs_f64() / 2.0)
}

fn mean_window(Played { options, log, .. }: &Played) -> f64 {
    let windows = || late(log, options.length).map(|it| it.local_cwnd);
    windows().sum::<f64>() / windows().count() as f64
}

impl Figure for Ramp {
    fn about(&self) -> About {
        About {
            id: "1rma-15a",
            title: "A transfer ramps up to the link's rate",
            says: "From 0 to 100 Gbit/s in about 8 RTT, then kept with a window of 15 outstanding ops; no op fails.",
            kind: Kind::Simulation,
            seconds: 5,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let begins: &[f64] = run.pick(&INITIAL[..1], &INITIAL);
        let slow = Duration::from_millis(2);
        let runs = run.each(begins, |&initial| {
            let ours = options(Scene::Ramp, 1);
            let cc = ours.cc.with(|it| it.cwnd_initial = initial);
            let length = if initial > 15.0 { ours.length } else { slow };
            played(rma_sim::flows::FlowOptions { cc, length, ..ours })
        })?;
        let all = settlings(run, Scene::Ramp)?;
        let mut points = Points::new(
            &self.about(),
            format!("{CONDITIONS}; curves of seed 1, numbers of {} seeds", seeds(run).len()),
        );
        for (&initial, played) in begins.iter().zip(&runs) {
            let shown = (Duration::ZERO, Duration::from_micros(500));
            points.push(name(initial), curve(played, shown, |row| row.gbps.iter().sum()));
            points.number(settled_from(initial), played.settling.rtts, "RTT");
        }
        points.number(SETTLED, slowest(&all), "RTT");
        points.number(FAILED, failures(&all), "");
        points.number(SERVICE, in_service(&runs[0]), "ops");
        points.number(WINDOW, mean_window(&runs[0]), "ops");
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let of = |name| points.value(name).unwrap_or(f64::NAN);
        let one = Claim::at_most(
            "1rma-15a-ramp",
            "the link is full in about 8 RTT",
            "the slowest of all seeds to settle, RTT",
            of(SETTLED),
            8.0,
        );
        vec![
            // The initial window of 16 decides it: from 8 it takes 34 RTT.
            one.paper("~8 RTT").fitted(),
            Claim::at_most("1rma-15a-ok", "no op fails", FAILED, of(FAILED), 0.0),
            Claim::number(
                "1rma-15a-service",
                "the rate is kept with 15 outstanding ops",
                "ops between issue and completion, mean of the second half, seed 1",
                of(SERVICE),
                15.0,
                0.15,
            ),
            Claim::number(
                "1rma-15a-window",
                "with a window of 15",
                "the local window, mean of the second half, seed 1",
                of(WINDOW),
                15.0,
                0.15,
            ),
        ]
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let axes = Axes::linear("time, us", "Gbit/s, all headers counted");
        let mut picture = one_panel(self, points, axes);
        picture.panels.iter_mut().for_each(|it| {
            it.marks.push(Mark::Place { x: 40.0, name: "paper: 8 RTT".to_owned() });
        });
        Some(picture)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::simulated::tests::broken, *};

    #[test]
    fn each_claim_fails_of_the_least_value_that_makes_its_sentence_false() {
        let fails = |settled, failed, service, window| {
            let mut points = Points::new(&Ramp.about(), "");
            points.number(SETTLED, settled, "RTT");
            points.number(FAILED, failed, "");
            points.number(SERVICE, service, "ops");
            points.number(WINDOW, window, "ops");
            broken(&Ramp, &points)
        };
        assert!(fails(8.0, 0.0, 14.0, 16.0).is_empty());
        assert_eq!(fails(8.01, 0.0, 14.0, 16.0), ["ramp"]);
        assert_eq!(fails(8.0, 1.0, 14.0, 16.0), ["ok"]);
        assert_eq!(fails(8.0, 0.0, 12.7, 16.0), ["service"]);
        assert_eq!(fails(8.0, 0.0, 14.0, 17.3), ["window"]);
    }
}
