//! The names of initiators: the host's address and the process's PID (1RMA §4.2).

use core::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// The address of a 1RMA NIC: an IPv4 or IPv6 unicast address.
///
/// It has no port: all NICs of a deployment listen on the same UDP port, and the source port says
/// nothing about a host. An IPv4 address mapped into IPv6 is the IPv4 address, so that one host has
/// one name.
///
/// Kept as the two halves of an IPv6 address, with IPv4 addresses mapped: addresses are compared
/// and copied for every frame, and an [`IpAddr`] is 17 bytes that no load reads as they were
/// stored: 16 ns of a 64 B READ by `turn64_initiator_ops_per_s`, and 6 by
/// `turn64_responder_ops_per_s`, when this was written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostAddr([u64; 2]);

/// The value that the low half of a mapped IPv4 address begins with.
const MAPPED: u64 = 0xffff;

impl HostAddr {
    /// The address family, as the `ip` command names it: 4 or 6.
    #[must_use]
    pub const fn version(self) -> u8 {
        if self.is_ipv4() { 4 } else { 6 }
    }

    /// Whether this is an IPv4 address.
    #[must_use]
    pub const fn is_ipv4(self) -> bool {
        let [high, low] = self.0;
        high == 0 && low >> 32 == MAPPED
    }

    /// The IP address.
    #[must_use]
    pub const fn ip(self) -> IpAddr {
        Ipv6Addr::from_octets(self.to_octets()).to_canonical()
    }

    /// Returns the bits that tell hosts apart: an IPv4 address, or the /64 of an IPv6 address,
    /// because one host has as many addresses of that as it likes.
    #[must_use]
    pub const fn host_bits(self) -> u64 {
        let [high, low] = self.0;
        if self.is_ipv4() { low } else { high }
    }

    /// Sixteen octets that name this address: IPv6 as it is, IPv4 mapped (`::ffff:a.b.c.d`).
    #[must_use]
    pub const fn to_octets(self) -> [u8; 16] {
        let [high, low] = self.0;
        ((high as u128) << 64 | low as u128).to_be_bytes()
    }

    /// The address that [`HostAddr::to_octets`] names.
    #[must_use]
    pub const fn from_octets(octets: [u8; 16]) -> Self {
        let bits = u128::from_be_bytes(octets);
        Self([(bits >> 64) as u64, bits as u64])
    }
}

impl From<IpAddr> for HostAddr {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => v4.into(),
            IpAddr::V6(v6) => v6.into(),
        }
    }
}

impl From<Ipv4Addr> for HostAddr {
    fn from(ip: Ipv4Addr) -> Self {
        ip.to_ipv6_mapped().into()
    }
}

impl From<[u8; 4]> for HostAddr {
    fn from(octets: [u8; 4]) -> Self {
        Ipv4Addr::from(octets).into()
    }
}

impl From<Ipv6Addr> for HostAddr {
    fn from(ip: Ipv6Addr) -> Self {
        Self::from_octets(ip.octets())
    }
}

impl FromStr for HostAddr {
    type Err = core::net::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<IpAddr>().map(Self::from)
    }
}

impl fmt::Display for HostAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ip().fmt(f)
    }
}

impl fmt::Debug for HostAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ip().fmt(f)
    }
}

/// The addresses of one host: at most one of each family. A frame for any other address is not
/// ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalAddresses {
    v4: Option<HostAddr>,
    v6: Option<HostAddr>,
}

impl LocalAddresses {
    /// Sets the address of `addr`'s family; returns the one that was set before.
    pub const fn insert(&mut self, addr: HostAddr) -> Option<HostAddr> {
        if addr.is_ipv4() { self.v4.replace(addr) } else { self.v6.replace(addr) }
    }

    /// The address of the same family as `peer`: the source of frames to it.
    #[must_use]
    pub const fn toward(&self, peer: HostAddr) -> Option<HostAddr> {
        if peer.is_ipv4() { self.v4 } else { self.v6 }
    }

    /// Whether `addr` is one of them.
    #[must_use]
    pub fn contains(&self, addr: HostAddr) -> bool {
        self.toward(addr) == Some(addr)
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.v4.is_none() && self.v6.is_none()
    }

    /// The addresses, IPv4 first.
    pub fn iter(&self) -> impl Iterator<Item = HostAddr> + use<> {
        self.v4.into_iter().chain(self.v6)
    }
}

impl From<HostAddr> for LocalAddresses {
    fn from(addr: HostAddr) -> Self {
        let mut addresses = Self::default();
        addresses.insert(addr);
        addresses
    }
}

/// The process that initiates an op. The driver fixes it when it hands out command slots; the NIC
/// puts it into every request (§4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(pub u32);

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_round_trip_in_both_families() {
        for text in ["192.0.2.7", "2001:db8::7", "::1"] {
            let addr: HostAddr = text.parse().unwrap();
            assert_eq!(HostAddr::from_octets(addr.to_octets()), addr);
            assert_eq!(addr.to_string(), text);
        }
    }

    #[test]
    fn local_addresses_are_found_by_family() {
        let (v4, v6): (HostAddr, HostAddr) =
            ("192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
        let mut addresses = LocalAddresses::default();
        assert!(addresses.is_empty());
        assert_eq!(addresses.insert(v6), None);
        assert_eq!(addresses.toward(v4), None);
        addresses.insert(v4);
        assert!(addresses.contains(v4) && addresses.contains(v6));
        assert!(!addresses.contains("192.0.2.2".parse().unwrap()));
        assert_eq!(addresses.toward("2001:db8::2".parse().unwrap()), Some(v6));
        assert_eq!(addresses.iter().collect::<Vec<_>>(), [v4, v6]);
    }

    #[test]
    fn a_mapped_ipv4_address_is_the_ipv4_address() {
        let mapped: HostAddr = "::ffff:192.0.2.7".parse().unwrap();
        assert_eq!(mapped, "192.0.2.7".parse().unwrap());
        assert_eq!(mapped.version(), 4);
    }
}
