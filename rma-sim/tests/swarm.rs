//! Many seeds, each another network: faults first, then none.

use rma_core::{error::DropReason, op::OpStatus};
use rma_sim::{scenario::Report, swarm::run_seed};

/// How many seeds the swarm runs, unless RMA_SIM_SEEDS says otherwise.
const SEEDS: u64 = 2000;

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}: it must be a number")))
}

/// The first seed of the swarm; RMA_SIM_FIRST moves it, for long runs in parts.
fn seeds() -> std::ops::Range<u64> {
    let first = variable("RMA_SIM_FIRST").unwrap_or(0);
    first..first + variable("RMA_SIM_SEEDS").unwrap_or(SEEDS)
}

#[test]
fn the_swarm_keeps_every_promise_and_reaches_every_status() {
    if let Some(seed) = variable("RMA_SIM_SEED") {
        println!("{}", rma_sim::scenario::Options::from_seed(seed));
        let report = run_seed(seed, |seen| println!("{seen}"));
        println!("{}", report.unwrap_or_else(|found| panic!("{found}")));
        return;
    }
    let mut total = Report::default();
    for seed in seeds() {
        let report = run_seed(seed, |_| ()).unwrap_or_else(|found| panic!("{found}"));
        total.add(&report);
    }
    println!("{} seeds\n{total}", seeds().count());
    // A short swarm cannot reach everything.
    if seeds().count() < SEEDS as usize {
        return;
    }
    for status in OpStatus::ALL {
        assert!(total.statuses[status as usize] > 0, "no op ended with {status}");
    }
    // What an honest network does not cause, or hardly ever.
    let elsewhere = [
        DropReason::NotForThisHost,
        DropReason::OutsideOp,
        DropReason::LocalRegionGone,
        DropReason::NoticeQueueFull,
        DropReason::WrongResponder,
    ];
    for reason in DropReason::ALL {
        let reached = total.drops[reason as usize] > 0;
        assert!(reached || elsewhere.contains(&reason), "nothing was dropped for {reason:?}");
    }
}
