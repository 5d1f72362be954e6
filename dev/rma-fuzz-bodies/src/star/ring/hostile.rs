//! An application that has its portal's memory, and uses it.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use rma_shm::{Line, Mapping, Region, RingMemory, spsc::Capacity};
use rma_star::{
    handover::Handover,
    keys::{FrameKey, PdKey},
    mr_table::Access,
    names::{Era, Nonce, PdId, Qpn, Sequence},
    portal::{Post, Posted, QpRecord, Report, StarPort, StarPortal, StarPortalMemory},
    service::Star,
    verbs::WqeOp,
};

use super::place::{PACKET_LEN, address};
use crate::script::{Script, hostile_index};

const SLOTS: u32 = 8;
const QPS: u32 = 4;

/// The places of the rings in a portal of so many slots and QPs, and their numbers of lines.
const POSTS: (usize, usize) = (384, 32);
const REPORTS_LINES: usize = 64;

/// Words at the end of a portal: the records of its QPs, guard words, QP words.
const WORDS_AT_END: usize = 64;

/// The application's memory, and how much of it is registered. The rest is nobody's to touch.
const MEMORY: usize = 8192;
const REGISTERED: u64 = 4096;

pub(super) struct Hostile {
    host: usize,
    mapping: Arc<Mapping>,
    posts: RingMemory,
    reports: RingMemory,
    portal: StarPortal,
    memory: Arc<Region>,
    mr: u32,
    /// Of its QPs, as they were when all was right.
    records: [QpRecord; QPS as usize],
    generation: u32,
    sequences: [u32; 2 * QPS as usize],
}

impl Hostile {
    /// The application, attached to its engine. It is the first of each host, so that both know
    /// the other's names.
    pub(super) fn start(star: &mut Star, host: usize) -> Self {
        let footprint = StarPortalMemory::footprint(SLOTS, QPS).expect("a small portal");
        let mapping = Arc::new(Mapping::heap(footprint));
        let portal = StarPortalMemory::format(&mapping, SLOTS, QPS).expect("its footprint");
        let join = |at, lines| {
            let capacity = Capacity::new(lines).expect("a power of two");
            RingMemory::join(&mapping, at, capacity).expect("a ring lies there")
        };
        let posts = join(POSTS.0, POSTS.1);
        let capacity = Capacity::new(POSTS.1).expect("a power of two");
        let reports = join(POSTS.0 + RingMemory::footprint(capacity), REPORTS_LINES);
        let number = star.attach(StarPort::new(portal.clone())).expect("the first portal");
        let pd = star.alloc_pd(number, &PdKey::from_bytes([1; 16])).expect("a row");
        let memory = Arc::new(Region::new(MEMORY).expect("memory"));
        let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let mr = star.reg_mr(number, pd, Arc::clone(&memory), 0..REGISTERED, all).expect("a row");
        let records = core::array::from_fn(|qp| QpRecord {
            peer: address(1 - host),
            pd: pd.0,
            local_pd: pd.0,
            peer_qpn: Qpn::new(number.into(), qp as u32).map_or(0, Qpn::to_bits),
            nonce: 1,
            era: 0,
            packet_len_max: PACKET_LEN as u16,
            z_clock: 0,
            key: [0; 16],
        });
        let portal = StarPortal::new(portal, None);
        let (generation, sequences) = (0, [0; _]);
        let mr = mr.0;
        Self { host, mapping, posts, reports, portal, memory, mr, records, generation, sequences }
    }

    /// Opens a QP as one does; as the stateful side with what the stateless one was told.
    pub(super) fn open(&mut self, qp: u32, told: Option<([u8; 16], u64)>) {
        let record = &mut self.records[qp as usize];
        if let Some((key, z_clock)) = told {
            (record.key, record.z_clock) = (key, z_clock);
        }
        self.portal.set_record(qp, record);
        self.publish(&Post::Open { qp, is_stateful: told.is_some() }.to_line());
    }

    pub(super) fn introduce(&self, qp: u32) {
        self.publish(&Post::Introduce { qp }.to_line());
    }

    /// The key and the clock that the engine told of a QP which it has opened.
    pub(super) fn told_key(&self, qp: u32) -> Option<([u8; 16], u64)> {
        let mut told = (0..self.reports.tail()).filter_map(|at| {
            match Report::from_line(&self.reports.line(at)) {
                Some(Report::Opened { qp: of, key, clock, .. }) if of == qp => Some((key, clock)),
                _ => None,
            }
        });
        told.next_back()
    }

