//! The evidence of a test: how much it has looked at.
//!
//! The harness keeps what passing tests print to itself. This is past it, a line for each test that
//! has something to show, or could not look at something; `cargo xtask test` collects these lines
//! and repeats them at its end.

use core::fmt::Display;
use std::io::Write as _;

/// The mark that begins each line, among those of the harness. `xtask` knows it as well.
const MARK: &str = "evidence: ";

/// The same, of what was left out.
const NOT_RUN: &str = "NOT RUN: ";

/// Shows one line on the standard error.
pub fn show(what: impl Display) {
    write(MARK, what);
}

/// Says on the standard error which check cannot run here, and why. It is no failure, but nobody
/// shall take it for a success.
pub fn not_run(what: impl Display) {
    write(NOT_RUN, what);
}

fn write(mark: &str, what: impl Display) {
    // In one piece, as the harness writes too. Nobody may be there to see it.
    let _ = std::io::stderr().write_all(format!("{mark}{what}\n").as_bytes());
}
