//! The interface that the kernel reaches a host by.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
};

use nix::ifaddrs::getifaddrs;

/// Returns the interface that has the address from which the kernel sends to `to`. Nothing is sent.
pub(crate) fn interface_toward(to: SocketAddr) -> io::Result<String> {
    let any: IpAddr =
        if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    let own = socket.local_addr()?.ip();
    for interface in getifaddrs()? {
        let Some(address) = interface.address else { continue };
        let v4 = address.as_sockaddr_in().map(|it| it.ip().into());
        let v6 = || address.as_sockaddr_in6().map(|it| it.ip().into());
        if v4.or_else(v6) == Some(own) {
            return Ok(interface.interface_name);
        }
    }
    Err(io::Error::other(format!("no interface has {own}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_this_machine_is_its_loopback() {
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        assert_eq!(interface_toward(to).unwrap(), "lo");
    }
}
