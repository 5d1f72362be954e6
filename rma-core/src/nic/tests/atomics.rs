//! Recorded ops as an enemy would have them: misaligned, under other grants, forged, copied, and
//! too late. An op is applied once or not at all.

use core::cell::Cell;

use super::{
    stage::{Stage, sealed},
    *,
};
use crate::{
    command::RecordedOp,
    limits::WORD_LEN,
    outcome::{OpName, Verdict},
    wire::{
        Acknowledgement, AcknowledgementWithResult, Mutation, RecordedRequest,
        mutation::ACKNOWLEDGEMENT_LEN, recorded::RESULT_LEN,
    },
};

impl Stage {
    /// The words of the target, and how many events there are.
    fn changed(&self) -> (Vec<u8>, usize) {
        let (_, port) = self.pair.b.nic.regions().ports().next().unwrap();
        (self.pair.target(), port.watch().unread)
    }
}

//= channels#2.3-whole-words
//= type=test
#[test]
fn a_misaligned_atomic_is_an_invalid_command_and_nothing_is_sent() {
    let mut stage = Stage::new();
    for remote_offset in [1, 4, 7, u64::MAX] {
        let ops = [
            RecordedOp::FetchAdd { remote_offset, addend: 1 },
            RecordedOp::CompareSwap { remote_offset, expected: 0, new: 1 },
            RecordedOp::OrderedWrite(stage.pair.transfer(remote_offset, 8)),
        ];
        for op in ops {
            assert_eq!(stage.run(stage.recorded(0, op)).status, OpStatus::InvalidCommand, "{op:?}");
        }
    }
    for (op_size, ordered) in [(0, false), (4097, false), (4, true), (12, true), (4095, true)] {
        let transfer = stage.pair.transfer(0, op_size);
        let op = RecordedOp::WriteWithImm { transfer, immediate: 0, ordered };
        assert_eq!(stage.run(stage.recorded(0, op)).status, OpStatus::InvalidCommand, "{op:?}");
    }
    let message = stage.pair.transfer(8, 8);
    let op = RecordedOp::Send { message, immediate: 0 };
    assert_eq!(stage.run(stage.recorded(0, op)).status, OpStatus::InvalidCommand, "a place in it");
    assert_eq!(stage.pair.b.nic.counters().frames_received(), 0);
}

//= channels#2.3-whole-words
//= type=test
#[test]
fn a_misaligned_or_undefined_request_is_dropped_though_its_tag_is_right() {
    let mut stage = Stage::new();
    let before = stage.changed();
    for command in stage.recorded_ops(0) {
        stage.pair.issue(command);
        let request = stage.pair.requests().remove(0);
        let mutation = match FrameView::parse(&request.bytes).unwrap() {
            FrameView::RecordedRequest(view) => view.claims().mutation,
            other => panic!("{other:?}"),
        };
        let is_aligned = mutation.is_ordered() || mutation.has_result();
        let places: &[(usize, u8)] = if is_aligned {
            &[(35, 4), (37, 4), (39, 2), (55, 1), (53, 1), (3, 1)]
        } else {
            &[(39, 2), (55, 1), (53, 1), (3, 1)]
        };
        for &(at, bits) in places {
            let mut wrong = request.clone();
            wrong.bytes[at] ^= bits;
            assert_eq!(stage.pair.deliver_to_b(&wrong), Err(DropReason::Field), "{at}");
        }
        stage.time_out();
    }
    assert!(stage.pair.responses().is_empty());
    assert_eq!(stage.changed(), before);
}

#[test]
fn an_immediate_where_none_may_be_is_dropped_when_its_frame_has_been_opened() {
    let mut stage = Stage::new();
    stage.queue.post_all();
    for command in stage.recorded_ops(0) {
        let region = command.remote_region;
        let key = command.key;
        stage.pair.issue(command);
        let honest = stage.pair.requests().remove(0);
        let FrameView::RecordedRequest(view) = FrameView::parse(&honest.bytes).unwrap() else {
            panic!("{command:?}")
        };
        let mut claims: RecordedRequest = view.claims();
        claims.header.counter += 1000;
        assert_eq!(claims.header.region, region);
        let bytes = sealed(&key, &claims, &[], &7_u64.to_be_bytes());
        let delivered = stage.pair.deliver_to_b(&Flight { bytes, ..honest });
        let may = matches!(claims.mutation, Mutation::Send { .. } | Mutation::WriteWithImm { .. });
        assert_eq!(delivered, if may { Ok(()) } else { Err(DropReason::Field) }, "{command:?}");
        stage.time_out();
        let _ = stage.pair.responses();
        stage.pair.advance(stage.pair.timeout());
    }
    stage.assert_settled_down();
}

