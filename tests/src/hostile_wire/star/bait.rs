//! A second application of the stateless host, whose peer is the attacker: he has the real keys of
//! its connections, and no engine of his own.

use rma_core::{addr::HostAddr, backend::Backend, service::Service};
use rma_crypto::fastest;
use rma_shm::Region;
use rma_star::{
    keys::{Binding, OpenSpan, PdKey, PdKeySchedule},
    mr_table::Access,
    names::{ConnectionName, Era, Generation, MrId, Nonce, PdId, Qpn, Slot},
    portal::{Post, Posted, QpRecord, Report, StarPortal, portal},
    verbs::{WcStatus, WqeOp},
};
use std::sync::Arc;

use super::party::{Memory, Party, SPAN};

/// K_p. What the attacker could not derive by it, these tests do not give him.
const PD_KEY: [u8; 16] = *b"K_p of the bait.";

/// The QPN of the attacker's side of QP 0; that of QP 1 is the next.
const QPN_F: u32 = 0x00f0_0007;

/// The application.
pub(super) struct Bait {
    portal: StarPortal,
    number: u16,
    pub(super) pd: PdId,
    pub(super) mr: MrId,
    /// Memory that is registered for nobody else.
    pub(super) closed: MrId,
    pub(super) memory: Memory,
    pub(super) schedule: PdKeySchedule,
    hosts: [HostAddr; 2],
    /// The work requests that the engine has reported.
    pub(super) completed: Vec<u32>,
    sequence: u32,
}

impl Bait {
    /// Opens QPs 0 and 1, whose peers are at host `f`.
    pub(super) fn new<B: Backend>(z: &mut Party<B>, f: HostAddr) -> Self {
        let star = z.engine.service_mut();
        let (portal, port) = portal(16, 2).expect("a small portal");
        let number = star.attach(port).expect("a portal more");
        let key = PdKey::from_bytes(PD_KEY);
        let pd = star.alloc_pd(number, &key).expect("a row");
        let (memory, mr) = Memory::register(star, number, pd);
        let other = Arc::new(Region::new(4096).expect("memory"));
        let closed = star.reg_mr(number, pd, other, 0..4096, Access::LOCAL_WRITE).expect("a row");
        let schedule = PdKeySchedule::new(fastest(), &key);
        let hosts = [f, z.address];
        let (completed, sequence, mr) = (Vec::new(), 0, mr.id());
        let mut bait =
            Self { portal, number, pd, mr, closed, memory, schedule, hosts, completed, sequence };
        for qp in [0, 1] {
            bait.open(z, qp, 1);
        }
        bait
    }

    /// Opens a QP for the `nonce`th time.
    pub(super) fn open<B: Backend>(&mut self, z: &mut Party<B>, qp: u32, nonce: u32) {
        let record = QpRecord {
            peer: self.hosts[0],
            pd: self.pd.0,
            local_pd: self.pd.0,
            peer_qpn: QPN_F + qp,
            nonce,
            era: 0,
            packet_len_max: 1400,
            z_clock: 0,
            key: [0; 16],
        };
        self.portal.set_record(qp, &record);
        self.command(z, Post::Open { qp, is_stateful: false });
        let Some(Report::Opened { status: WcStatus::Success, .. }) = self.portal.poll() else {
            panic!("the engine opens it");
        };
    }

    pub(super) fn close<B: Backend>(&mut self, z: &mut Party<B>, qp: u32) {
        self.command(z, Post::Close { qp });
        assert_eq!(self.portal.poll(), Some(Report::Closed { qp }));
    }

    fn command<B: Backend>(&mut self, z: &mut Party<B>, post: Post) {
        self.turn();
        self.portal.post(&post, None).expect("room");
        let now = z.now();
        z.engine.service_mut().take_commands(now);
    }

    /// Posts a work request: the attacker is told the key of its span.
    pub(super) fn post(
        &mut self,
        qp: u32,
        op: WqeOp,
        (slot, generation): (u32, u32),
        at: u64,
    ) -> OpenSpan {
        let (mr, length) = (self.mr, 256);
        let posted = Posted {
            slot,
            generation,
            qp,
            sequence: self.sequence,
            op,
            again: false,
            is_moved: false,
            immediate: None,
            inline_len: 0,
            open_before: 0,
            mr: mr.0,
            offset: at,
            length,
            remote_mr: 0,
            remote_offset: 0,
        };
        self.sequence += 1;
        self.portal.post(&Post::Wqe(posted), None).expect("room");
        let (slot, generation) = (Slot(slot), Generation(generation));
        OpenSpan { op, slot, generation, mr, mr_offset: at, len: length }
    }

    /// The binding of the `nonce`th connection of a QP.
    pub(super) fn binding(&self, qp: u32, nonce: u32) -> Binding {
        let connection = ConnectionName {
            pd: self.pd,
            qpn_z: Qpn::new(self.number.into(), qp).expect("a small number"),
            qpn_f: Qpn::from_bits(QPN_F + qp),
            nonce: Nonce(nonce),
            era: Era(0),
        };
        Binding { connection, f: self.hosts[0], z: self.hosts[1] }
    }

    pub(super) fn turn(&mut self) {
        while let Some(report) = self.portal.poll() {
            if let Report::Completed { slot, .. } = report {
                self.completed.push(slot);
            }
        }
    }

    /// Returns the registered bytes from an offset on.
    pub(super) fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.region.copy_out(SPAN.start + at, &mut bytes).expect("inside");
        bytes
    }
}
