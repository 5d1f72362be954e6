//! Senders and receivers against hosts in the test's hands: what each receiver gets is what was
//! sent, in order, or it is told that the ring went on without it.

use proptest::prelude::*;
use rma_core::executor::CallStatus;
use rma_core::op::{OpStatus, OpType};

use super::*;
use crate::{
    readers::Standing,
    receiver::{ReceiveError, Receiver},
    terms::Terms,
    tests::{
        audience::{Audience, Read, TIMEOUT, drawing},
        hand::{Claiming, Hosts, Node},
    },
};

mod looks;

/// The number of a kind, as the paper's table has it: with detached bells, inlined ones with so
/// much prefetching, or notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Detached,
    Inlined(u32),
    Notify,
    /// The same, into memory of the application's.
    DetachedInto,
    InlinedInto,
    NotifyInto,
}

const ALL: [Which; 8] = [
    Which::Detached,
    Which::Inlined(0),
    Which::Inlined(56),
    Which::Inlined(400),
    Which::Notify,
    Which::DetachedInto,
    Which::InlinedInto,
    Which::NotifyInto,
];

#[derive(Debug)]
enum Kinds {
    Detached(detached_bell::Sender),
    Inlined(inlined_bell::Sender),
    Notify(notify_receiver::Sender),
}

#[derive(Debug)]
struct Sends {
    which: Which,
    len_max: u32,
    it: Kinds,
}

impl Read for Sends {
    fn as_sender(&mut self) -> &mut dyn Sender {
        match &mut self.it {
            Kinds::Detached(it) => it,
            Kinds::Inlined(it) => it,
            Kinds::Notify(it) => it,
        }
    }

    fn readers(&self) -> Vec<Reader> {
        match &self.it {
            Kinds::Detached(it) => it.readers().collect(),
            Kinds::Inlined(it) => it.readers().collect(),
            Kinds::Notify(it) => it.readers().collect(),
        }
    }
}

type Channel = Audience<Sends>;

impl Channel {
    fn open(which: Which, len: u64, len_max: u32, readers: u8) -> Self {
        let hosts = Hosts::new();
        let from = hosts.node(1);
        let prefetch = if let Which::Inlined(prefetch) = which { prefetch } else { 0 };
        let config = ReadRingConfig::default().with(|it| {
            (it.len, it.len_max, it.prefetch) = (RingLen::new(len).unwrap(), len_max, prefetch);
            (it.readers, it.reader_timeout) = (4, TIMEOUT);
        });
        let desk = from.host();
        let it = match which {
            Which::Detached | Which::DetachedInto => {
                Kinds::Detached(detached_bell::Sender::open(desk, config).unwrap())
            }
            Which::Inlined(_) | Which::InlinedInto => {
                Kinds::Inlined(inlined_bell::Sender::open(desk, config).unwrap())
            }
            Which::Notify | Which::NotifyInto => {
                Kinds::Notify(notify_receiver::Sender::open(desk, config).unwrap())
            }
        };
        let mut it = Self::new(hosts, from, Sends { which, len_max, it });
        for number in 0..readers {
            it.join(it.hosts.node(2 + number));
        }
        it
    }

