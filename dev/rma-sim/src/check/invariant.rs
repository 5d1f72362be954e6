//! Invariants after every event, whatever the network and the nodes do: the promises that can be
//! checked from outside a NIC, from frames, verdicts, completions and clocks alone.
//!
//! | promise | here |
//! |---|---|
//! | P1 bounded | each command completes once, within its type's bound by its node's clock, or as soon as its node runs again; its delays are what that clock says |
//! | P2 no late effect | no data is applied after its op was reported; what a stopped node was still applying when its op was reported as failed, that node has counted, and it counts nothing else |
//! | P3 solicited | what the NIC debits is the sum of its reads in service and of the mutations that it has solicited, and fits the window; so does the payload on its way to it. A mutation that was solicited longer ago than it may hold the window while others wait (G) counts apart, as it may be parked |
//! | P4 fresh IVs | no sender address uses (engine, direction, counter) twice, restarts included |
//! | P5 no growth | ops never outnumber slots, jobs never outnumber the inbound queue, nor mutations the pending-write table |
//! | P6, P7 | no corrupted copy, no byte of an op twice, none for an op that has completed or that its node has lost in a crash, no answer to another op, one solicitation for each mutation |
//! | P8 isolated | a slot that the NIC does not have, or that is busy, is refused, and no other is |
//! | P10 no amplifier | a failure notice answers one request that came, within a timeout, is bound to it and shorter; those to strangers and those to who has an old key keep their rates, and the latter is told once in a timeout; what goes to strangers alone is no more packets than came from them |
//! | P11 gentle rekey | once a region's key has changed, nothing under the old one is admitted, served or applied; nothing else is refused for it |
//! | P13 unstarved | mutations have no more than their share of the window, parked ones aside; a read of a running node waits for the window only while its own reads hold it, or mutations that were solicited within G |
//!
//! Ops that their targets record, and SETTLE, keep all of them. Besides, of these: what is applied
//! is so in one step, with the last of the data; a completion says how far its op got, and by what
//! name; a SETTLE is told what is so, or that it was forgotten, and that only where it may be.
//!
//! Besides: two classes of service take turns wherever ops wait, and a read is NACKed if and only
//! if its answer would come too late, or there is no place for it. What has begun of an op of the
//! latency class goes on in the same turn. A packet has 1 to 32 frames that go the same way, and is
//! no longer than both ends take; all else is checked for each frame.
//!
//! # Where it looks
//!
//! Tables are looked at where something has happened since the last look: where a node had a turn
//! or its software did something (the simulation says where), where something was seen, or where
//! data set out for. Elsewhere a NIC holds what it held, and so does the checker's memory of it; so
//! nothing but time can make what was right wrong. Time only ever takes away from what a NIC may
//! hold, when a mutation that was solicited is parked, and when it is to be forgotten: at these
//! times the node is looked at, too.
//!
//! That data is right (P6), that no process gets at what another's key or region would be needed
//! for (P8), and that only ops on a region that has changed fail for it (P11) is checked by
//! [`crate::load::scenario`], which knows memory and keys.

mod binding;
mod fairness;
mod initiator;
mod ivs;
mod keys;
mod memory;
mod notices;
mod records;
mod responder;
mod state;
#[cfg(test)]
mod tests;

use core::ops::Range;
use std::{collections::BTreeSet, sync::Arc};

use rma_core::{
    backend::Transmit,
    crypto::Direction,
    nic::NicConfigBuilder,
    op::{ClassOfService, OpStatus, OpType},
    packet::FRAMES_MAX,
    region::RegionId,
    time::Instant,
    wire::FrameView,
};

use crate::{
    check::violation::{Turn, Violation},
    net::{
        alarms::Alarms,
        frame::{Frame, NodeId, Packet, ip_udp_len},
        node::Condition,
        sim::Sim,
        trace::{Seen, What},
    },
};
pub(crate) use initiator::name_of;
use ivs::FreshIvs;
use keys::Keys;
use memory::{Meanings, Meant, Ops};
use notices::Strangers;
use responder::Applied;
use state::{NodeState, Op};

