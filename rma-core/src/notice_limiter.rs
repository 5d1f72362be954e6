//! A token bucket for failure notices under a key that is no secret (P10): whatever floods of
//! frames come, a bounded rate of replies goes.
//!
//! A token is spent when a notice is sent, and not when its cause comes: otherwise notices that
//! never go would use up what others could have had.

use crate::time::Instant;

/// A rate of notices, and how many may go by it. A token is the right to send one.
///
/// Tokens are counted in nanoseconds of earned time, so that there is no rounding.
#[derive(Debug)]
pub struct NoticeLimiter {
    nanos_per_notice: u64,
    earned_nanos: u64,
    seen: Instant,
}

/// How many notices may go out at once after a pause.
pub const BURST: u64 = 256;

impl NoticeLimiter {
    /// A limiter that admits so many notices a second in the long run, and a [`BURST`] at first. 0:
    /// none ever.
    #[must_use]
    pub const fn new(notices_per_second: u32) -> Self {
        let nanos_per_notice = if notices_per_second == 0 {
            u64::MAX
        } else {
            // Rounded up: never faster than the rate, and no rate is so high that notices cost
            // nothing.
            1_000_000_000_u64.div_ceil(notices_per_second as u64)
        };
        Self { nanos_per_notice, earned_nanos: u64::MAX, seen: Instant::ZERO }
    }

    /// Whether no notice may ever go.
    #[must_use]
    pub const fn admits_none(&self) -> bool {
        self.nanos_per_notice == u64::MAX
    }

    /// It is `now`: tokens have come since it was last.
    pub fn note_time(&mut self, now: Instant) {
        let most = self.nanos_per_notice.saturating_mul(BURST);
        self.earned_nanos = self.earned_nanos.saturating_add(now.nanos_since(self.seen)).min(most);
        self.seen = now;
    }

    /// How many notices may go, as far as time was noted.
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        // A rate of zero is a price that nobody can pay.
        if self.admits_none() { 0 } else { self.earned_nanos / self.nanos_per_notice }
    }

    /// A notice goes. There was a token for it, by [`NoticeLimiter::tokens`].
    pub const fn spend(&mut self) {
        self.earned_nanos = self.earned_nanos.saturating_sub(self.nanos_per_notice);
    }

    /// When the next token comes. To be asked where there is none.
    #[must_use]
    pub const fn next_at(&self) -> Option<Instant> {
        if self.admits_none() {
            return None;
        }
        Some(self.seen.after_nanos(self.nanos_per_notice.saturating_sub(self.earned_nanos)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    /// How many of `wanted` may go at `now`.
    fn admitted(limiter: &mut NoticeLimiter, now: Instant, wanted: u64) -> u64 {
        limiter.note_time(now);
        let admitted = limiter.tokens().min(wanted);
        (0..admitted).for_each(|_| limiter.spend());
        admitted
    }

    #[test]
    fn a_burst_then_the_rate() {
        let mut limiter = NoticeLimiter::new(1000);
        let mut now = Instant::ZERO;
        assert_eq!(admitted(&mut limiter, now, 10_000), BURST);
        now = now + Duration::from_millis(5);
        assert_eq!(admitted(&mut limiter, now, 100), 5);
        assert_eq!(limiter.next_at(), Some(now + Duration::from_millis(1)));
        now = now + Duration::from_millis(1);
        assert_eq!(
            admitted(&mut limiter, now, 100),
            1,
            "not a nanosecond before it was told, nor after"
        );
    }

    #[test]
    fn a_rate_that_is_no_whole_number_of_nanoseconds_is_not_exceeded() {
        let mut limiter = NoticeLimiter::new(700_000_000);
        assert_eq!(admitted(&mut limiter, Instant::ZERO, 1000), BURST);
        let admitted: u64 =
            (1..=1000).map(|now| admitted(&mut limiter, Instant::from_nanos(now), 1)).sum();
        assert!(admitted <= 700, "{admitted} in a microsecond");
    }

    #[test]
    fn a_rate_of_zero_admits_none() {
        let mut limiter = NoticeLimiter::new(0);
        assert_eq!(admitted(&mut limiter, Instant::from_nanos(u64::MAX), 1), 0);
        assert!(limiter.admits_none() && limiter.next_at().is_none());
    }
}
