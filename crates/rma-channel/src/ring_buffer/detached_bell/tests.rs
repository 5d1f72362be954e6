//! Both ends, over an engine that carries ops out in any order; and a sender that lies.

use core::time::Duration;

use proptest::prelude::*;
use rma_core::{executor::CallStatus, op::OpStatus};
use rma_lab::FakeHosts;

use super::*;
use crate::{
    receiver::{Claims, ReceiveError, Receiver as _},
    ring::{Malformed, Reads as _, RingLen},
    sender::{Outgoing as _, SendHandle, SendRegion as _, SendState, Sender as _},
    tests::hosts::{self, BEGIN, Station, Ticks, message},
};

struct Bench {
    from: Station,
    to: Station,
    sender: Sender,
    receiver: Receiver,
    ticks: Ticks,
}

impl Bench {
    fn new(len: u64, len_max: u32) -> Self {
        let world = FakeHosts::default();
        let (from, to) = (hosts::host(&world, 1), hosts::host(&world, 2));
        let config = RingConfig::with_peer(to.peer).with(|it| {
            (it.len, it.len_max) = (RingLen::new(len).unwrap(), len_max);
        });
        let sender = Sender::open(&from, config).unwrap();
        let config = config.with(|it| it.peer = from.peer);
        let receiver = Receiver::open(&to, config).unwrap();
        let (theirs, ours) = (sender.terms().clone(), receiver.terms().clone());
        let (sender, receiver) =
            (sender.connect(&ours).unwrap(), receiver.connect(&theirs).unwrap());
        let (from, to) = (Station::new(from), Station::new(to));
        Self { from, to, sender, receiver, ticks: Ticks(BEGIN) }
    }

    fn poll(&mut self) -> Result<(), SendError> {
        let now = self.ticks.next(Duration::from_micros(50));
        self.from.poll(now);
        let polled = self.sender.poll(&mut self.from.link, now);
        self.from.poll(now);
        self.to.poll(now);
        self.receiver.poll(&mut self.to.link, now).unwrap();
        self.to.poll(now);
        polled
    }

    fn send(&mut self, message: &[u8]) -> Result<SendHandle, SendError> {
        self.sender.send(&mut self.from.link, self.ticks.0, message)
    }

    /// All that is left to be done.
    fn settle(&mut self) {
        for _ in 0..6 {
            self.poll().unwrap();
            self.from.apply_all();
            self.to.apply_all();
        }
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        self.receiver.receive().unwrap().map(|message| message.to_vec())
    }
}

//= channels#4.3-detached
//= type=test
#[test]
fn a_bell_is_set_after_the_bytes_and_one_tells_all_that_has_gathered() {
    let mut it = Bench::new(1024, 100);
    for number in 0..3 {
        it.send(&message(number, 40)).unwrap();
    }
    it.poll().unwrap();
    assert_eq!(it.from.engine.taken.len(), 3, "no bell");
    it.from.apply(1);
    it.from.apply(1);
    it.poll().unwrap();
    assert_eq!(it.from.engine.taken.len(), 1, "the first is missing");
    it.from.apply(0);
    it.poll().unwrap();
    assert_eq!(it.from.engine.taken.len(), 1, "one bell for all");
    assert_eq!(it.receive(), None);
    it.from.apply(0);
    for number in 0..3 {
        assert_eq!(it.receive(), Some(message(number, 40)));
    }
    assert_eq!(it.receive(), None);
}

#[test]
fn a_message_sent_from_where_it_lies_is_not_copied() {
    let mut it = Bench::new(1024, 100);
    let host = it.from.host.clone();
    let memory = flow::region(&host, Region::new(256).unwrap(), Permissions::NONE).unwrap();
    memory.write(8, b"here it lies").unwrap();
    let (link, now) = (&mut it.from.link, it.ticks.0);
    let sent = it.sender.send_region(link, now, &memory, 8..20).unwrap();
    let refused = it.sender.send_region(link, now, &memory, 0..12);
    assert!(matches!(refused, Err(SendError::Place { before: 8, behind: 0, .. })), "{refused:?}");
    it.settle();
    assert_eq!((it.receive(), it.from.link.copied_bytes()), (Some(b"here it lies".to_vec()), 0));
    it.settle();
    assert_eq!(it.sender.test(sent), SendState::Processed);
}

#[test]
fn a_message_that_fails_breaks_the_channel_and_those_before_it_are_told() {
    let mut it = Bench::new(1024, 100);
    let sent: Vec<_> = (0..3).map(|number| it.send(&message(number, 20)).unwrap()).collect();
    it.poll().unwrap();
    it.from.apply(0);
    it.from.fail(0, OpStatus::RemotePermissionDenied);
    it.from.apply(0);
    let status = CallStatus::Failed(OpStatus::RemotePermissionDenied);
    let broken = SendError::Broken { handle: sent[1], status };
    assert_eq!(it.poll(), Err(broken));
    it.from.apply_all();
    assert_eq!(it.poll(), Err(broken), "the bell of the first is over");
    assert_eq!(it.send(b"more"), Err(broken));
    assert_eq!(it.sender.test(sent[0]), SendState::Accepted);
    assert_eq!(it.sender.test(sent[1]), SendState::Failed(status));
    assert_eq!((it.receive(), it.receive()), (Some(message(0, 20)), None));
}

#[test]
fn a_bell_that_cannot_be_is_refused_for_good() {
    for told in [1025, u64::MAX / 2] {
        let mut it = Bench::new(1024, 100);
        it.receiver.reader.bell().store(0, told).unwrap();
        let malformed = Malformed::UsedUp { told, head: 0, end: 1024 };
        for _ in 0..2 {
            assert_eq!(it.receiver.claim(), Err(ReceiveError::Malformed(malformed)));
        }
    }
    // A length that its head has no room for, none, and one that is too long.
    for (head, told) in [(50, 16), (0, 64), (101, 256)] {
        let mut it = Bench::new(1024, 100);
        it.receiver.reader.ring().store(0, head).unwrap();
        it.receiver.reader.bell().store(0, told).unwrap();
        let refused = it.receiver.claim();
        assert!(
            matches!(refused, Err(ReceiveError::Malformed(Malformed::Record { .. }))),
            "{refused:?}"
        );
    }
}

proptest! {
    #[test]
    fn messages_come_whole_once_and_in_order_whatever_order_ops_have(
        lens in prop::collection::vec(1_usize..120, 1..60),
        order in prop::collection::vec(any::<u8>(), 400),
    ) {
        let mut it = Bench::new(256, 120);
        let (mut sent, mut got) = (0, 0);
        let mut order = order.into_iter().cycle();
        for _ in 0..4000 {
            let choice = order.next().unwrap();
            if sent < lens.len() && choice & 1 == 0 {
                match it.send(&message(sent as u64, lens[sent])) {
                    Ok(_) => sent += 1,
                    Err(error) => prop_assert_eq!(error, SendError::Full),
                }
            }
            it.poll().unwrap();
            for station in [&mut it.from, &mut it.to] {
                if !station.engine.taken.is_empty() && choice & 2 == 0 {
                    let index = usize::from(choice) % station.engine.taken.len();
                    station.apply(index);
                }
            }
            if choice & 12 == 0 && let Some(come) = it.receive() {
                prop_assert_eq!(come, message(got as u64, lens[got]));
                got += 1;
            }
            if got == lens.len() {
                break;
            }
        }
        prop_assert_eq!(got, lens.len());
    }
}
