//! Figure 14: what a reader that never pauses sees when a key is rotated, and what a connection
//! would do in its place.

mod connection;

use core::time::Duration;

use rma_bench::{
    aead,
    amount::Amount,
    drawing::{Axis, Curve, Form, Mark, Panel, Picture, Point, Scale},
    error::PairError,
    pair::{Pair, PairConfig, Place},
    rotation::{By, NextGrant, Op, beside_reads},
};
use rma_lab::{Lab, LabConfig};
use rma_xdp::config::{NicConfigBuilder, Timing};

use crate::paper::{
    claims::{Claim, least},
    figure::{About, Figure, FigureFailed, Kind},
    points::{MeasuredOn, Points, Value},
    run::Run,
};

/// Rotations of each way. An odd number has a middle one.
const ROTATIONS: u64 = 31;
/// READs alone, whose time a gap is held against.
const READS: u64 = 5_000;
/// The NICs' timeout: a core that the scheduler takes away fails no op.
const PATIENT: Duration = Duration::from_secs(2);
const MTU: u32 = 3400;
/// The time that is drawn before the change and after the gap, in microseconds.
const AROUND: f64 = 300.0;
/// The most of a READ that a gap may take, and how much longer a connection must take.
const OF_READ: f64 = 1.5;
const LONGER: f64 = 20.0;

/// The three ways, and what the paper has of each.
const WAYS: [(&str, &str); 3] = [
    ("the region's host installs a key", "27 us, by the driver"),
    ("a third party's Rekey op", "less than 1 us"),
    ("a connection anew, TCP and TLS 1.3", "more than 2 ms"),
];
const READ: &str = "READ of 64 B alone, p50";
const OTHERS: &str = "failed reads of another region meanwhile";

/// Probes of 64 B.
#[derive(Debug)]
pub(super) struct Rotation;

fn gap(way: &str) -> String {
    format!("unavailable: {way}, p50")
}

/// A probe, with times in microseconds from when the first one that failed was issued.
#[derive(Clone, Copy, Debug)]
struct Probe {
    issued: f64,
    took: f64,
}

impl Rotation {
    /// Adds the probes around a rotation, those that failed among them; times begin where the
    /// picture does.
    fn push(points: &mut Points, way: &'static str, gap: f64, probes: &[Probe]) {
        let shown = probes.iter().filter(|it| (-AROUND..gap + AROUND).contains(&it.issued));
        points.push(way, shown.map(|it| Value::new(it.issued + AROUND, it.took)).collect());
    }
}

