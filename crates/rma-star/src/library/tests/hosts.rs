//! Two hosts with all that they have, and a network between them that may lose frames: libraries,
//! both kinds of processing, keys. In memory and in virtual time.

use core::time::Duration;

use rma_core::{
    backend::{RxFrame, TxFrame},
    crypto::CounterBlock,
    packet::FRAMES_MAX,
    port::{Port, SourcePort},
    quantum::Quantum,
    service::Service,
};

use super::*;
use crate::{
    config::{StarConfigBuilder, StarPlace},
    counters::StarEvent,
    keys::PdKey,
    mr_table::Access,
    service::Star,
};

const FRAME_LEN_MAX: u16 = 1472;
const LATENCY: Duration = Duration::from_micros(5);
const MEMORY: u64 = 1 << 16;

fn address(host: usize) -> HostAddr {
    HostAddr::from([192, 0, 2, host as u8 + 1])
}

pub(super) struct End {
    pub(super) verbs: Verbs,
    pub(super) star: Star,
    pub(super) mr: Mr,
    pd: PdId,
    cq: CqId,
    pub(super) done: Vec<Wc>,
    pub(super) is_dead: bool,
}

impl End {
    fn new(host: usize, settings: StarConfigBuilder) -> Self {
        let mut place = StarPlace::at(address(host));
        place.receive_len_max = rma_core::backend::ReceiveLenMax::of_mtu(1500);
        let config = settings.build(place).unwrap();
        let mut star = Star::new(config, CounterBlock::new(0, 1 << 40));
        let (application, port) = portal(64, 4).unwrap();
        let number = star.attach(port).unwrap();
        let pd = star.alloc_pd(number, &PdKey::from_bytes([host as u8 + 1; 16])).unwrap();
        let memory = Arc::new(Region::new(MEMORY as usize).unwrap());
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let id = star.reg_mr(number, pd, Arc::clone(&memory), 0..MEMORY, access).unwrap();
        let place = VerbsPlace::new(number, address(host), FRAME_LEN_MAX);
        let mut verbs = Verbs::new(application, place, VerbsConfig::default());
        let cq = verbs.create_cq(64);
        let mr = Mr::new(id, pd, memory, 0..MEMORY);
        Self { verbs, star, mr, pd, cq, done: Vec::new(), is_dead: false }
    }

    pub(super) fn fill(&self, at: u64, bytes: &[u8]) {
        self.mr.memory().copy_in(at, bytes).unwrap();
    }

    pub(super) fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.mr.memory().copy_out(at, &mut bytes).unwrap();
        bytes
    }

    fn remote(&self, offset: u64) -> Remote {
        Remote { mr: self.mr.id(), offset }
    }
}

/// A frame on its way: when it arrives, to whom, where.
type Packet = (Instant, usize, Port, Vec<u8>);

pub(super) struct World {
    pub(super) now: Instant,
    pub(super) ends: [End; 2],
    pub(super) qps: [Qp; 2],
    packets: VecDeque<Packet>,
    /// Of 256 frames, how many are lost.
    loss: u64,
    seed: u64,
    /// How long each engine's thread stands still in its turns, between looking at the clock and
    /// at frames.
    stopped: [Duration; 2],
    /// Frames that were sent.
    frames: usize,
    /// With every so many frames one of those that were sent before is played again.
    pub(super) replays: Option<usize>,
    pub(super) recorded: Vec<(usize, Port, Vec<u8>)>,
    /// The host that dies, and the number of frames until then.
    pub(super) kills: Option<(usize, usize)>,
    pub(super) fate: Fate,
}

/// By how much later than others a frame comes; `None` if it is lost.
pub(super) type Fate = Box<dyn FnMut(&[u8]) -> Option<Duration>>;

impl World {
    /// Two hosts with a connection, of which the one that connects has that role.
    pub(super) fn new(role: Role, loss: u64, seed: u64) -> Self {
        Self::with(role, loss, seed, StarConfigBuilder::default())
    }

