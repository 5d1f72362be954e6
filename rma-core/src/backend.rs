//! The source and sink of frames: the one seam between the protocol and an operating system.
//!
//! A *packet* in this crate is the payload of one UDP datagram, and has one frame or several
//! ([`crate::packet`]). Ethernet, IP and UDP headers belong to the backend. A backend moves packets
//! and puts frames into them; it never looks into a frame.

use crate::{
    addr::HostAddr,
    limits::UNANNOUNCED_LEN_MAX,
    op::ClassOfService,
    port::{Port, SourcePort},
    tenant::TenantIndex,
    time::Instant,
};

/// A packet that arrived, and what the backend knows about it. Nothing in it has been
/// authenticated.
#[derive(Debug)]
pub struct RxPacket<'a> {
    /// The IP source address. A claim until a frame's tag has been checked: it enters K_d.
    pub source: HostAddr,
    /// The IP destination address.
    pub destination: HostAddr,
    /// The UDP port that it was sent to: one of those that the backend was opened with.
    pub port: Port,
    /// The UDP port that it was sent from.
    pub source_port: SourcePort,
    /// The largest frame that can be sent back to `source`, in bytes (path MTU less IP and UDP).
    pub reply_len_max: usize,
    /// The first octets of the packet, for a backend that could send a notice back the way that it
    /// came ([`Transmit::link_behind`]). Nothing to the NIC but octets. `None` from other backends.
    pub link: Option<&'a [u8; LINK_LEN]>,
    /// Its frames, one behind the other.
    pub bytes: &'a mut [u8],
}

/// A frame that arrived, and what is known of the packet that it came in.
#[derive(Debug)]
pub struct RxFrame<'a> {
    /// The IP source address of its packet: [`RxPacket::source`].
    pub source: HostAddr,
    /// The IP destination address of its packet.
    pub destination: HostAddr,
    /// The UDP port that its packet was sent to.
    pub port: Port,
    /// The UDP port that its packet was sent from.
    pub source_port: SourcePort,
    /// The largest frame that can be sent back: [`RxPacket::reply_len_max`].
    pub reply_len_max: usize,
    /// The first octets of its packet, if they are known: [`RxPacket::link`].
    pub link: Option<&'a [u8; LINK_LEN]>,
    /// Whether it is the first of its packet. What strangers are told is paid for by packet (P10).
    pub is_first: bool,
    /// Whether another engine of the host has received it, and has handed it over.
    pub is_handed_over: bool,
    /// The frame. Opened in place.
    pub bytes: &'a mut [u8],
}

impl<'a> RxFrame<'a> {
    /// A frame that is alone in its packet.
    pub const fn alone(packet: RxPacket<'a>) -> Self {
        let RxPacket { source, destination, port, source_port, reply_len_max, link, bytes } =
            packet;
        Self {
            source,
            destination,
            port,
            source_port,
            reply_len_max,
            link,
            is_first: true,
            is_handed_over: false,
            bytes,
        }
    }
}

/// A buffer for one frame, and what was written into it.
#[derive(Debug)]
pub struct TxFrame<'a> {
    /// Room for the frame, which begins at its start.
    pub bytes: &'a mut [u8],
    /// The frame that is in it. `None`: none is, or none that the device should send.
    pub transmit: Option<Transmit>,
}

impl<'a> TxFrame<'a> {
    /// A buffer without a frame.
    pub const fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, transmit: None }
    }

    /// Says what was written into the buffer. Build the [`Transmit`] in place: copying it reloads
    /// it with wider loads than the stores that wrote it, and stalls on store forwarding.
    #[inline]
    pub(crate) const fn hold(&mut self, transmit: Transmit) {
        self.transmit = Some(transmit);
    }

    /// How long a packet may be that its frame begins and others are moved into, as far as the
    /// buffer goes.
    #[must_use]
    #[inline]
    pub fn packet_room(&self) -> usize {
        let link_behind = self.transmit.is_some_and(|transmit| transmit.link_behind);
        self.bytes.len().saturating_sub(if link_behind { LINK_LEN } else { 0 })
    }

    /// Fills one buffer after the other, until `fill` has no frame. Returns how many: the number
    /// for [`Backend::tx_burst`], for callers that make frames one by one.
    pub fn fill_each(
        frames: &mut [Self],
        mut fill: impl FnMut(&mut [u8]) -> Option<Transmit>,
    ) -> usize {
        for (count, frame) in frames.iter_mut().enumerate() {
            frame.transmit = fill(frame.bytes);
            if frame.transmit.is_none() {
                return count;
            }
        }
        frames.len()
    }
}

