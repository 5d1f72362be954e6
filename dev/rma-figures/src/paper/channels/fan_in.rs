//! Figure 9a: the throughput of a shared ring of eight senders.

use rma_bench::drawing::Picture;
use rma_xdp::channel::Kind;

use super::stand::{self, ALL, SIZES, SLOTS, Stand, mib, over, panel};
use crate::{
    channels::fan_in,
    clients::{self, Work},
    paper::{
        claims::{Claim, least},
        figure::{About, Figure, FigureFailed, Kind as FigureKind},
        points::{Points, Value},
        run::Run,
    },
};

/// Messages of a round: for nothing, and counted.
const COUNTS: (u64, u64) = (2_000, 20_000);
/// How many senders share a ring, as in the paper, and the one that they are compared with.
const SENDERS: [u16; 2] = [8, 1];
const KINDS: [Kind; 2] = [Kind::SharedRingWithZeroing, Kind::SharedRingImmediate];
/// The least share of one sender's rate that eight must get.
const KEPT: f64 = 0.5;
/// The name of the series of messages over FETCH_ADDs.
const OVER_ADDS: &str = "messages / FETCH_ADDs of one word";
/// The name of the rate of those.
const ADDS: &str = "FETCH_ADDs of one word, 32 under way";

/// The senders are of one host, and share its ops under way.
#[derive(Debug)]
pub(super) struct FanIn;

fn name(kind: Kind, senders: u16) -> String {
    let who = if senders == 1 { "sender" } else { "senders" };
    format!("{kind}, {senders} {who}")
}

impl Figure for FanIn {
    fn about(&self) -> About {
        About {
            id: "channels-9a",
            title: "Messages of eight senders through one shared ring",
            says: "FETCH_ADDs of one word limit eight senders, until the word is in the NIC's memory: then they get 4 times as \
                   much; here it is in the engine's cache",
            kind: FigureKind::Veth,
            seconds: 50,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let how = "senders of one host, 32 ops under way in all";
        let mut stand = Stand::new(&self.about(), run, how)?;
        let interrupt = run.interrupt;
        let adds = stand.rounds(
            |pair| (0..SLOTS).map(|_| Ok(pair.client.host.portal(1)?)).collect(),
            |portals: &mut Vec<_>, pair| {
                pair.run(|client| clients::per_second(client, portals, Work::Count, COUNTS))
            },
        )?;
        let adds = stand::rate(SIZES[0], adds).map_or(f64::NAN, |it| it.y);
        for kind in KINDS {
            for senders in SENDERS {
                stand.add(name(kind, senders), |stand, size| {
                    let rates = stand.rounds(
                        |pair| fan_in::FanIn::open(pair, kind, senders, size, SLOTS),
                        |ring, pair| ring.rate(pair, COUNTS, interrupt).map(|it| mib(it, size)),
                    )?;
                    Ok(stand::rate(size, rates))
                })?;
            }
        }
        if adds.is_finite() {
            stand.points.number(ADDS, adds, "/s");
            for kind in KINDS {
                let values = stand.points.of(&name(kind, SENDERS[0])).iter();
                let values =
                    values.map(|it| Value::new(it.x, it.y / (mib(1.0, it.x as u32) * adds)));
                let values = values.collect();
                stand.points.push(format!("{kind}, {OVER_ADDS}"), values);
            }
        }
        Ok(stand.finish())
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        if !stand::has_verdict(points) {
            return Vec::new();
        }
        let of = |kind| over(points, &name(kind, SENDERS[0]), &name(kind, SENDERS[1]), ALL);
        let claim = Claim::at_least(
            "channels-9a-senders",
            "where the word is in fast memory, eight senders are not held up by FETCH_ADDs of it",
            "least of 8 senders / 1 sender, of both rings at every size",
            least(KINDS.into_iter().flat_map(of)),
            KEPT,
        );
        vec![claim.shape()]
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let rates = KINDS.into_iter().flat_map(|kind| SENDERS.map(|senders| name(kind, senders)));
        let rates: Vec<String> = rates.collect();
        let adds = KINDS.map(|kind| format!("{kind}, {OVER_ADDS}"));
        Some(Picture {
            title: self.about().title.to_owned(),
            conditions: points.conditions.clone(),
            panels: vec![
                panel(points, "Throughput at the receiver", "MiB of messages a second", &rates, ""),
                panel(points, "Eight senders", "messages, over FETCH_ADDs of one word", &adds, ""),
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::stand::tests::points, *};

    #[test]
    fn the_claim_fails_of_one_ring_at_one_size() {
        let holds = |eight: [f64; 2]| {
            let names = KINDS.map(|kind| SENDERS.map(|senders| name(kind, senders)));
            let series: [(&str, &[f64]); 4] = [
                (&names[0][0], &[4.0, 4.0]),
                (&names[0][1], &[4.0, 4.0]),
                (&names[1][0], &eight),
                (&names[1][1], &[4.0, 4.0]),
            ];
            FanIn.claims(&points(&FanIn.about(), &[16, 64], &series))[0].holds
        };
        assert!(holds([4.0, 2.0]) && !holds([4.0, 1.99]));
    }
}
