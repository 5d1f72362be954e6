//! The socket options of AF_XDP that rustix does not have, nor xsk-rs for any descriptor.
//!
//! Numbers from <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/if_xdp.h> and
//! <https://github.com/torvalds/linux/blob/v6.12/include/uapi/asm-generic/socket.h>.

use std::{
    ffi::{c_int, c_void},
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

/// `XDP_OPTIONS`, and the flag in its answer that says that the driver works on the UMEM itself.
const XDP_OPTIONS: c_int = 8;
const XDP_OPTIONS_ZEROCOPY: u32 = 1;

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
    let mut flags = 0_u32;
    let mut len = size_of_val(&flags) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `flags`, and the new length to
    // `len`; both live across the call. The descriptor is open: it is borrowed.
    let rc = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            XDP_OPTIONS,
            (&raw mut flags).cast::<c_void>(),
            &raw mut len,
        )
    };
    if rc == 0 { Ok(flags & XDP_OPTIONS_ZEROCOPY != 0) } else { Err(io::Error::last_os_error()) }
}

/// Returns the kernel's statistics of the socket, and nothing of the steering program's. It takes a
/// lock that frames do not.
pub(super) fn statistics(fd: BorrowedFd<'_>) -> io::Result<XskStatistics> {
    let mut kernel = libc::xdp_statistics {
        rx_dropped: 0,
        rx_invalid_descs: 0,
        tx_invalid_descs: 0,
        rx_ring_full: 0,
        rx_fill_ring_empty_descs: 0,
        tx_ring_empty_descs: 0,
    };
    let mut len = size_of_val(&kernel) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `kernel`, and the new length to
    // `len`; both live across the call. The descriptor is open: it is borrowed.
    let rc = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            libc::XDP_STATISTICS,
            (&raw mut kernel).cast::<c_void>(),
            &raw mut len,
        )
    };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(XskStatistics {
        rx_dropped: kernel.rx_dropped,
        rx_invalid_descs: kernel.rx_invalid_descs,
        tx_invalid_descs: kernel.tx_invalid_descs,
        rx_ring_full: kernel.rx_ring_full,
        rx_fill_ring_empty_descs: kernel.rx_fill_ring_empty_descs,
        tx_ring_empty_descs: kernel.tx_ring_empty_descs,
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
