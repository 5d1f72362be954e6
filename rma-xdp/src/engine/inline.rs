//! An engine that whoever has the host runs: it is asked directly, and turns when it is told to.

use std::sync::Arc;

use rma_app::life::Life;
use rma_core::{portal::Bell, seat::Seat};

use super::{
    housekeeping::Housekeeping,
    services::{HostEngine, HostService},
};
use crate::{
    driver::control::{AnyCall, Asked, ControlPath, Question, Unanswered},
    error::HostError,
    services::Side,
};

/// The engine of an [`InlineHost`](crate::InlineHost), in the host itself.
#[derive(Debug)]
pub struct InlineEngine {
    engine: HostEngine,
    housekeeping: Housekeeping,
}

impl InlineEngine {
    pub(crate) const fn new(engine: HostEngine, housekeeping: Housekeeping) -> Self {
        Self { engine, housekeeping }
    }

    /// One turn. Returns how much there was to do.
    #[inline]
    pub(crate) fn turn(&mut self) -> usize {
        self.housekeeping.turn(&mut self.engine);
        self.engine.turn()
    }
}

impl ControlPath for InlineEngine {
    type Berth = ();

    fn berth() -> Result<(), HostError> {
        Ok(())
    }

    fn life_at((): &()) -> Life {
        Life::inline()
    }

    fn seat((): &()) -> Seat {
        Seat::new(None, Arc::default())
    }

    fn is_reachable(&self) -> bool {
        true
    }

    fn late(&mut self) -> Result<Option<Arc<dyn AnyCall>>, HostError> {
        Ok(None)
    }

    fn put<Q: Question>(&mut self, question: Q) -> Asked<Q> {
        Asked::Known(Ok(question.answer(&mut Side::of(&mut self.engine))))
    }

    fn answer<Q: Question>(&mut self, asked: Asked<Q>) -> Result<Q::Answer, Unanswered<Q>> {
        asked.known()
    }

    fn go_on(&mut self) -> bool {
        self.turn();
        true
    }

    fn publish_gauges(&self) {
        self.engine.service().publish_gauges();
    }

    fn bell(&self) -> Option<Bell> {
        None
    }

    fn life(&self) -> Life {
        Life::inline()
    }
}
