//! Messages, events and atomics as futures: awaited beside transfers, dropped at any moment, and
//! left in doubt.

use std::collections::BTreeSet;

use rma_xdp::{
    messages::{ReceiveQueueLayout, Receiver},
    ops::Verdict,
};

use super::*;

/// Sleeps at once: whoever goes on was woken.
fn sleepy(mut executor: Transfers) -> Transfers {
    executor.set_idle(IdlePolicy::default().with(|it| {
        it.spin = Duration::ZERO;
        it.yield_for = Duration::ZERO;
        it.sleep = true;
    }));
    executor
}

/// The receiving end of messages and events at the server.
struct Receiving {
    client: Client,
    receiver: Receiver,
    /// Writes with an immediate to it make events there.
    region: RegisteredRegion,
}

impl Receiving {
    fn new(server: &Host, receives: u16) -> Self {
        let portal = server.portal(8).unwrap();
        let layout = ReceiveQueueLayout::new(receives, 4096).unwrap();
        let both = Permissions::SEND | Permissions::NOTIFY;
        let queue = server.waking(&portal).receive_queue(layout, both).unwrap();
        let all = Permissions::WRITE | Permissions::NOTIFY | Permissions::ATOMIC;
        let region = server.register_with_events(&queue, LEN, all).unwrap();
        let executor = Transfers::new(portal, server.executor_config()).unwrap();
        let client = Client::new(sleepy(executor));
        let receiver = client.receiver(queue);
        assert_eq!((receiver.posted(), receiver.layout()), (receives.into(), layout));
        Self { client, receiver, region }
    }

    /// A grant to send to it, to notify it, or to do something at its region.
    fn grant(&self, hosts: &Hosts, op_type: OpType) -> Grant {
        let region = match op_type {
            OpType::Send | OpType::Notify => self.receiver.region(),
            _ => &self.region,
        };
        hosts.server().grant(region, hosts.client_addr, CLIENT_PID, op_type).unwrap()
    }
}

/// Bytes that differ.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len).map(|at| (at * 7) as u8 ^ seed as u8).collect()
}

fn filled(pool: &BufferPool, bytes: &[u8]) -> RegionBuf {
    let mut buf = pool.try_acquire().unwrap();
    buf.set_len(bytes.len());
    buf.write(0, bytes).unwrap();
    buf
}

#[test]
fn each_op_does_what_it_is_called_and_its_future_comes_to_what_it_found() {
    let hosts = hosts();
    let mut there = Receiving::new(hosts.server(), 4);
    let (client, pool) = (client(&hosts), hosts.client.buffer_pool(1, BUF as u32).unwrap());
    let [to_send, to_notify, to_tell, to_write, to_swap, to_add] = [
        OpType::Send,
        OpType::Notify,
        OpType::WriteWithImm,
        OpType::Write,
        OpType::CompareSwap,
        OpType::FetchAdd,
    ]
    .map(|op_type| there.grant(&hosts, op_type));
    let region = there.region.clone();
    let landed = |offset: usize, len: usize| {
        let mut bytes = vec![0; len];
        region.read(offset as u64, &mut bytes).unwrap();
        bytes
    };
    let mut receive = || there.client.block_on(there.receiver.recv()).unwrap().unwrap();
    let run = async {
        for len in [1, 64, 4096] {
            let bytes = pattern(len, 1);
            let (sent, buf) = client.send(&to_send, filled(&pool, &bytes), 70 + len as u64).await;
            sent.unwrap();
            assert_eq!(buf.to_vec(), bytes);
            let message = receive();
            assert_eq!((message.op_type, message.immediate), (OpType::Send, 70 + len as u64));
            assert_eq!((message.initiator, message.pid), (hosts.client_addr, CLIENT_PID));
            assert!(message.to_vec() == bytes, "{len} bytes");
            assert!(message.read(&mut vec![0; len - 1]).is_err());
        }
        client.notify(&to_notify, 71).await.unwrap();
        assert_eq!(receive().immediate, 71);
        let bytes = pattern(1000, 2);
        let write = client.write_with_imm(&to_tell, 5, filled(&pool, &bytes), 72);
        write.await.0.unwrap();
        let event = receive();
        assert_eq!((event.immediate, event.region_offset, event.len), (72, 5, 1000));
        assert!(event.to_vec().is_empty() && landed(5, 1000) == bytes);
        // Any number of bytes, of which the last ones tell.
        for (seed, len) in [(3, 8), (4, 4096), (5, BUF)] {
            let bytes = pattern(len, seed);
            let write = client.write_ordered(&to_write, 8, filled(&pool, &bytes));
            write.await.0.unwrap();
            assert!(landed(8, len) == bytes);
            let bytes = pattern(len, !seed);
            let write = client.write(&to_write, 8, filled(&pool, &bytes)).with_imm(&to_tell, seed);
            let write = if seed == 4 { write.ordered() } else { write };
            write.await.0.unwrap();
            assert_eq!(receive().immediate, seed);
            assert!(landed(8, len) == bytes);
        }
        region.store(0, 5).unwrap();
        assert_eq!(client.compare_swap(&to_swap, 0, 5, 6).await, Ok(5));
        assert_eq!(client.compare_swap(&to_swap, 0, 5, 7).await, Ok(6));
        assert_eq!(client.fetch_add(&to_add, 0, u64::MAX).await, Ok(6));
        assert_eq!(region.load(0), Ok(5));
    };
    client.block_on(run).unwrap();
    assert!(there.receiver.try_recv().is_none());
    assert_eq!((client.calls(), pool.free(), there.receiver.posted()), (0, 1, 4));
}

