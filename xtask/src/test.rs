//! `cargo xtask test`: all tests, tier by tier, with nothing skipped in silence.
//!
//! A tier that cannot run here makes the whole fail, unless the caller gives up on it by name
//! (`--unprivileged`). Privileged tests are `#[ignore]`d, so that plain `cargo test` works for
//! everybody; the last tier runs exactly those, and the end compares numbers, so that no ignored
//! test falls between tiers.
//!
//! What tests show for themselves (states explored, seeds run, requirements covered) is repeated
//! before the table.
//!
//! Lints are not tests: they depend on the compiler's version and live in `ci`.

use std::{
    fmt, thread,
    time::{Duration, Instant},
};

use clap::Args;

use crate::{
    cargo::{self, Cargo},
    host,
    not_run::NotRun,
    requirements,
    targets::{self, Targets},
};

/// The tests to run.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Options {
    /// Tier to run: 0 units, 1 networks, 2 models, 3 privileged. Repeat the option for several.
    /// Default: all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=3))]
    tier: Vec<u8>,
    /// Skip tier 3, which needs root.
    #[arg(long)]
    unprivileged: bool,
}

impl Options {
    fn leave_something(&self) -> Result<(), Error> {
        let nothing = !self.tier.is_empty() && self.tier.iter().all(|&tier| tier == PRIVILEGED);
        if self.unprivileged && nothing { Err(Error::NothingWanted) } else { Ok(()) }
    }
}

/// The reason why not all tests passed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// Something is missing.
    #[error(transparent)]
    Requirements(#[from] requirements::Error),
    /// The workspace is not understood.
    #[error(transparent)]
    Targets(#[from] targets::Error),
    /// Cargo could not be run.
    #[error(transparent)]
    Cargo(#[from] cargo::Error),
    /// Tests failed, or did not build.
    #[error("failed: {}; the output above has the reasons", Numbers(tiers))]
    Failed {
        /// The tiers.
        tiers: Vec<u8>,
    },
    /// All that ran passed, but not all ran.
    #[error(
        "tier 3 was not run (with --unprivileged that would be no error), all else passed: {why}"
    )]
    NotRun {
        /// The reason, and what would help.
        why: Box<requirements::Error>,
    },
    /// A run that looks like success and tested nothing: a wrong cfg, or targets that are no longer
    /// there.
    #[error("no test passed in: {}; what each was to test is not built in, or not there", commands.join("; "))]
    NothingPassed {
        /// The runs' command lines.
        commands: Vec<String>,
    },
    /// The options leave nothing to run.
    #[error(
        "--unprivileged does without tier 3, and no other tier is wanted: leave out one of the two options"
    )]
    NothingWanted,
    /// A test that is ignored in its own tier was not run in the last.
    #[error(
        "{ignored} tests are ignored in tiers 0 to 2, but tier 3 ran {ran}: \
         every #[ignore] must be a privileged unit or integration test"
    )]
    Unaccounted {
        /// In the tiers before.
        ignored: u32,
        /// In tier 3.
        ran: u32,
    },
    /// Tests did not clean up.
    #[error("tests left network namespaces behind, now removed: {}", names.join(", "))]
    Leftovers {
        /// The namespaces.
        names: Vec<String>,
    },
}

/// Tiers, for a sentence.
struct Numbers<'a>(&'a [u8]);

impl fmt::Display for Numbers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<_> = self.0.iter().map(|number| format!("tier {number}")).collect();
        f.write_str(&numbers.join(", "))
    }
}

/// A set of tests that need the same things and take about as long.
struct Tier {
    number: u8,
    what: &'static str,
    /// Those of a group run side by side, one group after the other.
    groups: fn(&Targets) -> Vec<Vec<Cargo>>,
}

const TIERS: [Tier; 4] = [
    Tier { number: 0, what: "units, properties, examples in the documentation", groups: units },
    Tier { number: 1, what: "networks: simulated, and UDP on loopback", groups: networks },
    Tier { number: 2, what: "models: loom, the four hops, the fuzzers' corpora", groups: models },
    Tier { number: PRIVILEGED, what: "privileged: AF_XDP, veth, steering", groups: privileged },
];

const PRIVILEGED: u8 = 3;

