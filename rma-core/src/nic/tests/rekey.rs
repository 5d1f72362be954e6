//! Rekey: one step for its region, nothing for the others, and no way back (§5.2, P7, P11).

use super::*;

const NEW: [u8; 16] = [0x42; 16];

impl Pair {
    fn ends_with(&mut self, command: Command) -> OpStatus {
        self.issue(command);
        self.exchange();
        self.status()
    }
}

//= 1rma#5.2-rekey
//= type=test
#[test]
fn a_rekey_makes_the_old_keys_useless_and_the_new_ones_good() {
    let mut pair = Pair::new();
    let (old_read, old_write) = (pair.read(0, 0, 64), pair.write(0, 0, 64));
    assert_eq!(pair.ends_with(pair.rekey(0, NEW)), OpStatus::Ok);
    assert_eq!(pair.b.nic.window_debited(), 0);
    for old in [old_read, old_write, pair.rekey(0, [9; 16])] {
        assert_eq!(pair.ends_with(old), OpStatus::RemoteAuthenticationFailure, "{old:?}");
    }
    pair.b.key = RegionKey::from_bytes(NEW);
    for new in [pair.read(0, 0, 64), pair.write(0, 0, 64), pair.rekey(0, [9; 16])] {
        assert_eq!(pair.ends_with(new), OpStatus::Ok, "{new:?}");
    }
}

//= 1rma#5.2-rekey-atomic
//= type=test
#[test]
fn other_regions_notice_nothing_of_a_rekey_not_even_ops_under_way() {
    let mut pair = Pair::new();
    let (memory, key) = (pair.b.memory.clone(), pair.b.key);
    let other = register(&mut pair.b.nic, &memory, &key, Permissions::READ | Permissions::WRITE);
    pair.issue(Command { remote_region: other, ..pair.read(1, 0, 4096) });
    pair.issue(Command { remote_region: other, ..pair.write(2, 0, 4096) });
    for flight in pair.requests() {
        pair.deliver_to_b(&flight).unwrap();
    }
    pair.b.nic.regions_mut().rekey(pair.b.region, &RegionKey::from_bytes(NEW)).unwrap();
    pair.exchange();
    let statuses = [pair.completion().status, pair.completion().status];
    assert_eq!(statuses, [OpStatus::Ok, OpStatus::Ok]);
}

//= 1rma#5.2-rekey-atomic
//= type=test
#[test]
fn ops_under_way_finish_before_the_rekey_or_fail_with_remote_authentication_failure() {
    // After how many frames of the op the key changes.
    for mutation in [false, true] {
        let mut failed = 0;
        for point in 0..8 {
            let mut pair = Pair::new();
            let before: Vec<u8> = vec![0; 4096];
            pair.b.memory.copy_in(0, &before).unwrap();
            pair.a.memory.copy_in(0, &[7; 4096]).unwrap();
            pair.issue(if mutation { pair.write(0, 0, 4096) } else { pair.read(0, 0, 4096) });
            let (mut seen, mut at_rekey) = (0, None);
            for _ in 0..20 {
                let requests = pair.requests().into_iter().map(|flight| (true, flight));
                let requests: Vec<_> = requests.collect();
                let responses = pair.responses().into_iter().map(|flight| (false, flight));
                for (to_b, flight) in requests.into_iter().chain(responses.collect::<Vec<_>>()) {
                    if seen == point {
                        let key = RegionKey::from_bytes(NEW);
                        pair.b.nic.regions_mut().rekey(pair.b.region, &key).unwrap();
                        let mut target = vec![0; 4096];
                        pair.b.memory.copy_out(0, &mut target).unwrap();
                        at_rekey = Some(target);
                    }
                    seen += 1;
                    let _ =
                        if to_b { pair.deliver_to_b(&flight) } else { pair.deliver_to_a(&flight) };
                }
            }
            let status = pair.status();
            let mut target = vec![0; 4096];
            pair.b.memory.copy_out(0, &mut target).unwrap();
            if let Some(at_rekey) = at_rekey {
                assert_eq!(target, at_rekey, "nothing is written under the old key afterwards");
            }
            match status {
                OpStatus::Ok if mutation => assert_eq!(target, [7; 4096]),
                OpStatus::Ok => {}
                OpStatus::RemoteAuthenticationFailure => failed += 1,
                other => panic!("{other} when the key changes after {point} frames"),
            }
            pair.advance(pair.a.nic.config().settings().timing.timeout);
            assert_eq!((pair.a.nic.window_debited(), pair.b.nic.window_debited()), (0, 0));
        }
        assert!(failed > 0, "some point lies within the op");
    }
}

#[test]
fn the_second_of_two_rekeys_at_once_fails_and_does_not_undo_the_first() {
    let mut pair = Pair::new();
    pair.issue(pair.rekey(0, NEW));
    pair.issue(pair.rekey(1, [9; 16]));
    pair.exchange();
    let mut completions = [pair.completion(), pair.completion()];
    completions.sort_by_key(|completion| completion.slot);
    let [first, second] = completions.map(|completion| completion.status);
    assert_eq!((first, second), (OpStatus::Ok, OpStatus::RemoteAuthenticationFailure));
    pair.b.key = RegionKey::from_bytes(NEW);
    assert_eq!(pair.ends_with(pair.read(0, 0, 64)), OpStatus::Ok);
}

