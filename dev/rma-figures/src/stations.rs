//! Hosts of StaR without a device: one, *Z*, that is the stateless side of all its connections, and
//! those that are the other side of them.
//!
//! Shipped engines and libraries in one thread, joined by memory as in `turn`: no
//! system call, no other core. Frames are copied from one host to the other between the turns, as a
//! device does it. What an engine's turns take is counted apart from everything else: what
//! applications, their libraries and those who carry frames do is no part of it.
//!
//! | module | what it measures |
//! |---|---|
//! | [`asked`] | what Z's engine and library ask of the allocator |
//! | [`flat`] | what a call costs Z's engine with one connection and with many |
//! | [`beside_aead`] | what a SEND costs Z's engine beside its AEAD calls |
//! | [`security`] | what the whitelist and authentication cost (figure 12) |
//! | [`share`] | what StaR and 1RMA get of one engine that both keep busy |
//!
//! A *call* is that of the paper's evaluation: three SENDs of 32 bytes to Z, which answers with
//! one.

mod application;
pub mod asked;
pub mod beside_aead;
mod deeds;
pub mod flat;
mod passing;
pub mod security;
pub mod share;

use core::fmt;
use std::{cell::RefCell, rc::Rc};

use rma_core::{
    addr::HostAddr,
    backend::{ReceiveLenMax, Transmit},
    crypto::{AeadProvider, CounterBlock},
    engine::Engine,
    time::Clock,
};
use rma_star::{
    config::{Framing, StarConfigBuilder, StarPlace},
    counters::{StarDrop, StarEvent},
    library::{Qp, QpState, Role, Verbs, Wc},
    service::Star,
    verbs::{WcStatus, WqeOp},
};

use crate::{
    allocator::Asked,
    memory::{FRAME_LEN, FRAMES, Memory, Wire},
};
use application::{Application, PATIENT, Plan, Work, negotiate};
pub use passing::{Passing, Stepped};

/// Connections that are set up at once.
const AT_ONCE: usize = 8;

/// After so many rounds in which nothing completes something is wrong.
const ROUNDS_MAX: usize = 10_000_000;

/// The settings of the hosts.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Connections that are set up.
    pub connections: u32,
    /// Hosts at the other side of them, which have as many each.
    pub hosts: u32,
    /// Applications of Z, which have as many each.
    pub portals: u32,
    /// Queue pairs that the portal of each has room for, and slots.
    pub qps: u32,
    /// See there.
    pub slots: u32,
    /// Whether each connection has a protection domain and a memory region of its own, at both
    /// sides.
    pub own_memory: bool,
    /// The provider that seals and opens frames.
    pub aead: &'static dyn AeadProvider,
    /// Whether stateful sides ask their whitelists.
    pub whitelist: bool,
    /// The way in which frames carry work requests.
    pub framing: Framing,
    /// Whether Z is the stateful side of all connections, to compare it with what it is otherwise.
    pub is_stateful: bool,
}

impl Settings {
    /// So many connections with one host, and room for them.
    #[must_use]
    pub fn of(connections: u32, aead: &'static dyn AeadProvider) -> Self {
        Self {
            connections,
            hosts: 1,
            portals: 1,
            qps: connections,
            slots: 4096,
            own_memory: false,
            aead,
            whitelist: true,
            framing: Framing::default(),
            is_stateful: false,
        }
    }
}

/// The time that a side has spent in its engine's turns, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// The engine of Z.
    pub stateless: u64,
    /// The engines of the other hosts together.
    pub stateful: u64,
}

/// An engine, and the applications of its host.
struct Host<C> {
    engine: Engine<Memory, C, Star>,
    applications: Vec<Application>,
}

/// The end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Z,
    F,
}

/// Something has completed.
#[derive(Clone, Copy, Debug)]
struct Came {
    end: End,
    /// Its number in the present work.
    which: usize,
    op: WqeOp,
}

impl Came {
    fn is_message_to_z(self) -> bool {
        (self.end, self.op) == (End::Z, WqeOp::Recv)
    }
}

