//! StaR's questions to an engine that is prompt, late or stuck: nothing is lost, and nothing stays
//! that nobody knows of.

use rma_app::star::{MemoryRegion, ProtectionDomain, StarVerbs};
use rma_core::crypto::{CounterBlock, EngineId};
use rma_star::{
    config::{StarConfigBuilder, StarPlace},
    keys::PdKey,
    mr_table::Access,
    names::Qpn,
};

use super::*;
use crate::star::{
    driver::{StarPortalConfig, StarTerms},
    error::StarError,
};

const PDS: u32 = 3;
const MRS: u32 = 4;

/// A host whose engine serves StaR.
fn host() -> Driver<TestEngine> {
    host_of(1)
}

/// A host of several engines that serve StaR, each with tables of these sizes.
fn host_of(engines: u16) -> Driver<TestEngine> {
    let addr: HostAddr = "192.0.2.1".parse().unwrap();
    let mut star = StarConfigBuilder::default();
    (star.pds, star.mrs, star.connections) = (PDS, MRS, 8);
    (star.work_requests, star.frames_under_way, star.filter_entries, star.answers) =
        (16, 16, 16, 128);
    let shard = |index| {
        let place =
            StarPlace::at(addr).with(|it| (it.engine, it.engines) = (EngineId(index), engines));
        let nic = NicConfigBuilder::default().with(|it| it.regions = REGIONS);
        let nic = Nic::new(nic.build(NicPlace::at(addr)).unwrap());
        let star = Some(Star::new(star.build(place).unwrap(), CounterBlock::new(0, 1 << 40)));
        let side = TestSide { nic, ports: Vec::new(), busy: Vec::new(), star };
        let path = TestEngine { mood: Mood::Prompt, side, ended: Arc::default(), late: None };
        Shard { path, slots: index * SLOTS..(index + 1) * SLOTS }
    };
    let shards = Shards::new((0..engines).map(shard).collect());
    let mut capacities = Capacities::of_regions(REGIONS);
    capacities[Resource::ProtectionDomains] = PDS.into();
    capacities[Resource::MemoryRegions] = MRS.into();
    capacities[Resource::StatefulConnections] = 8;
    capacities[Resource::WorkRequests] = 100;
    Driver::new(addr.into(), Pid(1), shards, &capacities, &DriverConfig::default()).unwrap()
}

fn ask_portal(driver: &mut Driver<TestEngine>) -> Result<StarVerbs, HostError> {
    let config = StarPortalConfig::default().with(|it| {
        (it.work_requests, it.queue_pairs, it.stateful_connections) = (60, 4, 5);
    });
    let terms = StarTerms { packet_len_max: 1472, valid: Duration::from_millis(16) };
    let portal = driver.star_portal(None, &config, terms)?;
    Ok(portal.expect("nothing is under way that is to be waited for"))
}

/// A portal that takes most of an engine's table of connections.
fn small_portal(
    driver: &mut Driver<TestEngine>,
    tenant: Option<&Tenant>,
    connections: u32,
) -> Result<StarVerbs, HostError> {
    let config = StarPortalConfig::default().with(|it| {
        (it.work_requests, it.queue_pairs, it.stateful_connections) = (4, 4, connections);
    });
    let terms = StarTerms { packet_len_max: 1472, valid: Duration::from_millis(16) };
    let portal = driver.star_portal(tenant, &config, terms)?;
    Ok(portal.expect("nothing is under way that is to be waited for"))
}

/// The engine of a portal.
fn engine_of(driver: &Driver<TestEngine>, verbs: &StarVerbs) -> usize {
    let asker = driver.ledger.star_asker(verbs.tag()).unwrap();
    let each = Qpn::PORTALS / driver.shards.count() as u32;
    assert_eq!(u32::from(asker.number) / each, asker.engine as u32, "its number says so");
    asker.engine
}

fn alloc(
    driver: &mut Driver<TestEngine>,
    verbs: &StarVerbs,
) -> Result<ProtectionDomain, HostError> {
    driver.alloc_pd(verbs.tag(), PdKey::from_bytes([7; 16]))
}

