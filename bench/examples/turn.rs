//! Engine turns for 64 B reads and nothing else, for a profiler: see `docs/BENCHMARKING.md`.
//!
//! `turn [one|many] [fastest|portable] [BATCHES]`; without BATCHES it measures instead, and prints
//! what each side spends.

use std::process::ExitCode;

use rma_bench::{
    line,
    turn::{Keys, measure, profile},
};
use rma_core::crypto::{AeadProvider, ProviderKind, fastest};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((keys, aead, batches)) = parse(&args) else {
        eprintln!("usage: turn [one|many] [fastest|portable] [BATCHES]");
        return ExitCode::FAILURE;
    };
    if let Some(batches) = batches {
        profile(aead, keys, batches);
        return ExitCode::SUCCESS;
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
    ExitCode::SUCCESS
}

/// `None` if there is anything that it does not know: a profile of something else would not show
/// that.
fn parse(args: &[String]) -> Option<(Keys, &'static dyn AeadProvider, Option<u64>)> {
    let keys = match args.first().map(String::as_str) {
        None | Some("one") => Keys::One,
        Some("many") => Keys::Many,
        Some(_) => return None,
    };
    let aead = match args.get(1).map(String::as_str) {
        None | Some("fastest") => fastest(),
        Some("portable") => ProviderKind::Portable.provider().ok()?,
        Some(_) => return None,
    };
    let batches = args.get(2).map(|text| text.parse().ok());
    match batches {
        Some(None) => None,
        _ if args.len() > 3 => None,
        batches => Some((keys, aead, batches.flatten())),
    }
}
