//! A host's engine, and an application that keeps to the rules and knows what all its memory holds.

use core::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use std::sync::Arc;

use rma_core::{
    addr::HostAddr,
    backend::{Backend, ReceiveLenMax},
    crypto::CounterBlock,
    engine::Engine,
    fair_queue::BucketSecret,
    time::{Clock, Instant},
};
use rma_shm::Region;
use rma_star::{
    config::{StarConfigBuilder, StarPlace},
    counters::{StarCounters, StarDrop, StarEvent},
    keys::PdKey,
    library::{CqId, Mr, Qp, QpConfig, QpState, Role, Verbs, VerbsConfig, VerbsPlace, Wc},
    mr_table::Access,
    names::PdId,
    portal::portal,
    service::Star,
    verbs::WcStatus,
};
use rma_xdp::time::TscClock;

/// How long a frame is valid. Long, so that a machine that is busy loses little by it.
pub(super) const VALID: Duration = Duration::from_millis(200);

/// That of a veth pair.
const MTU: usize = 1500;

/// Bytes of a message, which takes several frames.
pub(super) const LEN: u32 = 3000;

/// The registered part of the memory; around it are bytes that are nobody's.
pub(super) const SPAN: Range<u64> = 4096..20_480;
const MEMORY: usize = 24_576;
const NOBODYS: u8 = 0xa5;

/// The offset in the span that messages come from; the next two are where they go, and where WRITEs
/// go.
pub(super) const FROM: u64 = 0;
pub(super) const TO: u64 = 4096;
pub(super) const WRITTEN: u64 = 8192;

/// The machine's clock, set on.
#[derive(Debug)]
pub(super) struct SetClock {
    clock: TscClock,
    ahead: Arc<AtomicU64>,
}

impl Clock for SetClock {
    fn now(&self) -> Instant {
        self.clock.now() + Duration::from_nanos(self.ahead.load(Relaxed))
    }
}

/// A host, whose engine is turned by hand.
pub(super) struct Party<B> {
    pub(super) engine: Engine<B, SetClock, Star>,
    pub(super) address: HostAddr,
    ahead: Arc<AtomicU64>,
    pub(super) application: Application,
}

/// An application, its memory and its queue pair.
pub(super) struct Application {
    pub(super) verbs: Verbs,
    pub(super) pd: PdId,
    cq: CqId,
    pub(super) qp: Qp,
    pub(super) mr: Mr,
    pub(super) memory: Memory,
}

/// Memory whose middle is registered, and what all of it should hold.
pub(super) struct Memory {
    pub(super) region: Arc<Region>,
    model: Vec<u8>,
}

impl<B: Backend> Party<B> {
    /// A host over `backend`, whose clock shows `ahead` now.
    pub(super) fn new(backend: B, address: HostAddr, ahead: Duration, role: Role) -> Self {
        let mut settings = StarConfigBuilder::default();
        (settings.valid, settings.retransmit_timeout) = (VALID, VALID * 9 / 8);
        let place = StarPlace::at(address).with(|it| {
            it.receive_len_max = ReceiveLenMax::of_mtu(MTU);
            it.secret = BucketSecret::from_bytes([role as u8 + 1; 16]);
        });
        let received = place.receive_len_max;
        let packet_len_max = if address.is_ipv4() { received.ipv4 } else { received.ipv6 };
        let config = settings.build(place).expect("settings that work");
        let mut star = Star::new(config, CounterBlock::new(0, 1 << 40));
        let application = Application::new(&mut star, address, packet_len_max as u16, role);
        let ahead = Arc::new(AtomicU64::new(ahead.as_nanos() as u64));
        let clock = SetClock { clock: TscClock::new(), ahead: Arc::clone(&ahead) };
        Self { engine: Engine::new(star, backend, clock), address, ahead, application }
    }

    pub(super) fn now(&self) -> Instant {
        self.engine.clock().now()
    }

    /// All at once it is later by this much.
    pub(super) fn set_on(&self, by: Duration) {
        self.ahead.fetch_add(by.as_nanos() as u64, Relaxed);
    }

