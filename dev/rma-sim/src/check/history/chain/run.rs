//! The runs of a word, and which ops saw what in each.
//!
//! Not which of the ops that are unknown fill gaps. No value is in two runs.

use std::collections::BTreeMap;

use crate::check::history::{
    op::{Kind, Op, Outcome, Word},
    violation::{Suspicion, Violation},
};

/// The word of an op's outcome about the values of its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Nothing that anybody could see.
    Nothing,
    /// The value was there, and stayed.
    Sight { value: u64 },
    /// The value was there, and became more.
    Add { from: u64, addend: u64 },
    /// The value was there, and a new base came.
    Swap { from: u64, new: u64 },
    /// A new base came, whatever was there.
    Store { new: u64 },
    /// As [`Role::Add`] if it took effect.
    MaybeAdd { addend: u64 },
    /// As [`Role::Swap`] if it took effect.
    MaybeSwap { from: u64, new: u64 },
    /// As [`Role::Store`] if it took effect.
    MaybeStore { new: u64 },
}

impl Role {
    fn of(op: &Op) -> Self {
        let maybe = match op.outcome {
            Some(Outcome::NotApplied) => return Self::Nothing,
            Some(Outcome::Applied { before }) => return Self::applied(op.kind, before),
            Some(Outcome::Stored) => false,
            Some(Outcome::Unknown) | None => true,
        };
        match op.kind {
            Kind::Store { new } if maybe => Self::MaybeStore { new },
            Kind::Store { new } => Self::Store { new },
            Kind::FetchAdd { addend } if addend != 0 => Self::MaybeAdd { addend },
            Kind::CompareSwap { expected, new } if expected != new => {
                Self::MaybeSwap { from: expected, new }
            }
            Kind::Load | Kind::FetchAdd { .. } | Kind::CompareSwap { .. } => Self::Nothing,
        }
    }

    fn applied(kind: Kind, before: u64) -> Self {
        match kind {
            Kind::FetchAdd { addend } if addend != 0 => Self::Add { from: before, addend },
            Kind::CompareSwap { expected, new } if expected == before && new != before => {
                Self::Swap { from: before, new }
            }
            _ => Self::Sight { value: before },
        }
    }

    /// The base that the op begins a run with, if it does.
    const fn base(self) -> Option<u64> {
        match self {
            Self::Swap { new, .. }
            | Self::Store { new }
            | Self::MaybeSwap { new, .. }
            | Self::MaybeStore { new } => Some(new),
            _ => None,
        }
    }

    /// Returns the number that it may add.
    const fn addend(self) -> u64 {
        match self {
            Self::Add { addend, .. } | Self::MaybeAdd { addend } => addend,
            _ => 0,
        }
    }

    /// The value that it saw for certain.
    const fn saw(self) -> Option<u64> {
        match self {
            Self::Sight { value: from } | Self::Add { from, .. } | Self::Swap { from, .. } => {
                Some(from)
            }
            _ => None,
        }
    }
}

/// The values from one base on.
#[derive(Debug)]
struct Run {
    /// The op that put the base there. `None`: it is the initial value.
    origin: Option<usize>,
    /// The ops that saw its values.
    seers: Vec<usize>,
    /// Whether it was there in every order that explains what was seen.
    is_needed: bool,
}

/// A step on the way through a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Ops that may come in any order.
    Together(Vec<usize>),
    /// Ops are missing that add the difference.
    Gap(Gap),
}

/// Two values with nothing that is known between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// The lower one.
    pub(super) from: u64,
    /// The higher one.
    pub(super) to: u64,
    /// The next op, which saw the higher one.
    pub(super) seer: usize,
}

/// All runs of a word.
#[derive(Debug)]
pub(super) struct Runs<'a> {
    pub(super) ops: &'a [Op],
    roles: Vec<Role>,
    initial: u64,
    /// The sum of all additions.
    reach: u64,
    by_base: BTreeMap<u64, Run>,
}

