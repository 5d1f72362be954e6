//! The cost of large numbers to engines: portals, regions, initiators.

use rma_bench::{
    aead,
    error::PairError,
    interrupt::Interrupt,
    pair::{cores, pinned},
};

use super::spec::Measured;
use crate::scale::{OneAndMany, Portals, initiators, portals, regions};

/// Rounds. An odd number has a middle one.
const ROUNDS: usize = 101;

const PORTALS: u16 = 1000;
const REGIONS: usize = 64_000;
const INITIATORS: usize = 20_000;

/// An engine with a thousand portals, of which
/// at most one is used, against one with a single portal.
pub(super) fn with_portals(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let Portals { idle_turn, turns } =
        pinned(cores().1, || portals(aead::chosen(), PORTALS, ROUNDS));
    Ok(vec![
        measured(&idle_turn, "a turn of an engine whose portals have been quiet for a while"),
        measured(&turns, "the initiator's turns for a READ, all issued through one of its portals"),
    ])
}

/// A responder whose READs are each of another region of 64,000,
/// against one with a single region.
pub(super) fn with_regions(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let it = pinned(cores().1, || regions(aead::chosen(), REGIONS, ROUNDS));
    let what = "the responder's turns for a READ of any region, 4 KiB each, with keys of their own";
    Ok(vec![measured(&it, what)])
}

/// A responder whose READs each come from another of 20,000
/// initiators, against one with a single initiator.
pub(super) fn with_initiators(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let it = pinned(cores().1, || initiators(aead::chosen(), INITIATORS, ROUNDS));
    let what = "the responder's turns for a READ of any initiator, written just before the turn";
    Ok(vec![measured(&it, what)])
}

fn measured(it: &OneAndMany, what: &str) -> Measured {
    let detail = format!(
        "{what}: {:.1} ns with one, {:.1} ns with many; 64 B READs in batches of 32, {} by the {} provider, \
         engines in one thread, joined by memory; median of the ratios of {ROUNDS} rounds in turns",
        it.one,
        it.many,
        aead::CIPHER,
        aead::chosen().name(),
    );
    Measured::new(it.ratio, detail)
}
