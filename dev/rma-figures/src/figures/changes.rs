//! Clients that share a word, and what becomes known of ops whose frames were lost.

use core::time::Duration;

use rma_bench::{error::PairError, interrupt::Interrupt};

use super::{
    conditions::{CONDITIONS, MTU, lab},
    spec::Measured,
    turns::{PER_S, Side, Stage, Turn},
};
use crate::{
    clients::{self, Work},
    settle,
};

/// Clients that each have one op under way.
const CLIENTS: usize = 8;
/// Their ops in a round: for nothing, and counted.
const COUNTS: (u64, u64) = (2_000, 100_000);
/// Ops that end with TIMEOUT, to be settled.
const SETTLED: u64 = 100;

/// So many clients of one host, each with one op under way.
fn at_work(stage: &mut Stage, work: Work) -> Result<Box<Turn>, PairError> {
    let host = &stage.pair()?.client.host;
    let mut portals = (0..CLIENTS).map(|_| host.portal(1)).collect::<Result<Vec<_>, _>>()?;
    Ok(Box::new(move |stage, _| {
        let pair = stage.pair()?;
        let rate = pair.run(|client| clients::per_second(client, &mut portals, work, COUNTS))?;
        pair.compare()?;
        Ok(rate)
    }))
}

pub(super) const FETCH_ADDS: Side = Side {
    words: "8 clients of one host, each with one op under way: FETCH_ADD of one word, every number once",
    unit: PER_S,
    open: |stage| at_work(stage, Work::Count),
};

pub(super) const WRITES: Side =
    Side { words: "WRITE of 64 B", unit: PER_S, open: |stage| at_work(stage, Work::Write) };

pub(super) fn settle(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let settled = settle::run(&lab()?, MTU, Duration::from_millis(10), SETTLED, interrupt)?;
    let detail = format!(
        "slowest from TIMEOUT until it was known what had become of a FETCH_ADD {:.1} us, bound of a READ {:.0} ms; {} were \
         applied and their acknowledgement lost, {} were not as their data was lost, each was told right; veth MTU {MTU}, \
         {CONDITIONS}",
        settled.slowest.as_secs_f64() * 1e6,
        settled.read_bound.as_secs_f64() * 1e3,
        settled.applied,
        settled.not_applied,
    );
    let value = settled.slowest.as_secs_f64() / settled.read_bound.as_secs_f64();
    Ok(vec![Measured::new(value, detail)])
}
