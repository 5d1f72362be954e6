//! How much may be sent in one go (not in the paper).

use crate::{
    addr::HostAddr,
    backend::Transmit,
    op::ClassOfService,
    packet::SMALL,
    port::{Port, SourcePort},
};

/// A number of bytes that frames may use up. The first frame may always go, however long it is; a
/// later one may go if a frame as long as the one before it would still fit, or if it belongs to an
/// op of the latency class that has begun.
#[derive(Clone, Copy, Debug)]
pub struct Quantum {
    left: usize,
    bulk_min: usize,
    last: Option<Last>,
    /// Whether the next frame is the rest of an op that has begun.
    expects_rest: bool,
}

/// The last frame that went.
#[derive(Clone, Copy, Debug)]
struct Last {
    used: usize,
    /// The properties that a frame must share to share its packet.
    envelope: Envelope,
}

type Envelope = (HostAddr, HostAddr, Port, SourcePort);

impl Quantum {
    /// `len` bytes, none of them used.
    #[must_use]
    pub const fn new(len: usize) -> Self {
        Self { left: len, bulk_min: 0, last: None, expects_rest: false }
    }

    /// The same, where a frame of the throughput class uses up a quarter at least, however short it
    /// is: what its packet costs besides its bytes holds up ops of the latency class too. A small
    /// frame that can share the packet of the one before it uses up its bytes.
    #[must_use]
    pub const fn beside_latency(len: usize) -> Self {
        Self { bulk_min: len / 4, ..Self::new(len) }
    }

    /// As long as frames are alike, no more than one.
    #[must_use]
    pub const fn one_frame() -> Self {
        Self::new(0)
    }

    /// Whether one more frame may go.
    #[must_use]
    #[inline]
    pub fn admits(&self) -> bool {
        self.expects_rest || self.last.is_none_or(|last| last.used <= self.left)
    }

    /// Whether the next frame belongs to an op that has begun, and may go however much is left.
    #[must_use]
    #[inline]
    pub const fn expects_rest(&self) -> bool {
        self.expects_rest
    }

    /// This frame went.
    #[inline]
    pub fn take(&mut self, transmit: &Transmit) {
        let envelope = (transmit.destination, transmit.source, transmit.port, transmit.source_port);
        let joins = transmit.len <= SMALL && self.last.is_some_and(|it| it.envelope == envelope);
        let is_bulk = transmit.class == ClassOfService::Throughput && !joins;
        let used = transmit.len.max(if is_bulk { self.bulk_min } else { 0 });
        self.left = self.left.saturating_sub(used);
        self.last = Some(Last { used, envelope });
        self.expects_rest = false;
    }

    /// Whether the frame that went last has others of its op behind it that must not wait for
    /// another turn.
    #[inline]
    pub const fn expect_rest(&mut self, expects_rest: bool) {
        self.expects_rest = expects_rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many frames of that length go, each to a host of its own or all to one.
    fn count(mut quantum: Quantum, class: ClassOfService, frame: usize, hosts: u8) -> usize {
        let mut went = 0;
        while quantum.admits() {
            let destination = HostAddr::from_octets([(went % usize::from(hosts)) as u8; 16]);
            let ends = [HostAddr::from_octets([0; 16]), destination];
            quantum.take(&Transmit::new(ends, Port(7), class, frame));
            went += 1;
        }
        went
    }

    #[test]
    fn a_first_frame_always_goes_and_others_if_they_fit() {
        for (len, frame, expected) in
            [(0, 100, 1), (4096, 3312, 1), (4096, 1472, 2), (4096, 112, 36), (4096, 4096, 1)]
        {
            let (quantum, beside) = (Quantum::new(len), Quantum::beside_latency(len));
            for class in ClassOfService::ALL {
                assert_eq!(count(quantum, class, frame, 2), expected, "{frame} of {len}");
            }
            let latency = ClassOfService::Latency;
            assert_eq!(count(beside, latency, frame, 2), expected, "{frame} of {len}");
            let bulk = count(beside, ClassOfService::Throughput, frame, 2);
            assert_eq!(bulk, expected.min(4), "{frame} of {len}");
        }
    }

    #[test]
    fn small_frames_that_share_a_packet_use_up_their_bytes_alone() {
        // The first costs a quarter, 1024, and each other 56.
        let quantum = Quantum::beside_latency(4096);
        assert_eq!(count(quantum, ClassOfService::Throughput, 56, 1), 1 + (4096 - 1024) / 56);
    }

    #[test]
    fn the_rest_of_an_op_goes_however_much_is_left() {
        let mut quantum = Quantum::one_frame();
        let ends = [HostAddr::from_octets([0; 16]); 2];
        for rest in [true, true, false] {
            assert!(quantum.admits());
            quantum.take(&Transmit::new(ends, Port(7), ClassOfService::Latency, 1_472));
            quantum.expect_rest(rest);
            assert_eq!(quantum.expects_rest(), rest);
        }
        assert!(!quantum.admits());
    }
}
