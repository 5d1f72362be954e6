//! Transfers as futures, on executors of several kinds; and that no memory is handed out that a
//! late frame could touch, whenever a future is dropped.

mod places;
mod recorded;

use core::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    task::{Context, Poll, Waker},
    time::Duration,
};
use std::{
    sync::{Arc, Mutex},
    task::Wake,
    thread::Thread,
};

use rma_tests::hosts::{CLIENT_PID, Hosts, Loopback};
use rma_xdp::{
    BufferPool, CallStatus, Client, Grant, Host, HostAddr, HostConfig, InlineHost, OpStatus,
    OpType, Permissions, Portal, RegionBuf, RegisteredRegion, TransferError, Transfers, WaitError,
    config::{IdlePolicy, NicConfigBuilder, Timing},
    time::{Clock, TscClock},
    transfer::{CallError, ExecutorConfig, RetryPolicy, cc::Algorithm},
};

use super::{hosts, hosts_with, poll_once, served};

/// A timeout that ops of a dead peer end soon by.
const IMPATIENT: Duration = Duration::from_millis(40);

/// The time within which everything ends.
const PATIENCE: Duration = Duration::from_secs(30);

/// The length of a buffer: several ops.
const BUF: usize = 20_000;

/// The length of the server's region.
const LEN: usize = 10 * BUF;

/// The byte that fills the server's region, and that nobody else writes.
const DATA: u8 = 0xda;

fn remote(server: &Host, hosts: &Hosts) -> (RegisteredRegion, Grant, Grant) {
    let (region, [read, write]) = served(server, hosts, &[DATA; LEN]);
    (region, read, write)
}

fn client(hosts: &Hosts) -> Client {
    Client::new(hosts.client.transfers(32).unwrap())
}

pub(super) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let clock = TscClock::new();
    while !condition() {
        assert!(clock.now().as_nanos() < PATIENCE.as_nanos() as u64, "never: {what}");
        std::thread::yield_now();
    }
}

/// An executor of futures that knows nothing of this library: polls those that were woken, and
/// parks.
pub(super) struct Tiny {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Tiny {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, SeqCst);
        self.thread.unpark();
    }
}

impl Tiny {
    pub(super) fn run<T>(futures: Vec<Pin<Box<dyn Future<Output = T> + '_>>>) -> Vec<T> {
        let mut tasks: Vec<_> = futures
            .into_iter()
            .map(|future| {
                let woken = AtomicBool::new(true);
                (Arc::new(Self { thread: std::thread::current(), woken }), Some(future))
            })
            .collect();
        let mut outputs: Vec<Option<T>> = tasks.iter().map(|_| None).collect();
        while outputs.iter().any(Option::is_none) {
            let mut any = false;
            for ((tiny, future), output) in tasks.iter_mut().zip(&mut outputs) {
                let Some(it) = future else { continue };
                if tiny.woken.swap(false, SeqCst) {
                    any = true;
                    let waker = Waker::from(tiny.clone());
                    if let Poll::Ready(ready) = it.as_mut().poll(&mut Context::from_waker(&waker)) {
                        (*output, *future) = (Some(ready), None);
                    }
                }
            }
            if !any {
                std::thread::park();
            }
        }
        outputs.into_iter().map(|output| output.expect("all are done")).collect()
    }
}

/// Writes a buffer, reads it back into another, and compares; `turn` times at `offset`.
async fn to_and_fro(client: Client, pool: BufferPool, grants: (Grant, Grant), place: usize) {
    let (read, write) = grants;
    for turn in 0..20 {
        let seed = (place * 20 + turn) as u8;
        let mut buf = pool.acquire().await;
        buf.set_len(1 + (turn * 977) % BUF);
        let bytes: Vec<u8> = (0..buf.len()).map(|at| at as u8 ^ seed).collect();
        buf.write(0, &bytes).unwrap();
        let (written, mut buf) = client.write(&write, (place * BUF) as u64, buf).await;
        written.unwrap();
        buf.write(0, &vec![0; bytes.len()]).unwrap();
        let (done, buf) = client.read(&read, (place * BUF) as u64, buf).await;
        done.unwrap();
        assert!(buf.to_vec() == bytes, "place {place}, turn {turn}");
    }
}

