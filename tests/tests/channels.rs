//! Channels between two hosts over UDP: messages come whole, once and in order, through rings that
//! wrap and places that are used again, whatever their lengths, whether the receiver is slow or
//! quick.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::VecDeque;

use rma_channel::{
    Claims, Half, Link, Message, Peer, Receiver, SendError, SendState, Sender,
    ring::RingLen,
    ring_buffer::{RingConfig, with_zeroing, without_zeroing},
    send_recv::{SendRecvConfig, SharedConfig, bufferless, normal, shared},
    write_slot::{SlotConfig, detached_bell, immediate, inlined_bell, reserve_slot},
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

/// How large a channel is.
#[derive(Clone, Copy)]
struct Size {
    /// Of rings, in bytes.
    ring: u64,
    /// Of channels that have places.
    places: u16,
    len_max: u32,
}

impl Size {
    fn ring(self, peer: Peer) -> RingConfig {
        RingConfig::with_peer(peer).with(|it| {
            it.len = RingLen::new(self.ring).unwrap();
            it.len_max = self.len_max;
        })
    }

    fn slots(self, peer: Peer) -> SlotConfig {
        SlotConfig::with_peer(peer).with(|it| (it.slots, it.len_max) = (self.places, self.len_max))
    }
}

fn with_zeroing(from: &End, to: &End, size: Size) -> Ends {
    let sender = with_zeroing::Sender::open(&mut from.registrar(), size.ring(to.peer()));
    let receiver = with_zeroing::Receiver::open(&mut to.registrar(), size.ring(from.peer()));
    connect(sender.unwrap(), receiver.unwrap())
}

fn without_zeroing(from: &End, to: &End, size: Size) -> Ends {
    let sender = without_zeroing::Sender::open(&mut from.registrar(), size.ring(to.peer()));
    let receiver = without_zeroing::Receiver::open(&mut to.registrar(), size.ring(from.peer()));
    connect(sender.unwrap(), receiver.unwrap())
}

fn normal(from: &End, to: &End, size: Size) -> Ends {
    let config = |peer| {
        let (receives, len_max) = (size.places, size.len_max);
        SendRecvConfig::with_peer(peer).with(|it| (it.receives, it.len_max) = (receives, len_max))
    };
    let sender = normal::Sender::open(&mut from.registrar(), config(to.peer()));
    let receiver = normal::Receiver::open(&mut to.registrar(), config(from.peer()));
    connect(sender.unwrap(), receiver.unwrap())
}

fn shared(from: &End, to: &End, size: Size) -> Ends {
    let Size { places, len_max, .. } = size;
    let config = SharedConfig::DEFAULT.with(|it| (it.receives, it.len_max) = (places, len_max));
    let receiver = shared::Receiver::open(&mut to.registrar(), config).unwrap();
    let terms = receiver.admit(&mut to.registrar(), from.peer()).unwrap();
    let sender = shared::Sender::join(&mut from.registrar(), &terms, places).unwrap();
    (Box::new(sender), Box::new(receiver))
}

fn detached_bell(from: &End, to: &End, size: Size) -> Ends {
    let (by, config) = (detached_bell::Bell::Word, size.slots(to.peer()));
    let sender = detached_bell::Sender::open(&mut from.registrar(), config, by);
    let receiver = detached_bell::Receiver::open(&mut to.registrar(), size.slots(from.peer()));
    connect(sender.unwrap(), receiver.unwrap())
}

fn waking_bell(from: &End, to: &End, size: Size) -> Ends {
    let (by, config) = (detached_bell::Bell::Event, size.slots(to.peer()));
    let sender = detached_bell::Sender::open(&mut from.registrar(), config, by);
    let config = size.slots(from.peer());
    let receiver = detached_bell::WakingReceiver::open(&mut to.registrar(), config);
    connect(sender.unwrap(), receiver.unwrap())
}

fn inlined_bell(from: &End, to: &End, size: Size) -> Ends {
    let sender = inlined_bell::Sender::open(&mut from.registrar(), size.slots(to.peer()));
    let receiver = inlined_bell::Receiver::open(&mut to.registrar(), size.slots(from.peer()));
    connect(sender.unwrap(), receiver.unwrap())
}

fn immediate(from: &End, to: &End, size: Size) -> Ends {
    let sender = immediate::Sender::open(&mut from.registrar(), size.slots(to.peer()));
    let receiver = immediate::Receiver::open(&mut to.registrar(), size.slots(from.peer()));
    connect(sender.unwrap(), receiver.unwrap())
}

fn reserve_slot(from: &End, to: &End, size: Size) -> Ends {
    let config = reserve_slot::ReserveConfig::new();
    let config = config.with(|it| (it.slots, it.len_max) = (size.places, size.len_max));
    let receiver = reserve_slot::Receiver::open(&mut to.registrar(), config).unwrap();
    let terms = receiver.admit(&mut to.registrar(), from.peer()).unwrap();
    let sender = reserve_slot::Sender::join(&mut from.registrar(), &terms, size.places).unwrap();
    (Box::new(sender), Box::new(receiver))
}

/// How a kind is opened, and whether its sender is told what is processed.
type Kind = (fn(&End, &End, Size) -> Ends, bool);

/// Kinds whose messages may be of several ops.
const LARGE: [Kind; 7] = [
    (with_zeroing, true),
    (without_zeroing, true),
    (detached_bell, true),
    (waking_bell, true),
    (inlined_bell, true),
    (immediate, true),
    (reserve_slot, false),
];

/// Kinds whose messages are of one op each.
const SMALL: [Kind; 2] = [(normal, true), (shared, false)];

fn message(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number as usize * 31 + at * 7) as u8).collect()
}

