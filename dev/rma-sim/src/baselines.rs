//! The systems that the paper compares 1RMA with, as models: RDMA over connections, and two-sided
//! software (1RMA §7.1, §7.2).
//!
//! | module | what it is |
//! |---|---|
//! | [`constants`] | every number that is not derived, with its source |
//! | [`fabric`] | cables, a switch, and what they lose |
//! | [`work`] | what a run has to do |
//! | [`error`] | runs that there cannot be |
//! | [`outcome`] | what came of it |
//! | [`rdma`] | NICs with connections: reads in order, go-back-N, a cache of states |
//! | [`software`] | cores that send and receive messages |
//! | [`system`] | either of them, and a run |
//! | [`figures`] | what the paper's figures 10, 12 and 13 need of both, and what goes beyond them |
//!
//! They are models of what these systems cannot avoid, with the benefit of the doubt elsewhere, and
//! not of a product. Traffic, rates, switch and seeds are those of this project's own NICs
//! ([`crate::flows`]); an idle 4 KiB read takes 5 µs on the network, and software adds its own.
//! All ops are reads. A run ends when all ops have completed.

mod agenda;
mod connection;
pub mod constants;
pub mod error;
pub mod fabric;
pub mod figures;
pub mod outcome;
pub mod rdma;
pub mod software;
pub mod system;
#[cfg(test)]
mod tests;
pub mod work;

pub use constants::{Constant, Constants};
pub use error::{BaselineError, OPS_MAX};
pub use fabric::{FabricOptions, Ports};
pub use outcome::{Latencies, Outcome};
pub use rdma::{RdmaOptions, Service};
pub use system::{System, run};
pub use work::Work;
