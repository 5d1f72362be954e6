//! The world as stateright walks through it: every order of every step of both sides, their clocks
//! and the network.

use stateright::{Model, Property};

use crate::four_hop_model::{
    initiator::{self, Initiator},
    network::{Frame, Network},
    promises,
    script::{ENTRIES_MAX, Flaw, OpId, RECORDS_MAX, SLOTS_MAX, Script},
    settle,
    target::{self, Target},
};

/// Everything at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) initiator: Initiator,
    pub(crate) target: Target,
    pub(crate) network: Network,
    /// By how much the initiator's clock has gained on the target's.
    drift: u8,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Both clocks go on.
    Tick,
    /// Only the initiator's does.
    InitiatorTick,
    /// Only the target's does.
    TargetTick,
    /// The initiator begins a turn.
    BeginTurn,
    /// An op enters service: hop 1.
    Issue { slot: u8, op: OpId },
    /// A frame arrives, the first time or once more.
    Deliver(Frame),
    /// The initiator gives an op up.
    TimeOut { slot: u8 },
    /// It takes note that data was sent: only a flaw does so in a step of its own.
    NoteReached { slot: u8 },
    /// The initiator asks what became of an op, or cancels it.
    AskSettle(Frame),
    /// The target sends hop 2.
    Solicit { index: u8 },
    /// The target gives up an entry that waits.
    Shed { index: u8 },
    /// The target gives up an entry whose data did not come.
    Forget { index: u8 },
    /// The target gives an entry's share of the window to others.
    Park { index: u8 },
    /// The target gives up an entry whose key was replaced.
    Refuse { index: u8 },
    /// The target gives up a record that it has held for the retention.
    Expire { record: u8 },
    /// The target copies what has passed its checks.
    Copy,
    /// The target looks at its clock after the copy.
    LookAgain,
    /// The target's driver sets a key.
    DriverRekey,
    /// The initiator's process ends and another begins.
    RestartInitiator,
    /// The target's process ends and another begins.
    RestartTarget,
}

