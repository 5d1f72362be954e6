//! The software's knowledge of the recorded ops that it has issued, and the checks of each: applied
//! once or not at all, as its status says, or the status of its SETTLE.

use std::collections::BTreeMap;

use rma_core::{
    command::{Command, CommandOp, CommandSlotId, Completion, RecordedOp},
    crypto::KeyBinding,
    op::{OpStatus, OpType},
    outcome::{Done, OpName, Verdict},
    receive_queue::{Event, Receive},
    region::RegionId,
    time::Instant,
};

use super::{Planned, World, addresses, pid, plan::Use, queue::Awaited};
use crate::{
    check::{
        history::{Kind, Moment, OpId, Outcome, Word},
        invariant::Commit,
        violation::Violation,
    },
    net::{frame::NodeId, sim::Sim},
    prng::{Chance, Prng},
};

/// One recorded op.
#[derive(Debug)]
pub(super) struct Told {
    node: NodeId,
    planned: Planned,
    status: Option<OpStatus>,
    applied: bool,
    verdict: Option<Verdict>,
    result: Option<u64>,
    name: Option<OpName>,
}

/// All of them, by the number of their command, and those that each node may ask about.
#[derive(Debug, Default)]
pub(super) struct AllTold {
    ops: BTreeMap<u64, Told>,
    /// By node: those that ended without an outcome.
    unknown: BTreeMap<NodeId, Vec<u64>>,
    /// By node: others that the target has named, the last ones.
    named: BTreeMap<NodeId, Vec<u64>>,
}

/// How many of them are kept at hand.
const NAMED_MAX: usize = 8;

/// The name in histories of a remote op. Local ones have even numbers.
const fn op_id(client: NodeId, number: u64) -> OpId {
    OpId { client, number: 2 * number + 1 }
}

/// Returns the word that a recorded op changes, and the change, if it is an atomic that should
/// succeed.
fn atomic(planned: &Planned) -> Option<(Word, Kind)> {
    let CommandOp::Recorded { op, .. } = planned.command.op else { return None };
    let kind = match op {
        RecordedOp::FetchAdd { addend, .. } => Kind::FetchAdd { addend },
        RecordedOp::CompareSwap { expected, new, .. } => Kind::CompareSwap { expected, new },
        _ => return None,
    };
    let Use::Atomic { offset } = planned.purpose else { return None };
    let is_honest = planned.expected == OpStatus::Ok;
    is_honest.then_some((word(planned.responder, planned.contents, planned.target, offset), kind))
}

/// A word of a target. Its region is called by what it holds, as lives of a host share it.
pub(super) fn word(target: NodeId, contents: usize, region: usize, offset: u64) -> Word {
    Word { target, region: RegionId::from_bits((contents << 8 | region) as u32), offset }
}

impl World {
    /// A point in the run.
    pub(super) fn moment(&mut self, sim: &Sim) -> Moment {
        self.events += 1;
        Moment { at: sim.now(), event: self.events }
    }

    /// An op is about to be issued as a recorded one.
    pub(super) fn begin_recorded(&mut self, sim: &Sim, node: NodeId, planned: &Planned) {
        if !planned.is_recorded() {
            return;
        }
        let number = planned.number;
        if let Some((word, kind)) = atomic(planned) {
            let at = self.moment(sim);
            self.history.invoke(op_id(node, number), word, kind, at);
        }
        let told = Told {
            node,
            planned: planned.clone(),
            status: None,
            applied: false,
            verdict: None,
            result: None,
            name: None,
        };
        self.told.ops.insert(number, told);
    }

    /// The target has named an op that is under way.
    pub(crate) fn named(&mut self, number: u64, name: OpName) {
        if let Some(told) = self.told.ops.get_mut(&number) {
            told.name = Some(name);
            self.told.note_named(number);
        }
    }

