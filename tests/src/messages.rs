//! Receive queues, atomics and ordered writes: what must hold between any two hosts, whatever
//! carries their frames.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use rma_xdp::{
    Completion, Grant, OpStatus, OpType, Permissions, Pid, Portal, ReceiveQueue, RegisteredRegion,
    SubmitError, TenantConfig,
    crypto::random_region_key,
    messages::{Event, Receive, ReceiveQueueLayout},
    ops::{Source, Verdict},
};

use crate::hosts::{CLIENT_PID, Hosts};

/// Everything that must hold, each between hosts that are new.
pub const SCENARIOS: [fn(&Hosts); 7] = [
    messages_arrive_as_they_were_sent_as_long_as_receives_are_posted,
    a_message_that_a_queue_does_not_take_is_refused_with_the_reason,
    an_event_of_a_write_says_where_and_comes_after_its_bytes,
    several_senders_share_a_queue_and_each_event_names_its_own,
    atomics_count_together_with_those_of_the_owner,
    a_reader_of_the_last_word_of_an_ordered_write_sees_all_of_it,
    a_target_tells_what_became_of_an_op_for_whom_has_its_name,
];

/// All of them, in turn.
pub fn everything(hosts: impl Fn() -> Hosts) {
    for scenario in SCENARIOS {
        scenario(&hosts());
    }
}

/// A queue's layout that is a sensible one.
#[must_use]
pub fn layout(receives: u16, buffer_len: u32) -> ReceiveQueueLayout {
    ReceiveQueueLayout::new(receives, buffer_len).unwrap()
}

/// The client's right to ops of a type on a region of the server.
#[must_use]
pub fn grant(hosts: &Hosts, region: &RegisteredRegion, op_type: OpType) -> Grant {
    hosts.server().grant(region, hosts.client_addr, CLIENT_PID, op_type).unwrap()
}

fn ended(portal: &mut Portal) -> Completion {
    portal.wait().unwrap()
}

/// Returns the event of an op that has completed: it was published before.
fn event(queue: &mut ReceiveQueue) -> Event {
    queue.poll().expect("its event is there when an op is OK")
}

/// The client's end of an exchange of messages.
struct Sender {
    portal: Portal,
    local: RegisteredRegion,
}

impl Sender {
    fn new(hosts: &Hosts) -> Self {
        let local = hosts.client.register(4096, Permissions::NONE).unwrap();
        Self { portal: hosts.client.portal(4).unwrap(), local }
    }

    fn send(&mut self, grant: &Grant, message: &[u8], immediate: u64) -> OpStatus {
        self.local.write(0, message).unwrap();
        self.portal.send(grant, &self.local, 0, message.len() as u32, immediate).unwrap();
        ended(&mut self.portal).status
    }

    fn notify(&mut self, grant: &Grant, immediate: u64) -> OpStatus {
        self.portal.notify(grant, immediate).unwrap();
        ended(&mut self.portal).status
    }
}

fn messages_arrive_as_they_were_sent_as_long_as_receives_are_posted(hosts: &Hosts) {
    let both = Permissions::SEND | Permissions::NOTIFY;
    let mut queue = hosts.server().receive_queue(layout(2, 4096), both).unwrap();
    let [to_send, to_notify] =
        [OpType::Send, OpType::Notify].map(|it| grant(hosts, queue.region(), it));
    assert_eq!((to_send.region_len, to_notify.region_len), (4096, 4096), "the longest message");
    let mut sender = Sender::new(hosts);
    assert_eq!(sender.send(&to_send, b"early", 1), OpStatus::RemoteNotReady);
    assert!(queue.poll().is_none());
    queue.post_all();
    for len in [1, 7, 64, 1425, 4096] {
        let message: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
        assert_eq!(sender.send(&to_send, &message, !len as u64), OpStatus::Ok, "{len} bytes");
        let event = event(&mut queue);
        assert_eq!(
            (event.op_type, event.len, event.immediate),
            (OpType::Send, len as u32, !len as u64)
        );
        assert_eq!((event.initiator, event.pid), (hosts.client_addr, CLIENT_PID));
        assert_eq!(event.region, queue.id());
        let mut bytes = vec![0; len];
        queue.read(&event, &mut bytes).unwrap();
        assert_eq!(bytes, message);
        queue.post(event.receive).unwrap();
    }
    // Without a message, and until all receives are used up.
    for immediate in [u64::MAX, 0] {
        assert_eq!(sender.notify(&to_notify, immediate), OpStatus::Ok);
    }
    assert_eq!(sender.notify(&to_notify, 3), OpStatus::RemoteNotReady);
    let events = [(); 2].map(|()| event(&mut queue));
    assert_eq!(
        events.map(|it| (it.op_type, it.immediate, it.len)),
        [(OpType::Notify, u64::MAX, 0), (OpType::Notify, 0, 0),]
    );
    assert!(queue.poll().is_none(), "what was refused makes no event");
}

