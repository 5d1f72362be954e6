//! One datagram from a socket, with what the kernel knows about it: `recvmsg`, as rustix hands out
//! no ancillary data of IP.

use std::{
    ffi::c_int,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::{AsRawFd, BorrowedFd},
};

use rma_core::addr::HostAddr;
use rustix::io::Errno;

/// `IP_RECVFRAGSIZE` and `IPV6_RECVFRAGSIZE`
/// (<https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/in.h>, `in6.h`).
const IP_RECVFRAGSIZE: c_int = 25;
const IPV6_RECVFRAGSIZE: c_int = 77;

/// A datagram that was received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram {
    /// Its length, also if that is more than the buffer's.
    pub(super) len: usize,
    /// Where it says that it comes from. `None` for an address of no IP family.
    pub(super) source: Option<IpAddr>,
    /// Whether the kernel has put it together from fragments. (An IPv6 datagram that is whole and
    /// has a fragment header nevertheless counts as one: RFC 6946.)
    pub(super) is_reassembled: bool,
}

/// Has the kernel say of each datagram of a socket on `address` how large its fragments were, if it
/// had any.
pub(super) fn tell_of_fragments(fd: BorrowedFd<'_>, address: HostAddr) -> Result<(), Errno> {
    let (level, option) = if address.is_ipv4() {
        (libc::IPPROTO_IP, IP_RECVFRAGSIZE)
    } else {
        (libc::IPPROTO_IPV6, IPV6_RECVFRAGSIZE)
    };
    let on: c_int = 1;
    // SAFETY: the kernel reads as many bytes as `on` has, and it lives across the call. The
    // descriptor is open: it is borrowed.
    let rc = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if rc == 0 { Ok(()) } else { Err(last_error()) }
}

/// Receives a datagram into `buffer`, if there is one; otherwise EAGAIN.
pub(super) fn receive_datagram(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<Datagram, Errno> {
    let mut name = libc::sockaddr_in6 {
        sin6_family: 0,
        sin6_port: 0,
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
        sin6_scope_id: 0,
    };
    // Room for one message of one integer, aligned as its header asks: there is no other that was
    // asked for.
    let mut control = [0_u64; 8];
    let mut parts = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: every field of it may be zero, pointers included: then they point to nothing.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = size_of_val(&name) as libc::socklen_t;
    message.msg_iov = &raw mut parts;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // With TRUNC the kernel tells the datagram's length, not that of what fitted.
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    // SAFETY: the descriptor is open, it is borrowed. `message` names a buffer, a name and room for
    // ancillary data by their true lengths; all live across the call, and nobody else refers to
    // them.
    let len = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) };
    let Ok(len) = usize::try_from(len) else { return Err(last_error()) };
    let source = match c_int::from(name.sin6_family) {
        libc::AF_INET6 => Some(Ipv6Addr::from(name.sin6_addr.s6_addr).into()),
        libc::AF_INET => {
            // The address of a `sockaddr_in` is where that of IPv6 has its flow information.
            Some(Ipv4Addr::from(u32::from_be(name.sin6_flowinfo)).into())
        }
        _ => None,
    };
    Ok(Datagram { len, source, is_reassembled: tells_of_fragments(&message) })
}

/// Whether there is any ancillary data: nothing was asked for but the size of fragments, and the
/// kernel tells that of datagrams alone that had some. What did not fit would be no less.
fn tells_of_fragments(message: &libc::msghdr) -> bool {
    message.msg_controllen > 0 || message.msg_flags & libc::MSG_CTRUNC != 0
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

const _: () = {
    // What reading an IPv4 address out of the larger struct rests on.
    use core::mem::offset_of;
    assert!(
        offset_of!(libc::sockaddr_in, sin_addr) == offset_of!(libc::sockaddr_in6, sin6_flowinfo)
    );
    assert!(
        offset_of!(libc::sockaddr_in, sin_family) == offset_of!(libc::sockaddr_in6, sin6_family)
    );
    assert!(size_of::<libc::sockaddr_in>() <= size_of::<libc::sockaddr_in6>());
};
