//! Counters that one thread writes while others read: [`Tally`].
//!
//! Not the message counter that makes IVs fresh ([`crate::crypto::IvCounter`]): a tally is a
//! statistic, and nothing goes by it.

use core::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread adds to and others read. It wraps after 2^64.
///
/// Relaxed, and without a locked instruction, as there is one writer: counting costs what an
/// ordinary addition costs.
#[derive(Debug, Default)]
pub struct Tally(AtomicU64);

impl Tally {
    /// The value now. Values of different tallies are not from one instant.
    #[must_use]
    #[inline]
    pub fn load(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// For the one writer only: two writers would lose additions.
    #[inline]
    pub fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }
}
