//! The engines of a host, as its driver reaches them: for each a control path and the command slots
//! that its NIC has.
//!
//! Which engine is asked follows from the type of the question. After an error the ledger is as if
//! nothing had been asked, or will be once the engines have answered.

use core::ops::Range;
use std::sync::Arc;

use rma_app::life::Life;
use rma_core::{crypto::EngineId, portal::Bell};

use super::{
    control::{ControlPath, Question, Unanswered},
    ledger::Ledger,
    questions::{Deregister, MoveHomes, TakeKeys, ToAll, ToAny, ToOne},
};
use crate::error::HostError;

/// One engine with its NIC, which has a range of the host's command slots for its own.
#[derive(Debug)]
pub(crate) struct Shard<P> {
    pub(crate) path: P,
    pub(crate) slots: Range<u16>,
}

/// All engines of a host: at least one.
#[derive(Debug)]
pub(crate) struct Shards<P>(pub(crate) Vec<Shard<P>>);

impl<P> Shards<P> {
    /// `shards` in the order of their slots.
    pub(crate) const fn new(shards: Vec<Shard<P>>) -> Self {
        Self(shards)
    }

    /// How many engines there are.
    pub(crate) const fn count(&self) -> usize {
        self.0.len()
    }

    /// The paths to all engines.
    pub(crate) fn paths_mut(&mut self) -> impl Iterator<Item = &mut P> {
        self.0.iter_mut().map(|shard| &mut shard.path)
    }

    /// Lists the slots of the NICs.
    pub(super) fn slots(&self) -> impl Iterator<Item = Range<u16>> + Clone {
        self.0.iter().map(|shard| shard.slots.clone())
    }

    /// The slots of the NIC of the engine with this index.
    pub(super) fn slots_at(&self, index: usize) -> Range<u16> {
        self.0[index].slots.clone()
    }

    pub(super) fn index_of(&self, slots: &Range<u16>) -> usize {
        let is_of = |shard: &Shard<P>| shard.slots.contains(&slots.start);
        self.0.iter().position(is_of).expect("a portal's slots are one NIC's")
    }
}

impl<P: ControlPath> Shards<P> {
    /// Returns the life of the engine that has `slots`, and the bell that wakes it.
    pub(super) fn engine_of(&self, slots: &Range<u16>) -> (Life, Option<Bell>) {
        let path = &self.0[self.index_of(slots)].path;
        (path.life(), path.bell())
    }

    /// Asks the engine that has the slots in question.
    pub(super) fn ask_one<Q: ToOne>(
        &mut self,
        question: Q,
        ledger: &mut Ledger,
    ) -> Result<Q::Answer, HostError> {
        let index = self.index_of(question.slots());
        self.ask_at(index, question, ledger)
    }

    /// Asks any engine: the first that takes questions.
    pub(super) fn ask_any<Q: ToAny>(
        &mut self,
        question: Q,
        ledger: &mut Ledger,
    ) -> Result<Q::Answer, HostError> {
        let index = self.0.iter().position(|shard| shard.path.is_reachable());
        self.ask_at(index.unwrap_or(0), question, ledger)
    }

    pub(crate) fn ask_at<Q: Question>(
        &mut self,
        index: usize,
        question: Q,
        ledger: &mut Ledger,
    ) -> Result<Q::Answer, HostError> {
        let path = &mut self.0[index].path;
        match path.late() {
            Ok(late) => late.iter().for_each(|late| late.settle(ledger)),
            Err(error) => {
                question.undo(ledger);
                return Err(error);
            }
        }
        ask(path, question, ledger)
    }

    /// Whether the engine of this index takes questions.
    pub(crate) fn takes_questions(&self, index: usize) -> bool {
        self.0[index].path.is_reachable()
    }

    /// The engine of this index; where it has ended, the next that has not. `None`: all have.
    pub(super) fn living_from(&self, index: usize) -> Option<usize> {
        let mut engines = (index..self.count()).chain(0..index);
        engines.find(|&it| !self.0[it].path.life().has_ended())
    }

    /// Names the next engine that lives as the home of regions whose home has ended, but of receive
    /// queues: their rings have ended with their engine, and nothing is served there.
    ///
    /// First all take the keys that the old home had put. From then on there are none of it, so the
    /// new home's come after them everywhere, and there is one order of a region's keys (P11).
    /// Rekeys that were under way at the old home end with TIMEOUT, whether all have the key or
    /// none: it was in all rings before its data was answered.
    ///
    /// # Errors
    /// If an engine that has not ended does not answer. The regions have their homes still, and are
    /// moved when this is called again.
    pub(super) fn move_homes(&mut self, ledger: &mut Ledger) -> Result<(), HostError> {
        for ended in 0..self.count() {
            let Some(to) = self.living_from(ended).filter(|&to| to != ended) else { continue };
            let regions: Arc<[_]> = ledger.accounts().bereft(ended).into();
            if regions.is_empty() {
                continue;
            }
            self.ask_each(|_| TakeKeys, ledger)?;
            let moved = |_| MoveHomes(regions.clone(), EngineId(to as u16));
            self.ask_each(moved, ledger)?;
            ledger.accounts().move_homes(&regions, to);
            tracing::info!(ended, to, regions = regions.len(), "regions have another home");
        }
        Ok(())
    }

