//! A workload of reads, run over a [`Sim`] with every invariant checked after every event.
//!
//! Two phases. *Safety*: the links have their faults, every node issues at its own pace, some of it wrong on
//! purpose; ops may fail, and nothing may go wrong. *Liveness*: the faults are gone and the network has come
//! to rest; each op must end in exactly the way that it deserves, every honest read with OK and right bytes.

use core::{fmt, time::Duration};

use rma_core::{
    command::Completion, error::DropReason, nic::ConfigError, op::OpStatus, time::Instant,
};
use thiserror::Error;

use crate::{
    invariant::Checker,
    link::{Faults, LinkOptions},
    node::{NodeId, NodeOptions},
    oracle::Effect,
    prng::{Chance, Prng},
    sim::Sim,
    trace::{Digest, Seen, What},
    violation::Violation,
    workload::{Planned, World},
};

/// All that a run depends on.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where every random number of the run comes from.
    pub seed: u64,
    /// The nodes; all have addresses of the same families. At least one.
    pub nodes: Vec<NodeOptions>,
    /// What joins them.
    pub link: LinkOptions,
    /// Ops that each node issues in the safety phase.
    pub safety_ops: u32,
    /// Ops that each node issues in the liveness phase.
    pub liveness_ops: u32,
    /// The mean time between two ops of a node.
    pub gap: Duration,
    /// How many of the ops are bound to fail: wrong keys, unknown regions, out of bounds, and so on.
    pub hopeless: Chance,
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, nodes, link, safety_ops, liveness_ops, gap, hopeless } = self;
        let Faults { loss, duplicate, replay, replay_within, corrupt } = link.faults;
        writeln!(f, "seed {seed}: {} nodes", nodes.len())?;
        for (number, node) in nodes.iter().enumerate() {
            let nic = &node.nic;
            let addresses: Vec<_> = nic.addresses.iter().collect();
            writeln!(
                f,
                "  n{number} {addresses:?} mtu {} rate {} B/s window {} slots {} regions {} inbound queue {} \
                 notices {}/s dispatch timeout {:?} timeout {:?} counter from {:#x}",
                node.mtu,
                node.rate,
                nic.solicitation_window,
                nic.command_slots,
                nic.regions,
                nic.inbound_queue,
                nic.notices_per_second,
                nic.timing.dispatch_timeout,
                nic.timing.timeout,
                nic.counter_start,
            )?;
        }
        writeln!(
            f,
            "  links: delay {:?} + {:?} rate {} B/s queue {} B",
            link.delay, link.jitter, link.rate, link.queue
        )?;
        writeln!(
            f,
            "  faults: loss {loss}, duplicate {duplicate}, replay {replay} within {replay_within:?}, \
             corrupt {corrupt}"
        )?;
        write!(
            f,
            "  ops: {safety_ops} + {liveness_ops} a node, one every {gap:?}, {hopeless} hopeless"
        )
    }
}

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How ops ended, by status code.
    pub statuses: [u64; OpStatus::ALL.len()],
    /// Frames that were dropped by NICs, by reason code.
    pub drops: [u64; DropReason::ALL.len()],
    /// Commands that were refused because their slot was busy.
    pub refused: u64,
    /// Frames that NICs sent.
    pub frames: u64,
    /// Events.
    pub steps: u64,
    /// The most solicited payload that was ever on its way to one node.
    pub peak_in_flight: u64,
    /// When the last thing happened.
    pub end: Instant,
    /// All of it in one number.
    pub digest: Digest,
}

impl Report {
    /// Adds another run: counts are summed, the peak and the end are the largest, and the digest is one of all
    /// digests in the order in which they were added.
    pub fn add(&mut self, other: &Self) {
        self.statuses.iter_mut().zip(other.statuses).for_each(|(sum, count)| *sum += count);
        self.drops.iter_mut().zip(other.drops).for_each(|(sum, count)| *sum += count);
        self.refused += other.refused;
        self.frames += other.frames;
        self.steps += other.steps;
        self.peak_in_flight = self.peak_in_flight.max(other.peak_in_flight);
        self.end = self.end.max(other.end);
        self.digest.fold(other.digest);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frames, steps, peak_in_flight, refused, end, digest, .. } = self;
        writeln!(f, "digest {digest}, {steps} events, {frames} frames, {} ns", end.as_nanos())?;
        writeln!(f, "at most {peak_in_flight} B solicited and in flight; {refused} refused")?;
        for status in OpStatus::ALL.into_iter().filter(|&s| self.statuses[s as usize] > 0) {
            writeln!(f, "{:>8} {status}", self.statuses[status as usize])?;
        }
        for reason in DropReason::ALL.into_iter().filter(|&r| self.drops[r as usize] > 0) {
            writeln!(f, "{:>8} dropped: {reason:?}", self.drops[reason as usize])?;
        }
        Ok(())
    }
}

