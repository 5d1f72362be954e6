//! Algorithm 1 of the 1RMA paper: additive increase, multiplicative decrease (§6).
//!
//! The paper writes it down for the local window. The one for a remote NIC is the same with another
//! [`Signal`] and another target delay, and so is the baseline that looks at the total delay only.

use core::time::Duration;

use super::{
    CcConfig, CongestionController, Feedback, LastDecrease, Rtt, Signal, after_return,
    signal::Reading, window::OpCharge,
};
use crate::time::{self, Instant};

/// A window under Algorithm 1.
#[derive(Clone, Copy, Debug)]
pub struct Aimd {
    cwnd: f64,
    last_decrease: LastDecrease,
    signal: Signal,
    op_charge: OpCharge,
    target_delay_nanos: f64,
    ai: f64,
    md: f64,
    beta: f64,
    timeout_decr: f64,
    cwnd_min: f64,
    cwnd_delay_min: f64,
    cwnd_max: f64,
}

impl Aimd {
    /// The window that reacts to `signal`, and holds the delay near `target_delay`.
    pub(super) fn new(config: &CcConfig, signal: Signal, target_delay: Duration) -> Self {
        let settings = config.settings();
        Self {
            cwnd: settings.cwnd_initial,
            last_decrease: LastDecrease::default(),
            signal,
            op_charge: config.op_charge(),
            target_delay_nanos: time::nanos(target_delay) as f64,
            ai: settings.ai,
            md: settings.md,
            beta: settings.beta,
            timeout_decr: settings.timeout_decr,
            cwnd_min: settings.cwnd_min,
            cwnd_delay_min: settings.cwnd_delay_min.max(settings.cwnd_min),
            cwnd_max: settings.cwnd_max,
        }
    }

    /// Multiplies the window by `factor`, to no less than `least`, unless it was decreased in the
    /// last RTT time.
    fn decrease(&mut self, factor: f64, least: f64, feedback: &Feedback, rtt: Rtt) {
        if !self.last_decrease.is_an_rtt_ago(feedback, rtt) {
            return;
        }
        self.set((factor * self.cwnd).max(least).min(self.cwnd), feedback.now);
    }

    /// Sets the window to `cwnd`, which is no larger than it is.
    fn set(&mut self, cwnd: f64, now: Instant) {
        // A delay right at its target, or a window at its minimum: nothing to wait for.
        if cwnd < self.cwnd {
            self.last_decrease = LastDecrease(Some(now));
        }
        self.cwnd = cwnd;
    }
}

impl CongestionController for Aimd {
    fn on_completion(&mut self, feedback: &Feedback, rtt: Rtt) {
        match self.signal.read(feedback) {
            //= 1rma#6-additive-increase
            Reading::Delay(delay) if delay < self.target_delay_nanos => {
                // One op a round trip for each 1 / `ai`: a window has as many completions in that
                // time as ops. Below one op the paper adds `ai` whole, which the larger divisor
                // comes to. Small ops count by their share of an op, as they do when they are
                // outstanding.
                let ai = self.ai * self.op_charge.ops(feedback.op_size);
                self.cwnd = (self.cwnd + ai / self.cwnd.max(1.0)).min(self.cwnd_max);
            }
            //= 1rma#6-multiplicative-decrease
            Reading::Delay(delay) => {
                let delta = delay - self.target_delay_nanos;
                let factor = (1.0 - self.beta * (delta / delay)).max(self.md);
                self.decrease(factor, self.cwnd_delay_min, feedback, rtt);
            }
            //= 1rma#6-dispatch-timeout
            //= 1rma#6-remote-failures
            Reading::TimedOut | Reading::Refused => {
                self.decrease(self.timeout_decr, self.cwnd_min, feedback, rtt);
            }
            Reading::Nothing => {}
        }
    }

    fn on_completion_unused(&mut self, feedback: &Feedback, rtt: Rtt) {
        // Nothing else changes when it grows.
        let cwnd_old = self.cwnd;
        self.on_completion(feedback, rtt);
        self.cwnd = self.cwnd.min(cwnd_old);
    }

    fn on_return(&mut self, now: Instant, factor: f64) {
        self.set(after_return(self.cwnd, factor), now);
    }

    fn cwnd(&self) -> f64 {
        self.cwnd
    }
}
