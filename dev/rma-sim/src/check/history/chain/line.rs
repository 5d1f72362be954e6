//! Lines of runs that follow each other, and real time: within each, and between them.
//!
//! Not where the order of ops is from. A line is in order if each of its ops may take effect no
//! sooner than all before it were invoked. Two lines have an order if an op of one was over before
//! an op of the other began, and none the other way round.

use std::collections::BTreeSet;

use super::run::{Gap, Piece, Runs};
use crate::check::history::{
    op::{Op, Word},
    violation::Violation,
};

/// Ops that follow each other by their values, from a value that nobody needs to have seen on.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) pieces: Vec<Piece>,
}

impl Line {
    /// Its gaps, and where they are.
    pub(super) fn gaps(&self) -> impl Iterator<Item = (usize, Gap)> {
        self.pieces.iter().enumerate().filter_map(|(at, piece)| match *piece {
            Piece::Gap(gap) => Some((at, gap)),
            Piece::Together(_) => None,
        })
    }
}

impl Piece {
    /// Its ops: none of a gap.
    pub(super) fn ops(&self) -> &[usize] {
        match self {
            Self::Together(ops) => ops,
            Self::Gap(_) => &[],
        }
    }
}

/// All lines, that of the initial value first.
pub(super) fn follow(word: Word, runs: &Runs<'_>) -> Result<Vec<Line>, Box<Violation>> {
    let mut walked = BTreeSet::new();
    let mut lines = Vec::new();
    for (base, store) in runs.starts() {
        let mut pieces: Vec<Piece> =
            store.map(|it| Piece::Together(vec![it])).into_iter().collect();
        let mut next = Some(base);
        while let Some(base) = next {
            walked.insert(base);
            let (way, end) = runs.walk(word, base)?;
            pieces.extend(way);
            next = end;
        }
        lines.push(Line { pieces });
    }
    runs.unreached(word, |base| walked.contains(&base)).map_or(Ok(lines), Err)
}

/// Holds real time against the order within each line.
pub(super) fn check_within(word: Word, lines: &[Line], ops: &[Op]) -> Result<(), Box<Violation>> {
    for line in lines {
        let mut latest: Option<&Op> = None;
        for piece in &line.pieces {
            let mut together: Vec<&Op> = piece.ops().iter().map(|&it| &ops[it]).collect();
            together.sort_by_key(|it| it.invoked);
            for op in together {
                match latest {
                    Some(first) if op.is_over_before(first) => {
                        let (first, then) = (*first, *op);
                        return Err(Box::new(Violation::Order { word, first, then }));
                    }
                    Some(first) if first.invoked >= op.invoked => {}
                    _ => latest = Some(op),
                }
            }
        }
    }
    Ok(())
}

/// When a line cannot have ended sooner, and when it cannot have begun later.
#[derive(Clone, Copy, Debug)]
struct Ends<'a> {
    /// Its first op.
    head: &'a Op,
    /// The op that was invoked last: those of lines before it may not be over later.
    begun: &'a Op,
    /// The op that was over first: those of lines behind it may not have begun sooner.
    over: &'a Op,
}

impl<'a> Ends<'a> {
    /// Those of a line. `None` if nothing is known to be in it.
    fn of(line: &Line, ops: &'a [Op]) -> Option<Self> {
        let all = || line.pieces.iter().flat_map(Piece::ops).map(|&it| &ops[it]);
        let head = all().next()?;
        let begun = all().max_by_key(|it| it.invoked)?;
        let over = all().min_by_key(|it| it.last)?;
        Some(Self { head, begun, over })
    }
}

/// Looks for an order of lines that real time allows.
///
/// Takes away, one by one, a line that none of the others must come before. If there is one, then
/// it is that which begins first or that which is over first, and if there is none, then each of
/// the two that are over first must come before the other.
pub(super) fn check_between(word: Word, lines: &[Line], ops: &[Op]) -> Result<(), Box<Violation>> {
    let (initial, stored) = lines.split_first().expect("the initial value is there");
    let stored: Vec<Ends<'_>> = stored.iter().filter_map(|it| Ends::of(it, ops)).collect();
    if let Some(Ends { begun: first, .. }) = Ends::of(initial, ops)
        && let Some(then) = stored.iter().map(|it| it.over).find(|it| it.is_over_before(first))
    {
        let (first, then) = (*first, *then);
        return Err(Box::new(Violation::Order { word, first, then }));
    }
    let numbered = || stored.iter().enumerate();
    let mut by_begun: BTreeSet<_> = numbered().map(|(it, ends)| (ends.begun.invoked, it)).collect();
    let mut by_over: BTreeSet<_> = numbered().map(|(it, ends)| (ends.over.last, it)).collect();
    while let (Some(&(_, soonest)), Some(&(_, shortest))) = (by_begun.first(), by_over.first()) {
        let beside = |it: usize| by_over.iter().map(|&(_, other)| other).find(|&other| other != it);
        let may_be_next = |&it: &usize| {
            let begun = stored[it].begun;
            beside(it).is_none_or(|other| !stored[other].over.is_over_before(begun))
        };
        let Some(next) = [soonest, shortest].into_iter().find(may_be_next) else {
            let other = beside(shortest).expect("else it may be next");
            let (one, other) = (*stored[shortest].head, *stored[other].head);
            return Err(Box::new(Violation::Interleaved { word, one, other }));
        };
        by_begun.remove(&(stored[next].begun.invoked, next));
        by_over.remove(&(stored[next].over.last, next));
    }
    Ok(())
}
