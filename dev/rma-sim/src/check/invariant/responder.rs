//! The responder's side: requests that are accepted, what is sent for them, data that is applied.

use core::time::Duration;

use rma_core::{
    addr::HostAddr,
    crypto::KeyBinding,
    error::DropReason,
    limits::OP_SIZE_MAX,
    nic::Timing,
    op::{Moves, OpStatus},
    outcome::{Done, Verdict},
    region::RegionId,
    time::Instant,
    wire::{
        Acknowledgement, Header, Response, SettleRequest, Settlement, Solicitation, SolicitedData,
        mutation::SOLICITATION_HEADER_LEN, read::RESPONSE_HEADER_LEN,
        settle::SETTLEMENT_HEADER_LEN,
    },
};

use super::{
    Checker, Commit, Meant,
    binding::{binds, request_iv},
    initiator::name_of,
    records::{Asker, DueVerdict},
    settings,
    state::{End, Job, NodeState, Op, OpIndex, Pending, PendingState, all_granules, granules},
};
use crate::{
    check::violation::Violation,
    net::{
        frame::{Frame, NodeId},
        node::Condition,
        sim::Sim,
        trace::Seen,
    },
};

/// How many timeouts the acknowledgement of a Rekey may wait for its engine and its device.
const LONG: u32 = 16;

/// Returns the asker with a request from `initiator`, or is answered there.
const fn asker_of(initiator: HostAddr, header: &Header) -> Asker {
    Asker { initiator, pid: header.pid, region: header.region }
}

impl Checker {
    /// A region of host `node` is gone, or has another key from now on at all its engines: nothing
    /// that came under the old one may be served, applied or admitted any longer.
    pub fn region_changed(&mut self, node: NodeId, region: RegionId) {
        for engine in (0..self.nodes.len() as u16).map(NodeId) {
            if self.host_of(engine) == node {
                self.region_changed_at(engine, region);
            }
        }
    }

    /// The same, at one engine of the region's host.
    pub(super) fn region_changed_at(&mut self, engine: NodeId, region: RegionId) {
        let target = Some((self.host_of(engine), region));
        let outstanding = self.nodes.iter_mut().flat_map(|state| &mut state.slots).flatten();
        outstanding.filter(|it| it.target == target).for_each(|it| it.stale = true);
        // Long runs have many ops, and few that are not over.
        let ops = self.ops.iter_mut().filter(|op| op.target == target);
        ops.for_each(|op| op.stale = true);
        let (ops, state) = (&self.ops, &mut self.nodes[engine.index()]);
        let is_of = |op: OpIndex| ops[op].target == target;
        state
            .jobs
            .iter_mut()
            .flatten()
            .filter(|job| is_of(job.op) && job.settles.is_none())
            .for_each(|job| job.stale = true);
        let pending = state.pending.iter_mut().filter(|pending| is_of(pending.op));
        pending.for_each(|pending| pending.stale = true);
    }

    /// An op on a region that has changed was believed. Right only if the region has the op's key
    /// by now: who holds keys of times to come may ask too early, and somebody replays it in time.
    fn check_key(
        &mut self,
        sim: &Sim,
        node: NodeId,
        frame: &Frame,
        header: &Header,
    ) -> Result<(), Violation> {
        let op = &mut self.ops[self.meant.of(frame).op()];
        let Op { initiator, slot, op_type, key, .. } = *op;
        let [from, to] = [frame.transmit.source, frame.transmit.destination];
        let binding = KeyBinding { initiator: from, responder: to, pid: header.pid, op_type };
        let row = sim.nic(node).regions().get(header.region);
        op.stale &= row.is_none_or(|row| row.key.derive(&binding) != key);
        if op.stale { Err(Violation::OldKey { node, initiator, slot }) } else { Ok(()) }
    }

