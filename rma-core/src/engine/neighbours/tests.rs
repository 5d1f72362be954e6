//! Hosts of several engines in memory: each packet goes to the engine that a route says, right or
//! wrong.

use core::{cell::Cell, time::Duration};
use std::{collections::VecDeque, rc::Rc, sync::atomic::Ordering::SeqCst};

use super::*;
use crate::{
    addr::{HostAddr, Pid},
    backend::{Backend, RxPacket, Transmit, TxFrame},
    command::Completion,
    crypto::{KeyBinding, RegionKey, RegionKeySchedule},
    engine::{Engine, QUANTUM},
    error::DropReason,
    grant::Grant,
    nic::{KeyRings, Nic, NicConfigBuilder, NicPlace, RegionEntry},
    one_rma::OneRma,
    op::{ClassOfService, OpStatus, OpType},
    outcome::Verdict,
    portal::{CommandPortal, PortalConfig, Source, portal},
    receive_queue::{Receive, ReceiveQueue, ReceiveQueueLayout, ReceiveQueueMemory},
    region::{NicTag, Permissions, RegionId, RegionNames, RegisteredRegion},
};
use rma_shm::Region;

const PID: Pid = Pid(5);
const SLOTS: u16 = 8;
const KEY: RegionKey = RegionKey::from_bytes([1; 16]);
const NEW: RegionKey = RegionKey::from_bytes([2; 16]);

#[derive(Clone, Default)]
struct HandClock(Rc<Cell<Instant>>);

impl Clock for HandClock {
    fn now(&self) -> Instant {
        self.0.get()
    }
}

