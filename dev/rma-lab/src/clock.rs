//! A clock that stands until somebody moves it.

use core::{cell::Cell, time::Duration};

use rma_core::time::{Clock, Instant};

/// A clock of one thread that shows what it was set to. It begins at [`Instant::ZERO`]. A clone
/// goes on by itself.
#[derive(Clone, Debug, Default)]
pub struct HandClock(Cell<Instant>);

impl HandClock {
    /// Lets `time` pass.
    pub fn advance(&self, time: Duration) {
        self.0.set(self.0.get() + time);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Instant {
        self.0.get()
    }
}
