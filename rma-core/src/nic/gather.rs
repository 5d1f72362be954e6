//! Requests that wait for others of their kind, to be sent with one doorbell (not in the paper).
//!
//! A doorbell costs a software NIC more than a small frame does: 1.4 µs and 1.2 µs on a veth pair. Where ops of the
//! throughput class are in full swing, a completion makes room for a command, the command for a request, and each request
//! would ring for itself, on a core that has payloads to decrypt. So as long as enough answers are under way, a few
//! requests wait for what these will bring.
//!
//! Only requests of the throughput class wait, only for each other, and whatever else is sent takes them along.

use super::Nic;
use crate::time::Instant;

/// Which part of the ops under way requests have to be to be sent. Answers come spread over a round trip, so
/// it is about that part of one that a request waits. Smaller: more doorbells. Larger: windows that are used less.
const PART: usize = 4;

/// Requests that share a doorbell well enough.
const ENOUGH: usize = 8;

/// For how long a request waits at most, as answers may not come at all. Longer than doorbells take; short
/// beside any timeout.
const WAIT_NANOS: u64 = 10_000;

/// Requests of the throughput class, where they are all that there is to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bulk {
    pub(super) requests: usize,
    /// Ops whose requests have gone.
    pub(super) under_way: usize,
    /// How long the first of them has waited.
    pub(super) waited_nanos: u64,
}

impl Bulk {
    const fn gathers(self) -> bool {
        self.requests < ENOUGH
            && self.requests * PART < self.under_way
            && self.waited_nanos < WAIT_NANOS
    }
}

impl Nic {
    /// Whether all that waits to be sent can wait a little, to be sent with more.
    #[must_use]
    pub fn gathers(&self, now: Instant) -> bool {
        self.responder.frames_waiting(&self.window) == 0
            && self.initiator.bulk(now).is_some_and(Bulk::gathers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_requests_wait_while_many_answers_are_under_way_and_not_for_long() {
        let gathers = |requests, under_way, waited_nanos| {
            Bulk { requests, under_way, waited_nanos }.gathers()
        };
        assert!(gathers(1, 5, 0) && gathers(7, 100, WAIT_NANOS - 1));
        // Alone, or nearly so, nothing waits.
        assert!(!gathers(1, 0, 0) && !gathers(1, PART, 0) && !gathers(2, 2 * PART, 0));
        assert!(!gathers(ENOUGH, 100, 0));
        assert!(!gathers(1, 100, WAIT_NANOS));
    }
}
