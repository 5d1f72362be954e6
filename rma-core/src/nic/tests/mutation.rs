//! Writes: four hops, the target's window, who times out last, and what no frame can make happen
//! (P2, P7).

use core::cell::Cell;

use proptest::prelude::*;

use super::{stage::Stage, *};
use crate::wire::mutation::DATA_OVERHEAD;

/// The frames of one op, hop by hop.
impl Pair {
    /// Issues a mutation, delivers its request, and returns the solicitation.
    pub(super) fn solicitation_of(&mut self, command: Command) -> Flight {
        self.issue(command);
        let request = self.requests().remove(0);
        self.deliver_to_b(&request).unwrap();
        self.responses().remove(0)
    }

    /// As far as hop 3.
    pub(super) fn data_of(&mut self, command: Command) -> Vec<Flight> {
        let solicitation = self.solicitation_of(command);
        self.deliver_to_a(&solicitation).unwrap();
        self.requests()
    }

    /// Fills the initiator's region with something else than the responder's.
    pub(super) fn fill(&self) -> Vec<u8> {
        let bytes: Vec<u8> = (0..REGION_LEN).map(|i| ((i * 7) >> 2) as u8 ^ 0x5a).collect();
        self.a.memory.copy_in(0, &bytes).unwrap();
        bytes
    }

    /// The responder's region.
    pub(super) fn target(&self) -> Vec<u8> {
        let mut bytes = vec![0; REGION_LEN];
        self.b.memory.copy_out(0, &mut bytes).unwrap();
        bytes
    }

    pub(super) fn timeout(&self) -> Duration {
        self.a.nic.config().settings().timing.timeout
    }
}

//= 1rma#5.1-write
//= type=test
#[test]
fn writes_of_every_kind_of_size_arrive_in_both_families_and_change_nothing_else() {
    for (a, b) in [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")] {
        let mut pair = Pair::between(a, b, NicConfigBuilder::default());
        let data = pair.fill();
        for size in [1, 2, 63, 64, 65, 1408, 1409, 1424, 2048, 4095, 4096] {
            let offset = REGION_LEN - size - 7;
            let mut expected = pair.target();
            expected[offset..offset + size].copy_from_slice(&data[..size]);
            pair.issue(pair.write(0, offset as u64, size as u32));
            pair.exchange();
            assert_eq!(pair.status(), OpStatus::Ok, "{size} bytes");
            assert_eq!(pair.target(), expected, "{size} bytes");
            assert_eq!((pair.a.nic.window_debited(), pair.b.nic.window_debited()), (0, 0));
        }
        assert_eq!(pair.a.nic.poll_timeout(), None);
        assert_eq!(pair.b.nic.poll_timeout(), None);
    }
}

//= 1rma#5.1-writes-solicited
//= type=test
#[test]
fn a_write_waits_for_the_targets_window_which_reads_share() {
    let settings =
        NicConfigBuilder { solicitation_window: OP_SIZE_MAX + 63, ..NicConfigBuilder::default() };
    let mut pair = Pair::with(settings);
    // A read of the target's own takes 64 bytes of its window.
    let (responder, local_region) = (pair.a.addr, pair.b.region);
    let op = CommandOp::Read(Transfer { local_region, ..pair.transfer(0, 64) });
    let binding = KeyBinding { initiator: pair.b.addr, responder, pid: PID, op_type: OpType::Read };
    let key = crate::crypto::RegionKeySchedule::new(&pair.a.key).derive(&binding);
    let own = Command { responder, remote_region: pair.a.region, key, ..pair.command(0, op) };
    pair.b.nic.handle_command(pair.now, own).unwrap();
    let own_request = pair.responses().remove(0);
    assert_eq!(pair.b.nic.window_debited(), 64);

    pair.issue(pair.write(0, 0, 64));
    let request = pair.requests().remove(0);
    assert_eq!(pair.a.nic.window_debited(), 0, "nothing comes in for a write");
    pair.deliver_to_b(&request).unwrap();
    assert!(pair.responses().is_empty(), "4095 bytes are free");
    pair.deliver_to_a(&own_request).unwrap();
    let own_response = pair.requests().remove(0);
    pair.deliver_to_b(&own_response).unwrap();
    assert_eq!(pair.responses().len(), 1, "the solicitation");
    assert_eq!(pair.b.nic.window_debited(), 64);
    // And the target's next read waits for the write.
    pair.b.nic.poll_completion().unwrap();
    pair.b.nic.handle_command(pair.now, own).unwrap();
    assert!(pair.responses().is_empty());
}

