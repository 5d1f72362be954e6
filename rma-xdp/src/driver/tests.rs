#[cfg(feature = "star")]
mod star;

use core::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};

use rma_app::life::Life;
#[cfg(feature = "star")]
use rma_core::time::Instant;
use rma_core::{
    command::CommandSlotId,
    crypto::{DerivedRegionKey, EngineId, RegionKeySchedule},
    nic::{KeyRings, Nic, NicConfigBuilder, NicPlace, RegionEntry, RegionTable, TenantIndex},
    portal::{Bell, PortalPort},
    receive_queue::{ReceiveQueue, ReceiveQueueLayout, ReceiveQueueMemory},
    region::RegionId,
    seat::Seat,
};
#[cfg(feature = "star")]
use rma_star::service::Star;

use super::{
    control::{AnyCall, Asked, Call, EngineSide, Question, Unanswered},
    questions::TakeKeys,
    queues::QueueParts,
    *,
};
use crate::services::Beside;

/// The mood in which an engine serves a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Prompt,
    /// It does what it is asked, but its asker has given up.
    Late,
    /// It does not even see the question.
    Stuck,
}

/// An engine without frames: its region table and its portals.
#[derive(Debug)]
struct TestSide {
    nic: Nic,
    ports: Vec<PortalPort>,
    /// Slots of portals whose ops do not end.
    busy: Vec<Range<u16>>,
    #[cfg(feature = "star")]
    star: Option<Star>,
}

impl EngineSide for TestSide {
    fn regions(&mut self) -> &mut RegionTable {
        self.nic.regions_mut()
    }

    fn deregister(&mut self, region: RegionId) -> Result<Box<RegionEntry>, RegionError> {
        self.nic.deregister(region)
    }

    fn attach(&mut self, port: PortalPort, _: Pid, _: TenantIndex) {
        self.ports.push(port);
    }

    fn detach(&mut self, slots: &Range<u16>) -> Option<PortalPort> {
        if self.busy.contains(slots) {
            return None;
        }
        let index = self.ports.iter().position(|port| port.slots() == slots);
        Some(self.ports.remove(index.expect("attached")))
    }
}

impl Beside for TestSide {
    #[cfg(feature = "star")]
    fn star(&mut self) -> Option<(&mut Star, Instant)> {
        self.star.as_mut().map(|star| (star, Instant::ZERO))
    }
}

#[derive(Debug)]
struct TestEngine {
    mood: Mood,
    side: TestSide,
    ended: Arc<AtomicBool>,
    late: Option<Arc<dyn AnyCall>>,
}

impl ControlPath for TestEngine {
    type Berth = ();

    fn berth() -> Result<(), HostError> {
        Ok(())
    }

    fn life_at((): &()) -> Life {
        Life::inline()
    }

    fn seat((): &()) -> Seat {
        Seat::new(None, Arc::default())
    }

    fn late(&mut self) -> Result<Option<Arc<dyn AnyCall>>, HostError> {
        match self.mood {
            Mood::Stuck if self.late.is_some() => Err(stuck()),
            _ => {
                self.late.iter().for_each(|late| late.serve(&mut self.side));
                Ok(self.late.take())
            }
        }
    }

    fn is_reachable(&self) -> bool {
        !self.has_ended() && (self.late.is_none() || self.mood != Mood::Stuck)
    }

    fn put<Q: Question>(&mut self, question: Q) -> Asked<Q> {
        assert!(self.late.is_none(), "the driver settles a late answer before it asks again");
        if self.has_ended() {
            let gone = Unanswered { error: HostError::EngineGone, unseen: Some(question) };
            return Asked::Known(Err(gone));
        }
        let unseen = match self.mood {
            Mood::Prompt => return Asked::Known(Ok(question.answer(&mut self.side))),
            Mood::Late => {
                let call = Arc::new(Call::new(question));
                call.serve(&mut self.side);
                self.late = Some(call);
                None
            }
            Mood::Stuck => {
                self.late = Some(Arc::new(Call::new(TakeKeys)));
                Some(question)
            }
        };
        Asked::Known(Err(Unanswered { error: stuck(), unseen }))
    }

