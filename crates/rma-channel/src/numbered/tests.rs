//! All channels of numbered messages, against an engine in the test's hands.

use proptest::prelude::*;
use rma_core::{
    executor::CallStatus,
    op::OpStatus,
    receive_queue::{Event, Receive},
    region::RegionId,
};

use super::*;
use crate::{
    receiver::{Blocking, Claims, Message, ReceiveError, Receiver},
    ring::{Malformed, Position},
    send_recv::{SendRecvConfig, normal},
    sender::{SendError, SendHandle, SendRegion, SendState},
    tests::bench::{Bench, PEER},
    write_slot::{SlotConfig, bell, detached_bell, immediate, inlined_bell, rung},
};

/// The two ends of a channel, on one host.
struct Ends {
    bench: Bench,
    sender: Box<dyn SendRegion>,
    receiver: Box<dyn Receiver>,
}

fn connect<S, R>(bench: Bench, sender: Half<S>, receiver: Half<R>) -> Ends
where
    S: SendRegion + 'static,
    R: Receiver + 'static,
{
    let (to, from) = (receiver.terms().clone(), sender.terms().clone());
    let (sender, receiver) = (sender.connect(&to).unwrap(), receiver.connect(&from).unwrap());
    Ends { bench, sender: Box::new(sender), receiver: Box::new(receiver) }
}

fn slots(places: u16, len_max: u32) -> SlotConfig {
    SlotConfig::with_peer(PEER).with(|it| (it.slots, it.len_max) = (places, len_max))
}

/// Opens both ends: how many calls the link has, how many places, the longest message.
type Open = fn(u16, u16, u32) -> Ends;

fn normal(calls: u16, receives: u16, len_max: u32) -> Ends {
    let bench = Bench::new(calls);
    let config = SendRecvConfig::with_peer(PEER);
    let config = config.with(|it| (it.receives, it.len_max) = (receives, len_max.min(4096)));
    let sender = normal::Sender::open(&bench.host, config).unwrap();
    let receiver = normal::Receiver::open(&bench.host, config).unwrap();
    connect(bench, sender, receiver)
}

fn detached(calls: u16, places: u16, len_max: u32) -> Ends {
    let (bench, config) = (Bench::new(calls), slots(places, len_max));
    let by = detached_bell::Bell::Word;
    let sender = detached_bell::Sender::open(&bench.host, config, by).unwrap();
    let receiver = detached_bell::Receiver::open(&bench.host, config).unwrap();
    connect(bench, sender, receiver)
}

fn waking(calls: u16, places: u16, len_max: u32) -> Ends {
    let (bench, config) = (Bench::new(calls), slots(places, len_max));
    let by = detached_bell::Bell::Event;
    let sender = detached_bell::Sender::open(&bench.host, config, by).unwrap();
    let receiver = detached_bell::WakingReceiver::open(&bench.host, config).unwrap();
    connect(bench, sender, receiver)
}

fn inlined(calls: u16, places: u16, len_max: u32) -> Ends {
    let (bench, config) = (Bench::new(calls), slots(places, len_max));
    let sender = inlined_bell::Sender::open(&bench.host, config).unwrap();
    let receiver = inlined_bell::Receiver::open(&bench.host, config).unwrap();
    connect(bench, sender, receiver)
}

fn immediate(calls: u16, places: u16, len_max: u32) -> Ends {
    let (bench, config) = (Bench::new(calls), slots(places, len_max));
    let sender = immediate::Sender::open(&bench.host, config).unwrap();
    let receiver = immediate::Receiver::open(&bench.host, config).unwrap();
    connect(bench, sender, receiver)
}

const ALL: [(&str, Open); 5] = [
    ("send/recv", normal),
    ("detached", detached),
    ("waking", waking),
    ("inlined", inlined),
    ("immediate", immediate),
];

fn message(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number as usize * 31 + at * 7 + 1) as u8).collect()
}