#[test]
fn a_write_that_waits_too_long_for_the_targets_window_is_nacked() {
    let settings =
        NicConfigBuilder { solicitation_window: OP_SIZE_MAX, ..NicConfigBuilder::default() };
    let mut pair = Pair::with(settings);
    let dispatch_timeout = pair.a.nic.config().settings().timing.dispatch_timeout;
    // The target's window is full of what a dead host will not send.
    let op = CommandOp::Read(Transfer { local_region: pair.b.region, ..pair.transfer(0, 64) });
    let own = Command { responder: "192.0.2.99".parse().unwrap(), ..pair.command(0, op) };
    pair.b.nic.handle_command(pair.now, own).unwrap();
    assert_eq!(pair.responses().len(), 1);
    pair.issue(pair.write(1, 0, 64));
    let request = pair.requests().remove(0);
    pair.deliver_to_b(&request).unwrap();
    assert_eq!(pair.b.nic.poll_timeout(), Some(pair.now + dispatch_timeout));
    pair.advance(dispatch_timeout);
    let nack = pair.responses().remove(0);
    pair.deliver_to_a(&nack).unwrap();
    assert_eq!((pair.completion().slot, pair.b.nic.window_debited()), (CommandSlotId(1), 64));
    assert_eq!(pair.a.nic.counters().completions(OpStatus::Nack), 1);
    pair.advance(pair.timeout() - dispatch_timeout);
    assert_eq!(pair.b.nic.window_debited(), 0);
    assert_eq!(pair.b.nic.poll_completion().unwrap().status, OpStatus::Timeout);
    assert_eq!(pair.b.nic.poll_timeout(), None);
}

//= 1rma#4.5-nack
//= type=test
#[test]
fn a_write_that_finds_the_pending_write_table_full_is_nacked() {
    let mut pair =
        Pair::with(NicConfigBuilder { pending_writes: 2, ..NicConfigBuilder::default() });
    (0..3).for_each(|slot| pair.issue(pair.write(slot, 0, 64)));
    let requests = pair.requests();
    pair.deliver_to_b(&requests[0]).unwrap();
    pair.deliver_to_b(&requests[1]).unwrap();
    assert_eq!(pair.deliver_to_b(&requests[2]), Err(DropReason::PendingWriteShareFull));
    pair.exchange();
    let mut statuses = [pair.completion(), pair.completion(), pair.completion()];
    statuses.sort_by_key(|completion| completion.slot);
    let [ok, nack] = [OpStatus::Ok, OpStatus::Nack];
    assert_eq!(statuses.map(|completion| completion.status), [ok, ok, nack]);
    // Every entry is free again.
    pair.issue(pair.write(0, 0, 64));
    pair.issue(pair.write(1, 0, 64));
    pair.exchange();
    assert_eq!([pair.completion().status, pair.completion().status], [ok, ok]);
}

//= 1rma#5.1-timeout-at-both-ends
//= type=test
#[test]
fn each_end_times_out_by_itself_whichever_hop_is_lost() {
    // Hop 1.
    let mut pair = Pair::new();
    let before = pair.target();
    pair.fill();
    pair.issue(pair.write(0, 0, 4096));
    let _ = pair.requests();
    pair.advance(pair.timeout());
    assert_eq!(pair.status(), OpStatus::Timeout);

    // Hop 2.
    let lost = pair.solicitation_of(pair.write(0, 0, 4096));
    assert_eq!(pair.b.nic.window_debited(), 4096);
    pair.advance(pair.timeout());
    assert_eq!(pair.status(), OpStatus::Timeout);
    assert_eq!(pair.b.nic.window_debited(), 0);
    assert_eq!(pair.deliver_to_a(&lost), Err(DropReason::LateOrUnsolicited));
    assert!(pair.requests().is_empty(), "no data for an op that is over");

    // One of the frames of hop 3.
    let data = pair.data_of(pair.write(0, 0, 4096));
    assert_eq!(data.len(), 3);
    pair.deliver_to_b(&data[0]).unwrap();
    pair.deliver_to_b(&data[2]).unwrap();
    assert!(pair.responses().is_empty());
    let partly = pair.target();
    assert_ne!(partly, before);
    pair.advance(pair.timeout());
    assert_eq!(pair.status(), OpStatus::Timeout);
    assert_eq!(pair.b.nic.window_debited(), 0);
    assert_eq!(pair.deliver_to_b(&data[1]), Err(DropReason::UnknownPendingWrite));
    assert_eq!(pair.target(), partly, "nothing changes any more");

    // Hop 4.
    for flight in pair.data_of(pair.write(0, 0, 64)) {
        pair.deliver_to_b(&flight).unwrap();
    }
    let lost = pair.responses().remove(0);
    pair.advance(pair.timeout());
    assert_eq!(pair.status(), OpStatus::Timeout);
    assert_eq!(pair.deliver_to_a(&lost), Err(DropReason::LateOrUnsolicited));
    assert_eq!((pair.a.nic.poll_timeout(), pair.b.nic.poll_timeout()), (None, None));
}