impl Figure for Rotation {
    fn about(&self) -> About {
        About {
            id: "1rma-14",
            title: "Unavailability while a key is rotated",
            says: "a connection is broken for more than 2 ms; by the driver the region is unavailable for 27 us, by Rekey for \
                   less than 1 us; reads of other regions see nothing",
            kind: Kind::Veth,
            seconds: 20,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let rotations = run.seeds.unwrap_or(ROTATIONS);
        let conditions = format!(
            "veth MTU {MTU}; {rotations} rotations of each way, the one with the median gap drawn; next grants at hand; probes of \
             64 B without pause; the connection: mutual TLS 1.3, no resumption; {}",
            aead::words()
        );
        let mut points = Points::new(&self.about(), conditions);
        points.measured_on = Some(MeasuredOn::here(rotations));
        let lab = Lab::new(&LabConfig { mtu: MTU, ..LabConfig::default() });
        let lab = lab.map_err(PairError::from)?;
        let place = Place::Lab(&lab);
        let timing = Timing::software(Duration::from_micros(10), PATIENT);
        let nic = NicConfigBuilder::default().with(|it| it.timing = timing);
        let mut pair = Pair::open(place, &PairConfig { nic, ..PairConfig::default() })?;
        let kinds = [By::Host, By::RekeyOp].map(|by| (by, NextGrant::Beforehand));
        let amounts = (Amount { count: rotations, rounds: 1 }, READS);
        let (reads, seen) = beside_reads(&mut pair, place, &kinds, amounts, run.interrupt)?;
        points.number(READ, reads.quantile_us(0.5), "us");
        for ((way, _), rotations) in WAYS.into_iter().zip(&seen) {
            let gap_us = rotations.gaps.quantile_us(0.5);
            let ops = rotations.ops();
            let probes = ops.iter().filter(|it| it.what == "reader").map(|op| {
                let Op { issued_us, completed_us, .. } = *op;
                Probe { issued: issued_us, took: completed_us - issued_us }
            });
            Self::push(&mut points, way, gap_us, &probes.collect::<Vec<_>>());
            points.number(gap(way), gap_us, "us");
        }
        points.number(OTHERS, seen.iter().map(|it| it.other_failed).sum::<u64>() as f64, "");
        let [.., (way, _)] = WAYS;
        let to = pair.client.grants.get(rma_xdp::OpType::Read)?.responder.ip();
        let broken = connection::probe(&lab, to, rotations, run.interrupt)?;
        Self::push(&mut points, way, broken.gap, &broken.probes);
        points.number(gap(way), broken.gap, "us");
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let gaps: Option<Vec<f64>> = WAYS.iter().map(|(way, _)| points.value(&gap(way))).collect();
        let (Some(gaps), Some(read)) = (gaps, points.value(READ)) else { return Vec::new() };
        let [host, rekey, connection] = gaps[..] else { return Vec::new() };
        let of_read = |id: &str, says: &str, gap: f64| {
            let formula = "p50 of the gap / p50 of a READ alone";
            Claim::at_most(&format!("1rma-14-{id}"), says, formula, gap / read, OF_READ)
        };
        let mut claims = vec![
            of_read("host", "where the host installs a key, the next READ but one succeeds", host),
            of_read("rekey", "by a Rekey op too", rekey).paper(WAYS[1].1),
            Claim::at_least(
                "1rma-14-connection",
                "a connection that is set up anew is unavailable for far longer",
                "p50 of its gap / the longer of the others",
                least([connection / host, connection / rekey]),
                LONGER,
            )
            .shape(),
        ];
        claims.extend(points.value(OTHERS).map(|failed| {
            let says = "reads of other regions see nothing of it";
            Claim::at_most(
                "1rma-14-others",
                says,
                "reads of another region that failed",
                failed,
                0.0,
            )
        }));
        claims
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let curve = |name: &str, words: &str, colour| Curve {
            name: words.to_owned(),
            colour,
            dash: 0,
            form: Form::Marks,
            points: points.of(name).iter().map(|it| Point::new(it.x, it.y)).collect(),
        };
        let panels = WAYS.map(|(way, paper)| {
            let here = points.value(&gap(way)).unwrap_or(f64::NAN);
            Panel {
                title: format!("{way}: {here:.0} us (paper: {paper})"),
                x: Axis { name: "when a probe is issued, us", scale: Scale::Linear },
                y: Axis { name: "a probe, us", scale: Scale::Log },
                curves: vec![curve(way, "probes", 0)],
                marks: vec![Mark::Place { x: AROUND, name: "first that fails".to_owned() }],
            }
        });
        Some(Picture {
            title: self.about().title.to_owned(),
            conditions: points.conditions.clone(),
            panels: panels.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_claim_fails_by_the_least() {
        let failing = |gaps: [f64; 3], others| {
            let mut points = Points::new(&Rotation.about(), "");
            points.number(READ, 10.0, "");
            points.number(OTHERS, others, "");
            WAYS.into_iter().zip(gaps).for_each(|((way, _), it)| points.number(gap(way), it, ""));
            let failing = Rotation.claims(&points).into_iter().filter(|it| !it.holds);
            failing.map(|it| it.id).collect::<Vec<_>>()
        };
        assert!(failing([15.0, 15.0, 300.0], 0.0).is_empty());
        assert_eq!(failing([15.1, 15.0, 310.0], 0.0), ["1rma-14-host"]);
        assert_eq!(failing([15.0, 15.1, 310.0], 0.0), ["1rma-14-rekey"]);
        assert_eq!(failing([15.0, 10.0, 299.0], 0.0), ["1rma-14-connection"]);
        assert_eq!(failing([15.0, 15.0, 300.0], 1.0), ["1rma-14-others"]);
    }
}
