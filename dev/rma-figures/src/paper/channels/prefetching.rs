//! Figure 10: one receiver of a read ring with inlined bells, by how much it reads beyond a bell.

use rma_bench::drawing::Picture;
use rma_xdp::channel::Kind;

use super::stand::{self, SIZES, SLOTS, SMALL, Stand, mib, over, panel};
use crate::{
    channels::broadcast::Broadcast,
    paper::{
        claims::{Claim, least},
        figure::{About, Figure, FigureFailed, Kind as FigureKind},
        points::Points,
        run::Run,
    },
};

/// Small messages of a round; of larger ones fewer.
const COUNT: u64 = 5_000;
/// Messages of a round that come one at a time: for nothing, and counted.
const ALONE: (u64, u64) = (200, 2_000);
/// Bytes beyond a bell. An op carries the most with the bell.
const PREFETCH: [u32; 3] = [0, 512, 4088];
/// The sizes of which a READ of the most brings several.
const SEVERAL: [u32; 2] = [SIZES[0], 1024];
/// The end of the names of latencies.
const LATENCY: &str = ", latency";

/// One sender and one receiver.
#[derive(Debug)]
pub(super) struct Prefetching;

fn name(prefetch: u32) -> String {
    format!("{prefetch} B beyond the bell")
}

fn latency(prefetch: u32) -> String {
    format!("{}{LATENCY}", name(prefetch))
}

impl Figure for Prefetching {
    fn about(&self) -> About {
        About {
            id: "channels-10",
            title: "A receiver that reads beyond the bell",
            says: "prefetching lets a receiver read several records at once, and makes small ones take longer",
            kind: FigureKind::Veth,
            seconds: 50,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let how = "a read ring with inlined bells; latencies one at a time, p50, 5 % to 95 %";
        let mut stand = Stand::new(&self.about(), run, how)?;
        let interrupt = run.interrupt;
        for prefetch in PREFETCH {
            let open = move |pair: &_, size| {
                Broadcast::open(pair, Kind::ReadRingInlined, (1, size, prefetch), SLOTS)
            };
            stand.add(name(prefetch), |stand, size| {
                let count = (COUNT * 256 / u64::from(size.max(256))).max(100);
                let rates = stand.rounds(
                    |pair| open(pair, size),
                    |ring, pair| {
                        let rate = ring.rate(pair, (count / 10, count), interrupt);
                        rate.map(|it| mib(it, size))
                    },
                )?;
                Ok(stand::rate(size, rates))
            })?;
            stand.add(latency(prefetch), |stand, size| {
                let rounds = stand.rounds(
                    |pair| open(pair, size),
                    |ring, pair| ring.one_way(pair, ALONE, interrupt),
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
        let [none, .., most] = PREFETCH;
        let small = [SIZES[0], SMALL];
        vec![
            Claim::at_least(
                "channels-10-throughput",
                "prefetching improves the throughput of records of which it brings several",
                "least of 4088 B / 0 B beyond the bell, up to 1 KiB",
                least(over(points, &name(most), &name(none), SEVERAL)),
                1.0,
            )
            .shape(),
            Claim::at_least(
                "channels-10-latency",
                "prefetching makes small records take longer",
                "least of p50 with 4088 B / 0 B beyond the bell, up to 64 B",
                least(over(points, &latency(most), &latency(none), small)),
                1.0,
            )
            .shape(),
        ]
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let (rates, latencies) = (PREFETCH.map(name), PREFETCH.map(latency));
        Some(Picture {
            title: self.about().title.to_owned(),
            conditions: points.conditions.clone(),
            panels: vec![
                panel(points, "Latency", "until the receiver has it, us", &latencies, LATENCY),
                panel(points, "Throughput", "MiB of messages a second", &rates, ""),
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::stand::tests::points, *};

    #[test]
    fn each_claim_fails_of_one_size() {
        let holds = |rates: [f64; 2], latencies: [f64; 2]| {
            let [none, .., most] = PREFETCH;
            let series: [(&str, &[f64]); 4] = [
                (&name(none), &[2.0, 2.0]),
                (&name(most), &rates),
                (&latency(none), &[5.0, 5.0]),
                (&latency(most), &latencies),
            ];
            let claims = Prefetching.claims(&points(&Prefetching.about(), &[16, 64], &series));
            claims.iter().map(|it| it.holds).collect::<Vec<_>>()
        };
        assert_eq!(holds([2.0, 2.0], [5.0, 5.0]), [true, true]);
        assert_eq!(holds([2.0, 1.99], [5.0, 5.0]), [false, true]);
        assert_eq!(holds([2.0, 2.0], [4.99, 5.0]), [true, false]);
    }
}