    fn answer<Q: Question>(&mut self, asked: Asked<Q>) -> Result<Q::Answer, Unanswered<Q>> {
        asked.known()
    }

    fn go_on(&mut self) -> bool {
        false
    }

    fn publish_gauges(&self) {}

    fn bell(&self) -> Option<Bell> {
        None
    }

    fn life(&self) -> Life {
        if self.has_ended() { Life::thread(self.ended.clone()) } else { Life::inline() }
    }
}

impl TestEngine {
    fn has_ended(&self) -> bool {
        self.ended.load(SeqCst)
    }

    /// Whether it has `region` under this key.
    fn has_key(&self, region: &RegisteredRegion, key: &RegionKey) -> bool {
        let any = HostAddr::from([192, 0, 2, 9]);
        let (initiator, responder) = (any, any);
        let binding = KeyBinding { initiator, responder, pid: Pid(0), op_type: OpType::Read };
        let its =
            self.side.nic.regions().get(region.id()).expect("registered").key.derive(&binding);
        its == RegionKeySchedule::new(key).derive(&binding)
    }
}

fn stuck() -> HostError {
    HostError::EngineStuck { waited: Duration::from_secs(11), is_under_way: false }
}

fn is_stuck<T>(result: Result<T, HostError>) -> bool {
    matches!(result, Err(HostError::EngineStuck { .. }))
}

const SLOTS: u16 = 8;
const REGIONS: u32 = 4;

fn host() -> Driver<TestEngine> {
    host_of(1)
}

/// A host of several engines, each with as many slots.
fn host_of(engines: u16) -> Driver<TestEngine> {
    let addr: HostAddr = "192.0.2.1".parse().unwrap();
    let seats: Vec<_> = (0..engines).map(|_| TestEngine::seat(&())).collect();
    let shard = |(index, keys)| {
        let nic = NicConfigBuilder::default().with(|it| {
            (it.regions, it.command_slots) = (REGIONS, SLOTS.into());
        });
        let place =
            NicPlace::at(addr).with(|it| (it.engine, it.engines) = (EngineId(index), engines));
        let mut nic = Nic::new(nic.build(place).unwrap());
        nic.regions_mut().set_rings(keys);
        let side = TestSide {
            nic,
            ports: Vec::new(),
            busy: Vec::new(),
            #[cfg(feature = "star")]
            star: None,
        };
        let ended = seats[usize::from(index)].ended.clone();
        let path = TestEngine { mood: Mood::Prompt, side, ended, late: None };
        Shard { path, slots: index * SLOTS..(index + 1) * SLOTS }
    };
    let shards = (0..engines).zip(KeyRings::connect(&seats)).map(shard);
    let shards = Shards::new(shards.collect());
    let capacities = Capacities::of_regions(REGIONS);
    Driver::new(addr.into(), Pid(1), shards, &capacities, &DriverConfig::default()).unwrap()
}

impl Driver<TestEngine> {
    fn engine(&mut self) -> &mut TestEngine {
        self.engine_at(0)
    }

    fn engine_at(&mut self, index: usize) -> &mut TestEngine {
        self.shards.paths_mut().nth(index).expect("there are as many")
    }
}

/// A portal that can be had at once.
fn portal(driver: &mut Driver<TestEngine>, tenant: Option<&Tenant>, slots: u16) -> Portal {
    driver.portal(tenant, slots, None).unwrap().expect("no op is to be waited for")
}

fn register(driver: &mut Driver<TestEngine>) -> Result<RegisteredRegion, HostError> {
    let memory = Arc::new(Region::new(64).unwrap());
    driver.register(None, memory, RegionKey::from_bytes([0; 16]), Permissions::NONE)
}

