//! Under which conditions the figures are measured that need a network: how much, and on what lab.

use rma_bench::{aead, amount::Amount, compare::Sockets, error::PairError, floor::Link, mode};
use rma_lab::{Lab, LabConfig};

/// Of each kind of exchange, in turns.
pub(super) const AMOUNT: Amount = Amount { count: 200_000, rounds: 20 };

/// MTU of the veth pair.
pub(super) const MTU: u32 = 3400;

/// Under which conditions all of it is measured.
pub(super) const CONDITIONS: Conditions = Conditions;

/// See [`CONDITIONS`].
pub(super) struct Conditions;

impl core::fmt::Display for Conditions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mode = mode::asked_for().name();
        write!(f, "inline engines, one pinned core each, XDP mode {mode}, {}", aead::words())
    }
}

fn lab_config(mtu: u32) -> LabConfig {
    LabConfig { mtu, ..LabConfig::default() }
}

pub(super) fn lab() -> Result<Lab, PairError> {
    lab_of(MTU)
}

/// A lab of another MTU.
pub(super) fn lab_of(mtu: u32) -> Result<Lab, PairError> {
    Ok(Lab::new(&lab_config(mtu))?)
}

/// Opens the link, beside the lab, on which floors are measured.
pub(super) fn link() -> Result<Link, PairError> {
    Link::open(&lab_config(MTU), rma_xdp::config::DEFAULT_PORT, false)
}

/// Opens the pair, beside the lab, on which the kernel's own sockets are measured.
pub(super) fn sockets() -> Result<Sockets, PairError> {
    Sockets::open(&lab_config(MTU))
}
