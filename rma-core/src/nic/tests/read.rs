//! Reads: what arrives, what does not, and who is believed.

use proptest::prelude::*;

use super::*;

#[test]
fn reads_of_every_kind_of_size_arrive_in_both_families() {
    for (a, b) in [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")] {
        let mut pair = Pair::between(a, b, NicConfigBuilder::default());
        for size in [1, 2, 63, 64, 65, 1408, 1409, 1424, 2048, 4095, 4096] {
            let offset = REGION_LEN - size - 7;
            pair.issue(pair.read(0, offset as u64, size as u32));
            pair.exchange();
            assert_eq!(pair.status(), OpStatus::Ok, "{size} bytes");
            pair.assert_arrived(offset, size);
            assert_eq!(pair.a.nic.window_debited(), 0);
        }
    }
}

//= 1rma#3.1-complete-when-all-bytes-arrived
//= type=test
#[test]
fn responses_may_arrive_in_any_order_and_the_op_completes_with_the_last() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut pair = Pair::new();
        let responses = pair.responses_of(pair.read(0, 5, 4096));
        assert_eq!(responses.len(), 3);
        for (nth, index) in order.into_iter().enumerate() {
            assert!(pair.a.nic.poll_completion().is_none(), "after {nth} of 3");
            pair.deliver_to_a(&responses[index]).unwrap();
        }
        assert_eq!(pair.status(), OpStatus::Ok);
        pair.assert_arrived(5, 4096);
    }
}

//= 1rma#3.1-response-sealed
//= type=test
#[test]
fn the_smallest_of_both_mtus_and_the_path_decides_the_cut() {
    let mut pair = Pair::new();
    pair.path_len_max = wire::FRAME_LEN_MIN;
    let responses = pair.responses_of(pair.read(0, 0, 4096));
    assert_eq!(responses.len(), 64);
    assert!(
        responses.iter().all(|flight| flight.bytes.len() == wire::read::RESPONSE_OVERHEAD + 64)
    );
    for response in responses.iter().rev() {
        pair.deliver_to_a(response).unwrap();
    }
    assert_eq!(pair.status(), OpStatus::Ok);
    pair.assert_arrived(0, 4096);
}

#[test]
fn a_host_announces_all_that_it_receives_so_that_whole_answers_share_packets() {
    // Less than an op, more, and more than the wire can say.
    for (receive, announced) in [(1_472, 1_472), (8_972, 8_972), (70_000, u16::MAX)] {
        let mut pair = Pair::new();
        for host in [&mut pair.a, &mut pair.b] {
            let receive = ReceiveLenMax { ipv4: receive, ..ReceiveLenMax::default() };
            host.nic.set_receive_len_max(receive).unwrap();
        }
        let packet_len_max = |flight: &Flight| flight.transmit.packet_len_max;
        let responses = pair.responses_of(pair.read(0, 5, 4096));
        assert!(responses.iter().all(|it| packet_len_max(it) == announced), "{responses:?}");
        responses.iter().for_each(|it| pair.deliver_to_a(it).unwrap());
        assert_eq!(pair.status(), OpStatus::Ok);
        pair.assert_arrived(5, 4096);
        // Solicited data, likewise.
        pair.issue(pair.write(1, 0, 4096));
        let request = pair.requests().remove(0);
        pair.deliver_to_b(&request).unwrap();
        let solicitation = pair.responses().remove(0);
        pair.deliver_to_a(&solicitation).unwrap();
        let data = pair.requests();
        assert!(data.iter().all(|it| packet_len_max(it) == announced), "{data:?}");
        assert_eq!(data.len(), responses.len());
    }
}

#[test]
fn a_duplicate_response_is_dropped_and_completes_nothing_twice() {
    let mut pair = Pair::new();
    let responses = pair.responses_of(pair.read(0, 0, 2000));
    pair.deliver_to_a(&responses[0]).unwrap();
    assert_eq!(pair.deliver_to_a(&responses[0]), Err(DropReason::Duplicate));
    pair.deliver_to_a(&responses[1]).unwrap();
    assert_eq!(pair.deliver_to_a(&responses[1]), Err(DropReason::LateOrUnsolicited));
    assert_eq!(pair.status(), OpStatus::Ok);
}

