//! Transfers of any size that an application polls or waits for, over UDP on loopback: what they
//! do, and what becomes of those that cannot be right or cannot end well.

use core::time::Duration;

use rma_tests::hosts::{CLIENT_PID, Hosts, Loopback};
use rma_xdp::{
    Call, CallStatus, Grant, Host, HostConfig, InlineHost, OpStatus, OpType, Permissions, Piece,
    RegisteredRegion, SubmitError, TransferError, Transfers, WaitError,
    ops::ClassOfService,
    time::{Clock, TscClock},
    transfer::{CallError, RetryPolicy, TransferOptions},
};

use super::{hosts, hosts_with, served};

/// A timeout that ops of a dead peer end soon by.
const IMPATIENT: Duration = Duration::from_millis(50);

const LEN: u64 = 300_001;

fn pattern(len: u64, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 251 + at) as u8 ^ seed).collect()
}

fn bytes(region: &RegisteredRegion, offset: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    region.read(offset, &mut bytes).unwrap();
    bytes
}

/// A region of the server's with a pattern, and grants for it.
struct Remote {
    region: RegisteredRegion,
    read: Grant,
    write: Grant,
}

fn remote(hosts: &Hosts) -> Remote {
    remote_at(hosts.server(), hosts)
}

fn remote_at(server: &Host, hosts: &Hosts) -> Remote {
    let (region, [read, write]) = served(server, hosts, &pattern(LEN, 7));
    Remote { region, read, write }
}

fn local(hosts: &Hosts) -> RegisteredRegion {
    hosts.client.register(LEN as usize, Permissions::NONE).unwrap()
}

fn slots(host: &Host) -> u16 {
    host.usage().unwrap().slots.available as u16
}

#[test]
fn large_transfers_arrive_whole_both_ways_also_through_a_single_slot() {
    let hosts = hosts();
    let Remote { region, read, write } = remote(&hosts);
    let local = local(&hosts);
    for slots in [1, 2, 64] {
        let mut executor = hosts.client.transfers(slots).unwrap();
        executor.read(&read, 1, &local, 0, LEN - 1).unwrap();
        assert_eq!(bytes(&local, 0, LEN - 1), pattern(LEN, 7)[1..]);
        local.write(0, &pattern(LEN, slots as u8)).unwrap();
        executor.write(&write, 0, &local, 0, LEN).unwrap();
        assert_eq!(bytes(&region, 0, LEN), pattern(LEN, slots as u8));
        region.write(0, &pattern(LEN, 7)).unwrap();
        assert_eq!(executor.calls(), 0);
    }
}

#[test]
fn a_blocking_transfer_has_the_options_that_it_is_given() {
    let mut hosts = hosts_with(IMPATIENT);
    let Remote { read, write, .. } = remote(&hosts);
    let local = local(&hosts);
    let mut executor = hosts.client.transfers(4).unwrap();
    let bulk = TransferOptions::new().class(ClassOfService::Throughput);
    executor.read_with(&read, 0, &local, 0, LEN, bulk).unwrap();
    assert_eq!(bytes(&local, 0, LEN), pattern(LEN, 7));

    hosts.server = None;
    let mut status = |options: TransferOptions| {
        let read = executor.read_with(&read, 0, &local, 0, 64, options).unwrap_err();
        let write = executor.write_with(&write, 0, &local, 0, 64, options).unwrap_err();
        let [read, write] = [read, write].map(|error| match error {
            TransferError::Failed(outcome) => (outcome.status, outcome.retries),
            other => panic!("{other}"),
        });
        (read, write)
    };
    // The deadline comes before the first op's timeout, and with it every retry that the policy has
    // left.
    let hasty = TransferOptions::new().timeout(Duration::ZERO);
    let exceeded = (CallStatus::DeadlineExceeded, 0);
    assert_eq!(status(hasty), (exceeded, exceeded));
    let (read, write) = status(TransferOptions::new().retry(RetryPolicy::NONE));
    assert_eq!((read.1, write.1), (0, 0), "nothing is retried");
    // The write meets a host that has not answered the read either.
    assert_eq!(read.0, CallStatus::Failed(OpStatus::Timeout));
    assert!(matches!(write.0, CallStatus::PeerSilent { .. }), "{}", write.0);
}

