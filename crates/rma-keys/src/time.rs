//! Two times, as the arguments of whoever decides: one that only goes forward, and the wall's.
//!
//! Lifetimes are counted by the first: CLOCK_BOOTTIME, as it goes on while a host is suspended.
//! Only a rule's `until` and a certificate's end are dates, and follow the wall clock; nothing else
//! moves when it is stepped.

use core::{fmt, time::Duration};

use rma_core::time::Instant;

/// The times that a decision depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Time since the host was booted: never stepped, counts suspension.
    pub boot: Instant,
    /// The date, as the host's wall clock says.
    pub wall: WallTime,
}

/// A date: milliseconds since 1970 in UTC, without leap seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(i64);

const DAY_MS: i64 = 86_400_000;

impl WallTime {
    /// The date `millis` milliseconds after the beginning of 1970.
    #[must_use]
    pub const fn from_unix_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the beginning of 1970; negative before it.
    #[must_use]
    pub const fn unix_millis(self) -> i64 {
        self.0
    }

    /// How long it is from here to `later`; zero if that is past.
    #[must_use]
    pub fn until(self, later: Self) -> Duration {
        let millis = later.0.saturating_sub(self.0);
        Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    }

    /// The date of a day and the milliseconds since its midnight. Months and days begin at 1, and
    /// are believed.
    #[must_use]
    pub(crate) const fn from_civil(year: u16, month: u8, day: u8, millis: i64) -> Self {
        // Years begin in March here, so that the day that some have more is their last.
        let year = year as i64 - (month <= 2) as i64;
        let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let month = (month as i64 + 9) % 12;
        let of_year = (153 * month + 2) / 5 + day as i64 - 1;
        let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
        Self(days * DAY_MS + millis)
    }
}

/// As RFC 3339 has it, in UTC, to the second.
impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, millis) = (self.0.div_euclid(DAY_MS) + 719_468, self.0.rem_euclid(DAY_MS));
        let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        let seconds = millis / 1000;
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_shown_as_they_are_known() {
        for (millis, shown) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_798_761_599_999, "2026-12-31T23:59:59Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(WallTime::from_unix_millis(millis).to_string(), shown);
        }
    }

    #[test]
    fn every_day_of_eight_centuries_is_read_as_it_is_shown() {
        for day in -120_000..180_000 {
            let date = WallTime::from_unix_millis(day * DAY_MS);
            let shown = date.to_string();
            let part = |range: core::ops::Range<usize>| shown[range].parse::<u16>().unwrap();
            let (month, day) = (part(5..7) as u8, part(8..10) as u8);
            assert_eq!(WallTime::from_civil(part(0..4), month, day, 0), date, "{shown}");
        }
    }

    #[test]
    fn the_time_to_a_date_that_is_past_is_zero() {
        let [early, late] = [i64::MIN, i64::MAX].map(WallTime::from_unix_millis);
        assert_eq!(late.until(early), Duration::ZERO);
        assert_eq!(early.until(late), Duration::from_millis(i64::MAX as u64));
    }
}