//= 1rma#5.1-initiator-times-out-last
//= type=test
#[test]
fn the_initiators_timeout_begins_anew_with_the_solicitation() {
    let mut pair = Pair::new();
    let solicitation = pair.solicitation_of(pair.write(0, 0, 64));
    pair.now = pair.now + (pair.timeout() - Duration::from_nanos(1));
    pair.deliver_to_a(&solicitation).unwrap();
    let data = pair.requests();
    assert_eq!(pair.a.nic.poll_timeout(), Some(pair.now + pair.timeout()));
    // The responder has stopped to apply long before.
    assert_eq!(pair.deliver_to_b(&data[0]), Err(DropReason::DataLate));
    pair.advance(pair.timeout() - Duration::from_nanos(1));
    assert!(pair.a.nic.poll_completion().is_none());
    pair.advance(Duration::from_nanos(1));
    assert_eq!(pair.status(), OpStatus::Timeout);
}

//= 1rma#5.1-initiator-times-out-last
//= type=test
#[test]
fn an_initiator_that_was_stopped_before_it_took_the_solicitation_still_times_out_last() {
    // The turn's reading of the clock is from before the pause.
    let mut pair = Pair::new();
    pair.issue(pair.write(0, 0, 64));
    let request = pair.requests().remove(0);
    let stale = pair.now;
    pair.now = pair.now + pair.timeout() / 2;
    pair.deliver_to_b(&request).unwrap();
    let solicitation = pair.responses().remove(0);
    let mut bytes = solicitation.bytes.clone();
    let frame = RxFrame {
        source_port: crate::port::SourcePort::FIRST,
        is_first: true,
        is_handed_over: false,
        source: pair.b.addr,
        destination: pair.a.addr,
        port: Port::ONE_RMA,
        reply_len_max: wire::FRAME_LEN_MAX,
        link: None,
        bytes: &mut bytes,
    };
    pair.a.nic.handle_frame(stale, &pair.now, frame).unwrap();
    assert_eq!(pair.a.nic.poll_timeout(), Some(pair.now + pair.timeout()));
}

#[test]
fn the_smaller_of_both_hosts_timeouts_limits_what_may_be_applied() {
    for (initiators, responders) in [(10, 80), (80, 10)] {
        let timing = |millis| {
            let timeout = Duration::from_millis(millis);
            Timing { dispatch_timeout: timeout / 4, timeout }
        };
        let mut pair =
            Pair::with(NicConfigBuilder { timing: timing(initiators), ..Default::default() });
        pair.b = Host::new(
            "192.0.2.2",
            NicConfigBuilder { timing: timing(responders), ..Default::default() },
        );
        let data = pair.data_of(pair.write(0, 0, 200)).remove(0);
        // Seven eighths of 10 ms.
        pair.now = pair.now + Duration::from_micros(8_750);
        assert_eq!(pair.deliver_to_b(&data), Err(DropReason::DataLate));
        assert_eq!(pair.b.nic.window_debited(), 200, "until the responder's own timeout");
        pair.b.nic.handle_timeout(pair.now + Duration::from_millis(responders));
        assert_eq!(pair.b.nic.window_debited(), 0);

        let mut pair =
            Pair::with(NicConfigBuilder { timing: timing(initiators), ..Default::default() });
        pair.b = Host::new(
            "192.0.2.2",
            NicConfigBuilder { timing: timing(responders), ..Default::default() },
        );
        let data = pair.data_of(pair.write(0, 0, 200)).remove(0);
        pair.now = pair.now + Duration::from_micros(8_749);
        pair.deliver_to_b(&data).unwrap();
    }
}

#[test]
fn an_initiator_that_has_given_up_is_not_asked_for_its_data() {
    let short =
        Timing { dispatch_timeout: Duration::from_millis(1), timeout: Duration::from_millis(4) };
    let window = NicConfigBuilder { solicitation_window: OP_SIZE_MAX, ..Default::default() };
    let mut pair = Pair::with(NicConfigBuilder { timing: short, ..window });
    pair.b = Host::new("192.0.2.2", window);
    // The target's window is taken by another.
    let blocker = pair.data_of(pair.write(0, 0, 64));
    pair.issue(pair.write(1, 0, 64));
    let request = pair.requests().remove(0);
    pair.deliver_to_b(&request).unwrap();
    pair.now = pair.now + Duration::from_millis(3);
    blocker.iter().for_each(|flight| pair.deliver_to_b(flight).unwrap());
    pair.now = pair.now + Duration::from_millis(1);
    let answers = pair.responses();
    assert_eq!(answers.len(), 1, "the acknowledgement of the other");
    assert_eq!(pair.b.nic.counters().requests_abandoned(), 1);
    assert_eq!(pair.b.nic.window_debited(), 0);
}

/// A clock that jumps after each reading: an engine that is descheduled in between.
struct Jumping {
    now: Cell<Instant>,
    pause: Duration,
}