fn reg(driver: &mut Driver<TestEngine>, pd: &ProtectionDomain) -> Result<MemoryRegion, HostError> {
    let memory = Arc::new(Region::new(64).unwrap());
    driver.reg_mr(pd, memory, 0..50, Access::REMOTE_READ)
}

/// Portals by their work requests and connections, protection domains, memory regions, bytes.
fn used(driver: &mut Driver<TestEngine>) -> [u64; 5] {
    let usage = driver.usage(None).unwrap();
    [usage.work_requests, usage.stateful_connections, usage.pds, usage.mrs, usage.bytes]
        .map(|pool| pool.used)
}

#[test]
fn resources_not_given_out_are_charged_to_nobody_whatever_the_engine_has_done() {
    for mood in [Mood::Late, Mood::Stuck] {
        let mut driver = host();
        let late = |driver: &mut Driver<TestEngine>| driver.engine().mood = mood;
        late(&mut driver);
        assert!(is_stuck(ask_portal(&mut driver).map(drop)));
        driver.engine().mood = Mood::Prompt;
        assert_eq!(used(&mut driver), [0; 5], "{mood:?}: a portal");
        let verbs = ask_portal(&mut driver).unwrap();

        late(&mut driver);
        assert!(is_stuck(alloc(&mut driver, &verbs)));
        driver.engine().mood = Mood::Prompt;
        assert_eq!(used(&mut driver), [60, 5, 0, 0, 0], "{mood:?}: a protection domain");
        let pd = alloc(&mut driver, &verbs).unwrap();

        late(&mut driver);
        assert!(is_stuck(reg(&mut driver, &pd)));
        driver.engine().mood = Mood::Prompt;
        assert_eq!(used(&mut driver), [60, 5, 1, 0, 0], "{mood:?}: a memory region");
        let mr = reg(&mut driver, &pd).unwrap();

        late(&mut driver);
        assert!(is_stuck(driver.bind_mw(&mr, 0..8, Access::REMOTE_READ)));
        driver.engine().mood = Mood::Prompt;
        assert_eq!(used(&mut driver), [60, 5, 1, 1, 50], "{mood:?}: a window");
        assert!(driver.ledger.services.star.orphans.is_empty());
        // The engine has the rows free as well.
        for _ in 1..MRS {
            driver.bind_mw(&mr, 0..8, Access::REMOTE_READ).unwrap();
        }
        for _ in 1..PDS {
            alloc(&mut driver, &verbs).unwrap();
        }
    }
}

#[test]
fn resources_taken_back_are_no_longer_charged_though_the_engine_did_not_answer() {
    for mood in [Mood::Late, Mood::Stuck] {
        let mut driver = host();
        let verbs = ask_portal(&mut driver).unwrap();
        let pd = alloc(&mut driver, &verbs).unwrap();
        let mr = reg(&mut driver, &pd).unwrap();
        let mw = driver.bind_mw(&mr, 0..8, Access::REMOTE_READ).unwrap();

        driver.engine().mood = mood;
        assert!(is_stuck(driver.dealloc_mw(&mw)));
        driver.engine().mood = Mood::Prompt;
        // If it was done, it cannot be done again.
        assert_eq!(driver.dealloc_mw(&mw).is_ok(), mood == Mood::Stuck);
        driver.engine().mood = mood;
        assert!(is_stuck(driver.dereg_mr(&mr)));
        driver.engine().mood = Mood::Prompt;
        assert_eq!(driver.dereg_mr(&mr).is_ok(), mood == Mood::Stuck);
        assert_eq!(used(&mut driver), [60, 5, 1, 0, 0], "{mood:?}");

        let mr = reg(&mut driver, &pd).unwrap();
        driver.engine().mood = mood;
        assert!(is_stuck(driver.dealloc_pd(&pd)));
        driver.engine().mood = Mood::Prompt;
        assert_eq!(driver.dealloc_pd(&pd).is_ok(), mood == Mood::Stuck);
        assert_eq!(used(&mut driver), [60, 5, 0, 0, 0], "{mood:?}: its memory goes as well");
        driver.dereg_mr(&mr).unwrap_err();

        alloc(&mut driver, &verbs).unwrap();
        drop(verbs);
        driver.engine().mood = mood;
        assert!(is_stuck(driver.usage(None)));
        driver.engine().mood = Mood::Prompt;
        assert_eq!(used(&mut driver), [0; 5], "{mood:?}: a portal takes all along");
        let refused = driver.alloc_pd(pd.portal(), PdKey::from_bytes([7; 16])).unwrap_err();
        assert!(matches!(refused, HostError::Star(StarError::NoSuchPortal)), "{refused}");
    }
}

