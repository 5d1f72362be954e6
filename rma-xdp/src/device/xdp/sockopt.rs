//! Options of an AF_XDP socket that is open: its mode, its statistics, and busy polling.

use std::{
    ffi::{c_int, c_void},
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use rustix::net::{
    sockopt::{xdp_options, xdp_statistics},
    xdp::XdpOptionsFlags,
};

/// The statistics of the kernel for a socket (`XDP_STATISTICS`), and the steering program before
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct XskStatistics {
    /// Packets dropped for other reasons than the ones below, such as being longer than a chunk.
    pub rx_dropped: u64,
    /// Fill descriptors that the kernel refused.
    pub rx_invalid_descs: u64,
    /// Transmit descriptors that the kernel refused.
    pub tx_invalid_descs: u64,
    /// Packets dropped because the receive ring was full.
    pub rx_ring_full: u64,
    /// Packets dropped because the fill ring was empty: userspace polls too slowly.
    pub rx_fill_ring_empty_descs: u64,
    /// Times the kernel looked for something to send and found nothing.
    pub tx_ring_empty_descs: u64,
    /// Packets that the steering program dropped because the receive ring was not read: the process
    /// was stopped, or too slow. They are in none of the others.
    pub rx_unread: u64,
}

impl core::ops::AddAssign for XskStatistics {
    fn add_assign(&mut self, other: Self) {
        self.rx_dropped += other.rx_dropped;
        self.rx_invalid_descs += other.rx_invalid_descs;
        self.tx_invalid_descs += other.tx_invalid_descs;
        self.rx_ring_full += other.rx_ring_full;
        self.rx_fill_ring_empty_descs += other.rx_fill_ring_empty_descs;
        self.tx_ring_empty_descs += other.tx_ring_empty_descs;
        self.rx_unread += other.rx_unread;
    }
}

/// Whether the socket works in zero-copy mode.
pub(super) fn is_zero_copy(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(xdp_options(fd)?.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
}

/// Returns the kernel's statistics of the socket, and nothing of the steering program's. It takes a
/// lock that frames do not.
pub(super) fn statistics(fd: BorrowedFd<'_>) -> io::Result<XskStatistics> {
    let kernel = xdp_statistics(fd)?;
    // The others are not there before Linux 5.9, on which hosts do not open.
    Ok(XskStatistics {
        rx_dropped: kernel.rx_dropped,
        rx_invalid_descs: kernel.rx_invalid_descs,
        tx_invalid_descs: kernel.tx_invalid_descs,
        rx_ring_full: kernel.rx_ring_full.unwrap_or(0),
        rx_fill_ring_empty_descs: kernel.rx_fill_ring_empty_descs.unwrap_or(0),
        tx_ring_empty_descs: kernel.tx_ring_empty_descs.unwrap_or(0),
        rx_unread: 0,
    })
}

/// Lets the kernel poll the device inside our system calls, for at most `us` microseconds and
/// `budget` packets each, instead of by interrupt. Works best with the driver's
/// `napi_defer_hard_irqs` and `gro_flush_timeout` set.
pub(super) fn prefer_busy_poll(fd: BorrowedFd<'_>, us: u32, budget: u32) -> io::Result<()> {
    set(fd, libc::SO_PREFER_BUSY_POLL, 1)?;
    set(fd, libc::SO_BUSY_POLL, us)?;
    set(fd, libc::SO_BUSY_POLL_BUDGET, budget)
}

fn set(fd: BorrowedFd<'_>, option: c_int, value: u32) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as `value` has, and it lives across the call. The
    // descriptor is open: it is borrowed.
    let rc = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast::<c_void>(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
