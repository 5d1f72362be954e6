//! The seeds that a test runs, and the line that repeats a failing one.

use std::env;

/// One seed: the one to run, and no other.
pub const SEED: &str = "RMA_WIRE_SEED";

/// How many seeds each test runs, for runs that may take long.
pub const SEEDS: &str = "RMA_WIRE_SEEDS";

/// Runs `test` with the seeds that the environment asks for, or with 1 to `usual`.
///
/// # Panics
/// As `test` does, after saying how to repeat it; or if the environment holds no number.
pub fn run(name: &'static str, usual: u64, test: impl Fn(u64)) {
    let seeds = match (number(SEED), number(SEEDS)) {
        (Some(seed), _) => seed..=seed,
        (None, count) => 1..=count.unwrap_or(usual),
    };
    for seed in seeds {
        let _said_on_panic = Replay { name, seed };
        test(seed);
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}: it must be a number")))
}

/// Says how to repeat a run that panics.
struct Replay {
    name: &'static str,
    seed: u64,
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { name, seed } = self;
            eprintln!(
                "{SEED}={seed} cargo test -p rma-tests --test hostile -- --ignored --exact hostile_wire::{name}"
            );
        }
    }
}
