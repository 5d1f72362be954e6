//! Ethernet, VLAN, IPv4, IPv6 and UDP headers around a frame, in userspace.
//!
//! Not a protocol stack: it accepts exactly what the steering program redirects (`ebpf/`), so that
//! a packet is either for us in both places or in neither, and it also checks every length.
//! Invariant: for arbitrary bytes [`parse`] returns a range inside the packet or an error, and
//! never panics.
//!
//! UDP checksums are written where IPv6 demands them and never verified: a kernel sender on the
//! same machine leaves only a partial checksum (`CHECKSUM_PARTIAL`), which veth passes on as it is.
//! The authentication tag covers the payload, and both addresses enter the key.

use core::{
    net::{Ipv4Addr, Ipv6Addr},
    ops::Range,
};

use rma_core::{
    addr::HostAddr,
    port::{Port, Ports, SourcePort},
};

use crate::device::traffic::Dscp;

/// A hardware address, in bytes.
pub(super) const MAC_LEN: usize = 6;
/// Ethernet header without tags, in bytes.
pub const ETHERNET_LEN: usize = 14;
/// One VLAN tag, in bytes.
pub const VLAN_TAG_LEN: usize = 4;
/// VLAN tags that are skipped: one, or two for a provider bridge.
pub const VLAN_TAGS_MAX: usize = 2;
/// IPv4 header without options, in bytes.
pub const IPV4_LEN: usize = 20;
/// IPv6 header without extensions, in bytes.
pub const IPV6_LEN: usize = 40;
/// IPv6 extension headers that are skipped. The steering program has the same limit.
pub const EXTENSIONS_MAX: usize = 4;
/// UDP header, in bytes.
pub const UDP_LEN: usize = 8;
/// All headers in front of a frame sent over IPv4.
pub const HEADERS_V4: usize = ETHERNET_LEN + IPV4_LEN + UDP_LEN;
/// All headers in front of a frame sent over IPv6: the most that [`Headers::write`] needs.
pub const HEADERS_V6: usize = ETHERNET_LEN + IPV6_LEN + UDP_LEN;

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
pub(super) const ETHERTYPE_VLAN: [u8; 2] = [0x81, 0x00];
pub(super) const ETHERTYPE_PROVIDER_VLAN: [u8; 2] = [0x88, 0xa8];
const PROTOCOL_UDP: u8 = 17;
const EXTENSION_HOP_BY_HOP: u8 = 0;
const EXTENSION_ROUTING: u8 = 43;
const EXTENSION_DESTINATION: u8 = 60;
/// More-fragments flag and fragment offset.
const FRAGMENT: u16 = 0x3fff;
/// Don't fragment: a router that cannot forward drops, instead of making work for reassembly.
const DONT_FRAGMENT: [u8; 2] = [0x40, 0x00];
/// Time to live and hop limit of what we send: the kernel's default for unicast.
const HOP_LIMIT: u8 = 64;

/// The reason why a packet was not taken. Each reason has a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// The packet ends inside a header.
    #[error("the packet ends inside a header")]
    Truncated,
    /// Neither IPv4 nor IPv6, or behind more than two VLAN tags.
    #[error("the EtherType is neither IPv4 nor IPv6")]
    EtherType,
    /// The version or header length field contradicts itself or the EtherType.
    #[error("the IP header has the wrong version or an impossible header length")]
    IpHeader,
    /// A fragment of an IPv4 datagram.
    #[error("the packet is an IPv4 fragment")]
    Fragment,
    /// Not UDP, or UDP behind an extension header that is not skipped or beyond the fourth.
    #[error("the packet is not UDP, or lies behind too many extension headers")]
    Protocol,
    /// UDP to a port that is none of ours.
    #[error("the UDP destination port is none of ours")]
    Port,
    /// The length in the IP header is longer than the packet or shorter than its headers.
    #[error("the length in the IP header does not fit the packet")]
    IpLength,
    /// The length in the UDP header is longer than the IP datagram or shorter than the UDP header.
    #[error("the length in the UDP header does not fit the datagram")]
    UdpLength,
    /// An IPv4-mapped address in an IPv6 header: not valid on a wire, and it would name an IPv4
    /// host.
    #[error("an IPv6 header carries an IPv4-mapped address")]
    MappedAddress,
}

