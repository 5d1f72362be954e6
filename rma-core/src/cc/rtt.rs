//! The round-trip time: decreases go by the smoothed one, pacing by the best (RTT in 1RMA §6 and
//! Algorithm 1).
//!
//! The paper does not say how RTT is measured. Here it is the smoothed `total_delay` of ops that
//! succeeded, of one remote NIC and way that data moves: the time after which a change of the
//! window shows in completions, waiting in the local NIC included, and the one with which OpSize ×
//! CWND / RTT is the rate that a full window has anyway.

use core::time::Duration;

use super::Feedback;
use crate::{op::OpStatus, time};

/// A round-trip time: smoothed, and at its best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rtt {
    nanos: f64,
    best_nanos: f64,
}

impl Rtt {
    /// The weight of a new sample: that of TCP (RFC 6298), a window of ops being a sample each.
    const GAIN: f64 = 0.125;

    /// The weights of a sample below the best and of one above it: what the best is without queues
    /// shows now and then only, and may change.
    const FALL: f64 = 0.5;
    const RISE: f64 = 0.001;

    /// Samples outside of these are no round trips, in nanoseconds: with none at all windows below
    /// one op would not be paced, and with an endless one nothing would be issued any longer.
    const MIN: f64 = 100.0;
    const MAX: f64 = 10e9;

    /// `rtt`, until samples say otherwise.
    #[must_use]
    pub const fn new(rtt: Duration) -> Self {
        let nanos = time::nanos(rtt) as f64;
        Self { nanos, best_nanos: nanos }
    }

    /// In nanoseconds.
    #[must_use]
    pub const fn nanos(self) -> f64 {
        self.nanos
    }

    /// At its best, in nanoseconds: nearly what it is when nothing waits and nobody is descheduled.
    /// Ops are paced by it. By the smoothed one, a host that was slow once would be asked slowly
    /// from then on, and so be seen to be slow.
    #[must_use]
    pub const fn best_nanos(self) -> f64 {
        self.best_nanos
    }

    /// Takes the sample of a completion. Failures have none: a timeout measures its timer, and a
    /// refused op transferred nothing.
    pub fn on_completion(&mut self, feedback: &Feedback) {
        if feedback.status == OpStatus::Ok {
            let sample = (feedback.total_delay_nanos as f64).clamp(Self::MIN, Self::MAX);
            self.nanos += Self::GAIN * (sample - self.nanos);
            let gain = if sample < self.best_nanos { Self::FALL } else { Self::RISE };
            self.best_nanos += gain * (sample - self.best_nanos);
        }
    }
}
