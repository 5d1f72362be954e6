//! Histories of words that several clients change at once, and whether each word behaves as one.
//!
//! Not how ops come about: a harness tells when each was invoked, what its client was told and
//! when. The target's own processor is a client like the others. A history holds (it is
//! *linearizable*) if each op that was applied can have taken effect at one moment between its
//! invocation and its report, so that all results are what one word gives, used by one after the
//! other. An op that was reported as not applied takes no effect at all. One whose outcome is
//! unknown may take effect once, before its report and never after (P2): sharper than usual, where
//! what is unknown may happen at any time.
//!
//! Two checkers that share no idea: `chain` follows unique values, and takes long histories;
//! `search` tries all orders of any. Tests hold them against each other, and against that of
//! `stateright`.
//!
//! Words with FETCH_ADDs are judged fast if all addends together do not wrap the word, and those of
//! unknown outcome have sums that tell which were applied (random numbers of 40 bits do). Words
//! with COMPARE_SWAPs or STOREs besides are, if new values are unique and further from each other,
//! and from the initial one, than all addends together: in their upper half, for example.

mod chain;
mod op;
mod search;
#[cfg(test)]
mod tests;
mod violation;

use std::collections::BTreeMap;

pub use op::{Kind, Moment, Op, OpId, Outcome, Word};
pub use violation::{Broken, Suspicion, Violation};

use chain::Verdict;

/// How many beginnings of orders are tried where values repeat. More take longer, and memory: some
/// hundred bytes each for a word with a thousand ops.
const STATES_MAX: usize = 100_000;

/// The counts of a history that holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// How many words.
    pub words: usize,
    /// How many ops, of whatever outcome.
    pub ops: usize,
    /// How many of them were not applied.
    pub not_applied: usize,
    /// How many of them ended with an unknown outcome.
    pub unknown: usize,
    /// How many of them have not ended.
    pub under_way: usize,
    /// How many words were judged by trying, as their values do not tell the order.
    pub searched: usize,
}

/// The ops on one word.
#[derive(Clone, Debug)]
struct Log {
    initial: u64,
    ops: Vec<Op>,
}

/// The ops of clients on words, and the answers to them.
///
/// Calls may come in any order of time, as long as an op is invoked before it is told of.
#[derive(Clone, Debug, Default)]
pub struct History {
    words: BTreeMap<Word, Log>,
    /// The place of each op.
    places: BTreeMap<OpId, (Word, usize)>,
}

impl History {
    /// A history of no words.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a word that holds `initial`.
    ///
    /// # Panics
    ///
    /// If the word has been added before.
    pub fn add_word(&mut self, word: Word, initial: u64) {
        let before = self.words.insert(word, Log { initial, ops: Vec::new() });
        assert!(before.is_none(), "{word} has a history");
    }

    /// A client asks for an op: from `at` on it may take effect.
    ///
    /// # Panics
    ///
    /// If the name has been used before, or the word was not added.
    pub fn invoke(&mut self, id: OpId, word: Word, kind: Kind, at: Moment) {
        let ops = &mut self.words.get_mut(&word).expect("words are added before they are used").ops;
        let before = self.places.insert(id, (word, ops.len()));
        assert!(before.is_none(), "{id} was invoked before");
        ops.push(Op { id, kind, invoked: at, outcome: None, last: Moment::NEVER });
    }

    /// The client is told what became of its op: after `at` it takes no effect.
    ///
    /// # Panics
    ///
    /// If the op is not under way, `at` is before its invocation, or the outcome is none of its
    /// kind.
    pub fn respond(&mut self, id: OpId, outcome: Outcome, at: Moment) {
        let op = self.op_mut(id);
        assert!(op.outcome.is_none(), "{op} has ended");
        assert!(op.invoked <= at, "{op} ended at {at}");
        op.last = at;
        op.set_outcome(outcome);
    }

    /// Something becomes known of an op whose outcome was unknown. It took effect before that was
    /// reported, or did not: the moment of this makes no difference.
    ///
    /// # Panics
    ///
    /// If the outcome is not unknown, or the new one is none of the op's kind.
    pub fn settle(&mut self, id: OpId, outcome: Outcome) {
        let op = self.op_mut(id);
        assert_eq!(op.outcome, Some(Outcome::Unknown), "{op} is not unknown");
        op.set_outcome(outcome);
    }

