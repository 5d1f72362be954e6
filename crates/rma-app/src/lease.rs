//! The lease of a portal, beside its rings: [`PortalLease`].

use core::{ops::Range, ptr};
use std::{os::fd::BorrowedFd, sync::Arc};

use rma_core::portal::CommandPortal;
use rma_shm::Forked;

use crate::{error::WaitError, gauges::ExecutorWatch, home::Home, life::Life, sleep::Sleep};

/// The right to a portal's slots, and how a thread waits for the engine that serves them. When it
/// is dropped, the slots go back to where they came from.
#[derive(Debug)]
pub struct PortalLease {
    slots: Range<u16>,
    home: Arc<dyn Home>,
    life: Life,
    /// `None` if the engine is inline.
    sleep: Option<Sleep>,
}

impl PortalLease {
    pub(crate) const fn new(
        slots: Range<u16>,
        home: Arc<dyn Home>,
        life: Life,
        sleep: Option<Sleep>,
    ) -> Self {
        Self { slots, home, life, sleep }
    }

    /// Whether the maker with this home made the portal.
    #[inline]
    pub(crate) fn is_of(&self, home: &dyn Home) -> bool {
        ptr::addr_eq(Arc::as_ptr(&self.home), home)
    }

    /// Tells the portal's maker of an executor over it.
    pub(crate) fn executor_made(&self, executor: ExecutorWatch) {
        self.home.executor_made(executor);
    }

    /// An error if waiting for the engine is of no use.
    pub(crate) fn ended(&self) -> Result<(), WaitError> {
        self.life.ended()
    }

    /// An error if the engine is the parent's.
    pub(crate) fn check_process(&self) -> Result<(), Forked> {
        self.life.check_process()
    }

    /// Returns the sleep of the thread that waits for completions; `None` if the engine is inline.
    pub(crate) const fn sleep(&self) -> Option<&Sleep> {
        self.sleep.as_ref()
    }

    /// Returns the descriptor that becomes readable when a sleeping thread has to wake up; `None`
    /// if the engine is inline.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.sleep.as_ref().map(Sleep::fd)
    }

    /// Whether `rings`, the portal's, have no completion, and the engine lives.
    pub(crate) fn may_sleep(&self, rings: &CommandPortal) -> bool {
        !rings.has_completion() && self.life.ended().is_ok()
    }
}

impl Drop for PortalLease {
    fn drop(&mut self) {
        // A child has none of its parent's slots.
        if self.check_process().is_ok() {
            self.home.slots_returned(self.slots.clone());
        }
    }
}