/// Follows a simulation and finds broken promises.
#[derive(Debug, Default)]
pub struct Checker {
    /// By engine.
    nodes: Vec<NodeState>,
    /// The host of each engine, and its first command slot.
    hosts: Vec<(NodeId, u16)>,
    /// By host: its engines but the first, which have its number.
    others: Vec<Range<usize>>,
    /// Nodes where something has happened since the last check, besides those of `touched`.
    dirty: Vec<NodeId>,
    /// How often the simulation had touched nodes at the last check.
    touched: u64,
    /// When a check of a node may find what it did not find before, though nothing happens there.
    dues: Alarms,
    /// By host.
    strangers: Vec<Strangers>,
    keys: Vec<Keys>,
    /// The deadlines of outstanding ops, by true time.
    deadlines: BTreeSet<(Instant, NodeId, u16)>,
    ops: Ops,
    meant: Meanings,
    ivs: FreshIvs,
    peak_in_flight: u64,
    /// Commands that were issued, taken or not.
    issued: u64,
    /// Recorded ops that were applied, and nobody has asked about.
    commits: Vec<Commit>,
    /// Regions whose ops found no receive when their data came, and nobody has asked about.
    not_ready: Vec<RegionId>,
}

/// A recorded op was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// How many commands had been issued before the op's, on all nodes.
    pub number: u64,
    /// Its target.
    pub node: NodeId,
    /// When it was applied, by the target's clock: not before, and not after.
    pub at: [Instant; 2],
}

/// An op, as software knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpName {
    /// The node that issued it.
    pub initiator: NodeId,
    /// Its command slot.
    pub slot: u16,
    /// How many commands were issued before its own, on all nodes.
    pub number: u64,
    /// The type of the op.
    pub op_type: OpType,
    /// Whether it still has the slot.
    pub is_under_way: bool,
}

impl Checker {
    /// A checker for a simulation that has not begun.
    #[must_use]
    pub fn new(sim: &Sim) -> Self {
        let host_of = |node| {
            let host = sim.host_of(node);
            let before = sim.engines_of(host).iter().position(|&it| it == node).unwrap_or(0);
            (host, (before * sim.nic(node).slot_count()) as u16)
        };
        let hosts: Vec<_> = sim.engines().map(host_of).collect();
        let node = |(node, &(_, first))| NodeState::new(first, sim.nic(node).slot_count());
        Self {
            nodes: sim.engines().zip(&hosts).map(node).collect(),
            strangers: sim.nodes().map(|_| Strangers::default()).collect(),
            keys: sim.nodes().map(|_| Keys::default()).collect(),
            others: sim.nodes().map(|host| others_of(sim, host)).collect(),
            dues: Alarms::new(hosts.len()),
            hosts,
            ..Self::default()
        }
    }

    /// The host of an engine.
    fn host_of(&self, node: NodeId) -> NodeId {
        self.hosts[node.index()].0
    }

    /// The states of the engines of a host.
    fn states_of(&self, host: NodeId) -> impl Iterator<Item = &NodeState> {
        let others = self.others[host.index()].clone();
        core::iter::once(&self.nodes[host.index()]).chain(&self.nodes[others])
    }

    fn states_of_mut(&mut self, host: NodeId) -> impl Iterator<Item = &mut NodeState> {
        let Range { start, end } = self.others[host.index()];
        let (hosts, others) = self.nodes.split_at_mut(self.others.len());
        let (start, end) = (start - hosts.len(), end - hosts.len());
        core::iter::once(&mut hosts[host.index()]).chain(&mut others[start..end])
    }

    /// Engines of `host` have to be looked at.
    fn mark(&mut self, host: NodeId) {
        self.dirty.push(host);
        self.dirty.extend(self.others[host.index()].clone().map(|it| NodeId(it as u16)));
    }

    /// Whether `slot` of host `node` has a command that has not completed.
    #[must_use]
    pub fn is_outstanding(&self, node: NodeId, slot: u16) -> bool {
        self.states_of(node).any(|state| state.is_outstanding(slot))
    }

    /// How many commands of host `node` have not completed.
    #[must_use]
    pub fn outstanding_of(&self, node: NodeId) -> usize {
        self.states_of(node).map(|state| state.outstanding).sum()
    }

