//! The engines of a host, as its driver reaches them: for each a control path and the command slots
//! that its NIC has.
//!
//! Which engine is asked follows from the type of the question. After an error the ledger is as if
//! nothing had been asked, or will be once the engines have answered.

use core::ops::Range;

use rma_app::life::Life;
use rma_core::portal::Bell;

use super::{
    control::{ControlPath, Question, Unanswered},
    ledger::Ledger,
    questions::{Deregister, ToAll, ToAny, ToOne},
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
pub(crate) struct Shards<P>(pub(super) Vec<Shard<P>>);

impl<P> Shards<P> {
    /// `shards` in the order of their slots.
    pub(crate) const fn new(shards: Vec<Shard<P>>) -> Self {
        Self(shards)
    }

    /// The paths to all engines.
    pub(crate) fn paths_mut(&mut self) -> impl Iterator<Item = &mut P> {
        self.0.iter_mut().map(|shard| &mut shard.path)
    }

    /// Lists the slots of the NICs.
    pub(super) fn slots(&self) -> impl Iterator<Item = Range<u16>> + Clone {
        self.0.iter().map(|shard| shard.slots.clone())
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

    /// Asks any engine.
    pub(super) fn ask_any<Q: ToAny>(
        &mut self,
        question: Q,
        ledger: &mut Ledger,
    ) -> Result<Q::Answer, HostError> {
        self.ask_at(0, question, ledger)
    }

    /// Asks every engine what `question` makes, until one does not answer. What the others have
    /// done then is settled.
    pub(super) fn ask_all<Q: ToAll>(
        &mut self,
        mut question: impl FnMut() -> Q,
        ledger: &mut Ledger,
    ) -> Result<Q::Answer, HostError> {
        self.ask_each(|_| question(), ledger)
    }

    /// Asks every engine what `question` makes for its index, as [`Shards::ask_all`].
    pub(super) fn ask_each<Q: ToAll>(
        &mut self,
        question: impl FnMut(usize) -> Q,
        ledger: &mut Ledger,
    ) -> Result<Q::Answer, HostError> {
        self.settle_late(ledger)?;
        self.round(question, ledger)
    }

    pub(super) fn ask_at<Q: Question>(
        &mut self,
        index: usize,
        question: Q,
        ledger: &mut Ledger,
    ) -> Result<Q::Answer, HostError> {
        if let Err(error) = self.settle_late(ledger) {
            question.undo(ledger);
            return Err(error);
        }
        ask(&mut self.0[index].path, question, ledger)
    }

    fn round<Q: ToAll>(
        &mut self,
        mut question: impl FnMut(usize) -> Q,
        ledger: &mut Ledger,
    ) -> Result<Q::Answer, HostError> {
        let mut given = None;
        for (index, path) in self.paths_mut().enumerate() {
            match ask(path, question(index), ledger) {
                Ok(answer) => given = Some(answer),
                Err(error) => {
                    return Err(match given {
                        Some(answer) => {
                            Q::settle(answer, false, ledger);
                            under_way(error)
                        }
                        None => error,
                    });
                }
            }
        }
        Ok(given.expect("a host has an engine"))
    }

    /// Puts into the ledger what engines have done for askers that had given up, and has undone
    /// what nobody knows of.
    pub(super) fn settle_late(&mut self, ledger: &mut Ledger) -> Result<(), HostError> {
        let last = self.0.len() - 1;
        for (index, path) in self.paths_mut().enumerate() {
            if let Some(late) = path.late()? {
                late.settle(index == last, ledger);
            }
        }
        while let Some(&region) = ledger.orphans.last() {
            // If an engine has not seen this, it is an orphan still.
            self.round(|_| Deregister(region), ledger)?.book(ledger);
        }
        #[cfg(feature = "star")]
        self.undo_star_orphans(ledger)?;
        Ok(())
    }
}

pub(super) fn ask<Q: Question>(
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
fn under_way(error: HostError) -> HostError {
    match error {
        HostError::EngineStuck { waited, .. } => {
            HostError::EngineStuck { waited, is_under_way: true }
        }
        error => error,
    }
}
