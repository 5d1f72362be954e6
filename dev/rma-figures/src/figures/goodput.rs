//! Throughput of large transfers: over a raw flood, over a bound made of parts, over raw exchanges
//! of all their frames, of jumbo frames over others, and over the UDP backend.

use rma_bench::{
    aead, compare,
    error::PairError,
    floor::{self, Exchange, Link, Sides},
    interrupt::Interrupt,
    pair::{Pair, PairConfig, Place, cores, pinned},
    rates::{self, Measure, Rates},
};
use rma_core::wire::{
    mutation::MUTATION_REQUEST_LEN,
    read::{REQUEST_LEN, RESPONSE_OVERHEAD},
};
use rma_lab::Lab;
use rma_xdp::{
    OpType,
    device::xdp::packet::{ETHERNET_LEN, Headers},
};

use super::{
    conditions::{CONDITIONS, MTU, lab, lab_of, link, sockets},
    spec::Measured,
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
/// Raw exchanges of the frames of large ops in a round: for nothing, and counted.
const EXCHANGES: (u64, u64) = (1_000, 20_000);
/// Raw exchanges under way at once.
const DEPTH: u64 = 32;
/// The MTU of jumbo frames.
const JUMBO: u32 = 9000;
/// Bytes of an MTU that IPv4 and UDP headers take.
const IP_AND_UDP: usize = 28;

/// A pair of hosts with an executor.
struct Hosts {
    // Dropped in this order.
    transfers: Transfers,
    pair: Pair,
    /// Ops that were issued again.
    retries: u64,
    /// The further costs of a frame to its sender, as measured in this round.
    parts: Parts,
}

impl Hosts {
    fn open(place: Place<'_>) -> Result<Self, PairError> {
        let mut pair = Pair::open(place, &PairConfig::default())?;
        let transfers = Transfers::open(&mut pair.client.host, None)?;
        Ok(Self { transfers, pair, retries: 0, parts: Parts { copy: 0.0, seal: 0.0 } })
    }

    /// Payload of large transfers, in bytes a second.
    fn goodput(&mut self, op_type: OpType, interrupt: &Interrupt) -> Result<f64, PairError> {
        let Self { transfers, pair, retries, .. } = self;
        let moved = pair.run(|client| transfers.large(client, op_type, LARGE, interrupt))?;
        *retries += moved.retries;
        Ok(moved.bytes_per_second())
    }
}

/// Hosts, a link for raw floors, and what a full frame of large transfers is made of.
struct Large<'a> {
    // Dropped in this order.
    hosts: Hosts,
    _lab: Lab,
    link: Link,
    /// Bytes of the transfer: whole granules.
    payload: usize,
    /// Bytes of the packet before its UDP payload.
    headers: usize,
    interrupt: &'a Interrupt,
}

impl<'a> Large<'a> {
    fn open(interrupt: &'a Interrupt) -> Result<Self, PairError> {
        let lab = lab()?;
        let hosts = Hosts::open(Place::Lab(&lab))?;
        let mut link = link()?;
        let headers = Headers::len_for(link.sides().client.address);
        let payload = (ETHERNET_LEN + MTU as usize - headers - RESPONSE_OVERHEAD) / 64 * 64;
        Ok(Self { hosts, _lab: lab, link, payload, headers, interrupt })
    }

    /// UDP payload of a full frame of a READ. That of a WRITE carries as much and is four octets
    /// longer, which its floors leave out.
    const fn frame(&self) -> usize {
        self.payload + RESPONSE_OVERHEAD
    }

