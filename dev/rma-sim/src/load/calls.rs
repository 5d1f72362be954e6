//! CommandExecutors in the swarm: calls of several ops and pieces, on the random networks of
//! [`crate::load::swarm`], with their faults, pauses and crashes.
//!
//! Half of the nodes are applications, each with an executor over all its slots, and congestion
//! control of a kind that the seed draws. They read and write memory of all others, are paused, and
//! never crash; the others crash and come back with the memory that they had. Each call has a part
//! of local memory to itself, and a part of each target for what it writes.
//!
//! What must hold, besides all that [`crate::check::invariant`] checks: a call has exactly one
//! outcome; what it says was transferred was, what no op has tried is as it was before, and nothing
//! else has changed, neither at the end nor until the next call; none ends much later than its
//! deadline, or than it is to stay with a host that is silent; when nothing can happen any longer,
//! all are over, and then a small read succeeds.

mod memory;

use core::{fmt, time::Duration};

use rma_core::{
    cc::Algorithm,
    executor::{Call, CallStatus, ExecutorConfig, Outcome, Piece, RetryPolicy},
    grant::Grant,
    nic::ReceiveLenMax,
    op::{ClassOfService, Moves, OpType},
    time::Instant,
};

use crate::{
    check::invariant::Checker,
    hosts::memory::{address, grant},
    load::{scenario::Options, software::Software},
    net::{
        frame::NodeId,
        link::Faults,
        mishap::{Mishap, Mishaps},
        node::{Condition, NodeOptions},
        sim::Sim,
        trace::{Seen, What},
    },
    prng::{Chance, Prng},
};
use memory::{AREA_LEN, CALLS, CONTENT_LEN, Expected, Host, PID};

/// The outcomes of a run's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallsReport {
    /// Calls that were OK.
    pub ok: u64,
    /// Calls of which an op failed for good.
    pub failed: u64,
    /// Calls whose remote NIC was silent for too long for them.
    pub silent: u64,
    /// Calls whose deadline came first.
    pub late: u64,
    /// Calls that were given up.
    pub cancelled: u64,
    /// Ops that were issued again.
    pub retries: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Bytes missing of which an op has tried to transfer some.
    pub tried: u64,
    /// Bytes missing that no op has tried.
    pub untried: u64,
}

impl CallsReport {
    /// Adds what became of others.
    pub const fn add(&mut self, other: &Self) {
        self.ok += other.ok;
        self.failed += other.failed;
        self.silent += other.silent;
        self.late += other.late;
        self.cancelled += other.cancelled;
        self.retries += other.retries;
        self.bytes += other.bytes;
        self.tried += other.tried;
        self.untried += other.untried;
    }
}

/// Something that must hold and does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The run's seed.
    pub seed: u64,
    /// The description of the break, with its time.
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, what } = self;
        writeln!(f, "{}", Options::of_one_engine(*seed))?;
        write!(
            f,
            "{what}\nRMA_SIM_SEED={seed} cargo test -p rma-sim --test networks calls -- --nocapture"
        )
    }
}

impl core::error::Error for Broken {}

/// Runs `seed`.
///
/// # Errors
/// The first thing that does not hold.
pub fn run_seed(seed: u64) -> Result<CallsReport, Broken> {
    let options = Options::of_one_engine(seed);
    let mut run = Run::new(&options);
    let result = run.phases();
    result.map_err(|what| Broken {
        seed,
        what: format!("at {} ns: {what}", run.sim.now().as_nanos()),
    })?;
    Ok(run.report)
}

/// Calls of each application while there are faults.
const CALLS_EACH: u32 = 12;

/// More events than any run needs.
const STEPS_MAX: u64 = 5_000_000;

/// A call under way.
struct UnderWay {
    target: NodeId,
    expected: Expected,
    bytes: u64,
    op_type: OpType,
    deadline: Option<Instant>,
    /// When it was submitted, by the application's clock, and how long it stays with a silent host.
    begun: Instant,
    outlast: Option<Duration>,
}

/// A node that calls.
struct Application {
    software: Software,
    prng: Prng,
    /// By the area that a call has to itself.
    calls: [Option<UnderWay>; CALLS as usize],
    /// By number of the call: its area.
    area_of: [usize; CALLS as usize],
    left: u32,
    next_at: Instant,
    wake_at: Option<Instant>,
    rings: bool,
    /// Whether calls may have waited for others.
    has_fenced: bool,
}

struct Run<'a> {
    options: &'a Options,
    sim: Sim,
    checker: Checker,
    mishaps: Mishaps,
    hosts: Vec<Host>,
    applications: Vec<Application>,
    lives: Vec<u32>,
    seen: Vec<Seen>,
    report: CallsReport,
}

