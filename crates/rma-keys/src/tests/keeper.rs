//! A keeper with a fake host, at times of the tests.

use core::time::Duration;
use std::{fs, sync::Arc};

use rma_core::{
    addr::Pid,
    crypto::{KeyBinding, RegionKeySchedule},
    gate::{Gate as _, Peer},
    op::OpType,
    region::{Permissions, RegisteredRegion},
    time::Instant,
};
use rma_lab::{FakeHost, FakeHosts, Rekeys, Scratch};
use rma_shm::Region;

use super::{NOON_MS, addresses, client, name, service};
use crate::{
    io::keeper::{Keeper, KeeperConfig},
    message::reply::{Answer, Granted, Reply},
    policy::Policy,
    rotation::Schedule,
    secret::GrantedKey,
    time::{Now, WallTime},
};

const POLICY: &str = r#"
[[allow]]
region = "kv/*"
identity = "spiffe://example.org/kv/client/*"
ops = ["read"]
"#;

/// So many milliseconds after the start of a test.
fn after(millis: u64) -> Now {
    Now {
        boot: Instant::ZERO + Duration::from_millis(millis),
        wall: WallTime::from_unix_millis(NOON_MS + millis as i64),
    }
}

/// Whether K_d is of the key that the region goes by.
fn admits(host: &FakeHost, key: &GrantedKey) -> bool {
    given(host).last().unwrap() == key
}

/// Returns the keys that the client would hold under each secret that the host was given.
fn given(host: &FakeHost) -> Vec<GrantedKey> {
    let binding = KeyBinding {
        initiator: [192, 0, 2, 1].into(),
        responder: [192, 0, 2, 2].into(),
        pid: Pid(7),
        op_type: OpType::Read,
    };
    let derive = |key| GrantedKey::new(&RegionKeySchedule::new(key).derive(&binding));
    host.hosts.installed().iter().map(derive).collect()
}

/// Registers a region at `host`.
fn register(host: &FakeHost) -> RegisteredRegion {
    let memory = Arc::new(Region::new(4096).unwrap());
    host.register(memory, host.key().unwrap(), Permissions::READ, None).unwrap()
}

struct World {
    scratch: Scratch,
    host: FakeHost,
    region: RegisteredRegion,
    keeper: Keeper,
}

impl World {
    fn new(period: Duration) -> Self {
        let peer = Peer { address: [192, 0, 2, 2].into(), pid: Pid(9) };
        let (scratch, host) = (Scratch::new(), FakeHosts::default().host(peer));
        let policy = scratch.path().join("policy.toml");
        fs::write(&policy, POLICY).unwrap();
        let mut keeper =
            Keeper::new(addresses(&["192.0.2.2"]), &KeeperConfig::new(&policy)).unwrap();
        let (region, schedule) = (register(&host), Schedule::every(period));
        keeper.publish(after(0), &host, name("kv/index"), &region, schedule).unwrap();
        Self { scratch, host, region, keeper }
    }

    /// Returns the keys that the client is given at some millisecond: the present key, and the
    /// announced one.
    fn fetch(&mut self, millis: u64) -> Option<(GrantedKey, Option<GrantedKey>)> {
        let wanted = service::wanted("kv/index", &[OpType::Read]);
        let message = service::request(vec![wanted]).encode(1);
        let reply = self.keeper.handle(after(millis), &client(), &message);
        let Reply::Answers(mut answers) = Reply::decode(&reply).unwrap() else { panic!("refused") };
        match answers.pop().unwrap() {
            Answer::Granted(Granted { mut present, next, .. }) => {
                let next = next.map(|mut it| it.keys.pop().unwrap().1);
                Some((present.keys.pop().unwrap().1, next))
            }
            Answer::Denied => None,
            other => panic!("{other:?}"),
        }
    }

    fn turn(&mut self, millis: u64) {
        self.keeper.handle_timeout(after(millis), &self.host);
    }
}

#[test]
fn a_client_shut_out_holds_neither_the_earlier_key_nor_the_announced_one() {
    let mut world = World::new(Duration::from_secs(10));
    world.turn(0);
    let (present, next) = world.fetch(1).unwrap();
    assert!(admits(&world.host, &present) && next.is_none());
    // Until the next key is announced, and its turn has not come.
    let (mut millis, mut held) = (0, None);
    while held.is_none() {
        millis += 100;
        assert!(millis < 11_000, "nothing is announced");
        world.turn(millis);
        held = world.fetch(millis).unwrap().1;
    }
    assert!(admits(&world.host, &present));
    let policy = world.scratch.path().join("policy.toml");
    fs::write(policy, "allow = []").unwrap();
    world.keeper.reload(after(millis), &world.host).unwrap();
    assert!(!admits(&world.host, &present) && !admits(&world.host, &held.unwrap()));
    assert!(world.fetch(millis).is_none());
    // It stays so.
    for at in (millis..millis + 60_000).step_by(500) {
        world.turn(at);
        assert!(!admits(&world.host, &present));
    }
    assert_eq!(world.keeper.counters().rotations.withdrawn, 1);
}

