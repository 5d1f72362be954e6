//! The work of a ring's receiver for messages, for a profiler: see `docs/BENCHMARKING.md`.
//!
//! `receive with|without SIZE BATCHES`: a ring with or without zeroing, messages of SIZE bytes.

use std::process::ExitCode;

use rma_figures::channels::receiving::profile;
use rma_xdp::channel::Kind;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((kind, size, batches)) = parse(&args) else {
        eprintln!("usage: receive with|without SIZE BATCHES");
        return ExitCode::FAILURE;
    };
    match profile(kind, size, batches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(args: &[String]) -> Option<(Kind, u32, u64)> {
    let [ring, size, batches] = args else { return None };
    let kind = match ring.as_str() {
        "with" => Kind::RingWithZeroing,
        "without" => Kind::RingWithoutZeroing,
        _ => return None,
    };
    let size = size.parse().ok().filter(|size| (8..=4096).contains(size))?;
    Some((kind, size, batches.parse().ok()?))
}
