//! The interface that the kernel reaches a host by.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
};

use nix::ifaddrs::getifaddrs;

/// Returns the address from which the kernel sends to `to`, and the interface that has it. Nothing
/// is sent.
pub(crate) fn interface_toward(to: SocketAddr) -> io::Result<(String, IpAddr)> {
    let any: IpAddr =
        if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    let own = socket.local_addr()?.ip();
    if own == to.ip() {
        return Err(io::Error::other("that is an address of this host"));
    }
    let name = interface_with(own);
    let name = name.ok_or_else(|| io::Error::other(format!("no interface has {own}")))?;
    Ok((name, own))
}

/// Returns the interface that has this address.
pub(crate) fn interface_with(own: IpAddr) -> Option<String> {
    getifaddrs().ok()?.find_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|it| it.ip().into());
        let v6 = || address.as_sockaddr_in6().map(|it| it.ip().into());
        // A label of an address is the interface's name and more.
        let name = interface.interface_name.split(':').next().unwrap_or_default();
        (v4.or_else(v6) == Some(own)).then(|| name.to_owned())
    })
}

/// Returns the address that an interface sends from: its first one, IPv4 before IPv6, none that is
/// link-local.
pub(crate) fn address_of(interface: &str) -> Option<IpAddr> {
    let all =
        getifaddrs().ok()?.filter(|it| it.interface_name.split(':').next() == Some(interface));
    let addresses: Vec<IpAddr> = all
        .filter_map(|it| {
            let address = it.address?;
            let v4 = address.as_sockaddr_in().map(|it| it.ip().into());
            let v6 = || address.as_sockaddr_in6().map(|it| it.ip());
            v4.or_else(|| v6().filter(|it| !it.is_unicast_link_local()).map(IpAddr::from))
        })
        .collect();
    addresses.iter().find(|it| it.is_ipv4()).or(addresses.first()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_loopback_is_by_lo_and_to_an_own_address_there_is_none() {
        let to = |last| interface_toward(SocketAddr::from(([127, 0, 0, last], 9)));
        assert_eq!(to(2).unwrap(), ("lo".to_owned(), Ipv4Addr::LOCALHOST.into()));
        assert_eq!(address_of("lo"), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(address_of("nosuch0"), None);
        assert!(to(1).unwrap_err().to_string().contains("an address of this host"));
    }
}
