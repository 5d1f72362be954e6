//! Applications that cannot spin: waits that sleep in the kernel cost no processor time, and are
//! always woken.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use core::time::Duration;

use rma_tests::hosts::{CLIENT_PID, Hosts};
use rma_xdp::{
    Call, CallStatus, Grant, Host, OpStatus, OpType, Permissions, Piece, Portal, RegisteredRegion,
    Transfers, WaitError,
    config::{IdlePolicy, NicConfigBuilder, Timing},
    time::{Clock, TscClock},
    transfer::RetryPolicy,
};
use rustix::event::{PollFd, PollFlags, poll};

/// Longer than any wake-up takes; a lost one is noticed by it.
const PATIENCE: Duration = Duration::from_secs(20);

/// Sleeps at once, so that every wait is woken.
const SLEEPY: IdlePolicy = {
    let mut it = IdlePolicy::busy_poll();
    it.spin = Duration::ZERO;
    it.yield_for = Duration::ZERO;
    it.sleep = true;
    it
};

fn hosts(timeout: Duration) -> Hosts {
    let timing = Timing::software(Duration::from_micros(10), timeout);
    Hosts::over_udp(NicConfigBuilder::default().with(|it| it.timing = timing))
}

fn grant(hosts: &Hosts) -> Grant {
    let region = hosts.server().register(4096, Permissions::READ).unwrap();
    hosts.server().grant(&region, hosts.client_addr, CLIENT_PID, OpType::Read).unwrap()
}

fn portal(host: &Host, slots: u16) -> (Portal, RegisteredRegion) {
    let mut portal = host.portal(slots).unwrap();
    portal.set_idle(SLEEPY);
    (portal, host.register(4096, Permissions::NONE).unwrap())
}

/// Processor time of this thread so far.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

fn executor(hosts: &Hosts) -> (Transfers, RegisteredRegion) {
    let mut executor = hosts.client.transfers(4).unwrap();
    executor.set_idle(SLEEPY);
    (executor, hosts.client.register(4096, Permissions::NONE).unwrap())
}

/// One op.
fn piece<'a>(grant: &'a Grant, local: &'a RegisteredRegion) -> [Piece<'a>; 1] {
    [Piece { grant, remote_offset: 0, local, local_offset: 0, len: 64 }]
}

