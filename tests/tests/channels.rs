//! Channels between two hosts over UDP: messages come whole, once and in order, through rings that
//! wrap, whatever their lengths, whether the receiver is slow or quick.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::VecDeque;

use rma_channel::{
    Half, Link, Message, Peer, Receiver, SendError, SendState, Sender,
    ring::RingLen,
    ring_buffer::{RingConfig, with_zeroing, without_zeroing},
};
use rma_core::executor::{CommandExecutor, ExecutorConfig};
use rma_tests::hosts::Loopback;
use rma_xdp::{
    Clock, HostAddr, HostConfig, HostRegistrar, InlineEngine, InlineHost, PortalLease, TscClock,
};

/// A host, its link, and what keeps its slots.
struct End {
    host: InlineHost,
    address: HostAddr,
    link: Link,
    _lease: PortalLease,
}

impl End {
    fn open(address: HostAddr, port: u16) -> Self {
        let host = InlineHost::open(HostConfig::udp(address).with(|it| it.port = port)).unwrap();
        let (portal, lease) = host.portal(64).unwrap().into_parts();
        let executor = CommandExecutor::new(portal, ExecutorConfig::default()).unwrap();
        Self { host, address, link: Link::new(executor), _lease: lease }
    }

    fn peer(&self) -> Peer {
        Peer { address: self.address, pid: self.host.pid() }
    }

    fn registrar(&self) -> HostRegistrar<'_, InlineEngine> {
        HostRegistrar::new(&self.host, self.address)
    }
}

/// Both ends of a channel.
type Ends = (Box<dyn Sender>, Box<dyn Receiver>);

fn connect<S: Sender + 'static, R: Receiver + 'static>(sender: Half<S>, receiver: Half<R>) -> Ends {
    let (to, from) = (receiver.terms().clone(), sender.terms().clone());
    (Box::new(sender.connect(&to).unwrap()), Box::new(receiver.connect(&from).unwrap()))
}

fn with_zeroing(from: &End, to: &End, config: RingConfig) -> Ends {
    let sender = with_zeroing::Sender::open(&mut from.registrar(), config);
    let config = config.with(|it| it.peer = from.peer());
    let receiver = with_zeroing::Receiver::open(&mut to.registrar(), config);
    connect(sender.unwrap(), receiver.unwrap())
}

fn without_zeroing(from: &End, to: &End, config: RingConfig) -> Ends {
    let sender = without_zeroing::Sender::open(&mut from.registrar(), config);
    let config = config.with(|it| it.peer = from.peer());
    let receiver = without_zeroing::Receiver::open(&mut to.registrar(), config);
    connect(sender.unwrap(), receiver.unwrap())
}

fn message(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number as usize * 31 + at * 7) as u8).collect()
}

/// Sends messages of these lengths through a ring of `ring_len` bytes. The receiver takes one
/// message in `slowness` looks.
fn run(open: fn(&End, &End, RingConfig) -> Ends, ring_len: u64, lens: &[usize], slowness: usize) {
    let Loopback { addresses: [client, server], port } = Loopback::unused();
    let (mut from, mut to) = (End::open(client, port), End::open(server, port));
    let config = RingConfig::with_peer(to.peer()).with(|it| {
        it.len = RingLen::new(ring_len).unwrap();
        it.len_max = *lens.iter().max().unwrap() as u32;
    });
    let (mut sender, mut receiver) = open(&from, &to, config);
    let clock = TscClock::new();
    let (mut sent, mut got, mut looks) = (VecDeque::new(), 0, 0);
    let mut issued = 0;
    loop {
        let now = clock.now();
        from.host.turn();
        from.link.poll(now);
        sender.poll(&mut from.link, now).unwrap();
        while issued < lens.len() {
            match sender.send(&mut from.link, now, &message(issued as u64, lens[issued])) {
                Ok(handle) => sent.push_back(handle),
                Err(SendError::Full) => break,
                Err(error) => panic!("{error}"),
            }
            issued += 1;
        }
        to.host.turn();
        to.link.poll(now);
        looks += 1;
        if looks % slowness == 0
            && let Some(come) = Message::next(&mut *receiver).unwrap()
        {
            assert_eq!(come.to_vec(), message(got as u64, lens[got]), "message {got}");
            got += 1;
        }
        receiver.poll(&mut to.link, now).unwrap();
        // In order, and never back.
        while let Some(&handle) = sent.front()
            && sender.test(handle) == SendState::Processed
        {
            sent.pop_front();
        }
        if issued == lens.len() && sent.is_empty() {
            break;
        }
    }
    assert_eq!(got, lens.len(), "what is processed has been received");
    assert!(Message::next(&mut *receiver).unwrap().is_none());
}

/// Both kinds.
fn both(ring_len: u64, lens: &[usize], slowness: usize) {
    run(with_zeroing, ring_len, lens, slowness);
    run(without_zeroing, ring_len, lens, slowness);
}

#[test]
fn messages_of_all_lengths_come_whole_once_and_in_order_through_rings_that_wrap() {
    let lens: Vec<usize> = (0..600).map(|number| 1 + number * 37 % 500).collect();
    both(1024, &lens, 1);
    both(1024, &lens, 9);
    both(1 << 16, &lens, 3);
}

#[test]
fn messages_of_several_ops_are_there_when_their_last_word_is() {
    let lens: Vec<usize> = (0..120).map(|number| 1 + number * 1237 % 14_000).collect();
    both(1 << 15, &lens, 1);
    both(1 << 17, &lens, 4);
}

#[test]
fn what_is_no_message_is_refused() {
    let Loopback { addresses: [client, server], port } = Loopback::unused();
    let (mut from, to) = (End::open(client, port), End::open(server, port));
    let config = RingConfig::with_peer(to.peer()).with(|it| {
        it.len = RingLen::new(256).unwrap();
        it.len_max = 100;
    });
    let (mut sender, _receiver) = with_zeroing(&from, &to, config);
    let now = TscClock::new().now();
    for len in [0, 101] {
        let refused = sender.send(&mut from.link, now, &vec![0; len]);
        assert_eq!(refused, Err(SendError::Len { len, max: 100 }));
    }
    for _ in 0..2 {
        sender.send(&mut from.link, now, &[1; 100]).unwrap();
    }
    assert_eq!(sender.send(&mut from.link, now, &[1; 100]), Err(SendError::Full));
}
