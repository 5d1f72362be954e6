//! Turns of engines of StaR and nothing else, for a profiler: see `docs/BENCHMARKING.md`.
//!
//! `star calls CONNECTIONS CALLS` has calls one after the other, each on any of so many
//! connections. `star sends one|many fastest|portable [BATCHES]` has 32 SENDs at once, on one
//! connection or on many; without BATCHES it measures instead, and prints what Z spends on one.

use std::process::ExitCode;

use rma_bench::line;
use rma_core::crypto::{ProviderKind, fastest};
use rma_figures::{
    stations::{beside_aead, flat},
    turn::Keys,
};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if run(&args).is_none() {
        eprintln!(
            "usage: star calls CONNECTIONS CALLS | star sends one|many fastest|portable [BATCHES]"
        );
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// `None` if there is anything that it does not know: a profile of something else would not show
/// that.
fn run(args: &[&str]) -> Option<()> {
    match *args {
        ["calls", connections, calls] => {
            let connections =
                connections.parse().ok().filter(|it| (1..=flat::MANY).contains(it))?;
            flat::profile(connections, calls.parse().ok()?, fastest());
        }
        ["sends", keys, provider, ref batches @ ..] if batches.len() <= 1 => {
            let keys = match keys {
                "one" => Keys::One,
                "many" => Keys::Many,
                _ => return None,
            };
            let aead = match provider {
                "fastest" => fastest(),
                "portable" => ProviderKind::Portable.provider().ok()?,
                _ => return None,
            };
            if let [batches] = batches {
                beside_aead::profile(aead, keys, batches.parse().ok()?);
                return Some(());
            }
            let cost = beside_aead::measure(aead, keys, 50);
            line!(
                "{:.1} ns a SEND, AEAD calls alone {:.1} ns, ratio {:.2}; a batch has {} frames and {} keys",
                cost.side.turn,
                cost.side.aead,
                cost.side.over_aead(),
                cost.frames,
                cost.keys
            );
        }
        _ => return None,
    }
    Some(())
}
