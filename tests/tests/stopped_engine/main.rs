//! P1 and P2 on a real kernel, with an engine that does not run: the other host is a process of its
//! own, which is stopped (SIGSTOP) in the midst of ops and goes on later (SIGCONT), or is killed.
//! Every op ends; when it does is what `rma_figures::death` looks at.
//!
//! Every WRITE has an area of its own in the target's region, and bytes of its own, none of which
//! is zero. So each byte of the region tells what has landed there. What an area holds is looked at
//! when its op has been reported; from then on it may not change. An engine can be stopped between
//! its last look at the clock and the end of a copy: then it may change, but the target must count
//! that ([`NicCounters::late_effects`](rma_xdp::metrics::NicCounters::late_effects)).
//!
//! Where the other host is stopped is drawn from a seed: after so many reports of a steady flow of
//! ops, and some microseconds. What it is doing just then no seed can fix; so there are many
//! rounds.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod channels;
mod hosts;
mod model;
mod peer;
mod star;
mod suspended;

use core::{ops::AddAssign, time::Duration};

use hosts::{Initiator, KEY, Network, Place, Report, Side, TIMING, register};
use model::{Model, PER_ROUND, ROUNDS, ROUNDS_MAX, Random, area};
use peer::{PATIENCE, Part, Peer, answer, orders};
use rma_xdp::{
    Host, OpStatus, OpType,
    crypto::random_region_key,
    metrics::DropReason,
    time::{Clock, TscClock},
};

/// How many WRITEs are under way before a stop: more than the target's pending-write table holds,
/// so that some may be NACKed.
const UNDER_WAY: usize = 40;

/// WRITEs that are issued to a target that is stopped already.
const HOPELESS: u64 = 2;

const SEED: u64 = 0x51c5_70b1;

/// Slots for all that.
const SLOTS: u16 = 64;

/// The target's count of data that came too late.
#[derive(Clone, Copy, Debug, Default)]
struct Late {
    /// Applied all the same: `late_effects`.
    effects: u64,
    /// Refused, as their time was over.
    refused: u64,
}

impl Late {
    fn of(host: &Host) -> Self {
        let counters = &host.engines()[0].counters;
        let reasons = [DropReason::DataLate, DropReason::UnknownPendingWrite];
        let refused = reasons.into_iter().map(|reason| counters.drops(reason)).sum();
        Self { effects: counters.late_effects(), refused }
    }

    fn ask(target: &mut Peer) -> Self {
        target.order("late");
        let [effects, refused] = target.hear("late").try_into().unwrap();
        Self { effects, refused }
    }
}

/// The counts of ops by their end that were reported after a stop.
#[derive(Debug, Default)]
struct Tally {
    ok: u64,
    not_ok: u64,
}

impl AddAssign<OpStatus> for Tally {
    fn add_assign(&mut self, status: OpStatus) {
        *(if status == OpStatus::Ok { &mut self.ok } else { &mut self.not_ok }) += 1;
    }
}

/// The longest time for which this thread did not get to look at the clock.
struct Gaps {
    clock: TscClock,
    seen: Duration,
    longest: Duration,
}

impl Gaps {
    fn new() -> Self {
        Self { clock: TscClock::new(), seen: Duration::ZERO, longest: Duration::ZERO }
    }

    fn now(&mut self) -> Duration {
        let now = Duration::from_nanos(self.clock.now().as_nanos());
        self.longest = self.longest.max(now - self.seen);
        self.seen = now;
        now
    }
}

/// When the other host is stopped.
struct Stop {
    /// How many reports come before it,
    after: u64,
    /// and how long after the last of them it comes.
    pause: Duration,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The other host is still to be stopped.
    Before,
    Stopped {
        at: Duration,
    },
    After,
}