#[test]
fn slots_of_a_portal_that_was_not_made_come_back_whatever_the_engine_has_done() {
    for mood in [Mood::Late, Mood::Stuck] {
        let mut driver = host();
        driver.engine().mood = mood;
        assert!(is_stuck(driver.portal(None, SLOTS, None).map(drop)));
        // While the engine is stuck, nothing is lost either.
        driver.engine().mood = Mood::Stuck;
        let _ = driver.usage(None);
        driver.engine().mood = Mood::Prompt;
        assert_eq!(driver.usage(None).unwrap().slots.used, 0, "{mood:?}");
        assert!(driver.engine().side.ports.is_empty(), "{mood:?}: nobody holds that portal");
        let portal = portal(&mut driver, None, SLOTS);
        assert_eq!(driver.engine().side.ports.len(), 1);
        drop(portal);
    }
}

#[test]
fn slots_of_a_dropped_portal_come_back_though_the_engine_did_not_answer_when_asked_for_them() {
    for mood in [Mood::Late, Mood::Stuck] {
        let mut driver = host();
        drop(portal(&mut driver, None, SLOTS));
        driver.engine().mood = mood;
        assert!(is_stuck(driver.usage(None)));
        driver.engine().mood = Mood::Prompt;
        portal(&mut driver, None, SLOTS);
        assert_eq!(driver.engine().side.ports.len(), 1, "{mood:?}");
    }
}

#[test]
fn a_region_whose_deregistration_was_answered_late_is_charged_no_more() {
    for mood in [Mood::Late, Mood::Stuck] {
        let mut driver = host();
        let region = register(&mut driver).unwrap();
        driver.engine().mood = mood;
        assert!(is_stuck(driver.deregister(&region)));
        driver.engine().mood = Mood::Prompt;
        driver.deregister(&region).unwrap();
        assert_eq!(driver.usage(None).unwrap().regions.used, 0, "{mood:?}");
        assert!(driver.engine().side.nic.regions().get(region.id()).is_none());
        let again = driver.deregister(&region).unwrap_err();
        assert!(matches!(again, HostError::Region(RegionError::NotRegistered { .. })), "{again}");
    }
}

#[test]
fn a_region_that_was_registered_late_is_taken_out_of_the_table_again() {
    // The last of these fails at undoing it, too.
    for moods in [&[Mood::Stuck][..], &[Mood::Late], &[Mood::Late, Mood::Late, Mood::Stuck]] {
        let mut driver = host();
        let known = register(&mut driver).unwrap();
        for &mood in moods {
            driver.engine().mood = mood;
            assert!(is_stuck(register(&mut driver)));
        }
        driver.engine().mood = Mood::Prompt;
        driver.rekey(&known, RegionKey::from_bytes([1; 16])).unwrap();
        assert_eq!(driver.usage(None).unwrap().regions.used, 1);
        assert!(driver.ledger.services.orphans.is_empty());
        for _ in 1..REGIONS {
            register(&mut driver).expect("every other row is free");
        }
    }
}

#[test]
fn a_rekey_that_an_engine_has_taken_up_is_told_as_under_way_and_one_that_none_has_is_not() {
    let key = |octet| RegionKey::from_bytes([octet; 16]);
    // The mood of each engine; of two, the one may have done it.
    for (moods, under_way) in [
        (&[Mood::Stuck][..], false),
        (&[Mood::Late], true),
        (&[Mood::Stuck, Mood::Prompt], false),
        (&[Mood::Prompt, Mood::Stuck], true),
        (&[Mood::Prompt, Mood::Late], true),
    ] {
        let mut driver = host_of(moods.len() as u16);
        let region = register(&mut driver).unwrap();
        driver.rekey(&region, key(1)).unwrap();
        for (shard, &mood) in driver.shards.0.iter_mut().zip(moods) {
            shard.path.mood = mood;
        }
        let error = driver.rekey(&region, key(2)).unwrap_err();
        let HostError::EngineStuck { is_under_way, .. } = error else { panic!("{error}") };
        assert_eq!(is_under_way, under_way, "{moods:?}");
        let says = "It has taken up what it was asked, and will do it then";
        assert_eq!(error.to_string().ends_with(says), under_way, "{error}");
        // The next one, of the same key, is not asked while that lasts: it has done nothing itself.
        for shard in &mut driver.shards.0 {
            shard.path.mood = Mood::Stuck;
        }
        let error = driver.rekey(&region, key(2)).unwrap_err();
        assert!(matches!(error, HostError::EngineStuck { is_under_way: false, .. }), "{error}");
    }
}

