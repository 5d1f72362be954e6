//! Futures of several pieces and buffers, and fences between futures.

use core::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rma_tests::hosts::{CLIENT_PID, Hosts, Loopback};
use rma_xdp::{
    BufferPool, CallStatus, Client, Grant, Host, HostConfig, OpStatus, OpType, Permissions,
    RegionBuf, RegisteredRegion, TransferError,
    memory::BufPiece,
    time::{Clock, TscClock},
    transfer::{CallError, RetryPolicy},
};

use super::{hosts, hosts_with, poll_once, served};

/// A timeout that ops of a dead peer end soon by.
const IMPATIENT: Duration = Duration::from_millis(40);

/// The length of a buffer: several ops.
const BUF: usize = 20_000;

/// The length of the server's region.
const LEN: usize = 10 * BUF;

/// Returns the byte of the server's region at `at`.
fn data(at: usize) -> u8 {
    (at / 251 + at) as u8
}

fn remote(server: &Host, hosts: &Hosts) -> (RegisteredRegion, Grant, Grant) {
    let (region, [read, write]) = served(server, hosts, &(0..LEN).map(data).collect::<Vec<_>>());
    (region, read, write)
}

fn client(hosts: &Hosts, bufs: u32) -> (Client, BufferPool) {
    let client = Client::new(hosts.client.transfers(32).unwrap());
    (client, hosts.client.buffer_pool(bufs, BUF as u32).unwrap())
}

/// Two servers with the same data, of which one is dead.
struct TwoServers {
    // Dropped in this order.
    client: Client,
    pool: BufferPool,
    dead: Grant,
    alive: Grant,
    _data: RegisteredRegion,
    _server: Host,
    _hosts: Hosts,
}

fn one_is_dead() -> TwoServers {
    let mut hosts = hosts_with(IMPATIENT);
    let (_, dead, _) = remote(hosts.server(), &hosts);
    let (client, pool) = client(&hosts, 3);
    let config = HostConfig::udp(Loopback::third()).with(|it| it.port = hosts.port);
    let server = Host::open(config).unwrap();
    let (data, alive, _) = remote(&server, &hosts);
    hosts.server = None;
    TwoServers { client, pool, dead, alive, _data: data, _server: server, _hosts: hosts }
}

/// A buffer with nothing but `byte`.
fn filled(pool: &BufferPool, byte: u8) -> RegionBuf {
    let mut buf = pool.try_acquire().unwrap();
    buf.write(0, &[byte; BUF]).unwrap();
    buf
}

/// The three runs of bytes that the tests read and write: long and short ones, two in the second
/// buffer.
fn pieces(grant: Grant) -> Vec<BufPiece> {
    vec![
        BufPiece { grant, remote_offset: 3 * BUF as u64, buf: 1, buf_offset: 100, len: 15_000 },
        BufPiece { grant, remote_offset: 7, buf: 0, buf_offset: 0, len: BUF },
        BufPiece { grant, remote_offset: 5 * BUF as u64, buf: 1, buf_offset: 19_999, len: 1 },
    ]
}

