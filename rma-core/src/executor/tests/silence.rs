//! Remote NICs that do not answer: states, probes, and what becomes of calls. Time is the test's.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// The NIC's timeout.
const T: Duration = Duration::from_millis(100);

/// The outage of a host from one time to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outage {
    /// It is stopped, and answers afterwards what has come meanwhile.
    Paused,
    /// Every frame is lost.
    Gone,
}

/// A network of hosts that answer after a round trip of 10 µs, unless they are out.
struct World {
    bench: Bench,
    start: Instant,
    outages: Vec<(HostAddr, Instant, Instant, Outage)>,
    /// Commands of which exactly these are lost, by their number.
    lost: BTreeSet<u64>,
    issued: u64,
    under_way: BTreeMap<(Instant, u64), (Command, OpStatus)>,
    /// The hosts that are asked, and the times.
    asked: Vec<(Instant, HostAddr)>,
    begun: BTreeMap<CallId, Instant>,
    /// The outcomes, with the time that each took, and its moment.
    over: Vec<(Outcome, Duration, Instant)>,
    local: Arc<RegisteredRegion>,
}

impl World {
    fn new(slots: u16, config: ExecutorConfig) -> Self {
        let bench = Bench::with(slots, config);
        Self {
            start: bench.now,
            bench,
            outages: Vec::new(),
            lost: BTreeSet::new(),
            issued: 0,
            under_way: BTreeMap::new(),
            asked: Vec::new(),
            begun: BTreeMap::new(),
            over: Vec::new(),
            local: Arc::new(local(1, 1 << 20)),
        }
    }

    fn default() -> Self {
        Self::new(64, ExecutorConfig::default())
    }

    fn out(&mut self, host: &str, from: Duration, until: Duration, outage: Outage) {
        self.outages.push((addr(host), self.start + from, self.start + until, outage));
    }

    fn at(&self) -> Duration {
        self.bench.now.since(self.start)
    }

    fn submit(&mut self, host: &str, op_type: OpType, len: u64, retry: RetryPolicy) -> CallId {
        let grant = grant(host, op_type, 1 << 20);
        let local = self.local.clone();
        let piece =
            [Piece { grant: &grant, remote_offset: 0, local: &local, local_offset: 0, len }];
        let call = Call { retry, ..Call::of(&piece) };
        self.submit_call(&call)
    }

    fn submit_call(&mut self, call: &Call<'_>) -> CallId {
        let id = self.bench.executor.submit(self.bench.now, call).unwrap();
        self.begun.insert(id, self.bench.now);
        id
    }

    fn read(&mut self, host: &str, retry: RetryPolicy) -> CallId {
        self.submit(host, OpType::Read, 64, retry)
    }

    /// Lets the executor look, once, and takes what it issues and what is over.
    fn poll(&mut self) {
        for command in self.bench.take() {
            self.bench.taken.clear();
            let now = self.bench.now;
            self.asked.push((now, command.responder));
            let rtt = Duration::from_micros(10);
            let is_out = |&&(host, from, until, _): &&(HostAddr, Instant, Instant, Outage)| {
                host == command.responder && (from..until).contains(&now)
            };
            let (after, status) = match self.outages.iter().find(is_out) {
                _ if self.lost.contains(&self.issued) => (T, OpStatus::Timeout),
                None => (rtt, OpStatus::Ok),
                Some(&(.., until, Outage::Paused)) if until.since(now) + rtt < T => {
                    (until.since(now) + rtt, OpStatus::Ok)
                }
                Some(_) => (T, OpStatus::Timeout),
            };
            self.under_way.insert((now + after, self.issued), (command, status));
            self.issued += 1;
        }
        while let Some(outcome) = self.bench.executor.poll_outcome() {
            let took = self.bench.now.since(self.begun.remove(&outcome.call).unwrap());
            self.over.push((outcome, took, self.bench.now));
        }
    }

    /// Runs until `until`, or until nothing is left to be done if that is before.
    fn run(&mut self, until: Duration) {
        let end = self.start + until;
        loop {
            self.poll();
            let next = self.under_way.first_key_value().map(|(&(at, _), _)| at);
            let timer = self.bench.executor.poll_timeout();
            let next = [next, timer].into_iter().flatten().min();
            let Some(next) = next.filter(|&at| at <= end) else { break };
            self.bench.now = self.bench.now.max(next);
            while let Some(entry) = self.under_way.first_entry()
                && entry.key().0 <= self.bench.now
            {
                let (command, status) = entry.remove();
                self.bench.port.complete(&Completion::new(command.slot, status, 0, 10_000));
            }
        }
        if until < Duration::MAX {
            self.bench.now = end;
        }
    }