impl Clock for Jumping {
    fn now(&self) -> Instant {
        self.now.replace(self.now.get() + self.pause)
    }
}

//= 1rma#5.1-initiator-times-out-last
//= type=test
#[test]
fn a_responder_that_is_stopped_between_clock_and_copy_applies_in_time_or_counts_it() {
    let timeout = Pair::new().timeout();
    let drift = timeout / 64;
    for (pause, counted) in
        [(timeout / 8 - drift - Duration::from_nanos(2), 0), (timeout / 8, 1), (timeout * 100, 1)]
    {
        let mut pair = Pair::new();
        let data = pair.data_of(pair.write(0, 0, 64)).remove(0);
        let just_in_time = pair.now + (timeout * 7 / 8 - Duration::from_nanos(1));
        let clock = Jumping { now: Cell::new(just_in_time), pause };
        let mut bytes = data.bytes.clone();
        let frame = RxFrame {
            source_port: crate::port::SourcePort::FIRST,
            is_first: true,
            is_handed_over: false,
            source: pair.a.addr,
            destination: pair.b.addr,
            port: Port::ONE_RMA,
            reply_len_max: wire::FRAME_LEN_MAX,
            link: None,
            bytes: &mut bytes,
        };
        pair.b.nic.handle_frame(pair.now, &clock, frame).unwrap();
        assert_eq!(pair.b.nic.counters().late_effects(), counted, "{pause:?}");
    }
    // Stopped before it looks at the clock: nothing is applied, and nothing is counted.
    let mut pair = Pair::new();
    let before = pair.target();
    pair.fill();
    let data = pair.data_of(pair.write(0, 0, 64)).remove(0);
    let late = pair.now + timeout * 7 / 8;
    let mut bytes = data.bytes.clone();
    let frame = RxFrame {
        source_port: crate::port::SourcePort::FIRST,
        is_first: true,
        is_handed_over: false,
        source: pair.a.addr,
        destination: pair.b.addr,
        port: Port::ONE_RMA,
        reply_len_max: wire::FRAME_LEN_MAX,
        link: None,
        bytes: &mut bytes,
    };
    assert_eq!(pair.b.nic.handle_frame(pair.now, &late, frame), Err(DropReason::DataLate));
    assert_eq!((pair.target(), pair.b.nic.counters().late_effects()), (before, 0));
}

/// The frames of a write of three data frames, in order of their sending, and how many there are.
const DATA: core::ops::Range<usize> = 2..5;
const FRAMES: usize = DATA.end + 1;

/// Returns the reason for which a second copy of frame number `which` is dropped when `delivered`
/// frames have been delivered.
fn reason_against_a_copy(which: usize, delivered: usize) -> DropReason {
    match which {
        0 => DropReason::Duplicate,
        1 if delivered < FRAMES => DropReason::SolicitedTwice,
        _ if DATA.contains(&which) && delivered < DATA.end => DropReason::Duplicate,
        _ if DATA.contains(&which) => DropReason::UnknownPendingWrite,
        _ => DropReason::LateOrUnsolicited,
    }
}