#[test]
fn a_replayed_request_is_answered_with_fresh_ivs_and_changes_nothing_at_the_initiator() {
    let mut pair = Pair::new();
    pair.issue(pair.read(0, 0, 64));
    let request = pair.requests().remove(0);
    pair.deliver_to_b(&request).unwrap();
    pair.deliver_to_b(&request).unwrap();
    let responses = pair.responses();
    assert_eq!(responses.len(), 2);
    assert_ne!(responses[0].bytes, responses[1].bytes, "the same plaintext, sealed afresh");
    pair.deliver_to_a(&responses[0]).unwrap();
    assert_eq!(pair.deliver_to_a(&responses[1]), Err(DropReason::LateOrUnsolicited));
    assert_eq!(pair.status(), OpStatus::Ok);
}

//= 1rma#A-iv-currying
//= type=test
//= 1rma#A-iv-memoized
//= type=test
#[test]
fn a_response_of_one_op_is_refused_by_every_other_op() {
    let mut pair = Pair::new();
    let earlier = pair.responses_of(pair.read(0, 0, 64)).remove(0);
    pair.deliver_to_a(&earlier).unwrap();
    assert_eq!(pair.status(), OpStatus::Ok);

    // The same slot, key and region; another use of the slot.
    let later = pair.responses_of(pair.read(0, 0, 64)).remove(0);
    assert_eq!(pair.deliver_to_a(&earlier), Err(DropReason::LateOrUnsolicited));
    // An attacker makes the old response claim the new use.
    let mut forged = earlier.clone();
    forged.bytes[16..20].copy_from_slice(&later.bytes[16..20]);
    assert_eq!(pair.deliver_to_a(&forged), Err(DropReason::ResponseUnauthenticated));

    // Another op in flight, under the same key.
    let other = pair.responses_of(pair.read(1, 64, 64)).remove(0);
    let mut forged = other.clone();
    forged.bytes[12..14].copy_from_slice(&later.bytes[12..14]);
    forged.bytes[16..20].copy_from_slice(&later.bytes[16..20]);
    assert_eq!(pair.deliver_to_a(&forged), Err(DropReason::ResponseUnauthenticated));
    pair.deliver_to_a(&later).unwrap();
    pair.deliver_to_a(&other).unwrap();
    assert_eq!(pair.completion().status, OpStatus::Ok);
    assert_eq!(pair.completion().status, OpStatus::Ok);
}

#[test]
fn a_restarted_initiator_refuses_responses_to_its_former_self() {
    let mut pair = Pair::new();
    let old = pair.responses_of(pair.read(0, 0, 64)).remove(0);
    let restarted = NicConfigBuilder { counter_start: 1 << 40, ..NicConfigBuilder::default() };
    pair.a = Host::new("192.0.2.1", restarted);
    let new = pair.responses_of(pair.read(0, 0, 64)).remove(0);
    assert_eq!(old.bytes[12..20], new.bytes[12..20], "same slot, same generation");
    assert_eq!(pair.deliver_to_a(&old), Err(DropReason::ResponseUnauthenticated));
    pair.deliver_to_a(&new).unwrap();
    assert_eq!(pair.status(), OpStatus::Ok);
}

//= 1rma#4.1-timeout
//= type=test
#[test]
fn a_lost_frame_is_a_timeout_and_later_frames_are_late() {
    let mut pair = Pair::new();
    let timeout = pair.a.nic.config().settings().timing.timeout;
    let responses = pair.responses_of(pair.read(0, 0, 4096));
    pair.deliver_to_a(&responses[0]).unwrap();
    assert_eq!(pair.a.nic.poll_timeout(), Some(pair.now + timeout));
    pair.advance(timeout - Duration::from_nanos(1));
    assert!(pair.a.nic.poll_completion().is_none());
    pair.advance(Duration::from_nanos(1));
    assert_eq!(pair.status(), OpStatus::Timeout);
    assert_eq!(pair.deliver_to_a(&responses[1]), Err(DropReason::LateOrUnsolicited));
    assert_eq!(pair.a.nic.window_debited(), 0);
    assert_eq!(pair.a.nic.poll_timeout(), None);
}

