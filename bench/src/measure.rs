//! The latency measurements that the demo shows and the named figures come from: ops, and the raw
//! floor beside them.
//!
//! What the measurements compare takes turns, round by round, on pairs of interfaces that are
//! alike, so that a machine whose speed drifts drifts under all of it.

use rma_core::wire::{
    mutation::{DATA_OVERHEAD, MUTATION_REQUEST_LEN},
    read::{REQUEST_LEN, RESPONSE_OVERHEAD},
};
use rma_xdp::{ReceiveQueue, ops::Moves};

use crate::{
    amount::{Amount, SMALL, WARM},
    client::Client,
    compare::{self, Sockets, Transport},
    error::PairError,
    floor::{self, Exchange, FourHops, Link, RoundTrips, Sides},
    interrupt::Interrupt,
    latency::Latencies,
    load::LoadOp,
    one_way::{ByHand, Step},
    pair::{Pair, cores, pinned},
    rates::Rates,
};

/// Something to measure.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// Ops of so many bytes, at random places of the region's first `span` bytes.
    Ops {
        /// The ops.
        op: LoadOp,
        /// Bytes of each.
        size: u32,
        /// Of how much of the region.
        span: u64,
    },
    /// Messages of so many bytes, until their receiver sees them.
    OneWay(Step, u32),
    /// The raw floor, without a protocol.
    Raw(Floor),
    /// Messages of so many bytes there and back over the kernel's own sockets, both sides spinning.
    Kernel(Transport, usize),
    /// Something else, on the core of the client: so often for nothing, then so often.
    Beside(fn((u64, u64)) -> Latencies),
}

impl What {
    /// Ops in memory that a cache holds.
    #[must_use]
    pub const fn warm(op: LoadOp, size: u32) -> Self {
        Self::Ops { op, size, span: WARM }
    }
}

/// A raw exchange to compare an op with.
#[derive(Clone, Copy, Debug)]
pub enum Floor {
    /// A frame of 64 bytes each way.
    TwoSmall,
    /// Four of them, each sent when the last has come: two each way.
    FourSmall,
    /// As many frames of the same lengths as such an op of this size has.
    FramesOf(LoadOp, u32),
}

/// The links for measurements that are not ops.
#[derive(Debug, Default)]
pub struct Links<'a> {
    /// Raw floors: a veth pair like that of the hosts.
    pub raw: Option<&'a mut Link>,
    /// The kernel's own sockets: such a pair without a program.
    pub sockets: Option<&'a Sockets>,
}

impl<'a> Links<'a> {
    /// A link for raw floors, and none for the kernel's sockets.
    pub fn raw(link: &'a mut Link) -> Self {
        Self { raw: Some(link), sockets: None }
    }
}

/// The measured latencies, in the order in which they were asked for.
#[derive(Debug)]
pub struct Turns<const N: usize> {
    /// How long ops and exchanges took, one histogram for each thing that was measured.
    pub latencies: [Latencies; N],
    /// The same, round by round.
    rounds: Vec<[Latencies; N]>,
    /// Raw exchanges that were lost.
    pub lost: u64,
}

impl<const N: usize> Turns<N> {
    /// One latency as a multiple of another, at a quantile: the median of the rounds' ratios.
    ///
    /// # Panics
    /// If there is no such measurement.
    #[must_use]
    pub fn ratio(&self, of: usize, to: usize, quantile: f64) -> f64 {
        self.of_rounds(quantile, |us| us[of] / us[to]).median()
    }

    /// Applies `of` to the latencies of each round at a quantile, in microseconds.
    pub fn of_rounds(&self, quantile: f64, of: impl Fn([f64; N]) -> f64) -> Rates {
        let at = |round: &[Latencies; N]| round.each_ref().map(|it| it.quantile_us(quantile));
        self.rounds.iter().map(|round| of(at(round))).collect()
    }
}

/// Measures each of `whats`, taking turns: what is no op on `links`, which must be like the one
/// that the pair is on.
///
/// # Errors
/// If op after op fails.
pub fn in_turns<const N: usize>(
    pair: &mut Pair,
    mut links: Links<'_>,
    whats: [What; N],
    amount: Amount,
    interrupt: &Interrupt,
) -> Result<Turns<N>, PairError> {
    let mut turns = Turns {
        latencies: core::array::from_fn(|_| Latencies::new()),
        rounds: Vec::new(),
        lost: 0,
    };
    for round in 0..amount.rounds {
        let counts = amount.of_round(round);
        let mut of_round = core::array::from_fn(|_| Latencies::new());
        for (what, latencies) in whats.into_iter().zip(&mut of_round) {
            turns.lost += one(pair, &mut links, what, counts, latencies, interrupt)?;
        }
        turns.latencies.iter_mut().zip(&of_round).for_each(|(all, it)| all.merge(it));
        turns.rounds.push(of_round);
    }
    Ok(turns)
}

