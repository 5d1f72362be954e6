//! Figures 15b, 15c and 15d: a second transfer joins one that has the whole link, with congestion
//! control that tells local congestion from remote, and without (§7.4).

use core::time::Duration;

use rma_bench::drawing::{Mark, Picture};
use rma_sim::flows::{plot::Row, scenes::Scene};

use super::{
    scene::{CONDITIONS, Played, curve, failures, options, played, seeds, settlings, slowest},
    simulated::{Axes, one_panel},
};
use crate::paper::{
    claims::{Claim, most},
    figure::{About, Figure, FigureFailed, Kind},
    points::Points,
    run::Run,
};

/// Figure 15b.
#[derive(Debug)]
pub(super) struct Join;

/// Figure 15c.
#[derive(Debug)]
pub(super) struct TotalDelayOnly;

/// Figure 15d.
#[derive(Debug)]
pub(super) struct IssueDelay;

const SETTLED: &str = "slowest to settle";
const QUICKEST: &str = "quickest to settle without";
const FAILED: &str = "ops that were not OK, and runs that did not settle";
const BEFORE: &str = "issue delay before";
const PEAK: &str = "issue delay at its peak";
const BACK: &str = "until the issue delay is back";

/// When the second transfer begins: the paper's.
const JOINED: Duration = Duration::from_micros(400);

/// The target of the local window, in microseconds, and how far from it is back.
const TARGET: f64 = 1.5;
const NEAR: f64 = 0.2;

fn first(scene: Scene) -> Played {
    played(options(scene, 1))
}

/// Both transfers' rates over time.
fn shares(points: &mut Points, run: &Played, to: u64) {
    let shown = (JOINED - Duration::from_micros(50), Duration::from_micros(to));
    for flow in 0..2 {
        let of = |row: &Row| row.gbps.get(flow).copied().unwrap_or(0.0);
        points.push(format!("transfer {}", flow + 1), curve(run, shown, of));
    }
}

fn shares_picture(figure: &dyn Figure, points: &Points) -> Picture {
    let axes = Axes::linear("time, us", "Gbit/s, all headers counted");
    let mut picture = one_panel(figure, points, axes);
    picture.panels.iter_mut().for_each(|it| {
        it.marks.push(Mark::Place { x: 400.0, name: "the second begins".to_owned() });
    });
    picture
}