//= channels#P11-rekey
//= type=test
#[test]
fn regions_of_an_engine_that_has_ended_have_another_home_and_one_order_of_keys() {
    let key = |octet| RegionKey::from_bytes([octet; 16]);
    let mut driver = host_of(3);
    let layout = ReceiveQueueLayout::new(1, 64).unwrap();
    let regions = [0, 1, 2].map(|_| register(&mut driver).unwrap());
    let home = |driver: &Driver<TestEngine>, region: &RegisteredRegion| {
        driver.ledger.accounts().home_of(region.id())
    };
    assert_eq!(regions.each_ref().map(|it| home(&driver, it)), [0, 1, 2]);
    let region = &regions[1];
    let at = portal_of_engine(&mut driver, 1);
    let parts = QueueParts {
        layout,
        memory: Arc::new(Region::new(layout.memory_len()).unwrap()),
        key: key(0),
        permissions: Permissions::REKEY,
    };
    let queue = driver.receive_queue(None, Some(&at), parts).unwrap();
    // The home has put a key that nobody has taken, and ends.
    driver.engine_at(1).side.regions().rekey(region.id(), &key(1)).unwrap();
    driver.engine_at(1).ended.store(true, SeqCst);
    // While an engine stands still the regions stay where they are.
    driver.engine_at(0).mood = Mood::Stuck;
    assert!(is_stuck(driver.rekey(region, key(2))));
    assert_eq!(home(&driver, region), 1);
    assert!(!driver.engine_at(2).has_key(region, &key(2)));
    driver.engine_at(0).mood = Mood::Prompt;
    driver.rekey(region, key(2)).unwrap();
    assert_eq!(regions.each_ref().map(|it| home(&driver, it)), [0, 2, 2]);
    for engine in [0, 2] {
        driver.engine_at(engine).side.regions().take_keys();
        assert!(driver.engine_at(engine).has_key(region, &key(2)), "engine {engine}");
    }
    // A queue's rings have ended with their engine.
    assert!(matches!(driver.rekey(queue.region(), key(2)), Err(HostError::EngineGone)));
    // What is registered from now on has no home there, whatever its name is.
    driver.deregister(region).unwrap();
    for _ in 0..REGIONS {
        let region = register(&mut driver).unwrap();
        assert_ne!(home(&driver, &region), 1);
        driver.deregister(&region).unwrap();
    }
    // Before the last one it is the next that lives.
    driver.engine_at(2).ended.store(true, SeqCst);
    driver.rekey(&regions[2], key(3)).unwrap();
    assert_eq!((home(&driver, &regions[2]), home(&driver, &regions[0])), (0, 0));
}

fn portal_of_engine(driver: &mut Driver<TestEngine>, engine: usize) -> Portal {
    driver.portal(None, 1, Some(engine)).unwrap().expect("no op is to be waited for")
}

#[test]
fn a_portal_goes_to_the_engine_that_is_asked_for_or_says_what_that_has() {
    let mut driver = host_of(3);
    let on_1: Vec<_> = (0..SLOTS / 2).map(|_| portal_of_engine(&mut driver, 1)).collect();
    let slots: Vec<_> = on_1.iter().map(|it| it.slots().start).collect();
    assert_eq!(slots, Vec::from_iter(SLOTS..SLOTS + SLOTS / 2));
    let refused = driver.portal(None, SLOTS / 2 + 1, Some(1)).unwrap_err();
    let full = AllocationError::EngineFull {
        engine: 1,
        tenant: "host".into(),
        wanted: SLOTS / 2 + 1,
        free: SLOTS / 2,
        slots: SLOTS,
    };
    assert!(matches!(refused, HostError::Allocation(error) if error == full));
    // Elsewhere there is room; and of a dropped portal, that of another engine is not waited for.
    assert!(portal(&mut driver, None, SLOTS).slots().start != SLOTS);
    let other = portal_of_engine(&mut driver, 2);
    driver.engine_at(2).side.busy.push(other.slots().clone());
    drop(other);
    driver.portal(None, SLOTS, Some(1)).unwrap_err();
    let refused = driver.portal(None, 1, Some(3)).unwrap_err();
    let none = AllocationError::NoSuchEngine { engine: 3, engines: 3 };
    assert!(matches!(refused, HostError::Allocation(error) if error == none));
}

