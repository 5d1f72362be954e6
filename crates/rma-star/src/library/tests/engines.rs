//! Hosts of several engines in memory: each packet goes to the engine that a route says, right or
//! wrong, and from there to its owner. No two engines have the same time.

use core::cell::Cell;
use std::rc::Rc;

use rma_core::{
    backend::{Backend, ReceiveLenMax, RxFrame, RxPacket, Transmit, TxFrame},
    crypto::{CounterBlock, EngineId},
    engine::{Engine, HandOvers, Neighbours},
    seat::Seat,
    service::Service,
    time::Clock,
};

use super::*;
use crate::{
    config::{StarConfigBuilder, StarPlace},
    counters::StarDrop,
    keys::PdKey,
    mr_table::Access,
    names::Qpn,
    service::Star,
    wire,
};

const FRAME_LEN_MAX: u16 = 1472;
const MEMORY: u64 = 1 << 16;
/// Bytes of messages under load.
const LEN: u32 = 48;

/// The time of one engine.
#[derive(Clone)]
struct EngineClock {
    nanos: Rc<Cell<u64>>,
    ahead: u64,
}

impl Clock for EngineClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.nanos.get() + self.ahead)
    }
}

/// A packet under way.
#[derive(Clone)]
struct Flight {
    transmit: Transmit,
    bytes: Vec<u8>,
}

impl Flight {
    fn packet(&mut self) -> RxPacket<'_> {
        let Transmit { source, destination, port, source_port, .. } = self.transmit;
        let reply_len_max = FRAME_LEN_MAX.into();
        let bytes = &mut self.bytes[..];
        RxPacket { source, destination, port, source_port, reply_len_max, link: None, bytes }
    }

    /// With another queue pair to go to.
    fn to(mut self, qpn: Qpn) -> Self {
        let is_of_z = self.bytes[2] & 4 != 0;
        let at = if is_of_z { 12 } else { 8 };
        self.bytes[at..at + 4].copy_from_slice(&qpn.to_bits().to_be_bytes());
        self
    }
}

#[derive(Default)]
struct Wire {
    inbox: VecDeque<Flight>,
    outbox: Vec<Flight>,
}