/// The same selection of packages everywhere: another one may mean other features, and another
/// build.
pub(crate) fn workspace_tests() -> Cargo {
    Cargo::new(&["test", "--workspace", "--no-fail-fast"])
}

fn named(names: &[impl AsRef<str>]) -> impl Iterator<Item = &str> {
    names.iter().flat_map(|name| ["--test", name.as_ref()])
}

/// The tests beside the code, and integration tests of these `names`, but for those that are
/// `aside`: each group of them runs at the same time, in a process of its own. Processes and not
/// threads, as a child that a test starts has copies of its process's sockets for a moment, and
/// their ports stay in use.
///
/// Programs of packages with a library, and examples, have no tests, and are not compiled as such.
fn side_by_side<'a>(
    targets: &'a Targets,
    names: impl Iterator<Item = &'a String>,
    aside: &[&[&str]],
) -> Vec<Cargo> {
    let is_aside = |name: &&String| aside.concat().contains(&name.as_str());
    let (aside_here, rest): (Vec<_>, Vec<_>) = names.partition(is_aside);
    let programs = targets.programs.iter().flat_map(|name| ["--bin", name]);
    let mut all = vec![workspace_tests().args(["--lib"]).args(programs).args(named(&rest))];
    for group in aside {
        all.extend(together(aside_here.iter().filter(|name| group.contains(&name.as_str()))));
    }
    all
}

/// Integration tests of these names. None if there are none: without a name cargo would run all.
fn together(names: impl Iterator<Item = impl AsRef<str>>) -> Option<Cargo> {
    let names: Vec<_> = names.collect();
    (!names.is_empty()).then(|| workspace_tests().args(named(&names)))
}

/// The tests of the key service wait for clocks nearly all of their time.
const UNITS_ASIDE: &[&[&str]] = &[&["service"]];

fn units(targets: &Targets) -> Vec<Vec<Cargo>> {
    let units = side_by_side(targets, targets.crates.iter(), UNITS_ASIDE);
    vec![units, vec![workspace_tests().args(["--doc"])]]
}

fn networks(targets: &Targets) -> Vec<Vec<Cargo>> {
    // They wait for timeouts a third of their time, and so do the others.
    let (real, others): (Vec<_>, Vec<_>) =
        targets.networks.iter().partition(|&name| name == "real_hosts");
    vec![[real, others].into_iter().filter_map(|names| together(names.into_iter())).collect()]
}

fn models(targets: &Targets) -> Vec<Vec<Cargo>> {
    // Optimised, as loom walks through every interleaving; apart, as its cfg rebuilds everything.
    let loom = ["test", "--package", "rma-shm", "--test", "loom", "--profile", "search"];
    let loom = Cargo::new(&loom).args(["--target-dir", "target/loom"]);
    let loom = loom.flags("RUSTFLAGS", "--cfg loom");
    vec![[loom].into_iter().chain(together(targets.models.iter())).collect()]
}

/// Two thirds of the privileged tests, by the time that they take. They wait for kernels and
/// timeouts for half of it.
const PRIVILEGED_ASIDE: &[&[&str]] = &[&["hostile"], &["real_hosts"]];

fn privileged(targets: &Targets) -> Vec<Vec<Cargo>> {
    let Targets { crates, networks, models, .. } = targets;
    let all = [crates, networks, models].into_iter().flatten();
    let ignored = |cargo: Cargo| cargo.args(["--", "--ignored", "--test-threads=1"]);
    vec![side_by_side(targets, all, PRIVILEGED_ASIDE).into_iter().map(ignored).collect()]
}

/// The counts of a tier's tests, by the harness's own count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u32,
    failed: u32,
    ignored: u32,
}

impl Counts {
    /// Reads `test result: ok. 5 passed; 0 failed; 1 ignored; …`; `None` for every other line.
    fn read(line: &str) -> Option<Self> {
        let (_verdict, rest) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let mut counts = Self::default();
        for part in rest.split("; ") {
            let Some((number, word)) = part.split_once(' ') else { continue };
            match word {
                "passed" => counts.passed = number.parse().ok()?,
                "failed" => counts.failed = number.parse().ok()?,
                "ignored" => counts.ignored = number.parse().ok()?,
                _ => {}
            }
        }
        Some(counts)
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }

    fn ran(self) -> u32 {
        self.passed + self.failed
    }
}

/// The end of a tier.
#[derive(Debug)]
enum End {
    Ran {
        counts: Counts,
        succeeded: bool,
        took: Duration,
        /// Runs that succeeded without a test that passed.
        empty: Vec<String>,
    },
    NotRun {
        why: Box<requirements::Error>,
    },
    GivenUp,
}

/// Runs the tiers in order, all of them even if one fails, and ends with a table. What is left out
/// goes to `not_run`.
pub(crate) fn run(options: &Options, not_run: &mut NotRun) -> Result<(), Error> {
    options.leave_something()?;
    requirements::to_test()?;
    let targets = Targets::of_the_workspace()?;
    let wanted = |tier: &Tier| options.tier.is_empty() || options.tier.contains(&tier.number);
    let before = host::abandoned_namespaces();
    let (mut ends, mut shown) = (Vec::new(), Shown::default());
    for tier in &TIERS {
        if !wanted(tier) {
            not_run.add(format_args!("tier {}, as --tier leaves it out", tier.number));
            continue;
        }
        println!("\n== tier {}: {} ==", tier.number, tier.what);
        let end = if tier.number != PRIVILEGED {
            run_tier(tier, &targets, &mut shown, not_run)?
        } else if options.unprivileged {
            End::GivenUp
        } else {
            match requirements::for_the_lab()? {
                Ok(()) => run_tier(tier, &targets, &mut shown, not_run)?,
                Err(lacks) => End::NotRun { why: Box::new(lacks.into_error("test")) },
            }
        };
        match &end {
            End::Ran { took, .. } => {
                println!("tier {} took {:.1} s", tier.number, took.as_secs_f64())
            }
            End::NotRun { why } => not_run.add(format_args!("tier {}: {why}", tier.number)),
            End::GivenUp => {
                not_run.add(format_args!("tier {}, as --unprivileged was given", tier.number));
            }
        }
        ends.push((tier, end));
    }
    shown.print();
    print_table(&ends);
    let left = host::abandoned_namespaces();
    let left = left.into_iter().filter(|name| !before.contains(name)).collect();
    judge(ends, left)
}

/// The end of a run.
struct Ran {
    counts: Counts,
    succeeded: bool,
}

/// Gives `line` each line of a run.
fn run_one(cargo: Cargo, mut line: impl FnMut(&str)) -> Result<Ran, cargo::Error> {
    let mut counts = Counts::default();
    let succeeded = cargo.run_watched(|text| {
        if let Some(more) = Counts::read(text) {
            counts.add(more);
        }
        line(text);
    })?;
    Ok(Ran { counts, succeeded })
}

/// Runs all of a group at once, and gives each with its command line. What the first prints is
/// watched as it comes, what the others print when the first has ended.
fn run_group(
    group: Vec<Cargo>,
    watch: &mut impl FnMut(&str),
) -> Vec<(String, Result<Ran, cargo::Error>)> {
    thread::scope(|scope| {
        let mut group = group.into_iter();
        let first = group.next();
        let others: Vec<_> = group
            .map(|cargo| {
                let (line, mut lines) = (cargo.line(), Vec::new());
                let run = move || (run_one(cargo, |text| lines.push(text.to_owned())), lines);
                (line, scope.spawn(run))
            })
            .collect();
        let mut all: Vec<_> =
            first.into_iter().map(|cargo| (cargo.line(), run_one(cargo, &mut *watch))).collect();
        for (line, other) in others {
            let (ran, lines) = other.join().expect("it does not panic");
            lines.iter().for_each(|text| watch(text));
            all.push((line, ran));
        }
        all
    })
}

#[expect(clippy::disallowed_methods, reason = "a person wants to know how long a tier took")]
fn run_tier(
    tier: &Tier,
    targets: &Targets,
    shown: &mut Shown,
    not_run: &mut NotRun,
) -> Result<End, Error> {
    let start = Instant::now();
    let mut counts = Counts::default();
    let (mut succeeded, mut empty) = (true, Vec::new());
    let mut watch = |line: &str| {
        println!("{line}");
        shown.read(line);
        not_run.read(line);
    };
    for group in (tier.groups)(targets) {
        for (line, ran) in run_group(group, &mut watch) {
            let Ran { counts: of_run, succeeded: run_succeeded } = ran?;
            if run_succeeded && of_run.passed == 0 {
                empty.push(line);
            }
            succeeded &= run_succeeded;
            counts.add(of_run);
        }
    }
    Ok(End::Ran { counts, succeeded, took: start.elapsed(), empty })
}