//= 1rma#4.3-eager-shedding
//= type=test
#[test]
fn an_op_that_waits_too_long_for_window_is_shed() {
    let settings = NicConfigBuilder {
        solicitation_window: OP_SIZE_MAX,
        timing: Timing {
            dispatch_timeout: Duration::from_micros(10),
            timeout: Duration::from_micros(100),
        },
        ..NicConfigBuilder::default()
    };
    let mut pair = Pair::with(settings);
    pair.issue(pair.read(0, 0, 64));
    pair.issue(pair.read(1, 0, 64));
    assert_eq!(pair.requests().len(), 1, "64 bytes are debited, so 4096 are not free");
    pair.advance(Duration::from_micros(10));
    let shed = pair.completion();
    assert_eq!((shed.slot, shed.status), (CommandSlotId(1), OpStatus::DispatchTimeout));
    assert_eq!(shed.issue_delay(), shed.total_delay());
    assert_eq!(shed.total_delay(), Duration::from_micros(10));
    assert_eq!(pair.a.nic.counters().shed_with_room(), 0, "there was none");
    assert!(pair.requests().is_empty());
}

#[test]
fn an_op_that_is_shed_for_another_reason_than_the_window_is_told_apart() {
    let mut pair = Pair::new();
    let timing = pair.a.nic.config().settings().timing;
    pair.issue(pair.read(0, 0, 64));
    pair.issue(pair.write(1, 0, 64));
    // The engine is stopped, or its device takes no frame.
    pair.advance(timing.dispatch_timeout);
    let shed = [pair.completion(), pair.completion()].map(|completion| completion.status);
    assert_eq!(shed, [OpStatus::DispatchTimeout; 2]);
    assert_eq!(pair.a.nic.counters().shed_with_room(), 2);
}

//= 1rma#4.5-delay-measures
//= type=test
#[test]
fn the_completion_tells_local_from_remote_delay() {
    let settings =
        NicConfigBuilder { solicitation_window: OP_SIZE_MAX, ..NicConfigBuilder::default() };
    let mut pair = Pair::with(settings);
    let first = pair.responses_of(pair.read(0, 0, 64)).remove(0);
    pair.issue(pair.read(1, 0, 64));
    pair.advance(Duration::from_micros(7));
    pair.deliver_to_a(&first).unwrap();
    let done = pair.completion();
    assert_eq!(done.issue_delay(), Duration::ZERO);
    assert_eq!(done.remote_delay(), Duration::from_micros(7));

    let request = pair.requests().remove(0);
    pair.advance(Duration::from_micros(3));
    pair.deliver_to_b(&request).unwrap();
    let second = pair.responses().remove(0);
    pair.deliver_to_a(&second).unwrap();
    let done = pair.completion();
    assert_eq!(done.issue_delay(), Duration::from_micros(7));
    assert_eq!(done.total_delay(), Duration::from_micros(10));
}

//= 1rma#4.2-request-authentication-failure
//= type=test
//= 1rma#4.2-failure-under-reserved-key
//= type=test
//= 1rma#3.1-request-signed
//= type=test
#[test]
fn a_wrong_key_fails_fast_and_shows_nothing() {
    let mut pair = Pair::new();
    let key = DerivedRegionKey::from_bytes([0xee; 16]);
    pair.issue(Command { key, ..pair.read(0, 0, 64) });
    let request = pair.requests().remove(0);
    assert_eq!(pair.deliver_to_b(&request), Err(DropReason::RequestUnauthenticated));
    let notice = pair.responses().remove(0);
    assert!(notice.bytes.len() < request.bytes.len(), "no amplifier");
    assert!(!notice.transmit.may_resolve, "a forged source must not cost anything");
    pair.deliver_to_a(&notice).unwrap();
    assert_eq!(pair.status(), OpStatus::RemoteAuthenticationFailure);
}

