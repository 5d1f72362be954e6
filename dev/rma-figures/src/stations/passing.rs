//! Clocks of the stations: one that goes on by itself, and one that goes on by rounds.

use std::rc::Rc;

use rma_core::time::{Clock, Instant};
use rma_lab::HandClock;
use rma_xdp::time::TscClock;

/// A clock that may need help to go on.
pub trait Passing: Clock + Clone {
    /// A round is over.
    fn pass(&self) {}
}

impl Passing for TscClock {}

/// A clock that goes on by a microsecond each round: what is done is the same in each run.
#[derive(Clone, Debug, Default)]
pub struct Stepped(Rc<HandClock>);

impl Clock for Stepped {
    fn now(&self) -> Instant {
        self.0.now()
    }
}

impl Passing for Stepped {
    fn pass(&self) {
        self.0.advance(core::time::Duration::from_micros(1));
    }
}
