//! Buffers that are lent, against an engine in the test's hands.

mod taken_back;

use core::time::Duration;
use std::sync::Arc;

use proptest::prelude::*;
use rma_core::{
    executor::CallStatus,
    gate::{Gate as _, Peer},
    op::{OpStatus, OpType},
    receive_queue::{Event, Receive},
    region::{Permissions, RegionId},
    time::Instant,
};
use rma_shm::Region;

use super::{
    offers::{LENT_MAX, Offer},
    *,
};
use crate::{
    receiver::{Claim, Claims, Receiver as _},
    ring::Position,
    sender::{Outgoing, SendError, SendHandle, SendRegion, SendState, Sender as _},
    terms::OpenError,
    tests::bench::{Bench, OTHER, PEER, Process},
};

const LEN_MAX: u32 = 9000;
const STRIDE: u64 = 9000;

/// A receiver, and two senders: one in the same process, one in another.
struct Ends {
    bench: Bench,
    receiver: Receiver,
    senders: Vec<Sender>,
}

fn config(buffers: u16, lent: u16) -> IndirectConfig {
    IndirectConfig::default().with(|it| {
        (it.buffers, it.lent, it.len_max, it.senders, it.epochs) = (buffers, lent, LEN_MAX, 2, 3);
    })
}

fn join(bench: &mut Bench, receiver: &mut Receiver, peer: Peer) -> Sender {
    bench.host.peer = PEER;
    let half = receiver.admit(&bench.host, peer).unwrap();
    bench.host.peer = peer;
    let (sender, terms) = Sender::join(&bench.host, 0, PEER, half.terms()).unwrap();
    bench.host.peer = PEER;
    receiver.accept(half, &terms).unwrap();
    sender
}

impl Ends {
    fn with(receiver: impl FnOnce(&mut Bench) -> Receiver) -> Self {
        let mut bench = Bench::new(64);
        let mut receiver = receiver(&mut bench);
        let senders = [PEER, OTHER].map(|peer| join(&mut bench, &mut receiver, peer));
        Self { bench, receiver, senders: senders.into() }
    }

    fn pool(buffers: u16, lent: u16) -> Self {
        Self::with(|bench| Receiver::open(&bench.host, config(buffers, lent)).unwrap())
    }

    /// Eight buffers' worth of memory that the application offers.
    fn unlent() -> Self {
        Self::with(|bench| {
            let memory = Arc::new(Region::new(8 * STRIDE as usize).unwrap());
            Receiver::open_unlent(&bench.host, config(4, 3), memory).unwrap()
        })
    }

    fn process(&mut self, who: usize) -> &mut Process {
        if who == 0 { &mut self.bench.us } else { &mut self.bench.other }
    }

    fn send(&mut self, who: usize, message: &[u8]) -> Result<SendHandle, SendError> {
        let Self { bench, senders, .. } = self;
        let process = if who == 0 { &mut bench.us } else { &mut bench.other };
        senders[who].send(&mut process.link, bench.now, message)
    }

    /// All ends look. Returns what the senders say.
    fn poll(&mut self) -> Vec<Result<(), SendError>> {
        self.bench.turn();
        let Bench { us, other, now, .. } = &mut self.bench;
        self.receiver.poll(&mut us.link, *now).unwrap();
        let links = [&mut us.link, &mut other.link];
        let polled = self.senders.iter_mut().zip(links).map(|(it, link)| it.poll(link, *now));
        let polled = polled.collect();
        self.bench.turn();
        polled
    }

    /// All that is under way is applied, again and again.
    fn settle(&mut self) {
        for _ in 0..6 {
            self.poll();
            self.bench.apply_all();
        }
    }

    fn receive(&mut self) -> Option<(Peer, Vec<u8>)> {
        let claim = self.receiver.claim().unwrap()?;
        let (peer, bytes) = (claim.sender().unwrap(), self.bytes(&claim));
        self.receiver.free(claim);
        Some((peer, bytes))
    }

    fn bytes(&self, claim: &Claim) -> Vec<u8> {
        let mut bytes = vec![0; claim.len()];
        assert_eq!(self.receiver.read(claim, 0, &mut bytes), bytes.len());
        bytes
    }

    fn has(&self) -> Vec<u64> {
        self.receiver.senders().map(|it| it.has).collect()
    }
}

fn message(who: usize, number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (who + 3 * number + 7 * at) as u8).collect()
}