/// Lines of the tiers' output that are printed once more at the end: that output is long.
#[derive(Debug, Default)]
struct Shown {
    evidence: Vec<String>,
    failed: Vec<String>,
}

impl Shown {
    fn read(&mut self, line: &str) {
        self.evidence.extend(evidence_in(line).map(str::to_owned));
        self.failed.extend(failed_in(line).map(str::to_owned));
    }

    fn print(&self) {
        for (title, lines) in [("evidence", &self.evidence), ("failed", &self.failed)] {
            if !lines.is_empty() {
                println!("\n== {title} ==\n{}", lines.join("\n"));
            }
        }
    }
}

/// Returns the evidence in this line of output. The harness may have begun the line.
fn evidence_in(line: &str) -> Option<&str> {
    // `rma_lab::evidence` writes it.
    line.split_once("evidence: ").map(|(_, shown)| shown)
}

/// Returns the name of the test that failed by this line of output: the harness begins a test's
/// output with it, also where the test printed something between its name and its verdict.
fn failed_in(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

fn print_table(ends: &[(&Tier, End)]) {
    println!("\n== tests per tier ==");
    println!("{:<58} {:>6} {:>6} {:>7} {:>8}", "tier", "passed", "failed", "ignored", "time");
    let mut all = Counts::default();
    for (tier, end) in ends {
        let name = format!("{} {}", tier.number, tier.what);
        let End::Ran { counts: Counts { passed, failed, ignored }, took, .. } = end else {
            println!("{name:<58} NOT RUN");
            continue;
        };
        let took = took.as_secs_f64();
        println!("{name:<58} {passed:>6} {failed:>6} {ignored:>7} {took:>6.1} s");
        all.add(Counts { passed: *passed, failed: *failed, ignored: 0 });
    }
    // Ignored tests are those of tier 3, once more: adding them up would count them twice.
    println!("{:<58} {:>6} {:>6}", "all", all.passed, all.failed);
}

/// Whether the ends of the tiers, and what was left behind, are good enough.
fn judge(ends: Vec<(&Tier, End)>, left: Vec<String>) -> Result<(), Error> {
    let failed = |end: &End| match end {
        End::Ran { counts, succeeded, .. } => !succeeded || counts.failed > 0,
        End::NotRun { .. } | End::GivenUp => false,
    };
    let tiers: Vec<u8> =
        ends.iter().filter(|(_, end)| failed(end)).map(|(tier, _)| tier.number).collect();
    if !tiers.is_empty() {
        return Err(Error::Failed { tiers });
    }
    let empty = ends.iter().filter_map(|(_, end)| match end {
        End::Ran { empty, .. } => Some(empty),
        End::NotRun { .. } | End::GivenUp => None,
    });
    let commands: Vec<String> = empty.flatten().cloned().collect();
    if !commands.is_empty() {
        host::delete_namespaces(&left);
        return Err(Error::NothingPassed { commands });
    }
    if !left.is_empty() {
        host::delete_namespaces(&left);
        return Err(Error::Leftovers { names: left });
    }
    let all_ran = ends.len() == TIERS.len();
    let mut ignored = 0;
    for (tier, end) in ends {
        match end {
            End::NotRun { why } => return Err(Error::NotRun { why }),
            End::Ran { counts, .. } if tier.number == PRIVILEGED => {
                if all_ran && counts.ran() != ignored {
                    return Err(Error::Unaccounted { ignored, ran: counts.ran() });
                }
            }
            End::Ran { counts, .. } => ignored += counts.ignored,
            End::GivenUp => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(passed: u32, failed: u32, ignored: u32) -> End {
        let counts = Counts { passed, failed, ignored };
        End::Ran { counts, succeeded: failed == 0, took: Duration::ZERO, empty: Vec::new() }
    }

    fn judged(ends: [End; 4]) -> Result<(), Error> {
        judge(TIERS.iter().zip(ends).collect(), Vec::new())
    }

    #[test]
    fn the_harness_s_result_lines_are_counted_and_no_others() {
        let line = "test result: FAILED. 5 passed; 2 failed; 1 ignored; 0 measured; 3 filtered out; \
                    finished in 0.00s";
        assert_eq!(Counts::read(line), Some(Counts { passed: 5, failed: 2, ignored: 1 }));
        for other in ["", "running 3 tests", "test result: soon", "a test result: ok. 1 passed"] {
            assert_eq!(Counts::read(other), None, "{other}");
        }
    }

    #[test]
    fn evidence_is_found_wherever_the_harness_is_in_its_line() {
        assert_eq!(evidence_in("evidence: 7 seeds"), Some("7 seeds"));
        assert_eq!(evidence_in("test it_holds ... evidence: 7 seeds"), Some("7 seeds"));
        assert_eq!(evidence_in("test evidence_is_shown ... ok"), None);
    }

    #[test]
    fn a_test_that_failed_is_named_once_more_at_the_end() {
        assert_eq!(failed_in("---- keys::it_holds stdout ----"), Some("keys::it_holds"));
        assert_eq!(failed_in("test keys::it_holds ... FAILED"), None, "it is named once");
    }

    #[test]
    fn all_is_well_if_each_ignored_test_ran_in_the_last_tier() {
        judged([ran(9, 0, 1), ran(5, 0, 2), ran(3, 0, 0), ran(3, 0, 0)]).unwrap();
    }

    #[test]
    fn an_ignored_test_that_no_tier_ran_is_an_error() {
        let result = judged([ran(9, 0, 1), ran(5, 0, 2), ran(3, 0, 0), ran(2, 0, 0)]);
        assert!(matches!(result, Err(Error::Unaccounted { ignored: 3, ran: 2 })));
    }

    #[test]
    fn a_failed_test_and_a_failed_build_both_fail_their_tier() {
        let unbuilt = End::Ran {
            counts: Counts::default(),
            succeeded: false,
            took: Duration::ZERO,
            empty: Vec::new(),
        };
        let result = judged([ran(9, 1, 0), ran(5, 0, 0), unbuilt, ran(0, 0, 0)]);
        assert!(matches!(result, Err(Error::Failed { tiers }) if tiers == [0, 2]));
    }

    #[test]
    fn a_tier_that_could_not_run_is_an_error_unless_it_was_given_up() {
        let why = Box::new(requirements::Lacks::Root.into_error("test"));
        let result = judged([ran(9, 0, 1), ran(5, 0, 0), ran(3, 0, 0), End::NotRun { why }]);
        let message = result.unwrap_err().to_string();
        assert!(
            message.starts_with("tier 3 was not run") && message.contains("test needs root"),
            "{message}"
        );
        judged([ran(9, 0, 1), ran(5, 0, 0), ran(3, 0, 0), End::GivenUp]).unwrap();
    }

    #[test]
    fn a_run_in_which_no_test_passed_is_an_error() {
        let empty = vec!["cargo test --test loom".to_owned()];
        let counts = Counts { passed: 3, ..Counts::default() };
        let models = End::Ran { counts, succeeded: true, took: Duration::ZERO, empty };
        let result = judged([ran(9, 0, 1), ran(5, 0, 0), models, ran(1, 0, 0)]);
        let message = result.unwrap_err().to_string();
        assert!(message.contains("cargo test --test loom"), "{message}");
    }

    #[test]
    fn options_that_leave_nothing_to_run_are_an_error() {
        let options = |tier: &[u8], unprivileged| Options { tier: tier.to_vec(), unprivileged };
        let refused = options(&[PRIVILEGED], true).leave_something();
        assert!(matches!(refused, Err(Error::NothingWanted)));
        for (tier, unprivileged) in
            [(&[PRIVILEGED][..], false), (&[0, PRIVILEGED], true), (&[], true)]
        {
            options(tier, unprivileged).leave_something().unwrap();
        }
    }

    #[test]
    fn leftovers_of_tests_are_an_error() {
        let left = vec!["rma-a-4194305-0".to_owned()];
        let result = judge(Vec::new(), left.clone());
        assert!(matches!(result, Err(Error::Leftovers { names }) if names == left));
    }
}
