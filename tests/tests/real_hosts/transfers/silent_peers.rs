//! Servers that do not answer, over UDP on loopback: what waits for them, what waits beside, and
//! what happens when they are back. Orders and counts, no times.

use core::{future::Future, pin::Pin, task::Poll, time::Duration};
use std::future::poll_fn;

use rma_tests::hosts::{CLIENT_PID, Hosts, Loopback};
use rma_xdp::{
    Call, CallStatus, Client, Grant, Host, HostConfig, InlineHost, OpStatus, OpType, Permissions,
    Piece, RegisteredRegion, TransferError, Transfers,
    config::{NicConfigBuilder, Timing},
    transfer::{Outcome, RetryPolicy, SilentPeers},
};

use super::served;

const LEN: usize = 1 << 16;

/// The timeout, and what a busy machine does not run off between two answers of a live server.
const T: Duration = Duration::from_millis(500);

fn nic() -> NicConfigBuilder {
    let timing = Timing::software(Duration::from_micros(10), T);
    NicConfigBuilder::default().with(|it| it.timing = timing)
}

/// A region of a server's that has `byte` everywhere, and grants to read and to write it.
fn remote(server: &Host, hosts: &Hosts, byte: u8) -> (RegisteredRegion, [Grant; 2]) {
    served(server, hosts, &[byte; LEN])
}

fn piece<'a>(grant: &'a Grant, local: &'a RegisteredRegion) -> Piece<'a> {
    Piece { grant, remote_offset: 0, local, local_offset: 0, len: 64 }
}

fn third(hosts: &Hosts) -> Host {
    let config =
        HostConfig::udp(Loopback::third()).with(|it| (it.port, it.nic) = (hosts.port, nic()));
    Host::open(config).unwrap()
}

fn submit(executor: &mut Transfers, grant: &Grant, local: &RegisteredRegion, retry: RetryPolicy) {
    executor.submit(&Call::of(&[piece(grant, local)]).with(|it| it.retry = retry)).unwrap();
}

/// Polls until `count` calls are over: what became of them, in one list for each poll that some
/// ended with.
fn polls(executor: &mut Transfers, count: usize) -> Vec<Vec<Outcome>> {
    let mut all = Vec::new();
    while all.iter().map(Vec::len).sum::<usize>() < count {
        executor.poll();
        let over: Vec<_> = core::iter::from_fn(|| executor.poll_outcome()).collect();
        if over.is_empty() {
            std::thread::yield_now();
        } else {
            all.push(over);
        }
    }
    all
}

fn untried(outcomes: &[Outcome]) -> usize {
    outcomes.iter().filter(|it| it.missing.iter().any(|it| it.tried.is_none())).count()
}

#[test]
fn calls_queued_for_a_dead_server_end_in_one_poll_without_having_been_tried() {
    for which in [0, 1] {
        let mut hosts = Hosts::over_udp(nic());
        let (_region, grants) = remote(hosts.server(), &hosts, 7);
        let grant = &grants[which];
        let local = hosts.client.register(LEN, Permissions::NONE).unwrap();
        let mut executor = hosts.client.transfers(64).unwrap();
        hosts.server = None;
        for _ in 0..200 {
            submit(&mut executor, grant, &local, RetryPolicy::NONE);
        }
        let ended = polls(&mut executor, 200);
        let together: Vec<_> = ended.iter().map(|it| untried(it)).filter(|&it| it > 0).collect();
        // As many were issued as there are slots; of a suspect one more may be tried.
        assert!(matches!(together[..], [135 | 136]), "{together:?}");
        for outcome in ended.iter().flatten() {
            assert_eq!(outcome.responder, hosts.server_addr);
            let is_told = matches!(outcome.status, CallStatus::PeerSilent { .. });
            let is_tried = outcome.missing[0].tried == Some(OpStatus::Timeout);
            assert!(is_told || is_tried, "{outcome:?}");
        }
        // The next caller is told with the next poll; a probe may be among them.
        for _ in 0..1000 {
            submit(&mut executor, grant, &local, RetryPolicy::NONE);
        }
        executor.poll();
        let over = core::iter::from_fn(|| executor.poll_outcome()).collect::<Vec<_>>();
        assert!(over.len() >= 999 && untried(&over) == over.len(), "{}", over.len());
        let SilentPeers { suspect, dead, probing } = executor.protocol().silent_peers();
        assert_eq!((suspect, dead + probing), (0, 1));
    }
}

#[test]
fn a_live_server_is_read_beside_a_thousand_calls_to_a_dead_one() {
    let mut hosts = Hosts::over_udp(nic());
    let (_dead, [dead, _]) = remote(hosts.server(), &hosts, 1);
    let live = third(&hosts);
    let (_live, [live_grant, _]) = remote(&live, &hosts, 2);
    let local = hosts.client.register(LEN, Permissions::NONE).unwrap();
    let mut executor = hosts.client.transfers(64).unwrap();
    hosts.server = None;
    for _ in 0..1000 {
        submit(&mut executor, &dead, &local, RetryPolicy::DEFAULT);
    }
    executor.poll();
    for _ in 0..20 {
        let before = executor.calls();
        executor.read(&live_grant, 0, &local, 0, 64).unwrap();
        assert_eq!(executor.calls(), before, "none of the others was waited for");
    }
    let over: Vec<_> = polls(&mut executor, 1000).into_iter().flatten().collect();
    assert!(over.iter().all(|it| matches!(it.status, CallStatus::PeerSilent { .. })));
}

