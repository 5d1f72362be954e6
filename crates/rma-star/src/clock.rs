//! Z's clock, as frames tell it (ours).
//!
//! Frames to Z say when they expire, frames from Z what its clock was when they were sealed: in
//! microseconds, of which 32 bits travel. Both sides take the time of 64 bits that is nearest to
//! what they expect, and that is what the tag covers: so a frame that comes again when the 32 bits
//! have gone round, after 71 minutes, is not authentic (as with the extended sequence numbers of
//! IPsec).

/// A reading of Z's clock, or a time that it will show: microseconds since an epoch that is Z's
/// own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZTime(pub u64);

impl ZTime {
    /// Returns the half that frames carry: the low half.
    #[must_use]
    pub const fn low(self) -> Time32 {
        Time32(self.0 as u32)
    }

    /// Returns the half that frames do not carry: the high half. Frames are authenticated with it.
    #[must_use]
    pub const fn high(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The low half of a time of Z's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Time32(pub u32);

impl Time32 {
    /// The time with this low half that is nearest to `near`; of two that are as near, the earlier.
    /// Times are not below 0 and not above what 64 bits hold: beyond those it is the nearest that
    /// there is.
    //= star#ours-time-of-64-bits
    #[must_use]
    pub const fn widen(self, near: ZTime) -> ZTime {
        const AROUND: u64 = 1 << 32;
        let ahead = self.0.wrapping_sub(near.low().0).cast_signed() as i64;
        let time = match near.0.checked_add_signed(ahead) {
            Some(time) => time,
            None => near.0.wrapping_add_signed(ahead).wrapping_add_signed(if ahead < 0 {
                AROUND.cast_signed()
            } else {
                -AROUND.cast_signed()
            }),
        };
        ZTime(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HALF: u64 = 1 << 31;

    /// Times near where 32 bits go round, where 64 bits end, and anywhere.
    fn times() -> impl Strategy<Value = u64> {
        let edges = prop_oneof![Just(0), Just(HALF), Just(1 << 32), Just(7 << 32), Just(u64::MAX)];
        let near_edges = (edges, -1000_i64..1000);
        prop_oneof![near_edges.prop_map(|(edge, by)| edge.saturating_add_signed(by)), any::<u64>()]
    }

    proptest! {
        //= star#ours-time-of-64-bits
        //= type=test
        #[test]
        fn a_time_is_found_again_if_it_is_within_35_minutes_of_what_is_expected(
            time in times(),
            off in prop_oneof![1 - HALF.cast_signed()..=HALF.cast_signed(), -3_i64..=3],
        ) {
            if let Some(near) = time.checked_add_signed(off) {
                prop_assert_eq!(ZTime(time).low().widen(ZTime(near)), ZTime(time));
            }
        }

        #[test]
        fn the_found_time_has_that_low_half_and_none_is_nearer(low: u32, near in times()) {
            let found = Time32(low).widen(ZTime(near));
            prop_assert_eq!(found.low(), Time32(low));
            let off = found.0.abs_diff(near);
            for other in [found.0.checked_sub(1 << 32), found.0.checked_add(1 << 32)] {
                prop_assert!(other.is_none_or(|other| other.abs_diff(near) >= off));
            }
        }

        #[test]
        fn a_time_of_71_minutes_ago_is_never_found(time in 1_u64 << 33..1 << 63, off in -1000_i64..1000) {
            let now = (time + (1 << 32)).saturating_add_signed(off);
            prop_assert_ne!(ZTime(time).low().widen(ZTime(now)), ZTime(time));
        }
    }
}
