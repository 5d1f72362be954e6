//! Frames that come together are handled as though they came one after the other (§4.2, "Line-rate
//! operation").

use proptest::prelude::*;

use super::{stage::Stage, *};

const NEW: [u8; 16] = [0x42; 16];

/// The fate of a frame on its way.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrives,
    ArrivesTwice,
    /// One bit of it is changed; which, the number says.
    Changed(u16),
    /// It overtakes those before it.
    First,
}

/// An op that the initiator issues.
#[derive(Clone, Copy, Debug)]
enum Op {
    Read { offset: u16, size: u16 },
    Write { offset: u16, size: u16 },
    Rekey,
    ReadUnderNewKey,
    ReadUnderWrongKey,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => Just(Fate::Arrives),
        2 => Just(Fate::ArrivesTwice),
        1 => any::<u16>().prop_map(Fate::Changed),
        1 => Just(Fate::First),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let span = || (0..8000_u16, 1..=4096_u16);
    prop_oneof![
        3 => span().prop_map(|(offset, size)| Op::Read { offset, size }),
        3 => span().prop_map(|(offset, size)| Op::Write { offset, size }),
        1 => Just(Op::Rekey),
        1 => Just(Op::ReadUnderNewKey),
        1 => Just(Op::ReadUnderWrongKey),
    ]
}

fn command(pair: &Pair, slot: u16, op: Op) -> Command {
    match op {
        Op::Read { offset, size } => pair.read(slot, offset.into(), size.into()),
        Op::Write { offset, size } => pair.write(slot, offset.into(), size.into()),
        Op::Rekey => pair.rekey(slot, NEW),
        Op::ReadUnderNewKey => {
            let key = pair.key_under(&RegionKey::from_bytes(NEW), OpType::Read);
            Command { key, ..pair.read(slot, 0, 64) }
        }
        Op::ReadUnderWrongKey => {
            Command { key: DerivedRegionKey::from_bytes([9; 16]), ..pair.read(slot, 0, 64) }
        }
    }
}

fn on_the_way(flights: Vec<Flight>, fates: &mut impl Iterator<Item = Fate>) -> Vec<Flight> {
    let mut arriving = Vec::new();
    for mut flight in flights {
        match fates.next().expect("they go round") {
            Fate::Arrives => arriving.push(flight),
            Fate::ArrivesTwice => arriving.extend([flight.clone(), flight]),
            Fate::Changed(bit) => {
                let bit = usize::from(bit) % (8 * flight.bytes.len());
                flight.bytes[bit / 8] ^= 1 << (bit % 8);
                arriving.push(flight);
            }
            Fate::First => arriving.insert(0, flight),
        }
    }
    arriving
}

/// Hands over all frames at once. Returns what is left in the device's buffers.
fn deliver_together(nic: &mut Nic, now: Instant, flights: &[Flight]) -> Vec<Vec<u8>> {
    let mut buffers: Vec<_> = flights.iter().map(|flight| flight.bytes.clone()).collect();
    let frames = buffers.iter_mut().zip(flights).map(|(bytes, flight)| RxFrame {
        source_port: flight.transmit.source_port,
        is_first: true,
        is_handed_over: false,
        source: flight.transmit.source,
        destination: flight.transmit.destination,
        port: flight.transmit.port,
        reply_len_max: 1472,
        link: None,
        bytes,
    });
    nic.handle_frames(now, &now, &mut frames.collect::<Vec<_>>());
    buffers
}

/// Everything that two NICs in the same state have in common, as far as others see it.
fn shown(host: &Host) -> (Vec<u8>, Vec<u64>, [u64; 4]) {
    let mut memory = vec![0; REGION_LEN];
    host.memory.copy_out(0, &mut memory).unwrap();
    let counters = host.nic.counters();
    let drops = DropReason::ALL.into_iter().map(|reason| counters.drops(reason));
    let not_sent = NotSent::ALL.into_iter().map(|reason| counters.not_sent(reason));
    let drops = drops.chain(not_sent).collect();
    let gauges = host.nic.gauges();
    let others = [
        counters.late_effects(),
        gauges.window_debited,
        gauges.ops_in_service,
        gauges.counter_values_left,
    ];
    (memory, drops, others)
}

