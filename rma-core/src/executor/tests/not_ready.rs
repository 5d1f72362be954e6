//! Ops that find no receive posted: in which order they get in, and how often they ask.

use std::collections::{BTreeMap, HashMap};

use super::*;
use crate::portal::Change;

/// How long a frame is on its way.
const HOP: Duration = Duration::from_micros(5);

/// An event at a time.
#[derive(Clone, Copy, Debug)]
enum Happens {
    /// An op of this executor comes to the queue.
    Comes(usize, Command),
    /// Its completion is back.
    IsBack(usize, Command, OpStatus),
    /// The receiver is done with a message, and posts its receive again.
    Posts,
}

/// Executors whose ops go to one queue, each with as many under way as the application keeps.
struct World {
    benches: Vec<Bench>,
    happens: BTreeMap<(Instant, u64), Happens>,
    number: u64,
    now: Instant,
    /// Receives that are posted.
    posted: usize,
    /// When the receiver is done with what it has.
    is_busy_until: Instant,
    /// How long it takes for a message. `None`: it stands still.
    service: Option<Duration>,
    /// When each call began.
    began: HashMap<(usize, CallId), Instant>,
    /// How long each call took that is over.
    took: Vec<Duration>,
    /// How many failed, and how often the queue was asked.
    failed: usize,
    asked: usize,
}

impl World {
    fn new(executors: usize, posted: usize, service: Option<Duration>) -> Self {
        let benches: Vec<_> = (0..executors).map(|_| Bench::new(64, fixed(64.0))).collect();
        let now = benches[0].now;
        Self {
            benches,
            happens: BTreeMap::new(),
            number: 0,
            now,
            posted,
            is_busy_until: now,
            service,
            began: HashMap::new(),
            took: Vec::new(),
            failed: 0,
            asked: 0,
        }
    }

    fn in_time(&mut self, at: Instant, happens: Happens) {
        self.number += 1;
        self.happens.insert((at, self.number), happens);
    }

    fn submit(&mut self, which: usize) {
        let grant = grant("192.0.2.2", OpType::Notify, 4096);
        let bench = &mut self.benches[which];
        bench.now = self.now;
        let call = bench.submit_op(&OpCall::of(&grant, Change::Notify { immediate: 5 }));
        self.began.insert((which, call), self.now);
    }

    /// Each executor issues what it may; what is over begins anew if `again`.
    fn turn(&mut self, again: bool) {
        for which in 0..self.benches.len() {
            self.benches[which].now = self.now;
            for command in self.benches[which].take() {
                self.in_time(self.now + HOP, Happens::Comes(which, command));
            }
            while let Some(outcome) = self.benches[which].executor.poll_outcome() {
                let began = self.began.remove(&(which, outcome.call)).expect("it was begun");
                self.took.push(self.now.since(began));
                self.failed += usize::from(outcome.status != CallStatus::Ok);
                if again {
                    self.submit(which);
                }
            }
        }
    }

    fn take_place(&mut self, happens: Happens) {
        match happens {
            Happens::Comes(which, command) => {
                self.asked += 1;
                let status = match self.posted.checked_sub(1) {
                    Some(posted) => {
                        self.posted = posted;
                        if let Some(service) = self.service {
                            self.is_busy_until = self.is_busy_until.max(self.now) + service;
                            self.in_time(self.is_busy_until, Happens::Posts);
                        }
                        OpStatus::Ok
                    }
                    None => OpStatus::RemoteNotReady,
                };
                self.in_time(self.now + HOP, Happens::IsBack(which, command, status));
            }
            Happens::IsBack(which, command, status) => {
                self.benches[which].port.complete(&Completion::new(command.slot, status, 0, 5_000));
            }
            Happens::Posts => self.posted += 1,
        }
    }

    fn run(&mut self, length: Duration, again: bool) {
        let end = self.now + length;
        loop {
            self.turn(again);
            let benches = self.benches.iter().filter_map(|bench| bench.executor.poll_timeout());
            let next = self.happens.keys().map(|(at, _)| *at).next();
            let Some(at) = benches.chain(next).min().filter(|at| *at <= end) else { break };
            // An op that is asked for now may follow in the next turn.
            self.now = self.now.max(at) + Duration::from_nanos(100);
            while let Some((&(at, number), _)) = self.happens.first_key_value()
                && at <= self.now
            {
                let happens = self.happens.remove(&(at, number)).expect("it is there");
                self.take_place(happens);
            }
        }
    }
}