impl<'a> Run<'a> {
    fn new(options: &'a Options) -> Self {
        let prng = Prng::new(options.seed).fork(0xca11);
        let nodes: Vec<_> = options.nodes.iter().map(|node| node.in_life(0)).collect();
        let mut sim = Sim::new(&nodes, options.link, options.switch, prng.fork(0).next())
            .expect("the swarm draws settings that work");
        let count = nodes.len().div_ceil(2) as u16;
        let ids: Vec<NodeId> = sim.nodes().collect();
        let hosts = ids.iter().map(|&node| Host::new(&mut sim, node, count, &prng)).collect();
        let application = |number: u16| application(&mut sim, options, NodeId(number), &prng);
        let applications = (0..count).map(application).collect();
        Self {
            options,
            checker: Checker::new(&sim),
            mishaps: Mishaps::new(options.mishaps, nodes.len(), &prng.fork(3)),
            lives: vec![0; nodes.len()],
            sim,
            hosts,
            applications,
            seen: Vec::new(),
            report: CallsReport::default(),
        }
    }

    fn phases(&mut self) -> Result<(), String> {
        self.rest()?;
        self.sim.set_faults(Faults::default());
        // One after the other, so that nothing is refused for want of room.
        for index in 0..self.applications.len() {
            let ok = self.report.ok;
            self.submit(index, true)?;
            self.turn(index)?;
            self.rest()?;
            if self.report.ok != ok + 1 {
                return Err(format!("n{index}: a small read of an idle network is not OK"));
            }
        }
        Ok(())
    }

    /// Runs until nothing will happen any longer.
    fn rest(&mut self) -> Result<(), String> {
        for _ in 0..STEPS_MAX {
            if !self.step()? {
                let open = |it: &Application| it.calls.iter().any(Option::is_some);
                return match self.applications.iter().position(open) {
                    Some(index) => Err(format!("n{index}: a call never ends")),
                    None => self.checker.check_rest(&self.sim).map_err(|it| it.to_string()),
                };
            }
        }
        Err("the network does not come to rest".to_owned())
    }

    fn step(&mut self) -> Result<bool, String> {
        let event = self.sim.next_at();
        let runs = |it: &&Application| self.sim.condition(it.software.node) == Condition::Running;
        let next = self.applications.iter().filter(runs).filter_map(Application::next_at).min();
        let next = next.map(|at| at.max(self.sim.now()));
        let mishap = self.mishaps.next();
        let first = [event, next, mishap.map(|(at, _)| at)].into_iter().flatten().min();
        match (first, mishap) {
            (None, _) => return Ok(false),
            (Some(at), _) if event == Some(at) => {
                self.sim.step();
            }
            (Some(at), Some((strikes, node))) if strikes == at => {
                self.sim.advance_to(at);
                self.strike(node);
            }
            (Some(at), _) => {
                self.sim.advance_to(at);
                let due = |it: &Application| it.next_at().is_some_and(|next| next <= at);
                for it in &mut self.applications {
                    it.rings |= due(it);
                }
            }
        }
        self.take_seen()?;
        for index in 0..self.applications.len() {
            let it = &self.applications[index];
            if it.rings && self.sim.condition(it.software.node) == Condition::Running {
                self.turn(index)?;
            }
        }
        Ok(true)
    }

    fn strike(&mut self, node: NodeId) {
        let is_application = node.index() < self.applications.len();
        match self.mishaps.strike(self.sim.now(), node) {
            Mishap::Pause(length) if self.sim.condition(node) == Condition::Running => {
                self.sim.pause(node, length);
            }
            Mishap::Crash if !is_application => self.sim.crash(node),
            Mishap::Restart { .. } if !is_application => {
                self.lives[node.index()] += 1;
                let life = self.lives[node.index()];
                let options = self.options.nodes[node.index()].in_life(life);
                self.sim.restart(node, &options).expect("these settings have worked before");
                self.hosts[node.index()].register(&mut self.sim, node);
            }
            _ => {}
        }
    }

    fn take_seen(&mut self) -> Result<(), String> {
        let mut all = core::mem::take(&mut self.seen);
        all.clear();
        self.sim.swap_seen(&mut all);
        for seen in &all {
            self.checker.take(&self.sim, seen).map_err(|broken| broken.to_string())?;
            let Some(it) = self.applications.get_mut(seen.node.index()) else { continue };
            match &seen.what {
                What::Completed(completion) => {
                    it.software.complete(completion);
                    it.rings = true;
                }
                What::Resumed => it.rings = true,
                _ => {}
            }
        }
        self.seen = all;
        self.checker.check(&self.sim).map_err(|broken| broken.to_string())
    }

