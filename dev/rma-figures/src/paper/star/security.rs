//! Figure 12: calls a second with the paper's security module and without it, and ours beside
//! them, measured on shipped engines that are joined by memory.

use rma_bench::{
    aead,
    drawing::{Axis, Curve, Form, Panel, Picture, Point, Scale as AxisScale},
    pair::{cores, pinned},
    rates::Rates as OfRounds,
};

use crate::{
    paper::{
        claims::{Claim, least},
        figure::{About, Figure, FigureFailed, Kind},
        points::{MeasuredOn, Points, Value},
        run::Run,
    },
    stations::security::{Workload, measure},
};

/// Numbers of connections: the paper's axis ends at 400.
const CONNECTIONS: [u32; 7] = [1, 8, 40, 120, 240, 320, 400];
const QUICK: [u32; 2] = [8, 400];
/// Rounds of each. An odd number has a middle one.
const ROUNDS: u64 = 21;
/// The paper says *almost the same*, and no number: a ratio of this is meant to be that.
const ALMOST: f64 = 0.95;

/// The names of the forms, in the order in which they are measured.
const NAMES: [&str; 3] = ["without security", "whitelists", "whitelists and AES-128-GCM"];
/// The names of what is compared round by round.
const WHITELISTS: &str = "whitelists over without";
const SEALED: &str = "sealed over whitelists";

/// RPC of eight stateful sides.
#[derive(Debug)]
pub(super) struct Security;

fn value(connections: u32, rounds: &OfRounds) -> Value {
    Value::of(connections.into(), &mut rounds.all().to_vec())
}

impl Figure for Security {
    fn about(&self) -> About {
        About {
            id: "star-12",
            title: "Calls of RPC a second, with and without security",
            says: "throughput is almost the same with and without the security module",
            kind: Kind::Memory,
            seconds: 15,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let rounds = run.seeds.unwrap_or(ROUNDS);
        let conditions = format!(
            "engines and libraries of 8 stateful sides and a stateless one in one thread, joined by memory; a PD and an MR a \
             connection; the first two forms are the paper's and authenticate nothing; {rounds} rounds in turns; {}",
            aead::words()
        );
        let mut points = Points::new(&self.about(), conditions);
        points.measured_on = Some(MeasuredOn::here(rounds));
        let mut series = [const { Vec::new() }; 5];
        for &connections in run.pick(&QUICK, &CONNECTIONS) {
            if run.interrupt.is_set() {
                return Err(FigureFailed::Interrupted);
            }
            let it = pinned(cores().1, || {
                measure(Workload::Rpc, connections, aead::chosen(), rounds as usize)
            });
            let [bare, listed, sealed] = &it.rates;
            let compared = [listed.over_each(bare), sealed.over_each(listed)];
            let all = it.rates.iter().chain(&compared);
            series.iter_mut().zip(all).for_each(|(series, it)| series.push(value(connections, it)));
        }
        let names = NAMES.into_iter().chain([WHITELISTS, SEALED]);
        names.zip(series).for_each(|(name, values)| points.push(name, values));
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let ratios = points.of(WHITELISTS);
        let claim = || {
            Claim::at_least(
                "star-12-whitelists",
                "throughput with whitelists is almost that without",
                "least of the medians of whitelists / without over all connections",
                least(ratios.iter().map(|it| it.y)),
                ALMOST,
            )
            .paper("almost")
        };
        (!ratios.is_empty()).then(claim).into_iter().collect()
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let curves = NAMES.into_iter().enumerate().map(|(colour, name)| Curve {
            name: name.to_owned(),
            colour,
            dash: 0,
            form: Form::Marked,
            points: points
                .of(name)
                .iter()
                .map(|it| Point { interval: it.interval, ..Point::new(it.x, it.y) })
                .collect(),
        });
        let panel = Panel {
            title: String::new(),
            x: Axis { name: "connections", scale: AxisScale::Log },
            y: Axis { name: "calls a second", scale: AxisScale::Linear },
            curves: curves.collect(),
            marks: Vec::new(),
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
    fn the_claim_is_of_the_worst_of_all() {
        let holds = |ratios: [f64; 2]| {
            let mut points = Points::new(&Security.about(), "");
            points.push(WHITELISTS, ratios.map(|it| Value::new(1.0, it)).into());
            Security.claims(&points)[0].holds
        };
        assert!(holds([0.99, 0.95]) && !holds([0.99, 0.949]));
    }
}
