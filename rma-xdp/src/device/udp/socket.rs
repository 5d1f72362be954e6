//! One kernel UDP socket, bound to one address of this host.

use std::{
    cell::Cell,
    fmt,
    os::fd::{AsFd, OwnedFd},
};

use rma_core::{addr::HostAddr, port::Port};
use rustix::{
    io::Errno,
    net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery},
};

use super::{
    config::{UdpConfig, UdpError},
    option::tell_of_fragments,
};
use crate::device::{address, paths::PathTable, traffic::Dscp};

/// Assumed where no device tells.
pub(super) const MTU_ASSUMED: u32 = 1500;

/// One of a backend's sockets.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) fd: OwnedFd,
    pub(super) address: HostAddr,
    pub(super) port: Port,
    /// The room for a frame that its device's MTU leaves.
    pub(super) frame_len_max: usize,
    /// Whether it sends runs of packets as one (GSO).
    pub(super) gso: bool,
    /// For how many bursts it does not, since the kernel has refused one.
    pub(super) bursts_without_runs: u32,
    /// The DSCP of what it sends until another is set.
    pub(super) dscp: Cell<Dscp>,
}

impl Socket {
    /// Sets the DSCP of what is sent from now on. The kernel has taken it when the socket was
    /// opened, so it takes it again.
    #[inline]
    pub(super) fn mark(&self, dscp: Dscp) {
        if self.dscp.replace(dscp) != dscp {
            let _ = set_dscp(&self.fd, self.address, dscp);
        }
    }

    /// The longest packet that the device and the way to `peer` carry, in octets of UDP payload.
    #[inline]
    pub(super) fn frame_len_max_to(&self, peer: HostAddr, paths: &PathTable) -> usize {
        let path = paths.is_watching().then(|| paths.lookup(peer)).flatten();
        let path = path.map_or(usize::MAX, |path| path.packet_len_max(peer));
        self.frame_len_max.min(path)
    }
}

/// The description of the socket that was opened for one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketDescription {
    /// The address that the socket is bound to.
    pub address: HostAddr,
    /// The UDP port that it is bound to.
    pub port: Port,
    /// The MTU that frame lengths follow from, in bytes, when the backend was opened: as
    /// configured, or else that of the device which has the address. For an address that lies on
    /// loopback and is reached by other devices: the smallest of theirs.
    pub mtu: u32,
    /// Whether there was no device that would tell, so that `mtu` is the usual one of Ethernet.
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
    let socket = address::unbound(address).map_err(|errno| match errno {
        Errno::AFNOSUPPORT => UdpError::NoFamily { address, source: errno.into() },
        _ => kernel("opening")(errno),
    })?;
    never_fragment(&socket, address).map_err(kernel("setting path MTU discovery"))?;
    tell_of_fragments(socket.as_fd(), address).map_err(kernel("asking for news of fragments"))?;
    for dscp in [config.traffic.throughput, config.traffic.latency] {
        set_dscp(&socket, address, dscp).map_err(kernel("setting the DSCP"))?;
    }
    // Beyond the administrator's limits if we may, and as far as they go if not: what came of it is
    // in the description.
    sockopt::set_socket_recv_buffer_size_force(&socket, config.receive_buffer)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, config.receive_buffer))
        .map_err(kernel("setting the receive buffer"))?;
    sockopt::set_socket_send_buffer_size_force(&socket, config.send_buffer)
        .or_else(|_| sockopt::set_socket_send_buffer_size(&socket, config.send_buffer))
        .map_err(kernel("setting the send buffer"))?;
    let port = port.0;
    let is_usable = address::wait_until_usable(address, None);
    address::bind_also_in_vrf(&socket, address, port, None).map_err(|errno| match errno {
        Errno::ADDRINUSE => UdpError::PortInUse { address, port },
        Errno::ADDRNOTAVAIL if !is_usable => {
            UdpError::AddressTentative { address, source: errno.into() }
        }
        Errno::ADDRNOTAVAIL => UdpError::AddressNotLocal { address, source: errno.into() },
        Errno::ACCESS | Errno::PERM => {
            UdpError::NotPermitted { address, port, source: errno.into() }
        }
        _ => kernel("binding")(errno),
    })?;
    let found = config.mtu.or_else(|| address::device_mtu(address));
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

/// Has all that a socket on `address` sends carry `dscp`.
fn set_dscp(socket: &OwnedFd, address: HostAddr, dscp: Dscp) -> Result<(), Errno> {
    if address.is_ipv4() {
        sockopt::set_ip_tos(socket, dscp.octet())
    } else {
        sockopt::set_ipv6_tclass(socket, dscp.octet().into())
    }
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
