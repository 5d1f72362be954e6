//! What a portal has beside its rings: [`PortalLease`].

use core::{ops::Range, ptr, time::Duration};
use std::{os::fd::BorrowedFd, sync::Arc};

use rma_core::portal::CommandPortal;

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

    /// How the thread that waits for completions sleeps; `None` if the engine is inline.
    pub(crate) const fn sleep(&self) -> Option<&Sleep> {
        self.sleep.as_ref()
    }

    /// What becomes readable when a thread that sleeps is to wake up; `None` if the engine is
    /// inline.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.sleep.as_ref().map(Sleep::fd)
    }

    /// Whether `rings`, the portal's, have no completion, and the engine lives.
    pub(crate) fn may_sleep(&self, rings: &CommandPortal) -> bool {
        !rings.has_completion() && self.life.ended().is_ok()
    }

    /// Sleeps until there is a completion in `rings`, the portal's, the engine ends, or `timeout`
    /// has passed; sometimes shorter.
    pub(crate) fn sleep_for(&self, rings: &CommandPortal, timeout: Option<Duration>) {
        if let Some(sleep) = &self.sleep {
            sleep.prepare();
            if self.may_sleep(rings) {
                sleep.sleep(timeout);
            }
            sleep.end();
        }
    }
}

impl Drop for PortalLease {
    fn drop(&mut self) {
        self.home.slots_returned(self.slots.clone());
    }
}