#[test]
fn a_server_that_is_stopped_for_a_while_fails_no_call() {
    let Loopback { addresses: [client_addr, server_addr], port } = Loopback::unused();
    // A second, so that the pause is not much longer on a busy machine.
    let timing = Timing::software(Duration::from_micros(10), Duration::from_secs(1));
    let nic = NicConfigBuilder::default().with(|it| it.timing = timing);
    let config = |addr| HostConfig::udp(addr).with(|it| (it.port, it.nic) = (port, nic));
    let client = Host::open(config(client_addr).with(|it| it.pid = CLIENT_PID)).unwrap();
    let mut server = InlineHost::open(config(server_addr)).unwrap();
    let region = server.register(LEN, Permissions::READ).unwrap();
    let grant = server.grant(&region, client_addr, CLIENT_PID, OpType::Read).unwrap();
    let local = client.register(LEN, Permissions::NONE).unwrap();
    let mut executor = client.transfers(64).unwrap();
    for _ in 0..300 {
        submit(&mut executor, &grant, &local, RetryPolicy::DEFAULT);
    }
    let resumes = executor.now() + Duration::from_millis(1500);
    while executor.now() < resumes {
        executor.poll();
        std::thread::yield_now();
    }
    let silent = executor.protocol().silent_peers();
    assert_eq!((silent.suspect, silent.dead + silent.probing), (0, 1), "it was noticed");
    let mut ok = 0;
    while ok < 300 {
        server.turn();
        executor.poll();
        while let Some(outcome) = executor.poll_outcome() {
            assert_eq!(outcome.status, CallStatus::Ok);
            ok += 1;
        }
    }
    assert_eq!(executor.protocol().silent_peers(), SilentPeers::default());
}

#[test]
fn calls_outlast_a_restart_and_learn_that_their_grant_is_of_the_last_life() {
    let mut hosts = Hosts::over_udp(nic());
    let (_region, [old, _]) = remote(hosts.server(), &hosts, 1);
    let local = hosts.client.register(LEN, Permissions::NONE).unwrap();
    let mut executor = hosts.client.transfers(64).unwrap();
    hosts.server = None;
    let outlast = Some(Duration::from_secs(3600));
    for _ in 0..100 {
        submit(&mut executor, &old, &local, RetryPolicy::DEFAULT.with(|it| it.outlast = outlast));
    }
    // A call that ends at once when the server is dead is not for these.
    while executor.protocol().silent_peers().probing == 0 {
        executor.poll();
        std::thread::yield_now();
    }
    assert!(executor.poll_outcome().is_none());
    let config =
        HostConfig::udp(hosts.server_addr).with(|it| (it.port, it.nic) = (hosts.port, nic()));
    let server = Host::open(config).unwrap();
    let (_region, [new, _]) = remote(&server, &hosts, 2);
    let over: Vec<_> = polls(&mut executor, 100).into_iter().flatten().collect();
    let expected = CallStatus::Failed(OpStatus::RemoteAuthenticationFailure);
    assert!(over.iter().all(|it| it.status == expected), "{over:?}");
    // It answers, so it is healthy: with the new grant all is as before.
    for _ in 0..100 {
        submit(&mut executor, &new, &local, RetryPolicy::NONE);
    }
    let over: Vec<_> = polls(&mut executor, 100).into_iter().flatten().collect();
    assert!(over.iter().all(|it| it.status == CallStatus::Ok), "{over:?}");
}

#[test]
fn futures_of_a_dead_server_go_on_with_a_replica() {
    const TASKS: usize = 500;
    let mut hosts = Hosts::over_udp(nic());
    let (_dead, [dead, _]) = remote(hosts.server(), &hosts, 1);
    let live = third(&hosts);
    let (_live, [replica, _]) = remote(&live, &hosts, 2);
    let pool = hosts.client.buffer_pool(TASKS as u32, 64).unwrap();
    let client = Client::new(hosts.client.transfers(64).unwrap());
    let (region, addr) = (dead.region, hosts.server_addr);
    hosts.server = None;
    let lookup = async || {
        let mut buf = pool.acquire().await;
        let (first, back) = client.read(&dead, 0, buf).retry(RetryPolicy::NONE).await;
        buf = back;
        let error = first.unwrap_err();
        let said = error.to_string();
        let named = format!("READ of region {region} at {addr}: ");
        assert!(said.starts_with(&named), "{said}");
        let TransferError::Failed(outcome) = error else { panic!("{said}") };
        let (second, buf) = client.read(&replica, 0, buf).await;
        second.unwrap();
        let mut byte = [0];
        buf.read(0, &mut byte).unwrap();
        assert_eq!(byte, [2]);
        outcome.missing[0].tried.is_some()
    };
    let mut tasks: Vec<Pin<Box<dyn Future<Output = bool>>>> = Vec::new();
    for _ in 0..TASKS {
        tasks.push(Box::pin(lookup()));
    }
    let mut tried = Vec::new();
    let all = poll_fn(|context| {
        tasks.retain_mut(|task| match task.as_mut().poll(context) {
            Poll::Ready(was_tried) => {
                tried.push(was_tried);
                false
            }
            Poll::Pending => true,
        });
        if tasks.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    });
    client.block_on(all).unwrap();
    let count = tried.iter().filter(|&&it| it).count();
    assert_eq!(tried.len(), TASKS);
    assert!((4..=65).contains(&count), "{count} of {TASKS} tried the dead one");
}