#[test]
fn nobody_waits_for_ops_whose_end_changes_nothing() {
    let mut driver = host();
    let mut config = TenantConfig::named("small");
    config.quotas.slots.max = 2;
    let small = driver.tenant(config).unwrap();
    let other = portal(&mut driver, None, 4);
    driver.engine().side.busy.push(other.slots().clone());
    drop(other);
    let refused = driver.portal(Some(&small), 3, None).unwrap_err();
    let quota = AllocationError::Quota {
        resource: Resource::CommandSlots,
        tenant: "small".into(),
        wanted: 3,
        used: 0,
        max: 2,
    };
    assert!(matches!(refused, HostError::Allocation(error) if error == quota));
    // More than there are.
    let refused = driver.portal(None, SLOTS + 1, None).unwrap_err();
    assert!(matches!(refused, HostError::Allocation(AllocationError::PoolEmpty { .. })));
    let own = portal(&mut driver, Some(&small), 2);
    driver.portal(Some(&small), 2, None).unwrap_err();
    // Once it is dropped, its end is worth waiting for.
    driver.engine().side.busy.push(own.slots().clone());
    drop(own);
    assert!(driver.portal(Some(&small), 2, None).unwrap().is_none());
    assert!(driver.portal(None, SLOTS, None).unwrap().is_none());
    driver.engine().side.busy.clear();
    portal(&mut driver, None, SLOTS);
}

//= 1rma#4.3-priorities
//= type=test
#[test]
fn the_reservation_of_a_dropped_tenant_is_waited_for() {
    let mut driver = host();
    let mut config = TenantConfig::named("short-lived");
    config.quotas.slots.reserved = 4;
    let tenant = driver.tenant(config).unwrap();
    let its = portal(&mut driver, Some(&tenant), 4);
    driver.engine().side.busy.push(its.slots().clone());
    drop(its);
    driver.portal(None, SLOTS, None).expect_err("these slots stay the tenant's");
    drop(tenant);
    assert!(driver.portal(None, SLOTS, None).unwrap().is_none());
    driver.engine().side.busy.clear();
    portal(&mut driver, None, SLOTS);
}

#[test]
fn a_portal_is_one_engines_and_a_region_all_engines() {
    let mut driver = host_of(2);
    let portals = [SLOTS - 1, SLOTS, 1].map(|slots| portal(&mut driver, None, slots));
    let served = |driver: &mut Driver<TestEngine>, index| -> Vec<Range<u16>> {
        driver.engine_at(index).side.ports.iter().map(|port| port.slots().clone()).collect()
    };
    assert_eq!(served(&mut driver, 0), [0..SLOTS - 1, SLOTS - 1..SLOTS]);
    assert_eq!(served(&mut driver, 1), core::slice::from_ref(&(SLOTS..2 * SLOTS)));
    drop(portals);
    assert_eq!(driver.usage(None).unwrap().slots.used, 0);
    assert!((0..2).all(|index| driver.engine_at(index).side.ports.is_empty()));

    let region = register(&mut driver).unwrap();
    let has = |driver: &mut Driver<TestEngine>, index| {
        driver.engine_at(index).side.nic.regions().get(region.id()).is_some()
    };
    assert!(has(&mut driver, 0) && has(&mut driver, 1));
    // Whichever of them does not answer, in time or at all: it counts until both have let go.
    for (index, mood) in [(0, Mood::Stuck), (1, Mood::Late), (1, Mood::Stuck), (0, Mood::Late)] {
        let mut driver = host_of(2);
        let region = register(&mut driver).unwrap();
        driver.engine_at(index).mood = mood;
        assert!(is_stuck(driver.deregister(&region)));
        driver.engine_at(index).mood = Mood::Prompt;
        driver.deregister(&region).unwrap();
        assert_eq!(driver.usage(None).unwrap().regions.used, 0, "{index} {mood:?}");
        let is_gone = |it: &mut TestEngine| it.side.nic.regions().get(region.id()).is_none();
        assert!((0..2).all(|index| is_gone(driver.engine_at(index))), "{index} {mood:?}");
    }
}

