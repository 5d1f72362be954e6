//! The results of the cost model of StaR's experiments: figures 1 and 10 of the paper in numbers.
//!
//! A run repeats exactly, so noise is no excuse. Every parameter is said, with where it is from, in
//! `rma_sim::star::model::figures`; `rma-figures paper star` has the rest, beside the paper's
//! numbers.

use rma_bench::{error::PairError, interrupt::Interrupt};
use rma_sim::star::model::{
    claims::{figure_1_penalty, knee, over},
    figures::{CX3_ENTRIES, CX6_ENTRIES, Curve, FPGA_ENTRIES, Setting, figure_1},
    frames::Wire,
    load::Workload,
    stateless::Fusion,
    time::Picos,
};

use super::spec::Measured;

/// Connections of the paper's testbed.
const MOST: u32 = 400;
/// StaR in which a WQEP has an EA besides its CQEP, and that one of its own.
const THREE_ANSWERS: Curve = Curve::Star(Fusion::THREE_ANSWERS);
/// StaR without packets of several frames.
const FRAMES: Curve = Curve::Star(Fusion::FRAMES);

pub(super) fn at_400(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let base = Setting::default();
    let rpc =
        |setting: &Setting, curve, baseline| over(setting, Workload::Rpc, MOST, (curve, baseline));
    let (cached, ideal) = (Curve::RdmaOnFpga, Curve::Unlimited);
    let turns = |curve: Curve, baseline: Curve| {
        let at = |tenths| {
            let turn = Picos::nanos(tenths * 100);
            format!("{:.2}", rpc(&Setting { turn, ..base }, curve, baseline))
        };
        [0_u64, 5, 10, 20, 40].map(at).join(", ")
    };
    let penalties = |curve: Curve| {
        let at = |tenths| {
            let penalty = Picos::nanos(tenths * 100);
            format!("{:.2}", rpc(&Setting { penalty, ..base }, curve, cached))
        };
        [1_u64, 2, 5, 10, 20].map(at).join(", ")
    };
    let ours = Setting { wire: Wire::OURS, ..base };
    let small = Setting { wire: Wire { entry: 32, ..base.wire }, ..base };
    let ml = |curve, baseline| over(&base, Workload::Ml, MOST, (curve, baseline));
    let common = "simulated at 400 connections, RPC, the paper's frames, 64 B a work request, turn and penalty 1 us";
    let star = base_outcome(Curve::STAR);
    let over_cached = format!(
        "{common}; the paper says 4.13; penalties of 0.1, 0.2, 0.5, 1, 2 us: {}; turns of 0, 0.5, 1, 2, 4 us: {}; our frames \
         {:.2}; ML {:.2} (paper 2.9); a frame a packet {:.2}",
        penalties(Curve::STAR),
        turns(Curve::STAR, cached),
        rpc(&ours, Curve::STAR, cached),
        ml(Curve::STAR, cached),
        rpc(&base, FRAMES, cached),
    );
    let over_ideal = format!(
        "{common}; the link from the server is used to {:.2}, with work requests and EAs, where RC's limit is the one to it; \
         turns of 0, 0.5, 1, 2, 4 us: {}; 32 B a work request {:.2}; our frames {:.2}; a frame a packet {:.2}; ML {:.2}; \
         with an EA beside a CQEP, and one of it, {:.2}",
        star,
        turns(Curve::STAR, ideal),
        rpc(&small, Curve::STAR, ideal),
        rpc(&ours, Curve::STAR, ideal),
        rpc(&base, FRAMES, ideal),
        ml(Curve::STAR, ideal),
        rpc(&base, THREE_ANSWERS, ideal),
    );
    let faithful = format!(
        "{common}; the paper's sequence, for which it says 4.13; penalties of 0.1, 0.2, 0.5, 1, 2 us: {}; turns of 0, 0.5, 1, 2, \
         4 us: {}; our frames {:.2}; ML {:.2} (paper 2.9); over RC without limit {:.2}",
        penalties(Curve::FAITHFUL),
        turns(Curve::FAITHFUL, cached),
        rpc(&ours, Curve::FAITHFUL, cached),
        ml(Curve::FAITHFUL, cached),
        rpc(&base, Curve::FAITHFUL, ideal),
    );
    Ok(vec![
        Measured::new(rpc(&base, Curve::STAR, cached), over_cached),
        Measured::new(rpc(&base, Curve::STAR, ideal), over_ideal),
        Measured::new(rpc(&base, Curve::FAITHFUL, cached), faithful),
    ])
}

