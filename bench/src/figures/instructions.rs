//! What ops that were there before messages and atomics pay for them, in instructions.

use super::spec::Measured;
use crate::{
    error::PairError,
    instructions::{self, Instructions},
    interrupt::Interrupt,
};

/// The same count before there were recorded ops, by the compiler of `rust-version` 1.95 for
/// x86-64.
const BEFORE: Instructions = Instructions { initiator: 2942.7, responder: 2811.8 };

pub(super) fn old_ops(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    if cfg!(not(target_arch = "x86_64")) {
        return Ok(Vec::new());
    }
    let Some(now) = instructions::of_a_read().map_err(PairError::Valgrind)? else {
        return Ok(Vec::new());
    };
    let detail = format!(
        "instructions of the turns of a 64 B READ, batches of 32: initiator {:.0}, responder {:.0}; before there were \
         recorded ops {:.0} and {:.0}, by rustc 1.95",
        now.initiator, now.responder, BEFORE.initiator, BEFORE.responder,
    );
    Ok(vec![Measured { name: "old_ops_instructions", value: now.sum() / BEFORE.sum(), detail }])
}
