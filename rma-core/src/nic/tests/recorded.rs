//! Recorded ops, hop by hop: ordered WRITE, SEND, NOTIFY, WRITE_WITH_IMM, COMPARE_SWAP, FETCH_ADD,
//! and what SETTLE says of them.

use super::{stage::Stage, *};
use crate::{command::RecordedOp, outcome::Verdict, receive_queue::Receive};

//= channels#2.2-row-of-the-region-table
//= type=test
//= channels#2.2-sender-is-known
//= type=test
#[test]
fn a_message_arrives_whole_with_its_immediate_and_the_name_of_its_sender() {
    let mut stage = Stage::new();
    let data = stage.pair.fill();
    for size in [1, 7, 64, 65, 1408, 1409, 4096] {
        stage.queue.post_all();
        let completion = stage.run(stage.send(0, size, u64::from(size) << 40));
        assert_eq!(completion.status, OpStatus::Ok);
        assert!(completion.name().is_some() && !completion.may_have_changed());
        let event = stage.event();
        assert_eq!((event.op_type, event.len), (OpType::Send, size));
        assert_eq!(event.immediate, u64::from(size) << 40);
        assert_eq!((event.initiator, event.pid), (stage.pair.a.addr, PID));
        assert_eq!(event.region, stage.queue.id());
        let mut message = vec![0; size as usize];
        stage.queue.read(&event, &mut message).unwrap();
        assert_eq!(message, data[..size as usize]);
        assert!(stage.queue.poll().is_none());
        stage.assert_settled_down();
    }
}

//= channels#2.1-not-ready-at-once
//= type=test
#[test]
fn where_no_receive_is_posted_the_sender_is_told_at_once() {
    let mut stage = Stage::new();
    stage.queue.post(Receive(2)).unwrap();
    assert_eq!(stage.run(stage.send(0, 100, 1)).status, OpStatus::Ok);
    let refused = stage.run(stage.send(0, 100, 2));
    assert_eq!(refused.status, OpStatus::RemoteNotReady);
    assert!(!refused.reached() && !refused.may_have_changed());
    assert_eq!(stage.event().immediate, 1);
    stage.queue.post_all();
    assert_eq!(stage.run(stage.send(0, 100, 3)).status, OpStatus::Ok);
    assert_eq!(stage.event().immediate, 3);
}

//= channels#2.2-one-receive-each
//= type=test
#[test]
fn a_notification_consumes_a_receive_and_a_write_with_imm_one_of_the_regions_queue() {
    let mut stage = Stage::new();
    stage.queue.post_all();
    let notify = stage.recorded(0, RecordedOp::Notify { immediate: u64::MAX });
    assert_eq!(stage.run(notify).status, OpStatus::Ok);
    let event = stage.event();
    assert_eq!((event.op_type, event.immediate, event.len), (OpType::Notify, u64::MAX, 0));
    let data = stage.pair.fill();
    for (ordered, size) in [(false, 4095), (true, 4096), (false, 64), (true, 8)] {
        let transfer = stage.pair.transfer(4096, size);
        let op = RecordedOp::WriteWithImm { transfer, immediate: 7, ordered };
        assert_eq!(stage.run(stage.recorded(1, op)).status, OpStatus::Ok);
        let event = stage.event();
        assert_eq!((event.op_type, event.len), (OpType::WriteWithImm, size));
        assert_eq!((event.region, event.region_offset), (stage.pair.b.region, 4096));
        assert_eq!(stage.pair.target()[4096..][..size as usize], data[..size as usize]);
        stage.queue.post_all();
    }
    stage.assert_settled_down();
}

#[test]
fn atomics_find_what_was_there_before() {
    let mut stage = Stage::new();
    stage.pair.b.memory.store_release(64, 10).unwrap();
    let completion = stage.run(stage.fetch_add(0, 64, u64::MAX));
    assert_eq!((completion.status, completion.result()), (OpStatus::Ok, Some(10)));
    assert_eq!(stage.word(64), 9, "modulo 2^64");
    for (expected, new, found, after) in [(9, 100, 9, 100), (9, 7, 100, 100)] {
        let op = RecordedOp::CompareSwap { remote_offset: 64, expected, new };
        let completion = stage.run(stage.recorded(0, op));
        assert_eq!((completion.status, completion.result()), (OpStatus::Ok, Some(found)));
        assert_eq!(stage.word(64), after);
    }
    stage.assert_settled_down();
}

//= channels#2.3-all-before-any
//= type=test
#[test]
fn an_ordered_write_lands_in_one_step_after_the_last_of_its_frames() {
    let mut stage = Stage::new();
    let data = stage.pair.fill();
    let before = stage.pair.target();
    let op = RecordedOp::OrderedWrite(stage.pair.transfer(512, 4096));
    let command = stage.recorded(0, op);
    let mut frames = stage.pair.data_of(command);
    assert!(frames.len() > 1);
    frames.rotate_left(1);
    let last = frames.pop().unwrap();
    for frame in &frames {
        stage.pair.deliver_to_b(frame).unwrap();
        assert_eq!(stage.pair.target(), before);
    }
    stage.pair.deliver_to_b(&last).unwrap();
    assert_eq!(stage.pair.target()[512..512 + 4096], data[..4096]);
    stage.pair.exchange();
    assert_eq!(stage.pair.status(), OpStatus::Ok);
}

//= channels#2.4-reached
//= type=test
//= channels#2.5-applied-is-kept
//= type=test
//= channels#2.6-final
//= type=test
//= channels#2.6-idempotent
//= type=test
#[test]
fn a_question_after_a_timeout_learns_whether_the_op_was_applied_and_its_result() {
    for is_applied in [true, false] {
        let mut stage = Stage::new();
        stage.pair.b.memory.store_release(8, 5).unwrap();
        let command = stage.fetch_add(0, 8, 2);
        let data = stage.pair.data_of(command).remove(0);
        if is_applied {
            stage.pair.deliver_to_b(&data).unwrap();
            assert_eq!(stage.pair.responses().len(), 1, "the acknowledgement, which is lost");
        }
        let timeout = stage.pair.timeout();
        stage.pair.advance(timeout);
        let completion = stage.pair.completion();
        assert_eq!(completion.status, OpStatus::Timeout);
        assert!(completion.reached() && completion.may_have_changed());
        let settle = stage.settle(1, &command, completion.name().unwrap());
        for _ in 0..2 {
            let answer = stage.run(settle);
            assert_eq!(answer.status, OpStatus::Ok);
            let (verdict, result) =
                if is_applied { (Verdict::Applied, Some(5)) } else { (Verdict::NotApplied, None) };
            assert_eq!((answer.verdict(), answer.result()), (Some(verdict), result));
        }
        // Late data changes nothing.
        let late = stage.pair.deliver_to_b(&data);
        assert_eq!(late, Err(DropReason::UnknownPendingWrite));
        assert_eq!(stage.word(8), if is_applied { 7 } else { 5 });
        stage.assert_settled_down();
    }
}
