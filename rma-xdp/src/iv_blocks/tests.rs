//! Stores on real directories, and the keeper's thread between a store and a NIC.

use core::{cell::Cell, time::Duration};
use std::{
    fs,
    os::unix::fs::{MetadataExt, chown, symlink},
    sync::Arc,
};

use rma_core::{
    counter_mark::render,
    engine::Engine,
    nic::{Nic, NicPlace, RegionEntry},
    one_rma::OneRma,
    portal::{CommandPortal, PortalConfig, portal},
    region::NicTag,
    time::Clock,
};
use rma_lab::{HandClock, MemoryBackend, Scratch};
use rma_shm::Region;
use rustix::fs::{FlockOperation, flock};

use super::*;
use crate::{
    Grant, HostAddr, OpType, Permissions, Pid, RegionKey, RegisteredRegion,
    config::NicConfigBuilder, crypto::DerivedRegionKey, memory::RegionId, time::TscClock,
};

mod loss;
mod model;

const DAY: u64 = 86_400_000_000_000;
const NOW: u64 = 20_500 * DAY;
const LEN: u64 = 1 << 20;

/// Returns the path of a store's mark.
fn mark_of(scratch: &Scratch) -> PathBuf {
    scratch.path().join("counter")
}

fn today() -> Option<u64> {
    Some(NOW)
}

fn yesterday() -> Option<u64> {
    Some(NOW - DAY)
}

fn tomorrow() -> Option<u64> {
    Some(NOW + DAY)
}

fn unset() -> Option<u64> {
    Some(5_000_000_000)
}

fn store(scratch: &Scratch, clock: fn() -> Option<u64>) -> Store {
    Store::open(scratch.path().to_owned(), WallClock(clock), LEN).unwrap()
}

fn config(dir: impl Into<PathBuf>, clock: fn() -> Option<u64>) -> CounterConfig {
    CounterConfig { state_dir: Some(dir.into()), block_len: LEN, wall_clock: clock }
}

#[test]
fn blocks_ascend_whatever_the_clock_does() {
    let scratch = Scratch::new();
    let firsts = [today, yesterday, unset, tomorrow, yesterday, || None]
        .map(|clock| store(&scratch, clock).reserve(0).unwrap().first());
    let tomorrow = NOW + DAY;
    let after = [NOW, NOW + LEN, NOW + 2 * LEN, tomorrow, tomorrow + LEN, tomorrow + 2 * LEN];
    assert_eq!(firsts, after);
}

#[test]
fn a_block_begins_no_lower_than_its_host_asks() {
    let scratch = Scratch::new();
    let store = store(&scratch, today);
    assert_eq!(store.reserve(NOW + 7).unwrap(), CounterBlock::new(NOW + 7, NOW + 7 + LEN));
    assert_eq!(store.reserve(NOW).unwrap().first(), NOW + 7 + LEN);
}

#[test]
fn those_who_reserve_at_the_same_time_get_disjoint_blocks() {
    let scratch = Scratch::new();
    let reserve = || {
        // One of its own each, as processes have.
        let store = store(&scratch, today);
        (0..20).map(|_| store.reserve(0).unwrap().first()).collect::<Vec<_>>()
    };
    let mut firsts = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(reserve)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    firsts.sort_unstable();
    assert!(firsts.into_iter().eq((0..80).map(|nth| NOW + nth * LEN)));
}

#[test]
fn files_left_by_a_crash_do_no_harm() {
    let scratch = Scratch::new();
    fs::write(scratch.path().join("counter.new"), b"half of someth").unwrap();
    assert_eq!(store(&scratch, today).reserve(0).unwrap().first(), NOW);
    fs::write(scratch.path().join("counter.new"), render(0)).unwrap();
    assert_eq!(store(&scratch, yesterday).reserve(0).unwrap().first(), NOW + LEN);
}

