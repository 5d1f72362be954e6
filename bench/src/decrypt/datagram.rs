//! The UDP datagram in a captured packet.

use core::{net::IpAddr, ops::Range};

use rma_core::addr::HostAddr;

const ETHERNET: u32 = 1;
const RAW: u32 = 101;
const COOKED: u32 = 113;
const RAW_V4: u32 = 228;
const RAW_V6: u32 = 229;
const COOKED_2: u32 = 276;
const UDP: u8 = 17;
const UDP_HEADER_LEN: usize = 8;
/// The most VLAN tags, and extension headers, that are skipped.
const SKIPPED_MAX: usize = 8;

/// A datagram, and where its payload lies in the captured octets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Datagram {
    pub(super) source: HostAddr,
    pub(super) destination: HostAddr,
    /// The destination port.
    pub(super) port: u16,
    /// As much of the payload as was captured.
    pub(super) payload: Range<usize>,
    /// Whether that is not all.
    pub(super) is_cut: bool,
}

/// Whether packets of a link type are looked into.
pub(super) const fn is_known(link: u32) -> bool {
    matches!(link, ETHERNET | RAW | COOKED | RAW_V4 | RAW_V6 | COOKED_2)
}

fn u16_at(octets: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*octets.get(at..)?.first_chunk()?))
}

impl Datagram {
    /// The datagram that a packet is. `None` if it is none, or a part of one.
    pub(super) fn of(link: u32, packet: &[u8]) -> Option<Self> {
        let at = match link {
            ETHERNET => network_at(packet, 12)?,
            RAW | RAW_V4 | RAW_V6 => 0,
            COOKED => network_at(packet, 14)?,
            COOKED_2 if matches!(u16_at(packet, 0)?, 0x0800 | 0x86dd) => 20,
            _ => return None,
        };
        match packet.get(at)? >> 4 {
            4 => Self::of_v4(packet, at),
            6 => Self::of_v6(packet, at),
            _ => None,
        }
    }

    fn of_v4(packet: &[u8], at: usize) -> Option<Self> {
        let header: &[u8; 20] = packet.get(at..)?.first_chunk()?;
        let is_fragment = u16_at(header, 6)? & 0x3fff != 0;
        if header[9] != UDP || is_fragment {
            return None;
        }
        let address = |at: usize| Some(HostAddr::from(*header[at..].first_chunk::<4>()?));
        let ends = [address(12)?, address(16)?];
        Self::of_udp(packet, at + 4 * usize::from(header[0] & 15), ends)
    }

    fn of_v6(packet: &[u8], at: usize) -> Option<Self> {
        let header: &[u8; 40] = packet.get(at..)?.first_chunk()?;
        let address = |at: usize| {
            let octets: [u8; 16] = *header[at..].first_chunk()?;
            // A mapped address is never sent, and would be taken for one of IPv4.
            let is_mapped = matches!(IpAddr::from(octets).to_canonical(), IpAddr::V4(_));
            (!is_mapped).then(|| HostAddr::from_octets(octets))
        };
        let ends = [address(8)?, address(24)?];
        let (mut next, mut at) = (header[6], at + 40);
        for _ in 0..SKIPPED_MAX {
            match next {
                UDP => return Self::of_udp(packet, at, ends),
                0 | 43 | 60 => {
                    let &[following, len] = packet.get(at..)?.first_chunk()?;
                    (next, at) = (following, at + 8 + 8 * usize::from(len));
                }
                _ => return None,
            }
        }
        None
    }

    fn of_udp(packet: &[u8], at: usize, [source, destination]: [HostAddr; 2]) -> Option<Self> {
        let port = u16_at(packet, at + 2)?;
        let len = usize::from(u16_at(packet, at + 4)?).checked_sub(UDP_HEADER_LEN)?;
        let begin = at + UDP_HEADER_LEN;
        let there = packet.len().checked_sub(begin)?;
        let payload = begin..begin + len.min(there);
        Some(Self { source, destination, port, payload, is_cut: len > there })
    }
}

/// The octet at which an IP packet begins, behind its EtherType at `at` and VLAN tags.
fn network_at(packet: &[u8], mut at: usize) -> Option<usize> {
    for _ in 0..SKIPPED_MAX {
        match u16_at(packet, at)? {
            0x0800 | 0x86dd => return Some(at + 2),
            0x8100 | 0x88a8 | 0x9100 => at += 4,
            _ => return None,
        }
    }
    None
}
