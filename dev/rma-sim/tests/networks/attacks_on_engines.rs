//! Attacks that hosts of several engines invite: whoever sees frames on the wire may bring them to
//! whichever engine he likes, as often as he likes.
//!
//! Engines of one host joined by their rings, in one thread, with a clock that the test moves. The
//! attacker has recordings of all that went over the wire, and chooses where each frame lands.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use core::{cell::Cell, time::Duration};
use std::{rc::Rc, sync::Arc};

use rma_core::{
    addr::{HostAddr, Pid},
    crypto::{EngineId, KeyBinding, RegionKey, RegionKeySchedule},
    engine::{Engine, HandOvers, Neighbours},
    grant::Grant,
    nic::{KeyRings, Nic, NicConfigBuilder, NicGauges, NicPlace, RegionEntry},
    one_rma::OneRma,
    op::{OpStatus, OpType},
    portal::{CommandPortal, PortalConfig, Source, portal},
    receive_queue::{ReceiveQueue, ReceiveQueueLayout, ReceiveQueueMemory},
    region::{NicTag, Permissions, RegionNames, RegisteredRegion},
    seat::Seat,
    time::{Clock, Instant},
    wire::FrameView,
};
use rma_lab::{Carried, MemoryBackend};
use rma_shm::Region;

const PID: Pid = Pid(5);
const KEY: RegionKey = RegionKey::from_bytes([1; 16]);
const NEXT_KEY: RegionKey = RegionKey::from_bytes([2; 16]);
const LEN: usize = 4096;
const SLOTS: u16 = 16;

/// Rounds after which an op that has not been answered never will be.
const ROUNDS: usize = 64;

/// An engine's share of frames in one turn: [`rma_core::engine::BURST`].
const BURST: usize = rma_core::engine::BURST;

#[derive(Clone)]
struct HandClock(Rc<Cell<u64>>);

impl Clock for HandClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.get())
    }
}

impl HandClock {
    fn advance(&self, by: Duration) {
        self.0.set(self.0.get() + by.as_nanos() as u64);
    }
}

struct One {
    engine: Engine<MemoryBackend, HandClock>,
    portal: CommandPortal,
    handed: Arc<HandOvers>,
}

/// A host of some engines.
struct Host {
    address: HostAddr,
    engines: Vec<One>,
    names: RegionNames,
    clock: HandClock,
}

impl Host {
    fn new(address: [u8; 4], engines: u16, settings: NicConfigBuilder, clock: &HandClock) -> Self {
        let address = HostAddr::from(address);
        let seats: Vec<_> = (0..engines).map(|_| Seat::new(None, Arc::default())).collect();
        let rings = Neighbours::connect(&seats).into_iter().zip(KeyRings::connect(&seats));
        let settings = settings.divided(engines).unwrap();
        let engine = |(index, (neighbours, keys)): (u16, (Neighbours, KeyRings))| {
            let place = NicPlace::at(address)
                .with(|it| (it.engine, it.engines) = (EngineId(index), engines));
            let mut nic = Nic::new(settings.build(place).unwrap());
            if engines > 1 {
                nic.regions_mut().set_rings(keys);
            }
            let slots = nic.slots().start..nic.slots().start + SLOTS;
            nic.configure_slots(slots.clone(), Some(PID));
            let mut service = OneRma::new(nic);
            let (bell, flag, nic) = (None, None, NicTag(1));
            let addresses = address.into();
            let (portal, port) =
                portal(PortalConfig { slots, pid: PID, addresses, bell, flag, nic });
            service.attach(port);
            let handed = Arc::clone(neighbours.counts());
            let engine = Engine::new(service, MemoryBackend::default(), clock.clone());
            let engine = if engines > 1 { engine.beside(neighbours) } else { engine };
            One { engine, portal, handed }
        };
        let engines = (0..).zip(rings).map(engine).collect();
        Self { address, engines, names: RegionNames::new(8), clock: clock.clone() }
    }

