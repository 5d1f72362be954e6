//! StaR's questions to an engine that is prompt, late or stuck: nothing is lost, and nothing stays
//! that nobody knows of.

use rma_app::star::{MemoryRegion, ProtectionDomain, StarVerbs};
use rma_core::crypto::CounterBlock;
use rma_star::{
    config::{StarConfigBuilder, StarPlace},
    keys::PdKey,
    mr_table::Access,
};

use super::*;
use crate::{
    driver::star::{StarPortalConfig, StarTerms},
    error::StarError,
};

const PDS: u32 = 3;
const MRS: u32 = 4;

/// A host whose engine serves StaR.
fn host() -> Driver<TestEngine> {
    let addr: HostAddr = "192.0.2.1".parse().unwrap();
    let mut star = StarConfigBuilder::default();
    (star.pds, star.mrs, star.connections) = (PDS, MRS, 8);
    (star.work_requests, star.frames_under_way, star.filter_entries, star.answers) =
        (16, 16, 16, 128);
    let star = star.build(StarPlace::at(addr)).unwrap();
    let nic = NicConfigBuilder::default().with(|it| it.regions = REGIONS);
    let nic = Nic::new(nic.build(NicPlace::at(addr)).unwrap());
    let star = Some(Star::new(star, CounterBlock::new(0, 1 << 40)));
    let side = TestSide { nic, ports: Vec::new(), busy: Vec::new(), star };
    let path = TestEngine { mood: Mood::Prompt, side, late: None };
    let shards = Shards::new(vec![Shard { path, slots: 0..SLOTS }]);
    let star = StarCapacities { pds: PDS, mrs: MRS, connections: 8, work_requests: 100 };
    let capacities = Capacities { regions: REGIONS, star };
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
        assert!(driver.ledger.star_orphans.is_empty());
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
