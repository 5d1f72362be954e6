//! The rates that useless requests leave to a host's own READs and to an honest host's WRITEs.

use core::fmt::Write as _;

use rma_bench::{error::PairError, interrupt::Interrupt};
use rma_xdp::OpType;

use super::{
    conditions::{CONDITIONS, MTU, lab},
    spec::Measured,
};
use crate::useless::{Beside, Useless, measure};

pub(super) fn reads_under_replayed_writes(
    interrupt: &Interrupt,
) -> Result<Vec<Measured>, PairError> {
    reads(Useless::Replayed, "recorded WRITEs of one host, replayed", interrupt)
}

pub(super) fn reads_under_silent_writers(
    interrupt: &Interrupt,
) -> Result<Vec<Measured>, PairError> {
    reads(Useless::Silent, "WRITEs of 64 hosts that answer nothing", interrupt)
}

fn reads(useless: Useless, of: &str, interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let all = measure(&lab, useless, OpType::Read, interrupt)?;
    let (quiet, beside) = all.split_first().expect("measured without any first");
    let worst = |ratio: &dyn Fn(&Beside) -> f64, worse: fn(f64, f64) -> f64| {
        beside.iter().map(ratio).reduce(worse).unwrap_or(f64::NAN)
    };
    let goodput = worst(&|it| it.ok_per_s / quiet.ok_per_s, f64::min);
    let p99 = |it: &Beside| it.latencies.quantile_us(0.99);
    let tail = worst(&|it| p99(it) / p99(quiet), f64::max);
    let failed = all.iter().map(|it| it.failed).sum::<u64>();
    let detail = detail(&all, "READs of the target itself", of);
    Ok(vec![
        Measured::new(goodput, detail.as_str()),
        Measured::new(
            tail,
            format!("p99 over that without useless requests, the largest; {detail}"),
        ),
        Measured::new(failed as f64, format!("READs that did not end with OK; {detail}")),
    ])
}

pub(super) fn writes_under_useless_writes(
    interrupt: &Interrupt,
) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let all = measure(&lab, Useless::Replayed, OpType::Write, interrupt)?;
    let of = "recorded WRITEs of another host, replayed";
    let detail = detail(&all, "WRITEs of an honest host", of);
    let share = |it: &Beside| it.ok_per_s / all[0].ok_per_s;
    let of_most = format!("of 64,000 useless requests a second; {detail}");
    Ok(vec![
        Measured::new(share(&all[1]).min(share(&all[2])), detail),
        Measured::new(share(&all[3]), of_most),
    ])
}

/// All rates in words.
fn detail(all: &[Beside], ops: &str, of: &str) -> String {
    let mut text = format!("{ops}, 4 of 4 KiB under way, beside useless requests a second ({of}):");
    for Beside { rate, reached, ok_per_s, failed, latencies } in all {
        let p99 = latencies.quantile_us(0.99);
        let _ = write!(
            text,
            " {rate} ({reached:.0} reached): {ok_per_s:.0} OK/s, p99 {p99:.0} us, {failed} not OK;"
        );
    }
    let _ = write!(
        text,
        " sent by kernel UDP sockets on the other host's core; veth MTU {MTU}, {CONDITIONS}"
    );
    text
}
