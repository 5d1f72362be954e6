//! A workload of reads, writes and rekeys, run over a [`Sim`] with every invariant checked after
//! every event.
//!
//! Two phases. *Safety*: the links have their faults, nodes are paused and crash, every node issues
//! at its own pace, some of it wrong on purpose; ops may fail, and nothing may go wrong.
//! *Liveness*: the faults are gone, all nodes run, and the network has come to rest; each op must
//! end in exactly the way that it deserves, every honest one with OK and right bytes.

mod options;
mod report;

use core::time::Duration;
use std::sync::Arc;

use rma_core::{
    command::{Command, CommandOp, CommandSlotId, Completion},
    crypto::CounterBlock,
    error::DropReason,
    nic::ConfigError,
    op::OpStatus,
    region::RegionId,
    time::Instant,
    wire::FrameView,
};
use thiserror::Error;

use crate::{
    check::{
        history::Broken,
        invariant::{Checker, OpName, name_of},
        violation::Violation,
    },
    load::workload::{Bias, Planned, World, notices_unsent},
    net::{
        counter::Counters,
        frame::{Frame, NodeId},
        link::Faults,
        mishap::{Change, Mishap, Mishaps},
        node::{Condition, NodeOptions},
        sim::{Sim, StallOptions},
        trace::{Seen, What},
    },
    prng::{Chance, Prng},
};
pub(crate) use options::OP_WIRE_LEN;
pub use options::Options;
pub use report::{Drops, Report};

/// The reason why a run ended early.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
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
        /// The promise that was not kept.
        violation: Violation,
    },
    /// A word did not behave as one that clients change one after the other.
    #[error("{0}")]
    Word(Box<Broken>),
}

/// Runs `options` to the end and checks everything on the way. `watch` is shown all that happens.
///
/// # Errors
/// The first promise that was not kept.
pub fn run(options: &Options, watch: impl FnMut(&Seen)) -> Result<Report, Failure> {
    let mut run = Run::new(options, watch)?;
    if let Err(violation) = run.phases() {
        return Err(Failure::Violation { at: run.sim.now(), violation });
    }
    let checked = run.world.check_words(&run.sim).map_err(Failure::Word)?;
    run.report.take_checked(&checked);
    Ok(run.report())
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
    mishaps: Mishaps,
    counters: Counters,
    phase: Phase,
    pace: Prng,
    /// The engine of a host that a pause is for.
    paused: Prng,
    /// How many ops may be outstanding in the liveness phase.
    outstanding_max: usize,
    /// The events, while they are looked at.
    seen: Vec<Seen>,
    /// The outstanding ops, by node and slot, in the order of both.
    planned: std::collections::BTreeMap<(NodeId, u16), Planned>,
    /// Commands that were issued, taken or not.
    issued: u64,
    report: Report,
    watch: W,
    /// Requests of mutations that somebody has recorded, and which is replayed next.
    recorded: Vec<Arc<Frame>>,
    next_recorded: usize,
}

/// So many requests are recorded, the first ones of a run: enough that none is remembered at its
/// target when it is replayed again.
const RECORDED_MAX: usize = 256;

/// When a node issues next, and how many more ops.
struct Pace {
    at: Instant,
    left: u32,
}

/// A node whose counter begins with `block`.
fn with_block(node: &NodeOptions, block: &CounterBlock) -> NodeOptions {
    let (counter_start, counter_end) = (block.first(), block.end());
    NodeOptions {
        place: node.place.with(|it| {
            it.counter_start = counter_start;
            it.counter_end = counter_end;
        }),
        ..*node
    }
}

impl<'a, W: FnMut(&Seen)> Run<'a, W> {
    fn new(options: &'a Options, watch: W) -> Result<Self, ConfigError> {
        let prng = Prng::new(options.seed);
        let Options { nodes, link, switch, mishaps, .. } = options;
        let marks = nodes.iter().map(|node| node.place.counter_start);
        let mut counters = Counters::new(options.counters, marks, &prng.fork(4));
        let first_life = |(number, node): (u16, &NodeOptions)| {
            with_block(node, &counters.first(NodeId(number), node.clock.starts_at))
        };
        let nodes: Vec<NodeOptions> = (0..).zip(nodes).map(first_life).collect();
        let mut sim = Sim::new(&nodes, *link, *switch, prng.fork(0).next())?;
        sim.set_spread(options.spread);
        sim.set_stalls(StallOptions { chance: mishaps.stall, length_max: mishaps.pause_max });
        let world = World::new(&mut sim, prng.fork(1));
        Ok(Self {
            options,
            checker: Checker::new(&sim),
            sim,
            world,
            mishaps: Mishaps::new(*mishaps, nodes.len(), &prng.fork(3)),
            counters,
            phase: Phase::Safety,
            pace: prng.fork(2),
            paused: prng.fork(5),
            outstanding_max: options.outstanding_max(),
            seen: Vec::new(),
            planned: Default::default(),
            issued: 0,
            report: Report::default(),
            watch,
            recorded: Vec::new(),
            next_recorded: 0,
        })
    }

