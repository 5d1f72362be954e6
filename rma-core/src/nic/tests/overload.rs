//! A responder that is asked for more than it can send.

use super::*;

/// Otherwise a responder that is asked for more than it can send would send nothing but refusals,
/// and each of them makes an initiator ask again.
#[test]
fn refusals_and_responses_take_turns_so_an_overloaded_responder_goes_on_serving() {
    const TURNS: usize = 100;
    let mut pair = Pair::with(NicConfigBuilder { inbound_queue: 2, ..NicConfigBuilder::default() });
    for slot in 0..8 {
        pair.issue(pair.read(slot, 0, OP_SIZE_MAX));
    }
    let requests = pair.requests();
    let (mut served, mut refused) = (0, 0);
    let mut out = [0; wire::FRAME_LEN_MAX];
    for _ in 0..TURNS {
        // Each request asks for three frames, which go together, and for each request one can be
        // sent.
        for request in &requests {
            let _ = pair.deliver_to_b(request);
        }
        for _ in &requests {
            let sent = pair.b.nic.poll_transmit(pair.now, &mut out).unwrap();
            match FrameView::parse(&out[..sent.len]).unwrap() {
                FrameView::ReadResponse(_) => served += 1,
                _ => refused += 1,
            }
        }
    }
    let sent = TURNS * requests.len();
    assert_eq!((served, refused), (sent * 3 / 4, sent / 4));
}

#[test]
fn notices_beyond_what_may_wait_are_counted_and_not_sent() {
    let mut pair = Pair::new();
    pair.issue(pair.read(0, u64::MAX, 1));
    let request = pair.requests().remove(0);
    for _ in 0..300 {
        assert_eq!(pair.deliver_to_b(&request), Err(DropReason::RequestOutOfBounds));
    }
    assert_eq!(pair.responses().len(), 256);
    assert_eq!(pair.b.nic.counters().not_sent(NotSent::NoticeQueueFull), 44);
}

//= 1rma#4.5-nack
//= type=test
#[test]
fn each_cause_of_a_nack_has_a_counter_of_its_own() {
    let refused = |settings, commands: &[fn(&Pair) -> Command]| {
        let mut pair = Pair::with(settings);
        commands.iter().for_each(|command| pair.issue(command(&pair)));
        let mut requests = pair.requests();
        requests.sort_by_key(slot_of);
        let last = requests.pop().expect("a request for each command");
        requests.iter().for_each(|request| pair.deliver_to_b(request).expect("there is room"));
        pair.deliver_to_b(&last).expect_err("it finds no place")
    };
    let default = NicConfigBuilder::default();
    let read: fn(&Pair) -> Command = |pair| pair.read(0, 0, OP_SIZE_MAX);
    let second: fn(&Pair) -> Command = |pair| pair.read(1, 0, OP_SIZE_MAX);
    let few = NicConfigBuilder { inbound_queue: 1, ..default };
    assert_eq!(refused(few, &[read, second]), DropReason::InboundQueueFull);
    // As long as two ops take, there is time.
    let timing = Timing::new(Duration::from_millis(2), Duration::from_millis(5));
    let (rtt, bandwidth) = (Duration::from_millis(1), 4_096_000);
    let slow = NicConfigBuilder { timing, rtt, bandwidth, ..default };
    let reads: [fn(&Pair) -> Command; 4] =
        [read, second, |pair| pair.read(2, 0, OP_SIZE_MAX), |pair| pair.read(3, 0, OP_SIZE_MAX)];
    assert_eq!(refused(slow, &reads), DropReason::InboundQueueTooLong);

    let write: fn(&Pair) -> Command = |pair| pair.write(0, 0, 64);
    let bulk: fn(&Pair) -> Command =
        |pair| Command { class: ClassOfService::Throughput, ..pair.write(1, 0, 64) };
    let third: fn(&Pair) -> Command = |pair| pair.write(2, 0, 64);
    let two = NicConfigBuilder { pending_writes: 2, ..default };
    assert_eq!(refused(two, &[write, bulk, third]), DropReason::PendingWritesFull);
    let four = NicConfigBuilder { pending_writes: 4, ..default };
    let fourth: fn(&Pair) -> Command = |pair| pair.write(3, 0, 64);
    let second: fn(&Pair) -> Command = |pair| pair.write(1, 0, 64);
    assert_eq!(refused(four, &[write, second, third, fourth]), DropReason::PendingWriteShareFull);

    let mut pair = Pair::new();
    pair.issue(write(&pair));
    let request = pair.requests().remove(0);
    pair.deliver_to_b(&request).unwrap();
    pair.advance(default.timing.dispatch_timeout);
    assert_eq!(pair.b.nic.counters().drops(DropReason::NotSolicitedInTime), 1);
    let nacks = DropReason::ALL.into_iter().filter(|it| it.refused_with() == Some(OpStatus::Nack));
    // Two more are those of records: see `settle`.
    assert_eq!(nacks.count(), 5 + 2);
}

