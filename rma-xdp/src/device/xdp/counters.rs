//! The counters of the backend: one counter for each reason a frame was dropped, and the traffic
//! itself.
//!
//! The engine thread is the only writer (of the last one the thread that follows the interface, in
//! the first engine's), so an addition is a load and a store, without a locked instruction; any
//! thread may read. Counters wrap after 2^64.

use rma_core::{packet::sizes::PacketSizeCells, tally::Tally};

use super::packet::PacketError;

/// The counters of one backend, so of one engine, over all its queues.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Packets handed to the engine.
    pub rx_packets: Tally,
    /// Received packets that lay in several chunks and were put together with a copy.
    pub rx_multi_buffer: Tally,
    /// Dropped: a packet in several chunks was longer than the largest that can arrive.
    pub rx_too_long: Tally,
    /// Dropped: the destination is none of the configured local addresses.
    pub rx_not_local: Tally,
    /// Dropped: [`PacketError::Truncated`].
    pub rx_truncated: Tally,
    /// Dropped: [`PacketError::EtherType`].
    pub rx_ether_type: Tally,
    /// Dropped: [`PacketError::IpHeader`].
    pub rx_ip_header: Tally,
    /// Dropped: [`PacketError::Fragment`].
    pub rx_fragment: Tally,
    /// Dropped: [`PacketError::Protocol`].
    pub rx_protocol: Tally,
    /// Dropped: [`PacketError::Port`].
    pub rx_port: Tally,
    /// Dropped: [`PacketError::IpLength`].
    pub rx_ip_length: Tally,
    /// Dropped: [`PacketError::UdpLength`].
    pub rx_udp_length: Tally,
    /// Dropped: [`PacketError::MappedAddress`].
    pub rx_mapped_address: Tally,
    /// Descriptors from the kernel that were not lent to it or leave their chunk. Never in a
    /// healthy system.
    pub descriptors_refused: Tally,
    /// Receive chunks that found no place on the fill ring and are out of use. Never: the ring is
    /// larger than all of them.
    pub chunks_lost: Tally,
    /// Packets put on the transmit ring.
    pub tx_packets: Tally,
    /// Frames in those packets.
    pub tx_frames: Tally,
    /// Those packets by their frames.
    pub tx_packet_sizes: PacketSizeCells,
    /// Transmitted packets that needed several chunks.
    pub tx_multi_buffer: Tally,
    /// Packets of the other address family than the one before, which had to be moved.
    pub tx_moved: Tally,
    /// Frames dropped: no route, or the next hop has not answered yet.
    pub tx_no_path: Tally,
    /// Frames dropped: the interface was gone.
    pub tx_no_interface: Tally,
    /// Packets of notices to hosts without a path that went back over the link by which their
    /// causes came.
    pub tx_link_return: Tally,
    /// Frames dropped: such notices whose cause came from a hardware address that nothing may go
    /// to: a group, zero, or our own.
    pub tx_link_refused: Tally,
    /// Frames dropped: their packet was longer than the path MTU, or than the buffer it was
    /// written into.
    pub tx_too_long: Tally,
    /// Frames dropped: source and destination are of different address families.
    pub tx_family: Tally,
    /// Frames dropped: notices to strangers whose packet was paid for, and that found none to join
    /// (P10).
    pub tx_unpaid: Tally,
    /// Times that no buffer could be offered because the transmit chunks were with the kernel.
    pub tx_ring_full: Tally,
    /// Doorbells rung: system calls.
    pub tx_wakeups: Tally,
    /// Doorbells that the kernel wants rung again (`EAGAIN`, `EBUSY`, `ENOBUFS`, `EINTR`).
    pub tx_wakeups_busy: Tally,
    /// Doorbells refused because the interface was down (`ENETDOWN`).
    pub tx_wakeups_down: Tally,
    /// Doorbells that failed in a way that no repetition mends: see [`super::XdpBackend::failure`].
    pub tx_wakeups_failed: Tally,
    /// Times that the device was found to be mute with zero-copy: to deliver no packets, or to
    /// send none.
    pub zero_copy_mute: Tally,
}

impl Counters {
    /// Packets that came out of a receive ring, whatever became of them.
    #[must_use]
    pub fn received(&self) -> u64 {
        let dropped = [
            &self.rx_too_long,
            &self.rx_not_local,
            &self.rx_truncated,
            &self.rx_ether_type,
            &self.rx_ip_header,
            &self.rx_fragment,
            &self.rx_protocol,
            &self.rx_port,
            &self.rx_ip_length,
            &self.rx_udp_length,
            &self.rx_mapped_address,
        ];
        let dropped = dropped.iter().map(|tally| tally.load());
        dropped.fold(self.rx_packets.load(), u64::wrapping_add)
    }

    /// The counter of packets dropped for `error`.
    #[must_use]
    pub fn packet_error(&self, error: PacketError) -> &Tally {
        match error {
            PacketError::Truncated => &self.rx_truncated,
            PacketError::EtherType => &self.rx_ether_type,
            PacketError::IpHeader => &self.rx_ip_header,
            PacketError::Fragment => &self.rx_fragment,
            PacketError::Protocol => &self.rx_protocol,
            PacketError::Port => &self.rx_port,
            PacketError::IpLength => &self.rx_ip_length,
            PacketError::UdpLength => &self.rx_udp_length,
            PacketError::MappedAddress => &self.rx_mapped_address,
        }
    }
}