/// All hosts.
pub struct Stations<C> {
    z: Host<C>,
    fs: Vec<Host<C>>,
    wires_to_fs: Vec<Rc<RefCell<Wire>>>,
    wire_to_z: Rc<RefCell<Wire>>,
    /// The ends of each connection.
    qps: Vec<[Qp; 2]>,
    clock: C,
    settings: Settings,
    /// Completions of a round: at Z, and at the others.
    came: [Vec<Wc>; 2],
    /// The time that engines have spent since the connections were set up.
    spent: Spent,
    /// The requests of Z's engine to the allocator since it was made.
    engine_asked: Asked,
    /// The requests of Z's library, but for its completion queue, since before it was made.
    library_asked: Asked,
    is_set_up: bool,
    /// The frames of Z's turns, if they are noted.
    noted: Option<Vec<Noted>>,
}

/// The frames of a turn of Z's engine, as they lie on the wires.
#[derive(Clone, Debug, Default)]
struct Noted {
    received: Vec<(HostAddr, Vec<u8>)>,
    sent: Vec<(HostAddr, Vec<u8>)>,
}

/// The address of a host: that of Z, or of one of the others.
fn address(host: Option<u32>) -> HostAddr {
    match host.map(|it| (it + 1).to_be_bytes()) {
        None => [192, 0, 2, 1].into(),
        Some([.., high, low]) => [10, 0, high, low].into(),
    }
}

fn index_of(address: HostAddr) -> usize {
    let [.., high, low] = address.to_octets();
    usize::from(u16::from_be_bytes([high, low])) - 1
}

impl<C> fmt::Debug for Stations<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stations({} connections, {:?})", self.qps.len(), self.spent)
    }
}

impl<C: Passing> Host<C> {
    /// A host, and what its portal and library have asked of the allocator.
    fn new(plan: &Plan, ends: Memory, settings: &Settings, clock: &C) -> (Self, Asked) {
        let mut star = star_of(plan, settings);
        let mut asked = Asked::default();
        let application = |_| Application::new(&mut star, plan, &mut asked);
        let applications = (0..plan.portals).map(application).collect();
        (Self { engine: Engine::new(star, ends, clock.clone()), applications }, asked)
    }
}

fn star_of(plan: &Plan, settings: &Settings) -> Star {
    let mut place = StarPlace::at(plan.address);
    place.receive_len_max = ReceiveLenMax { ipv4: FRAME_LEN, ipv6: FRAME_LEN };
    let mut config = StarConfigBuilder::default();
    // Room for the answers of many calls at once, which come from few hosts here.
    config.answers = 4096;
    config.connections = plan.stateful.max(1);
    let own = if settings.is_stateful { 4 * plan.stateful } else { 0 };
    config.work_requests = own.max(16_384);
    config.pds = plan.portals * plan.mrs;
    config.mrs = config.pds;
    config.framing = settings.framing;
    // A core that the scheduler takes away loses no frame.
    (config.valid, config.retransmit_timeout) = (PATIENT, 2 * PATIENT);
    let config = config.build(place).expect("the settings work");
    let mut star = Star::with_aead(config, CounterBlock::new(0, u64::MAX), settings.aead);
    if !settings.whitelist {
        star.forgo_whitelist();
    }
    star
}

/// Runs a turn of Z that counts. A function of its own, for a profiler. It uses what the turn
/// returns, or it would jump there and not call it.
#[inline(never)]
fn stateless_turn<C: Clock>(engine: &mut Engine<Memory, C, Star>) -> usize {
    core::hint::black_box(engine.turn())
}

/// All other turns. The second call keeps either from being all of it.
#[inline(never)]
fn other_turn<C: Clock>(engine: &mut Engine<Memory, C, Star>) -> usize {
    core::hint::black_box(core::hint::black_box(engine).turn())
}