proptest! {
    //= channels#4.5-indirect
    //= type=test
    #[test]
    fn messages_of_many_come_once_and_in_order_for_each_whatever_the_order_of_ops(
        steps in prop::collection::vec(any::<(u8, u16)>(), 1..400),
        (buffers, lent) in (2_u16..7, 1_u16..5),
        lens in prop::collection::vec(1_usize..9000, 1..6),
    ) {
        let mut it = Ends::pool(buffers, lent);
        let message = |who, number| message(who, number, lens[number % lens.len()]);
        let (mut sent, mut got, mut held) = ([0; 2], [0; 2], Vec::new());
        let settled = (0..600).map(|step| (3 + (step % 3) as u8, 0));
        for (what, which) in steps.into_iter().chain(settled) {
            for polled in it.poll() {
                polled.unwrap();
            }
            let who = usize::from(which % 2);
            match what % 6 {
                0 if which > 0 => match it.send(who, &message(who, sent[who])) {
                    Ok(_) => sent[who] += 1,
                    Err(error) => prop_assert_eq!(error, SendError::Full),
                },
                1 | 2 => {
                    let under_way = it.process(who).engine.taken.len();
                    if under_way > 0 {
                        let at = usize::from(which / 2) % under_way;
                        let Bench { us, other, .. } = &mut it.bench;
                        let process = if who == 0 { us } else { other };
                        process.apply(at);
                    }
                }
                3 => {
                    for who in [0, 1] {
                        if !it.process(who).engine.taken.is_empty() {
                            let Bench { us, other, .. } = &mut it.bench;
                            [us, other][who].apply(0);
                        }
                    }
                }
                4 => {
                    if let Some(claim) = it.receiver.claim().unwrap() {
                        let who = usize::from(claim.sender() == Some(OTHER));
                        prop_assert_eq!(it.bytes(&claim), message(who, got[who]));
                        got[who] += 1;
                        held.push((claim, who, got[who] - 1));
                    }
                }
                _ if !held.is_empty() => {
                    let (claim, who, number) = held.swap_remove(usize::from(which) % held.len());
                    prop_assert_eq!(it.bytes(&claim), message(who, number), "it stays");
                    it.receiver.free(claim);
                }
                _ => {}
            }
        }
        for (claim, ..) in held {
            it.receiver.free(claim);
        }
        it.settle();
        while let Some((from, bytes)) = it.receive() {
            let who = usize::from(from == OTHER);
            prop_assert_eq!(bytes, message(who, got[who]));
            got[who] += 1;
        }
        prop_assert_eq!(got, sent);
        it.settle();
        prop_assert!(it.has().iter().all(|&has| has > 0), "each has a buffer again");
    }

    #[test]
    fn no_word_that_a_receiver_tells_does_harm(
        words in prop::collection::vec((0_u64..9, 0_u64..5, 0_u64..9, any::<u64>(), 0..9), 1..40),
    ) {
        let mut it = Ends::pool(8, 4);
        it.settle();
        it.send(1, b"one").unwrap();
        let before = it.senders[1].offered();
        for (number, epoch, buffer, any, which) in words {
            let offer = Offer::new(Position::from_bits(number), epoch, buffer * STRIDE);
            let word = if which == 0 { any } else { offer.to_word() };
            let told = it.senders[1].told(word);
            prop_assert!(it.senders[1].offered() <= 8, "{before}, {told:?}");
        }
        it.poll();
        // It writes where it was told to, which is within the memory.
        while it.send(1, b"more").is_ok() {}
        it.bench.apply_all();
    }

    #[test]
    fn an_impossible_report_costs_its_sender_the_seat_and_nobody_else_anything(
        immediate in prop_oneof![0_u64..6, any::<u64>()],
        region_offset in prop_oneof![0_u64..9 * STRIDE, any::<u64>()],
        len in prop_oneof![0_u32..9001, any::<u32>()],
        region in 0_u32..9,
    ) {
        let mut it = Ends::pool(6, 3);
        it.settle();
        let event = Event {
            op_type: OpType::WriteWithImm,
            receive: Receive(0),
            len,
            immediate,
            initiator: OTHER.address,
            pid: OTHER.pid,
            region: RegionId::from_bits(region),
            region_offset,
            at: Instant::ZERO,
        };
        it.bench.host.hosts.event(crate::receiver::Blocking::queue(&it.receiver), event);
        it.settle();
        let standing: Vec<_> = it.receiver.senders().map(|it| it.standing).collect();
        prop_assert_eq!(standing[0], Standing::Present);
        let came = it.receive();
        if came.is_none() && standing[1] == Standing::Present {
            // It may be one that waits for those before it.
            prop_assert!((1..3).contains(&immediate));
        }
        it.send(0, b"goes on").unwrap();
        it.settle();
        prop_assert_eq!(it.receive(), Some((PEER, b"goes on".to_vec())));
    }
}