#[test]
fn a_region_that_one_of_two_engines_has_not_heard_of_is_taken_out_of_the_other_one() {
    let mut driver = host_of(2);
    driver.engine_at(1).mood = Mood::Stuck;
    assert!(is_stuck(register(&mut driver)));
    driver.engine_at(1).mood = Mood::Prompt;
    assert_eq!(driver.usage(None).unwrap().regions.used, 0);
    assert!(driver.ledger.services.orphans.is_empty());
    let table = driver.engine_at(0).side.nic.regions_mut();
    let entries = (0..REGIONS).map(|_| {
        let (memory, key) = (Arc::new(Region::new(64).unwrap()), RegionKey::from_bytes([0; 16]));
        Box::new(RegionEntry::new(memory, &key, Permissions::NONE, Pid(1)))
    });
    for entry in entries {
        table.register(entry).expect("every row is free");
    }
}

#[test]
fn a_region_is_at_its_home_when_it_is_at_all_others() {
    let mut driver = host_of(3);
    driver.engine_at(2).mood = Mood::Stuck;
    assert!(is_stuck(register(&mut driver)));
    // Its home takes no Rekey that engine 2 would not hear of.
    let [home, other] = [0, 1].map(|it| {
        let regions = driver.engine_at(it).side.nic.regions();
        regions.get(RegionId::from_bits(0)).is_some()
    });
    assert!(!home && other);
}

#[test]
fn a_queue_that_its_home_refuses_is_no_engines() {
    for portals in [1, 2] {
        let mut driver = host_of(2);
        let portals: Vec<_> = (0..portals).map(|_| portal(&mut driver, None, SLOTS)).collect();
        let layout = ReceiveQueueLayout::new(2, 24).unwrap();
        let memory = Arc::new(Region::new(layout.memory_len()).unwrap());
        let (key, permissions) = (RegionKey::from_bytes([0; 16]), Permissions::READ);
        let parts = QueueParts { layout, memory, key, permissions };
        let refused = driver.receive_queue(None, portals.last(), parts).unwrap_err();
        assert!(matches!(refused, HostError::Region(RegionError::QueuePermissions { .. })));
        assert_eq!(driver.usage(None).unwrap().regions.used, 0);
        for _ in 0..REGIONS {
            register(&mut driver).expect("every row of both engines is free");
        }
    }
}

#[test]
fn nobody_waits_for_ops_at_an_engine_that_takes_no_questions() {
    let mut driver = host();
    let its = portal(&mut driver, None, SLOTS);
    let region = register(&mut driver).unwrap();
    driver.engine().mood = Mood::Late;
    assert!(is_stuck(driver.rekey(&region, RegionKey::from_bytes([1; 16]))));
    driver.engine().mood = Mood::Stuck;
    drop(its);
    assert!(driver.portal(None, SLOTS, None).is_err(), "this might never end");
    driver.engine().mood = Mood::Prompt;
    portal(&mut driver, None, SLOTS);
}

/// The key that an engine has for a region, by what it grants.
fn key_at(driver: &mut Driver<TestEngine>, engine: usize, region: RegionId) -> DerivedRegionKey {
    let regions = driver.engine_at(engine).side.nic.regions();
    let [initiator, responder] = ["192.0.2.9", "192.0.2.1"].map(|it| it.parse().unwrap());
    let op_type = OpType::Read;
    let binding = KeyBinding { initiator, responder, pid: Pid(1), op_type };
    regions.get(region).unwrap().key.derive(&binding)
}