    fn phases(&mut self) -> Result<(), Violation> {
        let nodes = self.options.nodes.len() as u16;
        let silent = (nodes.saturating_sub(self.options.silent)..nodes).map(NodeId);
        silent.clone().for_each(|node| self.sim.set_silent(node, true));
        self.phase(self.options.safety_ops)?;
        silent.for_each(|node| self.sim.set_silent(node, false));
        self.sim.set_faults(Faults::default());
        self.sim.set_stalls(StallOptions::default());
        self.counters.hurry();
        self.phase = Phase::Liveness;
        let nodes: Vec<NodeId> = self.sim.nodes().collect();
        nodes.into_iter().try_for_each(|node| self.world.serve(node))?;
        self.phase(self.options.liveness_ops)
    }

    /// Every node issues `ops` ops; then the network comes to rest.
    fn phase(&mut self, ops: u32) -> Result<(), Violation> {
        let nodes: Vec<NodeId> = self.sim.nodes().collect();
        let mut paces: Vec<Pace> = nodes
            .iter()
            .map(|_| Pace { at: self.sim.now() + self.draw_gap(), left: ops })
            .collect();
        loop {
            let (mut stepped, mut acted) = (None, None);
            let ready = |&(node, pace): &(&NodeId, &Pace)| pace.left > 0 && self.may_issue(*node);
            let next = nodes.iter().zip(&paces).filter(ready);
            let next = next.map(|(&node, pace)| (pace.at.max(self.sim.now()), node)).min();
            let event = self.sim.next_at();
            let is_first = |at| event.is_none_or(|event| at <= event);
            let others = self.mishaps.next().into_iter().chain(next).map(|(at, _)| at).min();
            match (self.mishaps.next(), next) {
                _ if let Some((at, node)) = self.counters.next()
                    && is_first(at)
                    && others.is_none_or(|other| at <= other) =>
                {
                    self.sim.advance_to(at);
                    let block = self.counters.take(node, self.sim.local_now(node));
                    let mut engines = self.sim.engines_of(node).iter().copied();
                    let engine = engines.find(|&it| self.sim.nic(it).wants_counter_block());
                    self.sim.add_counter_block(engine.unwrap_or(node), block);
                    acted = Some(node);
                    if self.sim.engines_of(node).len() > 1 {
                        self.supply(node);
                    }
                }
                (Some((at, node)), next)
                    if is_first(at) && next.is_none_or(|(next, _)| at <= next) =>
                {
                    self.sim.advance_to(at);
                    self.strike(node)?;
                }
                (_, Some((at, node))) if is_first(at) => {
                    self.sim.advance_to(at);
                    if self.phase == Phase::Safety {
                        self.world.tend(&self.sim, node)?;
                    }
                    let issued = self.issue_lot(node, paces[node.index()].left)?;
                    acted = Some(node);
                    self.supply(node);
                    self.replay();
                    let gap = self.draw_gap();
                    let pace = &mut paces[node.index()];
                    pace.left -= issued;
                    pace.at = at + gap;
                }
                _ if event.is_some() => {
                    if let Some(node) = self.sim.step() {
                        let node = self.sim.host_of(node);
                        self.supply(node);
                        (stepped, acted) = (Some(node), Some(node));
                    }
                    self.report.steps += 1;
                    if self.report.steps > STEPS_MAX {
                        return Err(Violation::Restless { steps: self.report.steps });
                    }
                }
                _ => break,
            }
            self.take_seen()?;
            if let Some(node) = acted {
                self.world.look_at_boards(node)?;
            }
            if let Some(node) = stepped.filter(|_| self.phase == Phase::Liveness) {
                self.world.serve(node)?;
            }
        }
        // Nothing will happen any longer, so whatever is outstanding is so for ever.
        if let Some(&(node, slot)) = self.planned.keys().next() {
            return Err(Violation::Overdue { node, slot, due: self.sim.now() });
        }
        self.checker.check_rest(&self.sim)?;
        self.world.check_rest(&self.sim)
    }