    fn join(&mut self, node: Node) {
        let (which, len_max) = (self.sender.which, self.sender.len_max);
        let prefetch = if let Which::Inlined(prefetch) = which { prefetch } else { 0 };
        let config = ReaderConfig::new().with(|it| it.prefetch = prefetch);
        let (from, peer) = (&self.from, node.peer);
        let receiver: Box<dyn Receiver> = match &mut self.sender.it {
            Kinds::Detached(sender) => {
                let terms = sender.admit(from.host(), peer).unwrap();
                let terms = Terms::from_bytes(&terms.to_bytes()).unwrap();
                let desk = node.host();
                if which == Which::Detached {
                    Box::new(detached_bell::Receiver::join(desk, config, &terms).unwrap())
                } else {
                    let into = detached_bell::Into::join(desk, config, &terms).unwrap();
                    Box::new(Claiming::new(into, desk, len_max))
                }
            }
            Kinds::Inlined(sender) => {
                let terms = sender.admit(from.host(), peer).unwrap();
                let desk = node.host();
                if which == Which::InlinedInto {
                    let into = inlined_bell::Into::join(desk, config, &terms).unwrap();
                    Box::new(Claiming::new(into, desk, len_max))
                } else {
                    Box::new(inlined_bell::Receiver::join(desk, config, &terms).unwrap())
                }
            }
            Kinds::Notify(sender) => {
                let half = sender.admit(from.host(), peer).unwrap();
                let (desk, peer, told) = (node.host(), from.peer, half.terms());
                let (it, terms): (Box<dyn Receiver>, _) = if which == Which::Notify {
                    let joined = notify_receiver::Receiver::join(desk, config, peer, told).unwrap();
                    (Box::new(joined.0), joined.1)
                } else {
                    let joined = notify_receiver::Into::join(desk, config, peer, told).unwrap();
                    (Box::new(Claiming::new(joined.0, desk, len_max)), joined.1)
                };
                sender.accept(half, &terms).unwrap();
                it
            }
        };
        self.add(node, receiver);
    }
}

//= channels#4.6-detached
//= type=test
//= channels#4.6-inlined
//= type=test
//= channels#4.6-notify
//= type=test
#[test]
fn all_readers_get_all_messages_through_rings_that_wrap_whatever_their_lengths() {
    for which in ALL {
        for (len, len_max, readers) in [(1024, 300, 1), (1024, 300, 4), (1 << 15, 9000, 2)] {
            let mut it = Channel::open(which, len, len_max, readers);
            it.settle(4);
            for number in 0..400 {
                let len = 1 + number * 37 % len_max as usize;
                while it.send(len) == Err(SendError::Full) {
                    it.settle(1);
                }
                if number % 5 == 0 {
                    it.settle(1);
                }
            }
            it.settle(12);
            for end in &it.readers {
                assert_eq!((end.got, end.ended), (400, None), "{which:?}");
            }
            assert_eq!(it.sender.readers()[0].standing, Standing::Counts);
            let issued = it.from.issued;
            let notices = issued[OpType::Notify as usize];
            assert_eq!(issued.iter().sum::<usize>(), notices, "{which:?} is passive");
            assert_eq!(notices > 0, matches!(which, Which::Notify | Which::NotifyInto));
        }
    }
}

#[test]
fn one_of_four_readers_that_stops_is_ejected_and_the_others_go_on() {
    for which in ALL {
        let mut it = Channel::open(which, 1024, 200, 4);
        it.settle(8);
        let mut refused = 0;
        let mut number = 0;
        while number < 60 {
            match it.send(150) {
                Ok(_) => number += 1,
                Err(error) => {
                    assert_eq!(error, SendError::Full);
                    refused += 1;
                    it.hosts.step = TIMEOUT / 100;
                }
            }
            it.poll_sender();
            it.hosts.serve_all(&mut it.from);
            for index in 0..3 {
                it.poll_reader(index);
                it.hosts.serve_all(&mut it.readers[index].node);
            }
        }
        assert!(refused > 0, "it held them up first");
        let standings: Vec<_> = it.sender.readers().iter().map(|it| it.standing).collect();
        use Standing::{Counts, Silent};
        assert_eq!(standings, [Counts, Counts, Counts, Silent], "{which:?}");
        it.hosts.step = Duration::from_micros(10);
        it.settle(12);
        for end in &it.readers[..3] {
            assert_eq!((end.got, end.ended), (60, None), "{which:?}");
        }
        let last = &it.readers[3];
        assert!(
            matches!(last.ended, Some(ReceiveError::Ejected { .. })),
            "{which:?}: {:?}",
            last.ended
        );
        assert!(last.got < 10, "what it has got was checked as all that it gets");
    }
}

