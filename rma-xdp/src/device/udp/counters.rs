//! The counters of the backend: the traffic, and one counter for each reason a frame was lost here.
//!
//! The engine thread is the only writer; any thread may read, while the host runs and after it.

use rma_core::{packet::sizes::PacketSizeCells, tally::Tally};

/// The counters of one backend, over all its sockets.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct UdpCounters {
    /// Packets handed to the engine.
    pub rx_packets: Tally,
    /// Receive calls that brought something. Fewer than `rx_packets`: several came with one.
    pub rx_calls: Tally,
    /// Packets that the kernel handed over together with others of their length (GRO).
    pub rx_gro_packets: Tally,
    /// Dropped: the datagram was longer than the largest frame,
    /// [`FRAME_LEN_MAX`](super::FRAME_LEN_MAX).
    pub rx_truncated: Tally,
    /// Dropped: the datagram came in fragments. No host sends any.
    pub rx_fragments: Tally,
    /// Dropped: an IPv4 address dressed up as an IPv6 source. One host has one name.
    pub rx_mapped_address: Tally,
    /// Receive calls that failed in another way than "nothing there": mostly what ICMP said about
    /// an earlier frame of ours. No frame is lost by it.
    pub rx_errors: Tally,
    /// Packets that the kernel took.
    pub tx_packets: Tally,
    /// Frames in those packets.
    pub tx_frames: Tally,
    /// Those packets by their frames.
    pub tx_packet_sizes: PacketSizeCells,
    /// Send calls by which the kernel took something.
    pub tx_calls: Tally,
    /// Packets that the kernel took together with others of their length (GSO).
    pub tx_gso_packets: Tally,
    /// Times that the kernel refused several packets as one. They are sent one by one then, and so
    /// are others for a while; none is lost. Grows for ever? Then the device or the path cannot do
    /// it (no checksum offload, IPsec): [`UdpBatching::gso`](super::UdpBatching::gso) off saves the
    /// attempts.
    pub tx_gso_refused: Tally,
    /// Times that the socket's send buffer was full (`EAGAIN`). The packet is held back and goes
    /// first; nothing is lost.
    pub tx_blocked: Tally,
    /// Packets of several frames that were longer than the MTU of the path as the kernel knows it
    /// (`EMSGSIZE`). Their frames were sent alone. Grows for ever? As `tx_too_long`.
    pub tx_split: Tally,
    /// Dropped: a frame was longer than the buffer, or than the MTU of the path as the kernel knows
    /// it (`EMSGSIZE`). Grows for ever? Then `mtu` in [`UdpConfig`](super::UdpConfig) is too large.
    pub tx_too_long: Tally,
    /// Dropped: the source or the port is none of ours, or the source is of another family than
    /// the destination.
    pub tx_no_socket: Tally,
    /// ICMP "port unreachable" about an earlier frame (`ECONNREFUSED`): nobody listens there. The
    /// frame at hand is tried once more.
    pub tx_refused: Tally,
    /// Dropped: no way there (`ENETUNREACH`, `EHOSTUNREACH`, `ENETDOWN`, `EADDRNOTAVAIL`).
    pub tx_unreachable: Tally,
    /// Dropped: the kernel had no memory or the device no queue space (`ENOBUFS`, `ENOMEM`).
    pub tx_no_buffers: Tally,
    /// Dropped: forbidden by a firewall rule or because the destination is a broadcast address
    /// (`EPERM`, `EACCES`).
    pub tx_forbidden: Tally,
    /// Dropped: refused for a reason that none of the others names.
    pub tx_failed: Tally,
    /// Frames dropped: notices to strangers whose packet was paid for, and that found none to join
    /// (P10), or none that its path carries.
    pub tx_unpaid: Tally,
}
