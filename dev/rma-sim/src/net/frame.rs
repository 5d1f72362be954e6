//! A frame between nodes, whose number it bears, the packet that it shares with others, and how
//! long that is on the wire.
//!
//! Below the nodes that send them and the trace that tells of them.

use std::sync::Arc;

use rma_core::backend::Transmit;

/// The number of a node: of an engine of a host. A host goes by the number of its first engine;
/// those of all others follow on those of all hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub u16);

impl NodeId {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl core::fmt::Display for NodeId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "n{}", self.0)
    }
}

/// A frame as its sender sealed it.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    /// How many frames were sent before it.
    pub number: u64,
    /// The sender.
    pub from: NodeId,
    /// The node that has the destination address.
    pub to: Option<NodeId>,
    /// From where to where.
    pub transmit: Transmit,
    /// The frame.
    pub bytes: Box<[u8]>,
    /// The place of the frame in a packet as it was sent. `None`: no packet took it.
    pub berth: Option<Berth>,
}

/// The place of a frame in its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Berth {
    /// The number of the packet.
    pub packet: u64,
    /// How many frames are before it.
    pub index: u8,
    /// How many frames the packet has.
    pub of: u8,
}

/// The payload of one UDP datagram: what links carry, lose, copy and damage.
#[derive(Debug, PartialEq, Eq)]
pub struct Packet {
    /// How many packets were sent before it.
    pub number: u64,
    /// The sender.
    pub from: NodeId,
    /// The node that has the destination address.
    pub to: Option<NodeId>,
    /// From where to where, as its first frame goes, and its length.
    pub transmit: Transmit,
    /// Its frames, in their order.
    pub frames: Box<[Arc<Frame>]>,
    /// All of it.
    pub bytes: Box<[u8]>,
}

impl Packet {
    /// Octets on the wire, all headers included.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        wire_len(self.bytes.len(), self.transmit.source.is_ipv4())
    }
}

/// Octets of IP and UDP headers before a packet.
#[must_use]
pub const fn ip_udp_len(ipv4: bool) -> usize {
    if ipv4 { 20 + 8 } else { 40 + 8 }
}

/// Octets that Ethernet adds on the wire: header, checksum, preamble and gap.
const ETHERNET_LEN: usize = 14 + 4 + 8 + 12;

/// Octets that a packet of `len` takes on the wire.
#[must_use]
pub const fn wire_len(len: usize, ipv4: bool) -> usize {
    len + ip_udp_len(ipv4) + ETHERNET_LEN
}
