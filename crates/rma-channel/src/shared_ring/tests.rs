//! Senders and a receiver over an engine that carries ops out in any order: what dies, what sleeps,
//! and what is fenced off.

mod bad_input;
mod interleaved;

use core::time::Duration;

use rma_core::{
    command::{Command, CommandOp},
    executor::CallStatus,
    op::OpStatus,
};
use rma_lab::{FakeHost, FakeHosts};

use super::{
    immediate::{Events, WithImmediate},
    receiver::{Finds, Recovery, SharedReceiver},
    sender::SharedSender,
    with_zeroing::{Record, Records},
    *,
};
use crate::{
    receiver::{Claim, Claims, ReceiveError},
    ring::Malformed,
    sender::{Outgoing as _, SendError, SendHandle, SendState, Sender as _},
    terms::Terms,
    tests::hosts::{self, BEGIN, Station, Ticks, message},
};

const LEN: usize = 100;

struct Bench<F: Finds> {
    host: FakeHost,
    receiver: SharedReceiver<F>,
    senders: Vec<(Station, SharedSender<F::Form>)>,
    ticks: Ticks,
    timeout: Duration,
}

impl<F: Finds> Bench<F> {
    fn new(senders: u8) -> Self {
        Self::with(senders, |it| it.len = RingLen::new(2048).unwrap())
    }

    fn with(senders: u8, change: impl FnOnce(&mut SharedRingConfig)) -> Self {
        let world = FakeHosts::default();
        let host = hosts::host(&world, 0);
        let config = SharedRingConfig::new().with(|it| {
            (it.len_max, it.epochs) = (LEN as u32, 4);
            change(it);
        });
        let mut receiver = SharedReceiver::open(&host, config).unwrap();
        let senders = (1..=senders).map(|number| {
            let from = hosts::host(&world, number);
            let terms = receiver.admit(&host, from.peer).unwrap();
            let terms = Terms::from_bytes(&terms.to_bytes()).unwrap();
            let sender = SharedSender::join(&from, &terms).unwrap();
            (Station::new(from), sender)
        });
        let senders = senders.collect();
        Self { host, receiver, senders, ticks: Ticks(BEGIN), timeout: config.hole_timeout }
    }

    fn send(&mut self, who: usize, bytes: &[u8]) -> Result<SendHandle, SendError> {
        let (station, sender) = &mut self.senders[who];
        sender.send(&mut station.link, self.ticks.0, bytes)
    }

    /// One sender does what is due.
    fn poll(&mut self, who: usize) -> Result<(), SendError> {
        let now = self.ticks.next(Duration::from_micros(10));
        let (station, sender) = &mut self.senders[who];
        station.poll(now);
        let polled = sender.poll(&mut station.link, now);
        // The executor paces what it issues.
        for _ in 0..8 {
            let now = self.ticks.next(Duration::from_micros(10));
            station.poll(now);
        }
        polled
    }

    /// A sender does all that he can, but for this many steps.
    fn run(&mut self, who: usize, steps: usize) {
        for _ in 0..steps {
            self.ticks.next(Duration::from_millis(1));
            self.poll(who).unwrap();
            self.senders[who].0.apply_all();
        }
        self.poll(who).unwrap();
    }

    /// A sender reserves for a message, and goes no further.
    fn reserve(&mut self, who: usize, number: u64) -> SendHandle {
        let sent = self.send(who, &message(number, LEN)).unwrap();
        let is_write = |it: &Command| {
            let CommandOp::Recorded { op, .. } = it.op else { return false };
            op.op_type() != OpType::FetchAdd
        };
        for _ in 0..40 {
            self.ticks.next(Duration::from_millis(1));
            self.poll(who).unwrap();
            if self.under_way(who).iter().any(is_write) {
                return sent;
            }
            self.senders[who].0.apply_all();
        }
        unreachable!("sender {who} cannot reserve")
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        self.receiver.receive().unwrap().map(|message| message.to_vec())
    }

