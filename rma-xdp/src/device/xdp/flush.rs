//! When to ring the doorbell: the transmit side's only policy, kept apart from the system call.
//!
//! It is not the system call (that is [`super::socket`]) and knows no ring: it is told what
//! happened and answers one question. Invariant: as long as descriptors may lie in the ring unseen
//! by the kernel, [`FlushPolicy::wants_ring`] says so sooner or later; nothing is forgotten after a
//! wake-up that the kernel refused.

use core::time::Duration;

use rma_core::time::Instant;

/// Pause after the interface was found down or the wake-up failed for good.
///
/// Shorter: a system call in nearly every turn for nothing. Longer: that much more silence after
/// the interface is up again. A millisecond is far below what a link needs to come up.
const HOLD: Duration = Duration::from_millis(1);

/// The end of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ring {
    /// The kernel has seen every descriptor.
    Taken,
    /// The kernel took some descriptors, and wants to be called again for the rest.
    Partly,
    /// The kernel took none for now: its buffers or the driver's queue are full.
    Busy,
    /// Calling again at once is pointless: the interface is down, or the socket is dead.
    Refused,
}

/// Decides whether a wake-up (`sendto`) is due.
#[derive(Debug, Default)]
pub(crate) struct FlushPolicy {
    /// Descriptors submitted since the kernel last took all of them.
    pending: u32,
    hold_until: Instant,
}

impl FlushPolicy {
    /// `count` descriptors were put on the ring.
    pub(crate) fn on_submit(&mut self, count: u32) {
        self.pending = self.pending.saturating_add(count);
    }

    /// `in_flight` descriptors have not been completed yet. Fewer than pending means that a driver
    /// took some without being asked, as zero-copy drivers do while they poll.
    pub(crate) fn on_complete(&mut self, in_flight: u32) {
        self.pending = self.pending.min(in_flight);
    }

    /// A wake-up was made at `now`.
    pub(crate) fn on_ring(&mut self, now: Instant, ring: Ring) {
        match ring {
            Ring::Taken => self.pending = 0,
            Ring::Partly | Ring::Busy => {}
            Ring::Refused => self.hold_until = now + HOLD,
        }
    }

    /// Whether descriptors may be waiting. Cheap: asked once per turn.
    #[must_use]
    pub(crate) fn is_pending(&self) -> bool {
        self.pending > 0
    }

    /// Whether to ring at `now`, where `needs_wakeup` is the ring's flag. While the flag is clear
    /// the driver polls the ring by itself, and what is pending stays so until it completes: the
    /// driver may set the flag before it has seen the last descriptor.
    #[must_use]
    pub(crate) fn wants_ring(&self, now: Instant, needs_wakeup: bool) -> bool {
        self.is_pending() && needs_wakeup && now >= self.hold_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Instant = Instant::ZERO;

    fn submitted(count: u32) -> FlushPolicy {
        let mut policy = FlushPolicy::default();
        policy.on_submit(count);
        policy
    }

    #[test]
    fn nothing_submitted_means_no_system_call() {
        assert!(!FlushPolicy::default().wants_ring(T0, true));
    }

    #[test]
    fn a_submission_rings_once() {
        let mut policy = submitted(3);
        assert!(policy.wants_ring(T0, true));
        policy.on_ring(T0, Ring::Taken);
        assert!(!policy.wants_ring(T0, true));
    }

    #[test]
    fn a_busy_kernel_is_asked_again() {
        for ring in [Ring::Busy, Ring::Partly] {
            let mut policy = submitted(1);
            policy.on_ring(T0, ring);
            assert!(policy.wants_ring(T0, true));
        }
    }

    #[test]
    fn a_polling_driver_is_left_alone_until_it_sets_the_flag() {
        let policy = submitted(1);
        assert!(!policy.wants_ring(T0, false));
        assert!(policy.wants_ring(T0, true));
    }

    #[test]
    fn frames_completed_without_a_ring_are_no_longer_pending() {
        let mut policy = submitted(4);
        policy.on_complete(1);
        assert!(policy.is_pending());
        policy.on_complete(0);
        assert!(!policy.is_pending());
    }

    #[test]
    fn a_refused_ring_is_repeated_after_a_pause_not_before() {
        let mut policy = submitted(1);
        policy.on_ring(T0, Ring::Refused);
        assert!(!policy.wants_ring(T0 + HOLD / 2, true));
        assert!(policy.wants_ring(T0 + HOLD, true));
    }
}
