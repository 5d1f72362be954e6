//! Figure 12 on a real kernel: small READs beside a large transfer, over a veth pair (§7.2).
//!
//! The simulation beside it has the paper's network; this has a software engine, whose turns take
//! what a wire takes there.

use rma_bench::{
    aead,
    client::Client,
    drawing::{Axis, Form, Mark, Panel, Picture, Scale as Places},
    error::PairError,
    pair::{Pair, PairConfig, Place},
};
use rma_lab::{Lab, LabConfig};

use crate::{
    paper::{
        claims::{Claim, most},
        drawn::{curve, picture},
        figure::{About, Figure, FigureFailed, Kind},
        points::{MeasuredOn, Points, Value},
        run::{Run, Scale},
    },
    transfers::Transfers,
};

/// The figure.
#[derive(Debug)]
pub(super) struct BesideVeth;

/// Rounds; each value is of them.
const ROUNDS: u64 = 5;
/// Small READs in each round.
const SMALL: u64 = 5_000;

const ALONE: &str = "alone, p99";
const P99: &str = "p99";

impl Figure for BesideVeth {
    fn about(&self) -> About {
        About {
            id: "1rma-12-veth",
            title: "Small READs beside a large transfer, on a real kernel",
            says: "Small ops beside a large transfer are delayed like one chunk of it, whatever its size.",
            kind: Kind::Veth,
            seconds: 20,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let sizes: &[u64] = match run.scale {
            Scale::Quick => &[1 << 20],
            Scale::Full => &[16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20],
        };
        let lab =
            Lab::new(&LabConfig { mtu: 3400, ..LabConfig::default() }).map_err(PairError::from)?;
        let rounds = run.rounds(ROUNDS, || {
            let mut pair = Pair::open(Place::Lab(&lab), &PairConfig::patient())?;
            let mut transfers = Transfers::open(&mut pair.client.host, None)?;
            let mut p99 = |beside| {
                let small =
                    |client: &mut Client| transfers.small(client, SMALL, beside, run.interrupt);
                Ok::<_, PairError>(pair.run(small)?.0.quantile_us(0.99))
            };
            let alone = p99(None)?;
            let beside = sizes.iter().map(|&size| p99(Some(size)));
            Ok((alone, beside.collect::<Result<Vec<f64>, _>>()?))
        })?;
        let mut alone: Vec<f64> = rounds.iter().map(|it| it.0).collect();
        let value = |(index, &size): (usize, &u64)| {
            let mut all: Vec<f64> = rounds.iter().map(|it| it.1[index]).collect();
            Value::of(size as f64, &mut all)
        };
        let (beside, rounds) = (sizes.iter().enumerate().map(value).collect(), rounds.len() as u64);
        let mut points = Points::new(
            &self.about(),
            format!(
                "veth, MTU 3400, 64 B READs one after the other beside READs of a size one after the other; medians of \
                 {rounds} rounds of {SMALL}; {}",
                aead::words()
            ),
        );
        points.measured_on = Some(MeasuredOn::here(rounds));
        points.push(P99, beside);
        points.number(ALONE, Value::of(0.0, &mut alone).y, "µs");
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let Some(alone) = points.value(ALONE) else { return Vec::new() };
        let value = most(points.of(P99).iter().map(|it| it.y)) / alone;
        vec![Claim::at_most(
            "1rma-12-veth-p99",
            "beside a transfer of any size small READs take a few times as long as alone",
            "the greatest p99 beside a transfer / p99 alone",
            value,
            4.0,
        )]
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let curves = points.series.iter().enumerate();
        let marks = points.value(ALONE);
        let marks = marks.map(|it| Mark::Level { y: it, name: format!("alone: {it} µs") });
        let panel = Panel {
            title: String::new(),
            x: Axis { name: "bytes of the large transfer", scale: Places::Bytes },
            y: Axis { name: "p99 of a small READ [µs]", scale: Places::Linear },
            curves: curves.map(|(index, it)| curve(it, index, Form::Marked)).collect(),
            marks: marks.into_iter().collect(),
        };
        Some(picture(self, points, vec![panel]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_claim_fails_of_one_size_that_delays_more() {
        let holds = |last: f64| {
            let mut points = Points::new(&BesideVeth.about(), "");
            points.push(P99, vec![Value::new(16_384.0, 20.0), Value::new(65_536.0, last)]);
            points.number(ALONE, 5.0, "µs");
            BesideVeth.claims(&points)[0].holds
        };
        assert!(holds(20.0) && !holds(20.1));
    }
}