    /// Hop 1 was accepted.
    pub(super) fn request_accepted(
        &mut self,
        sim: &Sim,
        seen: &Seen,
        frame: &Frame,
        header: &Header,
    ) -> Result<(), Violation> {
        let index = self.meant.of(frame).op();
        let (node, arrived_at) = (seen.node, seen.local);
        self.ops[index].accepted += 1;
        self.check_key(sim, node, frame, header)?;
        let op = &self.ops[index];
        let state = &mut self.nodes[node.index()];
        if op.op_type.shape().moves == Moves::In {
            let from = frame.transmit.source;
            let request = request_iv(header);
            let (sent, stale, settles) = (0, false, None);
            let job = Job { op: index, from, request, arrived_at, sent, stale, settles };
            state.jobs[header.class as usize].push(job);
        } else {
            let [own, its] = [node, op.initiator].map(|it| settings(sim, it).timing.timeout);
            state.pending.push(Pending {
                op: index,
                request: request_iv(header),
                class: header.class,
                // The wire says microseconds.
                limit: own.min(Duration::from_micros(its.as_micros() as u64)),
                arrived_at,
                stale: false,
                state: PendingState::Waiting,
                refused: None,
                name: None,
                rekeyed: None,
                bound: false,
                arrived: 0,
                in_flight: 0,
            });
        }
        Ok(())
    }

    /// The op that a response is part of; `None` if it answers nothing that was asked, or not in
    /// order, or not any longer.
    pub(super) fn response_sent(
        &mut self,
        sim: &Sim,
        seen: &Seen,
        frame: &Frame,
        response: &Response,
        arrives: bool,
    ) -> Option<OpIndex> {
        let to = frame.to?;
        let Header { slot, generation, class, .. } = response.header;
        let (start, end) = response.span();
        let timeout = settings(sim, seen.node).timing.timeout;
        let aead = sim.nic(seen.node).aead();
        let NodeState { jobs, overtaken, .. } = &mut self.nodes[seen.node.index()];
        let jobs = &mut jobs[class as usize];
        let hosts = &self.hosts;
        let may_be = |job: &Job| {
            let op = &self.ops[job.op];
            !job.stale
                && job.settles.is_none()
                && job.from == frame.transmit.destination
                && seen.local.since(job.arrived_at) < timeout
                && (hosts[op.initiator.index()].0, op.slot, op.generation, job.sent)
                    == (to, slot.0, generation, start)
        };
        let is_bound = |job: &Job| {
            let header = (&response.header, RESPONSE_HEADER_LEN);
            binds(aead, &frame.bytes, header, &job.request, &self.ops[job.op].key)
        };
        let place = if jobs.iter().filter(|job| may_be(job)).count() > 1 {
            jobs.iter().position(|job| may_be(job) && is_bound(job))?
        } else {
            jobs.iter().position(may_be)?
        };
        let Job { op: index, from, .. } = jobs[place];
        jobs[place].sent = end;
        let op = &mut self.ops[index];
        if end == op.size {
            jobs.remove(place);
        }
        // An initiator that takes turns with others is served in order itself: those before it were
        // too late, or refused.
        let mut before = place;
        jobs.retain(|job| {
            let is_before = before > 0;
            before = before.saturating_sub(1);
            let is_overtaken = is_before && job.from == from;
            if is_overtaken {
                overtaken.push((job.op, seen.local));
            }
            !is_overtaken
        });
        let payload_len = u64::from(response.payload_len);
        op.answered += payload_len;
        if end > op.size || op.answered > op.accepted * u64::from(op.size) {
            return None;
        }
        if arrives && op.end.is_none() {
            op.in_flight += payload_len;
            self.nodes[op.initiator.index()].in_flight += payload_len;
            self.dirty.push(op.initiator);
        }
        Some(index)
    }

    pub(super) fn check_in_flight(&self, op: OpIndex) -> Result<(), Violation> {
        let op = &self.ops[op];
        let allowed = op.request_copies * u64::from(op.size);
        if op.in_flight <= allowed {
            Ok(())
        } else {
            Err(Violation::InFlight { node: op.initiator, bytes: op.in_flight, allowed })
        }
    }

