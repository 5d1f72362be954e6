//! Senders and receivers against hosts in the test's hands: what each receiver gets is what was
//! sent, in order, or it is told that the channel went on without it.

use proptest::prelude::*;
use rma_core::op::OpType;

use super::*;
use crate::{
    read_ring::ReaderConfig,
    readers::Standing,
    receiver::{ReceiveError, Receiver},
    tests::{
        audience::{Audience, Read, TIMEOUT, drawing},
        hand::{Claiming, Hosts, Node},
    },
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Detached,
    Inlined,
    Notify,
}

/// All kinds, into memory of the receiver's, and of the application's.
fn all() -> impl Iterator<Item = (Which, bool)> {
    let all = [Which::Detached, Which::Inlined, Which::Notify];
    all.into_iter().flat_map(|which| [(which, false), (which, true)])
}

#[derive(Debug)]
enum Kinds {
    Detached(detached_bell::Sender),
    Inlined(inlined_bell::Sender),
    Notify(notify_receiver::Sender),
}

/// The receiver's end of a kind that looks, which its sender has admitted.
fn join_looking<F: looking::Looks + 'static>(
    desk: &dyn Gate,
    terms: &Terms,
    is_into: bool,
) -> Box<dyn Receiver> {
    let config = ReaderConfig::new();
    if is_into {
        let joined = IntoReceiver::<F>::join(desk, config, terms).unwrap();
        Box::new(Claiming::new(joined, desk, LEN_MAX))
    } else {
        Box::new(receiver::SlotReceiver::<F>::join(desk, config, terms).unwrap())
    }
}

/// The senders of a kind, and whether receivers read into memory of the application's.
#[derive(Debug)]
struct Sends {
    what: (Which, bool),
    it: Kinds,
}

impl Sends {
    fn end(&mut self) -> &mut dyn SendRegion {
        match &mut self.it {
            Kinds::Detached(it) => it,
            Kinds::Inlined(it) => it,
            Kinds::Notify(it) => it,
        }
    }

    fn slots(&self) -> RegisteredRegion {
        match &self.it {
            Kinds::Detached(it) => it.memory().clone(),
            Kinds::Inlined(it) => it.memory().clone(),
            Kinds::Notify(it) => it.memory().clone(),
        }
    }
}

