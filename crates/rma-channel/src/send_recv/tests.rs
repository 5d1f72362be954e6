//! The queues that senders share, against an engine in the test's hands.

use rma_core::{executor::CallStatus, gate::Gate as _, op::OpStatus};
use rma_shm::Region;

use super::*;
use crate::{
    receiver::{Blocking, Claims, Message, Receiver},
    sender::{SendError, SendHandle, SendRegion, SendState, Sender},
    terms::TermsError,
    tests::bench::{Bench, OTHER, PEER, Process},
};

/// A queue of so many receives, and two senders of whom two messages may wait each.
struct Ends<S, R> {
    bench: Bench,
    receiver: R,
    senders: [S; 2],
}

fn open_shared(receives: u16) -> Ends<shared::Sender, shared::Receiver> {
    let mut bench = Bench::new(8);
    let config = SharedConfig::DEFAULT.with(|it| (it.receives, it.len_max) = (receives, 100));
    let receiver = shared::Receiver::open(&bench.host, config).unwrap();
    let senders = [PEER, OTHER].map(|peer| {
        let terms = receiver.admit(&bench.host, peer).unwrap();
        bench.host.peer = peer;
        shared::Sender::join(&bench.host, &terms, 2).unwrap()
    });
    Ends { bench, receiver, senders }
}

fn open_bufferless(receives: u16) -> Ends<bufferless::Sender, bufferless::Receiver> {
    let mut bench = Bench::new(8);
    let receiver = bufferless::Receiver::open(&bench.host, 5, receives).unwrap();
    let senders = [PEER, OTHER].map(|peer| {
        let terms = receiver.admit(&bench.host, peer).unwrap();
        bench.host.peer = peer;
        bufferless::Sender::join(&bench.host, &terms, 2).unwrap()
    });
    Ends { bench, receiver, senders }
}

impl<S: Sender, R: Receiver + Blocking> Ends<S, R> {
    fn process(&mut self, who: usize) -> (&mut S, &mut Process) {
        let process = [&mut self.bench.us, &mut self.bench.other];
        (&mut self.senders[who], process.into_iter().nth(who).unwrap())
    }

    fn send(&mut self, who: usize, word: u64) -> Result<SendHandle, SendError> {
        let now = self.bench.now;
        let (sender, process) = self.process(who);
        sender.send(&mut process.link, now, &word.to_le_bytes())
    }

    fn poll(&mut self, who: usize) -> Result<(), SendError> {
        self.bench.turn();
        let now = self.bench.now;
        let (sender, process) = self.process(who);
        let polled = sender.poll(&mut process.link, now);
        self.bench.turn();
        polled
    }

    /// All that can be applied is, and taken.
    fn receive(&mut self) -> Vec<(Peer, u64)> {
        let mut received = Vec::new();
        for _ in 0..4 {
            self.bench.apply_all();
            while let Some(message) = Message::next(&mut self.receiver).unwrap() {
                let word = u64::from_le_bytes(message.to_vec().try_into().unwrap());
                received.push((message.sender().unwrap(), word));
            }
            (0..2).for_each(|who| self.poll(who).unwrap());
        }
        received
    }
}

/// Checks the common behaviour of both kinds.
fn share<S: Sender, R: Receiver + Blocking>(mut it: Ends<S, R>) {
    let (mut expected, mut sent) = ([Vec::new(), Vec::new()], Vec::new());
    let mut received = Vec::new();
    for round in 0..20 {
        for (who, expected) in expected.iter_mut().enumerate() {
            let words = [round * 4 + who as u64, round * 4 + 2 + who as u64];
            for word in words {
                sent.push((who, it.send(who, word).unwrap()));
                expected.push(word);
            }
            assert_eq!(it.send(who, 99), Err(SendError::Full), "two wait, or are under way");
            it.poll(who).unwrap();
            let (_, process) = it.process(who);
            assert_eq!(process.engine.taken.len(), 1, "one is under way");
        }
        received.extend(it.receive());
    }
    for (peer, expected) in [PEER, OTHER].into_iter().zip(expected) {
        let of_peer = received.iter().filter(|(from, _)| *from == peer).map(|&(_, word)| word);
        assert_eq!(of_peer.collect::<Vec<_>>(), expected, "in order for each sender");
    }
    for (who, handle) in sent {
        assert_eq!(it.senders[who].test(handle), SendState::Accepted);
    }
}

#[test]
fn messages_of_many_come_once_and_in_order_for_each() {
    //= channels#4.1-shared
    //= type=test
    share(open_shared(2));
    //= channels#4.1-bufferless
    //= type=test
    share(open_bufferless(2));
}