/// Sleeps on the executor's descriptor as an event loop does; whether it became readable.
fn sleep_on(executor: &Transfers) -> bool {
    let fd = executor.completion_fd().unwrap();
    let until = executor.poll_timeout().map(|at| at.since(executor.now()));
    let timeout = until.unwrap_or(PATIENCE).min(PATIENCE).try_into().unwrap();
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

/// Waits until the portal's descriptor is readable.
fn await_readable(portals: &[&Portal]) -> bool {
    let fds = portals.iter().map(|portal| portal.completion_fd().unwrap());
    let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    poll(&mut fds, Some(&PATIENCE.try_into().unwrap())).unwrap() > 0
}

#[test]
fn a_thread_that_waits_for_a_dead_peer_costs_next_to_no_processor_time() {
    let timeout = Duration::from_millis(120);
    let mut hosts = hosts(timeout);
    let grant = grant(&hosts);
    let mut portal = hosts.client.portal(1).unwrap();
    let sink = hosts.client.register(4096, Permissions::NONE).unwrap();
    hosts.server = None;
    let clock = TscClock::new();
    let (began, busy) = (clock.now(), thread_time());
    for _ in 0..5 {
        portal.read(&grant, 0, &sink, 0, 4096).unwrap();
        assert_eq!(portal.wait().unwrap().status, OpStatus::Timeout);
    }
    let (waited, busy) = (clock.now().since(began), thread_time() - busy);
    println!("waited for {waited:?}, {busy:?} of it on a processor");
    assert!(waited >= 5 * timeout);
    assert!(busy < waited / 50, "{busy:?} of {waited:?}");
}

#[test]
fn a_wait_with_a_limit_ends_without_the_op() {
    let mut hosts = hosts(Duration::from_secs(1));
    let grant = grant(&hosts);
    let mut portal = hosts.client.portal(1).unwrap();
    let sink = hosts.client.register(4096, Permissions::NONE).unwrap();
    hosts.server = None;
    let nothing = Err(WaitError::NothingOutstanding);
    assert_eq!(portal.wait_timeout(PATIENCE), nothing);
    portal.read(&grant, 0, &sink, 0, 4096).unwrap();
    for limit in [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(20)] {
        let clock = TscClock::new();
        assert_eq!(portal.wait_timeout(limit), Ok(None));
        assert!(clock.now().as_nanos() >= limit.as_nanos() as u64);
    }
    assert_eq!(portal.outstanding(), 1);
    assert_eq!(portal.wait_timeout(PATIENCE).unwrap().unwrap().status, OpStatus::Timeout);
    assert_eq!(portal.wait_timeout(PATIENCE), nothing);
}

#[test]
fn no_wake_up_is_lost_however_often_threads_sleep() {
    const OPS: u32 = 3000;
    let hosts = hosts(Duration::from_secs(2));
    let grant = grant(&hosts);
    std::thread::scope(|scope| {
        for depth in [1, 2, 5] {
            let (hosts, grant) = (&hosts, &grant);
            scope.spawn(move || {
                let (mut portal, sink) = portal(&hosts.client, depth);
                for _ in 0..depth {
                    portal.read(grant, 0, &sink, 0, 64).unwrap();
                }
                for _ in 0..OPS {
                    let clock = TscClock::new();
                    let completion = portal.wait_timeout(PATIENCE).unwrap();
                    // Were a wake-up lost, this would be looked at once the time has passed.
                    let waited = clock.now().as_nanos();
                    assert!(waited < 15_000_000_000, "woken after {waited} ns");
                    assert_eq!(completion.unwrap().status, OpStatus::Ok);
                    portal.read(grant, 0, &sink, 0, 64).unwrap();
                }
            });
        }
    });
}

#[test]
fn a_completion_that_comes_just_before_the_sleep_is_not_slept_through() {
    let hosts = hosts(Duration::from_secs(2));
    let grant = grant(&hosts);
    let (mut portal, sink) = portal(&hosts.client, 1);
    let (mut slept, mut typical) = (0, Duration::from_micros(50));
    for op in 0..600 {
        portal.read(&grant, 0, &sink, 0, 64).unwrap();
        // From well before the completion to well after it.
        let clock = TscClock::new();
        while u128::from(clock.now().as_nanos()) < (typical * (op % 60) / 20).as_nanos() {
            core::hint::spin_loop();
        }
        if portal.arm() {
            slept += 1;
            assert!(await_readable(&[&portal]), "asleep beside a completion");
        }
        portal.disarm();
        let completion = portal.wait().unwrap();
        assert_eq!(completion.status, OpStatus::Ok);
        // No more, as spinning on a busy machine makes the next op slower.
        let most = Duration::from_micros(200);
        typical = ((typical * 7 + completion.total_delay()) / 8).min(most);
    }
    println!("slept {slept} times of 600");
    portal.read(&grant, 0, &sink, 0, 64).unwrap();
    let clock = TscClock::new();
    while !portal.has_completion() {
        assert!(clock.now().as_nanos() < PATIENCE.as_nanos() as u64);
        std::thread::yield_now();
    }
    assert!(!portal.arm(), "a completion is there");
    portal.disarm();
    portal.wait().unwrap();
    assert!(!portal.arm(), "no op is in flight");
    portal.disarm();
}

#[test]
fn one_thread_polls_the_descriptors_of_several_portals() {
    let hosts = hosts(Duration::from_secs(2));
    let grant = grant(&hosts);
    let mut portals = [portal(&hosts.client, 4), portal(&hosts.client, 1)];
    let mut completed = [0; 2];
    for (portal, sink) in &mut portals {
        while portal.read(&grant, 0, sink, 0, 64).is_ok() {}
    }
    while completed.iter().any(|&count| count < 1000) {
        let mut sleeps = true;
        for ((portal, sink), completed) in portals.iter_mut().zip(&mut completed) {
            while let Some(completion) = portal.poll() {
                assert_eq!(completion.status, OpStatus::Ok);
                *completed += 1;
                portal.read(&grant, 0, sink, 0, 64).unwrap();
            }
            sleeps &= portal.arm();
        }
        assert!(!sleeps || await_readable(&portals.each_ref().map(|(portal, _)| portal)));
        portals.iter_mut().for_each(|(portal, _)| portal.disarm());
    }
}

#[test]
fn a_sleeper_is_woken_when_the_engine_ends() {
    let mut hosts = hosts(PATIENCE);
    let grant = grant(&hosts);
    hosts.server = None;
    let [(mut armed, sink), (mut waiting, other)] = [(); 2].map(|()| portal(&hosts.client, 1));
    armed.read(&grant, 0, &sink, 0, 64).unwrap();
    assert!(armed.arm(), "nothing is there, and the engine lives");
    let waiting = std::thread::spawn(move || {
        waiting.read(&grant, 0, &other, 0, 64).unwrap();
        waiting.wait()
    });
    drop(hosts);
    assert!(await_readable(&[&armed]));
    assert_eq!(waiting.join().unwrap(), Err(WaitError::EngineGone));
    assert!(!armed.arm(), "nobody would wake it");
    armed.disarm();
    assert_eq!(armed.wait(), Err(WaitError::EngineGone));
}

#[test]
fn an_event_loop_sleeps_on_an_executor_until_its_call_is_over() {
    let hosts = hosts(Duration::from_secs(2));
    let grant = grant(&hosts);
    let (mut executor, local) = executor(&hosts);
    assert!(!executor.arm(), "there is no call");
    executor.disarm();
    let mut slept = 0;
    for _ in 0..500 {
        let call = executor.submit(&Call::of(&piece(&grant, &local))).unwrap();
        assert!(!executor.arm(), "its op has not been issued");
        executor.disarm();
        let outcome = loop {
            executor.poll();
            if let Some(outcome) = executor.poll_outcome() {
                break outcome;
            }
            if executor.arm() {
                slept += 1;
                assert!(sleep_on(&executor), "asleep beside a completion");
            }
            executor.disarm();
        };
        assert_eq!((outcome.call, outcome.status), (call, CallStatus::Ok));
    }
    println!("slept {slept} times in 500 calls");
    executor.submit(&Call::of(&piece(&grant, &local))).unwrap();
    let clock = TscClock::new();
    while executor.poll() == 0 || executor.protocol().portal().outstanding() > 0 {
        assert!(clock.now().as_nanos() < PATIENCE.as_nanos() as u64);
        std::thread::yield_now();
    }
    assert!(!executor.arm(), "an outcome is there");
    executor.disarm();
    assert_eq!(executor.poll_outcome().unwrap().status, CallStatus::Ok);
}

#[test]
fn an_event_loop_wakes_for_a_deadline_and_for_the_end_of_the_engine() {
    // Longer than this thread may be stopped between two of its steps.
    let mut hosts = hosts(Duration::from_secs(2));
    let grant = grant(&hosts);
    hosts.server = None;
    let (mut executor, local) = executor(&hosts);
    let at = executor.now() + Duration::from_millis(20);
    let pieces = piece(&grant, &local);
    let call = Call::of(&pieces).with(|it| {
        it.deadline = Some(at);
        it.retry = RetryPolicy::NONE;
    });
    executor.submit(&call).unwrap();
    executor.poll();
    assert!(executor.arm());
    assert!(!sleep_on(&executor), "the op is under way still");
    executor.disarm();
    assert!(executor.now() >= at);
    executor.poll();
    assert_eq!(executor.wait_any_timeout(Duration::ZERO), Ok(None), "its op is under way");
    let before = executor.now();
    assert_eq!(executor.wait_any_timeout(Duration::from_millis(5)), Ok(None));
    assert!(executor.now().since(before) >= Duration::from_millis(5));
    let outcome = executor.wait_any_timeout(PATIENCE).unwrap().unwrap();
    assert_eq!(outcome.status, CallStatus::DeadlineExceeded);
    let nothing = Err(WaitError::NothingOutstanding);
    assert_eq!(executor.wait_any_timeout(PATIENCE), nothing);

    executor.submit(&Call::of(&pieces)).unwrap();
    executor.poll();
    assert!(executor.arm());
    drop(hosts);
    assert!(sleep_on(&executor));
    assert!(!executor.arm(), "nobody would wake it");
    executor.disarm();
    assert_eq!(executor.wait_any_timeout(PATIENCE), Err(WaitError::EngineGone));
}