/// Measures one of them in one round. Returns how many exchanges were lost.
fn one(
    pair: &mut Pair,
    links: &mut Links<'_>,
    what: What,
    counts: (u64, u64),
    latencies: &mut Latencies,
    interrupt: &Interrupt,
) -> Result<u64, PairError> {
    let round_trips = match what {
        What::Ops { op, size, span } => {
            latencies.merge(&ops(pair, op, (size, span), counts, interrupt)?);
            return Ok(0);
        }
        What::OneWay(step, size) => {
            let mut by_hand = ByHand::open(pair, &[step], size)?;
            latencies.merge(&by_hand.one_way(pair, counts, interrupt)?);
            return Ok(0);
        }
        What::Beside(measure) => {
            latencies.merge(&pinned(cores().0, || measure(counts)));
            return Ok(0);
        }
        What::Raw(floor) => {
            let link = links.raw.as_deref_mut().ok_or(PairError::NoRawSockets)?;
            raw(pair, link, floor, counts)?
        }
        What::Kernel(transport, len) => {
            let sockets = links.sockets.ok_or(PairError::NoRawSockets)?;
            compare::ping_pong(sockets, transport, len, counts)?
        }
    };
    latencies.add(&round_trips.times);
    Ok(round_trips.lost)
}

/// Measures ops, whose events the server's application takes between turns.
fn ops(
    pair: &mut Pair,
    op: LoadOp,
    (size, span): (u32, u64),
    counts: (u64, u64),
    interrupt: &Interrupt,
) -> Result<Latencies, PairError> {
    let measure = |client: &mut Client| client.measure(op, (size, span), counts, interrupt);
    if op != LoadOp::WriteWithImm {
        return pair.run(measure);
    }
    let mut events = 0;
    let mut take = |queue: &mut ReceiveQueue| {
        while let Some(event) = queue.poll() {
            events += 1;
            queue.post(event.receive).expect("its event has come");
        }
    };
    let latencies = pair.run_beside(|_, queue| take(queue), measure)?;
    take(&mut pair.queue);
    let (warm_up, count) = counts;
    let ops = warm_up + count;
    // More are possible: an op that ended with TIMEOUT may have made one.
    if events < ops { Err(PairError::MissingEvents { ops, events }) } else { Ok(latencies) }
}

/// How many frames with data an op has on the wire: seen, not computed.
fn data_frames(pair: &mut Pair, op: LoadOp, size: u32) -> usize {
    let moves = op.moves();
    let received = |pair: &Pair| match moves {
        Moves::In => pair.client.host.engines()[0].counters.frames_received(),
        Moves::Out => pair.server.engines()[0].counters.frames_received(),
    };
    // Besides data, a writer sends its request.
    let others = u64::from(moves == Moves::Out);
    let before = received(pair) + others;
    let counts = (0, 1);
    let run = |client: &mut Client| client.measure(op, (size, WARM), counts, &Interrupt::default());
    if pair.run(run).is_ok() { received(pair).saturating_sub(before).max(1) as usize } else { 1 }
}

fn raw(
    pair: &mut Pair,
    link: &mut Link,
    floor: Floor,
    counts: (u64, u64),
) -> Result<RoundTrips, PairError> {
    let data = match floor {
        Floor::FramesOf(op, size) => data_frames(pair, op, size),
        Floor::TwoSmall | Floor::FourSmall => 1,
    };
    let Sides { client, server, port } = link.sides();
    Ok(match floor {
        Floor::TwoSmall => {
            let exchange = Exchange { request_len: SMALL, response_len: SMALL, responses: 1 };
            floor::ping_pong(client, server, port, exchange, counts)
        }
        Floor::FourSmall => {
            let hops = FourHops { small_len: SMALL, data_len: SMALL, data: 1 };
            floor::four_hops(client, server, port, hops, counts)
        }
        Floor::FramesOf(op, size) => match op.moves() {
            Moves::In => {
                let response_len = (size as usize).div_ceil(data) + RESPONSE_OVERHEAD;
                let exchange = Exchange { request_len: REQUEST_LEN, response_len, responses: data };
                floor::ping_pong(client, server, port, exchange, counts)
            }
            Moves::Out => {
                let data_len = (size as usize).div_ceil(data) + DATA_OVERHEAD;
                let hops = FourHops { small_len: MUTATION_REQUEST_LEN, data_len, data };
                floor::four_hops(client, server, port, hops, counts)
            }
        },
    })
}