//= 1rma#4.2-pid-immutable
//= type=test
//= 1rma#4.2-attacker-without-key
//= type=test
#[test]
fn a_key_is_good_for_its_own_host_and_process_only() {
    // Another process of the same host holds the key: the PID in the frame is the slot's, not its.
    let mut pair = Pair::new();
    pair.a.nic.configure_slots(0..8, Some(Pid(PID.0 + 1)));
    let memory = Arc::new(Region::new(64).unwrap());
    let owner = Pid(PID.0 + 1);
    let entry = RegionEntry::new(memory, &pair.a.key, Permissions::NONE, owner);
    let local_region = pair.a.nic.regions_mut().register(Box::new(entry)).unwrap();
    let op = CommandOp::Read(Transfer { local_region, ..pair.transfer(0, 64) });
    pair.issue(pair.command(0, op));
    pair.exchange();
    assert_eq!(pair.status(), OpStatus::RemoteAuthenticationFailure);

    // Another host holds the key.
    let mut pair = Pair::new();
    let key = pair.key_for(OpType::Read);
    pair.a = Host::new("192.0.2.3", NicConfigBuilder::default());
    pair.issue(Command { key, ..pair.read(0, 0, 64) });
    pair.exchange();
    assert_eq!(pair.status(), OpStatus::RemoteAuthenticationFailure);
}

#[test]
fn an_unknown_region_looks_like_a_wrong_key() {
    let mut pair = Pair::new();
    let remote_region = RegionId::from_bits(0x0001_0005);
    pair.issue(Command { remote_region, ..pair.read(0, 0, 64) });
    pair.exchange();
    assert_eq!(pair.status(), OpStatus::RemoteAuthenticationFailure);
    assert_eq!(pair.b.nic.counters().drops(DropReason::UnknownRegion), 1);
}

#[test]
fn bounds_and_permission_have_their_own_authenticated_statuses() {
    let mut pair = Pair::new();
    let len = REGION_LEN as u64;
    for (offset, size) in [(len, 1), (len - 63, 64), (u64::MAX, 1), (u64::MAX - 4095, 4096)] {
        pair.issue(pair.read(0, offset, size));
        pair.exchange();
        assert_eq!(pair.status(), OpStatus::RemoteOutOfBounds, "{offset} + {size}");
    }
    pair.issue(pair.read(0, len - 64, 64));
    pair.exchange();
    assert_eq!(pair.status(), OpStatus::Ok);

    let (memory, key) = (pair.b.memory.clone(), pair.b.key);
    let remote_region = register(&mut pair.b.nic, &memory, &key, Permissions::NONE);
    pair.issue(Command { remote_region, ..pair.read(0, 0, 64) });
    pair.exchange();
    assert_eq!(pair.status(), OpStatus::RemotePermissionDenied);
}

#[test]
fn a_forged_status_is_refused_unless_it_comes_under_the_right_key() {
    let mut pair = Pair::new();
    pair.issue(pair.read(0, u64::MAX, 1));
    let request = pair.requests().remove(0);
    assert_eq!(pair.deliver_to_b(&request), Err(DropReason::RequestOutOfBounds));
    let notice = pair.responses().remove(0);
    for status in OpStatus::ALL {
        let mut forged = notice.clone();
        forged.bytes[3] = status as u8;
        if status != OpStatus::RemoteOutOfBounds {
            assert!(pair.deliver_to_a(&forged).is_err(), "{status}");
        }
    }
    pair.deliver_to_a(&notice).unwrap();
    assert_eq!(pair.status(), OpStatus::RemoteOutOfBounds);
}

//= 1rma#4.5-nack
//= type=test
#[test]
fn a_request_beyond_the_configured_depth_is_nacked_and_its_window_refunded() {
    let mut pair = Pair::with(NicConfigBuilder { inbound_queue: 1, ..NicConfigBuilder::default() });
    pair.issue(pair.read(0, 0, 64));
    pair.issue(pair.read(1, 0, 64));
    let requests = pair.requests();
    pair.deliver_to_b(&requests[0]).unwrap();
    assert_eq!(pair.deliver_to_b(&requests[1]), Err(DropReason::InboundQueueFull));
    for response in pair.responses() {
        pair.deliver_to_a(&response).unwrap();
    }
    let mut statuses = [pair.completion(), pair.completion()];
    statuses.sort_by_key(|completion| completion.slot);
    assert_eq!(statuses.map(|completion| completion.status), [OpStatus::Ok, OpStatus::Nack]);
    assert_eq!(pair.a.nic.window_debited(), 0);
}

//= 1rma#4.3-two-arbiters
//= type=test
#[test]
fn the_classes_take_turns() {
    let mut pair = Pair::new();
    for slot in 0..6 {
        let class = if slot < 4 { ClassOfService::Throughput } else { ClassOfService::Latency };
        pair.issue(Command { class, ..pair.read(slot, 0, 64) });
    }
    let slots: Vec<u16> = pair
        .requests()
        .iter()
        .map(|flight| u16::from_be_bytes([flight.bytes[12], flight.bytes[13]]))
        .collect();
    assert_eq!(slots, [4, 0, 5, 1, 2, 3]);
}