/// The datagram that [`parse`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The IP source address.
    pub source: HostAddr,
    /// The IP destination address.
    pub destination: HostAddr,
    /// The UDP destination port: one of ours.
    pub port: Port,
    /// The UDP source port.
    pub source_port: SourcePort,
    /// The range of the UDP payload in the packet. Ethernet padding is not part of it.
    pub payload: Range<usize>,
}

/// Finds the payload of an unfragmented UDP datagram to one of `ports`, from the start of its
/// Ethernet header.
///
/// # Errors
/// The first [`PacketError`] that applies.
#[inline]
pub fn parse(packet: &[u8], ports: &Ports) -> Result<Datagram, PacketError> {
    let mut at = ETHERNET_LEN - 2;
    let mut ether_type = read::<2>(packet, at)?;
    for _ in 0..VLAN_TAGS_MAX {
        if ether_type != ETHERTYPE_VLAN && ether_type != ETHERTYPE_PROVIDER_VLAN {
            break;
        }
        at += VLAN_TAG_LEN;
        ether_type = read::<2>(packet, at)?;
    }
    let ip = at + 2;
    let (source, destination, udp, end) = match ether_type {
        ETHERTYPE_IPV4 => ipv4(packet, ip)?,
        ETHERTYPE_IPV6 => ipv6(packet, ip)?,
        _ => return Err(PacketError::EtherType),
    };
    let [source_high, source_low, port_high, port_low, len_high, len_low, _, _] =
        read::<UDP_LEN>(packet, udp)?;
    let source_port = SourcePort(u16::from_be_bytes([source_high, source_low]));
    let port = Port(u16::from_be_bytes([port_high, port_low]));
    if !ports.contains(port) {
        return Err(PacketError::Port);
    }
    // `end` is inside the packet; the UDP header may still lie behind it.
    let room = end.checked_sub(udp).ok_or(PacketError::IpLength)?;
    let len = usize::from(u16::from_be_bytes([len_high, len_low]));
    if len < UDP_LEN || len > room {
        return Err(PacketError::UdpLength);
    }
    Ok(Datagram { source, destination, port, source_port, payload: udp + UDP_LEN..udp + len })
}

/// Source, destination, where UDP starts, where the datagram ends.
type Network = (HostAddr, HostAddr, usize, usize);

#[inline]
fn ipv4(packet: &[u8], ip: usize) -> Result<Network, PacketError> {
    let header = read::<IPV4_LEN>(packet, ip)?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    if header[0] >> 4 != 4 || header_len < IPV4_LEN {
        return Err(PacketError::IpHeader);
    }
    if u16::from_be_bytes([header[6], header[7]]) & FRAGMENT != 0 {
        return Err(PacketError::Fragment);
    }
    if header[9] != PROTOCOL_UDP {
        return Err(PacketError::Protocol);
    }
    let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if total_len < header_len || total_len > packet.len() - ip {
        return Err(PacketError::IpLength);
    }
    let source = Ipv4Addr::new(header[12], header[13], header[14], header[15]);
    let destination = Ipv4Addr::new(header[16], header[17], header[18], header[19]);
    Ok((source.into(), destination.into(), ip + header_len, ip + total_len))
}

#[inline]
fn ipv6(packet: &[u8], ip: usize) -> Result<Network, PacketError> {
    let header = read::<IPV6_LEN>(packet, ip)?;
    if header[0] >> 4 != 6 {
        return Err(PacketError::IpHeader);
    }
    let mut next = header[6];
    let mut at = ip + IPV6_LEN;
    for _ in 0..EXTENSIONS_MAX {
        if !matches!(next, EXTENSION_HOP_BY_HOP | EXTENSION_ROUTING | EXTENSION_DESTINATION) {
            break;
        }
        let [following, units] = read::<2>(packet, at)?;
        next = following;
        at += (usize::from(units) + 1) * 8;
    }
    if next != PROTOCOL_UDP {
        return Err(PacketError::Protocol);
    }
    let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    if payload_len > packet.len() - ip - IPV6_LEN {
        return Err(PacketError::IpLength);
    }
    let source = Ipv6Addr::from_octets(octets16(&header, 8));
    let destination = Ipv6Addr::from_octets(octets16(&header, 24));
    if source.to_ipv4_mapped().is_some() || destination.to_ipv4_mapped().is_some() {
        return Err(PacketError::MappedAddress);
    }
    Ok((source.into(), destination.into(), at, ip + IPV6_LEN + payload_len))
}

