//! Calls of one recorded op that an application polls or waits for, and questions about an op in
//! doubt, over UDP on loopback.

use core::time::Duration;
use std::collections::BTreeSet;

use rma_tests::hosts::{CLIENT_PID, Hosts, Loopback};
use rma_xdp::{
    Call, CallStatus, Grant, Host, HostConfig, InlineHost, OpStatus, OpType, Permissions, Piece,
    Publish, ReceiveQueue, RegisteredRegion, SubmitError, TransferError, Transfers, WaitError,
    config::{NicConfigBuilder, Timing},
    messages::{Event, ReceiveQueueLayout},
    ops::{Change, Placement, Settlement, Source, Verdict},
    transfer::{CallError, OpCall, RetryPolicy},
};

use super::{futures::until, hosts, hosts_with};

/// A timeout that ops end soon by which nobody answers.
const IMPATIENT: Duration = Duration::from_millis(100);

/// The time within which a server that is turned answers.
const PATIENCE: Duration = Duration::from_secs(30);

fn grant(hosts: &Hosts, region: &RegisteredRegion, op_type: OpType) -> Grant {
    hosts.server().grant(region, hosts.client_addr, CLIENT_PID, op_type).unwrap()
}

/// A queue of the server's with two receives of 4 KiB, and a region whose writes make events there.
fn queue_and_region(hosts: &Hosts) -> (ReceiveQueue, RegisteredRegion) {
    let layout = ReceiveQueueLayout::new(2, 4096).unwrap();
    let both = Permissions::SEND | Permissions::NOTIFY;
    let mut queue = hosts.server().receive_queue(layout, both).unwrap();
    queue.post_all();
    let all = Permissions::WRITE | Permissions::NOTIFY | Permissions::ATOMIC;
    let region = hosts.server().register_with_events(&queue, 1 << 16, all).unwrap();
    (queue, region)
}

fn event(queue: &mut ReceiveQueue) -> Event {
    let event = queue.poll().expect("its event is there when a call is OK");
    queue.post(event.receive).unwrap();
    event
}

#[test]
fn every_recorded_op_runs_to_its_end_and_its_outcome_says_what_it_found() {
    let hosts = hosts();
    let (mut queue, region) = queue_and_region(&hosts);
    let local = hosts.client.register(4096, Permissions::NONE).unwrap();
    let bytes: Vec<u8> = (0..4096).map(|at| (at * 7 % 251) as u8).collect();
    local.write(0, &bytes).unwrap();
    let mut executor = hosts.client.transfers(4).unwrap();
    let mut run = |region: &RegisteredRegion, change: Change<'_>, len: u64| {
        let grant = grant(&hosts, region, change.op_type());
        let outcome = executor.run_op(&OpCall::of(&grant, change)).unwrap();
        assert_eq!(outcome.status, CallStatus::Ok, "{change:?}");
        assert_eq!((outcome.op_type, outcome.region), (change.op_type(), region.id()));
        assert_eq!((outcome.bytes_done, outcome.retries), (len, 0));
        assert_eq!((outcome.in_doubt, outcome.verdict), (None, None));
        assert!(outcome.missing.is_empty() && executor.calls() == 0);
        outcome.result
    };
    let message = Source { region: &local, offset: 0, len: 4096 };
    assert_eq!(run(queue.region(), Change::Send { message, immediate: 1 }, 4096), None);
    let sent = queue.poll().unwrap();
    let mut arrived = vec![0; 4096];
    queue.read(&sent, &mut arrived).unwrap();
    assert!((sent.op_type, sent.immediate) == (OpType::Send, 1) && arrived == bytes);
    queue.post(sent.receive).unwrap();
    assert_eq!(run(queue.region(), Change::Notify { immediate: 2 }, 8), None);
    assert_eq!(event(&mut queue).immediate, 2);
    for (placement, immediate) in [(Placement::Any, 3), (Placement::Ordered, 4)] {
        let source = Source { len: 1000, ..message };
        let change = Change::WriteWithImm { remote_offset: 8, source, immediate, placement };
        assert_eq!(run(&region, change, 1000), None);
        let told = event(&mut queue);
        assert_eq!((told.immediate, told.region_offset, told.len), (immediate, 8, 1000));
    }
    let source = Source { len: 64, ..message };
    assert_eq!(run(&region, Change::OrderedWrite { remote_offset: 8192, source }, 64), None);
    region.read(8192, &mut arrived[..64]).unwrap();
    assert_eq!(arrived[..64], bytes[..64]);
    region.store(0, 5).unwrap();
    let swap = |expected, new| Change::CompareSwap { remote_offset: 0, expected, new };
    assert_eq!(run(&region, swap(5, 6), 16), Some(5));
    assert_eq!(run(&region, swap(5, 7), 16), Some(6), "it was not what was expected");
    assert_eq!(run(&region, Change::FetchAdd { remote_offset: 0, addend: u64::MAX }, 8), Some(6));
    assert_eq!(region.load(0), Ok(5), "modulo 2^64");
    assert!(queue.poll().is_none(), "there is no other event");
}