/// A frame in a [`TxFrame`], and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// One of this host's own addresses, of the same family as `destination`.
    pub source: HostAddr,
    /// The host that the frame goes to.
    pub destination: HostAddr,
    /// The UDP port that it goes to, and that its sender listens on: one of those that the backend
    /// was opened with.
    pub port: Port,
    /// The class under which the frame counts in a turn's [`Quantum`](crate::quantum::Quantum). The
    /// class of its op, but for small frames that others decide the number of.
    pub class: ClassOfService,
    /// Bytes written at the start of the buffer.
    pub len: usize,
    /// The UDP port that it goes from, for a backend that can choose: one for all requests of a
    /// turn, and that of its request for an answer.
    pub source_port: SourcePort,
    /// How long a packet with this frame in it may be besides what its path says, in octets: what
    /// `destination` has said that it receives, or
    /// [`UNANNOUNCED_LEN_MAX`].
    pub packet_len_max: u16,
    /// Whether the frame may begin a packet. False for a notice to a stranger whose packet has been
    /// paid for by another notice (P10): it is sent only if it can join one.
    pub opens_packet: bool,
    /// Whether the backend may spend table space and neighbour look-ups on `destination`. False for
    /// a reply to an unauthenticated frame: a forged source address must not cost anything.
    pub may_resolve: bool,
    /// For which tenant of this host it goes: whose share a look-up of `destination` takes.
    pub tenant: TenantIndex,
    /// Whether the [`LINK_LEN`] octets behind the frame in its buffer are [`RxFrame::link`] of the
    /// packet that it answers: a backend that knows no path to `destination` may send it back by
    /// the addresses in them. True for notices under the reserved key only, never for payload.
    /// Behind the frame, as a notice leaves room there, and the other frames should not carry them
    /// along.
    pub link_behind: bool,
}

impl Transmit {
    /// A frame of `len` octets to a host that has said nothing of itself.
    #[must_use]
    #[inline]
    pub const fn new(
        [source, destination]: [HostAddr; 2],
        port: Port,
        class: ClassOfService,
        len: usize,
    ) -> Self {
        Self {
            source,
            destination,
            port,
            class,
            len,
            source_port: SourcePort::FIRST,
            packet_len_max: UNANNOUNCED_LEN_MAX,
            opens_packet: true,
            may_resolve: true,
            tenant: TenantIndex::HOST,
            link_behind: false,
        }
    }
}

/// How many octets of a packet that came are kept, to send a notice back the way that it came: two
/// hardware addresses of Ethernet, and two VLAN tags.
pub const LINK_LEN: usize = 20;

/// How many frames a NIC opens or seals side by side. A backend that can should hand over as many
/// at a time: more gain nothing, and fewer cost more each.
pub const BATCH: usize = 16;

/// A device that moves bursts of packets. AF_XDP and UDP sockets are two; the simulator and the
/// tests have their own.
///
/// No method blocks, allocates or fails: a frame that cannot be sent is counted by the backend and
/// is then simply a lost frame, which the protocol lives with.
pub trait Backend {
    /// Hands at most `max` received packets to `on_packets`, some at a time: [`BATCH`] is a good
    /// number. Returns how many were handed over.
    fn rx_burst(&mut self, max: usize, on_packets: impl FnMut(&mut [RxPacket<'_>])) -> usize;

    /// Offers at most `max` buffers to `fill`, some at a time, each as large as the largest frame
    /// the device can send. `fill` says how many of the first it has filled. Goes on until `fill`
    /// leaves one empty or the device has no room. Returns how many were filled, those included
    /// that hold nothing to send. What was filled together shares packets as
    /// [`Packets`](crate::packet::Packets) plans, so
    /// [`FRAMES_MAX`](crate::packet::FRAMES_MAX) buffers at a time are a good number.
    ///
    /// `fill` is not called when there is no room, so nothing that was polled can be lost here. To
    /// be called in every turn, also with a `max` of 0: a backend that holds a frame which the
    /// device had no room for then tries again, and returns at least 1 as long as it holds one, so
    /// that nobody sleeps over it.
    fn tx_burst(&mut self, max: usize, fill: impl FnMut(&mut [TxFrame<'_>]) -> usize) -> usize;

    /// Rings the doorbell if the device asked for it.
    fn flush(&mut self, now: Instant);
}

/// The largest frame that a device can receive, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveLenMax {
    /// In an IPv4 datagram.
    pub ipv4: usize,
    /// In an IPv6 datagram.
    pub ipv6: usize,
}

impl ReceiveLenMax {
    /// Returns the room that IP and UDP headers leave of an MTU.
    #[must_use]
    pub const fn of_mtu(mtu: usize) -> Self {
        Self { ipv4: mtu.saturating_sub(28), ipv6: mtu.saturating_sub(48) }
    }
}

impl Default for ReceiveLenMax {
    /// Returns the room that Ethernet's MTU of 1500 leaves.
    fn default() -> Self {
        Self::of_mtu(1500)
    }
}
