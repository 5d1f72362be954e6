//! The latency measurement that the demo shows and the named figures come from: reads beside the raw floor.
//!
//! Rounds of reads and rounds of raw exchanges take turns over the same sockets on the same pair of
//! interfaces, so that a machine whose speed drifts drifts under both.

use rma_xdp::wire::read::{REQUEST_LEN, RESPONSE_OVERHEAD};

use crate::{
    floor::{self, Exchange, RoundTrips, Side},
    interrupt::Interrupt,
    lab::Lab,
    latency::Latencies,
    pair::{Pair, PairError, cores},
};

/// Reads and raw exchanges of one size.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// Latencies of reads.
    pub read: Latencies,
    /// Round trips of a raw exchange: one frame there, as many frames back as the read has responses. Empty
    /// where there is no raw socket.
    pub floor: Latencies,
    /// Raw exchanges that were lost.
    pub floor_lost: u64,
    /// How much of the region was read from, in bytes.
    pub span: u64,
}

impl Compared {
    /// The read's latency as a multiple of the floor's, at a quantile.
    #[must_use]
    pub fn ratio(&self, quantile: f64) -> f64 {
        self.read.quantile_us(quantile) / self.floor.quantile_us(quantile)
    }
}

/// Bytes of the region that reads are measured in, to compare them with a floor whose frames are in the cache
/// too. Reads all over a large region wait for the responder's memory as well.
pub const WARM: u64 = 64 << 10;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// Of each kind, in all.
    pub count: u64,
    /// In how many rounds.
    pub rounds: u64,
}

impl Amount {
    const fn of_round(&self, round: u64) -> (u64, u64) {
        let count = self.count / self.rounds + if round < self.count % self.rounds { 1 } else { 0 };
        (count / 10 + 100, count)
    }
}

/// The raw exchange to compare a read with.
#[derive(Clone, Copy, Debug)]
pub enum Floor {
    /// Frames of 64 bytes each way, whatever the protocol needs.
    Small,
    /// A small frame there; back, the same number of frames of the same length as the read's responses.
    SameFrames,
    /// None: the device has no raw sockets.
    None,
}

/// Measures reads of `size` bytes, at random places of the region's first `span` bytes, beside a floor. `lab` is
/// where the pair is.
///
/// # Errors
/// If op after op fails.
pub fn compare(
    pair: &mut Pair,
    lab: Option<&Lab>,
    (size, span): (u32, u64),
    floor: Floor,
    amount: Amount,
    interrupt: &Interrupt,
) -> Result<Compared, PairError> {
    let mut compared = Compared { span, ..Compared::default() };
    for round in 0..amount.rounds {
        let counts = amount.of_round(round);
        let read = pair.run(|client| client.measure(size, span, counts, interrupt))?;
        compared.read.merge(&read);
        let exchange = match floor {
            Floor::Small => Exchange { request_len: 22, response_len: 22, responses: 1 },
            Floor::SameFrames => same_frames(pair, size),
            Floor::None => continue,
        };
        let Some(lab) = lab else { continue };
        let raw = raw_round(pair, lab, exchange, counts)?;
        compared.floor.add(&raw.times);
        compared.floor_lost += raw.lost;
    }
    Ok(compared)
}

/// What a read of `size` bytes puts on the wire: seen, not computed.
fn same_frames(pair: &mut Pair, size: u32) -> Exchange {
    let received = |pair: &Pair| pair.client.host.counters().frames_received();
    let before = received(pair);
    let one = (0, 1);
    let seen = pair.run(|client| client.measure(size, WARM, one, &Interrupt::default())).is_ok();
    let responses = if seen { (received(pair) - before).max(1) as usize } else { 1 };
    let response_len = (size as usize).div_ceil(responses) + RESPONSE_OVERHEAD;
    Exchange { request_len: REQUEST_LEN, response_len, responses }
}

fn raw_round(
    pair: &mut Pair,
    lab: &Lab,
    exchange: Exchange,
    counts: (u64, u64),
) -> Result<RoundTrips, PairError> {
    let (client_core, server_core) = cores();
    let (client, server) = (pair.client.grant.initiator, pair.client.grant.responder);
    let macs = (lab.a().interface_mac(Lab::INTERFACE)?, lab.b().interface_mac(Lab::INTERFACE)?);
    let port = pair.port;
    let side = |backend, address, mac, core| Side { backend, address, mac, core };
    match (pair.client.host.xdp_backend_mut(), pair.server.xdp_backend_mut()) {
        (Some(from), Some(to)) => Ok(floor::ping_pong(
            side(from, client, macs.0, client_core),
            side(to, server, macs.1, server_core),
            port,
            exchange,
            counts,
        )),
        _ => Err(PairError::NoRawSockets),
    }
}
