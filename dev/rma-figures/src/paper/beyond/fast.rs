//! Congestion control as an application could bring along: FAST TCP's equation, on what a
//! completion says. The window tends to so many ops as the round trip takes at its best, and a few
//! that wait.

use rma_core::{
    cc::{CcConfig, CongestionController, Feedback, Policy, Rtt},
    op::{Moves, OpStatus},
    time::Instant,
};

/// The policy.
#[derive(Debug)]
pub(super) struct Fast;

/// The ops that may wait: at home, and in the network and at the other NIC.
const LOCAL: f64 = 4.0;
const REMOTE: f64 = 4.0;

/// How far a window goes to where it should be in a round trip.
const GAIN: f64 = 0.5;

/// The part of a window that a failure leaves, once in a round trip.
const FAILED: f64 = 0.5;

/// A window of ops that stays.
#[derive(Debug)]
struct Window {
    cwnd: f64,
    least: f64,
    most: f64,
    /// The round trip when nothing waits, in nanoseconds.
    base: f64,
    /// The ops that may wait.
    waiting: f64,
    is_local: bool,
    decreased: Option<Instant>,
}

impl Window {
    fn new(config: &CcConfig, is_local: bool) -> Self {
        let settings = config.settings();
        Self {
            cwnd: settings.cwnd_initial,
            least: settings.cwnd_min,
            most: settings.cwnd_max,
            base: settings.rtt.as_nanos() as f64,
            waiting: if is_local { LOCAL } else { REMOTE },
            is_local,
            decreased: None,
        }
    }

    /// The round trip with its own share of delays, in nanoseconds.
    fn delay(&self, feedback: &Feedback) -> f64 {
        if self.is_local {
            self.base + feedback.issue_delay_nanos as f64
        } else {
            (feedback.remote_delay_nanos() as f64).max(self.base)
        }
    }

    /// Whether a failure says something about its side.
    fn is_own(&self, status: OpStatus) -> bool {
        self.is_local == (status == OpStatus::DispatchTimeout)
    }
}

impl CongestionController for Window {
    fn on_completion(&mut self, feedback: &Feedback, rtt: Rtt) {
        if feedback.status == OpStatus::Ok {
            let off = (self.base / self.delay(feedback) - 1.0) * self.cwnd + self.waiting;
            self.cwnd += GAIN * off / self.cwnd.max(1.0);
        } else if self.is_own(feedback.status) {
            let elapsed = self.decreased.map(|it| feedback.now.nanos_since(it) as f64);
            if elapsed.is_none_or(|it| it >= rtt.nanos()) {
                self.cwnd *= FAILED;
                self.decreased = Some(feedback.now);
            }
        }
        self.cwnd = self.cwnd.clamp(self.least, self.most);
    }

    fn cwnd(&self) -> f64 {
        self.cwnd
    }
}

impl Policy for Fast {
    fn name(&self) -> &'static str {
        "own: FAST"
    }

    fn local(&self, config: &CcConfig) -> Box<dyn CongestionController> {
        Box::new(Window::new(config, true))
    }

    fn remote(&self, config: &CcConfig, _: Moves) -> Box<dyn CongestionController> {
        Box::new(Window::new(config, false))
    }
}
