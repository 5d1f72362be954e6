//! Senders and receivers against hosts in the test's hands: what each receiver gets is what was
//! sent, in order, or it is told that the ring went on without it.

use proptest::prelude::*;
use rma_core::executor::CallStatus;
use rma_core::op::{OpStatus, OpType};

use super::*;
use crate::{
    hand::{Claiming, Hosts, Node},
    readers::Standing,
    receiver::{ReceiveError, Receiver},
    ring::Malformed,
    terms::Terms,
};

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
enum Sends {
    Detached(detached_bell::Sender),
    Inlined(inlined_bell::Sender),
    Notify(notify_receiver::Sender),
}

/// A sender, and receivers with what they have got.
struct Channel {
    which: Which,
    len_max: u32,
    hosts: Hosts,
    from: Node,
    sender: Sends,
    sent: Vec<Vec<u8>>,
    readers: Vec<End>,
}

struct End {
    node: Node,
    receiver: Box<dyn Receiver>,
    got: usize,
    ended: Option<ReceiveError>,
}

const TIMEOUT: Duration = Duration::from_millis(64);

fn message(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 151 + at * 7 + (at >> 3) * number) as u8).collect()
}

impl Sends {
    fn as_sender(&mut self) -> &mut dyn Sender {
        match self {
            Self::Detached(it) => it,
            Self::Inlined(it) => it,
            Self::Notify(it) => it,
        }
    }

    fn readers(&self) -> Vec<Reader> {
        match self {
            Self::Detached(it) => it.readers().collect(),
            Self::Inlined(it) => it.readers().collect(),
            Self::Notify(it) => it.readers().collect(),
        }
    }
}

impl Channel {
    fn new(which: Which, len: u64, len_max: u32, readers: u8) -> Self {
        let (mut hosts, from) = (Hosts::new(), Node::new(1));
        let prefetch = if let Which::Inlined(prefetch) = which { prefetch } else { 0 };
        let config = ReadRingConfig::default().with(|it| {
            (it.len, it.len_max, it.prefetch) = (RingLen::new(len).unwrap(), len_max, prefetch);
            (it.readers, it.reader_timeout) = (4, TIMEOUT);
        });
        let desk = &mut hosts.desk(&from);
        let sender = match which {
            Which::Detached | Which::DetachedInto => {
                Sends::Detached(detached_bell::Sender::open(desk, config).unwrap())
            }
            Which::Inlined(_) | Which::InlinedInto => {
                Sends::Inlined(inlined_bell::Sender::open(desk, config).unwrap())
            }
            Which::Notify | Which::NotifyInto => {
                Sends::Notify(notify_receiver::Sender::open(desk, config).unwrap())
            }
        };
        let (sent, ends) = (Vec::new(), Vec::new());
        let mut it = Self { which, len_max, hosts, from, sender, sent, readers: ends };
        for number in 0..readers {
            it.join(Node::new(2 + number));
        }
        it
    }

