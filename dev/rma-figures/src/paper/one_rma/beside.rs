//! Figure 12: small ops beside a large transfer between the same hosts (§7.2).

use core::time::Duration;

use rma_bench::drawing::{Axis, Mark, Picture, Scale as Places};
use rma_sim::{
    baselines::{Constants, figures::figure_12},
    flows::{
        RATE,
        scenes::{Beside as Small, small_beside},
    },
};

use super::{
    compared::{self, CONNECTIONS, MODELS, Other, Runs, SOFTWARE, micros},
    simulated::{Axes, COMMON, both, one_panel, op_micros},
};
use crate::paper::{
    claims::{Claim, least, most},
    figure::{About, Figure, FigureFailed, Kind},
    points::{Points, Value},
    run::Run,
};

/// The figure.
#[derive(Debug)]
pub(super) struct Beside;

const SEEDS: u64 = 4;
/// How long each seed is: small ones come 10,000 times a second.
const LENGTH: Duration = Duration::from_millis(25);

const MEDIAN: &str = "1RMA p50";
const P99: &str = "1RMA p99";
const ALONE: &str = "1RMA p50 alone";
const FAILED: &str = "ops that were not OK";

/// Small ops of each seed of the systems beside it.
const MEASURED: u32 = 500;

/// Adds what the paper compares 1RMA with.
fn others(run: &Run<'_>, sizes: &[u64], points: &mut Points) -> Result<(), FigureFailed> {
    let cases: Vec<Option<u64>> =
        [None].into_iter().chain(sizes.iter().copied().map(Some)).collect();
    let runs = Runs { seeds: SEEDS, measured: MEASURED, constants: &Constants::default() };
    for other in [CONNECTIONS, SOFTWARE] {
        let all = other.points(run, &cases, runs, |setting, &large| figure_12(setting, large))?;
        let alone =
            all.first().map_or(f64::NAN, |it| compared::value(0.0, it, |it| micros(it, 0.5)).y);
        for (what, part) in [("p50", 0.5), ("p99", 0.99)] {
            let beside = sizes.iter().map(|&it| it as f64).zip(all.iter().skip(1));
            let slowdown = |it: &_| micros(it, part) / alone;
            let values = beside.map(|(x, it)| compared::value(x, it, slowdown));
            points.push(other.name(what), values.collect());
        }
        points.number(other.name("p50 alone"), alone, "us");
    }
    Ok(())
}

/// The greatest distance of an added median from half of the transfer's time, relative.
fn off_half(points: &Points, other: &Other) -> f64 {
    let alone = points.value(&other.name("p50 alone")).unwrap_or(f64::NAN);
    let framing = other.system.framing(&Constants::default());
    let half = |len: f64| framing.wire_bytes(len as u64) as f64 / RATE as f64 * 1e6 / 2.0;
    let large = points.of(&other.name("p50")).iter().filter(|it| it.x >= PROPORTIONAL);
    most(large.map(|it| ((it.y - 1.0) * alone / half(it.x) - 1.0).abs()))
}

/// The least transfer that takes long beside all else, in bytes.
const PROPORTIONAL: f64 = 262_144.0;

/// The greatest transfer.
const GREATEST: f64 = 4_194_304.0;

