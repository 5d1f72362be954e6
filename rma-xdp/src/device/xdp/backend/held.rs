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

use super::State;
use crate::device::xdp::socket::Socket;

/// The most packets that are held. More: more memory. Fewer: of many that go to new hosts at once,
/// some are lost.
const PACKETS: usize = 64;

/// The longest packet that is held: any request, and several of a packet. Longer: more memory.
/// Shorter: packets with several requests are lost.
const LEN_MAX: usize = 512;

/// For how long. Longer: what comes late, for an op that is over. Shorter: neighbours that answer
/// late are as if they did not.
const HELD_FOR: Duration = Duration::from_millis(50);

#[derive(Debug)]
struct Packet {
    transmit: Transmit,
    frames: usize,
    /// When it was first looked at after the turn in which it was written.
    since: Option<Instant>,
    octets: [u8; LEN_MAX],
}

/// The packets that wait, in the order in which they were written.
#[derive(Debug)]
pub(super) struct Held(Vec<Packet>);

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

impl State {
    /// Drops all of it: there is no interface.
    #[cold]
    pub(super) fn drop_held(&mut self) {
        let frames: usize = self.held.0.drain(..).map(|packet| packet.frames).sum();
        self.counters.tx_no_interface.add(frames as u64);
    }

    /// Sends what has waited for a path that there is now, and drops what has waited for too long.
    #[cold]
    pub(super) fn send_held(&mut self, socket: &mut Socket, now: Instant) {
        let mut held = core::mem::replace(&mut self.held, Held(Vec::new()));
        let mut room = socket.room();
        held.0.retain_mut(|packet| {
            let Packet { transmit, frames, since, octets } = packet;
            if self.paths.lookup(transmit.destination).is_none() {
                let waits = now.since(*since.get_or_insert(now)) < HELD_FOR;
                if !waits {
                    self.counters.tx_no_path.add(*frames as u64);
                }
                return waits;
            }
            if room == 0 {
                return true;
            }
            let Some(mut chunk) = socket.take() else { return true };
            room -= 1;
            let finished = {
                let mut bytes = socket.bytes_mut(&mut chunk);
                let at = self.headers_len;
                bytes[at..at + transmit.len].copy_from_slice(&octets[..transmit.len]);
                let room = self.packet_room().min(bytes.len());
                self.finish(&mut bytes[..room], at, transmit, *frames)
            };
            match finished {
                Some(len) => socket.stage(chunk, len, false),
                None => socket.give_back(chunk),
            }
            false
        });
        self.held = held;
        socket.commit();
    }
}