#[inline]
fn read<const N: usize>(packet: &[u8], at: usize) -> Result<[u8; N], PacketError> {
    let rest = packet.get(at..).ok_or(PacketError::Truncated)?;
    rest.first_chunk().copied().ok_or(PacketError::Truncated)
}

fn octets16(header: &[u8; IPV6_LEN], at: usize) -> [u8; 16] {
    core::array::from_fn(|i| header[at + i])
}

/// The fields of the headers of a frame that we send.
#[derive(Clone, Copy, Debug)]
pub struct Headers {
    /// The interface's hardware address.
    pub source_mac: [u8; 6],
    /// The hardware address of the next hop.
    pub next_hop_mac: [u8; 6],
    /// Our address, of the same family as `destination`.
    pub source: HostAddr,
    /// The host that the frame goes to.
    pub destination: HostAddr,
    /// The UDP source port.
    pub source_port: SourcePort,
    /// The UDP destination port.
    pub port: Port,
    /// The traffic class.
    pub dscp: Dscp,
}

impl Headers {
    /// How many bytes [`Headers::write`] puts in front of a payload to `destination`.
    #[inline]
    #[must_use]
    pub const fn len_for(destination: HostAddr) -> usize {
        if destination.is_ipv4() { HEADERS_V4 } else { HEADERS_V6 }
    }

    /// Writes the headers at the start of `packet`; the rest of `packet` is the payload, which is
    /// already there.
    ///
    /// # Panics
    /// If `packet` is shorter than its headers ([`Headers::len_for`]), if it is longer than 64 KiB,
    /// or if the two addresses are not of one family: the caller has checked all three.
    #[inline]
    pub fn write(&self, packet: &mut [u8]) {
        let (header, payload) = packet.split_at_mut(Self::len_for(self.destination));
        self.write_header(header, payload.len(), || sum(payload));
    }

    /// Writes the headers of a packet at the start of `chunk`, whose payload is what `pieces` gives
    /// each time that it is asked, one piece after the other. Returns how long the headers are.
    ///
    /// # Panics
    /// As [`Headers::write`].
    pub fn write_before<'p, P: Iterator<Item = &'p [u8]>>(
        &self,
        chunk: &mut [u8],
        pieces: impl Fn() -> P,
    ) -> usize {
        let headers_len = Self::len_for(self.destination);
        let len = pieces().map(<[u8]>::len).sum();
        self.write_header(&mut chunk[..headers_len], len, || sum_of(pieces()));
        headers_len
    }

    /// Writes the headers of a packet with `payload_len` octets of payload, whose [`sum`] is asked
    /// for if it is needed.
    #[inline(always)]
    fn write_header(
        &self,
        header: &mut [u8],
        payload_len: usize,
        payload_sum: impl FnOnce() -> u64,
    ) {
        match (self.source.ip(), self.destination.ip()) {
            (core::net::IpAddr::V4(source), core::net::IpAddr::V4(destination)) => {
                self.write_v4(header, payload_len, source, destination);
            }
            (core::net::IpAddr::V6(source), core::net::IpAddr::V6(destination)) => {
                self.write_v6(header, payload_len, payload_sum, source, destination);
            }
            _ => panic!("source {} and destination {}", self.source, self.destination),
        }
    }

    #[inline]
    fn write_v4(
        &self,
        header: &mut [u8],
        payload_len: usize,
        source: Ipv4Addr,
        destination: Ipv4Addr,
    ) {
        let total_len = length(IPV4_LEN + UDP_LEN + payload_len);
        let udp_len = length(UDP_LEN + payload_len);
        let header: &mut [u8; HEADERS_V4] =
            header.first_chunk_mut().expect("the caller left room for the headers");
        self.write_ethernet(header.first_chunk_mut().expect("14 < 42"), ETHERTYPE_IPV4);
        let mut ip = [0; IPV4_LEN];
        ip[0] = 0x45;
        ip[1] = self.dscp.octet();
        ip[2..4].copy_from_slice(&total_len);
        ip[6..8].copy_from_slice(&DONT_FRAGMENT);
        ip[8] = HOP_LIMIT;
        ip[9] = PROTOCOL_UDP;
        ip[12..16].copy_from_slice(&source.octets());
        ip[16..20].copy_from_slice(&destination.octets());
        let checksum = fold(sum(&ip));
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        header[ETHERNET_LEN..][..IPV4_LEN].copy_from_slice(&ip);
        // A zero UDP checksum over IPv4 means none (RFC 768).
        header[ETHERNET_LEN + IPV4_LEN..].copy_from_slice(&self.udp(udp_len));
    }