    /// Hop 2 was sent. `None` if nobody asked for it, or not any longer. Of several copies of a
    /// request it is the first that has not waited for too long: those before are refused.
    pub(super) fn solicitation_sent(
        &mut self,
        sim: &Sim,
        seen: &Seen,
        frame: &Frame,
        solicitation: &Solicitation,
    ) -> Option<OpIndex> {
        let may_be = |pending: &Pending| {
            pending.state == PendingState::Waiting
                && !pending.stale
                && pending.class == solicitation.header.class
                && seen.local.since(pending.arrived_at) < pending.limit
        };
        let Header { slot, generation, .. } = solicitation.header;
        let (ops, hosts, to) = (&self.ops, &self.hosts, frame.to?);
        let waiting = self.nodes[frame.from.index()].pending.iter_mut().filter(|it| {
            let op = &ops[it.op];
            let host = hosts[op.initiator.index()].0;
            (host, op.slot, op.generation) == (to, slot.0, generation) && may_be(it)
        });
        let mut waiting: Vec<_> = waiting.collect();
        let aead = sim.nic(seen.node).aead();
        let is_bound = |pending: &&mut Pending| {
            let header = (&solicitation.header, SOLICITATION_HEADER_LEN);
            binds(aead, &frame.bytes, header, &pending.request, &ops[pending.op].key)
        };
        let dispatch_timeout = settings(sim, seen.node).timing.dispatch_timeout;
        let in_time = |pending: &&mut Pending| {
            seen.local.since(pending.arrived_at) < dispatch_timeout && is_bound(pending)
        };
        let place = if waiting.len() > 1 {
            let first = waiting.iter().position(in_time);
            first.or_else(|| waiting.iter().position(is_bound))?
        } else {
            0
        };
        let pending = waiting.get_mut(place)?;
        pending.state = PendingState::Solicited(frame.number, seen.local);
        let op = pending.op;
        if ops[op].is_recorded() {
            let name = name_of(solicitation);
            pending.name = Some(name);
            let asker = asker_of(frame.transmit.destination, &solicitation.header);
            let records = &mut self.nodes[frame.from.index()].records;
            records.solicited(name, asker, ops[op].op_type, seen.local);
        }
        Some(op)
    }

    /// Hop 4 was sent. `None` if not all data has come, or something else became of it than it
    /// says.
    pub(super) fn acknowledgement_sent(
        &mut self,
        frame: &Frame,
        acknowledgement: &Acknowledgement,
    ) -> Option<Meant> {
        let status = acknowledgement.status;
        let meant = self.answer_sent(frame, &acknowledgement.header, status)?;
        let has_result = status == OpStatus::Ok && self.ops[meant.op?].has_result();
        (!has_result).then_some(meant)
    }

    /// Hop 4 was sent, with a result. `None` if the op has none, or as
    /// [`Checker::acknowledgement_sent`].
    pub(super) fn result_sent(&mut self, frame: &Frame, header: &Header) -> Option<Meant> {
        let meant = self.answer_sent(frame, header, OpStatus::Ok)?;
        self.ops[meant.op?].has_result().then_some(meant)
    }

    fn answer_sent(&mut self, frame: &Frame, header: &Header, status: OpStatus) -> Option<Meant> {
        let is_answering = |pending: &Pending| {
            matches!(pending.state, PendingState::Answering(_))
                && pending.refused.unwrap_or(OpStatus::Ok) == status
        };
        let pending = self.find(frame, header, is_answering)?;
        let PendingState::Answering(solicitation) = pending.state else { return None };
        let op = Some(pending.op);
        let answered = |pending: &Pending| pending.state == PendingState::Answering(solicitation);
        self.nodes[frame.from.index()].pending.retain(|pending| !answered(pending));
        Some(Meant { op, solicitation: Some(solicitation) })
    }

    /// A request says that its initiator knows the end of an earlier op.
    pub(super) fn done_said(&mut self, node: NodeId, frame: &Frame, header: &Header, done: Done) {
        let (asker, host) = (asker_of(frame.transmit.source, header), self.host_of(node));
        self.states_of_mut(host).for_each(|state| state.records.done(&asker, done));
    }

    /// A SETTLE was accepted. What it asks about is no longer under way.
    pub(super) fn settle_accepted(
        &mut self,
        sim: &Sim,
        seen: &Seen,
        frame: &Frame,
        claims: &SettleRequest,
    ) -> Result<(), Violation> {
        let op = self.meant.of(frame).op();
        self.ops[op].accepted += 1;
        let (node, arrived_at, from) = (seen.node, seen.local, frame.transmit.source);
        self.check_key(sim, node, frame, &claims.header)?;
        let SettleRequest { header, op_type, name } = *claims;
        let asker = asker_of(from, &header);
        let settings = settings(sim, node);
        let is_it =
            |it: &Pending| matches!(it.state, PendingState::Solicited(..)) && it.name == Some(name);
        // Whichever engine has the record must be asked.
        let host = self.host_of(node);
        let dues = self.states_of_mut(host);
        let mut dues = dues.map(|it| it.records.ask(&asker, (op_type, name), arrived_at, settings));
        let due = dues.find(|&due| due != DueVerdict::FORGOTTEN);
        drop(dues);
        let mut due = due.unwrap_or(DueVerdict::FORGOTTEN);
        let (ops, state) = (&self.ops, &mut self.nodes[node.index()]);
        if due.verdict == Verdict::NotApplied
            && let Some(place) = state.pending.iter().position(is_it)
        {
            let pending = state.pending.remove(place);
            debug_assert!(ops[pending.op].is_recorded());
            state.in_flight -= pending.in_flight;
            let PendingState::Solicited(_, at) = pending.state else { return Ok(()) };
            // Until then it cannot have made room for others.
            due.may_be_forgotten = arrived_at.since(at) >= sim.nic(node).config().hold();
        }
        let request = request_iv(&header);
        let (sent, stale, settles) = (0, false, Some(due));
        let job = Job { op, from, request, arrived_at, sent, stale, settles };
        state.jobs[header.class as usize].push(job);
        Ok(())
    }

