//! Headers of Ethernet, IP and UDP around frames whose own headers only a kernel has seen, so that
//! a capture has whole packets.

use core::net::IpAddr;

use crate::{
    addr::HostAddr,
    port::{Port, SourcePort},
};

const ETHERNET_LEN: usize = 14;
const UDP_LEN: usize = 8;
const UDP: u8 = 17;
const HOPS: u8 = 64;

/// The addresses and ports of a packet, and its length without headers.
#[derive(Clone, Copy, Debug)]
pub struct Envelope {
    /// The sender.
    pub source: HostAddr,
    /// The receiver.
    pub destination: HostAddr,
    /// The port that it was sent from.
    pub source_port: SourcePort,
    /// The port that it was sent to.
    pub port: Port,
    /// Made-up hardware addresses: of the receiver, and of the sender.
    pub macs: [[u8; 6]; 2],
    /// Octets behind the headers.
    pub len: usize,
}

/// Octets of the headers in a packet of IPv4, or of IPv6.
#[must_use]
pub const fn headers_len(is_ipv4: bool) -> usize {
    ETHERNET_LEN + UDP_LEN + if is_ipv4 { 20 } else { 40 }
}

/// Appends the headers of a packet. Of the checksums that of an IPv4 header is there, and that of
/// UDP if all the octets are known that it is about.
pub fn append(out: &mut Vec<u8>, envelope: &Envelope, all_octets: Option<&[u8]>) {
    let &Envelope { source, destination, source_port, port, macs, len } = envelope;
    let is_ipv4 = source.is_ipv4();
    macs.iter().for_each(|mac| out.extend_from_slice(mac));
    out.extend_from_slice(if is_ipv4 { &[0x08, 0x00] } else { &[0x86, 0xdd] });
    let udp_len = (UDP_LEN + len) as u16;
    let ip_start = out.len();
    if is_ipv4 {
        let [high, low] = (udp_len + 20).to_be_bytes();
        // Version and header length, DSCP, length, no fragments, TTL, protocol, checksum.
        out.extend_from_slice(&[0x45, 0, high, low, 0, 0, 0x40, 0, HOPS, UDP, 0, 0]);
    } else {
        let [high, low] = udp_len.to_be_bytes();
        out.extend_from_slice(&[0x60, 0, 0, 0, high, low, UDP, HOPS]);
    }
    let addresses_start = out.len();
    append_octets(out, source);
    append_octets(out, destination);
    if is_ipv4 {
        let sum = checksum(sum(0, &out[ip_start..]));
        out[ip_start + 10..ip_start + 12].copy_from_slice(&sum);
    }
    let udp_start = out.len();
    out.extend_from_slice(&source_port.0.to_be_bytes());
    out.extend_from_slice(&port.0.to_be_bytes());
    out.extend_from_slice(&udp_len.to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    if let Some(octets) = all_octets {
        let pseudo_header = u64::from(UDP) + u64::from(udp_len);
        let mut udp = checksum(sum(sum(pseudo_header, &out[addresses_start..]), octets));
        if udp == [0, 0] {
            // Zero would say that there is none.
            udp = [0xff, 0xff];
        }
        out[udp_start + 6..udp_start + 8].copy_from_slice(&udp);
    }
}

fn append_octets(out: &mut Vec<u8>, address: HostAddr) {
    match address.ip() {
        IpAddr::V4(v4) => out.extend_from_slice(&v4.octets()),
        IpAddr::V6(v6) => out.extend_from_slice(&v6.octets()),
    }
}

/// `bytes` as 16-bit numbers, added to `start`.
#[must_use]
pub fn sum(start: u64, bytes: &[u8]) -> u64 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    start + bytes.chunks(2).map(word).sum::<u64>()
}

/// The internet checksum: the sum folded to 16 bits, complemented.
#[must_use]
pub fn checksum(mut sum: u64) -> [u8; 2] {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}