    /// Puts recorded requests on the wire once more: whoever does so has no key.
    fn replay(&mut self) {
        if self.phase != Phase::Safety {
            return;
        }
        let count = self.recorded.len().min(self.options.recordings as usize);
        let next = self.recorded.iter().cycle().skip(self.next_recorded);
        let frames: Vec<_> = next.take(count).cloned().collect();
        self.next_recorded = (self.next_recorded + count) % self.recorded.len().max(1);
        frames.iter().for_each(|frame| self.checker.replayed(frame));
        self.sim.replay(&frames);
    }

    /// Begins to reserve counter values, if `node` wants more.
    fn supply(&mut self, node: NodeId) {
        let is_up = self.sim.condition(node) != Condition::Down;
        let mut engines = self.sim.engines_of(node).iter();
        if is_up && engines.any(|&it| self.sim.nic(it).wants_counter_block()) {
            self.counters.want(self.sim.now(), node);
        }
    }

    fn draw_gap(&mut self) -> Duration {
        let nanos = u64::try_from(self.options.gap.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.pace.below(nanos.saturating_mul(2)) + 1)
    }

    /// Whether `node` may issue an op now. In the liveness phase only so few may be outstanding
    /// that no queue of any node can be full.
    fn may_issue(&self, node: NodeId) -> bool {
        if self.phase == Phase::Safety {
            let slots = self.sim.slot_count(node) as u16;
            return (0..slots).any(|slot| self.is_ready(node, slot));
        }
        let mut engines = self.sim.engines_of(node).iter();
        let all_run = engines.all(|&it| self.sim.condition(it) == Condition::Running);
        let is_idle = self.checker.outstanding_of(node) == 0;
        all_run && is_idle && self.checker.outstanding() < self.outstanding_max
    }

    /// Whether the engine of `node` that has a slot runs.
    fn runs(&self, node: NodeId, slot: u16) -> bool {
        self.sim.condition(self.sim.engine_of(node, slot)) == Condition::Running
    }

    /// Whether a slot of `node` is free, and its engine runs.
    fn is_ready(&self, node: NodeId, slot: u16) -> bool {
        self.runs(node, slot) && !self.checker.is_outstanding(node, slot)
    }

    /// Issues the next ops of `node`, which has a free slot: as many as it issues in a turn, at
    /// most `left`. Returns how many there were.
    fn issue_lot(&mut self, node: NodeId, left: u32) -> Result<u32, Violation> {
        let together = if self.phase == Phase::Safety { self.options.together } else { 1 };
        let nodes = self.options.nodes.len() as u64;
        let responder = (together > 1).then(|| NodeId(self.pace.below(nodes) as u16));
        let mut issued = 0;
        loop {
            self.issue(node, responder);
            issued += 1;
            if issued == together.min(left) {
                break;
            }
            self.look()?;
            if !self.may_issue(node) {
                break;
            }
        }
        self.sim.end_turn(node);
        Ok(issued)
    }

    /// Issues the next op of `node`, which has a free slot; to `responder`, if there is one. Now
    /// and then software is wrong about the slot.
    fn issue(&mut self, node: NodeId, responder: Option<NodeId>) {
        let bias = Bias { responder, ..self.bias() };
        let slots = self.sim.slot_count(node) as u64;
        // One more than there are.
        let wrong_slot = self.pace.below(slots + 1) as u16;
        let slot = self.pace.below(slots) as u16;
        let is_wrong = self.pace.chance(Chance::ppm(50_000));
        let is_foreign = u64::from(wrong_slot) == slots;
        let is_busy = is_foreign || self.checker.is_outstanding(node, wrong_slot);
        if is_wrong && is_busy && self.runs(node, wrong_slot) {
            let planned = self.world.plan(&self.sim, node, slot, bias);
            let command = Command { slot: CommandSlotId(wrong_slot), ..planned.command };
            let refused = self.sim.issue(node, command).is_err();
            self.issued += 1;
            self.report.refused += u64::from(refused);
        }
        let mut slots = (slot..slots as u16).chain(0..slot);
        let free = slots.find(|&slot| self.is_ready(node, slot));
        let slot = free.expect("asked by the caller");
        let mut planned = self.world.plan(&self.sim, node, slot, bias);
        planned.number = self.issued;
        self.world.begin(&self.sim, node, &planned);
        let _ = self.sim.issue(node, planned.command);
        self.issued += 1;
        self.planned.insert((node, slot), planned);
    }

    const fn bias(&self) -> Bias {
        let Options { hopeless, old_keys, mutations, rekeys, recorded, .. } = *self.options;
        Bias { responder: None, hopeless, old_keys, mutations, rekeys, recorded }
    }

