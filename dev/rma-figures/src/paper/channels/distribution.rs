//! Figure 6: how the times of messages through a read ring are distributed, and those of a ring
//! that its sender writes to.

use rma_bench::{
    drawing::{Axis, Curve, Form, Panel, Picture, Point, Scale as AxisScale},
    latency::Latencies,
};
use rma_xdp::channel::Kind;

use super::stand::{self, LONGEST, SIZES, SLOTS, Stand};
use crate::{
    channels::broadcast::Broadcast,
    paper::{
        claims::{Claim, least, most},
        figure::{About, Figure, FigureFailed, Kind as FigureKind},
        points::{Points, Value},
        run::Run,
    },
};

/// Messages of a round: for nothing, and counted.
const COUNTS: (u64, u64) = (500, 5_000);
/// Parts that times are sorted into.
const PARTS: u32 = 40;
/// The sizes.
const ENDS: [u32; 2] = [SIZES[0], LONGEST];
/// The share of all that is drawn: the rest is what others did to the machine.
const DRAWN: f64 = 0.98;

const PASSIVE: Kind = Kind::ReadRingInlined;
const PUSHED: Kind = Kind::RingWithoutZeroing;

/// One message at a time.
#[derive(Debug)]
pub(super) struct Distribution;

fn name(kind: Kind, size: u32) -> String {
    format!("{kind}, {size} B")
}

/// How many peaks a distribution has: parts that hold a tenth of the highest at least, with a
/// valley of half the lower one between any two.
fn peaks(shares: &[f64]) -> usize {
    let floor = shares.iter().copied().fold(0.0, f64::max) / 10.0;
    let (mut count, mut rising, mut turn) = (0, true, 0.0_f64);
    for &share in shares.iter().chain([&0.0]) {
        if rising {
            turn = turn.max(share);
            if share < turn / 2.0 && turn >= floor {
                (count, rising, turn) = (count + 1, false, share);
            }
        } else {
            turn = turn.min(share);
            if share >= floor && share > turn * 2.0 {
                (rising, turn) = (true, share);
            }
        }
    }
    count
}

/// The peaks of a kind's distributions, of both sizes.
fn peaks_of(points: &Points, kind: Kind) -> [f64; 2] {
    ENDS.map(|size| {
        let shares: Vec<f64> = points.of(&name(kind, size)).iter().map(|it| it.y).collect();
        if shares.is_empty() { f64::NAN } else { peaks(&shares) as f64 }
    })
}

/// Times as shares of all, of parts up to `high`.
fn shares(times: &Latencies, high: f64) -> Vec<Value> {
    let at = |part: u32| (high * f64::from(part) / f64::from(PARTS) * 100.0).round() / 100.0;
    let share = |part| Value::new(at(part), times.share_between_us(at(part), at(part + 1)));
    (0..PARTS).map(share).collect()
}

impl Figure for Distribution {
    fn about(&self) -> About {
        About {
            id: "channels-6",
            title: "Distribution of the times of messages",
            says: "times through a read ring have two peaks: a bell is found by the first READ, or by the second",
            kind: FigureKind::Veth,
            seconds: 20,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let how = "one message at a time, some time after the one before; the quickest 98 %";
        let mut stand = Stand::new(&self.about(), run, how)?;
        let interrupt = run.interrupt;
        for size in ENDS {
            let passive = stand.rounds(
                |pair| Broadcast::open(pair, PASSIVE, (1, size, 0), SLOTS),
                |ring, pair| ring.one_way(pair, COUNTS, interrupt),
            )?;
            let pushed = stand.of_channel(PUSHED, size, |ring, pair| {
                ring.one_way(pair, size as usize, COUNTS, interrupt)
            })?;
            let merged = [passive, pushed].map(|rounds| {
                let mut all = Latencies::new();
                rounds.iter().for_each(|it| all.merge(it));
                all
            });
            // One axis for both.
            let high = merged.iter().map(|it| it.quantile_us(DRAWN)).fold(0.0, f64::max);
            for (kind, times) in [PASSIVE, PUSHED].into_iter().zip(&merged) {
                if times.count() > 0 {
                    stand.points.push(name(kind, size), shares(times, high));
                }
            }
        }
        Ok(stand.finish())
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        if !stand::has_verdict(points) {
            return Vec::new();
        }
        let two = Claim::at_least(
            "channels-6-two",
            "times through a read ring have two peaks, of both sizes",
            "least of the peaks of the read ring's distributions",
            least(peaks_of(points, PASSIVE)),
            2.0,
        );
        let one = Claim::at_most(
            "channels-6-one",
            "those of a message that is written to its receiver have one",
            "most of the peaks of the ring's distributions",
            most(peaks_of(points, PUSHED)),
            1.0,
        );
        vec![two.shape(), one.shape()]
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let curve = |(colour, kind): (usize, Kind), size| Curve {
            name: kind.to_string(),
            colour,
            dash: 0,
            form: Form::Steps,
            points: points.of(&name(kind, size)).iter().map(|it| Point::new(it.x, it.y)).collect(),
        };
        let panels = ENDS.map(|size| Panel {
            title: format!("Messages of {size} B"),
            x: Axis { name: "until the receiver has it, us", scale: AxisScale::Linear },
            y: Axis { name: "share of messages", scale: AxisScale::Linear },
            curves: [(0, PASSIVE), (1, PUSHED)].map(|it| curve(it, size)).into(),
            marks: Vec::new(),
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
    use super::{super::stand::tests::points, *};

    #[test]
    fn a_valley_of_more_than_half_is_none() {
        assert_eq!(peaks(&[0.0, 5.0, 1.0, 5.0, 0.0]), 2);
        assert_eq!(peaks(&[0.0, 5.0, 4.5, 5.0, 0.0]), 1);
        assert_eq!(peaks(&[0.0, 1.0, 9.0, 2.0]), 1);
    }

    #[test]
    fn each_claim_fails_of_one_size() {
        let failing = |read: &[f64], pushed: &[f64]| {
            let series: [(&str, &[f64]); 4] = [
                (&name(PASSIVE, ENDS[0]), &[0.0, 5.0, 1.0, 4.0, 0.0]),
                (&name(PASSIVE, ENDS[1]), read),
                (&name(PUSHED, ENDS[0]), pushed),
                (&name(PUSHED, ENDS[1]), &[0.0, 1.0, 9.0, 2.0]),
            ];
            let points = points(&Distribution.about(), &[1, 2, 3, 4, 5], &series);
            let failing = Distribution.claims(&points).into_iter().filter(|it| !it.holds);
            failing.map(|it| it.id).collect::<Vec<_>>()
        };
        let (two, one) = ([0.0, 5.0, 1.0, 4.0, 0.0], [0.0, 5.0, 4.0, 4.5, 0.0]);
        assert!(failing(&two, &one).is_empty());
        assert_eq!(failing(&one, &one), ["channels-6-two"]);
        assert_eq!(failing(&two, &two), ["channels-6-one"]);
    }
}
