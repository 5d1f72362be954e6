//! A backend's sockets, for threads other than the engine's: what the kernel counts, and whether
//! they live.
//!
//! It asks through descriptors of its own of the same sockets, which the attachment owns: asking
//! takes nothing from the engine, and no watcher keeps a socket open, or its queue in use, after
//! its attachment has gone.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Weak},
};

use rustix::{io::Errno, net::RecvFlags};

use super::{
    queues::ReadSign,
    sockopt::{self, XskStatistics},
};

/// The part of the watch that an engine's sockets have.
#[derive(Debug)]
pub(super) struct Watched(Arc<[Socket]>);

/// A socket, and what the steering program counts for it.
#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    read_sign: ReadSign,
}

impl Watched {
    /// # Errors
    /// If the process has as many descriptors as it may have.
    pub(super) fn new<'a>(
        sockets: impl Iterator<Item = (BorrowedFd<'a>, ReadSign)>,
    ) -> io::Result<Self> {
        let all =
            sockets.map(|(fd, read_sign)| Ok(Socket { fd: fd.try_clone_to_owned()?, read_sign }));
        Ok(Self(all.collect::<io::Result<_>>()?))
    }
}

/// Looks at the sockets of all engines on any thread, while they are attached.
#[derive(Clone, Debug, Default)]
pub(super) struct XskWatch(Vec<Weak<[Socket]>>);

impl XskWatch {
    /// Looks at these from now on, too.
    pub(super) fn add(&mut self, Watched(sockets): &Watched) {
        self.0.push(Arc::downgrade(sockets));
    }

    /// The sockets of each engine that has some.
    fn engines(&self) -> impl Iterator<Item = Arc<[Socket]>> {
        self.0.iter().filter_map(Weak::upgrade)
    }

    /// Returns the statistics of kernel and steering program, over all queues: a system call each.
    /// `None` once the attachment has gone.
    pub(super) fn statistics(&self) -> Option<XskStatistics> {
        let mut sum = None;
        for sockets in self.engines() {
            let sum: &mut XskStatistics = sum.get_or_insert_default();
            for Socket { fd, read_sign } in &*sockets {
                *sum += sockopt::statistics(fd.as_fd()).ok()?;
                sum.rx_unread += read_sign.dropped();
            }
        }
        sum
    }

    /// Whether the kernel has taken the interface from the sockets: it was removed, or moved to
    /// another network namespace. That is for ever, even if the interface comes back under its
    /// index. False once the attachment has gone, with the
    /// backends that had it.
    pub(super) fn is_dead(&self) -> bool {
        // A socket without an interface answers ENXIO to everything, one whose interface is down
        // ENETDOWN (`xsk_check_common` in
        // <https://github.com/torvalds/linux/blob/v6.12/net/xdp/xsk.c>). Nothing is taken from the
        // ring by this call.
        let dead = |Socket { fd, .. }: &Socket| {
            rustix::net::recv(fd, &mut [0_u8; 0], RecvFlags::DONTWAIT) == Err(Errno::NXIO)
        };
        self.engines().any(|sockets| sockets.iter().any(dead))
    }
}