#[test]
fn futures_run_on_an_executor_that_knows_nothing_of_them() {
    let hosts = hosts();
    let (_region, read, write) = remote(hosts.server(), &hosts);
    let mut executor = hosts.client.transfers(32).unwrap();
    // Sleeps at once: every future is woken by a thread that was woken itself.
    let idle = IdlePolicy::default().with(|it| {
        it.spin = Duration::ZERO;
        it.yield_for = Duration::ZERO;
        it.sleep = true;
    });
    executor.set_idle(idle);
    let client = Client::start(executor).unwrap();
    // Fewer buffers than futures: they wait for each other.
    let pool = hosts.client.buffer_pool(4, BUF as u32).unwrap();
    let task = |place| {
        let future = to_and_fro(client.clone(), pool.clone(), (read, write), place);
        Box::pin(future) as Pin<Box<dyn Future<Output = ()>>>
    };
    Tiny::run((0..10).map(task).collect());
    assert_eq!((pool.free(), client.calls()), (4, 0));
}

#[test]
fn threads_that_block_on_futures_of_one_client_poll_for_each_other() {
    let hosts = hosts();
    let (_region, read, write) = remote(hosts.server(), &hosts);
    for starts in [false, true] {
        let executor = hosts.client.transfers(32).unwrap();
        let client = if starts { Client::start(executor).unwrap() } else { Client::new(executor) };
        let pool = hosts.client.buffer_pool(3, BUF as u32).unwrap();
        std::thread::scope(|scope| {
            for place in 0..6 {
                let (client, pool) = (client.clone(), pool.clone());
                scope.spawn(move || {
                    let future = to_and_fro(client.clone(), pool, (read, write), place);
                    client.block_on(future).unwrap();
                });
            }
        });
        assert_eq!((pool.free(), client.calls()), (3, 0));
    }
}

#[test]
fn a_block_within_a_future_that_blocks_is_polled_for() {
    let hosts = hosts();
    let (_region, read, write) = remote(hosts.server(), &hosts);
    let (client, pool) = (client(&hosts), hosts.client.buffer_pool(2, BUF as u32).unwrap());
    let outer = async {
        to_and_fro(client.clone(), pool.clone(), (read, write), 0).await;
        client.block_on(to_and_fro(client.clone(), pool.clone(), (read, write), 1)).unwrap();
        to_and_fro(client.clone(), pool.clone(), (read, write), 2).await;
    };
    client.block_on(outer).unwrap();
}

#[test]
fn a_future_that_computes_for_long_does_not_keep_others_from_theirs() {
    let hosts = hosts();
    let (_region, read, write) = remote(hosts.server(), &hosts);
    let (client, pool) = (client(&hosts), hosts.client.buffer_pool(2, BUF as u32).unwrap());
    let [computes, is_done] = [(); 2].map(|()| AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let long = async {
                to_and_fro(client.clone(), pool.clone(), (read, write), 0).await;
                computes.store(true, SeqCst);
                until("the other is done", || is_done.load(SeqCst));
            };
            client.block_on(long).unwrap();
        });
        for place in [1, 2] {
            client
                .block_on(to_and_fro(client.clone(), pool.clone(), (read, write), place))
                .unwrap();
            until("the first computes", || computes.load(SeqCst));
        }
        is_done.store(true, SeqCst);
    });
}

#[test]
fn a_wake_by_another_thread_ends_a_block_that_sleeps_on_the_portal() {
    let hosts = hosts();
    let client = client(&hosts);
    let state = Arc::new(Mutex::new((false, None::<Waker>)));
    let other = state.clone();
    std::thread::spawn(move || {
        until("the future waits", || other.lock().unwrap().1.is_some());
        // Long enough that it sleeps.
        let clock = TscClock::new();
        until("5 ms pass", || clock.now().as_nanos() > 5_000_000);
        let waker = {
            let mut state = other.lock().unwrap();
            state.0 = true;
            state.1.take().unwrap()
        };
        waker.wake();
    });
    let future = poll_fn(|context| {
        let mut state = state.lock().unwrap();
        if state.0 {
            return Poll::Ready(7);
        }
        state.1 = Some(context.waker().clone());
        Poll::Pending
    });
    assert_eq!(client.block_on(future), Ok(7));
}

