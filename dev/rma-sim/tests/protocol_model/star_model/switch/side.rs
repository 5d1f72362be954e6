//! One side of the connection: its library, its engine, and what only an observer of both can know.

use super::{
    network::Network,
    script::{Flaw, Messages, Number, Pair, Script, Trackers, Who},
};

/// Everything at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) sides: Pair<Side>,
    pub(crate) network: Network,
    pub(crate) effects: Effects,
}

/// Whether a side's library and engine do anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Life {
    #[default]
    Live,
    /// Every work request that was not complete has failed, and the application was told.
    Ended,
    /// The process is gone. Whoever comes back knows no key, and can do nothing that matters here.
    Dead,
}

/// The phase of a switch that a side is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    #[default]
    Idle,
    /// The giver that leads: SWITCH is sent. It works as before.
    Asks(Number),
    /// The giver starts nothing new, and waits until what it sent is answered or dead.
    Drains(Number),
    /// The giver has sent a part of TRANSFER, and not the last.
    Sends(Number),
    /// The giver has sent all parts.
    InDoubt(Number),
    /// The taker waits for TRANSFER. Of each part, whose attempt's it was; 0 if it has not come.
    Holds { number: Number, parts: Pair<Number> },
    /// The taker's engine has closed the QP word and taken back the guards.
    HasGuards { number: Number, parts: Pair<Number> },
    /// The taker has entered the row, and its COMMIT is not answered.
    Unanswered(Number),
}

impl Phase {
    /// Of the attempt that it is part of.
    pub(crate) const fn number(self) -> Option<Number> {
        match self {
            Self::Idle => None,
            Self::Asks(number)
            | Self::Drains(number)
            | Self::Sends(number)
            | Self::InDoubt(number)
            | Self::Holds { number, .. }
            | Self::HasGuards { number, .. }
            | Self::Unanswered(number) => Some(number),
        }
    }
}

/// A stateful side's row about work requests that are not its own, by flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    /// The peer's work requests that were told by WQEP in this era.
    pub(crate) known: Pair<Messages>,
    /// Messages whose bytes are at their receiver.
    pub(crate) done: Pair<Messages>,
    /// Messages whose work request at the peer's is complete.
    pub(crate) answered: Pair<Messages>,
}

/// The words that the engine of a stateless side looks at: the QP word, and the guards by flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Guards {
    /// The era for which the QP word is open.
    pub(crate) era: Option<Number>,
    /// Work requests whose guard is open.
    pub(crate) open: Pair<Messages>,
}

/// One side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Side {
    pub(crate) life: Life,
    pub(crate) era: Number,
    /// How many switches led to the era.
    pub(crate) stage: u8,
    /// The highest number that it has used or seen.
    pub(crate) last: Number,
    pub(crate) phase: Phase,
    /// Its own work requests that are complete, by flow: SENDs of its own, RECVs of the other.
    /// Their WCs are given in order, so not those after one that is missing.
    pub(crate) complete: Pair<Messages>,
    pub(crate) row: Row,
    pub(crate) guards: Guards,
    /// By how much its SENDs are numbered higher than they were. Only a flaw does so.
    pub(crate) shift: u8,
    /// Work requests that it posts when COMMIT comes. Only a flaw looks at them later.
    pub(crate) copy: Pair<Messages>,
}

impl Side {
    /// Whether it tracks work requests of `owner`, in doubt or not.
    pub(crate) fn holds(&self, script: &Script, me: Who, owner: Who) -> bool {
        match script.trackers(self.stage) {
            Trackers::One(stateful) => stateful == me,
            Trackers::Both => owner == me,
        }
    }

    /// Whether it tracks work requests of `owner`, and may work on them.
    pub(crate) fn tracks(&self, script: &Script, me: Who, owner: Who) -> bool {
        !matches!(self.phase, Phase::InDoubt(_)) && self.holds(script, me, owner)
    }

    /// Whether it is stateful and may send frames of its own accord.
    pub(crate) fn may_send(&self, script: &Script, me: Who) -> bool {
        let works = matches!(self.phase, Phase::Idle | Phase::Asks(_) | Phase::Holds { .. });
        works && self.holds(script, me, me)
    }

    /// Whether it is stateful in `era` and takes frames about messages.
    pub(crate) fn takes(&self, script: &Script, me: Who, era: Number) -> bool {
        let between = script.has(Flaw::AnswersTakenBetweenParts);
        let takes = match self.phase {
            Phase::Idle | Phase::Asks(_) | Phase::Drains(_) | Phase::Holds { .. } => true,
            Phase::Sends(_) => between,
            Phase::InDoubt(_) | Phase::HasGuards { .. } | Phase::Unanswered(_) => false,
        };
        takes && self.era == era && self.holds(script, me, me)
    }

    /// Its work request that goes by `message` in a flow.
    pub(crate) fn request(&self, me: Who, flow: Who, message: u8) -> Option<u8> {
        if me == flow { message.checked_sub(self.shift) } else { Some(message) }
    }

    /// Whether a frame of `era` about `message` finds an open QP word and an open guard.
    pub(crate) fn opens(&self, me: Who, era: Number, flow: Who, message: u8) -> Option<u8> {
        let request = self.request(me, flow, message)?;
        let open = self.guards.era == Some(era) && self.guards.open[flow].has(request);
        (open && self.life == Life::Live).then_some(request)
    }
}

/// The effects that must never occur.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Effects {
    /// Something of a work request changed after its WC.
    pub(crate) late: bool,
    /// A work request was given two WCs.
    pub(crate) twice: bool,
    /// A RECV has the bytes of another SEND than the one of its sequence.
    pub(crate) astray: bool,
}

impl State {
    pub(crate) fn new(script: &Script) -> Self {
        let mut sides = Pair::<Side>::default();
        if let Trackers::One(stateful) = script.trackers(0) {
            sides[stateful.other()].guards.era = Some(0);
        }
        Self { sides, network: Network::default(), effects: Effects::default() }
    }

    /// Whether the SEND of a message has failed.
    fn has_failed(&self, flow: Who, message: u8) -> bool {
        let sender = &self.sides[flow];
        sender.life == Life::Ended && !sender.complete[flow].has(message)
    }

    /// Bytes come into the buffer of a RECV.
    pub(crate) fn land(&mut self, flow: Who, message: u8) {
        let receiver = &self.sides[flow.other()];
        let is_back = receiver.complete[flow].has(message) || receiver.life == Life::Ended;
        self.effects.late |= is_back || self.has_failed(flow, message);
    }

    /// A work request of `who` is complete.
    pub(crate) fn complete(&mut self, who: Who, flow: Who, message: u8) {
        let side = &mut self.sides[who];
        self.effects.twice |= side.complete[flow].has(message);
        self.effects.late |= side.life == Life::Ended;
        side.complete[flow].add(message);
        self.effects.late |= who != flow && self.has_failed(flow, message);
    }
}
