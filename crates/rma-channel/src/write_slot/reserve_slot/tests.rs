//! Shared slots, against an engine in the test's hands.

use core::time::Duration;

use proptest::prelude::*;
use rma_core::{
    executor::CallStatus,
    gate::{Gate as _, Peer},
    op::{OpStatus, OpType},
    receive_queue::{Event, Receive},
    region::RegionId,
    time::Instant,
};

use super::*;
use crate::{
    receiver::{Blocking, Claims, Message, ReceiveError, Receiver as _},
    ring::Malformed,
    sender::{Outgoing, SendError, SendHandle, SendState, Sender as _},
    tests::bench::{Bench, OTHER, PEER, Process},
};

const TIMEOUT: Duration = Duration::from_secs(1);

/// A receiver, and two senders of whom four messages may wait each.
struct Ends {
    bench: Bench,
    receiver: Receiver,
    senders: [Sender; 2],
    slots: u16,
}

fn open(slots: u16) -> Ends {
    let mut bench = Bench::new(16);
    let config = ReserveConfig::new().with(|it| {
        (it.slots, it.len_max, it.epochs, it.hole_timeout) = (slots, 9000, 4, TIMEOUT);
    });
    let receiver = Receiver::open(&bench.host, config).unwrap();
    let senders = [PEER, OTHER].map(|peer| {
        let terms = receiver.admit(&bench.host, peer).unwrap();
        bench.host.peer = peer;
        Sender::join(&bench.host, &terms, 4).unwrap()
    });
    Ends { bench, receiver, senders, slots }
}

/// Returns the offset of the words that say which slots are taken.
fn words(slots: u16) -> u64 {
    9000 * u64::from(slots)
}

impl Ends {
    fn process(&mut self, who: usize) -> (&mut Sender, &mut Process) {
        let process = if who == 0 { &mut self.bench.us } else { &mut self.bench.other };
        (&mut self.senders[who], process)
    }

    fn send(&mut self, who: usize, message: &[u8]) -> Result<SendHandle, SendError> {
        let now = self.bench.now;
        let (sender, process) = self.process(who);
        sender.send(&mut process.link, now, message)
    }

    fn poll(&mut self, who: usize) -> Result<(), SendError> {
        self.bench.turn();
        let now = self.bench.now;
        let (sender, process) = self.process(who);
        let polled = sender.poll(&mut process.link, now);
        self.bench.turn();
        let Bench { us, now, .. } = &mut self.bench;
        self.receiver.poll(&mut us.link, *now).unwrap();
        polled
    }

    /// All that is under way is applied, again and again; of one sender.
    fn settle(&mut self, who: usize) {
        for _ in 0..30 {
            self.poll(who).unwrap();
            let process = if who == 0 { &mut self.bench.us } else { &mut self.bench.other };
            while !process.engine.taken.is_empty() {
                process.apply(0);
            }
        }
    }

    /// One sender polls and his ops are applied, until this one is under way.
    fn until(&mut self, who: usize, op_type: OpType) {
        for _ in 0..20 {
            self.poll(who).unwrap();
            let process = if who == 0 { &mut self.bench.us } else { &mut self.bench.other };
            match process.engine.taken.first() {
                Some(command) if command.op.op_type() == op_type => return,
                Some(_) => _ = process.apply(0),
                None => {}
            }
        }
        panic!("{op_type:?} is never issued");
    }

    fn receive(&mut self) -> Option<(Peer, Vec<u8>)> {
        let message = Message::next(&mut self.receiver).unwrap()?;
        Some((message.sender().unwrap(), message.to_vec()))
    }

    fn recover(&mut self) -> Option<Recovery> {
        let Bench { host, now, .. } = &mut self.bench;
        self.receiver.poll_recovery(host, *now).unwrap()
    }

