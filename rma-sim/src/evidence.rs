//! What a test has to show for itself: how much it has looked at.
//!
//! The harness keeps what passing tests print to itself. This is past it, a line for each test that has something to
//! show; `cargo xtask test` collects these lines and repeats them at its end.

use core::fmt::Display;
use std::io::Write as _;

/// How each line begins, among those of the harness. `xtask` knows it as well.
const MARK: &str = "evidence: ";

/// Shows one line on the standard error.
pub fn show(what: impl Display) {
    // In one piece, as the harness writes too. Nobody may be there to see it.
    let _ = std::io::stderr().write_all(format!("{MARK}{what}\n").as_bytes());
}