    fn receive_all(&mut self) -> Vec<Vec<u8>> {
        core::iter::from_fn(|| self.receive()).collect()
    }

    /// The time of a hole passes.
    fn recover(&mut self) -> Option<Recovery> {
        let now = self.ticks.next(Duration::from_micros(1));
        assert_eq!(self.receiver.poll_recovery(&self.host, now).unwrap(), None, "too soon");
        let now = self.ticks.next(self.timeout);
        self.receiver.poll_recovery(&self.host, now).unwrap()
    }

    fn under_way(&self, who: usize) -> &[Command] {
        &self.senders[who].0.engine.taken
    }
}

/// All that both kinds do.
macro_rules! both {
    ($($(#[$meta:meta])* fn $name:ident($it:ident: $count:expr) $body:block)+) => {
        mod zeroing {
            use super::*;
            $($(#[$meta])* #[test] fn $name() {
                let mut $it = Bench::<Records>::new($count);
                $body
            })+
        }
        mod events {
            use super::*;
            $(#[test] fn $name() {
                let mut $it = Bench::<Events>::new($count);
                $body
            })+
        }
    };
}

both! {
    fn one_reservation_is_for_all_that_has_gathered_and_their_writes_go_in_parallel(it: 1) {
        for number in 0..5 {
            it.send(0, &message(number, LEN)).unwrap();
        }
        it.poll(0).unwrap();
        assert_eq!(it.under_way(0).len(), 1, "for the first");
        it.senders[0].0.apply_all();
        it.poll(0).unwrap();
        assert_eq!(it.under_way(0).len(), 2, "the first, and a reservation for the others");
        it.senders[0].0.apply_all();
        for _ in 0..3 {
            it.poll(0).unwrap();
        }
        assert_eq!(it.under_way(0).len(), 4);
        while !it.under_way(0).is_empty() {
            let last = it.under_way(0).len() - 1;
            it.senders[0].0.apply(last);
        }
        let expected: Vec<_> = (0..5).map(|number| message(number, LEN)).collect();
        assert_eq!(it.receive_all(), expected);
    }

    fn the_tail_is_read_only_if_its_last_sight_says_full_and_then_at_growing_intervals(it: 1) {
        let mut sent = 0;
        while it.send(0, &message(sent, LEN)).is_ok() {
            sent += 1;
        }
        let is_read = |command: &Command| matches!(command.op, CommandOp::Read(_));
        let mut reads = 0;
        for _ in 0..200 {
            it.poll(0).unwrap();
            reads += it.under_way(0).iter().filter(|it| is_read(it)).count();
            it.senders[0].0.apply_all();
            let _ = it.send(0, &message(sent, LEN)).map(|_| sent += 1);
        }
        assert!((1..=14).contains(&reads), "{reads} in 18 ms");
        let came = it.receive_all().len();
        assert!(came >= 12, "{came} messages fill the ring");
        it.run(0, 4);
        assert!(it.receive().is_some(), "there is room again");
    }

    fn a_writer_that_dies_between_reservation_and_write_holds_up_nobody(it: 2) {
        it.reserve(0, 1);
        let second = it.send(1, &message(2, LEN)).unwrap();
        it.run(1, 3);
        let found = it.recover().unwrap();
        assert_eq!((found.epoch, found.holes), (1, 1));
        assert_eq!(it.receive_all().last(), None.or(Some(&message(2, LEN))).filter(|_| found.saved == 1));
        it.run(1, 4);
        assert!(matches!(it.senders[1].1.test(second), SendState::Accepted | SendState::Processed));
        it.send(1, &message(3, LEN)).unwrap();
        it.run(1, 12);
        assert_eq!(it.receive_all(), [message(3, LEN)], "in the new epoch");
    }

    fn one_that_sleeps_and_writes_after_the_fence_is_refused_and_sends_again(it: 2) {
        let slept = it.reserve(0, 1);
        it.recover().unwrap();
        let later = it.send(1, &message(2, LEN)).unwrap();
        it.run(1, 12);
        assert_eq!(it.receive_all(), [message(2, LEN)]);
        // It wakes up: its write is refused, and changes nothing.
        it.senders[0].0.apply_all();
        assert_eq!(it.receive_all().len(), 0);
        it.run(0, 12);
        assert_eq!(it.receive_all(), [message(1, LEN)], "once");
        for (who, sent) in [(0, slept), (1, later)] {
            it.run(who, 4);
            assert_eq!(it.senders[who].1.test(sent), SendState::Processed);
        }
    }

    fn a_message_landed_just_before_the_fence_is_received_once_though_its_answer_is_lost(it: 1) {
        let sent = it.reserve(0, 1);
        it.send(0, &message(2, LEN)).unwrap();
        it.poll(0).unwrap();
        it.senders[0].0.apply(1);
        it.poll(0).unwrap();
        // Both are reserved; the first lands, and nobody says so. The second never does.
        it.senders[0].0.lose_answer(0, true);
        let found = it.recover().unwrap();
        assert_eq!((found.holes, found.saved), (1, 1));
        for _ in 0..40 {
            it.run(0, 1);
        }
        assert_eq!(it.receive_all(), [message(1, LEN), message(2, LEN)]);
        assert!(matches!(it.senders[0].1.test(sent), SendState::Accepted | SendState::Processed));
    }

    fn an_answer_lost_before_the_fence_of_what_was_not_applied_is_sent_again(it: 1) {
        it.reserve(0, 1);
        it.senders[0].0.lose_answer(0, false);
        it.recover().unwrap();
        for _ in 0..40 {
            it.run(0, 1);
        }
        assert_eq!(it.receive_all(), [message(1, LEN)]);
    }

    fn of_one_sender_messages_stay_in_order_though_the_first_is_written_again(it: 1) {
        for number in 1..4 {
            it.send(0, &message(number, LEN)).unwrap();
        }
        it.poll(0).unwrap();
        it.senders[0].0.apply_all();
        it.poll(0).unwrap();
        // The first is under way, and a reservation for the others.
        it.senders[0].0.apply(1);
        it.poll(0).unwrap();
        it.senders[0].0.apply(1);
        it.senders[0].0.apply(1);
        let found = it.recover().unwrap();
        assert_eq!((found.holes, found.saved), (1, 2));
        assert_eq!(it.receive_all().len(), 0, "they wait for the first");
        it.run(0, 12);
        let expected: Vec<_> = (1..4).map(|number| message(number, LEN)).collect();
        assert_eq!(it.receive_all(), expected);
    }

    fn several_holes_are_skipped_and_counted_and_what_is_between_them_is_received(it: 5) {
        it.reserve(0, 1);
        for who in [1, 3] {
            it.send(who, &message(who as u64, LEN)).unwrap();
            it.run(who, 2);
            it.reserve(who + 1, 9);
        }
        let early = it.receive_all().len();
        let found = it.recover().unwrap();
        assert_eq!((found.holes, found.saved as usize), (3, 2 - early));
        assert_eq!(it.receive_all().len() + early, 2);
        for who in 0..5 {
            it.run(who, 12);
        }
        assert_eq!(it.receive_all().len(), 3, "those that live send again");
    }

    fn all_eight_of_eight_writers_may_die_and_another_comes(it: 9) {
        for who in 0..8 {
            it.reserve(who, 1);
        }
        let found = it.recover().unwrap();
        assert_eq!((found.holes, found.saved), (1, 0), "one run of eight places");
        it.send(8, &message(5, LEN)).unwrap();
        it.run(8, 12);
        assert_eq!(it.receive_all(), [message(5, LEN)]);
    }

    fn a_writer_that_slept_through_two_recoveries_finds_the_epoch(it: 3) {
        it.reserve(0, 1);
        for epoch in 1..=2 {
            it.reserve(1 + epoch % 2, 2);
            assert_eq!(it.recover().unwrap().epoch, epoch as u64);
        }
        it.run(0, 20);
        assert_eq!(it.receive_all(), [message(1, LEN)]);
        assert_eq!(it.receiver.epoch(), 2);
    }

    fn a_writer_that_slept_through_all_his_epochs_is_told_so(it: 2) {
        let sent = it.reserve(0, 1);
        for _ in 0..4 {
            let (host, peer) = (&it.host, it.senders[1].0.host.peer);
            let terms = it.receiver.admit(host, peer).unwrap();
            let from = it.senders[1].0.host.clone();
            it.senders[1].1 = SharedSender::join(&from, &terms).unwrap();
            it.senders[1].0 = Station::new(from);
            it.reserve(1, 2);
            it.recover().unwrap();
        }
        let mut ended = Ok(());
        for _ in 0..4000 {
            it.ticks.next(Duration::from_millis(2));
            ended = ended.and(it.poll(0));
            it.senders[0].0.apply_all();
        }
        assert_eq!(ended, Err(SendError::Revoked { epochs: 4 }));
        let state = it.senders[0].1.test(sent);
        assert!(matches!(state, SendState::Failed(_)), "{state:?}");
        assert_eq!(it.receive_all().len(), 0, "nothing of his came");
    }

    fn a_refusal_that_was_forged_costs_nothing_but_time(it: 1) {
        it.reserve(0, 1);
        it.senders[0].0.fail(0, OpStatus::RemoteAuthenticationFailure);
        it.run(0, 20);
        assert_eq!((it.receive_all(), it.receiver.epoch()), (vec![message(1, LEN)], 0));
    }

    fn a_look_that_was_under_way_at_a_recovery_is_no_look_for_the_epoch(it: 1) {
        it.reserve(0, 1);
        it.ticks.next(Duration::from_millis(20));
        it.poll(0).unwrap();
        assert_eq!(it.under_way(0).len(), 2, "it is quiet for long, so he looks");
        it.recover().unwrap();
        // The message is refused, then that look, and the next one is not.
        for _ in 0..3 {
            it.senders[0].0.apply(0);
            it.poll(0).unwrap();
        }
        assert_eq!(it.under_way(0)[0].op.op_type(), OpType::FetchAdd);
        it.run(0, 4);
        assert_eq!(it.receive_all(), [message(1, LEN)]);
    }

    fn a_held_message_stays_as_it_is_through_a_recovery(it: 2) {
        it.send(0, &message(1, LEN)).unwrap();
        it.run(0, 3);
        let held: Claim = it.receiver.claim().unwrap().unwrap();
        it.reserve(1, 2);
        assert_eq!(it.recover().unwrap().saved, 1);
        it.send(0, &message(3, LEN)).unwrap();
        it.run(0, 12);
        let mut bytes = [0; LEN];
        assert_eq!(it.receiver.read(&held, 0, &mut bytes), LEN);
        assert_eq!(bytes, *message(1, LEN));
        it.receiver.free(held);
        assert_eq!(it.receive_all(), [message(3, LEN)]);
    }

    fn a_hole_where_nobody_has_room_is_no_dead_writer(it: 2) {
        let mut claims = Vec::new();
        for number in 0..40 {
            let _ = it.send(0, &message(number, LEN));
            it.run(0, 1);
            claims.extend(it.receiver.claim().unwrap());
        }
        let now = it.ticks.next(it.timeout * 3);
        assert_eq!(it.receiver.poll_recovery(&it.host, now).unwrap(), None);
        let now = it.ticks.next(it.timeout * 3);
        assert_eq!(it.receiver.poll_recovery(&it.host, now).unwrap(), None);
        assert!(!claims.is_empty());
        for claim in claims {
            it.receiver.free(claim);
        }
        it.run(0, 3);
        assert!(it.receive().is_some());
    }

    fn a_message_that_fails_breaks_the_channel_for_its_sender_alone(it: 2) {
        let sent = it.reserve(0, 1);
        it.send(0, &message(2, LEN)).unwrap();
        it.senders[0].0.fail(0, OpStatus::RemotePermissionDenied);
        let status = CallStatus::Failed(OpStatus::RemotePermissionDenied);
        assert_eq!(it.poll(0), Err(SendError::Broken { handle: sent, status }));
        assert_eq!(it.senders[0].1.test(sent), SendState::Failed(status));
        it.senders[0].0.apply_all();
        it.recover().unwrap();
        it.send(1, &message(3, LEN)).unwrap();
        it.run(1, 12);
        assert_eq!(it.receive_all(), [message(3, LEN)]);
    }

    fn a_reservation_of_which_nobody_knows_is_made_again(it: 1) {
        it.send(0, &message(1, LEN)).unwrap();
        it.poll(0).unwrap();
        // It was made, and its sender never learns where.
        it.senders[0].0.lose_answer(0, true);
        for _ in 0..200 {
            it.ticks.next(Duration::from_millis(5));
            it.poll(0).unwrap();
            while !it.under_way(0).is_empty() {
                let is_settle = matches!(it.under_way(0)[0].op, CommandOp::Settle { .. });
                let station = &mut it.senders[0].0;
                if is_settle { station.fail(0, OpStatus::Nack) } else { station.apply(0) }
            }
        }
        if it.receive().is_none() {
            it.recover().unwrap();
            it.run(0, 12);
            assert_eq!(it.receive(), Some(message(1, LEN)));
        }
        assert_eq!(it.receive(), None, "once");
    }

    fn a_head_that_cannot_be_ends_the_channel(it: 1) {
        it.receiver.control().store(HEAD, 8).unwrap();
        let now = it.ticks.next(Duration::from_micros(1));
        it.receiver.poll_recovery(&it.host, now).unwrap();
        let now = it.ticks.next(it.timeout);
        let refused = it.receiver.poll_recovery(&it.host, now).unwrap_err();
        assert!(refused.to_string().contains("used the ring up to 8"), "{refused}");
    }
}

//= channels#4.4-with-zeroing
//= type=test
#[test]
fn records_come_in_the_order_of_their_places_and_are_zeroed() {
    let mut it = Bench::<Records>::new(2);
    it.reserve(0, 1);
    it.send(1, &message(2, LEN)).unwrap();
    it.run(1, 3);
    assert_eq!(it.receive(), None, "a slow writer holds up the others");
    it.senders[0].0.apply_all();
    assert_eq!(it.receive_all(), [message(1, LEN), message(2, LEN)]);
    let mut bytes = [1; 2048];
    it.receiver.ring().read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 2048]);
}

