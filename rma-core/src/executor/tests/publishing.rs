//! Ops that publish, calls of one recorded op, what is asked about them, and calls that come after
//! others.

use super::*;
use crate::{
    command::{Ending, RecordedOp},
    crypto::EngineId,
    outcome::{OpName, Verdict},
    portal::{Change, Placement, Source},
};

/// The NIC's timeout, by default.
pub(super) const T: Duration = Duration::from_millis(100);
pub(super) const NAME: OpName = OpName { engine: EngineId(3), counter: 77, number: 9 };
pub(super) const FETCH_ADD: Change<'static> = Change::FetchAdd { remote_offset: 64, addend: 5 };

/// The end of an op of the test.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    Ends(OpStatus),
    /// OK, with what an atomic found.
    Found(u64),
    /// TIMEOUT, after its data was sent.
    Lost,
    /// The same, and its target has not told its name.
    LostUnnamed,
    /// The answer to a SETTLE.
    Says(Verdict, Option<u64>),
}

impl Bench {
    /// Ends the oldest op under way; a TIMEOUT takes as long as it does.
    pub(super) fn end(&mut self, fate: Fate) -> Command {
        let command = self.taken.pop_front().expect("a command was taken");
        let named = Ending::NONE.reached().named(NAME);
        let (status, ending) = match fate {
            Fate::Ends(status) => (status, Ending::NONE),
            Fate::Found(word) => (OpStatus::Ok, named.with_result(word)),
            Fate::Lost => (OpStatus::Timeout, named.may_have_changed()),
            Fate::LostUnnamed => (OpStatus::Timeout, Ending::NONE.reached().may_have_changed()),
            Fate::Says(verdict, None) => (OpStatus::Ok, named.settled(verdict)),
            Fate::Says(verdict, Some(word)) => {
                (OpStatus::Ok, named.settled(verdict).with_result(word))
            }
        };
        if status == OpStatus::Timeout {
            self.now = self.now + T;
        }
        self.now = self.now + Duration::from_micros(10);
        let completion = Completion::new(command.slot, status, 0, 5_000).ending(ending);
        self.port.complete(&completion);
        command
    }

    /// Returns the next command, which is one op: now or when the executor next has something to
    /// do.
    pub(super) fn next(&mut self) -> Command {
        for _ in 0..100 {
            if let [command] = self.take()[..] {
                return command;
            }
            self.now = self.now.max(self.executor.poll_timeout().expect("there is a call"));
        }
        panic!("nothing is issued");
    }

    pub(super) fn submit_op(&mut self, call: &OpCall<'_>) -> CallId {
        self.executor.submit_op(self.now, call).unwrap()
    }

    /// The oldest op under way; what is issued next, if there is none.
    pub(super) fn next_of_many(&mut self) -> Command {
        self.take();
        self.taken.front().copied().unwrap_or_else(|| self.next())
    }

    /// The outcome of the only call, once nothing is under way.
    pub(super) fn only_outcome(&mut self) -> Outcome {
        assert!(self.taken.is_empty());
        self.executor.poll(self.now);
        self.outcome()
    }
}

fn recorded(command: &Command) -> RecordedOp {
    match command.op {
        CommandOp::Recorded { op, .. } => op,
        other => panic!("not recorded: {other:?}"),
    }
}

pub(super) fn is_settle(command: &Command) -> bool {
    command.op == CommandOp::Settle { op_type: OpType::FetchAdd, name: NAME }
}

pub(super) fn add() -> Grant {
    grant("192.0.2.2", OpType::FetchAdd, 4096)
}

