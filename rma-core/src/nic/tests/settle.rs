//! SETTLE and outcome records: who may ask what, when it is forgotten, and what full tables do.

use super::{
    stage::{ALL, Stage, saying_done},
    *,
};
use crate::{
    crypto::EngineId,
    outcome::{Done, OpName, Verdict},
};

/// With so many records.
fn stage_with(outcome_records: u32) -> Stage {
    let stage = Stage::with(NicConfigBuilder { outcome_records, ..NicConfigBuilder::default() });
    stage.pair.b.memory.store_release(8, 5).unwrap();
    stage
}

impl Stage {
    /// Runs `command` so that it is applied and its acknowledgement is lost, or so that its data
    /// is; returns its name once it has timed out.
    fn lose(&mut self, command: Command, is_applied: bool) -> (OpName, Vec<Flight>) {
        let (_, data) = self.solicited(command);
        if is_applied {
            data.iter().for_each(|flight| self.pair.deliver_to_b(flight).unwrap());
            assert_eq!(self.pair.responses().len(), 1);
        }
        let completion = self.time_out();
        assert_eq!(completion.status, OpStatus::Timeout);
        (completion.name().unwrap(), data)
    }

    fn ask(&mut self, of: &Command, name: OpName) -> (Option<Verdict>, Option<u64>) {
        let answer = self.run(self.settle(7, of, name));
        assert_eq!(answer.status, OpStatus::Ok);
        assert_eq!(answer.name(), Some(name));
        (answer.verdict(), answer.result())
    }
}

//= channels#2.6-forgotten
//= type=test
#[test]
fn a_stranger_to_an_op_learns_nothing_of_it_and_does_not_end_it() {
    for is_applied in [false, true] {
        let mut stage = stage_with(16);
        let other_key = stage.pair.b.key;
        let memory = stage.pair.b.memory.clone();
        let other_region = register(&mut stage.pair.b.nic, &memory, &other_key, ALL);
        let command = stage.fetch_add(0, 8, 2);
        let (name, data) = stage.solicited(command);
        if is_applied {
            stage.pair.deliver_to_b(&data[0]).unwrap();
            let _ = stage.pair.responses();
        }
        let forgotten = (Some(Verdict::Forgotten), None);
        let elsewhere = Command { remote_region: other_region, ..command };
        assert_eq!(stage.ask(&elsewhere, name), forgotten, "another region");
        let other_type = stage.compare_swap(0, 0, 0);
        assert_eq!(stage.ask(&other_type, name), forgotten, "another type of op");
        for wrong in [
            OpName { engine: EngineId(name.engine.0 + 1), ..name },
            OpName { counter: name.counter + 1, ..name },
            OpName { counter: 0, ..name },
            OpName { number: name.number + 1, ..name },
            OpName { number: 0, ..name },
            OpName { number: u16::MAX, ..name },
        ] {
            assert_eq!(stage.ask(&command, wrong), forgotten, "{wrong:?}");
        }
        // Another process, with a key of its own.
        stage.pair.a.nic.configure_slots(7..8, Some(Pid(78)));
        let key = crate::crypto::RegionKeySchedule::new(&stage.pair.b.key).derive(&KeyBinding {
            initiator: stage.pair.a.addr,
            responder: stage.pair.b.addr,
            pid: Pid(78),
            op_type: OpType::FetchAdd,
        });
        assert_eq!(stage.ask(&Command { key, ..command }, name), forgotten, "another process");
        // Another host, likewise.
        let mut other = Host::new("192.0.2.3", NicConfigBuilder::default());
        let key = crate::crypto::RegionKeySchedule::new(&stage.pair.b.key).derive(&KeyBinding {
            initiator: other.addr,
            responder: stage.pair.b.addr,
            pid: PID,
            op_type: OpType::FetchAdd,
        });
        let settle = Command { key, ..stage.settle(0, &command, name) };
        other.nic.handle_command(stage.pair.now, settle).unwrap();
        let request = other.transmit(stage.pair.now).remove(0);
        stage.pair.deliver_to_b(&request).unwrap();
        let answers = stage.pair.responses();
        let answer = answers.iter().find(|it| it.transmit.destination == other.addr).unwrap();
        deliver(&mut other.nic, stage.pair.now, answer, wire::FRAME_LEN_MAX).unwrap();
        assert_eq!(other.nic.poll_completion().unwrap().verdict(), Some(Verdict::Forgotten));
        if !is_applied {
            stage.pair.deliver_to_b(&data[0]).unwrap();
            let _ = stage.pair.responses();
        }
        assert_eq!(stage.word(8), 7, "the op was not disturbed");
        stage.pair.a.nic.configure_slots(7..8, Some(PID));
        assert_eq!(stage.ask(&command, name), (Some(Verdict::Applied), Some(5)));
    }
}