impl Backend for Wire {
    fn rx_burst(&mut self, max: usize, mut on_packets: impl FnMut(&mut [RxPacket<'_>])) -> usize {
        let count = self.inbox.len().min(max);
        self.inbox.drain(..count).for_each(|mut flight| on_packets(&mut [flight.packet()]));
        count
    }

    fn tx_burst(&mut self, max: usize, mut fill: impl FnMut(&mut [TxFrame<'_>]) -> usize) -> usize {
        for sent in 0..max {
            let mut out = [0; FRAME_LEN_MAX as usize];
            let mut frames = [TxFrame::new(&mut out)];
            if fill(&mut frames) == 0 {
                return sent;
            }
            let [TxFrame { bytes, transmit }] = frames;
            if let Some(transmit) = transmit {
                self.outbox.push(Flight { transmit, bytes: bytes[..transmit.len].to_vec() });
            }
        }
        max
    }

    fn flush(&mut self, _: Instant) {}
}

/// An application with a portal at one engine.
struct Application {
    verbs: Verbs,
    mr: Mr,
    pd: PdId,
    cq: CqId,
    done: Vec<Wc>,
}

struct Host {
    address: HostAddr,
    engines: Vec<Engine<Wire, EngineClock, Star>>,
    handed: Vec<Arc<HandOvers>>,
    /// One at each engine.
    applications: Vec<Application>,
}

impl Host {
    fn new(octet: u8, engines: u16, nanos: &Rc<Cell<u64>>) -> Self {
        let address = HostAddr::from([192, 0, 2, octet]);
        let seats: Vec<_> = (0..engines).map(|_| Seat::new(None, Arc::default())).collect();
        let settings = StarConfigBuilder::default().divided(engines).unwrap();
        let mut host =
            Self { address, engines: Vec::new(), handed: Vec::new(), applications: Vec::new() };
        for (index, neighbours) in (0..engines).zip(Neighbours::connect(&seats)) {
            let place = StarPlace::at(address).with(|it| {
                (it.engine, it.engines) = (EngineId(index), engines);
                it.receive_len_max = ReceiveLenMax::of_mtu(1500);
            });
            // All with the same values of the counter: their numbers keep IVs apart.
            let config = settings.build(place).unwrap();
            let mut star = Star::new(config, CounterBlock::new(0, 1 << 40));
            let (application, port) = portal(256, 32).unwrap();
            let number = star.attach(port).unwrap();
            assert_eq!(u32::from(number), u32::from(index) * (Qpn::PORTALS / u32::from(engines)));
            let secret = PdKey::from_bytes([octet * 16 + index as u8; 16]);
            let pd = star.alloc_pd(number, &secret).unwrap();
            let memory = Arc::new(Region::new(MEMORY as usize).unwrap());
            let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
            let id = star.reg_mr(number, pd, Arc::clone(&memory), 0..MEMORY, access).unwrap();
            let place = VerbsPlace::new(number, address, FRAME_LEN_MAX);
            let mut verbs = Verbs::new(application, place, VerbsConfig::default());
            let cq = verbs.create_cq(512);
            let mr = Mr::new(id, pd, memory, 0..MEMORY);
            host.applications.push(Application { verbs, mr, pd, cq, done: Vec::new() });
            let ahead = u64::from(octet) * 77_000_000_000 + u64::from(index) * 5_000_000_000_000;
            let clock = EngineClock { nanos: Rc::clone(nanos), ahead };
            host.handed.push(Arc::clone(neighbours.counts()));
            host.engines.push(Engine::new(star, Wire::default(), clock).beside(neighbours));
        }
        host
    }

    /// How many frames were dropped, for whatever reason, by engine.
    fn drops(&self) -> Vec<u64> {
        let drops = |star: &Star| StarDrop::ALL.iter().map(|&it| star.counters().drops(it)).sum();
        self.engines.iter().map(|engine| drops(engine.service())).collect()
    }

    fn given(&self) -> u64 {
        self.handed.iter().map(|counts| counts.given()).sum()
    }
}

/// The engine of `engines` that a packet comes to which is for `owner`.
type Route = fn(owner: usize, engines: usize, nth: usize) -> usize;

/// All routes: right, always wrong, and in turns.
const ROUTES: [Route; 3] = [
    |owner, _, _| owner,
    |owner, engines, _| (owner + 1) % engines,
    |_, engines, nth| nth % engines,
];

/// An engine of a host, and its application.
#[derive(Clone, Copy, Debug)]
struct At {
    host: usize,
    engine: usize,
}

/// A connection of two applications.
#[derive(Clone, Copy, Debug)]
struct Link {
    ends: [At; 2],
    qps: [Qp; 2],
}

struct Net {
    hosts: Vec<Host>,
    nanos: Rc<Cell<u64>>,
    route: Route,
    packets: usize,
}

impl Net {
    fn new(engines: &[u16], route: Route) -> Self {
        let nanos = Rc::new(Cell::new(90_000_000_000));
        let hosts = (1..).zip(engines).map(|(octet, &engines)| Host::new(octet, engines, &nanos));
        Self { hosts: hosts.collect(), nanos, route, packets: 0 }
    }

    fn now(&self, at: At) -> Instant {
        self.hosts[at.host].engines[at.engine].clock().now()
    }

    fn application(&mut self, at: At) -> &mut Application {
        &mut self.hosts[at.host].applications[at.engine]
    }

    fn carry(&mut self, mut flight: Flight) {
        let destination = flight.transmit.destination;
        let host = self.hosts.iter_mut().find(|it| it.address == destination).unwrap();
        let star = host.engines[0].service();
        let owner = star.owner_of(&RxFrame::alone(flight.packet())).map_or(0, |it| it.0.into());
        let engine = (self.route)(owner, host.engines.len(), self.packets);
        self.packets += 1;
        host.engines[engine].backend_mut().inbox.push_back(flight);
    }

    fn round(&mut self) {
        for host in 0..self.hosts.len() {
            for engine in 0..self.hosts[host].engines.len() {
                let it = &mut self.hosts[host].engines[engine];
                it.turn();
                let sent = core::mem::take(&mut it.backend_mut().outbox);
                sent.into_iter().for_each(|flight| self.carry(flight));
                let now = self.now(At { host, engine });
                let Application { verbs, cq, done, .. } = self.application(At { host, engine });
                verbs.poll(now);
                let mut wcs = [Wc::EMPTY; 64];
                let count = verbs.poll_cq(*cq, &mut wcs);
                done.extend(&wcs[..count]);
            }
        }
        self.nanos.set(self.nanos.get() + 5_000);
    }

    /// The next packet of the first engine.
    fn sent(&mut self) -> Vec<Flight> {
        let engine = &mut self.hosts[0].engines[0];
        for _ in 0..10 {
            engine.turn();
        }
        core::mem::take(&mut engine.backend_mut().outbox)
    }

    fn until(&mut self, what: &str, mut is_over: impl FnMut(&mut Self) -> bool) {
        for _ in 0..100_000 {
            if is_over(self) {
                return;
            }
            self.round();
        }
        panic!("half a second is over: {what}");
    }

    /// Connects two applications, of which the first gets this role.
    fn connect(&mut self, ends: [At; 2], role: Role) -> Link {
        let qps = [0, 1].map(|end| {
            let role = [role, Role::Auto][end];
            let Application { verbs, pd, cq, .. } = self.application(ends[end]);
            let config = QpConfig { role, send_depth: 16, recv_depth: 16 };
            verbs.create_qp(*pd, *cq, *cq, config).unwrap()
        });
        let now = self.now(ends[0]);
        self.application(ends[0]).verbs.connect(now, qps[0]).unwrap();
        self.until("no connection", |net| {
            for from in [0, 1] {
                let to = 1 - from;
                let now = [net.now(ends[from]), net.now(ends[to])];
                let message = net.application(ends[from]).verbs.poll_message(now[0], qps[from]);
                if let Some(message) = message {
                    let verbs = &mut net.application(ends[to]).verbs;
                    verbs.handle_message(now[1], qps[to], &message).unwrap();
                }
            }
            let ready = |net: &mut Self, end: usize| {
                net.application(ends[end]).verbs.state(qps[end]) == Some(QpState::Ready)
            };
            ready(net, 0) && ready(net, 1)
        });
        Link { ends, qps }
    }

    fn post_recv(&mut self, link: Link, end: usize, wr_id: u64, at: u64, len: u32) {
        let now = self.now(link.ends[end]);
        let Application { verbs, mr, .. } = self.application(link.ends[end]);
        let wr = RecvWr { wr_id, sge: mr.slice(at, len) };
        verbs.post_recv(now, link.qps[end], &wr).unwrap();
    }

    fn post_send(&mut self, link: Link, end: usize, wr: impl FnOnce(&Mr) -> SendWr<'_>) {
        let now = self.now(link.ends[end]);
        let Application { verbs, mr, .. } = self.application(link.ends[end]);
        let mr = mr.clone();
        verbs.post_send(now, link.qps[end], &wr(&mr)).unwrap();
    }

    /// Waits until so many work requests are done at each end, which all went well.
    fn done(&mut self, link: Link, counts: [usize; 2]) -> [Vec<Wc>; 2] {
        self.until("work requests are not done", |net| {
            [0, 1].iter().all(|&end| net.application(link.ends[end]).done.len() >= counts[end])
        });
        let done = [0, 1].map(|end| core::mem::take(&mut self.application(link.ends[end]).done));
        for (wcs, count) in done.iter().zip(counts) {
            assert_eq!(wcs.len(), count, "{link:?}: {done:?}");
            assert!(wcs.iter().all(|wc| wc.status == Success), "{link:?}: {done:?}");
        }
        done
    }

    /// Ops of all types from one end: bytes arrive.
    fn ops(&mut self, link: Link, from: usize) {
        let to = 1 - from;
        let bytes: Vec<u8> = (0..5000).map(|it| (it * 3 + from + self.packets) as u8).collect();
        self.application(link.ends[from]).mr.memory().copy_in(0, &bytes).unwrap();
        let theirs = self.application(link.ends[to]).mr.clone();
        theirs.memory().copy_in(40_000, &bytes).unwrap();
        self.post_recv(link, to, 1, 10_000, 6000);
        self.post_recv(link, to, 2, 16_000, 64);
        let there = |offset| Remote { mr: theirs.id(), offset };
        self.post_send(link, from, |mr| SendWr::send(3, mr.slice(0, 5000)).with_imm(8));
        self.post_send(link, from, |mr| SendWr::send(4, mr.slice(7, 30)).inline());
        self.post_send(link, from, |mr| SendWr::write(5, mr.slice(1, 4000), there(20_000)));
        self.post_send(link, from, |mr| SendWr::read(6, mr.slice(30_000, 5000), there(40_000)));
        let mut counts = [4; 2];
        counts[to] = 2;
        self.done(link, counts);
        let read = |net: &mut Self, end: usize, at: u64, len: usize| {
            let mut bytes = vec![0; len];
            net.application(link.ends[end]).mr.memory().copy_out(at, &mut bytes).unwrap();
            bytes
        };
        assert_eq!(read(self, to, 10_000, 5000), bytes);
        assert_eq!(read(self, to, 16_000, 30), bytes[7..37]);
        assert_eq!(read(self, to, 20_000, 4000), bytes[1..4001]);
        assert_eq!(read(self, from, 30_000, 5000), bytes);
    }

    fn is_stateful(&mut self, link: Link) -> [Option<bool>; 2] {
        [0, 1].map(|end| {
            let verbs = &self.application(link.ends[end]).verbs;
            verbs.query_qp(link.qps[end]).unwrap().is_stateful
        })
    }

    /// The roles change while messages of both sides are under way: each comes once, in order.
    fn switch_under_load(&mut self, link: Link, asks: usize) {
        let before = self.is_stateful(link);
        for (from, n) in [0, 1].into_iter().flat_map(|from| (0..8).map(move |n| (from, n))) {
            self.post_recv(link, 1 - from, 100 + n, 50_000 + n * 64, LEN);
            self.post_send(link, from, |mr| SendWr::send(n, mr.slice(n * 64, LEN)));
        }
        self.round();
        let now = self.now(link.ends[asks]);
        self.application(link.ends[asks]).verbs.switch_role(now, link.qps[asks]).unwrap();
        self.until("the roles do not change", |net| {
            let now = net.is_stateful(link);
            now == before.map(|it| it.map(|it| !it))
        });
        for wcs in self.done(link, [16; 2]) {
            for first in [0, 100] {
                let ids = wcs.iter().map(|wc| wc.wr_id).filter(|id| id / 100 == first / 100);
                assert!(ids.eq(first..first + 8), "{wcs:?}");
            }
        }
    }

    /// All that a connection is for. No frame is dropped but in a set-up, when Z may be first, and
    /// in a change of roles, after which frames of the era before find no connection.
    fn use_all(&mut self, ends: [At; 2], role: Role) {
        let drops = |net: &Self| net.hosts.iter().map(Host::drops).collect::<Vec<_>>();
        let link = self.connect(ends, role);
        let before = drops(self);
        let all = |net: &mut Self| [0, 1].into_iter().for_each(|from| net.ops(link, from));
        all(self);
        assert_eq!(drops(self), before, "{link:?} {role:?}");
        if role == Role::Rc {
            return;
        }
        for asks in [0, 1] {
            self.switch_under_load(link, asks);
            all(self);
        }
    }
}

const ROLES: [Role; 3] = [Role::Stateful, Role::Stateless, Role::Rc];

//= star#ours-engines
//= type=test
#[test]
fn connections_of_all_roles_work_between_hosts_of_one_to_four_engines_whatever_the_route() {
    for (route, engines) in
        ROUTES.into_iter().flat_map(|it| [[1, 4], [2, 2], [4, 1], [3, 4]].map(|n| (it, n)))
    {
        let mut net = Net::new(&engines, route);
        for (here, there) in (0..engines[0]).flat_map(|e| (0..engines[1]).map(move |f| (e, f))) {
            let ends =
                [(0, here), (1, there)].map(|(host, engine)| At { host, engine: engine.into() });
            ROLES.into_iter().for_each(|role| net.use_all(ends, role));
        }
        let is_right = route(0, 4, 1) == 0;
        assert_eq!(net.hosts.iter().all(|host| host.given() == 0), is_right);
        for host in &net.hosts {
            let of_one = |it: &Engine<_, _, Star>| it.service().stateful_connections() > 0;
            assert!(host.engines.iter().all(of_one), "each has its part");
        }
    }
}

#[test]
fn two_portals_of_one_host_at_two_engines_have_connections_through_their_rings() {
    for engines in 2..=4 {
        let mut net = Net::new(&[engines], ROUTES[0]);
        let last = usize::from(engines) - 1;
        for [here, there] in [[0, last], [last, 0], [0, 0]] {
            let ends = [here, there].map(|engine| At { host: 0, engine });
            if here != there {
                ROLES.into_iter().for_each(|role| net.use_all(ends, role));
            }
        }
        assert_eq!(net.packets, 0, "nothing leaves the host");
        let host = &net.hosts[0];
        assert!(host.handed[0].given() > 0 && host.handed[last].given() > 0);
        assert_eq!(host.drops().iter().sum::<u64>(), 0);
    }
}

#[test]
fn a_frame_for_a_portal_that_there_is_not_is_dropped_by_one_engine_and_once() {
    let mut net = Net::new(&[1, 3], ROUTES[0]);
    let ends = [At { host: 0, engine: 0 }, At { host: 1, engine: 1 }];
    for role in [Role::Stateful, Role::Stateless] {
        let link = net.connect(ends, role);
        let mr = net.application(ends[1]).mr.id();
        let there = Remote { mr, offset: 0 };
        net.post_send(link, 0, |mr| SendWr::write(1, mr.slice(0, LEN), there));
        let sent = net.sent();
        let honest = sent.last().expect("it sends").clone();
        let each = Qpn::PORTALS / 3;
        let owner = |net: &Net, mut flight: Flight| {
            net.hosts[1].engines[0].service().owner_of(&RxFrame::alone(flight.packet()))
        };
        assert_eq!(owner(&net, honest.clone()), Some(EngineId(1)));
        // Of no engine, of engines without such a portal, and of the right one without such a QP.
        for (portal, index, dropped_by) in [
            (3 * each, 0, 0),
            (Qpn::PORTALS - 1, 0, 0),
            (each - 1, 5, 0),
            (2 * each + 1, 5, 2),
            (each, 31, 1),
        ] {
            let before = net.hosts[1].drops();
            let forged = honest.clone().to(Qpn::new(portal, index).unwrap());
            let expected = (portal < 3 * each).then_some(EngineId(dropped_by as u16));
            assert_eq!(owner(&net, forged.clone()), expected);
            net.hosts[1].engines[0].backend_mut().inbox.push_back(forged);
            (0..3).for_each(|_| net.hosts[1].engines.iter_mut().for_each(|it| _ = it.turn()));
            let mut expected = before;
            expected[dropped_by] += 1;
            assert_eq!(net.hosts[1].drops(), expected, "portal {portal}");
        }
        // What is no frame, or is for another host, stays where it is.
        let mut elsewhere = honest.clone();
        elsewhere.transmit.destination = HostAddr::from([192, 0, 2, 99]);
        assert_eq!(owner(&net, elsewhere), None);
        for len in 0..wire::HEADER_LEN {
            let mut cut = honest.clone();
            cut.bytes.truncate(len);
            assert_eq!(owner(&net, cut), None);
        }
        sent.into_iter().for_each(|flight| net.carry(flight));
        net.done(link, [1, 0]);
    }
}

#[test]
fn a_portal_that_goes_while_frames_for_it_are_in_rings_leaves_its_number_to_another() {
    let mut net = Net::new(&[1, 2], ROUTES[1]);
    let ends = [At { host: 0, engine: 0 }, At { host: 1, engine: 1 }];
    let link = net.connect(ends, Role::Stateful);
    let there = Remote { mr: net.application(ends[1]).mr.id(), offset: 0 };
    net.post_send(link, 0, |mr| SendWr::write(1, mr.slice(0, LEN), there));
    // To the ring of the owner, which does not look into it before its portal has gone.
    let sent = net.sent();
    sent.into_iter().for_each(|flight| net.carry(flight));
    net.hosts[1].engines[0].turn();
    let now = net.now(ends[1]);
    let star = net.hosts[1].engines[1].service_mut();
    let number = (Qpn::PORTALS / 2) as u16;
    assert!(star.detach(now, number).is_some());
    assert!(star.detach(now, number - 1).is_none(), "that is the other engine's");
    let (_application, port) = portal(16, 4).unwrap();
    assert_eq!(star.attach(port), Some(number));
    net.hosts[1].engines[1].turn();
    assert_eq!(net.hosts[1].drops(), [0, 1]);
    let mut bytes = [0; LEN as usize];
    net.application(ends[1]).mr.memory().copy_out(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; LEN as usize]);
}
