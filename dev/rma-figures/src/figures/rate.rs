//! READs of 64 B in a second, 32 under way, over what raw frames and the kernel's sockets do with
//! as many.

use rma_bench::{
    aead,
    amount::SMALL,
    compare,
    error::PairError,
    floor::{self, Exchange, Sides},
    interrupt::Interrupt,
    pair::{Pair, PairConfig, Place},
    pipelined,
    rates::{self, Rates},
};
use rma_xdp::Portal;

use super::{
    conditions::{CONDITIONS, MTU, lab, link, sockets},
    spec::Measured,
};

/// Rounds. An odd number has a middle one.
const ROUNDS: u64 = 11;
/// READs, or exchanges, in a round: for nothing, and counted.
const COUNTS: (u64, u64) = (2_000, 100_000);
/// READs, or exchanges, under way at once.
const DEPTH: u16 = 32;

/// A pair of hosts, and a portal of the client's.
struct Reader {
    // Dropped in this order.
    portal: Portal,
    pair: Pair,
}

impl Reader {
    fn open(place: Place<'_>) -> Result<Self, PairError> {
        let pair = Pair::open(place, &PairConfig::default())?;
        Ok(Self { portal: pair.client.host.portal(DEPTH)?, pair })
    }

    fn per_second(&mut self) -> Result<f64, PairError> {
        let Self { portal, pair } = self;
        pair.run(|client| pipelined::reads_per_second(client, portal, DEPTH, COUNTS))
    }
}

pub(super) fn over_floor(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let mut reader = Reader::open(Place::Lab(&lab))?;
    let (mut link, sockets) = (link()?, sockets()?);
    let mut reads = |reader: &mut Reader| reader.per_second();
    let mut raw = |_: &mut Reader| {
        let Sides { client, server, port } = link.sides();
        let exchange = Exchange { request_len: SMALL, response_len: SMALL, responses: 1 };
        let rate = floor::pipeline(client, server, port, exchange, DEPTH.into(), COUNTS);
        Ok(rate.without_loss("raw exchanges")?.per_second())
    };
    let mut udp = |_: &mut Reader| {
        let rate = compare::echo(&sockets, 64, DEPTH.into(), COUNTS)?;
        Ok(rate.without_loss("datagrams")?.per_second())
    };
    let measures: [&mut rates::Measure<'_, Reader>; 3] = [&mut reads, &mut raw, &mut udp];
    let [reads, raw, udp] = rates::in_turns(&mut reader, measures, ROUNDS, interrupt)?;
    let figure = |name, to: &Rates, what: &str| Measured {
        name,
        value: reads.over(to),
        detail: format!(
            "{:.0} READs of 64 B a second, {DEPTH} under way, over {:.0} {what}, as many under way; {} of {ROUNDS} rounds \
             count; veth MTU {MTU}, {CONDITIONS}",
            reads.median(),
            to.median(),
            to.rounds(),
        ),
    };
    Ok(vec![
        figure("read64_rate_over_floor", &raw, "raw exchanges of 64 B frames, one in a packet"),
        figure(
            "read64_rate_over_udp",
            &udp,
            "exchanges of 64 B over kernel UDP, both sides spinning, in plaintext",
        ),
    ])
}

pub(super) fn over_udp(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let sockets = sockets()?;
    let mut reader = Reader::open(Place::LabUdp(sockets.lab()))?;
    let mut reads = |reader: &mut Reader| reader.per_second();
    let mut udp = |_: &mut Reader| {
        let rate = compare::echo(&sockets, 64, DEPTH.into(), COUNTS)?;
        Ok(rate.without_loss("datagrams")?.per_second())
    };
    let measures: [&mut rates::Measure<'_, Reader>; 2] = [&mut reads, &mut udp];
    let [reads, udp] = rates::in_turns(&mut reader, measures, ROUNDS, interrupt)?;
    let detail = format!(
        "{:.0} READs of 64 B a second over the UDP backend, {DEPTH} under way, over {:.0} exchanges of 64 B over kernel UDP, one \
         datagram a call, both sides spinning, in plaintext; {} of {ROUNDS} rounds count; veth MTU {MTU}, inline engines, \
         one pinned core each, {}",
        reads.median(),
        udp.median(),
        udp.rounds(),
        aead::words(),
    );
    Ok(vec![Measured { name: "udp_read64_rate_over_echo", value: reads.over(&udp), detail }])
}
