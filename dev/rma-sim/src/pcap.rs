//! A capture at one host, as a file that Wireshark and tcpdump open, in the format of real hosts'
//! ([`rma_core::capture`]): with Ethernet, IP and UDP headers made up around each packet of frames.
//!
//! Like a capture on that host it has what the host sent, whether that arrived or not, and what its
//! engine took from the device, copies and corrupted ones included. Times are true time: captures
//! of several hosts can be merged. Checksums are right for what arrived, since a simulated
//! corruption is one that no checksum has seen.

use std::{
    io::{self, Write},
    sync::Arc,
};

use rma_core::{
    backend::Transmit,
    capture::{
        Blocks, Captured, Comment, Direction, Fate,
        headers::{self, Envelope},
    },
};

use crate::net::{
    frame::{Frame, NodeId, Packet},
    trace::{Seen, What},
};

/// The capture of one node.
#[derive(Debug)]
pub struct Capture<W> {
    node: NodeId,
    out: W,
    blocks: Blocks,
    octets: Vec<u8>,
    /// The packet that came last, as long as its frames are told of.
    came: Option<Came>,
}

#[derive(Debug)]
struct Came {
    at: u64,
    packet: Arc<Packet>,
    altered: Option<Arc<[u8]>>,
    fates: Vec<Fate>,
}

impl<W: Write> Capture<W> {
    /// Begins a capture at `node`.
    ///
    /// # Errors
    /// If `out` takes no bytes.
    pub fn new(node: NodeId, mut out: W) -> io::Result<Self> {
        let mut blocks = Blocks::new("1rma simulation");
        blocks.interface(&format!("{node}"), 0);
        out.write_all(blocks.octets())?;
        Ok(Self { node, out, blocks, octets: Vec::new(), came: None })
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
            What::Left { packet, .. } => {
                self.write_last()?;
                let fates = vec![Fate::Sent; packet.frames.len()];
                self.write(seen.at.as_nanos(), Direction::Out, packet, &packet.bytes, &fates)
            }
            What::Came { packet, altered, .. } => {
                self.write_last()?;
                let (at, fates) = (seen.at.as_nanos(), Vec::new());
                let (packet, altered) = (packet.clone(), altered.clone());
                self.came = Some(Came { at, packet, altered, fates });
                Ok(())
            }
            What::Received { frame, result, .. } => {
                self.note(Some(frame), (*result).into());
                Ok(())
            }
            What::Handed { frame } => {
                self.note(Some(frame), Fate::Elsewhere);
                Ok(())
            }
            What::Tail { tail, .. } => {
                self.note(None, Fate::Dropped(tail.reason));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Ends the capture.
    ///
    /// # Errors
    /// If what was buffered cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.write_last()?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Notes the fate of the next frame of the packet that came last. One from another engine of
    /// the host is none of them.
    fn note(&mut self, frame: Option<&Arc<Frame>>, fate: Fate) {
        if let Some(Came { packet, fates, .. }) = &mut self.came
            && frame.is_none_or(|it| packet.frames.iter().any(|of_it| Arc::ptr_eq(of_it, it)))
        {
            fates.push(fate);
        }
    }

    fn write_last(&mut self) -> io::Result<()> {
        let Some(Came { at, packet, altered, fates }) = self.came.take() else { return Ok(()) };
        let octets = altered.as_deref().unwrap_or(&packet.bytes);
        self.write(at, Direction::In, &packet, octets, &fates)
    }

    fn write(
        &mut self,
        at: u64,
        direction: Direction,
        sent: &Packet,
        bytes: &[u8],
        fates: &[Fate],
    ) -> io::Result<()> {
        let Transmit { source, destination, port, source_port, .. } = sent.transmit;
        let macs = [mac(sent.to), mac(Some(sent.from))];
        let len = bytes.len();
        let envelope = Envelope { source, destination, source_port, port, macs, len };
        self.octets.clear();
        headers::append(&mut self.octets, &envelope, Some(bytes));
        self.octets.extend_from_slice(bytes);
        let (octets, len) = (&*self.octets, self.octets.len());
        let packet = Captured { interface: 0, at, direction, octets, len, missed: 0 };
        let of = fates.len();
        let comments = fates.iter().enumerate();
        let comments = comments.map(|(index, &fate)| Comment::Frame { index, of, fate });
        self.blocks.clear();
        self.blocks.packet(&packet, comments);
        self.out.write_all(self.blocks.octets())
    }
}

/// A locally administered MAC address for each node, and one for nobody.
fn mac(node: Option<NodeId>) -> [u8; 6] {
    let [high, low] = node.map_or(u16::MAX, |NodeId(number)| number).to_be_bytes();
    [0x02, 0, 0, 0, high, low]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::swarm::run_seed;
    use pcap_parser::{
        Block, PcapNGReader,
        traits::{PcapNGPacketBlock, PcapReaderIterator},
    };
    use rma_core::{
        capture::headers::{checksum, sum},
        port::Port,
    };

    const UDP: u8 = 17;

    /// A packet of a capture: its time, its octets, and its comments.
    struct Read {
        at: u64,
        octets: Vec<u8>,
        comments: Vec<String>,
    }

    /// The packets of a capture.
    fn read(capture: &[u8]) -> Vec<Read> {
        let mut reader = PcapNGReader::new(1 << 20, capture).unwrap();
        let mut packets = Vec::new();
        loop {
            match reader.next() {
                Ok((len, block)) => {
                    if let pcap_parser::PcapBlockOwned::NG(Block::EnhancedPacket(it)) = &block {
                        let of = |it: &pcap_parser::PcapNGOption<'_>| {
                            String::from_utf8(it.value()[..it.len as usize].to_vec()).unwrap()
                        };
                        let comments = it.options.iter().filter(|it| it.code.0 == 1).map(of);
                        packets.push(Read {
                            at: u64::from(it.ts_high) << 32 | u64::from(it.ts_low),
                            octets: it.packet_data().to_vec(),
                            comments: comments.collect(),
                        });
                    }
                    reader.consume(len);
                }
                Err(pcap_parser::PcapError::Eof) => return packets,
                Err(pcap_parser::PcapError::Incomplete(_)) => reader.refill().unwrap(),
                Err(error) => panic!("{error:?}"),
            }
        }
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
        let mut fates = std::collections::BTreeSet::new();
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
            families.extend(packets.iter().map(|packet| packet.octets[12]));
            for Read { comments, .. } in &packets {
                let of = comments.len();
                for (index, comment) in comments.iter().enumerate() {
                    assert!(comment.starts_with(&format!("1rma {}/{of} ", index + 1)), "{comment}");
                    fates.insert(comment.rsplit(' ').next().unwrap().to_owned());
                }
            }
            let read: Vec<_> =
                packets.iter().map(|it| (it.at, unpack(&it.octets).to_vec())).collect();
            assert!(read == expected, "seed {seed}");
        }
        assert!(families.len() == 2 && corrupted > 10 && shared > 10);
        for fate in ["ok", "sent", "drop=RequestUnauthenticated"] {
            assert!(fates.contains(fate), "{fates:?}");
        }
    }
}