    /// The same, of hosts with these settings.
    pub(super) fn with(role: Role, loss: u64, seed: u64, settings: StarConfigBuilder) -> Self {
        let mut world = Self::unconnected(role, (loss, seed), settings);
        let qps = world.qps;
        world.set_up(Duration::ZERO);
        world.run(Duration::from_secs(2));
        for host in [0, 1] {
            assert_eq!(world.state(host), Some(QpState::Ready));
            let is_stateful = role == Role::Rc || (host == 0) == (role == Role::Stateful);
            assert_eq!(world.ends[host].verbs.is_stateful(qps[host]), Some(is_stateful));
        }
        world
    }

    fn unconnected(role: Role, (loss, seed): (u64, u64), settings: StarConfigBuilder) -> Self {
        let now = Instant::from_nanos(90_000 * 1_000_000_000);
        let mut ends = [0, 1].map(|host| End::new(host, settings));
        let config = QpConfig { role: Role::Auto, send_depth: 16, recv_depth: 16 };
        let roles = [role, Role::Auto];
        let qps = [0, 1].map(|host| {
            let End { verbs, pd, cq, .. } = &mut ends[host];
            verbs.create_qp(*pd, *cq, *cq, QpConfig { role: roles[host], ..config }).unwrap()
        });
        Self {
            now,
            ends,
            qps,
            packets: VecDeque::new(),
            stopped: [Duration::ZERO; 2],
            loss,
            seed,
            frames: 0,
            replays: None,
            recorded: Vec::new(),
            kills: None,
            fate: Box::new(|_| Some(Duration::ZERO)),
        }
    }

    /// The first host connects to the other; a message of their set-up takes so long.
    fn set_up(&mut self, delay: Duration) {
        let qps = self.qps;
        self.ends[0].verbs.connect(self.now, qps[0]).unwrap();
        for _ in 0..3 {
            for from in [0, 1] {
                self.turn();
                let message = self.ends[from].verbs.poll_message(self.now, qps[from]);
                if let Some(message) = message {
                    self.run(delay);
                    let (verbs, qp) = (&mut self.ends[1 - from].verbs, qps[1 - from]);
                    verbs.handle_message(self.now, qp, &message).unwrap();
                }
            }
        }
    }

    pub(super) fn state(&self, host: usize) -> Option<QpState> {
        self.ends[host].verbs.state(self.qps[host])
    }

    fn is_lost(&mut self) -> bool {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.seed >> 56 < self.loss
    }

    /// A frame is sent.
    fn carry(&mut self, to: usize, port: Port, bytes: &[u8]) {
        self.frames += 1;
        if let Some((host, left)) = &mut self.kills {
            self.ends[*host].is_dead |= *left == 0;
            *left = left.saturating_sub(1);
        }
        if self.is_lost() {
            return;
        }
        let Some(late) = (self.fate)(bytes) else { return };
        let at = self.now + LATENCY + late;
        let place = self.packets.partition_point(|packet| packet.0 <= at);
        self.packets.insert(place, (at, to, port, bytes.to_vec()));
        if let Some(every) = self.replays {
            self.recorded.push((to, port, bytes.to_vec()));
            if self.frames.is_multiple_of(every) {
                let which = self.frames / every * 7 % self.recorded.len();
                let (to, port, bytes) = self.recorded[which].clone();
                self.packets.push_back((at, to, port, bytes));
            }
        }
    }