/// Waits for both, which are first polled in this order.
async fn join<A: Future, B: Future>(first: A, second: B) -> (A::Output, B::Output) {
    let (mut first, mut second) = (Box::pin(first), Box::pin(second));
    let (mut one, mut other) = (None, None);
    core::future::poll_fn(|context| {
        fn step<F: Future>(
            future: &mut Pin<Box<F>>,
            output: &mut Option<F::Output>,
            context: &mut Context<'_>,
        ) {
            if output.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *output = Some(ready);
            }
        }
        step(&mut first, &mut one, context);
        step(&mut second, &mut other, context);
        if one.is_some() && other.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (one.unwrap(), other.unwrap())
}

#[test]
fn pieces_land_in_their_buffers_and_come_from_them_and_nothing_else_changes() {
    let hosts = hosts();
    let (region, read, write) = remote(hosts.server(), &hosts);
    let (client, pool) = client(&hosts, 4);
    let bufs = vec![filled(&pool, 1), filled(&pool, 2)];
    let (result, bufs) = client.block_on(client.read_pieces(pieces(read), bufs)).unwrap();
    result.unwrap();
    let [first, second] = [&bufs[0], &bufs[1]].map(RegionBuf::to_vec);
    assert!(first.iter().enumerate().all(|(at, &byte)| byte == data(7 + at)));
    for (at, &byte) in second.iter().enumerate() {
        let expected = match at {
            100..15_100 => data(3 * BUF + at - 100),
            19_999 => data(5 * BUF),
            _ => 2,
        };
        assert_eq!(byte, expected, "at {at}");
    }

    // The same way back.
    let (result, bufs) = {
        let mut bufs = bufs;
        bufs.iter_mut().for_each(|buf| buf.write(0, &[0xee; BUF]).unwrap());
        client.block_on(client.write_pieces(pieces(write), bufs)).unwrap()
    };
    result.unwrap();
    let mut now = vec![0; LEN];
    region.read(0, &mut now).unwrap();
    let written = [(7, BUF), (3 * BUF, 15_000), (5 * BUF, 1)];
    for (at, &byte) in now.iter().enumerate() {
        let is_written = written.iter().any(|&(start, len)| (start..start + len).contains(&at));
        assert_eq!(byte, if is_written { 0xee } else { data(at) }, "at {at}");
    }
    drop(bufs);
    assert_eq!((pool.free(), client.calls()), (4, 0));
}

#[test]
fn pieces_that_cannot_be_right_are_refused_with_their_number_and_the_buffers_come_back() {
    let hosts = hosts();
    let (_region, read, write) = remote(hosts.server(), &hosts);
    let (client, pool) = client(&hosts, 3);
    let refused = |change: &dyn Fn(&mut Vec<BufPiece>)| {
        let mut pieces = pieces(read);
        change(&mut pieces);
        let mut bufs = vec![filled(&pool, 1), filled(&pool, 2)];
        bufs[1].set_len(19_999 + 1);
        let (result, bufs) = client.block_on(client.read_pieces(pieces, bufs)).unwrap();
        assert_eq!((bufs.len(), client.calls()), (2, 0));
        assert_eq!(bufs.iter().map(|buf| buf.to_vec()[0]).collect::<Vec<_>>(), [1, 2]);
        match result.unwrap_err() {
            TransferError::Refused(error) => error,
            other => panic!("{other}"),
        }
    };
    // The next buffer of the pool is not theirs.
    let error = refused(&|pieces| pieces[2].len = 2);
    assert!(
        matches!(error, CallError::OutsideBuffer { piece: 2, buffer_len: 20_000, .. }),
        "{error}"
    );
    let error = refused(&|pieces| pieces[1].buf_offset = usize::MAX);
    assert!(
        matches!(error, CallError::OutsideBuffer { piece: 1, buffer_len: 20_000, .. }),
        "{error}"
    );
    let error = refused(&|pieces| pieces[0].buf_offset = 5000);
    assert_eq!(error, CallError::Overlap { first: 0, second: 2 });
    let error = refused(&|pieces| pieces[1].len = 0);
    assert_eq!(error, CallError::EmptyPiece { piece: 1 });
    let error = refused(&|pieces| pieces[2].grant = write);
    assert!(matches!(error, CallError::Submit { piece: 2, .. }), "{error}");
    assert_eq!(refused(&Vec::clear), CallError::Pieces { pieces: 0 });
    let no_such_buffer = || client.read_pieces(pieces(read), vec![filled(&pool, 1)]);
    assert!(catch_unwind(AssertUnwindSafe(no_such_buffer)).is_err());
    assert_eq!((pool.free(), client.calls()), (3, 0));
}

#[test]
fn a_replica_has_the_pieces_that_the_first_host_left_missing() {
    let mut hosts = hosts_with(IMPATIENT);
    let (_region, read, _) = remote(hosts.server(), &hosts);
    let config = HostConfig::udp(Loopback::third()).with(|it| it.port = hosts.port);
    let replica = Host::open(config).unwrap();
    let (_copy, read_copy, _) = remote(&replica, &hosts);
    hosts.server = None;
    let (client, pool) = client(&hosts, 2);
    let fail_over = async {
        let bufs = vec![filled(&pool, 1), filled(&pool, 2)];
        let (first, bufs) = client.read_pieces(pieces(read), bufs).retry(RetryPolicy::NONE).await;
        let Err(TransferError::Failed(outcome)) = first else { panic!("{first:?}") };
        assert_eq!(outcome.status, CallStatus::Failed(OpStatus::Timeout));
        // Fewer pieces have not what is missing.
        let less = pieces(read_copy)[..1].to_vec();
        let (less, bufs) = client.read_pieces(less, bufs).remaining(&outcome).await;
        let Err(TransferError::Refused(error)) = less else { panic!("{less:?}") };
        assert!(matches!(error, CallError::NotOfThisTransfer { piece: 1, .. }), "{error}");
        let (second, bufs) = client.read_pieces(pieces(read_copy), bufs).remaining(&outcome).await;
        second.unwrap();
        bufs
    };
    let bufs = client.block_on(fail_over).unwrap();
    assert!(bufs[0].to_vec().iter().enumerate().all(|(at, &byte)| byte == data(7 + at)));
    assert_eq!(bufs[1].to_vec()[19_999], data(5 * BUF));
}

#[test]
fn one_replica_after_the_other_has_the_pieces_that_all_before_it_left_missing() {
    let hosts = hosts();
    let (_region, read, _) = remote(hosts.server(), &hosts);
    // Regions that are shorter than their grants say: ops beyond fail.
    let cut_off = |len: usize| {
        let region = hosts.server().register(len, Permissions::READ).unwrap();
        region.write(0, &(0..len).map(data).collect::<Vec<_>>()).unwrap();
        let grant = hosts.server().grant(&region, hosts.client_addr, CLIENT_PID, OpType::Read);
        (region, Grant { region_len: LEN as u64, ..grant.unwrap() })
    };
    // The first has a part of the second piece, the other one more of it, and none has the third.
    let (first, second) = (cut_off(3 * BUF + 5_000), cut_off(3 * BUF + 11_000));
    let (client, pool) = client(&hosts, 2);
    let pieces = |grant| {
        let mut pieces = pieces(grant);
        pieces.swap(0, 1);
        pieces
    };
    let fail_over = async {
        let bufs = vec![filled(&pool, 1), filled(&pool, 2)];
        let (result, bufs) = client.read_pieces(pieces(first.1), bufs).await;
        let Err(TransferError::Failed(outcome)) = result else { panic!("{result:?}") };
        let missing = outcome.missing[0];
        assert!(missing.piece == 1 && missing.offset > 0, "{outcome:?}");
        // A refusal names the piece as the application does.
        let mut wrong = pieces(read);
        wrong[1].remote_offset = LEN as u64;
        let (result, bufs) = client.read_pieces(wrong, bufs).remaining(&outcome).await;
        let Err(TransferError::Refused(error)) = result else { panic!("{result:?}") };
        assert!(matches!(error, CallError::RemoteOutOfBounds { piece: 1, .. }), "{error}");
        let (result, bufs) = client.read_pieces(pieces(second.1), bufs).remaining(&outcome).await;
        let Err(TransferError::Failed(outcome)) = result else { panic!("{result:?}") };
        let left = outcome.missing[0];
        assert!(left.piece == 1 && left.offset > missing.offset, "{outcome:?}");
        assert_eq!(outcome.missing.last().unwrap().piece, 2, "{outcome:?}");
        let (result, bufs) = client.read_pieces(pieces(read), bufs).remaining(&outcome).await;
        result.unwrap();
        bufs
    };
    let bufs = client.block_on(fail_over).unwrap();
    assert!(bufs[0].to_vec().iter().enumerate().all(|(at, &byte)| byte == data(7 + at)));
    let second = bufs[1].to_vec();
    assert!((0..15_000).all(|at| second[100 + at] == data(3 * BUF + at)));
    assert_eq!(second[19_999], data(5 * BUF));
}

#[test]
fn buffers_of_a_dropped_call_of_several_are_the_pools_again_when_it_is_over() {
    let mut hosts = hosts_with(IMPATIENT);
    let (_region, read, _) = remote(hosts.server(), &hosts);
    hosts.server = None;
    let (client, pool) = client(&hosts, 3);
    let bufs = vec![filled(&pool, 1), filled(&pool, 2)];
    let mut call = client.read_pieces(pieces(read), bufs);
    assert!(poll_once(&mut call).is_pending());
    drop(call);
    assert_eq!((pool.free(), client.calls()), (1, 1), "its ops are under way");
    let clock = TscClock::new();
    while client.calls() > 0 {
        assert!(clock.now().as_nanos() < 20_000_000_000);
        client.poll();
    }
    assert_eq!(pool.free(), 3);
    // And of one that was never polled, at once.
    let bufs = vec![filled(&pool, 1), filled(&pool, 2)];
    drop(client.read_pieces(pieces(read), bufs));
    assert_eq!(pool.free(), 3);
}

#[test]
fn a_fenced_transfer_begins_when_what_was_submitted_before_is_over() {
    let hosts = hosts();
    let (_region, read, write) = remote(hosts.server(), &hosts);
    let (client, pool) = client(&hosts, 2);
    for turn in 0..50 {
        let (written, sink) = (filled(&pool, turn), filled(&pool, 0xff));
        let both = async {
            let first = client.write(&write, 0, written);
            if turn % 2 == 0 {
                return join(first, client.read(&read, 0, sink).fenced()).await;
            }
            // Between the two.
            let after = async {
                client.fence();
                client.read(&read, 0, sink).await
            };
            join(first, after).await
        };
        let ((written, _buf), (done, buf)) = client.block_on(both).unwrap();
        written.unwrap();
        done.unwrap();
        assert!(buf.to_vec() == [turn; BUF], "turn {turn}: it has read what was there before");
    }
}

#[test]
fn a_fence_is_passed_when_what_was_before_it_is_given_up() {
    let TwoServers { dead: read, alive: read_alive, client, pool, .. } = &one_is_dead();
    let mut before = client.read(read, 0, filled(pool, 1));
    assert!(poll_once(&mut before).is_pending());
    let mut dropped = client.read(read_alive, 0, filled(pool, 1)).fenced();
    assert!(poll_once(&mut dropped).is_pending());
    let mut after = client.read(read_alive, 0, filled(pool, 1)).fenced();
    assert!(poll_once(&mut after).is_pending());
    // Of a call that waits for a fence nothing is under way.
    drop(dropped);
    assert_eq!((pool.free(), client.calls()), (1, 2));
    drop(before);
    let (result, buf) = client.block_on(after).unwrap();
    result.unwrap();
    assert_eq!(buf.to_vec()[1], data(1));
    drop(buf);
    assert_eq!((pool.free(), client.calls()), (3, 0));
}

#[test]
fn a_fenced_transfer_that_is_refused_keeps_nobody_waiting() {
    let TwoServers { dead: read, alive: read_alive, client, pool, .. } = &one_is_dead();
    let mut slow = client
        .read(read, 0, filled(pool, 1))
        .retry(RetryPolicy::DEFAULT.with(|it| {
            it.timeouts = 255;
            it.refusals = 255;
        }))
        .timeout(Duration::from_secs(5));
    assert!(poll_once(&mut slow).is_pending());
    let outside = client.read(read_alive, LEN as u64, filled(pool, 1)).fenced();
    assert!(client.block_on(outside).unwrap().0.is_err());
    let (result, _buf) = client.block_on(client.read(read_alive, 0, filled(pool, 1))).unwrap();
    result.unwrap();
    assert!(poll_once(&mut slow).is_pending(), "what came after the refused one waited for it");
}