    /// A recorded op was applied: it was not before, and nobody has been told that it is not.
    pub(crate) fn applied(&mut self, commit: &Commit) -> Result<(), Violation> {
        let &Commit { number, node, at } = commit;
        let wrong = |status| Violation::Recorded { node, number, status, applied: true };
        let told = self.told.ops.get_mut(&number).ok_or(wrong(None))?;
        let is_final = told.status.is_some() || told.verdict.is_some();
        if is_final || core::mem::replace(&mut told.applied, true) {
            return Err(wrong(told.status));
        }
        if told.planned.expected != OpStatus::Ok || told.planned.responder != node {
            return Err(wrong(told.status));
        }
        let planned = told.planned.clone();
        if let Some(awaited) = told.awaited(at) {
            let Planned { contents, target, .. } = planned;
            self.hosts[node.index()].queues[contents][target].applied(awaited);
        }
        self.changed_board(&planned);
        Ok(())
    }

    /// Whether the recorded op with this number was applied.
    pub(super) fn is_applied(&self, planned: &Planned) -> bool {
        self.told.ops.get(&planned.number).is_some_and(|told| told.applied)
    }

    /// A recorded op, or a SETTLE, has ended.
    pub(super) fn end_recorded(
        &mut self,
        sim: &Sim,
        node: NodeId,
        completion: &Completion,
        planned: &Planned,
    ) -> Result<(), Violation> {
        let at = self.moment(sim);
        if let Use::Settle { of } = planned.purpose {
            return self.settled(node, of, completion);
        }
        let Planned { number, .. } = *planned;
        let Some(told) = self.told.ops.get_mut(&number) else { return Ok(()) };
        let status = completion.status;
        told.status = Some(status);
        told.name = completion.name();
        told.result = completion.result().or(told.result);
        let Told { applied, verdict, .. } = *told;
        let is_right = match status {
            OpStatus::Ok => applied,
            OpStatus::Timeout if completion.reached() => true,
            _ => !applied,
        };
        if !is_right {
            let status = Some(status);
            return Err(Violation::Recorded { node, number, status, applied });
        }
        let is_unknown = status == OpStatus::Timeout && completion.reached();
        if atomic(planned).is_some() {
            let id = op_id(node, number);
            let outcome = match (completion.result(), is_unknown) {
                (Some(before), _) => Outcome::Applied { before },
                (None, true) => Outcome::Unknown,
                (None, false) => Outcome::NotApplied,
            };
            self.history.respond(id, outcome, at);
            if let (true, Some(before)) = (is_unknown, told.result) {
                self.history.settle(id, Outcome::Applied { before });
            } else if is_unknown && verdict == Some(Verdict::NotApplied) {
                self.history.settle(id, Outcome::NotApplied);
            }
        }
        if is_unknown {
            self.told.unknown.entry(node).or_default().push(number);
        } else if completion.name().is_some() {
            self.told.note_named(number);
        }
        Ok(())
    }

    /// A SETTLE has ended.
    fn settled(
        &mut self,
        node: NodeId,
        of: Option<u64>,
        completion: &Completion,
    ) -> Result<(), Violation> {
        let Some(verdict) = completion.verdict() else { return Ok(()) };
        let Some(told) = of.and_then(|of| self.told.ops.get_mut(&of)) else { return Ok(()) };
        let (number, Told { applied, status, .. }) = (told.planned.number, &*told);
        let (applied, status) = (*applied, *status);
        let result = completion.result();
        let is_right = match verdict {
            Verdict::Applied => applied && (told.result.is_none() || told.result == result),
            Verdict::NotApplied => !applied,
            Verdict::Forgotten => true,
        };
        if !is_right {
            return Err(Violation::Recorded { node, number, status, applied });
        }
        if verdict == Verdict::Forgotten {
            return Ok(());
        }
        let was_unknown =
            told.verdict.replace(verdict).is_none() && status == Some(OpStatus::Timeout);
        told.result = result;
        let was_reached = told.name.is_some();
        if was_unknown && was_reached && atomic(&told.planned).is_some() {
            let outcome = match result {
                Some(before) => Outcome::Applied { before },
                None => Outcome::NotApplied,
            };
            self.history.settle(op_id(told.node, number), outcome);
        }
        if let Some(unknown) = self.told.unknown.get_mut(&told.node) {
            unknown.retain(|&it| it != number);
        }
        Ok(())
    }

    /// The application of a node has crashed: it asks about nothing any longer.
    pub(super) fn forget_told(&mut self, node: NodeId) {
        self.told.unknown.remove(&node);
        self.told.named.remove(&node);
    }

