//! The outcomes of ops in doubt, and calls that ask about one.

use super::{
    publishing::{FETCH_ADD, Fate, NAME, T, add, is_settle},
    *,
};
use crate::{
    outcome::Verdict,
    portal::{Change, Placement},
};

impl Bench {
    fn ask(&mut self, grant: &Grant, deadline: Option<Instant>) -> CallId {
        self.executor.submit_settle(self.now, grant, NAME, deadline).unwrap()
    }

    /// Answers every question so until a call is over. Returns how often it was asked.
    fn answer_all(&mut self, answer: Fate) -> usize {
        let mut asked = 0;
        while self.executor.over.is_empty() {
            match self.take()[..] {
                [] if self.executor.over.is_empty() => {
                    self.now = self.now.max(self.executor.poll_timeout().unwrap());
                }
                [] => {}
                [command] => {
                    assert!(is_settle(&command), "nothing else is issued: {command:?}");
                    self.end(answer);
                    asked += 1;
                }
                ref more => panic!("{more:?}"),
            }
        }
        asked
    }
}

#[test]
fn an_outcome_that_is_unknown_names_the_op_in_doubt_and_no_other_does() {
    let grant = add();
    let forgotten = Fate::Says(Verdict::Forgotten, None);
    for (fates, status, in_doubt) in [
        (&[Fate::Found(1)][..], CallStatus::Ok, None),
        (&[Fate::Lost, Fate::Says(Verdict::Applied, Some(1))], CallStatus::Ok, None),
        (&[Fate::Lost, forgotten], CallStatus::Unknown, Some(NAME)),
        (&[Fate::LostUnnamed], CallStatus::Unknown, None),
        (
            &[Fate::Ends(OpStatus::RemotePermissionDenied)],
            CallStatus::Failed(OpStatus::RemotePermissionDenied),
            None,
        ),
    ] {
        let mut bench = Bench::new(4, fixed(8.0));
        bench.submit_op(&OpCall::of(&grant, FETCH_ADD));
        for &fate in fates {
            bench.next();
            bench.end(fate);
        }
        let outcome = bench.only_outcome();
        assert_eq!((outcome.status, outcome.in_doubt), (status, in_doubt), "{fates:?}");
        assert_eq!(outcome.verdict, None, "it was not asked for by the application");
    }
}

#[test]
fn of_a_call_of_many_ops_it_is_the_publishing_one_that_is_in_doubt() {
    let (local, mut bench) = (local(1, 20_000), Bench::new(4, fixed(8.0)));
    let write = grant("192.0.2.2", OpType::Write, 1 << 20);
    let imm = grant("192.0.2.2", OpType::WriteWithImm, 1 << 20);
    let len = 9000;
    let piece = Piece { grant: &write, remote_offset: 0, local: &local, local_offset: 0, len };
    let placement = Placement::Any;
    let publish = Publish::WithImmediate { grant: &imm, immediate: 7, placement };
    let call = Call::of(core::slice::from_ref(&piece)).with(|it| it.publish = publish);
    bench.executor.submit(bench.now, &call).unwrap();
    loop {
        let is_last = matches!(bench.next_of_many().op, CommandOp::Recorded { .. });
        if is_last {
            break;
        }
        bench.end(Fate::Ends(OpStatus::Ok));
    }
    bench.end(Fate::Lost);
    assert!(matches!(bench.next().op, CommandOp::Settle { op_type: OpType::WriteWithImm, .. }));
    bench.end(Fate::Says(Verdict::Forgotten, None));
    let outcome = bench.only_outcome();
    assert_eq!((outcome.status, outcome.in_doubt), (CallStatus::Unknown, Some(NAME)));
    // Asked about later, with the grant of that op.
    let call = bench.ask(&imm, None);
    assert!(matches!(bench.next().op, CommandOp::Settle { name: NAME, .. }));
    bench.end(Fate::Says(Verdict::Applied, None));
    let outcome = bench.only_outcome();
    assert_eq!((outcome.call, outcome.status), (call, CallStatus::Ok));
    assert_eq!((outcome.verdict, outcome.result), (Some(Verdict::Applied), None));
}

