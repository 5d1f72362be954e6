//! Figure 5: the median round trip of a message, and one back or its acknowledgement.

use rma_bench::drawing::Picture;
use rma_xdp::channel::Kind;

use super::stand::{self, ALL, LONGEST, SIZES, Stand, names, over, panel, shape};
use crate::{
    channels::Channel,
    paper::{
        claims::{Claim, least, most},
        figure::{About, Figure, FigureFailed, Kind as FigureKind},
        points::Points,
        run::Run,
    },
};

/// Messages of a round: for nothing, and counted.
const COUNTS: (u64, u64) = (100, 1_000);

/// Kinds that deliver in as many half round trips as one op takes.
const ONE_OP: [Kind; 6] = [
    Kind::SendRecvNormal,
    Kind::WriteSlotInlined,
    Kind::WriteSlotImmediate,
    Kind::RingImmediate,
    Kind::RingWithZeroing,
    Kind::RingWithoutZeroing,
];
/// Rings of one sender and one receiver.
const RINGS: [Kind; 4] =
    [Kind::RingDetached, Kind::RingImmediate, Kind::RingWithZeroing, Kind::RingWithoutZeroing];
/// Shared rings. Their senders fetch the receiver's tail by READ.
const SHARED: [Kind; 2] = [Kind::SharedRingImmediate, Kind::SharedRingWithZeroing];
/// Read rings. Their receivers WRITE their tails to the sender.
const READ: [Kind; 3] = [Kind::ReadRingDetached, Kind::ReadRingInlined, Kind::ReadRingNotify];
/// Those whose receivers look for bells by READ.
const PASSIVE: [Kind; 2] = [Kind::ReadRingDetached, Kind::ReadRingInlined];

/// The most by which channels of one half round trip may differ and be about the same.
const ABOUT: f64 = 1.3;
/// The most by which times for a half round trip may differ.
const ALIKE: f64 = 1.4;
/// The length of an acknowledgement: a tail.
const TAIL: u32 = 8;

/// All kinds but those of several senders with slots, and read slots.
#[derive(Debug)]
pub(super) struct RoundTrips;

/// The channel that a kind's messages are acknowledged through, as in the paper; none if they are
/// answered by as long ones through another of the same kind.
fn acknowledges(kind: Kind) -> Option<Kind> {
    if SHARED.contains(&kind) {
        Some(Kind::ReadSlotInlined)
    } else if READ.contains(&kind) {
        Some(Kind::WriteSlotInlined)
    } else {
        None
    }
}

/// Half round trips of a message and of what comes back.
fn half_round_trips(kind: Kind) -> f64 {
    let of = |kind: Kind| f64::from(kind.ours().offer.half_round_trips.least);
    of(kind) + of(acknowledges(kind).unwrap_or(kind))
}

/// Kinds between two.
fn of_one_sender() -> Vec<Kind> {
    let mut all = ONE_OP.to_vec();
    all.push(Kind::RingDetached);
    all
}

fn of_many() -> Vec<Kind> {
    [&SHARED[..], &READ].concat()
}

/// The result of `value` for each size.
fn by_size(points: &Points, value: impl Fn(f64) -> f64) -> Vec<f64> {
    points.of(&Kind::RingWithoutZeroing.to_string()).iter().map(|it| value(it.x)).collect()
}

fn at(points: &Points, kind: Kind, size: f64) -> f64 {
    points.at(&kind.to_string(), size).unwrap_or(f64::NAN)
}

/// How many times as much the largest size takes as the smallest.
fn growth(points: &Points, kind: Kind) -> f64 {
    at(points, kind, LONGEST.into()) / at(points, kind, SIZES[0].into())
}