#[test]
fn refused_transfers_give_their_buffers_back_at_once() {
    let hosts = hosts();
    let (_region, read, write) = remote(hosts.server(), &hosts);
    let (client, pool) = (client(&hosts), hosts.client.buffer_pool(1, BUF as u32).unwrap());
    let refused = |transfer: rma_xdp::transfer::Transfer| {
        let (result, buf) = client.block_on(transfer).unwrap();
        assert_eq!(client.calls(), 0);
        match result.unwrap_err() {
            TransferError::Refused(error) => (error, buf),
            other => panic!("{other}"),
        }
    };
    let buf = pool.try_acquire().unwrap();
    assert!(pool.try_acquire().is_none());
    let (error, buf) = refused(client.read(&read, LEN as u64, buf));
    assert!(matches!(error, CallError::RemoteOutOfBounds { .. }), "{error}");
    let (error, buf) = refused(client.read(&read, u64::MAX, buf));
    assert!(matches!(error, CallError::RemoteOutOfBounds { .. }), "{error}");
    let (error, buf) = refused(client.read(&write, 0, buf));
    assert!(matches!(error, CallError::Submit { piece: 0, .. }), "{error}");
    let (error, mut buf) = refused(client.write(&read, 0, buf));
    assert!(matches!(error, CallError::Submit { piece: 0, .. }), "{error}");
    buf.set_len(0);
    let (error, buf) = refused(client.read(&read, 0, buf));
    assert_eq!(error, CallError::EmptyPiece { piece: 0 });
    drop(buf);
    assert_eq!(pool.free(), 1);
}

#[test]
fn a_replica_has_what_the_first_host_left_missing() {
    let mut hosts = hosts_with(IMPATIENT);
    let (_region, read, _) = remote(hosts.server(), &hosts);
    let config = HostConfig::udp(Loopback::third()).with(|it| it.port = hosts.port);
    let replica = Host::open(config).unwrap();
    let (_copy, read_copy, _) = remote(&replica, &hosts);
    hosts.server = None;
    let (client, pool) = (client(&hosts), hosts.client.buffer_pool(2, BUF as u32).unwrap());
    let mut buf = pool.try_acquire().unwrap();
    buf.write(0, &[1; BUF]).unwrap();
    let fail_over = async {
        let (first, buf) = client.read(&read, 64, buf).retry(RetryPolicy::NONE).await;
        let Err(TransferError::Failed(outcome)) = first else { panic!("{first:?}") };
        assert_eq!(outcome.status, CallStatus::Failed(OpStatus::Timeout));
        let (second, buf) = client.read(&read_copy, 64, buf).remaining(&outcome).await;
        second.unwrap();
        // Bytes that are missing of a longer buffer are not looked for in the next one.
        let mut short = buf;
        short.set_len(10);
        let (third, buf) = client.read(&read_copy, 64, short).remaining(&outcome).await;
        let Err(TransferError::Refused(error)) = third else { panic!("{third:?}") };
        assert!(matches!(error, CallError::NotOfThisTransfer { piece: 0, .. }), "{error}");
        buf
    };
    let mut buf = client.block_on(fail_over).unwrap();
    buf.set_len(BUF);
    assert!(buf.to_vec() == [DATA; BUF]);
}

/// A grant for as much as `like` is for, of a region of `server`'s that has no more than `len`
/// bytes: ops beyond fail.
fn cut_off(server: &Host, hosts: &Hosts, like: &Grant, len: usize) -> (RegisteredRegion, Grant) {
    let region = server.register(len, Permissions::READ).unwrap();
    region.write(0, &vec![DATA; len]).unwrap();
    let grant = server.grant(&region, hosts.client_addr, CLIENT_PID, OpType::Read).unwrap();
    (region, Grant { region_len: like.region_len, ..grant })
}