#[test]
fn the_publishing_op_goes_last_when_all_others_are_done() {
    let local = local(1, 40_000);
    let write = grant("192.0.2.2", OpType::Write, 1 << 20);
    let imm = grant("192.0.2.2", OpType::WriteWithImm, 1 << 20);
    let with_imm = |placement| Publish::WithImmediate { grant: &imm, immediate: 7, placement };
    for publish in [Publish::Ordered, with_imm(Placement::Any), with_imm(Placement::Ordered)] {
        for (start, len) in [(0, 8), (3, 13), (0, 4096), (5, 4099), (8, 20_000), (1, 32_767)] {
            let mut bench = Bench::new(16, fixed(16.0));
            let (remote_offset, local_offset) = (start, 11);
            let piece = Piece { grant: &write, remote_offset, local: &local, local_offset, len };
            let call = Call::of(core::slice::from_ref(&piece)).with(|it| it.publish = publish);
            bench.executor.submit(bench.now, &call).unwrap();
            let (mut covered, mut published) = (vec![0_u8; len as usize], 0);
            let commands = bench.run_watched(|bench| {
                let command = bench.taken.front().unwrap();
                if let CommandOp::Recorded { .. } = command.op {
                    assert_eq!(bench.taken.len(), 1, "nothing else is under way");
                    published += 1;
                } else {
                    assert_eq!(published, 0);
                }
                OpStatus::Ok
            });
            for command in &commands {
                let it = command.op.transfer().unwrap();
                assert_eq!(it.remote_offset - start, it.local_offset - local_offset);
                let from = (it.remote_offset - start) as usize;
                covered[from..from + it.op_size as usize].iter_mut().for_each(|byte| *byte += 1);
            }
            assert!(covered.iter().all(|&byte| byte == 1), "{start} {len}");
            let last = commands.last().unwrap();
            let it = last.op.transfer().unwrap();
            assert_eq!(it.remote_offset + u64::from(it.op_size), start + len);
            match (publish, recorded(last)) {
                (Publish::Ordered, RecordedOp::OrderedWrite(_)) => assert_eq!(last.key, write.key),
                (
                    Publish::WithImmediate { placement, .. },
                    RecordedOp::WriteWithImm { immediate: 7, ordered, .. },
                ) => assert_eq!(ordered, placement == Placement::Ordered),
                other => panic!("{other:?}"),
            }
            if publish.is_ordered() {
                assert_eq!((it.remote_offset % 8, it.op_size % 8), (0, 0));
            }
            let outcome = bench.outcome();
            assert_eq!((outcome.status, outcome.bytes_done), (CallStatus::Ok, len));
            assert_eq!((outcome.op_type, outcome.retries), (OpType::Write, 0));
        }
    }
}

#[test]
fn a_part_that_fails_keeps_the_call_from_publishing() {
    let (mut bench, local) = (Bench::new(16, fixed(16.0)), local(1, 20_000));
    let write = grant("192.0.2.2", OpType::Write, 1 << 20);
    let piece =
        Piece { grant: &write, remote_offset: 0, local: &local, local_offset: 0, len: 20_000 };
    let call = Call::of(core::slice::from_ref(&piece)).with(|it| it.publish = Publish::Ordered);
    bench.executor.submit(bench.now, &call).unwrap();
    let mut count = 0;
    let commands = bench.run(|_| {
        count += 1;
        if count == 2 { OpStatus::RemotePermissionDenied } else { OpStatus::Ok }
    });
    assert!(commands.iter().all(|it| matches!(it.op, CommandOp::Write(_))));
    let outcome = bench.outcome();
    assert_eq!(outcome.status, CallStatus::Failed(OpStatus::RemotePermissionDenied));
    let missing: u64 = outcome.missing.iter().map(|it| it.len).sum();
    assert_eq!(outcome.bytes_done + missing, 20_000);
    assert_eq!(outcome.missing.last().unwrap().tried, None, "the last bytes were not sent");
}

