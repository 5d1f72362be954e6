//! `cargo xtask swarm`: the tests that take seeds, with as many as one likes, on all cores.
//!
//! Not here: what a seed means. Each test draws all from it, and prints the line that repeats it.

use std::{
    num::{NonZeroU64, NonZeroUsize},
    ops::Range,
    thread,
};

use clap::{Args, ValueEnum};

use crate::{
    cargo::{self, Cargo},
    requirements, test,
};

/// The reason why a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// Something is missing.
    #[error(transparent)]
    Requirements(#[from] requirements::Error),
    /// A seed failed, or the test could not be built.
    #[error(transparent)]
    Cargo(#[from] cargo::Error),
}

/// The tests to run, and the seeds.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Tests to run. Default: all, one after the other.
    tests: Vec<Test>,
    /// Number of seeds of each test. Default: each test's own, for a long run.
    #[arg(long, value_name = "N")]
    seeds: Option<NonZeroU64>,
    /// First seed.
    #[arg(long, value_name = "N", default_value_t = 0)]
    first: u64,
}

/// A test that takes seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Test {
    /// Simulated networks of NICs, with faults.
    Networks,
    /// Transfers with retries on such networks.
    Calls,
    /// Transfers on such networks while keys rotate.
    Keys,
    /// Each kind of channel on such networks.
    Channels,
    /// Hosts with StaR on such networks.
    Star,
}

/// The place of a test, and how it takes its seeds.
struct Place {
    package: &'static str,
    binary: &'static str,
    /// Part of the names of those of its tests that take seeds. Empty: all of them.
    filter: &'static str,
    /// The variables for the first seed and the number of seeds.
    variables: [&'static str; 2],
    /// How many seeds a long run has.
    seeds: u64,
    /// Whether the test keeps all cores busy by itself.
    is_parallel: bool,
}

impl Test {
    const fn place(self) -> Place {
        const SIM: [&str; 2] = ["RMA_SIM_FIRST", "RMA_SIM_SEEDS"];
        const CHANNEL: [&str; 2] = ["RMA_CHANNEL_FIRST", "RMA_CHANNEL_SEEDS"];
        const STAR: [&str; 2] = ["RMA_STAR_FIRST", "RMA_STAR_SEEDS"];
        let (package, binary, filter, variables, seeds, is_parallel) = match self {
            Self::Networks => ("rma-sim", "swarm", "", SIM, 100_000, true),
            Self::Calls => ("rma-sim", "networks", "calls::", SIM, 20_000, false),
            Self::Keys => ("rma-sim", "networks", "keys::", SIM, 20_000, false),
            Self::Channels => ("rma-channel", "contract", "faults", CHANNEL, 2_000, true),
            Self::Star => ("rma-star", "hosts", "", STAR, 2_000, false),
        };
        Place { package, binary, filter, variables, seeds, is_parallel }
    }
}

/// Runs what `options` say.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    requirements::to_test()?;
    let tests = if options.tests.is_empty() { Test::value_variants() } else { &options.tests };
    for &test in tests {
        let seeds = options.seeds.map_or(test.place().seeds, NonZeroU64::get);
        run_seeds(test, options.first..options.first.saturating_add(seeds))?;
    }
    Ok(())
}

/// Runs `test` with `seeds`, optimised: a part on each core, if the test itself uses only one.
pub(crate) fn run_seeds(test: Test, seeds: Range<u64>) -> Result<(), Error> {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get) as u64;
    let parts = if test.place().is_parallel { 1 } else { cores };
    thread::scope(|scope| {
        let parts: Vec<_> = parts_of(&seeds, parts)
            .map(|part| scope.spawn(move || command(test, &part, true).run()))
            .collect();
        parts.into_iter().try_for_each(|part| part.join().expect("printed above"))
    })?;
    Ok(())
}

/// Runs `test`, which keeps all cores busy, as the tests have built it: for so few `seeds` that an
/// optimised build would take longer than they do.
pub(crate) fn run_few(test: Test, seeds: &Range<u64>) -> Result<(), Error> {
    Ok(command(test, seeds, false).run()?)
}

/// Splits `seeds` into at most `count` parts that are not empty.
fn parts_of(seeds: &Range<u64>, count: u64) -> impl Iterator<Item = Range<u64>> {
    let len = (seeds.end - seeds.start).div_ceil(count).max(1);
    let end = seeds.end;
    seeds.clone().step_by(len as usize).map(move |first| first..end.min(first.saturating_add(len)))
}

fn command(test: Test, seeds: &Range<u64>, is_optimised: bool) -> Cargo {
    let Place { package, binary, filter, variables: [first, count], is_parallel, .. } =
        test.place();
    let mut cargo = if is_optimised {
        Cargo::new(&["test", "--profile", "search", "--package", package])
    } else {
        test::workspace_tests()
    };
    cargo = cargo.args(["--test", binary]);
    if !filter.is_empty() {
        cargo = cargo.args([filter]);
    }
    if is_parallel {
        // The totals. The other tests name each seed, and are shown if they fail.
        cargo = cargo.args(["--", "--nocapture"]);
    }
    let len = (seeds.end - seeds.start).to_string();
    cargo.variable(first, &seeds.start.to_string()).variable(count, &len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_run_are_all_its_seeds_each_once() {
        for (seeds, count) in [(0..10, 1), (5..12, 2), (0..3, 8), (7..7, 2)] {
            let parts: Vec<_> = parts_of(&seeds, count).collect();
            assert!(parts.len() as u64 <= count && parts.iter().all(|part| !part.is_empty()));
            assert_eq!(parts.into_iter().flatten().collect::<Vec<_>>(), seeds.collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_run_is_a_line_that_can_be_repeated_by_hand() {
        assert_eq!(
            command(Test::Channels, &(40..100), true).line(),
            "RMA_CHANNEL_FIRST=40 RMA_CHANNEL_SEEDS=60 cargo test --profile search \
             --package rma-channel --test contract faults -- --nocapture"
        );
    }
}
