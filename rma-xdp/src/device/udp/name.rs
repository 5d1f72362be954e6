//! Addresses as the kernel has them: of both families in one struct, that of IPv6.

use std::{
    ffi::c_int,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// An address and a UDP port, of either family, as the kernel reads and writes it.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(super) struct Name(libc::sockaddr_in6);

impl Name {
    /// One that nobody has written: of no family.
    pub(super) const NOBODY: Self = Self(libc::sockaddr_in6 {
        sin6_family: 0,
        sin6_port: 0,
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
        sin6_scope_id: 0,
    });

    /// The length of the longer ones.
    pub(super) const LEN_MAX: libc::socklen_t = size_of::<libc::sockaddr_in6>() as _;

    /// The name of a port of an address.
    pub(super) const fn new(address: IpAddr, port: u16) -> Self {
        let mut name = Self::NOBODY;
        name.0.sin6_port = port.to_be();
        match address {
            IpAddr::V4(v4) => {
                name.0.sin6_family = libc::AF_INET as _;
                name.0.sin6_flowinfo = v4.to_bits().to_be();
            }
            IpAddr::V6(v6) => {
                name.0.sin6_family = libc::AF_INET6 as _;
                name.0.sin6_addr.s6_addr = v6.octets();
            }
        }
        name
    }

    /// Its length, which the kernel may want to be that of its family.
    pub(super) const fn len(&self) -> libc::socklen_t {
        match self.0.sin6_family as c_int {
            libc::AF_INET => size_of::<libc::sockaddr_in>() as _,
            _ => Self::LEN_MAX,
        }
    }

    /// The UDP port.
    pub(super) const fn port(&self) -> u16 {
        u16::from_be(self.0.sin6_port)
    }

    /// The address; `None` for one of no IP family.
    pub(super) fn address(&self) -> Option<IpAddr> {
        match c_int::from(self.0.sin6_family) {
            libc::AF_INET6 => Some(Ipv6Addr::from(self.0.sin6_addr.s6_addr).into()),
            libc::AF_INET => Some(Ipv4Addr::from(u32::from_be(self.0.sin6_flowinfo)).into()),
            _ => None,
        }
    }
}

const _: () = {
    // The offset that IPv4 in the larger struct rests on: its address lies where that of IPv6 has
    // its flow information.
    use core::mem::offset_of;
    use libc::{sockaddr_in, sockaddr_in6};
    assert!(offset_of!(sockaddr_in, sin_addr) == offset_of!(sockaddr_in6, sin6_flowinfo));
    assert!(offset_of!(sockaddr_in, sin_family) == offset_of!(sockaddr_in6, sin6_family));
    assert!(offset_of!(sockaddr_in, sin_port) == offset_of!(sockaddr_in6, sin6_port));
    assert!(size_of::<sockaddr_in>() <= size_of::<sockaddr_in6>());
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_they_were_made_of() {
        for text in ["192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1"] {
            let address: IpAddr = text.parse().unwrap();
            let name = Name::new(address, 10_472);
            assert_eq!(name.address(), Some(address));
            assert_eq!(name.port(), 10_472);
            assert_eq!(name.len(), if address.is_ipv4() { 16 } else { 28 });
        }
        assert_eq!(Name::NOBODY.address(), None);
    }
}