    fn turn(&mut self) {
        let now = self.now;
        let began =
            self.stopped.map(|it| Instant::from_nanos(now.as_nanos() - it.as_nanos() as u64));
        while let Some(&(at, to, port, _)) = self.packets.front()
            && at <= now
        {
            let (.., mut bytes) = self.packets.pop_front().expect("it was looked at");
            let frame = RxFrame {
                source: address(1 - to),
                destination: address(to),
                port,
                source_port: SourcePort::FIRST,
                reply_len_max: FRAME_LEN_MAX.into(),
                link: None,
                is_first: true,
                is_handed_over: false,
                bytes: &mut bytes,
            };
            if !self.ends[to].is_dead {
                self.ends[to].star.handle_frames(began[to], &now, &mut [frame]);
            }
        }
        for host in [0, 1] {
            if self.ends[host].is_dead {
                continue;
            }
            self.ends[host].verbs.poll(now);
            let began = began[host];
            self.ends[host].star.handle_timeout(began);
            loop {
                let star = &mut self.ends[host].star;
                let taken = star.take_commands(began);
                let mut buffers = vec![vec![0_u8; FRAME_LEN_MAX.into()]; FRAMES_MAX];
                let mut frames: Vec<_> = buffers.iter_mut().map(|it| TxFrame::new(it)).collect();
                let mut quantum = Quantum::new(1 << 20);
                let count = star.poll_transmits(began, &mut frames, &mut quantum);
                let sent: Vec<_> = frames[..count].iter().map(|it| it.transmit.unwrap()).collect();
                for (transmit, bytes) in sent.iter().zip(&buffers) {
                    self.carry(1 - host, transmit.port, &bytes[..transmit.len]);
                }
                if taken == 0 && count == 0 {
                    break;
                }
            }
            let End { verbs, cq, done, .. } = &mut self.ends[host];
            verbs.poll(now);
            let mut wcs = [Wc::EMPTY; 64];
            let count = verbs.poll_cq(*cq, &mut wcs);
            done.extend(&wcs[..count]);
        }
    }

    /// Plays recorded frames once more.
    pub(super) fn play(&mut self, recorded: Vec<(usize, Port, Vec<u8>)>) {
        let now = self.now;
        self.packets.extend(recorded.into_iter().map(|(to, port, bytes)| (now, to, port, bytes)));
    }

    /// Goes on for a while, as far as something happens.
    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.turn();
            let packet = self.packets.front().map(|packet| packet.0);
            let mut next = packet.unwrap_or(end);
            for host in self.ends.iter().filter(|it| !it.is_dead) {
                let timeouts = [host.verbs.poll_timeout(), host.star.poll_timeout()];
                next = timeouts.into_iter().flatten().fold(next, Instant::min);
            }
            if next >= end {
                break;
            }
            // Time goes on, whatever anybody says.
            self.now = next.max(self.now + Duration::from_nanos(1));
        }
        self.now = end;
        self.turn();
    }

    pub(super) fn send<'m>(
        &mut self,
        host: usize,
        wr: impl FnOnce(&'m Mr) -> SendWr<'m>,
        mr: &'m Mr,
    ) {
        let (now, qp) = (self.now, self.qps[host]);
        self.ends[host].verbs.post_send(now, qp, &wr(mr)).unwrap();
    }

    pub(super) fn recv(&mut self, host: usize, wr_id: u64, at: u64, len: u32) {
        let (now, qp, mr) = (self.now, self.qps[host], self.ends[host].mr.clone());
        let wr = RecvWr { wr_id, sge: mr.slice(at, len) };
        self.ends[host].verbs.post_recv(now, qp, &wr).unwrap();
    }

    pub(super) fn done(&mut self, host: usize) -> Vec<(u64, WcStatus, u32, Option<u32>)> {
        let done = self.ends[host].done.drain(..);
        done.map(|wc| (wc.wr_id, wc.status, wc.byte_len, wc.imm)).collect()
    }
}

const ROLES: [Role; 2] = [Role::Stateful, Role::Stateless];