#[test]
fn a_policy_in_memory_decides_and_there_is_nothing_to_read_anew() {
    let config = KeeperConfig::new(Policy::parse(POLICY).unwrap());
    let mut world = World::new(Duration::from_secs(3600));
    world.keeper = Keeper::new(addresses(&["192.0.2.2"]), &config).unwrap();
    let (region, schedule) = (register(&world.host), Schedule::every(Duration::from_secs(3600)));
    world.keeper.publish(after(0), &world.host, name("kv/index"), &region, schedule).unwrap();
    world.keeper.reload(after(1), &world.host).unwrap();
    world.turn(60_000);
    assert!(world.fetch(60_001).is_some());
    assert_eq!(world.keeper.counters().reloaded, 0);
}

#[test]
fn keys_change_when_their_time_has_come_and_the_host_is_told_of_who_has_some() {
    let mut world = World::new(Duration::from_secs(2));
    let mut millis = 0;
    while world.keeper.counters().rotations.rotated < 5 {
        // Not before, and not late.
        let at = world.keeper.poll_timeout().unwrap();
        millis = millis.max(at.since(after(0).boot).as_nanos().div_ceil(1_000_000) as u64);
        assert!(millis < 30_000);
        world.turn(millis);
        let (present, _) = world.fetch(millis).unwrap();
        assert!(admits(&world.host, &present), "{millis}");
    }
    assert_eq!(world.keeper.counters().alarms, 0);
    assert_eq!(world.host.hosts.installed().len(), 6, "and the first");
    world.turn(millis);
    let prepared = world.host.hosts.prepared();
    assert!(!prepared.is_empty() && prepared.iter().all(|&it| it == [192, 0, 2, 1].into()));
}

#[test]
fn a_host_that_does_not_change_a_key_is_asked_again_and_people_are_told() {
    let mut world = World::new(Duration::from_secs(2));
    world.host.hosts.set_rekeys(Rekeys::Refused);
    for millis in (0..10_000).step_by(50) {
        world.turn(millis);
    }
    let counters = world.keeper.counters();
    assert!(counters.host_failures > 2 && counters.rotations.rotated == 0, "{counters:?}");
    assert!(counters.alarms >= 1, "{counters:?}");
    let (present, next) = world.fetch(10_000).unwrap();
    assert!(admits(&world.host, &present) && next.is_some(), "both, as the next one may come");
    world.host.hosts.set_rekeys(Rekeys::Done);
    world.turn(30_000);
    // That one's time is over by now, too.
    assert!(!admits(&world.host, &present) && !admits(&world.host, &next.unwrap()));
    let (present, _) = world.fetch(30_000).unwrap();
    assert!(admits(&world.host, &present));
    assert!(world.keeper.counters().rotations.late_epochs >= 1);
}

#[test]
fn a_change_that_is_under_way_is_repeated_with_the_same_key_also_when_somebody_is_shut_out() {
    let mut world = World::new(Duration::from_secs(3600));
    world.host.hosts.set_rekeys(Rekeys::Silently);
    world.keeper.rotate(after(0), &world.host, &name("kv/index")).unwrap();
    // Whichever of them the host goes by, both can be fetched.
    let (before, next) = world.fetch(1).unwrap();
    let next = next.expect("it may hold by now");
    assert!(admits(&world.host, &next));
    fs::write(world.scratch.path().join("policy.toml"), "allow = []").unwrap();
    world.keeper.reload(after(2), &world.host).unwrap();
    for millis in (3..10_000).step_by(50) {
        world.turn(millis);
    }
    let keys = given(&world.host);
    assert!(keys.len() > 3 && keys[0] == before, "{} changes", keys.len());
    assert!(keys[1..].iter().all(|key| *key == next), "no second new key");
    // It says so at last, and then who is shut out is.
    world.host.hosts.set_rekeys(Rekeys::Done);
    (10_000..40_000).step_by(500).for_each(|millis| world.turn(millis));
    let last = given(&world.host).pop().unwrap();
    assert!(last != next && last != before);
    assert_eq!(world.keeper.counters().rotations.rotated, 2);
}

#[test]
fn a_region_whose_first_key_is_under_way_is_published_under_that_and_no_other() {
    let mut world = World::new(Duration::from_secs(3600));
    let region = world.region.clone();
    world.host.hosts.set_rekeys(Rekeys::Silently);
    let schedule = Schedule::every(Duration::from_secs(3600));
    // Again under its name: were the key from before in the catalog, nobody could use it.
    world.keeper.publish(after(0), &world.host, name("kv/index"), &region, schedule).unwrap();
    let (present, _) = world.fetch(1).unwrap();
    assert!(admits(&world.host, &present));
    world.keeper.rotate(after(2), &world.host, &name("kv/index")).unwrap();
    (3..60_000).step_by(50).for_each(|millis| world.turn(millis));
    let keys = given(&world.host);
    assert!(keys[1..].iter().all(|key| *key == present), "the same again");
    // After a tenth of a second, and then after twice as long each time.
    assert!((8..=20).contains(&keys.len()), "{} times in a minute", keys.len());
    world.host.hosts.set_rekeys(Rekeys::Done);
    (60_000..75_000).step_by(50).for_each(|millis| world.turn(millis));
    let (present, _) = world.fetch(75_000).unwrap();
    assert!(admits(&world.host, &present));
    assert_eq!(world.keeper.counters().rotations.rotated, 1, "what was asked for meanwhile");
}