#[test]
fn pools_are_as_large_as_the_tables_and_what_cannot_be_is_not_charged() {
    let mut driver = host();
    let verbs = ask_portal(&mut driver).unwrap();
    let refused = ask_portal(&mut driver).unwrap_err();
    let HostError::Allocation(AllocationError::PoolEmpty { resource, capacity, .. }) = refused
    else {
        panic!("{refused}")
    };
    assert_eq!((resource, capacity), (Resource::WorkRequests, 100));
    let pds: Vec<_> = (0..PDS).map(|_| alloc(&mut driver, &verbs).unwrap()).collect();
    let refused = alloc(&mut driver, &verbs).unwrap_err().to_string();
    assert!(refused.contains("1 protection domains were asked for"), "{refused}");
    assert!(refused.contains("larger `star.pds`"), "{refused}");
    let memory = Arc::new(Region::new(64).unwrap());
    for span in [0..65, 60..u64::MAX, Range { start: 9, end: 8 }] {
        let refused = driver.reg_mr(&pds[0], memory.clone(), span, Access::REMOTE_READ);
        assert!(matches!(refused, Err(HostError::Star(StarError::Mr(_)))), "{refused:?}");
    }
    assert_eq!(used(&mut driver), [60, 5, PDS.into(), 0, 0]);
    // A window on a window is none.
    let mr = reg(&mut driver, &pds[0]).unwrap();
    let more = driver.bind_mw(&mr, 0..8, Access::REMOTE_WRITE);
    assert!(matches!(more, Err(HostError::Star(StarError::Mr(_)))), "{more:?}");
    assert_eq!(used(&mut driver), [60, 5, PDS.into(), 1, 50]);
}

#[test]
fn portals_are_spread_over_the_engines_and_all_about_them_is_asked_there() {
    let mut driver = host_of(3);
    let portals: Vec<_> = (0..3).map(|_| small_portal(&mut driver, None, 5).unwrap()).collect();
    for (index, verbs) in portals.iter().enumerate() {
        assert_eq!(engine_of(&driver, verbs), index);
        let stuck = |driver: &mut Driver<TestEngine>, mood| {
            (0..3).filter(|&it| it != index).for_each(|it| driver.engine_at(it).mood = mood);
        };
        stuck(&mut driver, Mood::Stuck);
        let pds: Vec<_> = (0..PDS).map(|_| alloc(&mut driver, verbs).unwrap()).collect();
        let refused = alloc(&mut driver, verbs).unwrap_err().to_string();
        assert!(refused.contains("of the 3 of one engine of this host"), "{refused}");
        let mr = reg(&mut driver, &pds[1]).unwrap();
        let mw = driver.bind_mw(&mr, 0..8, Access::REMOTE_READ).unwrap();
        driver.dealloc_mw(&mw).unwrap();
        driver.dereg_mr(&mr).unwrap();
        driver.dealloc_pd(&pds[0]).unwrap();
        stuck(&mut driver, Mood::Prompt);
    }
    assert_eq!(used(&mut driver), [12, 15, 6, 0, 0]);
    // Nine connections are free, and three at each.
    let refused = small_portal(&mut driver, None, 4).unwrap_err().to_string();
    assert!(refused.contains("can have no more than 3: of the 8 of one engine"), "{refused}");
    // The one that has been dropped leaves its engine with the fewest.
    drop(portals.into_iter().nth(1));
    assert_eq!(used(&mut driver), [0; 5]);
}

