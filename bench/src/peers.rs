//! `rma-bench compare`: 1RMA beside what else carries bytes between two hosts, on this machine.
//!
//! Rules: each peer has two namespaces and a veth pair of its own, alike but for what the kernel
//! does best with: no XDP program for its sockets. Both sides spin, on a core each. The work is a
//! fetch: what is asked for is an offset and a length in 64 MiB, and the answer has those bytes.
//! Rounds take turns, figures are medians of the rounds, and what 1RMA is of another is the median
//! of the rounds' ratios. No peer is left out: who is not measured has a reason.

mod list;
mod table;

use clap::{Args, builder::PossibleValuesParser};
use rma_lab::{Lab, LabConfig};
use rma_xdp::{OpType, Portal};

use crate::{
    aead,
    amount::{Amount, SMALL, WARM},
    client::Client,
    compare::{
        Sockets,
        fetch::{Fetches, Memory, Way, fetch},
    },
    cpu,
    error::PairError,
    floor::{self, Exchange, Link, Sides},
    interrupt::Interrupt,
    latency::Latencies,
    load::LoadOp,
    machine::{Machine, mode_and_mtu},
    mode::ModeArgs,
    pair::{Pair, PairConfig, Place, cores},
    pipelined::ops_per_second,
    rates::tell_again,
};
use list::{How, PEERS, Peer, Values};
use table::{Row, Start, Table, event};

/// The arguments of `compare`.
#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    /// Compare on this machine, in network namespaces. Needs root.
    #[arg(long, required = true)]
    lab: bool,
    /// Less of everything: within a minute.
    #[arg(long)]
    quick: bool,
    /// Only these peers; several separated by commas. 1rma is what others are compared with.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = PossibleValuesParser::new(PEERS.map(|it| it.name)))]
    only: Vec<String>,
    /// Print lines of JSON instead of text.
    #[arg(long)]
    json: bool,
    /// Fetches under way at once where a rate is measured.
    #[arg(short = 't', long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=256))]
    depth: u16,
    /// Fetches of each peer, and as many under way at once. Default: 420000, 20000 with --quick.
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    iters: Option<u64>,
    /// Rounds that take turns. Default: 21, 5 with --quick.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: Option<u64>,
    #[command(flatten)]
    mode: ModeArgs,
}

/// MTU of all veth pairs.
const MTU: u32 = 3400;
/// Bytes of the memory that is fetched from.
const MEMORY: usize = 64 << 20;
/// Seed of its pattern.
const SEED: u64 = 1;
/// Bytes of a short fetch.
const SHORT: u32 = 64;
/// Bytes of a long one.
const LONG: u64 = 4 << 20;
/// Long fetches under way at once, so that one begins while the other ends.
const LONG_AT_ONCE: u32 = 2;
/// Long fetches in a round: for nothing, and measured.
const LONGS: (u64, u64) = (4, 24);

/// The amounts of one round.
#[derive(Clone, Copy, Debug)]
struct Round {
    depth: u16,
    counts: (u64, u64),
    longs: (u64, u64),
}

/// The place that a peer runs in.
#[expect(clippy::large_enum_variant, reason = "there are few")]
enum Stage {
    Floor(Link),
    OneRma(OneRma),
    Kernel(Sockets, Way),
}

/// The two hosts, with command slots for many ops at once.
struct OneRma {
    // Dropped in this order.
    portal: Portal,
    pair: Pair,
    _lab: Lab,
}

impl Stage {
    /// That of `peer`, if it is measured.
    fn open(peer: Peer, depth: u16) -> Result<Option<Self>, PairError> {
        let lab = LabConfig { mtu: MTU, ..LabConfig::default() };
        Ok(match peer.how {
            How::Not(_) => None,
            How::Floor => {
                Some(Self::Floor(Link::open(&lab, rma_xdp::config::DEFAULT_PORT, false)?))
            }
            How::OneRma => {
                let lab = Lab::new(&lab)?;
                let config = PairConfig { region_len: MEMORY, seed: SEED, ..PairConfig::default() };
                let pair = Pair::open(Place::Lab(&lab), &config)?;
                let portal = pair.client.host.portal(depth)?;
                Some(Self::OneRma(OneRma { portal, pair, _lab: lab }))
            }
            How::Kernel(way) => Some(Self::Kernel(Sockets::open(&lab)?, way)),
            How::KernelWithoutGso(way) => {
                Some(Self::Kernel(Sockets::open(&lab)?.without_gso(), way))
            }
        })
    }

    /// Measures all that there is to measure, once.
    fn measure(
        &mut self,
        memory: &Memory,
        round: Round,
        interrupt: &Interrupt,
    ) -> Result<Values, PairError> {
        match self {
            Self::Floor(link) => floor(link, round),
            Self::OneRma(hosts) => hosts.measure(round, interrupt),
            Self::Kernel(sockets, way) => over_kernel(sockets, *way, memory, round),
        }
    }
}

/// Packets of such fetches, which nobody looks into.
fn floor(link: &mut Link, Round { depth, counts, .. }: Round) -> Result<Values, PairError> {
    let exchange = Exchange { request_len: SMALL, response_len: SHORT as usize, responses: 1 };
    let Sides { client, server, port } = link.sides();
    let round_trips = floor::ping_pong(client, server, port, exchange, counts);
    if round_trips.lost > 0 {
        let why = format!("{} raw exchanges were lost", round_trips.lost);
        return Err(PairError::SpoiledRound(why));
    }
    let mut latencies = Latencies::new();
    latencies.add(&round_trips.times);
    let Sides { client, server, port } = link.sides();
    let rate = floor::pipeline(client, server, port, exchange, depth.into(), counts);
    let ops_per_s = rate.without_loss("raw exchanges")?.per_second();
    Ok(Values { ops_per_s, ..Values::of(&latencies) })
}

