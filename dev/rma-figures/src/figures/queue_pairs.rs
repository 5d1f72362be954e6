//! StaR between two hosts: SENDs over the raw floor, the paper's RPC and large WRITEs over RC and
//! 1RMA, and what a READ pays for a StaR that nobody uses.

use rma_bench::{
    alone::LoneOp,
    amount::{SMALL, WARM},
    error::PairError,
    floor::{self, Exchange, Link, Sides},
    interrupt::Interrupt,
    latency::Latencies,
    pair::{Pair, PairConfig, Place},
    rates::{self, Measure},
};
use rma_xdp::{
    OpType,
    star::{Role, StarConfigBuilder, StarEvent},
};

use super::{
    conditions::{CONDITIONS, MTU, lab, link},
    spec::Measured,
};
use crate::{
    queue_pairs::{LARGE, PIPELINED, QueuePairs, Shape},
    transfers::Transfers,
};

/// Rounds. An odd number has a middle one.
const ROUNDS: u64 = 21;
/// Messages, reads or raw exchanges of a round: for nothing, and counted.
const ALONE: (u64, u64) = (500, 10_000);
/// Calls of a round, likewise.
const CALLS: (u64, u64) = (2_000, 40_000);
/// Connections of the RPC.
const CONNECTIONS: u32 = 64;
/// Large WRITEs of a round.
const WRITES: u64 = 96;

fn p50(latencies: &Latencies) -> f64 {
    latencies.quantile_us(0.5)
}

/// Both hosts serve StaR beside 1RMA.
fn with_star() -> PairConfig {
    PairConfig { star: Some(StarConfigBuilder::default()), ..PairConfig::default() }
}

