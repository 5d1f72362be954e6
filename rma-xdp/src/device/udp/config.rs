//! The settings of a UDP backend, the rules for it, and what can go wrong.

use std::{io, net::IpAddr};

use rma_core::{
    addr::HostAddr,
    port::{Port, Ports, PortsError},
    wire,
};
use rma_shm::Told;

use super::batching::UdpBatching;
use crate::device::traffic::TrafficClasses;

/// IP header without options, and UDP header.
const IPV4_OVERHEAD: usize = 20 + 8;
const IPV6_OVERHEAD: usize = 40 + 8;

/// The smallest MTU that leaves room for a frame that can carry any op, in IPv4 and IPv6.
const MTU_MIN: u32 = (wire::FRAME_LEN_MIN + IPV6_OVERHEAD) as u32;

/// The buffer size that the kernel is asked for on each socket, in bytes. 64 frames of 4 KiB are in
/// flight by default, and the kernel charges about twice a frame's size. Smaller: a burst is lost
/// while the engine is descheduled. Larger: only memory, and only while it is used.
const SOCKET_BUFFER: usize = 4 << 20;

/// The largest frame that is sent or received, in bytes, however large the MTU: a 4 KiB op in one
/// frame, with room for headers to grow. Larger would only be larger buffers.
pub const FRAME_LEN_MAX: usize = 4096 + 128;

const _: () = assert!(FRAME_LEN_MAX >= wire::FRAME_LEN_MAX, "a whole op fits into a frame");

/// The settings that a [`UdpBackend`](super::UdpBackend) is opened with.
#[derive(Clone, Debug)]
#[must_use]
#[non_exhaustive]
pub struct UdpConfig {
    /// This host's addresses: one, or one of each family.
    pub addresses: Vec<HostAddr>,
    /// The UDP ports of the deployment, one for each service: at least one, and at most
    /// [`PORTS_MAX`](rma_core::port::PORTS_MAX).
    pub ports: Vec<Port>,
    /// The MTU of the device in bytes, whatever it says and becomes. `None`: that of the device
    /// which has the address, now and when it changes; see
    /// [`SocketDescription::mtu`](super::SocketDescription::mtu). Too small: ops travel in more
    /// frames. Too large: frames that the device cannot send are dropped and counted.
    pub mtu: Option<u32>,
    /// The wanted size of each socket's receive buffer, in bytes. A wish: the kernel may grant
    /// less.
    pub receive_buffer: usize,
    /// The wanted size of each socket's send buffer, in bytes. A wish, as `receive_buffer`.
    pub send_buffer: usize,
    /// The DSCP of what is sent.
    pub traffic: TrafficClasses,
    /// The kernel's ways to move several datagrams at once that are used, where it has them.
    pub batching: UdpBatching,
}

impl UdpConfig {
    /// The defaults: MTU from the kernel, buffers of 4 MiB, all that the kernel has to move several
    /// datagrams at once.
    pub fn new(addresses: Vec<HostAddr>, ports: &[Port]) -> Self {
        Self {
            addresses,
            ports: ports.to_vec(),
            mtu: None,
            receive_buffer: SOCKET_BUFFER,
            send_buffer: SOCKET_BUFFER,
            traffic: TrafficClasses::default(),
            batching: UdpBatching::ALL,
        }
    }

    /// Checks every field. Returns the ports.
    pub(super) fn check(&self) -> Result<Ports, UdpError> {
        let ports = Ports::new(&self.ports)?;
        if let Some(mtu) = self.mtu
            && mtu < MTU_MIN
        {
            return Err(UdpError::MtuTooSmall { mtu, min: MTU_MIN });
        }
        if self.addresses.is_empty() {
            return Err(UdpError::NoAddress);
        }
        for (n, &address) in self.addresses.iter().enumerate() {
            check_address(address)?;
            let same_family = |first: &&HostAddr| first.version() == address.version();
            if let Some(&first) = self.addresses[..n].iter().find(same_family) {
                return Err(UdpError::TwoOfOneFamily { first, second: address });
            }
        }
        Ok(ports)
    }
}

