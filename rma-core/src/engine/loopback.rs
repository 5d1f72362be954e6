//! Frames from a host to itself: they never reach a device, which would send them away (not in the
//! paper).
//!
//! A fixed ring of whole frames, filled while the engine transmits and emptied in its next turn. It
//! is not a way past a device without room: which host a frame is for is only known once it has
//! been written, and by then one for another host would need a place.

use arrayvec::ArrayVec;

use crate::{
    addr::{HostAddr, LocalAddresses},
    backend::{BATCH, RxFrame, RxPacket, TxFrame},
    port::{Port, SourcePort},
    wire::FRAME_LEN_MAX,
};

/// How many frames may be under way: a burst. While it is full the engine sends nothing at all:
/// there is no telling which of the next frames would be for this host.
const FRAMES: usize = 64;

struct Looped {
    source: HostAddr,
    destination: HostAddr,
    port: Port,
    source_port: SourcePort,
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
        let empty = || Looped {
            source: nobody,
            destination: nobody,
            port: Port(0),
            source_port: SourcePort::FIRST,
            len: 0,
            bytes: [0; FRAME_LEN_MAX],
        };
        Self { frames: (0..FRAMES).map(|_| empty()).collect(), used: 0 }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// How many more frames it can take.
    pub(super) const fn room(&self) -> usize {
        FRAMES - self.used
    }

    /// Takes a frame away from the device if it is for one of `local`. The caller has seen to it
    /// that there is room.
    pub(super) fn divert(&mut self, local: &LocalAddresses, frame: &mut TxFrame<'_>) {
        let Some(transmit) = frame.transmit.take_if(|it| local.contains(it.destination)) else {
            return;
        };
        let looped = &mut self.frames[self.used];
        looped.source = transmit.source;
        looped.destination = transmit.destination;
        looped.port = transmit.port;
        looped.source_port = transmit.source_port;
        looped.len = transmit.len;
        looped.bytes[..transmit.len].copy_from_slice(&frame.bytes[..transmit.len]);
        self.used += 1;
    }

    /// Hands over every frame, in order. Returns how many.
    pub(super) fn drain(
        &mut self,
        mut handle: impl FnMut(&mut ArrayVec<RxFrame<'_>, BATCH>),
    ) -> usize {
        let used = core::mem::take(&mut self.used);
        for looped in self.frames[..used].chunks_mut(BATCH) {
            let mut frames: ArrayVec<_, BATCH> = ArrayVec::new();
            for looped in looped {
                frames.push(RxFrame::alone(RxPacket {
                    source: looped.source,
                    destination: looped.destination,
                    port: looped.port,
                    source_port: looped.source_port,
                    reply_len_max: FRAME_LEN_MAX,
                    link: None,
                    bytes: &mut looped.bytes[..looped.len],
                }));
            }
            handle(&mut frames);
        }
        used
    }
}

impl core::fmt::Debug for Loopback {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Loopback({} frames)", self.used)
    }
}