/// Why a run ended early.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The options make no NIC.
    #[error("no NIC can be built from these options: {0}")]
    Config(#[from] ConfigError),
    /// A promise was not kept.
    #[error("at {} ns: {violation}", .at.as_nanos())]
    Violation {
        /// When it was found.
        at: Instant,
        /// Which.
        violation: Violation,
    },
}

/// Runs `options` to the end and checks everything on the way. `watch` is shown all that happens.
///
/// # Errors
/// The first promise that was not kept.
pub fn run(options: &Options, watch: impl FnMut(&Seen)) -> Result<Report, Failure> {
    let mut run = Run::new(options, watch)?;
    match run.phases() {
        Ok(()) => Ok(run.report()),
        Err(violation) => Err(Failure::Violation { at: run.sim.now(), violation }),
    }
}

/// More events than any run of sane options needs.
const STEPS_MAX: u64 = 20_000_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Safety,
    Liveness,
}

struct Run<'a, W> {
    options: &'a Options,
    sim: Sim,
    checker: Checker,
    world: World,
    phase: Phase,
    pace: Prng,
    /// What is outstanding, by node and slot, in the order of both.
    planned: std::collections::BTreeMap<(NodeId, u16), Planned>,
    report: Report,
    watch: W,
}

/// When a node issues next, and how many more ops.
struct Pace {
    at: Instant,
    left: u32,
}

impl<'a, W: FnMut(&Seen)> Run<'a, W> {
    fn new(options: &'a Options, watch: W) -> Result<Self, ConfigError> {
        let prng = Prng::new(options.seed);
        let mut sim = Sim::new(&options.nodes, options.link, prng.fork(0).next())?;
        let world = World::new(&mut sim, prng.fork(1));
        Ok(Self {
            options,
            checker: Checker::new(&sim),
            sim,
            world,
            phase: Phase::Safety,
            pace: prng.fork(2),
            planned: Default::default(),
            report: Report::default(),
            watch,
        })
    }

    fn phases(&mut self) -> Result<(), Violation> {
        self.phase(self.options.safety_ops)?;
        self.sim.set_faults(Faults::default());
        self.phase = Phase::Liveness;
        self.phase(self.options.liveness_ops)?;
        self.world.check_rest()
    }

    /// Every node issues `ops` ops; then the network comes to rest.
    fn phase(&mut self, ops: u32) -> Result<(), Violation> {
        let nodes: Vec<NodeId> = self.sim.nodes().collect();
        let mut paces: Vec<Pace> = nodes
            .iter()
            .map(|_| Pace { at: self.sim.now() + self.draw_gap(), left: ops })
            .collect();
        loop {
            let ready = |&(node, pace): &(&NodeId, &Pace)| pace.left > 0 && self.may_issue(*node);
            let next = nodes.iter().zip(&paces).filter(ready);
            let next = next.map(|(&node, pace)| (pace.at.max(self.sim.now()), node)).min();
            match (next, self.sim.next_at()) {
                (None, None) => break,
                (Some((at, node)), event) if event.is_none_or(|event| at <= event) => {
                    self.sim.advance_to(at);
                    self.issue(node);
                    let gap = self.draw_gap();
                    let pace = &mut paces[node.index()];
                    pace.left -= 1;
                    pace.at = at + gap;
                }
                _ => {
                    self.sim.step();
                    self.report.steps += 1;
                    if self.report.steps > STEPS_MAX {
                        return Err(Violation::Restless { steps: self.report.steps });
                    }
                }
            }
            self.take_seen()?;
        }
        // Nothing will happen any more, so whatever is outstanding is so for ever.
        match self.planned.keys().next() {
            Some(&(node, slot)) => Err(Violation::Overdue { node, slot, due: self.sim.now() }),
            None => Ok(()),
        }
    }

    fn draw_gap(&mut self) -> Duration {
        let nanos = u64::try_from(self.options.gap.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.pace.below(nanos.saturating_mul(2)) + 1)
    }