#[test]
fn a_call_that_asks_ends_with_any_verdict_and_repeats_nothing() {
    let (mut bench, grant) = (Bench::new(4, fixed(8.0)), add());
    let nothing = [OpStatus::Nack, OpStatus::RemoteAuthenticationFailure, OpStatus::Timeout];
    for (verdict, result) in [
        (Verdict::Applied, Some(41)),
        (Verdict::Applied, None),
        (Verdict::NotApplied, None),
        (Verdict::Forgotten, None),
    ] {
        for before in 0..=nothing.len() {
            let call = bench.ask(&grant, None);
            for &status in &nothing[..before] {
                assert!(is_settle(&bench.next()));
                bench.end(Fate::Ends(status));
            }
            assert!(is_settle(&bench.next()));
            bench.end(Fate::Says(verdict, result));
            let outcome = bench.only_outcome();
            assert_eq!((outcome.call, outcome.status), (call, CallStatus::Ok));
            assert_eq!((outcome.verdict, outcome.result), (Some(verdict), result));
            assert_eq!((outcome.op_type, outcome.region), (OpType::FetchAdd, grant.region));
            assert_eq!((outcome.bytes_done, outcome.retries, outcome.in_doubt), (0, 0, None));
            assert!(outcome.missing.is_empty());
            assert!(bench.take().is_empty(), "an op that was not applied is not issued again");
        }
    }
    assert_eq!((bench.executor.calls(), bench.executor.active), (0, 0));
}

#[test]
fn a_call_that_asks_in_vain_says_unknown_and_names_the_op_again() {
    let grant = add();
    for answer in [OpStatus::Timeout, OpStatus::Nack, OpStatus::RemoteAuthenticationFailure] {
        let mut bench = Bench::new(4, fixed(8.0));
        let began = bench.now;
        bench.ask(&grant, None);
        let asked = bench.answer_all(Fate::Ends(answer));
        let (outcome, took) = (bench.outcome(), bench.now.since(began));
        assert_eq!((outcome.status, outcome.in_doubt), (CallStatus::Unknown, Some(NAME)));
        assert_eq!((outcome.verdict, outcome.missing[0].tried), (None, Some(answer)));
        assert!((3..=16).contains(&asked), "asked {asked} times after {answer}");
        assert!(took >= 3 * T && took <= 5 * T + Duration::from_millis(1), "{took:?}");
        // Until its deadline, if it has one: sooner, or later.
        for limit in [T / 2, 9 * T] {
            let mut bench = Bench::new(4, fixed(8.0));
            let deadline = bench.now + limit;
            bench.ask(&grant, Some(deadline));
            assert!(bench.answer_all(Fate::Ends(answer)) >= 1, "asked at least once");
            assert_eq!(bench.outcome().in_doubt, Some(NAME));
            let late = bench.now.since(deadline);
            assert!(bench.now >= deadline && late <= T + Duration::from_millis(1), "{late:?}");
        }
    }
}

#[test]
fn a_call_that_asks_and_is_given_up_says_unknown_however_far_it_was() {
    let (mut bench, grant) = (Bench::new(4, fixed(8.0)), add());
    let unknown = |bench: &mut Bench| {
        let outcome = bench.only_outcome();
        assert_eq!((outcome.status, outcome.in_doubt), (CallStatus::Unknown, Some(NAME)));
    };
    // Behind a fence.
    bench.submit_op(&OpCall::of(&grant, FETCH_ADD));
    bench.next();
    let held = bench.executor.submit_settle_fenced(bench.now, &grant, NAME, None).unwrap();
    bench.executor.cancel(held);
    let outcome = bench.outcome();
    assert_eq!((outcome.call, outcome.status), (held, CallStatus::Unknown));
    assert_eq!((outcome.in_doubt, outcome.verdict), (Some(NAME), None));
    bench.end(Fate::Found(1));
    assert_eq!(bench.only_outcome().status, CallStatus::Ok);
    // While it asks; and between two questions.
    let call = bench.ask(&grant, None);
    bench.next();
    bench.executor.cancel(call);
    bench.end(Fate::Ends(OpStatus::Timeout));
    unknown(&mut bench);
    let call = bench.ask(&grant, None);
    bench.next();
    bench.end(Fate::Ends(OpStatus::Nack));
    bench.executor.poll(bench.now);
    bench.executor.cancel(call);
    unknown(&mut bench);
    // An answer that was on its way counts.
    let call = bench.ask(&grant, None);
    bench.next();
    bench.executor.cancel(call);
    bench.end(Fate::Says(Verdict::NotApplied, None));
    let outcome = bench.only_outcome();
    assert_eq!((outcome.status, outcome.verdict), (CallStatus::Ok, Some(Verdict::NotApplied)));
    assert_eq!((bench.executor.calls(), bench.executor.active), (0, 0));
}

