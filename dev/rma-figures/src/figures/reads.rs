//! READs one at a time, over the raw exchange of their frames and over the kernel's own sockets.

use rma_bench::{
    aead,
    alone::LoneOp,
    compare::Transport,
    error::PairError,
    interrupt::Interrupt,
    measure::{Floor, Links, Turns, What, in_turns},
    pair::{Pair, PairConfig, Place},
};

use super::{
    conditions::{AMOUNT, CONDITIONS, MTU, lab, link, sockets},
    spec::Measured,
};
use crate::lone;

/// The raw exchange for reads of 64 B, in words.
const SMALL: &str = "raw ping-pong of 64 B frames";
/// The raw exchange for reads of 4 KiB, in words.
const SAME: &str = "raw exchange of the same frames";

pub(super) fn read64(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let mut pair = Pair::open(Place::Lab(&lab), &PairConfig::default())?;
    let (mut link, sockets) = (link()?, sockets()?);
    let links = Links { raw: Some(&mut link), sockets: Some(&sockets) };
    let read = What::warm(LoneOp::Read, 64);
    let whats = [
        read,
        What::Raw(Floor::TwoSmall),
        What::Kernel(Transport::Udp, 64),
        What::Kernel(Transport::Tcp, 64),
        What::Beside(|counts| lone::turns(aead::chosen(), counts)),
    ];
    let turns = in_turns(&mut pair, links, whats, AMOUNT, interrupt)?;
    let over_kernel = |name, index: usize, transport: &str| Measured {
        name,
        value: turns.ratio(0, index, 0.5),
        detail: format!(
            "p50 of READs of 64 B {:.2} us, of 64 B there and back over kernel {transport}, both sides spinning, in plaintext, on a \
             veth pair without a program {:.2} us; medians of {} rounds in turns; veth MTU {MTU}, {CONDITIONS}",
            turns.latencies[0].quantile_us(0.5),
            turns.latencies[index].quantile_us(0.5),
            AMOUNT.rounds,
        ),
    };
    let own = turns.of_rounds(0.5, |[read, floor, _, _, _]| read - floor);
    let beyond = turns.of_rounds(0.5, |[read, floor, _, _, lone]| (read - floor) / lone);
    Ok(vec![
        figure("read64_over_floor", read, &turns, 0.5, SMALL),
        figure("read64_p99_over_floor", read, &turns, 0.99, SMALL),
        over_kernel("read64_over_udp", 2, "UDP"),
        over_kernel("read64_over_tcp", 3, "TCP"),
        Measured {
            name: "read64_own_over_turns",
            value: beyond.median(),
            detail: format!(
                "p50 of READs of 64 B beyond a {SMALL} {:.0} ns, the turns of both engines for one such READ in memory {:.0} ns; \
                 medians of {} rounds; veth MTU {MTU}, {CONDITIONS}",
                own.median() * 1e3,
                turns.latencies[4].quantile_us(0.5) * 1e3,
                AMOUNT.rounds,
            ),
        },
    ])
}

pub(super) fn read4096(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let what = What::warm(LoneOp::Read, 4096);
    let turns = over_floor(what, Floor::FramesOf(LoneOp::Read, 4096), interrupt)?;
    Ok(vec![figure("read4096_over_floor", what, &turns, 0.5, SAME)])
}

/// Reads all over the region.
const fn cold(size: u32) -> What {
    What::Ops { op: LoneOp::Read, size, span: u64::MAX }
}

pub(super) fn read64_cold(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let turns = over_floor(cold(64), Floor::TwoSmall, interrupt)?;
    Ok(vec![figure("read64_cold_over_floor", cold(64), &turns, 0.5, SMALL)])
}

pub(super) fn read4096_cold(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let turns = over_floor(cold(4096), Floor::FramesOf(LoneOp::Read, 4096), interrupt)?;
    Ok(vec![figure("read4096_cold_over_floor", cold(4096), &turns, 0.5, SAME)])
}

fn over_floor(what: What, floor: Floor, interrupt: &Interrupt) -> Result<Turns<2>, PairError> {
    let lab = lab()?;
    let mut pair = Pair::open(Place::Lab(&lab), &PairConfig::default())?;
    let mut link = link()?;
    in_turns(&mut pair, Links::raw(&mut link), [what, What::Raw(floor)], AMOUNT, interrupt)
}

/// An op, which is measured first, over its floor, which is measured second.
fn figure<const N: usize>(
    name: &'static str,
    what: What,
    turns: &Turns<N>,
    quantile: f64,
    floor_is: &str,
) -> Measured {
    let (read, floor) = (&turns.latencies[0], &turns.latencies[1]);
    let span = match what {
        What::Ops { span: u64::MAX, .. } => "all of 64 MiB".to_owned(),
        What::Ops { span, .. } => format!("{} KiB", span >> 10),
        What::OneWay(..) | What::Raw(_) | What::Kernel(..) | What::Beside(_) => String::new(),
    };
    let detail = format!(
        "p{} of {} READs in {span} {:.2} us, of {} times a {floor_is} {:.2} us; medians of {} rounds in turns; veth MTU {MTU}, \
         {CONDITIONS}",
        quantile * 100.0,
        read.count(),
        read.quantile_us(quantile),
        floor.count(),
        floor.quantile_us(quantile),
        AMOUNT.rounds,
    );
    Measured { name, value: turns.ratio(0, 1, quantile), detail }
}