    /// Whether `node` may issue an op now. In the liveness phase only so few may be outstanding that no
    /// queue of any node can be full.
    fn may_issue(&self, node: NodeId) -> bool {
        let outstanding = self.checker.outstanding_of(node);
        if self.phase == Phase::Safety {
            return outstanding < self.sim.nic(node).slot_count();
        }
        let depth = |node| self.sim.nic(node).config().settings().inbound_queue as usize;
        let most = self.sim.nodes().map(depth).min().unwrap_or(0);
        outstanding == 0 && self.checker.outstanding() < most
    }

    /// Issues the next op of `node`, which has a free slot. Now and then software is wrong about that.
    fn issue(&mut self, node: NodeId) {
        let slots = self.sim.nic(node).slot_count() as u64;
        let slot = self.pace.below(slots) as u16;
        let is_wrong = self.pace.chance(Chance::ppm(50_000));
        if is_wrong && self.checker.is_outstanding(node, slot) {
            let planned = self.world.plan(&self.sim, node, slot, self.options.hopeless);
            let refused = self.sim.issue(node, planned.command).is_err();
            self.report.refused += u64::from(refused);
        }
        let is_free = |slot: &u16| !self.checker.is_outstanding(node, *slot);
        let free = (slot..slots as u16).chain(0..slot).find(is_free);
        let slot = free.expect("asked by the caller");
        let planned = self.world.plan(&self.sim, node, slot, self.options.hopeless);
        let _ = self.sim.issue(node, planned.command);
        self.planned.insert((node, slot), planned);
    }

    fn take_seen(&mut self) -> Result<(), Violation> {
        let all: Vec<Seen> = self.sim.take_seen().collect();
        for seen in &all {
            (self.watch)(seen);
            self.report.digest.take(seen);
            self.checker.take(&self.sim, seen)?;
            match &seen.what {
                What::Issued { command, result: Ok(()) } => {
                    self.world.check_area_rest(seen.node, command.slot)?;
                }
                What::Completed(completion) => self.completed(seen.node, completion)?,
                _ => {}
            }
        }
        self.checker.check(&self.sim)
    }

    fn completed(&mut self, node: NodeId, completion: &Completion) -> Result<(), Violation> {
        let &Completion { slot, status, .. } = completion;
        self.report.statuses[status as usize] += 1;
        let unasked = Violation::CompletedUnasked { node, slot: slot.0, status };
        let planned = self.planned.remove(&(node, slot.0)).ok_or(unasked)?;
        if !self.may_end_with(&planned, status) {
            let expected = planned.expected;
            return Err(Violation::Status { node, slot: slot.0, status, expected });
        }
        let honest = planned.expected == OpStatus::Ok;
        let data = if honest { self.world.source_of(&planned) } else { Vec::new() };
        let effect = Effect { offset: planned.area_offset, data: &data };
        self.world.area_mut(node, slot).check_effect(status, effect)
    }

    fn may_end_with(&self, planned: &Planned, status: OpStatus) -> bool {
        use OpStatus::{
            DispatchTimeout, InvalidCommand, Nack, Ok, RemoteAuthenticationFailure, Timeout,
        };
        let expected = planned.expected;
        if status == expected {
            return true;
        }
        let limited = self.notices_limited(planned.responder) > planned.notices_limited;
        if expected == RemoteAuthenticationFailure && status == Timeout && limited {
            return true;
        }
        if self.phase == Phase::Liveness || expected == InvalidCommand {
            return false;
        }
        match status {
            Timeout | DispatchTimeout => true,
            Nack => expected == Ok,
            // A corrupted request does not authenticate.
            RemoteAuthenticationFailure => !self.options.link.faults.corrupt.is_never(),
            _ => false,
        }
    }

    fn notices_limited(&self, node: NodeId) -> u64 {
        self.sim.nic(node).counters().drops(DropReason::NoticeRateLimited)
    }

    fn report(mut self) -> Report {
        for node in self.sim.nodes() {
            let counters = self.sim.nic(node).counters();
            for (reason, count) in counters.all_drops() {
                self.report.drops[reason as usize] += count;
            }
            self.report.frames += counters.frames_sent();
        }
        self.report.peak_in_flight = self.checker.peak_in_flight();
        self.report.end = self.sim.now();
        self.report
    }
}
