//! Messages, ordered WRITEs and atomics, over the WRITEs that they are made like.

use core::time::Duration;

use rma_bench::{
    alone::LoneOp,
    error::PairError,
    interrupt::Interrupt,
    measure::{Links, What, in_turns},
    one_way::Step,
    pair::{Pair, PairConfig, Place},
    rates,
};

use super::{
    conditions::{AMOUNT, CONDITIONS, MTU, lab},
    spec::Measured,
};
use crate::{
    clients::{self, Work},
    settle,
};

/// Rounds of a rate. An odd number has a middle one.
const ROUNDS: u64 = 11;
/// Clients that each have one op under way.
const CLIENTS: usize = 8;
/// Their ops in a round: for nothing, and counted.
const COUNTS: (u64, u64) = (2_000, 100_000);
/// Ops that end with TIMEOUT, to be settled.
const SETTLED: u64 = 100;

/// Measures both in turns, and gives the first over the second at p50.
fn over(
    name: &'static str,
    whats: [What; 2],
    words: [&str; 2],
    interrupt: &Interrupt,
) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let mut pair = Pair::open(Place::Lab(&lab), &PairConfig::default())?;
    let turns = in_turns(&mut pair, Links::default(), whats, AMOUNT, interrupt)?;
    let compared = pair.compare()?;
    let [of, to] = turns.latencies.each_ref().map(|latencies| latencies.quantile_us(0.5));
    let detail = format!(
        "p50 of {} times {} {of:.2} us, {} {to:.2} us; medians of {} rounds in turns; {compared} bytes compared \
         afterwards; veth MTU {MTU}, {CONDITIONS}",
        turns.latencies[0].count(),
        words[0],
        words[1],
        AMOUNT.rounds,
    );
    Ok(vec![Measured { name, value: turns.ratio(0, 1, 0.5), detail }])
}

pub(super) fn send64(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let whats = [What::OneWay(Step::Send, 64), What::OneWay(Step::OrderedWrite, 64)];
    let words = [
        "64 B one way, from issue until the receiver sees it, by SEND",
        "by an ordered WRITE whose last word the receiver polls",
    ];
    over("send64_over_write_poll", whats, words, interrupt)
}

pub(super) fn imm64(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    beside_write("imm64_over_write64", LoneOp::WriteWithImm, 64, interrupt)
}

pub(super) fn ordered4096(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    beside_write("ordered4096_over_write4096", LoneOp::OrderedWrite, 4096, interrupt)
}

pub(super) fn cas(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    beside_write("cas_over_write64", LoneOp::CompareSwap, 64, interrupt)
}

pub(super) fn fetch_add(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    beside_write("fetch_add_over_write64", LoneOp::FetchAdd, 64, interrupt)
}

fn beside_write(
    name: &'static str,
    op: LoneOp,
    size: u32,
    interrupt: &Interrupt,
) -> Result<Vec<Measured>, PairError> {
    let whats = [What::warm(op, size), What::warm(LoneOp::Write, size)];
    let write = format!("a WRITE of {size} B");
    over(name, whats, [op.name(), &write], interrupt)
}

pub(super) fn fetch_add_rate(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let pair = Pair::open(Place::Lab(&lab), &PairConfig::default())?;
    let mut portals = Vec::new();
    for _ in 0..CLIENTS {
        portals.push(pair.client.host.portal(1)?);
    }
    // Dropped in this order.
    let mut shared = (portals, pair);
    let rate = |work| {
        move |(portals, pair): &mut (Vec<_>, Pair)| {
            pair.run(|client| clients::per_second(client, portals, work, COUNTS))
        }
    };
    let (mut count, mut write) = (rate(Work::Count), rate(Work::Write));
    let measures: [&mut rates::Measure<'_, _>; 2] = [&mut count, &mut write];
    let [count, write] = rates::in_turns(&mut shared, measures, ROUNDS, interrupt)?;
    let compared = shared.1.compare()?;
    let detail = format!(
        "{CLIENTS} clients of one host, each with one op under way: FETCH_ADD of one word {:.3} M/s, every number once, WRITE \
         of 64 B {:.3} M/s; medians of {ROUNDS} rounds in turns; {compared} bytes compared afterwards; veth MTU {MTU}, \
         {CONDITIONS}",
        count.median() * 1e-6,
        write.median() * 1e-6,
    );
    let name = "fetch_add_rate_over_write64_rate";
    Ok(vec![Measured { name, value: count.over(&write), detail }])
}

pub(super) fn settle(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let settled = settle::run(&lab()?, MTU, Duration::from_millis(10), SETTLED, interrupt)?;
    let detail = format!(
        "slowest from TIMEOUT until it was known what had become of a FETCH_ADD {:.1} us, bound of a READ {:.0} ms; {} were \
         applied and their acknowledgement lost, {} were not as their data was lost, each was told right; veth MTU {MTU}, \
         {CONDITIONS}",
        settled.slowest.as_secs_f64() * 1e6,
        settled.read_bound.as_secs_f64() * 1e3,
        settled.applied,
        settled.not_applied,
    );
    let value = settled.slowest.as_secs_f64() / settled.read_bound.as_secs_f64();
    Ok(vec![Measured { name: "settle_over_read_bound", value, detail }])
}
