//! Throughput of large transfers and of pipelined small reads over their raw floors, and small reads beside large
//! ones.

use rma_xdp::{
    OpStatus, OpType,
    wire::read::RESPONSE_OVERHEAD,
    xdp::packet::{ETHERNET_LEN, Headers},
};

use super::{CONDITIONS, MTU, lab, table::Measured};
use crate::{
    client::Client,
    floor::{self, Exchange},
    interrupt::Interrupt,
    latency::Latencies,
    measure::{SMALL, Sides, WARM, sides},
    pair::{Pair, PairConfig, PairError, Place, hint},
    rates::{self, Rates},
    transfers::Transfers,
};

/// Rounds. An odd number has a middle one.
const ROUNDS: u64 = 11;
/// Large transfers in a round.
const LARGE_COUNT: u64 = 24;
/// Packets of the flood in a round: for nothing, and counted.
const FLOOD: (u64, u64) = (2_000, 30_000);
/// Small reads, or exchanges, in a round: for nothing, and counted.
const SMALL_COUNTS: (u64, u64) = (2_000, 100_000);
/// Small reads under way at once.
const DEPTH: u16 = 32;
/// Small reads beside large ones, in each round.
const BESIDE: u64 = 10_000;

/// Large reads and writes over a flood of frames as long as theirs.
pub(super) fn goodput(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let mut pair = Pair::open(Place::Lab(&lab), &PairConfig::default())?;
    let mut transfers = Transfers::open(&mut pair.client.host, MTU, None)?;
    // A full frame of the transfers: whole granules.
    let ip_payload = |headers: usize| ETHERNET_LEN + MTU as usize - headers;
    let headers = Headers::len_for(sides(&mut pair, &lab)?.client.address);
    let payload = (ip_payload(headers) - RESPONSE_OVERHEAD) / 64 * 64;
    let (udp_payload, frame) = (payload + RESPONSE_OVERHEAD, headers + RESPONSE_OVERHEAD + payload);
    let mut measured = Vec::new();
    for (op_type, name) in
        [(OpType::Read, "read_goodput_over_floor"), (OpType::Write, "write_goodput_over_floor")]
    {
        let (mut retries, mut lost) = (0, 0);
        let mut ops = |pair: &mut Pair| {
            let moved =
                pair.run(|client| transfers.large(client, op_type, LARGE_COUNT, interrupt))?;
            retries += moved.retries;
            Ok(moved.bytes_per_second())
        };
        let mut flood = |pair: &mut Pair| {
            let Sides { client, server, port } = sides(pair, &lab)?;
            let (from, to) =
                if op_type == OpType::Read { (server, client) } else { (client, server) };
            let rate = floor::flood(from, to, port, udp_payload, FLOOD);
            lost += rate.lost;
            Ok(rate.without_loss("frames of the raw flood")?.bytes_per_second(frame))
        };
        let [goodput, floor] =
            rates::in_turns(&mut pair, [&mut ops, &mut flood], ROUNDS, interrupt)?;
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
    let mut echo = |pair: &mut Pair| {
        let Sides { client, server, port } = sides(pair, &lab)?;
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

/// Small reads beside a large one, over small reads alone.
pub(super) fn beside(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let mut pair = Pair::open(Place::Lab(&lab), &PairConfig::default())?;
    let mut transfers = Transfers::open(&mut pair.client.host, MTU, None)?;
    let (mut alone, mut beside) = (Latencies::new(), Latencies::new());
    for _ in 0..ROUNDS {
        for (latencies, large) in [(&mut alone, false), (&mut beside, true)] {
            let run = |client: &mut Client| transfers.small(client, BESIDE, large, interrupt);
            latencies.merge(&pair.run(run)?);
        }
    }
    let detail = format!(
        "64 B calls alone {:.2} us p50 and {:.2} us p99, beside a 4 MiB transfer {:.2} and {:.2} us, {} each; veth MTU {MTU}, \
         {CONDITIONS}",
        alone.quantile_us(0.5),
        alone.quantile_us(0.99),
        beside.quantile_us(0.5),
        beside.quantile_us(0.99),
        alone.count(),
    );
    let value = beside.quantile_us(0.99) / alone.quantile_us(0.99);
    Ok(vec![Measured { name: "small_beside_large_p99", value, detail }])
}
