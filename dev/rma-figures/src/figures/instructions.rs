//! The cost of messages and atomics to older ops, the cost of a second service to 1RMA, and the
//! work of rings' receivers, in instructions.

use rma_bench::{error::PairError, interrupt::Interrupt};

use super::spec::Measured;
use crate::error::FigureError;
use crate::{
    channels::receiving::BATCH,
    instructions::{self, Instructions},
};

/// The same count before there were recorded ops, by the compiler of `rust-version` 1.95 for
/// x86-64.
const BEFORE: Instructions = Instructions { initiator: 2942.7, responder: 2811.8 };

/// The same count by the same compiler before 1RMA shared with another service what seals and opens
/// frames, fair queues and lists. (What came before, [`Service`](rma_core::service::Service) and
/// ports, had made 5361 of 5430, with what else was done meanwhile.)
const ALONE_BEFORE: Instructions = Instructions { initiator: 2933.3, responder: 2821.3 };

pub(super) fn old_ops(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    if cfg!(not(target_arch = "x86_64")) {
        return Ok(Vec::new());
    }
    let Some(now) = instructions::of_a_read().map_err(FigureError::Valgrind)? else {
        return Ok(Vec::new());
    };
    let detail = format!(
        "instructions of the turns of a 64 B READ, batches of 32: initiator {:.0}, responder {:.0}; before there were \
         recorded ops {:.0} and {:.0}, by rustc 1.95",
        now.initiator, now.responder, BEFORE.initiator, BEFORE.responder,
    );
    let old_ops = Measured::new(now.sum() / BEFORE.sum(), detail);
    let detail = format!(
        "the same count; before 1RMA shared its parts with a second service {:.0} and {:.0}",
        ALONE_BEFORE.initiator, ALONE_BEFORE.responder,
    );
    let tax = Measured::new(now.sum() / ALONE_BEFORE.sum(), detail);
    let beside = instructions::of_a_read_beside_another().map_err(FigureError::Valgrind)?;
    let Some(beside) = beside else { return Ok(vec![old_ops, tax]) };
    let detail = format!(
        "the same count with a second service on both engines, which is idle, over it: initiator {:.0}, responder {:.0}",
        beside.initiator, beside.responder,
    );
    Ok(vec![old_ops, tax, Measured::new(beside.sum() / now.sum(), detail)])
}

/// Sizes of messages that receivers of both rings are compared at.
const SIZES: [u32; 2] = [64, 4096];

pub(super) fn ring_receivers(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let (mut worst, mut words) = (0.0_f64, Vec::new());
    for size in SIZES {
        let [without, with] =
            [false, true].map(|zeroing| instructions::of_a_message(zeroing, size));
        let (Some(without), Some(with)) =
            (without.map_err(FigureError::Valgrind)?, with.map_err(FigureError::Valgrind)?)
        else {
            return Ok(Vec::new());
        };
        worst = worst.max(without / with);
        words.push(format!("{size} B {without:.0} over {with:.0}"));
    }
    let detail = format!(
        "instructions of a receiver for a message, its engine's turns left out, in a ring without zeroing over one with it; batches \
         of {BATCH}, each found, copied, given back, and the tail told; the worst of: {}",
        words.join(", "),
    );
    Ok(vec![Measured::new(worst, detail)])
}
