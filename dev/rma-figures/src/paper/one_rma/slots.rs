//! Figure 11b: the rate of a client by the command slots that it has (§7.2).

use rma_bench::drawing::{Mark, Picture};
use rma_sim::flows::{
    report::Report,
    workload::{Fabric, Front, Retry, Workload},
};

use super::simulated::{
    Axes, COMMON, OP, one_panel, reports, rtt_micros, time_for, value, whole_link,
};
use crate::paper::{
    claims::{Claim, least, most},
    figure::{About, Figure, FigureFailed, Kind},
    points::Points,
    run::Run,
};

/// The figure.
#[derive(Debug)]
pub(super) struct Slots;

const SEEDS: u64 = 5;
/// Ops that the link could carry in each point, of all seeds.
const OPS: u64 = 20_000;

const RATE: &str = "READs of 4 KiB";

/// So many ops an RTT, as a part of the link.
fn theory(slots: f64) -> f64 {
    slots * OP as f64 / 12_500.0 / rtt_micros()
}

impl Figure for Slots {
    fn about(&self) -> About {
        About {
            id: "1rma-11b",
            title: "Rate by command slots",
            says: "The rate of a client scales with the command slots that it has.",
            kind: Kind::Simulation,
            seconds: 6,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let slots: &[u16] =
            run.pick(&[1, 8, 12, 20], &[1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32]);
        let all = reports(run, slots, SEEDS, |&slots| {
            let front = Front::Nic { retry: Retry::Never, slots };
            let length = time_for(OPS / SEEDS, 1, 1.0);
            Workload::of(&whole_link(), front, Fabric::paper(256 << 10), length)
        })?;
        let mut points = Points::new(
            &self.about(),
            format!(
                "a client that always has a READ of 4 KiB to issue, window 256 KiB, no congestion control, {COMMON}; \
                 {} seeds; payload over the link's rate",
                run.seeds(SEEDS).count()
            ),
        );
        let of = slots.iter().zip(&all);
        points.push(RATE, of.map(|(&x, it)| value(x.into(), it, Report::payload)).collect());
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let values = || points.of(RATE).iter();
        let off = values().filter(|it| it.x <= 12.0).map(|it| (it.y / theory(it.x) - 1.0).abs());
        let full = values().filter(|it| it.x >= 20.0).map(|it| it.y);
        vec![
            Claim::at_most(
                "1rma-11b-scales",
                "the rate scales with slots: n × 4 KiB / RTT",
                "the greatest distance from it up to 12 slots, relative",
                most(off),
                0.1,
            )
            .shape(),
            Claim::at_least(
                "1rma-11b-full",
                "more slots than an RTT has ops fill the link",
                "the least part of the link from 20 slots",
                least(full),
                0.95,
            ),
        ]
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let axes = Axes::linear("command slots", "payload over the link's rate");
        let mut picture = one_panel(self, points, axes);
        let (y, name) = (theory(8.0), "8 × 4 KiB / RTT".to_owned());
        picture.panels.iter_mut().for_each(|it| {
            it.marks.push(Mark::Value { x: 8.0, y, name: name.clone() });
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
        let good = points(&Slots, &[(RATE, &[[1.0, 0.066], [12.0, 0.786], [20.0, 0.95]])]);
        assert!(broken(&Slots, &good).is_empty());
        let fails = |x, y| broken(&Slots, &with(&good, RATE, x, y));
        assert_eq!(fails(12.0, 0.706), ["scales"]);
        assert_eq!(fails(1.0, 0.0723), ["scales"]);
        assert_eq!(fails(20.0, 0.949), ["full"]);
    }
}