#[test]
fn a_rekey_is_at_all_engines_when_it_returns_wherever_its_region_has_its_home() {
    let mut driver = host_of(3);
    let regions: Vec<_> = (0..3).map(|_| register(&mut driver).unwrap()).collect();
    for (octet, region) in (1..).zip(&regions) {
        let before = key_at(&mut driver, 0, region.id());
        driver.rekey(region, RegionKey::from_bytes([octet; 16])).unwrap();
        let [first, others @ ..] = [0, 1, 2].map(|it| key_at(&mut driver, it, region.id()));
        assert!(first != before && others == [first; 2]);
    }
}

#[test]
fn a_rekey_that_an_engine_holds_up_is_under_way_and_ends_as_that_goes_on() {
    let mut driver = host_of(2);
    let region = register(&mut driver).unwrap();
    driver.engine_at(1).mood = Mood::Stuck;
    let error = driver.rekey(&region, RegionKey::from_bytes([7; 16])).unwrap_err();
    assert!(matches!(error, HostError::EngineStuck { is_under_way: true, .. }), "{error}");
    assert!(key_at(&mut driver, 0, region.id()) != key_at(&mut driver, 1, region.id()));
    // The same key again, as a keeper repeats it.
    driver.engine_at(1).mood = Mood::Prompt;
    driver.rekey(&region, RegionKey::from_bytes([7; 16])).unwrap();
    assert!(key_at(&mut driver, 0, region.id()) == key_at(&mut driver, 1, region.id()));
}

#[test]
fn an_engine_that_stands_still_holds_up_no_portal_and_no_grant_of_another() {
    for (mood, still) in (0..3).flat_map(|it| [(Mood::Late, it), (Mood::Stuck, it)]) {
        let mut driver = host_of(3);
        let region = register(&mut driver).unwrap();
        driver.engine_at(still).mood = mood;
        assert!(is_stuck(register(&mut driver)), "all engines need a row");
        driver.engine_at(still).mood = Mood::Stuck;
        let slots = (still as u16 * SLOTS)..((still as u16 + 1) * SLOTS);
        for _ in 0..2 {
            let portal = portal(&mut driver, None, SLOTS);
            assert!(!slots.contains(&portal.slots().start), "it has room elsewhere");
            core::mem::forget(portal);
        }
        let initiator = "192.0.2.9".parse().unwrap();
        driver.grant(&region, initiator, Pid(2), OpType::Read).unwrap();
        driver.usage(None).unwrap();
        driver.engine_at(still).mood = Mood::Prompt;
        assert_eq!(driver.usage(None).unwrap().regions.used, 1, "what it did late is undone");
        register(&mut driver).unwrap();
    }
}

fn queue(
    driver: &mut Driver<TestEngine>,
    portal: Option<&Portal>,
) -> Result<ReceiveQueue, HostError> {
    let layout = ReceiveQueueLayout::new(2, 24).unwrap();
    let memory = Arc::new(Region::new(layout.memory_len()).unwrap());
    let (key, permissions) = (RegionKey::from_bytes([0; 16]), Permissions::SEND);
    driver.receive_queue(None, portal, QueueParts { layout, memory, key, permissions })
}

fn region_beside(
    driver: &mut Driver<TestEngine>,
    queue: &RegisteredRegion,
) -> Result<RegisteredRegion, HostError> {
    let memory = Arc::new(Region::new(64).unwrap());
    let permissions = Permissions::WRITE | Permissions::NOTIFY;
    driver.register_with_events(None, queue, memory, RegionKey::from_bytes([0; 16]), permissions)
}

