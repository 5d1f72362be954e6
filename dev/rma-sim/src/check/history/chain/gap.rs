//! Gaps between values, and the ops of unknown outcome that fill them.
//!
//! Not when these took effect: only that they may have, where they must have. Each is in one gap.

use std::collections::BTreeSet;

use super::{
    line::Line,
    run::{Gap, Piece, Runs},
};
use crate::check::history::{
    op::{Kind, Moment, Op, Outcome, Word},
    violation::{Suspicion, Violation},
};

/// How many sets of ops are tried for one gap. More take longer; with fewer, gaps that many ops may
/// have filled are left to the search.
const TRIES_MAX: u32 = 1 << 16;

/// A gap, and when it can have been filled.
#[derive(Clone, Copy, Debug)]
struct Hole {
    /// The place of the hole: the line, and the piece of it.
    place: (usize, usize),
    gap: Gap,
    /// When the last op before it was invoked.
    opened: Option<Moment>,
    /// When the first op behind it was over.
    closed: Moment,
}

impl Hole {
    fn may_be_filled_by(&self, op: &Op) -> bool {
        op.invoked <= self.closed && !self.is_past(op)
    }

    /// Whether `op` was over when this began.
    fn is_past(&self, op: &Op) -> bool {
        self.opened.is_some_and(|it| op.last < it)
    }

    const fn difference(&self) -> u64 {
        self.gap.to - self.gap.from
    }
}

/// The choice of ops that fill a gap.
#[derive(Debug, PartialEq, Eq)]
enum Fit {
    /// There is no set of them that does.
    Never,
    /// These, and no others.
    Only(Vec<usize>),
    /// There are two sets of them that do, or more than could be tried.
    Open,
}

/// Fills all gaps of `lines`. Whether it is clear by which ops.
pub(super) fn fill(
    word: Word,
    runs: &Runs<'_>,
    lines: &mut [Line],
) -> Result<bool, Box<Violation>> {
    let mut open: Vec<Hole> =
        lines.iter().enumerate().flat_map(|(it, line)| holes(it, line, runs.ops)).collect();
    let mut fillers: BTreeSet<(usize, u64)> = runs.fillers().collect();
    loop {
        let before = open.len();
        let mut still_open = Vec::new();
        for hole in open {
            let fit: Vec<_> = fillers
                .iter()
                .copied()
                .filter(|&(index, _)| hole.may_be_filled_by(&runs.ops[index]))
                .collect();
            match choose(fit, hole.difference()) {
                Fit::Never => return Err(unfilled(word, runs, &fillers, &hole)),
                Fit::Open => still_open.push(hole),
                Fit::Only(ops) => {
                    fillers.retain(|(index, _)| !ops.contains(index));
                    lines[hole.place.0].pieces[hole.place.1] = Piece::Together(ops);
                }
            }
        }
        if still_open.is_empty() || still_open.len() == before {
            return Ok(still_open.is_empty());
        }
        open = still_open;
    }
}

/// The gaps of line number `number`.
fn holes(number: usize, line: &Line, ops: &[Op]) -> Vec<Hole> {
    let mut holes: Vec<Hole> = line
        .gaps()
        .map(|(at, gap)| Hole { place: (number, at), gap, opened: None, closed: Moment::NEVER })
        .collect();
    let invoked = |piece: &Piece| piece.ops().iter().map(|&it| ops[it].invoked).max();
    let (mut at, mut opened) = (0, None);
    for hole in &mut holes {
        let before = line.pieces[at..hole.place.1].iter().map(invoked);
        opened = before.fold(opened, Option::max);
        (at, hole.opened) = (hole.place.1, opened);
    }
    let last = |piece: &Piece| piece.ops().iter().map(|&it| ops[it].last).min();
    let (mut end, mut closed) = (line.pieces.len(), Moment::NEVER);
    for hole in holes.iter_mut().rev() {
        let behind = line.pieces[hole.place.1..end].iter().filter_map(last);
        closed = behind.fold(closed, Moment::min);
        (end, hole.closed) = (hole.place.1, closed);
    }
    holes
}

/// Chooses the `fillers` that add up to `sum`.
fn choose(mut fillers: Vec<(usize, u64)>, sum: u64) -> Fit {
    fillers.retain(|&(_, addend)| addend <= sum);
    fillers.sort_by_key(|&(_, addend)| core::cmp::Reverse(addend));
    let mut rest: Vec<u128> = vec![0];
    for &(_, addend) in fillers.iter().rev() {
        rest.push(rest[rest.len() - 1] + u128::from(addend));
    }
    rest.reverse();
    // Each is a place in `fillers` from which on others may be taken, what is still to be added,
    // and how many have been taken: what those behind them on the stack took is over.
    let mut to_try = vec![(0, sum, 0, None)];
    let (mut taken, mut found) = (Vec::new(), Fit::Never);
    let mut tries = 0;
    while let Some((at, missing, count, take)) = to_try.pop() {
        taken.truncate(count);
        taken.extend(take);
        tries += 1;
        if tries > TRIES_MAX || missing == 0 && found != Fit::Never {
            return Fit::Open;
        }
        if missing == 0 {
            found = Fit::Only(taken.clone());
        } else if u128::from(missing) <= rest[at] {
            let (index, addend) = fillers[at];
            to_try.push((at + 1, missing, taken.len(), None));
            if addend <= missing {
                to_try.push((at + 1, missing - addend, taken.len(), Some(index)));
            }
        }
    }
    found
}

/// That nothing fills `hole`, and what it looks like. `free` are the ops that fill no other.
fn unfilled(
    word: Word,
    runs: &Runs<'_>,
    free: &BTreeSet<(usize, u64)>,
    hole: &Hole,
) -> Box<Violation> {
    let Gap { from, to, seer } = hole.gap;
    let adds = |op: &Op| op.kind == Kind::FetchAdd { addend: hole.difference() };
    let puts = |op: &Op| match op.kind {
        Kind::Store { new } | Kind::CompareSwap { new, .. } => new == to,
        Kind::Load | Kind::FetchAdd { .. } => false,
    };
    let suspicions = runs.ops.iter().enumerate().filter_map(|(index, op)| {
        let is_refused = op.outcome == Some(Outcome::NotApplied);
        let is_free = free.iter().any(|it| it.0 == index);
        match *op {
            op if is_refused && (adds(&op) || puts(&op)) => Some((0, Suspicion::NotApplied(op))),
            op if is_refused || !adds(&op) => None,
            op if is_free && hole.is_past(&op) => Some((1, Suspicion::Late(op))),
            op if is_free => Some((2, Suspicion::Early(op))),
            op => Some((3, Suspicion::Twice(op))),
        }
    });
    let likeliest = suspicions.min_by_key(|it| it.0);
    let suspicion = likeliest.map_or(Suspicion::Nothing, |it| it.1);
    let seer = runs.ops[seer];
    Box::new(Violation::Gap { word, from, to, seer, suspicion })
}