    /// Transfers of `op_type` in turns with `floor`, and how many ops of theirs were issued again.
    fn in_turns(
        &mut self,
        op_type: OpType,
        mut floor: impl FnMut(Sides<'_>) -> Result<f64, PairError>,
    ) -> Result<([Rates; 2], u64), PairError> {
        let Self { link, hosts, interrupt, .. } = self;
        let before = hosts.retries;
        let mut ops = |hosts: &mut Hosts| hosts.goodput(op_type, interrupt);
        let mut floor = |_: &mut Hosts| floor(link.sides());
        let measures: [&mut Measure<'_, Hosts>; 2] = [&mut ops, &mut floor];
        let rates = rates::in_turns(hosts, measures, ROUNDS, interrupt)?;
        Ok((rates, hosts.retries - before))
    }

    /// The same with a flood of full frames, as its frames a second, and with what else such a
    /// frame costs the core of whoever sends the data: its copy and its seal, in nanoseconds.
    fn beside_flood(&mut self, op_type: OpType) -> Result<([Rates; 4], u64), PairError> {
        let (len, payload) = (self.frame(), self.payload);
        let Self { link, hosts, interrupt, .. } = self;
        let before = hosts.retries;
        let mut ops = |hosts: &mut Hosts| hosts.goodput(op_type, interrupt);
        let mut flood = |_: &mut Hosts| {
            let Sides { client, server, port } = link.sides();
            let (from, to) =
                if op_type == OpType::Read { (server, client) } else { (client, server) };
            let rate = floor::flood(from, to, port, len, FLOOD);
            Ok(rate.without_loss("frames of the raw flood")?.per_second())
        };
        let mut copy = |hosts: &mut Hosts| {
            let (client, server) = cores();
            let sender = if op_type == OpType::Read { server } else { client };
            hosts.parts = pinned(sender, || parts::of_a_frame(aead::chosen(), payload));
            Ok(hosts.parts.copy)
        };
        let mut seal = |hosts: &mut Hosts| Ok(hosts.parts.seal);
        let measures: [&mut Measure<'_, Hosts>; 4] = [&mut ops, &mut flood, &mut copy, &mut seal];
        let rates = rates::in_turns(hosts, measures, ROUNDS, interrupt)?;
        Ok((rates, hosts.retries - before))
    }
}

/// Large reads and writes over a flood of frames as long as theirs, and over a bound made of parts:
/// a core that does for each frame what the flood's does, copies its payload once, and seals it.
pub(super) fn goodput(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let mut large = Large::open(interrupt)?;
    let (payload, packet) = (large.payload as f64, (large.headers + large.frame()) as f64);
    let mut measured = Vec::new();
    for (op_type, over_floor, over_parts) in [
        (OpType::Read, "read_goodput_over_floor", "read_goodput_over_parts"),
        (OpType::Write, "write_goodput_over_floor", "write_goodput_over_parts"),
    ] {
        let ([goodput, flood, copy, seal], retries) = large.beside_flood(op_type)?;
        let in_flood = flood.map(|frames| frames * packet);
        let own = copy.plus(&seal);
        let each = flood.map(|frames| 1e9 / frames).plus(&own);
        let bound = each.map(|nanos| payload * 1e9 / nanos);
        let conditions = format!(
            "{}, {retries} ops issued again; veth MTU {MTU}, {CONDITIONS}",
            counted(&goodput)
        );
        measured.push(Measured {
            name: over_floor,
            value: goodput.over(&in_flood),
            detail: format!(
                "4 MiB {op_type}s {:.2} Gbit/s of payload, a raw flood of {packet} B frames {:.2} Gbit/s, headers included; {conditions}",
                goodput.median() * 8e-9,
                in_flood.median() * 8e-9,
            ),
        });
        measured.push(Measured {
            name: over_parts,
            value: goodput.over(&bound),
            detail: format!(
                "4 MiB {op_type}s {:.2} Gbit/s of payload; a frame of the flood {:.0} ns, its AES-GCM call {:.0}, a copy of its {payload} B \
                 {:.0}: at most {:.2} Gbit/s for one core; {conditions}",
                goodput.median() * 8e-9,
                1e9 / flood.median(),
                seal.median(),
                copy.median(),
                bound.median() * 8e-9,
            ),
        });
    }
    Ok(measured)
}

/// Large reads of jumbo frames over those of others.
pub(super) fn jumbo_gain(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let (jumbo_lab, lab) = (lab_of(JUMBO)?, lab()?);
    let mut both = (Hosts::open(Place::Lab(&jumbo_lab))?, Hosts::open(Place::Lab(&lab))?);
    type Both = (Hosts, Hosts);
    let mut jumbo = |both: &mut Both| both.0.goodput(OpType::Read, interrupt);
    let mut others = |both: &mut Both| both.1.goodput(OpType::Read, interrupt);
    let measures: [&mut Measure<'_, Both>; 2] = [&mut jumbo, &mut others];
    let [jumbo, others] = rates::in_turns(&mut both, measures, ROUNDS, interrupt)?;
    let detail = format!(
        "4 MiB READs {:.2} Gbit/s of payload with veth MTU {JUMBO}, {:.2} with {MTU}; {}; {CONDITIONS}",
        jumbo.median() * 8e-9,
        others.median() * 8e-9,
        counted(&jumbo),
    );
    Ok(vec![Measured { name: "read_goodput_jumbo_gain", value: jumbo.over(&others), detail }])
}

/// Large reads over the UDP backend, over plain datagrams with segmentation offload.
pub(super) fn over_gso(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let sockets = sockets()?;
    let mut hosts = Hosts::open(Place::LabUdp(sockets.lab()))?;
    let len = MTU as usize - IP_AND_UDP;
    let mut ops = |hosts: &mut Hosts| hosts.goodput(OpType::Read, interrupt);
    let mut plain = |_: &mut Hosts| {
        let rate = compare::segmented(&sockets, len, FLOOD)?;
        Ok(rate.without_loss("datagrams")?.bytes_per_second(len))
    };
    let measures: [&mut Measure<'_, Hosts>; 2] = [&mut ops, &mut plain];
    let [goodput, plain] = rates::in_turns(&mut hosts, measures, ROUNDS, interrupt)?;
    let detail = format!(
        "4 MiB READs over the UDP backend {:.2} Gbit/s of payload, {} ops issued again; datagrams of {len} B one way, sent with GSO, \
         received one by one, in plaintext, {:.2} Gbit/s; {}; veth MTU {MTU}, inline engines, one pinned core each, {}",
        goodput.median() * 8e-9,
        hosts.retries,
        plain.median() * 8e-9,
        counted(&plain),
        aead::words(),
    );
    Ok(vec![Measured { name: "udp_goodput_over_gso", value: goodput.over(&plain), detail }])
}

/// Large reads and writes over raw exchanges of all the frames that they have.
pub(super) fn over_exchange(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let mut large = Large::open(interrupt)?;
    let (udp_payload, payload) = (large.frame(), large.payload);
    let mut measured = Vec::new();
    for (op_type, name) in [
        (OpType::Read, "read_goodput_over_exchange"),
        (OpType::Write, "write_goodput_over_exchange"),
    ] {
        let ([goodput, exchanges], retries) = large.in_turns(op_type, |sides| {
            let Sides { client, server, port } = sides;
            let rate = if op_type == OpType::Read {
                let (request_len, response_len) = (REQUEST_LEN, udp_payload);
                let exchange = Exchange { request_len, response_len, responses: 1 };
                floor::pipeline(client, server, port, exchange, DEPTH, EXCHANGES)
            } else {
                let lens = (MUTATION_REQUEST_LEN, udp_payload);
                floor::pipelined_four_hops(client, server, port, lens, DEPTH, EXCHANGES)
            };
            Ok(rate.without_loss("frames of raw exchanges")?.bytes_per_second(payload))
        })?;
        let detail = format!(
            "4 MiB {op_type}s {:.2} Gbit/s of payload, raw exchanges of all frames of such ops {:.2} Gbit/s of as much payload, which \
             nobody reads or writes, {DEPTH} under way; {}, {retries} ops issued again; veth MTU {MTU}, {CONDITIONS}",
            goodput.median() * 8e-9,
            exchanges.median() * 8e-9,
            counted(&exchanges),
        );
        measured.push(Measured { name, value: goodput.over(&exchanges), detail });
    }
    Ok(measured)
}

/// How many rounds count, in words.
fn counted(rates: &Rates) -> String {
    format!("{} of {ROUNDS} rounds count", rates.rounds())
}
