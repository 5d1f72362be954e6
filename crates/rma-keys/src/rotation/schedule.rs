//! How long epochs last, and how long before its turn a key is announced. Pure arithmetic: it knows
//! neither the region nor its keys.
//!
//! Invariant: a key that is announced at some moment has its whole epoch behind it no later than
//! the region's shortest lifetime after that moment. So it is never good for longer than the rule
//! that gave it says.

use core::time::Duration;

use crate::{
    jitter::Jitter,
    limits::{EPOCH_MIN, LEAD_MIN, LIFETIME_MAX},
};

/// How often a region's key changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    period: Duration,
}

impl Schedule {
    /// A new key every `period`, a tenth more or less, so that regions do not all change together.
    /// More often where the policy gives shorter lifetimes, and at least once in 24 hours.
    #[must_use]
    pub fn every(period: Duration) -> Self {
        Self { period: period.clamp(EPOCH_MIN, LIFETIME_MAX) }
    }

    /// The time that it was made of, within its limits.
    #[must_use]
    pub const fn period(self) -> Duration {
        self.period
    }

    /// How long an epoch lasts of which a key may be given for `most`, with what announces the next
    /// one beforehand.
    pub(super) fn epoch(self, most: Duration, jitter: &mut Jitter) -> Duration {
        // Nine to eleven tenths.
        let period = self.period * 9 / 10 + jitter.part_of(self.period / 5);
        let room = with_lead_within(most);
        period.min(room - jitter.part_of(room / 10)).max(EPOCH_MIN)
    }

    /// How long before an epoch of this length ends the next key is announced: long enough for
    /// every client to come by in that time, without a key that waits for most of its life.
    pub(super) fn lead(epoch: Duration) -> Duration {
        LEAD_MIN.max(epoch / 10).min(epoch * 4 / 5)
    }
}

/// The longest epoch that ends, with its lead before it, within `most`.
fn with_lead_within(most: Duration) -> Duration {
    // One line for each of the three that the lead may be.
    let of_tenth = most * 10 / 11;
    let of_least = most.saturating_sub(LEAD_MIN);
    let of_most = most * 5 / 9;
    of_tenth.min(of_least).max(of_most)
}

impl Default for Schedule {
    /// Every hour.
    fn default() -> Self {
        Self::every(Duration::from_secs(60 * 60))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_epoch_and_its_lead_fit_into_what_a_key_may_be_given_for(
            period in 0_u64..200_000_000, most in 1_000_u64..86_400_000, seed: u64,
        ) {
            let (period, most) = (Duration::from_millis(period), Duration::from_millis(most));
            let epoch = Schedule::every(period).epoch(most, &mut Jitter(seed));
            let lead = Schedule::lead(epoch);
            prop_assert!(epoch + lead <= most, "{epoch:?} and {lead:?} of {most:?}");
            prop_assert!(lead <= epoch * 4 / 5);
            // Not far less than could be.
            let could = most.min(period.max(EPOCH_MIN));
            prop_assert!(epoch >= could * 45 / 100, "{epoch:?} of {could:?}");
        }
    }

    #[test]
    fn an_hour_is_an_hour_give_or_take_a_tenth_with_six_minutes_of_lead() {
        let mut jitter = Jitter(1);
        let day = LIFETIME_MAX;
        let mut epochs = (0..1_000).map(|_| Schedule::default().epoch(day, &mut jitter).as_secs());
        assert!(epochs.all(|it| (3_240..=3_960).contains(&it)));
        assert_eq!(Schedule::lead(Duration::from_secs(3_600)), Duration::from_secs(360));
        assert_eq!(Schedule::lead(Duration::from_secs(5)), LEAD_MIN);
        assert_eq!(Schedule::lead(Duration::from_secs(1)), Duration::from_millis(800));
    }
}