fn a_message_that_a_queue_does_not_take_is_refused_with_the_reason(hosts: &Hosts) {
    let mut queue = hosts.server().receive_queue(layout(4, 8), Permissions::SEND).unwrap();
    queue.post_all();
    let to_send = grant(hosts, queue.region(), OpType::Send);
    let mut sender = Sender::new(hosts);
    assert_eq!(sender.send(&to_send, b"too long", 0), OpStatus::Ok);
    assert_eq!(sender.send(&to_send, b"too long!", 0), OpStatus::RemoteOutOfBounds);
    let to_notify = grant(hosts, queue.region(), OpType::Notify);
    assert_eq!(sender.notify(&to_notify, 0), OpStatus::RemotePermissionDenied);
    // A region is no queue, and a queue no region.
    let region = hosts.server().register(64, Permissions::READ | Permissions::SEND).unwrap();
    let to_region = grant(hosts, &region, OpType::Send);
    assert_eq!(sender.send(&to_region, b"?", 0), OpStatus::RemotePermissionDenied);
    let to_read = grant(hosts, queue.region(), OpType::Read);
    sender.portal.read(&to_read, 0, &sender.local, 0, 8).unwrap();
    assert_eq!(ended(&mut sender.portal).status, OpStatus::RemotePermissionDenied);
    let wrong = sender.portal.notify(&to_send, 0);
    assert!(matches!(wrong, Err(SubmitError::GrantForAnotherOpType { .. })), "{wrong:?}");
    for wrong in [Permissions::READ, Permissions::ATOMIC | Permissions::SEND] {
        let refused = hosts.server().receive_queue(layout(1, 8), wrong).unwrap_err();
        assert!(refused.to_string().contains("SEND, NOTIFY and REKEY"), "{refused}");
    }
    // Rekeyed by its owner, and then gone.
    let key = random_region_key().unwrap();
    hosts.server().rekey(queue.region(), key).unwrap();
    assert_eq!(sender.send(&to_send, b"old", 0), OpStatus::RemoteAuthenticationFailure);
    assert_eq!(sender.send(&to_send.under(&key), b"new", 0), OpStatus::Ok);
    hosts.server().deregister(queue.region()).unwrap();
    assert_eq!(
        sender.send(&to_send.under(&key), b"gone", 0),
        OpStatus::RemoteAuthenticationFailure
    );
    let [first, second] = [(); 2].map(|()| event(&mut queue));
    assert_eq!((first.len, second.len), (8, 3), "what came before is still there");
}