    /// Registers memory at all engines; the home is `home`.
    fn register(&mut self, home: u16, permissions: Permissions) -> RegisteredRegion {
        let memory = Arc::new(Region::new(LEN).unwrap());
        let row = |_| RegionEntry::new(memory.clone(), &KEY, permissions, PID);
        self.register_rows(home, &memory, row)
    }

    fn register_rows(
        &mut self,
        home: u16,
        memory: &Arc<Region>,
        mut row: impl FnMut(u16) -> RegionEntry,
    ) -> RegisteredRegion {
        let name = self.names.take().unwrap();
        for (index, one) in (0..).zip(&mut self.engines) {
            let regions = one.engine.service_mut().nic_mut().regions_mut();
            regions.register_as(name, Box::new(row(index).at_home(EngineId(home)))).unwrap();
        }
        RegisteredRegion::new(name, memory.clone(), NicTag(1))
    }

    /// A receive queue that is at `home`, with all receives posted.
    fn queue(&mut self, home: u16, receives: u16) -> ReceiveQueue {
        let layout = ReceiveQueueLayout::new(receives, 64).unwrap();
        let memory = Arc::new(Region::new(layout.memory_len()).unwrap());
        let rings = ReceiveQueueMemory::heap(layout);
        let region = self.register_rows(home, &memory, |engine| {
            let (memory, sends) = (memory.clone(), Permissions::SEND.and(Permissions::NOTIFY));
            if engine == home {
                let port = rings.clone().into_port(None);
                RegionEntry::receive_queue(port, memory, &KEY, sends, PID)
            } else {
                RegionEntry::new(memory, &KEY, Permissions::NONE, PID)
            }
        });
        let mut queue = rings.into_application(region);
        queue.post_all();
        queue
    }

    fn nic(&self, engine: usize) -> &Nic {
        self.engines[engine].engine.service().nic()
    }

    fn gauges(&self, engine: usize) -> NicGauges {
        self.nic(engine).gauges()
    }

    /// Bytes of all engines' windows that are solicited.
    fn debited(&self) -> u64 {
        (0..self.engines.len()).map(|it| self.gauges(it).window_debited).sum()
    }

    fn handed_over(&self) -> u64 {
        self.engines.iter().map(|it| it.handed.given()).sum()
    }

    fn turn(&mut self) {
        for one in &mut self.engines {
            one.engine.turn();
        }
    }

    /// Takes what its engines have sent.
    fn sent(&mut self) -> Vec<Carried> {
        self.engines.iter_mut().flat_map(|it| it.engine.backend_mut().sent.drain(..)).collect()
    }

    /// A frame lands at an engine.
    fn land(&mut self, engine: usize, frame: &Carried) {
        self.engines[engine].engine.backend_mut().arriving.push_back(frame.clone());
    }

    fn grant(&self, initiator: &Self, region: &RegisteredRegion, op_type: OpType) -> Grant {
        let (initiator, responder) = (initiator.address, self.address);
        let binding = KeyBinding { initiator, responder, pid: PID, op_type };
        let key = RegionKeySchedule::new(&KEY).derive(&binding);
        let (region, region_len) = (region.id(), LEN as u64);
        Grant { responder, region, region_len, initiator, pid: PID, op_type, key }
    }
}

/// Carries frames between hosts: those for the victim land where `at` says, those for the client
/// at its only engine, or where their port tells. Returns what came by.
fn exchange(client: &mut Host, victim: &mut Host, at: usize) -> Vec<Carried> {
    let mut recorded = Vec::new();
    client.clock.advance(Duration::from_micros(1));
    client.turn();
    for frame in client.sent() {
        victim.land(at, &frame);
        recorded.push(frame);
    }
    victim.turn();
    for frame in victim.sent() {
        if frame.0.destination == client.address {
            client.land(0, &frame);
        }
        recorded.push(frame);
    }
    recorded
}

/// Runs until `count` ops of the client have ended, and returns their statuses and all frames.
fn run(
    client: &mut Host,
    victim: &mut Host,
    at: usize,
    count: usize,
) -> (Vec<OpStatus>, Vec<Carried>) {
    let (mut statuses, mut recorded) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        recorded.extend(exchange(client, victim, at));
        while let Some(completion) = client.engines[0].portal.poll() {
            statuses.push(completion.status);
        }
        if statuses.len() == count {
            // The last words of the ops.
            recorded.extend(exchange(client, victim, at));
            break;
        }
    }
    (statuses, recorded)
}