#[test]
fn every_damage_to_the_mark_is_noticed_and_nothing_is_overwritten() {
    let scratch = Scratch::new();
    let store = store(&scratch, today);
    drop(store.reserve(0).unwrap());
    let whole = fs::read(mark_of(&scratch)).unwrap();
    let mut damaged: Vec<Vec<u8>> = (0..whole.len()).map(|len| whole[..len].to_vec()).collect();
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        damaged.push(flipped);
    }
    damaged.extend([[whole.clone(), vec![b'\n']].concat(), vec![0; whole.len()]]);
    for contents in damaged {
        fs::write(mark_of(&scratch), &contents).unwrap();
        let error = store.reserve(0).unwrap_err();
        assert!(matches!(error, CounterError::Damaged { .. }), "{error} of {contents:?}");
        assert_eq!(fs::read(mark_of(&scratch)).unwrap(), contents);
    }
    fs::write(mark_of(&scratch), &whole).unwrap();
    assert_eq!(store.reserve(0).unwrap().first(), NOW + LEN);
}

#[test]
fn a_foreign_file_is_named_with_what_it_holds_and_what_to_do() {
    let scratch = Scratch::new();
    fs::write(mark_of(&scratch), "shopping list").unwrap();
    let text = IvBlocks::open(config(scratch.path(), today), 0, User::this(false))
        .unwrap_err()
        .to_string();
    for part in [mark_of(&scratch).to_str().unwrap(), "shopping list", "remove"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_counter_that_is_used_up_is_an_error_and_does_not_wrap() {
    let scratch = Scratch::new();
    fs::write(mark_of(&scratch), render(u64::MAX - LEN)).unwrap();
    let store = store(&scratch, today);
    assert_eq!(store.reserve(0).unwrap(), CounterBlock::new(u64::MAX - LEN, u64::MAX));
    let error = store.reserve(0).unwrap_err();
    assert!(matches!(error, CounterError::UsedUp { mark: u64::MAX, .. }), "{error}");
}

#[test]
fn without_a_mark_and_without_a_clock_no_value_is_given() {
    for clock in [unset, || None, || Some(u64::MAX)] {
        let scratch = Scratch::new();
        let error = store(&scratch, clock).reserve(0).unwrap_err();
        assert!(matches!(error, CounterError::NoClock), "{error}");
        assert!(!mark_of(&scratch).exists());
    }
}

#[test]
fn a_lock_that_another_holds_for_long_is_named() {
    let scratch = Scratch::new();
    let mut store = store(&scratch, today);
    store.patience = Duration::from_millis(20);
    let path = scratch.path().join("lock");
    let holder = fs::File::create(&path).unwrap();
    flock(&holder, FlockOperation::LockExclusive).unwrap();
    let text = store.reserve(0).unwrap_err().to_string();
    assert!(text.contains(path.to_str().unwrap()), "{text}");
    drop(holder);
    assert_eq!(store.reserve(0).unwrap().first(), NOW);
}

#[test]
fn a_directory_that_was_named_must_be_usable() {
    let scratch = Scratch::new();
    fs::write(scratch.path().join("file"), "").unwrap();
    let text =
        IvBlocks::open(config(scratch.path().join("file/state"), today), 0, User::this(false))
            .unwrap_err()
            .to_string();
    assert!(text.contains("file/state") && text.contains("state_dir"), "{text}");
    let empty = CounterConfig { block_len: 0, ..config(scratch.path(), today) };
    assert!(
        IvBlocks::open(empty, 0, User::this(false)).unwrap_err().to_string().contains("block_len")
    );
}

#[test]
fn a_directory_that_is_missing_is_made_with_all_above_it() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("a/b/c");
    let (counter, block) = IvBlocks::open(config(&dir, today), 0, User::this(false)).unwrap();
    assert_eq!(*counter.source(), CounterSource::File(dir.join("counter")));
    assert_eq!((block.first(), counter.fallback()), (NOW, None));
}

#[test]
fn where_no_directory_was_named_and_none_can_be_used_the_wall_clock_is_and_that_is_said() {
    let scratch = Scratch::new();
    fs::write(scratch.path().join("file"), "").unwrap();
    let open = |dir, clock| IvBlocks::open_in(dir, false, WallClock(clock), LEN, 0);
    for dir in [Err(CounterError::NoDirectory), Ok(scratch.path().join("file/state"))] {
        let (counter, block) = open(dir, yesterday).unwrap();
        assert_eq!(block, CounterBlock::new(NOW - DAY, u64::MAX));
        let said = counter.fallback().unwrap();
        assert!(said.starts_with("the wall clock instead of reserved counter blocks"), "{said}");
    }
    let error = open(Err(CounterError::NoDirectory), unset).unwrap_err();
    assert!(matches!(error, CounterError::NoClock), "{error}");
}

#[test]
fn a_known_mark_is_never_left_for_the_wall_clock() {
    let scratch = Scratch::new();
    drop(store(&scratch, tomorrow).reserve(0).unwrap());
    let open = || IvBlocks::open_in(Ok(scratch.path().to_owned()), false, WallClock(today), LEN, 0);
    // The lock cannot be opened; then the new mark cannot be written.
    for obstacle in ["lock", "counter.new"] {
        let path = scratch.path().join(obstacle);
        let _ = fs::remove_file(&path);
        fs::create_dir(&path).unwrap();
        let error = open().unwrap_err();
        assert!(matches!(error, CounterError::NotMoved { .. }), "{error}");
        assert!(error.to_string().contains(&(NOW + DAY + LEN).to_string()), "{error}");
        fs::remove_dir(&path).unwrap();
    }
    // The mark cannot be read.
    fs::remove_file(mark_of(&scratch)).unwrap();
    fs::create_dir(mark_of(&scratch)).unwrap();
    let error = open().unwrap_err();
    assert!(matches!(error, CounterError::Unreadable { .. }), "{error}");
}

#[test]
fn the_default_directory_is_the_machines_where_others_may_have_the_address_and_else_the_users() {
    let [root, machine, nobody] = [(true, false), (false, true), (false, false)]
        .map(|(root, machine)| User { root, machine });
    let dir = |user, is_usable, xdg: Option<&str>, home: Option<&str>| {
        state_dir(user, is_usable, xdg.map(Into::into), home.map(Into::into)).ok()
    };
    let path = |text: &str| Some(PathBuf::from(text));
    // Root today, a user with capabilities tomorrow: one interface, one address, one mark.
    assert_eq!(dir(root, false, Some("/x"), Some("/h")), path("/var/lib/1rma"));
    assert_eq!(dir(machine, false, Some("/x"), Some("/h")), path("/var/lib/1rma"));
    assert_eq!(dir(nobody, true, Some("/x"), Some("/h")), path("/var/lib/1rma"));
    assert_eq!(dir(nobody, false, Some("/x"), Some("/h")), path("/x/1rma"));
    assert_eq!(dir(nobody, false, Some("x"), Some("/h")), path("/h/.local/state/1rma"));
    assert_eq!(dir(nobody, false, Some(""), None), None);
    assert_eq!(dir(nobody, false, None, Some("")), None);
}

#[test]
fn a_lock_whose_file_was_removed_is_not_the_lock() {
    let scratch = Scratch::new();
    let mut store = store(&scratch, today);
    store.patience = Duration::from_millis(100);
    let path = scratch.path().join("lock");
    let locked = || {
        let file = fs::File::create(&path).unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        file
    };
    let (first, second) = (Cell::new(Some(locked())), Cell::new(None));
    // While somebody waits for it the file is removed, another process makes a new one and locks
    // that; and then the first is unlocked.
    let removed = || {
        if let Some(first) = first.take() {
            fs::remove_file(&path).unwrap();
            second.set(Some(locked()));
            drop(first);
        }
        false
    };
    let error = store.reserve_next(NOW, removed).unwrap_err();
    assert!(matches!(error, CounterError::Locked { .. }), "{error}");
    drop(second.take());
    assert!(store.reserve_next(NOW, || false).is_ok());
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn files_written_by_root_belong_to_the_directorys_owner() {
    const USER: u32 = 65534;
    let scratch = Scratch::new();
    chown(scratch.path(), Some(USER), Some(USER)).unwrap();
    for _ in 0..2 {
        drop(store(&scratch, today).reserve(0).unwrap());
        for name in ["counter", "lock"] {
            let owner = fs::metadata(scratch.path().join(name)).unwrap().uid();
            assert_eq!(owner, USER, "{name}");
        }
    }
}

/// Whoever owns the directory has links in it, in place of what a host makes there.
fn with_links_to(victim: &Path, names: [&str; 2]) -> Scratch {
    let scratch = Scratch::new();
    for name in names {
        symlink(victim, scratch.path().join(name)).unwrap();
    }
    scratch
}

#[test]
fn a_link_in_the_directory_leads_no_write_elsewhere() {
    let elsewhere = Scratch::new();
    let victim = elsewhere.path().join("victim");
    fs::write(&victim, b"somebody's").unwrap();
    let scratch = with_links_to(&victim, ["counter.new", "other"]);
    assert!(store(&scratch, today).reserve(0).is_ok(), "what is in the way is replaced");
    let hard = Scratch::new();
    fs::hard_link(&victim, hard.path().join("counter.new")).unwrap();
    assert!(store(&hard, today).reserve(0).is_ok(), "what is in the way is replaced");
    let scratch = with_links_to(&victim, ["lock", "other"]);
    let error = store(&scratch, today).reserve(0).unwrap_err();
    assert!(error.to_string().contains("opening the lock"), "{error}");
    assert_eq!(fs::read(&victim).unwrap(), b"somebody's");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_directorys_owner_is_given_nothing_that_was_there_before() {
    const USER: u32 = 65534;
    let elsewhere = Scratch::new();
    let victim = elsewhere.path().join("victim");
    fs::write(&victim, b"root's").unwrap();
    for name in ["lock", "counter.new"] {
        for is_hard in [false, true] {
            let scratch = Scratch::new();
            let there = scratch.path().join(name);
            if is_hard {
                fs::hard_link(&victim, there).unwrap();
            } else {
                symlink(&victim, there).unwrap();
            }
            chown(scratch.path(), Some(USER), Some(USER)).unwrap();
            // It may work or not.
            let _ = store(&scratch, today).reserve(0);
            assert_eq!(fs::metadata(&victim).unwrap().uid(), 0, "{name}");
            assert_eq!(fs::read(&victim).unwrap(), b"root's", "{name}");
        }
    }
}

/// An engine that seals one request after the other. Each op times out.
struct Sealing {
    engine: Engine<MemoryBackend, HandClock>,
    portal: CommandPortal,
    sink: RegisteredRegion,
    grant: Grant,
}

impl Sealing {
    fn new(block: &CounterBlock) -> Self {
        let initiator: HostAddr = "192.0.2.1".parse().unwrap();
        let addresses = initiator.into();
        let (counter_start, counter_end) = (block.first(), block.end());
        let place = NicPlace::at(addresses).with(|it| {
            it.counter_start = counter_start;
            it.counter_end = counter_end;
        });
        let mut nic = Nic::new(NicConfigBuilder::default().build(place).unwrap());
        let memory = Arc::new(Region::new(64).unwrap());
        let key = RegionKey::from_bytes([1; 16]);
        let (pid, tag) = (Pid(1), NicTag(1));
        let entry = RegionEntry::new(memory.clone(), &key, Permissions::NONE, pid);
        let id = nic.regions_mut().register(Box::new(entry)).unwrap();
        nic.configure_slots(0..1, Some(pid));
        let mut engine =
            Engine::new(OneRma::new(nic), MemoryBackend::default(), HandClock::default());
        let (portal, port) =
            portal(PortalConfig { slots: 0..1, pid, addresses, bell: None, flag: None, nic: tag });
        engine.service_mut().attach(port);
        let grant = Grant {
            responder: "192.0.2.2".parse().unwrap(),
            region: RegionId::from_bits(0),
            region_len: 64,
            initiator,
            pid,
            op_type: OpType::Read,
            key: DerivedRegionKey::from_bytes([2; 16]),
        };
        Self { engine, portal, sink: RegisteredRegion::new(id, memory, tag), grant }
    }

    /// Seals a request, if it can. Returns its counter.
    fn seal(&mut self) -> Option<u64> {
        self.portal.read(&self.grant, 0, &self.sink, 0, 64).unwrap();
        self.engine.turn();
        self.engine.clock().advance(Duration::from_secs(1));
        self.engine.turn();
        assert!(self.portal.poll().is_some(), "every op completes");
        let (_, frame) = self.engine.backend_mut().sent.drain(..).next_back()?;
        Some(u64::from_be_bytes(frame[20..28].try_into().unwrap()))
    }

    fn nic(&mut self) -> &mut Nic {
        self.engine.service_mut().nic_mut()
    }
}

fn until(mut condition: impl FnMut() -> bool) {
    let clock = TscClock::new();
    while !condition() {
        assert!(clock.now().as_nanos() < 20_000_000_000, "in vain for 20 s");
        std::thread::yield_now();
    }
}

#[test]
fn an_engine_that_uses_up_its_blocks_gets_more_and_never_repeats_a_value() {
    let scratch = Scratch::new();
    let open = || {
        let config = CounterConfig { block_len: 4, ..config(scratch.path(), today) };
        IvBlocks::open(config, 0, User::this(false)).unwrap()
    };
    // Two hosts that share the directory.
    let (counters, blocks): (Vec<_>, Vec<_>) = [open(), open()].into_iter().unzip();
    let mut nics: Vec<_> = blocks.iter().map(Sealing::new).collect();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..50 {
        for (counter, sealing) in counters.iter().zip(&mut nics) {
            let supply = counter.supply();
            until(|| {
                supply.turn(sealing.nic());
                sealing.nic().counter_values_left() > 0
            });
            let value = sealing.seal().unwrap();
            assert!(value >= NOW && seen.insert(value), "{value} again");
        }
    }
    assert!(counters.iter().all(|counter| counter.fallback().is_none()));
}

#[test]
fn an_engine_whose_blocks_cannot_be_reserved_stops_sealing_says_why_and_recovers() {
    let scratch = Scratch::new();
    let config = CounterConfig { block_len: 4, ..config(scratch.path(), today) };
    let (counter, block) = IvBlocks::open(config, 0, User::this(false)).unwrap();
    let (supply, mut sealing) = (counter.supply(), Sealing::new(&block));
    let obstacle = scratch.path().join("counter.new");
    fs::create_dir(&obstacle).unwrap();
    assert_eq!(
        [(); 5].map(|()| sealing.seal()),
        [Some(NOW), Some(NOW + 1), Some(NOW + 2), Some(NOW + 3), None]
    );
    until(|| {
        supply.turn(sealing.nic());
        counter.fallback().is_some()
    });
    let said = counter.fallback().unwrap();
    assert!(said.contains("counter") && said.contains("writing a new one"), "{said}");
    assert_eq!(sealing.seal(), None);
    fs::remove_dir(&obstacle).unwrap();
    until(|| {
        supply.turn(sealing.nic());
        sealing.nic().counter_values_left() > 0
    });
    assert_eq!((sealing.seal(), counter.fallback()), (Some(NOW + 4), None));
}