#[test]
fn one_buffer_is_kept_for_each_sender_and_offers_say_what_is_processed() {
    let mut it = Ends::pool(4, 3);
    it.settle();
    assert_eq!(it.has(), [2, 2], "who has fewest is next");
    let mut it = Ends::with(|bench| Receiver::open(&bench.host, config(4, 9)).unwrap());
    // A sender that comes late finds one, whatever the first has.
    let mut late = Bench::new(8);
    let mut receiver = Receiver::open(&late.host, config(4, 9)).unwrap();
    let _first = join(&mut late, &mut receiver, PEER);
    receiver.poll(&mut late.us.link, late.now).unwrap();
    assert_eq!(receiver.senders().next().unwrap().has, 3);
    let _second = join(&mut late, &mut receiver, OTHER);
    receiver.poll(&mut late.us.link, late.now).unwrap();
    assert_eq!(receiver.senders().map(|it| it.has).collect::<Vec<_>>(), [3, 1]);
    let refused = receiver.admit(&late.host, OTHER);
    assert!(matches!(refused, Err(OpenError::Settings { value: 2, .. })), "{refused:?}");

    it.settle();
    let first = it.send(0, b"first").unwrap();
    it.settle();
    assert_eq!(it.senders[0].test(first), SendState::Accepted);
    let mut number = 0;
    while it.senders[0].test(first) != SendState::Processed {
        number += 1;
        assert!(number < 12 && it.receive().is_some(), "nine offers later");
        it.settle();
        it.send(0, b"more").unwrap();
        it.settle();
    }
    assert!(number >= 7, "{number} were");
}

#[test]
fn the_application_says_from_whom_a_message_comes_and_where_it_lies() {
    let mut it = Ends::unlent();
    it.settle();
    assert_eq!(it.has(), [0, 0], "nothing is lent by itself");
    assert_eq!(it.send(1, b"no offer"), Err(SendError::Full));
    let wrong = [4, STRIDE + 8, STRIDE - 8, 8 * STRIDE, u64::MAX - 7];
    it.receiver.offer(OTHER, STRIDE).unwrap();
    for offset in wrong {
        let refused = it.receiver.offer(PEER, offset);
        assert!(matches!(refused, Err(OfferError::Place { .. })), "{offset}: {refused:?}");
    }
    let nobody = Peer { pid: rma_core::addr::Pid(99), ..PEER };
    assert_eq!(it.receiver.offer(nobody, 0), Err(OfferError::NoSender { peer: nobody }));
    it.receiver.offer(OTHER, 5 * STRIDE).unwrap();
    it.receiver.offer(OTHER, 3 * STRIDE).unwrap();
    assert_eq!(it.receiver.offer(OTHER, 0), Err(OfferError::Full), "it has three");
    it.receiver.offer(PEER, 0).unwrap();
    assert_eq!(it.receiver.offer(PEER, 7 * STRIDE), Err(OfferError::Full), "all have four");
    let mut pool = Ends::pool(2, 1);
    assert_eq!(pool.receiver.offer(PEER, 0), Err(OfferError::Lends));
    assert_eq!(pool.poll(), [Ok(()), Ok(())]);

    it.settle();
    let memory = Arc::new(Region::new(20_000).unwrap());
    let key = it.bench.host.key().unwrap();
    let source = it.bench.host.register(memory, key, Permissions::NONE, None).unwrap();
    for (number, place) in [1, 5, 3].into_iter().enumerate() {
        let bytes = message(1, number, 8000 + number);
        source.write(1000, &bytes).unwrap();
        let Bench { other, now, .. } = &mut it.bench;
        let end = 1000 + bytes.len() as u64;
        it.senders[1].send_region(&mut other.link, *now, &source, 1000..end).unwrap();
        it.settle();
        let claim = it.receiver.claim().unwrap().unwrap();
        let (region, range) = it.receiver.place(&claim);
        assert_eq!(range, place * STRIDE..place * STRIDE + bytes.len() as u64);
        let mut lies = vec![0; bytes.len()];
        region.read(range.start, &mut lies).unwrap();
        assert_eq!((lies, claim.sender()), (bytes, Some(OTHER)));
        it.receiver.free(claim);
        it.receiver.offer(OTHER, place * STRIDE).unwrap();
    }
    assert_eq!(it.bench.other.link.copied_bytes(), 0);
}