    /// How many slots are taken.
    fn taken(&self) -> u32 {
        let memory = self.bench.host.hosts.region(RegionId::from_bits(2));
        let words = (words(self.slots)..memory.len()).step_by(8);
        let none = words.clone().count() as u32 * 64 - u32::from(self.slots);
        words.map(|offset| memory.load(offset).unwrap().count_ones()).sum::<u32>() - none
    }
}

proptest! {
    //= channels#4.2-reserve
    //= type=test
    #[test]
    fn messages_of_many_come_once_and_in_order_for_each_whatever_the_order_of_ops(
        steps in prop::collection::vec(any::<(u8, u16)>(), 1..400),
        slots in prop::sample::select(vec![1_u16, 2, 3, 65]),
        lens in prop::collection::vec(1_usize..9000, 1..6),
    ) {
        let mut it = open(slots);
        let message = |who: usize, number: usize| -> Vec<u8> {
            (0..lens[number % lens.len()]).map(|at| (who + 3 * number + 7 * at) as u8).collect()
        };
        let (mut sent, mut got, mut held) = ([Vec::new(), Vec::new()], [0; 2], Vec::new());
        for (what, which) in steps {
            let who = usize::from(which % 2);
            match what % 5 {
                0 => match it.send(who, &message(who, sent[who].len())) {
                    Ok(handle) => sent[who].push(handle),
                    Err(error) => assert_eq!(error, SendError::Full),
                },
                1 | 2 => {
                    let process = if who == 0 { &mut it.bench.us } else { &mut it.bench.other };
                    if !process.engine.taken.is_empty() {
                        let at = usize::from(which / 2) % process.engine.taken.len();
                        prop_assert_eq!(process.apply(at), OpStatus::Ok);
                    }
                }
                3 => {
                    if let Some(claim) = it.receiver.claim().unwrap() {
                        let from = usize::from(claim.sender() == Some(OTHER));
                        let mut bytes = vec![0; claim.len()];
                        it.receiver.read(&claim, 0, &mut bytes);
                        prop_assert_eq!(&bytes, &message(from, got[from]));
                        got[from] += 1;
                        held.push(claim);
                    }
                }
                _ if !held.is_empty() => {
                    it.receiver.free(held.remove(usize::from(which) % held.len()));
                }
                _ => {}
            }
            it.poll(who).unwrap();
        }
        held.into_iter().for_each(|claim| it.receiver.free(claim));
        for _ in 0..40 {
            (0..2).for_each(|who| it.settle(who));
            while let Some((from, bytes)) = it.receive() {
                let from = usize::from(from == OTHER);
                prop_assert_eq!(bytes, message(from, got[from]));
                got[from] += 1;
            }
        }
        for who in 0..2 {
            prop_assert_eq!(got[who], sent[who].len());
            let is_there = |&handle| it.senders[who].test(handle) == SendState::Accepted;
            prop_assert!(sent[who].iter().all(is_there));
        }
        prop_assert_eq!(it.taken(), 0, "no slot stays taken");
    }
}

#[test]
fn a_sender_that_finds_all_slots_taken_waits_for_one() {
    let mut it = open(2);
    for number in 0..4 {
        it.send(0, &[number]).unwrap();
    }
    it.settle(0);
    assert_eq!(it.send(0, &[4]).map(drop), Ok(()), "two have come, and two wait");
    it.send(0, &[5]).unwrap();
    assert_eq!(it.send(0, &[6]), Err(SendError::Full));
    assert!(it.senders[0].poll_timeout().is_some());
    for number in 0..6 {
        assert_eq!(it.receive(), Some((PEER, vec![number])));
        it.settle(0);
    }
    assert_eq!((it.receive(), it.taken()), (None, 0));
}