    fn silent(&self) -> (usize, usize, usize) {
        let SilentPeers { suspect, dead, probing } = self.bench.executor.silent_peers();
        (suspect, dead, probing)
    }

    /// How many calls ended with each status, whatever else that says.
    fn count(&self, is: impl Fn(CallStatus) -> bool) -> usize {
        self.over.iter().filter(|(outcome, ..)| is(outcome.status)).count()
    }

    fn cwnd(&self, host: &str) -> f64 {
        let cc = &self.bench.executor.cc;
        cc.remote_cwnd(cc.find(addr(host), Moves::In).unwrap())
    }
}

fn is_silent(status: CallStatus) -> bool {
    matches!(status, CallStatus::PeerSilent { .. })
}

const A: &str = "192.0.2.2";
const B: &str = "192.0.2.3";
const FOREVER: Duration = Duration::from_secs(1 << 30);

#[test]
fn states_follow_from_what_comes_and_what_does_not() {
    let mut world = World::default();
    let patient = RetryPolicy { outlast: Some(FOREVER), ..RetryPolicy::DEFAULT };
    world.out(A, Duration::ZERO, 20 * T, Outage::Gone);
    for _ in 0..3 {
        world.read(A, patient);
    }
    world.run(T / 2);
    assert_eq!((world.silent(), world.issued), ((0, 0, 0), 3), "nothing is known yet");
    world.read(A, patient);
    world.run(T);
    assert_eq!(world.silent(), (1, 0, 0), "three silent timeouts make a suspect");
    assert_eq!(world.issued, 5, "the fourth op was under way, and there is one probe");
    world.run(T * 3 / 2 + Duration::from_micros(1));
    assert_eq!(world.silent(), (0, 0, 1), "the fourth makes it dead, and it is being probed");
    // A probe every three quarters of a timeout, and nothing else.
    let before = world.issued;
    world.run(T * 3 / 2 + 3 * T);
    assert_eq!(world.issued - before, 4);
    world.run(20 * T - Duration::from_micros(1));
    assert_eq!(world.over.len(), 0);
    // The next probe is answered, and what waits follows in the same poll.
    world.run(FOREVER);
    assert_eq!((world.silent(), world.count(|it| it == CallStatus::Ok)), ((0, 0, 0), 4));
    let (_, _, at) = world.over[3];
    assert!(at.since(world.start) < 20 * T + T * 3 / 4 + Duration::from_micros(100));
}

#[test]
fn a_probe_that_times_out_makes_a_suspect_dead() {
    let mut world = World::default();
    world.out(A, Duration::ZERO, FOREVER, Outage::Gone);
    world.read(A, RetryPolicy::DEFAULT);
    world.run(2 * T - Duration::from_micros(1));
    assert_eq!((world.silent(), world.issued), ((1, 0, 0), 2), "a probe");
    world.run(2 * T);
    assert_eq!(world.silent(), (0, 1, 0), "too little of the call's time is left for another");
    world.run(FOREVER);
    let (outcome, took, _) = &world.over[0];
    assert!(is_silent(outcome.status) && *took < 3 * T, "{outcome:?} after {took:?}");
    assert_eq!(world.silent(), (0, 1, 0), "nobody asks, so nothing is sent");
}

#[test]
fn one_frame_lost_of_many_is_no_suspicion_and_is_congestion() {
    let mut world = World::default();
    world.lost.insert(7);
    world.submit(A, OpType::Read, 1 << 20, RetryPolicy::DEFAULT);
    world.run(T - Duration::from_micros(1));
    let before = world.cwnd(A);
    let mut next = world.at();
    while world.issued < 4000 {
        assert_eq!(world.silent(), (0, 0, 0));
        next += Duration::from_millis(1);
        world.submit(A, OpType::Read, 40_000, RetryPolicy::NONE);
        world.run(next);
    }
    assert_eq!(world.count(|it| it == CallStatus::Ok), world.over.len());
    assert_eq!(world.over.iter().map(|(it, ..)| it.retries).sum::<u32>(), 1);
    assert!(before > 1.0);
}

