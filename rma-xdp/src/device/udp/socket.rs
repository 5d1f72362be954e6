//! One kernel UDP socket, bound to one address of this host.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, OwnedFd},
};

use rma_core::{addr::HostAddr, port::Port};
use rustix::{
    io::Errno,
    net::{
        AddressFamily, SocketFlags, SocketType,
        sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery},
    },
};

use super::{
    config::{UdpConfig, UdpError},
    option::tell_of_fragments,
};

/// Assumed where the kernel has no route that would tell.
const MTU_ASSUMED: u32 = 1500;
/// The MTU of Linux's loopback device.
const MTU_LOOPBACK: u32 = 65_536;

/// One of a backend's sockets.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) fd: OwnedFd,
    pub(super) address: HostAddr,
    pub(super) port: Port,
    /// What its device's MTU leaves for a frame.
    pub(super) frame_len_max: usize,
    /// Whether it sends runs of packets as one (GSO).
    pub(super) gso: bool,
    /// For how many bursts it does not, since the kernel has refused one.
    pub(super) bursts_without_runs: u32,
}

/// What was got for one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketDescription {
    /// The address that the socket is bound to.
    pub address: HostAddr,
    /// The UDP port that it is bound to.
    pub port: Port,
    /// The MTU that frame lengths follow from, in bytes: as configured, or else that of the route
    /// to this host's neighbours when the backend was opened (loopback addresses: loopback's). It
    /// is not followed afterwards.
    pub mtu: u32,
    /// Whether the kernel had no route that would tell, so that `mtu` is the usual one of Ethernet.
    pub mtu_assumed: bool,
    /// The receive buffer in bytes, as the kernel counts: its own overhead included.
    pub receive_buffer: usize,
    /// The send buffer in bytes, as the kernel counts.
    pub send_buffer: usize,
}

impl fmt::Display for SocketDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, mtu, mtu_assumed, receive_buffer, send_buffer, .. } = self;
        let assumed = if *mtu_assumed { " (assumed)" } else { "" };
        let (receive, send) = (receive_buffer >> 10, send_buffer >> 10);
        write!(f, "{address}, MTU {mtu}{assumed}, buffers {receive} KiB in and {send} KiB out")
    }
}

/// Makes a socket and binds it exclusively: neither `SO_REUSEADDR` nor `SO_REUSEPORT` is set.
pub(super) fn open(
    config: &UdpConfig,
    address: HostAddr,
    port: Port,
) -> Result<(OwnedFd, SocketDescription), UdpError> {
    let kernel =
        |doing| move |errno: Errno| UdpError::Kernel { doing, address, source: errno.into() };
    let socket = unbound(address).map_err(|errno| match errno {
        Errno::AFNOSUPPORT => UdpError::NoFamily { address, source: errno.into() },
        _ => kernel("opening")(errno),
    })?;
    never_fragment(&socket, address).map_err(kernel("setting path MTU discovery"))?;
    tell_of_fragments(socket.as_fd(), address).map_err(kernel("asking for news of fragments"))?;
    // Beyond the administrator's limits if we may, and as far as they go if not: what came of it is
    // in the description.
    sockopt::set_socket_recv_buffer_size_force(&socket, config.receive_buffer)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, config.receive_buffer))
        .map_err(kernel("setting the receive buffer"))?;
    sockopt::set_socket_send_buffer_size_force(&socket, config.send_buffer)
        .or_else(|_| sockopt::set_socket_send_buffer_size(&socket, config.send_buffer))
        .map_err(kernel("setting the send buffer"))?;
    let port = port.0;
    rustix::net::bind(&socket, &SocketAddr::new(address.ip(), port)).map_err(
        |errno| match errno {
            Errno::ADDRINUSE => UdpError::PortInUse { address, port },
            Errno::ADDRNOTAVAIL => UdpError::AddressNotLocal { address, source: errno.into() },
            Errno::ACCESS | Errno::PERM => {
                UdpError::NotPermitted { address, port, source: errno.into() }
            }
            _ => kernel("binding")(errno),
        },
    )?;
    let found = config.mtu.or_else(|| route_mtu(address));
    let description = SocketDescription {
        address,
        port: Port(port),
        mtu: found.unwrap_or(MTU_ASSUMED),
        mtu_assumed: found.is_none(),
        receive_buffer: sockopt::socket_recv_buffer_size(&socket)
            .map_err(kernel("reading the receive buffer"))?,
        send_buffer: sockopt::socket_send_buffer_size(&socket)
            .map_err(kernel("reading the send buffer"))?,
    };
    Ok((socket, description))
}

fn unbound(address: HostAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    if !address.is_ipv4() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    Ok(socket)
}

/// Frames that do not fit are an error here (`EMSGSIZE`), not fragments on the wire: AF_XDP hosts
/// do not put fragments together.
fn never_fragment(socket: &OwnedFd, address: HostAddr) -> Result<(), Errno> {
    if address.is_ipv4() {
        sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::DO)
    } else {
        sockopt::set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::DO)
    }
}

/// The MTU of the route from `address` to an address next to it. On any usual subnet that is the
/// device which has `address`. A UDP `connect` looks up a route and sends nothing.
fn route_mtu(address: HostAddr) -> Option<u32> {
    if address.ip().is_loopback() {
        return Some(MTU_LOOPBACK);
    }
    // A neighbour may turn out to be the subnet's broadcast address, which cannot be connected to.
    [1, 2, 3].into_iter().find_map(|distance| {
        let socket = unbound(address).ok()?;
        rustix::net::bind(&socket, &SocketAddr::new(address.ip(), 0)).ok()?;
        rustix::net::connect(&socket, &SocketAddr::new(next_to(address, distance), 9)).ok()?;
        let mtu = match address.is_ipv4() {
            true => sockopt::ip_mtu(&socket),
            false => sockopt::ipv6_mtu(&socket),
        };
        mtu.ok()
    })
}

fn next_to(address: HostAddr, distance: u8) -> IpAddr {
    match address.ip() {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() ^ u32::from(distance)).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() ^ u128::from(distance)).into(),
    }
}