#[test]
fn a_grant_for_one_type_of_op_is_none_for_another() {
    let mut stage = Stage::new();
    stage.queue.post_all();
    let before = stage.changed();
    for command in stage.recorded_ops(0) {
        for op_type in OpType::ALL.into_iter().filter(|&it| it != command.op.op_type()) {
            let key = stage.pair.key_for(op_type);
            let status = stage.run(Command { key, ..command }).status;
            assert_eq!(status, OpStatus::RemoteAuthenticationFailure, "{op_type} for {command:?}");
        }
    }
    assert_eq!(stage.changed(), before);
    stage.assert_settled_down();
}

#[test]
fn words_and_bytes_beyond_the_region_are_out_of_bounds() {
    let mut stage = Stage::new();
    let len = REGION_LEN as u64;
    assert_eq!(stage.run(stage.fetch_add(0, len - 8, 0)).status, OpStatus::Ok);
    for offset in [len, u64::MAX - 7] {
        assert_eq!(stage.run(stage.fetch_add(0, offset, 1)).status, OpStatus::RemoteOutOfBounds);
    }
    for (offset, size) in [(len - 8, 16), (len - 4088, 4096), (u64::MAX - 7, 8)] {
        let status = stage.run(stage.ordered_write(0, offset, size)).status;
        assert_eq!(status, OpStatus::RemoteOutOfBounds, "{offset} + {size}");
    }
}

/// Each frame of an op comes twice, and once more after each of the others, and after the end.
//= channels#P7-once
//= type=test
#[test]
fn whatever_comes_twice_is_applied_once() {
    for which in 0..7 {
        let mut stage = Stage::new();
        stage.queue.post_all();
        stage.pair.fill();
        stage.pair.b.memory.store_release(0, 0).unwrap();
        let command = stage.recorded_ops(0)[which];
        stage.pair.issue(command);
        let mut sent = Vec::new();
        loop {
            let (requests, responses) = (stage.pair.requests(), stage.pair.responses());
            if requests.is_empty() && responses.is_empty() {
                break;
            }
            sent.extend(requests.into_iter().map(|it| (true, it)));
            sent.extend(responses.into_iter().map(|it| (false, it)));
            for _ in 0..2 {
                for (to_b, flight) in &sent {
                    let _ = if *to_b {
                        stage.pair.deliver_to_b(flight)
                    } else {
                        stage.pair.deliver_to_a(flight)
                    };
                    stage.pair.b.nic.assert_consistent();
                }
            }
            assert!(sent.len() < 100, "no frame makes ever more of them");
        }
        assert_eq!(stage.pair.completion().status, OpStatus::Ok, "{command:?}");
        let after = stage.changed();
        for _ in 0..3 {
            for (to_b, flight) in &sent {
                let _ = if *to_b { stage.pair.deliver_to_b(flight) } else { Ok(()) };
            }
            let again = stage.pair.responses();
            for flight in &again {
                assert!(stage.pair.deliver_to_a(flight).is_err());
            }
            stage.pair.advance(stage.pair.timeout());
        }
        assert!(stage.pair.a.nic.poll_completion().is_none());
        assert_eq!(stage.changed(), after, "{command:?}");
        match command.op.op_type() {
            OpType::CompareSwap | OpType::FetchAdd => assert_eq!(stage.word(0), 1, "once"),
            OpType::Write => assert_eq!(after.1, 0),
            _ => assert_eq!(after.1, 1, "one event"),
        }
        stage.assert_settled_down();
    }
}

#[test]
fn an_atomic_ends_with_a_result_and_other_ops_without() {
    let mut stage = Stage::new();
    stage.queue.post_all();
    for command in stage.recorded_ops(0) {
        stage.pair.issue(command);
        let request = stage.pair.requests().remove(0);
        stage.pair.deliver_to_b(&request).unwrap();
        let solicitation = stage.pair.responses().remove(0);
        stage.pair.deliver_to_a(&solicitation).unwrap();
        let FrameView::Solicitation(view) = FrameView::parse(&solicitation.bytes).unwrap() else {
            panic!("{command:?}")
        };
        let mut header = view.claims().header;
        let answered = *header.iv(crate::crypto::Direction::ToInitiator).octets();
        header.counter += 1000;
        let op_type = command.op.op_type();
        let bytes = if matches!(op_type, OpType::CompareSwap | OpType::FetchAdd) {
            let wrong = Acknowledgement { header, status: OpStatus::Ok };
            sealed(&command.key, &wrong, &answered, &[])
        } else {
            let wrong = AcknowledgementWithResult { header };
            sealed(&command.key, &wrong, &answered, &[9; WORD_LEN])
        };
        assert!(matches!(bytes.len(), ACKNOWLEDGEMENT_LEN | RESULT_LEN));
        let wrong = Flight { bytes, ..solicitation };
        assert_eq!(stage.pair.deliver_to_a(&wrong), Err(DropReason::NoticeStatus), "{command:?}");
        let may_be_unready =
            matches!(op_type, OpType::Send | OpType::Notify | OpType::WriteWithImm);
        header.counter += 1;
        let unready = Acknowledgement { header, status: OpStatus::RemoteNotReady };
        let bytes = sealed(&command.key, &unready, &answered, &[]);
        let delivered = stage.pair.deliver_to_a(&Flight { bytes, ..wrong });
        assert_eq!(delivered.is_ok(), may_be_unready, "{command:?}");
        if !may_be_unready {
            stage.pair.exchange();
        }
        let expected = if may_be_unready { OpStatus::RemoteNotReady } else { OpStatus::Ok };
        assert_eq!(stage.pair.status(), expected);
        stage.pair.advance(stage.pair.timeout());
    }
    stage.assert_settled_down();
}

