//! The initiator's side: commands, requests, solicitations that are accepted, data that is sent,
//! completions.

use rma_core::{
    command::{Command, CommandOp, Completion},
    error::CommandError,
    op::{Moves, OpStatus, OpType},
    outcome::{OpName, Verdict},
    time::Instant,
    wire::{Failure, Header, Response, Settlement, Solicitation, SolicitedData},
};

use super::{
    Checker,
    keys::Keys,
    notices::Strangers,
    state::{End, Op, OpIndex, Outstanding, Solicited, all_granules, granules},
};
use crate::{
    check::{invariant::settings, violation::Violation},
    net::{
        frame::{Frame, NodeId},
        sim::Sim,
        trace::Seen,
    },
};

/// Returns the name that the sender of a solicitation gives its op.
pub(crate) const fn name_of(solicitation: &Solicitation) -> OpName {
    let Solicitation { header, pending, .. } = solicitation;
    OpName { engine: header.engine, counter: header.counter, number: *pending }
}

impl Op {
    /// Whether a completion says what was seen of the op, besides its status.
    fn is_told_right(&self, told: &Completion) -> bool {
        let is_ok = told.status == OpStatus::Ok;
        let reached = self.solicited.is_some();
        let name = match (self.command, &self.solicited) {
            (CommandOp::Settle { name, .. }, _) => is_ok.then_some(name),
            (CommandOp::Recorded { .. }, Some(solicited)) => Some(solicited.name),
            _ => None,
        };
        let is_unsure = match told.status {
            OpStatus::Timeout => reached,
            OpStatus::RemoteAuthenticationFailure => {
                reached && self.lands_in_parts() && !self.op_type.shape().is_secret
            }
            _ => false,
        };
        let is_atomic = matches!(self.op_type, OpType::CompareSwap | OpType::FetchAdd);
        let has_result = match self.verdict {
            Some(verdict) => is_atomic && verdict == Verdict::Applied,
            None => is_ok && self.has_result(),
        };
        (told.reached(), told.may_have_changed(), told.name()) == (reached, is_unsure, name)
            && (told.verdict(), told.result().is_some()) == (self.verdict, has_result)
    }
}

impl Checker {
    pub(super) fn issued(
        &mut self,
        sim: &Sim,
        seen: &Seen,
        command: &Command,
        result: Result<(), CommandError>,
    ) -> Result<(), Violation> {
        let (node, slot) = (seen.node, command.slot.0);
        let busy = self.nodes[node.index()].is_outstanding(slot);
        let number = self.issued;
        self.issued += 1;
        match result {
            Ok(()) if busy => Err(Violation::SlotTakenTwice { node, slot }),
            Err(CommandError::SlotBusy { .. }) if busy => Ok(()),
            Err(CommandError::ForeignSlot { .. })
                if self.nodes[node.index()].slot_mut(slot).is_none() =>
            {
                Ok(())
            }
            Err(error) => Err(Violation::Refused { node, slot, error }),
            Ok(()) => {
                let op_type = command.op.op_type();
                let issued_at = seen.local;
                let shape = match command.op {
                    CommandOp::Settle { .. } => OpType::Read,
                    _ => op_type,
                };
                let bound = settings(sim, node).timing.bound(shape);
                let due = sim.when(node, issued_at + bound) + sim.spin(node);
                let target = sim.node_at(command.responder).map(|at| (at, command.remote_region));
                self.deadlines.insert((due, node, slot));
                let state = &mut self.nodes[node.index()];
                *state.slot_mut(slot).expect("the NIC has it") = Some(Outstanding {
                    number,
                    op_type,
                    command: command.op,
                    class: command.class,
                    key: command.key,
                    target,
                    stale: false,
                    issued_at,
                    due,
                    entered: None,
                });
                state.outstanding += 1;
                state.waiting[command.class as usize] += 1;
                Ok(())
            }
        }
    }

    /// Hop 1 was sent. `None` if the request is for no command that waits.
    pub(super) fn entered_service(
        &mut self,
        seen: &Seen,
        header: &Header,
        op_type: OpType,
        size: u32,
        copies: u64,
    ) -> Option<OpIndex> {
        let index = self.ops.next();
        let state = &mut self.nodes[seen.node.index()];
        let outstanding = state.outstanding(header.slot.0)?;
        if outstanding.op_type != op_type
            || outstanding.command.op_size() != size
            || outstanding.entered.replace((seen.local, index)).is_some()
        {
            return None;
        }
        let class = outstanding.class as usize;
        self.ops.push(Op {
            initiator: seen.node,
            slot: header.slot.0,
            generation: header.generation,
            number: outstanding.number,
            op_type,
            command: outstanding.command,
            key: outstanding.key,
            size,
            target: outstanding.target,
            stale: outstanding.stale,
            end: None,
            refused: false,
            acknowledged: None,
            solicited: None,
            verdict: None,
            request_copies: copies,
            accepted: 0,
            dropped: 0,
            answered: 0,
            in_flight: 0,
            arrived: 0,
            changed_until: Default::default(),
        });
        state.waiting[class] -= 1;
        if op_type.shape().needs_window() {
            state.reading += size;
            state.multiplied += u32::from(copies > 1);
        }
        Some(index)
    }

