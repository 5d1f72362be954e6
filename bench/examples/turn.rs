//! Engine turns for 64 B reads and nothing else, for a profiler: see `docs/BENCHMARKING.md`.
//!
//! `turn [one|many] [fastest|portable] [BATCHES]`; without BATCHES it measures instead, and prints what each side
//! spends.

use rma_bench::{
    line,
    turn::{Keys, measure, profile},
};
use rma_core::crypto::{AeadProvider, ProviderKind, fastest};

fn main() {
    let mut args = std::env::args().skip(1);
    let keys = match args.next().as_deref() {
        Some("many") => Keys::Many,
        _ => Keys::One,
    };
    let portable = ProviderKind::Portable.provider();
    let aead: &dyn AeadProvider = match (args.next().as_deref(), portable) {
        (Some("portable"), Ok(portable)) => portable,
        _ => fastest(),
    };
    if let Some(batches) = args.next().and_then(|text| text.parse().ok()) {
        return profile(aead, keys, batches);
    }
    let turns = measure(aead, keys, 200);
    for (name, side) in ["initiator", "responder"].into_iter().zip(turns.sides()) {
        line!(
            "{name}: {:.1} ns a read, AES-GCM alone {:.1} ns, ratio {:.2}",
            side.turn,
            side.aead,
            side.over_aead()
        );
    }
}
