//! The control path: how the driver asks an engine something between its turns.
//!
//! A question is a type that names the type of its answer ([`Question`]): whoever asks gets that
//! and nothing else. An inline engine is asked directly. To an engine on its own thread a question
//! goes as a [`Call`], which that thread looks for between turns and fills with the answer.
//!
//! Invariant: on the engine's thread nothing is allocated, freed or locked. A call is made and
//! freed by whoever asks, what the engine gets is boxed already, and what it has no more use for
//! goes back in the answer.

use core::{fmt::Debug, ops::Range};
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use rma_app::{TscClock, life::Life};
use rma_core::{
    addr::Pid,
    error::RegionError,
    nic::{RegionEntry, RegionTable, TenantIndex},
    portal::{Bell, PortalPort},
    region::RegionId,
    seat::Seat,
};

use super::ledger::Ledger;
use crate::{error::HostError, services::Beside};

/// A question of the driver to an engine.
pub(crate) trait Question: Debug + Send + Sized + 'static {
    /// The answer of the engine.
    type Answer: Debug + Send + 'static;

    /// Does what is asked. Runs on the engine's thread.
    fn answer(self, engine: &mut dyn EngineSide) -> Self::Answer;

    /// Puts the ledger as if this had not been asked: the engine has not seen it, and never will.
    fn undo(self, ledger: &mut Ledger);

    /// Puts into the ledger, or sees to it that it is undone, what an engine has done for an asker
    /// that had given up.
    fn settle(answer: Self::Answer, ledger: &mut Ledger);
}

/// The services of an engine, as the driver's questions reach them.
pub(crate) trait EngineSide: Beside {
    /// Its NIC's regions.
    fn regions(&mut self) -> &mut RegionTable;

    /// Takes a region out of its NIC's table.
    fn deregister(&mut self, region: RegionId) -> Result<Box<RegionEntry>, RegionError>;

    /// Has a portal of process `pid` of a tenant served.
    fn attach(&mut self, port: PortalPort, pid: Pid, tenant: TenantIndex);

    /// Gives a portal back whose ops are over. `None` while some are in flight.
    fn detach(&mut self, slots: &Range<u16>) -> Option<PortalPort>;
}

/// The driver's end of the way to one engine.
pub(crate) trait ControlPath {
    /// The means to reach the engine, made before it is.
    type Berth;

    /// A berth for an engine that is about to be made.
    fn berth() -> Result<Self::Berth, HostError>;

    /// The life of an engine with this berth.
    fn life_at(berth: &Self::Berth) -> Life;

    /// The seat at which the host's other engines reach it.
    fn seat(berth: &Self::Berth) -> Seat;

    /// Whether the engine takes questions: it has not ended, and owes no answer to an asker that
    /// gave up.
    fn is_reachable(&self) -> bool;

    /// The call whose asker gave up waiting, if the engine has taken it: waits for its answer. The
    /// driver settles it before it asks anything else, as an engine is asked one thing at a time.
    fn late(&mut self) -> Result<Option<Arc<dyn AnyCall>>, HostError>;

    /// Asks. [`ControlPath::answer`] waits for the answer, so that several engines can be asked
    /// side by side.
    fn put<Q: Question>(&mut self, question: Q) -> Asked<Q>;

    /// Waits for the answer to what was put last.
    fn answer<Q: Question>(&mut self, asked: Asked<Q>) -> Result<Q::Answer, Unanswered<Q>>;

    /// Asks, and waits for the answer.
    fn ask<Q: Question>(&mut self, question: Q) -> Result<Q::Answer, Unanswered<Q>> {
        let asked = self.put(question);
        self.answer(asked)
    }

    /// Takes a turn of the engine, if that is for its host's user to do. Returns whether it was.
    fn go_on(&mut self) -> bool;

    /// Has the engine say how full its NIC is, if it does so only when its host's user has it.
    fn publish_gauges(&self);

    /// Returns the bell by which applications wake the engine, if it sleeps.
    fn bell(&self) -> Option<Bell>;

    /// The life of the engine, for those who wait for it.
    fn life(&self) -> Life;
}

/// A question that was put to an engine.
#[derive(Debug)]
pub(crate) enum Asked<Q: Question> {
    /// Its outcome, known at once.
    Known(Result<Q::Answer, Unanswered<Q>>),
    /// On its way since this clock was started.
    UnderWay(Arc<Call<Q>>, TscClock),
}

impl<Q: Question> Asked<Q> {
    /// The outcome, of an engine whose answers are known at once.
    pub(crate) fn known(self) -> Result<Q::Answer, Unanswered<Q>> {
        match self {
            Self::Known(outcome) => outcome,
            Self::UnderWay(..) => unreachable!("put to an engine with a thread"),
        }
    }
}

/// A question without an answer.
#[derive(Debug)]
pub(crate) struct Unanswered<Q> {
    pub(crate) error: HostError,
    /// The question, if the engine has not seen it. Otherwise it has done what it was asked, or
    /// will: that is the next [`ControlPath::late`].
    pub(crate) unseen: Option<Q>,
}

/// A question on its way to an engine's thread, and its answer on the way back.
#[derive(Debug)]
pub(crate) struct Call<Q: Question> {
    question: ArrayQueue<Q>,
    answer: ArrayQueue<Q::Answer>,
}

impl<Q: Question> Call<Q> {
    pub(crate) fn new(question: Q) -> Self {
        let call = Self { question: ArrayQueue::new(1), answer: ArrayQueue::new(1) };
        call.question.push(question).expect("a new queue has room");
        call
    }

    /// The answer, if it is there.
    pub(crate) fn take_answer(&self) -> Option<Q::Answer> {
        self.answer.pop()
    }

    /// The question, unless the engine has taken it.
    pub(crate) fn withdraw(&self) -> Option<Q> {
        self.question.pop()
    }
}

/// A call, whatever it asks.
pub(crate) trait AnyCall: Debug + Send + Sync {
    /// Does what is asked, on the engine's thread.
    fn serve(&self, engine: &mut dyn EngineSide);

    /// Whether the answer is there.
    fn is_answered(&self) -> bool;

    /// [`Question::settle`] with the answer, if it is there.
    fn settle(&self, ledger: &mut Ledger);
}

impl<Q: Question> AnyCall for Call<Q> {
    fn serve(&self, engine: &mut dyn EngineSide) {
        if let Some(question) = self.question.pop() {
            let answer = question.answer(engine);
            self.answer.push(answer).expect("a question has one answer");
        }
    }

    fn is_answered(&self) -> bool {
        !self.answer.is_empty()
    }

    fn settle(&self, ledger: &mut Ledger) {
        if let Some(answer) = self.answer.pop() {
            Q::settle(answer, ledger);
        }
    }
}
