//! What issuing costs an application.

use super::spec::Measured;
use crate::{error::PairError, interrupt::Interrupt, issue, rates};

/// Rounds. An odd number has a middle one.
const ROUNDS: u64 = 11;
/// Ops in each.
const COUNT: u64 = 2_000_000;

pub(super) fn issue_path(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let mut portal = |(): &mut ()| Ok(issue::portal_commands(COUNT));
    let mut executor = |(): &mut ()| Ok(issue::executor_ops(COUNT));
    let [portal, executor] =
        rates::in_turns(&mut (), [&mut portal, &mut executor], ROUNDS, interrupt)?;
    let measured = |name, rates: &rates::Rates, what: &str| {
        let (low, high) = rates.range();
        let detail = format!(
            "{what}, one application thread against a null engine on the other core; median of {ROUNDS} rounds of {COUNT} from \
             {:.2} to {:.2} M/s: {:.1} ns each",
            low * 1e-6,
            high * 1e-6,
            1e9 / rates.median(),
        );
        Measured { name, value: rates.median(), detail }
    };
    Ok(vec![
        measured(
            "portal_commands_per_s",
            &portal,
            "64 B reads issued through a CommandPortal in batches, and their completions polled",
        ),
        measured(
            "issue_ops_per_s",
            &executor,
            "calls of 64 B through a CommandExecutor with congestion control, and their outcomes taken",
        ),
    ])
}
