//! Where frames come from and go to: the one seam between the protocol and an operating system.
//!
//! A *frame* in this crate is the payload of one UDP datagram. Ethernet, IP and UDP headers belong to
//! the backend. A backend moves frames; it never looks into them.

use crate::{addr::HostAddr, time::Instant};

/// A frame that arrived, and what the backend knows about it. Nothing in it has been authenticated.
#[derive(Debug)]
pub struct RxFrame<'a> {
    /// The IP source address. A claim until the frame's tag has been checked: it enters K_d.
    pub source: HostAddr,
    /// The IP destination address.
    pub destination: HostAddr,
    /// The largest frame that can be sent back to `source`, in bytes (path MTU less IP and UDP).
    pub reply_len_max: usize,
    /// The frame. Opened in place.
    pub bytes: &'a mut [u8],
}

/// What [`Backend::tx_burst`]'s callback wrote into the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// One of this host's own addresses, of the same family as `destination`.
    pub source: HostAddr,
    /// Where the frame goes.
    pub destination: HostAddr,
    /// Bytes written at the start of the buffer.
    pub len: usize,
    /// Spread over UDP source ports, for ECMP and for the choice of a receive queue. Equal for all
    /// frames of an op.
    pub flow: u16,
    /// Whether the backend may spend table space and neighbour look-ups on `destination`. False for a
    /// reply to an unauthenticated frame: a forged source address must not cost anything.
    pub may_resolve: bool,
}

/// A device that moves bursts of frames. AF_XDP and UDP sockets are two; the simulator and the tests
/// have their own.
///
/// No method blocks, allocates or fails: a frame that cannot be sent is counted by the backend and is
/// then simply a lost frame, which the protocol lives with.
pub trait Backend {
    /// Hands at most `max` received frames to `on_frame`. Returns how many were handed over.
    fn rx_burst(&mut self, max: usize, on_frame: impl FnMut(RxFrame<'_>)) -> usize;

    /// Offers at most `max` buffers to `fill`, each as large as the largest frame the device can send,
    /// until `fill` returns `None` or the device has no room. Returns how many frames were taken.
    ///
    /// `fill` is not called when there is no room, so nothing that was polled can be lost here.
    fn tx_burst(&mut self, max: usize, fill: impl FnMut(&mut [u8]) -> Option<Transmit>) -> usize;

    /// Rings the doorbell if the device asked for it.
    fn flush(&mut self, now: Instant);
}
