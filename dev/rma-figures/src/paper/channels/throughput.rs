//! Figure 7: the throughput of rings and of send/recv.

use rma_bench::drawing::Picture;
use rma_xdp::channel::Kind;

use super::stand::{self, ALL, LONGEST, SIZES, SMALL, Stand, mib, names, over, panel};
use crate::paper::{
    claims::{Claim, least, most},
    figure::{About, Figure, FigureFailed, Kind as FigureKind},
    points::Points,
    run::Run,
};

/// Small messages of a round; of larger ones fewer.
const COUNT: u64 = 50_000;
/// The part of the best that is the maximum.
const BEST: f64 = 0.95;

/// Kinds whose receivers have to post receives.
const RECEIVES: [Kind; 3] = [Kind::SendRecvNormal, Kind::RingImmediate, Kind::WriteSlotImmediate];
/// The others, of which a message is one WRITE, or two.
const OTHERS: [Kind; 4] =
    [Kind::WriteSlotInlined, Kind::RingDetached, Kind::RingWithZeroing, Kind::RingWithoutZeroing];

/// Rings and slots of one sender and one receiver.
#[derive(Debug)]
pub(super) struct Throughput;

/// Kinds, and which of their values counts.
type Of<'a> = (&'a [Kind], fn(Vec<f64>) -> f64);

/// The ratios of the best of some kinds to the worst of others, or to the best, size by size.
fn compared(points: &Points, sizes: &[u32], of: Of<'_>, to: Of<'_>) -> Vec<f64> {
    let values = |kinds: &[Kind], size: u32| {
        let at = |kind: &Kind| points.at(&kind.to_string(), size.into()).unwrap_or(f64::NAN);
        kinds.iter().map(at).collect::<Vec<_>>()
    };
    sizes.iter().map(|&size| of.1(values(of.0, size)) / to.1(values(to.0, size))).collect()
}

impl Figure for Throughput {
    fn about(&self) -> About {
        About {
            id: "channels-7",
            title: "Messages through one channel",
            says: "small messages go slowest where receives are posted, which reach the most with large ones; a ring without \
                   zeroing carries more than one with it; a second WRITE costs",
            kind: FigureKind::Veth,
            seconds: 60,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let how = "as many under way as a channel takes, 32 ops at most";
        let mut stand = Stand::new(&self.about(), run, how)?;
        for kind in RECEIVES.into_iter().chain(OTHERS) {
            stand.add(kind.to_string(), |stand, size| {
                let (interrupt, count) = (stand.interrupt, COUNT * 256 / u64::from(size.max(256)));
                let rates = stand.of_channel(kind, size, |channel, pair| {
                    let rate = channel.rate(pair, size as usize, (count / 10, count), interrupt);
                    rate.map(|it| mib(it, size))
                })?;
                Ok(stand::rate(size, rates))
            })?;
        }
        Ok(stand.finish())
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        if !stand::has_verdict(points) {
            return Vec::new();
        }
        let of = |kind: Kind| kind.to_string();
        let without = of(Kind::RingWithoutZeroing);
        let zeroing = over(points, &without, &of(Kind::RingWithZeroing), ALL);
        let detached = over(points, &without, &of(Kind::RingDetached), ALL);
        let there = |largest: &u32| points.at(&without, (*largest).into()).is_some();
        let small: Vec<u32> = SIZES.into_iter().filter(|it| *it <= SMALL && there(it)).collect();
        let slowest = compared(points, &small, (&RECEIVES, most), (&OTHERS, least));
        let all = [&RECEIVES[..], &OTHERS].concat();
        let large = compared(points, &[LONGEST], (&RECEIVES, least), (&all, most));
        vec![
            Claim::at_least(
                "channels-7-zeroing",
                "a ring without zeroing carries as much as one with it, or more, at every size",
                "least of without / with zeroing",
                least(zeroing),
                1.0,
            )
            .shape(),
            Claim::at_most(
                "channels-7-receives",
                "small messages go slowest where receives have to be posted",
                "most of the quickest of them / the slowest of all others, up to 64 B",
                most(slowest),
                1.0,
            )
            .shape(),
            Claim::at_least(
                "channels-7-large",
                "large messages reach the maximum where receives are posted",
                "the slowest of them / the best of all at the largest size",
                least(large),
                BEST,
            )
            .shape(),
            Claim::at_least(
                "channels-7-second-write",
                "a second WRITE reduces the use of the link, at every size",
                "least of the ring without zeroing / the one with a detached bell",
                least(detached),
                1.0,
            )
            .shape(),
        ]
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let kinds = names(&[&RECEIVES[..], &OTHERS].concat());
        Some(Picture {
            title: self.about().title.to_owned(),
            conditions: points.conditions.clone(),
            panels: vec![panel(points, "", "MiB of messages a second", &kinds, "")],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::stand::tests, *};

    #[test]
    fn each_claim_fails_of_one_kind_at_one_size() {
        let failing = |changed: Kind, place: usize, value: f64| {
            let all = RECEIVES.into_iter().chain(OTHERS).map(|kind| {
                let mut values = if RECEIVES.contains(&kind) { [2.0, 100.0] } else { [5.0, 100.0] };
                if kind == changed {
                    values[place] = value;
                }
                (kind.to_string(), values)
            });
            let all: Vec<(String, [f64; 2])> = all.collect();
            let series: Vec<(&str, &[f64])> =
                all.iter().map(|(name, values)| (name.as_str(), &values[..])).collect();
            let points = tests::points(&Throughput.about(), &[SMALL, LONGEST], &series);
            let failing = Throughput.claims(&points).into_iter().filter(|it| !it.holds);
            failing.map(|it| it.id).collect::<Vec<_>>()
        };
        assert!(failing(Kind::RingImmediate, 0, 5.0).is_empty());
        assert_eq!(failing(Kind::RingImmediate, 0, 5.01), ["channels-7-receives"]);
        assert_eq!(failing(Kind::WriteSlotInlined, 0, 1.99), ["channels-7-receives"]);
        assert_eq!(failing(Kind::SendRecvNormal, 1, 94.9), ["channels-7-large"]);
        assert_eq!(failing(Kind::WriteSlotInlined, 1, 105.3), ["channels-7-large"]);
        assert_eq!(failing(Kind::RingWithZeroing, 0, 5.01), ["channels-7-zeroing"]);
        assert_eq!(failing(Kind::RingDetached, 1, 100.1), ["channels-7-second-write"]);
    }
}
