//! The backends of this crate behind one type, chosen when the host is opened.
//!
//! An enum and not a trait object: one predictable branch for each burst, nothing for each frame.

use std::os::fd::BorrowedFd;

use rma_core::{
    backend::{Backend, RxPacket, TxFrame},
    nic::ReceiveLenMax,
    path_limits::Paths,
    time::Instant,
};

#[cfg(feature = "capture")]
use crate::device::tap::Tap;
use crate::device::udp::UdpBackend;
#[cfg(feature = "xdp")]
use crate::device::xdp::XdpBackend;

/// The part of a backend that an engine thread needs beyond moving frames.
pub(crate) trait HostBackend: Backend {
    /// The largest frames that the device can receive now; follows the device's MTU.
    fn receive_len_max(&self) -> ReceiveLenMax;

    /// Follows what has become of the device: a network interface may go away and come back. Called
    /// between turns, now and then and after each sleep. Must neither allocate nor block.
    fn follow(&mut self) {}

    /// Has a tap copy what moves, or none, and gives back the one that did before.
    #[cfg(feature = "capture")]
    fn swap_tap(&mut self, tap: Option<Box<Tap>>) -> Option<Box<Tap>> {
        tap
    }

    /// Whether the device waits for something that nobody wakes a sleeper for: the way to a host.
    fn awaits_path(&self) -> bool {
        false
    }

    /// Calls `each` with every file descriptor that becomes readable when a frame arrives, or when
    /// there is something to [follow](HostBackend::follow).
    fn for_each_fd<'a>(&'a self, each: impl FnMut(BorrowedFd<'a>));
}

/// One of the backends of this crate.
#[derive(Debug)]
pub(crate) enum AnyBackend {
    /// AF_XDP sockets.
    #[cfg(feature = "xdp")]
    Xdp(XdpBackend),
    /// Kernel UDP sockets.
    Udp(UdpBackend),
}

impl AnyBackend {
    /// Returns the limits of the ways to other hosts, and the listener to ops' ends.
    pub(crate) fn paths(&self) -> Paths {
        match self {
            #[cfg(feature = "xdp")]
            Self::Xdp(xdp) => xdp.paths().limits(),
            Self::Udp(udp) => udp.paths().limits(),
        }
    }
}

impl Backend for AnyBackend {
    fn rx_burst(&mut self, max: usize, on_packets: impl FnMut(&mut [RxPacket<'_>])) -> usize {
        match self {
            #[cfg(feature = "xdp")]
            Self::Xdp(xdp) => xdp.rx_burst(max, on_packets),
            Self::Udp(udp) => udp.rx_burst(max, on_packets),
        }
    }

    fn tx_burst(&mut self, max: usize, fill: impl FnMut(&mut [TxFrame<'_>]) -> usize) -> usize {
        match self {
            #[cfg(feature = "xdp")]
            Self::Xdp(xdp) => xdp.tx_burst(max, fill),
            Self::Udp(udp) => udp.tx_burst(max, fill),
        }
    }

    fn flush(&mut self, now: Instant) {
        match self {
            #[cfg(feature = "xdp")]
            Self::Xdp(xdp) => xdp.flush(now),
            Self::Udp(udp) => udp.flush(now),
        }
    }
}

impl HostBackend for AnyBackend {
    fn receive_len_max(&self) -> ReceiveLenMax {
        match self {
            #[cfg(feature = "xdp")]
            Self::Xdp(xdp) => xdp.receive_len_max(),
            Self::Udp(udp) => udp.receive_len_max(),
        }
    }

    fn follow(&mut self) {
        match self {
            #[cfg(feature = "xdp")]
            Self::Xdp(xdp) => xdp.follow(),
            Self::Udp(udp) => udp.follow(),
        }
    }

    #[cfg(feature = "capture")]
    fn swap_tap(&mut self, tap: Option<Box<Tap>>) -> Option<Box<Tap>> {
        match self {
            #[cfg(feature = "xdp")]
            Self::Xdp(xdp) => xdp.swap_tap(tap),
            Self::Udp(udp) => udp.swap_tap(tap),
        }
    }

    fn awaits_path(&self) -> bool {
        match self {
            #[cfg(feature = "xdp")]
            Self::Xdp(xdp) => xdp.awaits_path(),
            // The kernel keeps what waits for a neighbour.
            Self::Udp(_) => false,
        }
    }

    fn for_each_fd<'a>(&'a self, mut each: impl FnMut(BorrowedFd<'a>)) {
        match self {
            #[cfg(feature = "xdp")]
            Self::Xdp(xdp) => xdp.poll_fds().for_each(&mut each),
            Self::Udp(udp) => udp.poll_fds().for_each(&mut each),
        }
    }
}
