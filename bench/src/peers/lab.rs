//! The places on this machine: two namespaces and a veth pair for each peer.

use rma_lab::{Lab, LabConfig};
use rma_xdp::{OpType, Portal};

use super::{
    list::How,
    round::{LONG, LONG_AT_ONCE, MEMORY, MTU, Round, SEED, SHORT, Values},
    tools::Tool,
};
use crate::{
    amount::{SMALL, WARM},
    client::Client,
    compare::{
        Sockets,
        fetch::{Fetched, Fetches, Memory, WITHOUT_QUIC, Way, fetch},
    },
    cpu,
    error::PairError,
    floor::{self, Exchange, Link, Sides},
    interrupt::Interrupt,
    latency::Latencies,
    load::LoadOp,
    machine::mode_and_mtu,
    pair::{Pair, PairConfig, Place},
    pipelined::ops_per_second,
};

/// The place that a peer runs in.
#[expect(clippy::large_enum_variant, reason = "there are few")]
pub(super) enum Stage {
    Floor(Link),
    OneRma(OneRma),
    Kernel(Sockets, Way),
    Tool(Tool, Lab),
}

/// The two hosts, with command slots for many ops at once.
pub(super) struct OneRma {
    // Dropped in this order.
    portal: Portal,
    pair: Pair,
    _lab: Lab,
}

impl Stage {
    /// That of a peer, or the reason why it has none.
    pub(super) fn open(how: How, depth: u16) -> Result<Result<Self, String>, PairError> {
        let lab = LabConfig { mtu: MTU, ..LabConfig::default() };
        Ok(Ok(match how {
            How::Floor => Self::Floor(Link::open(&lab, rma_xdp::config::DEFAULT_PORT, false)?),
            How::OneRma => {
                let lab = Lab::new(&lab)?;
                let config = PairConfig { region_len: MEMORY, seed: SEED, ..PairConfig::default() };
                let pair = Pair::open(Place::Lab(&lab), &config)?;
                let portal = pair.client.host.portal(depth)?;
                Self::OneRma(OneRma { portal, pair, _lab: lab })
            }
            How::Kernel(Way::Quic) if !cfg!(feature = "quic") => {
                return Ok(Err(WITHOUT_QUIC.to_owned()));
            }
            How::Kernel(way) => Self::Kernel(Sockets::open(&lab)?, way),
            How::KernelWithoutGso(way) => Self::Kernel(Sockets::open(&lab)?.without_gso(), way),
            How::Tool(kind) => match Tool::find(kind) {
                Ok(tool) => Self::Tool(tool, Lab::new(&lab)?),
                Err(why) => return Ok(Err(why)),
            },
        }))
    }

    /// The mode of AF_XDP here, if this is 1RMA.
    pub(super) fn mode(&self) -> Option<String> {
        match self {
            Self::OneRma(hosts) => Some(mode_and_mtu(hosts.pair.device()).0),
            _ => None,
        }
    }

    /// The program of others that measures, if one does, with its version.
    pub(super) fn measured_by(&self) -> Option<String> {
        match self {
            Self::Tool(tool, _) => Some(tool.version.clone()),
            _ => None,
        }
    }

    /// Measures all that there is to measure, once.
    pub(super) fn measure(
        &mut self,
        memory: &Memory,
        round: Round,
        interrupt: &Interrupt,
    ) -> Result<Values, PairError> {
        match self {
            Self::Floor(link) => floor(link, round),
            Self::OneRma(hosts) => hosts.measure(round, interrupt),
            Self::Kernel(sockets, way) => {
                over_kernel(*way, round, |fetches| fetch(sockets, *way, memory, fetches))
            }
            Self::Tool(tool, lab) => tool.measure(lab),
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
    fn measure(&mut self, round: Round, interrupt: &Interrupt) -> Result<Values, PairError> {
        let Self { portal, pair, .. } = self;
        pair.run(|client: &mut Client| reads(client, portal, round, interrupt))
    }
}

/// READs, which 1RMA's fetches are.
pub(super) fn reads(
    client: &mut Client,
    portal: &mut Portal,
    Round { depth, counts, longs }: Round,
    interrupt: &Interrupt,
) -> Result<Values, PairError> {
    let (warm_up, count) = counts;
    client.verify(OpType::Read, count.div_ceil(100), interrupt, |_| ())?;
    let latencies = client.measure(LoadOp::Read, (SHORT, WARM), counts, interrupt)?;
    let before = cpu::exact();
    let ops_per_s = ops_per_second(client, portal, OpType::Read, depth, counts)?;
    let cpu_ns = (cpu::exact() - before).as_nanos() as f64;
    let payload_gbit_per_s = client.goodput((LONG, LONG_AT_ONCE), longs, interrupt)?;
    let cpu_ns_per_op = cpu_ns / (warm_up + count) as f64;
    Ok(Values { ops_per_s, cpu_ns_per_op, payload_gbit_per_s, ..Values::of(&latencies) })
}

/// Fetches over the kernel's sockets, each by `fetch`.
pub(super) fn over_kernel<E: From<PairError>>(
    way: Way,
    Round { depth, counts: (warm_up, count), longs }: Round,
    mut fetch: impl FnMut(Fetches) -> Result<Fetched, E>,
) -> Result<Values, E> {
    let short = Fetches { size: SHORT as usize, depth: 1, span: WARM, warm_up, count };
    // A batch of one is no batch.
    let mut values = match way {
        Way::UdpBatched => Values::NONE,
        _ => Values::of(&fetch(short)?.latencies),
    };
    let many = fetch(Fetches { depth: depth.into(), ..short })?;
    values.ops_per_s = count as f64 / many.elapsed.as_secs_f64();
    values.cpu_ns_per_op = many.cpu.as_nanos() as f64 / count as f64;
    if matches!(way, Way::Tcp | Way::Tls | Way::Quic) {
        let (size, depth, span) = (LONG as usize, LONG_AT_ONCE as usize, MEMORY as u64);
        let (warm_up, count) = longs;
        let long = fetch(Fetches { size, depth, span, warm_up, count })?;
        let bits = (count * LONG * 8) as f64;
        values.payload_gbit_per_s = bits / long.elapsed.as_secs_f64() / 1e9;
    }
    Ok(values)
}
