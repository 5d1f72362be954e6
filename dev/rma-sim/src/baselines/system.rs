//! A system that hosts have, and the run of some work on it.

use super::{
    constants::Constants,
    error::{BaselineError, OPS_MAX},
    outcome::Outcome,
    rdma::{self, RdmaOptions},
    software,
    work::Work,
};
use crate::flows::traffic::{Framing, Traffic};

/// A system that hosts have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// NICs with connections.
    Rdma(RdmaOptions),
    /// Two-sided software, in a network that loses nothing.
    Software,
}

impl System {
    /// The octets that the system spends on the wire.
    #[must_use]
    pub fn framing(&self, constants: &Constants) -> Framing {
        match self {
            Self::Rdma(_) => rdma::framing(constants),
            Self::Software => software::framing(constants),
        }
    }
}

/// Runs `work` on a system. The load of its traffic is taken to be in the system's own framing.
///
/// # Errors
/// If there is no such work.
pub fn run(
    system: &System,
    constants: &Constants,
    work: &Work,
    seed: u64,
) -> Result<Outcome, BaselineError> {
    match work.measured {
        0 => return Err(BaselineError::NoOps),
        too_many if too_many > OPS_MAX => return Err(BaselineError::Ops(too_many)),
        _ => {}
    }
    let traffic = Traffic { framing: system.framing(constants), ..work.traffic.clone() };
    let work = Work { traffic, ..work.clone() };
    match system {
        System::Rdma(options) => rdma::run(options, constants, &work, seed),
        System::Software => software::run(constants, &work, seed),
    }
}
