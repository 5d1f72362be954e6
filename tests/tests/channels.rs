//! Channels between two hosts over UDP: messages come whole, once and in order, through rings that
//! wrap, whatever their lengths, whether the receiver is slow or quick.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{collections::VecDeque, sync::Arc};

use rma_channel::{
    Link, SendError, SendHandle, SendState,
    ring::{Reads, RingLen},
    ring_buffer::{Receiver, SenderParts, with_zeroing, without_zeroing},
};
use rma_core::executor::{CommandExecutor, ExecutorConfig};
use rma_tests::hosts::Loopback;
use rma_xdp::{
    Clock, Grant, HostAddr, HostConfig, InlineHost, OpType, Permissions, PortalLease, Region,
    RegisteredRegion, TscClock, random_region_key,
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

    /// A region that goes around, and a grant for `other` to write to it.
    fn circular(&self, len: u64, other: &Self) -> (RegisteredRegion, Grant) {
        let memory = Arc::new(Region::circular(len as usize).unwrap());
        let key = random_region_key().unwrap();
        self.granted(self.host.register_memory(memory, key, Permissions::WRITE).unwrap(), other)
    }

    fn word(&self, other: &Self) -> (RegisteredRegion, Grant) {
        self.granted(self.host.register(8, Permissions::WRITE).unwrap(), other)
    }

    fn granted(&self, region: RegisteredRegion, other: &Self) -> (RegisteredRegion, Grant) {
        let pid = other.host.pid();
        let grant = self.host.grant(&region, other.address, pid, OpType::Write).unwrap();
        (region, grant)
    }
}

/// A channel of either kind.
trait Sends {
    type Reader: Reads;
    fn new(parts: SenderParts) -> Self;
    fn receiver(
        ring: RegisteredRegion,
        len: RingLen,
        len_max: u32,
        tail: (Grant, RegisteredRegion),
    ) -> Receiver<Self::Reader>;
    fn poll(&mut self, link: &mut Link, now: rma_xdp::Instant) -> Result<(), SendError>;
    fn send(
        &mut self,
        link: &mut Link,
        now: rma_xdp::Instant,
        message: &[u8],
    ) -> Result<SendHandle, SendError>;
    fn test(&mut self, handle: SendHandle) -> SendState;
}

impl Sends for with_zeroing::Sender {
    type Reader = rma_channel::ring::zeroing::Reader;

    fn new(parts: SenderParts) -> Self {
        Self::new(parts)
    }

    fn receiver(
        ring: RegisteredRegion,
        len: RingLen,
        len_max: u32,
        tail: (Grant, RegisteredRegion),
    ) -> Receiver<Self::Reader> {
        with_zeroing::Receiver::new(ring, len, len_max, tail)
    }

    fn poll(&mut self, link: &mut Link, _: rma_xdp::Instant) -> Result<(), SendError> {
        Self::poll(self, link)
    }

    fn send(
        &mut self,
        link: &mut Link,
        now: rma_xdp::Instant,
        message: &[u8],
    ) -> Result<SendHandle, SendError> {
        Self::send(self, link, now, message)
    }

    fn test(&mut self, handle: SendHandle) -> SendState {
        Self::test(self, handle)
    }
}

impl Sends for without_zeroing::Sender {
    type Reader = rma_channel::ring::without_zeroing::Reader;

    fn new(parts: SenderParts) -> Self {
        Self::new(parts)
    }

    fn receiver(
        ring: RegisteredRegion,
        len: RingLen,
        len_max: u32,
        tail: (Grant, RegisteredRegion),
    ) -> Receiver<Self::Reader> {
        without_zeroing::Receiver::new(ring, len, len_max, tail)
    }

    fn poll(&mut self, link: &mut Link, now: rma_xdp::Instant) -> Result<(), SendError> {
        Self::poll(self, link, now)
    }

    fn send(
        &mut self,
        link: &mut Link,
        now: rma_xdp::Instant,
        message: &[u8],
    ) -> Result<SendHandle, SendError> {
        Self::send(self, link, now, message)
    }

    fn test(&mut self, handle: SendHandle) -> SendState {
        Self::test(self, handle)
    }
}

fn message(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number as usize * 31 + at * 7) as u8).collect()
}

/// Sends messages of these lengths through a ring of `ring_len` bytes. The receiver takes one
/// message in `slowness` looks.
fn run<S: Sends>(ring_len: u64, lens: &[usize], slowness: usize) {
    let len_max = *lens.iter().max().unwrap() as u32;
    let len = RingLen::new(ring_len).unwrap();
    let Loopback { addresses: [client, server], port } = Loopback::unused();
    let (mut from, mut to) = (End::open(client, port), End::open(server, port));
    let (ring, ring_grant) = to.circular(ring_len, &from);
    let (image, _) = from.circular(ring_len, &to);
    let (tail, tail_grant) = from.word(&to);
    let (word, _) = to.word(&from);
    let mut sender = S::new(SenderParts { grant: ring_grant, image, tail, len, len_max });
    let mut receiver = S::receiver(ring, len, len_max, (tail_grant, word));
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
            && let Some(come) = receiver.receive().unwrap()
        {
            assert_eq!(come.to_vec(), message(got as u64, lens[got]), "message {got}");
            got += 1;
        }
        assert_eq!(receiver.poll(&mut to.link, now).unwrap(), None);
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
    assert_eq!(receiver.receive().unwrap().map(|message| message.to_vec()), None);
}

/// Both kinds.
fn both(ring_len: u64, lens: &[usize], slowness: usize) {
    run::<with_zeroing::Sender>(ring_len, lens, slowness);
    run::<without_zeroing::Sender>(ring_len, lens, slowness);
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
    let (_ring, grant) = to.circular(256, &from);
    let (image, _) = from.circular(256, &to);
    let (tail, _) = from.word(&to);
    let len = RingLen::new(256).unwrap();
    let parts = SenderParts { grant, image, tail: tail.clone(), len, len_max: 100 };
    let now = TscClock::new().now();
    let mut sender = with_zeroing::Sender::new(parts);
    for len in [0, 101] {
        let refused = sender.send(&mut from.link, now, &vec![0; len]);
        assert_eq!(refused, Err(SendError::Len { len, max: 100 }));
    }
    for _ in 0..2 {
        sender.send(&mut from.link, now, &[1; 100]).unwrap();
    }
    assert_eq!(sender.send(&mut from.link, now, &[1; 100]), Err(SendError::Full));
    // A tail that nobody can have reached.
    tail.store(0, u64::to_le(1 << 20)).unwrap();
    let refused = sender.poll(&mut from.link).unwrap_err();
    assert!(refused.to_string().contains("1048576"), "{refused}");
}
