//! Figures 10a and 10b: the throughput of calls over connections, of what the link carries.

use rma_bench::drawing::{Mark, Picture};
use rma_sim::star::model::{
    claims::{knee, penalty_for_ratio},
    figures::{CX3_ENTRIES, Curve, FPGA_ENTRIES, OCTET, Setting},
    frames::MESSAGE,
    load::{MESSAGES, Workload},
};

use super::curves::{self, ENGINES, MOST, OUR_FRAMES, over, ratios};
use crate::paper::{
    claims::{Claim, least, most},
    figure::{About, Figure, FigureFailed, Kind},
    points::Points,
    run::{Run, Scale},
};

/// How far a number may be from the paper's, and engines from the model.
const TOLERANCE: f64 = 0.15;
/// Connections that are few.
const FEW: f64 = 8.0;
/// Connections beyond which ScalaRDMA drops in the paper, for machine learning.
const SCALA_ENTRIES: u32 = 260;

/// A workload, and the paper's numbers at 400 connections.
#[derive(Debug)]
pub(super) struct Throughput {
    id: &'static str,
    workload: Workload,
    /// How many times as much StaR carries as RDMA on FPGA, and as RDMA.
    over_fpga: f64,
    over_rdma: f64,
}

pub(super) const RPC: Throughput =
    Throughput { id: "star-10a", workload: Workload::Rpc, over_fpga: 4.13, over_rdma: 2.2 };
pub(super) const ML: Throughput =
    Throughput { id: "star-10b", workload: Workload::Ml, over_fpga: 2.9, over_rdma: 1.4 };

const STAR: &str = Curve::STAR.name();
const FPGA: &str = Curve::RdmaOnFpga.name();
const RDMA: &str = Curve::Rdma.name();
const SCALA: &str = Curve::ScalaRdma.name();

impl Throughput {
    /// The curves that fall, and behind how many connections the paper says that they do.
    fn knees(&self) -> Vec<(Curve, u32)> {
        let mut all = vec![(Curve::RdmaOnFpga, FPGA_ENTRIES), (Curve::Rdma, CX3_ENTRIES)];
        if self.workload == Workload::Ml {
            all.push((Curve::ScalaRdma, SCALA_ENTRIES));
        }
        all
    }

    /// The baselines, and how many times as much StaR carries in the paper.
    const fn baselines(&self) -> [(Curve, f64); 2] {
        [(Curve::RdmaOnFpga, self.over_fpga), (Curve::Rdma, self.over_rdma)]
    }

    /// Adds knees, and the penalties that would give the paper's ratios.
    fn add_numbers(&self, points: &mut Points, run: &Run<'_>) -> Result<(), FigureFailed> {
        let (setting, workload) = (Setting::default(), self.workload);
        let knees = self.knees();
        let found = run.each(&knees, |&(curve, entries)| {
            let rate = |connections| curve.run(&setting, workload, connections).calls_per_s;
            knee(entries, rate).connections
        })?;
        for ((curve, _), found) in knees.iter().zip(found) {
            points.number(knee_of(curve.name()), found.into(), "connections");
        }
        let baselines = self.baselines();
        let penalties = run.each(&baselines, |&(curve, paper)| {
            penalty_for_ratio(&setting, (Curve::STAR, curve), paper, workload, MOST)
        })?;
        for ((curve, paper), penalty) in baselines.iter().zip(penalties) {
            // Where none would, there is no number.
            if let Some(penalty) = penalty {
                let name = format!("a missing state of {} that would give {paper}", curve.name());
                points.number(name, penalty.as_micros(), "us");
            }
        }
        Ok(())
    }

    /// The claims that only one of the workloads has.
    fn of_scala(&self, points: &Points) -> Vec<Option<Claim>> {
        if self.workload == Workload::Rpc {
            let level = least(ratios(points, SCALA, STAR).map(|it| it.ratio));
            let claim = Claim::at_least(
                &format!("{}-scala", self.id),
                "ScalaRDMA keeps StaR's peak at every number of connections",
                "least of ScalaRDMA / StaR over all connections",
                level,
                1.0 - TOLERANCE,
            );
            return vec![Some(claim)];
        }
        let at_most = over(points, SCALA, STAR, MOST).map(|ratio| {
            Claim::at_most(
                &format!("{}-scala", self.id),
                "ScalaRDMA has less than 0.75 of StaR with 400 connections",
                "ScalaRDMA / StaR at 400",
                ratio,
                0.75,
            )
            .paper("below 0.75")
        });
        vec![at_most]
    }
}

/// The name of a curve's knee.
fn knee_of(curve: &str) -> String {
    format!("{curve}: most connections with 95 % of its peak")
}

