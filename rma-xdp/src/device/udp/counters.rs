//! What the backend counts: the traffic, and one counter for each reason a frame was lost here.
//!
//! The engine thread is the only writer; any thread may read, while the host runs and after it.

use rma_core::tally::Tally;

/// The counters of one backend, over all its sockets.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct UdpCounters {
    /// Frames handed to the engine.
    pub rx_frames: Tally,
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
    /// Frames that the kernel took.
    pub tx_frames: Tally,
    /// Times that the socket's send buffer was full (`EAGAIN`). The frame is held back and goes
    /// first, none is lost.
    pub tx_blocked: Tally,
    /// Dropped: longer than the buffer it was written into, or than the MTU of the path as the
    /// kernel knows it (`EMSGSIZE`). Grows for ever? Then `mtu` in [`UdpConfig`](super::UdpConfig)
    /// is too large.
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
}