#[test]
fn a_nic_says_whether_it_has_a_frame_to_send() {
    let settings =
        NicConfigBuilder { solicitation_window: OP_SIZE_MAX, ..NicConfigBuilder::default() };
    let mut pair = Pair::with(settings);
    assert!(!pair.a.nic.wants_transmit());
    pair.issue(pair.read(0, 0, 64));
    assert!(pair.a.nic.wants_transmit());
    let request = pair.requests().remove(0);
    pair.issue(pair.read(1, 0, 64));
    assert!(!pair.a.nic.wants_transmit(), "the window is closed");
    pair.deliver_to_b(&request).unwrap();
    assert!(pair.b.nic.wants_transmit());
    pair.exchange();
    assert!(!pair.a.nic.wants_transmit() && !pair.b.nic.wants_transmit());
}

//= 1rma#4.3-slot-is-one-op
//= type=test
#[test]
fn a_slot_issued_twice_is_an_error_and_disturbs_nothing() {
    let mut pair = Pair::new();
    pair.issue(pair.read(0, 0, 64));
    let again = pair.read(0, 0, 128);
    let busy = Err(CommandError::SlotBusy { slot: 0 });
    assert_eq!(pair.a.nic.handle_command(pair.now, again), busy);
    pair.exchange();
    assert_eq!(pair.a.nic.handle_command(pair.now, again), busy, "completed, but not polled");
    assert_eq!(pair.status(), OpStatus::Ok);
    assert_eq!(pair.a.nic.handle_command(pair.now, again), Ok(()));
    assert_eq!(pair.a.nic.counters().commands_refused(), 2);
}

#[test]
fn commands_for_slots_of_nobody_are_refused() {
    let mut pair = Pair::new();
    for slot in [8, 1023, 1024, u16::MAX] {
        let command = pair.read(slot, 0, 64);
        let foreign = Err(CommandError::ForeignSlot { slot });
        assert_eq!(pair.a.nic.handle_command(pair.now, command), foreign);
    }
}

//= 1rma#1-op-size-max
//= type=test
#[test]
fn commands_that_make_no_sense_complete_at_once() {
    let mut pair = Pair::new();
    let good = pair.transfer(0, 64);
    let foreign =
        RegionEntry::new(pair.a.memory.clone(), &pair.a.key, Permissions::READ, Pid(PID.0 + 1));
    let foreign = pair.a.nic.regions_mut().register(Box::new(foreign)).unwrap();
    for transfer in [
        Transfer { op_size: 0, ..good },
        Transfer { op_size: 4097, ..good },
        Transfer { op_size: u32::MAX, ..good },
        Transfer { local_region: RegionId::from_bits(99), ..good },
        Transfer { local_region: foreign, ..good },
        Transfer { local_offset: REGION_LEN as u64 - 63, ..good },
        Transfer { local_offset: u64::MAX, ..good },
    ] {
        for op in [CommandOp::Read(transfer), CommandOp::Write(transfer)] {
            pair.issue(pair.command(0, op));
            assert_eq!(pair.status(), OpStatus::InvalidCommand, "{op:?}");
        }
    }
    let unreachable = "2001:db8::2".parse().unwrap();
    for command in [pair.read(0, 0, 64), pair.write(0, 0, 64), pair.rekey(0, [1; 16])] {
        let command = Command { responder: unreachable, ..command };
        pair.issue(command);
        assert_eq!(pair.status(), OpStatus::InvalidCommand, "{command:?}");
    }
    let mut unreadable = pair.read(3, 0, 64).to_line();
    unreadable.0[0] |= 0xff << 16;
    pair.a.nic.handle_lines(pair.now, &unreadable, None).unwrap();
    assert_eq!(pair.status(), OpStatus::InvalidCommand);
    assert!(pair.requests().is_empty());
}