fn check_address(address: HostAddr) -> Result<(), UdpError> {
    let ip = address.ip();
    if ip.is_unspecified() {
        return Err(UdpError::Wildcard { address });
    }
    match ip {
        IpAddr::V4(v4) if v4.is_broadcast() || v4.is_multicast() => {
            Err(UdpError::NotUnicast { address })
        }
        IpAddr::V6(v6) if v6.is_multicast() => Err(UdpError::NotUnicast { address }),
        IpAddr::V6(v6) if v6.is_unicast_link_local() => Err(UdpError::LinkLocal { address }),
        _ => Ok(()),
    }
}

/// The payload of a UDP datagram that fills an IP packet of `mtu` bytes.
pub(super) fn payload_of(mtu: u32, address: HostAddr) -> usize {
    let overhead = if address.is_ipv4() { IPV4_OVERHEAD } else { IPV6_OVERHEAD };
    (mtu as usize).saturating_sub(overhead)
}

/// The reason why a UDP backend could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UdpError {
    /// There is nothing to bind.
    #[error("no address was given: name one of this host's addresses, `ip address` lists them")]
    NoAddress,
    /// A host has one name in each family.
    #[error("{first} and {second} are both IPv{}: give one address of each family", first.version())]
    TwoOfOneFamily {
        /// The address that came first.
        first: HostAddr,
        /// The one too many.
        second: HostAddr,
    },
    /// The address stands for all addresses of the host.
    #[error(
        "{address} stands for every address of this host, and keys are bound to one: name the \
         address that peers reach this host by, `ip address` lists them"
    )]
    Wildcard {
        /// The address.
        address: HostAddr,
    },
    /// The address is a group's.
    #[error("{address} is a multicast or broadcast address: name an address of this host alone")]
    NotUnicast {
        /// The address.
        address: HostAddr,
    },
    /// The address means something on one link only.
    #[error(
        "{address} is link-local: it names a host only together with an interface; use a global or \
         unique local address"
    )]
    LinkLocal {
        /// The address.
        address: HostAddr,
    },
    /// Nobody can listen on these ports. The kernel may not choose one: peers would not know it.
    #[error(transparent)]
    Ports(#[from] PortsError),
    /// The smallest frames do not fit.
    #[error("an MTU of {mtu} bytes cannot carry 1RMA: at least {min} are needed")]
    MtuTooSmall {
        /// The MTU configured.
        mtu: u32,
        /// The smallest that works.
        min: u32,
    },
    /// Another socket has the port.
    #[error(
        "UDP port {port} on {address} is in use by another instance or service: \
         `ss -ulpn 'sport = :{port}'` names it; stop it or choose another port"
    )]
    PortInUse {
        /// The address.
        address: HostAddr,
        /// The port.
        port: u16,
    },
    /// The address is not this host's.
    #[error(
        "{address} is not an address of this host, or not yet usable: `ip address` in the same \
         network namespace lists them"
    )]
    AddressNotLocal {
        /// The address.
        address: HostAddr,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The address is this host's, and it was waited in vain for that it can be used.
    #[error(
        "{address} is tentative: duplicate address detection has not ended, or has found another \
         machine with it; see `ip -6 addr show to {address}`"
    )]
    AddressTentative {
        /// The address.
        address: HostAddr,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The kernel has no such address family.
    #[error("this kernel has no IPv{}: use an address of the other family", address.version())]
    NoFamily {
        /// The address.
        address: HostAddr,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The process may not bind the port.
    #[error(
        "binding UDP port {port} on {address} is not permitted: ports below 1024 need \
         CAP_NET_BIND_SERVICE (see also sysctl net.ipv4.ip_unprivileged_port_start); choose a \
         higher port"
    )]
    NotPermitted {
        /// The address.
        address: HostAddr,
        /// The port.
        port: u16,
        /// The error of the kernel.
        source: io::Error,
    },
    /// There is no descriptor for work that concerns no single address.
    #[error("creating an event descriptor failed: {}", Told::of(.0))]
    Descriptor(io::Error),
    /// The kernel refused in a way that is not expected.
    #[error("{doing} of the UDP socket on {address} failed: {}", Told::of(source))]
    Kernel {
        /// The action that failed.
        doing: &'static str,
        /// The address.
        address: HostAddr,
        /// The error of the kernel.
        source: io::Error,
    },
}

rma_core::settings!(UdpConfig);