/// How much of the link from the server is used.
fn base_outcome(curve: Curve) -> f64 {
    curve.run(&Setting::default(), Workload::Rpc, MOST).from_server
}

pub(super) fn over_scala(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let setting = Setting::default();
    let at =
        |curve, connections| over(&setting, Workload::Ml, connections, (curve, Curve::ScalaRdma));
    let ratios = [260, MOST].map(|connections| at(Curve::STAR, connections));
    let words = |curve| format!("{:.2} at 260, {:.2} at 400", at(curve, 260), at(curve, MOST));
    let detail = format!(
        "simulated, calls a second of machine learning, the lesser of 260 and 400 connections: {}; the paper says 1.35 at 400; \
         RC without limit: {}; with an EA beside a CQEP, and one of it: {}",
        words(Curve::STAR),
        words(Curve::Unlimited),
        words(THREE_ANSWERS),
    );
    let value = ratios.into_iter().fold(f64::MAX, f64::min);
    Ok(vec![Measured::new(value, detail)])
}

pub(super) fn knees(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let setting = Setting::default();
    let mut worst: f64 = 0.0;
    let mut words = Vec::new();
    let mut note = |name: String, entries: u32, found: u32| {
        worst = worst.max((f64::from(found) / f64::from(entries) - 1.0).abs());
        words.push(format!("{name} {found} of {entries}"));
    };
    for (curve, entries) in [(Curve::RdmaOnFpga, FPGA_ENTRIES), (Curve::Rdma, CX3_ENTRIES)] {
        for workload in [Workload::Rpc, Workload::Ml] {
            let rate = |connections| curve.run(&setting, workload, connections).calls_per_s;
            let found = knee(entries, rate).connections;
            note(format!("{} {workload:?}", curve.name()), entries, found);
        }
    }
    let penalty = figure_1_penalty(&setting);
    let rate =
        |connections| figure_1(&setting, connections, penalty.unwrap_or_default()).calls_per_s;
    let reads = knee(CX6_ENTRIES, rate);
    note("READs".to_owned(), CX6_ENTRIES, reads.connections);
    let left = penalty.map_or(f64::NAN, |_| rate(3000) / reads.peak);
    let fitted = format!(
        "simulated, of the peak; the penalty of {:.1} ns is fitted to this, so it is no evidence",
        penalty.unwrap_or_default().as_micros() * 1e3
    );
    let detail = format!(
        "simulated; up to where 95 % of the peak are kept, the worst distance from the entries of the state cache: {}",
        words.join("; "),
    );
    Ok(vec![Measured::new(worst, detail), Measured::new(left, fitted)])
}

/// Connections over which StaR must be flat.
const FLAT: [u32; 9] = [8, 16, 32, 64, 120, MOST, 1_000, 10_000, 100_000];

pub(super) fn flat(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let setting = Setting::default();
    let mut all = Vec::new();
    for connections in FLAT {
        if interrupt.is_set() {
            return Err(PairError::Interrupted);
        }
        all.push(Curve::STAR.run(&setting, Workload::Rpc, connections));
    }
    let calls: Vec<f64> = all.iter().map(|it| it.calls_per_s).collect();
    let peak = calls.iter().copied().fold(0.0, f64::max);
    let from = calls.iter().position(|&it| it >= peak).unwrap_or_default();
    let least = calls[from..].iter().copied().fold(f64::MAX, f64::min);
    let words: Vec<String> = FLAT
        .iter()
        .zip(&all)
        .map(|(at, it)| format!("{at} {:.3} ({:.0} us)", it.calls_per_s * 1e-6, it.latency_us))
        .collect();
    let detail = format!(
        "simulated, RPC, infinite queues, no timers: the least from the peak on; M calls/s and latency by connections: {}",
        words.join(", "),
    );
    Ok(vec![Measured::new(least / peak, detail)])
}