fn is_for(victim: &Host, frame: &Carried) -> bool {
    frame.0.destination == victim.address
}

/// A client of one engine, a victim of four, and memory of the client's.
struct Scene {
    client: Host,
    victim: Host,
    local: RegisteredRegion,
    clock: HandClock,
}

impl Scene {
    fn new(settings: NicConfigBuilder) -> Self {
        let clock = HandClock(Rc::new(Cell::new(1_000_000)));
        let mut client = Host::new([192, 0, 2, 1], 1, NicConfigBuilder::default(), &clock);
        let victim = Host::new([192, 0, 2, 2], 4, settings, &clock);
        let local = client.register(0, Permissions::NONE);
        Self { client, victim, local, clock }
    }

    fn portal(&mut self) -> &mut CommandPortal {
        &mut self.client.engines[0].portal
    }

    /// Runs what was issued, and it must succeed. Returns what came by.
    fn succeed(&mut self, at: usize, count: usize) -> Vec<Carried> {
        let (statuses, recorded) = run(&mut self.client, &mut self.victim, at, count);
        assert_eq!(statuses, vec![OpStatus::Ok; count], "at engine {at}");
        recorded
    }

    fn write(&mut self, grant: &Grant, octet: u8) {
        self.local.write(0, &[octet; 64]).unwrap();
        let local = &self.local;
        self.client.engines[0].portal.write(grant, 0, local, 0, 64).unwrap();
    }
}

fn first_octet(region: &RegisteredRegion) -> u8 {
    let mut octet = [0];
    region.read(0, &mut octet).unwrap();
    octet[0]
}

#[test]
fn recordings_of_all_types_at_one_queue_have_no_effect_and_others_go_on_at_the_other_engines() {
    let mut scene = Scene::new(NicConfigBuilder::default());
    let all = [Permissions::READ, Permissions::WRITE, Permissions::ATOMIC]
        .into_iter()
        .fold(Permissions::NONE, Permissions::and);
    let region = scene.victim.register(0, all);
    let mut queue = scene.victim.queue(0, 8);
    let grants = [OpType::Read, OpType::Write, OpType::FetchAdd, OpType::CompareSwap]
        .map(|it| scene.victim.grant(&scene.client, &region, it));
    let [read, write, add, swap] = &grants;
    let [send, notify] = [OpType::Send, OpType::Notify]
        .map(|it| Grant { region: queue.id(), ..scene.victim.grant(&scene.client, &region, it) });
    let [send, notify] = [send, notify];
    let local = scene.local.clone();
    let source = || Source { region: &local, offset: 0, len: 64 };
    let portal = scene.portal();
    portal.read(read, 0, &local, 64, 64).unwrap();
    portal.write(write, 64, &local, 0, 64).unwrap();
    portal.write_ordered(write, 128, source()).unwrap();
    portal.fetch_add(add, 256, 1).unwrap();
    portal.compare_swap(swap, 264, 0, 7).unwrap();
    portal.send(&send, &local, 0, 64, 1).unwrap();
    portal.notify(&notify, 2).unwrap();
    let recorded = scene.succeed(0, 7);
    let recorded: Vec<_> = recorded.into_iter().filter(|it| is_for(&scene.victim, it)).collect();
    let events = core::iter::from_fn(|| queue.poll()).count();
    assert_eq!(events, 2);

    for round in 0..200 {
        for frame in recorded.iter().cycle().take(BURST) {
            scene.victim.land(0, frame);
        }
        let at = 1 + round % 3;
        let portal = scene.portal();
        portal.fetch_add(add, 256, 1).unwrap();
        portal.read(read, 0, &local, 64, 64).unwrap();
        scene.succeed(at, 2);
        for other in 1..4 {
            let used = scene.victim.gauges(other).pending_writes_used;
            assert_eq!(used, [0; 2], "nothing of it at engine {other}");
        }
        let own = scene.victim.gauges(0);
        assert!(own.window_debited <= own.window / 2, "{own:?}");
    }
    assert!(queue.poll().is_none(), "no event twice");
    assert_eq!(region.load(256), Ok(201), "each FETCH_ADD once");
    assert_eq!(region.load(264), Ok(7));
}

