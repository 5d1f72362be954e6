//! Reads and writes while keys change.

use core::time::Duration;
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

use rma_xdp::{BufferPool, Host, OpType, keys::Schedule};

use rma_tests::keys::{HOUR, LEN, Owner, PATIENCE, Peer, Since, World};

/// How many tasks transfer at once, each in a part of its own.
const TASKS: u64 = 4;

/// Writes and reads back, more than one op each, until `stops`. Counts the pairs.
fn go_on(peer: &Peer, pool: &BufferPool, task: u64, done: &AtomicU64, stops: impl Fn() -> bool) {
    let (region, len) = (peer.index(), pool.buffer_len());
    let at = task * (LEN / TASKS);
    let mut round = 0_u64;
    while !stops() {
        round += 1;
        let pair = async {
            let bytes = vec![(round % 251) as u8; len];
            let mut buf = pool.acquire().await;
            buf.write(0, &bytes).unwrap();
            let (result, buf) = peer.client.write(&region, at, buf).timeout(PATIENCE).await;
            result.unwrap();
            let (result, buf) = peer.client.read(&region, at, buf).timeout(PATIENCE).await;
            result.unwrap();
            assert!(buf.to_vec() == bytes, "task {task}, round {round}");
        };
        peer.client.block_on(pair).unwrap();
        done.fetch_add(1, Relaxed);
    }
}

/// Transfers of all tasks go on until `rotations` are over, which `rotate` sees to.
fn outlast(schedule: Schedule, rotations: u64, rotate: impl Fn(&Owner, u64)) {
    let world = World::over_udp();
    let (owner, host) = (world.owner(schedule), Host::open(world.client_config()).unwrap());
    let peer = world.client(&host);
    let pool = host.buffer_pool(TASKS as u32, 48 << 10).unwrap();
    let (done, is_over, started) = (AtomicU64::new(0), AtomicBool::new(false), Since::now());
    thread::scope(|scope| {
        let is_over = &is_over;
        let stops = move || is_over.load(Relaxed);
        for task in 0..TASKS {
            let (peer, pool, done) = (&peer, &pool, &done);
            scope.spawn(move || go_on(peer, pool, task, done, stops));
        }
        while owner.rotated() < rotations && started.elapsed() < PATIENCE {
            rotate(&owner, done.load(Relaxed));
            thread::yield_now();
        }
        is_over.store(true, Relaxed);
    });
    let (counters, done) = (owner.keys().counters().keys, done.into_inner());
    assert!(counters.rotations.rotated >= rotations, "{done} pairs: {counters:?}");
    assert!(done >= TASKS, "{done} pairs");
    // A busy machine may make a swap late, and that is told; nothing else is amiss.
    assert_eq!(counters.host_failures, 0);
    let cache = peer.grants.counters();
    assert!(cache.renewed >= 2, "{cache:?}");
    assert_eq!((peer.client.client().calls(), pool.free()), (0, TASKS as usize));
}

#[test]
fn transfers_go_on_while_keys_change_on_command() {
    let last = AtomicU64::new(0);
    // Each time that a pair or two are done, in the midst of the next ones.
    outlast(Schedule::every(HOUR), 40, |owner, done| {
        if done > last.load(Relaxed) {
            last.store(done + 1, Relaxed);
            owner.keys().rotate_now("kv/index").unwrap();
        }
    });
}

#[test]
fn transfers_go_on_while_keys_change_by_schedule() {
    // A tenth of a second is the shortest epoch.
    outlast(Schedule::every(Duration::ZERO), 20, |_, _| {});
}

#[test]
fn transfers_go_on_while_keys_change_for_ones_that_nobody_was_told_of() {
    let last = AtomicU64::new(0);
    outlast(Schedule::every(Duration::from_secs(2)), 20, |owner, done| {
        if done > last.load(Relaxed) {
            last.store(done + 1, Relaxed);
            owner.keys().withdraw("kv/index").unwrap();
        }
    });
}

#[test]
fn a_region_for_reads_alone_has_no_key_for_writes() {
    let world = World::over_udp();
    let (_owner, host) =
        (world.owner(Schedule::every(HOUR)), Host::open(world.client_config()).unwrap());
    let peer = world.client(&host);
    let pool = host.buffer_pool(1, 64).unwrap();
    let region = peer.region("kv/index", &[OpType::Read]);
    let grant = region.wait_grant(OpType::Read, PATIENCE).unwrap();
    assert_eq!((grant.grant.region_len, grant.grant.pid), (LEN, host.pid()));
    let write = peer.client.write(&region, 0, pool.try_acquire().unwrap());
    let (result, buf) = peer.client.block_on(write).unwrap();
    let error = result.unwrap_err();
    assert!(error.to_string().starts_with("no key of kv/index from spiffe://"), "{error}");
    let (result, _) = peer.client.block_on(peer.client.read(&region, 0, buf)).unwrap();
    result.unwrap();
}