/// Sends messages of these lengths through a channel. The receiver takes one message in `slowness`
/// looks.
fn run((open, tells): Kind, (ring, places): (u64, u16), lens: &[usize], slowness: usize) {
    let Loopback { addresses: [client, server], port } = Loopback::unused();
    let (mut from, mut to) = (End::open(client, port), End::open(server, port));
    let len_max = *lens.iter().max().unwrap() as u32;
    let (mut sender, mut receiver) = open(&from, &to, Size { ring, places, len_max });
    let end = if tells { SendState::Processed } else { SendState::Accepted };
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
            && sender.test(handle) == end
        {
            sent.pop_front();
        }
        if issued == lens.len() && sent.is_empty() && (tells || got == lens.len()) {
            break;
        }
    }
    assert_eq!(got, lens.len(), "what is processed has been received");
    assert!(Message::next(&mut *receiver).unwrap().is_none());
}

#[test]
fn messages_of_all_lengths_come_whole_once_and_in_order() {
    let lens: Vec<usize> = (0..600).map(|number| 1 + number * 37 % 500).collect();
    for kind in LARGE.into_iter().chain(SMALL) {
        run(kind, (1024, 3), &lens, 1);
        run(kind, (1024, 3), &lens, 9);
        run(kind, (1 << 16, 64), &lens, 3);
    }
}

#[test]
fn messages_of_several_ops_are_there_when_all_of_them_is() {
    let lens: Vec<usize> = (0..120).map(|number| 1 + number * 1237 % 14_000).collect();
    for kind in LARGE {
        run(kind, (1 << 15, 2), &lens, 1);
        run(kind, (1 << 17, 8), &lens, 4);
    }
}

/// One way, as a receiver that words come to.
#[test]
fn words_come_once_and_in_order_for_each_sender() {
    let Loopback { addresses: [client, server], port } = Loopback::unused();
    let (mut from, mut to) = (End::open(client, port), End::open(server, port));
    let mut receiver = bufferless::Receiver::open(&mut to.registrar(), 1, 4).unwrap();
    let terms = receiver.admit(&mut to.registrar(), from.peer()).unwrap();
    let mut sender = bufferless::Sender::join(&from.registrar(), &terms, 8).unwrap();
    let (clock, mut sent, mut got) = (TscClock::new(), 0_u64, 0_u64);
    while got < 500 {
        let now = clock.now();
        from.host.turn();
        from.link.poll(now);
        Sender::poll(&mut sender, &mut from.link, now).unwrap();
        while sent < 500 && sender.notify(&mut from.link, now, sent << 40).is_ok() {
            sent += 1;
        }
        to.host.turn();
        if let Some(claim) = receiver.claim().unwrap() {
            assert_eq!((receiver.word(&claim), claim.sender()), (got << 40, Some(from.peer())));
            receiver.free(claim);
            got += 1;
        }
    }
    assert_eq!(receiver.claim(), Ok(None));
}

#[test]
fn what_is_no_message_is_refused() {
    let Loopback { addresses: [client, server], port } = Loopback::unused();
    let (mut from, to) = (End::open(client, port), End::open(server, port));
    let size = Size { ring: 256, places: 2, len_max: 100 };
    let (mut sender, _receiver) = with_zeroing(&from, &to, size);
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