impl Ends {
    fn send(&mut self, message: &[u8]) -> Result<SendHandle, SendError> {
        self.sender.send(&mut self.bench.us.link, self.bench.now, message)
    }

    /// Both ends do what is due.
    fn poll(&mut self) -> Result<(), SendError> {
        self.bench.turn();
        let Bench { us, now, .. } = &mut self.bench;
        let polled = self.sender.poll(&mut us.link, *now);
        self.receiver.poll(&mut us.link, *now).unwrap();
        self.bench.turn();
        polled
    }

    /// All is applied, until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..6 {
            self.bench.apply_all();
            self.poll().unwrap();
        }
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        Message::next(&mut *self.receiver).unwrap().map(|message| message.to_vec())
    }
}

/// A message on its way through a channel, step by step: what is sent, applied, taken and freed, in
/// which order.
fn run(mut it: Ends, name: &str, steps: &[(u8, u16)], lens: &[u16]) {
    let (mut handles, mut held, mut taken) = (Vec::new(), Vec::new(), 0);
    let len_max = it.sender.len_max() as usize;
    let len = |number: usize| 1 + usize::from(lens[number % lens.len()]) % len_max;
    for &(what, which) in steps {
        match what % 4 {
            0 => match it.send(&message(handles.len() as u64, len(handles.len()))) {
                Ok(handle) => handles.push(handle),
                Err(error) => assert_eq!(error, SendError::Full, "{name}"),
            },
            1 if !it.bench.us.engine.taken.is_empty() => {
                let at = usize::from(which) % it.bench.us.engine.taken.len();
                assert_eq!(it.bench.apply(at), OpStatus::Ok, "{name}: never refused");
            }
            2 => {
                if let Some(claim) = it.receiver.claim().unwrap() {
                    let mut bytes = vec![0; claim.len()];
                    assert_eq!(it.receiver.read(&claim, 0, &mut bytes), bytes.len());
                    assert_eq!(bytes, message(taken, len(taken as usize)), "{name}, {taken}");
                    taken += 1;
                    held.push(claim);
                }
            }
            3 if !held.is_empty() => {
                it.receiver.free(held.remove(usize::from(which) % held.len()));
            }
            _ => {}
        }
        it.poll().unwrap();
    }
    held.into_iter().for_each(|claim| it.receiver.free(claim));
    it.settle();
    while let Some(bytes) = it.receive() {
        assert_eq!(bytes, message(taken, len(taken as usize)), "{name}, {taken}");
        taken += 1;
        it.settle();
    }
    assert_eq!(taken, handles.len() as u64, "{name}: all that were sent");
    let is_processed = |&handle| it.sender.test(handle) == SendState::Processed;
    assert!(handles.iter().all(is_processed), "{name}: and the sender knows");
}

proptest! {
    //= channels#4.1-normal
    //= type=test
    //= channels#4.2-detached
    //= type=test
    //= channels#4.2-inlined
    //= type=test
    //= channels#4.2-immediate
    //= type=test
    #[test]
    fn messages_come_once_and_in_order_whatever_the_order_of_ops(
        steps in prop::collection::vec(any::<(u8, u16)>(), 1..400),
        lens in prop::collection::vec(any::<u16>(), 1..8),
        places in 1_u16..6,
        len_max in prop::sample::select(vec![1_u32, 7, 64, 4096, 9000]),
        calls in prop::sample::select(vec![2_u16, 3, 16]),
    ) {
        for (name, open) in ALL {
            run(open(calls, places, len_max), name, &steps, &lens);
        }
    }
}