#[test]
fn one_replica_after_the_other_has_what_all_before_it_left_missing() {
    let hosts = hosts();
    let (_region, read, _) = remote(hosts.server(), &hosts);
    // The first has less than the second, and that one has not all.
    let (_a, first) = cut_off(hosts.server(), &hosts, &read, 7_000);
    let (_b, second) = cut_off(hosts.server(), &hosts, &read, 14_000);
    let (client, pool) = (client(&hosts), hosts.client.buffer_pool(2, BUF as u32).unwrap());
    let mut buf = pool.try_acquire().unwrap();
    buf.write(0, &[1; BUF]).unwrap();
    let fail_over = async {
        let (result, buf) = client.read(&first, 0, buf).await;
        let Err(TransferError::Failed(outcome)) = result else { panic!("{result:?}") };
        let from = outcome.missing[0].offset;
        assert!(from > 0 && from <= 7_000, "{outcome:?}");
        let (result, buf) = client.read(&second, 0, buf).remaining(&outcome).await;
        let Err(TransferError::Failed(outcome)) = result else { panic!("{result:?}") };
        assert!(outcome.missing[0].offset > from, "{outcome:?}");
        let end = outcome.missing.last().map(|last| (last.piece, last.offset + last.len));
        assert_eq!(end, Some((0, BUF as u64)), "{outcome:?}");
        let (result, buf) = client.read(&read, 0, buf).remaining(&outcome).await;
        result.unwrap();
        buf
    };
    let buf = client.block_on(fail_over).unwrap();
    assert!(buf.to_vec() == [DATA; BUF]);
}

#[test]
fn a_timeout_ends_a_transfer_with_a_peer_that_never_answers() {
    let mut hosts = hosts_with(IMPATIENT);
    let (_region, read, _) = remote(hosts.server(), &hosts);
    hosts.server = None;
    let (client, pool) = (client(&hosts), hosts.client.buffer_pool(1, BUF as u32).unwrap());
    let transfer = client
        .read(&read, 0, pool.try_acquire().unwrap())
        .retry(RetryPolicy::DEFAULT.with(|it| {
            it.timeouts = 255;
            it.refusals = 255;
        }))
        .timeout(Duration::from_millis(10));
    let clock = TscClock::new();
    let (result, buf) = client.block_on(transfer).unwrap();
    assert!(clock.now().as_nanos() >= 10_000_000);
    let Err(TransferError::Failed(outcome)) = result else { panic!("{result:?}") };
    assert_eq!(outcome.status, CallStatus::DeadlineExceeded);
    assert_eq!((pool.free(), client.calls()), (0, 0));
    drop(buf);
    assert_eq!(pool.free(), 1);
}

/// A small generator: the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// A buffer that a test keeps, and what it has written there.
struct Held {
    buf: RegionBuf,
    canary: u8,
    rounds: u64,
}

impl Held {
    fn check(&self, what: &str) {
        let changed = self.buf.to_vec().iter().filter(|&&byte| byte != self.canary).count();
        assert_eq!(changed, 0, "{what}: bytes of a buffer changed that no call has");
    }
}

/// The events of a run of [`drop_reads_at_random`].
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    finished: usize,
    dropped: usize,
    /// How often the test had buffers while calls of dropped futures had others.
    late: usize,
}