#[test]
fn a_question_needs_a_grant_for_such_an_op_and_a_place() {
    let mut bench = Bench::with(4, ExecutorConfig { calls: 1, ..ExecutorConfig::default() });
    let ask = |bench: &mut Bench, grant: &Grant| {
        bench.executor.submit_settle(bench.now, grant, NAME, None)
    };
    let read = grant("192.0.2.2", OpType::Read, 4096);
    let error = SubmitError::NotRecorded { op_type: OpType::Read };
    assert_eq!(ask(&mut bench, &read), Err(CallError::Submit { piece: 0, error }));
    let stranger = Grant { pid: Pid(8), ..add() };
    let refused = ask(&mut bench, &stranger);
    assert!(matches!(refused, Err(CallError::Submit { piece: 0, .. })), "{refused:?}");
    assert!(ask(&mut bench, &add()).is_ok());
    assert_eq!(ask(&mut bench, &add()), Err(CallError::TooManyCalls { calls: 1 }));
}

#[test]
fn a_fenced_op_waits_for_all_before_it_and_leaves_no_fence_if_it_is_refused() {
    let (mut bench, grant) = (Bench::new(4, fixed(8.0)), add());
    let call = OpCall::of(&grant, FETCH_ADD);
    bench.submit_op(&call);
    bench.next();
    let change = Change::FetchAdd { remote_offset: 4096, addend: 1 };
    let outside = OpCall::of(&grant, change);
    assert!(bench.executor.submit_op_fenced(bench.now, &outside).is_err());
    let read = self::grant("192.0.2.2", OpType::Read, 4096);
    assert!(bench.executor.submit_settle_fenced(bench.now, &read, NAME, None).is_err());
    bench.submit_op(&call);
    assert_eq!(bench.take().len(), 1, "there is no fence before it");
    bench.executor.submit_op_fenced(bench.now, &call).unwrap();
    bench.executor.submit_settle_fenced(bench.now, &grant, NAME, None).unwrap();
    bench.end(Fate::Found(1));
    assert!(bench.take().is_empty(), "one of those before it is under way");
    bench.end(Fate::Found(2));
    assert!(!is_settle(&bench.next()));
    assert!(bench.take().is_empty());
    bench.end(Fate::Found(3));
    assert!(is_settle(&bench.next()), "and what is fenced from that waits for it in turn");
    bench.end(Fate::Says(Verdict::Applied, Some(3)));
    bench.executor.poll(bench.now);
    let outcomes: Vec<_> = core::iter::from_fn(|| bench.executor.poll_outcome()).collect();
    assert_eq!(outcomes.len(), 4);
    assert!(outcomes.iter().all(|it| it.status == CallStatus::Ok), "{outcomes:?}");
}

#[test]
fn a_call_that_never_began_says_what_is_missing_and_what_is_in_doubt() {
    let grant = add();
    let call = OpCall::of(&grant, FETCH_ADD);
    let outcome = Outcome::op_not_begun(&call, CallStatus::DeadlineExceeded);
    assert_eq!((outcome.status, outcome.in_doubt), (CallStatus::DeadlineExceeded, None));
    let missing = Missing { piece: 0, offset: 0, len: 8, tried: None };
    assert_eq!(outcome.missing, [missing]);
    let outcome = Outcome::settle_not_begun(&grant, NAME);
    assert_eq!((outcome.status, outcome.in_doubt), (CallStatus::Unknown, Some(NAME)));
    assert_eq!((outcome.op_type, outcome.responder), (OpType::FetchAdd, grant.responder));
}