    pub(super) fn step(&mut self, step: usize, script: &mut Script<'_>) {
        let Self { posts, reports, .. } = self;
        match step {
            0 => posts.set_tail(hostile_index(posts.tail(), script)),
            1 => posts.set_head(hostile_index(posts.head(), script)),
            2 => reports.set_head(hostile_index(reports.head(), script)),
            3 => reports.set_tail(hostile_index(reports.tail(), script)),
            4 | 5 => {
                let line = self.work(script).to_line();
                self.publish(&line);
            }
            6 => {
                let line = Line(core::array::from_fn(|_| script.wide() << 32 | script.wide()));
                self.publish(&line);
            }
            // A word of the records, guards or QPs; or any word.
            7 => {
                let words = self.mapping.words();
                let kind = script.number();
                let span = if kind & 1 == 0 { WORDS_AT_END } else { words.len() };
                let word = &words[words.len() - 1 - script.wide() as usize % span];
                let before = word.load(Ordering::Relaxed);
                let value = match kind & 6 {
                    0 => script.wide() << (script.number() % 64),
                    2 => before.wrapping_add_signed((script.number() as i8).into()),
                    _ => before ^ 1 << (script.number() % 64),
                };
                word.store(value, Ordering::Relaxed);
            }
            _ => self.command(script),
        }
    }

    /// Whether or not there is room.
    fn publish(&self, line: &Line) {
        self.posts.set_line(self.posts.tail(), line);
        self.posts.set_tail(self.posts.tail().wrapping_add(1));
    }

    /// A QP opens, closes or is introduced; its record may be another use of it, or another era, or
    /// of a host that there is not.
    fn command(&mut self, script: &mut Script<'_>) {
        let kind = script.number();
        let qp = script.number() as u32 % (QPS + 1);
        if let Some(record) = self.records.get_mut(qp as usize) {
            match kind / 8 % 8 {
                0 => record.nonce = record.nonce.wrapping_add(1),
                1 => record.era ^= 1,
                2 => record.peer = address(script.number() % 4),
                3 => record.packet_len_max = script.wide() as u16,
                4 => record.z_clock = script.wide() << (script.number() % 49),
                _ => {}
            }
            self.portal.set_record(qp, record);
        }
        let post = match kind % 8 {
            0..4 => Post::Open { qp, is_stateful: kind & 1 == 0 },
            4 | 5 => Post::Close { qp },
            6 => Post::Introduce { qp },
            _ => self.roles(kind >> 6, qp, script),
        };
        self.publish(&post.to_line());
    }

    /// Something about a change of roles, that was asked for or not.
    fn roles(&self, kind: usize, qp: u32, script: &mut Script<'_>) -> Post {
        let era = Era(script.number() as u16);
        match kind {
            0 => Post::Switch { qp, is_automatic: era.0 & 1 == 1 },
            1 | 2 => Post::Answer { qp, number: era, agrees: kind == 1 },
            _ => {
                let sequence = || Sequence(self.sequences[0]);
                let handover = Handover {
                    era,
                    packet_len_max: PACKET_LEN as u16,
                    valid_micros: script.wide() as u32,
                    clock: script.wide() << (script.number() % 49),
                    pd: PdId(self.records[0].pd),
                    nonce: Nonce(1),
                    giver: [sequence(); 2],
                    taker: [sequence(); 2],
                    key: FrameKey::from_bytes([7; 16]),
                };
                // Often few, and sometimes more than there are rows.
                let outstanding = script.wide() as u32 >> (script.number() % 16);
                Post::TakeOver { qp, handover, outstanding }
            }
        }
    }

    /// A work request that makes sense, or nearly.
    fn work(&mut self, script: &mut Script<'_>) -> Post {
        let kind = script.number();
        let qp = (kind >> 2) as u32 % QPS;
        let op = WqeOp::ALL[kind % 4];
        let sequence = &mut self.sequences[2 * qp as usize + usize::from(op.is_recv())];
        self.generation += 1;
        let slot = script.number();
        let posted = Posted {
            // One past its own is nobody's.
            slot: slot as u32 % (SLOTS + 1),
            generation: self.generation,
            qp,
            sequence: *sequence,
            // At times a lie.
            open_before: if slot < 128 { 0 } else { slot as u16 },
            op,
            again: kind & 0x80 != 0,
            is_moved: kind & 0x10 != 0,
            immediate: (kind & 0x40 != 0).then_some(7),
            inline_len: 0,
            mr: self.mr,
            offset: script.wide() % (REGISTERED + 64),
            length: script.wide() as u32 % 2048,
            remote_mr: self.mr,
            remote_offset: script.wide() % (REGISTERED + 64),
        };
        *sequence = sequence.wrapping_add(1);
        Post::Wqe(posted)
    }

    /// Checks that memory which is not registered stays as it is.
    pub(super) fn check(&self) {
        let mut bytes = [0; MEMORY - REGISTERED as usize];
        self.memory.copy_out(REGISTERED, &mut bytes).expect("it is so long");
        assert!(bytes.iter().all(|&byte| byte == 0), "memory past a span, of host {}", self.host);
    }
}