/// Reads into buffers of `pool` and drops the futures at random moments, while what the test keeps
/// of the pool is watched. `turn` lets everything make a step.
fn drop_reads_at_random(
    client: &Client,
    pool: &BufferPool,
    grant: &Grant,
    seed: u64,
    mut turn: impl FnMut(),
) -> Seen {
    let (mut random, mut seen) = (Random(0x9e37_79b9_7f4a_7c15 ^ seed), Seen::default());
    let mut context = Context::from_waker(Waker::noop());
    let mut held: Vec<Held> = Vec::new();
    for round in 0..600_u64 {
        while let Some(mut buf) = pool.try_acquire() {
            let canary = round as u8 & 0x7f;
            buf.write(0, &[canary; BUF]).unwrap();
            held.push(Held { buf, canary, rounds: random.below(4) });
        }
        seen.late += usize::from(client.calls() > 0 && !held.is_empty());
        for _ in 0..random.below(10) {
            turn();
        }
        held.iter().for_each(|held| held.check("kept"));
        // Some go into reads that are polled now and then, and dropped at some moment.
        let (going, staying): (Vec<_>, Vec<_>) = held.into_iter().partition(|it| it.rounds == 0);
        held = staying;
        held.iter_mut().for_each(|held| held.rounds -= 1);
        let mut reads: Vec<_> = going
            .into_iter()
            .map(|held| Some(client.read(grant, random.below(LEN as u64 / 2), held.buf)))
            .collect();
        for _ in 0..random.below(12) {
            for read in &mut reads {
                let Some(it) = read else { continue };
                if let Poll::Ready((result, buf)) = pin!(it).poll(&mut context) {
                    result.unwrap();
                    assert!(buf.to_vec() == [DATA; BUF], "all bytes are there");
                    (*read, seen.finished) = (None, seen.finished + 1);
                }
            }
            for _ in 0..random.below(12) {
                turn();
            }
        }
        seen.dropped += reads.iter().flatten().count();
    }
    until("all calls are over", || {
        turn();
        client.calls() == 0
    });
    held.iter().for_each(|held| held.check("at the end"));
    drop(held);
    until("the pool is full again", || pool.free() == pool.count());
    println!("{seen:?}");
    seen
}

/// An executor that keeps its slots busy however slow the server is.
fn steady(portal: Portal, config: ExecutorConfig) -> Transfers {
    let cc = config.cc.with(|it| {
        it.algorithm = Algorithm::Fixed;
        it.cwnd_initial = 64.0;
    });
    Transfers::new(portal, config.with(|it| it.cc = cc)).unwrap()
}

/// Two hosts' settings, whose ops wait long for late frames.
fn patient_pair() -> [HostConfig; 2] {
    let Loopback { addresses, port } = Loopback::unused();
    let timing = Timing::software(Duration::from_micros(10), Duration::from_secs(5));
    let nic = NicConfigBuilder::default().with(|it| it.timing = timing);
    addresses.map(|address| {
        HostConfig::udp(address).with(|it| {
            it.port = port;
            it.nic = nic;
            it.pid = CLIENT_PID;
        })
    })
}

/// A server that answers when it is turned: long after it was asked, and before the ops give up.
fn slow_server(config: HostConfig, client: HostAddr) -> (InlineHost, Grant) {
    let server = InlineHost::open(config).unwrap();
    let region = server.register(LEN, Permissions::READ).unwrap();
    region.write(0, &[DATA; LEN]).unwrap();
    let grant = server.grant(&region, client, CLIENT_PID, OpType::Read).unwrap();
    (server, grant)
}

#[test]
fn buffers_of_dropped_reads_are_handed_out_when_no_late_frame_can_touch_them() {
    let [here, there] = patient_pair();
    let (mut server, grant) = slow_server(there, here.addresses[0]);
    let mut host = InlineHost::open(here).unwrap();
    let pool = host.buffer_pool(6, BUF as u32).unwrap();
    for seed in 0..4 {
        let portal = host.portal(8).unwrap();
        let client = Client::new(steady(portal, host.executor_config()));
        let mut random = Random(seed + 1);
        let seen = drop_reads_at_random(&client, &pool, &grant, seed, || {
            match random.below(3) {
                0 => server.turn(),
                1 => host.turn(),
                _ => client.poll(),
            };
        });
        let Seen { finished, dropped, late } = seen;
        assert!(finished > 20 && dropped > 100 && late > 100, "{seen:?}");
    }
    assert_eq!(host.usage().unwrap().slots.used, 0);
}