//= channels#4.4-immediate
//= type=test
#[test]
fn events_come_in_any_order_and_say_who_sent() {
    let mut it = Bench::<Events>::new(2);
    it.reserve(0, 1);
    it.send(1, &message(2, LEN)).unwrap();
    it.run(1, 3);
    let peers = [it.senders[0].0.host.peer, it.senders[1].0.host.peer];
    let first = it.receiver.receive().unwrap().unwrap();
    assert_eq!((first.to_vec(), first.sender()), (message(2, LEN), Some(peers[1])));
    drop(first);
    assert_eq!(it.receiver.tail(), Position::ZERO, "it is not free yet");
    it.senders[0].0.apply_all();
    let second = it.receiver.receive().unwrap().unwrap();
    assert_eq!((second.to_vec(), second.sender()), (message(1, LEN), Some(peers[0])));
}

//= channels#3.4-recovery
//= type=test
#[test]
fn after_a_recovery_nothing_is_left_in_the_ring_and_the_tail_is_the_head() {
    let mut it = Bench::<Records>::new(3);
    it.reserve(0, 1);
    it.send(1, &message(2, LEN)).unwrap();
    it.run(1, 3);
    it.reserve(2, 3);
    let head = it.receiver.head();
    let found = it.recover().unwrap();
    let expected = Recovery { epoch: 1, holes: 2, skipped: 2 * 128, saved: 1 };
    assert_eq!((found, it.receiver.tail()), (expected, head));
    let mut bytes = [1; 2048];
    it.receiver.ring().read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 2048]);
    assert_eq!(it.receive_all(), [message(2, LEN)]);
}
