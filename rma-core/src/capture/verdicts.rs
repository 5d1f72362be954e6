//! The word of a service on the frames of a burst, for who watches the packets that they came in.
//!
//! The engine's thread writes and reads it; it is shared between a service and a device, which know
//! nothing of each other.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::fate::Fate;
use crate::{backend::BATCH, packet::FRAMES_MAX};

/// The most that is told of a batch of packets: each frame, an end that is none, and the packet.
const TOLD_MAX: usize = BATCH * (FRAMES_MAX + 2);

/// Something that was told, in the order in which it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The fate of the frame that lies at this address, so many octets long.
    Frame {
        /// The place in memory: a name, never followed.
        at: usize,
        /// Its octets.
        len: usize,
        /// The fate.
        fate: Fate,
    },
    /// The fate of the end of the packet that is taken apart, which is no frame.
    Tail(Fate),
    /// A packet has been taken apart into so many frames. Its frames' fates may follow.
    Packet {
        /// How many.
        frames: usize,
        /// The fate of those of which nothing more is told.
        rest: Fate,
    },
}

/// The fates of the frames of a burst.
#[derive(Debug)]
pub struct Verdicts {
    told: Box<[Cell]>,
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Cell {
    at: AtomicUsize,
    /// Kind, fate, and a length.
    what: AtomicU64,
}

const FRAME: u64 = 0;
const TAIL: u64 = 1;
const PACKET: u64 = 2;

impl Verdicts {
    /// No verdict yet.
    #[must_use]
    pub fn new() -> Self {
        let told = (0..TOLD_MAX).map(|_| Cell::default()).collect();
        Self { told, count: AtomicUsize::new(0) }
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.count.store(0, Relaxed);
    }

    /// Notes something. What comes beyond the frames of a batch of packets is lost.
    pub fn tell(&self, told: Told) {
        let (at, what) = match told {
            Told::Frame { at, len, fate } => (at, [FRAME, fate.code().into(), len as u64]),
            Told::Tail(fate) => (0, [TAIL, fate.code().into(), 0]),
            Told::Packet { frames, rest } => (0, [PACKET, rest.code().into(), frames as u64]),
        };
        let [kind, fate, len] = what;
        let count = self.count.load(Relaxed);
        if let Some(cell) = self.told.get(count) {
            cell.at.store(at, Relaxed);
            cell.what.store(kind | fate << 8 | len << 16, Relaxed);
            self.count.store(count + 1, Relaxed);
        }
    }

    /// Lists what was told.
    pub fn all(&self) -> impl Iterator<Item = Told> {
        self.told.iter().take(self.count.load(Relaxed)).map(|cell| {
            let what = cell.what.load(Relaxed);
            let (code, len) = ((what >> 8) as u8, (what >> 16) as usize);
            let fate = Fate::from_code(code).unwrap_or(Fate::Taken);
            match what & 0xff {
                FRAME => Told::Frame { at: cell.at.load(Relaxed), len, fate },
                TAIL => Told::Tail(fate),
                _ => Told::Packet { frames: len, rest: fate },
            }
        })
    }
}

impl Default for Verdicts {
    fn default() -> Self {
        Self::new()
    }
}
