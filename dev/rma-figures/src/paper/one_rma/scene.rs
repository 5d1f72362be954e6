//! The common parts of figures 15: runs of one scene with many seeds, and curves over time.

use core::time::Duration;

use rma_sim::{
    check::watch::Checks,
    flows::{
        FlowOptions, Log, RTT,
        plot::{Row, rows},
        run as simulate,
        scenes::{DEMAND, Scene, Settling, settling},
    },
    net::model_aead::Seals,
};

use crate::paper::{figure::FigureFailed, points::Value, run::Run};

/// Seeds of each figure.
const SEEDS: u64 = 20;

/// The conditions of every run.
pub(super) const CONDITIONS: &str = "READs of 4 MiB back to back, Algorithm 1, 100 Gbit/s, idle RTT 5 us with \
     0.2 us of jitter each way, MTU 9000, one switch, window 64 KiB, timeout 25 us; a model of AES-GCM, light checks";

/// A run of a scene.
#[derive(Debug)]
pub(super) struct Played {
    pub(super) options: FlowOptions,
    pub(super) log: Log,
    pub(super) settling: Settling,
}

/// The options of a scene for a figure.
pub(super) fn options(scene: Scene, seed: u64) -> FlowOptions {
    FlowOptions { seals: Seals::Model, checks: Checks::Light, ..scene.options(seed) }
}

pub(super) fn played(options: FlowOptions) -> Played {
    let log = simulate(&options);
    let settling = settling(&options, &log, &DEMAND);
    Played { options, log, settling }
}

/// The seeds of a run, at both scales: numbers are of all of them.
pub(super) fn seeds(run: &Run<'_>) -> Vec<u64> {
    run.seeds(SEEDS).collect()
}

/// How long `scene` takes to settle with each seed, in round trips, and how many ops were not OK.
/// A run that does not settle is as long as it was looked at.
pub(super) fn settlings(run: &Run<'_>, scene: Scene) -> Result<Vec<Settling>, FigureFailed> {
    run.each(&seeds(run), |&seed| played(options(scene, seed)).settling)
}

/// The slowest, in round trips.
pub(super) fn slowest(all: &[Settling]) -> f64 {
    all.iter().map(|it| it.rtts).fold(f64::NAN, f64::max)
}

/// How many of them settled, and ops that were not OK.
pub(super) fn failures(all: &[Settling]) -> f64 {
    all.iter().map(|it| it.failures as f64 + f64::from(u8::from(!it.happened))).sum()
}

/// The value of `of` for each round trip from `from` to `to`.
pub(super) fn curve(
    Played { options, log, .. }: &Played,
    (from, to): (Duration, Duration),
    of: impl Fn(&Row) -> f64,
) -> Vec<Value> {
    let rows = rows(options, log, (from, to), RTT);
    let at = |row: &Row| row.at.as_nanos() as f64 / 1e3;
    rows.iter().map(|row| Value::new(at(row), of(row))).collect()
}
