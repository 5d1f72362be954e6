//! Figures of exchanges one at a time: one latency over another, in turns, at a quantile.

use rma_bench::{
    aead,
    compare::Transport,
    error::PairError,
    interrupt::Interrupt,
    load::LoadOp,
    measure::{Floor, Links, What, in_turns},
    one_way::Step,
    pair::{Pair, PairConfig, Place},
};

use super::{
    conditions::{AMOUNT, CONDITIONS, MTU, lab, link, sockets},
    spec::Measured,
};
use crate::lone;

/// A READ of 64 B.
pub(super) const READ64: What = What::warm(LoadOp::Read, 64);
/// A READ of 4 KiB.
pub(super) const READ4096: What = What::warm(LoadOp::Read, 4096);
/// A WRITE of 64 B.
pub(super) const WRITE64: What = What::warm(LoadOp::Write, 64);
/// The raw ping-pong.
pub(super) const PING_PONG: What = What::Raw(Floor::TwoSmall);
/// The raw exchange of the frames of a READ of 4 KiB.
pub(super) const FRAMES4096: What = What::Raw(Floor::FramesOf(LoadOp::Read, 4096));

/// READs all over the region.
pub(super) const fn cold(size: u32) -> What {
    What::Ops { op: LoadOp::Read, size, span: u64::MAX }
}

/// Two things that take turns, and the quantile at which they are compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alone {
    pub(super) of: What,
    pub(super) over: What,
    pub(super) quantile: f64,
}

impl Alone {
    pub(super) fn measure(&self, interrupt: &Interrupt) -> Result<Measured, PairError> {
        let &Self { of, over, quantile } = self;
        let lab = lab()?;
        let mut pair = Pair::open(Place::Lab(&lab), &PairConfig::default())?;
        let (mut raw, mut kernel) = (None, None);
        match over {
            What::Raw(_) => raw = Some(link()?),
            What::Kernel(..) => kernel = Some(sockets()?),
            What::Ops { .. } | What::OneWay(..) | What::Beside(_) => (),
        }
        let links = Links { raw: raw.as_mut(), sockets: kernel.as_ref() };
        let turns = in_turns(&mut pair, links, [of, over], AMOUNT, interrupt)?;
        let compared = pair.compare()?;
        let at = |index: usize| turns.latencies[index].quantile_us(quantile);
        let detail = format!(
            "p{} of {} {} {:.2} us, {} {:.2} us; medians of {} rounds in turns; {compared} bytes compared afterwards; veth \
             MTU {MTU}, {CONDITIONS}",
            quantile * 100.0,
            turns.latencies[0].count(),
            words(of),
            at(0),
            words(over),
            at(1),
            AMOUNT.rounds,
        );
        Ok(Measured::new(turns.ratio(0, 1, quantile), detail))
    }
}

/// The measured thing, in words.
fn words(what: What) -> String {
    match what {
        What::Ops { op, size, span: u64::MAX } => {
            format!("{} of {size} B all over 64 MiB", op.name())
        }
        What::Ops { op, size, span } => format!("{} of {size} B in {} KiB", op.name(), span >> 10),
        What::OneWay(Step::Send, size) => {
            format!("{size} B one way, from issue until the receiver sees it, by SEND")
        }
        What::OneWay(_, size) => {
            format!("{size} B one way by an ordered WRITE whose last word the receiver polls")
        }
        What::Raw(Floor::FramesOf(..)) => "raw exchange of the same frames".to_owned(),
        What::Raw(Floor::TwoSmall) => "raw ping-pong of 64 B frames".to_owned(),
        What::Raw(Floor::FourSmall) => "four raw frames of 64 B".to_owned(),
        What::Kernel(transport, size) => format!(
            "{size} B there and back over kernel {}, both sides spinning, in plaintext, on a veth pair without a program",
            if transport == Transport::Udp { "UDP" } else { "TCP" },
        ),
        What::Beside(_) => "turns of both engines in memory".to_owned(),
    }
}

/// The time of a READ beyond the raw ping-pong, over the turns of both engines for it.
pub(super) fn own_over_turns(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let mut pair = Pair::open(Place::Lab(&lab), &PairConfig::default())?;
    let mut link = link()?;
    let whats = [READ64, PING_PONG, What::Beside(|counts| lone::turns(aead::chosen(), counts))];
    let turns = in_turns(&mut pair, Links::raw(&mut link), whats, AMOUNT, interrupt)?;
    let own = turns.of_rounds(0.5, |[read, floor, _]| read - floor);
    let detail = format!(
        "p50 of READs of 64 B beyond a {} {:.0} ns, the turns of both engines for one such READ in memory {:.0} ns; medians of \
         {} rounds; veth MTU {MTU}, {CONDITIONS}",
        words(PING_PONG),
        own.median() * 1e3,
        turns.latencies[2].quantile_us(0.5) * 1e3,
        AMOUNT.rounds,
    );
    let beyond = turns.of_rounds(0.5, |[read, floor, lone]| (read - floor) / lone);
    Ok(vec![Measured::new(beyond.median(), detail)])
}