    /// A SETTLE of `node` for `slot`, if there is something to ask about.
    pub(super) fn plan_settle(
        &mut self,
        sim: &Sim,
        (node, slot): (NodeId, u16),
        prng: &mut Prng,
    ) -> Option<Planned> {
        let unknown = self.told.unknown.get(&node).map_or(&[][..], Vec::as_slice);
        let named = self.told.named.get(&node).map_or(&[][..], Vec::as_slice);
        let asks_again = prng.chance(Chance::ppm(150_000));
        let all = if asks_again || unknown.is_empty() { named } else { unknown };
        let number = *all.get(prng.below(all.len().max(1) as u64) as usize)?;
        let told = self.told.ops.get(&number)?;
        let (planned, name) = (&told.planned, told.name?);
        let Planned { responder, contents, target, .. } = *planned;
        let (local, remote) = (&self.hosts[node.index()], &self.hosts[responder.index()]);
        let region = planned.command.remote_region;
        let is_queue = matches!(planned.command.op.op_type(), OpType::Send | OpType::Notify);
        let (id, key) = if is_queue {
            let queue = &remote.queues[contents][target];
            (queue.row.id, &queue.row.key)
        } else {
            let target = &remote.epochs[contents][target];
            (target.row.id, &target.row.key)
        };
        if remote.contents != contents || id != region {
            return None;
        }
        let process = local.process_of(slot);
        let is_own = process == local.process_of(planned.command.slot.0);
        let is_ipv4 = planned.command.responder.is_ipv4();
        let (initiator, responder_addr) = addresses(sim, node, responder, is_ipv4);
        let op_type = planned.command.op.op_type();
        let binding =
            KeyBinding { initiator, responder: responder_addr, pid: pid(node, process), op_type };
        let command = Command {
            slot: CommandSlotId(slot),
            responder: responder_addr,
            key: key.derive(&binding),
            op: CommandOp::Settle { op_type, name },
            ..planned.command
        };
        let of = is_own.then_some(number);
        Some(planned.as_settle(sim, command, of, (remote.life, remote.contents)))
    }

    /// An op whose end `node` knows, and that the target of `planned` need not remember.
    pub(super) fn done_for(&self, node: NodeId, planned: &Planned) -> Option<Done> {
        let named = self.told.named.get(&node)?;
        let host = &self.hosts[node.index()];
        let slot = |planned: &Planned| host.process_of(planned.command.slot.0);
        let ends = |planned: &Planned| (planned.command.responder, planned.command.remote_region);
        let is_it = |told: &&Told| {
            told.status.is_some()
                && ends(&told.planned) == ends(planned)
                && slot(&told.planned) == slot(planned)
        };
        let told = named.iter().rev().filter_map(|it| self.told.ops.get(it)).find(is_it)?;
        told.name.map(Done::from).filter(|done| done.counter > 0)
    }
}

impl Told {
    /// The event that the op leaves, if it leaves one.
    fn awaited(&self, at: [Instant; 2]) -> Option<Awaited> {
        let CommandOp::Recorded { op, .. } = self.planned.command.op else { return None };
        let (immediate, len, region_offset) = match op {
            RecordedOp::Send { message, immediate } => (immediate, message.op_size, 0),
            RecordedOp::Notify { immediate } => (immediate, 0, 0),
            RecordedOp::WriteWithImm { transfer, immediate, .. } => {
                (immediate, transfer.op_size, transfer.remote_offset)
            }
            _ => return None,
        };
        let event = Event {
            op_type: self.planned.command.op.op_type(),
            receive: Receive(0),
            len,
            immediate,
            initiator: self.planned.initiator,
            pid: self.planned.pid,
            region: self.planned.command.remote_region,
            region_offset,
            at: at[0],
        };
        let is_message = matches!(op, RecordedOp::Send { .. });
        let bytes = if is_message { self.planned.data().to_vec() } else { Vec::new() };
        Some(Awaited { event, at, bytes })
    }
}

impl AllTold {
    fn note_named(&mut self, number: u64) {
        let Some(told) = self.ops.get(&number) else { return };
        let named = self.named.entry(told.node).or_default();
        if !named.contains(&number) {
            named.push(number);
        }
        if named.len() > NAMED_MAX {
            named.remove(0);
        }
    }
}