    /// The answer to a SETTLE was sent. The op is `None` if it answers nothing that was asked.
    pub(super) fn settlement_sent(
        &mut self,
        sim: &Sim,
        seen: &Seen,
        frame: &Frame,
        settlement: &Settlement,
    ) -> Result<Option<OpIndex>, Violation> {
        let Some(to) = frame.to else { return Ok(None) };
        let Header { slot, generation, class, .. } = settlement.header;
        let timeout = settings(sim, seen.node).timing.timeout;
        let (ops, hosts) = (&self.ops, &self.hosts);
        let aead = sim.nic(seen.node).aead();
        let NodeState { jobs, overtaken, .. } = &mut self.nodes[seen.node.index()];
        let jobs = &mut jobs[class as usize];
        let may_be = |job: &&Job| {
            let op = &ops[job.op];
            let header = (&settlement.header, SETTLEMENT_HEADER_LEN);
            job.settles.is_some()
                && job.from == frame.transmit.destination
                && seen.local.since(job.arrived_at) < timeout
                && (hosts[op.initiator.index()].0, op.slot, op.generation)
                    == (to, slot.0, generation)
                && binds(aead, &frame.bytes, header, &job.request, &op.key)
        };
        // Of copies of one request it may be any: those before may have made room.
        let told = settlement.verdict;
        let mut found = None;
        let mut known = None;
        for (place, job) in jobs.iter().enumerate().filter(|(_, job)| may_be(job)) {
            let due = job.settles.expect("a SETTLE's");
            known = Some(due.verdict);
            if due.allows(told) {
                found = Some(place);
                break;
            }
        }
        let Some(place) = found else {
            let node = seen.node;
            return known.map_or(Ok(None), |known| Err(Violation::Verdict { node, told, known }));
        };
        let Job { op, from, .. } = jobs.remove(place);
        let mut before = place;
        jobs.retain(|job| {
            let is_before = before > 0;
            before = before.saturating_sub(1);
            let is_overtaken = is_before && job.from == from;
            if is_overtaken {
                overtaken.push((job.op, seen.local));
            }
            !is_overtaken
        });
        Ok(Some(op))
    }

    /// The first mutation at the sender of `frame` that is of its receiver's op, and `is_it`.
    fn find(
        &mut self,
        frame: &Frame,
        header: &Header,
        is_it: impl Fn(&Pending) -> bool,
    ) -> Option<&mut Pending> {
        let to = frame.to?;
        let (ops, hosts) = (&self.ops, &self.hosts);
        self.nodes[frame.from.index()].pending.iter_mut().find(|pending| {
            let op = &ops[pending.op];
            let name = (hosts[op.initiator.index()].0, op.slot, op.generation);
            name == (to, header.slot.0, header.generation) && is_it(pending)
        })
    }