#[test]
fn a_region_deregistered_meanwhile_is_not_touched() {
    let mut pair = Pair::new();
    pair.issue(pair.read(0, 0, 64));
    let request = pair.requests().remove(0);
    pair.deliver_to_b(&request).unwrap();
    let region = pair.b.region;
    pair.b.nic.deregister(region).unwrap();
    let refusal = pair.responses().remove(0);
    assert_eq!(pair.b.nic.counters().drops(DropReason::OldKey), 1);
    pair.deliver_to_a(&refusal).unwrap();
    assert_eq!(pair.status(), OpStatus::RemoteAuthenticationFailure);

    let mut pair = Pair::new();
    let response = pair.responses_of(pair.read(0, 0, 64)).remove(0);
    let region = pair.a.region;
    pair.a.nic.deregister(region).unwrap();
    assert_eq!(pair.deliver_to_a(&response), Err(DropReason::LocalRegionGone));
    pair.advance(Duration::from_secs(1));
    assert_eq!(pair.status(), OpStatus::Timeout);
}

#[test]
fn frames_from_the_wrong_host_or_to_the_wrong_host_are_dropped() {
    let mut pair = Pair::new();
    let response = pair.responses_of(pair.read(0, 0, 64)).remove(0);
    let mut stray = response.clone();
    stray.transmit.source = "192.0.2.9".parse().unwrap();
    assert_eq!(pair.deliver_to_a(&stray), Err(DropReason::WrongResponder));
    let mut stray = response.clone();
    stray.transmit.destination = "192.0.2.9".parse().unwrap();
    assert_eq!(pair.deliver_to_a(&stray), Err(DropReason::NotForThisHost));
    pair.deliver_to_a(&response).unwrap();
    assert_eq!(pair.status(), OpStatus::Ok);
}

#[test]
fn a_host_may_use_its_own_regions() {
    let mut pair = Pair::new();
    pair.b = Host::new("192.0.2.1", NicConfigBuilder::default());
    for command in [pair.read(0, 100, 500), pair.write(0, 100, 500), pair.rekey(0, [1; 16])] {
        pair.issue(command);
        for _ in 0..4 {
            for flight in pair.requests() {
                pair.deliver_to_a(&flight).unwrap();
            }
        }
        assert_eq!(pair.status(), OpStatus::Ok);
    }
}

#[test]
fn notices_to_strangers_are_rate_limited_and_notices_to_friends_are_not() {
    let mut pair =
        Pair::with(NicConfigBuilder { notices_per_second: 1, ..NicConfigBuilder::default() });
    let key = DerivedRegionKey::from_bytes([0xee; 16]);
    pair.issue(Command { key, ..pair.read(0, 0, 64) });
    let forged = pair.requests().remove(0);
    let mut notices = 0;
    for _ in 0..1000 {
        assert_eq!(pair.deliver_to_b(&forged), Err(DropReason::RequestUnauthenticated));
        notices += pair.responses().len();
    }
    assert_eq!(notices, 256, "one burst");
    // As many wait for tokens.
    assert_eq!(pair.b.nic.counters().not_sent(NotSent::NoticeQueueFull), 488);
    pair.advance(pair.b.nic.config().settings().timing.timeout);
    assert_eq!(pair.b.nic.counters().not_sent(NotSent::NoticeRateLimited), 256);
    let _ = pair.completion();
    pair.issue(pair.read(1, u64::MAX, 1));
    pair.exchange();
    assert_eq!(pair.completion().status, OpStatus::RemoteOutOfBounds);
}

#[test]
fn an_authentic_response_outside_its_op_is_dropped() {
    // A responder that cheats: it asks its own NIC for a larger op than the initiator asked for.
    // The initiator's IV is the same, so the response is authentic.
    let mut pair = Pair::new();
    pair.issue(pair.read(0, 0, 100));
    let request = pair.requests().remove(0);
    pair.deliver_to_b(&request).unwrap();
    let mut honest = pair.responses().remove(0);
    // Cutting a payload, or moving it, breaks the tag.
    honest.bytes[29] = 64;
    assert_eq!(pair.deliver_to_a(&honest), Err(DropReason::ResponseUnauthenticated));
    assert_eq!(pair.drops_at_a(DropReason::OutsideOp), 0);
    let key = pair.key_for(OpType::Read);
    for (op_offset, payload_len) in [(0, 128), (64, 64), (0, 63), (0, 4096)] {
        let forged = seal_as_responder(&request, &key, op_offset, payload_len);
        assert_eq!(
            pair.deliver_to_a(&forged),
            Err(DropReason::OutsideOp),
            "{op_offset}+{payload_len}"
        );
    }
    let rest = seal_as_responder(&request, &key, 64, 36);
    pair.deliver_to_a(&rest).unwrap();
    let first = seal_as_responder(&request, &key, 0, 64);
    pair.deliver_to_a(&first).unwrap();
    assert_eq!(pair.status(), OpStatus::Ok);
}