#[test]
fn nothing_is_issued_to_a_suspect_but_a_probe() {
    let mut world = World::default();
    world.out(A, Duration::ZERO, FOREVER, Outage::Gone);
    for _ in 0..3 {
        world.read(A, RetryPolicy::NONE);
    }
    world.run(T - Duration::from_micros(1));
    for op_type in [OpType::Read, OpType::Write] {
        // Small ones and large ones, which would take all slots.
        for _ in 0..100 {
            world.submit(A, op_type, 64, RetryPolicy::DEFAULT);
            world.submit(A, op_type, 1 << 20, RetryPolicy::DEFAULT);
        }
    }
    // Ops that were submitted before the first timeout are issued; then it is one at a time.
    world.bench.now = world.start + T;
    for (_, (command, status)) in core::mem::take(&mut world.under_way) {
        world.bench.port.complete(&Completion::new(command.slot, status, 0, 10_000));
    }
    let before = world.issued;
    world.poll();
    assert_eq!((world.issued - before, world.silent()), (1, (1, 0, 0)));
    assert_eq!(world.over.len(), 3, "they had no retries");
}

#[test]
fn a_pause_of_two_timeouts_fails_no_call_with_the_default_policy() {
    for pause in [T / 2, T * 3 / 2, T * 2] {
        for phase in 0..20 {
            let mut world = World::default();
            let from = Duration::from_micros(500 * phase + 100);
            world.out(A, from, from + pause, Outage::Paused);
            let mut submitted = 0;
            for tick in 0..1000 {
                // Few now and then, or many at once.
                if tick % (phase + 1) == 0 && world.begun.len() < 900 {
                    let op_type = [OpType::Read, OpType::Read, OpType::Write][tick as usize % 3];
                    world.submit(A, op_type, 64 + 900 * (tick % 7), RetryPolicy::DEFAULT);
                    submitted += 1;
                }
                world.run(Duration::from_micros(500) * (tick as u32 + 1));
            }
            world.run(FOREVER);
            let ok = world.count(|it| it == CallStatus::Ok);
            assert_eq!(ok, submitted, "a pause of {pause:?} from {from:?}: {:?}", world.over);
        }
    }
}

#[test]
fn all_that_is_queued_for_a_dead_host_ends_in_one_poll_and_was_not_tried() {
    for op_type in [OpType::Read, OpType::Write] {
        let mut world = World::default();
        world.out(A, Duration::ZERO, FOREVER, Outage::Gone);
        for _ in 0..200 {
            world.submit(A, op_type, 4096, RetryPolicy::NONE);
        }
        world.run(FOREVER);
        let untried = |(outcome, took, _): &&(Outcome, Duration, Instant)| {
            let is_tried = outcome.missing[0].tried.is_some();
            assert!(
                *took < if is_tried { 2 * T } else { T } + Duration::from_micros(200),
                "{took:?}"
            );
            assert!(is_tried || is_silent(outcome.status), "{outcome:?}");
            !is_tried
        };
        let untried: Vec<_> = world.over.iter().filter(untried).collect();
        // 16 by the window, and the one that was the probe of a suspect.
        assert_eq!(untried.len(), 200 - 17);
        assert!(untried.iter().all(|(.., at)| *at == untried[0].2), "in one poll");
        let CallStatus::PeerSilent { since, tried } = untried[0].0.status else { unreachable!() };
        assert!(since >= T && tried >= 4);
        // A call that comes later is told at once, but for one probe now and then.
        let submitted = world.bench.now;
        let (issued, over) = (world.issued, world.over.len());
        for _ in 0..1000 {
            world.read(A, RetryPolicy::NONE);
        }
        world.poll();
        assert_eq!((world.issued - issued, world.over.len() - over), (1, 999));
        assert!(world.over[over..].iter().all(|(.., at)| *at == submitted));
    }
}

#[test]
fn both_directions_of_a_host_are_silent_together_and_no_other_host_is() {
    let mut world = World::default();
    world.out(A, Duration::ZERO, FOREVER, Outage::Gone);
    for _ in 0..4 {
        world.read(A, RetryPolicy::NONE);
        world.read(B, RetryPolicy::NONE);
    }
    world.run(T + Duration::from_micros(50));
    assert_eq!(world.count(|it| it == CallStatus::Ok), 4);
    world.over.clear();
    // The first is a probe.
    for _ in 0..2 {
        world.submit(A, OpType::Write, 64, RetryPolicy::NONE);
        world.submit(B, OpType::Write, 64, RetryPolicy::NONE);
    }
    world.run(T + Duration::from_micros(100));
    assert_eq!(world.over.len(), 3);
    assert_eq!(world.count(is_silent), 1);
}

