//! The promises about recorded ops besides being applied once: they end in time, nothing of them
//! happens that is not authentic, nothing that they carry is in clear, and no entry lacks a buffer.

use super::{stage::Stage, *};
use crate::{
    command::RecordedOp,
    crypto::EngineId,
    outcome::{OpName, Verdict},
};

impl Stage {
    /// Lets time pass for the initiator alone, as its NIC asks for it, until an op ends.
    fn end_by_itself(&mut self) -> Completion {
        let nic = &mut self.pair.a.nic;
        loop {
            if let Some(completion) = nic.poll_completion() {
                return completion;
            }
            let next = nic.poll_timeout().expect("a NIC with an op wakes for it");
            self.pair.now = self.pair.now.max(next);
            nic.handle_timeout(self.pair.now);
        }
    }

    /// The bytes of the target, its events, and how many receives are posted.
    fn seen(&self) -> (Vec<u8>, usize, usize) {
        let (_, port) = self.pair.b.nic.regions().ports().next().unwrap();
        let watch = port.watch();
        (self.pair.target(), watch.unread, watch.posted)
    }
}

//= channels#P1-bounds
//= type=test
#[test]
fn a_recorded_op_ends_within_the_bound_of_a_write_and_a_settle_within_that_of_a_read() {
    for which in 0..7 {
        for is_solicited in [false, true] {
            let mut stage = Stage::new();
            stage.queue.post_all();
            let timing = stage.pair.a.nic.config().settings().timing;
            let (began, command) = (stage.pair.now, stage.recorded_ops(0)[which]);
            if is_solicited {
                let solicitation = stage.pair.solicitation_of(command);
                // As late as it may be.
                stage.pair.now = began + (timing.timeout - Duration::from_nanos(1));
                stage.pair.deliver_to_a(&solicitation).unwrap();
                assert!(!stage.pair.requests().is_empty(), "data, which is lost");
            } else {
                stage.pair.issue(command);
                assert_eq!(stage.pair.requests().len(), 1, "a request, which is lost");
            }
            let completion = stage.end_by_itself();
            assert_eq!(completion.status, OpStatus::Timeout, "{command:?}");
            assert_eq!(completion.may_have_changed(), is_solicited, "{command:?}");
            let took = stage.pair.now.since(began);
            assert!(took <= timing.bound(OpType::Write), "{took:?}: {command:?}");
            let name = OpName { engine: EngineId(0), counter: 1, number: 300 };
            let began = stage.pair.now;
            stage.pair.issue(stage.settle(1, &command, name));
            assert_eq!(stage.pair.requests().len(), 1, "lost as well");
            let completion = stage.end_by_itself();
            assert_eq!((completion.status, completion.verdict()), (OpStatus::Timeout, None));
            let took = stage.pair.now.since(began);
            assert!(took <= timing.bound(OpType::Read), "{took:?}: SETTLE of {command:?}");
        }
    }
}

/// Each bit place of each octet in turn, at all octets of a frame.
fn damaged(flight: &Flight) -> impl Iterator<Item = Flight> {
    (0..flight.bytes.len()).map(|at| {
        let mut damaged = flight.clone();
        damaged.bytes[at] ^= 1 << (at % 8);
        damaged
    })
}

//= channels#P6-authentic-first
//= type=test
#[test]
fn no_frame_of_a_recorded_op_with_a_changed_bit_places_publishes_or_ends_anything() {
    for which in 0..7 {
        let mut stage = Stage::new();
        stage.queue.post_all();
        stage.pair.fill();
        stage.pair.b.memory.store_release(0, 0).unwrap();
        let before = stage.seen();
        let command = stage.recorded_ops(0)[which];
        stage.pair.issue(command);
        let mut hops = 0;
        loop {
            let (requests, responses) = (stage.pair.requests(), stage.pair.responses());
            if requests.is_empty() && responses.is_empty() {
                break;
            }
            hops += 1;
            for flight in &requests {
                for damaged in damaged(flight) {
                    assert!(stage.pair.deliver_to_b(&damaged).is_err(), "{command:?}");
                }
                // Whoever has no key may be told so: nobody hears it.
                let _ = stage.pair.responses();
            }
            assert_eq!(stage.seen(), before, "hop {hops} of {command:?}");
            stage.pair.b.nic.assert_consistent();
            for damaged in responses.iter().flat_map(damaged) {
                assert!(stage.pair.deliver_to_a(&damaged).is_err(), "{command:?}");
            }
            assert!(stage.pair.a.nic.poll_completion().is_none(), "hop {hops} of {command:?}");
            requests.iter().for_each(|it| stage.pair.deliver_to_b(it).unwrap());
            responses.iter().for_each(|it| stage.pair.deliver_to_a(it).unwrap());
            if hops == 3 {
                assert_ne!(stage.seen(), before, "{command:?}");
                break;
            }
        }
        assert_eq!(hops, 3);
        let acknowledgement = stage.pair.responses().remove(0);
        for damaged in damaged(&acknowledgement) {
            assert!(stage.pair.deliver_to_a(&damaged).is_err(), "{command:?}");
        }
        stage.pair.deliver_to_a(&acknowledgement).unwrap();
        assert_eq!(stage.pair.status(), OpStatus::Ok);
        stage.assert_settled_down();
    }
}