impl Figure for Throughput {
    fn about(&self) -> About {
        let (title, says) = match self.workload {
            Workload::Ml => (
                "Throughput of machine learning over connections",
                "RDMA falls beyond 240 connections, on FPGA beyond 120, ScalaRDMA beyond 260; StaR keeps its peak: 2.9 and \
                 1.4 times as much at 400, and ScalaRDMA has less than 0.75 of it",
            ),
            _ => (
                "Throughput of RPC over connections",
                "RDMA falls beyond 240 connections, on FPGA beyond 120; StaR keeps its peak: 4.13 and 2.2 times as much at \
                 400, as does ScalaRDMA; with few connections StaR is inferior",
            ),
        };
        About { id: self.id, title, says, kind: Kind::Model, seconds: 4 }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let mut points = curves::empty(&self.about());
        curves::add(&mut points, run, self.workload, |it| {
            it.calls_per_s * f64::from(MESSAGES * MESSAGE) * OCTET.as_secs()
        })?;
        if run.scale == Scale::Full {
            self.add_numbers(&mut points, run)?;
        }
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let id = self.id;
        let mut all = Vec::new();
        for (curve, paper) in self.baselines() {
            let name = curve.name();
            let short = if curve == Curve::Rdma { "rdma" } else { "fpga" };
            all.push(over(points, STAR, name, MOST).map(|ratio| {
                let claim = Claim::number(
                    &format!("{id}-{short}"),
                    &format!("StaR carries {paper} times as much as {name} with 400 connections"),
                    &format!("StaR / {name} at 400"),
                    ratio,
                    paper,
                    TOLERANCE,
                );
                // The penalty of the commercial NIC is that of this ratio.
                let is_fitted = curve == Curve::Rdma && self.workload == Workload::Rpc;
                if is_fitted { claim.fitted() } else { claim }
            }));
        }
        for (curve, entries) in self.knees() {
            let name = curve.name();
            all.push(points.value(&knee_of(name)).map(|found| {
                Claim::number(
                    &format!("{id}-knee-{entries}"),
                    &format!("{name} falls beyond {entries} connections"),
                    "most connections with 95 % of the peak",
                    found,
                    entries.into(),
                    TOLERANCE,
                )
            }));
        }
        let steps = [over(points, STAR, RDMA, MOST), over(points, RDMA, FPGA, MOST)];
        all.push(steps.into_iter().all(|it| it.is_some()).then(|| {
            Claim::at_least(
                &format!("{id}-order"),
                "StaR carries more than RDMA, and RDMA more than RDMA on FPGA, with 400 connections",
                "least of StaR / RDMA and RDMA / RDMA on FPGA at 400",
                least(steps.into_iter().flatten()),
                1.0,
            )
            .shape()
        }));
        let few = || ratios(points, STAR, RDMA).filter(|it| it.connections <= FEW);
        all.push(few().next().map(|_| {
            Claim::at_most(
                &format!("{id}-few"),
                "StaR is inferior with few connections",
                "most of StaR / RDMA with up to 8 connections",
                most(few().map(|it| it.ratio)),
                1.0,
            )
            .shape()
        }));
        all.extend(self.of_scala(points));
        let off = || ratios(points, ENGINES, OUR_FRAMES).map(|it| (it.ratio - 1.0).abs());
        all.push(off().next().map(|_| {
            Claim::at_most(
                &format!("{id}-engines"),
                "the shipped engines do what the model says of our frames",
                "most of |engines / model - 1| over all connections",
                most(off()),
                TOLERANCE,
            )
            .theory()
        }));
        all.into_iter().flatten().collect()
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let name = "bytes of messages to the server, over the link's";
        let mut panels = curves::panels(points, name);
        let [of_paper, ..] = &mut panels[..] else { return None };
        let places = self.knees().into_iter().map(|(curve, entries)| Mark::Place {
            x: entries.into(),
            name: format!("paper: {} falls at {entries}", curve.name()),
        });
        of_paper.marks.extend(places);
        for (curve, paper) in self.baselines() {
            let at = |name| points.at(name, MOST.into());
            if let (Some(ours), Some(baseline)) = (at(STAR), at(curve.name())) {
                of_paper.marks.push(Mark::Ratio {
                    x: MOST.into(),
                    between: [baseline, ours],
                    name: format!("{:.2} x, paper {paper} x", ours / baseline),
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

    /// The values of a curve with 8 connections and with 400.
    fn holding() -> Vec<(&'static str, [f64; 2])> {
        vec![
            (STAR, [0.09, 4.13]),
            (FPGA, [0.09, 1.0]),
            (RDMA, [0.1, 2.0]),
            (SCALA, [0.1, 4.0]),
            (OUR_FRAMES, [0.08, 3.0]),
            (ENGINES, [0.09, 3.0]),
        ]
    }

    /// The claims that fail if this value of this curve is another one.
    fn failing(of: &Throughput, changed: &str, at: usize, value: f64, knee: f64) -> Vec<String> {
        let mut points = Points::new(&of.about(), "");
        for (name, mut values) in holding() {
            if name == changed {
                values[at] = value;
            }
            let values = [8.0, 400.0].into_iter().zip(values);
            points.push(name, values.map(|(x, y)| Value::new(x, y)).collect());
        }
        for (curve, entries) in of.knees() {
            points.number(knee_of(curve.name()), knee * f64::from(entries), "");
        }
        let failing = of.claims(&points).into_iter().filter(|it| !it.holds);
        failing.map(|it| it.id).collect()
    }

    #[test]
    fn each_claim_fails_by_the_least_that_makes_it_false() {
        let rpc = |name, at, value| failing(&RPC, name, at, value, 1.0);
        assert!(rpc("", 0, 0.0).is_empty());
        assert_eq!(rpc(FPGA, 1, 1.2), ["star-10a-fpga"]);
        assert_eq!(rpc(RDMA, 1, 0.99), ["star-10a-rdma", "star-10a-order"]);
        assert_eq!(rpc(STAR, 0, 0.101), ["star-10a-few"]);
        assert_eq!(rpc(SCALA, 0, 0.076), ["star-10a-scala"]);
        assert_eq!(rpc(ENGINES, 0, 0.0925), ["star-10a-engines"]);
        assert_eq!(failing(&RPC, "", 0, 0.0, 0.84), ["star-10a-knee-120", "star-10a-knee-240"]);
        let ml = failing(&ML, SCALA, 1, 3.11, 1.0);
        assert!(ml.contains(&"star-10b-scala".to_owned()), "{ml:?}");
        assert!(!failing(&ML, SCALA, 1, 3.09, 1.0).contains(&"star-10b-scala".to_owned()));
    }
}
