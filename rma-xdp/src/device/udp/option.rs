//! Socket options and questions to the kernel that rustix has no call for.

use std::{
    ffi::c_int,
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
};

use rma_core::addr::HostAddr;
use rustix::io::Errno;

/// `IP_RECVFRAGSIZE` and `IPV6_RECVFRAGSIZE`
/// (<https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/in.h>, `in6.h`).
const IP_RECVFRAGSIZE: c_int = 25;
const IPV6_RECVFRAGSIZE: c_int = 77;

/// Sets an option that is an integer.
pub(crate) fn set_option(
    fd: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    value: c_int,
) -> Result<(), Errno> {
    // SAFETY: the kernel reads as many bytes as `value` has, and it lives across the call. The
    // descriptor is open: it is borrowed.
    let rc = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if rc == 0 { Ok(()) } else { Err(last_error()) }
}

/// Has the kernel say of each datagram of a socket on `address` how large its fragments were, if it
/// had any.
pub(super) fn tell_of_fragments(fd: BorrowedFd<'_>, address: HostAddr) -> Result<(), Errno> {
    if address.is_ipv4() {
        set_option(fd, libc::IPPROTO_IP, IP_RECVFRAGSIZE, 1)
    } else {
        set_option(fd, libc::IPPROTO_IPV6, IPV6_RECVFRAGSIZE, 1)
    }
}

/// Whether this process may call `recvmmsg`: a kernel may be without it, a sandbox may forbid it.
pub(super) fn recvmmsg_is_there(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let nobody = ptr::null_mut();
    // SAFETY: of no messages the kernel reads and writes nothing. The descriptor is open: it is
    // borrowed.
    let rc = unsafe { libc::recvmmsg(fd.as_raw_fd(), nobody, 0, 0, ptr::null_mut()) };
    if rc == 0 { Ok(()) } else { Err(last_error()) }
}

/// The same of `sendmmsg`.
pub(super) fn sendmmsg_is_there(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: as in `recvmmsg_is_there`.
    let rc = unsafe { libc::sendmmsg(fd.as_raw_fd(), ptr::null_mut(), 0, 0) };
    if rc == 0 { Ok(()) } else { Err(last_error()) }
}

/// Returns the error of this thread's last failed call.
pub(super) fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
