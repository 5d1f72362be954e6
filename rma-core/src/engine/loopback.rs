//! Frames from a host to itself: they never reach a device, which would send them away (not in the paper).
//!
//! A fixed ring of whole frames, filled while the engine transmits and emptied in its next turn. It is not a way past
//! a device without room: which host a frame is for is only known once it has been written, and by then one for another
//! host would need a place.

use crate::{
    addr::HostAddr,
    backend::{RxFrame, Transmit},
    wire::FRAME_LEN_MAX,
};

/// How many frames may be under way: a burst. While it is full the engine sends nothing at all.
const FRAMES: usize = 64;

struct Looped {
    source: HostAddr,
    destination: HostAddr,
    len: usize,
    bytes: [u8; FRAME_LEN_MAX],
}

pub(super) struct Loopback {
    frames: Box<[Looped]>,
    used: usize,
}

impl Loopback {
    pub(super) fn new() -> Self {
        let nobody = HostAddr::from_octets([0; 16]);
        let empty =
            || Looped { source: nobody, destination: nobody, len: 0, bytes: [0; FRAME_LEN_MAX] };
        Self { frames: (0..FRAMES).map(|_| empty()).collect(), used: 0 }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.used == 0
    }

    pub(super) const fn has_room(&self) -> bool {
        self.used < FRAMES
    }

    /// Takes a frame. The caller has asked `has_room`.
    pub(super) fn push(&mut self, transmit: &Transmit, frame: &[u8]) {
        let looped = &mut self.frames[self.used];
        looped.source = transmit.source;
        looped.destination = transmit.destination;
        looped.len = frame.len();
        looped.bytes[..frame.len()].copy_from_slice(frame);
        self.used += 1;
    }

    /// Hands over every frame, in order. Returns how many.
    pub(super) fn drain(&mut self, mut handle: impl FnMut(RxFrame<'_>)) -> usize {
        let used = core::mem::take(&mut self.used);
        for looped in &mut self.frames[..used] {
            handle(RxFrame {
                source: looped.source,
                destination: looped.destination,
                reply_len_max: FRAME_LEN_MAX,
                bytes: &mut looped.bytes[..looped.len],
            });
        }
        used
    }
}

impl core::fmt::Debug for Loopback {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Loopback({} frames)", self.used)
    }
}
