//! Throughput of large transfers and of pipelined small reads over their raw floors, and small
//! reads beside large ones.

use rma_lab::Lab;
use rma_xdp::{
    OpStatus, OpType,
    wire::{
        mutation::MUTATION_REQUEST_LEN,
        read::{REQUEST_LEN, RESPONSE_OVERHEAD},
    },
    xdp::packet::{ETHERNET_LEN, Headers},
};

use super::{
    conditions::{CONDITIONS, MTU, lab, link},
    spec::Measured,
};
use crate::{
    amount::{SMALL, WARM},
    client::Client,
    error::{PairError, hint},
    floor::{self, Exchange, Link, Sides},
    interrupt::Interrupt,
    pair::{Pair, PairConfig, Place},
    rates::{self, Rates},
    transfers::Transfers,
};

/// Rounds. An odd number has a middle one.
const ROUNDS: u64 = 11;
/// Large transfers in a round.
const LARGE_COUNT: u64 = 24;
/// Packets of the flood in a round: for nothing, and counted.
const FLOOD: (u64, u64) = (2_000, 30_000);
/// Raw exchanges of the frames of large ops in a round: for nothing, and counted.
const EXCHANGES: (u64, u64) = (1_000, 20_000);
/// Small reads, or exchanges, in a round: for nothing, and counted.
const SMALL_COUNTS: (u64, u64) = (2_000, 100_000);
/// Small reads, or exchanges, under way at once.
const DEPTH: u16 = 32;
/// Small reads beside large ones, in each round.
const BESIDE: u64 = 10_000;
/// What the large reads make beside the small ones at least, as a part of what they make alone.
const BACKGROUND_MIN: f64 = 0.1;

/// A pair of hosts with an executor, and what a full frame of its large transfers is made of.
struct Large<'a> {
    // Dropped in this order.
    transfers: Transfers,
    pair: Pair,
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
        let mut pair = Pair::open(Place::Lab(&lab), &PairConfig::default())?;
        let transfers = Transfers::open(&mut pair.client.host, MTU, None)?;
        let mut link = link()?;
        let headers = Headers::len_for(link.sides().client.address);
        let payload = (ETHERNET_LEN + MTU as usize - headers - RESPONSE_OVERHEAD) / 64 * 64;
        Ok(Self { transfers, pair, _lab: lab, link, payload, headers, interrupt })
    }

    /// UDP payload of a full frame. Those of READs and WRITEs are alike.
    const fn frame(&self) -> usize {
        self.payload + RESPONSE_OVERHEAD
    }

    /// Transfers of `op_type` in turns with `floor`, and how many ops of theirs were issued again.
    fn in_turns(
        &mut self,
        op_type: OpType,
        mut floor: impl FnMut(Sides<'_>) -> Result<f64, PairError>,
    ) -> Result<([Rates; 2], u64), PairError> {
        let Self { link, pair, transfers, interrupt, .. } = self;
        let mut retries = 0;
        let mut ops = |pair: &mut Pair| {
            let moved =
                pair.run(|client| transfers.large(client, op_type, LARGE_COUNT, interrupt))?;
            retries += moved.retries;
            Ok(moved.bytes_per_second())
        };
        let mut floor = |_: &mut Pair| floor(link.sides());
        let rates = rates::in_turns(pair, [&mut ops, &mut floor], ROUNDS, interrupt)?;
        Ok((rates, retries))
    }
}