pub(super) fn sends(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let mut pair = Pair::open(Place::Lab(&lab), &with_star())?;
    let there = QueuePairs::open(&mut pair, Shape::stateless_server(1))?;
    let back = QueuePairs::open(&mut pair, Shape::stateless_client(1))?;
    // Dropped in this order.
    let mut shared = (there, back, pair, link()?);
    type Shared = (QueuePairs, QueuePairs, Pair, Link);
    let mut to_stateless =
        |(there, _, pair, _): &mut Shared| there.one_way(pair, ALONE, interrupt).map(|it| p50(&it));
    let mut to_stateful =
        |(_, back, pair, _): &mut Shared| back.one_way(pair, ALONE, interrupt).map(|it| p50(&it));
    let mut half = |(_, _, _, link): &mut Shared| {
        let Sides { client, server, port } = link.sides();
        let exchange = Exchange { request_len: SMALL, response_len: SMALL, responses: 1 };
        let mut latencies = Latencies::new();
        latencies.add(&floor::ping_pong(client, server, port, exchange, ALONE).times);
        Ok(p50(&latencies) / 2.0)
    };
    let measures: [&mut Measure<'_, Shared>; 3] = [&mut to_stateless, &mut to_stateful, &mut half];
    let [there, back, half] = rates::in_turns(&mut shared, measures, ROUNDS, interrupt)?;
    let figure = |name, times: &rates::Rates, way: &str| Measured {
        name,
        value: times.over(&half),
        detail: format!(
            "p50 of SENDs of 32 B to the {way} side, inline, from before it is posted until the peer has the completion of its RECV \
             {:.2} us, half of a raw ping-pong of 64 B frames {:.2} us; every message compared; medians of {ROUNDS} rounds in turns; \
             veth MTU {MTU}, {CONDITIONS}",
            times.median(),
            half.median(),
        ),
    };
    Ok(vec![
        figure("star_send_over_floor", &there, "stateless"),
        figure("star_send_back_over_floor", &back, "stateful"),
    ])
}

/// A round of calls; `frames` is counted up by the frames that both hosts send.
fn calls_of(
    calls: &mut QueuePairs,
    pair: &mut Pair,
    frames: &mut u64,
    interrupt: &Interrupt,
) -> Result<f64, PairError> {
    let before = frames_sent(pair);
    let rate = calls.calls_per_second(pair, CALLS, interrupt)?;
    *frames += frames_sent(pair) - before;
    Ok(rate)
}

/// Frames of StaR that both hosts have sent.
fn frames_sent(pair: &Pair) -> u64 {
    let of_hosts = [pair.client.host.metrics().star, pair.server.metrics().star];
    let events = of_hosts.iter().flatten().flat_map(|star| &star.events);
    events.filter(|(event, _)| *event == StarEvent::FrameSent).map(|(_, count)| count).sum()
}

pub(super) fn calls(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let mut pair = Pair::open(Place::Lab(&lab), &with_star())?;
    let star = QueuePairs::open(&mut pair, Shape::stateless_server(CONNECTIONS))?;
    let rc = Shape { client: Role::Rc, server: Role::Rc, connections: CONNECTIONS };
    let rc = QueuePairs::open(&mut pair, rc)?;
    // Dropped in this order.
    let mut shared = (star, rc, pair);
    type Shared = (QueuePairs, QueuePairs, Pair);
    let (mut of_star, mut of_rc) = (0, 0);
    let mut star = |(it, _, pair): &mut Shared| calls_of(it, pair, &mut of_star, interrupt);
    let mut rc = |(_, it, pair): &mut Shared| calls_of(it, pair, &mut of_rc, interrupt);
    let measures: [&mut Measure<'_, Shared>; 2] = [&mut star, &mut rc];
    let [star, rc] = rates::in_turns(&mut shared, measures, ROUNDS, interrupt)?;
    let frames_a_call = |frames| frames as f64 / ((CALLS.0 + CALLS.1) * ROUNDS) as f64;
    let detail = format!(
        "calls of the paper's RPC, three SENDs of 32 B and one back, {CONNECTIONS} connections to a stateless server {:.0} k/s with {:.1} \
         frames a call, the same through RC {:.0} k/s with {:.1}; every message compared; medians of {ROUNDS} rounds in turns; veth MTU \
         {MTU}, {CONDITIONS}",
        star.median() * 1e-3,
        frames_a_call(of_star),
        rc.median() * 1e-3,
        frames_a_call(of_rc),
    );
    Ok(vec![Measured { name: "star_rpc_over_rc", value: star.over(&rc), detail }])
}

pub(super) fn writes(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let mut pair = Pair::open(Place::Lab(&lab), &with_star())?;
    let star = QueuePairs::open(&mut pair, Shape::stateless_server(1))?;
    let transfers = Transfers::open(&mut pair.client.host, None)?;
    // Dropped in this order.
    let mut shared = (star, transfers, pair);
    type Shared = (QueuePairs, Transfers, Pair);
    let mut star = |(it, _, pair): &mut Shared| it.write_goodput(pair, WRITES, interrupt);
    let mut one_rma = |(_, it, pair): &mut Shared| {
        let what = (OpType::Write, LARGE);
        let moved = pair.run(|client| it.of_len(client, what, (WRITES, PIPELINED), interrupt))?;
        Ok(moved.bytes_per_second())
    };
    let measures: [&mut Measure<'_, Shared>; 2] = [&mut star, &mut one_rma];
    let [star, one_rma] = rates::in_turns(&mut shared, measures, ROUNDS, interrupt)?;
    let detail = format!(
        "goodput of WRITEs of 1 MiB to the stateless side {:.0} MB/s, of the same by 1RMA {:.0} MB/s, {PIPELINED} under way; medians of \
         {ROUNDS} rounds in turns; veth MTU {MTU}, {CONDITIONS}",
        star.median() * 1e-6,
        one_rma.median() * 1e-6,
    );
    Ok(vec![Measured { name: "star_write_over_1rma_write", value: star.over(&one_rma), detail }])
}

pub(super) fn reads_beside(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let (lab, lab_alone) = (lab()?, lab()?);
    let mut pair = Pair::open(Place::Lab(&lab), &with_star())?;
    // A connection that is there, and does nothing.
    let idle = QueuePairs::open(&mut pair, Shape::stateless_server(1))?;
    let alone = Pair::open(Place::Lab(&lab_alone), &PairConfig::default())?;
    // Dropped in this order.
    let mut shared = (idle, pair, alone);
    type Shared = (QueuePairs, Pair, Pair);
    let read = |pair: &mut Pair| {
        let what = (64, WARM);
        pair.run(|client| client.measure(LoneOp::Read, what, ALONE, interrupt)).map(|it| p50(&it))
    };
    let mut beside = |(_, pair, _): &mut Shared| read(pair);
    let mut alone = |(_, _, pair): &mut Shared| read(pair);
    let measures: [&mut Measure<'_, Shared>; 2] = [&mut beside, &mut alone];
    let [beside, alone] = rates::in_turns(&mut shared, measures, ROUNDS, interrupt)?;
    let detail = format!(
        "p50 of READs of 64 B between hosts that serve StaR, too, with a connection that is idle {:.2} us, between hosts that serve \
         1RMA alone {:.2} us; medians of {ROUNDS} rounds in turns; veth MTU {MTU}, {CONDITIONS}",
        beside.median(),
        alone.median(),
    );
    Ok(vec![Measured { name: "read64_beside_star", value: beside.over(&alone), detail }])
}
