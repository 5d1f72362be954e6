//! Any history of a word, by trying: is there an order of its ops that gives their results?
//!
//! Not for long histories: at worst each set of ops that can have come first is looked at once, for
//! each value that they can leave. It asks nothing of values. The search is that of Wing and Gong
//! (*Testing and Verifying Concurrent Objects*, 1993): next in an order may come whatever was
//! invoked before all that must still come was over. What has been tried is remembered.
//!
//! An op whose outcome is unknown comes anywhere within its span, or not at all: an order that is
//! already past its last moment goes on without it.

use std::collections::BTreeSet;

use super::{
    op::{Moment, Op, Outcome, Word},
    violation::Violation,
};

/// The beginning of an order.
#[derive(Clone, Debug)]
struct Prefix {
    /// The ops in it: a bit for each.
    ops: Vec<u64>,
    /// The value that it leaves.
    value: u64,
    /// The latest invocation in it: whatever comes next takes effect no sooner.
    now: Option<Moment>,
    /// How many ops in it took effect for certain.
    certain: usize,
}

impl Prefix {
    fn has(&self, index: usize) -> bool {
        self.ops[index / 64] >> (index % 64) & 1 == 1
    }

    /// This, with op `index` behind, which leaves `value`.
    fn and(&self, index: usize, op: &Op, value: u64) -> Self {
        let mut ops = self.ops.clone();
        ops[index / 64] |= 1 << (index % 64);
        let certain = self.certain + usize::from(is_certain(op));
        Self { ops, value, now: self.now.max(Some(op.invoked)), certain }
    }
}

/// Looks for an order of `ops`, and for no longer than `states_max` prefixes.
pub(super) fn check(
    word: Word,
    initial: u64,
    ops: &[Op],
    states_max: usize,
) -> Result<(), Box<Violation>> {
    let mut ops: Vec<Op> = ops.iter().copied().filter(may_matter).collect();
    ops.sort_by_key(|it| it.invoked);
    let certain = ops.iter().filter(|it| is_certain(it)).count();
    let bits = vec![0; ops.len().div_ceil(64)];
    let mut longest = Prefix { ops: bits, value: initial, now: None, certain: 0 };
    let mut tried = BTreeSet::new();
    let mut to_try = vec![longest.clone()];
    while let Some(prefix) = to_try.pop() {
        if prefix.certain == certain {
            return Ok(());
        }
        if !tried.insert((prefix.ops.clone(), prefix.value)) {
            continue;
        }
        if tried.len() > states_max {
            let (ops, states) = (ops.len(), states_max);
            return Err(Box::new(Violation::Undecided { word, ops, states }));
        }
        extend(&prefix, &ops, &mut to_try);
        if prefix.certain > longest.certain {
            longest = prefix;
        }
    }
    let due = *next_due(&longest, &ops).expect("else the order is whole");
    let (ordered, value) = (longest.certain, longest.value);
    Err(Box::new(Violation::NoOrder { word, ordered, ops: certain, value, due }))
}

/// Adds what may come next to `to_try`, the likeliest last.
fn extend(prefix: &Prefix, ops: &[Op], to_try: &mut Vec<Prefix>) {
    let horizon = next_due(prefix, ops).map_or(Moment::NEVER, |it| it.last);
    let reached = ops.partition_point(|it| it.invoked <= horizon);
    let next = ops[..reached].iter().enumerate().rev().filter(|(index, op)| {
        let is_past = prefix.now.is_some_and(|now| op.last < now);
        !prefix.has(*index) && !is_past
    });
    let (certain, doubtful): (Vec<_>, Vec<_>) = next.partition(|(_, op)| is_certain(op));
    for (index, op) in doubtful.into_iter().chain(certain) {
        if let Some(value) = left_by(op, prefix.value) {
            to_try.push(prefix.and(index, op, value));
        }
    }
}

/// Of the ops that must still come, the one that was over first.
fn next_due<'a>(prefix: &Prefix, ops: &'a [Op]) -> Option<&'a Op> {
    let missing =
        ops.iter().enumerate().filter(|(index, op)| is_certain(op) && !prefix.has(*index));
    missing.map(|(_, op)| op).min_by_key(|it| it.last)
}

fn is_certain(op: &Op) -> bool {
    matches!(op.outcome, Some(Outcome::Applied { .. } | Outcome::Stored))
}

fn may_matter(op: &Op) -> bool {
    op.outcome != Some(Outcome::NotApplied)
}

/// Returns the value that `op` leaves where it finds `value`. `None` if it cannot have found that,
/// or if it may as well not have taken effect.
fn left_by(op: &Op, value: u64) -> Option<u64> {
    let after = op.kind.apply(value);
    let can_be = match op.outcome {
        Some(Outcome::Applied { before }) => before == value,
        Some(Outcome::Stored) => true,
        Some(Outcome::NotApplied) => false,
        Some(Outcome::Unknown) | None => after != value,
    };
    can_be.then_some(after)
}
