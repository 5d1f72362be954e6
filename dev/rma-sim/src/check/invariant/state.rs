//! A checker's memory of ops, and of nodes in their present lives.

use core::time::Duration;

use rma_core::{
    addr::HostAddr,
    command::{CommandOp, RecordedOp},
    crypto::{DerivedRegionKey, Iv},
    limits::GRANULE,
    op::{ClassOfService, OpStatus, OpType},
    outcome::{OpName, Verdict},
    region::RegionId,
    time::Instant,
};

use super::{
    fairness::Fairness,
    notices::Notices,
    records::{DueVerdict, Records},
};
use crate::net::frame::NodeId;

/// A command whose completion has not been seen. Times are by its node's clock but for `due`.
#[derive(Debug)]
pub(super) struct Outstanding {
    /// How many commands were issued before it, on all nodes.
    pub(super) number: u64,
    pub(super) op_type: OpType,
    pub(super) command: CommandOp,
    pub(super) class: ClassOfService,
    /// K_d, right or wrong.
    pub(super) key: DerivedRegionKey,
    /// The target's node and region.
    pub(super) target: Option<(NodeId, RegionId)>,
    /// The key that it has is no longer the region's.
    pub(super) stale: bool,
    pub(super) issued_at: Instant,
    /// In true time.
    pub(super) due: Instant,
    /// When its request was sent, and which op that began.
    pub(super) entered: Option<(Instant, OpIndex)>,
}

/// An op has one number for ever, unlike its slot, the use of the slot and the life of its node.
pub(super) type OpIndex = usize;

/// The number of a frame.
pub(super) type FrameNumber = u64;

/// The end of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Its application was told.
    Reported,
    /// Its node has crashed, and nobody will ever be told.
    Lost,
}

/// The one solicitation that a mutation was accepted for.
#[derive(Debug)]
pub(super) struct Solicited {
    pub(super) frame: FrameNumber,
    /// The name that the target gives the op.
    pub(super) name: OpName,
    /// When it had been accepted, by the initiator's clock.
    pub(super) at: Instant,
    /// Bytes of the op that have been sent.
    pub(super) sent: u32,
}

/// The observations of an op that entered service.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) initiator: NodeId,
    pub(super) slot: u16,
    pub(super) generation: u32,
    /// The number of its command.
    pub(super) number: u64,
    pub(super) op_type: OpType,
    pub(super) command: CommandOp,
    pub(super) key: DerivedRegionKey,
    pub(super) size: u32,
    pub(super) target: Option<(NodeId, RegionId)>,
    pub(super) stale: bool,
    pub(super) end: Option<End>,
    /// A failure notice was accepted.
    pub(super) refused: bool,
    /// An acknowledgement with this status was accepted.
    pub(super) acknowledged: Option<OpStatus>,
    pub(super) solicited: Option<Solicited>,
    /// The verdict of the settlement that was accepted.
    pub(super) verdict: Option<Verdict>,
    /// Copies of its request that the network delivers, at most.
    pub(super) request_copies: u64,
    /// How often a responder accepted its request.
    pub(super) accepted: u64,
    /// How often a responder dropped it.
    pub(super) dropped: u64,
    /// A read's payload that was sent for it.
    pub(super) answered: u64,
    /// A read's payload that is on its way, without the network's own copies.
    pub(super) in_flight: u64,
    /// One bit for each granule that was accepted by whom it was for.
    pub(super) arrived: u64,
    /// When the last change at the target was over that the NIC there did not count as late.
    pub(super) changed_until: Instant,
}

impl Op {
    /// Whether it asks what became of another.
    pub(super) const fn is_settle(&self) -> bool {
        matches!(self.command, CommandOp::Settle { .. })
    }

    /// Whether its target records it.
    pub(super) const fn is_recorded(&self) -> bool {
        matches!(self.command, CommandOp::Recorded { .. })
    }

    /// Whether it consumes a posted receive.
    pub(super) const fn consumes_receive(&self) -> bool {
        self.is_recorded()
            && matches!(self.op_type, OpType::Send | OpType::Notify | OpType::WriteWithImm)
    }

    /// Whether its acknowledgement has a result.
    pub(super) const fn has_result(&self) -> bool {
        self.is_recorded() && matches!(self.op_type, OpType::CompareSwap | OpType::FetchAdd)
    }

    /// Whether each part of its data changes its target; otherwise the last part does, in one step.
    pub(super) const fn lands_in_parts(&self) -> bool {
        matches!(
            self.command,
            CommandOp::Write(_)
                | CommandOp::Rekey(_)
                | CommandOp::Recorded { op: RecordedOp::WriteWithImm { ordered: false, .. }, .. }
        )
    }
}

/// A read request that a responder accepted and has not answered in full.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) op: OpIndex,
    /// The host to answer.
    pub(super) from: HostAddr,
    /// The IV of the request, which the answer is bound to.
    pub(super) request: Iv,
    pub(super) arrived_at: Instant,
    /// How much of it has been answered.
    pub(super) sent: u32,
    /// Its region has another key by now, or is gone.
    pub(super) stale: bool,
    /// The verdict due to a SETTLE; `None` of a read.
    pub(super) settles: Option<DueVerdict>,
}