    #[inline]
    fn write_v6(
        &self,
        header: &mut [u8],
        payload_len: usize,
        payload_sum: impl FnOnce() -> u64,
        source: Ipv6Addr,
        destination: Ipv6Addr,
    ) {
        let udp_len = length(UDP_LEN + payload_len);
        let header: &mut [u8; HEADERS_V6] =
            header.first_chunk_mut().expect("the caller left room for the headers");
        self.write_ethernet(header.first_chunk_mut().expect("14 < 62"), ETHERTYPE_IPV6);
        let mut ip = [0; IPV6_LEN];
        ip[0] = 0x60 | self.dscp.octet() >> 4;
        ip[1] = self.dscp.octet() << 4;
        ip[4..6].copy_from_slice(&udp_len);
        ip[6] = PROTOCOL_UDP;
        ip[7] = HOP_LIMIT;
        ip[8..24].copy_from_slice(&source.octets());
        ip[24..40].copy_from_slice(&destination.octets());
        let mut udp = self.udp(udp_len);
        let pseudo = sum(&ip[8..40])
            + u64::from(u16::from_be_bytes(udp_len))
            + u64::from(PROTOCOL_UDP)
            + sum(&udp)
            + payload_sum();
        // Over IPv6 zero means none as well, and none is not allowed: zero is sent as all ones
        // (RFC 8200, section 8.1).
        let checksum = match fold(pseudo) {
            0 => 0xffff,
            other => other,
        };
        udp[6..8].copy_from_slice(&checksum.to_be_bytes());
        header[ETHERNET_LEN..][..IPV6_LEN].copy_from_slice(&ip);
        header[ETHERNET_LEN + IPV6_LEN..].copy_from_slice(&udp);
    }

    #[inline]
    fn write_ethernet(&self, header: &mut [u8; ETHERNET_LEN], ether_type: [u8; 2]) {
        header[..6].copy_from_slice(&self.next_hop_mac);
        header[6..12].copy_from_slice(&self.source_mac);
        header[12..].copy_from_slice(&ether_type);
    }

    /// The UDP header with a checksum of zero.
    #[inline]
    fn udp(&self, len: [u8; 2]) -> [u8; UDP_LEN] {
        let source_port = self.source_port.0.to_be_bytes();
        let port = self.port.0.to_be_bytes();
        [source_port[0], source_port[1], port[0], port[1], len[0], len[1], 0, 0]
    }
}

/// A length field. What we send has been compared with an MTU, which is below 64 KiB.
#[inline]
fn length(len: usize) -> [u8; 2] {
    u16::try_from(len).expect("the caller compared the packet with an MTU").to_be_bytes()
}

/// The sum of the big-endian 16-bit words of `bytes`, padded with a zero byte. Cannot overflow: a
/// packet has fewer than 2^15 words. Summing 32-bit words gives the same ones' complement sum, once
/// it is folded, in half the steps.
#[inline]
fn sum(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(4);
    let mut total: u64 = words
        .by_ref()
        .map(|word| u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]])))
        .sum();
    let mut last = [0; 4];
    let rest = words.remainder();
    last[..rest.len()].copy_from_slice(rest);
    total += u64::from(u32::from_be_bytes(last));
    total
}

/// The [`sum`] of octets that come in pieces, once it is folded.
fn sum_of<'p>(pieces: impl Iterator<Item = &'p [u8]>) -> u64 {
    let (mut total, mut is_odd) = (0, false);
    for piece in pieces {
        let own = !fold(sum(piece));
        // Behind an odd number of octets, those of each word have changed places, and so have those
        // of their sum (RFC 1071, section 2).
        total += u64::from(if is_odd { own.swap_bytes() } else { own });
        is_odd ^= !piece.len().is_multiple_of(2);
    }
    total
}

/// The internet checksum of a sum of words (RFC 1071).
#[inline]
const fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests;