#[test]
fn half_of_two_hundred_hosts_can_be_gone() {
    let hosts: Vec<String> = (0..200).map(|host| format!("10.0.0.{host}")).collect();
    let mut world = World::default();
    let gone = |host: usize| host.is_multiple_of(2);
    for (number, host) in hosts.iter().enumerate() {
        if gone(number) {
            world.out(host, T, 40 * T, Outage::Gone);
        }
    }
    // Each has a task that waits for its calls: those of the dead have patience.
    let mut patient = 0;
    let mut served = Vec::new();
    for tick in 0..800_u32 {
        let now = T / 10 * tick;
        let mut ok = [0; 2];
        for (number, host) in hosts.iter().enumerate() {
            let waits = world.begun.len() >= 900;
            if !waits {
                world.read(host, RetryPolicy::NONE);
            }
            if gone(number) && now > T && patient < 100 {
                patient += 1;
                let outlast = Some(FOREVER);
                world.read(host, RetryPolicy { outlast, ..RetryPolicy::DEFAULT });
            }
        }
        world.over.clear();
        world.run(T / 10 * (tick + 1));
        let probes = world.under_way.values().filter(|(_, it)| *it == OpStatus::Timeout).count();
        if now > 4 * T {
            assert!(probes <= 8, "{probes} slots of 64 at {now:?}");
        }
        for (outcome, ..) in world.over.iter().filter(|it| it.0.status == CallStatus::Ok) {
            let number = hosts.iter().position(|it| addr(it) == outcome.responder).unwrap();
            ok[usize::from(gone(number))] += 1;
        }
        served.push(ok);
    }
    // Each of those who are gone has held a slot for a timeout before anything was known of it, and
    // there are fewer slots.
    for (tick, ok) in served.iter().enumerate().skip(31) {
        assert_eq!(ok[0], 100, "tick {tick}: all who are there are served");
    }
    // In turns: each of the hundred was asked while they were gone.
    let during = |(at, _): &&(Instant, HostAddr)| (5 * T..40 * T).contains(&at.since(world.start));
    let asked: BTreeSet<_> = world.asked.iter().filter(during).map(|it| it.1).collect();
    assert_eq!(asked.len(), 200);
    // And they are back when they are.
    world.run(FOREVER);
    assert_eq!((world.silent(), world.begun.len()), ((0, 0, 0), 0));
    assert_eq!(served.last().unwrap(), &[100, 100]);
}

#[test]
fn windows_are_kept_through_a_silence_and_halved_after_it() {
    let mut world = World::default();
    world.out(A, Duration::from_millis(3), Duration::from_millis(3) + 3 * T, Outage::Gone);
    let outlast = Some(FOREVER);
    let retry = RetryPolicy { outlast, ..RetryPolicy::DEFAULT };
    world.submit(A, OpType::Read, 1 << 20, retry);
    world.run(Duration::from_millis(2));
    for _ in 0..20 {
        world.submit(A, OpType::Read, 1 << 20, retry);
    }
    world.run(Duration::from_millis(3) + T - Duration::from_micros(1));
    let kept = world.cwnd(A);
    assert!(kept > 4.0, "{kept}");
    world.run(3 * T);
    assert_eq!(world.cwnd(A), kept, "silence is not congestion");
    // As the answer to the probe is taken.
    while world.silent() != (0, 0, 0) {
        let next = world.at() + Duration::from_micros(5);
        world.run(next);
    }
    let after = world.cwnd(A);
    assert!((kept / 2.0..kept / 2.0 + 1.0).contains(&after), "{kept} before, {after} after");
    // Late timeouts of the silence change nothing.
    world.run(FOREVER);
    assert!(world.cwnd(A) >= after && world.count(|it| it == CallStatus::Ok) == 21);
}

