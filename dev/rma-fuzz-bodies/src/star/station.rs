//! A host that is both sides of a connection with itself, whose application writes what it likes,
//! on a network that does; beside it an honest application that waits.

use std::{collections::HashMap, sync::Arc};

use rma_core::{
    addr::HostAddr,
    backend::{RxFrame, RxPacket, TxFrame},
    crypto::CounterBlock,
    port::{Port, SourcePort},
    quantum::Quantum,
    service::Service,
    time::Instant,
};
use rma_shm::{Line, Region};
use rma_star::{
    config::{STATEFUL_PORT, STATELESS_PORT, StarConfigBuilder, StarPlace},
    keys::PdKey,
    mr_table::Access,
    names::Qpn,
    portal::{Post, Posted, QpRecord, Report, StarPortal, portal},
    service::Star,
    verbs::{WcStatus, WqeOp},
};

use crate::script::Script;

const HOST: [u8; 4] = [192, 0, 2, 1];
const SLOTS: u32 = 8;

/// The stateless end of the connection, and the stateful one.
const Z: u32 = 0;
const F: u32 = 1;

/// Bytes of each application's memory region.
const MEMORY: usize = 4096;

/// The events of a script.
#[derive(Clone, Copy, Debug, Default)]
pub struct StarSeen {
    /// Frames that were delivered.
    pub frames: u64,
    /// Work requests that succeeded.
    pub done: u64,
    /// Work requests that failed.
    pub failed: u64,
}

struct Station {
    star: Star,
    now: Instant,
    hostile: StarPortal,
    honest: StarPortal,
    honest_memory: Arc<Region>,
    mr: u32,
    /// The packets on the network, with their ports.
    network: Vec<(Port, Vec<u8>)>,
    /// How many reports of each slot will come, by what was posted.
    owed: HashMap<u32, u32>,
    sequences: [u32; 4],
    generation: u32,
    seen: StarSeen,
}

impl Station {
    fn new() -> Self {
        let here = HostAddr::from(HOST);
        let mut settings = StarConfigBuilder::default();
        settings.connections = 4;
        settings.work_requests = 16;
        settings.frames_under_way = 16;
        settings.answers = 128;
        settings.filter_entries = 16;
        let config = settings.build(StarPlace::at(here)).expect("small tables");
        let mut star = Star::new(config, CounterBlock::new(0, u64::MAX));
        let mut open = |key: u8| {
            let (application, port) = portal(SLOTS, 4).expect("a small portal");
            let number = star.attach(port).expect("the first portals");
            let pd = star.alloc_pd(number, &PdKey::from_bytes([key; 16])).expect("a row");
            let memory = Arc::new(Region::new(MEMORY).expect("a page can be had"));
            let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
            let len = MEMORY as u64;
            let mr = star.reg_mr(number, pd, Arc::clone(&memory), 0..len, all).expect("a row");
            (application, number, pd, memory, mr)
        };
        let (mut hostile, number, pd, _, mr) = open(1);
        let (mut honest, _, other_pd, honest_memory, other_mr) = open(2);
        let qpn = |qp| Qpn::new(number.into(), qp).map_or(0, Qpn::to_bits);
        let record = |peer_qp, key, clock, pd: u32| QpRecord {
            peer: here,
            pd,
            local_pd: pd,
            peer_qpn: qpn(peer_qp),
            nonce: 1,
            era: 0,
            packet_len_max: 1472,
            key,
            z_clock: clock,
        };
        let now = Instant::from_nanos(1_000_000_000);
        // A process that waits for a message that nobody sends.
        honest.set_record(Z, &record(F, [0; 16], 0, other_pd.0));
        let waits = Posted {
            slot: 0,
            generation: 1,
            qp: Z,
            sequence: 0,
            open_before: 0,
            op: WqeOp::Recv,
            again: false,
            is_moved: false,
            immediate: None,
            inline_len: 0,
            mr: other_mr.0,
            offset: 0,
            length: MEMORY as u32,
            remote_mr: 0,
            remote_offset: 0,
        };
        for post in [Post::Open { qp: Z, is_stateful: false }, Post::Wqe(waits)] {
            honest.post(&post, None).expect("the ring is empty");
        }
        // A process that is connected with itself.
        hostile.set_record(Z, &record(F, [0; 16], 0, pd.0));
        let open = |qp, is_stateful| Post::Open { qp, is_stateful };
        hostile.post(&open(Z, false), None).expect("the ring is empty");
        star.take_commands(now);
        let opened = hostile.poll();
        let Some(Report::Opened { key, clock, .. }) = opened else { panic!("{opened:?}") };
        hostile.set_record(F, &record(Z, key, clock, pd.0));
        for post in [open(F, true), Post::Introduce { qp: Z }] {
            hostile.post(&post, None).expect("the ring is empty");
        }
        assert!(matches!(honest.poll(), Some(Report::Opened { status: WcStatus::Success, .. })));
        Self {
            star,
            now,
            hostile,
            honest,
            honest_memory,
            mr: mr.0,
            network: Vec::new(),
            owed: HashMap::new(),
            sequences: [0; 4],
            generation: 0,
            seen: StarSeen::default(),
        }
    }