    /// How many commands have not completed.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.nodes.iter().map(|state| state.outstanding).sum()
    }

    /// The most solicited payload that was ever on its way to one node, in bytes.
    #[must_use]
    pub const fn peak_in_flight(&self) -> u64 {
        self.peak_in_flight
    }

    /// The op that a frame is part of, which has been taken in; `None` for failure notices.
    #[must_use]
    pub fn op_of(&self, frame: &Frame) -> Option<OpName> {
        let op = &self.ops[self.meant.of(frame).op?];
        Some(OpName {
            initiator: self.host_of(op.initiator),
            slot: op.slot,
            number: op.number,
            op_type: op.op_type,
            is_under_way: op.end.is_none(),
        })
    }

    /// The recorded ops that were applied since the last call, in that order.
    pub fn take_commits(&mut self) -> Vec<Commit> {
        core::mem::take(&mut self.commits)
    }

    /// The regions whose ops found no receive when their data came, since the last call.
    pub fn take_not_ready(&mut self) -> Vec<RegionId> {
        core::mem::take(&mut self.not_ready)
    }

    /// How many receives of `node` may be bound to ops on one of `regions`.
    #[must_use]
    pub fn bound_receives(&self, node: NodeId, regions: [RegionId; 2]) -> usize {
        let is_of = |op: &Op| op.target.is_some_and(|(_, region)| regions.contains(&region));
        let pending = self.states_of(node).flat_map(|state| &state.pending);
        pending.filter(|it| it.bound && is_of(&self.ops[it.op])).count()
    }

    /// Whether `node` may have no record left for an op on `region`.
    #[must_use]
    pub fn may_lack_records(&self, sim: &Sim, node: NodeId, region: RegionId) -> bool {
        let (now, settings) = (sim.local_now(node), settings(sim, node));
        self.states_of(node).any(|state| state.records.may_lack(Some(region), now, settings))
    }

    /// Somebody replays the request of a mutation, which has been taken in.
    pub fn replayed(&mut self, request: &Frame) {
        self.ops[self.meant.of(request).op()].request_copies += 1;
    }

    /// Takes in one thing that happened.
    ///
    /// # Errors
    /// The promise that it breaks.
    pub fn take(&mut self, sim: &Sim, seen: &Seen) -> Result<(), Violation> {
        self.dirty.push(seen.node);
        match &seen.what {
            What::Issued { command, result } => self.issued(sim, seen, command, *result),
            What::Left { packet, .. } => self.packet_sent(sim, seen.node, packet),
            What::Unpaid { frame } => self.unpaid(sim, seen, frame),
            What::Came { .. } | What::Tail { .. } => Ok(()),
            What::Sent { frame, arrives, extra_copies } => {
                let copies = u64::from(*arrives) + u64::from(*extra_copies);
                self.sent(sim, seen, frame, copies, *arrives)
            }
            What::Received { frame, extra, .. } => {
                if !extra {
                    self.left_the_wire(frame);
                }
                self.received(sim, seen)
            }
            What::Lost { frame, extra, .. } => {
                if !extra {
                    self.left_the_wire(frame);
                }
                Ok(())
            }
            What::Completed(completion) => self.completed(sim, seen, completion),
            What::Crashed => {
                self.crashed(seen.node);
                Ok(())
            }
            What::KeyTaken { region } => {
                self.key_taken(sim, seen.node, *region);
                Ok(())
            }
            What::Paused | What::Resumed | What::Restarted | What::Handed { .. } => Ok(()),
        }
    }

    /// Checks what must hold between events. To be called when all that happened has been taken in.
    ///
    /// # Errors
    /// The promise that is broken.
    pub fn check(&mut self, sim: &Sim) -> Result<(), Violation> {
        let overdue = self.deadlines.range(..(sim.now(), NodeId(0), 0));
        for &(due, node, slot) in overdue {
            // Nothing can be asked of a node that is stopped.
            if sim.condition(node) == Condition::Running {
                return Err(Violation::Overdue { node, slot, due });
            }
        }
        self.find_dirty(sim);
        for place in 0..self.dirty.len() {
            let node = self.dirty[place];
            if sim.condition(node) == Condition::Down {
                continue;
            }
            self.check_turn(sim, node)?;
            let due = self.check_tables(sim, node)?;
            self.dues.set(node, due);
        }
        self.dirty.clear();
        #[cfg(test)]
        self.look_elsewhere(sim)?;
        self.forget(sim);
        Ok(())
    }

    /// Completes the list of the nodes to look at.
    fn find_dirty(&mut self, sim: &Sim) {
        match sim.touched().since(self.touched) {
            Some(nodes) => self.dirty.extend(nodes),
            None => self.dirty.extend(sim.engines()),
        }
        self.touched = sim.touched().count();
        while let Some((_, node)) = self.dues.first().filter(|&(at, _)| at <= sim.now()) {
            self.dues.set(node, None);
            self.dirty.push(node);
        }
        self.dirty.sort_unstable();
        self.dirty.dedup();
    }

    /// Checks that nothing is left when nothing will happen any longer.
    ///
    /// # Errors
    /// The first thing that is left.
    pub fn check_rest(&self, sim: &Sim) -> Result<(), Violation> {
        if let Some(&(due, node, slot)) = self.deadlines.first() {
            return Err(Violation::Overdue { node, slot, due });
        }
        for node in sim.engines() {
            let debited = sim.nic(node).window_debited() + sim.nic(node).window_parked();
            if debited != 0 {
                let window = settings(sim, node).solicitation_window;
                return Err(Violation::Window { node, debited, solicited: 0, window });
            }
        }
        Ok(())
    }

    fn packet_sent(&mut self, sim: &Sim, node: NodeId, packet: &Packet) -> Result<(), Violation> {
        let Packet { to, transmit, frames, bytes, .. } = packet;
        let destination = transmit.destination;
        let fits = |node| bytes.len() <= receive_len_max(sim, node, destination.is_ipv4());
        let ends = |it: &Transmit| (it.source, it.destination, it.port, it.source_port);
        let goes_along = |frame: &Arc<Frame>| ends(&frame.transmit) == ends(transmit);
        let is_whole = frames.iter().map(|frame| frame.bytes.len()).sum::<usize>() == bytes.len();
        let is_right = (1..=FRAMES_MAX).contains(&frames.len()) && frames.iter().all(goes_along);
        if !is_right || !is_whole || !fits(node) || !to.is_none_or(fits) {
            let (frames, len) = (frames.len(), bytes.len());
            return Err(Violation::WrongPacket { node, destination, frames, len });
        }
        self.packet_paid(node, packet)
    }

    /// A frame was written, and not sent: a notice to a stranger who has been told by another, or
    /// the NIC has made a mistake.
    fn unpaid(&mut self, sim: &Sim, seen: &Seen, frame: &Arc<Frame>) -> Result<(), Violation> {
        let (node, destination) = (seen.node, frame.transmit.destination);
        let wrong = Violation::WrongFrame { node, destination, len: frame.bytes.len() };
        if !is_for_stranger(frame) || frame.transmit.opens_packet {
            return Err(wrong);
        }
        self.sent(sim, seen, frame, 0, false)
    }

    fn sent(
        &mut self,
        sim: &Sim,
        seen: &Seen,
        frame: &Arc<Frame>,
        copies: u64,
        arrives: bool,
    ) -> Result<(), Violation> {
        let node = seen.node;
        let destination = frame.transmit.destination;
        let wrong = Violation::WrongFrame { node, destination, len: frame.bytes.len() };
        let view = FrameView::parse(&frame.bytes).ok().ok_or(wrong)?;
        let fits = |node| frame.bytes.len() <= receive_len_max(sim, node, destination.is_ipv4());
        let own = sim.nic(node).config().place().addresses.contains(frame.transmit.source);
        if !own || !fits(node) || !frame.to.is_none_or(fits) {
            return Err(wrong);
        }
        use Direction::{ToInitiator, ToResponder};
        let of = |op| Meant { op: Some(op), solicitation: None };
        // The part of an op's data that it has.
        let mut part = None;
        let (header, direction, meant) = match view {
            FrameView::ReadRequest(view) => {
                let request = view.claims();
                let size = request.op_size.into();
                let op = self.entered_service(seen, &request.header, OpType::Read, size, copies);
                self.served(sim, seen, Turn::Service, request.header.class, OpType::Read)?;
                (request.header, ToResponder, op.map(of))
            }
            FrameView::MutationRequest(view) => {
                let request = view.claims();
                let (op_type, size) = (request.mutation.op_type(), request.mutation.op_size());
                let op = self.entered_service(seen, &request.header, op_type, size, copies);
                self.served(sim, seen, Turn::Service, request.header.class, op_type)?;
                (request.header, ToResponder, op.map(of))
            }
            FrameView::ReadResponse(view) => {
                let response = view.claims();
                let op = self.response_sent(sim, seen, frame, &response, arrives);
                if let Some(op) = op {
                    self.check_in_flight(op)?;
                    let class = response.header.class;
                    if response.span().0 == 0 || class == ClassOfService::Throughput {
                        self.served(sim, seen, Turn::Response, class, OpType::Read)?;
                    } else {
                        self.served_on(seen, class);
                    }
                    part = Some((op, class, response.span()));
                    if response.span().1 == self.ops[op].size {
                        self.request_answered(sim, seen, op);
                    }
                }
                (response.header, ToInitiator, op.map(of))
            }
            FrameView::Solicitation(view) => {
                let solicitation = view.claims();
                let op = self.solicitation_sent(sim, seen, frame, &solicitation);
                if let Some(op) = op {
                    let Op { op_type, .. } = self.ops[op];
                    let class = solicitation.header.class;
                    self.served(sim, seen, Turn::Solicitation, class, op_type)?;
                    self.request_answered(sim, seen, op);
                }
                (solicitation.header, ToInitiator, op.map(of))
            }
            FrameView::SolicitedData(view) => {
                let data = view.claims();
                let meant = self.data_sent(frame, &data, arrives);
                let op = meant.and_then(|it| it.op);
                part = op.map(|op| (op, data.header.class, data.span()));
                (data.header, ToResponder, meant)
            }
            FrameView::Acknowledgement(view) => {
                let acknowledgement = view.claims();
                let meant = self.acknowledgement_sent(frame, &acknowledgement);
                self.check_rekeyed(sim, meant, acknowledgement.status)?;
                (acknowledgement.header, ToInitiator, meant)
            }
            FrameView::Failure(view) => {
                let failure = view.claims();
                self.notice_sent(sim, seen, frame, &failure)?;
                (failure.header, ToInitiator, Some(Meant::default()))
            }
            FrameView::RecordedRequest(view) => {
                let request = view.claims();
                let (op_type, size) = (request.mutation.op_type(), request.mutation.op_size());
                let op = self.entered_service(seen, &request.header, op_type, size, copies);
                let op = op.filter(|&op| self.ops[op].is_recorded());
                self.served(sim, seen, Turn::Service, request.header.class, op_type)?;
                (request.header, ToResponder, op.map(of))
            }
            FrameView::SettleRequest(view) => {
                let request = view.claims();
                let op = self.entered_service(seen, &request.header, request.op_type, 0, copies);
                let op = op.filter(|&op| self.ops[op].is_settle());
                self.served(sim, seen, Turn::Service, request.header.class, request.op_type)?;
                (request.header, ToResponder, op.map(of))
            }
            FrameView::AcknowledgementWithResult(view) => {
                let header = view.claims().header;
                let meant = self.result_sent(frame, &header);
                (header, ToInitiator, meant)
            }
            FrameView::Settlement(view) => {
                let settlement = view.claims();
                let op = self.settlement_sent(sim, seen, frame, &settlement)?;
                if let Some(op) = op {
                    let class = settlement.header.class;
                    self.served(sim, seen, Turn::Response, class, OpType::Read)?;
                    self.request_answered(sim, seen, op);
                }
                (settlement.header, ToInitiator, op.map(of))
            }
        };
        self.sent_in_turn(sim, node, part)?;
        let (sender, engine, counter) = (frame.transmit.source, header.engine.0, header.counter);
        let direction = direction as u8;
        if !self.ivs.insert(sender, engine, counter) {
            return Err(Violation::IvRepeated { sender, engine, direction, counter });
        }
        self.meant.push(frame, meant.ok_or(wrong)?);
        Ok(())
    }

    /// A frame that was counted as on its way has arrived, or was lost.
    fn left_the_wire(&mut self, frame: &Frame) {
        let Meant { op: Some(index), solicitation } = self.meant.of(frame) else {
            return;
        };
        match FrameView::parse(&frame.bytes) {
            Ok(FrameView::ReadResponse(view)) => {
                let op = &mut self.ops[index];
                if op.end.is_none() {
                    let payload_len = u64::from(view.claims().payload_len);
                    op.in_flight -= payload_len;
                    self.nodes[op.initiator.index()].in_flight -= payload_len;
                }
            }
            Ok(FrameView::SolicitedData(view)) => {
                let (Some(to), Some(solicitation)) = (frame.to, solicitation) else { return };
                let payload_len = u64::from(view.claims().payload_len);
                for state in self.states_of_mut(to) {
                    if let Some(pending) = state.solicited(solicitation) {
                        pending.in_flight -= payload_len;
                        state.in_flight -= payload_len;
                    }
                }
            }
            _ => {}
        }
    }

    fn received(&mut self, sim: &Sim, seen: &Seen) -> Result<(), Violation> {
        let What::Received {
            frame,
            altered,
            result,
            stalled,
            counted_late,
            pushed_out,
            landing,
            ..
        } = &seen.what
        else {
            return Ok(());
        };
        let node = seen.node;
        self.check_landing(node, frame, *landing, *result)?;
        if altered.is_some() && result.is_ok() {
            let source_addr = frame.transmit.source;
            return Err(Violation::CorruptedAccepted { node, source_addr });
        }
        // A frame was checked when it was sent.
        let Ok(view) = FrameView::parse(&frame.bytes) else { return Ok(()) };
        if let Some(altered) = altered {
            self.request_came(sim, seen, frame, altered, None, (*result, *landing))?;
        } else if matches!(
            view,
            FrameView::ReadRequest(_)
                | FrameView::MutationRequest(_)
                | FrameView::RecordedRequest(_)
                | FrameView::SettleRequest(_)
        ) {
            let op = self.meant.of(frame).op;
            self.request_came(sim, seen, frame, &frame.bytes, op, (*result, *landing))?;
        }
        let is_nacked = result.is_err_and(|why| why.refused_with() == Some(OpStatus::Nack));
        let queued = match view {
            FrameView::ReadRequest(view) => Some(view.claims().header.class),
            FrameView::SettleRequest(view) => Some(view.claims().header.class),
            _ => None,
        };
        if let Some(class) = queued
            && (result.is_ok() || is_nacked)
        {
            self.check_queue(sim, seen, class, is_nacked || *pushed_out)?;
        }
        self.nodes[node.index()].pushed_out += u64::from(*pushed_out);
        match (view, *result) {
            (FrameView::ReadRequest(view), Ok(())) => {
                self.request_accepted(sim, seen, frame, &view.claims().header)
            }
            (FrameView::MutationRequest(view), Ok(())) => {
                self.request_accepted(sim, seen, frame, &view.claims().header)
            }
            (FrameView::RecordedRequest(view), result) => {
                let request = view.claims();
                if altered.is_none()
                    && let Some(done) = request.done
                {
                    self.done_said(node, frame, &request.header, done);
                }
                match result {
                    Ok(()) => self.request_accepted(sim, seen, frame, &request.header),
                    Err(_) => {
                        self.request_dropped(frame);
                        Ok(())
                    }
                }
            }
            (FrameView::SettleRequest(view), Ok(())) => {
                self.settle_accepted(sim, seen, frame, &view.claims())
            }
            (
                FrameView::ReadRequest(_)
                | FrameView::MutationRequest(_)
                | FrameView::SettleRequest(_),
                Err(_),
            ) => {
                self.request_dropped(frame);
                Ok(())
            }
            (FrameView::SolicitedData(view), result) => {
                let over_at = seen.at + *stalled;
                let applied = Applied { result, over_at, counted: *counted_late };
                self.data_received(sim, seen, frame, &view.claims(), &applied)
            }
            (_, Err(_)) => Ok(()),
            (FrameView::ReadResponse(view), Ok(())) => {
                self.response_accepted(node, frame, &view.claims())
            }
            (FrameView::Solicitation(view), Ok(())) => {
                let at = sim.local_at(node, seen.at + *stalled);
                self.solicitation_accepted(sim, node, frame, &view.claims(), at)
            }
            (FrameView::Acknowledgement(view), Ok(())) => {
                self.acknowledgement_accepted(node, frame, view.claims().status)
            }
            (FrameView::Failure(view), Ok(())) => self.failure_accepted(node, &view.claims()),
            (FrameView::AcknowledgementWithResult(_), Ok(())) => self.result_accepted(node, frame),
            (FrameView::Settlement(view), Ok(())) => {
                self.settlement_accepted(node, frame, &view.claims())
            }
        }
    }
}

/// The engines of `host` but the first, which stand side by side.
fn others_of(sim: &Sim, host: NodeId) -> Range<usize> {
    let others = &sim.engines_of(host)[1..];
    let start = others.first().map_or(sim.nodes().count(), |first| first.index());
    start..start + others.len()
}

/// Whether a frame of an honest NIC is a notice to whoever has shown no key.
fn is_for_stranger(frame: &Frame) -> bool {
    let is_notice = matches!(FrameView::parse(&frame.bytes), Ok(FrameView::Failure(_)));
    is_notice && !frame.transmit.may_resolve
}

fn settings(sim: &Sim, node: NodeId) -> &NicConfigBuilder {
    sim.nic(node).config().settings()
}

fn receive_len_max(sim: &Sim, node: NodeId, ipv4: bool) -> usize {
    let receive = sim.nic(node).config().place().receive_len_max;
    debug_assert_eq!(receive.ipv4 - receive.ipv6, ip_udp_len(false) - ip_udp_len(true));
    if ipv4 { receive.ipv4 } else { receive.ipv6 }
}