impl Stop {
    fn draw(random: &mut Random) -> Self {
        let after = random.below(PER_ROUND - HOPELESS - UNDER_WAY as u64);
        // Of each order of magnitude: some machines are done with all that is under way in
        // microseconds.
        let magnitude = random.below(16);
        let pause = Duration::from_nanos(random.below(1 << magnitude));
        Self { after, pause, state: State::Before }
    }

    /// To be called all the time. Stops the other host if it is time to; then it returns true.
    fn is_now(&mut self, peer: &Peer, reported: u64, gaps: &mut Gaps) -> bool {
        if self.state != State::Before || reported < self.after {
            return false;
        }
        let end = gaps.now() + self.pause;
        while gaps.now() < end {
            core::hint::spin_loop();
        }
        peer.stop();
        self.state = State::Stopped { at: gaps.now() };
        true
    }

    /// To be called all the time. Lets the other host go on once it has been stopped for `hold`.
    fn end_after(&mut self, hold: Duration, peer: &Peer, now: Duration) {
        if let State::Stopped { at } = self.state
            && now.saturating_sub(at) >= hold
        {
            peer.go_on();
            self.state = State::After;
        }
    }
}

/// The part of the other host, in its own process.
fn play(Part { side, network, region, state_dir }: &Part) {
    let host = network.open(*side, state_dir);
    match side {
        Side::Initiator => play_the_initiator(&host, *network, *region),
        Side::Target => play_the_target(&host),
    }
}

fn play_the_target(host: &Host) {
    answer(&format!("region {}", register(host).id().to_bits()));
    for _ in orders() {
        let Late { effects, refused } = Late::of(host);
        answer(&format!("late {effects} {refused}"));
    }
}

fn play_the_initiator(host: &Host, network: Network, region: u32) {
    let mut initiator = Initiator::new(host, network, region, SLOTS);
    answer("ready");
    for first in orders() {
        let mut next: u64 = first.parse().unwrap();
        let past = next + PER_ROUND;
        while next < past || initiator.outstanding() > 0 {
            if initiator.outstanding() < UNDER_WAY && next < past {
                initiator.write(next);
                next += 1;
            }
            match initiator.poll() {
                Some(Report { index, completion, .. }) => {
                    answer(&format!("report {index} {}", completion.status as u8));
                }
                None => std::thread::yield_now(),
            }
        }
        answer("done");
    }
}

/// Returns whether the rounds have met their subject: ops that were in time and others, and data
/// that came too late. The machine's scheduler decides how soon they do.
const fn is_telling(tally: &Tally, late: &Late) -> bool {
    tally.ok > 0 && tally.not_ok > 0 && late.refused > 0
}

fn assert_telling(tally: &Tally, late: &Late, gaps: &Gaps) {
    println!(
        "seed {SEED:#x}: after {ROUNDS} stops or more {tally:?}, {late:?}; {:?}",
        gaps.longest
    );
    assert!(is_telling(tally, late), "{ROUNDS_MAX} rounds met {tally:?}, {late:?}");
}