#[test]
fn waiters_for_a_slow_receiver_get_in_nearly_in_order() {
    let (executors, each) = (4, 16);
    let service = Duration::from_micros(100);
    let mut world = World::new(executors, 8, Some(service));
    for which in 0..executors {
        (0..each).for_each(|_| world.submit(which));
    }
    world.run(Duration::from_secs(4), true);
    world.took.sort();
    let longest = *world.took.last().expect("some are over");
    // One after the other, each would take as long as all that are under way.
    let fair = service * (executors * each) as u32;
    assert_eq!(world.failed, 0);
    assert!(longest <= 16 * fair, "the longest took {longest:?}, with {fair:?} for all");
    // The receiver has something to do nearly always.
    let served = world.took.len() as u32 * service;
    assert!(served >= Duration::from_secs(3), "{served:?} of 4 s");
}

#[test]
fn a_receiver_that_stands_still_is_asked_by_one_op_of_an_executor_and_all_end_in_time() {
    let mut world = World::new(1, 0, None);
    let each = 200;
    (0..each).for_each(|_| world.submit(0));
    world.run(Duration::from_secs(3), false);
    let asked = world.asked;
    assert_eq!((world.failed, world.took.len()), (each, each));
    let longest = world.took.iter().max().expect("all are over");
    assert!(*longest <= Duration::from_millis(1010), "{longest:?}");
    // Each once when it begins and once when its time is over; and one again and again.
    assert!(asked <= 2 * each + 1200, "asked {asked} times");
}

#[test]
fn those_in_line_go_on_when_the_one_that_asks_is_given_up() {
    let mut world = World::new(1, 0, None);
    let grant = grant("192.0.2.2", OpType::Notify, 4096);
    let call = OpCall::of(&grant, Change::Notify { immediate: 5 });
    let first = world.benches[0].submit_op(&call);
    world.began.insert((0, first), world.now);
    (0..3).for_each(|_| world.submit(0));
    world.run(Duration::from_millis(200), false);
    world.benches[0].executor.cancel(first);
    world.turn(false);
    (world.posted, world.failed) = (3, 0);
    let before = world.now;
    world.run(Duration::from_millis(20), false);
    assert_eq!((world.took.len(), world.failed), (4, 0));
    assert!(world.now.since(before) <= Duration::from_millis(20));
}

/// An op that is refused at once, and the two behind it, which stand in line: the next command is
/// that of the second, as the first is given up.
fn follower() -> (Bench, [CallId; 3]) {
    let mut bench = Bench::new(64, fixed(64.0));
    let calls = [0; 3].map(|_| notify(&mut bench, "192.0.2.2"));
    end(&mut bench, OpStatus::RemoteNotReady, 3);
    assert!(bench.take().is_empty(), "the first waits, and the others stand in line");
    bench.executor.cancel(calls[0]);
    (bench, calls)
}

fn notify(bench: &mut Bench, host: &str) -> CallId {
    let grant = grant(host, OpType::Notify, 4096);
    bench.submit_op(&OpCall::of(&grant, Change::Notify { immediate: 5 }))
}

/// All that is issued now ends so: that many.
fn end(bench: &mut Bench, status: OpStatus, count: usize) {
    assert_eq!(bench.take().len(), count);
    for _ in 0..count {
        bench.complete(status);
    }
}

#[test]
fn those_in_line_go_on_though_another_host_refuses_just_when_nobody_asks_here() {
    let (mut bench, _) = follower();
    assert_eq!(bench.take().len(), 1);
    let follower = bench.taken.pop_front().expect("it was taken");
    notify(&mut bench, "192.0.2.3");
    end(&mut bench, OpStatus::RemoteNotReady, 1);
    bench.take();
    bench.taken.push_front(follower);
    bench.complete(OpStatus::Ok);
    assert_eq!(bench.take().len(), 1, "the third is next, at once");
}

#[test]
fn those_in_line_go_on_when_the_one_that_was_to_follow_is_given_up() {
    let (mut bench, calls) = follower();
    assert_eq!(bench.take().len(), 1);
    bench.executor.cancel(calls[1]);
    assert_eq!(bench.take().len(), 1, "the third is next, at once");
}