#[test]
fn a_slot_that_a_dead_sender_has_taken_is_taken_back_and_he_changes_nothing_later() {
    let mut it = open(2);
    let late = it.send(1, b"late").unwrap();
    it.until(1, OpType::WriteWithImm);
    it.send(0, b"first").unwrap();
    it.settle(0);
    // One message has come, and was not taken; the other's slot is waited for.
    assert_eq!(it.taken(), 2);
    it.send(0, b"second").unwrap();
    it.settle(0);
    assert_eq!(it.recover(), None, "it is not time");
    it.bench.later(TIMEOUT);
    assert_eq!(it.recover(), Some(Recovery { epoch: 1, freed: 1 }));
    it.settle(0);
    assert_eq!(it.receive(), Some((PEER, b"first".to_vec())), "it has come before");
    assert_eq!(it.receive(), Some((PEER, b"second".to_vec())), "in the slot of the dead");
    // He wakes up: his op is refused, and he sends the message again.
    let refused = it.bench.other.apply(0);
    assert_eq!(refused, OpStatus::RemoteAuthenticationFailure);
    assert_eq!(it.senders[1].test(late), SendState::Sending);
    it.settle(1);
    assert_eq!(it.receive(), Some((OTHER, b"late".to_vec())));
    assert_eq!((it.receive(), it.taken()), (None, 0));
    assert_eq!(it.senders[1].test(late), SendState::Accepted);
}

#[test]
fn messages_under_way_at_an_epochs_end_come_once_and_in_order() {
    let mut it = open(4);
    it.send(1, b"dead").unwrap();
    it.until(1, OpType::WriteWithImm);
    for recovery in 1..=3 {
        for number in 0..4 {
            it.send(0, &[number]).unwrap();
        }
        it.until(0, OpType::WriteWithImm);
        it.bench.later(TIMEOUT);
        it.poll(0).unwrap();
        it.bench.later(TIMEOUT);
        assert_eq!(it.recover().map(|it| it.epoch), Some(recovery));
        for number in 0..4 {
            it.settle(0);
            assert_eq!(it.receive(), Some((PEER, vec![number])), "epoch {recovery}");
        }
        assert_eq!(it.taken(), 0);
        it.bench.other.engine.taken.clear();
        if recovery < 3 {
            // The slot that is dead in the next epoch: a slot that somebody took and forgot.
            let memory = it.bench.host.hosts.region(RegionId::from_bits(2));
            memory.fetch_add(words(4), 1).unwrap();
            it.poll(0).unwrap();
        }
    }
}

#[test]
fn a_sender_that_waits_for_a_slot_is_refused_once_and_then_finds_the_epoch() {
    let mut it = open(1);
    it.send(1, b"dead").unwrap();
    it.until(1, OpType::WriteWithImm);
    it.send(0, b"waits").unwrap();
    it.settle(0);
    it.bench.later(TIMEOUT);
    assert_eq!(it.recover(), Some(Recovery { epoch: 1, freed: 1 }));
    let mut ended = Vec::new();
    for _ in 0..20 {
        it.poll(0).unwrap();
        while !it.bench.us.engine.taken.is_empty() {
            ended.push(it.bench.apply(0));
        }
        it.bench.later(Duration::from_millis(5));
    }
    // It looked for a slot; then for the epoch; it took the slot, and wrote.
    let mut expected = vec![OpStatus::Ok; 4];
    expected[0] = OpStatus::RemoteAuthenticationFailure;
    assert_eq!((ended, it.receive()), (expected, Some((PEER, b"waits".to_vec()))));
}

#[test]
fn messages_that_are_held_stay_when_slots_are_taken_back() {
    let mut it = open(3);
    it.send(0, b"held").unwrap();
    it.settle(0);
    let claim = it.receiver.claim().unwrap().unwrap();
    it.send(0, b"unseen").unwrap();
    it.settle(0);
    it.send(1, b"dead").unwrap();
    it.until(1, OpType::WriteWithImm);
    it.bench.later(TIMEOUT);
    assert_eq!(it.recover().map(|it| it.freed), Some(1));
    let mut bytes = [0; 4];
    assert_eq!((it.receiver.read(&claim, 0, &mut bytes), &bytes), (4, b"held"));
    assert_eq!(it.taken(), 2);
    it.receiver.free(claim);
    assert_eq!(it.receive(), Some((PEER, b"unseen".to_vec())));
    assert_eq!(it.taken(), 0);
}

