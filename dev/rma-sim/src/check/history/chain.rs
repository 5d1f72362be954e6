//! A long history of a word, by its values: where each value is there only once, they tell the
//! order.
//!
//! Not for values that repeat: it says so, and another must judge. It takes O(n log n) for n ops,
//! and u² for u additions whose outcome is unknown.
//!
//! The values of a word are cut into *runs*. A run begins with a *base*: the initial value, or what
//! a STORE or COMPARE_SWAP put there. From there FETCH_ADDs lead upwards, by all of them together
//! (the *reach*) at most. If the runs cannot meet (bases are further apart than the reach, and no
//! sum wraps) then no value is there twice in any order, and an op that saw a value has its place:
//!
//! - in a run by the value, first who only saw it, then who replaced it, of whom there is one;
//! - what is missing between two values (a *gap*) was added by ops whose outcome is unknown, each
//!   in one gap;
//! - a run follows the one that its COMPARE_SWAP saw the end of; runs that follow each other are a
//!   *line*, which begins with the initial value or a STORE;
//! - a COMPARE_SWAP or STORE whose outcome is unknown was applied if somebody saw its run. All
//!   else that is unknown may be left out: nobody saw it.
//!
//! Then real time is held against the order within lines, and lines are put in order by it.

mod gap;
mod line;
mod run;

use super::{
    op::{Op, Word},
    violation::Violation,
};
use run::Runs;

/// The verdict on a chain of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// There is an order.
    Ordered,
    /// A value may have been there twice, or more than one set of ops fits a gap.
    Undetermined,
}

/// Puts the ops of a word in order by their values.
pub(super) fn check(word: Word, initial: u64, ops: &[Op]) -> Result<Verdict, Box<Violation>> {
    let Some(mut runs) = Runs::of(initial, ops) else { return Ok(Verdict::Undetermined) };
    runs.assign(word)?;
    let mut lines = line::follow(word, &runs)?;
    if !gap::fill(word, &runs, &mut lines)? {
        return Ok(Verdict::Undetermined);
    }
    line::check_within(word, &lines, ops)?;
    line::check_between(word, &lines, ops)?;
    Ok(Verdict::Ordered)
}