    fn join(&mut self, node: Node) {
        let (which, len_max) = (self.which, self.len_max);
        let prefetch = if let Which::Inlined(prefetch) = which { prefetch } else { 0 };
        let config = ReaderConfig::new().with(|it| it.prefetch = prefetch);
        let (hosts, from, peer) = (&mut self.hosts, &self.from, node.peer);
        let receiver: Box<dyn Receiver> = match &mut self.sender {
            Sends::Detached(sender) => {
                let terms = sender.admit(&mut hosts.desk(from), peer).unwrap();
                let terms = Terms::from_bytes(&terms.to_bytes()).unwrap();
                let desk = &mut hosts.desk(&node);
                if which == Which::Detached {
                    Box::new(detached_bell::Receiver::join(desk, config, &terms).unwrap())
                } else {
                    let into = detached_bell::Into::join(desk, config, &terms).unwrap();
                    Box::new(Claiming::new(into, desk, len_max))
                }
            }
            Sends::Inlined(sender) => {
                let terms = sender.admit(&mut hosts.desk(from), peer).unwrap();
                let desk = &mut hosts.desk(&node);
                if which == Which::InlinedInto {
                    let into = inlined_bell::Into::join(desk, config, &terms).unwrap();
                    Box::new(Claiming::new(into, desk, len_max))
                } else {
                    Box::new(inlined_bell::Receiver::join(desk, config, &terms).unwrap())
                }
            }
            Sends::Notify(sender) => {
                let half = sender.admit(&mut hosts.desk(from), peer).unwrap();
                let (desk, told) = (&mut hosts.desk(&node), (from.peer, half.terms()));
                let (it, terms): (Box<dyn Receiver>, _) = if which == Which::Notify {
                    let joined = notify_receiver::Receiver::join(desk, config, told).unwrap();
                    (Box::new(joined.0), joined.1)
                } else {
                    let joined = notify_receiver::Into::join(desk, config, told).unwrap();
                    (Box::new(Claiming::new(joined.0, desk, len_max)), joined.1)
                };
                sender.accept(half, &terms).unwrap();
                it
            }
        };
        self.readers.push(End { node, receiver, got: self.sent.len(), ended: None });
    }

    fn send(&mut self, len: usize) -> Result<SendHandle, SendError> {
        let bytes = message(self.sent.len(), len);
        let sent = self.sender.as_sender().send(&mut self.from.link, self.hosts.now, &bytes);
        if sent.is_ok() {
            self.sent.push(bytes);
        }
        sent
    }

    /// The sender looks after its readers.
    fn poll_sender(&mut self) {
        self.hosts.turn(&mut self.from);
        self.sender.as_sender().poll(&mut self.from.link, self.hosts.now).unwrap();
        self.from.take(self.hosts.now);
    }

    /// A reader looks, and takes what it can; what it gets is what comes next.
    fn poll_reader(&mut self, index: usize) -> usize {
        let end = &mut self.readers[index];
        self.hosts.turn(&mut end.node);
        let polled = end.receiver.poll(&mut end.node.link, self.hosts.now);
        let before = end.got;
        loop {
            match end.receiver.claim() {
                Ok(Some(claim)) => {
                    let mut bytes = vec![0; claim.len()];
                    end.receiver.read(&claim, 0, &mut bytes);
                    assert_eq!(bytes, self.sent[end.got], "message {} of reader {index}", end.got);
                    end.got += 1;
                    end.receiver.free(claim);
                }
                Ok(None) => break,
                Err(error) => {
                    assert!(end.ended.is_none_or(|it| it == error), "it stays so");
                    end.ended = Some(error);
                    break;
                }
            }
        }
        if polled.is_err() {
            assert_eq!(polled.err(), end.ended, "both say why");
        } else {
            end.receiver.poll(&mut end.node.link, self.hosts.now).unwrap();
        }
        end.node.take(self.hosts.now);
        end.got - before
    }

