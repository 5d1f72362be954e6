//! A keeper of another host's region, whose owner does nothing: a fake network between them.

use core::time::Duration;
use std::{
    collections::VecDeque,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use rma_core::{
    addr::Pid,
    command::CommandSlotId,
    crypto::{KeyBinding, RegionKey, RegionKeySchedule},
    gate::{Identity, Peer},
    grant::Grant,
    op::{OpStatus, OpType},
    region::RegionId,
    time::Instant,
};
use rma_lab::{FakeHost, FakeHosts, Scratch};

use super::{NOON_MS, addresses, client, name, service};
use crate::{
    io::keeper::{Keeper, KeeperConfig, PublishError, Reach, RemoteRegion},
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

const INDEX: &str = "kv/index";

fn after(millis: u64) -> Now {
    Now {
        boot: Instant::ZERO + Duration::from_millis(millis),
        wall: WallTime::from_unix_millis(NOON_MS + millis as i64),
    }
}

/// The fate of an op on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Arrives,
    RequestLost,
    AnswerLost,
    Nacked,
    NoSlot,
}

/// The region at its host, and the network before it.
#[derive(Debug)]
struct There {
    key: RegionKey,
    /// Every key that it has gone by.
    keys: Vec<RegionKey>,
    /// The fates of the next ops; all others after them have the last.
    fates: VecDeque<Fate>,
    ended: VecDeque<(CommandSlotId, OpStatus)>,
    issued: u16,
}

impl There {
    fn install(&mut self, key: RegionKey) {
        self.key = key;
        self.keys.push(key);
    }
}

#[derive(Clone, Debug)]
struct Network(Arc<Mutex<There>>);

impl Reach for Network {
    fn identity(&self) -> Identity {
        Identity { addresses: addresses(&["192.0.2.3"]), pid: Pid(11) }
    }

    fn has_room(&mut self) -> bool {
        let fates = &mut self.0.lock().unwrap().fates;
        let is_full = fates.front() == Some(&Fate::NoSlot);
        if is_full && fates.len() > 1 {
            fates.pop_front();
        }
        !is_full
    }

    fn issue(&mut self, grant: &Grant, key: Option<RegionKey>) -> Option<CommandSlotId> {
        let it = &mut *self.0.lock().unwrap();
        let fate =
            if it.fates.len() > 1 { it.fates.pop_front() } else { it.fates.front().copied() };
        let fate = fate.unwrap_or(Fate::Arrives);
        assert_ne!(fate, Fate::NoSlot, "there is no room");
        assert_eq!(grant.op_type, if key.is_some() { OpType::Rekey } else { OpType::Read });
        let Grant { initiator, responder, pid, op_type, .. } = *grant;
        let binding = KeyBinding { initiator, responder, pid, op_type };
        let is_right = RegionKeySchedule::new(&it.key).derive(&binding) == grant.key;
        let arrives = matches!(fate, Fate::Arrives | Fate::AnswerLost);
        if let Some(key) = key.filter(|_| arrives && is_right) {
            it.install(key);
        }
        let status = match fate {
            Fate::Arrives if is_right => OpStatus::Ok,
            Fate::Arrives => OpStatus::RemoteAuthenticationFailure,
            Fate::Nacked => OpStatus::Nack,
            _ => OpStatus::Timeout,
        };
        it.issued += 1;
        let slot = CommandSlotId(it.issued);
        it.ended.push_back((slot, status));
        Some(slot)
    }

    fn poll(&mut self) -> Option<(CommandSlotId, OpStatus)> {
        self.0.lock().unwrap().ended.pop_front()
    }
}

struct World {
    scratch: Scratch,
    host: FakeHost,
    network: Network,
    keeper: Keeper,
    millis: u64,
}

fn alone() -> Keeper {
    let config = KeeperConfig::new(Policy::parse(POLICY).unwrap());
    Keeper::new(addresses(&["192.0.2.3"]), &config).unwrap()
}

fn keeper(path: &Path, network: &Network, now: Now) -> Result<Keeper, PublishError> {
    let mut keeper = alone();
    keeper.reach_others(now, path, Box::new(network.clone()))?;
    Ok(keeper)
}

fn file(scratch: &Scratch) -> PathBuf {
    scratch.path().join("keys.toml")
}

impl World {
    fn new() -> Self {
        let key = RegionKey::from_bytes([1; 16]);
        let there = There {
            key,
            keys: vec![key],
            fates: VecDeque::new(),
            ended: VecDeque::new(),
            issued: 0,
        };
        let network = Network(Arc::new(Mutex::new(there)));
        let peer = Peer { address: [192, 0, 2, 3].into(), pid: Pid(11) };
        let (scratch, host) = (Scratch::new(), FakeHosts::default().host(peer));
        let keeper = keeper(&file(&scratch), &network, after(0)).unwrap();
        let mut world = Self { scratch, host, network, keeper, millis: 0 };
        world.publish().unwrap();
        world
    }

    /// The owner publishes the region, with the key that it goes by.
    fn publish(&mut self) -> Result<(), PublishError> {
        let region = self.region();
        let schedule = Schedule::every(Duration::from_secs(2));
        let now = after(self.millis);
        self.keeper.publish_remote(now, &self.host, name(INDEX), &region, schedule).map(drop)
    }

    /// The region as it is now.
    fn region(&self) -> RemoteRegion {
        RemoteRegion {
            responders: addresses(&["192.0.2.2"]),
            id: RegionId::from_bits(5),
            len: 4096,
            key: self.there(|it| it.key),
        }
    }

    fn there<T>(&self, look: impl FnOnce(&mut There) -> T) -> T {
        look(&mut self.network.0.lock().unwrap())
    }

    fn fates(&self, fates: &[Fate]) {
        self.there(|it| it.fates = fates.iter().copied().collect());
    }

    /// The service starts again: what is in memory is gone, and what was under way as well.
    fn start_again(&mut self) {
        self.there(|it| it.ended.clear());
        let path = file(&self.scratch);
        let second = keeper(&path, &self.network, after(self.millis)).unwrap_err();
        assert!(second.to_string().contains("another service has"), "{second}");
        self.keeper = alone();
        self.keeper = keeper(&path, &self.network, after(self.millis)).unwrap();
    }

    fn pass(&mut self, millis: u64) {
        let end = self.millis + millis;
        while self.millis < end {
            self.millis += 10;
            self.keeper.handle_timeout(after(self.millis), &self.host);
        }
    }

    /// Whether a client that fetches now has a key that the region goes by.
    fn is_usable(&mut self) -> bool {
        let wanted = service::wanted(INDEX, &[OpType::Read]);
        let message = service::request(vec![wanted]).encode(1);
        let reply = self.keeper.handle(after(self.millis), &client(), &message);
        let Reply::Answers(mut answers) = Reply::decode(&reply).unwrap() else { panic!("refused") };
        let Answer::Granted(Granted { mut present, next, .. }) = answers.pop().unwrap() else {
            return false;
        };
        let next = next.map(|mut it| it.keys.pop().unwrap().1);
        let given = [Some(present.keys.pop().unwrap().1), next];
        let binding = KeyBinding {
            initiator: [192, 0, 2, 1].into(),
            responder: [192, 0, 2, 2].into(),
            pid: Pid(7),
            op_type: OpType::Read,
        };
        let key = self.there(|it| RegionKeySchedule::new(&it.key).derive(&binding));
        given.into_iter().flatten().any(|it| it == GrantedKey::new(&key))
    }

    fn rotated(&self) -> u64 {
        self.keeper.counters().rotations.rotated
    }
}

//= 1rma#5.2-remote-rotation
//= type=test
#[test]
fn keys_of_a_region_change_though_its_owner_does_nothing_and_clients_always_have_one() {
    use Fate::{AnswerLost, Arrives, Nacked, NoSlot, RequestLost};
    for fates in [
        &[Arrives][..],
        &[RequestLost, Arrives],
        &[AnswerLost, Arrives],
        &[AnswerLost, RequestLost, AnswerLost, Arrives],
        &[RequestLost, RequestLost, AnswerLost, AnswerLost, Arrives],
        &[Nacked, NoSlot, AnswerLost, Nacked, Arrives],
    ] {
        let mut world = World::new();
        for rotation in 1..=5 {
            world.fates(fates);
            let mut steps = 0;
            while world.rotated() < rotation {
                world.pass(10);
                assert!(world.is_usable(), "{fates:?} at {}", world.millis);
                steps += 1;
                assert!(steps < 3_000, "{fates:?}: the key does not change");
            }
        }
        let (keys, rotated) = (world.there(|it| it.keys.len() as u64), world.rotated());
        assert_eq!(keys, 1 + rotated, "{fates:?}: each key was installed once");
    }
}

#[test]
fn a_service_that_starts_again_at_any_moment_goes_on_with_the_keys_of_its_file() {
    for lost in [Fate::RequestLost, Fate::AnswerLost, Fate::Arrives] {
        for millis in (0..4_000).step_by(170) {
            let mut world = World::new();
            world.fates(&[lost, Fate::Arrives]);
            world.pass(millis);
            world.start_again();
            assert!(world.is_usable(), "{lost:?} after {millis} ms");
            let before = world.rotated();
            world.fates(&[Fate::Arrives]);
            world.pass(8_000);
            assert!(world.rotated() > before && world.is_usable(), "{lost:?} after {millis} ms");
        }
    }
}

#[test]
fn an_owner_that_starts_again_is_told_of_and_its_region_published_anew() {
    let mut world = World::new();
    world.pass(5_000);
    assert!(world.rotated() > 0 && world.keeper.counters().alarms == 0);
    world.there(|it| it.install(RegionKey::from_bytes([9; 16])));
    world.pass(10_000);
    assert!(world.keeper.counters().alarms > 0);
    world.publish().unwrap();
    assert!(world.is_usable());
    let before = world.rotated();
    world.pass(10_000);
    assert!(world.rotated() > before && world.is_usable());
}

#[test]
fn a_client_that_is_shut_out_holds_no_key_and_a_removed_region_is_left_to_its_owner() {
    let mut world = World::new();
    let keys = |world: &World| world.there(|it| it.keys.len());
    world.keeper.withdraw(after(0), &world.host, &name(INDEX)).unwrap();
    world.pass(20);
    assert_eq!(keys(&world), 2);
    world.keeper.remove(after(20), &world.host, &name(INDEX)).unwrap();
    assert!(!world.is_usable());
    world.pass(10_000);
    assert_eq!(keys(&world), 2);
    world.start_again();
    assert!(!world.is_usable(), "it is not in the file any longer");
}

#[test]
fn a_file_of_keys_that_is_not_in_order_is_told_and_no_key_changes_without_one() {
    let mut world = World::new();
    let text = fs::read_to_string(file(&world.scratch)).unwrap();
    let copy = world.scratch.path().join("copy");
    let error = |text: &str| {
        fs::write(&copy, text).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).unwrap();
        keeper(&copy, &world.network, after(0)).unwrap_err().to_string()
    };
    for cut in [1, text.len() / 3, text.len() - 20] {
        assert!(error(&text[..cut]).contains("copy is not what a service has written"));
    }
    let key = "01".repeat(16);
    let wrong = error(&text.replace(&key, &key[1..]));
    assert!(wrong.contains("line ") && !wrong.contains(&key[2..]), "{wrong}");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o640)).unwrap();
    let error = keeper(&copy, &world.network, after(0)).unwrap_err().to_string();
    assert!(error.contains("chmod 600"), "{error}");
    // Where nothing can be written, nothing is changed.
    let path = file(&world.scratch);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    world.pass(10_000);
    assert_eq!((world.there(|it| it.keys.len()), world.is_usable()), (1, true));
    let mut region = world.region();
    region.id = RegionId::from_bits(6);
    let schedule = Schedule::default();
    let (now, other) = (after(world.millis), name("kv/other"));
    let published = world.keeper.publish_remote(now, &world.host, other, &region, schedule);
    assert!(matches!(published, Err(PublishError::KeyFile(_))), "{published:?}");
    let removed = world.keeper.remove(now, &world.host, &name(INDEX));
    assert!(matches!(removed, Err(PublishError::KeyFile(_))) && world.is_usable());
    fs::remove_dir(&path).unwrap();
    world.pass(20_000);
    assert!(world.there(|it| it.keys.len()) > 1 && world.is_usable());
}

#[test]
fn a_region_that_is_kept_keeps_its_key_whoever_publishes_it_again_with_its_first() {
    let mut world = World::new();
    let first = world.region();
    world.publish().unwrap();
    world.pass(5_000);
    assert!(world.rotated() > 0);
    for _ in 0..2 {
        let (now, schedule) = (after(world.millis), Schedule::default());
        let again = world.keeper.publish_remote(now, &world.host, name(INDEX), &first, schedule);
        assert!(matches!(again, Err(PublishError::AlreadyKept { .. })), "{again:?}");
        assert!(world.is_usable());
        world.start_again();
    }
    let before = world.rotated();
    world.pass(5_000);
    assert!(world.rotated() > before && world.is_usable());
}