/// A packet under way.
#[derive(Clone)]
struct Flight {
    transmit: Transmit,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct Wire {
    inbox: VecDeque<Flight>,
    outbox: Vec<Flight>,
}

impl Backend for Wire {
    fn rx_burst(&mut self, max: usize, mut on_packets: impl FnMut(&mut [RxPacket<'_>])) -> usize {
        let mut count = 0;
        while count < max
            && let Some(Flight { transmit, mut bytes }) = self.inbox.pop_front()
        {
            let Transmit { source, destination, port, source_port, .. } = transmit;
            let (reply_len_max, link) = (1472, None);
            let bytes = &mut bytes[..];
            on_packets(&mut [RxPacket {
                source,
                destination,
                port,
                source_port,
                reply_len_max,
                link,
                bytes,
            }]);
            count += 1;
        }
        count
    }

    fn tx_burst(&mut self, max: usize, mut fill: impl FnMut(&mut [TxFrame<'_>]) -> usize) -> usize {
        for sent in 0..max {
            let mut out = [0; FRAME_LEN];
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

const FRAME_LEN: usize = crate::wire::FRAME_LEN_MAX;

struct Host {
    address: HostAddr,
    engines: Vec<Engine<Wire, HandClock>>,
    seats: Vec<Seat>,
    portals: Vec<CommandPortal>,
    names: RegionNames,
    local: RegisteredRegion,
}

/// The settings that hosts have together, whatever the number of their engines.
#[derive(Clone, Copy)]
struct Setup {
    nic: NicConfigBuilder,
    /// Whether engines hand over what is for others.
    hand_over: bool,
}

impl Setup {
    fn of_engine(engines: u16) -> Self {
        let nic = NicConfigBuilder {
            command_slots: u32::from(SLOTS) * u32::from(engines),
            pending_writes: 16 * u32::from(engines),
            outcome_records: 32 * u32::from(engines),
            solicitation_window: u32::from(engines) << 18,
            ..NicConfigBuilder::default()
        };
        Self { nic: nic.divided(engines).unwrap(), hand_over: true }
    }
}

impl Host {
    fn new(octet: u8, engines: u16, clock: &HandClock) -> Self {
        Self::with(octet, engines, clock, Setup::of_engine(engines))
    }

    fn with(octet: u8, engines: u16, clock: &HandClock, setup: Setup) -> Self {
        let address = HostAddr::from([192, 0, 2, octet]);
        let seats: Vec<_> = (0..engines).map(|_| Seat::new(None, Arc::default())).collect();
        let keys = KeyRings::connect(&seats);
        let mut portals = Vec::new();
        let engines = (0..engines).zip(Neighbours::connect(&seats)).zip(keys).map(
            |((index, neighbours), keys)| {
                let place = NicPlace::at(address)
                    .with(|it| (it.engine, it.engines) = (EngineId(index), engines));
                let mut nic = Nic::new(setup.nic.build(place).unwrap());
                nic.regions_mut().set_rings(keys);
                let slots = index * SLOTS..(index + 1) * SLOTS;
                nic.configure_slots(slots.clone(), Some(PID));
                let mut service = OneRma::new(nic);
                let (application, port) = portal(PortalConfig {
                    slots,
                    pid: PID,
                    addresses: address.into(),
                    bell: None,
                    flag: None,
                    nic: NicTag(octet.into()),
                });
                service.attach(port);
                portals.push(application);
                let engine = Engine::new(service, Wire::default(), clock.clone());
                if setup.hand_over { engine.beside(neighbours) } else { engine }
            },
        );
        let engines: Vec<_> = engines.collect();
        let names = RegionNames::new(16);
        let memory = Arc::new(Region::new(8192).unwrap());
        let local = RegisteredRegion::new(RegionId::from_bits(0), memory, NicTag(octet.into()));
        let mut host = Self { address, engines, seats, portals, names, local };
        host.local = host.register(8192, Permissions::NONE, 0);
        host
    }

    fn nic(&self, engine: usize) -> &Nic {
        self.engines[engine].service().nic()
    }

    fn register(&mut self, len: usize, permissions: Permissions, home: u16) -> RegisteredRegion {
        let memory = Arc::new(Region::new(len).unwrap());
        let name = self.names.take().unwrap();
        for engine in &mut self.engines {
            let entry = RegionEntry::new(memory.clone(), &KEY, permissions, PID);
            let entry = Box::new(entry.at_home(EngineId(home)));
            engine.service_mut().nic_mut().regions_mut().register_as(name, entry).unwrap();
        }
        RegisteredRegion::new(name, memory, self.local.nic())
    }

    /// A receive queue whose home is this engine.
    fn queue(&mut self, home: u16) -> ReceiveQueue {
        let layout = ReceiveQueueLayout::new(8, 64).unwrap();
        let memory = Arc::new(Region::new(layout.memory_len()).unwrap());
        let rings = ReceiveQueueMemory::heap(layout);
        let name = self.names.take().unwrap();
        let permissions = Permissions::SEND | Permissions::NOTIFY;
        for (index, engine) in (0..).zip(&mut self.engines) {
            let entry = if index == home {
                let port = rings.clone().into_port(None);
                RegionEntry::receive_queue(port, memory.clone(), &KEY, permissions, PID)
            } else {
                RegionEntry::new(memory.clone(), &KEY, Permissions::NONE, PID)
            };
            let entry = Box::new(entry.at_home(EngineId(home)));
            engine.service_mut().nic_mut().regions_mut().register_as(name, entry).unwrap();
        }
        rings.into_application(RegisteredRegion::new(name, memory, self.local.nic()))
    }

    fn drops(&self, reason: DropReason) -> u64 {
        (0..self.engines.len()).map(|it| self.nic(it).counters().drops(reason)).sum()
    }

    fn given(&self) -> u64 {
        self.engines.iter().map(|it| it.neighbours.as_ref().unwrap().counts().given()).sum()
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

/// All packets to one engine.
const TO: [Route; 3] = [|_, _, _| 0, |_, _, _| 1, |_, _, _| 2];

/// Two hosts.
struct Net {
    hosts: [Host; 2],
    clock: HandClock,
    route: Route,
    /// Engines that stand still, by host and index.
    still: Vec<[usize; 2]>,
    packets: usize,
}

impl Net {
    fn new(engines: [u16; 2], route: Route) -> Self {
        let clock = HandClock::default();
        clock.0.set(Instant::from_nanos(1_000_000));
        let hosts = [Host::new(1, engines[0], &clock), Host::new(2, engines[1], &clock)];
        Self { hosts, clock, route, still: Vec::new(), packets: 0 }
    }

    /// The same, whose second host is this one.
    fn against(engines: [u16; 2], route: Route, setup: Setup) -> Self {
        let mut net = Self::new(engines, route);
        net.hosts[1] = Host::with(2, engines[1], &net.clock, setup);
        net
    }

    fn grant(
        &self,
        region: &RegisteredRegion,
        len: u64,
        op_type: OpType,
        key: &RegionKey,
    ) -> Grant {
        let [initiator, responder] = [0, 1].map(|it| self.hosts[it].address);
        let binding = KeyBinding { initiator, responder, pid: PID, op_type };
        let key = RegionKeySchedule::new(key).derive(&binding);
        let region = region.id();
        Grant { responder, region, region_len: len, initiator, pid: PID, op_type, key }
    }

    fn carry(&mut self, Flight { transmit, mut bytes }: Flight) {
        let to = usize::from(transmit.destination == self.hosts[1].address);
        let host = &mut self.hosts[to];
        let frame = RxFrame::alone(RxPacket {
            source: transmit.source,
            destination: transmit.destination,
            port: transmit.port,
            source_port: transmit.source_port,
            reply_len_max: 1472,
            link: None,
            bytes: &mut bytes,
        });
        let owner = host.nic(0).owner_of(&frame).map_or(0, |it| usize::from(it.0));
        let engine = (self.route)(owner, host.engines.len(), self.packets) % host.engines.len();
        self.packets += 1;
        host.engines[engine].backend.inbox.push_back(Flight { transmit, bytes });
    }

    fn round(&mut self) {
        for host in 0..2 {
            for engine in 0..self.hosts[host].engines.len() {
                if !self.still.contains(&[host, engine]) {
                    self.hosts[host].engines[engine].turn();
                }
                let sent = core::mem::take(&mut self.hosts[host].engines[engine].backend.outbox);
                sent.into_iter().for_each(|flight| self.carry(flight));
            }
        }
        self.pass(Duration::from_micros(1));
    }

    fn pass(&self, time: Duration) {
        self.clock.0.set(self.clock.now() + time);
    }

    /// Turns until the portal has a completion.
    fn completion(&mut self, engine: usize) -> Completion {
        for _ in 0..1000 {
            if let Some(completion) = self.hosts[0].portals[engine].poll() {
                return completion;
            }
            self.round();
            self.pass(Duration::from_micros(500));
        }
        panic!("no completion");
    }

    fn status(&mut self, engine: usize) -> OpStatus {
        self.completion(engine).status
    }
}

#[test]
fn ops_of_all_types_work_between_hosts_of_one_to_four_engines_whatever_the_route() {
    for (route, [here, there]) in
        ROUTES.into_iter().flat_map(|it| [[1, 4], [2, 2], [4, 1], [4, 3]].map(|n| (it, n)))
    {
        let mut net = Net::new([here, there], route);
        let all = Permissions::READ | Permissions::WRITE | Permissions::ATOMIC;
        let regions: Vec<_> =
            (0..there).map(|home| net.hosts[1].register(8192, all, home)).collect();
        let mut queues: Vec<_> = (0..there).map(|home| net.hosts[1].queue(home)).collect();
        for (engine, home) in (0..here).flat_map(|e| (0..there).map(move |home| (e, home))) {
            let (engine, home) = (usize::from(engine), usize::from(home));
            let region = &regions[home];
            let grant = |net: &Net, op_type| net.grant(region, 8192, op_type, &KEY);
            let local = net.hosts[0].local.clone();
            let source = Source { region: &local, offset: 0, len: 64 };

            region.memory().copy_in(0, &[home as u8 + 1; 4096]).unwrap();
            let read = grant(&net, OpType::Read);
            net.hosts[0].portals[engine].read(&read, 0, &local, 4096, 4096).unwrap();
            assert_eq!(net.status(engine), OpStatus::Ok, "READ, {here} {there}");
            let mut octets = [0; 4096];
            local.memory().copy_out(4096, &mut octets).unwrap();
            assert_eq!(octets, [home as u8 + 1; 4096]);

            let write = grant(&net, OpType::Write);
            net.hosts[0].portals[engine].write(&write, 64, &local, 0, 4096).unwrap();
            assert_eq!(net.status(engine), OpStatus::Ok, "WRITE, {here} {there}");

            net.hosts[0].portals[engine].write_ordered(&write, 64, source).unwrap();
            assert_eq!(net.status(engine), OpStatus::Ok);

            let add = grant(&net, OpType::FetchAdd);
            let before = region.memory().load_acquire(8000).unwrap();
            net.hosts[0].portals[engine].fetch_add(&add, 8000, 3).unwrap();
            let completion = net.completion(engine);
            assert_eq!((completion.status, completion.result()), (OpStatus::Ok, Some(before)));

            let queue = &mut queues[home];
            queue.post(Receive(0)).unwrap();
            let send = net.grant(queue.region(), 64, OpType::Send, &KEY);
            net.hosts[0].portals[engine].send(&send, &local, 0, 64, 7).unwrap();
            assert_eq!(net.status(engine), OpStatus::Ok, "SEND, {here} {there}");
            assert_eq!(queue.poll().unwrap().immediate, 7);
        }
        let unsolicited = net.hosts.iter().map(|it| it.drops(DropReason::LateOrUnsolicited)).sum();
        assert_eq!((unsolicited, net.hosts[1].drops(DropReason::UnknownPendingWrite)), (0u64, 0));
        // Requests name no engine but that of a queue, which the route of this test knows.
        let given: u64 = net.hosts.iter().map(Host::given).sum();
        let is_right = (net.route)(0, 4, 1) == 0;
        assert_eq!(given == 0, is_right, "{given}");
    }
}

//= channels#P11-rekey
//= type=test
#[test]
fn a_rekey_is_acknowledged_when_no_living_engine_serves_or_applies_under_the_old_key() {
    let mut net = Net::new([1, 3], ROUTES[0]);
    let region = net.hosts[1].register(64, Permissions::READ | Permissions::REKEY, 1);
    let rekey = net.grant(&region, 64, OpType::Rekey, &KEY);
    let old = net.grant(&region, 64, OpType::Read, &KEY);
    // Engine 2 stands still: it could serve what it has fetched before, and has not the key.
    net.still = vec![[1, 2]];
    net.hosts[0].portals[0].rekey(&rekey, NEW).unwrap();
    for _ in 0..50 {
        net.round();
        assert!(net.hosts[0].portals[0].poll().is_none(), "engine 2 has the old key");
    }
    net.still.clear();
    assert_eq!(net.status(0), OpStatus::Ok);
    // From then on no engine admits what was granted before.
    for (engine, route) in (0..3).zip(TO) {
        net.route = route;
        let local = net.hosts[0].local.clone();
        net.hosts[0].portals[0].read(&old, 0, &local, 0, 64).unwrap();
        assert_eq!(net.status(0), OpStatus::RemoteAuthenticationFailure, "engine {engine}");
        let new = net.grant(&region, 64, OpType::Read, &NEW);
        net.hosts[0].portals[0].read(&new, 0, &local, 0, 64).unwrap();
        assert_eq!(net.status(0), OpStatus::Ok, "engine {engine}");
    }
}

//= channels#P2-never-late
//= type=test
#[test]
fn a_rekey_that_an_engine_holds_up_ends_with_timeout_and_has_its_effect_before_that() {
    let mut net = Net::new([1, 2], ROUTES[0]);
    let region = net.hosts[1].register(64, Permissions::READ | Permissions::REKEY, 0);
    let rekey = net.grant(&region, 64, OpType::Rekey, &KEY);
    let old = net.grant(&region, 64, OpType::Read, &KEY);
    net.still = vec![[1, 1]];
    net.hosts[0].portals[0].rekey(&rekey, NEW).unwrap();
    assert_eq!(net.status(0), OpStatus::Timeout);
    for _ in 0..4 {
        net.pass(Duration::from_millis(100));
        net.round();
    }
    assert_eq!(net.hosts[1].nic(0).counters().rekeys_held_up(), 1);
    // A frame that comes now is the first thing that the engine sees, and meets the new key.
    net.route = TO[1];
    let local = net.hosts[0].local.clone();
    net.hosts[0].portals[0].read(&old, 0, &local, 0, 64).unwrap();
    net.round();
    net.still.clear();
    assert_eq!(net.status(0), OpStatus::RemoteAuthenticationFailure);
}

#[test]
fn a_rekey_that_another_engine_has_no_room_for_changes_nothing() {
    let mut net = Net::new([1, 2], ROUTES[0]);
    let region = net.hosts[1].register(64, Permissions::REKEY, 0);
    let rekey = net.grant(&region, 64, OpType::Rekey, &KEY);
    net.still = vec![[1, 1]];
    net.hosts[0].portals[0].rekey(&rekey, NEW).unwrap();
    net.round();
    // Its data is asked for when as many Rekeys of its own host wait as there is room for.
    let other = net.hosts[1].register(64, Permissions::NONE, 0);
    let regions = net.hosts[1].engines[0].service_mut().nic_mut().regions_mut();
    while regions.rekey(other.id(), &NEW).is_ok() {}
    assert_eq!(net.status(0), OpStatus::Timeout);
    assert_eq!(net.hosts[1].drops(DropReason::RekeysWait), 1);
    net.still.clear();
    net.round();
    // Under the old key still.
    net.hosts[0].portals[0].rekey(&rekey, NEW).unwrap();
    assert_eq!(net.status(0), OpStatus::Ok);
}

#[test]
fn an_engine_that_has_ended_holds_up_no_rekey() {
    let mut net = Net::new([1, 3], ROUTES[0]);
    let region = net.hosts[1].register(64, Permissions::REKEY, 0);
    let rekey = net.grant(&region, 64, OpType::Rekey, &KEY);
    net.still = vec![[1, 2]];
    net.hosts[1].seats[2].ended.store(true, SeqCst);
    net.hosts[0].portals[0].rekey(&rekey, NEW).unwrap();
    assert_eq!(net.status(0), OpStatus::Ok);
}

#[test]
fn records_of_one_engine_are_released_by_requests_that_come_to_another() {
    let mut net = Net::new([1, 4], ROUTES[2]);
    let region = net.hosts[1].register(64, Permissions::ATOMIC, 0);
    let add = net.grant(&region, 64, OpType::FetchAdd, &KEY);
    // Many more than all engines have records for, and no time for any to be forgotten.
    for count in 0..1000 {
        net.hosts[0].portals[0].fetch_add(&add, 0, 1).unwrap();
        let completion = loop {
            net.round();
            if let Some(completion) = net.hosts[0].portals[0].poll() {
                break completion;
            }
        };
        assert_eq!(completion.status, OpStatus::Ok, "op {count}");
    }
    assert_eq!(region.memory().load_acquire(0).unwrap(), 1000);
}

//= channels#2.6-idempotent
//= type=test
#[test]
fn a_settle_finds_the_record_of_its_op_whichever_engine_it_comes_to() {
    for to in TO {
        let mut net = Net::new([1, 3], to);
        let region = net.hosts[1].register(64, Permissions::ATOMIC, 0);
        let add = net.grant(&region, 64, OpType::FetchAdd, &KEY);
        net.hosts[0].portals[0].fetch_add(&add, 0, 5).unwrap();
        // The op is applied, and its acknowledgement lost.
        while region.memory().load_acquire(0).unwrap() == 0 {
            net.round();
        }
        net.hosts[0].engines[0].backend.inbox.clear();
        let completion = net.completion(0);
        assert_eq!(completion.status, OpStatus::Timeout);
        let name = completion.name().expect("it was solicited");
        net.route = |_, engines, nth| nth % engines;
        for _ in 0..3 {
            net.hosts[0].portals[0].settle(&add, name).unwrap();
            let settled = net.completion(0);
            assert_eq!(settled.verdict(), Some(Verdict::Applied));
            assert_eq!(settled.result(), Some(0));
        }
    }
}

/// Returns what an initiator is told of a recorded op that was applied, and of a message, where the
/// frame that asks for it comes to an engine that it is not for.
fn told_by_the_wrong_engine(setup: Setup) -> (Option<Verdict>, OpStatus) {
    let mut net = Net::against([1, 2], ROUTES[0], setup);
    let region = net.hosts[1].register(64, Permissions::ATOMIC, 0);
    let add = net.grant(&region, 64, OpType::FetchAdd, &KEY);
    net.hosts[0].portals[0].fetch_add(&add, 0, 5).unwrap();
    let added = net.completion(0);
    assert_eq!(added.status, OpStatus::Ok);
    net.route = ROUTES[1];
    net.hosts[0].portals[0].settle(&add, added.name().unwrap()).unwrap();
    let verdict = net.completion(0).verdict();
    let mut queue = net.hosts[1].queue(1);
    queue.post(Receive(0)).unwrap();
    let local = net.hosts[0].local.clone();
    let send = net.grant(queue.region(), 64, OpType::Send, &KEY);
    net.hosts[0].portals[0].send(&send, &local, 0, 64, 7).unwrap();
    (verdict, net.status(0))
}

#[test]
fn an_engine_that_answered_for_another_would_say_what_is_not_so() {
    let right = told_by_the_wrong_engine(Setup::of_engine(2));
    assert_eq!(right, (Some(Verdict::Applied), OpStatus::Ok));
    let mistaken = Setup { hand_over: false, ..Setup::of_engine(2) };
    let (verdict, sent) = told_by_the_wrong_engine(mistaken);
    assert_eq!(verdict, Some(Verdict::Forgotten), "of an op that was applied");
    assert_ne!(sent, OpStatus::Ok);
}

/// How much of the window all engines of a host have debited at most, of so much that the host has,
/// while each reads as much as it can.
fn most_debited(setup: Setup) -> u32 {
    let mut net = Net::new([4, 1], ROUTES[0]);
    net.hosts[0] = Host::with(1, 4, &net.clock, setup);
    let region = net.hosts[1].register(8192, Permissions::READ, 0);
    let read = net.grant(&region, 8192, OpType::Read, &KEY);
    let mut most = 0;
    for round in 0..200 {
        let Host { portals, local, .. } = &mut net.hosts[0];
        for portal in portals {
            while round < 100 && portal.read(&read, 0, local, 0, 4096).is_ok() {}
            while portal.poll().is_some() {}
        }
        net.round();
        let debited = |engine| net.hosts[0].nic(engine).window_debited();
        most = most.max((0..4).map(debited).sum());
    }
    most
}

//= channels#P3-solicited
//= type=test
#[test]
fn the_windows_of_a_hosts_engines_add_up_to_its_own() {
    const WINDOW: u32 = 64 << 10;
    let of_host = NicConfigBuilder {
        command_slots: 4 * u32::from(SLOTS),
        solicitation_window: WINDOW,
        ..NicConfigBuilder::default()
    };
    let setup = |nic| Setup { nic, hand_over: true };
    assert_eq!(most_debited(setup(of_host.divided(4).unwrap())), WINDOW);
    // The mistake: each engine has all of it.
    let undivided = NicConfigBuilder { command_slots: SLOTS.into(), ..of_host };
    assert!(most_debited(setup(undivided)) > WINDOW);
}

#[test]
fn a_ring_without_room_loses_frames_and_counts_them() {
    let mut net = Net::new([1, 2], TO[1]);
    let region = net.hosts[1].register(64, Permissions::REKEY, 0);
    let rekey = net.grant(&region, 64, OpType::Rekey, &KEY);
    net.hosts[0].portals[0].rekey(&rekey, NEW).unwrap();
    net.hosts[0].engines[0].turn();
    let request = net.hosts[0].engines[0].backend.outbox.pop().unwrap();
    net.still = vec![[1, 0]];
    for _ in 0..LINES {
        net.hosts[1].engines[1].backend.inbox.push_back(request.clone());
    }
    for _ in 0..LINES {
        net.round();
    }
    let counts = net.hosts[1].engines[1].neighbours.as_ref().unwrap().counts().clone();
    let lines = message::lines(request.bytes.len());
    assert_eq!(counts.given(), ((LINES - LINES_FOR_WORDS) / lines) as u64);
    assert_eq!(counts.given() + counts.lost(), LINES as u64);
    // Once the owner goes on, so do honest ops.
    net.still.clear();
    for _ in 0..200 {
        net.round();
    }
    assert_eq!(net.status(0), OpStatus::Ok, "one of the requests is enough");
}

#[test]
fn of_frames_of_any_length_a_turn_takes_half_of_what_it_may_receive_beside_its_own() {
    // Octets of a frame, and how many a turn takes of them: beside its own frames, and without.
    let longest = FRAME_LEN - 1;
    let octets = |of: usize| [QUANTUM / 2 / of, QUANTUM / of];
    for (len, takes) in [(longest, octets(longest)), (1400, octets(1400)), (64, [32, 64])] {
        for (beside, most) in [true, false].into_iter().zip(takes) {
            let mut net = Net::new([1, 3], ROUTES[0]);
            let host = HostAddr::from([192, 0, 2, 9]);
            let mut bytes = vec![0; len];
            let packet = RxPacket {
                source: host,
                destination: host,
                port: crate::port::Port::ONE_RMA,
                source_port: crate::port::SourcePort(1),
                reply_len_max: 1472,
                link: None,
                bytes: &mut bytes,
            };
            let frame = RxFrame::alone(packet);
            let [owner, senders @ ..] = &mut net.hosts[1].engines[..] else { panic!("three") };
            let mut put = 0;
            for sender in senders {
                let neighbours = sender.neighbours.as_mut().unwrap();
                while neighbours.counts.lost() == 0 {
                    neighbours.give(EngineId(0), &frame, false);
                }
                put += neighbours.counts.given();
                neighbours.publish();
            }
            let counts = owner.neighbours.as_ref().unwrap().counts.clone();
            let mut before = 0;
            while counts.taken() < put {
                if beside {
                    let port = crate::port::Port::ONE_RMA;
                    let class = ClassOfService::Latency;
                    let transmit = Transmit::new([host; 2], port, class, 64);
                    owner.backend.inbox.push_back(Flight { transmit, bytes: vec![0; 64] });
                }
                owner.turn();
                let taken = (counts.taken() - before) as usize;
                assert!(taken == most || counts.taken() == put, "{taken} of {len} octets");
                before = counts.taken();
            }
        }
    }
}

#[test]
fn a_frame_comes_out_of_a_ring_as_it_went_in_however_it_is_cut() {
    let lens = [1, 48, 63, 64, 65, 127, 128, 1500, FRAME_LEN - 1, FRAME_LEN];
    for (nth, len) in lens.into_iter().enumerate() {
        let link = core::array::from_fn(|at| at as u8 ^ 0x5a);
        let mut bytes: Vec<u8> = (0..len).map(|at| (at * 7 + nth) as u8).collect();
        let frame = RxFrame {
            source: HostAddr::from([192, 0, 2, 7]),
            destination: "2001:db8::8".parse().unwrap(),
            port: crate::port::Port(10472),
            source_port: crate::port::SourcePort(50_000),
            reply_len_max: 1452,
            link: (nth % 2 == 0).then_some(&link),
            is_first: nth % 3 == 0,
            is_handed_over: false,
            bytes: &mut bytes,
        };
        let (mut producer, mut consumer) = ring(128).unwrap();
        message::push(&mut producer, &frame, false);
        producer.publish();
        let all = consumer.len();
        assert_eq!(all, message::lines(len));
        let mut arrivals = Arrivals::new();
        let mut head = None;
        // Whatever part of it is seen first.
        let mut fetched = nth * all / lens.len();
        assert!(arrivals.take(&mut consumer, &mut head, &mut fetched, len).is_none());
        fetched = consumer.len();
        let shorter = len - 1;
        assert!(arrivals.take(&mut consumer, &mut head, &mut fetched, shorter).is_none());
        assert!(arrivals.take(&mut consumer, &mut head, &mut fetched, len).is_some());
        assert_eq!((fetched, consumer.len()), (0, 0));
        let mut seen = 0;
        arrivals.drain(|is_paid, frames| {
            let [got] = frames else { panic!("one frame") };
            assert_eq!(is_paid, !frame.is_first);
            assert_eq!((got.source, got.destination), (frame.source, frame.destination));
            assert_eq!((got.port, got.source_port), (frame.port, frame.source_port));
            assert!(got.is_handed_over);
            assert_eq!((got.reply_len_max, got.link), (frame.reply_len_max, frame.link));
            assert_eq!((got.is_first, &*got.bytes), (frame.is_first, &*frame.bytes));
            seen += 1;
        });
        assert_eq!(seen, 1);
    }
}

#[test]
fn a_strangers_packet_for_two_engines_is_answered_by_one_notice() {
    for lands_at in [0, 1, 2] {
        let mut net = Net::new([1, 3], ROUTES[0]);
        let regions = [0, 1].map(|home| net.hosts[1].register(64, Permissions::REKEY, home));
        // Forged requests, of regions that have their homes at two engines.
        let wrong = RegionKey::from_bytes([0xee; 16]);
        let mut packet: Option<Flight> = None;
        for region in [&regions[0], &regions[1], &regions[0], &regions[1], &regions[1]] {
            let grant = net.grant(region, 64, OpType::Rekey, &wrong);
            net.hosts[0].portals[0].rekey(&grant, NEW).unwrap();
            let host = &mut net.hosts[0].engines[0];
            host.turn();
            let flight = host.backend.outbox.pop().unwrap();
            match &mut packet {
                None => packet = Some(flight),
                Some(packet) => packet.bytes.extend(flight.bytes),
            }
        }
        net.hosts[1].engines[lands_at].backend.inbox.push_back(packet.unwrap());
        net.still = vec![[0, 0]];
        for _ in 0..10 {
            net.round();
        }
        let opening = net.hosts[0].engines[0].backend.inbox.iter();
        let opening = opening.filter(|flight| flight.transmit.opens_packet).count();
        assert_eq!(opening, 1, "at engine {lands_at}");
        let unauthenticated = net.hosts[1].drops(DropReason::RequestUnauthenticated);
        assert_eq!(unauthenticated, 5, "each was looked at by its owner");
    }
}

#[test]
fn an_engine_sleeps_though_another_has_ended_in_the_middle_of_a_message() {
    let mut net = Net::new([1, 2], ROUTES[0]);
    let [sender, receiver] = &mut net.hosts[1].engines[..] else { panic!("two") };
    let mut bytes = [0; 1400];
    let host = HostAddr::from([192, 0, 2, 9]);
    let frame = RxFrame::alone(RxPacket {
        source: host,
        destination: host,
        port: crate::port::Port::ONE_RMA,
        source_port: crate::port::SourcePort(1),
        reply_len_max: 1472,
        link: None,
        bytes: &mut bytes,
    });
    // The first of its lines are seen before the last is there.
    let out = &mut sender.neighbours.as_mut().unwrap().out[0];
    message::push(&mut out.ring, &frame, false);
    assert!(receiver.is_idle(), "it was not told");
    out.to.tell(0);
    assert!(!receiver.is_idle());
    receiver.turn();
    assert!(receiver.is_idle());
    out.ring.publish();
    assert!(!receiver.is_idle(), "the rest has come");
    receiver.turn();
    assert!(receiver.is_idle());
    assert_eq!(receiver.neighbours.as_ref().unwrap().counts().taken(), 1);
}