#[test]
fn calls_that_cannot_publish_as_they_say_are_refused() {
    let (mut bench, local) = (Bench::new(4, fixed(8.0)), local(1, 8192));
    let write = grant("192.0.2.2", OpType::Write, 8192);
    let read = grant("192.0.2.2", OpType::Read, 8192);
    let elsewhere = grant("192.0.2.3", OpType::WriteWithImm, 8192);
    let mut refusal = |grant, remote_offset, len, publish| {
        let piece = Piece { grant, remote_offset, local: &local, local_offset: 0, len };
        let call = Call::of(core::slice::from_ref(&piece)).with(|it| it.publish = publish);
        bench.executor.submit(bench.now, &call).unwrap_err()
    };
    let granted = OpType::Read;
    assert_eq!(refusal(&read, 0, 8, Publish::Ordered), CallError::NothingToPublish { granted });
    for (offset, len) in [(0, 7), (4, 8), (8, 4), (12, 4)] {
        let error = refusal(&write, offset, len, Publish::Ordered);
        assert_eq!(error, CallError::Misaligned { piece: 0, offset, len });
    }
    let with = |grant| Publish::WithImmediate { grant, immediate: 0, placement: Placement::Any };
    let error = refusal(&write, 0, 8, with(&elsewhere));
    assert_eq!(error, CallError::PublishElsewhere { piece: 0 });
    let error = refusal(&write, 0, 8, with(&write));
    assert!(matches!(
        error,
        CallError::Submit { error: SubmitError::GrantForAnotherOpType { .. }, .. }
    ));
    let grant = add();
    for remote_offset in [4096, 4089, u64::MAX - 7] {
        let change = Change::FetchAdd { remote_offset, addend: 1 };
        let error = bench.executor.submit_op(bench.now, &OpCall::of(&grant, change)).unwrap_err();
        let misaligned = remote_offset % 8 != 0;
        assert_eq!(matches!(error, CallError::Submit { .. }), misaligned, "{error}");
    }
    assert_eq!(bench.executor.calls(), 0);
}

#[test]
fn each_op_of_its_own_is_one_command_and_tells_its_result() {
    let local = local(1, 4096);
    let source = Source { region: &local, offset: 16, len: 24 };
    let remote_offset = 8;
    let changes = [
        Change::Send { message: source, immediate: 1 },
        Change::Notify { immediate: 2 },
        Change::OrderedWrite { remote_offset, source },
        Change::WriteWithImm { remote_offset, source, immediate: 3, placement: Placement::Any },
        Change::CompareSwap { remote_offset, expected: 4, new: 5 },
        Change::FetchAdd { remote_offset, addend: 6 },
    ];
    for change in changes {
        let mut bench = Bench::new(4, fixed(8.0));
        let grant = grant("192.0.2.2", change.op_type(), 4096);
        let call = bench.submit_op(&OpCall::of(&grant, change));
        let command = bench.next();
        assert_eq!(command.op.op_type(), change.op_type());
        assert_eq!(
            recorded(&command).immediate(),
            match change {
                Change::Send { immediate, .. } | Change::WriteWithImm { immediate, .. } =>
                    immediate,
                _ => 0,
            }
        );
        bench.end(Fate::Found(99));
        let outcome = bench.only_outcome();
        assert_eq!((outcome.call, outcome.status), (call, CallStatus::Ok));
        assert_eq!((outcome.op_type, outcome.result), (change.op_type(), Some(99)));
        assert_eq!(outcome.bytes_done, u64::from(command.op.op_size()));
        assert_eq!(bench.executor.calls(), 0);
    }
}

#[test]
fn a_done_op_is_named_by_the_next_op_on_the_region() {
    let (mut bench, grant) = (Bench::new(1, fixed(8.0)), add());
    for round in 0..3 {
        bench.submit_op(&OpCall::of(&grant, FETCH_ADD));
        let CommandOp::Recorded { done, .. } = bench.next().op else { panic!("it is recorded") };
        assert_eq!(done, (round > 0).then(|| NAME.into()));
        bench.end(Fate::Found(round));
        assert_eq!(bench.only_outcome().result, Some(round));
    }
}