/// A reader asks for a body, and the ring goes around before that is read. Then it tells a tail,
/// which is done as any.
#[test]
fn overwritten_data_is_not_believed_and_a_later_tail_renews_nothing() {
    for which in ALL {
        let mut it = Channel::open(which, 1024, 200, 1);
        it.settle(8);
        it.send(150).unwrap();
        it.send(150).unwrap();
        // It knows of both, and has read the first, which it will believe: nothing is overwritten.
        it.poll_sender();
        it.hosts.serve_all(&mut it.from);
        for _ in 0..4 {
            it.poll_reader(0);
            it.hosts.serve_all(&mut it.readers[0].node);
        }
        it.hosts.now = it.hosts.now + TIMEOUT * 2;
        // In doubt, it checks, and tells its tail, which is done. The sender has not looked.
        it.poll_reader(0);
        it.hosts.step = TIMEOUT;
        it.send(150).unwrap();
        for _ in 0..4 {
            it.poll_sender();
        }
        assert_eq!(it.sender.readers()[0].standing, Standing::Silent, "{which:?}");
        it.hosts.step = Duration::from_micros(10);
        for _ in 0..6 {
            it.poll_reader(0);
            it.hosts.serve_all(&mut it.readers[0].node);
        }
        for _ in 0..20 {
            let _ = it.send(199);
            it.poll_sender();
            it.hosts.serve_all(&mut it.from);
            it.poll_reader(0);
            it.hosts.serve_all(&mut it.readers[0].node);
        }
        let end = &it.readers[0];
        assert!(
            matches!(end.ended, Some(ReceiveError::Ejected { .. })),
            "{which:?}: {:?}",
            end.ended
        );
        assert_eq!(it.sender.readers()[0].standing, Standing::Silent);
    }
}

#[test]
fn a_reader_that_was_slow_and_still_counts_trusts_again_after_it_has_told() {
    for which in [Which::Detached, Which::Inlined(400)] {
        let mut it = Channel::open(which, 4096, 300, 1);
        it.settle(8);
        // Nobody looks for a long time.
        it.hosts.now = it.hosts.now + TIMEOUT * 100;
        let seats = |it: &Channel| it.readers[0].node.issued[OpType::Read as usize];
        it.send(100).unwrap();
        it.settle(8);
        assert_eq!((it.readers[0].got, it.readers[0].ended), (1, None));
        let mut reads = [0; 2];
        for reads in &mut reads {
            let before = seats(&it);
            it.send(100).unwrap();
            it.settle(6);
            *reads = seats(&it) - before;
        }
        assert_eq!(reads[0], reads[1], "{which:?}: no checks");
        assert_eq!(it.readers[0].got, 3);
    }
}

#[test]
fn a_tail_that_cannot_be_costs_its_reader_the_seat_and_nobody_else_anything() {
    for which in ALL {
        let mut it = Channel::open(which, 1024, 200, 2);
        it.settle(8);
        it.send(100).unwrap();
        let words = match &it.sender.it {
            Kinds::Detached(it) => it.readers.words(0),
            Kinds::Inlined(it) => it.readers.words(0),
            Kinds::Notify(it) => it.readers.words(0),
        };
        words.store(0, 1 << 40).unwrap();
        it.poll_sender();
        let readers = it.sender.readers();
        assert_eq!(readers[0].standing, Standing::Malformed { told: 1 << 40 }, "{which:?}");
        assert_eq!(readers[1].standing, Standing::Counts);
        it.hosts.now = it.hosts.now + TIMEOUT;
        for _ in 0..30 {
            while it.send(199) == Err(SendError::Full) {
                it.settle(1);
            }
        }
        it.settle(8);
        assert_eq!((it.readers[1].got, it.readers[1].ended), (31, None), "{which:?}");
        assert!(matches!(it.readers[0].ended, Some(ReceiveError::Ejected { .. })), "{which:?}");
    }
}

#[test]
fn a_seat_is_taken_again_and_who_had_it_is_told() {
    for which in ALL {
        let mut it = Channel::open(which, 1024, 200, 4);
        it.settle(8);
        it.send(100).unwrap();
        it.hosts.step = TIMEOUT;
        for _ in 0..4 {
            it.poll_sender();
        }
        assert!(it.sender.readers().iter().all(|it| it.standing == Standing::Silent));
        it.hosts.step = Duration::from_micros(10);
        it.join(it.hosts.node(9));
        it.send(70).unwrap();
        it.settle(8);
        let last = it.readers.last().unwrap();
        assert_eq!((last.got, last.ended), (2, None), "{which:?}");
        for end in &it.readers[..4] {
            assert!(matches!(end.ended, Some(ReceiveError::Ejected { .. })), "{which:?}");
        }
        assert_eq!(it.sender.readers().len(), 4);
    }
}

