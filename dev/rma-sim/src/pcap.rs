//! A capture at one host, as a file that Wireshark and tcpdump open: classic pcap, times in
//! nanoseconds, with Ethernet, IP and UDP headers made up around each packet of frames.
//!
//! Like a capture on that host it has what the host sent, whether that arrived or not, and what its
//! engine took from the device, copies and corrupted ones included. Times are true time: captures
//! of several hosts can be merged. Checksums are right for what arrived, since a simulated
//! corruption is one that no checksum has seen.

use std::io::{self, Write};

use rma_core::backend::Transmit;

use crate::net::{
    frame::{NodeId, Packet, ip_udp_len},
    trace::{Seen, What},
};

/// "Classic pcap, byte order of the writer, nanoseconds".
const MAGIC: u32 = 0xa1b2_3c4d;
const ETHERNET: u32 = 1;
const ETHERNET_HEADER_LEN: usize = 14;
const UDP_HEADER_LEN: usize = 8;
const UDP: u8 = 17;
const HOPS: u8 = 64;

/// The capture of one node.
#[derive(Debug)]
pub struct Capture<W> {
    node: NodeId,
    out: W,
    packet: Vec<u8>,
}

impl<W: Write> Capture<W> {
    /// Begins a capture at `node`.
    ///
    /// # Errors
    /// If `out` takes no bytes.
    pub fn new(node: NodeId, mut out: W) -> io::Result<Self> {
        let version: [u16; 2] = [2, 4];
        // Time zone, accuracy, the longest packet, what packets begin with.
        let rest: [u32; 4] = [0, 0, u16::MAX.into(), ETHERNET];
        out.write_all(&MAGIC.to_le_bytes())?;
        version.into_iter().try_for_each(|half| out.write_all(&half.to_le_bytes()))?;
        rest.into_iter().try_for_each(|word| out.write_all(&word.to_le_bytes()))?;
        Ok(Self { node, out, packet: Vec::new() })
    }

    /// Adds what happened, if it is a packet that the node sent or received.
    ///
    /// # Errors
    /// If the bytes cannot be written.
    pub fn take(&mut self, seen: &Seen) -> io::Result<()> {
        if seen.node != self.node {
            return Ok(());
        }
        match &seen.what {
            What::Left { packet, .. } => self.write(seen, packet, &packet.bytes),
            What::Came { packet, altered, .. } => {
                self.write(seen, packet, altered.as_deref().unwrap_or(&packet.bytes))
            }
            _ => Ok(()),
        }
    }

    /// Ends the capture.
    ///
    /// # Errors
    /// If what was buffered cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn write(&mut self, seen: &Seen, sent: &Packet, bytes: &[u8]) -> io::Result<()> {
        self.packet.clear();
        append_packet(&mut self.packet, sent, bytes);
        let nanos = seen.at.as_nanos();
        let len = self.packet.len() as u32;
        for word in [(nanos / 1_000_000_000) as u32, (nanos % 1_000_000_000) as u32, len, len] {
            self.out.write_all(&word.to_le_bytes())?;
        }
        self.out.write_all(&self.packet)
    }
}