    /// An op may have taken effect after its report, up to `last`: its target did not run, and has
    /// counted the late effect.
    ///
    /// # Panics
    ///
    /// If the op has not ended.
    pub fn excuse(&mut self, id: OpId, last: Moment) {
        let op = self.op_mut(id);
        assert!(op.outcome.is_some(), "{op} has not ended");
        op.last = op.last.max(last);
    }

    fn op_mut(&mut self, id: OpId) -> &mut Op {
        let &(word, index) = self.places.get(&id).expect("ops are invoked before they are told of");
        &mut self.words.get_mut(&word).expect("it has an op").ops[index]
    }

    /// The words that were added.
    #[must_use]
    pub fn words(&self) -> Vec<Word> {
        self.words.keys().copied().collect()
    }

    /// Looks at all words, by their values where these tell the order, and by trying elsewhere.
    ///
    /// # Errors
    ///
    /// The fault of the first word that did not behave as one, or cannot be judged.
    pub fn check(&self) -> Result<Checked, Box<Violation>> {
        self.check_each(|word, log| judge(word, log.initial, &log.ops))
    }

    /// Looks at all words by trying, for no longer than `states_max` beginnings of orders each. A
    /// second opinion on short histories.
    ///
    /// # Errors
    ///
    /// The fault of the first word that did not behave as one, or cannot be judged.
    pub fn check_by_search(&self, states_max: usize) -> Result<Checked, Box<Violation>> {
        self.check_each(|word, log| {
            search::check(word, log.initial, &log.ops, states_max).map(|()| 1)
        })
    }

    /// Returns the shortest beginning of the history in which the word of `violation` is wrong: no
    /// less than what had happened up to one moment. What is found then may be something else.
    #[must_use]
    pub fn shortest(&self, violation: Violation) -> Broken {
        let word = violation.word();
        let Some(log) = self.words.get(&word) else {
            return Broken { violation, initial: 0, ops: Vec::new() };
        };
        let judge = |ops: &[Op]| judge(word, log.initial, ops).err();
        let mut ends: Vec<Moment> = log.ops.iter().map(|op| op.last).collect();
        ends.sort_unstable();
        // A history that holds up to a moment has held before. So the first that does not is
        // between.
        let holds = |&end: &Moment| judge(&up_to(&log.ops, end)).is_none();
        let first = ends.partition_point(holds);
        let end = ends.get(first).copied().unwrap_or(Moment::NEVER);
        let ops = up_to(&log.ops, end);
        let violation = judge(&ops).map_or(violation, |found| *found);
        Broken { violation, initial: log.initial, ops }
    }

    /// Judges each word; `judge` says how many it had to search.
    fn check_each(
        &self,
        judge: impl Fn(Word, &Log) -> Result<usize, Box<Violation>>,
    ) -> Result<Checked, Box<Violation>> {
        let mut checked = Checked::default();
        for (&word, log) in &self.words {
            checked.searched += judge(word, log)?;
            checked.words += 1;
            checked.ops += log.ops.len();
            for op in &log.ops {
                match op.outcome {
                    Some(Outcome::Applied { .. } | Outcome::Stored) => {}
                    Some(Outcome::NotApplied) => checked.not_applied += 1,
                    Some(Outcome::Unknown) => checked.unknown += 1,
                    None => checked.under_way += 1,
                }
            }
        }
        Ok(checked)
    }
}

/// Looks at one word. Returns how often it had to be searched.
fn judge(word: Word, initial: u64, ops: &[Op]) -> Result<usize, Box<Violation>> {
    match chain::check(word, initial, ops)? {
        Verdict::Ordered => Ok(0),
        Verdict::Undetermined => search::check(word, initial, ops, STATES_MAX).map(|()| 1),
    }
}

/// Returns the part of `ops` that was known at `end`, those that were over first in front.
fn up_to(ops: &[Op], end: Moment) -> Vec<Op> {
    let mut known: Vec<Op> = ops.iter().copied().filter(|op| op.invoked <= end).collect();
    for op in known.iter_mut().filter(|op| op.last > end) {
        (op.outcome, op.last) = (None, Moment::NEVER);
    }
    known.sort_by_key(|op| (op.last, op.invoked));
    known
}

impl Op {
    fn set_outcome(&mut self, outcome: Outcome) {
        let is_store = matches!(self.kind, Kind::Store { .. });
        let fits = match outcome {
            Outcome::Applied { .. } => !is_store,
            Outcome::Stored => is_store,
            Outcome::NotApplied | Outcome::Unknown => true,
        };
        assert!(fits, "{self} cannot end with {outcome:?}");
        self.outcome = Some(outcome);
    }
}