fn an_event_of_a_write_says_where_and_comes_after_its_bytes(hosts: &Hosts) {
    let server = hosts.server();
    let mut queue = server.receive_queue(layout(4, 0), Permissions::NONE).unwrap();
    let all = Permissions::WRITE | Permissions::NOTIFY;
    let region = server.register_with_events(&queue, 8192, all).unwrap();
    let to_write = grant(hosts, &region, OpType::WriteWithImm);
    let mut sender = Sender::new(hosts);
    let source = Source { region: &sender.local, offset: 0, len: 4000 };
    sender.local.write(0, &[9; 4000]).unwrap();
    sender.portal.write_with_imm(&to_write, 4100, source, 77).unwrap();
    assert_eq!(ended(&mut sender.portal).status, OpStatus::RemoteNotReady, "nothing is posted");
    queue.post(Receive(3)).unwrap();
    sender.portal.write_with_imm(&to_write, 4100, source, 78).unwrap();
    assert_eq!(ended(&mut sender.portal).status, OpStatus::Ok);
    let it = event(&mut queue);
    assert_eq!(
        (it.op_type, it.region, it.region_offset),
        (OpType::WriteWithImm, region.id(), 4100)
    );
    assert_eq!((it.len, it.immediate, it.receive), (4000, 78, Receive(3)));
    let mut bytes = [0; 4000];
    region.read(4100, &mut bytes).unwrap();
    assert_eq!(bytes, [9; 4000]);
    // Without a queue there are no events; once it is gone neither.
    let plain = server.register(64, all).unwrap();
    let to_plain = grant(hosts, &plain, OpType::WriteWithImm);
    let short = Source { len: 8, ..source };
    sender.portal.write_with_imm(&to_plain, 0, short, 1).unwrap();
    assert_eq!(ended(&mut sender.portal).status, OpStatus::RemotePermissionDenied);
    queue.post(Receive(0)).unwrap();
    server.deregister(queue.region()).unwrap();
    sender.portal.write_with_imm(&to_write, 0, short, 1).unwrap();
    assert_eq!(ended(&mut sender.portal).status, OpStatus::RemotePermissionDenied);
    let to_write = grant(hosts, &region, OpType::Write);
    sender.portal.write(&to_write, 0, &sender.local, 0, 64).unwrap();
    assert_eq!(ended(&mut sender.portal).status, OpStatus::Ok, "other ops go on");
    assert!(server.register_with_events(&queue, 64, all).is_err());
}

fn several_senders_share_a_queue_and_each_event_names_its_own(hosts: &Hosts) {
    const MESSAGES: u64 = 100;
    let pids = [Pid(21), Pid(22), Pid(23)];
    let mut queue = hosts.server().receive_queue(layout(8, 64), Permissions::SEND).unwrap();
    queue.post_all();
    let mut next = pids.map(|pid| (pid, 0));
    std::thread::scope(|scope| {
        for pid in pids {
            let region = queue.region().clone();
            scope.spawn(move || {
                let config = TenantConfig::named("sender").with(|it| it.pid = Some(pid));
                let tenant = hosts.client.tenant(config).unwrap();
                let mut portal = hosts.client.for_tenant(&tenant).portal(1).unwrap();
                let local =
                    hosts.client.for_tenant(&tenant).register(64, Permissions::NONE).unwrap();
                let grant =
                    hosts.server().grant(&region, hosts.client_addr, pid, OpType::Send).unwrap();
                for number in 0..MESSAGES {
                    local.write(0, &number.to_le_bytes()).unwrap();
                    loop {
                        portal.send(&grant, &local, 0, 8, pid.0.into()).unwrap();
                        match ended(&mut portal).status {
                            OpStatus::Ok => break,
                            OpStatus::RemoteNotReady => std::thread::yield_now(),
                            other => panic!("{other}"),
                        }
                    }
                }
            });
        }
        for _ in 0..MESSAGES * pids.len() as u64 {
            let event = loop {
                match queue.poll() {
                    Some(event) => break event,
                    None => std::thread::yield_now(),
                }
            };
            let (_, number) = next.iter_mut().find(|(pid, _)| *pid == event.pid).unwrap();
            let mut bytes = [0; 8];
            queue.read(&event, &mut bytes).unwrap();
            assert_eq!(u64::from_le_bytes(bytes), *number, "of one sender in its order");
            assert_eq!(event.immediate, u64::from(event.pid.0));
            *number += 1;
            queue.post(event.receive).unwrap();
        }
    });
    assert!(next.iter().all(|&(_, number)| number == MESSAGES) && queue.poll().is_none());
}