//= 1rma#5.1-replay
//= type=test
#[test]
fn a_duplicate_of_any_frame_at_any_later_point_changes_nothing() {
    type Delivered = Vec<(bool, Flight)>;

    /// Delivers `flight`, which has been delivered before. Meanwhile the target's region has other
    /// bytes: those that landed before are not written again.
    fn deliver_again(pair: &mut Pair, (to_b, flight): &(bool, Flight), reason: DropReason) {
        let landed = pair.target();
        pair.b.memory.copy_in(0, &[0xee; REGION_LEN]).unwrap();
        let drops = |pair: &Pair| {
            let nic = if *to_b { &pair.b.nic } else { &pair.a.nic };
            nic.counters().drops(reason)
        };
        let before = drops(pair);
        let result = if *to_b { pair.deliver_to_b(flight) } else { pair.deliver_to_a(flight) };
        assert_eq!((result, drops(pair)), (Err(reason), before + 1));
        assert!(pair.target() == [0xee; REGION_LEN], "a byte was written a second time");
        pair.b.memory.copy_in(0, &landed).unwrap();
    }

    /// Runs one write and delivers every frame in order, and one of them once more. Returns what
    /// was delivered, and whether to the target.
    fn run(pair: &mut Pair, again: Option<(usize, usize)>) -> Delivered {
        pair.issue(pair.write(0, 100, 3000));
        let (mut delivered, mut waiting) = (Delivered::new(), std::collections::VecDeque::new());
        loop {
            waiting.extend(pair.requests().into_iter().map(|flight| (true, flight)));
            waiting.extend(pair.responses().into_iter().map(|flight| (false, flight)));
            if let Some((which, point)) = again
                && point == delivered.len()
            {
                let copy = delivered[which].clone();
                deliver_again(pair, &copy, reason_against_a_copy(which, point));
                delivered.push(copy);
                continue;
            }
            let Some((to_b, flight)) = waiting.pop_front() else { return delivered };
            let result = if to_b { pair.deliver_to_b(&flight) } else { pair.deliver_to_a(&flight) };
            assert_eq!(result, Ok(()));
            delivered.push((to_b, flight));
        }
    }
    let frames = run(&mut Pair::new(), None);
    assert_eq!(frames.len(), FRAMES, "request, solicitation, three of data, acknowledgement");
    for duplicate in 0..FRAMES {
        for point in duplicate + 1..=FRAMES {
            let mut pair = Pair::new();
            let data = pair.fill();
            let mut expected = pair.target();
            expected[100..3100].copy_from_slice(&data[..3000]);
            let delivered = run(&mut pair, Some((duplicate, point)));
            assert_eq!(delivered.len(), FRAMES + 1, "a duplicate has no answer");
            assert_eq!(pair.status(), OpStatus::Ok, "frame {duplicate} again after {point}");
            assert_eq!(pair.target(), expected);
            pair.advance(pair.timeout());
            assert_eq!((pair.a.nic.window_debited(), pair.b.nic.window_debited()), (0, 0));
            assert!(pair.a.nic.poll_completion().is_none());
            // The bytes may be others by now, and nothing of the old op comes back.
            pair.b.memory.copy_in(0, &[0; REGION_LEN]).unwrap();
            for (to_b, flight) in &delivered {
                let _ = if *to_b { pair.deliver_to_b(flight) } else { pair.deliver_to_a(flight) };
                for flight in pair.responses() {
                    assert!(pair.deliver_to_a(&flight).is_err());
                }
                assert!(pair.requests().is_empty(), "no data is sent for an op that is over");
            }
            assert!(pair.target().iter().all(|&byte| byte == 0));
        }
    }
}

//= 1rma#A-iv-currying
//= type=test
//= 1rma#5.1-solicited-salt
//= type=test
#[test]
fn no_frame_of_one_write_is_taken_for_another() {
    // Two ops at once, alike in everything but their slots.
    let mut pair = Pair::new();
    pair.fill();
    pair.issue(pair.write(0, 0, 64));
    pair.issue(pair.write(1, 0, 64));
    let requests = pair.requests();
    requests.iter().for_each(|flight| pair.deliver_to_b(flight).unwrap());
    let solicitations = pair.responses();
    let masked = |from: &Flight, to: &Flight, range: core::ops::Range<usize>| {
        let mut forged = from.clone();
        forged.bytes[range.clone()].copy_from_slice(&to.bytes[range]);
        forged
    };
    // Slot and generation of the other.
    let forged = masked(&solicitations[0], &solicitations[1], 12..14);
    let forged = masked(&forged, &solicitations[1], 16..20);
    assert_eq!(pair.deliver_to_a(&forged), Err(DropReason::ResponseUnauthenticated));
    solicitations.iter().for_each(|flight| pair.deliver_to_a(flight).unwrap());
    let data = pair.requests();
    let swapped = masked(&data[0], &data[1], 28..30);
    assert_eq!(pair.deliver_to_b(&swapped), Err(DropReason::UnknownPendingWrite));
    let swapped = masked(&swapped, &data[1], 12..20);
    assert_eq!(pair.deliver_to_b(&swapped), Err(DropReason::DataUnauthenticated));
    data.iter().for_each(|flight| pair.deliver_to_b(flight).unwrap());
    let acknowledgements = pair.responses();
    let swapped = masked(&acknowledgements[0], &acknowledgements[1], 12..14);
    let swapped = masked(&swapped, &acknowledgements[1], 16..20);
    assert_eq!(pair.deliver_to_a(&swapped), Err(DropReason::ResponseUnauthenticated));
    acknowledgements.iter().for_each(|flight| pair.deliver_to_a(flight).unwrap());
    assert_eq!([pair.completion().status, pair.completion().status], [OpStatus::Ok; 2]);
}

#[test]
fn a_write_is_no_read_and_a_key_for_one_is_none_for_the_other() {
    let mut pair = Pair::new();
    let key = pair.key_for(OpType::Read);
    pair.issue(Command { key, ..pair.write(0, 0, 64) });
    pair.exchange();
    assert_eq!(pair.status(), OpStatus::RemoteAuthenticationFailure);
    let key = pair.key_for(OpType::Write);
    for command in [pair.read(0, 0, 64), pair.rekey(0, [1; 16])] {
        pair.issue(Command { key, ..command });
        pair.exchange();
        assert_eq!(pair.status(), OpStatus::RemoteAuthenticationFailure);
    }
    // A write's request in the dress of a Rekey, and the reverse.
    pair.issue(pair.write(0, 0, 16));
    let mut request = pair.requests().remove(0);
    request.bytes[1] = 5;
    assert_eq!(pair.deliver_to_b(&request), Err(DropReason::RequestUnauthenticated));
}

