//! The counts of channels in simulation: rows of Table 2 that are as the crate says, and the time
//! until others go on when a sender stops with a place that they share.

use rma_bench::{error::PairError, interrupt::Interrupt};

use super::spec::Measured;
use crate::simulated::{self, Table2};

/// Runs of each kind.
const SEEDS: u64 = 100;

pub(super) fn table2(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let Table2 { wrong, right, missing, .. } = Table2::measured();
    let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
    let none = |words: String| if words.is_empty() { "none".to_owned() } else { words };
    let detail = format!(
        "hops, requests, memory and sizes, measured by virtual time, ops and registered bytes; not as the crate says: {}; \
         not measured: {}",
        none(wrong.join("; ")),
        none(missing.join(", ")),
    );
    Ok(vec![Measured::new(right as f64, detail)])
}

pub(super) fn recovery(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let all = simulated::recoveries(SEEDS, interrupt);
    let by_kind: Vec<String> = all
        .iter()
        .map(|it| {
            let (took, bound) = it.worst;
            format!("{} {:.4} ({took:.1?} of {bound:.1?})", it.kind, it.over_bound)
        })
        .collect();
    let detail = format!(
        "the worst of {SEEDS} seeds each, from when the receiver sees the hole until each living sender knows the next \
         epoch, over hole_timeout + the longest wait until he looks + an op that is refused and one that is not: {}",
        by_kind.join("; "),
    );
    let value = all.iter().map(|it| it.over_bound).fold(0.0, f64::max);
    Ok(vec![Measured::new(value, detail)])
}