#[test]
fn an_offer_is_told_until_it_has_come_and_one_that_comes_twice_is_no_news() {
    let mut it = Ends::pool(2, 1);
    for status in [OpStatus::Nack, OpStatus::RemoteNotReady, OpStatus::RemoteAuthenticationFailure]
    {
        it.poll();
        while !it.bench.us.engine.taken.is_empty() {
            it.bench.fail(0, status);
        }
        it.bench.later(Duration::from_millis(200));
    }
    it.settle();
    assert_eq!((it.senders[0].offered(), it.senders[1].offered()), (1, 1));
    let word = Offer::new(Position::ZERO, 0, 0).to_word();
    assert_eq!((it.senders[0].told(word), it.senders[0].offered()), (Ok(()), 1));
    it.send(0, b"one").unwrap();
    assert_eq!((it.senders[0].told(word), it.senders[0].offered()), (Ok(()), 0), "it is used");
    it.settle();
    assert!(it.receive().is_some());
    it.settle();
    assert_eq!((it.senders[0].told(word), it.senders[0].offered()), (Ok(()), 1), "it is old");
}

#[test]
fn a_refusal_that_somebody_has_forged_changes_nothing_and_all_refusals_break_the_channel() {
    let mut it = Ends::pool(2, 1);
    it.settle();
    let refusal = OpStatus::RemoteAuthenticationFailure;
    let sent = it.send(1, b"refused").unwrap();
    for _ in 0..3 {
        while it.process(1).engine.taken.is_empty() {
            assert_eq!(it.poll()[1], Ok(()));
        }
        it.process(1).fail(0, refusal);
    }
    it.settle();
    assert_eq!(it.receive(), Some((OTHER, b"refused".to_vec())));
    assert_eq!(it.senders[1].test(sent), SendState::Accepted);
    it.settle();

    let handle = it.send(1, b"refused for good").unwrap();
    for _ in 0..400 {
        it.poll();
        if !it.process(1).engine.taken.is_empty() {
            it.process(1).fail(0, refusal);
        }
        it.bench.later(Duration::from_millis(5));
    }
    let status = CallStatus::Failed(refusal);
    assert_eq!(it.poll()[1], Err(SendError::Broken { handle, status }));
    assert_eq!(it.receive(), None);

    // A receiver is told the same of a sender that has restarted.
    let mut it = Ends::pool(2, 1);
    for _ in 0..400 {
        it.poll();
        while !it.bench.us.engine.taken.is_empty() {
            it.bench.fail(0, refusal);
        }
        it.bench.later(Duration::from_millis(5));
    }
    assert!(it.receiver.senders().all(|it| it.standing == Standing::Gone { status }));
    assert!(it.bench.us.engine.taken.is_empty() && it.receiver.poll_timeout().is_none());
}

#[test]
fn impossible_settings_are_refused_at_the_opening() {
    let bench = Bench::new(4);
    let wrong: [fn(&mut IndirectConfig); 8] = [
        |it| it.buffers = 0,
        |it| it.buffers = u16::MAX,
        |it| it.len_max = 0,
        |it| it.senders = 0,
        |it| it.senders = 7,
        |it| it.lent = 0,
        |it| it.lent = LENT_MAX + 1,
        |it| it.epochs = 33,
    ];
    for change in wrong {
        let refused = Receiver::open(&bench.host, config(6, 2).with(change));
        assert!(matches!(refused, Err(OpenError::Settings { .. })), "{refused:?}");
    }
    let memory = Arc::new(Region::new(6 * STRIDE as usize - 1).unwrap());
    let refused = Receiver::open_in(&bench.host, config(6, 2), memory);
    assert!(matches!(refused, Err(OpenError::Settings { .. })), "{refused:?}");
    let mut receiver = Receiver::open(&bench.host, config(6, 2)).unwrap();
    let half = receiver.admit(&bench.host, PEER).unwrap();
    let refused = Sender::join(&bench.host, 1, PEER, half.terms());
    assert!(matches!(refused, Err(OpenError::Terms(_))), "{refused:?}");
}

#[test]
fn of_memory_that_goes_around_no_buffer_is_lent_twice() {
    let mut it = Ends::with(|bench| {
        let len = (4 * STRIDE).next_multiple_of(64);
        let memory = Arc::new(Region::circular(len as usize).unwrap());
        Receiver::open_unlent(&bench.host, config(4, 3), memory).unwrap()
    });
    let len = it.receiver.memory().len();
    it.receiver.offer(PEER, 0).unwrap();
    for offset in [len, len + STRIDE, len - 8] {
        let refused = it.receiver.offer(OTHER, offset);
        assert!(matches!(refused, Err(OfferError::Place { .. })), "{offset}: {refused:?}");
    }
}