#[test]
fn all_ops_work_both_ways_and_bytes_arrive() {
    for (role, host) in [(ROLES[0], 0), (ROLES[0], 1), (ROLES[1], 0), (ROLES[1], 1)] {
        let mut world = World::new(role, 0, 0);
        let peer = 1 - host;
        let mr = world.ends[host].mr.clone();
        let long: Vec<u8> = (0..5000).map(|it| it as u8).collect();
        world.ends[host].fill(0, &long);
        world.ends[peer].fill(30_000, b"to be read");
        world.recv(peer, 1, 10_000, 6000);
        world.recv(peer, 2, 16_000, 64);
        let (there, read) = (world.ends[peer].remote(20_000), world.ends[peer].remote(30_000));
        world.send(host, |mr| SendWr::send(3, mr.slice(0, 5000)).with_imm(8), &mr);
        world.send(host, |mr| SendWr::send(4, mr.slice(7, 30)).inline(), &mr);
        world.send(host, |mr| SendWr::write(5, mr.slice(1, 4000), there), &mr);
        world.send(host, |mr| SendWr::read(6, mr.slice(40_000, 10), read), &mr);
        world.run(Duration::from_millis(100));
        let expected = [(1, Success, 5000, Some(8)), (2, Success, 30, None)];
        let own = world.done(host);
        assert_eq!(world.done(peer), expected, "{role:?} {host}: {own:?}");
        let done: Vec<_> = own.iter().map(|it| (it.0, it.1)).collect();
        assert_eq!(done, [3, 4, 5, 6].map(|wr_id| (wr_id, Success)));
        assert_eq!(world.ends[peer].bytes(10_000, 5000), long);
        assert_eq!(world.ends[peer].bytes(16_000, 30), long[7..37]);
        assert_eq!(world.ends[peer].bytes(20_000, 4000), long[1..4001]);
        assert_eq!(world.ends[host].bytes(40_000, 10), b"to be read");
    }
}