#[test]
fn permissions_and_bounds_hold_for_each_type_of_op() {
    let stage = Stage::new();
    let commands = stage.one_of_each(0);
    let Stage { mut pair, .. } = stage;
    let (memory, key) = (pair.b.memory.clone(), pair.b.key);
    let before = pair.target();
    for permitted in OpType::ALL {
        let permissions = permitted.shape().permission;
        let region = register(&mut pair.b.nic, &memory, &key, permissions);
        for command in commands {
            // A region of bytes receives nothing, whatever it permits, and this one names no queue.
            let op_type = command.op.op_type();
            let needs_queue =
                matches!(op_type, OpType::Send | OpType::Notify | OpType::WriteWithImm);
            let denied = needs_queue || !permissions.contains(op_type.shape().permission);
            pair.issue(Command { remote_region: region, ..command });
            if denied {
                pair.exchange();
                assert_eq!(pair.status(), OpStatus::RemotePermissionDenied, "{command:?}");
            } else {
                let request = pair.requests().remove(0);
                assert_eq!(pair.deliver_to_b(&request), Ok(()));
                // Nobody moves what it is answered.
                pair.advance(pair.timeout());
                assert_eq!(pair.status(), OpStatus::Timeout);
            }
        }
    }
    let len = REGION_LEN as u64;
    for (offset, size) in [(len, 1), (len - 63, 64), (u64::MAX, 1), (u64::MAX - 4095, 4096)] {
        pair.issue(pair.write(0, offset, size));
        pair.exchange();
        assert_eq!(pair.status(), OpStatus::RemoteOutOfBounds, "{offset} + {size}");
    }
    assert_eq!(pair.target(), before);
}

/// Returns the target's answer to `request` if its region had another key: an honest refusal.
/// Whoever controls the wire could make one himself.
fn refusal_of(pair: &Pair, request: &Flight) -> Flight {
    let mut other = Host::new("192.0.2.2", NicConfigBuilder::default());
    other.nic.regions_mut().rekey(other.region, &RegionKey::from_bytes([9; 16])).unwrap();
    let refused = deliver(&mut other.nic, pair.now, request, wire::FRAME_LEN_MAX);
    assert_eq!(refused, Err(DropReason::OldKey));
    other.transmit(pair.now).remove(0)
}

#[test]
fn a_notice_cannot_end_a_write_whose_data_is_under_way() {
    let mut pair = Pair::new();
    pair.issue(pair.write(0, 0, 64));
    let request = pair.requests().remove(0);
    let notice = refusal_of(&pair, &request);
    pair.deliver_to_b(&request).unwrap();
    let solicitation = pair.responses().remove(0);
    pair.deliver_to_a(&solicitation).unwrap();
    assert_eq!(pair.deliver_to_a(&notice), Err(DropReason::NoticeAfterSolicitation));
    assert!(pair.a.nic.poll_completion().is_none());
    pair.exchange();
    assert_eq!(pair.status(), OpStatus::Ok);

    // The other way round: the op is over, and no data is sent for it.
    let mut pair = Pair::new();
    pair.issue(pair.write(0, 0, 64));
    let request = pair.requests().remove(0);
    let notice = refusal_of(&pair, &request);
    pair.deliver_to_b(&request).unwrap();
    let solicitation = pair.responses().remove(0);
    pair.deliver_to_a(&notice).unwrap();
    assert_eq!(pair.status(), OpStatus::RemoteAuthenticationFailure);
    assert_eq!(pair.deliver_to_a(&solicitation), Err(DropReason::LateOrUnsolicited));
    assert!(pair.requests().is_empty());
}

//= 1rma#4.2-failure-under-reserved-key
//= type=test
#[test]
fn a_notice_under_the_reserved_key_is_good_for_who_has_seen_the_request_only() {
    let mut pair = Pair::new();
    for command in [pair.read(0, 0, 64), pair.write(0, 0, 64)] {
        pair.issue(command);
        let request = pair.requests().remove(0);
        // Everything about the request is guessed right but its tag.
        let mut guessed = request.clone();
        let last = guessed.bytes.len() - 1;
        guessed.bytes[last] ^= 1;
        assert_eq!(pair.deliver_to_b(&guessed), Err(DropReason::RequestUnauthenticated));
        let forged = pair.responses().remove(0);
        assert_eq!(pair.deliver_to_a(&forged), Err(DropReason::ResponseUnauthenticated));
        pair.deliver_to_b(&request).unwrap();
        pair.exchange();
        assert_eq!(pair.status(), OpStatus::Ok);
    }
}