    /// An application looks: it takes outcomes, and calls.
    fn turn(&mut self, index: usize) -> Result<(), String> {
        self.applications[index].rings = false;
        loop {
            self.applications[index].software.turn(&mut self.sim);
            // A call that is given up before an op was issued ends at once.
            while let Some(outcome) = self.applications[index].software.poll_outcome() {
                self.ended(index, &outcome)?;
            }
            let it = &self.applications[index];
            let may_call = it.left > 0 && it.calls.iter().any(Option::is_none);
            if !may_call || it.next_at > self.sim.now() {
                break;
            }
            self.submit(index, false)?;
        }
        let it = &mut self.applications[index];
        it.wake_at = it.software.wake_at(&self.sim);
        self.take_seen()
    }

    /// Submits the next call; a `small` one asks for little, and must succeed on an idle network.
    fn submit(&mut self, index: usize, small: bool) -> Result<(), String> {
        let Self { sim, hosts, applications, options, .. } = self;
        let it = &mut applications[index];
        let node = it.software.node;
        let mut prng = Prng::new(it.prng.next());
        let other = prng.below(hosts.len() as u64 - 1) as u16;
        let target = NodeId(if other >= node.0 { other + 1 } else { other });
        let is_write = !small && prng.chance(Chance::ppm(400_000));
        let op_type = if is_write { OpType::Write } else { OpType::Read };
        let len = if small { 64 } else { prng.magnitude(AREA_LEN as u64) };
        let slot = it.calls.iter().position(Option::is_none).expect("asked by the caller");
        let spans = memory::cut(&mut prng, len);
        let grant = grant_of(sim, hosts, node, target, op_type);
        let offsets: Vec<u64> = spans
            .iter()
            .map(|&(start, len)| match op_type.shape().moves {
                Moves::Out => memory::remote_area(node, slot) + start,
                Moves::In => prng.below(CONTENT_LEN as u64 - len + 1),
            })
            .collect();
        let ends = (node, target);
        let expected =
            Host::prepare(hosts, &mut prng, ends, slot, op_type.shape().moves, &spans, &offsets)?;
        let local = hosts[node.index()].local();
        let pieces: Vec<Piece<'_>> = spans
            .iter()
            .zip(&offsets)
            .map(|(&(start, len), &remote_offset)| Piece {
                grant: &grant,
                remote_offset,
                local,
                local_offset: memory::local_area(slot) + start,
                len,
            })
            .collect();
        let timing = options.nodes[node.index()].nic.timing;
        let longest = timing.bound(op_type);
        let deadline = (!small && prng.chance(Chance::ppm(300_000))).then(|| {
            sim.local_now(node)
                + Duration::from_nanos(prng.magnitude(2 * longest.as_nanos() as u64))
        });
        let retry = prng.choose(&[
            RetryPolicy::DEFAULT,
            RetryPolicy::DEFAULT,
            RetryPolicy::DEFAULT.with(|it| {
                it.timeouts = 20;
                it.refusals = 200;
                it.outlast = Some(20 * timing.timeout);
            }),
            RetryPolicy::NONE,
        ]);
        let retry = if small {
            RetryPolicy::DEFAULT.with(|it| {
                it.timeouts = 9;
                it.refusals = 99;
            })
        } else {
            retry
        };
        let class =
            prng.choose(&[None, Some(ClassOfService::Latency), Some(ClassOfService::Throughput)]);
        let call = Call::of(&pieces).with(|it| {
            it.class = class;
            it.retry = retry;
            it.deadline = deadline;
        });
        if prng.chance(Chance::ppm(100_000)) {
            it.software.executor.fence();
            it.has_fenced = true;
        }
        let id = it.software.submit(sim, &call).map_err(|error| format!("{node}: {error}"))?;
        it.area_of[id.index()] = slot;
        let (begun, outlast) = (sim.local_now(node), retry.outlast);
        let call = UnderWay { target, expected, bytes: len, op_type, deadline, begun, outlast };
        it.calls[slot] = Some(call);
        if !small && prng.chance(Chance::ppm(50_000)) {
            // With some ops under way, or none.
            if prng.below(2) > 0 {
                it.software.turn(sim);
            }
            it.software.executor.cancel(id);
        }
        it.left = it.left.saturating_sub(1);
        let gap = 4 * options.gap.as_nanos() as u64;
        it.next_at = sim.now() + Duration::from_nanos(prng.below(2 * gap) + 1);
        Ok(())
    }

