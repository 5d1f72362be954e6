//! Keeps the UDP ports: kernel sockets that are bound, and whose datagrams nobody reads.
//!
//! They carry no data; the steering program takes our frames before they get here. They make a
//! second instance or a kernel service on a port an error instead of a riddle, and they keep the
//! kernel from answering stray datagrams (fragments, frames that came before the program was
//! attached) with ICMP port-unreachable. What arrives fills the smallest possible receive buffer
//! and is dropped from then on; only how many there are is of interest ([`super::doubts`]).

use std::os::fd::OwnedFd;

use rma_core::{
    addr::HostAddr,
    port::{Port, Ports},
};
use rustix::{
    io::Errno,
    net::{RecvFlags, sockopt},
};

use super::error::XdpError;
use crate::device::address;

/// Datagrams that are read from one socket in one go, at most.
const DRAINED_MAX: usize = 64;

/// The ports, kept on all local addresses until this is dropped.
#[derive(Debug)]
pub(super) struct ReservedPorts {
    sockets: Vec<OwnedFd>,
}

impl ReservedPorts {
    /// Binds each of `ports` exclusively on each of `addresses`. `index` is the interface's, for
    /// link-local addresses.
    pub(super) fn reserve(
        interface: &str,
        index: u32,
        addresses: &[HostAddr],
        ports: &Ports,
    ) -> Result<Self, XdpError> {
        let one = |(port, address): (Port, &HostAddr)| {
            let port = port.0;
            bind(*address, index, port).map_err(|errno| match errno {
                Errno::ADDRINUSE => XdpError::PortInUse { port, address: address.ip() },
                Errno::ADDRNOTAVAIL | Errno::INVAL => XdpError::LocalAddress {
                    interface: interface.into(),
                    address: address.ip(),
                    source: errno.into(),
                },
                _ => XdpError::from_call(interface, "reserving the UDP port", errno.into()),
            })
        };
        let all = ports.iter().flat_map(|port| addresses.iter().map(move |it| (port, it)));
        Ok(Self { sockets: all.map(one).collect::<Result<_, _>>()? })
    }

    /// Throws away what has arrived, and says how many datagrams that were: of more than a receive
    /// buffer holds, the first.
    pub(super) fn drain(&self) -> u64 {
        let next = |socket: &OwnedFd| {
            rustix::net::recv(socket, &mut [0_u8; 0], RecvFlags::DONTWAIT).is_ok()
        };
        // A buffer holds less; so it ends however fast others send.
        let of_one = |socket| (0..DRAINED_MAX).take_while(|_| next(socket)).count() as u64;
        self.sockets.iter().map(of_one).sum()
    }
}

fn bind(address: HostAddr, index: u32, port: u16) -> Result<OwnedFd, Errno> {
    let socket = address::unbound(address)?;
    // The kernel raises this to its minimum, a packet or two.
    sockopt::set_socket_recv_buffer_size(&socket, 1)?;
    // Without SO_REUSEADDR and SO_REUSEPORT a bind is exclusive.
    address::bind_also_in_vrf(&socket, address, port, Some(index))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use super::*;

    fn ports(last: u16) -> Ports {
        Ports::new(&[Port(last)]).unwrap()
    }

    fn loopback() -> [HostAddr; 1] {
        [Ipv4Addr::LOCALHOST.into()]
    }

    #[test]
    fn a_port_in_use_is_a_clear_error() {
        let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = other.local_addr().unwrap().port();
        let error = ReservedPorts::reserve("lo", 1, &loopback(), &ports(port)).unwrap_err();
        assert!(matches!(error, XdpError::PortInUse { port: p, .. } if p == port));
        assert!(
            error
                .to_string()
                .contains(&format!("UDP port {port} on 127.0.0.1 is in use by another instance"))
        );
    }

    #[test]
    fn a_reserved_port_is_free_again_after_a_drop() {
        let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let reserved = ReservedPorts::reserve("lo", 1, &loopback(), &ports(port)).unwrap();
        assert!(UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).is_err());
        drop(reserved);
        UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    }

    #[test]
    fn a_packet_at_a_reserved_port_is_counted_once() {
        let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let reserved = ReservedPorts::reserve("lo", 1, &loopback(), &ports(port)).unwrap();
        assert_eq!(reserved.drain(), 0);
        other.send_to(&[1], (Ipv4Addr::LOCALHOST, port)).unwrap();
        assert_eq!(reserved.drain(), 1);
        assert_eq!(reserved.drain(), 0);
    }

    #[test]
    fn an_address_of_another_machine_is_refused() {
        let error = ReservedPorts::reserve("lo", 1, &["192.0.2.99".parse().unwrap()], &ports(9))
            .unwrap_err();
        assert!(matches!(error, XdpError::LocalAddress { .. }), "{error}");
    }
}
