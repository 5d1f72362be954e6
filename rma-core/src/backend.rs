//! Where frames come from and go to: the one seam between the protocol and an operating system.
//!
//! A *frame* in this crate is the payload of one UDP datagram. Ethernet, IP and UDP headers belong
//! to the backend. A backend moves frames; it never looks into them.

use crate::{addr::HostAddr, op::ClassOfService, port::Port, time::Instant};

/// A frame that arrived, and what the backend knows about it. Nothing in it has been authenticated.
#[derive(Debug)]
pub struct RxFrame<'a> {
    /// The IP source address. A claim until the frame's tag has been checked: it enters K_d.
    pub source: HostAddr,
    /// The IP destination address.
    pub destination: HostAddr,
    /// The UDP port that it was sent to: one of those that the backend was opened with.
    pub port: Port,
    /// The largest frame that can be sent back to `source`, in bytes (path MTU less IP and UDP).
    pub reply_len_max: usize,
    /// What the packet began with, for a backend that could send a notice back the way that it came
    /// ([`Transmit::link_behind`]). Nothing to the NIC but octets. `None` from other backends.
    pub link: Option<&'a [u8; LINK_LEN]>,
    /// The frame. Opened in place.
    pub bytes: &'a mut [u8],
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

    /// Fills one buffer after the other, until `fill` has no frame. Returns how many: what
    /// [`Backend::tx_burst`] is to be told, for those who make frames one by one.
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
    /// Where the frame goes.
    pub destination: HostAddr,
    /// The UDP port that it goes to, and that its sender listens on: one of those that the backend
    /// was opened with.
    pub port: Port,
    /// What the frame weighs in a turn: how it counts in a [`Quantum`](crate::nic::Quantum). The
    /// class of its op, but for small frames that others decide the number of.
    pub class: ClassOfService,
    /// Bytes written at the start of the buffer.
    pub len: usize,
    /// Spread over UDP source ports, for ECMP and for the choice of a receive queue. Equal for all
    /// frames of an op.
    pub flow: u16,
    /// Whether the backend may spend table space and neighbour look-ups on `destination`. False for
    /// a reply to an unauthenticated frame: a forged source address must not cost anything.
    pub may_resolve: bool,
    /// Whether the [`LINK_LEN`] octets behind the frame in its buffer are [`RxFrame::link`] of the
    /// packet that it answers: a backend that knows no path to `destination` may send it back by
    /// the addresses in them. True for notices under the reserved key only, never for payload.
    /// Behind the frame, as a notice leaves room there, and the other frames should not carry them
    /// along.
    pub link_behind: bool,
}

/// How many octets of a packet that came are kept, to send a notice back the way that it came: two
/// hardware addresses of Ethernet, and two VLAN tags.
pub const LINK_LEN: usize = 20;

/// How many frames a NIC opens or seals side by side. A backend that can should hand over as many
/// at a time: more gain nothing, and fewer cost more each.
pub const BATCH: usize = 16;

/// A device that moves bursts of frames. AF_XDP and UDP sockets are two; the simulator and the
/// tests have their own.
///
/// No method blocks, allocates or fails: a frame that cannot be sent is counted by the backend and
/// is then simply a lost frame, which the protocol lives with.
pub trait Backend {
    /// Hands at most `max` received frames to `on_frames`, some at a time: [`BATCH`] is a good
    /// number. Returns how many were handed over.
    fn rx_burst(&mut self, max: usize, on_frames: impl FnMut(&mut [RxFrame<'_>])) -> usize;

    /// Offers at most `max` buffers to `fill`, some at a time, each as large as the largest frame
    /// the device can send. `fill` says how many of the first it has filled. Goes on until `fill`
    /// leaves one empty or the device has no room. Returns how many were filled, those included
    /// that hold nothing to send.
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
    /// What IP and UDP headers leave of an MTU.
    #[must_use]
    pub const fn of_mtu(mtu: usize) -> Self {
        Self { ipv4: mtu.saturating_sub(28), ipv6: mtu.saturating_sub(48) }
    }
}

impl Default for ReceiveLenMax {
    /// What Ethernet's MTU of 1500 leaves.
    fn default() -> Self {
        Self::of_mtu(1500)
    }
}
