//! An application of a host of StaR: its portal, its library, its memory, and what it posts.

use core::time::Duration;
use std::sync::Arc;

use arrayvec::ArrayVec;
use rma_core::{addr::HostAddr, time::Instant};
use rma_shm::Region;
use rma_star::{
    keys::PdKey,
    library::{
        CqId, Mr, Qp, QpConfig, RecvWr, Remote, Role, SendWr, Verbs, VerbsConfig, VerbsPlace, Wc,
    },
    mr_table::Access,
    portal::portal,
    service::Star,
};

use crate::{allocator::Asked, memory::FRAME_LEN};

/// Bytes of a message.
pub(super) const MESSAGE: u32 = 32;

/// Bytes from one buffer to the next: a cache line.
const PLACE: u64 = 64;

/// The longest message of a set-up.
const TERMS: usize = 256;

/// Completions that are taken at once.
const WCS: usize = 64;

/// The work request that is posted, of one message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    Recv,
    Send,
    Write(Remote),
}

/// The settings that a host is made with.
pub(super) struct Plan {
    pub(super) portals: u32,
    pub(super) address: HostAddr,
    /// Slots and queue pairs of its portal.
    pub(super) slots: u32,
    pub(super) qps: u32,
    /// Connections of which it is the stateful side.
    pub(super) stateful: u32,
    /// Memory regions, each in a protection domain of its own, and the buffers of each.
    pub(super) mrs: u32,
    pub(super) places: u64,
}

/// The application of a host, and its library.
pub(super) struct Application {
    pub(super) verbs: Verbs,
    cq: CqId,
    /// One for all connections, or one for each.
    pub(super) mrs: Vec<Mr>,
    /// Buffers of each memory region, and how many have been used.
    pub(super) places: u64,
    used: u64,
}

/// W of both sides: longer than a core may be taken away.
pub(super) const PATIENT: Duration = Duration::from_millis(250);

impl Application {
    /// An application. Adds what its portal and library ask of the allocator.
    pub(super) fn new(star: &mut Star, plan: &Plan, asked: &mut Asked) -> Self {
        let (application, port) = asked.add(|| portal(plan.slots, plan.qps).expect("not too many"));
        let number = star.attach(port).expect("there is room");
        let place = VerbsPlace::new(number, plan.address, FRAME_LEN as u16);
        let config = VerbsConfig {
            valid: PATIENT,
            repost_timeout: 2 * PATIENT,
            repost_timeout_max: 4 * PATIENT,
            ..VerbsConfig::default()
        };
        let mut verbs = asked.add(|| Verbs::new(application, place, config));
        let cq = verbs.create_cq(1 << 16);
        let mrs = (0..plan.mrs).map(|at| register(star, number, at, plan.places * PLACE));
        let mrs = mrs.collect();
        Self { verbs, cq, mrs, places: plan.places, used: 0 }
    }

    pub(super) fn mr(&self, connection: u32) -> &Mr {
        &self.mrs[connection as usize % self.mrs.len()]
    }

    pub(super) fn create_qp(&mut self, number: u32, role: Role) -> Qp {
        let config = QpConfig { role, send_depth: 64, recv_depth: 64 };
        let (pd, cq) = (self.mr(number).pd(), self.cq);
        self.verbs.create_qp(pd, cq, cq, config).expect("there is room")
    }

    /// Takes completions.
    pub(super) fn take(&mut self, came: &mut Vec<Wc>) {
        let mut wcs = [Wc::EMPTY; WCS];
        loop {
            let count = self.verbs.poll_cq(self.cq, &mut wcs);
            came.extend(&wcs[..count]);
            if count < wcs.len() {
                return;
            }
        }
    }

    /// Whether a message has landed, which is taken away.
    pub(super) fn take_message(&self, number: u32, place: u64) -> bool {
        let memory = self.mr(number).memory();
        let mut octets = [0; MESSAGE as usize];
        memory.copy_out(place * PLACE, &mut octets).expect("inside");
        memory.copy_in(place * PLACE, &[0; MESSAGE as usize]).expect("inside");
        octets == message()
    }

    pub(super) fn post(&mut self, now: Instant, (qp, number): (Qp, u32), which: usize, work: Work) {
        let place = self.next_place();
        let at = number as usize % self.mrs.len();
        let Self { verbs, mrs, .. } = self;
        let (sge, wr_id) = (mrs[at].slice(place * PLACE, MESSAGE), (which as u64) << 32 | place);
        match work {
            Work::Recv => verbs.post_recv(now, qp, &RecvWr { wr_id, sge }),
            Work::Send => verbs.post_send(now, qp, &SendWr::send(wr_id, sge)),
            Work::Write(remote) => verbs.post_send(now, qp, &SendWr::write(wr_id, sge, remote)),
        }
        .expect("there is room");
    }

    /// The next buffer's number.
    pub(super) const fn next_place(&mut self) -> u64 {
        self.used += 1;
        self.used % self.places
    }
}

/// A protection domain with a memory region, which holds messages.
fn register(star: &mut Star, portal: u16, at: u32, len: u64) -> Mr {
    let mut key = [7; 16];
    key[..2].copy_from_slice(&portal.to_be_bytes());
    key[2..6].copy_from_slice(&at.to_be_bytes());
    let pd = star.alloc_pd(portal, &PdKey::from_bytes(key)).expect("there is room");
    let memory = Arc::new(Region::new(len as usize).expect("small"));
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let mr = star.reg_mr(portal, pd, Arc::clone(&memory), 0..len, access).expect("there is room");
    for place in 0..len / PLACE {
        memory.copy_in(place * PLACE, &message()).expect("inside");
    }
    Mr::new(mr, pd, memory, 0..len)
}

/// Returns the content of each message.
fn message() -> [u8; MESSAGE as usize] {
    core::array::from_fn(|at| at as u8 ^ 0x5a)
}

/// Carries messages of the set-up of a connection between the library of Z, of which it is counted
/// what it asks of the allocator, and that of the other side.
pub(super) fn negotiate(
    now: Instant,
    [z, f]: [&mut Application; 2],
    [at_z, at_f]: [Qp; 2],
    asked_by_z: &mut Asked,
) {
    let message: Option<ArrayVec<u8, TERMS>> = asked_by_z.add(|| {
        let message = z.verbs.poll_message(now, at_z)?;
        Some(message.iter().copied().collect())
    });
    if let Some(message) = message {
        f.verbs.handle_message(now, at_f, &message).expect("what the library has made");
    }
    if let Some(message) = f.verbs.poll_message(now, at_f) {
        asked_by_z.add(|| {
            z.verbs.handle_message(now, at_z, &message).expect("what the library has made");
        });
    }
}
