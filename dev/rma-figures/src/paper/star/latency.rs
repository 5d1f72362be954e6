//! Figures 11a and 11b: how long a call takes over connections.

use rma_bench::drawing::{Mark, Picture};
use rma_sim::star::model::{claims::linearity, figures::Curve, load::Workload};

use super::curves::{self, ENGINES, MOST, OUR_FRAMES, over};
use crate::paper::{
    claims::{Claim, least, most},
    figure::{About, Figure, FigureFailed, Kind},
    points::Points,
    run::Run,
};

/// How far a number may be from the paper's, and engines from the model.
const TOLERANCE: f64 = 0.15;
/// The least fit to a line of what grows almost linearly.
const LINEAR: f64 = 0.98;
/// The time from a post to the turn that sends it, in microseconds: part of a call by our engines'
/// clocks. The model begins a call where it has passed.
const POSTED: f64 = 1.0;

/// A workload, and how many times StaR's latency the others have in the paper at 400 connections.
#[derive(Debug)]
pub(super) struct Latency {
    id: &'static str,
    workload: Workload,
    over_star: &'static [(Curve, f64)],
}

pub(super) const RPC: Latency = Latency {
    id: "star-11a",
    workload: Workload::Rpc,
    over_star: &[(Curve::Rdma, 1.5), (Curve::RdmaOnFpga, 2.9)],
};
pub(super) const ML: Latency = Latency {
    id: "star-11b",
    workload: Workload::Ml,
    over_star: &[(Curve::Rdma, 1.6), (Curve::RdmaOnFpga, 3.2), (Curve::ScalaRdma, 1.5)],
};

const STAR: &str = Curve::STAR.name();

impl Latency {
    /// Whether StaR's latencies lie on a line.
    fn is_linear(&self, points: &Points) -> Option<Claim> {
        let fit = |name| {
            let values = points.of(name);
            let at: Vec<f64> = values.iter().map(|it| it.x).collect();
            let values: Vec<f64> = values.iter().map(|it| it.y).collect();
            (at.len() > 2).then(|| linearity(&at, &values))
        };
        let fits = [fit(STAR)?, fit(Curve::FAITHFUL.name())?];
        let claim = Claim::at_least(
            &format!("{}-linear", self.id),
            "StaR's latency grows almost linearly with connections",
            "R2 of a line through StaR's latencies, the lesser of our frames' order and the paper's",
            least(fits),
            LINEAR,
        );
        Some(claim.shape().paper("almost"))
    }

    /// Whether the shipped engines are as the model says.
    fn is_as_modelled(&self, points: &Points) -> Option<Claim> {
        let engines = points.of(ENGINES).iter();
        let off = engines.filter_map(|it| {
            let model = points.at(OUR_FRAMES, it.x)? + POSTED;
            Some((it.y / model - 1.0).abs())
        });
        let off: Vec<f64> = off.collect();
        let claim = Claim::at_most(
            &format!("{}-engines", self.id),
            "a call of the shipped engines takes as long as in the model of our frames",
            "most of |engines / (model + 1 us from a post to its turn) - 1| over all connections",
            most(off.iter().copied()),
            TOLERANCE,
        );
        (!off.is_empty()).then(|| claim.theory())
    }
}

impl Figure for Latency {
    fn about(&self) -> About {
        let (title, says) = match self.workload {
            Workload::Ml => (
                "Latency of a call of machine learning over connections",
                "with 400 connections RDMA takes 1.6 times StaR's time, on FPGA 3.2, ScalaRDMA 1.5",
            ),
            _ => (
                "Latency of a call of RPC over connections",
                "StaR's latency grows almost linearly; with 400 connections RDMA takes 1.5 times as long, on FPGA 2.9",
            ),
        };
        About { id: self.id, title, says, kind: Kind::Model, seconds: 2 }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let mut points = curves::empty(&self.about());
        curves::add(&mut points, run, self.workload, |it| it.latency_us)?;
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let ratios = self.over_star.iter().map(|&(curve, paper)| {
            let name = curve.name();
            let short = match curve {
                Curve::Rdma => "rdma",
                Curve::ScalaRdma => "scala",
                _ => "fpga",
            };
            over(points, name, STAR, MOST).map(|ratio| {
                Claim::number(
                    &format!("{}-{short}", self.id),
                    &format!("a call by {name} takes {paper} times as long with 400 connections"),
                    &format!("{name} / StaR at 400"),
                    ratio,
                    paper,
                    TOLERANCE,
                )
            })
        });
        let others = [self.is_linear(points), self.is_as_modelled(points)];
        ratios.chain(others).flatten().collect()
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let mut panels = curves::panels(points, "a call, us");
        let [of_paper, ..] = &mut panels[..] else { return None };
        for &(curve, paper) in self.over_star {
            let at = |name| points.at(name, MOST.into());
            if let (Some(ours), Some(baseline)) = (at(STAR), at(curve.name())) {
                of_paper.marks.push(Mark::Ratio {
                    x: MOST.into(),
                    between: [ours, baseline],
                    name: format!("{:.2} x, paper {paper} x", baseline / ours),
                });
            }
        }
        let About { title, .. } = self.about();
        Some(Picture { title: title.to_owned(), conditions: points.conditions.clone(), panels })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::points::Value;

    #[test]
    fn each_claim_fails_by_the_least_that_makes_it_false() {
        let failing = |changed: &str, at: usize, value: f64| {
            let curves = [
                (STAR, [10.0, 20.0, 30.0]),
                (Curve::FAITHFUL.name(), [20.0, 40.0, 60.0]),
                (Curve::Rdma.name(), [10.0, 20.0, 45.0]),
                (Curve::RdmaOnFpga.name(), [10.0, 20.0, 87.0]),
                (OUR_FRAMES, [9.0, 19.0, 29.0]),
                (ENGINES, [10.0, 20.0, 30.0]),
            ];
            let mut points = Points::new(&RPC.about(), "");
            for (name, mut values) in curves {
                if name == changed {
                    values[at] = value;
                }
                let values = [100.0, 250.0, 400.0].into_iter().zip(values);
                points.push(name, values.map(|(x, y)| Value::new(x, y)).collect());
            }
            let failing = RPC.claims(&points).into_iter().filter(|it| !it.holds);
            failing.map(|it| it.id).collect::<Vec<_>>()
        };
        assert!(failing("", 0, 0.0).is_empty());
        assert_eq!(failing(Curve::Rdma.name(), 2, 52.0), ["star-11a-rdma"]);
        assert_eq!(failing(Curve::RdmaOnFpga.name(), 2, 73.0), ["star-11a-fpga"]);
        assert_eq!(failing(Curve::FAITHFUL.name(), 2, 90.0), ["star-11a-linear"]);
        assert_eq!(failing(ENGINES, 0, 11.6), ["star-11a-engines"]);
    }
}