impl Figure for RoundTrips {
    fn about(&self) -> About {
        About {
            id: "channels-5",
            title: "Median round trip through channels",
            says: "shared and read rings take longest, of several half round trips; those of one are alike, zeroing a bit \
                   slower for large messages, a detached bell slower than other rings; read rings drop for large messages",
            kind: FigureKind::Veth,
            seconds: 70,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let how = "one message at a time, answered by one as long; through shared and read rings acknowledged by a tail of 8 B, \
                   through a read slot and a write slot with inlined bells; p50, 5 % to 95 %";
        let mut stand = Stand::new(&self.about(), run, how)?;
        for kind in of_one_sender().into_iter().chain(of_many()) {
            stand.add(kind.to_string(), |stand, size| {
                let interrupt = stand.interrupt;
                let rounds = stand.rounds(
                    |pair| {
                        let there = shape(kind, size);
                        match acknowledges(kind) {
                            Some(back) => Channel::with_back(pair, there, shape(back, TAIL)),
                            None => Channel::open(pair, there),
                        }
                    },
                    |channel, pair| channel.round_trips(pair, size as usize, COUNTS, interrupt),
                )?;
                Ok(stand::median(size, &rounds))
            })?;
        }
        Ok(stand.finish())
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        if !stand::has_verdict(points) {
            return Vec::new();
        }
        let slow = by_size(points, |size| {
            let two = of_one_sender().into_iter().map(|it| at(points, it, size));
            least(of_many().into_iter().map(|it| at(points, it, size))) / most(two)
        });
        let alike = by_size(points, |size| {
            let all = || ONE_OP.into_iter().map(|it| at(points, it, size));
            most(all()) / least(all())
        });
        let of = |kind: Kind| kind.to_string();
        let zeroing = over(
            points,
            &of(Kind::RingWithZeroing),
            &of(Kind::RingWithoutZeroing),
            [LONGEST, LONGEST],
        );
        let others = RINGS.into_iter().filter(|it| *it != Kind::RingDetached);
        let detached = others.flat_map(|it| over(points, &of(Kind::RingDetached), &of(it), ALL));
        let drops = PASSIVE.into_iter().flat_map(|passive| {
            ONE_OP.into_iter().map(move |it| growth(points, passive) / growth(points, it))
        });
        let smallest = f64::from(SIZES[0]);
        let each = || {
            let all = of_one_sender().into_iter().chain(of_many());
            all.map(|it| at(points, it, smallest) / half_round_trips(it))
        };
        let at_least = |id: &str, says: &str, formula: &str, value: f64| {
            Claim::at_least(&format!("channels-5-{id}"), says, formula, value, 1.0).shape()
        };
        vec![
            at_least(
                "slowest",
                "shared and read rings take longer than every other channel, at every size",
                "least of the quickest shared or read ring / the slowest other channel",
                least(slow),
            ),
            Claim::at_most(
                "channels-5-alike",
                "channels of one half round trip have about the same latency",
                "most of the slowest / the quickest of them over all sizes",
                most(alike),
                ABOUT,
            )
            .shape(),
            at_least(
                "zeroing",
                "a ring with zeroing is slower for large messages",
                "with / without zeroing at the largest size",
                least(zeroing),
            ),
            at_least(
                "detached",
                "a detached bell is slower than each other ring, at every size",
                "least of detached / another ring",
                least(detached),
            ),
            at_least(
                "drop",
                "passive read rings lose more by large messages than channels of one half round trip",
                "least of (largest / smallest size) of a passive read ring over that of a channel of one half round trip",
                least(drops),
            ),
            Claim::at_most(
                "channels-5-half-round-trips",
                "latency can be expressed by the number of half round trips",
                "at the smallest size, most / least of p50 over half round trips there and back",
                most(each()) / least(each()),
                ALIKE,
            )
            .shape(),
        ]
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let mut several = of_many();
        several.push(Kind::RingWithoutZeroing);
        let (one, several) = (names(&of_one_sender()), names(&several));
        let y = "a round trip, us";
        Some(Picture {
            title: self.about().title.to_owned(),
            conditions: points.conditions.clone(),
            panels: vec![
                panel(points, "One sender and one receiver", y, &one, ""),
                panel(
                    points,
                    "Shared and read rings, acknowledged, and one of the others",
                    y,
                    &several,
                    "",
                ),
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::stand::tests, *};

    /// The claims that fail of these times, with the smallest size and the largest, if one value is
    /// another.
    fn failing(
        times: fn(Kind) -> [f64; 2],
        changed: Kind,
        place: usize,
        value: f64,
    ) -> Vec<String> {
        let all = of_one_sender().into_iter().chain(of_many()).map(|kind| {
            let mut values = times(kind);
            if kind == changed {
                values[place] = value;
            }
            (kind.to_string(), values)
        });
        let all: Vec<(String, [f64; 2])> = all.collect();
        let series: Vec<(&str, &[f64])> =
            all.iter().map(|(name, values)| (name.as_str(), &values[..])).collect();
        let points = tests::points(&RoundTrips.about(), &[SIZES[0], LONGEST], &series);
        let failing = RoundTrips.claims(&points).into_iter().filter(|it| !it.holds);
        failing.map(|it| it.id).collect()
    }

    #[test]
    fn each_claim_of_order_fails_of_one_kind_at_one_size() {
        let times = |kind| match kind {
            Kind::RingDetached => [21.0, 21.0],
            kind if PASSIVE.contains(&kind) => [30.0, 45.0],
            kind if SHARED.contains(&kind) || READ.contains(&kind) => [30.0, 30.0],
            _ => [20.0, 20.0],
        };
        let failing = |changed, place, value| {
            let mut all = failing(times, changed, place, value);
            all.retain(|it| it != "channels-5-half-round-trips");
            all
        };
        assert!(failing(Kind::RingDetached, 0, 21.0).is_empty());
        assert_eq!(failing(Kind::SendRecvNormal, 1, 26.1), ["channels-5-alike"]);
        assert_eq!(failing(Kind::RingWithZeroing, 1, 19.9), ["channels-5-zeroing"]);
        assert_eq!(failing(Kind::RingDetached, 1, 19.9), ["channels-5-detached"]);
        assert_eq!(failing(Kind::SharedRingImmediate, 1, 20.9), ["channels-5-slowest"]);
        assert_eq!(failing(Kind::ReadRingInlined, 1, 29.9), ["channels-5-drop"]);
    }

    #[test]
    fn times_by_half_round_trips_may_not_differ_by_more_than_told() {
        let times = |kind| [half_round_trips(kind) * 10.0; 2];
        let fails = |value| {
            let all = failing(times, Kind::SharedRingImmediate, 0, value);
            all.contains(&"channels-5-half-round-trips".to_owned())
        };
        let shared = half_round_trips(Kind::SharedRingImmediate) * 10.0;
        assert!(!fails(shared * 1.39) && fails(shared * 1.41));
    }
}