//= channels#2.2-comes-back
//= type=test
#[test]
fn an_op_under_way_is_cancelled_and_all_that_it_had_is_given_back() {
    for which in 0..7 {
        for delivered in 0..3 {
            let mut stage = Stage::new();
            stage.queue.post(crate::receive_queue::Receive(1)).unwrap();
            let before = stage.pair.target();
            let command = stage.recorded_ops(0)[which];
            let (name, mut data) = stage.solicited(command);
            if delivered >= data.len() {
                continue;
            }
            let late = data.split_off(delivered);
            data.iter().for_each(|it| stage.pair.deliver_to_b(it).unwrap());
            assert_eq!(stage.ask(&command, name), (Some(Verdict::NotApplied), None));
            stage.assert_settled_down();
            for flight in &late {
                let late = stage.pair.deliver_to_b(flight);
                assert_eq!(late, Err(DropReason::UnknownPendingWrite));
            }
            assert_eq!(stage.ask(&command, name), (Some(Verdict::NotApplied), None), "twice");
            assert!(stage.queue.poll().is_none());
            if command.op.op_type() != OpType::WriteWithImm {
                assert_eq!(stage.pair.target(), before, "{command:?}");
            }
            assert_eq!(stage.time_out().status, OpStatus::Timeout);
            // The receive that it may have had serves the next.
            assert_eq!(stage.run(stage.send(0, 64, 4)).status, OpStatus::Ok);
            assert_eq!(stage.event().immediate, 4);
            stage.assert_settled_down();
        }
    }
}

//= channels#2.5-not-applied-is-free
//= type=test
#[test]
fn the_record_of_an_op_that_was_not_applied_is_free_at_once_and_answers_until_it_is_taken() {
    let mut stage = stage_with(2);
    let command = stage.fetch_add(0, 8, 2);
    let (name, _) = stage.solicited(command);
    let not_applied = (Some(Verdict::NotApplied), None);
    assert_eq!(stage.ask(&command, name), not_applied);
    // A row has one of two records at most, and the other one is free for longer.
    for (slot, known) in [(1, not_applied), (2, (Some(Verdict::Forgotten), None))] {
        let next = stage.fetch_add(slot, 16, 1);
        let (its_name, _) = stage.solicited(next);
        assert_eq!(stage.ask(&command, name), known);
        assert_eq!(stage.ask(&next, its_name), not_applied);
    }
    stage.pair.advance(stage.pair.timeout());
    stage.assert_settled_down();
}

#[test]
fn a_record_is_right_until_it_is_taken_again_and_then_its_op_is_forgotten() {
    for is_applied in [true, false] {
        let mut stage = stage_with(2);
        let command = stage.fetch_add(0, 8, 2);
        let (name, _) = stage.lose(command, is_applied);
        let known = if is_applied {
            (Some(Verdict::Applied), Some(5))
        } else {
            (Some(Verdict::NotApplied), None)
        };
        let timeout = stage.pair.timeout();
        for _ in 0..6 {
            assert_eq!(stage.ask(&command, name), known);
            stage.pair.advance(timeout);
        }
        // The other record is free for longer, and goes first.
        for expected in [known, (Some(Verdict::Forgotten), None)] {
            let next = stage.run(stage.fetch_add(1, 16, 0));
            assert_eq!(next.status, OpStatus::Ok);
            stage.pair.advance(timeout * 4);
            assert_eq!(stage.ask(&command, name), expected);
        }
        assert_eq!(stage.pair.b.nic.counters().settled(Verdict::Forgotten), 1);
    }
}

//= channels#2.6-present-key
//= type=test
#[test]
fn an_op_is_settled_under_the_key_that_its_region_has_now_and_under_no_other() {
    for is_applied in [true, false] {
        let mut stage = stage_with(16);
        let command = stage.fetch_add(0, 8, 2);
        let (name, data) =
            if is_applied { stage.lose(command, true) } else { stage.solicited(command) };
        let key = RegionKey::from_bytes([0x42; 16]);
        stage.rekey(stage.pair.b.region, [0x42; 16]);
        let old = stage.run(stage.settle(1, &command, name));
        assert_eq!((old.status, old.verdict()), (OpStatus::RemoteAuthenticationFailure, None));
        let command = Command { key: stage.pair.key_under(&key, OpType::FetchAdd), ..command };
        let known = if is_applied {
            (Some(Verdict::Applied), Some(5))
        } else {
            (Some(Verdict::NotApplied), None)
        };
        assert_eq!(stage.ask(&command, name), known);
        assert!(stage.pair.deliver_to_b(&data[0]).is_err());
        assert_eq!(stage.word(8), if is_applied { 7 } else { 5 });
    }
}