impl<C: Passing> Stations<C> {
    /// Hosts with all their connections set up.
    ///
    /// # Panics
    /// If the settings do not go together, or a connection cannot be set up.
    #[must_use]
    pub fn new(settings: Settings, clock: C) -> Self {
        let Settings { connections, hosts, portals, own_memory, .. } = settings;
        let of_each = connections.div_ceil(hosts);
        let mrs = |count: u32| if own_memory { count } else { 1 };
        // A buffer for each line of a megabyte, or as many as a call needs.
        let places = if own_memory { 8 } else { 1 << 14 };
        let wire_to_z = Wire::with_room_for(hosts as usize * FRAMES);
        let ends = || Memory { inbound: Wire::new(), outbound: Wire::new() };
        let plan = Plan {
            portals,
            address: address(None),
            slots: settings.slots,
            qps: settings.qps,
            stateful: if settings.is_stateful { connections } else { 0 },
            mrs: mrs(connections.div_ceil(portals)),
            places,
        };
        let ends_of_z = Memory { inbound: Rc::clone(&wire_to_z), outbound: Wire::new() };
        let (z, library_asked) = Host::new(&plan, ends_of_z, &settings, &clock);
        let mut fs = Vec::new();
        for host in 0..hosts {
            let plan = Plan {
                portals: 1,
                address: address(Some(host)),
                slots: 16_384,
                qps: of_each,
                stateful: of_each,
                mrs: mrs(of_each),
                places,
            };
            fs.push(Host::new(&plan, ends(), &settings, &clock).0);
        }
        let wires_to_fs = fs.iter().map(|f| Rc::clone(&f.engine.backend().inbound)).collect();
        let mut stations = Self {
            z,
            fs,
            wires_to_fs,
            wire_to_z,
            qps: Vec::new(),
            clock,
            settings,
            came: [const { Vec::new() }; 2],
            spent: Spent::default(),
            engine_asked: Asked::default(),
            library_asked,
            is_set_up: false,
            noted: None,
        };
        let all: Vec<u32> = (0..connections).collect();
        all.chunks(AT_ONCE).for_each(|some| stations.connect(some));
        stations.is_set_up = true;
        stations
    }

    /// Returns the settings.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the time that engines have spent since the connections were set up.
    #[must_use]
    pub const fn spent(&self) -> Spent {
        self.spent
    }

    /// Returns the requests of Z's engine to the allocator since it was made.
    #[must_use]
    pub const fn engine_asked(&self) -> Asked {
        self.engine_asked
    }

    /// Returns the requests of Z's portal and library to the allocator, but for the completion
    /// queue.
    #[must_use]
    pub const fn library_asked(&self) -> Asked {
        self.library_asked
    }

    /// Z's engine.
    #[must_use]
    pub const fn star(&self) -> &Star {
        self.z.engine.service()
    }

    /// The library that has a connection at Z.
    #[must_use]
    pub fn verbs(&self, connection: u32) -> &Verbs {
        &self.z.applications[self.place_of(connection)[0].0].verbs
    }

    /// Returns Z's application and its connection's number there, then the other end's host and
    /// number.
    const fn place_of(&self, connection: u32) -> [(usize, u32); 2] {
        let Settings { portals, hosts, .. } = self.settings;
        [
            ((connection % portals) as usize, connection / portals),
            ((connection % hosts) as usize, connection / hosts),
        ]
    }

    /// Z's application of a connection, and the other one.
    fn ends_of(&mut self, connection: u32) -> [&mut Application; 2] {
        let [(portal, _), (host, _)] = self.place_of(connection);
        [&mut self.z.applications[portal], &mut self.fs[host].applications[0]]
    }

    /// Sets connections up whose numbers are the next.
    fn connect(&mut self, connections: &[u32]) {
        for &connection in connections {
            let [(portal, here), (host, there)] = self.place_of(connection);
            let Self { z, fs, library_asked, settings, .. } = self;
            let z = &mut z.applications[portal];
            let mut roles = [Role::Stateless, Role::Stateful];
            if settings.is_stateful {
                roles.reverse();
            }
            let at_z = library_asked.add(|| z.create_qp(here, roles[0]));
            let at_f = fs[host].applications[0].create_qp(there, roles[1]);
            self.qps.push([at_z, at_f]);
            let now = self.clock.now();
            library_asked.add(|| z.verbs.connect(now, at_z).expect("it is new"));
        }
        let is_ready = |it: &Self, connection: u32| {
            let [at_z, at_f] = it.qps[connection as usize];
            let [_, (host, _)] = it.place_of(connection);
            let states =
                [it.verbs(connection).state(at_z), it.fs[host].applications[0].verbs.state(at_f)];
            states == [Some(QpState::Ready); 2]
        };
        for _ in 0..ROUNDS_MAX {
            if connections.iter().all(|&connection| is_ready(self, connection)) {
                return;
            }
            connections.iter().for_each(|&connection| self.negotiate(connection));
            // A stateful side that is told of a connection before its library has opened it drops
            // that, and is told again much later.
            self.fs.iter_mut().for_each(|f| {
                other_turn(&mut f.engine);
            });
            self.round();
        }
        panic!("connections are not ready: {connections:?}");
    }

    /// Carries messages of a set-up between the libraries.
    fn negotiate(&mut self, connection: u32) {
        let (now, qps) = (self.clock.now(), self.qps[connection as usize]);
        let mut asked = Asked::default();
        negotiate(now, self.ends_of(connection), qps, &mut asked);
        self.library_asked.give(asked);
    }

