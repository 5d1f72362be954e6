//! An eventfd: how a thread that sleeps in the kernel is woken. Whether it sleeps is told by a
//! [`Doorbell`](rma_shm::Doorbell); a wake-up that comes before the sleep ends it at once.

use core::time::Duration;
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rma_core::portal::Wake;
use rma_shm::Process;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    time::Timespec,
};

/// An event descriptor that one thread sleeps on, and that others wake it by.
///
/// A child that was forked has the same descriptor, and a wake-up that it took would be missing
/// here: in a child nothing is drained or woken, and no sleep begins.
#[derive(Debug)]
pub struct EventFd {
    fd: OwnedFd,
    process: Process,
}

impl EventFd {
    /// Makes one that nobody has rung.
    ///
    /// # Errors
    /// If the system has no file descriptor left.
    pub fn open() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { fd, process: Process::this() })
    }

    /// Forgets all wake-ups so far.
    pub fn drain(&self) {
        if self.process.is_this() {
            // Nonblocking: an error means that nobody has rung.
            let _ = rustix::io::read(&self.fd, &mut [0; 8]);
        }
    }

    /// Sleeps until there is a wake-up that has not been drained, or `timeout` has passed;
    /// sometimes shorter.
    pub fn sleep(&self, timeout: Option<Duration>) {
        if !self.process.is_this() {
            return;
        }
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        // Interrupted by a signal: the caller looks and sleeps again.
        let _ = poll(&mut fds, timeout.map(timespec).as_ref());
    }
}

impl Wake for EventFd {
    fn wake(&self) {
        if self.process.is_this() {
            // An error means that the counter is full, and then the thread is awake already.
            let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// `duration` as the kernel takes it.
pub fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
