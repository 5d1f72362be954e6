//! A seeded generator of numbers that look random: SplitMix64.
//!
//! Written here because a run must be a function of its seed for as long as this project lives, and
//! a library may change its streams. Not for keys that protect anything.

use core::time::Duration;

/// A chance in parts per million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chance(u32);

impl Chance {
    /// The chance of an event that never happens.
    pub const NEVER: Self = Self(0);

    /// `ppm` times in a million; a million and more is always.
    #[must_use]
    pub const fn ppm(ppm: u32) -> Self {
        Self(ppm)
    }

    /// Whether this is [`Chance::NEVER`].
    #[must_use]
    pub const fn is_never(self) -> bool {
        self.0 == 0
    }
}

impl core::fmt::Display for Chance {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{:04} %", self.0 / 10_000, self.0 % 10_000)
    }
}

/// A generator. Equal seeds give equal streams.
#[derive(Clone, Debug)]
pub struct Prng(u64);

/// The odd constant that SplitMix64 steps by.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Prng {
    /// The generator of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator for one part of a run, so that what this part draws does not shift what others
    /// draw. Draws nothing from `self`.
    #[must_use]
    pub const fn fork(&self, part: u64) -> Self {
        Self(mix(self.0 ^ mix(part.wrapping_add(STEP))))
    }

    /// 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below `bound`; 0 if `bound` is 0. Always one draw, whatever the bound; the bias of
    /// at most `bound` in 2^64 does not matter to a simulation.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below((high - low).saturating_add(1))
    }

    /// Whether something with this chance happens.
    pub const fn chance(&mut self, chance: Chance) -> bool {
        self.below(1_000_000) < chance.0 as u64
    }

    /// One of `choices`, which must not be empty.
    pub const fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// A number from 1 to `high` whose magnitude is as likely small as large.
    pub const fn magnitude(&mut self, high: u64) -> u64 {
        let bits = self.below(high.ilog2() as u64 + 1);
        let number = (1 << bits) + self.below(1 << bits);
        if number > high { high } else { number }
    }

    /// A duration drawn from the exponential distribution: the time to the next of events that come
    /// by chance, one in `mean` on average.
    ///
    /// By von Neumann's method, which only compares: a logarithm may differ between machines.
    pub const fn exponential(&mut self, mean: Duration) -> Duration {
        let mut whole: u128 = 0;
        loop {
            let first = self.next();
            let (mut last, mut descends) = (first, 1_u32);
            loop {
                let next = self.next();
                if next >= last {
                    break;
                }
                (last, descends) = (next, descends + 1);
            }
            if descends % 2 == 1 {
                let means = (whole << 64) + first as u128;
                let nanos = ((means >> 32) * mean.as_nanos()) >> 32;
                return Duration::from_nanos(nanos as u64);
            }
            whole += 1;
        }
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_that_of_splitmix64() {
        let mut prng = Prng::new(1_234_567);
        let stream: [u64; 5] = core::array::from_fn(|_| prng.next());
        assert_eq!(
            stream,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821,
            ]
        );
    }

    #[test]
    fn numbers_stay_within_their_bounds_and_reach_them() {
        let mut prng = Prng::new(1);
        let (mut least, mut most) = (u64::MAX, 0);
        for _ in 0..1000 {
            let number = prng.between(3, 9);
            (least, most) = (least.min(number), most.max(number));
            assert!((1..=100).contains(&prng.magnitude(100)));
            assert_eq!(prng.below(1), 0);
        }
        assert_eq!((least, most), (3, 9));
        assert_eq!(prng.below(0), 0);
    }

    #[test]
    fn chances_come_true_as_often_as_they_say() {
        let mut prng = Prng::new(2);
        let hits = (0..100_000).filter(|_| prng.chance(Chance::ppm(250_000))).count();
        assert!((24_000..26_000).contains(&hits), "{hits}");
        assert!((0..1000).all(|_| !prng.chance(Chance::NEVER)));
        assert!((0..1000).all(|_| prng.chance(Chance::ppm(1_000_000))));
    }

    #[test]
    fn exponential_times_have_their_mean_and_no_memory() {
        let (mut prng, mean) = (Prng::new(4), Duration::from_micros(100));
        let drawn: Vec<Duration> = (0..100_000).map(|_| prng.exponential(mean)).collect();
        let longer = |means| drawn.iter().filter(|&&it| it > mean * means).count();
        // e^-1, e^-2 and e^-3 of them.
        assert!((36_200..37_400).contains(&longer(1)), "{}", longer(1));
        assert!((13_200..13_900).contains(&longer(2)), "{}", longer(2));
        assert!((4_750..5_200).contains(&longer(3)), "{}", longer(3));
        let sum: Duration = drawn.iter().sum();
        assert!((99..=101).contains(&(sum / 100_000).as_micros()), "{sum:?}");
    }

    #[test]
    fn forks_differ_and_draw_nothing() {
        let prng = Prng::new(3);
        let (mut a, mut b, mut again) = (prng.fork(0), prng.fork(1), prng.fork(0));
        let first = a.next();
        assert_ne!(first, b.next());
        assert_eq!(first, again.next());
    }
}