#[test]
fn an_impossible_transfer_is_refused_and_nothing_is_issued() {
    let hosts = hosts();
    let Remote { read, write, .. } = remote(&hosts);
    let local = local(&hosts);
    let mut executor = hosts.client.transfers(4).unwrap();
    let mut refused = |remote_offset, offset, len| match executor
        .read(&read, remote_offset, &local, offset, len)
        .unwrap_err()
    {
        TransferError::Refused(error) => error,
        other => panic!("{other}"),
    };
    assert_eq!(refused(0, 0, 0), CallError::EmptyPiece { piece: 0 });
    for (offset, len) in [(0, LEN + 1), (LEN, 1), (u64::MAX, 1), (1, u64::MAX), (u64::MAX, 2)] {
        let error = refused(offset, 0, len);
        assert!(matches!(error, CallError::RemoteOutOfBounds { .. }), "{error}");
    }
    for (offset, len) in [(1, LEN), (LEN, 1), (u64::MAX, LEN), (u64::MAX - 3, 4)] {
        let error = refused(0, offset, len);
        assert!(matches!(error, CallError::LocalOutOfBounds { .. }), "{error}");
    }
    let error = executor.read(&write, 0, &local, 0, 1).unwrap_err();
    let (granted, wanted) = (OpType::Write, OpType::Read);
    let expected = SubmitError::GrantForAnotherOpType { granted, wanted };
    assert_eq!(error, CallError::Submit { piece: 0, error: expected }.into());
    let piece = Piece { grant: &read, remote_offset: 0, local: &local, local_offset: 0, len: 9 };
    let overlapping = [piece, Piece { local_offset: 8, ..piece }];
    let error = executor.run(&Call::of(&overlapping)).unwrap_err();
    assert_eq!(error, CallError::Overlap { first: 0, second: 1 }.into());
    assert_eq!((executor.calls(), executor.poll()), (0, 0));
    assert_eq!(executor.wait_any().unwrap_err(), WaitError::NothingOutstanding);
    assert_eq!(bytes(&local, 0, LEN), vec![0; LEN as usize]);
}

#[test]
fn a_transfer_onto_its_own_source_ends_and_touches_nothing_else() {
    let hosts = hosts();
    let (me, len) = (&hosts.client, LEN / 2);
    let region = me.register(LEN as usize, Permissions::READ | Permissions::WRITE).unwrap();
    region.write(0, &pattern(LEN, 3)).unwrap();
    let grant =
        |op_type| me.grant(&region, hosts.client_addr, CLIENT_PID, op_type).expect("a grant");
    let mut executor = me.transfers(16).unwrap();
    executor.read(&grant(OpType::Read), 0, &region, 5000, len).unwrap();
    executor.write(&grant(OpType::Write), 5000, &region, 0, len).unwrap();
    let end = 5000 + len;
    assert_eq!(bytes(&region, 0, 5000), pattern(LEN, 3)[..5000]);
    assert_eq!(bytes(&region, end, LEN - end), pattern(LEN, 3)[end as usize..]);
}

#[test]
fn calls_go_on_beside_each_other_and_each_outcome_is_told_once() {
    let hosts = hosts();
    let Remote { read, .. } = remote(&hosts);
    let local = local(&hosts);
    let mut executor = hosts.client.transfers(8).unwrap();
    let piece = |index: u64| Piece {
        grant: &read,
        remote_offset: index * 10_000,
        local: &local,
        local_offset: index * 10_000,
        len: 10_000,
    };
    let mut ids: Vec<_> =
        (0..20).map(|index| executor.submit(&Call::of(&[piece(index)])).unwrap()).collect();
    let last = ids.pop().unwrap();
    assert_eq!(executor.wait(last).unwrap().status, CallStatus::Ok);
    let more = executor.run(&Call::of(&[piece(20)])).unwrap();
    assert_eq!(more.bytes_done, 10_000);
    while !ids.is_empty() {
        assert_eq!(executor.calls(), ids.len());
        let outcome = executor.wait_any().unwrap();
        assert_eq!(outcome.status, CallStatus::Ok);
        ids.remove(ids.iter().position(|&id| id == outcome.call).expect("told once"));
    }
    assert_eq!(executor.wait(last).unwrap_err(), WaitError::NothingOutstanding);
    assert_eq!(bytes(&local, 0, 210_000), pattern(LEN, 7)[..210_000]);
}

