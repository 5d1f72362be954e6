//! The target's answer about an op in doubt: [`Settlement`].

use rma_core::{executor::Outcome, outcome::Verdict};

/// The target's answer about a recorded op whose outcome was unknown: [`Client::settle`],
/// [`Transfers::settle`] (not in the paper).
///
/// [`Client::settle`]: crate::Client::settle
/// [`Transfers::settle`]: crate::Transfers::settle
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Settlement {
    /// Final, whichever it is. APPLIED: it was, once. NOT_APPLIED: it was not and never will be, so
    /// it may be issued again. FORGOTTEN: its target cannot tell any longer, and never will.
    pub verdict: Verdict,
    /// The word that a COMPARE_SWAP or a FETCH_ADD found, if it was applied.
    pub result: Option<u64>,
}

impl Settlement {
    /// Of a call that asked, and is OK.
    pub(crate) fn of(outcome: Outcome) -> Self {
        let verdict = outcome.verdict.expect("a call that asked and is OK has an answer");
        Self { verdict, result: outcome.result }
    }
}