#[test]
fn ops_overtaken_by_the_last_answers_of_a_host_that_died_cut_no_window() {
    let mut bench = Bench::new(16, CcConfigBuilder::software(RTT));
    let (local, grant) = (local(1, 64), grant(A, OpType::Read, 64));
    let pieces =
        [Piece { grant: &grant, remote_offset: 0, local: &local, local_offset: 0, len: 64 }];
    for _ in 0..8 {
        bench.submit(&pieces);
    }
    // In their pace.
    let issue = |bench: &mut Bench, count: usize| {
        while bench.taken.len() < count {
            bench.take();
            bench.now = bench.now + RTT;
        }
    };
    issue(&mut bench, 8);
    let window = |bench: &Bench| {
        bench.executor.cc.remote_cwnd(bench.executor.cc.find(addr(A), Moves::In).unwrap())
    };
    // The last is answered, as it was read and the others written, say; then the host dies.
    let last = bench.taken.pop_back().unwrap();
    bench.port.complete(&Completion::new(last.slot, OpStatus::Ok, 0, 5_000));
    bench.now = bench.now + RTT;
    bench.take();
    let before = window(&bench);
    bench.now = bench.now + T;
    for _ in 0..7 {
        bench.complete(OpStatus::Timeout);
    }
    issue(&mut bench, 7);
    assert_eq!(window(&bench), before);
    assert_eq!(bench.executor.silent_peers(), SilentPeers::default());
    // But beside answers it is loss.
    let last = bench.taken.pop_back().unwrap();
    bench.now = bench.now + T;
    bench.port.complete(&Completion::new(last.slot, OpStatus::Ok, 0, 5_000));
    bench.complete(OpStatus::Timeout);
    bench.take();
    assert!(window(&bench) < before / 5.0);
}

#[test]
fn each_death_soon_after_the_last_halves_once_more() {
    let mut world = World::default();
    let cycle = 10 * T;
    for round in 0..3 {
        let from = cycle * round;
        world.out(A, from, from + 4 * T, Outage::Gone);
    }
    let retry = RetryPolicy { outlast: Some(FOREVER), ..RetryPolicy::DEFAULT };
    let mut factors = Vec::new();
    let mut kept = 16.0;
    for round in 0..3 {
        world.run(cycle * round);
        for _ in 0..4 {
            world.read(A, retry);
        }
        while world.silent() == (0, 0, 0) {
            let next = world.at() + T / 10;
            world.run(next);
        }
        while world.silent() != (0, 0, 0) {
            let next = world.at() + Duration::from_micros(1);
            world.run(next);
        }
        factors.push(kept / world.cwnd(A));
        kept = world.cwnd(A);
    }
    assert_eq!(factors, [2.0, 4.0, 2.0], "16, 8, 2, and not below one op");
}

#[test]
fn a_batch_job_outlasts_a_restart_and_no_stall_ends_it() {
    let hour = Duration::from_secs(3600);
    let mut world = World::default();
    world.out(A, Duration::from_micros(100), hour - T, Outage::Gone);
    let outlast = Some(hour);
    world.submit(A, OpType::Write, 1 << 20, RetryPolicy { outlast, ..RetryPolicy::DEFAULT });
    world.submit(A, OpType::Write, 1 << 20, RetryPolicy::DEFAULT);
    world.run(2 * hour);
    assert!(is_silent(world.over[0].0.status) && world.over[0].1 < 3 * T);
    assert_eq!((world.over[1].0.status, world.over[1].0.missing.len()), (CallStatus::Ok, 0));
    // Two probes in each second and a half at most, for all that time: every 75 ms.
    assert!(world.issued < 48_100 + 1024, "{}", world.issued);
}

