//! `rma-figures curve`: how many READs of 64 B a second there are, by how many are under way.
//!
//! Beside them raw frames and the kernel's UDP, with as many under way: what shares packets and
//! doorbells when there is more to share shows in how the curves part.

use clap::Args;
use rma_bench::{
    aead,
    amount::SMALL,
    compare::{self, Sockets},
    error::PairError,
    floor::{self, Exchange, Link, Sides},
    interrupt::Interrupt,
    line,
    machine::Machine,
    pair::{Pair, PairConfig, Place},
    pipelined,
    rates::{self, Measure},
};
use rma_lab::{Lab, LabConfig};
use rma_xdp::OpType;
use serde::Serialize;

/// The arguments of `curve`.
#[derive(Args, Clone, Debug)]
pub struct CurveArgs {
    /// READs under way at once: numbers from 1 to 256, separated by commas.
    #[arg(short = 't', long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32, 64, 128, 256],
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub depth: Vec<u16>,
    /// Rounds; each value is the median of them.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: u64,
    /// READs, and raw exchanges, in each round.
    #[arg(short = 'n', long, default_value_t = 30_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: u64,
    /// Use kernel UDP sockets for the hosts.
    #[arg(long)]
    pub udp: bool,
    /// Print one line of JSON for each point.
    #[arg(long)]
    pub json: bool,
}

/// One point of each curve, and the medians of the rounds' ratios.
#[derive(Clone, Debug, Serialize)]
struct Point {
    depth: u16,
    reads_per_s: f64,
    raw_per_s: f64,
    udp_per_s: f64,
    over_raw: f64,
    over_udp: f64,
}

/// Measures and prints.
///
/// # Errors
/// If something could not be set up; if a READ fails; on Ctrl-C.
pub fn run(args: &CurveArgs, interrupt: &Interrupt) -> Result<(), PairError> {
    let config = LabConfig { mtu: 3400, ..LabConfig::default() };
    let (lab, sockets) = (Lab::new(&config)?, Sockets::open(&config)?);
    let place = if args.udp { Place::LabUdp(&lab) } else { Place::Lab(&lab) };
    let mut pair = Pair::open(place, &PairConfig::default())?;
    let mut link = Link::open(&config, rma_xdp::config::DEFAULT_PORT, false)?;
    let most = args.depth.iter().copied().max().unwrap_or(1);
    let mut portal = pair.client.host.portal(most)?;
    if !args.json {
        line!(
            "READs of 64 B a second by how many are under way, over {}, {}; raw exchanges of 64 B frames over AF_XDP, one in a packet; \
             64 B over kernel UDP, both sides spinning, in plaintext; medians of {} rounds of {}, in turns; {}\n",
            pair.device(),
            aead::words(),
            args.rounds,
            args.count,
            Machine::here().machine,
        );
        line!("| under way | READ, M/s | raw, M/s | UDP, M/s | READ over raw | over UDP |");
        line!("|---|---|---|---|---|---|");
    }
    for &depth in &args.depth {
        let counts = (args.count / 10, args.count);
        let mut reads = |pair: &mut Pair| {
            let reads = |client: &mut _| {
                pipelined::ops_per_second(client, &mut portal, OpType::Read, depth, counts)
            };
            pair.run(reads)
        };
        let mut raw = |_: &mut Pair| {
            let Sides { client, server, port } = link.sides();
            let exchange = Exchange { request_len: SMALL, response_len: SMALL, responses: 1 };
            let rate = floor::pipeline(client, server, port, exchange, depth.into(), counts);
            Ok(rate.without_loss("raw exchanges")?.per_second())
        };
        let mut udp = |_: &mut Pair| {
            let rate = compare::echo(&sockets, 64, depth.into(), counts)?;
            Ok(rate.without_loss("datagrams")?.per_second())
        };
        let measures: [&mut Measure<'_, Pair>; 3] = [&mut reads, &mut raw, &mut udp];
        let [reads, raw, udp] = rates::in_turns(&mut pair, measures, args.rounds, interrupt)?;
        show(
            &Point {
                depth,
                reads_per_s: reads.median(),
                raw_per_s: raw.median(),
                udp_per_s: udp.median(),
                over_raw: reads.over(&raw),
                over_udp: reads.over(&udp),
            },
            args.json,
        );
    }
    Ok(())
}

fn show(point: &Point, json: bool) {
    if json {
        line!("{}", serde_json::to_string(point).expect("plain data"));
        return;
    }
    let &Point { depth, reads_per_s, raw_per_s, udp_per_s, over_raw, over_udp } = point;
    line!(
        "| {depth} | {:.3} | {:.3} | {:.3} | {over_raw:.2} | {over_udp:.2} |",
        reads_per_s * 1e-6,
        raw_per_s * 1e-6,
        udp_per_s * 1e-6,
    );
}