/// The target is stopped while it is written to. What is not done in time is not done later either.
fn stop_the_target(name: &str, place: &Place) {
    let mut target = Peer::start(place, name, Side::Target, 0);
    let region = target.hear_region();
    let host = place.open(Side::Initiator);
    let mut initiator = Initiator::new(&host, place.network, region, SLOTS);

    // The first area's bytes are nobody else's: they show where the region is in the target's
    // memory.
    initiator.until_ok("the first area is written", |it| it.write(0));
    let memory = target.memory_at(area(0).1.first_chunk().unwrap());
    let mut model = Model::new(|offset, bytes| memory.look(offset, bytes));
    model.report(0, OpStatus::Ok);

    let (mut random, mut gaps) = (Random(SEED), Gaps::new());
    let (mut tally, mut before) = (Tally::default(), Late::default());
    for round in 0..ROUNDS_MAX {
        if round >= ROUNDS && is_telling(&tally, &before) {
            break;
        }
        let mut next = 1 + round * PER_ROUND;
        let hopeless = next + PER_ROUND - HOPELESS..next + PER_ROUND;
        let mut stop = Stop::draw(&mut random);
        // Until all is reported; or not so long: then some is reported while the target runs again.
        let hold = TIMING.timeout * random.below(250) as u32 / 100;
        let holds = round % 3 != 0;
        let hold = if holds { Duration::MAX } else { hold };
        let mut reported = 0;
        while stop.state == State::Before || initiator.outstanding() > 0 {
            let now = gaps.now();
            while stop.state == State::Before
                && initiator.outstanding() < UNDER_WAY
                && next < hopeless.start
            {
                initiator.write(next);
                next += 1;
            }
            // Whether or not there is a report: engines that keep up always have one.
            if stop.is_now(&target, reported, &mut gaps) && holds {
                hopeless.clone().for_each(|index| initiator.write(index));
                initiator.rekey(random_region_key().unwrap());
            }
            if let Some(Report { op_type, index, completion }) = initiator.poll() {
                let status = completion.status;
                if op_type == OpType::Write {
                    model.report(index, status);
                }
                if op_type == OpType::Rekey || hopeless.contains(&index) {
                    assert_eq!(status, OpStatus::Timeout, "{op_type} to a target that is stopped");
                } else if stop.state != State::Before {
                    tally += status;
                }
                reported += 1;
            }
            stop.end_after(hold, &target, now);
        }
        // All of the region: nothing was written where nothing should be, and what was reported is
        // what is there.
        let mut changes = model.changes();
        stop.end_after(Duration::ZERO, &target, gaps.now());
        // Then its engine runs, and has looked at all that was sent before; and the key is as it
        // was.
        initiator.until_ok("the target is read", Initiator::read);
        let late = Late::ask(&mut target);
        changes += model.changes();
        let effects = late.effects - before.effects;
        assert!(changes <= effects, "round {round}: {changes} areas changed, {effects} counted");
        before = late;
    }
    assert_telling(&tally, &before, &gaps);
}

/// The initiator is stopped while it writes. What it reports as not OK when it goes on has no
/// effect afterwards.
fn stop_the_initiator(name: &str, place: &Place) {
    let host = place.open(Side::Target);
    let region = register(&host);
    let mut initiator = Peer::start(place, name, Side::Initiator, region.id().to_bits());
    initiator.hear("ready");
    let mut model = Model::new(|offset, bytes| region.read(offset, bytes).unwrap());
    let (mut random, mut gaps) = (Random(SEED), Gaps::new());
    let (mut tally, mut before) = (Tally::default(), Late::default());
    let mut is_last = false;
    for round in 0..ROUNDS_MAX {
        if is_last {
            break;
        }
        let mut stop = Stop::draw(&mut random);
        let hold = TIMING.bound(OpType::Write) * random.below(200) as u32 / 100;
        is_last = round + 1 >= ROUNDS && is_telling(&tally, &before) || round + 1 == ROUNDS_MAX;
        if is_last {
            // When this round is over, so is all that went before.
            stop.state = State::After;
        }
        let (mut done, mut reported) = (false, 0);
        initiator.order(&(round * PER_ROUND).to_string());
        let start = gaps.now();
        while !done || stop.state != State::After {
            let now = gaps.now();
            assert!(now - start < PATIENCE, "round {round} does not end");
            match initiator.try_hear().as_deref() {
                Some([word, index, code]) => {
                    assert_eq!(word, "report");
                    let status = OpStatus::from_code(code.parse().unwrap()).unwrap();
                    model.report(index.parse().unwrap(), status);
                    if stop.state != State::Before {
                        tally += status;
                    }
                    reported += 1;
                }
                Some(line) => {
                    assert_eq!(line, ["done"]);
                    done = true;
                }
                None => {}
            }
            let _ = stop.is_now(&initiator, reported, &mut gaps);
            stop.end_after(hold, &initiator, now);
        }
        assert_eq!(reported, PER_ROUND, "each op is reported once");
        let late = Late::of(&host);
        let (changes, effects) = (model.changes(), late.effects - before.effects);
        assert!(changes <= effects, "round {round}: {changes} areas changed, {effects} counted");
        before = late;
    }
    assert_telling(&tally, &before, &gaps);
}