#[test]
fn an_op_that_never_reached_its_target_is_issued_again_without_asking() {
    use OpStatus::{DispatchTimeout, Nack, Timeout};
    let (mut bench, grant) = (Bench::new(4, fixed(8.0)), add());
    bench.submit_op(&OpCall::of(&grant, FETCH_ADD));
    for status in [Nack, DispatchTimeout, Timeout, Nack] {
        assert_eq!(recorded(&bench.next()), RecordedOp::FetchAdd { remote_offset: 64, addend: 5 });
        bench.end(Fate::Ends(status));
    }
    bench.next();
    bench.end(Fate::Found(1));
    let outcome = bench.only_outcome();
    assert_eq!((outcome.status, outcome.retries), (CallStatus::Ok, 4));
}

#[test]
fn an_op_that_may_have_been_applied_is_settled_and_the_verdict_decides() {
    let grant = add();
    let settled = |answers: &[Fate]| {
        let mut bench = Bench::new(4, fixed(8.0));
        bench.submit_op(&OpCall::of(&grant, FETCH_ADD));
        assert!(!is_settle(&bench.next()));
        bench.end(Fate::Lost);
        for &answer in answers {
            assert!(is_settle(&bench.next()), "it is asked, and not repeated");
            bench.end(answer);
        }
        bench
    };
    let applied = Fate::Says(Verdict::Applied, Some(41));
    let nothing = [OpStatus::Nack, OpStatus::RemoteAuthenticationFailure, OpStatus::Timeout];
    for before in 0..=nothing.len() {
        let mut answers = nothing[..before].iter().map(|&it| Fate::Ends(it)).collect::<Vec<_>>();
        answers.push(applied);
        let outcome = settled(&answers).only_outcome();
        assert_eq!((outcome.status, outcome.result), (CallStatus::Ok, Some(41)));
        assert_eq!((outcome.bytes_done, outcome.retries), (8, 0));
    }
    let outcome = settled(&[Fate::Says(Verdict::Forgotten, None)]).only_outcome();
    assert_eq!((outcome.status, outcome.result), (CallStatus::Unknown, None));
    assert_eq!(outcome.missing[0].tried, Some(OpStatus::Timeout));
    let mut bench = settled(&[Fate::Says(Verdict::NotApplied, None)]);
    assert!(!is_settle(&bench.next()), "it was not applied, and never will be");
    bench.end(Fate::Found(3));
    let outcome = bench.only_outcome();
    assert_eq!((outcome.status, outcome.retries, outcome.result), (CallStatus::Ok, 1, Some(3)));
}

#[test]
fn a_target_that_says_nothing_is_asked_until_it_may_have_forgotten() {
    let grant = add();
    for answer in [OpStatus::Timeout, OpStatus::Nack, OpStatus::RemoteAuthenticationFailure] {
        let mut bench = Bench::new(4, fixed(8.0));
        bench.submit_op(&OpCall::of(&grant, FETCH_ADD));
        bench.next();
        bench.end(Fate::Lost);
        let (lost, mut asked) = (bench.now, 0);
        while bench.executor.over.is_empty() {
            if bench.take().is_empty() {
                if bench.executor.over.is_empty() {
                    bench.now = bench.now.max(bench.executor.poll_timeout().unwrap());
                }
            } else {
                assert_eq!(bench.taken.len(), 1);
                assert!(is_settle(bench.taken.front().unwrap()));
                bench.end(Fate::Ends(answer));
                asked += 1;
            }
        }
        let outcome = bench.outcome();
        assert_eq!(outcome.status, CallStatus::Unknown, "{answer}");
        assert!((3..=16).contains(&asked), "asked {asked} times after {answer}");
        let took = bench.now.since(lost);
        assert!(took >= 3 * T && took <= 5 * T + Duration::from_millis(1), "{took:?}");
    }
}