    /// Everybody does what there is to do, again and again.
    fn settle(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.poll_sender();
            self.hosts.serve_all(&mut self.from);
            for index in 0..self.readers.len() {
                self.poll_reader(index);
                self.hosts.serve_all(&mut self.readers[index].node);
            }
        }
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
            let mut it = Channel::new(which, len, len_max, readers);
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

/// READs until a message that is sent to an idle reader is there.
#[test]
fn a_reader_that_trusts_asks_for_bells_and_bodies_alone() {
    for (which, looks) in
        [(Which::Detached, 2), (Which::Inlined(0), 2), (Which::Inlined(400), 1), (Which::Notify, 1)]
    {
        let mut it = Channel::new(which, 4096, 300, 1);
        it.settle(8);
        for number in 0..20 {
            it.send(300).unwrap();
            it.poll_sender();
            it.hosts.serve_all(&mut it.from);
            let mut reads = 0;
            // What is under way was issued before.
            it.hosts.serve_all(&mut it.readers[0].node);
            while it.poll_reader(0) == 0 {
                reads += it.readers[0].node.taken.len();
                it.hosts.serve_all(&mut it.readers[0].node);
                assert!(reads < 10, "{which:?}");
            }
            // With a look the message has come by the one that was under way.
            let besides = usize::from(looks == 1 && which != Which::Notify);
            assert!(reads <= 2 - besides, "{which:?}: message {number} by {reads} READs");
            it.settle(3);
        }
    }
}

#[test]
fn several_messages_come_with_one_read_where_it_is_known_how_far() {
    for (which, bodies) in [(Which::Detached, 1), (Which::Inlined(400), 2), (Which::Notify, 1)] {
        let mut it = Channel::new(which, 4096, 300, 1);
        it.settle(8);
        it.hosts.serve_all(&mut it.readers[0].node);
        it.poll_reader(0);
        for _ in 0..6 {
            it.send(40).unwrap();
        }
        // The first notice, and that for what has gathered.
        for _ in 0..2 {
            it.poll_sender();
            it.hosts.serve_all(&mut it.from);
        }
        let mut rounds = 0;
        while it.readers[0].got < 6 {
            it.hosts.serve_all(&mut it.readers[0].node);
            it.poll_reader(0);
            rounds += 1;
            assert!(rounds < 10);
        }
        assert!(rounds <= bodies + 1, "{which:?}: {rounds} round trips");
    }
}

#[test]
fn one_of_four_readers_that_stops_is_ejected_and_the_others_go_on() {
    for which in ALL {
        let mut it = Channel::new(which, 1024, 200, 4);
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
fn what_was_overwritten_is_not_believed_and_a_tail_told_after_that_renews_nothing() {
    for which in ALL {
        let mut it = Channel::new(which, 1024, 200, 1);
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
        let mut it = Channel::new(which, 4096, 300, 1);
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
        let mut it = Channel::new(which, 1024, 200, 2);
        it.settle(8);
        it.send(100).unwrap();
        let words = match &it.sender {
            Sends::Detached(it) => it.readers.words(0),
            Sends::Inlined(it) => it.readers.words(0),
            Sends::Notify(it) => it.readers.words(0),
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
        let mut it = Channel::new(which, 1024, 200, 4);
        it.settle(8);
        it.send(100).unwrap();
        it.hosts.step = TIMEOUT;
        for _ in 0..4 {
            it.poll_sender();
        }
        assert!(it.sender.readers().iter().all(|it| it.standing == Standing::Silent));
        it.hosts.step = Duration::from_micros(10);
        it.join(Node::new(9));
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
    let mut it = Channel::new(Which::Notify, 1024, 200, 1);
    it.settle(8);
    let handle = it.send(100).unwrap();
    it.poll_sender();
    let command = it.from.taken.remove(0);
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
        let mut it = Channel::new(which, 1024, 200, 1);
        it.settle(8);
        it.send(100).unwrap();
        it.poll_sender();
        it.hosts.serve_all(&mut it.from);
        it.poll_reader(0);
        let command = it.readers[0].node.taken.remove(0);
        it.readers[0].node.end(&command, OpStatus::RemoteOutOfBounds);
        it.poll_reader(0);
        let status = CallStatus::Failed(OpStatus::RemoteOutOfBounds);
        assert_eq!(it.readers[0].ended, Some(ReceiveError::Broken { status }), "{which:?}");
    }
}

#[test]
fn messages_are_accepted_when_they_are_sent_and_processed_when_all_have_processed_them() {
    for which in ALL {
        let mut it = Channel::new(which, 1024, 200, 2);
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

/// All that may happen, in any order: sends, looks, ops in any order, and time that goes by.
fn chaos(which: Which, mut seed: u64) {
    let mut draw = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let mut it = Channel::new(which, 1024, 120, 3);
    // Some runs are hasty, some are slow.
    let slow = draw(3);
    for _ in 0..1500 {
        match draw(12) {
            0..3 => {
                let _ = it.send(1 + draw(120));
            }
            3..5 => it.poll_sender(),
            5 => drop(it.hosts.serve(&mut it.from)),
            6..11 => {
                let index = draw(3);
                if draw(2) == 0 {
                    it.poll_reader(index);
                } else {
                    let node = &mut it.readers[index].node;
                    if !node.taken.is_empty() {
                        let which = draw(node.taken.len());
                        let command = node.taken.remove(which);
                        it.hosts.carry_out(node, &command);
                    }
                }
            }
            _ => {
                let jumps = [TIMEOUT / 1000, TIMEOUT / 50, TIMEOUT / 3];
                it.hosts.now = it.hosts.now + jumps[slow.min(draw(3))];
            }
        }
    }
    // Windows have become small meanwhile.
    for _ in 0..200 {
        it.settle(8);
        let is_over = |end: &End| end.ended.is_some() || end.got == it.sent.len();
        if it.readers.iter().all(is_over) {
            break;
        }
    }
    let readers = it.sender.readers();
    for (index, end) in it.readers.iter().enumerate() {
        match end.ended {
            None => {
                let len = it.sent.len();
                assert_eq!(end.got, len, "{which:?}: reader {index} has got all");
            }
            Some(ReceiveError::Ejected { .. }) => {
                assert_ne!(readers[index].standing, Standing::Counts, "reader {index} counts");
            }
            Some(error) => panic!("{which:?}: {error}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    //= channels#4.6-slow-reader
    //= type=test
    #[test]
    fn whatever_happens_a_reader_gets_what_was_sent_or_is_ejected(seed: u64) {
        for which in ALL {
            chaos(which, seed);
        }
    }

    #[test]
    fn any_bytes_in_a_senders_memory_are_refused_or_are_messages(seed: u64) {
        for which in ALL {
            garbage(which, seed);
        }
    }
}

/// A sender whose ring, head and seat are any bytes: receivers say so, and read nothing outside of
/// what they were granted.
fn garbage(which: Which, mut seed: u64) {
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut it = Channel::new(which, 1024, 100, 1);
    it.settle(draw(8) as usize);
    for _ in 0..60 {
        let ids: Vec<_> = it.readers[0].node.taken.iter().map(|it| it.remote_region).collect();
        for id in ids {
            let region = it.hosts.region(id).clone();
            let words = region.len() / 8;
            let word = match draw(4) {
                0 => draw(110) | draw(3) << 32,
                1 => draw(512) & !7,
                2 => draw(1 << 31) << 32 | draw(1 << 31),
                _ => 0,
            };
            region.store(draw(words) * 8, word.to_le()).unwrap();
        }
        if matches!(which, Which::Notify | Which::NotifyInto) && draw(3) == 0 {
            let _ = it.send(1 + draw(100) as usize);
            it.poll_sender();
            it.hosts.serve_all(&mut it.from);
        }
        let end = &mut it.readers[0];
        it.hosts.turn(&mut end.node);
        let polled = end.receiver.poll(&mut end.node.link, it.hosts.now);
        while let Ok(Some(claim)) = end.receiver.claim() {
            let mut bytes = vec![0; claim.len()];
            assert_eq!(end.receiver.read(&claim, 0, &mut bytes), claim.len());
            end.receiver.free(claim);
        }
        end.node.take(it.hosts.now);
        it.hosts.serve_all(&mut end.node);
        if let Err(error) = polled {
            let malformed = ReceiveError::Malformed(Malformed::Head { told: 0, from: 0 });
            let is_known = core::mem::discriminant(&error) == core::mem::discriminant(&malformed)
                || matches!(error, ReceiveError::Ejected { .. });
            assert!(is_known, "{which:?}: {error}");
            return;
        }
    }
}
