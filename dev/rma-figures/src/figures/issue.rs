//! The cost of issuing to an application, against a null engine on the other core.

use super::turns::{PER_S, Side};
use crate::issue;

/// Ops in a round.
const COUNT: u64 = 2_000_000;

pub(super) const LINES: Side = Side {
    words: "lines of 64 bytes to the other core, each answered with one",
    unit: PER_S,
    open: |_| Ok(Box::new(|_, _| Ok(issue::bare_lines(COUNT)))),
};

pub(super) const PORTAL: Side = Side {
    words: "64 B reads issued through a CommandPortal in batches, and their completions polled, against a null engine",
    unit: PER_S,
    open: |_| Ok(Box::new(|_, _| Ok(issue::portal_commands(COUNT)))),
};

pub(super) const EXECUTOR: Side = Side {
    words: "calls of 64 B through a CommandExecutor with congestion control, and their outcomes taken, against a null engine",
    unit: PER_S,
    open: |_| Ok(Box::new(|_, _| Ok(issue::executor_ops(COUNT)))),
};
