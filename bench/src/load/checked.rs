//! The count of what a load verified.

use serde::Serialize;

/// The ops that were verified, and the bytes.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[cfg_attr(test, derive(PartialEq, Eq))]
pub struct Checked {
    /// Ops whose bytes, or words, were compared one by one.
    pub ops: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Ops of them that did not end with OK, and were issued again.
    pub retried: u64,
    /// Atomics of them that ended with TIMEOUT, and of which SETTLE told what became of them.
    pub settled: u64,
    /// Bytes of the region that were read back at the end and compared, those that nothing was
    /// written to among them.
    pub compared: u64,
}