#[test]
fn rings_filled_from_outside_lose_frames_and_an_engine_goes_on_with_its_own() {
    let mut scene = Scene::new(NicConfigBuilder::default());
    let region = scene.victim.register(3, Permissions::READ.and(Permissions::ATOMIC));
    let mut queue = scene.victim.queue(3, 8);
    let [read, add] =
        [OpType::Read, OpType::FetchAdd].map(|it| scene.victim.grant(&scene.client, &region, it));
    let send =
        Grant { region: queue.id(), ..scene.victim.grant(&scene.client, &region, OpType::Send) };
    let local = scene.local.clone();
    // A stranger's SENDs, who has no key.
    let forged = Grant { key: RegionKeySchedule::new(&NEXT_KEY).derive(&binding(&send)), ..send };
    for _ in 0..SLOTS {
        scene.portal().send(&forged, &local, 0, 64, 0).unwrap();
    }
    let (statuses, flood) = run(&mut scene.client, &mut scene.victim, 3, SLOTS.into());
    assert!(statuses.iter().all(|it| *it == OpStatus::RemoteAuthenticationFailure));
    let flood: Vec<_> = flood.into_iter().filter(|it| is_for(&scene.victim, it)).collect();

    let mut reads = 0;
    for round in 0..200 {
        for engine in 0..3 {
            for frame in flood.iter().cycle().take(BURST) {
                scene.victim.land(engine, frame);
            }
        }
        // The engine that they are for stands still now and then.
        if round % 8 != 7 {
            for engine in 0..3 {
                scene.victim.engines[engine].engine.turn();
            }
            continue;
        }
        // What lands at it is served, whatever waits in its rings.
        scene.portal().read(&read, 0, &local, 0, 64).unwrap();
        reads += 1;
        let (statuses, _) = run(&mut scene.client, &mut scene.victim, 3, 1);
        assert_eq!(statuses, [OpStatus::Ok]);
        scene.portal().fetch_add(&add, 0, 1).unwrap();
        scene.succeed(3, 1);
    }
    let lost: u64 = scene.victim.engines.iter().map(|it| it.handed.lost()).sum();
    assert!(lost > 0, "the rings were full");
    assert_eq!(region.load(0), Ok(reads), "each once");
    // Afterwards there is nothing of it, wherever ops land.
    for at in 0..4 {
        for _ in 0..ROUNDS {
            exchange(&mut scene.client, &mut scene.victim, at);
        }
        scene.portal().send(&send, &local, 0, 64, at as u64).unwrap();
        scene.succeed(at, 1);
        assert_eq!(queue.poll().map(|it| it.immediate), Some(at as u64));
    }
}

fn binding(grant: &Grant) -> KeyBinding {
    let &Grant { initiator, responder, pid, op_type, .. } = grant;
    KeyBinding { initiator, responder, pid, op_type }
}

#[test]
fn a_write_replayed_at_four_engines_takes_an_entry_and_window_of_each_and_has_no_effect() {
    let mut scene = Scene::new(NicConfigBuilder::default());
    let region = scene.victim.register(0, Permissions::WRITE);
    let grant = scene.victim.grant(&scene.client, &region, OpType::Write);
    scene.write(&grant, 1);
    let recorded = scene.succeed(0, 1);
    let to_victim: Vec<_> = recorded.into_iter().filter(|it| is_for(&scene.victim, it)).collect();
    scene.write(&grant, 2);
    scene.succeed(0, 1);

    for _ in 0..50 {
        for engine in 0..4 {
            for frame in &to_victim {
                scene.victim.land(engine, frame);
            }
        }
        scene.victim.turn();
        scene.victim.sent();
        let entries: u64 = (0..4)
            .map(|it| scene.victim.gauges(it))
            .map(|it| it.pending_writes_used.iter().sum::<u64>() + it.pending_writes_parked)
            .sum();
        assert!(entries <= 4, "one at each engine, not {entries}");
        assert!(scene.victim.debited() <= 4 * 64, "{}", scene.victim.debited());
    }
    assert_eq!(first_octet(&region), 2, "what was written before does not come back");
    // The data of the first time names an entry of one engine, and another's counter.
    scene.clock.advance(Duration::from_secs(1));
    for _ in 0..4 {
        scene.victim.turn();
    }
    assert_eq!(scene.victim.debited(), 0, "all of it comes back after a timeout");
    scene.write(&grant, 3);
    scene.succeed(3, 1);
    assert_eq!(first_octet(&region), 3);
}

