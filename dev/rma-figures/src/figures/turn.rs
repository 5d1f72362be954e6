//! The cost of an engine's turn beside its AES-GCM calls, with nothing but memory between the
//! engines.

use rma_bench::{
    aead,
    error::PairError,
    interrupt::Interrupt,
    pair::{cores, pinned},
};
use rma_core::crypto::{AeadProvider, ProviderKind};

use super::spec::Measured;
use crate::{
    handover::{self, HandedOver},
    turn::{BATCH, Keys, Side, Turns, measure},
};

/// Rounds of each kind of keys.
const ROUNDS: usize = 200;

pub(super) fn turn64(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let portable = ProviderKind::Portable.provider().expect("every processor runs it");
    let [by_portable, by_fastest] = [portable, aead::chosen()].map(both);
    let sides = by_portable.iter().flat_map(Turns::sides);
    let over_aead = sides.map(|side| side.over_aead()).fold(0.0, larger);
    let [known, _] = &by_fastest;
    let share = known.sides().map(|side| side.aead_share());
    let figure = |value, what: &str, aead: &dyn AeadProvider, both| {
        Measured::new(value, format!("{what}; {}", words(aead, both)))
    };
    let rate = |side: Side| figure(side.ops_per_s(), "one key", aead::chosen(), &by_fastest);
    Ok(vec![
        figure(over_aead, "the worse side, one key or many", portable, &by_portable),
        rate(known.initiator),
        rate(known.responder),
        figure(
            larger(share[0], share[1]),
            "of the side where it is larger, one key",
            aead::chosen(),
            &by_fastest,
        ),
    ])
}

/// Rounds of READs and SENDs that land right and wrong.
const HANDOVER_ROUNDS: usize = 50;

/// Frames that land at the wrong engine of a host.
pub(super) fn handed_over(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let HandedOver { reads, sends } = pinned(cores().1, || handover::measure(HANDOVER_ROUNDS));
    let words = format!("64 B, {BATCH} at once, both hosts of two engines in one thread");
    Ok([reads, sends].map(|value| Measured::new(value, words.clone())).into())
}

/// The larger one; not a number if either is none, which must not pass for a small one.
const fn larger(one: f64, other: f64) -> f64 {
    if one.is_nan() || one > other { one } else { other }
}

/// With one key, and with many.
fn both(aead: &'static dyn AeadProvider) -> [Turns; 2] {
    pinned(cores().1, || [Keys::One, Keys::Many].map(|keys| measure(aead, keys, ROUNDS)))
}

fn words(provider: &dyn AeadProvider, [one, many]: &[Turns; 2]) -> String {
    let words = |turns: &Turns| {
        let Turns { initiator: i, responder: r } = turns;
        format!(
            "initiator {:.1} ns, its AES-GCM calls alone {:.1} ns; responder {:.1} ns, {:.1} ns",
            i.turn, i.aead, r.turn, r.aead
        )
    };
    format!(
        "engines in one thread, joined by memory; 64 B READs in batches of {BATCH}, {} by the {} provider, every \
         key set up and at the responder derived anew; a READ costs, all under one key: {}; each under another: {}",
        aead::CIPHER,
        provider.name(),
        words(one),
        words(many),
    )
}
