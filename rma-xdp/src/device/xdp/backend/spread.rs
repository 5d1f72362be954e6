//! Sending packets that may need several chunks.
//!
//! A frame may be longer than a chunk, and a chunk does not continue in its neighbour, as
//! each packet starts behind the kernel's headroom. So frames are written beside each other, into
//! buffers of their own, and from there each octet is copied once, into the chunk that it leaves
//! from.
//!
//! Invariant: a packet has no more chunks than [`Share::chunks_max`], and whoever has frames
//! written has seen to it that as many are free for each frame.

use arrayvec::ArrayVec;
use rma_core::{
    backend::{BATCH, LINK_LEN, Transmit, TxFrame},
    packet::{Packet, Packets},
};

use super::{State, XdpBackend};
use crate::device::{
    net::Path,
    xdp::{
        packet::{ETHERNET_LEN, HEADERS_V6, Headers},
        share::{Share, TX_QUEUE},
        socket::Socket,
        umem::CHUNK_DATA,
    },
};

/// The longest payload that stays in one chunk, whatever its headers are.
const ONE_CHUNK: usize = CHUNK_DATA - HEADERS_V6;

/// The invariant by which there is a chunk to take.
const ROOM: &str = "the caller has checked that there is room";

impl XdpBackend {
    /// Has frames written beside each other, at most `max`, and puts each packet of them into as
    /// many chunks as it needs. Returns how many frames were written.
    pub(super) fn transmit_spread(
        share: &mut Share,
        state: &mut State,
        packets: &mut Packets,
        max: usize,
        fill: &mut impl FnMut(&mut [TxFrame<'_>]) -> usize,
    ) -> usize {
        let Share { queues, tx_frames, .. } = share;
        let Some(tx_frames) = tx_frames else { return 0 };
        let room = state.packet_room().saturating_sub(state.headers_len);
        let mut frames: ArrayVec<TxFrame<'_>, BATCH> = ArrayVec::new();
        for buffer in tx_frames.iter_mut().take(max) {
            let len = buffer.len().min(room);
            frames.push(TxFrame::new(&mut buffer[..len]));
        }
        let filled = fill(&mut frames);
        let frames = &frames[..filled];
        packets.plan(frames, usize::MAX, |transmit, _| {
            // Frames that fit one chunk are not led into several: to the kernel these cost more
            // than another packet does.
            let most = if transmit.len <= ONE_CHUNK { ONE_CHUNK } else { room };
            state.packet_len_max(transmit).min(most.min(room) - LINK_LEN)
        });
        for packet in packets.list() {
            let planned = Planned { packets, packet, frames };
            if packet.octets() <= ONE_CHUNK {
                planned.put_into_one(&mut queues[TX_QUEUE].socket, state);
            } else {
                planned.put_into_several(&mut queues[TX_QUEUE].socket, state);
            }
        }
        state.count_unpaid(packets);
        filled
    }
}

/// A packet, and the frames that it is planned of.
#[derive(Clone, Copy)]
struct Planned<'p> {
    packets: &'p Packets,
    packet: &'p Packet,
    frames: &'p [TxFrame<'p>],
}

impl<'p> Planned<'p> {
    /// Returns its transmit: as its first frame, with the length of all.
    fn transmit(self) -> Option<Transmit> {
        let head = self.frames[self.packet.first()].transmit?;
        Some(Transmit { len: self.packet.octets(), ..head })
    }

    /// The octets of its frames, one after the other, and of `behind` octets behind each.
    fn octets(self, behind: usize) -> impl Iterator<Item = &'p [u8]> + Clone {
        let Self { packets, packet, frames } = self;
        packets.frames_of(packet).filter_map(move |index| {
            let TxFrame { bytes, transmit } = &frames[index];
            bytes.get(..transmit.as_ref()?.len + behind)
        })
    }

    /// Puts it into one chunk, with what is behind its last frame for its way back. Only notices
    /// have that, which leave room for it.
    fn put_into_one(self, socket: &mut Socket, state: &mut State) {
        let Some(transmit) = self.transmit() else { return };
        let link = if transmit.link_behind { LINK_LEN } else { 0 };
        let mut chunk = socket.take().expect(ROOM);
        let headers_len = state.headers_len;
        let finished = {
            let bytes = socket.bytes_mut(&mut chunk);
            let mut end = headers_len;
            for octets in self.octets(link) {
                // The next frame overwrites what is behind this one.
                bytes[end..end + octets.len()].copy_from_slice(octets);
                end += octets.len() - link;
            }
            let room = state.packet_room().min(bytes.len());
            state.finish(&mut bytes[..room], headers_len, &transmit, self.packet.frames())
        };
        match finished {
            Some(len) => socket.stage(chunk, len, false),
            None => socket.give_back(chunk),
        }
    }

    /// Puts it into one chunk after the other.
    fn put_into_several(self, socket: &mut Socket, state: &mut State) {
        let Some(transmit) = self.transmit() else { return };
        let Some(headers) = state.headers_of(&transmit, self.packet.frames()) else { return };
        let mut chunk = socket.take().expect(ROOM);
        let mut end = headers.write_before(socket.bytes_mut(&mut chunk), || self.octets(0));
        for octets in self.octets(0) {
            let mut rest = octets;
            loop {
                let (piece, more) = rest.split_at(rest.len().min(CHUNK_DATA - end));
                socket.bytes_mut(&mut chunk)[end..end + piece.len()].copy_from_slice(piece);
                end += piece.len();
                if more.is_empty() {
                    break;
                }
                let full = core::mem::replace(&mut chunk, socket.take().expect(ROOM));
                socket.stage(full, end, true);
                (end, rest) = (0, more);
            }
        }
        socket.stage(chunk, end, false);
        state.counters.tx_multi_buffer.add(1);
        tapped!(state.tap, tap => {
            let [source, destination] = [transmit.source, transmit.destination];
            let frames = self.packet.frames();
            let ports = [transmit.source_port.0, transmit.port.0];
            tap.left_without_headers([source, destination], ports, frames, self.octets(0));
        });
    }
}

impl State {
    /// The headers of a packet of several chunks that `transmit` describes, and that has so many
    /// `frames`. `None` after counting why it is dropped. Payload is among its frames, so it has no
    /// way back but by a path.
    fn headers_of(&mut self, transmit: &Transmit, frames: usize) -> Option<Headers> {
        let frames = frames as u64;
        let &Transmit { source, destination, port, class, len, source_port, .. } = transmit;
        let &Transmit { may_resolve, tenant, .. } = transmit;
        if source.is_ipv4() != destination.is_ipv4() {
            self.counters.tx_family.add(frames);
            return None;
        }
        let Some(Path { source_mac, next_hop_mac, mtu }) = self.paths.lookup(destination) else {
            if may_resolve {
                self.paths.request(tenant, destination);
            }
            self.counters.tx_no_path.add(frames);
            return None;
        };
        let headers_len = Headers::len_for(destination);
        if headers_len.saturating_add(len) > self.packet_room().min(ETHERNET_LEN + mtu as usize) {
            self.counters.tx_too_long.add(frames);
            return None;
        }
        self.headers_len = headers_len;
        self.counters.tx_packets.add(1);
        self.counters.tx_frames.add(frames);
        let dscp = self.traffic.of(class);
        Some(Headers { source_mac, next_hop_mac, source, destination, source_port, port, dscp })
    }
}
