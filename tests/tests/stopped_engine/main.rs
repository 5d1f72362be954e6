//! P1 and P2 on a real kernel, with an engine that does not run: the other host is a process of its own, which is
//! stopped (SIGSTOP) in the midst of ops and goes on later (SIGCONT), or is killed.
//!
//! Every WRITE has an area of its own in the target's region, and bytes of its own, none of which is zero. So each
//! byte of the region tells what has landed there. What an area holds is looked at when its op has been
//! reported; from then on it may not change. An engine can be stopped between its last look at the clock
//! and the end of a copy: then it may change, but the target must count that
//! ([`NicCounters::late_effects`](rma_xdp::NicCounters::late_effects)).

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod model;
mod peer;

use core::{ops::AddAssign, time::Duration};
use std::sync::Arc;

use model::{AREA, AREAS, Model, PER_ROUND, Random, area};
use peer::{PATIENCE, Peer, answer, orders, part, wait_for};
use rma_bench::lab::{Entered, Lab, LabConfig};
use rma_tests::hosts::free_port;
use rma_xdp::{
    ClassOfService, Clock, Completion, DerivedRegionKey, Device, DropReason, Grant, Host, HostAddr,
    HostConfig, NicConfigBuilder, OpStatus, OpType, Permissions, Pid, Portal, Region, RegionId,
    RegionKey, RegisteredRegion, Timing, TscClock, WriteOp, random_region_key, xdp::Mode,
};

/// Short, so that many rounds take seconds; long enough for a busy machine to do most ops in time.
const TIMING: Timing =
    Timing { dispatch_timeout: Duration::from_millis(8), timeout: Duration::from_millis(20) };

/// The PID of the initiator's portal.
const PID: Pid = Pid(1001);
/// K_r of the target's region, known to both processes.
const KEY: RegionKey = RegionKey::from_bytes([0x3c; 16]);
/// What a grant holds before its key is derived.
const NO_KEY: DerivedRegionKey = DerivedRegionKey::from_bytes([0; 16]);

/// Rounds in which nothing is stopped, to learn how long one takes.
const WARM_UP: u64 = 6;
/// Rounds in which something is.
const ROUNDS: u64 = 48;
/// WRITEs that are issued at once. More than the target's pending-write table holds, so that some may be NACKed.
const OPS: u64 = 48;

const SEED: u64 = 0x51c5_70b1;

/// Where the two hosts are.
enum Place {
    Loopback { port: u16 },
    Lab(Lab),
}

#[derive(Clone, Copy)]
enum Side {
    Initiator,
    Target,
}

impl Place {
    fn loopback() -> Self {
        Self::Loopback { port: free_port() }
    }

    fn lab() -> Self {
        Self::Lab(Lab::new(&LabConfig::default()).unwrap())
    }

    /// The namespace of the peer's part, entered.
    fn enter_peer(&self, part: &str) -> Option<Entered<'_>> {
        let Self::Lab(lab) = self else { return None };
        let netns = if part.starts_with("target") { lab.b() } else { lab.a() };
        Some(netns.enter().unwrap())
    }

    /// What the peer's part begins with: how it opens its host.
    fn words(&self, side: Side) -> String {
        let side = match side {
            Side::Initiator => "initiator",
            Side::Target => "target",
        };
        match self {
            Self::Loopback { port } => format!("{side} {port}"),
            Self::Lab(_) => format!("{side} lab"),
        }
    }

    /// Opens the host of this process.
    fn open(&self, side: Side) -> Host {
        let Self::Lab(lab) = self else { return open(&self.words(side)) };
        let netns = match side {
            Side::Initiator => lab.a(),
            Side::Target => lab.b(),
        };
        let _inside = netns.enter().unwrap();
        open(&self.words(side))
    }
}

/// The addresses of initiator and target.
fn addresses(is_lab: bool) -> [HostAddr; 2] {
    if is_lab {
        [Lab::A_V4.into(), Lab::B_V4.into()]
    } else {
        [[127, 0, 0, 1].into(), [127, 0, 0, 2].into()]
    }
}