/// The target is killed while it is read, written and rekeyed, and more is issued after that: each
/// op is reported once, within its bound.
fn kill_the_target(name: &str, place: &Place) {
    const SLOTS: u16 = 256;
    const AFTER: u64 = 2000;
    let mut random = Random(SEED);
    for run in 0..3 {
        let mut target = Peer::start(place, name, Side::Target, 0);
        let region = target.hear_region();
        let host = place.open(Side::Initiator);
        let mut initiator = Initiator::new(&host, place.network, region, SLOTS);
        let mut gaps = Gaps::new();
        let alive = 1000 + random.below(1000);
        let (mut issued, mut reported, mut slowest) = (0, 0, Duration::ZERO);
        let mut statuses = [0; OpStatus::ALL.len()];
        while reported < alive + AFTER {
            gaps.now();
            while initiator.has_free_slot() && issued < alive + AFTER {
                match random.below(64) {
                    // Fails what is under way, but leaves all grants good.
                    0 => initiator.rekey(KEY),
                    1..32 => initiator.write(issued % (ROUNDS * PER_ROUND)),
                    _ => initiator.read(),
                }
                issued += 1;
                if issued == alive {
                    target.kill();
                    gaps.now();
                }
            }
            while let Some(Report { completion, .. }) = initiator.poll() {
                gaps.now();
                reported += 1;
                if issued > alive {
                    statuses[completion.status as usize] += 1;
                    slowest = slowest.max(completion.total_delay());
                }
            }
        }
        // Nothing comes twice, however long one waits.
        let end = gaps.now() + TIMING.bound(OpType::Write);
        while gaps.now() < end {
            assert!(initiator.poll().is_none(), "an op is reported once");
        }
        let counted =
            OpStatus::ALL.into_iter().map(|it| host.engines()[0].counters.completions(it));
        assert_eq!(counted.sum::<u64>(), issued);
        println!(
            "seed {SEED:#x} run {run}: killed after {alive} ops; then {statuses:?}, the slowest in {slowest:?}, \
             the longest gap {:?}",
            gaps.longest
        );
        assert!(statuses[OpStatus::Timeout as usize] > 0, "{statuses:?}");
    }
}

/// Runs `test` called `name` at a place; or the other host, if that is what this process is.
fn run(name: &str, place: fn() -> Place, test: fn(&str, &Place)) {
    match Part::of_this_process() {
        Some(part) => play(&part),
        None => test(name, &place()),
    }
}

//= 1rma#5.1-timeout-at-both-ends
//= type=test
#[test]
fn a_stopped_target_does_nothing_late() {
    run("a_stopped_target_does_nothing_late", Place::loopback, stop_the_target);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_stopped_target_does_nothing_late_over_xdp() {
    run("a_stopped_target_does_nothing_late_over_xdp", Place::lab, stop_the_target);
}

//= 1rma#5.1-initiator-times-out-last
//= type=test
#[test]
fn a_stopped_initiator_does_nothing_late() {
    run("a_stopped_initiator_does_nothing_late", Place::loopback, stop_the_initiator);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_stopped_initiator_does_nothing_late_over_xdp() {
    run("a_stopped_initiator_does_nothing_late_over_xdp", Place::lab, stop_the_initiator);
}

#[test]
fn ops_to_a_killed_target_are_reported_once() {
    run("ops_to_a_killed_target_are_reported_once", Place::loopback, kill_the_target);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn ops_to_a_killed_target_are_reported_once_over_xdp() {
    run("ops_to_a_killed_target_are_reported_once_over_xdp", Place::lab, kill_the_target);
}