#[test]
fn outcomes_that_nobody_takes_count_as_calls() {
    let hosts = hosts();
    let Remote { read, .. } = remote(&hosts);
    let local = local(&hosts);
    let config = hosts.client.executor_config().with(|it| it.calls = 2);
    let mut executor = Transfers::new(hosts.client.portal(4).unwrap(), config).unwrap();
    let piece = [Piece { grant: &read, remote_offset: 0, local: &local, local_offset: 0, len: 64 }];
    let first = executor.submit(&Call::of(&piece)).unwrap();
    assert_eq!(executor.run(&Call::of(&piece)).unwrap().bytes_done, 64);
    executor.submit(&Call::of(&piece)).unwrap();
    let error = executor.submit(&Call::of(&piece)).unwrap_err();
    assert_eq!(error, CallError::TooManyCalls { calls: 2 });
    assert_eq!(executor.wait(first).unwrap().call, first);
    assert_eq!(executor.run(&Call::of(&piece)).unwrap().bytes_done, 64);
}

#[test]
fn a_peer_that_never_answers_ends_a_transfer_and_another_replica_has_the_rest() {
    let mut hosts = hosts_with(IMPATIENT);
    let first = remote(&hosts);
    let config = HostConfig::udp(Loopback::third()).with(|it| it.port = hosts.port);
    let other = Host::open(config).unwrap();
    let replica = remote_at(&other, &hosts);
    let local = local(&hosts);
    let mut executor = hosts.client.transfers(64).unwrap();
    let pieces =
        [Piece { grant: &first.read, remote_offset: 0, local: &local, local_offset: 0, len: LEN }];
    let call = Call::of(&pieces).with(|it| it.retry = RetryPolicy::NONE);
    let id = executor.submit(&call).unwrap();
    // It dies in the middle.
    executor.poll();
    hosts.server = None;
    let outcome = executor.wait(id).unwrap();
    assert_eq!(outcome.status, CallStatus::Failed(OpStatus::Timeout));
    let missing: u64 = outcome.missing.iter().map(|missing| missing.len).sum();
    assert_eq!(outcome.bytes_done + missing, LEN);
    assert!(missing > 0);
    let rest = outcome.remaining(&pieces, |_| &replica.read);
    let outcome = executor.run(&Call::of(&rest)).unwrap();
    assert_eq!((outcome.status, outcome.bytes_done), (CallStatus::Ok, missing));
    assert_eq!(bytes(&local, 0, LEN), pattern(LEN, 7));
    // And without another replica the error says what is missing.
    let error = executor.read(&first.read, 0, &local, 0, 5000).unwrap_err();
    let TransferError::Failed(outcome) = &error else { panic!("{error}") };
    assert_eq!(outcome.missing.iter().map(|missing| missing.len).sum::<u64>(), 5000);
    assert!(error.to_string().contains("0 bytes were transferred and 5000 are missing"), "{error}");
}

#[test]
fn a_deadline_ends_a_call_to_a_peer_that_never_answers() {
    let mut hosts = hosts_with(IMPATIENT);
    let Remote { read, .. } = remote(&hosts);
    hosts.server = None;
    let local = local(&hosts);
    let mut executor = hosts.client.transfers(4).unwrap();
    let pieces =
        [Piece { grant: &read, remote_offset: 0, local: &local, local_offset: 0, len: LEN }];
    let began = executor.now();
    let deadline = Some(began + Duration::from_millis(20));
    let retry = RetryPolicy::DEFAULT.with(|it| {
        it.timeouts = 255;
        it.refusals = 255;
    });
    let outcome = executor
        .run(&Call::of(&pieces).with(|it| {
            it.deadline = deadline;
            it.retry = retry;
        }))
        .unwrap();
    assert_eq!((outcome.status, outcome.bytes_done), (CallStatus::DeadlineExceeded, 0));
    assert!(executor.now().since(began) >= Duration::from_millis(20));
    assert_eq!(executor.calls(), 0);
}

#[test]
fn a_waiter_is_told_when_the_engine_ends() {
    let mut hosts = hosts();
    let Remote { read, .. } = remote(&hosts);
    hosts.server = None;
    let local = local(&hosts);
    let mut executor = hosts.client.transfers(4).unwrap();
    let piece =
        [Piece { grant: &read, remote_offset: 0, local: &local, local_offset: 0, len: LEN }];
    executor.submit(&Call::of(&piece)).unwrap();
    executor.poll();
    let waiting = std::thread::spawn(move || {
        let first = executor.wait_any().unwrap_err().into();
        [first, executor.read(&read, 0, &local, 0, LEN).unwrap_err()]
    });
    drop(hosts);
    for error in waiting.join().unwrap() {
        assert_eq!(error, TransferError::Unfinished(WaitError::EngineGone));
    }
}

