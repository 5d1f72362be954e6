//! The policy of an idle thread, an engine's or a waiting application's: spin, then yield, then
//! sleep in the kernel.
//!
//! By default nobody spins. Where each thread has a core, a yield returns at once, so it looks as
//! often as one that spins, but for a system call of some hundred nanoseconds. Where threads share
//! cores, what a thread waits for is often done by the one whose core it would spin on: 20 µs of
//! spinning there are 20 µs of delay, for each thread on the way.

use core::time::Duration;

use rma_core::time::Instant;

/// When a thread that has nothing to do stops spinning: an engine's, or one that waits for a
/// completion.
///
/// | phase | cost | a frame, command or completion is seen after |
/// |---|---|---|
/// | spin | a whole core | less than a microsecond |
/// | yield | what others leave of the core | up to a time slice of each other thread |
/// | sleep | nothing | the kernel's wake-up, tens of microseconds |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct IdlePolicy {
    /// How long to spin after the last work: for threads that have cores of their own. Default:
    /// not at all.
    pub spin: Duration,
    /// How long to yield to other threads after that. Default: 1 ms.
    pub yield_for: Duration,
    /// Whether to sleep after that; otherwise it yields on. Default: true.
    pub sleep: bool,
}

impl IdlePolicy {
    /// Never gives the core away: for a core that nothing else runs on.
    #[inline]
    pub const fn busy_poll() -> Self {
        Self { spin: Duration::MAX, yield_for: Duration::ZERO, sleep: false }
    }
}

impl Default for IdlePolicy {
    fn default() -> Self {
        Self { spin: Duration::ZERO, yield_for: Duration::from_millis(1), sleep: true }
    }
}

/// The next step of an idle thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Look again at once.
    Spin,
    /// Let other threads have the core, and look again.
    Yield,
    /// Sleep in the kernel until somebody rings.
    Sleep,
}

/// Follows how long an engine has been idle.
#[derive(Debug)]
pub struct IdleTracker {
    policy: IdlePolicy,
    since: Option<Instant>,
}

impl IdleTracker {
    /// For a thread that has just had work.
    #[must_use]
    pub const fn new(policy: IdlePolicy) -> Self {
        Self { policy, since: None }
    }

    /// There was work.
    pub const fn busy(&mut self) {
        self.since = None;
    }

    /// Since when there has been none, if `idle` was called since the last work.
    #[must_use]
    #[inline]
    pub const fn since(&self) -> Option<Instant> {
        self.since
    }

    /// There was none, at `now`.
    #[inline]
    pub fn idle(&mut self, now: Instant) -> Idle {
        let idle_for = now.since(*self.since.get_or_insert(now));
        let IdlePolicy { spin, yield_for, sleep } = self.policy;
        if idle_for < spin {
            Idle::Spin
        } else if !sleep || idle_for < spin.saturating_add(yield_for) {
            Idle::Yield
        } else {
            Idle::Sleep
        }
    }
}

rma_core::settings!(IdlePolicy);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_spins_then_yields_then_sleeps_and_starts_over_with_work() {
        let policy = IdlePolicy {
            spin: Duration::from_nanos(10),
            yield_for: Duration::from_nanos(20),
            sleep: true,
        };
        let mut tracker = IdleTracker::new(policy);
        let mut at = |nanos| tracker.idle(Instant::from_nanos(nanos));
        assert_eq!([at(100), at(109), at(110), at(129), at(130)], {
            [Idle::Spin, Idle::Spin, Idle::Yield, Idle::Yield, Idle::Sleep]
        });
        tracker.busy();
        assert_eq!(tracker.idle(Instant::from_nanos(131)), Idle::Spin);
    }

    #[test]
    fn by_default_other_threads_have_the_core_before_anything_else() {
        for policy in [IdlePolicy::default(), crate::portal::WAIT] {
            let mut tracker = IdleTracker::new(policy);
            assert_eq!(tracker.idle(Instant::ZERO), Idle::Yield, "{policy:?}");
            assert_eq!(tracker.idle(Instant::ZERO + policy.yield_for), Idle::Sleep, "{policy:?}");
        }
    }

    #[test]
    fn a_busy_poller_never_gives_its_core_away() {
        let mut tracker = IdleTracker::new(IdlePolicy::busy_poll());
        assert_eq!(tracker.idle(Instant::ZERO), Idle::Spin);
        assert_eq!(tracker.idle(Instant::from_nanos(u64::MAX)), Idle::Spin);
    }
}