#[test]
fn a_channel_is_full_until_its_sender_is_told() {
    for (name, open) in ALL {
        let mut it = open(16, 2, 100);
        let first = it.send(b"first").unwrap();
        it.send(b"second").unwrap();
        assert_eq!(it.send(b"third"), Err(SendError::Full), "{name}");
        it.settle();
        assert_eq!(it.sender.test(first), SendState::Accepted, "{name}");
        assert_eq!(it.send(b"third"), Err(SendError::Full), "{name}: none is processed");
        assert_eq!(it.receive().unwrap(), b"first", "{name}");
        it.settle();
        assert_eq!(it.sender.test(first), SendState::Processed, "{name}");
        it.send(b"third").unwrap();
        it.settle();
        assert_eq!(it.receive().unwrap(), b"second", "{name}");
        assert_eq!(it.receive().unwrap(), b"third", "{name}");
        assert_eq!(it.receive(), None, "{name}");
    }
}

#[test]
fn a_message_that_was_not_applied_breaks_the_channel_and_is_named() {
    for (name, open) in ALL {
        let mut it = open(16, 4, 100);
        let handles = [b"first", b"other", b"third"].map(|message| it.send(message).unwrap());
        it.bench.turn();
        // The second's only op, or its bytes.
        it.bench.fail(1, OpStatus::RemotePermissionDenied);
        it.bench.apply_all();
        let status = CallStatus::Failed(OpStatus::RemotePermissionDenied);
        let broken = SendError::Broken { handle: handles[1], status };
        assert_eq!(it.poll(), Err(broken), "{name}");
        assert_eq!(it.sender.test(handles[1]), SendState::Failed(status), "{name}");
        assert_eq!(it.send(b"fourth"), Err(broken), "{name}");
        assert_eq!(it.receive().unwrap(), b"first", "{name}");
        assert_eq!(it.receive(), None, "{name}: nothing gets past the hole");
        it.bench.apply_all();
        assert_eq!(it.poll(), Err(broken), "{name}: it stays so");
        it.bench.apply_all();
        assert_eq!(it.poll(), Err(broken), "{name}: it stays so");
        assert_eq!(it.sender.test(handles[0]), SendState::Processed, "{name}");
        assert_eq!(it.sender.test(handles[2]), SendState::Accepted, "{name}");
    }
}

#[test]
fn a_message_without_room_in_the_link_is_not_taken_and_a_bell_is_rung_later() {
    for (name, open) in ALL {
        let mut it = open(1, 4, 100);
        it.send(b"first").unwrap();
        assert_eq!(it.send(b"second"), Err(SendError::Full), "{name}");
        it.settle();
        it.settle();
        assert_eq!(it.receive().unwrap(), b"first", "{name}");
        it.settle();
        it.send(b"second").unwrap();
        it.settle();
        it.settle();
        assert_eq!(it.receive().unwrap(), b"second", "{name}");
        assert_eq!(it.receive(), None, "{name}");
    }
}

#[test]
fn a_message_is_sent_from_where_it_lies_without_a_copy() {
    for (name, open) in ALL {
        let mut it = open(16, 4, 9000);
        let memory = Arc::new(Region::new(16_384).unwrap());
        let key = it.bench.host.key().unwrap();
        let region = it.bench.host.register(memory, key, Permissions::NONE, None).unwrap();
        let (before, behind) = it.sender.beside();
        assert_eq!(before, 0, "{name}");
        for (number, len) in [1, 15, it.sender.len_max() as usize].into_iter().enumerate() {
            region.write(64, &message(number as u64, len)).unwrap();
            let Bench { us, now, .. } = &mut it.bench;
            let range = 64..64 + len as u64;
            let sent = it.sender.send_region(&mut us.link, *now, &region, range).unwrap();
            it.settle();
            it.settle();
            assert_eq!(it.sender.test(sent), SendState::Accepted, "{name}, {len} bytes");
            assert_eq!(it.receive().unwrap(), message(number as u64, len), "{name}");
            it.settle();
        }
        let Bench { us, now, .. } = &mut it.bench;
        assert_eq!(us.link.copied_bytes(), 0, "{name}");
        let end = region.len();
        let refused = it.sender.send_region(&mut us.link, *now, &region, end - 8..end);
        assert_eq!(refused.is_ok(), behind == 0, "{name}: a bell has no room behind it");
        let refused = it.sender.send_region(&mut us.link, *now, &region, end - 4..end + 4);
        assert!(matches!(refused, Err(SendError::Place { .. })), "{name}");
    }
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let bench = Bench::new(4);
    let is_refused =
        |opened: Result<(), OpenError>| matches!(opened, Err(OpenError::Settings { .. }));
    for (places, len_max) in [(0, 8), (32_769, 8), (1, 0), (1, u32::MAX)] {
        let config = SendRecvConfig::with_peer(PEER);
        let config = config.with(|it| (it.receives, it.len_max) = (places, len_max));
        assert!(is_refused(normal::Sender::open(&bench.host, config).map(drop)));
        let config = slots(places, len_max);
        assert!(is_refused(inlined_bell::Sender::open(&bench.host, config).map(drop)));
    }
    let short = Arc::new(Region::new(8).unwrap());
    let opened = immediate::Receiver::open_in(&bench.host, slots(2, 8), short);
    assert!(is_refused(opened.map(drop)), "memory that is too short");
}

