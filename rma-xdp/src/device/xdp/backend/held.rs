//! Packets that wait for a path. The first one to a host is a request, mostly, and its op would
//! wait for a whole timeout if it were lost; the way is found within a millisecond.
//!
//! What is held was written by an engine for whom its application named, or who has proved who it
//! is: no stranger can fill this. It is short: a packet with payload of its own is not held, as it
//! is never the first to a host that answers.
//!
//! Invariant: fixed memory, and nothing is held for longer than [`HELD_FOR`].

use core::time::Duration;

use rma_core::{backend::Transmit, time::Instant};

/// The most packets that are held. More: more memory. Fewer: of many that go to new hosts at once,
/// some are lost.
const PACKETS: usize = 64;

/// The longest packet that is held: any request, and several of a packet. Longer: more memory.
/// Shorter: packets with several requests are lost.
const LEN_MAX: usize = 512;

/// For how long. Longer: what comes late, for an op that is over. Shorter: neighbours that answer
/// late are as if they did not.
const HELD_FOR: Duration = Duration::from_millis(50);

/// One of them.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) transmit: Transmit,
    pub(super) frames: usize,
    /// When it was first looked at after the turn in which it was written.
    since: Option<Instant>,
    octets: [u8; LEN_MAX],
}

impl Packet {
    /// Returns its payload.
    pub(super) fn payload(&self) -> &[u8] {
        &self.octets[..self.transmit.len]
    }

    /// Whether it waits on, without a path at `now`.
    pub(super) fn waits(&mut self, now: Instant) -> bool {
        now.since(*self.since.get_or_insert(now)) < HELD_FOR
    }
}

/// The packets that wait, in the order in which they were written.
#[derive(Debug)]
pub(super) struct Held(pub(super) Vec<Packet>);

impl Held {
    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(PACKETS))
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it was taken: there was room.
    pub(super) fn push(&mut self, transmit: &Transmit, payload: &[u8], frames: usize) -> bool {
        let has_room = self.0.len() < self.0.capacity() && payload.len() <= LEN_MAX;
        if has_room {
            let mut octets = [0; LEN_MAX];
            octets[..payload.len()].copy_from_slice(payload);
            self.0.push(Packet { transmit: *transmit, frames, since: None, octets });
        }
        has_room
    }
}