impl OneRma {
    fn measure(
        &mut self,
        Round { depth, counts, longs }: Round,
        interrupt: &Interrupt,
    ) -> Result<Values, PairError> {
        let Self { portal, pair, .. } = self;
        let (warm_up, count) = counts;
        pair.run(|client: &mut Client| {
            client.verify(OpType::Read, count.div_ceil(100), interrupt, |_| ())?;
            let latencies = client.measure(LoadOp::Read, (SHORT, WARM), counts, interrupt)?;
            let before = cpu::exact();
            let ops_per_s = ops_per_second(client, portal, OpType::Read, depth, counts)?;
            let cpu_ns = (cpu::exact() - before).as_nanos() as f64;
            let payload_gbit_per_s = client.goodput((LONG, LONG_AT_ONCE), longs, interrupt)?;
            let cpu_ns_per_op = cpu_ns / (warm_up + count) as f64;
            Ok(Values { ops_per_s, cpu_ns_per_op, payload_gbit_per_s, ..Values::of(&latencies) })
        })
    }
}

fn over_kernel(
    sockets: &Sockets,
    way: Way,
    memory: &Memory,
    Round { depth, counts: (warm_up, count), longs }: Round,
) -> Result<Values, PairError> {
    let fetch = |fetches| fetch(sockets, way, memory, fetches);
    let short = Fetches { size: SHORT as usize, depth: 1, span: WARM, warm_up, count };
    // A batch of one is no batch.
    let mut values = match way {
        Way::UdpBatched => Values::NONE,
        _ => Values::of(&fetch(short)?.latencies),
    };
    let many = fetch(Fetches { depth: depth.into(), ..short })?;
    values.ops_per_s = count as f64 / many.elapsed.as_secs_f64();
    values.cpu_ns_per_op = many.cpu.as_nanos() as f64 / count as f64;
    if matches!(way, Way::Tcp | Way::Tls) {
        let (size, depth, span) = (LONG as usize, LONG_AT_ONCE as usize, MEMORY as u64);
        let (warm_up, count) = longs;
        let long = fetch(Fetches { size, depth, span, warm_up, count })?;
        let bits = (count * LONG * 8) as f64;
        values.payload_gbit_per_s = bits / long.elapsed.as_secs_f64() / 1e9;
    }
    Ok(values)
}

/// Compares.
///
/// # Errors
/// If namespaces, hosts or sockets cannot be had; if too few rounds count; if a byte is wrong; on
/// Ctrl-C.
pub fn run(args: &CompareArgs, interrupt: &Interrupt) -> Result<(), PairError> {
    args.mode.ask_for();
    let (rounds, count) = if args.quick { (5, 20_000) } else { (21, 420_000) };
    let rounds = args.rounds.unwrap_or(rounds);
    let amount = Amount { rounds, count: args.iters.unwrap_or(count).max(rounds) };
    let is_asked = |it: &Peer| args.only.is_empty() || args.only.iter().any(|name| name == it.name);
    let machine = Machine::here();
    let mut peers = Vec::new();
    for peer in PEERS.into_iter().filter(is_asked) {
        peers.push((peer, Stage::open(peer, args.depth)?, Vec::new()));
    }
    let mode = peers.iter().find_map(|(_, stage, _)| match stage {
        Some(Stage::OneRma(hosts)) => Some(mode_and_mtu(hosts.pair.device()).0),
        _ => None,
    });
    let start = Start {
        command: "compare",
        machine,
        mode: mode.unwrap_or_default(),
        mtu: MTU,
        aead: aead::words(),
        pinned: cores().0.is_some(),
        depth: args.depth,
        rounds: amount.rounds,
        iters: amount.count,
    };
    if args.json {
        event("start", &start);
    } else {
        table::introduce(&start);
    }
    let memory = Memory::new(MEMORY, SEED);
    for round in 0..amount.rounds {
        let (warm, long) = LONGS;
        let longs = if args.quick { (warm / 2, long / 2) } else { (warm, long) };
        let round = Round { depth: args.depth, counts: amount.of_round(round), longs };
        for (_, stage, values) in &mut peers {
            let Some(stage) = stage else { continue };
            values.push(once(stage, &memory, round, interrupt)?);
        }
    }
    let rma = peers.iter().find(|(peer, ..)| matches!(peer.how, How::OneRma));
    let rma: &[Values] = rma.map_or(&[], |(_, _, values)| values);
    let rows = peers.iter().map(|(peer, _, values)| Row::new(*peer, values, rma)).collect();
    let table = Table { rows, depth: args.depth };
    if args.json {
        table.events()
    } else {
        table.print()
    }
    Ok(())
}

/// Measures a peer in one round, again if it was spoiled.
fn once(
    stage: &mut Stage,
    memory: &Memory,
    round: Round,
    interrupt: &Interrupt,
) -> Result<Values, PairError> {
    const TRIES: u32 = 3;
    let mut tries = 0;
    loop {
        if interrupt.is_set() {
            return Err(PairError::Interrupted);
        }
        tries += 1;
        match stage.measure(memory, round, interrupt) {
            Err(PairError::SpoiledRound(why)) if tries < TRIES => tell_again(&why),
            done => return done,
        }
    }
}