#[test]
fn an_executor_dropped_in_the_middle_gives_its_slots_back_and_leaves_the_memory_alone() {
    let mut hosts = hosts_with(IMPATIENT);
    let Remote { read, .. } = remote(&hosts);
    let slots = slots(&hosts.client);
    for dead in [false, true] {
        if dead {
            hosts.server = None;
        }
        for polls in [0, 1, 5] {
            let local = local(&hosts);
            let piece = [Piece {
                grant: &read,
                remote_offset: 0,
                local: &local,
                local_offset: 0,
                len: LEN,
            }];
            let mut executor = hosts.client.transfers(slots).unwrap();
            executor.submit(&Call::of(&piece)).unwrap();
            for _ in 0..polls {
                executor.poll();
            }
            drop(executor);
            // The next executor waits for the slots of the last.
            hosts.client.deregister(&local).unwrap();
            drop(local);
        }
    }
    drop(hosts.client.portal(slots).unwrap());
}

#[test]
fn a_completion_queue_that_is_never_drained_stalls_its_own_ops_and_nobody_elses() {
    let hosts = hosts();
    let Remote { read, .. } = remote(&hosts);
    let (local, other) = (local(&hosts), local(&hosts));
    let mut lazy = hosts.client.transfers(4).unwrap();
    let piece =
        [Piece { grant: &read, remote_offset: 0, local: &local, local_offset: 0, len: LEN }];
    let call = lazy.submit(&Call::of(&piece)).unwrap();
    lazy.poll();
    let mut busy = hosts.client.transfers(4).unwrap();
    for _ in 0..5 {
        other.write(0, &vec![0; LEN as usize]).unwrap();
        busy.read(&read, 0, &other, 0, LEN).unwrap();
        assert_eq!(bytes(&other, 0, LEN), pattern(LEN, 7));
    }
    assert_ne!(bytes(&local, 0, LEN), pattern(LEN, 7), "four ops are all it gets");
    assert_eq!(lazy.wait(call).unwrap().status, CallStatus::Ok);
    assert_eq!(bytes(&local, 0, LEN), pattern(LEN, 7));
}

#[test]
fn transfers_of_an_inline_engine_make_progress_as_the_application_turns_it() {
    let Loopback { addresses: [here, there], port } = Loopback::unused();
    let open =
        |address| InlineHost::open(HostConfig::udp(address).with(|it| it.port = port)).unwrap();
    let (mut host, mut stranger) = (open(here), open(there));
    let region = host.register(LEN as usize, Permissions::READ).unwrap();
    region.write(0, &pattern(LEN, 1)).unwrap();
    let grant = host.grant(&region, here, host.pid(), OpType::Read).unwrap();
    let local = host.register(LEN as usize, Permissions::NONE).unwrap();
    let mut executor = host.transfers(16).unwrap();
    let piece =
        [Piece { grant: &grant, remote_offset: 0, local: &local, local_offset: 0, len: LEN }];
    let call = Call::of(&piece);
    let id = executor.submit(&call).unwrap();
    let outcome = host.wait(&mut executor.outcome_of(id)).unwrap();
    assert_eq!(outcome.status, CallStatus::Ok);
    assert_eq!(bytes(&local, 0, LEN), pattern(LEN, 1));
    let nothing = Err(WaitError::NothingOutstanding);
    assert_eq!(host.wait(&mut executor), nothing);
    executor.submit(&call).unwrap();
    assert_eq!(executor.wait_any(), Err(WaitError::InlineEngine));
    assert_eq!(stranger.wait(&mut executor), Err(WaitError::AnotherHost));
    let clock = TscClock::new();
    let outcome = loop {
        host.drive(&mut executor);
        if let Some(outcome) = executor.poll_outcome() {
            break outcome;
        }
        assert!(clock.now().as_nanos() < 20_000_000_000);
    };
    assert_eq!(outcome.bytes_done, LEN);
    let refused = executor.read(&grant, 0, &local, 0, 64).unwrap_err();
    assert_eq!(refused, TransferError::Unfinished(WaitError::InlineEngine));
    assert_eq!(executor.calls(), 0);
}
