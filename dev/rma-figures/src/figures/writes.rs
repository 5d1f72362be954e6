//! WRITEs over READs.

use rma_bench::{
    alone::LoneOp,
    error::PairError,
    interrupt::Interrupt,
    measure::{Floor, Links, What, in_turns},
    pair::{Pair, PairConfig, Place},
};

use super::{
    conditions::{AMOUNT, CONDITIONS, MTU, lab, link},
    spec::Measured,
};

pub(super) fn write64(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let mut pair = Pair::open(Place::Lab(&lab), &PairConfig::default())?;
    let mut link = link()?;
    let (read, write) = (What::warm(LoneOp::Read, 64), What::warm(LoneOp::Write, 64));
    let whats = [read, write, What::Raw(Floor::TwoSmall), What::Raw(Floor::FourSmall)];
    let turns = in_turns(&mut pair, Links::raw(&mut link), whats, AMOUNT, interrupt)?;
    let compared = pair.compare()?;
    let p50 = turns.latencies.each_ref().map(|latencies| latencies.quantile_us(0.5));
    let detail = format!(
        "p50 of {} WRITEs {:.2} us, of READs in turn {:.2} us; raw AF_XDP: four frames {:.2} us, two {:.2} us; \
         {compared} bytes compared afterwards; veth MTU {MTU}, {CONDITIONS}",
        turns.latencies[1].count(),
        p50[1],
        p50[0],
        p50[3],
        p50[2],
    );
    let value = turns.ratio(1, 0, 0.5);
    Ok(vec![Measured { name: "write64_over_read64", value, detail }])
}
