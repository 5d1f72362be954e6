//! A packet socket on one interface: whole Ethernet frames in and out.
//!
//! It knows nothing of what is in a frame. The only `unsafe` of the hostile wire is here: the
//! address that binds such a socket, for which no library of the workspace has a type.

use std::{io, os::fd::OwnedFd};

use rustix::{
    fd::{AsFd, BorrowedFd},
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType,
        addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque},
        netdevice, sockopt,
    },
};

/// Room for bursts that come while the forwarder does not run.
const BUFFER: usize = 8 << 20;

/// All EtherTypes (`ETH_P_ALL`).
const EVERYTHING: u16 = 3;

/// The kernel's `struct sockaddr_ll`, with which packet(7) sockets are bound.
#[repr(C)]
#[derive(Debug)]
struct LinkLayerAddress {
    family: u16,
    /// The EtherType, big-endian.
    protocol: [u8; 2],
    interface: u32,
    hardware_type: u16,
    packet_type: u8,
    address_len: u8,
    address: [u8; 8],
}

// SAFETY: the pointer is to a whole `sockaddr_ll`, without padding, that outlives the call.
unsafe impl SocketAddrArg for LinkLayerAddress {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        f((&raw const *self).cast(), size_of::<Self>() as SocketAddrLen)
    }
}

/// A packet socket that sends and receives whole frames on one interface. It does not see what it
/// sends itself.
#[derive(Debug)]
pub(super) struct Tap {
    socket: OwnedFd,
}

impl Tap {
    /// Opens a socket on `interface` of the calling thread's network namespace.
    pub(super) fn open(interface: &str) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol it receives nothing until it is bound to one interface.
        let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER)?;
        sockopt::set_socket_send_buffer_size_force(&socket, BUFFER)?;
        let address = LinkLayerAddress {
            family: AddressFamily::PACKET.as_raw(),
            protocol: EVERYTHING.to_be_bytes(),
            interface: netdevice::name_to_index(&socket, interface)?,
            hardware_type: 0,
            packet_type: 0,
            address_len: 0,
            address: [0; 8],
        };
        rustix::net::bind(&socket, &address)?;
        Ok(Self { socket })
    }

    /// The next frame, if one waits: how many bytes of `buffer` it is.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::net::recv(&self.socket, buffer, RecvFlags::empty()) {
            Ok((len, _)) => Ok(Some(len)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sends a frame. `false` if the kernel had no room for it.
    pub(super) fn send(&self, frame: &[u8]) -> io::Result<bool> {
        match rustix::net::send(&self.socket, frame, SendFlags::empty()) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
