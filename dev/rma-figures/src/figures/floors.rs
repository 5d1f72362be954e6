//! The raw floor of throughput: packets in one direction, as long as the MTU.

use rma_bench::floor::{self, Sides};
use rma_xdp::device::xdp::packet::{ETHERNET_LEN, Headers};

use super::{
    conditions::MTU,
    turns::{GBIT_PER_S, Side},
};

/// Packets of a flood in each round: for nothing, and counted.
const COUNTS: (u64, u64) = (2_000, 50_000);

pub(super) const FLOOD: Side = Side {
    words: "frames of the MTU one way, headers included, as the data of READs goes, raw AF_XDP",
    unit: GBIT_PER_S,
    open: |_| {
        Ok(Box::new(|stage, _| {
            let Sides { client, server, port } = stage.link()?.sides();
            let packet_len = ETHERNET_LEN + MTU as usize;
            let len = packet_len - Headers::len_for(client.address);
            let rate = floor::flood(server, client, port, len, COUNTS);
            Ok(rate.without_loss("frames of the raw flood")?.bytes_per_second(packet_len))
        }))
    },
};