/// Large reads and writes over a flood of frames as long as theirs.
pub(super) fn goodput(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let mut large = Large::open(interrupt)?;
    let (udp_payload, frame) = (large.frame(), large.headers + large.frame());
    let mut measured = Vec::new();
    for (op_type, name) in
        [(OpType::Read, "read_goodput_over_floor"), (OpType::Write, "write_goodput_over_floor")]
    {
        let mut lost = 0;
        let ([goodput, floor], retries) = large.in_turns(op_type, |sides| {
            let Sides { client, server, port } = sides;
            let (from, to) =
                if op_type == OpType::Read { (server, client) } else { (client, server) };
            let rate = floor::flood(from, to, port, udp_payload, FLOOD);
            lost += rate.lost;
            Ok(rate.without_loss("frames of the raw flood")?.bytes_per_second(frame))
        })?;
        let detail = format!(
            "4 MiB {op_type}s {:.2} Gbit/s of payload, a raw flood of {frame} B frames {:.2} Gbit/s, headers included; {}, \
             {retries} ops issued again, {lost} frames of the flood lost; veth MTU {MTU}, {CONDITIONS}",
            goodput.median() * 8e-9,
            floor.median() * 8e-9,
            counted(&floor),
        );
        measured.push(Measured { name, value: goodput.over(&floor), detail });
    }
    Ok(measured)
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
                floor::pipeline(client, server, port, exchange, DEPTH.into(), EXCHANGES)
            } else {
                let lens = (MUTATION_REQUEST_LEN, udp_payload);
                floor::pipelined_four_hops(client, server, port, lens, DEPTH.into(), EXCHANGES)
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

/// Pipelined small reads over an echo of small frames.
pub(super) fn read64_rate(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let mut pair = Pair::open(Place::Lab(&lab), &PairConfig::default())?;
    let mut portal = pair.client.host.portal(DEPTH)?;
    let mut reads = |pair: &mut Pair| {
        pair.run(|client| {
            let (warm_up, count) = SMALL_COUNTS;
            pipelined(client, &mut portal, warm_up)?;
            let start = rma_xdp::Clock::now(&client.clock);
            pipelined(client, &mut portal, count)?;
            let elapsed = rma_xdp::Clock::now(&client.clock).since(start);
            Ok(count as f64 / elapsed.as_secs_f64())
        })
    };
    let mut lost = 0;
    let mut link = link()?;
    let mut echo = |_: &mut Pair| {
        let Sides { client, server, port } = link.sides();
        let exchange = Exchange { request_len: SMALL, response_len: SMALL, responses: 1 };
        let rate = floor::pipeline(client, server, port, exchange, DEPTH.into(), SMALL_COUNTS);
        lost += rate.lost;
        Ok(rate.without_loss("raw exchanges")?.per_second())
    };
    let [reads, echo] = rates::in_turns(&mut pair, [&mut reads, &mut echo], ROUNDS, interrupt)?;
    let detail = format!(
        "{:.0} READs of 64 B a second, {DEPTH} under way, over {:.0} raw exchanges of 64 B frames; {}, {lost} \
         exchanges lost; veth MTU {MTU}, {CONDITIONS}",
        reads.median(),
        echo.median(),
        counted(&echo),
    );
    Ok(vec![Measured { name: "read64_rate_over_floor", value: reads.over(&echo), detail }])
}

/// `count` reads of 64 B, all of which succeed, as many under way as the portal has slots.
fn pipelined(
    client: &mut Client,
    portal: &mut rma_xdp::Portal,
    count: u64,
) -> Result<(), PairError> {
    let grant = client.grants.get(OpType::Read)?;
    let (mut issued, mut done) = (0, 0);
    while done < count {
        let mut batch = portal.batch();
        while issued < count && issued - done < DEPTH.into() {
            let remote_offset = issued * 64 % WARM;
            batch.read(&rma_xdp::ReadOp {
                grant: &grant,
                remote_offset,
                sink: &client.local,
                sink_offset: 0,
                op_size: 64,
                class: rma_xdp::ClassOfService::Latency,
            })?;
            issued += 1;
        }
        drop(batch);
        client.host.turn();
        while let Some(completion) = portal.poll() {
            done += 1;
            match completion.status {
                OpStatus::Ok => {}
                status => {
                    let hint = hint(status);
                    return Err(PairError::Failed { op_type: OpType::Read, status, hint });
                }
            }
        }
    }
    Ok(())
}

/// The pair, and what the measures of one round of [`beside`] tell each other.
struct Beside {
    pair: Pair,
    transfers: Transfers,
    /// Payload of large reads, in bytes a second: alone, and beside small ones.
    alone: f64,
    beside: f64,
}

impl Beside {
    fn large(&mut self, interrupt: &Interrupt) -> Result<f64, PairError> {
        let Self { pair, transfers, .. } = self;
        let run =
            |client: &mut Client| transfers.large(client, OpType::Read, LARGE_COUNT, interrupt);
        self.alone = pair.run(run)?.bytes_per_second();
        Ok(self.alone)
    }

    /// p99 of small reads, in microseconds.
    fn small(&mut self, beside: bool, interrupt: &Interrupt) -> Result<f64, PairError> {
        let Self { pair, transfers, .. } = self;
        let run = |client: &mut Client| transfers.small(client, BESIDE, beside, interrupt);
        let (latencies, large) = pair.run(run)?;
        self.beside = large.bytes_per_second();
        Ok(latencies.quantile_us(0.99))
    }

    /// What the large reads beside the small ones made, if they were there at all.
    fn background(&self) -> Result<f64, PairError> {
        let Self { alone, beside, .. } = *self;
        if beside >= BACKGROUND_MIN * alone {
            return Ok(beside);
        }
        Err(PairError::SpoiledRound(format!(
            "the large reads beside small ones made {:.3} Gbit/s, and {:.2} alone: small ones were beside nothing",
            beside * 8e-9,
            alone * 8e-9,
        )))
    }
}

/// Small reads beside a large one, over small reads alone.
pub(super) fn beside(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let mut pair = Pair::open(Place::Lab(&lab), &PairConfig::default())?;
    let transfers = Transfers::open(&mut pair.client.host, MTU, None)?;
    let mut shared = Beside { pair, transfers, alone: 0.0, beside: 0.0 };
    let mut large = |shared: &mut Beside| shared.large(interrupt);
    let mut alone = |shared: &mut Beside| shared.small(false, interrupt);
    let mut beside = |shared: &mut Beside| shared.small(true, interrupt);
    let mut background = |shared: &mut Beside| shared.background();
    let measures: [&mut rates::Measure<'_, Beside>; 4] =
        [&mut large, &mut alone, &mut beside, &mut background];
    let [large, alone, beside, background] =
        rates::in_turns(&mut shared, measures, ROUNDS, interrupt)?;
    let ratios = beside.over_each(&alone);
    let (low, high) = ratios.range();
    let detail = format!(
        "p99 of {BESIDE} calls of 64 B alone {:.2} us, beside a 4 MiB READ {:.2} us; medians, {}, ratios from {low:.2} to \
         {high:.2}; the large READs {:.2} Gbit/s beside them, two at a time alone {:.2}; veth MTU {MTU}, {CONDITIONS}",
        alone.median(),
        beside.median(),
        counted(&ratios),
        background.median() * 8e-9,
        large.median() * 8e-9,
    );
    Ok(vec![Measured { name: "small_beside_large_p99", value: ratios.median(), detail }])
}