#[test]
fn a_call_without_a_deadline_ends_when_nothing_of_it_has_succeeded_for_a_stall() {
    let stall = Duration::from_secs(2);
    let config = ExecutorConfig { stall, ..ExecutorConfig::default() };
    let (mut bench, local) = (Bench::with(1, config), local(1, 8 << 12));
    let grant = grant(A, OpType::Read, 8 << 12);
    let piece =
        Piece { grant: &grant, remote_offset: 0, local: &local, local_offset: 0, len: 8 << 12 };
    let pieces = [piece];
    let retry = RetryPolicy { refusals: 255, ..RetryPolicy::DEFAULT };
    let deadline = Some(bench.now + Duration::from_secs(60));
    let first = bench.executor.submit(bench.now, &Call { retry, ..Call::of(&pieces) }).unwrap();
    let begin = bench.now;
    // An op in each second and a half is progress.
    for round in 0..4 {
        assert_eq!(bench.take().len(), 1, "round {round}");
        bench.now = bench.now + Duration::from_millis(1500);
        bench.complete(OpStatus::Ok);
    }
    bench.take();
    let last = bench.now;
    bench.executor.submit(bench.now, &Call { retry, deadline, ..Call::of(&pieces) }).unwrap();
    // And then it is refused, again and again.
    while bench.executor.calls() == 2 && bench.executor.over.is_empty() {
        bench.complete(OpStatus::Nack);
        bench.now = bench.now + Duration::from_millis(50);
        bench.take();
        assert!(bench.now.since(last) <= stall + Duration::from_millis(100));
    }
    assert!(bench.now.since(last) >= stall && last.since(begin) == 3 * stall);
    let outcome = bench.outcome();
    assert_eq!((outcome.call, outcome.status), (first, CallStatus::DeadlineExceeded));
    assert_eq!(outcome.bytes_done, 4 * 4096 - 4 * 4096 % outcome.bytes_done.max(1));
    // The one with a deadline of its own is not ended by a stall.
    let mut refused = 0;
    while bench.executor.over.is_empty() {
        if !bench.taken.is_empty() {
            bench.complete(OpStatus::Nack);
            refused += 1;
        }
        bench.now = bench.now + Duration::from_millis(300);
        bench.take();
    }
    let outcome = bench.outcome();
    assert!(bench.now.since(begin) >= Duration::from_secs(60) || refused == 256, "{outcome:?}");
    assert!(bench.executor.poll_timeout().is_none() || bench.executor.calls() == 0);
}

#[test]
fn a_forgotten_host_that_was_silent_leaves_nothing_to_the_next() {
    let cc = CcConfigBuilder { remotes: 1, ..CcConfigBuilder::software(RTT) };
    let mut world = World::new(64, ExecutorConfig { cc, ..ExecutorConfig::default() });
    world.out(A, Duration::ZERO, FOREVER, Outage::Gone);
    for _ in 0..5 {
        world.read(A, RetryPolicy::NONE);
    }
    world.run(FOREVER / 2);
    assert_eq!(world.silent(), (0, 1, 0));
    world.read(B, RetryPolicy::NONE);
    world.run(FOREVER);
    assert_eq!((world.silent(), world.over[5].0.status), ((0, 0, 0), CallStatus::Ok));
}

#[test]
fn a_host_that_calls_waited_for_in_vain_does_not_bar_the_next() {
    let cc = CcConfigBuilder { remotes: 1, ..CcConfigBuilder::software(RTT) };
    let mut world = World::new(64, ExecutorConfig { cc, ..ExecutorConfig::default() });
    world.out(A, Duration::ZERO, FOREVER, Outage::Gone);
    for _ in 0..4 {
        world.read(A, RetryPolicy::NONE);
    }
    world.run(2 * T);
    // One is the probe, and the other waits behind it.
    for _ in 0..2 {
        world.read(A, RetryPolicy::DEFAULT);
    }
    world.run(10 * T);
    assert_eq!((world.over.len(), world.silent()), (6, (0, 1, 0)));
    world.read(B, RetryPolicy::NONE);
    world.run(11 * T);
    let ended: Vec<_> = world.over[6..].iter().map(|(outcome, ..)| outcome.status).collect();
    assert_eq!(ended, [CallStatus::Ok]);
}

#[test]
fn a_call_that_was_a_probe_ends_with_time_to_spare_within_three_timeouts() {
    // At all distances from the probe before.
    for step in 0..64 {
        let mut world = World::default();
        world.out(A, Duration::ZERO, FOREVER, Outage::Gone);
        for _ in 0..4 {
            world.read(A, RetryPolicy::NONE);
        }
        world.run(T);
        world.read(A, RetryPolicy::NONE);
        world.run(T + step * (T / 64));
        for _ in 0..4 {
            world.read(A, RetryPolicy::DEFAULT);
        }
        world.run(FOREVER);
        let longest = world.over.iter().map(|&(_, took, _)| took).max().unwrap();
        // An engine needs a little of its own.
        assert!(longest < 3 * T - T / 10, "{longest:?}");
    }
}