#[test]
fn buffers_of_dropped_reads_are_safe_while_a_thread_polls() {
    let [here, there] = patient_pair();
    let (mut server, grant) = slow_server(there, here.addresses[0]);
    let host = Host::open(here).unwrap();
    let pool = host.buffer_pool(6, BUF as u32).unwrap();
    for seed in 4..6 {
        let portal = host.portal(8).unwrap();
        let client = Client::start(steady(portal, host.executor_config())).unwrap();
        let seen = drop_reads_at_random(&client, &pool, &grant, seed, || {
            server.turn();
            std::thread::yield_now();
        });
        assert!(seen.dropped > 0, "{seen:?}");
    }
    until("the slots are free again", || host.usage().unwrap().slots.used == 0);
}

#[test]
fn futures_dropped_at_any_moment_over_a_dead_peer_leak_nothing() {
    const BUFFERS: u32 = 16;
    let mut hosts = hosts_with(IMPATIENT);
    let (_region, read, write) = remote(hosts.server(), &hosts);
    hosts.server = None;
    let executor = hosts.client.transfers(8).unwrap();
    let client = Client::start(executor).unwrap();
    let pool = hosts.client.buffer_pool(BUFFERS, BUF as u32).unwrap();
    let mut random = Random(77);
    for _ in 0..60 {
        let clock = TscClock::new();
        let mut transfers: Vec<_> = (0..1 + random.below(8))
            .map(|_| {
                let buf = client.block_on(pool.acquire()).unwrap();
                match random.below(2) {
                    0 => client.read(&read, 0, buf),
                    _ => client.write(&write, 0, buf),
                }
            })
            .collect();
        let waited = Duration::from_nanos(clock.now().as_nanos());
        assert!(waited < PATIENCE, "buffers come back: {waited:?}");
        for transfer in &mut transfers {
            for _ in 0..random.below(3) {
                let polled = pin!(&mut *transfer).poll(&mut Context::from_waker(Waker::noop()));
                if polled.is_ready() {
                    // This thread did not run for as long as all attempts took.
                    break;
                }
            }
        }
    }
    until("the pool is full again", || pool.free() == BUFFERS as usize);
    assert_eq!(client.calls(), 0);
    drop(client);
    let taken = || hosts.client.usage().unwrap().slots.used;
    until("the slots are free again", || taken() == 0);
}

#[test]
fn a_client_dropped_with_calls_under_way_gives_back_buffers_and_slots() {
    const BUFFERS: u32 = 4;
    let mut hosts = hosts_with(IMPATIENT);
    let (_region, read, _) = remote(hosts.server(), &hosts);
    hosts.server = None;
    let pool = hosts.client.buffer_pool(BUFFERS, BUF as u32).unwrap();
    for starts in [false, true] {
        let executor = hosts.client.transfers(8).unwrap();
        let client = if starts { Client::start(executor).unwrap() } else { Client::new(executor) };
        let transfers: Vec<_> = (0..BUFFERS)
            .map(|_| {
                let mut transfer = client.read(&read, 0, pool.try_acquire().unwrap());
                let mut context = Context::from_waker(Waker::noop());
                assert!(pin!(&mut transfer).poll(&mut context).is_pending());
                transfer
            })
            .collect();
        drop(client);
        assert_eq!(pool.free(), 0, "futures keep what they need");
        drop(transfers);
        until("the pool is full again", || pool.free() == BUFFERS as usize);
        let taken = || hosts.client.usage().unwrap().slots.used;
        until("the slots are free again", || taken() == 0);
    }
}

