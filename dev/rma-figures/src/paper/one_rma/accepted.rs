//! Figure 11a: accepted by offered load of reads and of writes, between two hosts (§7.1).

use core::time::Duration;

use rma_bench::drawing::Picture;
use rma_core::nic::Timing;
use rma_sim::flows::{
    RTT,
    report::Report,
    traffic::Op,
    workload::{Fabric, Retry, Workload},
};

use super::simulated::{Axes, COMMON, both, nic, one_panel, pair, reports, time_for, value};
use crate::paper::{
    claims::{Claim, least, most},
    figure::{About, Figure, FigureFailed, Kind},
    points::Points,
    run::Run,
};

/// The figure.
#[derive(Debug)]
pub(super) struct Accepted;

const SEEDS: u64 = 5;
/// Ops offered to each point, of all seeds.
const OPS: u64 = 20_000;

/// A curve.
#[derive(Clone, Copy, Debug)]
struct Kept {
    name: &'static str,
    op: Op,
    /// In KiB.
    window: u32,
    timeout: Duration,
}

const PAPER: Duration = Duration::from_micros(20);

/// The paper's timeout lets a mutation hold its share of the window for an eighth of it, half an
/// RTT; with the last one it holds it until its data has come, as in the paper.
const CURVES: [Kept; 5] = [
    Kept { name: "READ, 64 KiB", op: Op::Read, window: 64, timeout: PAPER },
    Kept { name: "READ, 128 KiB", op: Op::Read, window: 128, timeout: PAPER },
    Kept { name: "WRITE, 64 KiB", op: Op::Write, window: 64, timeout: PAPER },
    Kept { name: "WRITE, 128 KiB", op: Op::Write, window: 128, timeout: PAPER },
    Kept {
        name: "WRITE, 64 KiB, timeout 32 RTT",
        op: Op::Write,
        window: 64,
        timeout: Duration::from_micros(160),
    },
];

/// Reads, and writes with the same window.
const PAIRS: [[&str; 2]; 2] = [[CURVES[0].name, CURVES[2].name], [CURVES[1].name, CURVES[3].name]];

impl Figure for Accepted {
    fn about(&self) -> About {
        About {
            id: "1rma-11a",
            title: "Accepted by offered load, reads and writes",
            says: "What is offered is accepted up to near the peak; writes saturate earlier than reads, as they hold \
                   the solicitation window for longer.",
            kind: Kind::Simulation,
            seconds: 20,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let loads: &[f64] = run.pick(
            &[0.5, 0.9, 1.2],
            &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2],
        );
        let mut points = Points::new(
            &self.about(),
            format!(
                "ops of 4 KiB by chance from one client to one server, no congestion control, {COMMON}; dispatch \
                 timeout 10 us, timeout 20 us unless it is named; {} seeds; bytes of frames with payload, on the wire",
                run.seeds(SEEDS).count()
            ),
        );
        for curve in CURVES {
            let all = reports(run, loads, SEEDS, |&load| {
                let timing = Timing::new(RTT * 2, curve.timeout);
                let fabric = Fabric { timing, ..Fabric::paper(curve.window << 10) };
                let length = time_for(OPS / SEEDS, 1, load);
                Workload::of(&pair(load, curve.op), nic(Retry::Never), fabric, length)
            })?;
            let of = loads.iter().zip(&all);
            points.push(curve.name, of.map(|(&x, it)| value(x, it, Report::goodput)).collect());
        }
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let reads = PAIRS.iter().flat_map(|[read, _]| points.of(read));
        let taken = reads.filter(|it| it.x <= 0.9).map(|it| it.y / it.x);
        let early = PAIRS.iter().flat_map(|&[read, write]| {
            both(points, (write, read))
                .filter(|it| it[0] >= 1.0)
                .map(|[_, write, read]| write / read)
        });
        let [[_, small], [_, large]] = PAIRS;
        let by_window = both(points, (small, large)).filter(|it| it[0] >= 1.0);
        let low = PAIRS.iter().flat_map(|[_, write]| points.of(write));
        let low = low.filter(|it| it.x <= 0.9).map(|it| it.y / it.x);
        vec![
            Claim::at_most(
                "1rma-11a-window",
                "writes saturate earlier as they hold the window for longer, so with the smaller one first",
                "the greatest accepted writes at 64 over those at 128 KiB, from 100 % offered",
                most(by_window.map(|[_, small, large]| small / large)),
                0.995,
            )
            .shape(),
            Claim::at_least(
                "1rma-11a-reads",
                "reads are accepted as they are offered, near to the peak",
                "the least accepted over offered reads up to 90 %, both windows",
                least(taken),
                0.98,
            ),
            Claim::at_most(
                "1rma-11a-earlier",
                "writes saturate earlier than reads",
                "the greatest accepted writes over accepted reads from 100 % offered, both windows",
                most(early),
                0.995,
            )
            .shape(),
            Claim::at_least(
                "1rma-11a-near-peak",
                "writes diverge from reads near the peak and not before",
                "the least accepted over offered writes up to 90 %, both windows",
                least(low),
                0.98,
            )
            .shape(),
        ]
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let axes = Axes::linear("offered over the link's rate", "accepted over the link's rate");
        Some(one_panel(self, points, axes))
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
        let (read, write): (&[_], &[_]) =
            (&[[0.5, 0.5], [0.9, 0.89], [1.0, 0.98]], &[[0.5, 0.5], [0.9, 0.89], [1.0, 0.97]]);
        let series = [
            ("READ, 64 KiB", read),
            ("READ, 128 KiB", read),
            ("WRITE, 64 KiB", &[[0.5, 0.5], [0.9, 0.89], [1.0, 0.965]]),
            ("WRITE, 128 KiB", write),
        ];
        let good = points(&Accepted, &series);
        assert!(broken(&Accepted, &good).is_empty());
        let fails = |name, x, y| broken(&Accepted, &with(&good, name, x, y));
        assert_eq!(fails("READ, 128 KiB", 0.5, 0.489), ["reads"]);
        assert_eq!(fails("WRITE, 64 KiB", 1.0, 0.966), ["window"]);
        assert_eq!(fails("WRITE, 128 KiB", 1.0, 0.976), ["earlier"]);
        assert_eq!(fails("WRITE, 128 KiB", 0.9, 0.88), ["near-peak"]);
    }
}
