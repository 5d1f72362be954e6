//! Calls that publish, and calls of one recorded op, while their peer dies: all of them end in
//! time, and what they say is so. Time is the test's.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::{
    command::{Ending, RecordedOp},
    crypto::EngineId,
    outcome::{OpName, Verdict},
    portal::{Change, Placement, Source},
};

/// The NIC's timeout, by default.
const T: Duration = Duration::from_millis(100);
const PEER: &str = "192.0.2.2";

/// An op is answered after a round trip; its data is there after three quarters of one.
const APPLIED_AFTER: Duration = Duration::from_nanos(7_500);

/// Bytes that a call with a body has for itself.
const SPAN: u64 = 1 << 15;

/// The life of the peer.
#[derive(Clone, Copy, Debug)]
struct Life {
    dies: Instant,
    /// When it is back, and has forgotten everything.
    returns: Option<Instant>,
}

impl Life {
    fn is_there(self, at: Instant) -> bool {
        at < self.dies || self.has_returned(at)
    }

    fn has_returned(self, at: Instant) -> bool {
        self.returns.is_some_and(|it| it <= at)
    }
}

/// An executor, its engine, and the peer, by the names of calls.
struct World {
    bench: Bench,
    life: Life,
    issued: u64,
    under_way: BTreeMap<(Instant, u64), (Command, OpStatus, Ending)>,
    /// By the counters of their names: whose op it is.
    named: BTreeMap<u64, u64>,
    /// Calls whose recorded ops were applied.
    applied: BTreeSet<u64>,
    /// Calls of which an op was lost after its data had been sent.
    lost: BTreeSet<u64>,
}

/// Returns the call that an op is of.
fn call_of(op: &RecordedOp) -> u64 {
    match *op {
        RecordedOp::Send { immediate, .. }
        | RecordedOp::Notify { immediate }
        | RecordedOp::WriteWithImm { immediate, .. } => immediate,
        RecordedOp::OrderedWrite(transfer) => transfer.remote_offset / SPAN,
        RecordedOp::FetchAdd { remote_offset, .. }
        | RecordedOp::CompareSwap { remote_offset, .. } => remote_offset / 8,
    }
}

impl World {
    /// Returns the end of a command, and its time.
    fn fate(&mut self, command: &Command) -> (Instant, OpStatus, Ending) {
        let (now, life) = (self.bench.now, self.life);
        let answered = life.is_there(now) && life.is_there(now + RTT);
        let late = (now + T, OpStatus::Timeout, Ending::NONE);
        match command.op {
            CommandOp::Settle { name, .. } if answered => {
                let call = self.named[&name.counter];
                let verdict = match (life.has_returned(now), self.applied.contains(&call)) {
                    (true, _) => Verdict::Forgotten,
                    (false, true) => Verdict::Applied,
                    (false, false) => Verdict::NotApplied,
                };
                (now + RTT, OpStatus::Ok, Ending::NONE.named(name).settled(verdict))
            }
            CommandOp::Recorded { op, .. } if life.is_there(now) => {
                let (call, counter) = (call_of(&op), 1 + self.issued);
                self.named.insert(counter, call);
                if life.is_there(now + APPLIED_AFTER) {
                    assert!(self.applied.insert(call), "applied twice: {op:?}");
                }
                let name = OpName { engine: EngineId(0), counter, number: 300 };
                let ending = Ending::NONE.reached().named(name);
                if answered {
                    return (now + RTT, OpStatus::Ok, ending.with_result(0));
                }
                self.lost.insert(call);
                (now + T, OpStatus::Timeout, ending.may_have_changed())
            }
            CommandOp::Settle { .. } | CommandOp::Recorded { .. } => late,
            _ if answered => (now + RTT, OpStatus::Ok, Ending::NONE),
            _ => late,
        }
    }

    /// Runs until nothing is left to be done. Returns what is over, and when it was.
    fn run(&mut self) -> Vec<(Outcome, Instant)> {
        let mut over = Vec::new();
        loop {
            for command in self.bench.take() {
                let (at, status, ending) = self.fate(&command);
                self.under_way.insert((at, self.issued), (command, status, ending));
                self.issued += 1;
            }
            self.bench.taken.clear();
            let now = self.bench.now;
            over.extend(
                core::iter::from_fn(|| self.bench.executor.poll_outcome()).map(|it| (it, now)),
            );
            let next = self.under_way.first_key_value().map(|(&(at, _), _)| at);
            let timer = self.bench.executor.poll_timeout();
            let Some(next) = [next, timer].into_iter().flatten().min() else { return over };
            self.bench.now = now.max(next);
            while let Some(entry) = self.under_way.first_entry()
                && entry.key().0 <= self.bench.now
            {
                let (command, status, ending) = entry.remove();
                let completion = Completion::new(command.slot, status, 0, 10_000);
                self.bench.port.complete(&completion.ending(ending));
            }
        }
    }
}