#[test]
fn a_notice_that_fails_is_told_again_and_nothing_is_overwritten_meanwhile() {
    let mut it = Channel::open(Which::Notify, 1024, 200, 1);
    it.settle(8);
    let handle = it.send(100).unwrap();
    it.poll_sender();
    let command = it.from.engine.taken.remove(0);
    it.from.end(&command, OpStatus::RemoteAuthenticationFailure);
    it.poll_sender();
    assert_eq!(it.sender.as_sender().test(handle), SendState::Accepted);
    it.settle(8);
    assert_eq!((it.readers[0].got, it.readers[0].ended), (1, None));
    assert_eq!(it.sender.readers()[0].standing, Standing::Counts);
}

#[test]
fn a_read_that_fails_for_good_breaks_the_receiver() {
    for which in ALL {
        let mut it = Channel::open(which, 1024, 200, 1);
        it.settle(8);
        it.send(100).unwrap();
        it.poll_sender();
        it.hosts.serve_all(&mut it.from);
        it.poll_reader(0);
        let command = it.readers[0].node.engine.taken.remove(0);
        it.readers[0].node.end(&command, OpStatus::RemoteOutOfBounds);
        it.poll_reader(0);
        let status = CallStatus::Failed(OpStatus::RemoteOutOfBounds);
        assert_eq!(it.readers[0].ended, Some(ReceiveError::Broken { status }), "{which:?}");
    }
}

#[test]
fn messages_are_accepted_when_they_are_sent_and_processed_when_all_have_processed_them() {
    for which in ALL {
        let mut it = Channel::open(which, 1024, 200, 2);
        it.settle(8);
        for len in [0, 201] {
            let refused = SendError::Len { len, max: 200 };
            assert_eq!(it.send(len), Err(refused));
        }
        let handle = it.send(100).unwrap();
        assert_eq!(it.sender.as_sender().test(handle), SendState::Accepted);
        for _ in 0..6 {
            it.poll_sender();
            it.hosts.serve_all(&mut it.from);
            it.poll_reader(0);
            it.hosts.serve_all(&mut it.readers[0].node);
        }
        assert_eq!(it.sender.as_sender().test(handle), SendState::Accepted, "one has not");
        it.settle(40);
        assert_eq!(it.sender.as_sender().test(handle), SendState::Processed);
        assert_eq!(it.from.link.copied_bytes(), 100);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    //= channels#4.6-slow-reader
    //= type=test
    #[test]
    fn whatever_happens_a_reader_gets_what_was_sent_or_is_ejected(seed: u64) {
        for which in ALL {
            Channel::open(which, 1024, 120, 3).chaos(120, seed);
        }
    }

    #[test]
    fn any_bytes_in_a_senders_memory_are_refused_or_are_messages(seed: u64) {
        for which in ALL {
            garbage(which, seed);
        }
    }
}

/// A sender whose ring, head and seat are any bytes.
fn garbage(which: Which, seed: u64) {
    let mut draw = drawing(seed);
    let mut it = Channel::open(which, 1024, 100, 1);
    it.settle(draw(8) as usize);
    for _ in 0..60 {
        if matches!(which, Which::Notify | Which::NotifyInto) && draw(3) == 0 {
            let _ = it.send(1 + draw(100) as usize);
            it.poll_sender();
            it.hosts.serve_all(&mut it.from);
        }
        let mut word = |words| {
            let word = match draw(4) {
                0 => draw(110) | draw(3) << 32,
                1 => draw(512) & !7,
                2 => draw(1 << 31) << 32 | draw(1 << 31),
                _ => 0,
            };
            [draw(words), word]
        };
        if !it.garbage(100, &mut word) {
            return;
        }
    }
}
