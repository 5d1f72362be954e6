//! Requests that wait for others of their kind, to be sent with one doorbell (not in the paper).
//!
//! A doorbell costs a software NIC more than a small frame does. Where ops of the throughput class
//! are in full swing, a completion makes room for a command, the command for a request, and each
//! request would ring for itself, on a core that has payloads to decrypt. So as long as enough
//! answers are under way, a few requests wait for what these will bring. (`small_beside_large_p99`
//! fell by 28 % when this was written: medians of runs in turns.)
//!
//! Only requests of the throughput class wait, only for each other, and any other frame that is
//! sent takes them along.

use core::time::Duration;

use super::Nic;
use crate::time::{self, Instant};

/// The divisor of the ops under way: so many requests gather before they are sent. Answers come
/// spread over a round trip, so it is about that part of one that a request waits. Smaller: more
/// doorbells. Larger: windows that are used less.
const PART: usize = 4;

/// Requests that share a doorbell well enough.
const ENOUGH: usize = 8;

/// For how long a request waits at most, and how long ago the last answer may be: more answers may
/// not come at all. The wait is part of the op's `issue_delay`, which congestion control for
/// engines in software holds to a round trip as configured, so it is no longer than that either.
/// Shorter: fewer gather; with 5 µs `small_beside_large_p99` was 17 % larger when this was written.
const WAIT_NANOS: u64 = 10_000;

/// The part of the time to enter service that an op may wait here, as a divisor, where that is
/// shorter.
const DISPATCH_PART: u64 = 4;

/// Requests of the throughput class, where they are all that there is to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bulk {
    pub(super) requests: usize,
    /// Ops of this class whose requests have gone.
    pub(super) under_way: usize,
    /// How long the first request has waited.
    pub(super) waited_nanos: u64,
    /// How long ago the last op of this class was answered.
    pub(super) answered_nanos: u64,
}

impl Bulk {
    const fn gathers(self, wait_nanos: u64) -> bool {
        self.requests < ENOUGH
            && self.requests * PART < self.under_way
            && self.waited_nanos < wait_nanos
            && self.answered_nanos < wait_nanos
    }
}

/// How long a request may wait in a NIC on a network with this `rtt`, whose ops have
/// `dispatch_timeout` to enter service.
pub(super) fn wait_nanos_max(rtt: Duration, dispatch_timeout: Duration) -> u64 {
    WAIT_NANOS.min(time::nanos(rtt)).min(time::nanos(dispatch_timeout) / DISPATCH_PART)
}

impl Nic {
    /// Whether all that waits to be sent can wait a little, to be sent with more.
    #[must_use]
    pub fn gathers(&self, now: Instant) -> bool {
        self.responder.frames_waiting(&self.window) == 0
            && self.initiator.bulk(now).is_some_and(|bulk| bulk.gathers(self.config.gather_nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_requests_wait_while_many_answers_are_under_way_and_not_for_long() {
        let bulk = Bulk { requests: 1, under_way: 5, waited_nanos: 0, answered_nanos: 0 };
        let gathers = |bulk: Bulk| bulk.gathers(WAIT_NANOS);
        assert!(gathers(bulk));
        assert!(gathers(Bulk {
            requests: 7,
            under_way: 100,
            waited_nanos: WAIT_NANOS - 1,
            ..bulk
        }));
        // Alone, or nearly so, nothing waits.
        assert!(
            !gathers(Bulk { under_way: 0, ..bulk }) && !gathers(Bulk { under_way: PART, ..bulk })
        );
        assert!(!gathers(Bulk { requests: ENOUGH, under_way: 100, ..bulk }));
        assert!(!gathers(Bulk { waited_nanos: WAIT_NANOS, ..bulk }));
        assert!(!gathers(Bulk { answered_nanos: WAIT_NANOS, ..bulk }));
    }
}