#[test]
fn a_call_ends_by_its_deadline_the_bound_of_its_op_and_that_of_one_settle() {
    let grant = add();
    let run = |answer: Option<Fate>| {
        let mut bench = Bench::new(4, fixed(8.0));
        let deadline = bench.now + T / 2;
        bench.submit_op(&OpCall::of(&grant, FETCH_ADD).with(|it| it.deadline = Some(deadline)));
        bench.next();
        bench.now = deadline;
        assert!(bench.take().is_empty());
        bench.end(Fate::Lost);
        if let Some(answer) = answer {
            assert!(is_settle(&bench.take()[0]), "asked at once");
            bench.end(answer);
        }
        bench.only_outcome()
    };
    assert_eq!(run(Some(Fate::Ends(OpStatus::Timeout))).status, CallStatus::Unknown);
    assert_eq!(run(Some(Fate::Ends(OpStatus::Nack))).status, CallStatus::Unknown);
    let applied = run(Some(Fate::Says(Verdict::Applied, Some(6))));
    assert_eq!((applied.status, applied.result), (CallStatus::Ok, Some(6)));
    let not_applied = run(Some(Fate::Says(Verdict::NotApplied, None)));
    assert_eq!(not_applied.status, CallStatus::DeadlineExceeded);
}

#[test]
fn a_call_that_is_cancelled_while_its_op_is_settled_says_unknown() {
    let (mut bench, grant) = (Bench::new(4, fixed(8.0)), add());
    let call = bench.submit_op(&OpCall::of(&grant, FETCH_ADD));
    bench.next();
    bench.end(Fate::Lost);
    assert!(is_settle(&bench.next()));
    bench.executor.cancel(call);
    assert!(bench.take().is_empty());
    assert!(bench.executor.poll_outcome().is_none(), "it is asked about still");
    bench.end(Fate::Ends(OpStatus::Timeout));
    assert_eq!(bench.only_outcome().status, CallStatus::Unknown);
    // Before anybody was asked, one is asked.
    let call = bench.submit_op(&OpCall::of(&grant, FETCH_ADD));
    bench.next();
    bench.executor.cancel(call);
    bench.end(Fate::Ends(OpStatus::Nack));
    assert_eq!(bench.only_outcome().status, CallStatus::Cancelled, "known not to be applied");
}

#[test]
fn no_receive_is_waited_for_with_a_back_off_and_cuts_no_window() {
    let grant = grant("192.0.2.2", OpType::Notify, 4096);
    let mut bench = Bench::new(4, CcConfigBuilder::software(RTT));
    let call = OpCall::of(&grant, Change::Notify { immediate: 5 });
    bench.submit_op(&call);
    let window = |bench: &Bench| {
        let cc = bench.executor.congestion_control();
        cc.window(cc.find(grant.responder, Moves::Out).unwrap()).cwnd()
    };
    let (mut last, mut waits, before) = (bench.now, Vec::new(), window(&bench));
    for _ in 0..20 {
        bench.next();
        waits.push(bench.now.since(last));
        bench.end(Fate::Ends(OpStatus::RemoteNotReady));
        last = bench.now;
        bench.executor.poll(bench.now);
        assert_eq!(window(&bench), before);
    }
    assert!(waits[1..].is_sorted(), "{waits:?}");
    assert_eq!(waits[1], Duration::from_micros(20));
    assert_eq!(waits[19], Duration::from_millis(5));
    bench.next();
    bench.end(Fate::Found(0));
    assert_eq!(bench.only_outcome().status, CallStatus::Ok);
    // For as long as its policy says.
    let not_ready = Duration::from_millis(20);
    bench.submit_op(&call.with(|it| it.retry.not_ready = not_ready));
    let begin = bench.now;
    while bench.executor.over.is_empty() {
        bench.next();
        bench.end(Fate::Ends(OpStatus::RemoteNotReady));
        bench.executor.poll(bench.now);
    }
    let (outcome, took) = (bench.outcome(), bench.now.since(begin));
    assert_eq!(outcome.status, CallStatus::Failed(OpStatus::RemoteNotReady));
    assert!(took >= not_ready && took <= not_ready + Duration::from_millis(1), "{took:?}");
    bench.submit_op(&call.with(|it| it.retry = RetryPolicy::NONE));
    bench.next();
    bench.end(Fate::Ends(OpStatus::RemoteNotReady));
    assert_eq!(bench.only_outcome().retries, 0);
}