    /// Does to `node` what is scheduled for it now.
    fn strike(&mut self, node: NodeId) -> Result<(), Violation> {
        let mishap = self.mishaps.strike(self.sim.now(), node);
        let engines = self.sim.engines_of(node).to_vec();
        let is_stopped = |&node: &NodeId| self.sim.condition(node) == Condition::Paused;
        match mishap {
            Mishap::Pause(length) => {
                let engine = self.paused.choose(&engines);
                // Or it is already.
                if !is_stopped(&engine) {
                    self.sim.pause(engine, length);
                }
            }
            // An engine, which does it, does not run.
            Mishap::Change(_) if engines.iter().any(is_stopped) => {}
            Mishap::Crash => {
                for &engine in &engines {
                    self.report.take_counters(self.sim.nic(engine).counters());
                }
                self.sim.crash(node);
                self.counters.crash(node, self.sim.local_now(node));
                let slots = (node, 0)..=(node, u16::MAX);
                let lost: Vec<_> = self.planned.extract_if(slots, |_, _| true).collect();
                for (_, planned) in lost {
                    self.world.orphan(node, planned)?;
                }
                self.world.check_local(node)?;
                self.world.crashed(node)?;
            }
            Mishap::Change(change) => {
                self.report.changes += 1;
                let changed = match change {
                    Change::Key => {
                        let region = self.world.rotate(&mut self.sim, node);
                        self.key_put(node, region, None);
                        Vec::new()
                    }
                    Change::Target => self.world.churn(&mut self.sim, node)?.to_vec(),
                    Change::Local => {
                        self.world.churn_local(&mut self.sim, node);
                        Vec::new()
                    }
                };
                for region in changed {
                    self.region_changed(node, region);
                }
            }
            Mishap::Restart { new_keys } => {
                let before = &self.options.nodes[node.index()];
                let local = self.sim.local_now(node);
                let clock = self.mishaps.restarted_clock(node, local, before.clock);
                let block = self.counters.first(node, clock.starts_at);
                let options = with_block(&NodeOptions { clock, ..*before }, &block);
                self.sim.restart(node, &options).expect("these options have worked before");
                for region in self.world.restart(&mut self.sim, node, new_keys) {
                    self.region_changed(node, region);
                }
            }
        }
        Ok(())
    }

    /// `region` of `node` is gone, or another one.
    fn region_changed(&mut self, node: NodeId, region: RegionId) {
        self.checker.region_changed(node, region);
        self.may_fail(node, region, None);
    }

    /// `region` of `node` has another key: by the op of `frame`, or by its owner.
    fn key_put(&mut self, node: NodeId, region: RegionId, by: Option<(&Frame, OpName)>) {
        self.checker.key_put(&self.sim, node, region, by.map(|(frame, _)| frame));
        let by = by.filter(|(_, op)| op.is_under_way);
        self.may_fail(node, region, by.map(|(_, op)| (op.initiator, op.slot)));
    }

    /// `region` of `node` has changed. Ops on it may fail for that; but not `by`, which changed it.
    fn may_fail(&mut self, node: NodeId, region: RegionId, by: Option<(NodeId, u16)>) {
        for (&name, planned) in &mut self.planned {
            let is_of = planned.responder == node && planned.command.remote_region == region;
            planned.stale |= is_of && Some(name) != by;
        }
    }

    /// Solicited data was accepted: of a Rekey, it changes a region.
    fn applied(&mut self, node: NodeId, frame: &Frame) -> Result<(), Violation> {
        let Some(op) = self.checker.op_of(frame) else { return Ok(()) };
        let OpName { number, op_type, .. } = op;
        for commit in self.checker.take_commits() {
            self.world.applied(&commit)?;
        }
        if let Ok(FrameView::Solicitation(view)) = FrameView::parse(&frame.bytes) {
            self.world.named(number, name_of(&view.claims()));
        }
        if op_type.shape().is_secret
            && let Ok(FrameView::SolicitedData(view)) = FrameView::parse(&frame.bytes)
        {
            let region = view.claims().header.region;
            self.world.rekeyed(&self.sim, node, region)?;
            self.key_put(node, region, Some((frame, op)));
        }
        Ok(())
    }

    /// An op was refused for want of a receive.
    fn not_ready(&mut self, node: NodeId, frame: &Frame) -> Result<(), Violation> {
        let mut regions = self.checker.take_not_ready();
        if let Ok(FrameView::RecordedRequest(view)) = FrameView::parse(&frame.bytes) {
            regions.push(view.claims().header.region);
        }
        let bound = |names| self.checker.bound_receives(node, names);
        regions.iter().try_for_each(|&region| self.world.check_refusal(node, region, bound))
    }