#[test]
fn engines_that_stand_still_hold_up_no_portal_elsewhere() {
    let mut driver = host_of(2);
    let verbs = [(); 2].map(|()| small_portal(&mut driver, None, 4).unwrap());
    // A domain that nobody knows of, whose end nobody has heard of.
    driver.engine_at(1).mood = Mood::Late;
    assert!(is_stuck(alloc(&mut driver, &verbs[1])));
    assert!(is_stuck(driver.usage(None)));
    driver.engine_at(1).mood = Mood::Stuck;
    assert_eq!(driver.ledger.services.star.orphans.len(), 1);
    let [here, there] = verbs;
    alloc(&mut driver, &here).unwrap();
    // Nor a dropped one, which is not waited for either.
    drop(there);
    let another = small_portal(&mut driver, None, 4).unwrap();
    assert_eq!(engine_of(&driver, &another), 0, "the one that answers");
    let refused = small_portal(&mut driver, None, 4).unwrap_err();
    let HostError::Allocation(AllocationError::PoolEmpty { resource, rest_free, .. }) = refused
    else {
        panic!("{refused}")
    };
    assert_eq!((resource, rest_free), (Resource::StatefulConnections, 0));
    driver.engine_at(1).mood = Mood::Prompt;
    assert_eq!(used(&mut driver), [8, 8, 1, 0, 0]);
    assert!(driver.ledger.services.star.orphans.is_empty());
    let next = small_portal(&mut driver, None, 8).unwrap();
    assert_eq!(engine_of(&driver, &next), 1);
    for _ in 0..PDS {
        alloc(&mut driver, &next).unwrap();
    }
}

#[test]
fn reservations_are_at_one_engine_where_their_tenants_portals_go() {
    let mut driver = host_of(2);
    let mut tenant = |name, reserved, max| {
        let mut config = TenantConfig::named(name);
        (config.quotas.pds.reserved, config.quotas.pds.max) = (reserved, max);
        driver.tenant(config)
    };
    let refused = tenant("large", 4, 9).unwrap_err().to_string();
    assert!(refused.contains("of 3, 3 are neither reserved for others nor in use, at one engine"));
    let [one, two] = [("one", 2), ("two", 3)].map(|(name, max)| tenant(name, 2, max).unwrap());
    let more = tenant("three", 2, 2).unwrap_err().to_string();
    assert!(more.contains("of 3, 1 are neither"), "{more}");

    // Whatever others have there.
    let others = [(); 2].map(|()| small_portal(&mut driver, None, 1).unwrap());
    for other in &others {
        alloc(&mut driver, other).unwrap();
        alloc(&mut driver, other).unwrap_err();
    }
    let mut held = Vec::new();
    for (engine, tenant) in [&one, &two].into_iter().enumerate() {
        for _ in 0..2 {
            let verbs = small_portal(&mut driver, Some(tenant), 1).unwrap();
            assert_eq!(engine_of(&driver, &verbs), engine);
            alloc(&mut driver, &verbs).unwrap();
            held.push(verbs);
        }
    }
    // Nothing of it is left, so it goes where there are fewest, and has what others leave.
    drop(others);
    let elsewhere = small_portal(&mut driver, Some(&two), 1).unwrap();
    assert_eq!(engine_of(&driver, &elsewhere), 0);
    alloc(&mut driver, &elsewhere).unwrap();
    let refused = alloc(&mut driver, &elsewhere).unwrap_err();
    let quota = AllocationError::Quota {
        resource: Resource::ProtectionDomains,
        tenant: "two".into(),
        wanted: 1,
        used: 3,
        max: 3,
    };
    assert!(matches!(refused, HostError::Allocation(error) if error == quota));
    drop((held, elsewhere, one, two));
    assert_eq!(used(&mut driver), [0; 5]);
    let again = driver.tenant(TenantConfig::named("again").with(|it| it.quotas.pds.reserved = 3));
    again.expect("what was reserved is free again");
}