#[test]
fn a_call_begins_when_those_before_it_are_ok_and_ends_if_one_is_not() {
    let (mut bench, grant) = (Bench::new(8, fixed(8.0)), add());
    let call = OpCall::of(&grant, FETCH_ADD);
    for failed in [None, Some(0), Some(1)] {
        let before = [bench.submit_op(&call), bench.submit_op(&call)];
        let last = bench.submit_op(&call.with(|it| it.after = before.map(Some)));
        let later = bench.submit_op(&call.with(|it| it.after = [Some(last), None]));
        assert_eq!(bench.take().len(), 2, "the last ones wait");
        for index in 0..2 {
            let status =
                if failed == Some(index) { OpStatus::RemoteOutOfBounds } else { OpStatus::Ok };
            bench.end(Fate::Ends(status));
            let next = usize::from(index == 1 && failed.is_none());
            assert_eq!(bench.take().len(), next);
        }
        let expected = match failed {
            None => {
                bench.end(Fate::Found(1));
                assert_eq!(bench.take().len(), 1);
                bench.end(Fate::Found(1));
                bench.executor.poll(bench.now);
                CallStatus::Ok
            }
            Some(_) => CallStatus::PredecessorFailed,
        };
        let mut statuses: Vec<_> = core::iter::from_fn(|| bench.executor.poll_outcome())
            .map(|it| (it.call, it.status))
            .collect();
        statuses.sort_by_key(|(call, _)| *call);
        assert_eq!(statuses.len(), 4);
        assert!(statuses.contains(&(last, expected)) && statuses.contains(&(later, expected)));
        let error =
            bench.executor.submit_op(bench.now, &call.with(|it| it.after = [Some(last), None]));
        assert_eq!(error, Err(CallError::NoSuchPredecessor { call: last }));
    }
    assert_eq!((bench.executor.calls(), bench.executor.active), (0, 0));
}

#[test]
fn a_fence_and_a_predecessor_are_both_waited_for() {
    let (mut bench, grant) = (Bench::new(8, fixed(8.0)), add());
    let call = OpCall::of(&grant, FETCH_ADD);
    let first = bench.submit_op(&call);
    bench.submit_op(&call);
    bench.executor.fence();
    bench.submit_op(&call.with(|it| it.after = [Some(first), None]));
    bench.executor.fence();
    bench.submit_op(&call);
    for under_way in [2, 1] {
        bench.take();
        assert_eq!(bench.taken.len(), under_way);
        bench.end(Fate::Found(0));
    }
    for _ in 0..2 {
        assert_eq!(bench.take().len(), 1);
        bench.end(Fate::Found(0));
    }
    bench.executor.poll(bench.now);
    assert_eq!(bench.executor.over.len(), 4);
}

#[test]
fn one_that_waits_for_another_can_be_given_up_and_its_place_used_again() {
    let config = ExecutorConfig { calls: 3, cc: fixed(8.0), ..ExecutorConfig::default() };
    let (mut bench, grant) = (Bench::with(4, config), add());
    let call = OpCall::of(&grant, FETCH_ADD);
    let first = bench.submit_op(&call);
    bench.next();
    for _ in 0..10 {
        let waits = bench.submit_op(&call.with(|it| it.after = [Some(first), Some(first)]));
        let other = bench.submit_op(&call.with(|it| it.after = [Some(waits), Some(first)]));
        assert!(bench.take().is_empty());
        bench.executor.cancel(waits);
        assert!(bench.take().is_empty());
        assert_eq!(bench.outcome().status, CallStatus::Cancelled);
        assert_eq!(bench.outcome().call, other);
    }
    assert!(!bench.executor.after.any());
    bench.end(Fate::Found(0));
    assert_eq!(bench.only_outcome().call, first);
}

