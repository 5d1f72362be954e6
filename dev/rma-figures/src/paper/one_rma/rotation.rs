//! Figure 14: the unavailability of a region whose key is rotated, as a client sees it that reads
//! without a pause (§7.3).
//!
//! Three ways: the region's host installs the key; a third party does, by the Rekey op; and what a
//! connection would do, which is measured as well: TCP and TLS 1.3 set up anew, with certificates
//! at both ends, until the first answer is there. In the first two, the client has the grant under
//! the next key before.

use rma_bench::{
    aead,
    amount::Amount,
    drawing::{Axis, Form, Mark, Panel, Picture, Scale as Places},
    pair::{Pair, PairConfig, Place},
    rotation::{By, NextGrant, Rotations, beside_reads},
};
use rma_lab::{Lab, LabConfig};
use rma_xdp::config::{NicConfigBuilder, Timing};

use core::time::Duration;

use crate::{
    key_service,
    paper::{
        claims::{Claim, most},
        drawn::{curve, picture},
        figure::{About, Figure, FigureFailed, Kind},
        points::{MeasuredOn, Points, Value},
        run::Run,
    },
};

/// The figure.
#[derive(Debug)]
pub(super) struct Rotation;

/// Rotations of each way.
const ROTATIONS: u64 = 31;
/// READs in each round beside them, and rounds.
const READS: Amount = Amount { count: 31_000, rounds: ROTATIONS };

/// A core that the scheduler takes away fails no op, so what fails does so for the key.
const PATIENT: Duration = Duration::from_secs(2);

const WAYS: [(&str, By); 2] = [("the region's host", By::Host), ("a Rekey op", By::RekeyOp)];
const CONNECTION: &str = "TCP and TLS 1.3 anew";

const READ: &str = "READ p50";
const OTHERS: &str = "READs of another region that failed";

impl Figure for Rotation {
    fn about(&self) -> About {
        About {
            id: "1rma-14",
            title: "Unavailability while an encryption key is rotated",
            says: "To reconnect takes more than 2 ms, a rotation by the driver about 27 µs, and by the Rekey op \
                   less than 1 µs.",
            kind: Kind::Veth,
            seconds: 10,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let lab = Lab::new(&LabConfig { mtu: 3400, ..LabConfig::default() })
            .map_err(rma_bench::error::PairError::from)?;
        let place = Place::Lab(&lab);
        let nic = NicConfigBuilder::default()
            .with(|it| it.timing = Timing::software(Duration::from_micros(10), PATIENT));
        let mut pair = Pair::open(place, &PairConfig { nic, ..PairConfig::default() })?;
        let kinds = WAYS.map(|(_, by)| (by, NextGrant::Beforehand));
        let amounts = (Amount { count: ROTATIONS, rounds: ROTATIONS }, READS.count / READS.rounds);
        let (reads, rotations) = beside_reads(&mut pair, place, &kinds, amounts, run.interrupt)?;
        drop(pair);
        let mut points = Points::new(
            &self.about(),
            format!(
                "veth, MTU 3400, READs of 64 B without a pause, {ROTATIONS} rotations a way, next grants at hand; {}; \
                 reconnecting over loopback, certificates at both ends",
                aead::words()
            ),
        );
        points.measured_on = Some(MeasuredOn::here(ROTATIONS));
        points.number(READ, reads.quantile_us(0.5), "µs");
        let mut failed = 0;
        for ((name, _), of) in WAYS.iter().zip(&rotations) {
            points.push(*name, history(of));
            points.number(format!("gap by {name}, p50"), of.gaps.quantile_us(0.5), "µs");
            points.number(format!("gap by {name}, longest"), of.gaps.max_us(), "µs");
            failed += of.other_failed;
        }
        let mut anew = key_service::reconnects(ROTATIONS as usize);
        points.number(format!("gap by {CONNECTION}, p50"), Value::of(0.0, &mut anew).y, "µs");
        points.number(OTHERS, failed as f64, "READs");
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let (Some(read), Some(connection), Some(others)) = (
            points.value(READ),
            points.value(&format!("gap by {CONNECTION}, p50")),
            points.value(OTHERS),
        ) else {
            return Vec::new();
        };
        let gaps = WAYS.map(|(name, _)| points.value(&format!("gap by {name}, p50")));
        let slowest = most(gaps.map(|it| it.unwrap_or(f64::NAN)));
        vec![
            Claim::at_most(
                "1rma-14-gap",
                "a rotation costs a reader less than one and a half READs",
                "the longer p50 of both ways / READ p50",
                slowest / read,
                1.5,
            ),
            Claim::at_least(
                "1rma-14-reconnect",
                "to connect anew takes far longer than either",
                "p50 of TCP and TLS anew / the longer p50 of both ways",
                connection / slowest,
                20.0,
            )
            .paper("> 2 ms against 27 µs and < 1 µs")
            .shape(),
            Claim::at_most(
                "1rma-14-others",
                "no READ of another region fails",
                "READs of another region that failed",
                others,
                0.0,
            ),
        ]
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let curves = points.series.iter().enumerate();
        let curves = curves.map(|(index, it)| curve(it, index, Form::Marks)).collect();
        let marks = points.value(&format!("gap by {CONNECTION}, p50")).map(|anew| Mark::Level {
            y: anew,
            name: format!("{CONNECTION}: {anew} µs; paper: > 2 ms"),
        });
        let panel = Panel {
            title: String::new(),
            x: Axis {
                name: "µs since the first READ that failed was issued",
                scale: Places::Linear,
            },
            y: Axis { name: "µs a READ takes", scale: Places::Log },
            curves,
            marks: marks.into_iter().collect(),
        };
        Some(picture(self, points, vec![panel]))
    }
}

/// The reader's READs around the rotation whose gap is the median, from 50 µs before on.
fn history(rotations: &Rotations) -> Vec<Value> {
    let ops = rotations.ops();
    let own = ops.iter().filter(|op| op.what == "reader" && op.ok && op.issued_us > -50.0);
    own.map(|op| Value::new(op.issued_us + 50.0, op.completed_us - op.issued_us)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_fail_of_the_least_value_beyond_them() {
        let holds = |gaps: [f64; 2], anew: f64, others: f64| {
            let mut points = Points::new(&Rotation.about(), "");
            points.number(READ, 2.0, "µs");
            for ((name, _), gap) in WAYS.iter().zip(gaps) {
                points.number(format!("gap by {name}, p50"), gap, "µs");
            }
            points.number(format!("gap by {CONNECTION}, p50"), anew, "µs");
            points.number(OTHERS, others, "READs");
            Rotation.claims(&points).iter().map(|it| it.holds).collect::<Vec<_>>()
        };
        assert_eq!(holds([3.0, 2.0], 60.0, 0.0), [true, true, true]);
        assert_eq!(holds([2.0, 3.01], 61.0, 0.0), [false, true, true]);
        assert_eq!(holds([3.0, 2.0], 59.9, 1.0), [true, false, false]);
    }
}
