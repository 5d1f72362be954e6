//! Engine turns for 64 B reads and nothing else, for a profiler: see `docs/BENCHMARKING.md`.
//!
//! `turn [one|many] [fastest|portable] [BATCHES [AT_ONCE]]`; without BATCHES it measures instead,
//! and prints what each side spends. A batch has AT_ONCE reads: 32, unless said.

use std::process::ExitCode;

use rma_bench::line;
use rma_core::crypto::{AeadProvider, ProviderKind, fastest};
use rma_figures::turn::{Keys, measure, profile};

/// How many batches are profiled, and how many reads each has.
type Profile = (u64, usize);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((keys, aead, batches)) = parse(&args) else {
        eprintln!("usage: turn [one|many] [fastest|portable] [BATCHES [AT_ONCE]]");
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
fn parse(args: &[String]) -> Option<(Keys, &'static dyn AeadProvider, Option<Profile>)> {
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
    let at_once = args.get(3).map_or(Some(32), |text| text.parse().ok())?;
    let batches = match args.get(2) {
        Some(text) => Some((text.parse().ok()?, at_once)),
        None => None,
    };
    if args.len() > 4 || !(1..=32).contains(&at_once) { None } else { Some((keys, aead, batches)) }
}
