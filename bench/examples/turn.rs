//! Engine turns for 64 B reads and nothing else, for a profiler: see `docs/BENCHMARKING.md`.
//!
//! `turn [known|fresh] [BATCHES]`; without BATCHES it measures instead, and prints what each side spends.

use rma_bench::{
    line,
    turn::{Keys, measure, profile},
};
use rma_core::crypto::PortableAead;

fn main() {
    let mut args = std::env::args().skip(1);
    let keys = match args.next().as_deref() {
        Some("fresh") => Keys::Fresh,
        _ => Keys::Known,
    };
    if let Some(batches) = args.next().and_then(|text| text.parse().ok()) {
        return profile(PortableAead, keys, batches);
    }
    let turns = measure(PortableAead, keys, 200);
    for (name, side) in ["initiator", "responder"].into_iter().zip(turns.sides()) {
        line!(
            "{name}: {:.1} ns a read, AES-GCM alone {:.1} ns, ratio {:.2}",
            side.turn,
            side.aead,
            side.over_aead()
        );
    }
}