    /// The op in service in `slot`.
    fn in_service(&mut self, node: NodeId, header: &Header) -> Option<&mut Op> {
        let (_, index) = self.nodes[node.index()].outstanding(header.slot.0)?.entered?;
        let op = &mut self.ops[index];
        (op.generation == header.generation && op.end.is_none()).then_some(op)
    }

    /// Hop 3 was sent. `None` if nobody asked for it, or not so.
    pub(super) fn data_sent(
        &mut self,
        frame: &Frame,
        data: &SolicitedData,
        arrives: bool,
    ) -> Option<super::Meant> {
        let to = frame.to?;
        let (_, index) = self.nodes[frame.from.index()].outstanding(data.header.slot.0)?.entered?;
        let op = self.in_service(frame.from, &data.header)?;
        let (start, end) = data.span();
        let (size, at_target) = (op.size, op.target.is_some_and(|(node, _)| node == to));
        let solicited = op.solicited.as_mut()?;
        if !at_target || start != solicited.sent || end > size {
            return None;
        }
        solicited.sent = end;
        let solicitation = solicited.frame;
        self.mark(to);
        for state in self.states_of_mut(to).filter(|_| arrives) {
            if let Some(pending) = state.solicited(solicitation) {
                pending.in_flight += u64::from(data.payload_len);
                state.in_flight += u64::from(data.payload_len);
            }
        }
        Some(super::Meant { op: Some(index), solicitation: Some(solicitation) })
    }

    /// A part of a read was accepted.
    pub(super) fn response_accepted(
        &mut self,
        node: NodeId,
        frame: &Frame,
        response: &Response,
    ) -> Result<(), Violation> {
        let granules = granules(response.span());
        let op = &mut self.ops[self.meant.of(frame).op()];
        if op.end.is_some() || op.initiator != node || op.arrived & granules != 0 {
            return Err(Violation::AcceptedTwice { node, slot: op.slot });
        }
        op.arrived |= granules;
        Ok(())
    }

    /// Hop 2 was accepted, when the initiator's clock showed `at`.
    pub(super) fn solicitation_accepted(
        &mut self,
        sim: &Sim,
        node: NodeId,
        frame: &Frame,
        solicitation: &Solicitation,
        at: Instant,
    ) -> Result<(), Violation> {
        let op = &mut self.ops[self.meant.of(frame).op()];
        if op.end.is_some() || op.initiator != node || op.refused || op.solicited.is_some() {
            return Err(Violation::AcceptedTwice { node, slot: op.slot });
        }
        op.solicited =
            Some(Solicited { frame: frame.number, name: name_of(solicitation), at, sent: 0 });
        // Later than it was only if the node did not run meanwhile.
        let slot = op.slot;
        let ends_at = sim.when(node, at + settings(sim, node).timing.timeout) + sim.spin(node);
        if let Some(outstanding) = self.nodes[node.index()].outstanding(slot)
            && outstanding.due < ends_at
        {
            self.deadlines.remove(&(outstanding.due, node, slot));
            outstanding.due = ends_at;
            self.deadlines.insert((ends_at, node, slot));
        }
        Ok(())
    }

    /// Hop 4 was accepted, with a result.
    pub(super) fn result_accepted(&mut self, node: NodeId, frame: &Frame) -> Result<(), Violation> {
        self.acknowledgement_accepted(node, frame, OpStatus::Ok)
    }

    /// The answer to a SETTLE was accepted.
    pub(super) fn settlement_accepted(
        &mut self,
        node: NodeId,
        frame: &Frame,
        settlement: &Settlement,
    ) -> Result<(), Violation> {
        let op = &mut self.ops[self.meant.of(frame).op()];
        if op.end.is_some() || op.initiator != node || op.acknowledged.is_some() {
            return Err(Violation::AcceptedTwice { node, slot: op.slot });
        }
        op.acknowledged = Some(OpStatus::Ok);
        op.verdict = Some(settlement.verdict);
        Ok(())
    }

    /// Hop 4 was accepted.
    pub(super) fn acknowledgement_accepted(
        &mut self,
        node: NodeId,
        frame: &Frame,
        status: OpStatus,
    ) -> Result<(), Violation> {
        let super::Meant { op, solicitation } = self.meant.of(frame);
        let op = &mut self.ops[op.expect("set when it was sent")];
        let answers = op.solicited.as_ref().map(|solicited| solicited.frame);
        if op.end.is_some()
            || op.initiator != node
            || op.acknowledged.is_some()
            || answers != solicitation
        {
            return Err(Violation::AcceptedTwice { node, slot: op.slot });
        }
        op.acknowledged = Some(status);
        Ok(())
    }

