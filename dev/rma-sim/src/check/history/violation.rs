//! Violations of a history: a word whose ops no order explains, and the ops that show it.

use core::fmt;

use thiserror::Error;

use super::op::{Op, Word};

/// A word was not used as one word is whose ops take effect one after the other.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// The values say one order, and real time another: an old value was seen, or one from the
    /// future, or an effect came after its report.
    #[error("{word}: {then} was over when {first} began, but came later by the values")]
    Order {
        /// The word.
        word: Word,
        /// The op that came first by the values.
        first: Op,
        /// The op that came later by the values, and was over before `first` was invoked.
        then: Op,
    },
    /// Two ops replaced the same value: an update was lost, or a result is wrong.
    #[error("{word}: {one} and {other} both replaced {value:#x}, which was there only once")]
    Fork {
        /// The word.
        word: Word,
        /// The value.
        value: u64,
        /// The op that replaced it.
        one: Op,
        /// The op that replaced it as well.
        other: Op,
    },
    /// An op saw a value that the word cannot have had before another op, nor after it.
    #[error("{word}: {seer} saw {value:#x}, which the word never had as {by} went past it")]
    Passed {
        /// The word.
        word: Word,
        /// The value.
        value: u64,
        /// The op that took the word past it.
        by: Op,
        /// The op that saw it.
        seer: Op,
    },
    /// The value changed between two ops, and no op whose outcome is unknown can have done it.
    #[error("{word}: {from:#x} had become {to:#x} when {seer} saw it{suspicion}")]
    Gap {
        /// The word.
        word: Word,
        /// The value as the ops before left it.
        from: u64,
        /// The value as the next op saw it.
        to: u64,
        /// The next op.
        seer: Op,
        /// The suspicion.
        suspicion: Suspicion,
    },
    /// An op saw a value that no op can have put there.
    #[error("{word}: {seer} saw {value:#x}, and nobody can have put it there{suspicion}")]
    Alien {
        /// The word.
        word: Word,
        /// The value.
        value: u64,
        /// The op that saw it.
        seer: Op,
        /// The suspicion.
        suspicion: Suspicion,
    },
    /// Between two stores there is no order: each was seen after the other had been replaced.
    #[error("{word}: what {one} stored was seen before and after what {other} stored")]
    Interleaved {
        /// The word.
        word: Word,
        /// A store.
        one: Op,
        /// Another store.
        other: Op,
    },
    /// The ops fit into no order: found by trying all.
    #[error(
        "{word}: at most {ordered} of {ops} ops fit into an order, to hold {value:#x}, \
         and then {due} does not"
    )]
    NoOrder {
        /// The word.
        word: Word,
        /// How many of the ops that took effect for certain fit into the longest order.
        ordered: usize,
        /// How many ops took effect for certain.
        ops: usize,
        /// The value after that order.
        value: u64,
        /// The first of the others that should have ended.
        due: Op,
    },
    /// It is not known whether the ops fit into an order: their values repeat, and trying takes too
    /// long. Whoever made the history should have used unique values.
    #[error("{word}: {ops} ops cannot be judged, their values repeat and {states} tries end early")]
    Undecided {
        /// The word.
        word: Word,
        /// How many ops it has.
        ops: usize,
        /// How many states were tried.
        states: usize,
    },
}

impl Violation {
    /// Returns the word that it is about.
    #[must_use]
    pub const fn word(&self) -> Word {
        match *self {
            Self::Order { word, .. }
            | Self::Fork { word, .. }
            | Self::Passed { word, .. }
            | Self::Gap { word, .. }
            | Self::Alien { word, .. }
            | Self::Interleaved { word, .. }
            | Self::NoOrder { word, .. }
            | Self::Undecided { word, .. } => word,
        }
    }
}

/// How many ops of a history are shown, the last ones: what is wrong is mostly among them.
const SHOWN_MAX: usize = 32;

/// A word that did not behave as one, and the part of its history that shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The violation that was found.
    pub violation: Violation,
    /// The word's value at first.
    pub initial: u64,
    /// The ops on it up to the first moment at which something was wrong, those that were over
    /// first in front, and as far as they were over then.
    pub ops: Vec<Op>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { violation, initial, ops } = self;
        let before = ops.len().saturating_sub(SHOWN_MAX);
        write!(f, "{violation}\nIt held {initial:#x} at first, and then came")?;
        if before > 0 {
            write!(f, " {before} ops, and")?;
        }
        ops[before..].iter().try_for_each(|op| write!(f, "\n  {op}"))
    }
}

/// A suspicion about a value that nobody can have put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspicion {
    /// Like nothing that is known.
    Nothing,
    /// An op that had not been applied was.
    NotApplied(Op),
    /// An op was applied after it had been reported.
    Late(Op),
    /// An op was applied before it was invoked.
    Early(Op),
    /// An op was applied twice.
    Twice(Op),
}

impl fmt::Display for Suspicion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => Ok(()),
            Self::NotApplied(op) => write!(f, ", as if {op} had been applied all the same"),
            Self::Late(op) => write!(f, ", as if {op} had been applied after its report"),
            Self::Early(op) => write!(f, ", as if {op} had been applied before it was invoked"),
            Self::Twice(op) => write!(f, ", as if {op} had been applied twice"),
        }
    }
}
