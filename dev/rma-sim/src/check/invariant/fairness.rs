//! Two classes of service that do not starve each other, and reads that are refused by how much
//! waits before them.
//!
//! Wherever ops of both classes wait for the same thing (to enter service, to be answered, to be
//! solicited), none waits for more than one of the other class, after the one that was just served.
//! All answers to a read of the latency class are one.
//!
//! All data of an op of the latency class leaves an engine in one turn, one frame after the other,
//! unless the counter values end meanwhile.
//!
//! A read is NACKed, or another in its place, if, and only if, the queue of its class has no place,
//! or so many bytes of answers are before it that its own would come too late: more than can be
//! sent in (timeout - RTT - dispatch timeout). Jobs whose region has changed, and those that have
//! made room and have not been told so, may or may not have left the queue: they count for a NACK,
//! and not against one.

use core::time::Duration;

use rma_core::{
    limits::OP_SIZE_MAX,
    op::{ClassOfService, OpType},
    time::Instant,
};

use super::{
    Checker,
    memory::Ops,
    settings,
    state::{Job, NodeState, Op, OpIndex, Pending, PendingState},
};
use crate::{
    check::violation::{Turn, Violation},
    net::{frame::NodeId, sim::Sim, trace::Seen},
};

/// One node's last turns, in its present life.
#[derive(Debug, Default)]
pub(super) struct Fairness {
    /// By [`Turn`]: which class, and when by the node's clock.
    last: [Option<(ClassOfService, Instant)>; 3],
    /// An op of the latency class of which data has left and more must follow at once, and how much
    /// of it has left.
    begun: Option<(OpIndex, u32)>,
    /// When the node forgot for the last time what was too late.
    expired_at: Instant,
}

impl Fairness {
    /// Whether the node may not have forgotten a job as too late: no timer wakes it for that.
    pub(super) fn may_hold(&self, job: &Job, timeout: Duration) -> bool {
        self.expired_at.since(job.arrived_at) < timeout
    }

    /// The op whose data leaves.
    pub(super) fn op(&self) -> Option<OpIndex> {
        self.begun.map(|(op, _)| op)
    }

    /// Something that had been accepted was refused when its turn came: whose turn is next cannot
    /// be told.
    pub(super) fn refused(&mut self) {
        self.last[Turn::Response as usize] = None;
        self.last[Turn::Solicitation as usize] = None;
    }
}

impl Checker {
    /// A response to a read of `class`, the latency class, was sent that is not its first.
    pub(super) fn served_on(&mut self, seen: &Seen, class: ClassOfService) {
        let fairness = &mut self.nodes[seen.node.index()].fairness;
        fairness.expired_at = seen.local;
        fairness.last[Turn::Response as usize] = Some((class, seen.local));
    }

    /// A frame was sent: `part` says which part of an op's data it has, if any.
    pub(super) fn sent_in_turn(
        &mut self,
        sim: &Sim,
        node: NodeId,
        part: Option<(OpIndex, ClassOfService, (u32, u32))>,
    ) -> Result<(), Violation> {
        if !sim.takes_turns(node) {
            return Ok(());
        }
        let begun = &mut self.nodes[node.index()].fairness.begun;
        if let Some((op, sent)) = begun.take()
            && part.is_none_or(|(index, _, (start, _))| (index, start) != (op, sent))
        {
            return Err(self.torn(node, op));
        }
        *begun = part
            .filter(|&(op, class, (_, end))| {
                class == ClassOfService::Latency && end < self.ops[op].size
            })
            .map(|(op, _, (_, end))| (op, end));
        Ok(())
    }

    /// Nothing happens any more in the turn of `node`.
    pub(super) fn check_turn(&mut self, sim: &Sim, node: NodeId) -> Result<(), Violation> {
        match self.nodes[node.index()].fairness.begun.take() {
            // The rest goes when there are values again, unless the op is too late by then.
            Some((op, _)) if sim.nic(node).counter_values_left() > 0 => Err(self.torn(node, op)),
            _ => Ok(()),
        }
    }

    fn torn(&self, node: NodeId, op: OpIndex) -> Violation {
        let Op { initiator, slot, .. } = self.ops[op];
        Violation::Torn { node, initiator, slot }
    }

