//! Both ends, over an engine that carries ops out in any order; and a sender that lies.

use proptest::prelude::*;
use rma_core::{executor::CallStatus, op::OpStatus};

use super::*;
use crate::{
    receiver::{Claims, ReceiveError},
    ring::{Malformed, Reads as _},
    ring_buffer::tests::Bench,
    sender::{Outgoing as _, SendRegion as _, SendState},
    tests::hosts::message,
};

fn open(len: u64, len_max: u32) -> Bench<Each<InTwo>, Reader> {
    Bench::new(len, len_max, Sender::open, Receiver::open)
}

//= channels#4.3-detached
//= type=test
#[test]
fn a_bell_is_set_after_the_bytes_and_one_tells_all_that_has_gathered() {
    let mut it = open(1024, 100);
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
    let mut it = open(1024, 100);
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
    let mut it = open(1024, 100);
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
        let mut it = open(1024, 100);
        it.receiver.reader.bell().store(0, told).unwrap();
        let malformed = Malformed::UsedUp { told, head: 0, end: 1024 };
        for _ in 0..2 {
            assert_eq!(it.receiver.claim(), Err(ReceiveError::Malformed(malformed)));
        }
    }
    // A length that its head has no room for, none, and one that is too long.
    for (head, told) in [(50, 16), (0, 64), (101, 256)] {
        let mut it = open(1024, 100);
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
        open(256, 120).all_come(&lens, &order);
    }
}
