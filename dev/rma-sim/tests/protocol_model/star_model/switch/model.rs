//! The world as stateright walks through it: every order of every step of both sides and the
//! network.

use stateright::{Model, Property};

use super::{
    handover,
    network::{Frame, Work},
    promises,
    script::{Number, Script, Trackers, Who},
    side::{Guards, Life, Phase, Row, State},
    work,
};

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A frame arrives, the first time or once more.
    Deliver(Frame),
    /// The library of a stateless side hands over its next work request of a flow.
    Post { who: Who, flow: Who },
    /// A stateful side sends a frame about a message.
    Send(Frame),
    /// The leader asks for a switch.
    Ask { who: Who },
    /// The taker gets SWITCH and refuses.
    Refuse { who: Who, number: Number },
    /// The giver lets go of an attempt.
    Cancel { who: Who },
    /// The taker lets go of an attempt.
    Abort { who: Who },
    /// The giver has waited until what was not answered is dead.
    AwaitDead { who: Who },
    /// The giver sends a part of TRANSFER.
    SendPart { who: Who, flow: Who },
    /// The taker's engine takes back the guards.
    TakeGuards { who: Who },
    /// The taker enters the row.
    Enter { who: Who },
    /// The giver is in doubt no more, of its own accord: only a flaw does so.
    Resume { who: Who },
    /// A side gives its peer up.
    End { who: Who },
    /// A process dies.
    Die { who: Who },
}

impl Model for Script {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for who in Who::ALL {
            if state.sides[who].life == Life::Live {
                work::actions(self, state, who, actions);
                handover::actions(self, state, who, actions);
            }
        }
        actions.extend(state.network.sent().map(Action::Deliver));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        match action {
            Action::Deliver(frame) => state = self.after(last, frame),
            Action::Post { who, flow } => work::post(self, &mut state, who, flow),
            Action::Send(frame) => state.network.send(frame),
            Action::Ask { who } => handover::ask(self, &mut state, who),
            Action::Refuse { who, number } => handover::refuse(&mut state, who, number),
            Action::Cancel { who } | Action::Resume { who } => state.sides[who].phase = Phase::Idle,
            Action::Abort { who } => handover::abort(&mut state, who),
            Action::AwaitDead { who } => handover::await_dead(self, &mut state, who),
            Action::SendPart { who, flow } => handover::send_part(&mut state, who, flow),
            Action::TakeGuards { who } => handover::take_guards(self, &mut state, who),
            Action::Enter { who } => handover::enter(self, &mut state, who),
            Action::End { who } => handover::end(self, &mut state, who),
            Action::Die { who } => state.sides[who].life = Life::Dead,
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
        for who in Who::ALL {
            let side = &mut state.sides[who];
            if side.life != Life::Live {
                side.phase = Phase::Idle;
                side.row = Row::default();
                side.guards = Guards::default();
            }
        }
        if !self.all_frames {
            *state = self.without_dead_frames(state);
        }
    }

    /// Returns `state` after `frame`.
    pub(crate) fn after(&self, state: &State, frame: Frame) -> State {
        let mut state = *state;
        match frame {
            Frame::Work { kind, era, flow, message } => {
                let who = work::receiver(self, &state, kind, era, flow);
                work::receive(self, &mut state, who, (kind, era, flow, message));
            }
            Frame::Switch { kind, number } => {
                let who = handover::receiver(self, &state, kind, number);
                handover::receive(self, &mut state, who, kind, number);
            }
        }
        state
    }

    /// `state` when its network forgets dead frames.
    pub(crate) fn without_dead_frames(&self, state: &State) -> State {
        let mut without = *state;
        self.dead_frames(state).for_each(|frame| without.network.forget(frame));
        without
    }

    /// Frames that nobody takes any longer: to a side that does nothing more, of an era that is
    /// over, and of an attempt that is.
    pub(crate) fn dead_frames(&self, state: &State) -> impl Iterator<Item = Frame> {
        state.network.sent().filter(move |&frame| match frame {
            Frame::Work { kind, era, flow, message } => {
                let who = work::receiver(self, state, kind, era, flow);
                is_over(state, era)
                    || state.sides[who].life != Life::Live
                    || self.is_taken(state, kind, era, flow, message)
            }
            Frame::Switch { kind, number } => {
                let who = handover::receiver(self, state, kind, number);
                state.sides[who].life != Life::Live || is_closed(state, number)
            }
        })
    }

    /// Whether a WQEP has been taken, or a GDA.
    fn is_taken(&self, state: &State, kind: Work, era: Number, flow: Who, message: u8) -> bool {
        let who = work::receiver(self, state, kind, era, flow);
        let side = &state.sides[who];
        let row = &side.row;
        let in_era = side.era == era && self.trackers(side.stage) == Trackers::One(who);
        in_era
            && match kind {
                Work::Wqep => row.known[flow].has(message),
                Work::Gda => row.done[flow].has(message),
                _ => false,
            }
    }
}

/// Whether a side has left an era for good. The other is in doubt then.
fn is_over(state: &State, era: Number) -> bool {
    state.sides.0.iter().any(|side| {
        side.era > era || side.era == era && matches!(side.phase, Phase::HasGuards { .. })
    })
}

/// Whether both sides have seen an attempt and are done with it.
fn is_closed(state: &State, number: Number) -> bool {
    state.sides.0.iter().all(|side| side.last >= number && side.phase.number() != Some(number))
}
