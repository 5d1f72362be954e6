//! Random histories: some that one word gave, and what becomes of them if details are altered.

use proptest::{collection::vec, prelude::*};

use super::*;

/// When a step is invoked, how much later it takes effect, and how much later it is over.
type Times = (u64, u64, u64);

/// An alteration of a history: which op, how, and by what.
pub(super) type Alteration = (usize, How, u64);

/// A step of a run, before it is known what the word holds then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    verb: Verb,
    /// Picks a value.
    pick: u64,
    times: Times,
    end: End,
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    Load,
    Store,
    Add,
    /// A COMPARE_SWAP that expects what is there.
    Swap,
    /// One that expects something else, as a rule.
    Try,
}

/// The end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Applied,
    NotApplied,
    UnknownApplied,
    UnknownNotApplied,
    UnderWay,
}

impl End {
    const fn is_applied(self) -> bool {
        matches!(self, Self::Applied | Self::UnknownApplied | Self::UnderWay)
    }
}

/// The way in which an op is altered.
#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    /// Its result is what another op saw.
    ResultOf,
    /// Its result is what another op left, or a little beside it.
    ResultAfter,
    /// Its outcome is told otherwise.
    Outcome,
    /// It was over as soon as it began.
    Shorter,
    /// It began and ended at other times.
    Moved,
    /// Nobody told of it.
    Forgotten,
}

/// The values of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Values {
    /// All are unique, also those that no order leads to.
    Unique,
    /// Values by COMPARE_SWAP and STORE are fixed, and several sets of additions have one sum.
    Sums,
    /// Few, some of which wrap.
    Few,
}

/// An op and its outcome.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draft {
    pub(super) kind: Kind,
    pub(super) invoked: Moment,
    /// `None`: under way.
    pub(super) end: Option<(Outcome, Moment)>,
}

pub(super) fn steps(len: usize) -> impl Strategy<Value = Vec<Step>> {
    let verb = prop_oneof![
        3 => Just(Verb::Load),
        1 => Just(Verb::Store),
        5 => Just(Verb::Add),
        3 => Just(Verb::Swap),
        1 => Just(Verb::Try),
    ];
    let end = prop_oneof![
        10 => Just(End::Applied),
        1 => Just(End::NotApplied),
        2 => Just(End::UnknownApplied),
        1 => Just(End::UnknownNotApplied),
        1 => Just(End::UnderWay),
    ];
    let times = (0..12_u64, 0..4_u64, 0..4_u64);
    let step = (verb, 0..4_u64, times, end);
    vec(step.prop_map(|(verb, pick, times, end)| Step { verb, pick, times, end }), 1..=len)
}

pub(super) fn alterations() -> impl Strategy<Value = Vec<Alteration>> {
    let how = prop_oneof![
        Just(How::ResultOf),
        Just(How::ResultAfter),
        Just(How::Outcome),
        Just(How::Shorter),
        Just(How::Moved),
        Just(How::Forgotten),
    ];
    vec((any::<usize>(), how, 0..12_u64), 1..4)
}

/// Simulates one word that holds 0 at first, used by one after the other.
pub(super) fn simulate(steps: &[Step], values: Values) -> Vec<Draft> {
    let mut order: Vec<usize> = (0..steps.len()).collect();
    order.sort_by_key(|&it| steps[it].times.0 + steps[it].times.1);
    let mut value = 0;
    let mut drafts = Vec::new();
    for index in order {
        let Step { verb, pick, times: (begin, wait, rest), end } = steps[index];
        let (addend, new) = match values {
            Values::Unique => (1 << index, (index as u64 + 1) << 32),
            Values::Sums => (pick, (index as u64 + 1) << 32),
            Values::Few => ([0, 1, 2, u64::MAX][pick as usize], pick),
        };
        let kind = match verb {
            Verb::Load => Kind::Load,
            Verb::Store => Kind::Store { new },
            Verb::Add => add(addend),
            Verb::Swap => swap(value, new),
            Verb::Try => swap(pick, new),
        };
        let told = match kind {
            Kind::Store { .. } => Outcome::Stored,
            _ => result(value),
        };
        if end.is_applied() {
            value = kind.apply(value);
        }
        let over = moment(begin + wait + rest);
        let end = match end {
            End::Applied => Some((told, over)),
            End::NotApplied => Some((Outcome::NotApplied, over)),
            End::UnknownApplied | End::UnknownNotApplied => Some((Outcome::Unknown, over)),
            End::UnderWay => None,
        };
        drafts.push(Draft { kind, invoked: moment(begin), end });
    }
    drafts
}

/// Two events at each time.
fn moment(number: u64) -> Moment {
    Moment { at: Instant::from_nanos(number / 2), event: number }
}

/// Alters a history, so that no word may have given it.
pub(super) fn alter(drafts: &mut Vec<Draft>, alterations: &[Alteration]) {
    for &(which, how, by) in alterations {
        if drafts.is_empty() {
            return;
        }
        let index = which % drafts.len();
        let other = drafts[by as usize % drafts.len()];
        let seen = match other.end {
            Some((Outcome::Applied { before }, _)) => before,
            _ => by % 4,
        };
        let draft = &mut drafts[index];
        match how {
            How::ResultOf => draft.tell(seen),
            How::ResultAfter => draft.tell(other.kind.apply(seen).wrapping_add(by / 6)),
            How::Outcome => draft.end = Some((draft.told_otherwise(seen), draft.over())),
            How::Shorter => draft.end = draft.end.map(|(outcome, _)| (outcome, draft.invoked)),
            How::Moved => {
                draft.invoked = moment(by);
                draft.end = draft.end.map(|(outcome, _)| (outcome, moment(by + 2)));
            }
            How::Forgotten => {
                drafts.remove(index);
            }
        }
    }
}

impl Draft {
    /// Alters the result, if there is one.
    fn tell(&mut self, before: u64) {
        if let Some((outcome @ Outcome::Applied { .. }, _)) = &mut self.end {
            *outcome = result(before);
        }
    }

    fn told_otherwise(&self, before: u64) -> Outcome {
        match (self.end, self.kind) {
            (Some((Outcome::Applied { .. } | Outcome::Stored, _)), _) => Outcome::NotApplied,
            (Some((Outcome::NotApplied, _)), Kind::Store { .. }) => Outcome::Stored,
            (Some((Outcome::NotApplied, _)), _) => result(before),
            (Some((Outcome::Unknown, _)) | None, _) => Outcome::NotApplied,
        }
    }

    fn over(&self) -> Moment {
        self.end.map_or(self.invoked, |(_, over)| over)
    }
}

/// The history of `drafts`.
pub(super) fn record(drafts: &[Draft]) -> History {
    let mut history = History::new();
    history.add_word(WORD, 0);
    for (number, draft) in (0..).zip(drafts) {
        history.invoke(id(number), WORD, draft.kind, draft.invoked);
        if let Some((outcome, over)) = draft.end {
            history.respond(id(number), outcome, over);
        }
    }
    history
}
