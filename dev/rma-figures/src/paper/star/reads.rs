//! Figure 1: READs a second over connections, of a NIC that fetches the states it does not hold.

use rma_bench::drawing::{Axis, Curve, Form, Mark, Panel, Picture, Point, Scale as AxisScale};
use rma_sim::star::model::{
    cache::Replacement,
    claims::{figure_1_penalty, knee},
    figures::{CX6_ENTRIES, FIGURE_1_AT_3000, Setting, figure_1},
};

use crate::paper::{
    claims::{Claim, most},
    figure::{About, Figure, FigureFailed, Kind},
    points::{Points, Value},
    run::{Run, Scale},
};

/// Numbers of connections.
const CONNECTIONS: [u32; 12] = [50, 100, 200, 300, PEAK, 450, 475, 500, 1000, 2000, 3000, 4000];
const QUICK: [u32; 4] = [PEAK, 475, 1000, 3000];
/// As many as have all their states there, and the peak.
const PEAK: u32 = 400;
/// How far the knee may be from the paper's.
const TOLERANCE: f64 = 0.15;
/// A rate that falls, falls by a hundredth at least.
const LESS: f64 = 0.99;

/// The rules that choose the state to evict, of which the paper names none.
const RULES: [(&str, Replacement); 2] = [
    ("the state used the longest time ago makes room", Replacement::LeastRecentlyUsed),
    ("any state makes room", Replacement::Random(1)),
];

/// READs of 32 B, one under way on each connection.
#[derive(Debug)]
pub(super) struct Reads;

/// The name of a rule's knee.
fn knee_of(rule: &str) -> String {
    format!("{rule}: most connections with 95 % of the peak")
}

/// How far a rule is at the farthest from what is asked, if all have a value.
fn of_all(value: impl Fn(&'static str) -> Option<f64>) -> Option<Vec<f64>> {
    RULES.iter().map(|&(rule, _)| value(rule)).collect()
}

impl Figure for Reads {
    fn about(&self) -> About {
        About {
            id: "star-1",
            title: "READs a second over connections",
            says: "the rate of READs starts to drop fast beyond 450 connections, and is below 70 % beyond 3000",
            kind: Kind::Model,
            seconds: 5,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let conditions = "100 Gbit/s, READs of 32 B, one under way on each connection; 450 states, 25 ns a frame; what a \
                          missing state costs is fitted, so that 70 % are left at 3000";
        let mut points = Points::new(&self.about(), conditions);
        let of = |replacement| Setting { replacement, ..Setting::default() };
        let penalties = run.each(&RULES, |&(_, rule)| figure_1_penalty(&of(rule)))?;
        let at = run.pick(&QUICK, &CONNECTIONS);
        for (&(name, rule), penalty) in RULES.iter().zip(penalties) {
            let Some(penalty) = penalty else { continue };
            let setting = of(rule);
            let rate = |&connections: &u32| figure_1(&setting, connections, penalty).calls_per_s;
            let rates = run.each(at, rate)?;
            let peak = rate(&PEAK);
            let values = at.iter().zip(rates).map(|(&at, it)| Value::new(at.into(), it / peak));
            points.push(name, values.collect());
            points.number(
                format!("a state that is not there, {name}, fitted"),
                penalty.as_micros() * 1e3,
                "ns",
            );
            if run.scale == Scale::Full {
                let found = knee(CX6_ENTRIES, |connections| rate(&connections));
                points.number(knee_of(name), found.connections.into(), "connections");
            }
        }
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let farthest = |all: Vec<f64>| {
            let off = |it: f64| (it / f64::from(CX6_ENTRIES) - 1.0).abs();
            all.into_iter().fold(f64::NAN, |a, b| if a.is_nan() || off(b) > off(a) { b } else { a })
        };
        let knees = of_all(|rule| points.value(&knee_of(rule))).map(|all| {
            Claim::number(
                "star-1-knee",
                "READs drop beyond 450 connections, whichever state makes room",
                "most connections with 95 % of the peak, the farther from 450",
                farthest(all),
                CX6_ENTRIES.into(),
                TOLERANCE,
            )
        });
        let left = of_all(|rule| points.at(rule, 3000.0)).map(|all| {
            Claim::number(
                "star-1-left",
                "less than 70 % are left beyond 3000 connections",
                "rate / peak at 3000, the greater",
                most(all),
                FIGURE_1_AT_3000,
                0.02,
            )
            .paper("below 0.70")
            .fitted()
        });
        let slope = of_all(|rule| Some(points.at(rule, 3000.0)? / points.at(rule, 1000.0)?));
        let slope = slope.map(|all| {
            Claim::at_most(
                "star-1-slope",
                "the rate falls on up to 3000 connections, whichever state makes room",
                "rate at 3000 / rate at 1000, the greater",
                most(all),
                LESS,
            )
            .shape()
        });
        [knees, left, slope].into_iter().flatten().collect()
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let curves = points.series.iter().enumerate().map(|(colour, series)| Curve {
            name: series.name.clone(),
            colour,
            dash: 0,
            form: Form::Marked,
            points: series.values.iter().map(|it| Point::new(it.x, it.y)).collect(),
        });
        let entries = f64::from(CX6_ENTRIES);
        let panel = Panel {
            title: String::new(),
            x: Axis { name: "connections", scale: AxisScale::Linear },
            y: Axis { name: "READs a second, of the peak", scale: AxisScale::Linear },
            curves: curves.collect(),
            marks: vec![
                Mark::Place { x: entries, name: "paper: drops beyond 450".to_owned() },
                Mark::Value {
                    x: 3000.0,
                    y: FIGURE_1_AT_3000,
                    name: "paper: below 0.70".to_owned(),
                },
            ],
        };
        Some(Picture {
            title: self.about().title.to_owned(),
            conditions: points.conditions.clone(),
            panels: vec![panel],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_of_whichever_rule_refutes_them() {
        let failing = |knees: [f64; 2], left: [f64; 2]| {
            let mut points = Points::new(&Reads.about(), "");
            for ((rule, _), (knee, left)) in RULES.into_iter().zip(knees.into_iter().zip(left)) {
                points.push(rule, vec![Value::new(1000.0, 0.7), Value::new(3000.0, left)]);
                points.number(knee_of(rule), knee, "");
            }
            let failing = Reads.claims(&points).into_iter().filter(|it| !it.holds);
            failing.map(|it| it.id).collect::<Vec<_>>()
        };
        assert!(failing([450.0, 500.0], [0.69, 0.69]).is_empty());
        assert_eq!(failing([450.0, 518.0], [0.69, 0.69]), ["star-1-knee"]);
        assert_eq!(failing([380.0, 450.0], [0.69, 0.69]), ["star-1-knee"]);
        assert_eq!(failing([450.0, 450.0], [0.69, 0.698]), ["star-1-slope"]);
    }
}