fn append_packet(packet: &mut Vec<u8>, sent: &Packet, bytes: &[u8]) {
    let Transmit { source, destination, port, source_port, .. } = sent.transmit;
    let ipv4 = source.is_ipv4();
    packet.extend(mac(sent.to));
    packet.extend(mac(Some(sent.from)));
    packet.extend(if ipv4 { [0x08, 0x00] } else { [0x86, 0xdd] });

    let udp_len = (UDP_HEADER_LEN + bytes.len()) as u16;
    let addresses: Vec<u8> = [source, destination].map(octets).concat();
    if ipv4 {
        let total_len = (ip_udp_len(true) + bytes.len()) as u16;
        let [high, low] = total_len.to_be_bytes();
        // Version and header length, DSCP, length, no fragments, TTL, protocol, checksum.
        packet.extend([0x45, 0, high, low, 0, 0, 0x40, 0, HOPS, UDP, 0, 0]);
        packet.extend(&addresses);
        let sum = checksum(sum(0, &packet[ETHERNET_HEADER_LEN..]));
        packet[ETHERNET_HEADER_LEN + 10..ETHERNET_HEADER_LEN + 12].copy_from_slice(&sum);
    } else {
        let [high, low] = udp_len.to_be_bytes();
        packet.extend([0x60, 0, 0, 0, high, low, UDP, HOPS]);
        packet.extend(&addresses);
    }

    let udp_start = packet.len();
    packet.extend(source_port.0.to_be_bytes());
    packet.extend(port.0.to_be_bytes());
    packet.extend(udp_len.to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(bytes);
    let pseudo_header = sum(u64::from(UDP) + u64::from(udp_len), &addresses);
    let mut sum = checksum(sum(pseudo_header, &packet[udp_start..]));
    if sum == [0, 0] {
        // Zero would say that there is none.
        sum = [0xff, 0xff];
    }
    packet[udp_start + 6..udp_start + 8].copy_from_slice(&sum);
}

/// A locally administered MAC address for each node, and one for nobody.
fn mac(node: Option<NodeId>) -> [u8; 6] {
    let [high, low] = node.map_or(u16::MAX, |NodeId(number)| number).to_be_bytes();
    [0x02, 0, 0, 0, high, low]
}

fn octets(addr: rma_core::addr::HostAddr) -> Vec<u8> {
    match addr.ip() {
        core::net::IpAddr::V4(v4) => v4.octets().to_vec(),
        core::net::IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// `bytes` as 16-bit numbers, added to `start`.
fn sum(start: u64, bytes: &[u8]) -> u64 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    start + bytes.chunks(2).map(word).sum::<u64>()
}

/// The internet checksum: the sum folded to 16 bits, complemented.
fn checksum(mut sum: u64) -> [u8; 2] {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::swarm::run_seed;
    use rma_core::port::Port;

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(*bytes[at..].first_chunk().unwrap())
    }

    /// The packets of a capture, with their times.
    fn read(capture: &[u8]) -> Vec<(u64, &[u8])> {
        assert_eq!(capture[..8], [0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0]);
        assert_eq!(word(capture, 20), 1, "Ethernet");
        let (mut at, mut packets) = (24, Vec::new());
        while at < capture.len() {
            let [seconds, nanos, len, on_wire] =
                [0, 4, 8, 12].map(|field| word(capture, at + field));
            assert!(len == on_wire && nanos < 1_000_000_000);
            let start = at + 16;
            at = start + len as usize;
            packets
                .push((u64::from(seconds) * 1_000_000_000 + u64::from(nanos), &capture[start..at]));
        }
        packets
    }

    /// The frames in a packet whose headers are all right.
    fn unpack(packet: &[u8]) -> &[u8] {
        let ip = &packet[14..];
        let (udp, addresses) = match (packet[12], packet[13]) {
            (0x08, 0x00) => {
                assert_eq!((ip[0], ip[9]), (0x45, UDP));
                assert_eq!(checksum(sum(0, &ip[..20])), [0, 0]);
                assert_eq!(usize::from(ip[2]) << 8 | usize::from(ip[3]), ip.len());
                (&ip[20..], &ip[12..20])
            }
            (0x86, 0xdd) => {
                assert_eq!((ip[0], ip[6]), (0x60, UDP));
                assert_eq!(usize::from(ip[4]) << 8 | usize::from(ip[5]), ip.len() - 40);
                (&ip[40..], &ip[8..40])
            }
            other => panic!("EtherType {other:x?}"),
        };
        let pseudo_header = sum(u64::from(UDP) + udp.len() as u64, addresses);
        assert_eq!(checksum(sum(pseudo_header, udp)), [0, 0]);
        assert_eq!(udp[2..4], Port::ONE_RMA.0.to_be_bytes());
        assert!(udp[0] >= 0xc0 && usize::from(udp[4]) << 8 | usize::from(udp[5]) == udp.len());
        &udp[8..]
    }

    #[test]
    fn a_capture_reads_back_as_what_the_node_sent_and_received() {
        let mut families = std::collections::BTreeSet::new();
        let (mut corrupted, mut shared) = (0, 0);
        for seed in 0..20 {
            let mut capture = Capture::new(NodeId(1), Vec::new()).unwrap();
            let mut expected: Vec<(u64, Vec<u8>)> = Vec::new();
            let report = run_seed(seed, |seen| {
                capture.take(seen).unwrap();
                let bytes = match &seen.what {
                    What::Left { packet, .. } => {
                        shared += u32::from(packet.frames.len() > 1);
                        packet.bytes.to_vec()
                    }
                    What::Came { packet, altered, .. } => {
                        corrupted += u32::from(altered.is_some());
                        altered.as_deref().unwrap_or(&packet.bytes).to_vec()
                    }
                    _ => return,
                };
                if seen.node == NodeId(1) {
                    expected.push((seen.at.as_nanos(), bytes));
                }
            });
            report.unwrap_or_else(|found| panic!("{found}"));
            let capture = capture.finish().unwrap();
            let packets = read(&capture);
            families.extend(packets.iter().map(|(_, packet)| packet[12]));
            let read: Vec<_> =
                packets.into_iter().map(|(at, packet)| (at, unpack(packet).to_vec())).collect();
            assert!(read == expected, "seed {seed}");
        }
        assert!(families.len() == 2 && corrupted > 10 && shared > 10);
    }
}
