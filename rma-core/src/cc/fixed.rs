//! A window that never changes: what the others are measured against.

use super::{CongestionController, Feedback, Rtt};

/// No reaction to anything. Not in the paper.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    cwnd: f64,
}

impl Fixed {
    /// A window of `cwnd` ops.
    pub(super) const fn new(cwnd: f64) -> Self {
        Self { cwnd }
    }
}

impl CongestionController for Fixed {
    fn on_completion(&mut self, _: &Feedback, _: Rtt) {}

    fn cwnd(&self) -> f64 {
        self.cwnd
    }
}
