//! A frame between nodes, whose number it bears, and how long it is on the wire.
//!
//! Below the nodes that send it and the trace that tells of it.

use rma_core::backend::Transmit;

/// The number of a node.
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
}

impl Frame {
    /// Octets on the wire, all headers included.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        wire_len(self.bytes.len(), self.transmit.source.is_ipv4())
    }
}

/// Octets of IP and UDP headers before a frame.
#[must_use]
pub const fn ip_udp_len(ipv4: bool) -> usize {
    if ipv4 { 20 + 8 } else { 40 + 8 }
}

/// Octets that Ethernet adds on the wire: header, checksum, preamble and gap.
const ETHERNET_LEN: usize = 14 + 4 + 8 + 12;

/// Octets that a frame of `len` takes on the wire.
#[must_use]
pub const fn wire_len(len: usize, ipv4: bool) -> usize {
    len + ip_udp_len(ipv4) + ETHERNET_LEN
}