    /// Hop 3 was received. If it was accepted, its payload was applied before the NIC was done with
    /// it.
    pub(super) fn data_received(
        &mut self,
        sim: &Sim,
        seen: &Seen,
        frame: &Frame,
        data: &SolicitedData,
        applied: &Applied,
    ) -> Result<(), Violation> {
        let node = seen.node;
        let Meant { op, solicitation } = self.meant.of(frame);
        let op = &mut self.ops[op.expect("set when it was sent")];
        let slot = op.slot;
        let solicitation = solicitation.expect("set when it was sent");
        let state = &mut self.nodes[node.index()];
        let refused = match applied.result {
            Ok(()) => None,
            Err(DropReason::OldKey) => Some(OpStatus::RemoteAuthenticationFailure),
            Err(DropReason::NoReceiveLeft) => Some(OpStatus::RemoteNotReady),
            Err(reason) => {
                // Data that is too late has a receive all the same.
                if reason == DropReason::DataLate
                    && let Some(pending) = state.solicited(solicitation)
                {
                    pending.bound |= op.consumes_receive();
                }
                return Ok(());
            }
        };
        let twice = Violation::AcceptedTwice { node, slot };
        let pending = state.solicited(solicitation).ok_or(twice)?;
        let granules = granules(data.span());
        if pending.arrived & granules != 0 {
            return Err(twice);
        }
        pending.arrived |= granules;
        let is_whole = pending.arrived == all_granules(op.size);
        let changes = is_whole || op.lands_in_parts();
        if refused == Some(OpStatus::RemoteNotReady) {
            if !op.consumes_receive() || pending.bound {
                return Err(twice);
            }
            if pending.refused.is_none() {
                self.not_ready.push(data.header.region);
            }
            pending.refused = refused;
        } else if refused.is_some() {
            if !pending.stale {
                return Err(Violation::NotOld { node, initiator: op.initiator, slot });
            }
            pending.refused = refused;
        } else {
            if pending.stale {
                return Err(Violation::OldKey { node, initiator: op.initiator, slot });
            }
            if pending.refused.is_some() {
                return Err(twice);
            }
            pending.bound |= op.consumes_receive();
            if changes && op.end == Some(End::Reported) {
                return Err(Violation::AppliedLate { node, initiator: op.initiator, slot });
            }
            if applied.counted && applied.over_at == seen.at {
                return Err(Violation::FalseAlarm { node });
            }
            if changes && !applied.counted {
                op.changed_until = op.changed_until.max(applied.over_at);
            }
        }
        if !is_whole {
            return Ok(());
        }
        if let PendingState::Solicited(_, at) = pending.state
            && op.op_type.shape().is_secret
        {
            pending.rekeyed = Some(at);
        }
        pending.state = PendingState::Answering(solicitation);
        pending.bound = false;
        if let Some(name) = pending.name
            && pending.refused.is_none()
        {
            let at = [seen.local, sim.local_at(node, applied.over_at)];
            let node = self.hosts[node.index()].0;
            self.commits.push(Commit { number: op.number, node, at });
            state.records.applied(name, seen.local);
        }
        let pending = state.answering(solicitation).ok_or(twice)?;
        let in_flight = core::mem::take(&mut pending.in_flight);
        state.in_flight -= in_flight;
        // Answers are sent in the order in which there came to be something to answer.
        let is_it = |pending: &Pending| pending.state == PendingState::Answering(solicitation);
        if let Some(place) = state.pending.iter().position(is_it) {
            state.pending[place..].rotate_left(1);
        }
        Ok(())
    }