#[test]
fn futures_end_when_the_engine_does_and_give_their_buffers_back() {
    let timing = Timing::software(Duration::from_micros(10), PATIENCE);
    for starts in [false, true] {
        let mut hosts = Hosts::over_udp(NicConfigBuilder::default().with(|it| it.timing = timing));
        let (_region, read, _) = remote(hosts.server(), &hosts);
        hosts.server = None;
        let pool = hosts.client.buffer_pool(2, BUF as u32).unwrap();
        let executor = hosts.client.transfers(8).unwrap();
        let client = if starts { Client::start(executor).unwrap() } else { Client::new(executor) };
        let [first, second] = [(); 2].map(|()| pool.try_acquire().unwrap());
        let mut given_up = client.read(&read, 0, second);
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(&mut given_up).poll(&mut context).is_pending());
        drop(given_up);
        let waiting = {
            let client = client.clone();
            std::thread::spawn(move || client.block_on(client.read(&read, 0, first)).unwrap())
        };
        until("both are under way", || client.calls() == 2);
        drop(hosts);
        let (result, buf) = waiting.join().unwrap();
        assert_eq!(result, Err(TransferError::Unfinished(WaitError::EngineGone)));
        assert_eq!(client.calls(), 0);
        // By the thread that saw the end first.
        until("the other buffer is back", || pool.free() == 1);
        let (result, _buf) = client.block_on(client.read(&read, 0, buf)).unwrap();
        assert_eq!(result, Err(TransferError::Unfinished(WaitError::EngineGone)));
    }
}

#[test]
fn an_inline_engine_is_turned_by_who_blocks_and_by_nobody_else() {
    let Loopback { addresses: [here, there], port } = Loopback::unused();
    let open =
        |address| InlineHost::open(HostConfig::udp(address).with(|it| it.port = port)).unwrap();
    let (mut host, mut stranger) = (open(here), open(there));
    let region = host.register(LEN, Permissions::READ).unwrap();
    region.write(0, &[DATA; LEN]).unwrap();
    let read = host.grant(&region, here, host.pid(), OpType::Read).unwrap();
    let pool = host.buffer_pool(2, BUF as u32).unwrap();
    let executor = host.transfers(8).unwrap();
    assert!(Client::start(executor).is_err());
    let client = Client::new(host.transfers(8).unwrap());
    let buf = pool.try_acquire().unwrap();
    let (result, buf) = host.block_on(&client, client.read(&read, 0, buf)).unwrap();
    result.unwrap();
    assert!(buf.to_vec() == [DATA; BUF]);
    assert_eq!(client.block_on(async {}), Err(WaitError::InlineEngine));
    assert_eq!(client.poller().run(), Err(WaitError::InlineEngine));
    assert_eq!(stranger.block_on(&client, async {}), Err(WaitError::AnotherHost));
}

#[test]
fn buffers_are_apart_and_go_to_those_who_wait_in_their_order() {
    let hosts = hosts();
    let pool = hosts.client.buffer_pool(3, 100).unwrap();
    assert_eq!((pool.count(), pool.free(), pool.buffer_len()), (3, 3, 100));
    let mut all: Vec<_> = (0..3_u8)
        .map(|seed| {
            let mut buf = pool.try_acquire().unwrap();
            buf.write(0, &[seed; 100]).unwrap();
            buf
        })
        .collect();
    for (seed, buf) in all.iter_mut().enumerate() {
        assert_eq!(buf.to_vec(), [seed as u8; 100]);
        assert!(buf.write(1, &[9; 100]).is_err() && buf.write(usize::MAX, &[9]).is_err());
        buf.set_len(50);
        assert!(buf.read(0, &mut [0; 51]).is_err());
        assert_eq!((buf.len(), buf.capacity()), (50, 100));
    }
    let mut context = Context::from_waker(Waker::noop());
    let [mut first, mut second] = [(); 2].map(|()| Box::pin(pool.acquire()));
    assert!(first.as_mut().poll(&mut context).is_pending());
    let woken = Arc::new(Tiny { thread: std::thread::current(), woken: AtomicBool::new(false) });
    let waker = Waker::from(woken.clone());
    assert!(second.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(all.pop());
    assert!(!woken.woken.load(SeqCst), "the first is woken");
    drop(first);
    assert!(woken.woken.load(SeqCst), "it has passed it on");
    assert!(second.as_mut().poll(&mut context).is_ready());
    for (count, len) in [(0, 64), (64, 0), (u32::MAX, u32::MAX)] {
        let error = hosts.client.buffer_pool(count, len).unwrap_err();
        println!("{error}");
    }
}
