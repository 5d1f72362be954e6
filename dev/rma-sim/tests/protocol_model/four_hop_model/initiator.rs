//! The initiator: command slots, hop 3, completions.
//!
//! Its steps are atomic, as nothing that a pause could do between them is not done by the network
//! as well: a frame that waits in its queue is one that is still on its way. All data of an op is
//! sent in the step that accepts hop 2, which allows more than sending it bit by bit.

use crate::four_hop_model::{
    model::State,
    network::{Frame, Status},
    records::Name,
    script::{Flaw, OPS_MAX, OpId, SLOTS_MAX, Script, SolicitationId},
    settle::{self, Verdict},
};

/// The end of an op, as its application is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    Ok,
    /// `reached`: whether a hop 2 was taken, so that data was sent.
    Timeout {
        reached: bool,
    },
    AuthenticationFailure,
    Nack,
    /// No receive was posted.
    NotReady,
    /// The initiator restarted: nobody is told anything.
    Lost,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    #[default]
    Free,
    /// Hop 1 is sent.
    Requested,
    /// Hop 2 was accepted, hop 3 is sent.
    Solicited { by: SolicitationId },
}

/// One entry of the command slot table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Slot {
    pub(crate) phase: Phase,
    pub(crate) op: OpId,
    generation: u8,
    /// Ticks until it may time out, once solicited.
    left: u8,
    /// Whether a TIMEOUT would say that hop 2 was reached.
    pub(crate) reached: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Initiator {
    pub(crate) slots: [Slot; SLOTS_MAX],
    /// The generation that each op went out with; 0 before.
    pub(crate) generations: [u8; OPS_MAX],
    pub(crate) outcomes: [Option<Outcome>; OPS_MAX],
    /// The name by which each recorded op is asked about, from hop 2 on.
    pub(crate) names: [Option<Name>; OPS_MAX],
    /// The answer of SETTLE.
    pub(crate) verdicts: [Option<Verdict>; OPS_MAX],
    /// The age of the turn's reading of the clock. Only a flaw looks at it.
    turn_age: u8,
    pub(crate) restarted: bool,
    pub(crate) completed_twice: bool,
}

impl Initiator {
    /// The op that the slot would take next.
    pub(crate) fn next_op(&self, script: &Script, slot: u8) -> Option<OpId> {
        if self.slots[usize::from(slot)].phase != Phase::Free {
            return None;
        }
        let mut ops = (0..).zip(script.ops).zip(self.outcomes);
        let op = ops.find(|((_, op), outcome)| op.slot == slot && outcome.is_none());
        let ((id, op), _) = op?;
        let may_begin = op.done.is_none_or(|done| self.knows_end(done))
            && op.repeats.is_none_or(|first| self.may_repeat(script, first));
        may_begin.then_some(id)
    }

    /// Whether nothing more is to be learnt of how an op ended.
    pub(crate) fn knows_end(&self, op: OpId) -> bool {
        let verdict = self.verdicts[usize::from(op)];
        match self.outcomes[usize::from(op)] {
            None => false,
            Some(Outcome::Timeout { reached: true }) => verdict.is_some(),
            Some(_) => true,
        }
    }

    /// The executor's rule: whether an op's message may be sent again. Not if it may have been
    /// applied.
    fn may_repeat(&self, script: &Script, op: OpId) -> bool {
        match self.outcomes[usize::from(op)] {
            None | Some(Outcome::Ok | Outcome::Lost) => false,
            Some(Outcome::Nack | Outcome::NotReady | Outcome::AuthenticationFailure) => true,
            Some(Outcome::Timeout { reached }) => {
                let verdict = self.verdicts[usize::from(op)];
                let settled = verdict == Some(Verdict::NotApplied);
                !reached || settled || script.has(Flaw::RepeatedBlindly)
            }
        }
    }

    /// Whether the flaw leaves something to be noted.
    pub(crate) fn may_note_reached(&self, slot: u8) -> bool {
        let slot = self.slots[usize::from(slot)];
        matches!(slot.phase, Phase::Solicited { .. }) && !slot.reached
    }

    pub(crate) fn note_reached(&mut self, slot: u8) {
        self.slots[usize::from(slot)].reached = true;
    }

    pub(crate) fn may_time_out(&self, slot: u8) -> bool {
        let slot = self.slots[usize::from(slot)];
        slot.phase != Phase::Free && slot.left == 0
    }

    /// Whether time changes anything here.
    pub(crate) fn is_timed(&self) -> bool {
        self.slots.iter().any(|slot| slot.left > 0)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.slots.iter().any(|slot| slot.phase != Phase::Free)
    }

    /// The clock goes on.
    pub(crate) fn tick(&mut self, script: &Script) {
        for slot in &mut self.slots {
            slot.left = slot.left.saturating_sub(1);
        }
        if script.has(Flaw::StaleStamp) {
            self.turn_age = script.timing.initiator_timeout.min(self.turn_age + 1);
        }
    }

    /// The turn's reading of the clock is taken.
    pub(crate) fn begin_turn(&mut self) {
        self.turn_age = 0;
    }