proptest! {
    /// Whatever comes in whatever order, damaged or twice: both ways end alike, frame by frame.
    #[test]
    fn together_is_as_one_by_one(
        ops in prop::collection::vec(op(), 1..8),
        fates in prop::collection::vec(fate(), 1..60),
    ) {
        let (mut apart, mut together) = (Pair::new(), Pair::new());
        for pair in [&mut apart, &mut together] {
            pair.path_len_max = 1472;
            for (slot, &op) in ops.iter().enumerate() {
                pair.issue(command(pair, slot as u16, op));
            }
        }
        let mut fates = fates.into_iter().cycle();
        for _ in 0..12 {
            let requests = apart.requests();
            prop_assert_eq!(&format!("{:?}", together.requests()), &format!("{:?}", &requests));
            let requests = on_the_way(requests, &mut fates);
            for flight in &requests {
                let _ = apart.deliver_to_b(flight);
            }
            deliver_together(&mut together.b.nic, together.now, &requests);
            prop_assert_eq!(shown(&apart.b), shown(&together.b));

            let responses = apart.responses();
            prop_assert_eq!(&format!("{:?}", together.responses()), &format!("{:?}", &responses));
            let responses = on_the_way(responses, &mut fates);
            for flight in &responses {
                let _ = apart.deliver_to_a(flight);
            }
            deliver_together(&mut together.a.nic, together.now, &responses);
            prop_assert_eq!(shown(&apart.a), shown(&together.a));
        }
        loop {
            let (one, other) = (apart.a.nic.poll_completion(), together.a.nic.poll_completion());
            prop_assert_eq!(one, other);
            if one.is_none() {
                break;
            }
        }
    }
}

/// All frames of `nic`, written into `buffers` at a time.
fn transmit_together(nic: &mut Nic, now: Instant, buffers: usize) -> Vec<Flight> {
    let mut flights = Vec::new();
    loop {
        let mut bytes = vec![[0; wire::FRAME_LEN_MAX]; buffers];
        let mut frames: Vec<_> = bytes.iter_mut().map(|bytes| TxFrame::new(bytes)).collect();
        let count = nic.poll_transmits(now, &mut frames, &mut Quantum::new(1 << 20));
        for TxFrame { bytes, transmit } in &frames[..count] {
            let transmit = transmit.expect("it was written");
            flights.push(Flight { transmit, bytes: bytes[..transmit.len].to_vec() });
        }
        if count < buffers {
            return flights;
        }
    }
}

proptest! {
    /// However many frames are sealed together: they are the same octets, and what answers them is
    /// believed or not as it would be of any. Also notices, which are bound to the tag of the very
    /// request that they refuse.
    #[test]
    fn sent_together_is_as_sent_one_by_one(
        ops in prop::collection::vec(op(), 1..8),
        buffers in 1..40_usize,
        inbound_queue in 1..4_u32,
    ) {
        let settings = NicConfigBuilder { inbound_queue, pending_writes: 2, ..Default::default() };
        let (mut apart, mut together) = (Pair::with(settings), Pair::with(settings));
        for pair in [&mut apart, &mut together] {
            for (slot, &op) in ops.iter().enumerate() {
                pair.issue(command(pair, slot as u16, op));
            }
        }
        for _ in 0..12 {
            let requests = apart.requests();
            let same = transmit_together(&mut together.a.nic, together.now, buffers);
            prop_assert_eq!(format!("{:?}", same), format!("{:?}", &requests));
            for flight in &requests {
                prop_assert_eq!(apart.deliver_to_b(flight), together.deliver_to_b(flight));
            }
            let responses = apart.responses();
            let same = transmit_together(&mut together.b.nic, together.now, buffers);
            prop_assert_eq!(format!("{:?}", same), format!("{:?}", &responses));
            for flight in &responses {
                prop_assert_eq!(apart.deliver_to_a(flight), together.deliver_to_a(flight));
            }
        }
        let mut ended = 0;
        while let Some(completion) = apart.a.nic.poll_completion() {
            prop_assert_eq!(Some(completion), together.a.nic.poll_completion());
            ended += 1;
        }
        prop_assert_eq!(ended, ops.len());
    }
}