    /// Each engine turns once, frames go where they are sent to, and libraries take reports.
    fn round(&mut self) {
        let Self { z, fs, clock, library_asked, came, noted, .. } = self;
        let received = noted.is_some().then(|| frames_of(&self.wire_to_z, |it| it.source));
        let start = clock.now();
        let turn = if self.is_set_up { stateless_turn } else { other_turn };
        self.engine_asked.add(|| turn(&mut z.engine));
        let turned = clock.now();
        let outbound = Rc::clone(&z.engine.backend().outbound);
        if let (Some(noted), Some(received)) = (noted, received) {
            let sent = frames_of(&outbound, |it| it.destination);
            noted.push(Noted { received, sent });
        }
        let wires = &self.wires_to_fs;
        outbound.borrow_mut().carry(|transmit| &*wires[index_of(transmit.destination)]);
        let began = clock.now();
        fs.iter_mut().for_each(|f| {
            other_turn(&mut f.engine);
        });
        let ended = clock.now();
        if self.is_set_up {
            self.spent.stateless += turned.nanos_since(start);
            self.spent.stateful += ended.nanos_since(began);
        }
        for f in fs.iter_mut() {
            let outbound = &f.engine.backend().outbound;
            outbound.borrow_mut().carry(|_| &*self.wire_to_z);
        }
        clock.pass();
        let now = clock.now();
        for application in &mut z.applications {
            library_asked.add(|| application.verbs.poll(now));
            application.take(&mut came[0]);
        }
        for application in fs.iter_mut().flat_map(|f| &mut f.applications) {
            application.verbs.poll(now);
            application.take(&mut came[1]);
        }
    }

    /// Posts at one end of a connection. Which one it is in what is done now is in its completion.
    fn post(&mut self, end: End, connection: u32, which: usize, work: Work) {
        let (now, [at_z, at_f]) = (self.clock.now(), self.qps[connection as usize]);
        let [(_, here), (_, there)] = self.place_of(connection);
        let [z, f] = self.ends_of(connection);
        let (asked, ()) = Asked::by(|| match end {
            End::Z => z.post(now, (at_z, here), which, work),
            End::F => f.post(now, (at_f, there), which, work),
        });
        if end == End::Z {
            self.library_asked.give(asked);
        }
    }

    /// Goes on for a round, and tells what has completed. `connections` are those that messages to
    /// Z are of.
    ///
    /// # Panics
    /// If a work request has failed, or a message to Z is not what was sent.
    fn take_round(&mut self, connections: &[u32]) -> Vec<Came> {
        self.round();
        let mut all = Vec::new();
        for (end, wcs) in [End::Z, End::F].into_iter().zip(core::mem::take(&mut self.came)) {
            for wc in wcs {
                assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
                let (which, place) = ((wc.wr_id >> 32) as usize, wc.wr_id & u64::from(u32::MAX));
                let came = Came { end, which, op: wc.opcode };
                if came.is_message_to_z() {
                    let [(portal, here), _] = self.place_of(connections[which]);
                    let landed = self.z.applications[portal].take_message(here, place);
                    assert!(landed, "{wc:?}");
                }
                all.push(came);
            }
        }
        all
    }

    /// Frames that a host took for others come again. There are none, as nobody carries one twice.
    #[must_use]
    pub fn repeats(&self) -> u64 {
        let hosts = self.fs.iter().chain([&self.z]);
        hosts.map(|host| host.engine.service().counters().drops(StarDrop::Again)).sum()
    }

    /// Frames that were sent again, and frames that were dropped, of all hosts: none, unless the
    /// thread was stopped for long.
    #[must_use]
    pub fn mishaps(&self) -> u64 {
        let hosts = self.fs.iter().chain([&self.z]);
        hosts
            .map(|host| {
                let counters = host.engine.service().counters();
                let drops =
                    StarDrop::ALL.into_iter().map(|reason| counters.drops(reason)).sum::<u64>();
                counters.events(StarEvent::Retransmit) + drops
            })
            .sum()
    }
}

/// Frames that are on their way, and their other end by `peer`.
fn frames_of(
    wire: &RefCell<Wire>,
    peer: impl Fn(&Transmit) -> HostAddr,
) -> Vec<(HostAddr, Vec<u8>)> {
    let wire = wire.borrow();
    wire.on_their_way().map(|(transmit, octets)| (peer(transmit), octets.to_vec())).collect()
}