fn slot_of(flight: &Flight) -> u16 {
    u16::from_be_bytes([flight.bytes[12], flight.bytes[13]])
}

//= 1rma#4.3-two-arbiters
//= type=test
#[test]
fn the_classes_take_turns_at_the_responder_too() {
    let mut pair = Pair::new();
    let mut requests = Vec::new();
    for slot in 0..6 {
        let class = if slot < 4 { ClassOfService::Throughput } else { ClassOfService::Latency };
        pair.issue(Command { class, ..pair.read(slot, 0, 64) });
        requests.append(&mut pair.requests());
    }
    assert_eq!(requests.iter().map(slot_of).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    for request in &requests {
        pair.deliver_to_b(request).unwrap();
    }
    let served: Vec<u16> = pair.responses().iter().map(slot_of).collect();
    assert_eq!(served, [4, 0, 5, 1, 2, 3]);
}

#[test]
fn own_ops_and_those_of_others_take_turns() {
    let mut pair = Pair::new();
    for slot in 0..4 {
        pair.issue(pair.read(slot, 0, 64));
        let (responder, local_region) = (pair.a.addr, pair.b.region);
        let op = CommandOp::Read(Transfer { local_region, ..pair.transfer(0, 64) });
        let own = Command { responder, ..pair.command(slot, op) };
        pair.b.nic.handle_command(pair.now, own).unwrap();
    }
    for request in pair.requests() {
        pair.deliver_to_b(&request).unwrap();
    }
    let requests: Vec<bool> = pair
        .responses()
        .iter()
        .map(|flight| matches!(FrameView::parse(&flight.bytes).unwrap(), FrameView::ReadRequest(_)))
        .collect();
    assert_eq!(requests, [false, true, false, true, false, true, false, true]);
}

//= 1rma#4.3-two-arbiters
//= type=test
#[test]
fn the_classes_of_writes_take_turns_at_both_ends() {
    let mut pair = Pair::new();
    for slot in 0..6 {
        let class = if slot < 4 { ClassOfService::Throughput } else { ClassOfService::Latency };
        pair.issue(Command { class, ..pair.write(slot, 0, 64) });
    }
    let mut requests = pair.requests();
    assert_eq!(requests.iter().map(slot_of).collect::<Vec<_>>(), [4, 0, 5, 1, 2, 3]);
    // At the target: all of the bulk class came first.
    requests.sort_by_key(slot_of);
    requests.iter().for_each(|request| pair.deliver_to_b(request).unwrap());
    let solicited: Vec<u16> = pair.responses().iter().map(slot_of).collect();
    assert_eq!(solicited, [4, 0, 5, 1, 2, 3]);
}

//= 1rma#6.1-nack-threshold
//= type=test
#[test]
fn a_full_bulk_queue_does_not_nack_the_other_class() {
    // Two ops of 4 KiB may wait, by time and bandwidth; the queues have places for many more.
    let settings = NicConfigBuilder {
        timing: Timing {
            dispatch_timeout: Duration::from_millis(2),
            timeout: Duration::from_millis(5),
        },
        rtt: Duration::from_millis(1),
        bandwidth: 4_096_000,
        ..NicConfigBuilder::default()
    };
    let mut pair = Pair::with(settings);
    assert_eq!(pair.b.nic.config().nack_threshold(), 2 * 4096);
    let class = ClassOfService::Throughput;
    for slot in 0..5 {
        pair.issue(Command { class, ..pair.read(slot, 0, OP_SIZE_MAX) });
    }
    let taken = |pair: &mut Pair| -> Vec<bool> {
        let requests = pair.requests();
        requests.iter().map(|request| pair.deliver_to_b(request).is_ok()).collect()
    };
    // None, one and two ops before it are in time; three are too many.
    assert_eq!(taken(&mut pair), [true, true, true, false, false]);
    for slot in 5..8 {
        pair.issue(pair.read(slot, 0, OP_SIZE_MAX));
    }
    // Before these are as many bytes of the bulk class as of their own.
    assert_eq!(taken(&mut pair), [true, true, false]);
}

#[test]
fn reads_that_a_stalled_device_kept_for_too_long_are_not_answered() {
    let mut pair = Pair::new();
    let timeout = pair.b.nic.config().settings().timing.timeout;
    for slot in 0..4 {
        pair.issue(pair.read(slot, 0, OP_SIZE_MAX));
    }
    for request in pair.requests() {
        pair.deliver_to_b(&request).unwrap();
    }
    pair.advance(timeout);
    assert!(pair.responses().is_empty(), "their initiators have given up");
    assert_eq!(pair.b.nic.counters().requests_abandoned(), 4);
    // Their unsent answers are no longer counted as waiting.
    (0..4).for_each(|_| assert_eq!(pair.completion().status, OpStatus::Timeout));
    pair.issue(pair.read(0, 0, OP_SIZE_MAX));
    pair.exchange();
    assert_eq!(pair.status(), OpStatus::Ok);
}

#[test]
fn a_read_that_is_given_up_midway_has_had_its_classes_turn() {
    let mut pair = Pair::new();
    let half = pair.b.nic.config().settings().timing.timeout / 2;
    let ask = |pair: &mut Pair, slot, class| {
        pair.issue(Command { class, ..pair.read(slot, 0, OP_SIZE_MAX) });
        let requests = pair.requests();
        requests.iter().for_each(|request| pair.deliver_to_b(request).expect("there is room"));
    };
    let next_class = |pair: &mut Pair| {
        let mut out = [0; wire::FRAME_LEN_MAX];
        pair.b.nic.poll_transmit(pair.now, &mut out).expect("reads wait").class
    };
    ask(&mut pair, 0, ClassOfService::Latency);
    pair.advance(half);
    ask(&mut pair, 1, ClassOfService::Latency);
    ask(&mut pair, 2, ClassOfService::Throughput);
    // A device that takes one frame, and then none for long.
    assert_eq!(next_class(&mut pair), ClassOfService::Latency);
    pair.advance(half);
    assert_eq!(pair.b.nic.counters().requests_abandoned(), 1);
    assert_eq!(next_class(&mut pair), ClassOfService::Throughput);
    assert_eq!(next_class(&mut pair), ClassOfService::Latency);
}

/// Ops of one kind that a host runs without pause, and how they ended.
#[derive(Default)]
struct Flow([u32; OpStatus::ALL.len()]);

impl Flow {
    fn count(&mut self, status: OpStatus) {
        self.0[status as usize] += 1;
    }

    fn ok(&self) -> u32 {
        self.0[OpStatus::Ok as usize]
    }

    fn all(&self) -> u32 {
        self.0.iter().sum()
    }
}

/// The window is always full, one response comes in each turn, and a turn asks for frames as often
/// as an engine does.
#[test]
fn neither_class_starves_the_other_at_a_window_that_is_always_full() {
    for idle_turns in 0..3 {
        let mut pair = Pair::new();
        for host in [&mut pair.a, &mut pair.b] {
            host.nic.set_receive_len_max(ReceiveLenMax::of_mtu(9000)).unwrap();
        }
        pair.a.nic.configure_slots(8..200, Some(PID));
        let class = |slot: u16| ClassOfService::ALL[usize::from(slot % 2)];
        for slot in 0..200 {
            pair.issue(Command { class: class(slot), ..pair.read(slot, 0, 4096) });
        }
        let mut under_way = std::collections::VecDeque::new();
        let mut flows = [Flow::default(), Flow::default()];
        for _ in 0..5_000 {
            for request in pair.requests() {
                pair.deliver_to_b(&request).unwrap();
            }
            for _ in 0..idle_turns {
                assert!(pair.requests().is_empty());
            }
            under_way.extend(pair.responses());
            if let Some(response) = under_way.pop_front() {
                let _ = pair.deliver_to_a(&response);
            }
            pair.advance(Duration::from_micros(3));
            while let Some(completion) = pair.a.nic.poll_completion() {
                let slot = completion.slot.0;
                flows[class(slot) as usize].count(completion.status);
                pair.issue(Command { class: class(slot), ..pair.read(slot, 0, 4096) });
            }
        }
        let [latency, throughput] = flows.map(|flow| flow.ok());
        assert!(latency.abs_diff(throughput) <= 2, "{latency} and {throughput}");
        assert!(latency > 2_000);
    }
}

#[test]
fn own_reads_and_the_writes_of_others_share_a_window_that_is_always_full() {
    let settings =
        NicConfigBuilder { solicitation_window: OP_SIZE_MAX, ..NicConfigBuilder::default() };
    let mut pair = Pair::with(settings);
    let (responder, local_region) = (pair.a.addr, pair.b.region);
    let binding = KeyBinding { initiator: pair.b.addr, responder, pid: PID, op_type: OpType::Read };
    let key = crate::crypto::RegionKeySchedule::new(&pair.a.key).derive(&binding);
    let own = |pair: &Pair, slot: u16| {
        let op = CommandOp::Read(Transfer { local_region, ..pair.transfer(0, 64) });
        Command { responder, remote_region: pair.a.region, key, ..pair.command(slot, op) }
    };
    for slot in 0..4 {
        pair.b.nic.handle_command(pair.now, own(&pair, slot)).unwrap();
        pair.issue(pair.write(slot, 0, 64));
    }
    let (mut reads, mut writes) = (Flow::default(), Flow::default());
    for _ in 0..5_000 {
        for flight in pair.requests() {
            pair.deliver_to_b(&flight).unwrap();
        }
        for flight in pair.responses() {
            pair.deliver_to_a(&flight).unwrap();
        }
        pair.advance(Duration::from_micros(10));
        while let Some(completion) = pair.a.nic.poll_completion() {
            writes.count(completion.status);
            pair.issue(pair.write(completion.slot.0, 0, 64));
        }
        while let Some(completion) = pair.b.nic.poll_completion() {
            reads.count(completion.status);
            pair.b.nic.handle_command(pair.now, own(&pair, completion.slot.0)).unwrap();
        }
    }
    assert_eq!((reads.ok(), writes.ok()), (reads.all(), writes.all()), "nobody is shed");
    assert!(reads.ok().abs_diff(writes.ok()) <= 4, "{} and {}", reads.ok(), writes.ok());
    assert!(writes.ok() > 500);
}

#[test]
fn bulk_writes_leave_places_for_the_other_class() {
    let mut pair = Pair::new();
    pair.a.nic.configure_slots(8..128, Some(PID));
    let bulk = |pair: &Pair, slot| {
        let class = ClassOfService::Throughput;
        Command { class, ..pair.write(slot, 0, 4096) }
    };
    (1..128).for_each(|slot| pair.issue(bulk(&pair, slot)));
    pair.issue(pair.write(0, 0, 64));
    let mut latency = Flow::default();
    for _ in 0..500 {
        // Its requests are always the last to come.
        let mut requests = pair.requests();
        requests.sort_by_key(|flight| slot_of(flight) == 0);
        for flight in requests {
            let _ = pair.deliver_to_b(&flight);
        }
        for flight in pair.responses() {
            let _ = pair.deliver_to_a(&flight);
        }
        pair.advance(Duration::from_micros(10));
        while let Some(completion) = pair.a.nic.poll_completion() {
            if completion.slot.0 == 0 {
                latency.count(completion.status);
                pair.issue(pair.write(0, 0, 64));
            } else {
                pair.issue(bulk(&pair, completion.slot.0));
            }
        }
    }
    assert_eq!(latency.ok(), latency.all());
    assert!(latency.ok() > 100, "{}", latency.ok());
}

#[test]
fn a_write_does_not_wait_behind_reads_that_wait_for_the_window() {
    let settings =
        NicConfigBuilder { solicitation_window: OP_SIZE_MAX, ..NicConfigBuilder::default() };
    let mut pair = Pair::with(settings);
    // The window is full of what a dead host will not send.
    let dead: HostAddr = "192.0.2.99".parse().unwrap();
    pair.issue(Command { responder: dead, ..pair.read(0, 0, 4096) });
    let _ = pair.requests();
    pair.issue(Command { responder: dead, ..pair.read(1, 0, 4096) });
    pair.advance(Duration::from_micros(1));
    pair.issue(pair.write(2, 0, 64));
    pair.exchange();
    let completion = pair.completion();
    assert_eq!((completion.slot, completion.status), (CommandSlotId(2), OpStatus::Ok));
}

#[test]
fn a_read_goes_when_the_mutation_that_waited_is_abandoned() {
    let timing = |t| Timing {
        timeout: Duration::from_micros(t),
        dispatch_timeout: Duration::from_micros(t / 2),
    };
    let short = NicConfigBuilder { timing: timing(10_000), ..NicConfigBuilder::default() };
    let long = NicConfigBuilder {
        timing: timing(100_000),
        solicitation_window: 4 * OP_SIZE_MAX,
        ..NicConfigBuilder::default()
    };
    let mut pair = Pair::with(long);
    pair.a = Host::new("192.0.2.1", short);
    let read = |pair: &Pair, slot| Command {
        responder: pair.a.addr,
        remote_region: pair.a.region,
        op: CommandOp::Read(Transfer {
            op_size: 64,
            remote_offset: 0,
            local_region: pair.b.region,
            local_offset: 0,
        }),
        ..pair.read(slot, 0, 64)
    };
    for first in [false, true] {
        let slot = u16::from(first) * 2;
        let command = read(&pair, slot);
        pair.b.nic.handle_command(pair.now, command).unwrap();
        assert_eq!(pair.responses().len(), 1);
        pair.b.nic.responder_first = true;
        pair.issue(pair.write(slot, 0, 64));
        let request = pair.requests().remove(0);
        pair.deliver_to_b(&request).unwrap();
        pair.advance(Duration::from_micros(20_000));
        let command = read(&pair, slot + 1);
        pair.b.nic.handle_command(pair.now, command).unwrap();
        assert_eq!(pair.responses().len(), 1, "the read has all the window for itself");
        pair.advance(Duration::from_millis(500));
        while pair.b.nic.poll_completion().is_some() {}
        while pair.a.nic.poll_completion().is_some() {}
    }
}
