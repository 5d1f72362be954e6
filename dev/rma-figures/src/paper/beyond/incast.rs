//! One host that reads from up to 999 others, and as many that write to one: the queue at the port
//! of the one, with solicitation and without.

use core::time::Duration;

use rma_bench::drawing::{Axis, Mark, Picture, Scale as Places};
use rma_core::nic::Timing;
use rma_sim::flows::{
    RTT,
    report::Report,
    traffic::{Destination, Framing, Op, Traffic},
    workload::{Fabric, Front, Retry, Source, Workload},
};

use crate::paper::{
    claims::{Claim, least, most},
    drawn::picture,
    figure::{About, Figure, FigureFailed, Kind},
    one_rma::simulated::{Axes, COMMON, OP, panel, reports, value},
    points::{Points, Value},
    run::Run,
};

/// The figure.
#[derive(Debug)]
pub(super) struct Incast;

const SEEDS: u64 = 2;

/// Solicitation windows, in KiB: those of the paper, and one that is never full.
const WINDOWS: [u32; 4] = [48, 64, 96, NONE];
const NONE: u32 = 1 << 20;

/// The window that claims of goodput are of: the paper's bandwidth-delay product.
const MIDDLE: u32 = WINDOWS[1];

/// Command slots of the host that reads: one for each other. Those that write have 64.
const READER_SLOTS: u16 = 999;
const WRITER_SLOTS: u16 = 64;

/// The load that is offered, of the one host's link.
const LOAD: f64 = 1.5;

/// Long enough for 3,000 ops.
const LENGTH: Duration = Duration::from_millis(1);

/// Hosts from which there is an incast worth the name.
const MANY: f64 = 100.0;

/// The direction of an incast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Reads,
    Writes,
    /// Writes with a timeout so long that a write keeps its share of the window for as long as its
    /// data takes: an eighth of the timeout at most, if others wait for it.
    Patient,
}

const WAYS: [Way; 3] = [Way::Reads, Way::Writes, Way::Patient];

impl Way {
    const fn op(self) -> Op {
        match self {
            Self::Reads => Op::Read,
            Self::Writes | Self::Patient => Op::Write,
        }
    }

    const fn called(self) -> &'static str {
        match self {
            Self::Reads => "one reads from all",
            Self::Writes => "all write to one",
            Self::Patient => "all write to one with a timeout of 32 RTT",
        }
    }
}

/// A point: so many hosts, all of which but one are asked, or ask.
#[derive(Clone, Copy, Debug)]
struct Case {
    way: Way,
    hosts: u32,
    window: u32,
}

impl Case {
    fn workload(&self) -> Workload {
        let &Self { way, hosts, window } = self;
        let op = way.op();
        let framing = Framing::own(op);
        let base = Traffic { hosts, load: LOAD, op, framing, ..Traffic::reads(OP) };
        let (traffic, first, slots) = match op {
            Op::Read => (base, 0..=0, READER_SLOTS),
            Op::Write => {
                let destination = Destination::Incast(0);
                (Traffic { destination, ..base }, 1..=(hosts - 1) as u16, WRITER_SLOTS)
            }
        };
        let front = Front::Nic { retry: Retry::Never, slots };
        let mut fabric = Fabric::paper(window << 10);
        if way == Way::Patient {
            fabric.timing = Timing::new(RTT * 2, RTT * 32);
        }
        let source = |host| Source { host, traffic: traffic.clone() };
        let sources = first.map(source).collect();
        Workload { sources, ..Workload::of(&traffic, front, fabric, LENGTH) }
    }
}

/// Octets on the wire of a window that is full of answers of 4 KiB, in KB.
fn window_on_wire(way: Way, window: u32) -> f64 {
    let ops = f64::from(window << 10) / OP as f64;
    ops * Framing::own(way.op()).wire_bytes(OP) as f64 / 1e3
}

fn name(what: &str, way: Way, window: u32) -> String {
    let window = match window {
        NONE => "without solicitation".to_owned(),
        some => format!("window {some} KiB"),
    };
    format!("{what}, {}, {window}", way.called())
}

const QUEUE: &str = "longest queue";
const GOODPUT: &str = "goodput";
const FAILED: &str = "ops that are not OK";

