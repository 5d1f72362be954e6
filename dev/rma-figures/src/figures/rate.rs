//! READs of 64 B in a second, 32 under way, over what raw frames and the kernel's sockets do with
//! as many.

use rma_bench::{
    amount::SMALL,
    client::Client,
    compare,
    floor::{self, Exchange, Sides},
    pipelined,
};
use rma_xdp::OpType;

use super::turns::{PER_S, Side};

/// READs, or exchanges, in a round: for nothing, and counted.
const COUNTS: (u64, u64) = (2_000, 100_000);
/// READs, or exchanges, under way at once.
const DEPTH: u16 = 32;

pub(super) const READS: Side = Side {
    words: "READs of 64 B, 32 under way",
    unit: PER_S,
    open: |stage| {
        let mut portal = stage.pair()?.client.host.portal(DEPTH)?;
        Ok(Box::new(move |stage, _| {
            let reads = |client: &mut Client| {
                pipelined::ops_per_second(client, &mut portal, OpType::Read, DEPTH, COUNTS)
            };
            stage.pair()?.run(reads)
        }))
    },
};

pub(super) const RAW: Side = Side {
    words: "raw exchanges of 64 B frames, one in a packet, 32 under way",
    unit: PER_S,
    open: |_| {
        Ok(Box::new(|stage, _| {
            let Sides { client, server, port } = stage.link()?.sides();
            let exchange = Exchange { request_len: SMALL, response_len: SMALL, responses: 1 };
            let rate = floor::pipeline(client, server, port, exchange, DEPTH.into(), COUNTS);
            Ok(rate.without_loss("raw exchanges")?.per_second())
        }))
    },
};

pub(super) const UDP: Side = Side {
    words: "exchanges of 64 B over kernel UDP, one datagram a call, 32 under way, both sides spinning, in plaintext",
    unit: PER_S,
    open: |_| {
        Ok(Box::new(|stage, _| {
            let rate = compare::echo(stage.sockets()?, 64, DEPTH.into(), COUNTS)?;
            Ok(rate.without_loss("datagrams")?.per_second())
        }))
    },
};