//= channels#P2-never-late
//= type=test
#[test]
fn an_op_whole_only_after_the_deadline_changes_nothing_and_its_target_says_so() {
    for command in 0..7 {
        let mut stage = Stage::new();
        stage.queue.post_all();
        let command = stage.recorded_ops(0)[command];
        let frames = stage.pair.data_of(command);
        let (last, others) = frames.split_last().unwrap();
        others.iter().for_each(|frame| stage.pair.deliver_to_b(frame).unwrap());
        let before = stage.changed();
        let timeout = stage.pair.timeout();
        stage.pair.now = stage.pair.now + timeout * 7 / 8;
        assert_eq!(stage.pair.deliver_to_b(last), Err(DropReason::DataLate), "{command:?}");
        assert_eq!(stage.changed(), before);
        stage.pair.now = stage.pair.now + timeout / 8;
        let completion = {
            stage.pair.advance(Duration::ZERO);
            stage.pair.completion()
        };
        assert_eq!(completion.status, OpStatus::Timeout);
        assert!(completion.may_have_changed(), "it cannot know");
        let answer = stage.run(stage.settle(1, &command, completion.name().unwrap()));
        assert_eq!(answer.verdict(), Some(Verdict::NotApplied), "{command:?}");
        assert_eq!(stage.changed(), before);
        stage.assert_settled_down();
    }
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

//= channels#P2-never-late
//= type=test
#[test]
fn an_op_that_is_applied_in_one_step_and_too_late_is_counted() {
    let timeout = Stage::new().pair.timeout();
    for (pause, late) in [(Duration::from_micros(1), 0), (timeout, 1)] {
        for command in 0..7 {
            let mut stage = Stage::new();
            stage.queue.post_all();
            let command = stage.recorded_ops(0)[command];
            let frames = stage.pair.data_of(command);
            let (last, others) = frames.split_last().unwrap();
            others.iter().for_each(|frame| stage.pair.deliver_to_b(frame).unwrap());
            let clock = Jumping { now: Cell::new(stage.pair.now), pause };
            let frame = RxFrame {
                source_port: crate::port::SourcePort::FIRST,
                is_first: true,
                is_handed_over: false,
                source: last.transmit.source,
                destination: last.transmit.destination,
                port: last.transmit.port,
                reply_len_max: wire::FRAME_LEN_MAX,
                link: None,
                bytes: &mut last.bytes.clone(),
            };
            assert_eq!(stage.pair.b.nic.handle_frame(stage.pair.now, &clock, frame), Ok(()));
            let counters = stage.pair.b.nic.counters();
            assert_eq!(counters.late_effects(), late, "{command:?}");
        }
    }
}

//= channels#P10-answers-shorter
//= type=test
#[test]
fn each_answer_is_shorter_than_the_request_that_it_answers() {
    let mut stage = Stage::new();
    let mut answers = 0;
    // First no receive is posted, then there are some, and then under another key.
    for round in 0..3 {
        for command in stage.recorded_ops(0) {
            let settle = stage.settle(
                1,
                &command,
                OpName { engine: crate::crypto::EngineId::default(), counter: 1, number: 300 },
            );
            for command in [command, settle] {
                stage.pair.issue(command);
                let request = stage.pair.requests().remove(0);
                let _ = stage.pair.deliver_to_b(&request);
                for answer in stage.pair.responses() {
                    assert!(answer.bytes.len() < request.bytes.len(), "{command:?}");
                    answers += 1;
                }
                stage.pair.advance(stage.pair.timeout());
                let _ = stage.pair.completion();
            }
        }
        if round == 0 {
            stage.queue.post_all();
        } else {
            stage.rekey(stage.pair.b.region, [9; 16]);
            stage.rekey(stage.queue.id(), [9; 16]);
        }
    }
    assert_eq!(answers, 3 * 14, "each is answered");
}
