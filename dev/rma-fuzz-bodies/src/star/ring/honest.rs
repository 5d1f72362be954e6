//! Two applications that keep to the rules, and know what all their memory holds.

use std::sync::Arc;

use rma_core::time::Instant;
use rma_shm::Region;
use rma_star::{
    keys::PdKey,
    library::{
        CqId, Mr, Qp, QpConfig, QpState, RecvWr, Remote, Role, SendWr, Verbs, VerbsConfig,
        VerbsPlace, Wc,
    },
    mr_table::Access,
    portal::portal,
    service::Star,
    verbs::WcStatus,
};

use super::place::{PACKET_LEN, address};

const MEMORY: usize = 4096;
/// Bytes of a message.
const LEN: u32 = 200;
/// The offset that messages come from, in the memory of both; the next ones are where they go, and
/// where WRITEs go.
const FROM: u64 = 0;
const TO: u64 = 1024;
const WRITTEN: u64 = 2048;

struct End {
    verbs: Verbs,
    cq: CqId,
    qp: Qp,
    mr: Mr,
    memory: Arc<Region>,
    /// The expected content of its memory.
    model: Vec<u8>,
}

/// Both applications, and how far they are.
pub(super) struct Honest {
    /// The stateless one, and the stateful one.
    ends: [End; 2],
    has_begun: bool,
    /// Work requests that are not reported.
    open: usize,
    rounds: u64,
}

impl End {
    fn start(star: &mut Star, host: usize, role: Role) -> Self {
        let (application, port) = portal(16, 2).expect("a small portal");
        let number = star.attach(port).expect("a portal more");
        let pd = star.alloc_pd(number, &PdKey::from_bytes([2; 16])).expect("a row");
        let place = VerbsPlace::new(number, address(host), PACKET_LEN as u16);
        let mut verbs = Verbs::new(application, place, VerbsConfig::default());
        let cq = verbs.create_cq(32);
        let config = QpConfig { role, send_depth: 4, recv_depth: 4 };
        let qp = verbs.create_qp(pd, cq, cq, config).expect("it has room");
        let memory = Arc::new(Region::new(MEMORY).expect("memory"));
        let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let span = 0..MEMORY as u64;
        let id = star.reg_mr(number, pd, Arc::clone(&memory), span.clone(), all).expect("a row");
        let mr = Mr::new(id, pd, Arc::clone(&memory), span);
        Self { verbs, cq, qp, mr, memory, model: vec![0; MEMORY] }
    }

    /// Its memory holds these bytes from `at` on.
    fn expect(&mut self, at: u64, byte: u8) {
        self.model[at as usize..][..LEN as usize].fill(byte);
    }
}

impl Honest {
    pub(super) fn start(stars: &mut [Star; 2], z: usize) -> Self {
        let mut end = |host: usize, role| End::start(&mut stars[host], host, role);
        let mut ends = [end(z, Role::Stateless), end(1 - z, Role::Stateful)];
        let End { verbs, qp, .. } = &mut ends[0];
        verbs.connect(Instant::ZERO, *qp).expect("it is new");
        Self { ends, has_begun: false, open: 0, rounds: 0 }
    }

    pub(super) const fn is_ready(&self) -> bool {
        self.has_begun
    }

    pub(super) const fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Both look at their completions, and begin the next round if one is done.
    pub(super) fn turn(&mut self, now: Instant) {
        for end in &mut self.ends {
            end.verbs.poll(now);
            let mut wcs = [Wc::EMPTY; 8];
            let count = end.verbs.poll_cq(end.cq, &mut wcs);
            for wc in &wcs[..count] {
                assert_eq!((wc.status, wc.byte_len), (WcStatus::Success, LEN), "{wc:?}");
                assert!(self.open > 0, "reported once: {wc:?}");
                self.open -= 1;
            }
        }
        if !self.has_begun {
            self.set_up(now);
        } else if self.open == 0 {
            self.check();
            self.rounds += 1;
            self.begin(now);
        }
    }

    fn set_up(&mut self, now: Instant) {
        for from in [0, 1] {
            let End { verbs, qp, .. } = &mut self.ends[from];
            let Some(message) = verbs.poll_message(now, *qp) else { continue };
            let End { verbs, qp, .. } = &mut self.ends[1 - from];
            verbs.handle_message(now, *qp, &message).expect("a message of the other library");
        }
        let is_ready = |end: &End| end.verbs.state(end.qp) == Some(QpState::Ready);
        self.has_begun = self.ends.iter().all(is_ready);
        if self.has_begun {
            self.begin(now);
        }
    }

    /// A message each way, and then a WRITE each way and a READ of what was written.
    fn begin(&mut self, now: Instant) {
        let byte = |end: usize| (2 * self.rounds + end as u64) as u8 | 1;
        for from in [0, 1] {
            let bytes = [byte(from); LEN as usize];
            self.ends[from].memory.copy_in(FROM, &bytes).expect("it is so long");
            self.ends[from].expect(FROM, byte(from));
            self.ends[1 - from].expect(TO, byte(from));
            self.ends[1 - from].expect(WRITTEN, byte(from));
        }
        for from in [0, 1] {
            let remote = Remote { mr: self.ends[1 - from].mr.id(), offset: WRITTEN };
            let End { verbs, qp, mr, .. } = &mut self.ends[from];
            let (data, place) = (mr.slice(FROM, LEN), mr.slice(TO, LEN));
            verbs.post_recv(now, *qp, &RecvWr { wr_id: 1, sge: place }).expect("room");
            verbs.post_send(now, *qp, &SendWr::send(2, data)).expect("room");
            verbs.post_send(now, *qp, &SendWr::write(3, data, remote)).expect("room");
            // The bytes just written come back.
            verbs.post_send(now, *qp, &SendWr::read(4, data, remote)).expect("room");
            self.open += 4;
        }
    }

    /// The memory of both is as it should be, to the last byte.
    fn check(&self) {
        for End { memory, model, .. } in &self.ends {
            let mut bytes = vec![0; MEMORY];
            memory.copy_out(0, &mut bytes).expect("it is so long");
            assert!(bytes == *model, "an honest application's memory");
        }
    }
}
