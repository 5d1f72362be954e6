//! READs over the raw exchange of their frames.

use rma_xdp::OpType;

use super::{
    conditions::{AMOUNT, CONDITIONS, MTU, lab, link},
    spec::Measured,
};
use crate::{
    error::PairError,
    interrupt::Interrupt,
    measure::{Floor, Turns, What, in_turns},
    pair::{Pair, PairConfig, Place},
};

/// The raw exchange for reads of 64 B, in words.
const SMALL: &str = "raw ping-pong of 64 B frames";
/// The raw exchange for reads of 4 KiB, in words.
const SAME: &str = "raw exchange of the same frames";

pub(super) fn read64(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let what = What::warm(OpType::Read, 64);
    let turns = over_floor(what, Floor::TwoSmall, interrupt)?;
    Ok(vec![
        figure("read64_over_floor", what, &turns, 0.5, SMALL),
        figure("read64_p99_over_floor", what, &turns, 0.99, SMALL),
    ])
}

pub(super) fn read4096(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let what = What::warm(OpType::Read, 4096);
    let turns = over_floor(what, Floor::FramesOf(OpType::Read, 4096), interrupt)?;
    Ok(vec![figure("read4096_over_floor", what, &turns, 0.5, SAME)])
}

/// Reads all over the region.
const fn cold(size: u32) -> What {
    What::Ops { op_type: OpType::Read, size, span: u64::MAX }
}

pub(super) fn read64_cold(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let turns = over_floor(cold(64), Floor::TwoSmall, interrupt)?;
    Ok(vec![figure("read64_cold_over_floor", cold(64), &turns, 0.5, SMALL)])
}

pub(super) fn read4096_cold(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let turns = over_floor(cold(4096), Floor::FramesOf(OpType::Read, 4096), interrupt)?;
    Ok(vec![figure("read4096_cold_over_floor", cold(4096), &turns, 0.5, SAME)])
}

fn over_floor(what: What, floor: Floor, interrupt: &Interrupt) -> Result<Turns<2>, PairError> {
    let lab = lab()?;
    let mut pair = Pair::open(Place::Lab(&lab), &PairConfig::default())?;
    let mut link = link()?;
    in_turns(&mut pair, Some(&mut link), [what, What::Raw(floor)], AMOUNT, interrupt)
}

/// An op over its floor.
fn figure(
    name: &'static str,
    what: What,
    turns: &Turns<2>,
    quantile: f64,
    floor_is: &str,
) -> Measured {
    let [read, floor] = &turns.latencies;
    let span = match what {
        What::Ops { span: u64::MAX, .. } => "all of 64 MiB".to_owned(),
        What::Ops { span, .. } => format!("{} KiB", span >> 10),
        What::Raw(_) => String::new(),
    };
    let detail = format!(
        "p{} of {} READs in {span} {:.2} us, of {} times a {floor_is} {:.2} us; veth MTU {MTU}, {CONDITIONS}",
        quantile * 100.0,
        read.count(),
        read.quantile_us(quantile),
        floor.count(),
        floor.quantile_us(quantile),
    );
    Measured { name, value: turns.ratio(0, 1, quantile), detail }
}