    /// A frame of an op of `class` was sent, for which ops wait in turns.
    pub(super) fn served(
        &mut self,
        sim: &Sim,
        seen: &Seen,
        turn: Turn,
        class: ClassOfService,
        op_type: OpType,
    ) -> Result<(), Violation> {
        let (node, now) = (seen.node, seen.local);
        let timing = settings(sim, node).timing;
        let state = &mut self.nodes[node.index()];
        let last = state.fairness.last[turn as usize].replace((class, now));
        state.fairness.expired_at = now;
        let Some((last, since)) = last.filter(|&(last, _)| last == class) else { return Ok(()) };
        let other = last.other();
        let waits = match turn {
            // A read needs window, and if there is none, mutations go on.
            Turn::Service if state.waiting[other as usize] == 0 => false,
            Turn::Service => state.slots.iter().flatten().any(|it| {
                it.class == other
                    && it.entered.is_none()
                    && (!it.op_type.shape().needs_window() || op_type.shape().needs_window())
                    && it.issued_at < since
                    && now.since(it.issued_at) < timing.dispatch_timeout
            }),
            // An op that has made room no longer waits; nobody sees who it is before his notice
            // goes.
            Turn::Response | Turn::Solicitation if state.pushed_out > 0 => false,
            // An op that is refused for want of a record takes a turn that cannot be seen.
            Turn::Solicitation if state.records.may_lack(None, now, settings(sim, node)) => false,
            Turn::Response => state.any_job_waits(other, since, now, timing.timeout),
            Turn::Solicitation => {
                state.any_pending_waits(other, since, now, timing.dispatch_timeout)
            }
        };
        if waits { Err(Violation::Starved { node, class: other, turn }) } else { Ok(()) }
    }

    /// A read of `class` came, was authentic, permitted and in bounds, and was accepted, or NACKed,
    /// or another in its place.
    pub(super) fn check_queue(
        &self,
        sim: &Sim,
        seen: &Seen,
        class: ClassOfService,
        nacked: bool,
    ) -> Result<(), Violation> {
        let node = seen.node;
        let settings = settings(sim, node);
        let timeout = settings.timing.timeout;
        let state = &self.nodes[node.index()];
        let surely = |job: &Job| !job.stale && seen.local.since(job.arrived_at) < timeout;
        let perhaps = |job: &Job| state.fairness.may_hold(job, timeout);
        let queued = |class: ClassOfService| {
            let queued = Queued::default();
            state.jobs[class as usize].iter().fold(queued, |queued, job| {
                let counts = if nacked { perhaps(job) } else { surely(job) };
                if counts { queued.with(job, &self.ops) } else { queued }
            })
        };
        let (own, other) = (queued(class), queued(class.other()));
        let made_room = if nacked { 0 } else { state.pushed_out };
        let own = own.without(made_room);
        // In turns: all of its own class is before it, and as much of the other.
        let bytes = own.bytes + own.bytes.min(other.bytes);
        let late = timeout
            .checked_sub(settings.rtt)
            .and_then(|left| left.checked_sub(settings.timing.dispatch_timeout))
            .unwrap_or_default();
        let is_late = u128::from(bytes) * Duration::from_secs(1).as_nanos()
            > late.as_nanos() * u128::from(settings.bandwidth);
        let is_full = own.jobs >= settings.inbound_queue;
        if (is_late || is_full) == nacked {
            Ok(())
        } else {
            Err(Violation::Nacked { node, jobs: own.jobs, bytes, nacked })
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Queued {
    jobs: u32,
    bytes: u64,
}

impl Queued {
    /// As few as there may be when so many of them have made room.
    fn without(self, jobs: u64) -> Self {
        let bytes = self.bytes.saturating_sub(jobs * u64::from(OP_SIZE_MAX));
        Self { jobs: self.jobs.saturating_sub(jobs as u32), bytes }
    }

    fn with(self, job: &Job, ops: &Ops) -> Self {
        let left = ops[job.op].size - job.sent;
        Self { jobs: self.jobs + 1, bytes: self.bytes + u64::from(left) }
    }
}

impl NodeState {
    /// Whether a read of `class` has waited since before `since`. Not if there is one that the NIC
    /// will refuse, which takes a turn that cannot be seen.
    fn any_job_waits(
        &self,
        class: ClassOfService,
        since: Instant,
        now: Instant,
        timeout: Duration,
    ) -> bool {
        let jobs = &self.jobs[class as usize];
        let in_time = |job: &&Job| now.since(job.arrived_at) < timeout;
        jobs.iter().filter(in_time).any(|job| job.arrived_at < since)
            && !jobs.iter().any(|job| job.stale)
    }

    /// The same of mutations.
    fn any_pending_waits(
        &self,
        class: ClassOfService,
        since: Instant,
        now: Instant,
        dispatch_timeout: Duration,
    ) -> bool {
        let waiting = || {
            self.pending.iter().filter(|it| {
                it.class == class
                    && it.state == PendingState::Waiting
                    && now.since(it.arrived_at) < dispatch_timeout
            })
        };
        let takes_a_turn = |it: &Pending| {
            let is_waiting = it.class == class && it.state == PendingState::Waiting;
            is_waiting && (it.stale || now.since(it.arrived_at) >= it.limit)
        };
        waiting().any(|it| it.arrived_at < since) && !self.pending.iter().any(takes_a_turn)
    }
}