#[test]
fn tasks_that_draw_tickets_side_by_side_get_different_ones() {
    const TICKETS: u64 = 200;
    let hosts = hosts();
    let there = Receiving::new(hosts.server(), 1);
    let to_add = there.grant(&hosts, OpType::FetchAdd);
    let client = Client::start(sleepy(hosts.client.transfers(4).unwrap())).unwrap();
    let task = |_| {
        let client = client.clone();
        let draw = async move {
            let mut tickets = Vec::new();
            for _ in 0..TICKETS {
                tickets.push(client.fetch_add(&to_add, 0, 1).await.unwrap());
            }
            tickets
        };
        Box::pin(draw) as Pin<Box<dyn Future<Output = Vec<u64>>>>
    };
    let drawn = Tiny::run((0..2).map(task).collect());
    assert!(drawn.iter().all(|it| it.is_sorted()), "of one task in its order");
    let all: BTreeSet<u64> = drawn.into_iter().flatten().collect();
    assert!(all.into_iter().eq(0..2 * TICKETS));
}

#[test]
fn a_sender_waits_for_a_receive_and_a_message_that_is_kept_holds_one() {
    let hosts = hosts();
    let mut there = Receiving::new(hosts.server(), 1);
    let to_send = there.grant(&hosts, OpType::Send);
    let client = client(&hosts);
    let pool = hosts.client.buffer_pool(2, 64).unwrap();
    let patient = RetryPolicy::DEFAULT.with(|it| it.not_ready = PATIENCE);
    let send =
        |number| client.send(&to_send, filled(&pool, &pattern(64, number)), number).retry(patient);
    client.block_on(send(1)).unwrap().0.unwrap();
    let first = there.client.block_on(there.receiver.recv()).unwrap().unwrap();
    assert_eq!(there.receiver.posted(), 0);
    let mut second = send(2);
    let refused = || {
        let completions = hosts.client.metrics().completions;
        let of = |&(status, count)| (status == OpStatus::RemoteNotReady).then_some(count);
        completions.iter().find_map(of).unwrap()
    };
    until("it has been refused twice", || {
        assert!(poll_once(&mut second).is_pending());
        refused() > 2
    });
    assert!(first.to_vec() == pattern(64, 1), "nobody has its buffer");
    drop(first);
    client.block_on(second).unwrap().0.unwrap();
    let second = there.receiver.try_recv().expect("it is there when the future is done");
    assert!(second.to_vec() == pattern(64, 2));
    // A sender that does not wait is told that nothing was posted, and nothing was applied.
    let (result, _buf) = client.block_on(send(3).retry(RetryPolicy::NONE)).unwrap();
    let Err(TransferError::Failed(outcome)) = result else { panic!("{result:?}") };
    assert_eq!(outcome.status, CallStatus::Failed(OpStatus::RemoteNotReady));
    drop(second);
    assert!(there.receiver.try_recv().is_none());
}