impl Model for Script {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let initiator = Initiator::default();
        vec![State { initiator, target: Target::new(self), network: Network::default(), drift: 0 }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let State { initiator, target, network, drift } = state;
        if target.may_tick(self) {
            actions.push(Action::Tick);
            if *drift > 0 {
                actions.push(Action::TargetTick);
            }
        }
        if *drift < self.timing.drift_max {
            actions.push(Action::InitiatorTick);
        }
        if self.has(Flaw::StaleStamp) {
            actions.push(Action::BeginTurn);
        }
        for slot in 0..SLOTS_MAX as u8 {
            if let Some(op) = initiator.next_op(self, slot) {
                actions.push(Action::Issue { slot, op });
            }
            if initiator.may_time_out(slot) {
                actions.push(Action::TimeOut { slot });
            }
            if initiator.may_note_reached(slot) {
                actions.push(Action::NoteReached { slot });
            }
        }
        actions.extend(settle::requests(self, state).map(Action::AskSettle));
        if self.initiator_restarts && !initiator.restarted && initiator.is_busy() {
            actions.push(Action::RestartInitiator);
        }
        // While a frame lands, the target does nothing else.
        match target.landing {
            Some(landing) if landing.copied => actions.push(Action::LookAgain),
            Some(_) => actions.push(Action::Copy),
            None => self.actions_of_the_target(target, actions),
        }
        for frame in network.deliverable() {
            if !for_target(frame) || target.landing.is_none() {
                actions.push(Action::Deliver(frame));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        let State { initiator, target, network, drift } = &mut state;
        match action {
            Action::Tick => {
                initiator.tick(self);
                target.tick(self);
            }
            Action::InitiatorTick => {
                initiator.tick(self);
                *drift += 1;
            }
            Action::TargetTick => {
                target.tick(self);
                *drift -= 1;
            }
            Action::BeginTurn => initiator.begin_turn(),
            Action::Issue { slot, op } => initiator::issue(&mut state, slot, op),
            Action::Deliver(frame) => state = self.after(last, frame),
            Action::TimeOut { slot } => initiator.time_out(slot),
            Action::NoteReached { slot } => initiator.note_reached(slot),
            Action::AskSettle(request) => network.send(request),
            Action::Solicit { index } => network.send(target.solicit(self, index)),
            Action::Shed { index } => network.send(target.shed(index)),
            Action::Forget { index } => target.forget(self, index),
            Action::Park { index } => target.park(self, index),
            Action::Refuse { index } => target.refuse(self, index),
            Action::Expire { record } => target.expire(record),
            Action::Copy => target::copy(self, &mut state),
            Action::LookAgain => target::look_again(self, &mut state),
            Action::DriverRekey => {
                target.rekey(self.driver_key.expect("`actions` saw it"));
                target.driver_rekeyed = true;
            }
            Action::RestartInitiator => initiator.restart(),
            Action::RestartTarget => target.restart(self),
        }
        self.normalize(&mut state);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        promises::all(self)
    }
}

impl Script {
    /// Makes states equal that behave alike for ever.
    fn normalize(&self, state: &mut State) {
        if !state.initiator.is_timed() && !state.target.is_timed(self) {
            state.drift = 0;
        }
        for op in 0..self.ops.len() as OpId {
            // An initiator that knows how an op ended relies on no record of it. Where it says so
            // the record is held until then, to show that this frees it.
            if state.initiator.knows_end(op) && !self.is_done(op) {
                state.target.let_expire(op);
            }
        }
        if self.all_frames || !self.may_forget_frames() {
            return;
        }
        state.network = self.without_dead_frames(state);
        for op in 0..self.ops.len() {
            let id = op as OpId;
            if state.initiator.knows_end(id) && !self.is_done(id) {
                state.initiator.names[op] = None;
            }
        }
        for by in 0..state.target.solicited {
            if !state.target.awaits(by) && !state.network.names(by) {
                state.target.solicitations[usize::from(by)] = target::Solicitation::default();
            }
        }
    }

    /// Whether frames that are dropped once are dropped for ever.
    pub(crate) fn may_forget_frames(&self) -> bool {
        matches!(self.flaws, [] | [Flaw::RecordTakenWhileHeld]) && !self.initiator_restarts
    }

    /// Returns the network without dead frames.
    pub(crate) fn without_dead_frames(&self, state: &State) -> Network {
        let mut network = state.network;
        self.dead_frames(state).for_each(|frame| network.forget(frame));
        network
    }

    /// Frames that nobody takes any longer: of ops that are over, whose generation has passed, data
    /// for entries that have ended, whose IV2 has passed, and SETTLEs that have been answered or
    /// whose key was replaced. None of these comes again. At most there will be another answer that
    /// nobody takes.
    pub(crate) fn dead_frames(&self, state: &State) -> impl Iterator<Item = Frame> {
        let State { initiator, target, network, .. } = state;
        let over = |op: OpId| initiator.outcomes[usize::from(op)].is_some();
        network.sent().filter(move |&frame| match frame {
            Frame::Request { .. } | Frame::AuthenticationFailure { .. } => false,
            Frame::Nack { op } | Frame::NotReady { op } => over(op),
            Frame::Settle { op, key } => initiator.knows_end(op) || target.was_replaced(key),
            Frame::Settlement { op, .. } => initiator.knows_end(op),
            Frame::Solicitation { by } | Frame::Acknowledgement { by, .. } => {
                over(target.solicitations[usize::from(by)].op)
            }
            Frame::Data { by, .. } => !target.awaits(by),
        })
    }

    /// Returns `state` after `frame`.
    pub(crate) fn after(&self, state: &State, frame: Frame) -> State {
        let mut state = *state;
        match frame {
            Frame::Request { .. } | Frame::Data { .. } | Frame::Settle { .. } => {
                target::receive(self, &mut state, frame);
            }
            _ => initiator::receive(self, &mut state, frame),
        }
        state
    }

    fn actions_of_the_target(&self, target: &Target, actions: &mut Vec<Action>) {
        for index in 0..ENTRIES_MAX as u8 {
            if target.may_solicit(self, index) {
                actions.push(Action::Solicit { index });
            }
            if target.may_shed(index) {
                actions.push(Action::Shed { index });
            }
            if target.may_forget(index) {
                actions.push(Action::Forget { index });
            }
            if target.may_park(self, index) {
                actions.push(Action::Park { index });
            }
            if target.may_refuse(self, index) {
                actions.push(Action::Refuse { index });
            }
        }
        for record in 0..RECORDS_MAX as u8 {
            if target.may_expire(record) {
                actions.push(Action::Expire { record });
            }
        }
        if self.driver_key.is_some() && !target.driver_rekeyed {
            actions.push(Action::DriverRekey);
        }
        if self.target_restarts && !target.restarted && target.is_busy() {
            actions.push(Action::RestartTarget);
        }
    }
}

fn for_target(frame: Frame) -> bool {
    matches!(frame, Frame::Request { .. } | Frame::Data { .. } | Frame::Settle { .. })
}
