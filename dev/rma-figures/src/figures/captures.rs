//! The cost of a capture, and what its writer misses.

use core::time::Duration;

use rma_bench::{
    client::Client,
    error::PairError,
    interrupt::Interrupt,
    latency::Latencies,
    pair::{Pair, PairConfig, Place},
    pipelined::ops_per_second,
    rates,
};
use rma_xdp::{
    OpType,
    capture::{Capture, CaptureConfig},
    time::Clock,
};

use super::{
    conditions::{CONDITIONS, MTU, lab},
    spec::Measured,
};

/// Rounds. An odd number has a middle one.
const ROUNDS: u64 = 11;
/// READs of a round, one after the other.
const COUNT: u64 = 20_000;
/// READs under way at once.
const DEPTH: u16 = 32;
/// READs that the writer is to keep up with, and before them as many at full rate.
const MANY: u64 = 400_000;

/// p50 of READs in microseconds, with a capture at the server that keeps 128 octets, or without.
fn p50(pair: &mut Pair, is_captured: bool) -> Result<f64, PairError> {
    let capture = is_captured.then(|| capture(pair)).transpose()?;
    let p50 = pair.run(|client| {
        let mut latencies = Latencies::new();
        let mut portal = client.host.portal(1)?;
        for _ in 0..COUNT {
            let began = client.clock.now();
            ops_per_second(client, &mut portal, OpType::Read, 1, (0, 1))?;
            latencies.record(client.clock.now().since(began));
        }
        Ok(latencies.quantile_us(0.5))
    })?;
    if let Some(capture) = capture {
        let captured = ended(capture)?;
        if captured.packets + captured.missed < COUNT {
            let what = format!("{captured}, of {COUNT} READs: they were not captured");
            return Err(PairError::SpoiledRound(what));
        }
    }
    Ok(p50)
}

fn capture(pair: &mut Pair) -> Result<Capture, PairError> {
    let source = pair.server.capture_source().clone();
    let capture = source.start(std::io::sink(), CaptureConfig::default());
    let capture = capture.map_err(|error| PairError::SpoiledRound(error.to_string()))?;
    while !capture.has_begun() {
        pair.server.turn();
    }
    Ok(capture)
}

fn ended(capture: Capture) -> Result<rma_xdp::capture::CaptureTotals, PairError> {
    capture.finish().map_err(|error| PairError::SpoiledRound(error.to_string()))
}

/// p50 of 64 B READs with a capture over without.
pub(super) fn slowdown(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let mut pair = Pair::open(Place::Lab(&lab), &PairConfig::default())?;
    let mut with = |pair: &mut Pair| p50(pair, true);
    let mut without = |pair: &mut Pair| p50(pair, false);
    let measures: [&mut rates::Measure<'_, Pair>; 2] = [&mut with, &mut without];
    let [with, without] = rates::in_turns(&mut pair, measures, ROUNDS, interrupt)?;
    let ratios = with.over_each(&without);
    let (low, high) = ratios.range();
    let detail = format!(
        "p50 of {COUNT} READs of 64 B while the server is captured, 128 octets of each packet, to nowhere {:.2} us, and without \
         {:.2} us; medians of {ROUNDS} rounds in turns, ratios from {low:.2} to {high:.2}; veth MTU {MTU}, {CONDITIONS}",
        with.median(),
        without.median(),
    );
    Ok(vec![Measured::new(ratios.median(), detail)])
}

/// Packets that the writer misses at half of the peak rate.
pub(super) fn missed(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let mut pair = Pair::open(Place::Lab(&lab), &PairConfig::default())?;
    let peak = pair.run(|client| {
        let mut portal = client.host.portal(DEPTH)?;
        ops_per_second(client, &mut portal, OpType::Read, DEPTH, (MANY / 10, MANY))
    })?;
    let capture = capture(&mut pair)?;
    let made = pair.run(|client| at_rate(client, peak / 2.0))?;
    let captured = ended(capture)?;
    let detail = format!(
        "READs of 64 B, {DEPTH} under way, {made:.0} a second of {peak:.0} at most; the server's capture, 128 octets of each \
         packet, written nowhere: {captured}; veth MTU {MTU}, {CONDITIONS}",
    );
    Ok(vec![Measured::new(captured.missed as f64, detail)])
}

/// READs at this rate, in batches of [`DEPTH`]. Returns how many a second were made.
fn at_rate(client: &mut Client, rate: f64) -> Result<f64, PairError> {
    let mut portal = client.host.portal(DEPTH)?;
    let pause = Duration::from_secs_f64(f64::from(DEPTH) / rate);
    let began = client.clock.now();
    let mut due = began;
    for _ in 0..MANY / u64::from(DEPTH) {
        while client.clock.now() < due {
            client.host.turn();
        }
        due = due + pause;
        ops_per_second(client, &mut portal, OpType::Read, DEPTH, (0, DEPTH.into()))?;
    }
    Ok(MANY as f64 / client.clock.now().since(began).as_secs_f64())
}
