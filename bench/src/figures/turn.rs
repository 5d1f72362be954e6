//! What an engine's turn costs beside its AES-GCM calls, with nothing but memory between the engines.

use std::thread;

use rma_core::crypto::PortableAead;

use super::table::Measured;
use crate::{
    interrupt::Interrupt,
    pair::{PairError, cores, pin},
    turn::{BATCH, Keys, Side, Turns, measure},
};

/// Rounds of each kind of keys.
const ROUNDS: usize = 200;

pub(super) fn turn64(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    // A thread of its own, so that nothing else that this process does later is pinned.
    let both = thread::scope(|scope| {
        let measure = || {
            pin(cores().1);
            [Keys::Known, Keys::Fresh].map(|keys| measure(PortableAead, keys, ROUNDS))
        };
        scope.spawn(measure).join().expect("reads succeed between two engines in one thread")
    });
    let words = |turns: &Turns| {
        let Turns { initiator: i, responder: r } = turns;
        format!(
            "initiator {:.1} ns, its AES-GCM calls alone {:.1} ns; responder {:.1} ns, {:.1} ns",
            i.turn, i.aead, r.turn, r.aead
        )
    };
    let [known, fresh] = &both;
    let detail = format!(
        "engines in one thread, joined by memory; 64 B READs in batches of {BATCH}, portable AES-128-GCM; a READ costs, \
         keys known: {}; every key fresh, derived and prepared: {}",
        words(known),
        words(fresh),
    );
    let sides = both.iter().flat_map(Turns::sides);
    let over_aead = sides.map(|side| side.over_aead()).fold(0.0, f64::max);
    let share = known.sides().map(|side| side.aead_share());
    let figure = |name, value, what: &str| {
        let detail = format!("{what}; {detail}");
        Measured { name, value, detail }
    };
    let rate = |name, side: Side| figure(name, side.ops_per_s(), "keys known");
    Ok(vec![
        figure("turn64_over_aead", over_aead, "the worse side, keys known or fresh"),
        rate("turn64_initiator_ops_per_s", known.initiator),
        rate("turn64_responder_ops_per_s", known.responder),
        figure(
            "turn64_aead_share",
            share[0].max(share[1]),
            "of the side where it is larger, keys known",
        ),
    ])
}
