//! Figure 11b on a real kernel: READs a second by the command slots that a client has (§7.2).

use rma_bench::{
    aead,
    client::Client,
    drawing::{Axis, Form, Panel, Picture, Scale as Places},
    error::PairError,
    pair::{Pair, PairConfig, Place},
    pipelined,
};
use rma_lab::{Lab, LabConfig};
use rma_xdp::OpType;

use crate::paper::{
    claims::{Claim, least},
    drawn::{curve, picture},
    figure::{About, Figure, FigureFailed, Kind},
    points::{MeasuredOn, Points, Value},
    run::Run,
};

/// The figure.
#[derive(Debug)]
pub(super) struct SlotsVeth;

const ROUNDS: u64 = 5;
/// READs in each round.
const COUNT: u64 = 30_000;

const RATE: &str = "READs of 64 B";

impl Figure for SlotsVeth {
    fn about(&self) -> About {
        About {
            id: "1rma-11b-veth",
            title: "READs a second by command slots, on a real kernel",
            says: "The rate of a client grows with the command slots that it has, until something else is full.",
            kind: Kind::Veth,
            seconds: 10,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let slots: &[u16] = run.pick(&[1, 4], &[1, 2, 4, 8, 16, 32, 64]);
        let lab =
            Lab::new(&LabConfig { mtu: 3400, ..LabConfig::default() }).map_err(PairError::from)?;
        let rounds = run.rounds(ROUNDS, || {
            let mut pair = Pair::open(Place::Lab(&lab), &PairConfig::patient())?;
            let mut portal = pair.client.host.portal(64).map_err(PairError::from)?;
            let rates = slots.iter().map(|&depth| {
                let counts = (COUNT / 10, COUNT);
                pair.run(|client: &mut Client| {
                    pipelined::ops_per_second(client, &mut portal, OpType::Read, depth, counts)
                })
            });
            Ok(rates.collect::<Result<Vec<f64>, PairError>>()?)
        })?;
        let value = |(index, &depth): (usize, &u16)| {
            let mut rates: Vec<f64> = rounds.iter().map(|it| it[index]).collect();
            Value::of(f64::from(depth), &mut rates)
        };
        let (values, rounds) = (slots.iter().enumerate().map(value).collect(), rounds.len() as u64);
        let mut points = Points::new(
            &self.about(),
            format!(
                "veth, MTU 3400, READs of 64 B, as many under way as there are slots; medians of {rounds} rounds of {COUNT}; {}",
                aead::words()
            ),
        );
        points.measured_on = Some(MeasuredOn::here(rounds));
        points.push(RATE, values);
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let few: Vec<f64> =
            points.of(RATE).iter().filter(|it| it.x <= 4.0).map(|it| it.y).collect();
        vec![
            Claim::at_least(
                "1rma-11b-veth-grows",
                "twice the slots give more READs, up to four",
                "the least rate(2 n) / rate(n), n = 1, 2",
                least(few.windows(2).map(|it| it[1] / it[0])),
                1.5,
            )
            .shape(),
        ]
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let curves = points.series.iter().enumerate();
        let panel = Panel {
            title: String::new(),
            x: Axis { name: "command slots", scale: Places::Bytes },
            y: Axis { name: "READs/s", scale: Places::Linear },
            curves: curves.map(|(place, it)| curve(it, place, Form::Marked)).collect(),
            marks: Vec::new(),
        };
        Some(picture(self, points, vec![panel]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_claim_fails_of_one_doubling_that_gives_too_little() {
        let holds = |rates: [f64; 3]| {
            let mut points = Points::new(&SlotsVeth.about(), "");
            let values = [1.0, 2.0, 4.0].into_iter().zip(rates);
            points.push(RATE, values.map(|(x, y)| Value::new(x, y)).collect());
            SlotsVeth.claims(&points)[0].holds
        };
        assert!(holds([1.0, 1.5, 2.25]) && !holds([1.0, 1.49, 3.0]) && !holds([1.0, 2.0, 2.9]));
    }
}
