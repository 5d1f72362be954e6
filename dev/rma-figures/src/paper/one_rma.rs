//! Figures of 1RMA (SIGCOMM 2020).
//!
//! Those of its section 7 are simulations, at the paper's scale, over the shipped NIC, executor and
//! congestion control. Those that end in `-veth`, and the rotation of keys, run on real kernels.

mod accepted;
mod beside;
mod beside_veth;
mod compared;
mod cores;
mod heavy_tail;
mod jitter;
mod join;
mod nacks;
mod ramp;
mod replica;
mod rotation;
mod scene;
mod shed;
pub(super) mod simulated;
mod slots;
mod slots_veth;
mod threshold;
mod uniform;

use super::figure::Figure;

/// All of them, in the paper's order.
pub(super) const FIGURES: &[&dyn Figure] = &[
    &replica::Replica,
    &uniform::Uniform,
    &accepted::Accepted,
    &slots::Slots,
    &slots_veth::SlotsVeth,
    &beside::Beside,
    &beside_veth::BesideVeth,
    &heavy_tail::HeavyTail,
    &rotation::Rotation,
    &ramp::Ramp,
    &join::Join,
    &join::TotalDelayOnly,
    &join::IssueDelay,
    &jitter::Jitter,
    &shed::Shed,
    &nacks::Nacks,
    &threshold::Threshold,
    &cores::Cores,
];
