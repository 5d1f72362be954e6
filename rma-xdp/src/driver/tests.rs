use core::time::Duration;

use rma_core::{
    nic::{Nic, NicConfigBuilder},
    portal::PortalPort,
};

use super::*;
use crate::driver::tenant::Resource;

/// How an engine serves a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Prompt,
    /// It does what it is asked, but its asker has given up.
    Late,
    /// It does not even see the question.
    Stuck,
}

/// An engine without frames: its region table and its portals.
struct TestEngine {
    mood: Mood,
    nic: Nic,
    ports: Vec<PortalPort>,
    /// Slots of portals whose ops do not end.
    busy: Vec<Range<u16>>,
    late: Option<Answer>,
}

impl TestEngine {
    fn answer(&mut self, request: Request) -> Answer {
        let regions = self.nic.regions_mut();
        match request {
            Request::Attach(port, _) => {
                let slots = port.slots().clone();
                self.ports.push(port);
                Answer::Attached(slots)
            }
            Request::Detach(slots) if self.busy.contains(&slots) => Answer::Detached(slots, None),
            Request::Detach(slots) => {
                let index = self.ports.iter().position(|port| *port.slots() == slots);
                Answer::Detached(slots, Some(self.ports.remove(index.expect("attached"))))
            }
            Request::Register(entry) => Answer::Registered(regions.register(entry)),
            Request::Deregister(id) => Answer::Deregistered(id, regions.deregister(id)),
            Request::Rekey(id, key) => Answer::Rekeyed(regions.rekey(id, &key)),
            Request::Derive(..) => unreachable!("no test asks for a grant"),
        }
    }
}

impl ControlPath for TestEngine {
    fn late_answer(&mut self) -> Result<Option<Answer>, HostError> {
        match self.mood {
            Mood::Stuck if self.late.is_some() => Err(stuck()),
            _ => Ok(self.late.take()),
        }
    }

    fn ask(&mut self, request: Request) -> Result<Answer, Unanswered> {
        assert!(self.late.is_none(), "nothing tells a late answer from this one's");
        if self.mood == Mood::Stuck {
            return Err(Unanswered { error: stuck(), unseen: Some(Box::new(request)) });
        }
        let answer = self.answer(request);
        if self.mood == Mood::Late {
            self.late = Some(answer);
            return Err(Unanswered { error: stuck(), unseen: None });
        }
        Ok(answer)
    }

    fn life(&self) -> Life {
        Life::Inline
    }
}

fn stuck() -> HostError {
    HostError::EngineStuck { waited: Duration::from_secs(11) }
}

fn is_stuck<T>(result: Result<T, HostError>) -> bool {
    matches!(result, Err(HostError::EngineStuck { .. }))
}

const SLOTS: u16 = 8;
const REGIONS: u32 = 4;

fn host() -> (Driver, TestEngine) {
    let addr: HostAddr = "192.0.2.1".parse().unwrap();
    let nic = NicConfigBuilder::default().with(|it| {
        it.addresses = addr.into();
        it.regions = REGIONS;
    });
    let nic = Nic::new(nic.build().unwrap());
    let sizes = PoolSizes { slots: SLOTS, regions: REGIONS.into() };
    let config = DriverConfig::default();
    let driver = Driver::new(addr.into(), Pid(1), sizes, &config, None).unwrap();
    let (ports, busy) = (Vec::new(), Vec::new());
    (driver, TestEngine { mood: Mood::Prompt, nic, ports, busy, late: None })
}

/// A portal that can be had at once.
fn portal(
    driver: &mut Driver,
    engine: &mut TestEngine,
    tenant: Option<&Tenant>,
    slots: u16,
) -> Portal {
    driver.portal(engine, tenant, slots).unwrap().expect("no op is to be waited for")
}

fn register(driver: &mut Driver, engine: &mut TestEngine) -> Result<RegisteredRegion, HostError> {
    let memory = Arc::new(Region::new(64).unwrap());
    driver.register(engine, None, memory, RegionKey::from_bytes([0; 16]), Permissions::NONE)
}

#[test]
fn slots_of_a_portal_that_was_not_made_come_back_whatever_the_engine_has_done() {
    for mood in [Mood::Late, Mood::Stuck] {
        let (mut driver, mut engine) = host();
        engine.mood = mood;
        assert!(is_stuck(driver.portal(&mut engine, None, SLOTS).map(drop)));
        // While the engine is stuck, nothing is lost either.
        engine.mood = Mood::Stuck;
        let _ = driver.usage(&mut engine, None);
        engine.mood = Mood::Prompt;
        let used =
            |driver: &mut Driver, engine: &mut _| driver.usage(engine, None).unwrap().slots.used;
        assert_eq!(used(&mut driver, &mut engine), 0, "{mood:?}");
        assert!(engine.ports.is_empty(), "{mood:?}: nobody holds that portal");
        let portal = portal(&mut driver, &mut engine, None, SLOTS);
        assert_eq!(engine.ports.len(), 1);
        drop(portal);
    }
}