#[test]
fn an_old_key_asked_about_at_four_engines_is_told_once_a_timeout_by_each_within_the_rate() {
    let rate = 4000;
    let settings = NicConfigBuilder::default().with(|it| it.notices_per_second = rate);
    let mut scene = Scene::new(settings);
    let region = scene.victim.register(0, Permissions::READ.and(Permissions::REKEY));
    let [read, rekey] =
        [OpType::Read, OpType::Rekey].map(|it| scene.victim.grant(&scene.client, &region, it));
    let local = scene.local.clone();
    let mut old = Vec::new();
    for _ in 0..100 {
        for _ in 0..SLOTS {
            scene.portal().read(&read, 0, &local, 0, 64).unwrap();
        }
        let recorded = scene.succeed(0, SLOTS.into());
        old.extend(recorded.into_iter().filter(|it| is_for(&scene.victim, it)));
    }
    scene.portal().rekey(&rekey, NEXT_KEY).unwrap();
    scene.succeed(2, 1);

    // One request, many times, at all engines.
    let mut told = 0;
    for _ in 0..100 {
        for engine in 0..4 {
            scene.victim.land(engine, &old[0]);
        }
        scene.clock.advance(Duration::from_micros(10));
        scene.victim.turn();
        told += scene.victim.sent().len();
    }
    assert!((1..=4).contains(&told), "told {told} times by four engines");

    // Each request, at all engines, within a second.
    let began = scene.clock.now();
    let mut told = 0;
    for frames in old[1..].chunks(BURST) {
        for engine in 0..4 {
            for frame in frames {
                scene.victim.land(engine, frame);
            }
        }
        for _ in 0..4 {
            scene.clock.advance(Duration::from_micros(100));
            scene.victim.turn();
            told += scene.victim.sent().len();
        }
    }
    assert!(scene.clock.now().nanos_since(began) < 1_000_000_000);
    let most = rate as usize;
    assert!((1..=most).contains(&told), "{told} of {} requests", 4 * old.len());
}

#[test]
fn a_read_that_two_engines_answer_has_the_bytes_of_one_of_them_whichever_parts_are_held_back() {
    let mut scene = Scene::new(NicConfigBuilder::default());
    let region = scene.victim.register(0, Permissions::READ);
    let grant = scene.victim.grant(&scene.client, &region, OpType::Read);
    let sink = scene.client.register(0, Permissions::NONE);
    // By which engine's part each third of the op is delivered first, and the rest afterwards.
    for choice in 0..8_usize {
        region.write(0, &[1; LEN]).unwrap();
        sink.write(0, &[0; LEN]).unwrap();
        scene.portal().read(&grant, 0, &sink, 0, LEN as u32).unwrap();
        scene.clock.advance(Duration::from_micros(1));
        scene.client.turn();
        let request = scene.client.sent().remove(0);
        let mut answers = Vec::new();
        for engine in 0..2 {
            scene.victim.land(engine, &request);
            scene.victim.turn();
            answers.push(scene.victim.sent());
            region.write(0, &[2; LEN]).unwrap();
        }
        let [one, other] = &answers[..] else { panic!("two engines") };
        assert!(one.len() > 1 && other.len() == one.len(), "{} parts", one.len());
        let mut first = Vec::new();
        let mut rest = Vec::new();
        for (part, (one, other)) in one.iter().zip(other).enumerate() {
            let is_other = choice >> part & 1 == 1;
            let (now, later) = if is_other { (other, one) } else { (one, other) };
            first.push(now.clone());
            rest.push(later.clone());
        }
        let mut status = None;
        for frame in first.iter().chain(&rest) {
            scene.client.land(0, frame);
            scene.client.turn();
            if let Some(completion) = scene.portal().poll() {
                status = Some(completion.status);
                break;
            }
        }
        if status.is_none() {
            scene.clock.advance(Duration::from_secs(1));
            scene.client.turn();
            status = scene.portal().poll().map(|it| it.status);
        }
        let mut bytes = vec![0; LEN];
        sink.read(0, &mut bytes).unwrap();
        let is_whole = bytes.iter().all(|it| *it == bytes[0]);
        match status {
            Some(OpStatus::Ok) => assert!(is_whole && bytes[0] > 0, "mixed, choice {choice}"),
            other => assert_eq!(other, Some(OpStatus::Timeout), "choice {choice}"),
        }
    }
}