/// Seals a frame as another engine of a responder could that has the right key and breaks the
/// protocol. It counts like the bytes of an op.
pub(super) fn seal_as_responder(
    request: &Flight,
    key: &DerivedRegionKey,
    op_offset: u16,
    payload_len: u16,
) -> Flight {
    use crate::{crypto::Direction, wire::Response};
    let FrameView::ReadRequest(view) = FrameView::parse(&request.bytes).unwrap() else { panic!() };
    let header = view.claims().header;
    let first = (1 << 60) + u64::from(op_offset);
    let counter = IvCounter::new(crate::crypto::CounterBlock::new(first, 1 << 61));
    let mut security = Security::new(fastest(), crate::crypto::EngineId(9), counter);
    let mut bytes = vec![0x55; wire::read::RESPONSE_OVERHEAD + usize::from(payload_len)];
    let response = Response { header, op_offset, payload_len };
    security.write_answer(key, &header.iv(Direction::ToResponder), response, &mut bytes);
    let Transmit { source, destination, .. } = request.transmit;
    let transmit =
        Transmit { source: destination, destination: source, len: bytes.len(), ..request.transmit };
    security.seal(&mut [TxFrame { bytes: &mut bytes, transmit: Some(transmit) }], |_, _| ());
    Flight { transmit, bytes }
}

proptest! {
    /// Whatever arrives, from whomever: no panic, no completion, and real ops go on.
    #[test]
    fn arbitrary_bytes_are_counted_drops(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..20),
        head in prop::option::of(1_u8..9),
    ) {
        let mut pair = Pair::new();
        pair.issue(pair.read(0, 0, 64));
        let honest = pair.responses_of(pair.read(1, 64, 64));
        let template = honest[0].clone();
        let count = frames.len() as u64;
        for bytes in frames {
            let mut flight = Flight { bytes, ..template.clone() };
            if let (Some(frame_type), Some(start)) = (head, flight.bytes.first_chunk_mut::<2>()) {
                *start = [wire::VERSION, frame_type];
            }
            prop_assert!(pair.deliver_to_a(&flight).is_err());
        }
        prop_assert!(pair.a.nic.counters().all_drops().map(|(_, n)| n).sum::<u64>() >= count);
        for flight in &honest {
            pair.deliver_to_a(flight).unwrap();
        }
        prop_assert_eq!(pair.completion().status, OpStatus::Ok);
        prop_assert_eq!(pair.completion().status, OpStatus::Ok);
    }

    /// One changed bit anywhere in a request or a response is noticed.
    //= 1rma#3.1-request-signed
    //= type=test
    //= 1rma#3.1-request-authenticated
    //= type=test
    //= 1rma#3.1-response-authenticated
    //= type=test
    //= 1rma#4.2-request-authentication-failure
    //= type=test
    #[test]
    fn a_changed_bit_is_never_accepted(
        at in any::<prop::sample::Index>(), bit in 0..8_u8, size in 1..500_u32,
    ) {
        let mut pair = Pair::new();
        pair.issue(pair.read(0, 9, size));
        let request = pair.requests().remove(0);
        let mut changed = request.clone();
        changed.bytes[at.index(request.bytes.len())] ^= 1 << bit;
        prop_assert!(pair.deliver_to_b(&changed).is_err());
        let _ = pair.responses();
        pair.deliver_to_b(&request).unwrap();
        let response = pair.responses().remove(0);
        let mut changed = response.clone();
        changed.bytes[at.index(response.bytes.len())] ^= 1 << bit;
        prop_assert!(pair.deliver_to_a(&changed).is_err());
        prop_assert!(pair.a.nic.poll_completion().is_none());
        pair.deliver_to_a(&response).unwrap();
        prop_assert_eq!(pair.status(), OpStatus::Ok);
    }
}
