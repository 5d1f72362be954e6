//! A filter of the stateful side's one-sided WRITEs that have landed lately (ours; section 3.5 of
//! `docs/STAR-WIRE.md`). The paper has no answer to a WRITE that comes twice.
//!
//! Data of a work request of this host is kept from landing late by the request's guard word. A
//! WRITE of the stateful side has no such request. So each of its frames says when it expires, and
//! this filter remembers those that have not expired: a second copy is refused. It has a fixed
//! size, by how many such frames an engine can take in the time for which they are valid, however
//! many connections they are of.
//!
//! What is remembered of a frame are 48 bits of its tag, which nobody can choose without its key,
//! and when it expires. Two lines of the table may have it, by a hash of the tag with a secret of
//! this host: who has a key can choose among tags, but cannot know which of them share lines.
//!
//! Invariant: of all frames with one tag [`ReplayFilter::admit`] says [`Admitted::Fresh`] at most
//! once before they expire.

use rma_core::fair_queue::BucketSecret;

use crate::limits::VALID_MICROS_MAX;

/// Entries of one line: 64 octets.
const WAYS: usize = 8;

/// An expiry is remembered in units of 2^6 microseconds, rounded up: 16 bits of them are 4.2 s,
/// which is far more than frames are valid.
const UNIT_BITS: u32 = 6;

/// Lines of a table.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Bucket([u64; WAYS]);

/// The verdict of the filter on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// It is the first of its tag, and is remembered.
    Fresh,
    /// One with this tag was admitted before.
    Again,
    /// It may be the first, and there is no room to remember it.
    Full,
}

/// The filter.
#[derive(Debug)]
pub(crate) struct ReplayFilter {
    buckets: Box<[Bucket]>,
    /// For how many units an entry is live at most. What seems to be for longer is a remnant of a
    /// time that has gone round.
    live_max: u16,
    secret: BucketSecret,
}

/// An entry: 48 bits of a tag, and when it expires. No tag and no time together are 0, as an
/// expiry of 0 is written as 1.
const fn entry(tag: u64, expiry: u16) -> u64 {
    tag << 16 | (if expiry == 0 { 1 } else { expiry }) as u64
}

/// In the units that are remembered.
const fn units(micros: u64) -> u16 {
    (micros >> UNIT_BITS) as u16
}

impl ReplayFilter {
    /// A filter for frames that expire within `valid_micros`, at most
    /// [`VALID_MICROS_MAX`], with so many entries, rounded up to a power of two, at
    /// least 16. Should be four times as many as frames can come while one is valid: then hardly
    /// any finds no room.
    #[must_use]
    pub(crate) fn new(entries: usize, valid_micros: u64, secret: BucketSecret) -> Self {
        // One more if the expiry is no whole number of units from now, two that entries add, and
        // one that an expiry of 0 does.
        let live_max = units(valid_micros.min(VALID_MICROS_MAX)) + 4;
        let buckets = entries.div_ceil(WAYS).next_power_of_two().max(2);
        Self { buckets: vec![Bucket([0; WAYS]); buckets].into_boxed_slice(), live_max, secret }
    }

