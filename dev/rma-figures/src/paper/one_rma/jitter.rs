//! Figure 16a: goodput by jitter and by the size of the solicitation window, without congestion
//! control (§7.5).

use core::time::Duration;

use rma_bench::drawing::{Mark, Picture};
use rma_sim::{
    flows::{
        report::Report,
        traffic::Traffic,
        workload::{Fabric, Retry, Workload},
    },
    net::link::JitterLaw,
};

use super::simulated::{
    Axes, COMMON, OP, nic, op_micros, panel, reports, rtt_micros, time_for, value, whole_link,
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
pub(super) struct Jitter;

/// Windows, in KiB: the paper's.
const WINDOWS: [u32; 3] = [48, 64, 96];
const SEEDS: u64 = 5;
/// Ops offered to each point, of all seeds.
const OPS: u64 = 20_000;
/// How far values may be outside of what theories say, as a part: as for figure 10.
const SLACK: f64 = 0.03;

/// The laws of jitter, and the names of their curves.
const LAWS: [(JitterLaw, &str); 2] =
    [(JitterLaw::Uniform, "window"), (JitterLaw::Exponential, "exponential, window")];

pub(super) fn name(law: &str, window: u32) -> String {
    format!("{law} {window} KiB")
}

/// Jitters that are run, in microseconds each way.
pub(super) fn jitters<'a>(run: &Run<'_>) -> &'a [f64] {
    run.pick(&[0.0, 2.0, 5.0], &[0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0])
}

/// A case of figures 16a and 16b.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) law: JitterLaw,
    pub(super) window: u32,
    pub(super) micros: f64,
}

/// The reports of `cases`.
pub(super) fn run_cases(run: &Run<'_>, cases: &[Case]) -> Result<Vec<Vec<Report>>, FigureFailed> {
    reports(run, cases, SEEDS, |case| {
        let traffic: Traffic = whole_link();
        let jitter = Duration::from_nanos((case.micros * 1e3) as u64);
        let fabric = Fabric { jitter, law: case.law, ..Fabric::paper(case.window << 10) };
        let length = time_for(OPS / SEEDS, 1, 1.0);
        Workload::of(&traffic, nic(Retry::Never), fabric, length)
    })
}

/// The conditions of both figures.
pub(super) fn conditions(run: &Run<'_>) -> String {
    format!(
        "READs of 4 KiB at a static rate of 100 Gbit/s, no congestion control, {COMMON}; jitter is drawn for \
         each frame and added; dispatch timeout 10 us, timeout 20 us; {} seeds; payload over the link's rate",
        run.seeds(SEEDS).count()
    )
}

/// The part of the link's rate that is payload when it is full.
fn full() -> f64 {
    OP as f64 / 12_500.0 / op_micros()
}

/// The goodput that the window allows if nothing ever waits: window / ((RTT + jitter) × bandwidth).
pub(super) fn window_bound(window: u32, jitter: f64) -> f64 {
    let micros = f64::from(window << 10) / 12_500.0;
    (micros / (rtt_micros() + jitter)).min(full())
}

/// The same with queues at the server's device and at the client's port, in which ops meet without
/// any order: mean value analysis of a closed network with as many customers as the window has ops,
/// and services that always take as long.
fn queues_bound(window: u32, jitter: f64) -> f64 {
    let op = op_micros();
    let outside = rtt_micros() + jitter - 2.0 * op;
    let (mut waiting, mut used) = (0.0, 0.0);
    for ops in 1..=window / 4 {
        // Who comes finds the others, one of them half served.
        let at_each = op * (1.0 + waiting - used / 2.0);
        let rate = f64::from(ops) / (outside + 2.0 * at_each);
        (waiting, used) = (rate * at_each, rate * op);
    }
    used.min(1.0) * full()
}