    /// A failure notice was accepted.
    pub(super) fn failure_accepted(
        &mut self,
        node: NodeId,
        failure: &Failure,
    ) -> Result<(), Violation> {
        let none = Violation::AcceptedTwice { node, slot: failure.header.slot.0 };
        let op = self.in_service(node, &failure.header).ok_or(none)?;
        // A frame that refuses an op follows a request of that very op, and nothing refuses what
        // was solicited.
        if op.refused || op.solicited.is_some() || op.dropped + op.accepted == 0 {
            return Err(none);
        }
        op.refused = true;
        Ok(())
    }

    /// A responder dropped a request.
    pub(super) fn request_dropped(&mut self, frame: &Frame) {
        self.ops[self.meant.of(frame).op()].dropped += 1;
    }

    pub(super) fn completed(
        &mut self,
        sim: &Sim,
        seen: &Seen,
        completion: &Completion,
    ) -> Result<(), Violation> {
        let Seen { at, local, node, .. } = *seen;
        let (slot, status) = (completion.slot.0, completion.status);
        let unasked = Violation::CompletedUnasked { node, slot, status };
        let state = &mut self.nodes[node.index()];
        let taken = state.slot_mut(slot).and_then(Option::take);
        let Outstanding { issued_at, due, entered, class, .. } = taken.ok_or(unasked)?;
        state.outstanding -= 1;
        state.waiting[class as usize] -= u32::from(entered.is_none());
        self.deadlines.remove(&(due, node, slot));
        let just_resumed = sim.resumed_at(node) == Some(at);
        if at > due && !just_resumed {
            return Err(Violation::Overdue { node, slot, due });
        }
        let told = (completion.issue_delay(), completion.total_delay());
        let served_at = entered.map_or(local, |(served_at, _)| served_at);
        let measured = (served_at.since(issued_at), local.since(issued_at));
        // A node may have been stopped again between an op's end and its next chance to say so.
        let is_right = told == measured || just_resumed && told.0 == measured.0.min(told.1);
        if !is_right || told.1 > measured.1 {
            return Err(Violation::Delay { node, slot, status, told, measured });
        }
        let timing = settings(sim, node).timing;
        let in_time = |waited, limit| {
            waited >= limit && (waited <= limit + sim.wake_slack(node) || just_resumed)
        };
        let mut told_right = completion.name().is_none() && !completion.reached();
        let explained = match (status, entered) {
            (OpStatus::InvalidCommand, None) => measured.1.is_zero(),
            (OpStatus::DispatchTimeout, None) => in_time(measured.1, timing.dispatch_timeout),
            (_, None) | (OpStatus::InvalidCommand | OpStatus::DispatchTimeout, Some(_)) => false,
            (status, Some((served_at, index))) => {
                self.end(index);
                let op = &self.ops[index];
                told_right = op.is_told_right(completion);
                if status != OpStatus::Ok && op.changed_until > at {
                    return Err(Violation::SilentlyLate { node, slot });
                }
                let waited_from = op.solicited.as_ref().map_or(served_at, |it| it.at);
                match status {
                    OpStatus::Ok if op.op_type.shape().moves == Moves::In => {
                        op.arrived == all_granules(op.size)
                    }
                    OpStatus::Timeout => {
                        !op.refused
                            && op.acknowledged.is_none()
                            && in_time(local.since(waited_from), timing.timeout)
                    }
                    status => op.acknowledged.map_or(op.refused, |told| told == status),
                }
            }
        };
        match (explained, told_right) {
            (true, true) => Ok(()),
            (true, false) => Err(Violation::Ending { node, slot, status }),
            (false, _) => Err(Violation::Unexplained { node, slot, status }),
        }
    }

    /// An op is over: nothing that is on its way counts for it any longer.
    fn end(&mut self, index: OpIndex) {
        let op = &mut self.ops[index];
        op.end = Some(End::Reported);
        if op.op_type.shape().needs_window() {
            let state = &mut self.nodes[op.initiator.index()];
            state.reading -= op.size;
            state.in_flight -= op.in_flight;
            state.multiplied -= u32::from(op.request_copies > 1);
        }
    }

    /// A node has forgotten everything, and its applications are gone.
    pub(super) fn crashed(&mut self, node: NodeId) {
        let state = &mut self.nodes[node.index()];
        let next = state.next_life();
        let lost = core::mem::replace(state, next);
        let (host, first) = self.hosts[node.index()];
        self.strangers[host.index()] = Strangers::default();
        self.keys[host.index()] = Keys::default();
        for (slot, outstanding) in (first..).zip(lost.slots) {
            let Some(Outstanding { due, entered, .. }) = outstanding else { continue };
            self.deadlines.remove(&(due, node, slot));
            if let Some((_, index)) = entered {
                self.ops[index].end = Some(End::Lost);
            }
        }
    }
}