#[test]
fn ops_go_on_beside_transfers_and_each_outcome_is_told_once() {
    const TICKETS: u64 = 24;
    let hosts = hosts();
    let (_queue, region) = queue_and_region(&hosts);
    let [to_write, to_add] =
        [OpType::Write, OpType::FetchAdd].map(|op_type| grant(&hosts, &region, op_type));
    let local = hosts.client.register(1 << 15, Permissions::NONE).unwrap();
    let mut executor = hosts.client.transfers(8).unwrap();
    let (remote_offset, local_offset, len) = (1 << 15, 0, 1 << 15);
    let piece = Piece { grant: &to_write, remote_offset, local: &local, local_offset, len };
    let write = executor.submit(&Call::of(core::slice::from_ref(&piece))).unwrap();
    let add = OpCall::of(&to_add, Change::FetchAdd { remote_offset: 0, addend: 1 });
    let mut calls: BTreeSet<_> =
        (0..TICKETS).map(|_| executor.submit_op(&add).unwrap()).chain([write]).collect();
    // One that is waited for by itself, while the others' outcomes are kept.
    let last = executor.run_op(&add).unwrap();
    let mut tickets = BTreeSet::from([last.result.unwrap()]);
    while executor.calls() > 0 {
        let outcome = executor.wait_any().unwrap();
        assert_eq!(outcome.status, CallStatus::Ok);
        assert!(calls.remove(&outcome.call), "told once");
        tickets.extend(outcome.result);
    }
    assert!(calls.is_empty());
    assert!(tickets.into_iter().eq(0..=TICKETS), "each ticket is drawn once");
    assert_eq!(executor.wait_any(), Err(WaitError::NothingOutstanding));
}

#[test]
fn a_fenced_op_and_one_that_comes_after_another_see_what_that_did() {
    let hosts = hosts();
    let (_queue, region) = queue_and_region(&hosts);
    let [to_write, to_add] =
        [OpType::Write, OpType::FetchAdd].map(|op_type| grant(&hosts, &region, op_type));
    let local = hosts.client.register(1 << 15, Permissions::NONE).unwrap();
    local.store((1 << 15) - 8, 100).unwrap();
    let mut executor = hosts.client.transfers(8).unwrap();
    let (remote_offset, local_offset, len) = (8, 0, 1 << 15);
    let piece = Piece { grant: &to_write, remote_offset, local: &local, local_offset, len };
    let write = Call::of(core::slice::from_ref(&piece)).with(|it| it.publish = Publish::Ordered);
    let add = OpCall::of(&to_add, Change::FetchAdd { remote_offset: 1 << 15, addend: 1 });
    for fenced in [true, false] {
        region.store(1 << 15, 0).unwrap();
        let first = executor.submit(&write).unwrap();
        let second = if fenced {
            executor.submit_op_fenced(&add).unwrap()
        } else {
            executor.submit_op(&add.with(|it| it.after = [Some(first), None])).unwrap()
        };
        assert_eq!(executor.wait(second).unwrap().result, Some(100), "the last word was there");
        assert_eq!(executor.wait(first).unwrap().status, CallStatus::Ok);
    }
}

