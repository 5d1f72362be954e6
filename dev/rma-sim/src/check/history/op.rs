//! An op on a word, as its client knows it: what it was to do, when, and what became of it.
//!
//! Not how ops are ordered. An op takes effect at one moment between its invocation and the last
//! moment at which it may, both included, or never; two ops whose spans touch are not ordered.

use core::fmt;

use rma_core::{region::RegionId, time::Instant};

use crate::net::frame::NodeId;

/// An aligned word of 8 bytes, of which a history tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Word {
    /// The node of the memory.
    pub target: NodeId,
    /// The region that the word is in.
    pub region: RegionId,
    /// The offset in the region, in bytes.
    pub offset: u64,
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, region, offset } = self;
        write!(f, "word {offset:#x} of region {:#x} of {target}", region.to_bits())
    }
}

/// The name of an op in a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpId {
    /// The client that asked for it: an initiator, or the target for ops of its own processor.
    pub client: NodeId,
    /// No two ops of a client have the same.
    pub number: u64,
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "op {} of {}", self.number, self.client)
    }
}

/// A point in a run: the true time, and the number of the event for what happens at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// The true time, not that of a node's clock.
    pub at: Instant,
    /// How many events were before.
    pub event: u64,
}

impl Moment {
    /// Later than all that happens.
    pub(super) const NEVER: Self = Self { at: Instant::from_nanos(u64::MAX), event: u64::MAX };
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns (event {})", self.at.as_nanos(), self.event)
    }
}

/// The change that an op makes to its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads the word: an aligned READ, or a load of the target's processor.
    Load,
    /// Replaces the value, whatever it is: an aligned WRITE, or a store.
    Store {
        /// The value from then on.
        new: u64,
    },
    /// Adds to the value, modulo 2^64.
    FetchAdd {
        /// The addend.
        addend: u64,
    },
    /// Replaces the value if it is the expected one.
    CompareSwap {
        /// The value that it replaces.
        expected: u64,
        /// The value from then on.
        new: u64,
    },
}

impl Kind {
    /// The value that the op leaves where it finds `before`.
    pub(super) const fn apply(self, before: u64) -> u64 {
        match self {
            Self::Store { new } => new,
            Self::FetchAdd { addend } => before.wrapping_add(addend),
            Self::CompareSwap { expected, new } if expected == before => new,
            Self::Load | Self::CompareSwap { .. } => before,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load => write!(f, "LOAD"),
            Self::Store { new } => write!(f, "STORE {new:#x}"),
            Self::FetchAdd { addend } => write!(f, "FETCH_ADD {addend:#x}"),
            Self::CompareSwap { expected, new } => {
                write!(f, "COMPARE_SWAP {expected:#x} to {new:#x}")
            }
        }
    }
}

/// The outcome of an op, as its client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It took effect, once. Not for STORE, which has no result.
    Applied {
        /// The value before: for COMPARE_SWAP that of a word that it did not change, if it is not
        /// the expected one.
        before: u64,
    },
    /// A STORE took effect.
    Stored,
    /// It has not taken effect and never will.
    NotApplied,
    /// It may have taken effect by now, and will not any more (P2).
    Unknown,
}

/// An op of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    pub(super) id: OpId,
    pub(super) kind: Kind,
    pub(super) invoked: Moment,
    /// `None`: it is under way.
    pub(super) outcome: Option<Outcome>,
    /// The last moment at which it may have taken effect: its report, as a rule.
    pub(super) last: Moment,
}

impl Op {
    /// Whether real time puts this op before `other`.
    pub(super) fn is_over_before(&self, other: &Self) -> bool {
        self.last < other.invoked
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, kind, invoked, outcome, last } = self;
        write!(f, "{id} ({kind}, invoked at {invoked}, ")?;
        match outcome {
            None => write!(f, "under way)"),
            Some(Outcome::Applied { before }) => write!(f, "result {before:#x} by {last})"),
            Some(Outcome::Stored) => write!(f, "done by {last})"),
            Some(Outcome::NotApplied) => write!(f, "not applied by {last})"),
            Some(Outcome::Unknown) => write!(f, "unknown since {last})"),
        }
    }
}
