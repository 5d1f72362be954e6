//! Figure 9b: the throughput of read rings of four receivers.

use rma_bench::drawing::Picture;
use rma_xdp::channel::Kind;

use super::stand::{self, SIZES, SLOTS, Stand, mib, names, over, panel};
use crate::{
    channels::broadcast,
    paper::{
        claims::{Claim, least},
        figure::{About, Figure, FigureFailed, Kind as FigureKind},
        points::Points,
        run::Run,
    },
};

/// Small messages of a round; of larger ones fewer.
const COUNT: u64 = 5_000;
const RECEIVERS: u16 = 4;
/// The sizes of which one READ brings several.
const SEVERAL: [u32; 2] = [SIZES[0], 2048];
const KINDS: [Kind; 3] = [Kind::ReadRingNotify, Kind::ReadRingDetached, Kind::ReadRingInlined];

/// Receivers of one host.
#[derive(Debug)]
pub(super) struct Broadcast;

impl Figure for Broadcast {
    fn about(&self) -> About {
        About {
            id: "channels-9b",
            title: "Messages of four receivers of a read ring",
            says: "receivers that are notified get the most, and by a detached bell they get more than by inlined ones",
            kind: FigureKind::Veth,
            seconds: 40,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let how = "receivers of one host, 32 ops under way in all";
        let mut stand = Stand::new(&self.about(), run, how)?;
        for kind in KINDS {
            stand.add(kind.to_string(), |stand, size| {
                let count = (COUNT * 256 / u64::from(size.max(256))).max(100);
                let interrupt = stand.interrupt;
                let rates = stand.rounds(
                    |pair| broadcast::Broadcast::open(pair, kind, (RECEIVERS, size, 0), SLOTS),
                    |ring, pair| {
                        let rate = ring.rate(pair, (count / 10, count), interrupt);
                        rate.map(|it| mib(it, size))
                    },
                )?;
                Ok(stand::rate(size, rates))
            })?;
        }
        Ok(stand.finish())
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        if !stand::has_verdict(points) {
            return Vec::new();
        }
        let [notify, detached, inlined] = KINDS.map(|it| it.to_string());
        let notified = [&detached, &inlined].into_iter();
        let notified = notified.flat_map(|it| over(points, &notify, it, SEVERAL));
        vec![
            Claim::at_least(
                "channels-9b-notify",
                "receivers that are notified get the most, at every size up to 2 KiB",
                "least of notify / detached and notify / inlined",
                least(notified),
                1.0,
            )
            .shape(),
            Claim::at_least(
                "channels-9b-detached",
                "by a detached bell they get more than by inlined ones, at every size up to 2 KiB",
                "least of detached / inlined",
                least(over(points, &detached, &inlined, SEVERAL)),
                1.0,
            )
            .shape(),
        ]
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        Some(Picture {
            title: self.about().title.to_owned(),
            conditions: points.conditions.clone(),
            panels: vec![panel(
                points,
                "",
                "MiB of messages a second, all receivers",
                &names(&KINDS),
                "",
            )],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::stand::tests::points, *};

    #[test]
    fn each_claim_fails_of_one_size() {
        let holds = |notify: [f64; 2], detached: [f64; 2], inlined: [f64; 2]| {
            let names = KINDS.map(|it| it.to_string());
            let series: [(&str, &[f64]); 3] =
                [(&names[0], &notify), (&names[1], &detached), (&names[2], &inlined)];
            let claims = Broadcast.claims(&points(&Broadcast.about(), &[64, 1024], &series));
            claims.iter().map(|it| it.holds).collect::<Vec<_>>()
        };
        assert_eq!(holds([3.0, 3.0], [2.0, 2.0], [1.0, 1.0]), [true, true]);
        assert_eq!(holds([3.0, 1.9], [2.0, 2.0], [1.0, 1.0]), [false, true]);
        assert_eq!(holds([3.0, 3.0], [2.0, 0.9], [1.0, 1.0]), [true, false]);
    }
}