    pub(super) fn counters(&self) -> &StarCounters {
        self.engine.service().counters()
    }

    /// Frames that died, for whatever reason.
    pub(super) fn dropped(&self) -> u64 {
        StarDrop::ALL.into_iter().map(|it| self.counters().drops(it)).sum()
    }

    /// Frames that were authentic and had no effect: one without a key never gets so far.
    pub(super) fn refused(&self) -> u64 {
        let of = |it| self.counters().events(it);
        [StarEvent::Expired, StarEvent::Gone, StarEvent::Denied].map(of).into_iter().sum()
    }
}

impl Application {
    fn new(star: &mut Star, address: HostAddr, packet_len_max: u16, role: Role) -> Self {
        let (application, port) = portal(64, 8).expect("a small portal");
        let number = star.attach(port).expect("the first portal");
        let pd = star.alloc_pd(number, &PdKey::from_bytes([role as u8 + 3; 16])).expect("a row");
        let mut config = VerbsConfig::default();
        (config.valid, config.repost_timeout) = (VALID, VALID);
        config.repost_timeout_max = VALID * 8;
        let place = VerbsPlace::new(number, address, packet_len_max);
        let mut verbs = Verbs::new(application, place, config);
        let cq = verbs.create_cq(64);
        let qp = Self::create_qp(&mut verbs, pd, cq, role);
        let (memory, mr) = Memory::register(star, number, pd);
        Self { verbs, pd, cq, qp, mr, memory }
    }

    fn create_qp(verbs: &mut Verbs, pd: PdId, cq: CqId, role: Role) -> Qp {
        let config = QpConfig { role, send_depth: 8, recv_depth: 8 };
        verbs.create_qp(pd, cq, cq, config).expect("it has room")
    }

    /// Another queue pair instead.
    pub(super) fn replace_qp(&mut self, role: Role) {
        self.qp = Self::create_qp(&mut self.verbs, self.pd, self.cq, role);
    }

    pub(super) fn is(&self, state: QpState) -> bool {
        self.verbs.state(self.qp) == Some(state)
    }

    /// Takes completions: each a success of a whole message. Returns how many.
    pub(super) fn completions(&mut self, now: Instant) -> usize {
        self.verbs.poll(now);
        let mut wcs = [Wc::EMPTY; 16];
        let count = self.verbs.poll_cq(self.cq, &mut wcs);
        for wc in &wcs[..count] {
            assert_eq!((wc.status, wc.byte_len), (WcStatus::Success, LEN), "{wc:?}");
        }
        count
    }
}

impl Memory {
    pub(super) fn register(star: &mut Star, portal: u16, pd: PdId) -> (Self, Mr) {
        let region = Arc::new(Region::new(MEMORY).expect("memory"));
        let mut model = vec![NOBODYS; MEMORY];
        model[SPAN.start as usize..SPAN.end as usize].fill(0);
        region.copy_in(0, &model).expect("inside");
        let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let id = star.reg_mr(portal, pd, Arc::clone(&region), SPAN, all).expect("a row");
        let mr = Mr::new(id, pd, Arc::clone(&region), SPAN);
        (Self { region, model }, mr)
    }

    /// Writes `len` bytes at an offset of what is registered.
    pub(super) fn fill(&mut self, at: u64, len: u32, byte: u8) {
        self.region.copy_in(SPAN.start + at, &vec![byte; len as usize]).expect("inside");
        self.expect(at, len, byte);
    }

    /// These bytes are there, once the work is done.
    pub(super) fn expect(&mut self, at: u64, len: u32, byte: u8) {
        self.model[(SPAN.start + at) as usize..][..len as usize].fill(byte);
    }

    /// It is as it should be, to the last byte.
    pub(super) fn check(&self) {
        let mut bytes = vec![0; MEMORY];
        self.region.copy_out(0, &mut bytes).expect("inside");
        let wrong = bytes.iter().zip(&self.model).position(|(is, should)| is != should);
        assert_eq!(wrong, None, "the first byte that is not as it should be");
    }
}