impl Figure for Beside {
    fn about(&self) -> About {
        About {
            id: "1rma-12",
            title: "Small ops beside a large transfer",
            says: "Small ops beside a large transfer wait about as long as one chunk of 4 KB takes; with a connection, as \
                   long as the transfer does.",
            kind: Kind::Simulation,
            seconds: 30,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let sizes: &[u64] =
            run.pick(&[256 << 10], &[4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20]);
        let all = [None].into_iter().chain(sizes.iter().copied().map(Some));
        let seeds: Vec<u64> = run.seeds(SEEDS).collect();
        let cases: Vec<Option<u64>> = all.collect();
        let jobs: Vec<(Option<u64>, u64)> =
            cases.iter().flat_map(|&size| seeds.iter().map(move |&seed| (size, seed))).collect();
        let measured = run.each(&jobs, |&(size, seed)| small_beside(size, seed, LENGTH))?;
        let mut of = measured.chunks(seeds.len().max(1));
        let micros = |it: Duration| it.as_secs_f64() * 1e6;
        let middle = |x, of: &[Small], part: fn(&Small) -> Duration| {
            Value::of(x, &mut of.iter().map(|it| micros(part(it))).collect::<Vec<_>>())
        };
        let alone = middle(0.0, of.next().unwrap_or(&[]), |it| it.median).y;
        let beside: Vec<(f64, &[Small])> = sizes.iter().map(|&it| it as f64).zip(of).collect();
        let mut points = Points::new(
            &self.about(),
            format!(
                "READs of 64 B, 10,000 a second by chance, beside READs of one size one after the other, Algorithm 1, \
                 window 64 KiB, {COMMON}; {} seeds; latency over the median alone; \
                 {MODELS}",
                seeds.len()
            ),
        );
        for (name, part) in
            [(MEDIAN, (|it| it.median) as fn(&Small) -> Duration), (P99, |it| it.p99)]
        {
            let value = |&(x, of): &(f64, &[Small])| {
                let Value { y, interval, .. } = middle(x, of, part);
                let slowdown = Value::new(x, y / alone);
                interval.map_or(slowdown, |[low, high]| slowdown.within(low / alone, high / alone))
            };
            points.push(name, beside.iter().map(value).collect());
        }
        points.number(ALONE, alone, "us");
        let failed: usize = measured.iter().map(|it| it.failures).sum();
        points.number(FAILED, failed as f64, "");
        others(run, sizes, &mut points)?;
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let alone = points.value(ALONE).unwrap_or(f64::NAN);
        let median = || points.of(MEDIAN).iter();
        let flat = || median().filter(|it| it.x >= f64::from(256 << 10)).map(|it| it.y);
        vec![
            Claim::at_most(
                "1rma-12-chunk",
                "small ops are delayed by what three chunks of 4 KB take at most",
                "the greatest added median over the time of a chunk on the link, all sizes",
                most(median().map(|it| (it.y - 1.0) * alone / op_micros())),
                3.0,
            ),
            Claim::at_most(
                "1rma-12-flat",
                "the delay does not grow with the transfer",
                "greatest over least added median from 256 KiB",
                (most(flat()) - 1.0) / (least(flat()) - 1.0),
                1.25,
            )
            .shape(),
            Claim::at_most(
                "1rma-12-ok",
                "no op fails",
                "ops that are not OK",
                points.value(FAILED).unwrap_or(f64::NAN),
                0.0,
            ),
            Claim::at_most(
                "1rma-12-transfer",
                "with a connection, the delay is in proportion to the transfer",
                "the greatest distance of connections' added median from half of the transfer's time, relative, from 256 KiB",
                off_half(points, &CONNECTIONS),
                0.25,
            ),
            Claim::at_least(
                "1rma-12-less",
                "1RMA delays small ops far less than a connection does",
                "connections' median slowdown over 1RMA's beside 4 MiB",
                least(
                    both(points, (&CONNECTIONS.name("p50"), MEDIAN))
                        .filter(|it| it[0] >= GREATEST)
                        .map(|[_, theirs, ours]| theirs / ours),
                ),
                10.0,
            ),
        ]
        .into_iter()
        .filter(|it| !it.value.is_nan())
        .collect()
    }

    fn picture(&self, points: &Points) -> Option<Picture> {
        let x = Axis { name: "the transfer's size", scale: Places::Bytes };
        let y = Axis { name: "latency over that alone", scale: Places::Log };
        let mut picture = one_panel(self, points, Axes { x, y });
        let alone = points.value(ALONE)?;
        let name = "one chunk's time more".to_owned();
        let y = 1.0 + op_micros() / alone;
        picture
            .panels
            .iter_mut()
            .for_each(|it| it.marks.push(Mark::Level { y, name: name.clone() }));
        Some(picture)
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
        let values: &[_] = &[[4096.0, 1.1], [262_144.0, 1.17], [4_194_304.0, 1.2]];
        // Half of 256 KiB and of 4 MiB take 10.7 and 171 us; the first of them may be anything.
        let theirs: &[_] = &[[4096.0, 1.0], [262_144.0, 3.7], [4_194_304.0, 43.8]];
        let connections = CONNECTIONS.name("p50");
        let made = |failed| {
            let mut points = points(&Beside, &[(MEDIAN, values), (&connections, theirs)]);
            points.number(CONNECTIONS.name("p50 alone"), 4.0, "us");
            points.number(ALONE, 4.4, "us");
            points.number(FAILED, failed, "");
            points
        };
        assert!(broken(&Beside, &made(0.0)).is_empty());
        assert_eq!(broken(&Beside, &made(1.0)), ["ok"]);
        let fails = |x, y| broken(&Beside, &with(&made(0.0), MEDIAN, x, y));
        assert_eq!(fails(4096.0, 1.24), ["chunk"]);
        assert!(fails(4_194_304.0, 1.46).contains(&"flat".to_owned()));
        let theirs = |x, y| broken(&Beside, &with(&made(0.0), &connections, x, y));
        let half = 262_144.0 * (1.0 + 86.0 / 4096.0) / 12.5e3 / 2.0 / 4.0;
        assert!(theirs(262_144.0, 1.0 + half * 1.249).is_empty());
        assert_eq!(theirs(262_144.0, 1.0 + half * 1.251), ["transfer"]);
        assert_eq!(theirs(262_144.0, 1.0 + half * 0.749), ["transfer"]);
        assert_eq!(theirs(4_194_304.0, 11.9), ["transfer", "less"]);
    }
}