//= channels#2.5-half-for-an-initiator
//= type=test
#[test]
fn one_row_has_half_of_the_records_and_the_others_are_for_other_rows() {
    let mut stage = stage_with(8);
    stage.queue.post_all();
    let timeout = stage.pair.timeout();
    for round in 0..2 {
        for _ in 0..4 {
            assert_eq!(stage.run(stage.fetch_add(0, 8, 1)).status, OpStatus::Ok);
        }
        assert_eq!(stage.run(stage.fetch_add(0, 8, 1)).status, OpStatus::Nack);
        assert_eq!(stage.dropped(DropReason::OutcomeRecordShareFull), round + 1);
        assert_eq!(stage.word(8), 5 + 4 * (round + 1), "what is refused is not applied");
        // A plain WRITE needs none, and another row has the rest.
        assert_eq!(stage.run(stage.pair.write(0, 64, 64)).status, OpStatus::Ok);
        assert_eq!(stage.run(stage.send(0, 64, 1)).status, OpStatus::Ok);
        stage.assert_settled_down();
        let _ = stage.event();
        // Nobody has to say what time it is: who needs a record finds those that are free by now.
        stage.pair.now = stage.pair.now + timeout * 4;
    }
}

//= channels#2.5-full-is-nack
//= type=test
#[test]
fn where_all_records_are_in_use_an_op_is_refused_at_once_and_none_is_evicted() {
    let mut stage = stage_with(2);
    stage.queue.post_all();
    let command = stage.fetch_add(0, 8, 2);
    let (name, _) = stage.lose(command, true);
    assert_eq!(stage.run(stage.send(1, 64, 1)).status, OpStatus::Ok);
    let (memory, key) = (stage.pair.b.memory.clone(), stage.pair.b.key);
    let third = register(&mut stage.pair.b.nic, &memory, &key, ALL);
    let refused = Command { remote_region: third, ..stage.fetch_add(1, 8, 1) };
    assert_eq!(stage.run(refused).status, OpStatus::Nack);
    assert_eq!(stage.dropped(DropReason::OutcomeRecordsFull), 1);
    assert_eq!(stage.ask(&command, name), (Some(Verdict::Applied), Some(5)));
    stage.assert_settled_down();
}

//= channels#2.5-half-for-an-initiator
//= type=test
//= channels#P13-no-starvation
//= type=test
#[test]
fn however_many_rows_keep_what_they_can_another_row_gets_a_record() {
    let mut stage = stage_with(32);
    let (memory, key) = (stage.pair.b.memory.clone(), stage.pair.b.key);
    // No region's initiator ever says that an op is done.
    for round in 0..5 {
        let region = register(&mut stage.pair.b.nic, &memory, &key, ALL);
        let add = Command { remote_region: region, ..stage.fetch_add(0, 8, 1) };
        assert_eq!(stage.run(add).status, OpStatus::Ok, "the first op of region {round}");
        let mut kept = 1;
        while stage.run(add).status == OpStatus::Ok {
            kept += 1;
        }
        assert!(kept <= 16 >> round, "{kept} records of region {round}");
        assert_eq!(stage.dropped(DropReason::OutcomeRecordShareFull), round + 1);
    }
    assert_eq!(stage.dropped(DropReason::OutcomeRecordsFull), 0);
    stage.assert_settled_down();
}

//= channels#2.5-deregistered
//= type=test
#[test]
fn state_kept_for_a_region_goes_with_it_and_nothing_else_does() {
    let mut stage = stage_with(8);
    let (memory, key) = (stage.pair.b.memory.clone(), stage.pair.b.key);
    let other = stage.fetch_add(0, 8, 1);
    let kept = stage.run(other).name().unwrap();
    // Another one is under way when its region goes.
    for ends_later in [false, true].into_iter().cycle().take(20) {
        let region = register(&mut stage.pair.b.nic, &memory, &key, ALL);
        let add = Command { remote_region: region, ..stage.fetch_add(0, 8, 1) };
        for _ in 0..3 {
            assert_eq!(stage.run(add).status, OpStatus::Ok);
        }
        let data = ends_later.then(|| stage.solicited(add).1);
        stage.pair.b.nic.deregister(region).unwrap();
        stage.pair.b.nic.assert_consistent();
        for flight in data.into_iter().flatten() {
            assert_eq!(stage.pair.deliver_to_b(&flight), Err(DropReason::OldKey));
            stage.pair.exchange();
            let status = stage.pair.completion().status;
            assert_eq!(status, OpStatus::RemoteAuthenticationFailure);
        }
        assert_eq!(stage.ask(&other, kept), (Some(Verdict::Applied), Some(5)));
        assert_eq!(stage.pair.b.nic.gauges().outcome_records_used, 1);
    }
    stage.assert_settled_down();
}

