//! The space that is explored: messages, the roles that follow one another, the faults, and the
//! mistake if there is one.
//!
//! A script holds no state: it says how large the world is, not what happens in it.

use core::ops::{Index, IndexMut};

/// Messages of each flow, at most.
pub(crate) const MESSAGES_MAX: u8 = 2;
/// Attempts to switch, at most.
pub(crate) const ATTEMPTS_MAX: usize = 3;

/// The number of an attempt to switch, and of the era that it begins. The first era is 0.
pub(crate) type Number = u8;

/// One of the two sides. A flow of messages bears the name of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Who {
    A,
    B,
}

impl Who {
    pub(crate) const ALL: [Self; 2] = [Self::A, Self::B];

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// One of a kind for each side, or for each flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Pair<T>(pub(crate) [T; 2]);

impl<T> Index<Who> for Pair<T> {
    type Output = T;

    fn index(&self, who: Who) -> &T {
        &self.0[who as usize]
    }
}

impl<T> IndexMut<Who> for Pair<T> {
    fn index_mut(&mut self, who: Who) -> &mut T {
        &mut self.0[who as usize]
    }
}

/// A set of messages of one flow, by their sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Messages(u8);

impl Messages {
    pub(crate) const fn first(count: u8) -> Self {
        Self((1 << count) - 1)
    }

    pub(crate) const fn has(self, message: u8) -> bool {
        self.0 & 1 << message != 0
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn add(&mut self, message: u8) {
        self.0 |= 1 << message;
    }

    pub(crate) const fn remove(&mut self, message: u8) {
        self.0 &= !(1 << message);
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// How many there are before the first that is missing.
    pub(crate) const fn run(self) -> u8 {
        self.0.trailing_ones() as u8
    }

    /// Those before the first that is missing.
    pub(crate) const fn in_order(self) -> Self {
        Self::first(self.run())
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = u8> {
        (0..MESSAGES_MAX).filter(move |&message| self.has(message))
    }
}

/// The sides that track work requests in an era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trackers {
    /// This side is stateful and tracks those of both; the other is stateless.
    One(Who),
    /// Both are stateful, and each tracks its own: RC.
    Both,
}

/// A part of the protocol that a flawed script leaves out or does otherwise. Tests show what each
/// breaks, or that it breaks nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// The giver in doubt goes on in the old era when nothing comes.
    ResumesOutOfDoubt,
    /// COMMIT is taken whenever it comes.
    CommitTakenTwice,
    /// The giver sends TRANSFER while frames of it are unanswered and not dead.
    NotDrained,
    /// A side that is told in doubt that the connection is gone believes it.
    GoneBelievedInDoubt,
    /// The taker enters the row, and its guards and QP word stay as they are.
    GuardsLeftOpen,
    /// The taker's row is what TRANSFER says, whatever its own engine says of its guards.
    GuardsNotAsked,
    /// A side that becomes stateless counts its unfinished SENDs from what the peer has received.
    NewSequences,
    /// All attempts of an era have one number; only TRANSFER is looked at by number.
    TransferOfNumberUsedAgain,
    /// All attempts of an era have one number; only ABORT is looked at by number.
    AbortOfNumberUsedAgain,
    /// The taker does not remember the highest number that it has seen.
    LastNotKept,
    /// The giver takes answers until the last part of TRANSFER is sent.
    AnswersTakenBetweenParts,
    /// The taker may send ABORT after its guards were taken back.
    AbortAfterGuards,
    /// The taker completes what TRANSFER says is done before its COMMIT is answered.
    CompletesUnanswered,
    /// An answer to COMMIT counts however old it is.
    AnswerNotTimed,
    /// The stateless side posts while it holds a SWITCH.
    PostsNotHeldBack,
}

/// A world to explore.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    /// Messages that A sends, and that B sends. Each is a SEND there and a RECV here.
    pub(crate) messages: [u8; 2],
    /// The trackers of the first era, and those after each switch.
    pub(crate) path: &'static [Trackers],
    /// The leader while both are stateful: the side that connected.
    pub(crate) leader: Who,
    /// How often a switch may be tried, all eras together.
    pub(crate) attempts: u8,
    /// Whether the taker may refuse.
    pub(crate) refuses: bool,
    /// Whether the taker may abort.
    pub(crate) aborts: bool,
    /// Whether the giver may let go of an attempt before it is in doubt.
    pub(crate) cancels: bool,
    /// Whether a side may die.
    pub(crate) deaths: bool,
    /// Whether a side may end the connection though its peer lives: nothing came for `T_dead`.
    pub(crate) ends: bool,
    /// Whether frames stay in the network that will be dropped whenever they are delivered.
    pub(crate) all_frames: bool,
    /// The flaws; nothing as designed.
    pub(crate) flaws: &'static [Flaw],
}

impl Script {
    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.flaws.contains(&flaw)
    }

    pub(crate) const fn messages(&self, flow: Who) -> Messages {
        Messages::first(self.messages[flow as usize])
    }

    pub(crate) fn trackers(&self, stage: u8) -> Trackers {
        self.path[usize::from(stage)]
    }

    /// Returns the side that gives work requests away in the switch that ends a stage, if one does.
    /// Its peer takes them.
    pub(crate) fn giver(&self, stage: u8) -> Option<Who> {
        let next = *self.path.get(usize::from(stage) + 1)?;
        match (self.trackers(stage), next) {
            (Trackers::One(giver), _) => Some(giver),
            (Trackers::Both, Trackers::One(taker)) => Some(taker.other()),
            (Trackers::Both, Trackers::Both) => None,
        }
    }

    /// Returns the side that numbers the attempts in a stage.
    pub(crate) fn leader(&self, stage: u8) -> Who {
        match self.trackers(stage) {
            Trackers::One(stateful) => stateful,
            Trackers::Both => self.leader,
        }
    }

    /// Without something, and with every frame.
    pub(crate) const fn without(self, flaws: &'static [Flaw]) -> Self {
        Self { all_frames: true, flaws, ..self }
    }
}
