//! Sends what has waited for a path, or drops it.

use rma_core::time::Instant;

use super::{State, held::Packet};
use crate::device::xdp::socket::Socket;

impl State {
    /// Drops all of it: there is no interface.
    #[cold]
    pub(super) fn drop_held(&mut self, now: Instant) {
        let mut packets = self.held.lend(now);
        for packet in packets.drain(..) {
            self.counters.tx_no_interface.add(packet.frames as u64);
            self.held.let_go(&packet);
        }
        self.held.keep(packets);
    }

    /// Sends what has waited for a path that there is now, and drops what has waited for too long.
    #[cold]
    pub(super) fn send_held(&mut self, socket: &mut Socket, now: Instant) {
        let mut packets = self.held.lend(now);
        let mut room = socket.room();
        packets.retain_mut(|packet| {
            let stays = self.waits(packet, now) || !self.send_one(socket, &mut room, packet);
            if !stays {
                self.held.let_go(packet);
            }
            stays
        });
        self.held.keep(packets);
        socket.commit();
    }

    /// Whether a packet waits on for its path. One that has waited for too long is neither sent nor
    /// waits.
    fn waits(&self, packet: &mut Packet, now: Instant) -> bool {
        packet.has_time(now) && self.paths.lookup(packet.transmit.destination).is_none()
    }

    /// Sends a packet that waits no longer, or drops it if there is still no path. `false` if the
    /// device has no room.
    fn send_one(&mut self, socket: &mut Socket, room: &mut usize, packet: &Packet) -> bool {
        if self.paths.lookup(packet.transmit.destination).is_none() {
            self.counters.tx_no_path.add(packet.frames as u64);
            return true;
        }
        if *room == 0 {
            return false;
        }
        let Some(mut chunk) = socket.take() else { return false };
        *room -= 1;
        let finished = {
            let bytes = socket.bytes_mut(&mut chunk);
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
        true
    }
}