    /// Bytes that the table takes.
    #[must_use]
    pub(crate) const fn memory(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    /// The two lines that a tag may be in.
    fn lines(&self, tag: &[u8; 16]) -> [usize; 2] {
        let (high, low) = halves(tag);
        let hash = self.secret.hash(high ^ self.secret.hash(low));
        let mask = self.buckets.len() - 1;
        let first = hash as usize & mask;
        // Another one than the first, whatever the hash is.
        let second = (first + 1 + (hash >> 32) as usize % mask) & mask;
        [first, second]
    }

    /// A frame with this tag, which was found right, expires at `expiry` and comes at `now`, both
    /// in microseconds of this host's clock. It has not expired, and does so within the time that
    /// the filter was made for.
    pub(crate) fn admit(&mut self, tag: &[u8; 16], expiry: u64, now: u64) -> Admitted {
        let (high, _) = halves(tag);
        let (name, now) = (high >> 16, units(now));
        // A unit more than it is valid, so that none is forgotten too soon.
        let new = entry(name, units(expiry).wrapping_add(2));
        let live_max = self.live_max;
        let is_live = |it: u64| it != 0 && (1..=live_max).contains(&(it as u16).wrapping_sub(now));
        let lines = self.lines(tag);
        let mut room = None;
        for line in lines {
            let ways = &self.buckets[line].0;
            if ways.iter().any(|&it| it >> 16 == name && is_live(it)) {
                return Admitted::Again;
            }
            let free = ways.iter().filter(|&&it| !is_live(it)).count();
            if free > 0 && room.is_none_or(|(_, most)| free > most) {
                room = Some((line, free));
            }
        }
        let Some((line, _)) = room else { return Admitted::Full };
        if let Some(way) = self.buckets[line].0.iter_mut().find(|it| !is_live(**it)) {
            *way = new;
        }
        Admitted::Fresh
    }
}

/// Both halves of a tag.
fn halves(tag: &[u8; 16]) -> (u64, u64) {
    let bits = u128::from_be_bytes(*tag);
    ((bits >> 64) as u64, bits as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filter(entries: usize) -> ReplayFilter {
        ReplayFilter::new(entries, 16_000, BucketSecret::from_bytes([3; 16]))
    }

    /// As random as tags are.
    fn tag(number: u64) -> [u8; 16] {
        let hash = |salt| BucketSecret::from_bytes([salt; 16]).hash(number);
        (u128::from(hash(1)) << 64 | u128::from(hash(2))).to_be_bytes()
    }

    proptest! {
        /// Against a model that remembers everything.
        #[test]
        fn a_tag_is_fresh_once_before_it_expires(
            start in any::<u64>().prop_map(|it| it >> 8),
            steps in prop::collection::vec((0_u64..40, 0_u64..6_000), 1..400),
        ) {
            const VALID: u64 = 16_000;
            let mut filter = filter(1024);
            let mut seen = std::collections::HashMap::new();
            let mut now = start;
            for (number, pause) in steps {
                now += pause;
                // A copy has the expiry of the first; what has expired does not come here.
                let expiry = *seen.entry(number).or_insert((now + VALID, false));
                if expiry.0 <= now {
                    seen.insert(number, (now + VALID, false));
                    continue;
                }
                let expected = if expiry.1 { Admitted::Again } else { Admitted::Fresh };
                let tag = tag(number ^ expiry.0 << 8);
                prop_assert_eq!(filter.admit(&tag, expiry.0, now), expected);
                seen.insert(number, (expiry.0, true));
            }
        }
    }

    #[test]
    fn a_quarter_full_table_finds_room_and_a_full_one_says_so() {
        let mut filter = filter(1 << 12);
        let admit = |filter: &mut ReplayFilter, numbers: core::ops::Range<u64>| {
            let all: Vec<_> = numbers.map(|it| filter.admit(&tag(it), 10_000, 1)).collect();
            [Admitted::Fresh, Admitted::Again, Admitted::Full]
                .map(|kind| all.iter().filter(|&&it| it == kind).count())
        };
        assert_eq!(admit(&mut filter, 0..1024), [1024, 0, 0]);
        assert_eq!(admit(&mut filter, 0..1024), [0, 1024, 0]);
        let [fresh, again, full] = admit(&mut filter, 1024..20_000);
        assert_eq!((again, fresh + full), (0, 20_000 - 1024));
        assert!(fresh <= (1 << 12) - 1024 && full > 0, "{fresh} fresh, {full} without room");
        // All have expired.
        assert_eq!(filter.admit(&tag(1), 30_000, 20_000), Admitted::Fresh);
    }

    #[test]
    fn long_expired_frames_take_no_room() {
        let mut filter = filter(16);
        for number in 0..16 {
            filter.admit(&tag(number), 16_000, 0);
        }
        // At any time of the round but when the old ones seem to be to come.
        for now in (100_000..4_100_000).step_by(12_345) {
            let fresh = filter.admit(&tag(now), now + 16_000, now);
            assert_eq!(fresh, Admitted::Fresh, "at {now}");
        }
    }

    /// However long frames are valid, and wherever in a unit they come.
    #[test]
    fn a_second_copy_is_found_at_each_time_of_the_round() {
        let round = 1_u64 << (16 + UNIT_BITS);
        for valid in [1, 63, 64, 65, 16_000, 16_001, 16_063, VALID_MICROS_MAX] {
            let mut filter = ReplayFilter::new(1 << 12, valid, BucketSecret::from_bytes([3; 16]));
            for expiry in round - 300..round + 200 {
                let now = expiry - valid;
                let name = tag(expiry);
                assert_eq!(filter.admit(&name, expiry, now), Admitted::Fresh, "{valid} {expiry}");
                for then in [now, expiry - 1] {
                    let again = filter.admit(&name, expiry, then);
                    assert_eq!(again, Admitted::Again, "{valid} {expiry} {then}");
                }
            }
        }
    }

    #[test]
    fn times_may_go_round() {
        let mut filter = filter(16);
        let round = 1_u64 << (16 + UNIT_BITS);
        for now in [round - 100, 5 * round - 1, 7 * round, 9 * round + 63] {
            assert_eq!(filter.admit(&tag(now), now + 16_000, now), Admitted::Fresh, "{now}");
            assert_eq!(
                filter.admit(&tag(now), now + 16_000, now + 15_999),
                Admitted::Again,
                "{now}"
            );
        }
    }
}