#[test]
fn messages_are_awaited_beside_transfers_on_one_wait() {
    const MESSAGES: u64 = 300;
    let hosts = hosts();
    let mut there = Receiving::new(hosts.server(), 4);
    let to_send = there.grant(&hosts, OpType::Send);
    // The region that the server reads meanwhile, from the client's host.
    let remote = hosts.client.register(LEN, Permissions::READ).unwrap();
    remote.write(0, &[DATA; LEN]).unwrap();
    let pid = hosts.server().pid();
    let to_read = hosts.client.grant(&remote, hosts.server_addr, pid, OpType::Read).unwrap();
    let reads = hosts.server().buffer_pool(2, BUF as u32).unwrap();
    let sends = std::thread::spawn({
        let client = client(&hosts);
        let pool = hosts.client.buffer_pool(1, 64).unwrap();
        let patient = RetryPolicy::DEFAULT.with(|it| it.not_ready = PATIENCE);
        move || {
            for number in 0..MESSAGES {
                let buf = filled(&pool, &pattern(64, number));
                let sent = client.block_on(client.send(&to_send, buf, number).retry(patient));
                sent.unwrap().0.unwrap();
            }
        }
    });
    let (ours, receiver) = (there.client.clone(), &mut there.receiver);
    let receives: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async {
        for number in 0..MESSAGES {
            let message = receiver.recv().await.unwrap();
            assert_eq!(message.immediate, number, "none is lost, and none comes twice");
            assert!(message.to_vec() == pattern(64, number));
        }
    });
    let transfers = |_| {
        let (client, reads) = (ours.clone(), reads.clone());
        Box::pin(async move {
            for turn in 0..40 {
                let (result, buf) = client.read(&to_read, turn * 64, reads.acquire().await).await;
                result.unwrap();
                assert!(buf.to_vec() == [DATA; BUF]);
            }
        }) as Pin<Box<dyn Future<Output = ()>>>
    };
    // One thread for all of them: it sleeps when there is neither a completion nor an event.
    let mut all: Vec<_> = core::iter::once(receives).chain((0..2).map(transfers)).collect();
    let join = poll_fn(|context| {
        all.retain_mut(|it| it.as_mut().poll(context).is_pending());
        if all.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    });
    ours.block_on(join).unwrap();
    sends.join().unwrap();
}

#[test]
fn messages_come_to_a_task_of_any_executor_whose_client_has_a_thread() {
    const MESSAGES: u64 = 200;
    let hosts = hosts();
    let server = hosts.server();
    let portal = server.portal(1).unwrap();
    let layout = ReceiveQueueLayout::new(2, 0).unwrap();
    let queue = server.waking(&portal).receive_queue(layout, Permissions::NOTIFY).unwrap();
    let executor = Transfers::new(portal, server.executor_config()).unwrap();
    let theirs = Client::start(sleepy(executor)).unwrap();
    let mut receiver = theirs.receiver(queue);
    // The receiver keeps the thread.
    drop(theirs);
    let grant = server.grant(receiver.region(), hosts.client_addr, CLIENT_PID, OpType::Notify);
    let (to_notify, ours) = (grant.unwrap(), client(&hosts));
    let notifies = std::thread::spawn(move || {
        let patient = RetryPolicy::DEFAULT.with(|it| it.not_ready = PATIENCE);
        for number in 0..MESSAGES {
            ours.block_on(ours.notify(&to_notify, number).retry(patient)).unwrap().unwrap();
        }
    });
    let receives = async {
        for number in 0..MESSAGES {
            assert_eq!(receiver.recv().await.unwrap().immediate, number);
        }
    };
    let receives: Pin<Box<dyn Future<Output = ()> + '_>> = Box::pin(receives);
    Tiny::run(vec![receives]);
    notifies.join().unwrap();
    drop(receiver);
    until("the slots are free again", || server.usage().unwrap().slots.used == 0);
}