/// Returns the error about a lying sender, and checks that the receiver repeats it.
fn refusal(receiver: &mut impl Claims) -> ReceiveError {
    let refusal = receiver.claim().unwrap_err();
    assert_eq!(receiver.claim().unwrap_err(), refusal, "it stays so");
    refusal
}

/// An event of a sender's op, that tells of bytes of `region`.
fn event(op_type: OpType, immediate: u64, (region, offset, len): (RegionId, u64, u32)) -> Event {
    Event {
        op_type,
        receive: Receive(0),
        len,
        immediate,
        initiator: PEER.address,
        pid: PEER.pid,
        region,
        region_offset: offset,
        at: rma_core::time::Instant::ZERO,
    }
}

/// The receiver's end, of whose sender there are only lies.
fn alone<S, R: Claims>(sender: Half<S>, receiver: Half<R>) -> R {
    receiver.connect(sender.terms()).unwrap()
}

#[test]
fn a_send_with_a_number_that_cannot_be_is_malformed() {
    for wrong in [4, u64::MAX, 1 << 32, 0] {
        let bench = Bench::new(4);
        let config = SendRecvConfig::with_peer(PEER).with(|it| it.receives = 4);
        let sender = normal::Sender::open(&bench.host, config).unwrap();
        let receiver = normal::Receiver::open(&bench.host, config).unwrap();
        let mut receiver = alone(sender, receiver);
        let place = (receiver.queue().id(), 0, 8);
        bench.host.hosts.event(receiver.queue(), event(OpType::Send, 0, place));
        let first = receiver.claim().unwrap().unwrap();
        assert_eq!(bench.host.hosts.posted(receiver.queue()), 3, "its receive is the message's");
        bench.host.hosts.event(receiver.queue(), event(OpType::Send, wrong, place));
        let malformed = Malformed::Number { number: wrong, next: 1, room: 3 };
        assert_eq!(refusal(&mut receiver), malformed.into());
        receiver.free(first);
        assert_eq!(bench.host.hosts.posted(receiver.queue()), 3, "freed, it is posted again");
    }
}