impl Figure for Join {
    fn about(&self) -> About {
        About {
            id: "1rma-15b",
            title: "Two transfers of one client share its link",
            says: "A second server's transfer begins at 400 us; both have fair shares within about 5 RTT.",
            kind: Kind::Simulation,
            seconds: 5,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let all = settlings(run, Scene::Join)?;
        let seeds = seeds(run).len();
        let mut points = Points::new(
            &self.about(),
            format!("{CONDITIONS}; curves of seed 1, numbers of {seeds} seeds"),
        );
        shares(&mut points, &first(Scene::Join), 550);
        points.number(SETTLED, slowest(&all), "RTT");
        points.number(FAILED, failures(&all), "");
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let of = |name| points.value(name).unwrap_or(f64::NAN);
        let fair = Claim::at_most(
            "1rma-15b-fair",
            "both transfers have fair shares within about 5 RTT",
            "the slowest of all seeds to settle, RTT",
            of(SETTLED),
            5.0,
        );
        vec![
            fair.paper("~5 RTT"),
            Claim::at_most("1rma-15b-ok", "no op fails", FAILED, of(FAILED), 0.0),
        ]
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        Some(shares_picture(self, points))
    }
}

impl Figure for TotalDelayOnly {
    fn about(&self) -> About {
        About {
            id: "1rma-15c",
            title: "The same with congestion control that reacts to the total delay only",
            says: "Without a reaction to local congestion of its own, convergence is 20 times slower.",
            kind: Kind::Simulation,
            seconds: 10,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let split = settlings(run, Scene::Join)?;
        let total = settlings(run, Scene::JoinTotalDelayOnly)?;
        let seeds = seeds(run).len();
        let mut points = Points::new(
            &self.about(),
            format!("{CONDITIONS}; curves of seed 1, numbers of {seeds} seeds"),
        );
        shares(&mut points, &first(Scene::JoinTotalDelayOnly), 1600);
        points.number(SETTLED, slowest(&split), "RTT");
        // One that does not settle within the run would take longer still.
        let quickest = total.iter().map(|it| it.rtts).fold(f64::NAN, f64::min);
        points.number(QUICKEST, quickest, "RTT");
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let of = |name| points.value(name).unwrap_or(f64::NAN);
        let slower = Claim::at_least(
            "1rma-15c-slower",
            "without a reaction to local congestion convergence is 20 times slower",
            "the quickest seed without over the slowest with one",
            of(QUICKEST) / of(SETTLED),
            20.0,
        );
        vec![slower.paper("20 ×")]
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        Some(shares_picture(self, points))
    }
}

/// The issue delay of the first transfer's client, in microseconds: before the second one
/// begins, at its peak, and how many round trips until it is near the target and stays.
#[derive(Clone, Copy, Debug)]
struct Course {
    before: f64,
    peak: f64,
    back: f64,
}

fn course(run: &Played) -> Course {
    let micros = |row: &Row| row.issue_delay as f64 / 1e3;
    let mean = |from: u64, to: u64| {
        let span = (Duration::from_micros(from), Duration::from_micros(to));
        let values = curve(run, span, micros);
        values.iter().map(|it| it.y).sum::<f64>() / values.len() as f64
    };
    let after = curve(run, (JOINED, JOINED + Duration::from_micros(500)), micros);
    // Over four round trips, as shares are.
    let means: Vec<f64> =
        after.windows(4).map(|it| it.iter().map(|it| it.y).sum::<f64>() / 4.0).collect();
    let far = means.iter().rposition(|it| (it / TARGET - 1.0).abs() > NEAR);
    Course {
        before: mean(300, 400),
        peak: after.iter().map(|it| it.y).fold(f64::NAN, f64::max),
        back: far.map_or(0.0, |it| it as f64 + 1.0),
    }
}

impl Figure for IssueDelay {
    fn about(&self) -> About {
        About {
            id: "1rma-15d",
            title: "The issue delay while a second transfer joins",
            says: "A sharp increase of the issue delay tells of local congestion at once, and it settles again.",
            kind: Kind::Simulation,
            seconds: 5,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let seeds = seeds(run);
        let courses = run.each(&seeds, |&seed| course(&played(options(Scene::Join, seed))))?;
        let mut points = Points::new(
            &self.about(),
            format!("{CONDITIONS}; curves of seed 1, numbers the worst of {} seeds", seeds.len()),
        );
        let run = first(Scene::Join);
        let shown = (JOINED - Duration::from_micros(50), Duration::from_micros(550));
        points.push("mean of a round trip", curve(&run, shown, |row| row.issue_delay as f64 / 1e3));
        points.push("longest", curve(&run, shown, |row| row.issue_delay_max as f64 / 1e3));
        let worst = |of: fn(&Course) -> f64| most(courses.iter().map(of));
        let least = |of: fn(&Course) -> f64| -most(courses.iter().map(|it| -of(it)));
        points.number(BEFORE, worst(|it| it.before), "us");
        points.number(PEAK, least(|it| it.peak), "us");
        points.number(BACK, worst(|it| it.back), "RTT");
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let of = |name| points.value(name).unwrap_or(f64::NAN);
        vec![
            Claim::at_least(
                "1rma-15d-sharp",
                "the issue delay rises sharply when the second transfer begins",
                "the lowest peak over the highest mean of the 20 RTT before, all seeds",
                of(PEAK) / of(BEFORE),
                2.0,
            )
            .shape(),
            Claim::at_most(
                "1rma-15d-back",
                "and settles near its target again",
                "the latest of all seeds after which each 4 RTT are within 20 % of 1.5 us, RTT",
                of(BACK),
                10.0,
            ),
        ]
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let mut picture = one_panel(self, points, Axes::linear("time, us", "issue delay, us"));
        picture.panels.iter_mut().for_each(|it| {
            it.marks.push(Mark::Level { y: TARGET, name: "our target: 1.5 us".to_owned() });
            it.marks.push(Mark::Place { x: 400.0, name: "the second begins".to_owned() });
        });
        Some(picture)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::simulated::tests::broken, *};

    fn fails(figure: &dyn Figure, numbers: &[(&str, f64)]) -> Vec<String> {
        let mut points = Points::new(&figure.about(), "");
        numbers.iter().for_each(|(name, value)| points.number(*name, *value, ""));
        broken(figure, &points)
    }

    #[test]
    fn each_claim_fails_of_the_least_value_that_makes_its_sentence_false() {
        assert!(fails(&Join, &[(SETTLED, 5.0), (FAILED, 0.0)]).is_empty());
        assert_eq!(fails(&Join, &[(SETTLED, 5.01), (FAILED, 0.0)]), ["fair"]);
        assert_eq!(fails(&Join, &[(SETTLED, 5.0), (FAILED, 1.0)]), ["ok"]);
        assert!(fails(&TotalDelayOnly, &[(SETTLED, 5.0), (QUICKEST, 100.0)]).is_empty());
        assert_eq!(fails(&TotalDelayOnly, &[(SETTLED, 5.0), (QUICKEST, 99.9)]), ["slower"]);
        let delay = |before, peak, back| {
            fails(&IssueDelay, &[(BEFORE, before), (PEAK, peak), (BACK, back)])
        };
        assert!(delay(1.5, 3.0, 10.0).is_empty());
        assert_eq!(delay(1.5, 2.99, 10.0), ["sharp"]);
        assert_eq!(delay(1.5, 3.0, 11.0), ["back"]);
    }
}