    /// Asks every engine what `question` makes for its index, side by side, so that one that stands
    /// still holds up none of the others. Those that have ended are left out.
    ///
    /// # Errors
    /// If an engine that has not ended does not answer, or all have. Others may have done what they
    /// were asked then: [`HostError::EngineStuck`] says if so.
    pub(super) fn ask_each<Q: ToAll>(
        &mut self,
        question: impl FnMut(usize) -> Q,
        ledger: &mut Ledger,
    ) -> Result<Q::Answer, HostError> {
        let answer = self.ask_each_but(None, question, ledger)?;
        Ok(answer.expect("a host has an engine"))
    }

    /// As [`Shards::ask_each`], of every engine but one. `None` if there is no other.
    pub(super) fn ask_each_but<Q: ToAll>(
        &mut self,
        but: Option<usize>,
        mut question: impl FnMut(usize) -> Q,
        ledger: &mut Ledger,
    ) -> Result<Option<Q::Answer>, HostError> {
        let mut paths: Vec<_> =
            self.paths_mut().enumerate().filter(|&(index, _)| Some(index) != but).collect();
        for (_, path) in &mut paths {
            path.late()?.iter().for_each(|late| late.settle(ledger));
        }
        let asked: Vec<_> =
            paths.iter_mut().map(|(index, path)| path.put(question(*index))).collect();
        let (mut given, mut failed, mut is_taken) = (None, None, false);
        for ((_, path), asked) in paths.into_iter().zip(asked) {
            match path.answer(asked) {
                Ok(answer) => given = given.or(Some(answer)),
                Err(Unanswered { error, unseen }) => {
                    is_taken |= unseen.is_none();
                    unseen.into_iter().for_each(|question| question.undo(ledger));
                    let is_gone = matches!(error, HostError::EngineGone);
                    failed = failed.filter(|_| is_gone).or(Some(error));
                }
            }
        }
        match (given, failed) {
            (Some(answer), None | Some(HostError::EngineGone)) => Ok(Some(answer)),
            (given, Some(error)) if given.is_some() || is_taken => Err(under_way(error)),
            (_, Some(error)) => Err(error),
            (None, None) => Ok(None),
        }
    }

    /// As [`Shards::ask_each`], and the engine `last` when all others have answered. It is a
    /// region's home: a Rekey that it takes finds the region at all of them.
    pub(super) fn ask_each_before<Q: ToAll>(
        &mut self,
        last: usize,
        mut question: impl FnMut(usize) -> Q,
        ledger: &mut Ledger,
    ) -> Result<Q::Answer, HostError> {
        let others = match self.ask_each_but(Some(last), &mut question, ledger) {
            Err(HostError::EngineGone) => None,
            others => others?,
        };
        match (self.ask_at(last, question(last), ledger), others) {
            (Err(HostError::EngineGone), Some(answer)) => Ok(answer),
            (Err(error), Some(_)) => Err(under_way(error)),
            (answer, _) => answer,
        }
    }

    /// Puts into the ledger what engines have done for askers that had given up, and has undone
    /// what nobody knows of: as far as engines take questions now.
    pub(super) fn settle_late(&mut self, ledger: &mut Ledger) -> Result<(), HostError> {
        for path in self.paths_mut().filter(|path| path.is_reachable()) {
            path.late()?.iter().for_each(|late| late.settle(ledger));
        }
        if self.0.iter().all(|shard| shard.path.is_reachable() || shard.path.life().has_ended()) {
            while let Some(&region) = ledger.services.orphans.last() {
                // If an engine has not seen this, it is an orphan still.
                self.ask_each(|_| Deregister(region), ledger)?.book(ledger);
            }
            self.move_homes(ledger)?;
        }
        self.undo_orphans(ledger)
    }
}

fn ask<Q: Question>(
    path: &mut impl ControlPath,
    question: Q,
    ledger: &mut Ledger,
) -> Result<Q::Answer, HostError> {
    path.ask(question).map_err(|Unanswered { error, unseen }| match unseen {
        Some(question) => {
            question.undo(ledger);
            error
        }
        None => under_way(error),
    })
}

/// The error of whoever has given up waiting for what an engine has taken up.
pub(super) fn under_way(error: HostError) -> HostError {
    match error {
        HostError::EngineStuck { waited, .. } => {
            HostError::EngineStuck { waited, is_under_way: true }
        }
        error => error,
    }
}
