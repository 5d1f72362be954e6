//! Both ends, over an engine that carries ops out in any order; and a sender that lies.

use core::time::Duration;

use proptest::prelude::*;
use rma_core::{
    executor::{CallStatus, OpCall},
    op::OpStatus,
    portal::{Change, Placement, Source},
};

use super::*;
use crate::{
    receiver::{Claims, ReceiveError},
    ring::Malformed,
    ring_buffer::tests::Bench,
    sender::{Outgoing as _, SendError, SendRegion as _, SendState},
    tests::hosts::message,
};

fn open(len: u64, len_max: u32) -> Bench<Each<Whole>, Reader> {
    Bench::new(len, len_max, Sender::open, Receiver::open)
}

impl Bench<Each<Whole>, Reader> {
    /// Carries out all issued ops, without a look of any end.
    fn settle_nothing(&mut self) {
        for _ in 0..3 {
            let now = self.ticks.next(Duration::from_micros(50));
            self.from.poll(now);
            self.from.apply_all();
        }
    }
}

//= channels#4.3-immediate
//= type=test
#[test]
fn events_in_any_order_are_put_in_order_and_their_receives_are_posted_again() {
    let mut it = open(1024, 100);
    for number in 0..3 {
        it.send(&message(number, 40)).unwrap();
    }
    it.poll().unwrap();
    it.from.apply(2);
    it.from.apply(0);
    assert_eq!((it.receive(), it.receive()), (Some(message(0, 40)), None));
    assert_eq!(it.receiver.queue().posted(), 4, "but for what is under way all are");
    it.from.apply(0);
    assert_eq!(it.receive(), Some(message(1, 40)));
    assert_eq!((it.receive(), it.receive()), (Some(message(2, 40)), None));
}

#[test]
fn there_is_a_receive_for_each_message_that_may_be_sent() {
    let mut it = open(1024, 100);
    for number in 0..4 {
        it.send(&message(number, 8)).unwrap();
    }
    assert_eq!(it.send(b"a fifth"), Err(SendError::Full), "there is room for its bytes");
    it.settle();
    for number in 0..4 {
        assert_eq!(it.receive(), Some(message(number, 8)));
    }
    it.settle();
    it.send(b"a fifth").unwrap();
    it.settle();
    assert_eq!(it.receive(), Some(b"a fifth".to_vec()));
}

#[test]
fn a_message_of_several_ops_has_one_event() {
    let mut it = open(1 << 15, 10_000);
    it.send(&message(1, 10_000)).unwrap();
    for _ in 0..4 {
        it.poll().unwrap();
        while !it.from.engine.taken.is_empty() {
            let last = it.from.engine.taken.len() - 1;
            it.from.apply(last);
        }
    }
    assert_eq!((it.receive(), it.receive()), (Some(message(1, 10_000)), None));
}

#[test]
fn a_message_sent_from_where_it_lies_is_not_copied_and_has_nothing_beside_it() {
    let mut it = open(1024, 100);
    let host = it.from.host.clone();
    let memory = flow::region(&host, Region::new(20).unwrap(), Permissions::NONE).unwrap();
    memory.write(0, b"01234567890123456789").unwrap();
    let (link, now) = (&mut it.from.link, it.ticks.0);
    let sent = it.sender.send_region(link, now, &memory, 3..20).unwrap();
    it.settle();
    let expected = b"34567890123456789".to_vec();
    assert_eq!((it.receive(), it.from.link.copied_bytes()), (Some(expected), 0));
    it.settle();
    assert_eq!(it.sender.test(sent), SendState::Processed);
}

#[test]
fn an_answer_that_is_lost_is_asked_for_and_nothing_is_doubled() {
    for applied in [true, false] {
        let mut it = open(1024, 100);
        let sent = it.send(&message(7, 30)).unwrap();
        it.poll().unwrap();
        it.from.lose_answer(0, applied);
        it.settle();
        assert_eq!((it.receive(), it.receive()), (Some(message(7, 30)), None));
        it.settle();
        assert_eq!(it.sender.test(sent), SendState::Processed);
    }
}

#[test]
fn a_message_that_fails_breaks_the_channel() {
    let mut it = open(1024, 100);
    let sent: Vec<_> = (0..3).map(|number| it.send(&message(number, 20)).unwrap()).collect();
    it.poll().unwrap();
    it.from.apply(0);
    it.from.fail(0, OpStatus::RemotePermissionDenied);
    it.from.apply(0);
    let status = CallStatus::Failed(OpStatus::RemotePermissionDenied);
    let broken = SendError::Broken { handle: sent[1], status };
    assert_eq!((it.poll(), it.send(b"more")), (Err(broken), Err(broken)));
    assert_eq!((it.receive(), it.receive()), (Some(message(0, 20)), None));
}

#[test]
fn an_event_of_what_cannot_be_there_is_refused_for_good() {
    // The op's offset, its immediate, and whether it is a message.
    let said = |position: u64, len: u32| immediate(Position::from_bits(position), len);
    let cases = [
        (0, said(0, 16), true),
        (64, said(64, 16), true),
        (8, said(0, 16), false),
        (0, said(0, 0), false),
        (0, said(0, 8), false),
        (0, said(0, 101), false),
        (1016, said(1016, 16), false),
        (0, said(1024, 16), false),
        (0, said(u64::from(u32::MAX) << 10, 16), false),
        (0, u64::MAX, false),
    ];
    for (remote_offset, immediate, is_message) in cases {
        let mut it = open(1024, 100);
        let (image, grant) = (it.sender.parts.image.clone(), it.sender.writes.carrier.grant);
        let (source, placement) = (Source { region: &image, offset: 0, len: 16 }, Placement::Any);
        let change = Change::WriteWithImm { remote_offset, source, immediate, placement };
        it.from.link.submit_op(it.ticks.0, &OpCall::of(&grant, change)).unwrap();
        it.settle_nothing();
        let refused = it.receiver.claim();
        let malformed = Malformed::Place { offset: remote_offset, len: 16, immediate };
        if is_message {
            assert!(refused.is_ok(), "{refused:?}");
            continue;
        }
        assert_eq!(refused, Err(ReceiveError::Malformed(malformed)));
        assert_eq!(it.receiver.claim(), Err(ReceiveError::Malformed(malformed)), "for good");
    }
}

#[test]
fn two_messages_in_one_place_are_refused() {
    let mut it = open(1024, 100);
    let (image, grant) = (it.sender.parts.image.clone(), it.sender.writes.carrier.grant);
    for (position, len) in [(64, 64), (80, 16)] {
        let (source, placement) = (Source { region: &image, offset: 0, len }, Placement::Any);
        let immediate = immediate(Position::from_bits(position), len);
        let change = Change::WriteWithImm { remote_offset: position, source, immediate, placement };
        it.from.link.submit_op(it.ticks.0, &OpCall::of(&grant, change)).unwrap();
    }
    it.settle_nothing();
    let refused = it.receiver.claim();
    assert!(
        matches!(refused, Err(ReceiveError::Malformed(Malformed::Place { .. }))),
        "{refused:?}"
    );
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