#[test]
fn an_op_that_cannot_be_right_is_refused_and_nothing_is_issued() {
    let hosts = hosts();
    let (mut queue, region) = queue_and_region(&hosts);
    let local = hosts.client.register(8192, Permissions::NONE).unwrap();
    let [to_send, to_add] = [(queue.region(), OpType::Send), (&region, OpType::FetchAdd)]
        .map(|(region, op_type)| grant(&hosts, region, op_type));
    let mut executor = hosts.client.transfers(4).unwrap();
    let mut refused = |grant: &Grant, change| {
        let call = OpCall::of(grant, change);
        let refused = executor.run_op(&call).unwrap_err();
        assert_eq!(executor.calls(), 0);
        match refused {
            TransferError::Refused(error) => error,
            other => panic!("{other}"),
        }
    };
    let submit = |error: CallError| match error {
        CallError::Submit { piece: 0, error } => error,
        other => panic!("{other}"),
    };
    let message = Source { region: &local, offset: 0, len: 4097 };
    let long = refused(&to_send, Change::Send { message, immediate: 0 });
    assert!(matches!(submit(long), SubmitError::OpSize { .. }), "{long}");
    let wrong = refused(&to_send, Change::Notify { immediate: 0 });
    assert!(matches!(submit(wrong), SubmitError::GrantForAnotherOpType { .. }), "{wrong}");
    let odd = refused(&to_add, Change::FetchAdd { remote_offset: 12, addend: 1 });
    assert!(matches!(submit(odd), SubmitError::Misaligned { .. }), "{odd}");
    let outside = refused(&to_add, Change::FetchAdd { remote_offset: 1 << 16, addend: 1 });
    assert!(matches!(outside, CallError::RemoteOutOfBounds { .. }), "{outside}");
    assert!(queue.poll().is_none());
    assert_eq!(region.load(0), Ok(0));
}

#[test]
fn a_receiver_that_is_late_is_waited_for_and_one_that_never_posts_is_told_of() {
    let hosts = hosts();
    let layout = ReceiveQueueLayout::new(1, 0).unwrap();
    let mut queue = hosts.server().receive_queue(layout, Permissions::NOTIFY).unwrap();
    let to_notify = grant(&hosts, queue.region(), OpType::Notify);
    let mut executor = hosts.client.transfers(4).unwrap();
    let call = OpCall::of(&to_notify, Change::Notify { immediate: 9 });
    let at_once = executor.run_op(&call.with(|it| it.retry.not_ready = Duration::ZERO)).unwrap();
    assert_eq!(at_once.status, CallStatus::Failed(OpStatus::RemoteNotReady));
    assert_eq!((at_once.result, at_once.in_doubt), (None, None));
    let patient = call.with(|it| it.retry.not_ready = Duration::from_secs(60));
    let waits = executor.submit_op(&patient).unwrap();
    let refused = || {
        let completions = hosts.client.metrics().completions;
        let of = |&(status, count)| (status == OpStatus::RemoteNotReady).then_some(count);
        completions.iter().find_map(of).unwrap()
    };
    until("it has been refused twice", || {
        executor.poll();
        refused() > 2
    });
    assert!(executor.poll_outcome().is_none());
    queue.post_all();
    assert_eq!(executor.wait(waits).unwrap().status, CallStatus::Ok);
    assert_eq!(queue.poll().map(|event| event.immediate), Some(9));
}

/// A server that answers when it is turned, with a word to count in; and a client of it.
struct Silent {
    server: InlineHost,
    region: RegisteredRegion,
    to_add: Grant,
    client: Host,
}

impl Silent {
    fn new() -> Self {
        let Loopback { addresses: [here, there], port } = Loopback::unused();
        let timing = Timing::software(Duration::from_micros(10), IMPATIENT);
        let nic = NicConfigBuilder::default().with(|it| it.timing = timing);
        let config = |address| {
            HostConfig::udp(address).with(|it| {
                (it.port, it.nic, it.pid) = (port, nic, CLIENT_PID);
            })
        };
        let server = InlineHost::open(config(there)).unwrap();
        let client = Host::open(config(here)).unwrap();
        let region = server.register(64, Permissions::ATOMIC).unwrap();
        let to_add = server.grant(&region, here, CLIENT_PID, OpType::FetchAdd).unwrap();
        Self { server, region, to_add, client }
    }

    /// Turns the server until it has asked for the data of an op, and no further; or until that op
    /// `is_over`, as this thread did not run for so long.
    fn ask_for_data(&mut self, mut is_over: impl FnMut() -> bool) {
        let sent = |server: &InlineHost| server.metrics().nic.frames_sent;
        let before = sent(&self.server);
        let server = &mut self.server;
        until("it asks for the data", || {
            server.turn();
            sent(server) > before || is_over()
        });
    }
}

