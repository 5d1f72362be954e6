//! A token bucket for failure notices to senders that did not authenticate (P10): a flood of forged
//! requests costs the engine at most a bounded rate of replies.

use crate::time::Instant;

/// Tokens are counted in nanoseconds of earned time, so that there is no rounding.
#[derive(Debug)]
pub(super) struct NoticeLimiter {
    nanos_per_notice: u64,
    earned_nanos: u64,
    seen: Instant,
}

/// How many notices may go out at once after a pause.
const BURST: u64 = 256;

impl NoticeLimiter {
    pub(super) fn new(notices_per_second: u32) -> Self {
        let nanos_per_notice = if notices_per_second == 0 {
            u64::MAX
        } else {
            // Rounded up: never faster than the rate, and no rate is so high that notices cost nothing.
            1_000_000_000_u64.div_ceil(notices_per_second.into())
        };
        Self { nanos_per_notice, earned_nanos: u64::MAX, seen: Instant::ZERO }
    }

    /// Whether one more notice may be sent at `now`; if so, it is counted.
    pub(super) fn admits(&mut self, now: Instant) -> bool {
        let most = self.nanos_per_notice.saturating_mul(BURST);
        let earned = self.earned_nanos.saturating_add(now.nanos_since(self.seen)).min(most);
        self.seen = now;
        // A rate of zero is a price that nobody can pay.
        let admitted = earned >= self.nanos_per_notice && self.nanos_per_notice != u64::MAX;
        self.earned_nanos = if admitted { earned - self.nanos_per_notice } else { earned };
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn a_burst_then_the_rate() {
        let mut limiter = NoticeLimiter::new(1000);
        let mut now = Instant::ZERO;
        let admitted = (0..10_000).filter(|_| limiter.admits(now)).count() as u64;
        assert_eq!(admitted, BURST);
        now = now + Duration::from_millis(5);
        assert_eq!((0..100).filter(|_| limiter.admits(now)).count(), 5);
    }

    #[test]
    fn a_rate_that_is_no_whole_number_of_nanoseconds_is_not_exceeded() {
        let mut limiter = NoticeLimiter::new(700_000_000);
        assert_eq!((0..1000).filter(|_| limiter.admits(Instant::ZERO)).count() as u64, BURST);
        let admitted = (1..=1000).filter(|&now| limiter.admits(Instant::from_nanos(now))).count();
        assert!(admitted <= 700, "{admitted} in a microsecond");
    }

    #[test]
    fn a_rate_of_zero_admits_none() {
        let mut limiter = NoticeLimiter::new(0);
        assert!(!limiter.admits(Instant::from_nanos(u64::MAX)));
    }
}