#[test]
fn a_fenced_call_meets_silence_when_it_is_let_past() {
    let mut world = World::default();
    world.out(A, Duration::ZERO, FOREVER, Outage::Gone);
    for _ in 0..4 {
        world.read(A, RetryPolicy::NONE);
    }
    for _ in 0..3 {
        world.bench.executor.fence();
        world.read(A, RetryPolicy::NONE);
        world.read(B, RetryPolicy::NONE);
    }
    world.run(FOREVER);
    assert_eq!((world.over.len(), world.count(|it| it == CallStatus::Ok)), (10, 3));
}

#[test]
fn a_refusal_is_an_answer() {
    let mut bench = Bench::new(8, fixed(8.0));
    let (local, grant) = (local(1, 64), grant(A, OpType::Read, 64));
    let pieces =
        [Piece { grant: &grant, remote_offset: 0, local: &local, local_offset: 0, len: 64 }];
    for answer in OpStatus::ALL {
        let is_answer = !matches!(
            answer,
            OpStatus::Timeout | OpStatus::DispatchTimeout | OpStatus::InvalidCommand
        );
        for _ in 0..4 {
            let call = Call { retry: RetryPolicy::NONE, ..Call::of(&pieces) };
            bench.executor.submit(bench.now, &call).unwrap();
        }
        assert_eq!(bench.take().len(), 4);
        bench.now = bench.now + T;
        for _ in 0..3 {
            bench.complete(OpStatus::Timeout);
        }
        bench.take();
        assert_eq!(bench.executor.silent_peers().suspect, 1);
        bench.complete(answer);
        bench.take();
        assert_eq!(
            bench.executor.silent_peers().suspect == 0,
            is_answer || answer == OpStatus::Timeout
        );
        // For the next.
        bench.now = bench.now + Duration::from_secs(100);
        let call = Call { retry: RetryPolicy::DEFAULT, ..Call::of(&pieces) };
        bench.executor.submit(bench.now, &call).unwrap();
        assert_eq!(bench.take().len(), 1, "{answer}");
        bench.complete(OpStatus::Ok);
        bench.take();
        while bench.executor.poll_outcome().is_some() {}
        assert_eq!(bench.executor.silent_peers(), SilentPeers::default());
        bench.now = bench.now + T;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever fails, whenever: calls end within their bounds, and none is forgotten.
    #[test]
    fn every_call_ends_within_its_bound(
        outages in prop::collection::vec(
            (0..3_usize, 0..2_000_u64, 1..1_500_u64, prop::bool::ANY), 0..6),
        calls in prop::collection::vec((0..3_usize, 0..2_500_u64, 0..4_u8, 1..20_000_u64), 1..300),
        lost in prop::collection::btree_set(0..600_u64, 0..20),
        slots in 1..40_u16,
        remotes in 6..8_u32,
    ) {
        let hosts = [A, B, "192.0.2.4"];
        let cc = CcConfigBuilder { remotes, ..CcConfigBuilder::software(RTT) };
        let mut world = World::new(slots, ExecutorConfig { cc, ..ExecutorConfig::default() });
        world.lost = lost;
        for (host, from, length, pauses) in outages {
            let from = Duration::from_millis(from);
            let kind = if pauses { Outage::Paused } else { Outage::Gone };
            world.out(hosts[host], from, from + Duration::from_millis(length), kind);
        }
        let mut calls = calls;
        calls.sort_by_key(|call| call.1);
        let count = calls.len();
        for (host, at, kind, len) in calls {
            world.run(Duration::from_millis(at));
            let op_type = if kind & 1 == 0 { OpType::Read } else { OpType::Write };
            let retry = if kind & 2 == 0 { RetryPolicy::DEFAULT } else { RetryPolicy::NONE };
            world.submit(hosts[host], op_type, len, retry);
        }
        world.run(FOREVER);
        prop_assert_eq!(world.over.len(), count);
        for (outcome, took, _) in &world.over {
            if let CallStatus::PeerSilent { since, .. } = outcome.status {
                // Counted from its submission or from the host's last answer, whichever was later:
                // a host that answers in between is heard each time. One slot is the portal's, so
                // all may have to wait for an op of another host first, each once.
                let bound = if slots < 16 { 100 * T } else { 6 * T };
                prop_assert!(since.min(*took) <= bound, "{:?} after {:?}", outcome, took);
            }
        }
        prop_assert_eq!(world.bench.executor.calls(), 0);
        prop_assert_eq!(world.bench.executor.ops_outstanding(), 0);
    }
}