#[test]
fn the_data_of_a_region_that_is_gone_is_not_sent() {
    let mut pair = Pair::new();
    let solicitation = pair.solicitation_of(pair.write(0, 0, 64));
    let region = pair.a.region;
    pair.a.nic.deregister(region).unwrap();
    assert_eq!(pair.deliver_to_a(&solicitation), Err(DropReason::LocalRegionGone));
    assert!(pair.requests().is_empty());
    pair.advance(pair.timeout());
    assert_eq!(pair.status(), OpStatus::Timeout);

    // Half sent.
    let mut pair = Pair::new();
    let solicitation = pair.solicitation_of(pair.write(0, 0, 4096));
    pair.deliver_to_a(&solicitation).unwrap();
    let mut out = [0; wire::FRAME_LEN_MAX];
    assert!(pair.a.nic.poll_transmit(pair.now, &mut out).is_some());
    let region = pair.a.region;
    pair.a.nic.deregister(region).unwrap();
    assert!(pair.a.nic.poll_transmit(pair.now, &mut out).is_none());
    assert!(!pair.a.nic.wants_transmit());
    pair.advance(pair.timeout());
    assert_eq!(pair.status(), OpStatus::Timeout);
}

#[test]
fn a_region_deregistered_under_a_write_is_not_touched_and_the_op_is_told() {
    let mut pair = Pair::new();
    pair.fill();
    let before = pair.target();
    let data = pair.data_of(pair.write(0, 0, 64)).remove(0);
    let region = pair.b.region;
    pair.b.nic.deregister(region).unwrap();
    assert_eq!(pair.deliver_to_b(&data), Err(DropReason::OldKey));
    pair.exchange();
    assert_eq!(pair.status(), OpStatus::RemoteAuthenticationFailure);
    assert_eq!(pair.deliver_to_b(&data), Err(DropReason::UnknownPendingWrite));
    assert_eq!(pair.b.nic.window_debited(), 0, "all data has come");
    assert_eq!(pair.target(), before);
    // Nor one that was deregistered before the solicitation.
    let mut pair = Pair::new();
    pair.issue(pair.write(0, 0, 64));
    let request = pair.requests().remove(0);
    pair.deliver_to_b(&request).unwrap();
    let region = pair.b.region;
    pair.b.nic.deregister(region).unwrap();
    pair.exchange();
    assert_eq!(pair.status(), OpStatus::RemoteAuthenticationFailure);
    assert_eq!(pair.b.nic.window_debited(), 0);
}

#[test]
fn data_that_was_lengthened_or_moved_is_dropped() {
    let mut pair = Pair::new();
    let before = pair.target();
    let honest = pair.data_of(pair.write(0, 0, 100)).remove(0);
    let mut longer = honest.clone();
    longer.bytes.insert(40, 0);
    assert_eq!(pair.deliver_to_b(&longer), Err(DropReason::Length));
    longer.bytes[31] += 1;
    assert_eq!(pair.deliver_to_b(&longer), Err(DropReason::DataUnauthenticated));
    let mut moved = honest.clone();
    moved.bytes[33] = 64;
    assert_eq!(pair.deliver_to_b(&moved), Err(DropReason::DataUnauthenticated));
    assert_eq!(pair.target(), before);
    pair.deliver_to_b(&honest).unwrap();
    pair.exchange();
    assert_eq!(pair.status(), OpStatus::Ok);
}

proptest! {
    /// One changed bit anywhere in any hop is noticed.
    //= 1rma#4.2-attacker-on-the-wire
    //= type=test
    #[test]
    fn a_changed_bit_of_any_hop_is_never_accepted(
        at in any::<prop::sample::Index>(), bit in 0..8_u8, size in 1..500_u32, hop in 1..=4,
    ) {
        let mut pair = Pair::new();
        let before = pair.target();
        let data = pair.fill();
        let change = |flight: &Flight| {
            let mut changed = flight.clone();
            changed.bytes[at.index(flight.bytes.len())] ^= 1 << bit;
            changed
        };
        pair.issue(pair.write(0, 9, size));
        for this_hop in 1..=4 {
            let to_b = this_hop % 2 == 1;
            let flight = if to_b { pair.requests() } else { pair.responses() }.remove(0);
            if this_hop == hop {
                let changed = change(&flight);
                let result = if to_b { pair.deliver_to_b(&changed) } else { pair.deliver_to_a(&changed) };
                prop_assert!(result.is_err());
                prop_assert!(pair.a.nic.poll_completion().is_none());
                if hop == 1 {
                    let _ = pair.responses();
                } else {
                    prop_assert!(pair.requests().is_empty() && pair.responses().is_empty());
                }
                if hop < 4 {
                    prop_assert_eq!(pair.target(), before.clone());
                }
            }
            let result = if to_b { pair.deliver_to_b(&flight) } else { pair.deliver_to_a(&flight) };
            prop_assert_eq!(result, Ok(()));
        }
        prop_assert_eq!(pair.status(), OpStatus::Ok);
        let mut expected = before;
        expected[9..9 + size as usize].copy_from_slice(&data[..size as usize]);
        prop_assert_eq!(pair.target(), expected);
    }
}

