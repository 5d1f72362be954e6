//! Figure 16c: two clients that ask for twice what a server can send, with NACKs and without
//! (§7.5).

use rma_bench::drawing::{Mark, Picture};
use rma_core::op::OpStatus;
use rma_sim::flows::{
    report::Report,
    workload::{Fabric, Nack, Retry, Workload},
};

use super::simulated::{
    Axes, COMMON, both, nic, one_panel, op_micros, reports, time_for, two_clients, value,
};
use crate::paper::{
    claims::{Claim, least, most},
    figure::{About, Figure, FigureFailed, Kind},
    points::Points,
    run::Run,
};

/// The figure.
#[derive(Debug)]
pub(super) struct Nacks;

const SEEDS: u64 = 5;
/// Ops that the server can serve in each point, of all seeds.
pub(super) const OPS: u64 = 20_000;

const WITH: &str = "with NACKs";
const WITHOUT: &str = "without";

/// A run of figures 16c and 16d: a window in KiB, and when the server refuses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) window: u32,
    pub(super) nack: Nack,
}

/// The reports of `cases`.
pub(super) fn run_cases(run: &Run<'_>, cases: &[Case]) -> Result<Vec<Vec<Report>>, FigureFailed> {
    reports(run, cases, SEEDS, |&Case { window, nack }| {
        let fabric = Fabric { nack, ..Fabric::paper(window << 10) };
        let length = time_for(OPS / SEEDS, 1, 1.0);
        Workload::of(&two_clients(), nic(Retry::Nacked), fabric, length)
    })
}

/// The conditions of both figures.
pub(super) fn conditions(run: &Run<'_>) -> String {
    format!(
        "two clients ask one server for READs of 4 KiB by chance, 100 Gbit/s each, no congestion control, \
         NACKed ops are issued again at once; {COMMON}; dispatch timeout 10 us, timeout 20 us; {} seeds; wire bytes",
        run.seeds(SEEDS).count()
    )
}

/// The windows, in KiB each, at which two clients have more under way than is served within a
/// timeout.
fn outlasts(window: f64) -> bool {
    2.0 * window / 4.0 * op_micros() > 20.0
}

impl Figure for Nacks {
    fn about(&self) -> About {
        About {
            id: "1rma-16c",
            title: "Goodput with NACKs and without, by the clients' window",
            says: "NACKs conserve the server's bandwidth and give clients their windows back, which helps goodput.",
            kind: Kind::Simulation,
            seconds: 8,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let windows: &[u32] = run.pick(&[64, 128], &[48, 64, 80, 96, 112, 128, 160, 192]);
        let mut points = Points::new(&self.about(), conditions(run));
        for (nack, name) in [(Nack::Late, WITH), (Nack::Never, WITHOUT)] {
            let cases: Vec<Case> = windows.iter().map(|&window| Case { window, nack }).collect();
            let all = run_cases(run, &cases)?;
            let part = |of: fn(&Report) -> f64| {
                windows.iter().zip(&all).map(|(&x, it)| value(x.into(), it, of)).collect()
            };
            points.push(name, part(Report::goodput));
            points.push(
                format!("{name}, TIMEOUTs of all ops"),
                part(|it| it.part(OpStatus::Timeout)),
            );
        }
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let of = |name: &'static str, is_long: bool| {
            let values = points.of(name).iter().filter(move |it| outlasts(it.x) == is_long);
            values.map(|it| it.y)
        };
        let gain = both(points, (WITH, WITHOUT)).filter(|it| outlasts(it[0]));
        vec![
            Claim::at_least(
                "1rma-16c-with",
                "with NACKs the server's link stays full",
                "the least goodput with NACKs, all windows",
                least(points.of(WITH).iter().map(|it| it.y)),
                0.95,
            ),
            Claim::at_least(
                "1rma-16c-helps",
                "NACKs help where both windows together outlast a timeout",
                "the least goodput with NACKs less that without",
                least(gain.map(|[_, with, without]| with - without)),
                0.25,
            )
            .shape(),
            Claim::at_most(
                "1rma-16c-collapse",
                "without NACKs goodput collapses where both windows together outlast a timeout",
                "the greatest goodput without NACKs where 2 × window > timeout × bandwidth",
                most(of(WITHOUT, true)),
                0.5,
            ),
            Claim::at_least(
                "1rma-16c-theory",
                "what is under way is served within a timeout if 2 × window < timeout × bandwidth",
                "the least goodput without NACKs there; (timeout - RTT) × bandwidth is too low a bound here",
                least(of(WITHOUT, false)),
                0.95,
            )
            .theory(),
        ]
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let axes = Axes::linear("window of each client, KiB", "goodput over the server's link");
        let mut picture = one_panel(self, points, axes);
        let knee = 20.0 / op_micros() * 2.0;
        let name = "2 × window = timeout × bandwidth".to_owned();
        picture.panels.iter_mut().for_each(|it| {
            it.marks.push(Mark::Place { x: knee, name: name.clone() });
        });
        Some(picture)
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
            &Nacks,
            &[
                (WITH, &[[64.0, 0.99], [112.0, 0.97], [128.0, 0.97]]),
                (WITHOUT, &[[64.0, 0.99], [112.0, 0.99], [128.0, 0.1]]),
            ],
        );
        assert!(broken(&Nacks, &good).is_empty());
        let fails = |name, x, y| broken(&Nacks, &with(&good, name, x, y));
        assert_eq!(fails(WITH, 112.0, 0.949), ["with"]);
        assert_eq!(fails(WITHOUT, 128.0, 0.501), ["collapse"]);
        assert_eq!(fails(WITHOUT, 128.0, 0.721), ["helps", "collapse"]);
        assert_eq!(fails(WITHOUT, 112.0, 0.949), ["theory"]);
    }
}