fn atomics_count_together_with_those_of_the_owner(hosts: &Hosts) {
    let all = Permissions::ATOMIC | Permissions::WRITE;
    let region = hosts.server().register(64, all).unwrap();
    let [to_swap, to_add] =
        [OpType::CompareSwap, OpType::FetchAdd].map(|it| grant(hosts, &region, it));
    let mut portal = hosts.client.portal(4).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..1000 {
                region.fetch_add(8, 1).unwrap();
            }
        });
        let mut last = None;
        for _ in 0..200 {
            portal.fetch_add(&to_add, 8, 1 << 32).unwrap();
            let completion = ended(&mut portal);
            assert_eq!(completion.status, OpStatus::Ok);
            let found = completion.result().unwrap();
            assert!(last.is_none_or(|last| found >= last + (1 << 32)), "{last:?} then {found}");
            last = Some(found);
        }
    });
    assert_eq!(region.load(8), Ok(200 << 32 | 1000));
    portal.compare_swap(&to_swap, 0, 0, 5).unwrap();
    assert_eq!(ended(&mut portal).result(), Some(0));
    portal.compare_swap(&to_swap, 0, 0, 6).unwrap();
    assert_eq!((ended(&mut portal).result(), region.load(0)), (Some(5), Ok(5)), "not as expected");
    let misaligned = portal.fetch_add(&to_add, 4, 1);
    assert!(matches!(misaligned, Err(SubmitError::Misaligned { .. })), "{misaligned:?}");
    portal.fetch_add(&to_add, 64, 1).unwrap();
    assert_eq!(ended(&mut portal).status, OpStatus::RemoteOutOfBounds);
    let closed = hosts.server().register(64, Permissions::WRITE).unwrap();
    portal.fetch_add(&grant(hosts, &closed, OpType::FetchAdd), 0, 1).unwrap();
    assert_eq!(ended(&mut portal).status, OpStatus::RemotePermissionDenied);
}

fn a_reader_of_the_last_word_of_an_ordered_write_sees_all_of_it(hosts: &Hosts) {
    let region = hosts.server().register(4096, Permissions::WRITE).unwrap();
    let to_write = grant(hosts, &region, OpType::Write);
    let mut sender = Sender::new(hosts);
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut seen = 0;
            while seen < 50 {
                let bell = region.load(4088).unwrap();
                assert!(bell >= seen, "it is written by one sender in order");
                if bell > seen {
                    // The next one may be landing already, so nothing older than this.
                    for word in 0..511 {
                        assert!(region.load(word * 8).unwrap() >= bell);
                    }
                    seen = bell;
                }
                std::thread::yield_now();
            }
        });
        for round in 1..=50_u64 {
            for word in 0..512 {
                sender.local.store(word * 8, round).unwrap();
            }
            let source = Source { region: &sender.local, offset: 0, len: 4096 };
            sender.portal.write_ordered(&to_write, 0, source).unwrap();
            assert_eq!(ended(&mut sender.portal).status, OpStatus::Ok);
        }
        watching.join().unwrap();
    });
    let odd = Source { region: &sender.local, offset: 0, len: 12 };
    let refused = sender.portal.write_ordered(&to_write, 0, odd);
    assert!(matches!(refused, Err(SubmitError::Misaligned { .. })), "{refused:?}");
}

fn a_target_tells_what_became_of_an_op_for_whom_has_its_name(hosts: &Hosts) {
    let region = hosts.server().register(64, Permissions::ATOMIC).unwrap();
    let to_add = grant(hosts, &region, OpType::FetchAdd);
    let mut portal = hosts.client.portal(1).unwrap();
    region.store(0, 40).unwrap();
    portal.fetch_add(&to_add, 0, 2).unwrap();
    let name = ended(&mut portal).name().expect("the target has named it");
    // As after a lost acknowledgement; and again, as that may be lost too.
    for _ in 0..2 {
        portal.settle(&to_add, name).unwrap();
        let told = ended(&mut portal);
        assert_eq!((told.status, told.verdict()), (OpStatus::Ok, Some(Verdict::Applied)));
        assert_eq!(told.result(), Some(40));
    }
    // Of another process's op nothing is told.
    let other = TenantConfig::named("other").with(|it| it.pid = Some(Pid(5)));
    let other = hosts.client.tenant(other).unwrap();
    let mut its = hosts.client.for_tenant(&other).portal(1).unwrap();
    let grant = hosts.server().grant(&region, hosts.client_addr, Pid(5), OpType::FetchAdd).unwrap();
    its.settle(&grant, name).unwrap();
    assert_eq!(ended(&mut its).verdict(), Some(Verdict::Forgotten));
    assert_eq!(region.load(0), Ok(42), "nobody adds again by asking");
    let metrics = hosts.server().metrics();
    let settled = metrics.settled.iter().map(|&(_, count)| count);
    assert!(settled.eq([2, 0, 1]), "{:?}", metrics.settled);
}