#[test]
fn a_forged_refusal_costs_time_and_no_slot() {
    let mut it = open(4);
    it.send(0, b"message").unwrap();
    it.until(0, OpType::WriteWithImm);
    it.bench.fail(0, OpStatus::RemoteAuthenticationFailure);
    it.settle(0);
    assert_eq!(it.taken(), 1, "the slot is the same");
    assert_eq!(it.receive(), Some((PEER, b"message".to_vec())));
    assert_eq!((it.receive(), it.taken()), (None, 0));
    it.send(0, b"another").unwrap();
    it.poll(0).unwrap();
    it.bench.fail(0, OpStatus::RemoteAuthenticationFailure);
    it.settle(0);
    assert_eq!(it.receive(), Some((PEER, b"another".to_vec())), "the same of the COMPARE_SWAP");
}

#[test]
fn a_receiver_whose_keys_are_all_others_is_gone() {
    let mut it = open(4);
    let lost = it.send(0, b"message").unwrap();
    it.until(0, OpType::WriteWithImm);
    let region = it.bench.host.hosts.region(RegionId::from_bits(2));
    let key = it.bench.host.key().unwrap();
    it.bench.host.rekey(&region, key).unwrap();
    let status = CallStatus::Failed(OpStatus::RemoteAuthenticationFailure);
    let broken = SendError::Broken { handle: lost, status };
    let mut polled = Ok(());
    for _ in 0..1000 {
        while !it.bench.us.engine.taken.is_empty() {
            it.bench.apply(0);
        }
        it.bench.later(Duration::from_millis(5));
        polled = it.poll(0);
    }
    assert_eq!((polled, it.send(0, b"more")), (Err(broken), Err(broken)));
    assert_eq!(it.senders[0].test(lost), SendState::Failed(status));
}

#[test]
fn a_message_that_was_not_applied_is_named_and_concerns_no_other_sender() {
    let mut it = open(4);
    let (first, second) = (it.send(0, b"first").unwrap(), it.send(0, b"second").unwrap());
    it.until(0, OpType::WriteWithImm);
    it.bench.fail(0, OpStatus::RemotePermissionDenied);
    let status = CallStatus::Failed(OpStatus::RemotePermissionDenied);
    assert_eq!(it.poll(0), Err(SendError::Broken { handle: first, status }));
    assert_eq!(it.senders[0].test(first), SendState::Failed(status));
    assert_eq!(it.senders[0].test(second), SendState::Failed(CallStatus::PredecessorFailed));
    it.send(1, b"others").unwrap();
    it.settle(1);
    assert_eq!(it.receive(), Some((OTHER, b"others".to_vec())));
    assert_eq!(it.receive(), None);
}

#[test]
fn an_event_of_a_slot_that_is_free_or_full_or_none_is_malformed() {
    // Slots of 9000 bytes, the first of which has a message.
    let lies: [(u64, u32); 5] = [(0, 8), (9000, 8), (0, 0), (8999, 2), (4 * 9000, 8)];
    for (region_offset, len) in lies {
        let mut it = open(4);
        it.send(0, b"message").unwrap();
        it.settle(0);
        assert!(it.receiver.claim().unwrap().is_some());
        let event = Event {
            op_type: OpType::WriteWithImm,
            receive: Receive(0),
            len,
            immediate: 5,
            initiator: PEER.address,
            pid: PEER.pid,
            region: RegionId::from_bits(2),
            region_offset,
            at: Instant::ZERO,
        };
        it.bench.host.hosts.event(it.receiver.queue(), event);
        let end = region_offset + u64::from(len);
        let malformed = ReceiveError::from(Malformed::Event { immediate: 5, end, len });
        assert_eq!(it.receiver.claim(), Err(malformed), "{len} bytes at {region_offset}");
        assert_eq!(it.receiver.claim(), Err(malformed), "and it stays so");
    }
}
