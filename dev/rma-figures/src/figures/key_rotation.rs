//! The effect of a region's rotations on clients of a key service, and the loss of large reads to
//! them.

use rma_bench::{error::PairError, interrupt::Interrupt, pair::Place};

use super::{
    conditions::{CONDITIONS, MTU, lab},
    spec::Measured,
};
use crate::{
    key_rotation::{
        Kind, Rotations, Scene, rotate,
        transfers::{self, Amount, PERIOD},
    },
    scale::median,
};

/// Clients, and rotations before so many: ten thousands of gaps, so that there is a p99.
const REACTIVE: [(Kind, (usize, u64)); 3] =
    [(Kind::Reactive, (1, 5000)), (Kind::Reactive, (10, 1500)), (Kind::Reactive, (100, 500))];

/// The same where the next key is handed out before, at a beat of some milliseconds and ten times a
/// second.
const PROACTIVE: [(Kind, (usize, u64)); 4] = [
    (Kind::Proactive, (1, 1000)),
    (Kind::Proactive, (100, 150)),
    (Kind::Scheduled, (1, 100)),
    (Kind::Scheduled, (100, 60)),
];

/// Rounds of large reads with a key that changes, and as many without.
const ROUNDS: usize = 7;

fn scene(kind: Kind, (clients, rotations): (usize, u64)) -> Scene {
    Scene { kind, clients, rotations, histories: 0, port: rma_xdp::config::DEFAULT_PORT }
}

fn detail(rotations: &Rotations, what: &str) -> String {
    let Rotations { gaps, fetching, extra, .. } = rotations;
    let fetch = if fetching.count() > 0 {
        format!(
            ", of it the fetch p50 {:.2}, the rest p50 {:.2}, p90 {:.2} and p99 {:.2}",
            fetching.quantile_us(0.5),
            extra.quantile_us(0.5),
            extra.quantile_us(0.9),
            extra.quantile_us(0.99)
        )
    } else {
        String::new()
    };
    format!(
        "{what}; {} rotations before {} clients that probe; a round trip is the p50 of their READs of 64 B, {:.2} us, of which \
         the p90 is {:.2} and the p99 {:.2}; gap p50 {:.2} us, p99 {:.2}, longest {:.2}{fetch}; {} spurious fetches, {} ops failed otherwise; service and rotation \
         between turns of the owner's engine, keys over TLS 1.3; veth MTU {MTU}, {CONDITIONS}",
        rotations.count,
        rotations.clients,
        rotations.rtt_us(),
        rotations.reads.quantile_us(0.9),
        rotations.reads.quantile_us(0.99),
        gaps.quantile_us(0.5),
        gaps.quantile_us(0.99),
        gaps.max_us(),
        rotations.spurious,
        rotations.failed_otherwise,
    )
}

pub(super) fn rotations(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let mut measured = Vec::new();
    let (mut ops, mut failed, mut fetches) = (0, 0, 0.0_f64);
    for (kind, amount) in REACTIVE.into_iter().chain(PROACTIVE) {
        let rotations = rotate(Place::Lab(&lab), scene(kind, amount), interrupt)?;
        ops += rotations.other_ops;
        failed += rotations.other_failed;
        let (micros, what) = if kind == Kind::Reactive {
            fetches = fetches.max(rotations.fetches_per_client());
            (rotations.extra.quantile_us(0.99), "p99 of a client's gap without its fetch")
        } else {
            (rotations.gaps.quantile_us(0.5), "p50 of a client's gap")
        };
        measured.push(Measured::new(micros / rotations.rtt_us(), detail(&rotations, what)));
    }
    measured.push(Measured::new(
        fetches,
        "requests to the key service for each client and reactive rotation, the most of 1, 10 and 100 clients",
    ));
    measured.push(Measured::new(
        failed as f64,
        format!("of {ops} READs of another region meanwhile, by a portal of the clients' host"),
    ));
    Ok(measured)
}

pub(super) fn goodput(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let amount = Amount { rounds: ROUNDS, period: PERIOD };
    let rounds =
        transfers::measure(Place::Lab(&lab), rma_xdp::config::DEFAULT_PORT, amount, interrupt)?;
    let pairs = || rounds.steady.iter().zip(&rounds.rotated);
    let mut ratios: Vec<f64> = pairs()
        .map(|(steady, rotated)| rotated.bytes_per_second / steady.bytes_per_second)
        .collect();
    let all = || rounds.steady.iter().chain(&rounds.rotated);
    let mut rates: [Vec<f64>; 2] = [&rounds.steady, &rounds.rotated]
        .map(|it| it.iter().map(|it| it.bytes_per_second / 1e6).collect());
    let [steady, rotated] = rates.each_mut().map(|it| median(it));
    let rekeyed: u64 = rounds.rotated.iter().map(|it| it.rekeyed).sum();
    let fetches: u64 = rounds.rotated.iter().map(|it| it.fetches).sum();
    Ok(vec![
        Measured::new(
            median(&mut ratios),
            format!(
                "READs of 4 MiB, two under way, by a KeyedExecutor: {rotated:.0} MB/s while the key changes every {PERIOD:?}, \
                 the next one fetched before, over {steady:.0} MB/s while it stays; median of {ROUNDS} ratios; {} rotations, \
                 {rekeyed} times a call went on under another key, {fetches} fetches; veth MTU {MTU}, {CONDITIONS}",
                rounds.rotations
            ),
        ),
        Measured::new(all().map(|it| it.failed).sum::<u64>() as f64, "of these READs, in both"),
    ])
}