proptest! {
    /// Whatever is lost: it is applied at most once, no attempt is made while the fate of another
    /// is unknown, and the outcome is right or says unknown.
    #[test]
    fn a_publishing_op_is_applied_at_most_once_and_its_outcome_is_never_wrong(
        fates in prop::collection::vec((0..8_u8, any::<bool>()), 1..60),
        (timeouts, refusals) in (0..4_u8, 0..4_u8),
        (deadline, cancel) in (prop::option::of(0..900_u64), prop::option::of(0..40_usize)),
        body: bool,
    ) {
        let (mut bench, local) = (Bench::new(4, fixed(8.0)), local(1, 20_000));
        let retry = RetryPolicy { timeouts, refusals, not_ready: T, ..RetryPolicy::DEFAULT };
        let deadline = deadline.map(|ms| bench.now + Duration::from_millis(ms));
        let write = grant("192.0.2.2", OpType::Write, 1 << 20);
        let len = 9000;
        let piece = Piece { grant: &write, remote_offset: 0, local: &local, local_offset: 0, len };
        let grant = add();
        let call = if body {
            let call = Call::of(core::slice::from_ref(&piece));
            let publish = Publish::Ordered;
            let call = Call { retry, deadline, publish, ..call };
            bench.executor.submit(bench.now, &call).unwrap()
        } else {
            bench.submit_op(&OpCall { retry, deadline, ..OpCall::of(&grant, FETCH_ADD) })
        };
        let (mut applied, mut is_unknown) = (false, false);
        let mut fates = fates.iter().cycle();
        for step in 0.. {
            prop_assert!(step < 10_000, "it ends");
            if cancel == Some(step) {
                bench.executor.cancel(call);
            }
            let new = bench.take();
            for command in &new {
                if let CommandOp::Recorded { .. } = command.op {
                    prop_assert!(!applied && !is_unknown, "not repeated blindly");
                }
            }
            if !bench.executor.over.is_empty() {
                break;
            }
            let Some(command) = bench.taken.front().copied() else {
                bench.now = bench.now.max(bench.executor.poll_timeout().expect("there is a call"));
                continue;
            };
            let &(kind, flag) = fates.next().unwrap();
            let failure = [
                OpStatus::Nack,
                OpStatus::Timeout,
                OpStatus::RemoteAuthenticationFailure,
                OpStatus::DispatchTimeout,
                OpStatus::RemoteNotReady,
            ];
            let fate = match (command.op, failure.get(usize::from(kind))) {
                (CommandOp::Settle { .. }, Some(&status)) => Fate::Ends(status),
                (CommandOp::Settle { .. }, None) if kind == 7 => {
                    Fate::Says(Verdict::Forgotten, None)
                }
                (CommandOp::Settle { .. }, None) => {
                    is_unknown = false;
                    let verdict = if applied { Verdict::Applied } else { Verdict::NotApplied };
                    Fate::Says(verdict, None)
                }
                (_, Some(&status)) => Fate::Ends(status),
                (CommandOp::Recorded { .. }, None) if kind < 7 => {
                    (applied, is_unknown) = (flag, true);
                    Fate::Lost
                }
                (CommandOp::Recorded { .. }, None) => {
                    applied = true;
                    Fate::Ends(OpStatus::Ok)
                }
                (_, None) => Fate::Ends(OpStatus::Ok),
            };
            bench.end(fate);
        }
        prop_assert!(bench.taken.is_empty());
        let outcome = bench.outcome();
        match outcome.status {
            CallStatus::Ok => prop_assert!(applied),
            CallStatus::Unknown => prop_assert!(is_unknown),
            _ => prop_assert!(!applied, "{:?}", outcome),
        }
        let missing: u64 = outcome.missing.iter().map(|it| it.len).sum();
        prop_assert_eq!(outcome.bytes_done + missing, if body { len } else { 8 });
        prop_assert_eq!(outcome.missing.is_empty(), outcome.status == CallStatus::Ok);
        prop_assert_eq!((bench.executor.calls(), bench.executor.active), (0, 0));
    }
}