fn open(words: &str) -> Host {
    let (side, port) = words.split_once(' ').unwrap();
    let is_lab = port == "lab";
    let [initiator, target] = addresses(is_lab);
    let (own, other) = if side == "target" { (target, initiator) } else { (initiator, target) };
    let mut config = HostConfig::udp(own);
    if is_lab {
        config.device = Device::Xdp { interface: Lab::INTERFACE.into(), mode: Mode::Native };
    } else {
        config.port = port.parse().unwrap();
    }
    config.pid = PID;
    config.nic = NicConfigBuilder { timing: TIMING, ..NicConfigBuilder::default() };
    let host = Host::open(config).unwrap();
    if is_lab {
        host.resolve(other).unwrap();
    }
    host
}

/// The region that is written to.
fn register(host: &Host) -> RegisteredRegion {
    let all = Permissions::READ | Permissions::WRITE | Permissions::REKEY;
    let memory = Region::new((AREAS * AREA) as usize).unwrap();
    host.register_memory(Arc::new(memory), KEY, all).unwrap()
}

/// A portal that writes to the target's region, and what it has under way.
struct Initiator {
    portal: Portal,
    /// An area for each slot.
    local: RegisteredRegion,
    grant: Grant,
    /// By slot: the op that is under way.
    under_way: Vec<Option<(OpType, u64)>>,
}

impl Initiator {
    fn new(host: &Host, is_lab: bool, region: u64, slots: u16) -> Self {
        let [initiator, responder] = addresses(is_lab);
        let grant = Grant {
            responder,
            region: RegionId::from_bits(region as u32),
            region_len: 0,
            initiator,
            pid: PID,
            op_type: OpType::Read,
            key: NO_KEY,
        };
        let local = host.register(usize::from(slots) * AREA as usize, Permissions::NONE).unwrap();
        let under_way = vec![None; slots.into()];
        Self { portal: host.portal(slots).unwrap(), local, grant, under_way }
    }

    fn grant(&self, op_type: OpType, key: &RegionKey) -> Grant {
        Grant { op_type, ..self.grant }.under(key)
    }

    /// The place for the next op's slot, and where it is in `local`.
    fn place(&self) -> (usize, u64) {
        let place = self.portal.next_slot().expect("a free slot").0 - self.portal.slots().start;
        (place.into(), u64::from(place) * AREA)
    }

    /// Issues WRITE number `index`.
    fn write(&mut self, index: u64) {
        let (op, bytes) = area(index);
        let (place, local_offset) = self.place();
        self.local.write(local_offset, &bytes).unwrap();
        let grant = self.grant(OpType::Write, &KEY);
        let op = WriteOp {
            grant: &grant,
            remote_offset: op.remote_offset(),
            source: &self.local,
            source_offset: local_offset + op.offset,
            op_size: op.size,
            class: ClassOfService::ALL[(index % 2) as usize],
        };
        self.portal.issue_write(&op).unwrap();
        self.under_way[place] = Some((OpType::Write, index));
    }

    /// Issues a READ of the first area under the key that the region should have.
    fn read(&mut self) {
        let (place, local_offset) = self.place();
        let grant = self.grant(OpType::Read, &KEY);
        self.portal.read(&grant, 0, &self.local, local_offset, AREA as u32).unwrap();
        self.under_way[place] = Some((OpType::Read, 0));
    }

    fn rekey(&mut self, key: RegionKey) {
        let (place, _) = self.place();
        let grant = self.grant(OpType::Rekey, &KEY);
        self.portal.rekey(&grant, key).unwrap();
        self.under_way[place] = Some((OpType::Rekey, 0));
    }

    /// The next report: of which op, and how it ended. No op is reported twice.
    fn poll(&mut self) -> Option<(OpType, u64, Completion)> {
        let completion = self.portal.poll()?;
        let place = usize::from(completion.slot.0 - self.portal.slots().start);
        let (op_type, index) = self.under_way[place].take().expect("reported once");
        Some((op_type, index, completion))
    }