impl<'a> Runs<'a> {
    /// The runs of `ops`. `None` if two of them might meet.
    pub(super) fn of(initial: u64, ops: &'a [Op]) -> Option<Self> {
        let roles: Vec<Role> = ops.iter().map(Role::of).collect();
        let reach: u128 = roles.iter().map(|it| u128::from(it.addend())).sum();
        let reach = u64::try_from(reach).ok()?;
        let run = |origin| Run { origin, seers: Vec::new(), is_needed: false };
        let mut by_base = BTreeMap::from([(initial, run(None))]);
        for (index, role) in roles.iter().enumerate() {
            let Some(base) = role.base() else { continue };
            if by_base.insert(base, run(Some(index))).is_some() {
                return None;
            }
        }
        let mut end = None;
        for &base in by_base.keys() {
            if end.is_some_and(|end| base <= end) {
                return None;
            }
            end = Some(base.checked_add(reach)?);
        }
        Some(Self { ops, roles, initial, reach, by_base })
    }

    /// Gives each op its place by what it saw, and finds which runs were there.
    pub(super) fn assign(&mut self, word: Word) -> Result<(), Box<Violation>> {
        for index in 0..self.ops.len() {
            let Some(value) = self.roles[index].saw() else { continue };
            let Some(base) = self.place(value) else { return Err(self.alien(word, index)) };
            self.run_mut(base).seers.push(index);
        }
        let is_sure = |run: &Run| match run.origin.map(|it| self.roles[it]) {
            None | Some(Role::Swap { .. } | Role::Store { .. }) => true,
            _ => !run.seers.is_empty(),
        };
        let sure = self.by_base.iter().filter(|(_, run)| is_sure(run));
        let mut needed: Vec<u64> = sure.map(|(&base, _)| base).collect();
        while let Some(base) = needed.pop() {
            needed.extend(self.need(word, base)?);
        }
        Ok(())
    }

    /// Notes that a run was there. The one that it followed, if that was not certain.
    fn need(&mut self, word: Word, base: u64) -> Result<Option<u64>, Box<Violation>> {
        let run = self.run_mut(base);
        if core::mem::replace(&mut run.is_needed, true) {
            return Ok(None);
        }
        let (origin, first) = (run.origin, run.seers.first().copied());
        let Some(origin) = origin else { return Ok(None) };
        let Role::MaybeSwap { from, .. } = self.roles[origin] else { return Ok(None) };
        let Some(source) = self.base_of(from) else {
            let seer = first.expect("it is needed because somebody saw it");
            return Err(self.alien(word, seer));
        };
        self.run_mut(source).seers.push(origin);
        Ok(Some(source))
    }

    fn run_mut(&mut self, base: u64) -> &mut Run {
        self.by_base.get_mut(&base).expect("a base of this word")
    }

    /// The run that `value` is in.
    fn base_of(&self, value: u64) -> Option<u64> {
        let (&base, _) = self.by_base.range(..=value).next_back()?;
        (value - base <= self.reach).then_some(base)
    }

    /// The run that `value` is in, or the one below, in which a gap will show that it is not:
    /// unless it can be told better whence it came.
    fn place(&self, value: u64) -> Option<u64> {
        let below = self.by_base.range(..=value).next_back().map(|(&base, _)| base);
        match self.base_of(value) {
            None if self.refused_base(value).is_some() => None,
            None => below,
            found => found,
        }
    }