//= channels#2.5-done
//= type=test
#[test]
fn a_record_goes_when_its_own_asker_says_that_the_op_is_done_and_not_before() {
    let mut stage = stage_with(2);
    stage.queue.post_all();
    let first = stage.run(stage.fetch_add(0, 8, 1));
    let done = Done::from(first.name().unwrap());
    let next = stage.fetch_add(0, 8, 1);
    assert_eq!(stage.run(next).status, OpStatus::Nack, "the row's only record is kept");
    // Another region's, and names of nothing.
    for wrong in [
        saying_done(stage.send(1, 64, 0), done),
        saying_done(next, Done { counter: done.counter + 1, ..done }),
        saying_done(next, Done { number: done.number + 1, ..done }),
        saying_done(next, Done { number: 0, ..done }),
        saying_done(next, Done { number: u16::MAX, ..done }),
    ] {
        let status = stage.run(wrong).status;
        let is_send = wrong.op.op_type() == OpType::Send;
        assert_eq!(status, if is_send { OpStatus::Ok } else { OpStatus::Nack });
        assert_eq!(stage.ask(&next, first.name().unwrap()), (Some(Verdict::Applied), Some(5)));
    }
    stage.pair.issue(saying_done(next, done));
    let request = stage.pair.requests().remove(0);
    stage.pair.deliver_to_b(&request).unwrap();
    stage.pair.exchange();
    let second = stage.pair.completion();
    assert_eq!((second.status, second.result()), (OpStatus::Ok, Some(6)));
    // The same request once more, long after: the record is another op's by now.
    stage.pair.advance(stage.pair.timeout() * 2);
    for _ in 0..3 {
        let _ = stage.pair.deliver_to_b(&request);
        let _ = stage.pair.responses();
    }
    assert_eq!(stage.ask(&next, second.name().unwrap()), (Some(Verdict::Applied), Some(6)));
}

#[test]
fn an_op_under_way_is_not_done_whatever_its_initiator_says() {
    let mut stage = stage_with(16);
    let command = stage.fetch_add(0, 8, 2);
    let (name, data) = stage.solicited(command);
    let saying = saying_done(stage.fetch_add(1, 16, 0), name.into());
    assert_eq!(stage.run(saying).status, OpStatus::Ok);
    stage.pair.deliver_to_b(&data[0]).unwrap();
    stage.pair.exchange();
    let completion = stage.pair.completion();
    assert_eq!((completion.status, completion.result()), (OpStatus::Ok, Some(5)));
    assert_eq!(stage.ask(&command, name), (Some(Verdict::Applied), Some(5)));
}

//= channels#2.6-with-reads
//= type=test
#[test]
fn a_settle_that_finds_the_queue_of_reads_full_is_refused_and_ends_nothing() {
    let mut stage = Stage::with(NicConfigBuilder { inbound_queue: 1, ..Default::default() });
    stage.pair.b.memory.store_release(8, 5).unwrap();
    let command = stage.fetch_add(0, 8, 2);
    let (name, data) = stage.solicited(command);
    stage.pair.issue(stage.pair.read(1, 0, 4096));
    let read = stage.pair.requests().remove(0);
    stage.pair.deliver_to_b(&read).unwrap();
    stage.pair.issue(stage.settle(2, &command, name));
    let settle = stage.pair.requests().remove(0);
    assert_eq!(stage.pair.deliver_to_b(&settle), Err(DropReason::InboundQueueFull));
    stage.pair.deliver_to_b(&data[0]).unwrap();
    stage.pair.exchange();
    let ends: Vec<_> = (0..3).map(|_| stage.pair.completion()).collect();
    let of = |slot| ends.iter().find(|it| it.slot == CommandSlotId(slot)).unwrap();
    assert_eq!((of(0).status, of(0).result()), (OpStatus::Ok, Some(5)));
    assert_eq!((of(2).status, of(2).verdict()), (OpStatus::Nack, None));
}

#[test]
fn a_target_that_began_anew_has_forgotten() {
    let mut stage = stage_with(16);
    let command = stage.fetch_add(0, 8, 2);
    let (name, _) = stage.lose(command, true);
    let mut anew = stage_with(16);
    std::mem::swap(&mut stage.pair.b.nic, &mut anew.pair.b.nic);
    assert_eq!(stage.ask(&command, name), (Some(Verdict::Forgotten), None));
}
