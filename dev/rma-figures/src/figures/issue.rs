//! The cost of issuing to an application.

use rma_bench::{error::PairError, interrupt::Interrupt, rates};

use super::spec::Measured;
use crate::issue;

/// Rounds. An odd number has a middle one.
const ROUNDS: u64 = 11;
/// Ops in each.
const COUNT: u64 = 2_000_000;

pub(super) fn issue_path(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let mut lines = |(): &mut ()| Ok(issue::bare_lines(COUNT));
    let mut portal = |(): &mut ()| Ok(issue::portal_commands(COUNT));
    let mut executor = |(): &mut ()| Ok(issue::executor_ops(COUNT));
    let measures: [&mut rates::Measure<'_, ()>; 3] = [&mut lines, &mut portal, &mut executor];
    let [lines, portal, executor] = rates::in_turns(&mut (), measures, ROUNDS, interrupt)?;
    let words = |rates: &rates::Rates, what: &str| {
        let (low, high) = rates.range();
        format!(
            "{what} {:.1} ns each, {:.2} M/s, from {:.2} to {:.2}",
            1e9 / rates.median(),
            rates.median() * 1e-6,
            low * 1e-6,
            high * 1e-6,
        )
    };
    let lines_words = words(&lines, "lines of 64 bytes to the other core, each answered with one");
    let portal_words = words(
        &portal,
        "64 B reads issued through a CommandPortal in batches, and their completions polled",
    );
    let executor_words = words(
        &executor,
        "calls of 64 B through a CommandExecutor with congestion control, and their outcomes taken",
    );
    let detail = |words: &str| {
        format!(
            "{words}; one application thread against a null engine on the other core; {ROUNDS} rounds of {COUNT}"
        )
    };
    Ok(vec![
        Measured {
            name: "portal_over_lines",
            value: portal.over(&lines),
            detail: detail(&format!("{portal_words}; {lines_words}")),
        },
        Measured {
            name: "issue_over_portal",
            value: executor.over(&portal),
            detail: detail(&format!("{executor_words}; {portal_words}")),
        },
        Measured {
            name: "portal_commands_per_s",
            value: portal.median(),
            detail: detail(&portal_words),
        },
        Measured {
            name: "issue_ops_per_s",
            value: executor.median(),
            detail: detail(&executor_words),
        },
    ])
}