//= 1rma#5.1-replay
//= type=test
#[test]
fn the_frames_of_an_old_rekey_do_nothing_later() {
    let mut pair = Pair::new();
    pair.issue(pair.rekey(0, NEW));
    let mut frames = Vec::new();
    for _ in 0..4 {
        for flight in pair.requests() {
            pair.deliver_to_b(&flight).unwrap();
            frames.push(flight);
        }
        for flight in pair.responses() {
            pair.deliver_to_a(&flight).unwrap();
        }
    }
    assert_eq!((pair.status(), frames.len()), (OpStatus::Ok, 2));
    // The key goes back to what it was when the frames were sent: the request is authentic again.
    let old = pair.b.key;
    pair.b.nic.regions_mut().rekey(pair.b.region, &old).unwrap();
    for _ in 0..3 {
        for flight in &frames {
            let _ = pair.deliver_to_b(flight);
            for answer in pair.responses() {
                assert!(pair.deliver_to_a(&answer).is_err());
            }
        }
    }
    assert_eq!(pair.ends_with(pair.read(0, 0, 64)), OpStatus::Ok, "under the old key, still");
}

#[test]
fn an_old_write_does_nothing_after_a_rekey_and_after_a_restart() {
    let mut pair = Pair::new();
    pair.a.memory.copy_in(0, &[7; 64]).unwrap();
    pair.issue(pair.write(0, 0, 64));
    let request = pair.requests().remove(0);
    pair.deliver_to_b(&request).unwrap();
    let solicitation = pair.responses().remove(0);
    pair.deliver_to_a(&solicitation).unwrap();
    let data = pair.requests().remove(0);
    // The target restarts: the same region name, key and slots; only the counter goes on.
    let restarted = NicConfigBuilder { counter_start: 1 << 40, ..NicConfigBuilder::default() };
    pair.b = Host::new("192.0.2.2", restarted);
    assert_eq!(pair.deliver_to_b(&data), Err(DropReason::UnknownPendingWrite));
    pair.deliver_to_b(&request).unwrap();
    let again = pair.responses().remove(0);
    assert_eq!(pair.deliver_to_b(&data), Err(DropReason::DataUnauthenticated));
    assert_eq!(pair.deliver_to_a(&again), Err(DropReason::SolicitedTwice));
    let mut target = [0xff; 64];
    pair.b.memory.copy_out(0, &mut target).unwrap();
    assert_eq!(target, [0; 64]);
    pair.advance(pair.a.nic.config().settings().timing.timeout);
    assert_eq!(pair.status(), OpStatus::Timeout);
}

//= 1rma#4.2-keys-stay
//= type=test
#[test]
fn no_key_is_ever_on_the_wire_in_clear() {
    let mut pair = Pair::new();
    let keys: Vec<[u8; 16]> = OpType::ALL
        .map(|op_type| *pair.key_for(op_type).expose())
        .into_iter()
        .chain([NEW, *pair.b.key.expose()])
        .collect();
    for command in [pair.read(0, 0, 64), pair.write(0, 0, 64), pair.rekey(0, NEW)] {
        pair.issue(command);
        for _ in 0..4 {
            let requests = pair.requests();
            requests.iter().for_each(|flight| pair.deliver_to_b(flight).unwrap());
            let responses = pair.responses();
            responses.iter().for_each(|flight| pair.deliver_to_a(flight).unwrap());
            for flight in requests.iter().chain(&responses) {
                let shows = |key: &[u8; 16]| flight.bytes.windows(16).any(|octets| octets == key);
                assert!(!keys.iter().any(shows), "{flight:?}");
            }
        }
        assert_eq!(pair.status(), OpStatus::Ok);
    }
}

#[test]
fn the_devices_buffer_keeps_no_copy_of_a_new_key_whether_it_was_applied_or_dropped() {
    for is_late in [false, true] {
        let mut pair = Pair::new();
        pair.issue(pair.rekey(0, NEW));
        for flight in pair.requests() {
            pair.deliver_to_b(&flight).unwrap();
        }
        for flight in pair.responses() {
            pair.deliver_to_a(&flight).unwrap();
        }
        let Flight { transmit, mut bytes } = pair.requests().remove(0);
        if is_late {
            // Decrypted and then dropped.
            let old = pair.b.key;
            pair.b.nic.regions_mut().rekey(pair.b.region, &old).unwrap();
        }
        let frame = RxFrame {
            source_port: crate::port::SourcePort::FIRST,
            is_first: true,
            is_handed_over: false,
            source: transmit.source,
            destination: transmit.destination,
            port: transmit.port,
            reply_len_max: pair.path_len_max,
            link: None,
            bytes: &mut bytes,
        };
        let landed = pair.b.nic.handle_frame(pair.now, &pair.now, frame);
        assert_eq!(landed, if is_late { Err(DropReason::OldKey) } else { Ok(()) });
        assert!(!bytes.windows(NEW.len()).any(|octets| octets == NEW), "{bytes:?}");
    }
}
