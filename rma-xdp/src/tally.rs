//! What counts while one thread works and others watch: [`Counter`].

use core::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread adds to and others read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// The value now. Values of different counters are not from one instant.
    #[must_use]
    pub fn load(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// For the one writer only: two writers would lose additions.
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }
}
