//! The kernel's statistics of a backend's sockets, for threads other than the engine's.
//!
//! It reads them through descriptors of its own of the same sockets, which the backend owns: asking takes nothing from
//! the engine, and no watcher keeps a socket open, or its queue in use, after its backend has gone.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Weak},
};

use super::{XskStatistics, sockopt};

/// What the backend has of this.
#[derive(Debug)]
pub(super) struct Watched(Arc<[OwnedFd]>);

impl Watched {
    /// # Errors
    /// If the process has as many descriptors as it may have.
    pub(super) fn new<'a>(sockets: impl Iterator<Item = BorrowedFd<'a>>) -> io::Result<Self> {
        Ok(Self(sockets.map(|socket| socket.try_clone_to_owned()).collect::<io::Result<_>>()?))
    }

    pub(super) fn watch(&self) -> XskWatch {
        XskWatch(Arc::downgrade(&self.0))
    }
}

/// Reads [`XskStatistics`] on any thread, while the backend is open.
#[derive(Clone, Debug)]
pub struct XskWatch(Weak<[OwnedFd]>);

impl XskWatch {
    /// What the kernel counts, over all queues: a system call each. `None` once the backend has gone, or its
    /// interface.
    #[must_use]
    pub fn statistics(&self) -> Option<XskStatistics> {
        let mut sum = XskStatistics::default();
        for socket in self.0.upgrade()?.iter() {
            sum += sockopt::statistics(socket.as_fd()).ok()?;
        }
        Some(sum)
    }
}
