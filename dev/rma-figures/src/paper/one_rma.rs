//! Figures of 1RMA (SIGCOMM 2020).
//!
//! Those of its section 7 are simulations, at the paper's scale, over the shipped NIC, executor and
//! congestion control. Those that end in `-veth`, and the rotation of keys, run on real kernels.

mod beside_veth;
mod cores;
mod rotation;
mod slots_veth;

use super::figure::Figure;

/// All of them, in the paper's order.
pub(super) const FIGURES: &[&dyn Figure] =
    &[&slots_veth::SlotsVeth, &beside_veth::BesideVeth, &rotation::Rotation, &cores::Cores];
