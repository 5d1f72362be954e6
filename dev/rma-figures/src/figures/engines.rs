//! Hosts of several engines: on cores of their own, behind a patch panel, and while one of them is
//! flooded or rekeys.

use rma_bench::{
    error::PairError,
    interrupt::Interrupt,
    pair::{cores, pinned},
};

use super::spec::Measured;
use crate::{
    cores::{Flooded, Together, flooded, together},
    panel::{self, Rekeys},
    turn::BATCH,
};

/// Rounds of each kind.
const ROUNDS: usize = 30;

/// READs of each engine from each peer before those that are counted.
const OPS: usize = 1000;

/// Rekeys of one region.
const REKEYS: usize = 2000;

/// The cores of which each has an engine, two at least and 32 at most.
fn all_cores() -> Vec<usize> {
    let mut cores: Vec<_> =
        core_affinity::get_core_ids().unwrap_or_default().iter().map(|it| it.id).collect();
    let first = cores.first().copied().unwrap_or(0);
    while cores.len() < 2 {
        cores.push(first);
    }
    cores.truncate(32);
    cores
}

pub(super) fn on_cores(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let cores = all_cores();
    let curve: Vec<_> = (2..=cores.len()).map(|count| together(&cores[..count], ROUNDS)).collect();
    let point = |it: &Together| format!("{} {:.2} ({:.2})", it.engines, it.over_one, it.over_hosts);
    let points: Vec<_> = curve.iter().map(point).collect();
    let words = format!(
        "64 B READs, {BATCH} at once at each engine, in memory; engines over one (over hosts of \
         one): {}",
        points.join(", ")
    );
    let two = curve[0];
    Ok([two.over_hosts, two.over_one].map(|it| Measured::new(it, words.clone())).into())
}

pub(super) fn beside_a_flood(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let cores = all_cores();
    let Flooded { own, handed_over, frames } = flooded([cores[0], cores[1]], BATCH, ROUNDS);
    let words = format!(
        "64 B READs, {BATCH} at once, in memory; forged frames that the flooded engine drops: \
         {own:.2}; that it hands over, {frames} of them: {handed_over:.2}"
    );
    Ok(vec![Measured::new(own.max(handed_over), words)])
}

pub(super) fn behind_a_panel(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let shares = panel::wrong_queue_share(OPS);
    let words = format!(
        "in memory, hosts of four engines, eight peers, {OPS} READs of each engine from each peer: \
         {:.4}; the same after the hash has changed: {:.4}",
        shares[0], shares[1]
    );
    Ok(vec![Measured::new(shares[0].max(shares[1]), words)])
}

pub(super) fn one_busy(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let goodput = pinned(cores().1, || panel::lopsided_goodput(ROUNDS));
    let words = format!("READs of 4 KiB, {BATCH} at once, in memory, all engines in one thread");
    Ok(vec![Measured::new(goodput, words)])
}

pub(super) fn rekeys(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let Rekeys { rounds, failed, ended } = panel::rekeys(REKEYS);
    let words = format!("{REKEYS} Rekeys by op, {ended} READs of another region beside them");
    Ok([rounds, failed].map(|it| Measured::new(it as f64, words.clone())).into())
}

pub(super) fn recorded(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let rate = pinned(cores().1, || panel::recorded_four_over_one(ROUNDS));
    let words = format!("FETCH_ADDs, {BATCH} at once, in memory, all engines in one thread");
    Ok(vec![Measured::new(rate, words)])
}