impl Figure for Incast {
    fn about(&self) -> About {
        About {
            id: "beyond-incast",
            title: "Incast of up to 1,000 hosts: the queue at the port of the one",
            says: "Solicitation bounds the queue, however many hosts there are: by the window, if whoever is solicited keeps its share \
                   until the data is there.",
            kind: Kind::Simulation,
            seconds: 8,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let hosts: &[u32] = run.pick(&[32, 100], &[32, 100, 300, 1000]);
        let mut points = Points::new(
            &self.about(),
            format!(
                "READs or WRITEs of 4 KiB by chance, which ask for {LOAD} of the one host's link, straight to the \
                 NIC and not tried again; {READER_SLOTS} command slots at the host that reads, {WRITER_SLOTS} at those that \
                 write, {COMMON}; timeout 20 us (160 us where it says 32 RTT); {} seeds; a port holds 1 MiB",
                run.seeds(SEEDS).count()
            ),
        );
        for way in WAYS {
            for &window in run.pick(&[MIDDLE, NONE], &WINDOWS) {
                let cases: Vec<Case> =
                    hosts.iter().map(|&hosts| Case { way, hosts, window }).collect();
                let all = reports(run, &cases, SEEDS, Case::workload)?;
                let part = |of: &dyn Fn(&Report) -> f64| -> Vec<Value> {
                    let all = hosts.iter().zip(&all);
                    all.map(|(&x, it)| value(x.into(), it, of)).collect()
                };
                points.push(name(QUEUE, way, window), part(&|it| it.longest_queue as f64 / 1e3));
                points.push(name(GOODPUT, way, window), part(&Report::goodput));
                let failed =
                    |it: &Report| 1.0 - it.ops().ended[0] as f64 / it.ops().ended().max(1) as f64;
                points.push(name(FAILED, way, window), part(&failed));
            }
        }
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let bounded = |way| {
            let of = |window| {
                let values = points.of(&name(QUEUE, way, window)).iter();
                values.map(move |it| it.most() / window_on_wire(way, window))
            };
            most(WINDOWS.into_iter().filter(|it| *it != NONE).flat_map(of))
        };
        let of = |what, way, window| points.of(&name(what, way, window)).iter();
        let kept = |way| {
            let values = of(GOODPUT, way, MIDDLE);
            let first = values.clone().next().map_or(f64::NAN, |it| it.y);
            least(values.map(|it| it.y / first))
        };
        let longer = |way| {
            let with = |x| points.at(&name(QUEUE, way, MIDDLE), x);
            let many = of(QUEUE, way, NONE).filter(|it| it.x >= MANY);
            least(many.map(|it| it.y / with(it.x).unwrap_or(f64::NAN)))
        };
        let formula =
            "the longest queue over the window with all headers, all hosts, windows and seeds";
        vec![
            Claim::at_most(
                "beyond-incast-reads",
                "the queue before a host that reads is no longer than its window",
                formula,
                bounded(Way::Reads),
                1.0,
            ),
            Claim::at_most(
                "beyond-incast-writes",
                "nor is that before a host that others write to, with their requests, by the paper's timeout",
                formula,
                bounded(Way::Writes),
                1.0,
            ),
            Claim::at_most(
                "beyond-incast-patient",
                "it is not, where writes keep their share of the window until their data is there",
                formula,
                bounded(Way::Patient),
                1.0,
            ),
            Claim::at_least(
                "beyond-incast-full",
                "the host that reads has all of its link",
                "the least goodput of reads, window 64 KiB",
                least(of(GOODPUT, Way::Reads, MIDDLE).map(|it| it.y)),
                0.95,
            ),
            Claim::at_least(
                "beyond-incast-kept",
                "more hosts take nothing from goodput",
                "the least goodput over that of the fewest hosts, window 64 KiB, reads and writes",
                least(WAYS.map(kept)),
                0.95,
            ),
            Claim::at_least(
                "beyond-incast-longer",
                "without solicitation the queue is longer",
                "the least queue without over that of window 64 KiB, from 100 hosts, reads and writes",
                least(WAYS.map(longer)),
                2.0,
            )
            .shape(),
        ]
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let units = [(QUEUE, "KB at the port, longest"), (GOODPUT, "goodput over the link")];
        let panels = WAYS.into_iter().flat_map(|way| {
            units.map(|(what, unit)| {
                let x = Axis { name: "hosts", scale: Places::Log };
                let scale = if what == QUEUE { Places::Log } else { Places::Linear };
                let axes = Axes { x, y: Axis { name: unit, scale } };
                let names = WINDOWS.map(|it| name(what, way, it));
                let mut panel =
                    panel(points, way.called(), axes, &names.each_ref().map(String::as_str));
                let short = |it: &str| it.rsplit(", ").next().unwrap_or_default().to_owned();
                panel.curves.iter_mut().for_each(|it| it.name = short(&it.name));
                if what == QUEUE {
                    let (y, name) = (window_on_wire(way, MIDDLE), "64 KiB, all headers".to_owned());
                    panel.marks.push(Mark::Level { y, name });
                }
                panel
            })
        });
        Some(picture(self, points, panels.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::one_rma::simulated::tests::{broken, points, with};

    #[test]
    fn each_claim_fails_of_the_least_value_that_makes_its_sentence_false() {
        let [queue, goodput] = [QUEUE, GOODPUT].map(|what| WAYS.map(|way| name(what, way, MIDDLE)));
        let without = WAYS.map(|way| name(QUEUE, way, NONE));
        let good = points(
            &Incast,
            &[
                (&queue[0], &[[32.0, 60.0], [1000.0, 67.0]]),
                (&queue[1], &[[32.0, 40.0], [1000.0, 45.0]]),
                (&queue[2], &[[32.0, 40.0], [1000.0, 45.0]]),
                (&goodput[2], &[[32.0, 0.5], [1000.0, 0.5]]),
                (&without[2], &[[32.0, 60.0], [1000.0, 500.0]]),
                (&goodput[0], &[[32.0, 0.97], [1000.0, 0.96]]),
                (&goodput[1], &[[32.0, 0.5], [1000.0, 0.5]]),
                (&without[0], &[[32.0, 60.0], [1000.0, 1000.0]]),
                (&without[1], &[[32.0, 60.0], [1000.0, 500.0]]),
            ],
        );
        assert!(broken(&Incast, &good).is_empty());
        let fails = |name: &str, x, y| broken(&Incast, &with(&good, name, x, y));
        assert_eq!(fails(&queue[0], 1000.0, 68.0), ["reads"]);
        assert_eq!(fails(&queue[1], 32.0, 68.0), ["writes"]);
        assert_eq!(fails(&queue[2], 32.0, 68.0), ["patient"]);
        assert_eq!(fails(&goodput[0], 1000.0, 0.949), ["full"]);
        assert_eq!(fails(&goodput[1], 1000.0, 0.47), ["kept"]);
        assert_eq!(fails(&without[1], 1000.0, 89.0), ["longer"]);
        assert!((window_on_wire(Way::Reads, 64) - 67.5).abs() < 1.0);
    }
}
