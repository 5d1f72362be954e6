//! Figure 16b: how many ops are shed at home, and how many are late, by jitter (§7.5).

use rma_bench::drawing::{Mark, Picture};
use rma_core::op::OpStatus;
use rma_sim::{flows::report::Report, net::link::JitterLaw};

use super::{
    jitter::{Case, conditions, jitters, run_cases, window_bound},
    simulated::{Axes, both, panel, rtt_micros, value},
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
pub(super) struct Shed;

/// The window, in KiB: the paper's.
const WINDOW: u32 = 64;

const LAWS: [(JitterLaw, [&str; 3]); 2] = [
    (JitterLaw::Uniform, ["DISPATCH_TIMEOUT", "TIMEOUT", "goodput"]),
    (
        JitterLaw::Exponential,
        ["exponential, DISPATCH_TIMEOUT", "exponential, TIMEOUT", "exponential, goodput"],
    ),
];

impl Figure for Shed {
    fn about(&self) -> About {
        About {
            id: "1rma-16b",
            title: "Ops that are shed and ops that are late, by jitter, with a window of 64 KiB",
            says: "Load is shed at home as soon as the window is taxed; ops are late only when latency is \
                   unpredictable, and goodput stays high but for pathological cases.",
            kind: Kind::Simulation,
            seconds: 6,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let mut points = Points::new(&self.about(), conditions(run));
        for (law, names) in run.pick(&LAWS[..1], &LAWS) {
            let xs = jitters(run);
            let case = |&micros: &f64| Case { law: *law, window: WINDOW, micros };
            let all = run_cases(run, &xs.iter().map(case).collect::<Vec<_>>())?;
            let part = |of: fn(&Report) -> f64| {
                xs.iter().zip(&all).map(|(&x, it)| value(x, it, of)).collect()
            };
            points.push(names[0], part(|it| it.part(OpStatus::DispatchTimeout)));
            points.push(names[1], part(|it| it.part(OpStatus::Timeout)));
            points.push(names[2], part(Report::payload));
        }
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let [shed, late, goodput] = LAWS[0].1;
        let first = |name| {
            let value = points.of(name).iter().find(|it| it.y > 0.0);
            value.map(|it| it.x)
        };
        let longest = points.of(late).last().map(|it| it.x).filter(|&it| it > 1.5 * rtt_micros());
        // If none is late however long jitter is, none comes before the longest.
        let first_late = first(late).or(longest);
        let first_shed = first(shed).unwrap_or(f64::INFINITY);
        let kept = both(points, (goodput, late)).filter(|it| it[2] < 0.01);
        let kept = kept.map(|[x, y, _]| y / window_bound(WINDOW, x));
        let order = first_late.map(|first_late| {
            [
                Claim::at_least(
                    "1rma-16b-late",
                    "ops are late only where RTT + 2 × jitter is longer than the timeout of 4 RTT",
                    "the least jitter with a TIMEOUT, us",
                    first_late,
                    1.5 * rtt_micros() + 0.001,
                ),
                Claim::at_least(
                    "1rma-16b-order",
                    "load is shed at home before ops are late",
                    "the least jitter with a TIMEOUT less that with a DISPATCH_TIMEOUT, us",
                    first_late - first_shed,
                    0.1,
                )
                .shape(),
            ]
        });
        let goodput = Claim::at_least(
            "1rma-16b-goodput",
            "where fewer than 1 % are late, goodput is what the window lets through",
            "the least goodput / (window / ((RTT + jitter) × bandwidth))",
            least(kept),
            0.9,
        );
        order.into_iter().flatten().chain([goodput]).collect()
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let axes =
            Axes::linear("jitter each way, us", "part of all ops; goodput over the link's rate");
        let panels = LAWS.iter().map(|(law, names)| {
            let mut panel = panel(points, &format!("{law:?} jitter"), axes, names);
            let name = "RTT + 2 × jitter = timeout".to_owned();
            panel.marks.push(Mark::Place { x: 1.5 * rtt_micros(), name });
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
        let good = points(
            &Shed,
            &[
                ("DISPATCH_TIMEOUT", &[[0.0, 0.0], [1.0, 0.1], [7.0, 0.2], [8.0, 0.3]]),
                ("TIMEOUT", &[[0.0, 0.0], [1.0, 0.0], [7.0, 0.0], [8.0, 0.02]]),
                ("goodput", &[[0.0, 0.97], [1.0, 0.84], [7.0, 0.43], [8.0, 0.1]]),
            ],
        );
        assert!(broken(&Shed, &good).is_empty());
        let fails = |name, x, y| broken(&Shed, &with(&good, name, x, y));
        assert_eq!(fails("TIMEOUT", 7.0, 0.0001), ["late"]);
        assert_eq!(fails("TIMEOUT", 1.0, 0.0001), ["late", "order"]);
        assert_eq!(fails("goodput", 7.0, 0.39), ["goodput"]);
        assert!(fails("goodput", 8.0, 0.0).is_empty(), "too many are late there");
    }
}