    /// The op that was not applied, and would have begun the run of `value`.
    fn refused_base(&self, value: u64) -> Option<&'a Op> {
        self.ops.iter().find(|op| {
            let (Kind::Store { new } | Kind::CompareSwap { new, .. }) = op.kind else {
                return false;
            };
            let is_refused = op.outcome == Some(Outcome::NotApplied);
            is_refused && value.checked_sub(new).is_some_and(|above| above <= self.reach)
        })
    }

    fn alien(&self, word: Word, seer: usize) -> Box<Violation> {
        let value = self.saw(seer);
        let refused = self.refused_base(value);
        let suspicion = refused.map_or(Suspicion::Nothing, |it| Suspicion::NotApplied(*it));
        Box::new(Violation::Alien { word, value, seer: self.ops[seer], suspicion })
    }

    /// The value that an op saw which is in a run.
    fn saw(&self, index: usize) -> u64 {
        match self.roles[index] {
            Role::MaybeSwap { from, .. } => from,
            role => role.saw().expect("it is in a run by what it saw"),
        }
    }

    /// The runs that lines begin with, and the STORE that begins each: the initial one is first.
    pub(super) fn starts(&self) -> Vec<(u64, Option<usize>)> {
        let stores = self.by_base.iter().filter(|(_, run)| {
            let role = run.origin.map(|it| self.roles[it]);
            run.is_needed && matches!(role, Some(Role::Store { .. } | Role::MaybeStore { .. }))
        });
        let first = (self.initial, None);
        [first].into_iter().chain(stores.map(|(&base, run)| (base, run.origin))).collect()
    }

    /// That a run was seen in which none of those that were walked through ends.
    pub(super) fn unreached(
        &self,
        word: Word,
        mut is_walked: impl FnMut(u64) -> bool,
    ) -> Option<Box<Violation>> {
        let left = self.by_base.iter().filter(|(base, run)| run.is_needed && !is_walked(**base));
        left.filter_map(|(_, run)| run.seers.first()).map(|&it| self.alien(word, it)).next()
    }

    /// The way through the run of `base`, and the base of the run that follows.
    pub(super) fn walk(
        &self,
        word: Word,
        base: u64,
    ) -> Result<(Vec<Piece>, Option<u64>), Box<Violation>> {
        let mut seers = self.by_base[&base].seers.clone();
        seers.sort_by_key(|&it| self.saw(it));
        let mut way = Way { value: base, by: None, next: None, pieces: Vec::new() };
        for group in seers.chunk_by(|&a, &b| self.saw(a) == self.saw(b)) {
            self.pass(word, group, &mut way)?;
        }
        Ok((way.pieces, way.next))
    }

    /// Goes on to the value that all of `group` saw.
    fn pass(&self, word: Word, group: &[usize], way: &mut Way) -> Result<(), Box<Violation>> {
        let (seer, value) = (group[0], self.saw(group[0]));
        if let Some(by) = way.by.filter(|_| way.next.is_some() || value < way.value) {
            let (by, seer) = (self.ops[by], self.ops[seer]);
            return Err(Box::new(Violation::Passed { word, value, by, seer }));
        }
        if value > way.value {
            way.pieces.push(Piece::Gap(Gap { from: way.value, to: value, seer }));
            way.value = value;
        }
        let is_sight = |&it: &usize| matches!(self.roles[it], Role::Sight { .. });
        let (sights, changes): (Vec<usize>, Vec<usize>) = group.iter().copied().partition(is_sight);
        if let [one, other, ..] = changes[..] {
            let (one, other) = (self.ops[one], self.ops[other]);
            return Err(Box::new(Violation::Fork { word, value, one, other }));
        }
        way.pieces.extend((!sights.is_empty()).then_some(Piece::Together(sights)));
        if let Some(&by) = changes.first() {
            way.by = Some(by);
            way.next = self.roles[by].base();
            // Only what was never there gets past the last value, and a gap before it shows that.
            way.value = value.saturating_add(self.roles[by].addend());
            way.pieces.push(Piece::Together(changes));
        }
        Ok(())
    }

    /// Those whose outcome is unknown and that may have filled gaps, and what they would add.
    pub(super) fn fillers(&self) -> impl Iterator<Item = (usize, u64)> {
        self.roles.iter().enumerate().filter_map(|(index, role)| match *role {
            Role::MaybeAdd { addend } => Some((index, addend)),
            _ => None,
        })
    }
}

/// How far a walk through a run has come.
#[derive(Debug)]
struct Way {
    value: u64,
    /// The last op that changed the value.
    by: Option<usize>,
    /// The base of the run that `by` went to.
    next: Option<u64>,
    pieces: Vec<Piece>,
}
