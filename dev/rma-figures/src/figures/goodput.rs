//! Throughput of large transfers: over a raw flood, over a bound made of parts, of jumbo frames
//! over others, and over the UDP backend.

use rma_bench::{
    aead, compare,
    error::PairError,
    floor::{self, Sides},
    interrupt::Interrupt,
    pair::{Pair, PairConfig, Place, cores, pinned},
    rates::{self, Measure, Rates},
};
use rma_core::wire::read::RESPONSE_OVERHEAD;
use rma_lab::Lab;
use rma_xdp::{
    HostAddr, OpType,
    device::xdp::packet::{ETHERNET_LEN, Headers},
};

use super::{
    conditions::{CONDITIONS, MTU, lab, lab_of, link},
    spec::Measured,
    turns::{GBIT_PER_S, Side, Stage, Turn},
};
use crate::{
    parts::{self, Parts},
    transfers::{PIPELINED, Transfers},
};

/// Rounds. An odd number has a middle one.
const ROUNDS: u64 = 11;
/// Large transfers in a round, and how many of them are under way at once.
const LARGE: (u64, u64) = (24, PIPELINED);
/// Packets of the flood in a round: for nothing, and counted.
const FLOOD: (u64, u64) = (2_000, 30_000);
/// The MTU of jumbo frames.
const JUMBO: u32 = 9000;
/// Bytes of an MTU that IPv4 and UDP headers take.
const IP_AND_UDP: usize = 28;

/// The full frame of large transfers between hosts with the addresses of the lab.
struct Frame {
    /// Bytes of the transfer: whole granules.
    payload: usize,
    /// Bytes of the packet before its UDP payload.
    headers: usize,
}

impl Frame {
    fn to(address: HostAddr) -> Self {
        let headers = Headers::len_for(address);
        let payload = (ETHERNET_LEN + MTU as usize - headers - RESPONSE_OVERHEAD) / 64 * 64;
        Self { payload, headers }
    }

    /// UDP payload of a full frame of a READ. That of a WRITE carries as much and is four octets
    /// longer, which its floors leave out.
    const fn udp_payload(&self) -> usize {
        self.payload + RESPONSE_OVERHEAD
    }
}

/// Payload of large transfers, in bytes a second.
fn moved(
    transfers: &mut Transfers,
    pair: &mut Pair,
    op_type: OpType,
    interrupt: &Interrupt,
) -> Result<f64, PairError> {
    let moved = pair.run(|client| transfers.large(client, op_type, LARGE, interrupt))?;
    Ok(moved.bytes_per_second())
}

fn large(stage: &mut Stage, op_type: OpType) -> Result<Box<Turn>, PairError> {
    let mut transfers = Transfers::open(&mut stage.pair()?.client.host, None)?;
    Ok(Box::new(move |stage, interrupt| moved(&mut transfers, stage.pair()?, op_type, interrupt)))
}

pub(super) const READS: Side = Side {
    words: "4 MiB READs, payload",
    unit: GBIT_PER_S,
    open: |stage| large(stage, OpType::Read),
};

/// A pair on a lab of its own, with an executor.
struct Apart {
    // Dropped in this order.
    transfers: Transfers,
    pair: Pair,
    _lab: Lab,
}

pub(super) const JUMBO_READS: Side = Side {
    words: "4 MiB READs with a veth MTU of 9000, payload",
    unit: GBIT_PER_S,
    open: |_| {
        let lab = lab_of(JUMBO)?;
        let mut pair = Pair::open(Place::Lab(&lab), &PairConfig::default())?;
        let transfers = Transfers::open(&mut pair.client.host, None)?;
        let mut apart = Apart { transfers, pair, _lab: lab };
        Ok(Box::new(move |_, interrupt| {
            let Apart { transfers, pair, .. } = &mut apart;
            moved(transfers, pair, OpType::Read, interrupt)
        }))
    },
};

pub(super) const SEGMENTED: Side = Side {
    words: "datagrams of the MTU one way, sent with GSO, received one by one, in plaintext",
    unit: GBIT_PER_S,
    open: |_| {
        Ok(Box::new(|stage, _| {
            let len = MTU as usize - IP_AND_UDP;
            let rate = compare::segmented(stage.sockets()?, len, FLOOD)?;
            Ok(rate.without_loss("datagrams")?.bytes_per_second(len))
        }))
    },
};

/// Large transfers over a flood of frames as long as theirs, and over a bound made of parts: a core
/// that does for each frame what the flood's does, copies its payload once, and seals it.
fn over_flood(op_type: OpType, interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    struct Shared {
        // Dropped in this order.
        transfers: Transfers,
        pair: Pair,
        /// The further costs of a frame to its sender, as measured in this round.
        parts: Parts,
    }
    let lab = lab()?;
    let mut pair = Pair::open(Place::Lab(&lab), &PairConfig::default())?;
    let transfers = Transfers::open(&mut pair.client.host, None)?;
    let mut shared = Shared { transfers, pair, parts: Parts { copy: 0.0, seal: 0.0 } };
    let mut link = link()?;
    let frame = Frame::to(link.sides().client.address);
    let mut ops = |it: &mut Shared| moved(&mut it.transfers, &mut it.pair, op_type, interrupt);
    let mut flood = |_: &mut Shared| {
        let Sides { client, server, port } = link.sides();
        let (from, to) = if op_type == OpType::Read { (server, client) } else { (client, server) };
        let rate = floor::flood(from, to, port, frame.udp_payload(), FLOOD);
        Ok(rate.without_loss("frames of the raw flood")?.per_second())
    };
    let mut copy = |it: &mut Shared| {
        let (client, server) = cores();
        let sender = if op_type == OpType::Read { server } else { client };
        it.parts = pinned(sender, || parts::of_a_frame(aead::chosen(), frame.payload));
        Ok(it.parts.copy)
    };
    let mut seal = |it: &mut Shared| Ok(it.parts.seal);
    let measures: [&mut Measure<'_, Shared>; 4] = [&mut ops, &mut flood, &mut copy, &mut seal];
    let [goodput, flood, copy, seal] = rates::in_turns(&mut shared, measures, ROUNDS, interrupt)?;
    let packet = (frame.headers + frame.udp_payload()) as f64;
    let in_flood = flood.map(|frames| frames * packet);
    let each = flood.map(|frames| 1e9 / frames).plus(&copy.plus(&seal));
    let bound = each.map(|nanos| frame.payload as f64 * 1e9 / nanos);
    let gbit = |rates: &Rates| rates.median() * 8e-9;
    let common = format!(
        "4 MiB {op_type}s {:.2} Gbit/s of payload; a raw flood of {packet} B frames {:.2} Gbit/s, headers included; a frame of it {:.0}          ns, its AES-GCM call {:.0}, a copy of its {} B {:.0}: at most {:.2} Gbit/s for one core; {} of {ROUNDS} rounds count; veth MTU          {MTU}, {CONDITIONS}",
        gbit(&goodput),
        gbit(&in_flood),
        1e9 / flood.median(),
        seal.median(),
        frame.payload,
        copy.median(),
        gbit(&bound),
        goodput.rounds(),
    );
    let over = |floor: &Rates| Measured::new(goodput.over(floor), common.as_str());
    Ok(vec![over(&in_flood), over(&bound)])
}

pub(super) fn reads_over_flood(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    over_flood(OpType::Read, interrupt)
}

pub(super) fn writes_over_flood(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    over_flood(OpType::Write, interrupt)
}