#[test]
fn an_op_in_doubt_has_a_name_and_its_target_tells_what_became_of_it() {
    let mut silent = Silent::new();
    silent.region.store(0, 7).unwrap();
    let mut executor: Transfers = silent.client.transfers(4).unwrap();
    let add = Change::FetchAdd { remote_offset: 0, addend: 1 };
    let to_add = silent.to_add;
    let call = OpCall::of(&to_add, add).with(|it| it.retry = RetryPolicy::NONE);
    let outcome = loop {
        let lost = executor.submit_op(&call).unwrap();
        let mut over = None;
        silent.ask_for_data(|| {
            executor.poll();
            over = over.take().or_else(|| executor.poll_outcome());
            over.is_some()
        });
        // It stands still now, with the data under way to it.
        let outcome = over.unwrap_or_else(|| executor.wait(lost).unwrap());
        if outcome.status == CallStatus::Unknown {
            break outcome;
        }
        assert_eq!(outcome.in_doubt, None, "it had not asked in time");
    };
    assert_eq!((outcome.op_type, outcome.result), (OpType::FetchAdd, None));
    let name = outcome.in_doubt.expect("it has asked for the data, by a name");
    assert_eq!(outcome.missing[0].tried, Some(OpStatus::Timeout));
    // Nobody answers yet: it is as much in doubt as before.
    let Err(TransferError::Unknown(outcome)) = executor.settle(&to_add, name) else {
        panic!("nobody can have answered")
    };
    assert_eq!((outcome.in_doubt, outcome.verdict), (Some(name), None));
    let deadline = executor.now() + PATIENCE;
    let asks = executor.submit_settle(&to_add, name, Some(deadline)).unwrap();
    let mut told = None;
    until("it tells", || {
        silent.server.turn();
        executor.poll();
        told = told.take().or_else(|| executor.poll_outcome());
        told.is_some()
    });
    let told = told.unwrap();
    assert_eq!((told.call, told.status), (asks, CallStatus::Ok));
    assert_eq!((told.verdict, told.result), (Some(Verdict::NotApplied), None));
    assert_eq!(silent.region.load(0), Ok(7), "the data came too late");
}

#[test]
fn an_op_whose_end_is_known_may_be_asked_about_as_well() {
    let hosts = hosts();
    let (_queue, region) = queue_and_region(&hosts);
    let to_add = grant(&hosts, &region, OpType::FetchAdd);
    let mut portal = hosts.client.portal(1).unwrap();
    region.store(0, 40).unwrap();
    portal.fetch_add(&to_add, 0, 2).unwrap();
    let name = portal.wait().unwrap().name().unwrap();
    let config = hosts.client.executor_config();
    let mut executor = Transfers::new(hosts.client.portal(1).unwrap(), config).unwrap();
    let told = executor.settle(&to_add, name);
    assert_eq!(told, Ok(Settlement { verdict: Verdict::Applied, result: Some(40) }));
    let to_write = grant(&hosts, &region, OpType::Read);
    let error = SubmitError::NotRecorded { op_type: OpType::Read };
    let refused = Err(TransferError::Refused(CallError::Submit { piece: 0, error }));
    assert_eq!(executor.settle(&to_write, name), refused);
}

#[test]
fn a_waiter_for_an_op_is_told_when_the_engine_ends() {
    let mut hosts = hosts_with(Duration::from_secs(30));
    let (_queue, region) = queue_and_region(&hosts);
    let to_add = grant(&hosts, &region, OpType::FetchAdd);
    hosts.server = None;
    let mut executor = hosts.client.transfers(4).unwrap();
    let add = OpCall::of(&to_add, Change::FetchAdd { remote_offset: 0, addend: 1 });
    let call = executor.submit_op(&add).unwrap();
    executor.poll();
    drop(hosts);
    assert_eq!(executor.wait(call), Err(WaitError::EngineGone));
    assert_eq!(executor.run_op(&add), Err(TransferError::Unfinished(WaitError::EngineGone)));
}

#[test]
fn ops_of_an_inline_engine_make_progress_as_the_application_turns_it() {
    let Loopback { addresses: [here, there], port } = Loopback::unused();
    let open =
        |address| InlineHost::open(HostConfig::udp(address).with(|it| it.port = port)).unwrap();
    let (mut host, mut stranger) = (open(here), open(there));
    let region = host.register(64, Permissions::ATOMIC).unwrap();
    let to_add = host.grant(&region, here, host.pid(), OpType::FetchAdd).unwrap();
    let mut executor = host.transfers(4).unwrap();
    let add = OpCall::of(&to_add, Change::FetchAdd { remote_offset: 8, addend: 3 });
    for round in 0..5 {
        let call = executor.submit_op(&add).unwrap();
        let outcome = host.wait(&mut executor.outcome_of(call)).unwrap();
        assert_eq!(outcome.result, Some(3 * round));
    }
    executor.submit_op(&add).unwrap();
    assert_eq!(host.wait(&mut executor).unwrap().result, Some(15));
    assert_eq!(stranger.wait(&mut executor), Err(WaitError::AnotherHost));
    let waits = executor.run_op(&add);
    assert_eq!(waits, Err(TransferError::Unfinished(WaitError::InlineEngine)));
}
