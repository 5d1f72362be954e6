//! P9: after its start the engine thread does not allocate, and does not free.
//!
//! The allocator of this test program counts what the thread named `rma-engine` asks of it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use core::{
    alloc::{GlobalAlloc, Layout},
    sync::atomic::{AtomicI32, AtomicU64, Ordering::SeqCst},
};
use std::{
    alloc::System,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rma_lab::{Lab, LabConfig};
use rma_tests::{
    hosts::{Hosts, Setup},
    scenario,
};
use rma_xdp::{
    config::{CounterConfig, NicConfigBuilder},
    time::{Clock, TscClock},
};

/// The thread that is watched; 0 if none is.
static WATCHED: AtomicI32 = AtomicI32::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);

struct Counting;

impl Counting {
    fn count() {
        let watched = WATCHED.load(SeqCst);
        // The thread's number by system call: a thread-local could allocate.
        if watched != 0 && rustix::thread::gettid().as_raw_nonzero().get() == watched {
            CALLS.fetch_add(1, SeqCst);
        }
    }
}

// SAFETY: every call goes on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count();
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        Self::count();
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`, which is the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The turn of one test. There is one count for all, and one test's engines must not be taken for
/// another's.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    // A test that failed has left nothing that matters to the next.
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The threads of this process that are called `rma-engine`.
fn engines() -> Vec<i32> {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|task| task.unwrap())
        .filter(|task| {
            let comm = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            comm.trim() == "rma-engine"
        })
        .map(|task| task.file_name().to_string_lossy().parse().unwrap())
        .collect()
}

/// Opens two hosts and tells which threads are their engines. The caller has its turn: nobody else
/// starts an engine.
fn open(hosts: impl FnOnce() -> Hosts) -> (Hosts, Vec<i32>) {
    // Of a test before, they may not be gone yet.
    let before = engines();
    let hosts = hosts();
    // A thread has its name only once it runs.
    let clock = TscClock::new();
    loop {
        let mut engines = engines();
        engines.retain(|engine| !before.contains(engine));
        if engines.len() == 2 {
            return (hosts, engines);
        }
        assert!(clock.now().as_nanos() < 10_000_000_000, "{} engines", engines.len());
        std::thread::yield_now();
    }
}

/// Runs scenarios while each engine in turn is watched.
fn assert_steady(hosts: &Hosts, engines: Vec<i32>) {
    for engine in engines {
        CALLS.store(0, SeqCst);
        WATCHED.store(engine, SeqCst);
        scenario::reads_of_every_kind_of_size_arrive(hosts);
        scenario::both_classes_and_many_ops_at_once(hosts);
        scenario::many_portals_and_many_regions(hosts);
        scenario::a_refusal_by_the_responder_has_its_own_status(hosts);
        scenario::writes_of_every_kind_of_size_arrive_and_change_nothing_else(hosts);
        scenario::writes_and_reads_of_both_classes_at_once(hosts);
        scenario::a_rekey_fails_the_old_keys_of_its_region_alone(hosts);
        scenario::a_host_may_use_its_own_regions(hosts);
        scenario::a_portal_dropped_in_mid_flight_gives_its_slots_back(hosts);
        scenario::garbage_is_counted_and_nothing_is_lost(hosts);
        WATCHED.store(0, SeqCst);
        assert_eq!(CALLS.load(SeqCst), 0, "calls of the allocator on engine thread {engine}");
    }
}

#[test]
fn the_engine_does_not_allocate_over_udp() {
    let _turn = turn();
    // That counting works: this thread allocates.
    CALLS.store(0, SeqCst);
    WATCHED.store(rustix::thread::gettid().as_raw_nonzero().get(), SeqCst);
    drop(std::hint::black_box(Box::new(1)));
    WATCHED.store(0, SeqCst);
    assert!(CALLS.load(SeqCst) >= 2);
    // Blocks so short that the engines go on to the next one meanwhile.
    let counter = CounterConfig::default().with(|it| it.block_len = 1 << 9);
    let (hosts, engines) = open(|| Hosts::over_udp_counting(NicConfigBuilder::default(), &counter));
    assert_steady(&hosts, engines);
    for host in [&hosts.client, hosts.server()] {
        let sent = host.engines()[0].counters.frames_sent();
        assert!(sent > 4 * counter.block_len, "{sent} frames");
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_engine_does_not_allocate_over_xdp() {
    let _turn = turn();
    let (hosts, engines) = open(|| Hosts::in_lab(&Setup::default()));
    assert_steady(&hosts, engines);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_engine_does_not_allocate_while_its_interface_goes_and_comes_back() {
    let _turn = turn();
    let (hosts, engines) = open(|| Hosts::in_lab(&Setup::default()));
    let lab = hosts.lab.as_ref().unwrap();
    for (times, engine) in engines.into_iter().enumerate() {
        CALLS.store(0, SeqCst);
        WATCHED.store(engine, SeqCst);
        lab.a().ip(&["link", "del", "dev", Lab::INTERFACE]).unwrap();
        lab.link(&LabConfig { mtu: 9000, queues: 2, ..LabConfig::default() }).unwrap();
        let clock = TscClock::new();
        for host in [&hosts.client, hosts.server()] {
            while host.interface().unwrap().attachments < 2 + times as u64 {
                assert!(clock.now().as_nanos() < 30_000_000_000, "{:?}", host.interface());
                std::thread::yield_now();
            }
        }
        hosts.client.resolve(hosts.server_addr).unwrap();
        hosts.server().resolve(hosts.client_addr).unwrap();
        scenario::reads_of_every_kind_of_size_arrive(&hosts);
        WATCHED.store(0, SeqCst);
        assert_eq!(CALLS.load(SeqCst), 0, "calls of the allocator on engine thread {engine}");
    }
}