#[test]
fn a_queue_is_charged_with_its_rings_and_granted_with_the_length_of_its_buffers() {
    let mut driver = host();
    let queue = queue(&mut driver, None).unwrap();
    let usage = driver.usage(None).unwrap();
    // The buffers, and the rings: without buffers a queue is no smaller than its rings.
    let layout = queue.layout();
    let charged = 48 + ReceiveQueueMemory::footprint(layout) as u64;
    assert_eq!((usage.regions.used, usage.bytes.used), (1, charged));
    let initiator = "192.0.2.9".parse().unwrap();
    let grant = driver.grant(queue.region(), initiator, Pid(2), OpType::Send).unwrap();
    assert_eq!((grant.region, grant.region_len), (queue.id(), 24));
    let region = region_beside(&mut driver, queue.region()).unwrap();
    let refused = region_beside(&mut driver, &region).unwrap_err();
    assert!(matches!(refused, HostError::Region(RegionError::NotRegistered { .. })), "{refused}");
    driver.deregister(queue.region()).unwrap();
    assert!(region_beside(&mut driver, queue.region()).is_err());
    driver.deregister(&region).unwrap();
    assert_eq!(driver.usage(None).unwrap().regions.used, 0);
}

#[test]
fn a_queue_outlives_its_portal_and_then_wakes_nobody() {
    let mut driver = host();
    let its = portal(&mut driver, None, SLOTS);
    let [bound, gone] = [(); 2].map(|()| queue(&mut driver, Some(&its)).unwrap());
    let bound_to = |driver: &mut Driver<TestEngine>| {
        driver.engine().side.nic.regions_mut().portal_of(bound.id())
    };
    assert_eq!(bound_to(&mut driver), Some(CommandSlotId(0)));
    driver.deregister(gone.region()).unwrap();
    driver.engine().side.busy.push(its.slots().clone());
    drop(its);
    driver.usage(None).unwrap();
    assert_eq!(bound_to(&mut driver), Some(CommandSlotId(0)), "its ops are under way");
    driver.engine().side.busy.clear();
    let next = portal(&mut driver, None, SLOTS);
    assert_eq!(bound_to(&mut driver), None, "these slots are another portal's");
    drop(next);
    driver.deregister(bound.region()).unwrap();
    assert_eq!(driver.usage(None).unwrap().regions.used, 0);
}

#[test]
fn a_queue_wakes_no_portal_of_another_tenant_or_host() {
    let (mut driver, mut other) = (host(), host());
    let tenant = driver.tenant(TenantConfig::named("other")).unwrap();
    let portals = [portal(&mut driver, Some(&tenant), 1), portal(&mut other, None, 1)];
    for portal in &portals {
        let refused = queue(&mut driver, Some(portal)).unwrap_err();
        let HostError::Allocation(AllocationError::PortalOfAnother) = refused else {
            panic!("{refused}")
        };
    }
    assert_eq!(driver.usage(None).unwrap().regions.used, 0);
}

#[test]
fn a_queue_is_one_engines_and_its_name_every_engines() {
    let mut driver = host_of(2);
    let portals = [SLOTS, SLOTS].map(|slots| portal(&mut driver, None, slots));
    for (index, portal) in portals.iter().enumerate() {
        let queue = queue(&mut driver, Some(portal)).unwrap();
        let region = region_beside(&mut driver, queue.region()).unwrap();
        for engine in 0..2 {
            let table = driver.engine_at(engine).side.nic.regions_mut();
            let is_served = table.bind_queue(queue.id(), None).is_ok();
            assert_eq!(is_served, engine == index);
            assert!(table.get(queue.id()).is_some() && table.get(region.id()).is_some());
        }
    }
}

#[test]
fn a_queue_that_was_registered_late_is_taken_out_of_the_table_again() {
    for mood in [Mood::Late, Mood::Stuck] {
        let mut driver = host();
        let its = portal(&mut driver, None, 1);
        driver.engine().mood = mood;
        assert!(is_stuck(queue(&mut driver, Some(&its)).map(drop)));
        driver.engine().mood = Mood::Prompt;
        assert_eq!(driver.usage(None).unwrap().regions.used, 0);
        for _ in 0..REGIONS {
            register(&mut driver).expect("every row is free");
        }
    }
}