#[test]
fn an_event_beside_the_slots_is_malformed() {
    // Slots of 16 bytes. The first message is in its slot; then come lies.
    let lies: [(u64, i32, u64, u32); 6] = [
        (1, 0, 0, 16),
        (1, 0, 16, 0),
        (1, 0, 16, 17),
        (1, 0, 32, 16),
        (1, 1, 16, 16),
        (u64::MAX, 0, 16, 16),
    ];
    for (immediate, other, offset, len) in lies {
        let (bench, config) = (Bench::new(4), slots(4, 16));
        let sender = immediate::Sender::open(&bench.host, config).unwrap();
        let receiver = immediate::Receiver::open(&bench.host, config).unwrap();
        let mut receiver = alone(sender, receiver);
        let slots = receiver.memory.id();
        bench.host.hosts.event(receiver.queue(), event(OpType::WriteWithImm, 0, (slots, 0, 16)));
        let first = receiver.claim().unwrap().unwrap();
        let (memory, range) = receiver.place(&first);
        assert_eq!((memory.id(), range), (slots, 0..16));
        assert_eq!(bench.host.hosts.posted(receiver.queue()), 4, "posted again at once");
        let region = RegionId::from_bits(slots.to_bits() + other as u32);
        let lie = event(OpType::WriteWithImm, immediate, (region, offset, len));
        bench.host.hosts.event(receiver.queue(), lie);
        let ReceiveError::Malformed(malformed) = refusal(&mut receiver) else { unreachable!() };
        assert!(matches!(malformed, Malformed::Event { .. }), "{malformed}");
    }
}

#[test]
fn a_bell_that_is_not_the_next_message_is_malformed() {
    let bell = |number: u64, len: u64| number << 32 | len;
    for wrong in
        [bell(0, 17), bell(1, 8), bell(4, 8), bell(u32::MAX.into(), 8), bell(4, 0), 1 << 31]
    {
        let (bench, config) = (Bench::new(4), slots(4, 16));
        let sender = inlined_bell::Sender::open(&bench.host, config).unwrap();
        // The application's memory may hold anything.
        let memory = Region::new(inlined_bell::Receiver::memory_len(&config) as usize).unwrap();
        memory.copy_in(0, &vec![0xff; memory.len()]).unwrap();
        let memory = Arc::new(memory);
        let open = inlined_bell::Receiver::open_in(&bench.host, config, memory.clone());
        let mut receiver = alone(sender, open.unwrap());
        assert_eq!(receiver.claim(), Ok(None), "what was in the memory is no message");
        memory.store_release(16, u64::to_le(wrong)).unwrap();
        let malformed = Malformed::Bell { number: 0, bell: wrong, len_max: 16 };
        assert_eq!(refusal(&mut receiver), malformed.into());
    }
    for (wrong, malformed) in [
        (bell(0, 17), Malformed::Bell { number: 0, bell: bell(0, 17), len_max: 16 }),
        (bell(4, 8), Malformed::Number { number: 4, next: 0, room: 4 }),
    ] {
        let (bench, config) = (Bench::new(4), slots(4, 16));
        let by = detached_bell::Bell::Event;
        let sender = detached_bell::Sender::open(&bench.host, config, by).unwrap();
        let receiver = detached_bell::WakingReceiver::open(&bench.host, config).unwrap();
        let mut receiver = alone(sender, receiver);
        let place = (receiver.queue().id(), 0, 0);
        bench.host.hosts.event(receiver.queue(), event(OpType::Notify, wrong, place));
        assert_eq!(refusal(&mut receiver), malformed.into());
    }
}

#[test]
fn a_tail_that_cannot_be_breaks_the_sender() {
    let mut it = inlined(16, 4, 100);
    it.send(b"one").unwrap();
    it.settle();
    // The sender's tail is the second region that was made: its image, and then that word.
    let tail = RegionId::from_bits(2);
    let tail = it.bench.host.hosts.region(tail);
    tail.store(0, 2_u64.to_le()).unwrap();
    let error = it.poll().unwrap_err();
    let malformed = Malformed::Tail { told: 2, tail: 0, head: 1 };
    assert_eq!(error, SendError::Malformed(malformed));
}

#[test]
fn a_bell_tells_its_message_from_all_others_when_numbers_wrap() {
    let lap = Position::from_bits(u64::from(u32::MAX) - 1);
    for ahead in 0..6 {
        let number = lap.after(ahead);
        let bell = bell(number, 5);
        assert_eq!(rung(bell, lap, 8), Ok((number, 5)));
    }
}
