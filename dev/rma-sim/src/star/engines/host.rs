//! An engine, its application's library, and the packets that wait for it.

use std::{collections::VecDeque, sync::Arc};

use rma_core::{
    backend::{BATCH, ReceiveLenMax, RxPacket, TxFrame},
    crypto::CounterBlock,
    fair_queue::BucketSecret,
    packet::{FRAMES_MAX, Frames, Packets},
    port::SourcePort,
    quantum::Quantum,
    service::Service,
    time::Instant,
};
use rma_shm::Region;
use rma_star::{
    config::StarPlace,
    keys::PdKey,
    library::{CqId, Mr, Verbs, VerbsPlace, Wc},
    mr_table::Access,
    names::PdId,
    portal::portal,
    service::Star,
    wire::frame_len,
};

use super::{
    network::{Network, Packet, address, host_of},
    options::Options,
};

/// The longest frame.
const FRAME_LEN_MAX: usize = 1472;

/// Slots of a portal for each connection.
const SLOTS: u32 = 16;

#[derive(Debug)]
pub(super) struct Host {
    number: u16,
    pub(super) star: Star,
    pub(super) verbs: Verbs,
    pub(super) pd: PdId,
    pub(super) cq: CqId,
    pub(super) mr: Mr,
    received: VecDeque<Packet>,
    ring: usize,
    pub(super) lost: u64,
    pub(super) is_dead: bool,
    /// When its next turn is scheduled, and when it had the last one.
    pub(super) turn_at: Option<Instant>,
    pub(super) turned_at: Instant,
}

impl Host {
    /// A host for so many connections, with so many bytes of memory.
    ///
    /// # Panics
    /// If the settings cannot work.
    pub(super) fn new(number: u16, options: &Options, connections: u32, memory: u64) -> Self {
        let mut place = StarPlace::at(address(number));
        place.receive_len_max = ReceiveLenMax::of_mtu(1500);
        place.secret = BucketSecret::from_bytes([number as u8 ^ (number >> 8) as u8; 16]);
        let mut settings = options.star;
        settings.connections = settings.connections.max(connections);
        let config = settings.build(place).expect("settings that work");
        let mut star = Star::new(config, CounterBlock::new(0, 1 << 40));
        let slots = (SLOTS * connections).next_power_of_two();
        let (application, port) = portal(slots, connections.next_power_of_two()).expect("a portal");
        let portal = star.attach(port).expect("the first portal");
        let key = PdKey::from_bytes([number as u8; 16]);
        let pd = star.alloc_pd(portal, &key).expect("the first domain");
        let region = Arc::new(Region::new(memory as usize).expect("memory"));
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let id = star.reg_mr(portal, pd, Arc::clone(&region), 0..memory, access).expect("a region");
        let mr = Mr::new(id, pd, region, 0..memory);
        let place = VerbsPlace::new(portal, address(number), FRAME_LEN_MAX as u16);
        let mut verbs = Verbs::new(application, place, options.verbs);
        let cq = verbs.create_cq(slots);
        Self {
            number,
            star,
            verbs,
            pd,
            cq,
            mr,
            received: VecDeque::new(),
            ring: options.receive_ring,
            lost: 0,
            is_dead: false,
            turn_at: None,
            turned_at: Instant::ZERO,
        }
    }

    pub(super) fn receive(&mut self, packet: Packet) {
        if self.received.len() < self.ring {
            self.received.push_back(packet);
        } else {
            self.lost += 1;
        }
    }

    /// A turn of the engine.
    pub(super) fn turn(&mut self, now: Instant, network: &mut Network) {
        self.handle_frames(now);
        self.star.take_commands(now);
        self.star.handle_timeout(now);
        self.transmit(now, network);
        self.star.complete();
        self.star.wake_sleepers();
        self.verbs.poll(now);
    }

    /// Sends what a turn may, in as few packets as an engine makes of it.
    fn transmit(&mut self, now: Instant, network: &mut Network) {
        let mut buffers = vec![[0; FRAME_LEN_MAX]; FRAMES_MAX];
        let mut frames: Vec<_> = buffers.iter_mut().map(|it| TxFrame::new(it)).collect();
        let count = self.star.poll_transmits(now, &mut frames, &mut Quantum::new(1 << 16));
        let mut packets = Packets::new();
        packets.plan(&frames[..count], usize::MAX, |_, head| head.packet_room());
        for packet in packets.list() {
            packets.gather(packet, &mut frames);
            let TxFrame { transmit: Some(transmit), bytes, .. } = &frames[packet.first()] else {
                continue;
            };
            let bytes = bytes[..packet.octets()].to_vec();
            let (from, to, port) = (self.number, host_of(transmit.destination), transmit.port);
            network.send(now, Packet { from, to, port, bytes });
        }
    }

    fn handle_frames(&mut self, now: Instant) {
        let count = self.received.len().min(BATCH);
        let mut octets: Vec<_> = self.received.drain(..count).collect();
        let mut packets: Vec<_> = octets
            .iter_mut()
            .map(|packet| RxPacket {
                source: address(packet.from),
                destination: address(packet.to),
                port: packet.port,
                source_port: SourcePort::FIRST,
                reply_len_max: FRAME_LEN_MAX,
                link: None,
                bytes: &mut packet.bytes,
            })
            .collect();
        let mut frames = Vec::new();
        for packet in &mut packets {
            let mut walk = Frames::of(packet);
            while let Some(Ok(frame)) = walk.next(frame_len) {
                frames.push(frame);
            }
        }
        for frames in frames.chunks_mut(BATCH) {
            self.star.handle_frames(now, &now, frames);
        }
    }

    /// Returns the new completions.
    pub(super) fn completions(&mut self) -> Vec<Wc> {
        let mut wcs = [Wc::EMPTY; 64];
        let mut all = Vec::new();
        loop {
            let count = self.verbs.poll_cq(self.cq, &mut wcs);
            all.extend_from_slice(&wcs[..count]);
            if count < wcs.len() {
                return all;
            }
        }
    }

    /// When it has something to do, if nothing comes.
    pub(super) fn next_turn(&self, now: Instant) -> Option<Instant> {
        if !self.received.is_empty() || self.star.wants_transmit() || !self.star.is_idle() {
            return Some(now);
        }
        let timeouts = [self.star.poll_timeout(), self.verbs.poll_timeout()];
        timeouts.into_iter().flatten().min()
    }
}
