//! The lease of a portal, beside its rings: [`PortalLease`].

use core::{ops::Range, ptr, time::Duration};
use std::{os::fd::BorrowedFd, sync::Arc};

use rma_core::{portal::CommandPortal, time::Clock};
use rma_shm::Forked;

use crate::{
    clock::TscClock,
    error::WaitError,
    gauges::ExecutorWatch,
    home::Home,
    idle::{Idle, IdlePolicy, IdleTracker},
    life::Life,
    sleep::Sleep,
};

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

    /// Sleeps until the engine rings or ends, or `timeout` has passed; sometimes shorter. Not if
    /// there is something already, which `has_news` looks for once more.
    pub(crate) fn sleep_unless(&self, timeout: Option<Duration>, has_news: impl Fn() -> bool) {
        if let Some(sleep) = &self.sleep {
            sleep.prepare();
            if !has_news() && self.life.ended().is_ok() {
                sleep.sleep(timeout);
            }
            sleep.end();
        }
    }

    /// Waits for what the engine gives into `ring`, which is what the portal or a receive queue
    /// has, for no longer than `timeout`: `None` if there is nothing by then. `take` takes it,
    /// `has` looks whether it is there.
    ///
    /// # Errors
    /// Those of [`Life::ended`].
    pub(crate) fn wait<R, T>(
        &self,
        idle: IdlePolicy,
        clock: &TscClock,
        timeout: Option<Duration>,
        ring: &mut R,
        take: fn(&mut R) -> Option<T>,
        has: fn(&R) -> bool,
    ) -> Result<Option<T>, WaitError> {
        let mut idle = IdleTracker::new(idle);
        loop {
            // Looked at first: what was given before the engine ended is still there.
            let ended = self.ended();
            if let Some(taken) = take(ring) {
                return Ok(Some(taken));
            }
            ended?;
            let now = clock.now();
            let waited = idle.since().map_or(Duration::ZERO, |since| now.since(since));
            let left = timeout.map(|timeout| timeout.saturating_sub(waited));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            match idle.idle(now) {
                Idle::Spin => core::hint::spin_loop(),
                Idle::Yield => std::thread::yield_now(),
                Idle::Sleep => self.sleep_unless(left, || has(ring)),
            }
        }
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