    /// The process ends and another begins: same addresses and slots, generations from the start.
    pub(crate) fn restart(&mut self) {
        for slot in 0..SLOTS_MAX {
            if self.slots[slot].phase != Phase::Free {
                self.complete(slot, Outcome::Lost);
            }
            self.slots[slot] = Slot::default();
        }
        self.restarted = true;
    }

    fn complete(&mut self, slot: usize, outcome: Outcome) {
        let Slot { op, generation, .. } = self.slots[slot];
        let before = self.outcomes[usize::from(op)].replace(outcome);
        self.completed_twice |= before.is_some();
        self.slots[slot] = Slot { generation, ..Slot::default() };
    }

    pub(crate) fn time_out(&mut self, slot: u8) {
        let reached = self.slots[usize::from(slot)].reached;
        self.complete(slot.into(), Outcome::Timeout { reached });
    }
}

/// The next op of a slot enters service.
pub(crate) fn issue(state: &mut State, slot: u8, op: OpId) {
    let initiator = &mut state.initiator;
    let slot = &mut initiator.slots[usize::from(slot)];
    let generation = slot.generation + 1;
    initiator.generations[usize::from(op)] = generation;
    // It may time out at any time from now on: more than a real initiator does before hop 2.
    *slot = Slot { phase: Phase::Requested, op, generation, left: 0, reached: false };
    state.network.send(Frame::Request { op });
}

/// Hops 2 and 4, failure notices, and the answers to SETTLE.
pub(crate) fn receive(script: &Script, state: &mut State, frame: Frame) {
    match frame {
        Frame::Solicitation { by } => receive_solicitation(script, state, by),
        Frame::Acknowledgement { by, status } => {
            let status = match status {
                Status::Ok => Outcome::Ok,
                Status::AuthenticationFailure => Outcome::AuthenticationFailure,
                Status::NotReady => Outcome::NotReady,
            };
            receive_acknowledgement(script, state, by, status);
        }
        Frame::Nack { op } => receive_notice(script, state, op, Outcome::Nack),
        Frame::NotReady { op } => receive_notice(script, state, op, Outcome::NotReady),
        Frame::AuthenticationFailure { op } => {
            receive_notice(script, state, op, Outcome::AuthenticationFailure);
        }
        Frame::Settlement { op, verdict } => settle::receive(script, state, op, verdict),
        Frame::Request { .. } | Frame::Data { .. } | Frame::Settle { .. } => {
            unreachable!("for the target")
        }
    }
}

/// The slot of an op that a frame which answers `op` names in clear, and that could open it: slot
/// and generation are right, and so is K_d. What the frame is curried with is yet to be seen.
fn slot_of(script: &Script, state: &State, op: OpId) -> Option<usize> {
    let index = usize::from(script.op(op).slot);
    let slot = state.initiator.slots[index];
    let answers = slot.phase != Phase::Free
        && slot.generation == state.initiator.generations[usize::from(op)]
        && script.op(slot.op).same_key(script.op(op));
    answers.then_some(index)
}

fn receive_solicitation(script: &Script, state: &mut State, by: SolicitationId) {
    let solicitation = state.target.solicitations[usize::from(by)];
    let answered = solicitation.op;
    let Some(index) = slot_of(script, state, answered) else { return };
    let Initiator { slots, turn_age, names, .. } = &mut state.initiator;
    let slot = &mut slots[index];
    let first = slot.phase == Phase::Requested || script.has(Flaw::EveryHopTwoAnswered);
    let bound = slot.op == answered || script.has(Flaw::HopTwoNotBound);
    if !(first && bound) {
        return;
    }
    slot.phase = Phase::Solicited { by };
    slot.reached = !script.has(Flaw::ReachedToldTooLate);
    names[usize::from(slot.op)] = solicitation.record.map(|record| Name { by, record });
    let timeout = script.timing.initiator_timeout;
    if script.has(Flaw::StaleStamp) {
        slot.left = timeout - *turn_age;
    } else if !script.has(Flaw::TimeoutNotReset) {
        slot.left = timeout;
    }
    for granule in 0..script.op(slot.op).granules() {
        state.network.send(Frame::Data { op: slot.op, by, granule });
    }
}

fn receive_acknowledgement(
    script: &Script,
    state: &mut State,
    by: SolicitationId,
    status: Outcome,
) {
    let answered = state.target.solicitations[usize::from(by)].op;
    if script.has(Flaw::HopFourAfterTheEnd)
        && state.initiator.outcomes[usize::from(answered)].is_some()
    {
        state.initiator.completed_twice = true;
    }
    let Some(index) = slot_of(script, state, answered) else { return };
    let Phase::Solicited { by: accepted } = state.initiator.slots[index].phase else { return };
    if accepted == by || script.has(Flaw::HopFourNotBound) {
        if status == Outcome::Ok {
            state.target.compare_result(state.initiator.slots[index].op, by);
        }
        state.initiator.complete(index, status);
    }
}

fn receive_notice(script: &Script, state: &mut State, op: OpId, status: Outcome) {
    let Some(index) = slot_of(script, state, op) else { return };
    let slot = state.initiator.slots[index];
    let in_time = slot.phase == Phase::Requested || script.has(Flaw::NoticeAfterHopTwo);
    if in_time && slot.op == op {
        state.initiator.complete(index, status);
    }
}
