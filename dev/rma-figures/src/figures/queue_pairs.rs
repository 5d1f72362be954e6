//! StaR between two hosts: SENDs over the raw floor, the paper's RPC and large WRITEs over RC and
//! 1RMA, and what a READ pays for a StaR that nobody uses.

use rma_bench::{
    amount::{SMALL, WARM},
    error::PairError,
    floor::{self, Exchange, Sides},
    interrupt::Interrupt,
    latency::Latencies,
    load::LoadOp,
    pair::{Pair, PairConfig, Place},
};
use rma_lab::Lab;
use rma_xdp::{OpType, star::Role};

use super::{
    conditions::lab,
    turns::{GBIT_PER_S, MICROS, PER_S, Side, Stage, Turn},
};
use crate::{
    queue_pairs::{LARGE, PIPELINED, QueuePairs, Shape},
    transfers::Transfers,
};

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

fn one_way(stage: &mut Stage, shape: Shape) -> Result<Box<Turn>, PairError> {
    let mut queue_pairs = QueuePairs::open(stage.pair()?, shape)?;
    Ok(Box::new(move |stage, interrupt| {
        queue_pairs.one_way(stage.pair()?, ALONE, interrupt).map(|it| p50(&it))
    }))
}

pub(super) const SEND: Side = Side {
    words: "p50 of inline SENDs of 32 B to the stateless side, from post until the peer has the completion of its RECV, each compared",
    unit: MICROS,
    open: |stage| one_way(stage, Shape::stateless_server(1)),
};

pub(super) const SEND_BACK: Side = Side {
    words: "p50 of inline SENDs of 32 B to the stateful side, from post until the peer has the completion of its RECV, each compared",
    unit: MICROS,
    open: |stage| one_way(stage, Shape::stateless_client(1)),
};

pub(super) const HALF_PING_PONG: Side = Side {
    words: "half of a raw ping-pong of 64 B frames",
    unit: MICROS,
    open: |_| {
        Ok(Box::new(|stage, _| {
            let Sides { client, server, port } = stage.link()?.sides();
            let exchange = Exchange { request_len: SMALL, response_len: SMALL, responses: 1 };
            let mut latencies = Latencies::new();
            latencies.add(&floor::ping_pong(client, server, port, exchange, ALONE).times);
            Ok(p50(&latencies) / 2.0)
        }))
    },
};

fn calls(stage: &mut Stage, shape: Shape) -> Result<Box<Turn>, PairError> {
    let mut queue_pairs = QueuePairs::open(stage.pair()?, shape)?;
    Ok(Box::new(move |stage, interrupt| {
        queue_pairs.calls_per_second(stage.pair()?, CALLS, interrupt)
    }))
}

pub(super) const CALLS_STAR: Side = Side {
    words: "calls of the paper's RPC, three SENDs of 32 B and one back, 64 connections to a stateless server, every message compared",
    unit: PER_S,
    open: |stage| calls(stage, Shape::stateless_server(CONNECTIONS)),
};

pub(super) const CALLS_RC: Side = Side {
    words: "the same through RC",
    unit: PER_S,
    open: |stage| {
        let shape = Shape { client: Role::Rc, server: Role::Rc, connections: CONNECTIONS };
        calls(stage, shape)
    },
};

pub(super) const WRITES_STAR: Side = Side {
    words: "WRITEs of 1 MiB to the stateless side",
    unit: GBIT_PER_S,
    open: |stage| {
        let mut queue_pairs = QueuePairs::open(stage.pair()?, Shape::stateless_server(1))?;
        Ok(Box::new(move |stage, interrupt| {
            queue_pairs.write_goodput(stage.pair()?, WRITES, interrupt)
        }))
    },
};

pub(super) const WRITES_1RMA: Side = Side {
    words: "the same by 1RMA",
    unit: GBIT_PER_S,
    open: |stage| {
        let mut transfers = Transfers::open(&mut stage.pair()?.client.host, None)?;
        Ok(Box::new(move |stage, interrupt| {
            let (what, counts) = ((OpType::Write, LARGE), (WRITES, PIPELINED));
            let moved =
                stage.pair()?.run(|client| transfers.of_len(client, what, counts, interrupt))?;
            Ok(moved.bytes_per_second())
        }))
    },
};

fn read(pair: &mut Pair, interrupt: &Interrupt) -> Result<f64, PairError> {
    let what = (64, WARM);
    pair.run(|client| client.measure(LoadOp::Read, what, ALONE, interrupt)).map(|it| p50(&it))
}

pub(super) const READS_BESIDE: Side = Side {
    words: "p50 of READs of 64 B between hosts that serve StaR, too, with a connection that is idle",
    unit: MICROS,
    open: |stage| {
        // A connection that is there, and does nothing.
        let idle = QueuePairs::open(stage.pair()?, Shape::stateless_server(1))?;
        Ok(Box::new(move |stage, interrupt| {
            let _idle = &idle;
            read(stage.pair()?, interrupt)
        }))
    },
};

/// A pair on a lab of its own.
struct Apart {
    // Dropped in this order.
    pair: Pair,
    _lab: Lab,
}

pub(super) const READS_WITHOUT: Side = Side {
    words: "between hosts that serve 1RMA alone",
    unit: MICROS,
    open: |_| {
        let lab = lab()?;
        let pair = Pair::open(Place::Lab(&lab), &PairConfig::default())?;
        let mut apart = Apart { pair, _lab: lab };
        Ok(Box::new(move |_, interrupt| {
            let apart = &mut apart;
            read(&mut apart.pair, interrupt)
        }))
    },
};
