//! CommandExecutors on many networks with faults and mishaps.
//!
//! `RMA_SIM_SEEDS` says how many, `RMA_SIM_FIRST` where to begin; `RMA_SIM_SEED` runs one of them.

use rma_lab::evidence;
use rma_sim::load::calls::{CallsReport, run_seed};

/// How many seeds are run, unless RMA_SIM_SEEDS says otherwise.
const SEEDS: u64 = 400;

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}: it must be a number")))
}

#[test]
fn every_call_has_one_outcome_that_is_true() {
    let one = variable("RMA_SIM_SEED").map(|seed| seed..seed + 1);
    let first = variable("RMA_SIM_FIRST").unwrap_or(0);
    let all = first..first + variable("RMA_SIM_SEEDS").unwrap_or(SEEDS);
    let is_whole = one.is_none() && all.end - all.start >= SEEDS;
    let mut total = CallsReport::default();
    for seed in one.unwrap_or(all) {
        total.add(&run_seed(seed).unwrap_or_else(|broken| panic!("{broken}")));
    }
    evidence::show(format_args!("{total:?}"));
    if is_whole {
        let CallsReport { ok, failed, silent, late, cancelled, retries, bytes, tried, untried } =
            total;
        let reached = [ok, failed, silent, late, cancelled, retries, bytes, tried, untried];
        assert!(reached.iter().all(|&it| it > 0), "{total:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_calls() {
    assert_eq!(run_seed(5), run_seed(5));
}