/// S5: the whitelist of the stateful side protects nobody; the stateless side's keys do.
#[test]
fn without_a_whitelist_nothing_lands_that_the_stateless_side_has_not_allowed() {
    let mut world = World::new(Role::Stateful, 0, 0);
    world.ends[0].star.forgo_whitelist();
    let (mr, there) = (world.ends[0].mr.clone(), world.ends[1].remote(20_000));
    world.ends[0].fill(0, b"to be refused");
    world.send(0, |mr| SendWr::write(1, mr.slice(0, 13), there), &mr);
    world.run(Duration::from_secs(60));
    let [(1, status, ..)] = world.done(0)[..] else { panic!("it completes") };
    assert_ne!(status, Success);
    assert_eq!(world.ends[1].bytes(20_000, 13), [0; 13]);
    let refused = world.ends[1].star.counters().drops(crate::counters::StarDrop::Unauthenticated);
    assert!(refused > 0, "{refused}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// S3: a SEND that is OK has given one RECV with its bytes, in order.
    #[test]
    fn messages_arrive_once_and_in_order_whatever_is_lost(
        which in 0..2_usize, seed in any::<u64>(), loss in 0_u64..52,
    ) {
        let mut world = World::new(ROLES[which], loss, seed);
        for host in [0, 1] {
            for n in 0..12_u64 {
                world.recv(host, 100 + n, n * 64, 64);
                let mr = world.ends[host].mr.clone();
                let at = 8000 + n * 64;
                world.ends[host].fill(at, &[n as u8 + 1; 50]);
                let wr = |mr| SendWr::send(n, Mr::slice(mr, at, 50)).with_imm(n as u32);
                world.send(host, wr, &mr);
            }
        }
        // Until all has arrived, or either side has given up and the other one knows.
        world.run(Duration::from_secs(60));
        let done = [0, 1].map(|host| world.done(host));
        for host in [0, 1] {
            let all = |wcs: &[(u64, WcStatus, u32, Option<u32>)], from: u64| {
                let of_queue = |it: &&(u64, _, _, _)| it.0 / 100 == from / 100;
                let wcs: Vec<_> = wcs.iter().filter(of_queue).copied().collect();
                let ids: Vec<_> = wcs.iter().map(|it| it.0 - from).collect();
                assert_eq!(ids, (0..12).collect::<Vec<_>>(), "each completes once and in order");
                let good: Vec<_> = wcs.into_iter().take_while(|it| it.1 == Success).collect();
                good
            };
            let (sent, received) = (all(&done[host], 0), all(&done[1 - host], 100));
            prop_assert!(loss > 0 || sent.len() == 12);
            prop_assert!(sent.len() <= received.len(), "what was sent well was received");
            for (n, &(_, _, len, imm)) in received.iter().enumerate() {
                prop_assert_eq!((len, imm), (50, Some(n as u32)));
                let bytes = world.ends[1 - host].bytes(n as u64 * 64, 50);
                prop_assert_eq!(bytes, vec![n as u8 + 1; 50]);
            }
        }
    }
}

/// S1: a peer that is gone ends everything at both sides, RECVs included.
#[test]
fn when_one_dies_all_of_the_other_completes() {
    for (role, dies) in [(ROLES[0], 0), (ROLES[0], 1), (ROLES[1], 0), (ROLES[1], 1)] {
        let mut world = World::new(role, 0, 0);
        let lives = 1 - dies;
        world.recv(lives, 1, 0, 64);
        world.run(Duration::from_millis(50));
        world.ends[dies].is_dead = true;
        let mr = world.ends[lives].mr.clone();
        world.send(lives, |mr| SendWr::send(2, mr.slice(64, 8)), &mr);
        world.run(Duration::from_secs(60));
        assert_eq!(world.state(lives), Some(QpState::Error), "{role:?} {dies}");
        let mut done = world.done(lives);
        done.sort_unstable_by_key(|it| it.0);
        let [(1, recv, ..), (2, send, ..)] = done[..] else { panic!("both: {done:?}") };
        assert!(recv != Success && send != Success, "{recv:?} {send:?}");
    }
}

/// A close on one side fails work on the other, and nobody is left with anything.
#[test]
fn a_connection_that_is_closed_ends_at_both_sides() {
    for (role, closes) in [(ROLES[0], 0), (ROLES[0], 1), (ROLES[1], 0), (ROLES[1], 1)] {
        let mut world = World::new(role, 0, 0);
        world.recv(0, 1, 0, 64);
        world.recv(1, 1, 0, 64);
        world.run(Duration::from_millis(50));
        let (now, qp) = (world.now, world.qps[closes]);
        world.ends[closes].verbs.close(now, qp);
        world.run(Duration::from_secs(60));
        assert_eq!(world.done(closes), [(1, WrFlushErr, 0, None)]);
        assert_eq!(world.state(1 - closes), Some(QpState::Error), "{role:?} {closes}");
        let [(1, status, ..)] = world.done(1 - closes)[..] else { panic!("it completes") };
        assert_ne!(status, Success);
        for end in &world.ends {
            assert_eq!((end.verbs.stateful, end.verbs.strange_reports()), (0, 0));
        }
    }
}

/// A side's bounds on the other's clock hold even if its thread, or the other's, stood still
/// between a look at its own clock and at the frames that came meanwhile.
#[test]
fn an_engine_that_is_stopped_in_a_turn_is_not_wrong_about_the_clock() {
    for (role, stops) in [(ROLES[0], 0), (ROLES[0], 1), (ROLES[1], 0), (ROLES[1], 1)] {
        let mut world = World::new(role, 0, 0);
        for stopped in [Duration::from_millis(5), Duration::ZERO] {
            world.stopped[stops] = stopped;
            for host in [0, 1] {
                world.recv(1 - host, 1, 0, 64);
                let mr = world.ends[host].mr.clone();
                world.send(host, |mr| SendWr::send(2, mr.slice(64, 8)).inline(), &mr);
                world.run(Duration::from_millis(1));
            }
        }
        for end in &world.ends {
            let counted = |event| end.star.counters().events(event);
            let again = (counted(StarEvent::Expired), counted(StarEvent::Retransmit));
            assert_eq!(again, (0, 0), "{role:?} {stops}");
            assert_eq!(end.done.len(), 4);
        }
    }
}

/// The stateless side tells its initial state as soon as it has nothing more to say to the other
/// library; over a network that is faster than the messages of the libraries, it comes too early.
//= star#III-C1-state
//= type=test
#[test]
fn no_set_up_waits_for_a_timeout() {
    for role in [Role::Stateless, Role::Stateful, Role::Rc] {
        let mut world = World::unconnected(role, (0, 0), StarConfigBuilder::default());
        world.set_up(Duration::from_millis(2));
        world.run(Duration::from_micros(100));
        let states = [0, 1].map(|host| world.state(host));
        assert_eq!(states, [Some(QpState::Ready); 2], "{role:?}");
        let again = world.ends.iter().map(|end| end.star.counters().events(StarEvent::Retransmit));
        assert_eq!(again.sum::<u64>(), 0, "{role:?}");
    }
}