#[test]
fn futures_of_messages_that_are_dropped_at_any_moment_lose_none() {
    const MESSAGES: u64 = 400;
    let hosts = hosts();
    let mut there = Receiving::new(hosts.server(), 4);
    let to_send = there.grant(&hosts, OpType::Send);
    let sends = std::thread::spawn({
        let client = client(&hosts);
        let pool = hosts.client.buffer_pool(1, 64).unwrap();
        let patient = RetryPolicy::DEFAULT.with(|it| it.not_ready = PATIENCE);
        move || {
            for number in 0..MESSAGES {
                let buf = filled(&pool, &pattern(64, number));
                let sent = client.block_on(client.send(&to_send, buf, number).retry(patient));
                sent.unwrap().0.unwrap();
            }
        }
    });
    let (mut random, mut kept, mut dropped) = (Random(5), Vec::new(), 0);
    let mut next = 0;
    until("all messages have come", || {
        let mut recv = there.receiver.recv();
        for _ in 0..random.below(4) {
            if let Poll::Ready(message) = poll_once(&mut recv) {
                let message = message.unwrap();
                assert_eq!(message.immediate, next);
                next += 1;
                kept.push(message);
                break;
            }
            there.client.poll();
        }
        drop(recv);
        dropped += 1;
        // Messages that the application keeps are not written over.
        for message in &kept {
            assert!(message.to_vec() == pattern(64, message.immediate));
        }
        if kept.len() > random.below(4) as usize {
            kept.swap_remove(random.below(kept.len() as u64) as usize);
        }
        next == MESSAGES
    });
    assert!(dropped > 0);
    sends.join().unwrap();
    drop(kept);
    assert_eq!(there.receiver.posted(), 4);
}

#[test]
fn sends_that_are_dropped_at_any_moment_give_their_buffers_back_and_come_once_at_most() {
    const ROUNDS: u64 = 300;
    let hosts = hosts();
    let mut there = Receiving::new(hosts.server(), 8);
    let to_send = there.grant(&hosts, OpType::Send);
    let client = client(&hosts);
    let pool = hosts.client.buffer_pool(4, 64).unwrap();
    let (mut random, mut seen, mut acknowledged) = (Random(9), BTreeSet::new(), BTreeSet::new());
    for number in 0..ROUNDS {
        let buf = loop {
            client.poll();
            match pool.try_acquire() {
                Some(buf) => break buf,
                None => std::thread::yield_now(),
            }
        };
        let mut buf = buf;
        buf.write(0, &pattern(64, number)).unwrap();
        let mut send = client.send(&to_send, buf, number);
        for _ in 0..random.below(30) {
            if let Poll::Ready((result, _)) = poll_once(&mut send) {
                result.unwrap();
                acknowledged.insert(number);
                break;
            }
            std::thread::yield_now();
        }
        drop(send);
        while let Some(message) = there.receiver.try_recv() {
            assert!(seen.insert(message.immediate), "it comes once");
            assert!(message.to_vec() == pattern(64, message.immediate), "and whole");
        }
    }
    until("all calls are over", || {
        client.poll();
        client.calls() == 0
    });
    while let Some(message) = there.receiver.try_recv() {
        assert!(seen.insert(message.immediate));
    }
    println!("{} of {ROUNDS} came, {} were told of", seen.len(), acknowledged.len());
    assert!(seen.is_superset(&acknowledged), "what is OK has come");
    assert_eq!((pool.free(), there.receiver.posted()), (4, 8));
}