impl Figure for Jitter {
    fn about(&self) -> About {
        About {
            id: "1rma-16a",
            title: "Goodput by jitter and by the size of the solicitation window",
            says: "Goodput drops with jitter; larger solicitation windows bear more of it, and one below the \
                   bandwidth-delay product falls short without any.",
            kind: Kind::Simulation,
            seconds: 15,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let mut points = Points::new(&self.about(), conditions(run));
        let laws = run.pick(&LAWS[..1], &LAWS);
        for &(law, called) in laws {
            for window in WINDOWS {
                let xs = jitters(run);
                let case = |&micros: &f64| Case { law, window, micros };
                let all = run_cases(run, &xs.iter().map(case).collect::<Vec<_>>())?;
                let of = xs.iter().zip(&all);
                let values = of.map(|(&x, it)| value(x, it, Report::payload)).collect();
                points.push(name(called, window), values);
            }
        }
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let series = |window| points.of(&name(LAWS[0].1, window)).iter();
        let still: Vec<f64> =
            WINDOWS[1..].iter().filter_map(|&it| points.at(&name(LAWS[0].1, it), 0.0)).collect();
        let all_laws =
            || LAWS.iter().flat_map(|(_, law)| WINDOWS.map(|window| (name(law, window), window)));
        let rises = all_laws().flat_map(|(name, _)| {
            let values: Vec<f64> = points.of(&name).iter().map(|it| it.y).collect();
            values.windows(2).map(|it| it[1] - it[0]).collect::<Vec<_>>()
        });
        let falls = LAWS.iter().flat_map(|(_, law)| {
            let pairs = WINDOWS.windows(2);
            pairs.flat_map(|pair| {
                let smaller = points.of(&name(law, pair[0])).iter();
                let larger = name(law, pair[1]);
                let of = smaller.filter_map(|it| Some(it.y - points.at(&larger, it.x)?));
                of.collect::<Vec<_>>()
            })
        });
        let within = || {
            WINDOWS.into_iter().flat_map(|window| {
                series(window).filter(|it| it.x <= rtt_micros()).map(move |it| (window, it.x, it.y))
            })
        };
        let plain = |window, x| window_bound(window, x);
        let off = within()
            .filter(|&(window, x, _)| plain(window, x) <= 0.7)
            .map(|(window, x, y)| (y / plain(window, x) - 1.0).abs());
        let between = within().map(|(window, x, y)| {
            let (low, high) = (queues_bound(window, x).min(plain(window, x)), plain(window, x));
            (low - y).max(y - high).max(0.0) / high
        });
        let first = points.at(&name(LAWS[0].1, 48), 0.0);
        vec![
            Claim::number(
                "1rma-16a-below-bdp",
                "48 KB, below the bandwidth-delay product, falls short without jitter",
                "goodput at 48 KiB without jitter, against window / (RTT × bandwidth)",
                first.unwrap_or(f64::NAN),
                0.79,
                0.03 / 0.79,
            ),
            Claim::at_least(
                "1rma-16a-no-jitter",
                "windows of the product and above fill the link without jitter",
                "the least goodput at 64 and 96 KiB without jitter",
                least(still),
                0.95,
            ),
            Claim::at_most(
                "1rma-16a-falls",
                "goodput drops with jitter",
                "the greatest rise from one jitter to the next, all windows and laws",
                most(rises),
                0.02,
            )
            .shape(),
            Claim::at_most(
                "1rma-16a-tolerant",
                "larger windows are more tolerant",
                "the greatest lead of a smaller window over the next larger, all jitters and laws",
                most(falls),
                0.02,
            )
            .shape(),
            Claim::at_most(
                "1rma-16a-theory",
                "up to a jitter of one RTT, and 0.7 of the link: window / ((RTT + jitter) × bandwidth)",
                "the greatest distance, relative; beyond 0.7 queues take up to 9 % more, which it leaves out",
                most(off),
                0.05,
            )
            .theory(),
            Claim::at_most(
                "1rma-16a-queues",
                "up to a jitter of one RTT: no more than that, and no less than with queues without any order",
                "the farthest outside of the two, relative",
                most(between),
                SLACK,
            )
            .theory(),
        ]
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let axes = Axes::linear("jitter each way, us", "goodput over the link's rate");
        let panels = LAWS.iter().map(|(law, called)| {
            let names = WINDOWS.map(|window| name(called, window));
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let mut panel = panel(points, &format!("{law:?} jitter"), axes, &names);
            let (y, name) = (0.786, "48 KB over RTT × bandwidth: 0.79".to_owned());
            panel.marks.push(Mark::Level { y, name });
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
            &Jitter,
            &[
                ("window 48 KiB", &[[0.0, 0.786], [3.0, 0.49], [8.0, 0.3]]),
                ("window 64 KiB", &[[0.0, 0.97], [3.0, 0.64], [8.0, 0.4]]),
                ("window 96 KiB", &[[0.0, 0.97], [3.0, 0.93], [8.0, 0.5]]),
            ],
        );
        assert!(broken(&Jitter, &good).is_empty());
        let fails = |window, x, y| broken(&Jitter, &with(&good, window, x, y));
        assert!(fails("window 48 KiB", 0.0, 0.759).contains(&"below-bdp".to_owned()));
        assert!(fails("window 48 KiB", 0.0, 0.821).contains(&"below-bdp".to_owned()));
        assert!(fails("window 96 KiB", 0.0, 0.949).contains(&"no-jitter".to_owned()));
        assert_eq!(fails("window 64 KiB", 8.0, 0.661), ["falls", "tolerant"]);
        assert_eq!(fails("window 96 KiB", 8.0, 0.379), ["tolerant"]);
        assert_eq!(fails("window 48 KiB", 3.0, 0.4668), ["theory"]);
        assert!(fails("window 64 KiB", 3.0, 0.68).contains(&"queues".to_owned()));
    }

    #[test]
    fn queues_take_nothing_from_a_window_of_one_op_and_a_link_is_never_more_than_full() {
        assert!((queues_bound(4, 2.0) / window_bound(4, 2.0) - 1.0).abs() < 0.02);
        assert!(queues_bound(96, 0.0) <= window_bound(96, 0.0));
        assert!((window_bound(96, 0.0) - full()).abs() < 1e-9);
    }
}