#[test]
fn slots_of_a_dropped_portal_come_back_though_the_engine_did_not_answer_when_asked_for_them() {
    for mood in [Mood::Late, Mood::Stuck] {
        let (mut driver, mut engine) = host();
        drop(portal(&mut driver, &mut engine, None, SLOTS));
        engine.mood = mood;
        assert!(is_stuck(driver.usage(&mut engine, None)));
        engine.mood = Mood::Prompt;
        portal(&mut driver, &mut engine, None, SLOTS);
        assert_eq!(engine.ports.len(), 1, "{mood:?}");
    }
}

#[test]
fn a_region_whose_deregistration_was_answered_late_is_charged_no_more() {
    for mood in [Mood::Late, Mood::Stuck] {
        let (mut driver, mut engine) = host();
        let region = register(&mut driver, &mut engine).unwrap();
        engine.mood = mood;
        assert!(is_stuck(driver.deregister(&mut engine, &region)));
        engine.mood = Mood::Prompt;
        driver.deregister(&mut engine, &region).unwrap();
        assert_eq!(driver.usage(&mut engine, None).unwrap().regions.used, 0, "{mood:?}");
        assert!(engine.nic.regions().get(region.id()).is_none());
        let again = driver.deregister(&mut engine, &region).unwrap_err();
        assert!(matches!(again, HostError::Region(RegionError::NotRegistered { .. })), "{again}");
    }
}

#[test]
fn a_region_that_was_registered_late_is_taken_out_of_the_table_again() {
    // The last of these fails at undoing it, too.
    for moods in [&[Mood::Stuck][..], &[Mood::Late], &[Mood::Late, Mood::Late, Mood::Stuck]] {
        let (mut driver, mut engine) = host();
        let known = register(&mut driver, &mut engine).unwrap();
        for &mood in moods {
            engine.mood = mood;
            assert!(is_stuck(register(&mut driver, &mut engine)));
        }
        engine.mood = Mood::Prompt;
        driver.rekey(&mut engine, &known, RegionKey::from_bytes([1; 16])).unwrap();
        assert_eq!(driver.usage(&mut engine, None).unwrap().regions.used, 1);
        assert!(driver.orphans.is_empty());
        for _ in 1..REGIONS {
            register(&mut driver, &mut engine).expect("every other row is free");
        }
    }
}

#[test]
fn nobody_waits_for_ops_whose_end_changes_nothing() {
    let (mut driver, mut engine) = host();
    let mut config = TenantConfig::named("small");
    config.quotas.slots.max = 2;
    let small = driver.tenant(&mut engine, config).unwrap();
    let other = portal(&mut driver, &mut engine, None, 4);
    engine.busy.push(other.slots().clone());
    drop(other);
    let refused = driver.portal(&mut engine, Some(&small), 3).unwrap_err();
    let quota = AllocationError::Quota {
        resource: Resource::CommandSlots,
        tenant: "small".into(),
        wanted: 3,
        used: 0,
        max: 2,
    };
    assert!(matches!(refused, HostError::Allocation(error) if error == quota));
    // More than there are.
    let refused = driver.portal(&mut engine, None, SLOTS + 1).unwrap_err();
    assert!(matches!(refused, HostError::Allocation(AllocationError::PoolEmpty { .. })));
    let own = portal(&mut driver, &mut engine, Some(&small), 2);
    driver.portal(&mut engine, Some(&small), 2).unwrap_err();
    // Once it is dropped, its end is worth waiting for.
    engine.busy.push(own.slots().clone());
    drop(own);
    assert!(driver.portal(&mut engine, Some(&small), 2).unwrap().is_none());
    assert!(driver.portal(&mut engine, None, SLOTS).unwrap().is_none());
    engine.busy.clear();
    portal(&mut driver, &mut engine, None, SLOTS);
}

#[test]
fn what_a_dropped_tenant_reserves_is_waited_for() {
    let (mut driver, mut engine) = host();
    let mut config = TenantConfig::named("short-lived");
    config.quotas.slots.reserved = 4;
    let tenant = driver.tenant(&mut engine, config).unwrap();
    let its = portal(&mut driver, &mut engine, Some(&tenant), 4);
    engine.busy.push(its.slots().clone());
    drop(its);
    driver.portal(&mut engine, None, SLOTS).expect_err("these slots stay the tenant's");
    drop(tenant);
    assert!(driver.portal(&mut engine, None, SLOTS).unwrap().is_none());
    engine.busy.clear();
    portal(&mut driver, &mut engine, None, SLOTS);
}