/// Submits calls of each kind, each named by its number, and says which.
fn submit(world: &mut World, deadline: Option<Instant>) -> BTreeMap<CallId, u64> {
    let local = local(1, SPAN);
    let source = Source { region: &local, offset: 0, len: 3000 };
    let [send, notify, imm, write, add, swap] = [
        OpType::Send,
        OpType::Notify,
        OpType::WriteWithImm,
        OpType::Write,
        OpType::FetchAdd,
        OpType::CompareSwap,
    ]
    .map(|op_type| grant(PEER, op_type, 1 << 30));
    let mut calls = BTreeMap::new();
    for round in 0..3 {
        for kind in 0..7 {
            let number = round * 7 + kind;
            let op = |grant, change| OpCall::of(grant, change).with(|it| it.deadline = deadline);
            let (immediate, placement) = (number, Placement::Any);
            let (remote_offset, len) = (number * SPAN, 20_000);
            let Bench { executor, now, .. } = &mut world.bench;
            let submitted = match kind {
                0 => executor
                    .submit_op(*now, &op(&send, Change::Send { message: source, immediate })),
                1 => executor.submit_op(*now, &op(&notify, Change::Notify { immediate })),
                2 => {
                    let change =
                        Change::WriteWithImm { remote_offset, source, immediate, placement };
                    executor.submit_op(*now, &op(&imm, change))
                }
                3 => {
                    let change = Change::FetchAdd { remote_offset: number * 8, addend: 1 };
                    executor.submit_op(*now, &op(&add, change))
                }
                4 => {
                    let remote_offset = number * 8;
                    let change = Change::CompareSwap { remote_offset, expected: 0, new: 1 };
                    executor.submit_op(*now, &op(&swap, change))
                }
                _ => {
                    let publish = if kind == 5 {
                        Publish::Ordered
                    } else {
                        Publish::WithImmediate { grant: &imm, immediate, placement }
                    };
                    let piece =
                        Piece { grant: &write, remote_offset, local: &local, local_offset: 0, len };
                    let call = Call::of(core::slice::from_ref(&piece));
                    let call = call.with(|it| (it.publish, it.deadline) = (publish, deadline));
                    executor.submit(*now, &call)
                }
            };
            calls.insert(submitted.unwrap(), number);
        }
    }
    calls
}

//= channels#P1-bounds
//= type=test
#[test]
fn calls_that_publish_end_in_time_while_their_peer_dies_and_say_what_is_so() {
    let (mut unknown, mut silent, mut settled) = (0, 0, 0);
    for deadline in [None, Some(Duration::from_micros(40)), Some(T / 2), Some(3 * T)] {
        for returns in [None, Some(T / 4), Some(5 * T / 2)] {
            for phase in 0..40 {
                let bench = Bench::with(64, ExecutorConfig { calls: 64, ..Default::default() });
                let began = bench.now;
                let dies = began + Duration::from_nanos(phase * 2_500);
                let life = Life { dies, returns: returns.map(|it| dies + it) };
                let (under_way, named) = Default::default();
                let (applied, lost) = Default::default();
                let mut world = World { bench, life, issued: 0, under_way, named, applied, lost };
                let deadline = deadline.map(|it| began + it);
                let calls = submit(&mut world, deadline);
                let over = world.run();
                let text = format!("{life:?}, {deadline:?}");
                assert_eq!(over.len(), calls.len(), "every call ends: {text}");
                assert_eq!((world.bench.executor.calls(), world.bench.executor.active), (0, 0));
                for (outcome, at) in over {
                    let number = calls[&outcome.call];
                    let is_applied = world.applied.contains(&number);
                    let is_lost = world.lost.contains(&number);
                    match outcome.status {
                        CallStatus::Ok => assert!(is_applied, "{outcome:?}: {text}"),
                        CallStatus::Unknown => assert!(is_lost, "{outcome:?}: {text}"),
                        _ => assert!(!is_applied, "{outcome:?}: {text}"),
                    }
                    unknown += u64::from(outcome.status == CallStatus::Unknown);
                    silent += u64::from(matches!(outcome.status, CallStatus::PeerSilent { .. }));
                    settled += u64::from(is_lost && outcome.status == CallStatus::Ok);
                    // With a deadline: that, an op of before it, and one SETTLE. Without: until
                    // the peer is called silent, or may have forgotten.
                    let most = deadline.map_or(dies + 8 * T, |it| it + 2 * T);
                    let most = most + Duration::from_millis(1);
                    assert!(at <= most, "{:?} too late: {outcome:?}: {text}", at.since(most));
                }
            }
        }
    }
    assert!(unknown > 0 && silent > 0, "{unknown} unknown, {silent} of a silent peer");
    assert_eq!(settled, 0, "who is back has forgotten");
}
