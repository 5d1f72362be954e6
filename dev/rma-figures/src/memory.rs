//! Engines joined by memory instead of a device: no system call, no other core, no doorbell.

use std::{cell::RefCell, rc::Rc};

use arrayvec::ArrayVec;
use rma_core::{
    addr::HostAddr,
    backend::{BATCH as SIDE_BY_SIDE, Backend, RxPacket, Transmit, TxFrame},
    op::ClassOfService,
    port::Port,
    time::Instant,
};

/// The largest frame: what an MTU of 1500 leaves.
pub(crate) const FRAME_LEN: usize = 1472;

/// Frames that a wire has room for.
pub(crate) const FRAMES: usize = 64;

/// A frame on its way.
#[repr(align(64))]
struct Frame {
    transmit: Transmit,
    bytes: [u8; FRAME_LEN],
}

/// One direction of the wire: buffers that are used again and again. Those from `first` to `end`
/// hold frames.
pub(crate) struct Wire {
    frames: Box<[Frame]>,
    first: usize,
    end: usize,
}

impl Wire {
    pub(crate) fn new() -> Rc<RefCell<Self>> {
        Self::with_room_for(FRAMES)
    }

    /// A wire for so many frames: no more leave in one turn.
    pub(crate) fn with_room_for(frames: usize) -> Rc<RefCell<Self>> {
        let nobody = HostAddr::from_octets([0; 16]);
        let class = ClassOfService::Throughput;
        let transmit = Transmit::new([nobody; 2], Port::ONE_RMA, class, 0);
        let frames = (0..frames).map(|_| Frame { transmit, bytes: [0; FRAME_LEN] }).collect();
        Rc::new(RefCell::new(Self { frames, first: 0, end: 0 }))
    }

    /// Puts a frame from `source` behind those that are on their way, as long as `write` makes it.
    pub(crate) fn put(
        &mut self,
        [source, destination]: [HostAddr; 2],
        write: impl FnOnce(&mut [u8]) -> usize,
    ) {
        let Frame { transmit, bytes } = &mut self.frames[self.end];
        let len = write(bytes);
        *transmit = Transmit { source, destination, len, ..*transmit };
        self.end += 1;
    }

    /// The frames that are on their way.
    pub(crate) fn on_their_way(&self) -> impl Iterator<Item = (&Transmit, &[u8])> {
        let frames = &self.frames[self.first..self.end];
        frames.iter().map(|Frame { transmit, bytes }| (transmit, &bytes[..transmit.len]))
    }

    /// Moves frames that are on their way to other wires, each to the one that `to` tells, until
    /// one has no room.
    pub(crate) fn carry<'w>(&mut self, to: impl Fn(&Transmit) -> &'w RefCell<Self>) {
        while self.first < self.end {
            let frame = &self.frames[self.first];
            if !to(&frame.transmit).borrow_mut().take(frame) {
                return;
            }
            self.first += 1;
        }
        (self.first, self.end) = (0, 0);
    }

    /// Takes a frame that was on its way on another wire. `false` if there is no room.
    fn take(&mut self, frame: &Frame) -> bool {
        if self.end == self.frames.len() {
            if self.first == 0 {
                return false;
            }
            self.frames.rotate_left(self.first);
            (self.first, self.end) = (0, self.end - self.first);
        }
        let Frame { transmit, bytes } = &mut self.frames[self.end];
        *transmit = frame.transmit;
        bytes[..transmit.len].copy_from_slice(&frame.bytes[..transmit.len]);
        self.end += 1;
        true
    }

    /// Takes the frames out that are on their way, and tells where each goes.
    pub(crate) fn drain(&mut self, mut on_frame: impl FnMut(HostAddr, &mut [u8])) {
        for Frame { transmit, bytes } in &mut self.frames[self.first..self.end] {
            on_frame(transmit.destination, &mut bytes[..transmit.len]);
        }
        (self.first, self.end) = (0, 0);
    }
}

/// One end of the wire.
pub(crate) struct Memory {
    pub(crate) inbound: Rc<RefCell<Wire>>,
    pub(crate) outbound: Rc<RefCell<Wire>>,
}

impl Backend for Memory {
    fn rx_burst(&mut self, max: usize, mut on_packets: impl FnMut(&mut [RxPacket<'_>])) -> usize {
        let wire = &mut *self.inbound.borrow_mut();
        let count = (wire.end - wire.first).min(max);
        for frames in wire.frames[wire.first..][..count].chunks_mut(SIDE_BY_SIDE) {
            let mut received: ArrayVec<_, SIDE_BY_SIDE> = ArrayVec::new();
            for Frame { transmit, bytes } in frames {
                received.push(RxPacket {
                    source_port: transmit.source_port,
                    source: transmit.source,
                    destination: transmit.destination,
                    port: transmit.port,
                    reply_len_max: FRAME_LEN,
                    link: None,
                    bytes: &mut bytes[..transmit.len],
                });
            }
            on_packets(&mut received);
        }
        wire.first += count;
        if wire.first == wire.end {
            (wire.first, wire.end) = (0, 0);
        }
        count
    }

    fn tx_burst(&mut self, max: usize, mut fill: impl FnMut(&mut [TxFrame<'_>]) -> usize) -> usize {
        let wire = &mut *self.outbound.borrow_mut();
        let end = wire.frames.len().min(wire.end + max);
        let mut sent = 0;
        for group in wire.frames[wire.end..end].chunks_mut(SIDE_BY_SIDE) {
            let offered = group.len();
            let mut frames: ArrayVec<_, SIDE_BY_SIDE> = ArrayVec::new();
            let mut transmits: ArrayVec<_, SIDE_BY_SIDE> = ArrayVec::new();
            for Frame { transmit, bytes } in group {
                frames.push(TxFrame::new(bytes));
                transmits.push(transmit);
            }
            let filled = fill(&mut frames);
            for (transmit, frame) in transmits.iter_mut().zip(&frames[..filled]) {
                **transmit = frame.transmit.expect("a frame for the other engine");
            }
            sent += filled;
            if filled < offered {
                break;
            }
        }
        wire.end += sent;
        sent
    }

    fn flush(&mut self, _: Instant) {}
}