    /// Issues an op until it is OK.
    fn until_ok(&mut self, what: &str, issue: fn(&mut Self)) {
        wait_for(what, || {
            issue(self);
            let status = self.portal.wait().unwrap().status;
            assert_ne!(status, OpStatus::RemoteAuthenticationFailure, "the key is another");
            status == OpStatus::Ok
        });
    }
}

/// What a target tells of data that came too late.
#[derive(Clone, Copy, Debug, Default)]
struct Late {
    /// Applied all the same: `late_effects`.
    effects: u64,
    /// Refused.
    refused: u64,
}

impl Late {
    fn of(host: &Host) -> Self {
        let counters = host.counters();
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

/// How ops ended.
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

    /// P1, with generous room for a busy machine: how much is measured elsewhere.
    fn assert_bounded(&self, op_type: OpType, completion: &Completion) {
        let most = 3 * (TIMING.bound(op_type) + self.longest);
        assert!(completion.total_delay() < most, "{op_type} within {most:?}: {completion:?}");
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// The part of the other host, in its own process.
fn play(part: &[String]) {
    let host = open(&part[..2].join(" "));
    if part[0] == "target" {
        let region = register(&host);
        answer(&format!("region {}", region.id().to_bits()));
        for _ in orders() {
            let Late { effects, refused } = Late::of(&host);
            answer(&format!("late {effects} {refused}"));
        }
        return;
    }
    let region = part[2].parse().unwrap();
    let mut initiator = Initiator::new(&host, part[1] == "lab", region, OPS as u16);
    answer("ready");
    for first in orders() {
        let first: u64 = first.parse().unwrap();
        (first..first + OPS).for_each(|index| initiator.write(index));
        let mut reported = 0;
        while reported < OPS {
            match initiator.poll() {
                Some((_, index, completion)) => {
                    answer(&format!("report {index} {}", completion.status as u8));
                    reported += 1;
                }
                None => std::thread::yield_now(),
            }
        }
        answer("done");
    }
}

/// The target is stopped while it is written to. What is not done in time is not done later either.
fn stop_the_target(name: &str, place: &Place) {
    let mut target = Peer::start(place, name, &place.words(Side::Target));
    let [region] = target.hear("region").try_into().unwrap();
    let host = place.open(Side::Initiator);
    let is_lab = matches!(place, Place::Lab(_));
    let mut initiator = Initiator::new(&host, is_lab, region, 64);

    // The first area's bytes are nobody else's: they show where the region is in the target's memory.
    initiator.until_ok("the first area is written", |it| it.write(0));
    let memory = target.memory_at(area(0).1.first_chunk().unwrap());
    let mut model = Model::new(|offset, bytes| memory.look(offset, bytes));
    model.report(0, OpStatus::Ok);

    let (mut random, mut gaps) = (Random(SEED), Gaps::new());
    let (mut took, mut tally, mut before) = (Vec::new(), Tally::default(), Late::default());
    for round in 0..WARM_UP + ROUNDS {
        let first = 1 + round * PER_ROUND;
        // Once all are reported, or after about the timeout: then some are reported while it runs again.
        let holds = round % 3 != 0;
        let hold = TIMING.timeout * random.below(25) as u32 / 10;
        let point =
            (round >= WARM_UP).then(|| median(took.clone()) * random.below(1200) as u32 / 1000);
        let (mut stopped_at, mut runs) = (None, true);
        let start = gaps.now();
        (first..first + OPS).for_each(|index| initiator.write(index));
        loop {
            let now = gaps.now();
            if let Some((op_type, index, completion)) = initiator.poll() {
                gaps.assert_bounded(op_type, &completion);
                let status = completion.status;
                if op_type == OpType::Write {
                    model.report(index, status);
                }
                if stopped_at.is_some() {
                    tally += status;
                }
                // Issued to a target that is stopped until all is reported.
                let is_hopeless = op_type == OpType::Rekey || index >= first + OPS;
                assert!(!is_hopeless || status == OpStatus::Timeout, "{op_type} {status}");
            } else if stopped_at.is_none() && point.is_some_and(|point| now - start >= point) {
                target.stop();
                (stopped_at, runs) = (Some(gaps.now()), false);
                if holds {
                    initiator.write(first + OPS);
                    initiator.rekey(random_region_key().unwrap());
                }
            } else if !holds && !runs && stopped_at.is_some_and(|at| now - at >= hold) {
                target.go_on();
                runs = true;
            } else if initiator.portal.outstanding() == 0 && point.is_some() == stopped_at.is_some()
            {
                break;
            }
        }
        if point.is_none() {
            took.push(gaps.now() - start);
        }
        // Also of what nobody should have written to; and while it stands still, of what is only half copied.
        let mut changes = model.changes();
        if !runs {
            target.go_on();
        }
        // Then its engine runs, and has looked at all that was sent before; and the key is as it was.
        initiator.until_ok("the target is read", Initiator::read);
        let late = Late::ask(&mut target);
        changes += model.changes();
        let effects = late.effects - before.effects;
        assert!(changes <= effects, "round {round}: {changes} areas changed, {effects} counted");
        before = late;
    }
    println!(
        "seed {SEED:#x}: {ROUNDS} stops, ops in them {tally:?}, {before:?}, {:?}",
        gaps.longest
    );
    assert!(tally.ok > 0 && tally.not_ok > 0, "{tally:?}");
    assert!(before.refused > 0, "the rounds met no data that came too late");
}

/// The initiator is stopped while it writes. What it reports as not OK when it goes on has no effect afterwards.
fn stop_the_initiator(name: &str, place: &Place) {
    let host = place.open(Side::Target);
    let region = register(&host);
    let part = format!("{} {}", place.words(Side::Initiator), region.id().to_bits());
    let mut initiator = Peer::start(place, name, &part);
    initiator.hear("ready");
    let mut model = Model::new(|offset, bytes| region.read(offset, bytes).unwrap());
    let (mut random, mut gaps) = (Random(SEED), Gaps::new());
    let (mut took, mut tally, mut before) = (Vec::new(), Tally::default(), Late::default());
    for round in 0..WARM_UP + ROUNDS {
        let first = round * PER_ROUND;
        let hold = TIMING.bound(OpType::Write) * random.below(20) as u32 / 10;
        // The last round shows that all that went before is over.
        let is_stopped = round >= WARM_UP && round < WARM_UP + ROUNDS - 1;
        let point = is_stopped.then(|| median(took.clone()) * random.below(1200) as u32 / 1000);
        let (mut stopped_at, mut runs, mut done, mut reported) = (None, true, false, 0);
        initiator.order(&first.to_string());
        let start = gaps.now();
        while !done || point.is_some() && (stopped_at.is_none() || !runs) {
            let now = gaps.now();
            assert!(now - start < PATIENCE, "round {round} does not end");
            if let Some(line) = initiator.try_hear() {
                if let [word, index, code] = &line[..] {
                    assert_eq!(word, "report");
                    let status = OpStatus::from_code(code.parse().unwrap()).unwrap();
                    model.report(index.parse().unwrap(), status);
                    reported += 1;
                    if stopped_at.is_some() {
                        tally += status;
                    }
                } else {
                    assert_eq!(line, ["done"]);
                    done = true;
                }
            } else if stopped_at.is_none() && point.is_some_and(|point| now - start >= point) {
                initiator.stop();
                (stopped_at, runs) = (Some(gaps.now()), false);
            } else if !runs && stopped_at.is_some_and(|at| now - at >= hold) {
                initiator.go_on();
                runs = true;
            }
        }
        assert_eq!(reported, OPS, "each op is reported once");
        if point.is_none() {
            took.push(gaps.now() - start);
        }
        let late = Late::of(&host);
        let (changes, effects) = (model.changes(), late.effects - before.effects);
        assert!(changes <= effects, "round {round}: {changes} areas changed, {effects} counted");
        before = late;
    }
    println!(
        "seed {SEED:#x}: {ROUNDS} stops, ops in them {tally:?}, {before:?}, {:?}",
        gaps.longest
    );
    assert!(tally.ok > 0 && tally.not_ok > 0, "{tally:?}");
}

/// The target is killed while it is read, written and rekeyed, and more is issued after that: each op is
/// reported once, within its bound.
fn kill_the_target(name: &str, place: &Place) {
    const SLOTS: u16 = 256;
    const AFTER: u64 = 2000;
    let mut random = Random(SEED);
    for run in 0..3 {
        let mut target = Peer::start(place, name, &place.words(Side::Target));
        let [region] = target.hear("region").try_into().unwrap();
        let host = place.open(Side::Initiator);
        let is_lab = matches!(place, Place::Lab(_));
        let mut initiator = Initiator::new(&host, is_lab, region, SLOTS);
        let mut gaps = Gaps::new();
        let alive = 1000 + random.below(1000);
        let (mut issued, mut reported, mut after, mut slowest) =
            (0, 0, [0; OpStatus::ALL.len()], Duration::ZERO);
        while reported < alive + AFTER {
            gaps.now();
            while initiator.portal.next_slot().is_some() && issued < alive + AFTER {
                match random.below(64) {
                    // Fails what is under way, but leaves all grants good.
                    0 => initiator.rekey(KEY),
                    1..32 => initiator.write(issued % (ROUNDS * OPS)),
                    _ => initiator.read(),
                }
                issued += 1;
                if issued == alive {
                    target.kill();
                    gaps.now();
                }
            }
            while let Some((op_type, _, completion)) = initiator.poll() {
                gaps.now();
                gaps.assert_bounded(op_type, &completion);
                reported += 1;
                if issued > alive {
                    after[completion.status as usize] += 1;
                    slowest = slowest.max(completion.total_delay());
                }
            }
        }
        // Nothing comes twice, however long one waits.
        let end = gaps.now() + TIMING.bound(OpType::Write);
        while gaps.now() < end {
            assert!(initiator.poll().is_none(), "an op is reported once");
        }
        let counted = OpStatus::ALL.into_iter().map(|it| host.counters().completions(it));
        assert_eq!(counted.sum::<u64>(), issued);
        assert_eq!(host.counters().completions_lost(), 0);
        println!(
            "seed {SEED:#x} run {run}: killed after {alive} ops; then {after:?}, the slowest in {slowest:?}, \
             the longest gap {:?}",
            gaps.longest
        );
        assert!(after[OpStatus::Timeout as usize] > 0);
    }
}

/// Runs `test` called `name` at a place; or the other host, if that is what this process is.
fn run(name: &str, place: fn() -> Place, test: fn(&str, &Place)) {
    match part() {
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
fn a_stopped_initiator_has_no_effect_after_its_reports() {
    run("a_stopped_initiator_has_no_effect_after_its_reports", Place::loopback, stop_the_initiator);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_stopped_initiator_has_no_effect_after_its_reports_over_xdp() {
    run(
        "a_stopped_initiator_has_no_effect_after_its_reports_over_xdp",
        Place::lab,
        stop_the_initiator,
    );
}

#[test]
fn every_op_to_a_killed_peer_is_reported_once_within_its_bound() {
    run(
        "every_op_to_a_killed_peer_is_reported_once_within_its_bound",
        Place::loopback,
        kill_the_target,
    );
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn every_op_to_a_killed_peer_is_reported_once_within_its_bound_over_xdp() {
    run(
        "every_op_to_a_killed_peer_is_reported_once_within_its_bound_over_xdp",
        Place::lab,
        kill_the_target,
    );
}