/// Eight octets that are found if they are anywhere.
const SECRETS: [u64; 3] = [0x8b1d_47c3_926e_f05a, 0x39d4_ea07_5cb8_6112, 0xc6f0_1825_d97b_a34e];

//= channels#P6-authentic-first
//= type=test
#[test]
fn immediates_operands_and_results_are_nowhere_in_clear() {
    let [first, second, third] = SECRETS;
    let mut stage = Stage::new();
    stage.queue.post_all();
    stage.pair.a.memory.store_release(0, second).unwrap();
    stage.pair.b.memory.store_release(64, third).unwrap();
    let transfer = stage.pair.transfer(0, 8);
    let ops = [
        RecordedOp::Send { message: transfer, immediate: first },
        RecordedOp::WriteWithImm { transfer, immediate: first, ordered: true },
        RecordedOp::Notify { immediate: first },
        RecordedOp::CompareSwap { remote_offset: 64, expected: third, new: first },
        RecordedOp::FetchAdd { remote_offset: 64, addend: second },
    ];
    let mut frames = 0;
    let mut look = |flights: &[Flight]| {
        for window in flights.iter().flat_map(|it| it.bytes.windows(8)) {
            let word = u64::from_ne_bytes(window.try_into().unwrap());
            for secret in SECRETS {
                assert!(word != secret && word.swap_bytes() != secret, "{secret:#x} is in clear");
            }
        }
        frames += flights.len();
    };
    for op in ops {
        let command = stage.recorded(0, op);
        stage.pair.issue(command);
        for _ in 0..3 {
            let (requests, responses) = (stage.pair.requests(), stage.pair.responses());
            [&requests, &responses].into_iter().for_each(|it| look(it));
            requests.iter().for_each(|it| stage.pair.deliver_to_b(it).unwrap());
            responses.iter().for_each(|it| stage.pair.deliver_to_a(it).unwrap());
        }
        let acknowledgement = stage.pair.responses();
        look(&acknowledgement);
        // The answer of a SETTLE tells the result as well.
        stage.pair.deliver_to_a(&acknowledgement[0]).unwrap();
        let completion = stage.pair.completion();
        assert_eq!(completion.status, OpStatus::Ok, "{op:?}");
        stage.pair.issue(stage.settle(1, &command, completion.name().unwrap()));
        let settle = stage.pair.requests();
        settle.iter().for_each(|it| stage.pair.deliver_to_b(it).unwrap());
        let answer = stage.pair.responses();
        [&settle, &answer].into_iter().for_each(|it| look(it));
        stage.pair.deliver_to_a(&answer[0]).unwrap();
        let told = stage.pair.completion();
        assert_eq!((told.verdict(), told.result()), (Some(Verdict::Applied), completion.result()));
    }
    assert_eq!(frames, 5 * 6);
    assert_eq!(stage.word(64), first.wrapping_add(second));
}

//= channels#2.3-staging
//= type=test
#[test]
fn every_pending_write_may_collect_an_ordered_op_at_the_same_time() {
    const ENTRIES: u16 = 4;
    let settings = NicConfigBuilder { pending_writes: ENTRIES.into(), ..Default::default() };
    let mut stage = Stage::with(settings);
    let data = stage.pair.fill();
    for slot in 0..ENTRIES {
        // Of one class there are three at most.
        let class = ClassOfService::ALL[usize::from(slot % 2)];
        let command = stage.ordered_write(slot, u64::from(slot) * 2048, 2048);
        stage.pair.issue(Command { class, ..command });
    }
    for request in stage.pair.requests() {
        stage.pair.deliver_to_b(&request).unwrap();
    }
    let hold = stage.pair.b.nic.config().hold();
    let mut rest = Vec::new();
    // Half of the entries are solicited at a time; they are parked, and keep their buffers.
    for _ in 0..ENTRIES {
        for solicitation in stage.pair.responses() {
            stage.pair.deliver_to_a(&solicitation).unwrap();
            let mut frames = stage.pair.requests();
            stage.pair.deliver_to_b(&frames.remove(0)).unwrap();
            assert!(!frames.is_empty(), "they come in several frames");
            rest.append(&mut frames);
        }
        stage.pair.advance(hold);
        stage.pair.b.nic.assert_consistent();
    }
    assert_eq!(stage.pair.b.nic.gauges().staging_used, ENTRIES.into());
    for frame in &rest {
        stage.pair.deliver_to_b(frame).unwrap();
    }
    stage.pair.exchange();
    for _ in 0..ENTRIES {
        assert_eq!(stage.pair.completion().status, OpStatus::Ok);
    }
    for slot in 0..usize::from(ENTRIES) {
        assert_eq!(stage.pair.target()[slot * 2048..][..2048], data[..2048]);
    }
    assert_eq!(stage.pair.b.nic.gauges().staging_used, 0);
    stage.assert_settled_down();
}
