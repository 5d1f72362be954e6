//! Swift (Kumar et al., SIGCOMM 2020), which 1RMA's congestion control is modelled on, as a modern
//! peer.
//!
//! Two windows as there: one for the endpoint, here the local NIC and its `issue_delay`, with a
//! fixed target; one for the fabric, here `remote_delay`, whose target grows as the window shrinks
//! (*flow scaling*), because many flows that share a link make a longer queue, and as small windows
//! must not starve beside large ones.
//!
//! What differs from Algorithm 1: flow scaling, the increment, a milder reaction to failures until
//! several follow each other, and that only windows below one op are paced. What differs from the
//! publication: hops are not counted (the target delay includes them), and delays are not filtered.

use core::time::Duration;

use super::{
    CcConfig, CongestionController, Feedback, LastDecrease, Rtt, Signal, after_return,
    signal::Reading, window::OpCharge,
};
use crate::time::{self, Instant};

/// A window under Swift.
#[derive(Clone, Copy, Debug)]
pub struct Swift {
    cwnd: f64,
    last_decrease: LastDecrease,
    signal: Signal,
    op_charge: OpCharge,
    /// Round trips with a timeout, with no other outcome between them.
    timeouts: u32,
    retx_reset_threshold: u32,
    base_target_nanos: f64,
    scaling: FlowScaling,
    ai: f64,
    beta: f64,
    /// 1 - max_mdf: what a decrease leaves of the window at least.
    least_factor: f64,
    cwnd_min: f64,
    cwnd_delay_min: f64,
    cwnd_max: f64,
}

/// The scaling of the target delay by the window: `alpha / sqrt(cwnd) + beta`, within 0 and the
/// range.
#[derive(Clone, Copy, Debug)]
struct FlowScaling {
    range_nanos: f64,
    alpha: f64,
    beta: f64,
}

impl FlowScaling {
    const NONE: Self = Self { range_nanos: 0.0, alpha: 0.0, beta: 0.0 };

    /// All of `range` at a window of `min`, nothing at `max`.
    fn new(range: Duration, min: f64, max: f64) -> Self {
        let range_nanos = time::nanos(range) as f64;
        let alpha = range_nanos / (1.0 / min.sqrt() - 1.0 / max.sqrt());
        Self { range_nanos, alpha, beta: -alpha / max.sqrt() }
    }

    fn nanos(&self, cwnd: f64) -> f64 {
        (self.alpha / cwnd.sqrt() + self.beta).min(self.range_nanos).max(0.0)
    }
}

impl Swift {
    /// The window that reacts to `signal`. `base_target` is the target delay before flow scaling,
    /// which the endpoint's window does not have.
    pub(super) fn new(config: &CcConfig, signal: Signal, base_target: Duration) -> Self {
        let settings = config.settings();
        let swift = &settings.swift;
        let scaling = match signal {
            Signal::IssueDelay => FlowScaling::NONE,
            Signal::RemoteDelay | Signal::TotalDelay => {
                FlowScaling::new(swift.fs_range, swift.fs_min_cwnd, swift.fs_max_cwnd)
            }
        };
        Self {
            cwnd: settings.cwnd_initial,
            last_decrease: LastDecrease::default(),
            signal,
            op_charge: config.op_charge(),
            timeouts: 0,
            retx_reset_threshold: swift.retx_reset_threshold,
            base_target_nanos: time::nanos(base_target) as f64,
            scaling,
            ai: swift.ai,
            beta: swift.beta,
            least_factor: 1.0 - swift.max_mdf,
            cwnd_min: settings.cwnd_min,
            cwnd_delay_min: settings.cwnd_delay_min,
            cwnd_max: settings.cwnd_max,
        }
    }

    /// The delay that the window is steered to, in nanoseconds.
    fn target_delay_nanos(&self) -> f64 {
        self.base_target_nanos + self.scaling.nanos(self.cwnd)
    }

    /// Multiplies the window by `factor`, unless it was decreased in the last RTT time.
    fn decrease(&mut self, factor: f64, feedback: &Feedback, rtt: Rtt) {
        if self.last_decrease.is_an_rtt_ago(feedback, rtt) {
            self.set(factor * self.cwnd, feedback.now);
        }
    }

    /// Sets the window, within its limits.
    fn set(&mut self, cwnd: f64, now: Instant) {
        let cwnd = cwnd.max(self.cwnd_min).min(self.cwnd_max);
        // The publication also counts an unchanged window as decreased. At its maximum such a
        // window would never be.
        if cwnd < self.cwnd {
            self.last_decrease = LastDecrease(Some(now));
        }
        self.cwnd = cwnd;
    }
}

impl CongestionController for Swift {
    fn on_completion(&mut self, feedback: &Feedback, rtt: Rtt) {
        let reading = self.signal.read(feedback);
        match reading {
            Reading::Delay(delay) => {
                self.timeouts = 0;
                let target = self.target_delay_nanos();
                if delay < target {
                    let ai = self.ai * self.op_charge.ops(feedback.op_size);
                    self.set(self.cwnd + ai / self.cwnd.max(1.0), feedback.now);
                } else {
                    let factor = 1.0 - self.beta * ((delay - target) / delay);
                    let factor = factor.max(self.least_factor);
                    // Not above where it is.
                    let least = (self.cwnd_delay_min / self.cwnd).min(1.0);
                    self.decrease(factor.max(least), feedback, rtt);
                }
            }
            // As a loss that is found by its acknowledgements: the remote NIC is there, and says
            // so.
            Reading::Refused => {
                self.timeouts = 0;
                self.decrease(self.least_factor, feedback, rtt);
            }
            // Ops that are outstanding together time out together; a transport would have had one
            // retransmission timeout. So they count once in a round trip.
            Reading::TimedOut => {
                if self.last_decrease.is_an_rtt_ago(feedback, rtt) {
                    self.timeouts = self.timeouts.saturating_add(1);
                    let reset = self.timeouts >= self.retx_reset_threshold;
                    let cwnd = if reset { 0.0 } else { self.least_factor * self.cwnd };
                    self.set(cwnd, feedback.now);
                }
            }
            Reading::Nothing => {}
        }
    }

    fn on_completion_unused(&mut self, feedback: &Feedback, rtt: Rtt) {
        let mut next = *self;
        next.on_completion(feedback, rtt);
        if next.cwnd <= self.cwnd {
            *self = next;
        }
    }

    fn on_return(&mut self, now: Instant, factor: f64) {
        self.set(after_return(self.cwnd, factor), now);
    }

    fn cwnd(&self) -> f64 {
        self.cwnd
    }
}