/// The engine at which a port lands: what nobody at the host knows.
fn engine_of(frame: &Carried) -> usize {
    usize::from(frame.0.source_port.0.wrapping_mul(40_503) >> 8) % 4
}

/// One READ of an engine of four, whose answer lands by its port. Returns the answers.
fn read_by_port(
    asking: &mut Host,
    asked: &mut Host,
    engine: usize,
    op: (&Grant, &RegisteredRegion),
) -> Vec<Carried> {
    let (grant, sink) = op;
    asking.engines[engine].portal.read(grant, 0, sink, 0, 64).unwrap();
    let mut answers = Vec::new();
    for _ in 0..ROUNDS {
        asking.clock.advance(Duration::from_micros(1));
        asking.turn();
        for frame in asking.sent() {
            asked.land(0, &frame);
        }
        asked.turn();
        for frame in asked.sent() {
            asking.land(engine_of(&frame), &frame);
            answers.push(frame);
        }
        if let Some(completion) = asking.engines[engine].portal.poll() {
            assert_eq!(completion.status, OpStatus::Ok);
            return answers;
        }
    }
    panic!("no answer");
}

#[test]
fn real_answers_that_are_old_teach_no_port_and_make_none_forgotten() {
    let clock = HandClock(Rc::new(Cell::new(1_000_000)));
    let mut asking = Host::new([192, 0, 2, 1], 4, NicConfigBuilder::default(), &clock);
    let mut asked = Host::new([192, 0, 2, 2], 1, NicConfigBuilder::default(), &clock);
    let sink = asking.register(0, Permissions::NONE);
    let region = asked.register(0, Permissions::READ);
    let grant = asked.grant(&asking, &region, OpType::Read);
    let mut old = Vec::new();
    for _ in 0..1000 {
        for engine in 0..4 {
            old.extend(read_by_port(&mut asking, &mut asked, engine, (&grant, &sink)));
        }
    }
    let wrong_of = |asking: &mut Host, asked: &mut Host| {
        let before = asking.handed_over();
        for _ in 0..250 {
            for engine in 0..4 {
                read_by_port(asking, asked, engine, (&grant, &sink));
            }
        }
        asking.handed_over() - before
    };
    assert_eq!(wrong_of(&mut asking, &mut asked), 0, "all ports are learnt");
    // Each old answer at each engine: right ones, and wrong ones that are handed over.
    for frames in old.chunks(BURST / 4) {
        for engine in 0..4 {
            for frame in frames {
                asking.land(engine, frame);
            }
        }
        clock.advance(Duration::from_micros(1));
        asking.turn();
        asking.turn();
        asking.sent();
    }
    assert_eq!(wrong_of(&mut asking, &mut asked), 0, "nothing was taught or forgotten");
    let is_answer =
        |it: &Carried| matches!(FrameView::parse(&it.1), Ok(FrameView::ReadResponse(_)));
    assert!(old.len() == 4000 && old.iter().all(is_answer));
}
