//! Sends what has waited for a path, or drops it.

use rma_core::time::Instant;

use super::{State, held::Held};
use crate::device::xdp::socket::Socket;

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
            if self.paths.lookup(packet.transmit.destination).is_none() {
                let waits = packet.waits(now);
                if !waits {
                    self.counters.tx_no_path.add(packet.frames as u64);
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
                let payload = packet.payload();
                bytes[at..at + payload.len()].copy_from_slice(payload);
                let room = self.packet_room().min(bytes.len());
                self.finish(&mut bytes[..room], at, &packet.transmit, packet.frames)
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
