//! The choice of keys to get and put, their times and their values: all of it follows from a seed.
//!
//! An open loop: ops come when they come (Poisson), whether those before are over or not, as users
//! do. Keys are drawn by Zipf's law. A value follows from its key and version, so whoever gets one
//! knows every octet that it has to have.

use core::time::Duration;

use rand::{Rng, SeedableRng, rngs::StdRng};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::layout::VALUE_LEN_MAX;

/// The shortest value in octets.
pub const VALUE_LEN_MIN: usize = 64;

/// The mix of requests to a cache.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Mix {
    /// How many keys there are.
    pub keys: u64,
    /// Ops a second, on average.
    pub rate: f64,
    /// The part of them that gets.
    pub gets: f64,
    /// By which power a key is drawn less often than those before it; not 1.
    pub skew: f64,
}

impl Default for Mix {
    /// The common mix of caches: few keys are asked for most, and 95 % of all gets.
    fn default() -> Self {
        Self { keys: 4000, rate: 1000.0, gets: 0.95, skew: 0.99 }
    }
}

/// One op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A get of the key with this number.
    Get(u64),
    /// A put to it.
    Put(u64),
}

/// Ops without end.
#[derive(Debug)]
pub struct Workload {
    mix: Mix,
    random: StdRng,
    /// Sums of Zipf's law over one and two keys and over all of them.
    zeta: (f64, f64),
}

impl Workload {
    /// The ops that follow from `seed`.
    pub fn new(mix: Mix, seed: u64) -> Self {
        let power = |it: u64| (it as f64).powf(-mix.skew);
        let zeta = (1.0 + power(2), (1..=mix.keys).map(power).sum());
        Self { mix, random: StdRng::seed_from_u64(seed), zeta }
    }

    /// How long after the one before the next op comes, and what it is.
    pub fn draw(&mut self) -> (Duration, Op) {
        let wait = -(1.0 - self.random.random::<f64>()).ln() / self.mix.rate;
        let key = self.key();
        let is_get = self.random.random::<f64>() < self.mix.gets;
        (Duration::from_secs_f64(wait), if is_get { Op::Get(key) } else { Op::Put(key) })
    }

    /// A key by Zipf's law, nearly: as J. Gray and others draw it (SIGMOD 1994).
    fn key(&mut self) -> u64 {
        let (keys, skew, (of_two, of_all)) = (self.mix.keys as f64, self.mix.skew, self.zeta);
        let at: f64 = self.random.random();
        if at * of_all < 1.0 {
            return 0;
        }
        if at * of_all < of_two {
            return 1.min(self.mix.keys - 1);
        }
        let eta = (1.0 - (2.0 / keys).powf(1.0 - skew)) / (1.0 - of_two / of_all);
        let rank = keys * (eta * at - eta + 1.0).powf(1.0 / (1.0 - skew));
        (rank as u64).min(self.mix.keys - 1)
    }
}

/// The octets of key number `key`.
#[must_use]
pub fn key(key: u64) -> Vec<u8> {
    format!("key {key}").into_bytes()
}

/// The value that version `version` of a key has. Lengths are spread evenly over powers of two.
#[must_use]
pub fn value(key: u64, version: u64) -> Vec<u8> {
    let word = |i: u64| xxh3_64_with_seed(&[key, version, i].map(u64::to_le_bytes).concat(), 0);
    let part = (word(u64::MAX) >> 11) as f64 / (1_u64 << 53) as f64;
    let times = (VALUE_LEN_MAX / VALUE_LEN_MIN) as f64;
    let len = (VALUE_LEN_MIN as f64 * times.powf(part)) as usize;
    // A step of xorshift for each word: hashing all of them would be most of what a load does.
    let mut state = word(0) | 1;
    let mut octets = Vec::with_capacity(len + 8);
    while octets.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        octets.extend(state.to_le_bytes());
    }
    octets.truncate(len);
    octets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_by_zipfs_law_and_ops_at_their_rate() {
        let mix = Mix { keys: 1000, ..Mix::default() };
        let (draws, mut seen, mut time, mut gets) = (200_000, [0_u32; 1000], 0.0, 0);
        let mut load = Workload::new(mix, 1);
        for _ in 0..draws {
            let (wait, op) = load.draw();
            time += wait.as_secs_f64();
            gets += u32::from(matches!(op, Op::Get(_)));
            let (Op::Get(key) | Op::Put(key)) = op;
            seen[key as usize] += 1;
        }
        let all: f64 = (1..=1000_u32).map(|it| f64::from(it).powf(-0.99)).sum();
        let expected = f64::from(draws) / all;
        for (at, tolerance) in [(0, 0.03), (1, 0.03), (9, 0.15), (99, 0.25)] {
            let of = expected * f64::from(at as u32 + 1).powf(-0.99);
            let off = (f64::from(seen[at]) - of).abs() / of;
            assert!(off < tolerance, "key {at} was drawn {} times, not {of:.0}", seen[at]);
        }
        assert!((time - f64::from(draws) / mix.rate).abs() < 2.0, "{time} s");
        assert!((f64::from(gets) / f64::from(draws) - 0.95).abs() < 0.01, "{gets} gets");
    }

    #[test]
    fn values_have_all_lengths_and_differ_by_key_and_version() {
        let lens: Vec<usize> = (0..500).map(|it| value(it, 1).len()).collect();
        assert!(lens.iter().all(|it| (VALUE_LEN_MIN..=VALUE_LEN_MAX).contains(it)));
        let short = lens.iter().filter(|&&it| it < 2048).count();
        assert!((200..300).contains(&short), "{short} of 500 are below the middle");
        assert_ne!(value(1, 1)[..8], value(1, 2)[..8]);
        assert_ne!(value(1, 1)[..8], value(2, 1)[..8]);
        assert_eq!(value(3, 4), value(3, 4));
    }
}