#[test]
fn requests_that_leave_together_hear_each_why_they_are_refused() {
    let mut pair = Pair::with(NicConfigBuilder { inbound_queue: 1, ..Default::default() });
    for slot in 0..8 {
        pair.issue(pair.read(slot, 0, 64));
    }
    let requests = transmit_together(&mut pair.a.nic, pair.now, 16);
    deliver_together(&mut pair.b.nic, pair.now, &requests);
    let answers = transmit_together(&mut pair.b.nic, pair.now, 16);
    assert_eq!(answers.len(), 8);
    deliver_together(&mut pair.a.nic, pair.now, &answers);
    let mut statuses: Vec<_> = (0..8).map(|_| pair.completion().status).collect();
    statuses.sort_by_key(|&status| status as u8);
    assert_eq!(statuses.iter().filter(|&&it| it == OpStatus::Nack).count(), 7, "{statuses:?}");
}

#[test]
fn a_request_under_the_key_that_its_own_batch_installs_is_served_and_one_under_the_old_is_not() {
    let mut pair = Pair::new();
    pair.issue(command(&pair, 0, Op::Rekey));
    for flight in pair.requests() {
        pair.deliver_to_b(&flight).unwrap();
    }
    for flight in pair.responses() {
        pair.deliver_to_a(&flight).unwrap();
    }
    let mut flights = pair.requests();
    pair.issue(command(&pair, 1, Op::ReadUnderNewKey));
    pair.issue(pair.read(2, 0, 64));
    flights.extend(pair.requests());
    assert_eq!(flights.len(), 3, "the key, and two requests");
    deliver_together(&mut pair.b.nic, pair.now, &flights);
    pair.exchange();
    let mut completions = [pair.completion(), pair.completion(), pair.completion()];
    completions.sort_by_key(|completion| completion.slot);
    let old = OpStatus::RemoteAuthenticationFailure;
    assert_eq!(completions.map(|it| it.status), [OpStatus::Ok, OpStatus::Ok, old]);
}

/// An immediate is decrypted where it lies, under the key of before. So its tag is right no more,
/// and its sender is no stranger all the same (P11).
#[test]
fn a_recorded_request_is_told_of_the_key_that_its_own_batch_has_replaced_or_served_under_it() {
    let mut stage = Stage::new();
    stage.queue.post_all();
    let queue = stage.queue.id();
    let rekey = Command { remote_region: queue, ..stage.pair.rekey(0, NEW) };
    let (new, old) = (stage.send(1, 64, 0x1234), stage.send(2, 64, 0x5678));
    let key = stage.pair.key_under(&RegionKey::from_bytes(NEW), OpType::Send);
    let pair = &mut stage.pair;
    let mut flights = pair.data_of(rekey);
    pair.issue(Command { key, ..new });
    pair.issue(old);
    flights.extend(pair.requests());
    assert_eq!(flights.len(), 3, "the key, and two requests");
    deliver_together(&mut pair.b.nic, pair.now, &flights);
    assert_eq!(pair.b.nic.counters().drops(DropReason::OldKey), 1);
    assert_eq!(pair.b.nic.counters().drops(DropReason::RequestUnauthenticated), 0);
    pair.exchange();
    let mut completions = [pair.completion(), pair.completion(), pair.completion()];
    completions.sort_by_key(|completion| completion.slot);
    let refused = OpStatus::RemoteAuthenticationFailure;
    assert_eq!(completions.map(|it| it.status), [OpStatus::Ok, OpStatus::Ok, refused]);
    assert_eq!(stage.event().immediate, 0x1234);
    assert!(stage.queue.poll().is_none());
    stage.assert_settled_down();
}

#[test]
fn no_copy_of_a_new_region_key_is_left_in_the_devices_buffers() {
    let mut pair = Pair::new();
    pair.issue(command(&pair, 0, Op::Rekey));
    for flight in pair.requests() {
        pair.deliver_to_b(&flight).unwrap();
    }
    for flight in pair.responses() {
        pair.deliver_to_a(&flight).unwrap();
    }
    let [data] = &pair.requests()[..] else { panic!("the key is one frame") };
    for left in deliver_together(&mut pair.b.nic, pair.now, &[data.clone(), data.clone()]) {
        assert!(!left.windows(16).any(|octets| octets == NEW), "{left:?}");
    }
    pair.exchange();
    assert_eq!(pair.status(), OpStatus::Ok);
}
