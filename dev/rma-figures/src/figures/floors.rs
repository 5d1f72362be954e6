//! The raw floors of throughput: packets in one direction, and many small exchanges under way at
//! once.

use rma_bench::{
    amount::SMALL,
    error::PairError,
    floor::{self, Exchange, Link, Sides},
    interrupt::Interrupt,
    rates,
};
use rma_xdp::device::xdp::packet::{ETHERNET_LEN, Headers};

use super::{
    conditions::{MTU, link},
    spec::Measured,
};

/// Packets of a flood, or exchanges, in each round: for nothing, and counted.
const COUNTS: (u64, u64) = (2_000, 50_000);
/// Rounds. An odd number has a middle one.
const ROUNDS: u64 = 21;
/// Exchanges under way at once.
const DEPTH: u64 = 32;

pub(super) fn floors(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let mut link = link()?;
    let packet_len = ETHERNET_LEN + MTU as usize;
    // Packets that did not arrive, and exchanges that did not end.
    let (mut packets_lost, mut exchanges_lost) = (0, 0);
    let mut flood = |link: &mut Link| {
        let Sides { client, server, port } = link.sides();
        let len = packet_len - Headers::len_for(client.address);
        // As the data of READs goes.
        let rate = floor::flood(server, client, port, len, COUNTS);
        packets_lost += rate.lost;
        Ok(rate.without_loss("frames of the raw flood")?.per_second())
    };
    let mut echo = |link: &mut Link| {
        let Sides { client, server, port } = link.sides();
        let exchange = Exchange { request_len: SMALL, response_len: SMALL, responses: 1 };
        let rate = floor::pipeline(client, server, port, exchange, DEPTH, COUNTS);
        exchanges_lost += rate.lost;
        Ok(rate.without_loss("raw exchanges")?.per_second())
    };
    let [packets, exchanges] =
        rates::in_turns(&mut link, [&mut flood, &mut echo], ROUNDS, interrupt)?;
    let of_rounds = |rates: &rates::Rates| {
        let (low, high) = rates.range();
        let counted = rates.rounds();
        format!(
            "median of the {counted} of {ROUNDS} rounds without a loss, from {low:.0} to {high:.0}, of {} each",
            COUNTS.1
        )
    };
    let bytes = packets.median() * packet_len as f64;
    Ok(vec![
        Measured {
            name: "floor_flood_gbps",
            value: bytes * 8.0 / 1e9,
            detail: format!(
                "{:.0} frames of {packet_len} B a second one way, {:.0} MB/s with their headers; {}; {packets_lost} lost; raw AF_XDP, \
                 veth MTU {MTU}, one pinned core each",
                packets.median(),
                bytes / 1e6,
                of_rounds(&packets),
            ),
        },
        Measured {
            name: "floor_echo_rate",
            value: exchanges.median(),
            detail: format!(
                "frames of 64 B there and back, {DEPTH} under way at once; {}; {exchanges_lost} lost; raw AF_XDP, veth MTU {MTU}, one \
                 pinned core each",
                of_rounds(&exchanges),
            ),
        },
    ])
}
