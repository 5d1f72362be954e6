//! Runs that there cannot be.

use thiserror::Error;

use crate::flows::traffic::TrafficError;

/// A run that there cannot be.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum BaselineError {
    /// There is no such traffic.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// The models know no writes.
    #[error("traffic of writes: baselines are models of reads, take `Op::Read`")]
    Writes,
    /// The model of software knows no losses.
    #[error("losses for two-sided software: its model has none, take connections")]
    Loss,
    /// There would be nothing to tell.
    #[error("0 ops to measure: take 1 or more, 10,000 for a 99th percentile")]
    NoOps,
    /// More ops than have numbers.
    #[error("{0} ops to measure: take {OPS_MAX} or fewer")]
    Ops(u32),
}

/// The most ops of a run that are measured.
pub const OPS_MAX: u32 = 1 << 30;