    /// Forgets mutations that a running node must have forgotten by now, then checks what its
    /// tables hold. Returns when that must be done again, though nothing happens.
    pub(super) fn check_tables(
        &mut self,
        sim: &Sim,
        node: NodeId,
    ) -> Result<Option<Instant>, Violation> {
        let settings = settings(sim, node);
        let timing = settings.timing;
        let state = &mut self.nodes[node.index()];
        let local = if state.pending.is_empty() && state.jobs.iter().all(Vec::is_empty) {
            Default::default()
        } else {
            sim.local_now(node)
        };
        let slack = sim.wake_slack(node);
        let has_others = sim.engines_of(self.host_of(node)).len() > 1;
        let state = &mut self.nodes[node.index()];
        if sim.condition(node) == Condition::Running {
            let in_flight = &mut state.in_flight;
            state.pending.retain_mut(|pending| {
                let kept = match pending.state {
                    PendingState::Waiting => {
                        local.since(pending.arrived_at) <= timing.dispatch_timeout + slack
                    }
                    PendingState::Solicited(_, at) => local.since(at) <= timing.timeout + slack,
                    // One that other engines hold up is forgotten, and one that is not may wait for
                    // a device: longer than that no engine stands still here.
                    PendingState::Answering(_) => pending
                        .rekeyed
                        .is_none_or(|at| local.since(at) <= LONG * timing.timeout || !has_others),
                };
                if !kept {
                    *in_flight -= core::mem::take(&mut pending.in_flight);
                }
                kept
            });
        }
        for jobs in &mut state.jobs {
            jobs.retain(|job| state.fairness.may_hold(job, timing.timeout));
        }
        // An op that is due this very instant may or may not have been parked, and what has been
        // parked may have been forgotten.
        let (nic, hold) = (sim.nic(node), sim.nic(node).config().hold());
        let (mut least, mut most, mut entries) = (state.reading, state.reading, 0);
        let (mut mutations, mut in_flight) = (0, state.in_flight);
        let mut due = None;
        for pending in &state.pending {
            let size = self.ops[pending.op].size;
            let changes = pending.changes_after(timing, hold, has_others).into_iter().flatten();
            let changes = changes.map(|at| at + slack + Duration::from_nanos(1));
            due = changes.filter(|&at| at > local).chain(due).min();
            match pending.state {
                PendingState::Waiting => {}
                PendingState::Solicited(_, at) => {
                    let holds = local.since(at) < hold;
                    least += if holds { size } else { 0 };
                    most += size;
                    entries += u32::from(holds);
                    mutations += if local.since(at) <= hold + slack { size } else { 0 };
                    in_flight -= if holds { 0 } else { pending.in_flight };
                }
                PendingState::Answering(_) => {
                    let is_kept = |at| local.since(at) <= timing.timeout || !has_others;
                    entries += u32::from(pending.rekeyed.is_none_or(is_kept));
                }
            }
        }
        let (window, share) = (settings.solicitation_window, nic.config().mutations_share());
        if least - state.reading > share {
            return Err(Violation::Share { node, bytes: least - state.reading, share });
        }
        if sim.condition(node) == Condition::Paused {
            // Stopped in a turn: ops may be over of which nobody has been told.
            least = 0;
        }
        let debited = nic.window_debited();
        let with_parked = u64::from(debited) + u64::from(nic.window_parked());
        if !(least..=most).contains(&debited) || debited > window || with_parked > most.into() {
            return Err(Violation::Window { node, debited, solicited: most, window });
        }
        if state.multiplied == 0 && in_flight > window.into() {
            return Err(Violation::InFlight { node, bytes: in_flight, allowed: window.into() });
        }
        let may_send = nic.wants_transmit() || nic.counter_values_left() == 0;
        let reads = state.reading;
        let has_room =
            u64::from(reads) + u64::from(mutations) + u64::from(OP_SIZE_MAX) <= u64::from(window);
        if has_room && !may_send && sim.condition(node) == Condition::Running && state.read_waits()
        {
            return Err(Violation::Kept { node, reads, mutations, window });
        }
        self.peak_in_flight = self.peak_in_flight.max(state.in_flight);
        let held = |job: &&Job| !job.stale && local.since(job.arrived_at) < timing.timeout;
        let jobs = state.jobs.iter().map(|jobs| jobs.iter().filter(held).count());
        let depth = settings.inbound_queue;
        let made_room = state.pushed_out as usize;
        if let Some(jobs) = jobs.max().filter(|&jobs| jobs > depth as usize + made_room) {
            return Err(Violation::QueueGrew { node, jobs, depth });
        }
        if entries > settings.pending_writes {
            let (jobs, depth) = (entries as usize, settings.pending_writes);
            return Err(Violation::QueueGrew { node, jobs, depth });
        }
        Ok(due.map(|local| sim.when(node, local)))
    }
}

impl Pending {
    /// The last times at which it counts as it does: for the window, and at all.
    fn changes_after(
        &self,
        timing: Timing,
        hold: Duration,
        has_others: bool,
    ) -> [Option<Instant>; 2] {
        match self.state {
            PendingState::Waiting => [None, Some(self.arrived_at + timing.dispatch_timeout)],
            PendingState::Solicited(_, at) => [Some(at + hold), Some(at + timing.timeout)],
            PendingState::Answering(_) => {
                let rekeyed = self.rekeyed.filter(|_| has_others);
                [None, rekeyed.map(|at| at + LONG * timing.timeout)]
            }
        }
    }
}

/// The fate of solicited data.
pub(super) struct Applied {
    pub(super) result: Result<(), DropReason>,
    /// When the responder was done with it, in true time.
    pub(super) over_at: Instant,
    /// Whether it counted that as a late effect.
    pub(super) counted: bool,
}