/// A receiver that takes nothing: `kept` messages come, and the others wait.
fn wait<S: Sender, R: Receiver + Blocking>(mut it: Ends<S, R>) {
    let first = it.send(0, 1).unwrap();
    it.bench.turn();
    assert_eq!(it.bench.apply(0), OpStatus::Ok);
    it.poll(0).unwrap();
    assert_eq!(it.senders[0].test(first), SendState::Accepted);
    let second = it.send(0, 2).unwrap();
    let third = it.send(0, 3).unwrap();
    it.bench.turn();
    // The executor offers it again and again, and gives up: then the channel does.
    let mut offers = 0;
    while offers < 30 {
        if !it.bench.us.engine.taken.is_empty() {
            assert_eq!(it.bench.apply(0), OpStatus::RemoteNotReady);
            offers += 1;
        }
        it.bench.later(core::time::Duration::from_millis(400));
        it.poll(0).unwrap();
        assert_eq!(it.senders[0].test(second), SendState::Sending, "full, and not broken");
    }
    assert_eq!(it.send(0, 4), Err(SendError::Full));
    let message = it.receiver.claim().unwrap().unwrap();
    it.receiver.free(message);
    let received = it.receive();
    assert_eq!(received.iter().map(|&(_, word)| word).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(it.senders[0].test(third), SendState::Accepted);
}

#[test]
fn a_sender_waits_for_a_receiver_that_posts_nothing() {
    wait(open_shared(1));
    wait(open_bufferless(1));
}

/// Checks that a break is one sender's.
fn break_one<S: Sender, R: Receiver + Blocking>(mut it: Ends<S, R>) {
    let (first, second) = (it.send(0, 1).unwrap(), it.send(0, 2).unwrap());
    it.bench.turn();
    it.bench.fail(0, OpStatus::RemotePermissionDenied);
    let status = CallStatus::Failed(OpStatus::RemotePermissionDenied);
    let broken = SendError::Broken { handle: first, status };
    assert_eq!(it.poll(0), Err(broken));
    assert_eq!(it.send(0, 3), Err(broken), "and it stays so");
    assert_eq!(it.senders[0].test(first), SendState::Failed(status));
    let never = CallStatus::PredecessorFailed;
    assert_eq!(it.senders[0].test(second), SendState::Failed(never));
    assert!(it.bench.us.engine.taken.is_empty(), "nothing more is issued");
    let third = it.send(1, 7).unwrap();
    it.bench.apply_all();
    it.poll(1).unwrap();
    assert_eq!(it.senders[1].test(third), SendState::Accepted);
    let message = Message::next(&mut it.receiver).unwrap().unwrap();
    assert_eq!((message.sender(), message.to_vec()), (Some(OTHER), 7_u64.to_le_bytes().to_vec()));
}

#[test]
fn a_message_that_was_not_applied_is_named_and_concerns_no_other_sender() {
    break_one(open_shared(4));
    break_one(open_bufferless(4));
}

#[test]
fn a_kept_message_holds_its_buffer_and_a_kept_word_nothing() {
    let mut it = open_shared(2);
    it.send(0, 1).unwrap();
    it.bench.apply_all();
    let claim = it.receiver.claim().unwrap().unwrap();
    assert_eq!(it.bench.host.hosts.posted(it.receiver.queue()), 1);
    let mut bytes = [0; 4];
    assert_eq!(it.receiver.read(&claim, 6, &mut bytes), 2, "from an offset, as many as there are");
    it.receiver.free(claim);
    assert_eq!(it.bench.host.hosts.posted(it.receiver.queue()), 2);

    let mut it = open_bufferless(2);
    it.send(0, 0x0102_0304_0506_0708).unwrap();
    it.bench.apply_all();
    let claim = it.receiver.claim().unwrap().unwrap();
    assert_eq!(it.bench.host.hosts.posted(it.receiver.queue()), 2);
    assert_eq!((it.receiver.word(&claim), claim.len()), (0x0102_0304_0506_0708, 8));
    assert_eq!((it.receiver.read(&claim, 6, &mut bytes), &bytes[..2]), (2, &[2, 1][..]));
    assert_eq!(it.receiver.read(&claim, 9, &mut bytes), 0);
}

#[test]
fn words_are_words_and_messages_fit_their_buffers() {
    let mut it = open_bufferless(2);
    let Bench { us, now, .. } = &mut it.bench;
    let mut send = |len: usize| it.senders[0].send(&mut us.link, *now, &vec![0; len]);
    assert_eq!(send(0), Err(SendError::Len { len: 0, max: 8 }));
    assert_eq!(send(7), Err(SendError::NotAWord { len: 7, needed: 8 }));
    assert_eq!(send(9), Err(SendError::Len { len: 9, max: 8 }));
    let mut it = open_shared(2);
    let Bench { us, now, .. } = &mut it.bench;
    let mut send = |len: usize| it.senders[0].send(&mut us.link, *now, &vec![0; len]);
    assert_eq!(send(101), Err(SendError::Len { len: 101, max: 100 }));
    assert!(send(100).is_ok());
}

#[test]
fn a_message_to_many_senders_queue_is_sent_from_where_it_lies() {
    let mut it = open_shared(2);
    let key = it.bench.host.key().unwrap();
    let memory = std::sync::Arc::new(Region::new(64).unwrap());
    let none = rma_core::region::Permissions::NONE;
    let region = it.bench.host.register(memory, key, none, None).unwrap();
    region.write(3, b"message").unwrap();
    let Bench { us, now, .. } = &mut it.bench;
    it.senders[0].send_region(&mut us.link, *now, &region, 3..10).unwrap();
    assert_eq!(us.link.copied_bytes(), 0);
    it.bench.apply_all();
    assert_eq!(it.receiver.receive().unwrap().unwrap().to_vec(), b"message");
}

#[test]
fn terms_of_another_kind_or_for_somebody_else_admit_nobody() {
    let mut it = open_shared(2);
    let terms = it.receiver.admit(&it.bench.host, OTHER).unwrap();
    it.bench.host.peer = PEER;
    let refused = shared::Sender::join(&it.bench.host, &terms, 2).unwrap_err();
    assert!(matches!(refused, OpenError::Terms(TermsError::Grant { .. })), "{refused}");
    let refused = bufferless::Sender::join(&it.bench.host, &terms, 2).unwrap_err();
    assert!(matches!(refused, OpenError::Terms(TermsError::Disagree { .. })), "{refused}");
    let refused = shared::Sender::join(&it.bench.host, &terms, 0).unwrap_err();
    assert!(matches!(refused, OpenError::Settings { .. }), "{refused}");
}