    /// Takes in what has happened, and checks what must hold between events.
    fn take_seen(&mut self) -> Result<(), Violation> {
        self.look()?;
        self.checker.check(&self.sim)
    }

    /// Takes in what has happened, in the midst of a turn or behind it.
    fn look(&mut self) -> Result<(), Violation> {
        let mut all = core::mem::take(&mut self.seen);
        all.clear();
        self.sim.swap_seen(&mut all);
        for seen in &all {
            (self.watch)(seen);
            self.report.take(seen);
            self.checker.take(&self.sim, seen)?;
            let node = self.sim.host_of(seen.node);
            match &seen.what {
                What::Issued { command, result: Ok(()) } => {
                    self.world.check_area(node, command.slot)?;
                }
                What::Completed(completion) => self.completed(node, completion)?,
                What::Sent { frame, .. } if self.recorded.len() < RECORDED_MAX => {
                    if let Ok(
                        FrameView::MutationRequest(_)
                        | FrameView::RecordedRequest(_)
                        | FrameView::SettleRequest(_),
                    ) = FrameView::parse(&frame.bytes)
                    {
                        self.recorded.push(frame.clone());
                    }
                }
                What::Received { frame, result: Ok(()), .. } => self.applied(node, frame)?,
                What::Received {
                    frame,
                    altered: None,
                    result: Err(DropReason::NoReceivePosted | DropReason::NoReceiveLeft),
                    ..
                } => self.not_ready(node, frame)?,
                _ => {}
            }
        }
        self.seen = all;
        Ok(())
    }

    fn completed(&mut self, node: NodeId, completion: &Completion) -> Result<(), Violation> {
        let &Completion { slot, status, .. } = completion;
        let unasked = Violation::CompletedUnasked { node, slot: slot.0, status };
        let planned = self.planned.remove(&(node, slot.0)).ok_or(unasked)?;
        if !self.may_end_with(&planned, status) {
            let expected = planned.expected;
            return Err(Violation::Status { node, slot: slot.0, status, expected });
        }
        match planned.command.op {
            CommandOp::Settle { .. } => {
                self.report.count_settle(status, completion.verdict());
            }
            _ => self.report.count_end(planned.command.op.op_type(), status),
        }
        self.world.end(&self.sim, node, completion, &planned)
    }

    fn may_end_with(&self, planned: &Planned, status: OpStatus) -> bool {
        use OpStatus::{
            DispatchTimeout, InvalidCommand, Nack, Ok, RemoteAuthenticationFailure, RemoteNotReady,
            Timeout,
        };
        let expected = planned.expected;
        if status == expected {
            return true;
        }
        // A corrupted request does not authenticate, nor does one for a region that has changed. No
        // other op has any reason to fail so (P11).
        let in_safety = self.phase == Phase::Safety;
        let may_be_refused = planned.stale
            || in_safety && !self.options.link.faults.corrupt.is_never()
            || self.world.life(planned.responder) != planned.responder_life;
        // The initiator of a refused op learns of it, within the rates of notices (P10, P11).
        let responder = planned.responder;
        let untold = notices_unsent(&self.sim, responder) > planned.notices_unsent
            || self.checker.lacked_notices(&self.sim, responder, planned.planned_at);
        if status == Timeout && untold && (expected == RemoteAuthenticationFailure || planned.stale)
        {
            return true;
        }
        match status {
            RemoteAuthenticationFailure => may_be_refused && expected != InvalidCommand,
            Timeout | DispatchTimeout => in_safety && expected != InvalidCommand,
            Nack => {
                let responder = planned.responder;
                let region = planned.command.remote_region;
                let lacks_record = planned.is_recorded()
                    && self.checker.may_lack_records(&self.sim, responder, region);
                // Whether there is a receive is looked at last.
                let is_last = planned.consumes_receive() && expected != InvalidCommand;
                in_safety && (expected == Ok || is_last) || expected == Ok && lacks_record
            }
            // Posted receives may be bound to ops that are under way.
            RemoteNotReady => {
                let is_scarce = self.world.may_lack_receives(planned, self.outstanding_max);
                expected == Ok && planned.consumes_receive() && (in_safety || is_scarce)
            }
            _ => false,
        }
    }

    fn report(mut self) -> Report {
        for node in self.sim.engines() {
            self.report.take_counters(self.sim.nic(node).counters());
        }
        self.report.take_boards(self.world.boards());
        self.report.queue_rekeys = self.world.queue_rekeys();
        self.report.peak_in_flight = self.checker.peak_in_flight();
        self.report.gathers = self.sim.gathers();
        self.report.end = self.sim.now();
        self.report
    }
}