    fn ended(&mut self, index: usize, outcome: &Outcome) -> Result<(), String> {
        let Self { sim, hosts, applications, report, options, .. } = self;
        let it = &mut applications[index];
        let slot = it.area_of[outcome.call.index()];
        let node = it.software.node;
        let wrong = |what: &str| Err(format!("{node}: call {slot}: {what}: {outcome:?}"));
        let Some(call) = it.calls[slot].take() else { return wrong("a second outcome") };
        let missing: u64 = outcome.missing.iter().map(|missing| missing.len).sum();
        if outcome.bytes_done + missing != call.bytes {
            return wrong("bytes are neither done nor missing");
        }
        if (outcome.status == CallStatus::Ok) != outcome.missing.is_empty() {
            return wrong("OK means that nothing is missing, and only that");
        }
        // A paused node learns of nothing; that it was is no fault of the executor.
        let timing = options.nodes[node.index()].nic.timing;
        let bound = timing.bound(call.op_type);
        let now = sim.local_now(node);
        let was_paused = sim.resumed_at(node).is_some_and(|at| sim.now().since(at) <= bound * 4);
        if let Some(deadline) = call.deadline
            && now > deadline + bound + sim.wake_slack(node)
            && !was_paused
        {
            return wrong("ended long after its deadline");
        }
        if let Some(what) = Host::check(hosts, (node, call.target), slot, &call.expected, outcome) {
            return wrong(&what);
        }
        match outcome.status {
            CallStatus::Ok => report.ok += 1,
            CallStatus::Failed(_) => report.failed += 1,
            CallStatus::PeerSilent { since, .. } => {
                // It stayed as long as it was told to, and not much longer: its last op was a probe
                // at most.
                let outlast = call.outlast.unwrap_or(timing.timeout * 9 / 4);
                if since < outlast {
                    return wrong("given up before its time with a silent host was over");
                }
                let most = outlast + 2 * bound + timing.timeout / 16 + sim.wake_slack(node);
                let waited = now.since(call.begun).min(since);
                if waited > most && !was_paused && !it.has_fenced {
                    return wrong(&format!(
                        "waited {waited:?} for a silent host: {most:?} is most"
                    ));
                }
                report.silent += 1;
            }
            CallStatus::DeadlineExceeded => report.late += 1,
            CallStatus::Cancelled => report.cancelled += 1,
            CallStatus::Unknown | CallStatus::PredecessorFailed => {
                return wrong("ended as a call does that publishes, or comes after another");
            }
        }
        report.retries += u64::from(outcome.retries);
        report.bytes += outcome.bytes_done;
        for missing in &outcome.missing {
            *if missing.tried.is_some() { &mut report.tried } else { &mut report.untried } +=
                missing.len;
        }
        Ok(())
    }
}

impl Application {
    /// When it has something to do by itself.
    fn next_at(&self) -> Option<Instant> {
        let may_call = self.left > 0 && self.calls.iter().any(Option::is_none);
        may_call.then_some(self.next_at).into_iter().chain(self.wake_at).min()
    }
}

fn application(sim: &mut Sim, options: &Options, node: NodeId, prng: &Prng) -> Application {
    let mut prng = prng.fork(0x200 + u64::from(node.0));
    let NodeOptions { nic, mtu, .. } = options.nodes[node.index()];
    let receive = ReceiveLenMax::of_mtu(mtu.into());
    let base = ExecutorConfig::new(receive, nic.timing.timeout, nic.rtt);
    let algorithm = prng.choose(&Algorithm::ALL);
    let config = base.with(|it| {
        it.calls = CALLS;
        it.op_size_max = prng.choose(&[64, 1000, 4096, 4096]);
        it.cc = base.cc.with(|it| {
            it.algorithm = algorithm;
            it.remotes = prng.choose(&[12, 64]);
        });
    });
    let slots = 0..nic.command_slots as u16;
    Application {
        software: Software::new(sim, node, slots, PID, config),
        prng: prng.fork(1),
        calls: Default::default(),
        area_of: Default::default(),
        left: CALLS_EACH,
        next_at: Instant::ZERO,
        wake_at: None,
        rings: false,
        has_fenced: false,
    }
}

fn grant_of(sim: &Sim, hosts: &[Host], node: NodeId, target: NodeId, op_type: OpType) -> Grant {
    let host = &hosts[target.index()];
    let holder = (address(sim, node), PID);
    grant(sim, (target, host.target_id), host.target_len(), holder, op_type)
}