//= 1rma#5.1-replay
//= type=test
#[test]
fn duplicates_of_requests_take_no_place_in_the_table() {
    let mut pair = Pair::new();
    for round in 0..2_000 {
        pair.issue(pair.write(0, 0, 64));
        let request = pair.requests().remove(0);
        pair.deliver_to_b(&request).unwrap();
        assert_eq!(pair.deliver_to_b(&request), Err(DropReason::Duplicate), "{round}");
        pair.exchange();
        // Even after the op is over.
        assert_eq!(pair.deliver_to_b(&request), Err(DropReason::Duplicate), "{round}");
        pair.advance(Duration::from_micros(100));
        assert_eq!(pair.status(), OpStatus::Ok);
        assert_eq!(pair.b.nic.window_debited(), 0);
    }
}

//= 1rma#5.1-writes-solicited
//= type=test
#[test]
fn a_write_that_was_cut_short_holds_its_place_until_its_data_has_come_and_no_longer() {
    let settings =
        NicConfigBuilder { solicitation_window: OP_SIZE_MAX, ..NicConfigBuilder::default() };
    let mut pair = Pair::with(settings);
    let (memory, key) = (pair.b.memory.clone(), pair.b.key);
    let other = register(&mut pair.b.nic, &memory, &key, Permissions::WRITE);
    let (before, data) = (pair.target(), pair.data_of(pair.write(0, 0, 4096)));
    pair.issue(Command { remote_region: other, ..pair.write(1, 0, 4096) });
    let second = pair.requests().remove(0);
    pair.deliver_to_b(&second).unwrap();
    pair.b.nic.regions_mut().rekey(pair.b.region, &RegionKey::from_bytes([9; 16])).unwrap();
    let (last, first) = data.split_last().unwrap();
    for flight in first {
        assert_eq!(pair.deliver_to_b(flight), Err(DropReason::OldKey));
        assert_eq!(pair.deliver_to_b(flight), Err(DropReason::Duplicate));
        assert!(pair.responses().is_empty(), "neither an answer nor a solicitation");
    }
    assert_eq!(pair.b.nic.window_debited(), 4096);
    assert_eq!(pair.deliver_to_b(last), Err(DropReason::OldKey));
    let answers = pair.responses();
    assert_eq!(answers.len(), 2, "its acknowledgement, and the other region's solicitation");
    pair.deliver_to_a(&answers[0]).unwrap();
    assert_eq!(pair.status(), OpStatus::RemoteAuthenticationFailure);
    assert_eq!(pair.target(), before);
    pair.deliver_to_a(&answers[1]).unwrap();
    pair.exchange();
    assert_eq!(pair.status(), OpStatus::Ok);
}

//= 1rma#5.2-rekey-atomic
//= type=test
#[test]
fn a_write_whose_key_is_rotated_between_its_frames_is_told_and_applies_no_more() {
    let mut pair = Pair::new();
    let fill = pair.fill();
    let mut expected = pair.target();
    let data = pair.data_of(pair.write(0, 0, 4096));
    assert!(data.len() > 1);
    pair.deliver_to_b(&data[0]).unwrap();
    let landed = data[0].bytes.len() - DATA_OVERHEAD;
    expected[..landed].copy_from_slice(&fill[..landed]);
    pair.b.nic.regions_mut().rekey(pair.b.region, &RegionKey::from_bytes([9; 16])).unwrap();
    for late in &data[1..] {
        assert_eq!(pair.deliver_to_b(late), Err(DropReason::OldKey));
    }
    pair.exchange();
    assert_eq!(pair.status(), OpStatus::RemoteAuthenticationFailure);
    assert_eq!(pair.target(), expected);
    assert_eq!(pair.b.nic.window_debited(), 0);
}

//= 1rma#5.1-replay
//= type=test
#[test]
fn another_process_of_the_host_cannot_have_a_write_taken_for_a_duplicate() {
    let mut pair = Pair::new();
    let mut c = Host::new("192.0.2.1", NicConfigBuilder::default());
    let other = Pid(88);
    c.nic.configure_slots(0..8, Some(other));
    let key = crate::crypto::RegionKeySchedule::new(&pair.b.key).derive(&KeyBinding {
        initiator: pair.a.addr,
        responder: pair.b.addr,
        pid: other,
        op_type: OpType::Rekey,
    });
    c.nic.handle_command(pair.now, Command { key, ..pair.rekey(0, [1; 16]) }).unwrap();
    let forged = c.transmit(pair.now).remove(0);
    pair.deliver_to_b(&forged).unwrap();
    pair.issue(pair.write(0, 100, 64));
    let request = pair.requests().remove(0);
    assert_eq!(pair.deliver_to_b(&request), Ok(()));
}
