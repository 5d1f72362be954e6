//! The sleep of an application's thread until a completion: [`Sleep`].
//!
//! The engine rings only for threads that have said that they sleep, so the order matters: say so
//! (`prepare`), look once more, and only then sleep. It is the engine's own protocol,
//! [`rma_shm::doorbell`], with the roles exchanged.
//!
//! Invariant: only who has the portal alone, by `&mut` or under a lock, prepares and ends. Whoever
//! sleeps without the portal (the thread that has the seat) has prepared under the lock and ends
//! under it. If another sleeps meanwhile, with the lock, it takes the wake-ups that were the first
//! one's, and so wakes it afterwards: `Sleep::wake`.

use core::time::Duration;
use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use rma_core::portal::{Bell, Wake};
use rma_shm::Doorbell;

use crate::event_fd::EventFd;

/// The means by which the thread that uses a portal sleeps and is woken. Clones are the same.
#[derive(Clone, Debug)]
pub struct Sleep {
    doorbell: Doorbell,
    event: Arc<EventFd>,
}

impl Sleep {
    /// Makes what a thread sleeps on.
    ///
    /// # Errors
    /// If the system has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { doorbell: Doorbell::new(), event: Arc::new(EventFd::open()?) })
    }

    /// Returns the bell that the engine rings.
    #[must_use]
    pub fn bell(&self) -> Bell {
        Bell { doorbell: self.doorbell.clone(), wake: self.event.clone() }
    }

    /// Returns the descriptor that becomes readable when the bell is rung.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Says that a thread is going to sleep. It must look once more for all that it waits for, and
    /// only then to [`Sleep::sleep`]; in both cases [`Sleep::end`] follows.
    pub(crate) fn prepare(&self) {
        self.doorbell.prepare_sleep();
    }

    /// Sleeps until it is rung, or `timeout` has passed; sometimes shorter.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) {
        self.event.sleep(timeout);
    }

    /// Says that the thread no longer sleeps.
    pub(crate) fn end(&self) {
        self.doorbell.awake();
        // Rings so far were for what is there already.
        self.event.drain();
    }

    /// [`Sleep::prepare`], until the result is dropped.
    pub(crate) fn announce(self) -> Announced {
        self.prepare();
        Announced(self)
    }

    /// Wakes the thread that sleeps, if one does or is about to, for what the caller has just made
    /// known to it.
    pub(crate) fn rouse(&self) {
        if self.doorbell.needs_ring() {
            self.wake();
        }
    }

    /// Wakes whoever sleeps, whatever it has said.
    pub(crate) fn wake(&self) {
        self.event.wake();
    }
}

/// A thread that has said that it is going to sleep. When this is dropped, it no longer sleeps.
#[derive(Debug)]
pub(crate) struct Announced(Sleep);

impl Announced {
    /// Sleeps, as [`Sleep::sleep`] says, and then sleeps no longer.
    pub(crate) fn sleep(self, timeout: Option<Duration>) {
        self.0.sleep(timeout);
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        self.0.end();
    }
}