/// A mutation request that a responder accepted and that is not over there.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) op: OpIndex,
    /// The IV of the request, which the solicitation is bound to.
    pub(super) request: Iv,
    pub(super) class: ClassOfService,
    pub(super) arrived_at: Instant,
    /// For how long the initiator waits for the solicitation.
    pub(super) limit: Duration,
    pub(super) stale: bool,
    pub(super) state: PendingState,
    /// Data of it came and was not applied: what the acknowledgement has to say.
    pub(super) refused: Option<OpStatus>,
    /// The name that the target gives it, once it is solicited, if it is recorded.
    pub(super) name: Option<OpName>,
    /// When a Rekey was solicited whose data has come: it is acknowledged when all engines have
    /// its key, or forgotten.
    pub(super) rekeyed: Option<Instant>,
    /// A receive is bound to it.
    pub(super) bound: bool,
    /// One bit for each granule that has come, applied or not.
    pub(super) arrived: u64,
    /// Payload that is on its way to it.
    pub(super) in_flight: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PendingState {
    Waiting,
    /// By this frame, sent at this time by the responder's clock.
    Solicited(FrameNumber, Instant),
    /// Was solicited by this frame, all its data has come, and it must be acknowledged.
    Answering(FrameNumber),
}

/// The observations of one node in its present life.
#[derive(Debug, Default)]
pub(super) struct NodeState {
    /// The number of its first command slot.
    first_slot: u16,
    pub(super) slots: Vec<Option<Outstanding>>,
    /// How many of `slots` are taken.
    pub(super) outstanding: usize,
    /// How many of these wait to enter service, by class.
    pub(super) waiting: [u32; 2],
    /// Sizes of its reads in service.
    pub(super) reading: u32,
    /// Payload on its way to reads in service and to mutations that it has solicited.
    pub(super) in_flight: u64,
    /// Reads in service whose request the network multiplied.
    pub(super) multiplied: u32,
    /// By class, in the order in which they were accepted.
    pub(super) jobs: [Vec<Job>; 2],
    /// In the order in which they were accepted.
    pub(super) pending: Vec<Pending>,
    pub(super) notices: Notices,
    pub(super) fairness: Fairness,
    /// Requests that it refused after it had accepted them, to make room for others, and whose
    /// notices have not been seen.
    pub(super) pushed_out: u64,
    /// Reads that a later one of the same initiator has overtaken, and when: they had made room,
    /// and their notices follow.
    pub(super) overtaken: Vec<(OpIndex, Instant)>,
    pub(super) records: Records,
}

impl NodeState {
    /// A request of `op` that was accepted has made room, and no longer waits. Returns whether
    /// there was one copy of it: which of several it was, nobody can tell, and none is forgotten.
    pub(super) fn forget(&mut self, op: OpIndex) -> bool {
        if let Some(place) = self.overtaken.iter().position(|&(it, _)| it == op) {
            self.overtaken.swap_remove(place);
            return true;
        }
        let waits = |it: &Pending| it.op == op && it.state == PendingState::Waiting;
        let reads = self.jobs.iter().flatten().filter(|job| job.op == op).count();
        if reads + self.pending.iter().filter(|it| waits(it)).count() != 1 {
            return false;
        }
        self.jobs.iter_mut().for_each(|jobs| jobs.retain(|job| job.op != op));
        self.pending.retain(|it| !waits(it));
        true
    }

    pub(super) fn new(first_slot: u16, slots: usize) -> Self {
        Self { first_slot, slots: (0..slots).map(|_| None).collect(), ..Self::default() }
    }

    /// The same engine in its next life.
    pub(super) fn next_life(&self) -> Self {
        Self::new(self.first_slot, self.slots.len())
    }

    /// The place of a slot, if it is one of this engine's.
    pub(super) fn slot_mut(&mut self, slot: u16) -> Option<&mut Option<Outstanding>> {
        self.slots.get_mut(usize::from(slot.checked_sub(self.first_slot)?))
    }

    /// Whether a slot of this engine has a command that has not completed.
    pub(super) fn is_outstanding(&self, slot: u16) -> bool {
        let index = slot.checked_sub(self.first_slot).map(usize::from);
        index.and_then(|it| self.slots.get(it)).is_some_and(Option::is_some)
    }

    /// The ops that something here is part of.
    pub(super) fn ops(&self) -> impl Iterator<Item = OpIndex> {
        let slots = self.slots.iter().flatten().filter_map(|it| Some(it.entered?.1));
        let jobs = self.jobs.iter().flatten().map(|it| it.op);
        let pending = self.pending.iter().map(|it| it.op);
        let overtaken = self.overtaken.iter().map(|&(op, _)| op);
        let told = self.notices.ops().chain(self.fairness.op());
        slots.chain(jobs).chain(pending).chain(overtaken).chain(told)
    }

    /// Whether a read waits to enter service.
    pub(super) fn read_waits(&self) -> bool {
        let mut outstanding = self.slots.iter().flatten();
        self.waiting != [0; 2]
            && outstanding.any(|it| it.op_type.shape().needs_window() && it.entered.is_none())
    }

    pub(super) fn outstanding(&mut self, slot: u16) -> Option<&mut Outstanding> {
        self.slot_mut(slot)?.as_mut()
    }

    /// The mutation that was solicited by `frame`, and data may come for.
    pub(super) fn solicited(&mut self, frame: FrameNumber) -> Option<&mut Pending> {
        let is_it = |pending: &&mut Pending| matches!(pending.state, PendingState::Solicited(by, _) if by == frame);
        self.pending.iter_mut().find(is_it)
    }

    /// The mutation that was solicited by `frame`, and must be acknowledged.
    pub(super) fn answering(&mut self, frame: FrameNumber) -> Option<&mut Pending> {
        self.pending.iter_mut().find(|it| it.state == PendingState::Answering(frame))
    }
}

/// One bit for each granule of a span.
pub(super) fn granules((start, end): (u32, u32)) -> u64 {
    (start / GRANULE..end.div_ceil(GRANULE)).fold(0, |bits, granule| bits | 1 << granule)
}

/// All granules of an op.
pub(super) fn all_granules(size: u32) -> u64 {
    granules((0, size))
}