impl Read for Sends {
    fn as_sender(&mut self) -> &mut dyn Sender {
        self.end()
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

const LEN_MAX: u32 = 200;
const COPIES: u32 = 600;

impl Channel {
    /// Five slots, in memory of the application's that has 1000 bytes besides.
    fn open(what: (Which, bool), readers: u8) -> Self {
        let hosts = Hosts::new();
        let from = hosts.node(1);
        let config = ReadSlotConfig::default().with(|it| {
            (it.slots, it.len_max, it.copies) = (5, LEN_MAX, COPIES);
            (it.readers, it.reader_timeout) = (4, TIMEOUT);
        });
        let desk = from.host();
        let memory = Arc::new(Region::new(5 * 208 + 1000).unwrap());
        let it = match what.0 {
            Which::Detached => Kinds::Detached(SlotSender::open_in(desk, config, memory).unwrap()),
            Which::Inlined => Kinds::Inlined(SlotSender::open_in(desk, config, memory).unwrap()),
            Which::Notify => Kinds::Notify(SlotSender::open_in(desk, config, memory).unwrap()),
        };
        let mut it = Self::new(hosts, from, Sends { what, it });
        for number in 0..readers {
            it.join(it.hosts.node(2 + number));
        }
        it
    }

    fn join(&mut self, node: Node) {
        let (from, peer) = (&self.from, node.peer);
        let (config, is_into) = (ReaderConfig::new(), self.sender.what.1);
        let receiver: Box<dyn Receiver> = match &mut self.sender.it {
            Kinds::Detached(sender) => {
                let terms = sender.admit(from.host(), peer).unwrap();
                join_looking::<detached_bell::BellFinds>(node.host(), &terms, is_into)
            }
            Kinds::Inlined(sender) => {
                let terms = sender.admit(from.host(), peer).unwrap();
                join_looking::<inlined_bell::SlotFinds>(node.host(), &terms, is_into)
            }
            Kinds::Notify(sender) => {
                let half = sender.admit(from.host(), peer).unwrap();
                let (desk, peer, told) = (node.host(), from.peer, half.terms());
                let (it, terms): (Box<dyn Receiver>, _) = if is_into {
                    let joined = notify_receiver::Into::join(desk, config, peer, told).unwrap();
                    (Box::new(Claiming::new(joined.0, desk, LEN_MAX)), joined.1)
                } else {
                    let joined = notify_receiver::Receiver::join(desk, config, peer, told).unwrap();
                    (Box::new(joined.0), joined.1)
                };
                sender.accept(half, &terms).unwrap();
                it
            }
        };
        self.add(node, receiver);
    }
}

//= channels#4.5-detached
//= type=test
//= channels#4.5-inlined
//= type=test
//= channels#4.5-notify
//= type=test
#[test]
fn all_readers_get_all_messages_through_slots_that_wrap_whatever_their_lengths() {
    for what in all() {
        for readers in [1, 4] {
            let mut it = Channel::open(what, readers);
            it.settle(4);
            for number in 0..400 {
                while it.send(1 + number * 37 % LEN_MAX as usize) == Err(SendError::Full) {
                    it.settle(1);
                }
                if number % 5 == 0 {
                    it.settle(1);
                }
            }
            it.settle(40);
            for end in &it.readers {
                assert_eq!((end.got, end.ended), (400, None), "{what:?}");
            }
            let issued = it.from.issued;
            let notices = issued[OpType::Notify as usize];
            assert_eq!(issued.iter().sum::<usize>(), notices, "{what:?} is passive");
            assert_eq!(notices > 0, what.0 == Which::Notify);
        }
    }
}

#[test]
fn messages_are_sent_from_where_they_lie_and_from_nowhere_else() {
    for what in all() {
        let mut it = Channel::open(what, 1);
        it.settle(4);
        for number in 0..40_u64 {
            let (memory, now) = (it.sender.slots(), it.hosts.now);
            let place = match &mut it.sender.it {
                Kinds::Inlined(sender) => sender.place(now).unwrap(),
                _ => u64::from(COPIES) + number % 5 * u64::from(LEN_MAX),
            };
            let bytes = it.message(1 + number as usize * 5);
            let len = bytes.len() as u64;
            memory.write(place, &bytes).unwrap();
            let mut send = |at: u64, len| {
                it.sender.end().send_region(&mut it.from.link, now, &memory, at..at + len)
            };
            for wrong in [place + 4, memory.reach()] {
                assert!(matches!(send(wrong, len), Err(SendError::Place { .. })), "{what:?}");
            }
            assert!(matches!(send(place, 201), Err(SendError::Len { len: 201, max: 200 })));
            let handle = send(place, len).unwrap();
            it.sent.push(bytes);
            it.settle(40);
            assert_eq!(it.sender.end().test(handle), SendState::Processed, "{what:?}");
        }
        assert_eq!((it.readers[0].got, it.from.link.copied_bytes()), (40, 0), "{what:?}");
    }
}

#[test]
fn earlier_content_of_the_applications_memory_is_no_message() {
    let what = (Which::Inlined, false);
    let mut it = Channel::open(what, 0);
    let memory = Arc::new(Region::new(5 * 208).unwrap());
    for word in 0..5 * 26 {
        let of = Position::from_bits(word / 26);
        memory.store_release(word * WORD, bells::bell(of, 0, 8).to_le()).unwrap();
    }
    let config = ReadSlotConfig::default().with(|it| (it.slots, it.len_max) = (5, LEN_MAX));
    let too_short = Arc::new(Region::new(5 * 208 - 8).unwrap());
    let desk = it.from.host();
    let refused = inlined_bell::Sender::open_in(desk, config, too_short);
    assert!(matches!(refused, Err(OpenError::Settings { value: 1032, .. })), "{refused:?}");

    it.sender.it = Kinds::Inlined(SlotSender::open_in(desk, config, memory).unwrap());
    it.join(it.hosts.node(2));
    it.settle(20);
    for _ in 0..7 {
        it.send(8).unwrap();
        it.settle(10);
    }
    assert_eq!(it.readers[0].got, 7, "what was sent, and nothing else");
}

#[test]
fn a_reader_that_stops_is_ejected_and_told_and_its_seat_and_slots_are_used_again() {
    for what in all() {
        let mut it = Channel::open(what, 4);
        it.settle(8);
        let (mut number, mut refused) = (0, 0);
        while number < 60 {
            match it.send(150) {
                Ok(_) => number += 1,
                Err(error) => {
                    assert_eq!(error, SendError::Full);
                    refused += 1;
                    it.hosts.step = TIMEOUT / 100;
                }
            }
            let now = it.hosts.now;
            assert!(it.sender.end().poll_timeout().is_none_or(|at| at <= now + TIMEOUT * 2));
            it.poll_sender();
            it.hosts.serve_all(&mut it.from);
            for index in 0..3 {
                it.poll_reader(index);
                it.hosts.serve_all(&mut it.readers[index].node);
            }
        }
        assert!(refused > 0, "it held them up first");
        assert_eq!(it.sender.readers()[3].standing, Standing::Silent, "{what:?}");
        it.hosts.step = Duration::from_micros(10);
        // Messages that the others have not taken yet may hold all slots.
        it.settle(20);
        it.join(it.hosts.node(9));
        it.send(70).unwrap();
        it.settle(40);
        for index in [0, 1, 2, 4] {
            let end = &it.readers[index];
            assert_eq!((end.got, end.ended), (61, None), "{what:?}");
        }
        let ended = it.readers[3].ended;
        assert!(matches!(ended, Some(ReceiveError::Ejected { .. })), "{what:?}: {ended:?}");
        assert_eq!(it.sender.end().poll_timeout(), None, "nobody has anything to tell");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn whatever_happens_a_reader_gets_what_was_sent_or_is_ejected(seed: u64) {
        for what in all() {
            Channel::open(what, 3).chaos(LEN_MAX.into(), seed);
        }
    }

    #[test]
    fn any_bytes_in_a_senders_memory_are_refused_or_are_messages(seed: u64) {
        for what in all() {
            garbage(what, seed);
        }
    }
}

/// A sender whose memory, bells, seats and notices are any bytes.
fn garbage(what: (Which, bool), seed: u64) {
    let mut draw = drawing(seed);
    let mut it = Channel::open(what, 1);
    it.settle(draw(8) as usize);
    for turn in 0..60 {
        if draw(3) == 0 {
            if let Kinds::Notify(sender) = &mut it.sender.it {
                sender.bells.tell_any(Position::from_bits(turn + 1), draw(1 << 40));
            }
            it.poll_sender();
            it.hosts.serve_all(&mut it.from);
        }
        let mut word = |words| {
            let number = draw(8) + turn;
            let word = match draw(4) {
                0 => number & 0xff | (draw(400) * draw(2)) << 8 | draw(300) << 36,
                1 => number << 32 | draw(300),
                2 => draw(1 << 31) << 32 | draw(1 << 31),
                _ => 0,
            };
            [draw(words), word]
        };
        if !it.garbage(LEN_MAX as usize, &mut word) {
            return;
        }
    }
}

#[test]
fn of_memory_that_goes_around_no_message_lies_twice_or_where_copies_are() {
    let hosts = Hosts::new();
    let from = hosts.node(1);
    let config = ReadSlotConfig::default().with(|it| (it.len_max, it.copies) = (64, 128));
    let memory = Arc::new(Region::circular(512).unwrap());
    let mut it = detached_bell::Sender::open_in(from.host(), config, memory).unwrap();
    let (memory, mut node) = (it.memory().clone(), from);
    for start in [512, 512 + 128, 512 - 8] {
        let refused = it.send_region(&mut node.link, Instant::ZERO, &memory, start..start + 16);
        assert!(matches!(refused, Err(SendError::Place { .. })), "{start}: {refused:?}");
    }
    it.send_region(&mut node.link, Instant::ZERO, &memory, 496..512).unwrap();
}