#[test]
fn an_op_in_doubt_is_told_from_one_that_failed_and_settled_later() {
    let Loopback { addresses: [here, there], port } = Loopback::unused();
    let timing = Timing::software(Duration::from_micros(10), Duration::from_millis(100));
    let nic = NicConfigBuilder::default().with(|it| it.timing = timing);
    let config = |address| {
        HostConfig::udp(address).with(|it| {
            (it.port, it.nic, it.pid) = (port, nic, CLIENT_PID);
        })
    };
    let mut server = InlineHost::open(config(there)).unwrap();
    let host = Host::open(config(here)).unwrap();
    let region = server.register(64, Permissions::ATOMIC).unwrap();
    region.store(8, 7).unwrap();
    let to_add = server.grant(&region, here, CLIENT_PID, OpType::FetchAdd).unwrap();
    let client = Client::new(host.transfers(4).unwrap());
    let outcome = loop {
        let mut ticket = client.fetch_add(&to_add, 8, 1).retry(RetryPolicy::NONE);
        assert!(poll_once(&mut ticket).is_pending());
        let sent = |server: &InlineHost| server.metrics().nic.frames_sent;
        let before = sent(&server);
        until("the server asks for the data", || {
            server.turn();
            client.poll();
            sent(&server) > before || client.calls() == 0
        });
        // It stands still now, with the data under way to it.
        match client.block_on(ticket).unwrap().unwrap_err() {
            TransferError::Unknown(outcome) => break outcome,
            // This thread did not run for so long that nobody asked in time.
            error => assert!(!error.may_have_been_applied(), "{error}"),
        }
    };
    assert_eq!((outcome.status, outcome.result), (CallStatus::Unknown, None));
    assert!(TransferError::Unknown(outcome.clone()).may_have_been_applied());
    let name = outcome.in_doubt.expect("the server has named it");
    let in_vain = client.settle(&to_add, name).timeout(Duration::from_millis(1));
    let Err(TransferError::Unknown(outcome)) = client.block_on(in_vain).unwrap() else {
        panic!("nobody can have answered")
    };
    assert_eq!(outcome.in_doubt, Some(name));
    let (mut asks, mut told) = (client.settle(&to_add, name).timeout(PATIENCE), None);
    until("it tells", || {
        server.turn();
        if let Poll::Ready(it) = poll_once(&mut asks) {
            told = Some(it);
        }
        told.is_some()
    });
    let told = told.unwrap().unwrap();
    assert_eq!((told.verdict, told.result), (Verdict::NotApplied, None));
    assert_eq!(region.load(8), Ok(7), "the data came too late");
    // So it may be issued again.
    let stubborn = RetryPolicy::DEFAULT.with(|it| {
        (it.timeouts, it.outlast) = (u8::MAX, Some(PATIENCE));
    });
    let (mut again, mut found) = (client.fetch_add(&to_add, 8, 1).retry(stubborn), None);
    until("it is applied", || {
        server.turn();
        if let Poll::Ready(it) = poll_once(&mut again) {
            found = Some(it);
        }
        found.is_some()
    });
    assert_eq!((found.unwrap(), region.load(8)), (Ok(7), Ok(8)));
}

#[test]
fn messages_of_an_inline_engine_come_as_it_is_turned() {
    let Loopback { addresses: [here, _], port } = Loopback::unused();
    let mut host = InlineHost::open(HostConfig::udp(here).with(|it| it.port = port)).unwrap();
    let portal = host.portal(4).unwrap();
    let layout = ReceiveQueueLayout::new(2, 64).unwrap();
    let queue = host.waking(&portal).receive_queue(layout, Permissions::SEND).unwrap();
    let client = Client::new(Transfers::new(portal, host.executor_config()).unwrap());
    let mut receiver = client.receiver(queue);
    // A host may send to itself.
    let to_send = host.grant(receiver.region(), here, host.pid(), OpType::Send).unwrap();
    let pool = host.buffer_pool(1, 64).unwrap();
    for number in 0..5 {
        let both = async {
            let send = client.send(&to_send, filled(&pool, &pattern(9, number)), number);
            send.await.0.unwrap();
            let message = receiver.recv().await.unwrap();
            assert_eq!((message.immediate, message.to_vec()), (number, pattern(9, number)));
        };
        host.block_on(&client, both).unwrap();
    }
}