    /// A turn of the engine: what it sends is on the network.
    fn turn(&mut self) {
        self.star.take_commands(self.now);
        self.star.handle_timeout(self.now);
        let mut buffers = vec![[0_u8; 1472]; 8];
        let mut frames: Vec<_> = buffers.iter_mut().map(|it| TxFrame::new(it)).collect();
        let mut quantum = Quantum::new(1 << 16);
        let count = self.star.poll_transmits(self.now, &mut frames, &mut quantum);
        let sent: Vec<_> = frames[..count].iter().map(|it| it.transmit).collect();
        for (transmit, octets) in sent.iter().zip(&buffers) {
            let Some(transmit) = transmit else { continue };
            self.network.push((transmit.port, octets[..transmit.len].to_vec()));
        }
        self.star.wake_sleepers();
        self.look();
    }

    /// Takes reports, and looks after the honest application.
    fn look(&mut self) {
        while let Some(report) = self.hostile.poll() {
            let Report::Completed { slot, status, .. } = report else { continue };
            let owed = self.owed.entry(slot).or_default();
            assert!(*owed > 0, "slot {slot} was reported more often than posted: {report:?}");
            *owed -= 1;
            if status == WcStatus::Success {
                self.seen.done += 1;
            } else {
                self.seen.failed += 1;
            }
        }
        assert_eq!(self.honest.poll(), None);
        let mut bytes = [0; MEMORY];
        self.honest_memory.copy_out(0, &mut bytes).expect("it is so long");
        assert!(bytes.iter().all(|&byte| byte == 0), "an honest application's memory");
    }

    fn deliver(&mut self, port: Port, mut octets: Vec<u8>) {
        let here = HostAddr::from(HOST);
        let packet = RxPacket {
            source: here,
            destination: here,
            port,
            source_port: SourcePort::FIRST,
            reply_len_max: 1472,
            link: None,
            bytes: &mut octets,
        };
        let now = self.now;
        self.star.handle_frames(now, &now, &mut [RxFrame::alone(packet)]);
        self.seen.frames += 1;
        self.look();
    }

    /// A work request that makes sense, or nearly.
    fn post_work(&mut self, script: &mut Script<'_>) {
        let qp = if script.number().is_multiple_of(2) { Z } else { F };
        let op = WqeOp::ALL[script.number() % 4];
        let queue = 2 * qp as usize + usize::from(op.is_recv());
        self.generation += 1;
        let slot = script.number();
        let posted = Posted {
            slot: slot as u32 % (SLOTS + 1),
            generation: self.generation,
            qp,
            sequence: self.sequences[queue],
            // At times a lie.
            open_before: if slot < 128 { 0 } else { slot as u16 },
            op,
            again: false,
            is_moved: false,
            immediate: None,
            inline_len: 0,
            mr: self.mr,
            offset: script.wide() % MEMORY as u64,
            length: (script.wide() % MEMORY as u64) as u32,
            remote_mr: self.mr,
            remote_offset: script.wide() % MEMORY as u64,
        };
        if self.hostile.post(&Post::Wqe(posted), None).is_ok() {
            self.sequences[queue] = posted.sequence.wrapping_add(1);
            *self.owed.entry(posted.slot).or_default() += 1;
        }
    }

    /// Any line.
    fn post_anything(&mut self, script: &mut Script<'_>) {
        let line = Line(core::array::from_fn(|_| script.wide() << 32 | script.wide()));
        let Some(post) = Post::from_line(&line) else { return };
        let inline = Post::has_second(&line).then_some(&line);
        if self.hostile.post(&post, inline).is_ok()
            && let Post::Wqe(posted) = post
        {
            *self.owed.entry(posted.slot).or_default() += 1;
        }
    }

    fn step(&mut self, script: &mut Script<'_>) {
        let kind = script.number();
        match kind % 8 {
            0 => self.post_work(script),
            1 => self.turn(),
            2 if !self.network.is_empty() => {
                let at = script.number() % self.network.len();
                let (port, octets) = self.network.remove(at);
                self.deliver(port, octets);
            }
            // Once more, or with a bit changed, or to the other port.
            3 if !self.network.is_empty() => {
                let (mut port, mut octets) =
                    self.network[script.number() % self.network.len()].clone();
                match script.number() % 4 {
                    0 => {
                        let at = script.wide() as usize % octets.len();
                        octets[at] ^= 1 << (script.number() % 8);
                    }
                    1 if port == STATELESS_PORT => port = STATEFUL_PORT,
                    1 => port = STATELESS_PORT,
                    _ => {}
                }
                self.deliver(port, octets);
            }
            4 => {
                let len = script.number();
                let octets = script.take(len).to_vec();
                let port = if kind & 8 == 0 { STATELESS_PORT } else { STATEFUL_PORT };
                self.deliver(port, octets);
            }
            5 => {
                let nanos = script.wide() << (script.number() % 24);
                self.now = Instant::from_nanos(self.now.as_nanos().saturating_add(nanos));
                self.turn();
            }
            6 => self.post_anything(script),
            _ => {
                // All that is on the network arrives, and a turn follows.
                for (port, octets) in core::mem::take(&mut self.network) {
                    self.deliver(port, octets);
                }
                self.turn();
            }
        }
        if self.network.len() > 64 {
            self.network.remove(0);
        }
    }
}

/// See [`crate::star_station`].
pub(in super::super) fn run(script: &mut Script<'_>) -> StarSeen {
    const STEPS_MAX: usize = 512;
    let mut station = Station::new();
    for _ in 0..STEPS_MAX {
        if script.0.is_empty() {
            break;
        }
        station.step(script);
    }
    station.seen
}
