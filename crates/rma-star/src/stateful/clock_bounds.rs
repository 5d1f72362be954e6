//! The stateful side's bounds on Z's clock (ours; section 3.2 of `docs/STAR-WIRE.md`).
//!
//! Two bounds. Each frame of Z tells its clock when it was sealed: now it shows that at least, and
//! the time that has passed since the frame came. A frame that answers one of ours was sealed after
//! that one was sent: so Z's clock shows no more than it says, and the time since then. The clocks
//! of two hosts drift apart by a 1024th at most (NTP slews by a 2000th).
//!
//! Invariant: the lower bound never goes back, and the upper bound only comes closer.

use rma_core::time::Instant;

use crate::clock::{Time32, ZTime};

/// The part of elapsed time by which clocks may drift apart.
const DRIFT: u64 = 1024;

/// Bounds of one Z's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockBounds {
    /// The time that is expected before anything was heard: for the half of times that does not
    /// travel.
    hint: ZTime,
    lower: Option<(ZTime, Instant)>,
    upper: Option<(ZTime, Instant)>,
}

const fn micros(now: Instant, since: Instant) -> u64 {
    now.nanos_since(since) / 1_000
}

impl ClockBounds {
    /// Nothing is known but what set-up has told.
    pub(super) const fn new(hint: ZTime) -> Self {
        Self { hint, lower: None, upper: None }
    }

    /// Whether anything was heard of Z.
    pub(super) const fn is_known(&self) -> bool {
        self.lower.is_some()
    }

    /// The least that Z's clock shows now; `None` if nothing was heard of Z.
    pub(super) fn lower(&self, now: Instant) -> Option<ZTime> {
        let (time, at) = self.lower?;
        let elapsed = micros(now, at);
        Some(ZTime(time.0.saturating_add(elapsed - elapsed.div_ceil(DRIFT))))
    }

    /// The most that Z's clock shows now; `None` if nothing of ours was answered.
    pub(super) fn upper(&self, now: Instant) -> Option<ZTime> {
        let (time, at) = self.upper?;
        let elapsed = micros(now, at) + 1;
        Some(ZTime(time.0.saturating_add(elapsed + elapsed.div_ceil(DRIFT))))
    }

    /// Whether Z may have shown `time` in the last `micros`: what was sealed then is no old
    /// recording.
    pub(super) fn is_within(&self, time: ZTime, micros: u64, now: Instant) -> bool {
        self.lower(now).is_none_or(|lower| time.0.saturating_add(micros) >= lower.0)
    }

    /// The whole time of which `low` travelled, in a frame that came now.
    pub(super) fn widen(&self, low: Time32, now: Instant) -> ZTime {
        low.widen(self.lower(now).unwrap_or(self.hint))
    }

    /// Takes set-up's hint for Z's time until a first frame is heard.
    pub(super) fn is_told(&mut self, now: Instant) {
        self.heard(self.hint, now);
    }

    /// A frame came that was sealed when Z's clock showed `time`.
    pub(super) fn heard(&mut self, time: ZTime, now: Instant) {
        if self.lower(now).is_none_or(|lower| time > lower) {
            self.lower = Some((time, now));
        }
    }

    /// A frame came that was sealed when Z's clock showed `time`, and answers one that was sent at
    /// `sent_at`.
    pub(super) fn answered(&mut self, time: ZTime, sent_at: Instant, now: Instant) {
        let closer = Self { upper: Some((time, sent_at)), ..*self };
        if self.upper(now).is_none_or(|upper| closer.upper(now) < Some(upper)) {
            self.upper = closer.upper;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_clock_is_between_its_bounds_whatever_the_drift_and_the_delays(
            start in 0_u64..1 << 40,
            drift in -1000_i64..=1000,
            steps in prop::collection::vec((1_u64..50_000, 0_u64..20_000, any::<bool>()), 1..50),
        ) {
            // Z's clock runs by up to a 1100th wrong.
            let z_at = |nanos: u64| {
                let wrong = i128::from(nanos) * i128::from(drift) / 1_100_000;
                ZTime(start + ((i128::from(nanos) + wrong) / 1_000) as u64)
            };
            let mut bounds = ClockBounds::new(ZTime(start));
            let (mut nanos, mut last_lower) = (0_u64, None);
            for (wait, delay, answers) in steps {
                let sent = nanos + wait * 1_000;
                let sealed = sent + delay * 500;
                let came = sealed + delay * 500;
                let (sent_at, now) = (Instant::from_nanos(sent), Instant::from_nanos(came));
                prop_assert_eq!(bounds.widen(z_at(sealed).low(), now), z_at(sealed));
                bounds.heard(z_at(sealed), now);
                if answers {
                    bounds.answered(z_at(sealed), sent_at, now);
                }
                let (lower, upper) = (bounds.lower(now), bounds.upper(now));
                prop_assert!(lower.unwrap() <= z_at(came), "{:?} {:?}", lower, z_at(came));
                prop_assert!(upper.is_none_or(|upper| upper >= z_at(came)), "{:?}", upper);
                prop_assert!(lower >= last_lower, "never goes back");
                last_lower = lower;
                nanos = came;
            }
        }
    }

    #[test]
    fn nothing_is_known_before_the_first_frame() {
        let bounds = ClockBounds::new(ZTime(7));
        assert_eq!((bounds.lower(Instant::ZERO), bounds.upper(Instant::ZERO)), (None, None));
    }
}
