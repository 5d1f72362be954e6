//! When the next op of a load may be issued.
//!
//! A *closed* loop issues an op as soon as fewer than its depth are under way: the server's speed
//! decides how many there are. An *open* loop issues an op when it is due, whatever became of those
//! before: arrivals are drawn beforehand, so an op that cannot be issued in time stays due, and the
//! time that it waits counts in its response.

use core::time::Duration;

use rand::{Rng, SeedableRng, rngs::SmallRng};
use rma_core::time::Instant;

/// The distances between arrivals of an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Arrivals {
    /// By chance, independently of each other: exponential gaps.
    Poisson,
    /// At equal distances.
    Even,
}

impl Arrivals {
    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Poisson => "poisson",
            Self::Even => "even",
        }
    }
}

const NANOS_PER_SECOND: f64 = 1e9;
const UNIT_BITS: u32 = 32;
const UNITS_PER_NANO: f64 = (1_u64 << UNIT_BITS) as f64;
const HALF: u128 = 1 << (UNIT_BITS - 1);

/// When ops may be issued.
#[derive(Debug)]
pub(crate) enum Schedule {
    /// At once.
    Closed,
    /// When they are due.
    Open(Box<Due>),
}

/// The times at which the ops of an open loop are due.
#[derive(Debug)]
pub(crate) struct Due {
    arrivals: Arrivals,
    random: SmallRng,
    /// The mean gap, and the sum of those so far, in 2^-32 of a nanosecond: so no rate is rounded.
    mean: f64,
    /// The first gap of even ones as a part of the others: threads take turns.
    first: f64,
    sum: u128,
    start: Instant,
    next: Instant,
}

impl Schedule {
    /// An open loop of `per_second` ops, which is above 0. Equal seeds have equal arrivals.
    pub(crate) fn open(arrivals: Arrivals, per_second: f64, seed: u64) -> Self {
        let random = SmallRng::seed_from_u64(seed);
        let (start, next) = (Instant::ZERO, Instant::ZERO);
        let mean = NANOS_PER_SECOND / per_second * UNITS_PER_NANO;
        let (first, sum) = (1.0, 0);
        Self::Open(Box::new(Due { arrivals, random, mean, first, sum, start, next }))
    }

    /// Open loops of several threads, which together have so many ops a second: arrivals by chance
    /// are so as well together, and even ones even.
    pub(crate) fn open_of(
        threads: u32,
        arrivals: Arrivals,
        per_second: f64,
        seed: u64,
    ) -> Vec<Self> {
        let of = |thread: u32| {
            let seed = seed ^ u64::from(thread).rotate_right(16);
            let mut schedule = Self::open(arrivals, per_second / f64::from(threads), seed);
            if let Self::Open(due) = &mut schedule {
                due.first = f64::from(thread + 1) / f64::from(threads);
            }
            schedule
        };
        (0..threads).map(of).collect()
    }

    /// Closed loops of several threads.
    pub(crate) fn closed_of(threads: u32) -> Vec<Self> {
        (0..threads).map(|_| Self::Closed).collect()
    }

    /// Whether ops are due at times of their own.
    pub(crate) const fn is_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }

    /// Begins at `now`.
    pub(crate) fn start(&mut self, now: Instant) {
        if let Self::Open(due) = self {
            (due.start, due.sum) = (now, 0);
            due.draw();
        }
    }

    /// Takes an op that may be issued at `now`, if there is one: returns when it was due.
    #[inline]
    pub(crate) fn take(&mut self, now: Instant) -> Option<Instant> {
        match self {
            Self::Closed => Some(now),
            Self::Open(due) => {
                let at = due.next;
                (at <= now).then(|| {
                    due.draw();
                    at
                })
            }
        }
    }
}

impl Due {
    fn draw(&mut self) {
        let gap = match self.arrivals {
            Arrivals::Even if self.sum == 0 => self.mean * self.first,
            Arrivals::Even => self.mean,
            Arrivals::Poisson => -(1.0 - self.random.random::<f64>()).ln() * self.mean,
        };
        self.sum = self.sum.saturating_add(gap as u128);
        let nanos = self.sum.saturating_add(HALF) >> UNIT_BITS;
        // In 500 years, if ever.
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        self.next = self.start + Duration::from_nanos(nanos);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that are due until `end`, from a start at 5 s.
    fn due(mut schedule: Schedule, end: Duration) -> Vec<Duration> {
        let start = Instant::from_nanos(5_000_000_000);
        schedule.start(start);
        std::iter::from_fn(|| schedule.take(start + end)).map(|it| it.since(start)).collect()
    }

    #[test]
    fn even_arrivals_are_exact_multiples_whatever_the_rate() {
        let found = due(Schedule::open(Arrivals::Even, 300_000.0, 1), Duration::from_secs(1));
        assert_eq!(found.len(), 300_000);
        assert_eq!(found[2], Duration::from_micros(10));
        assert_eq!(found[299_999], Duration::from_secs(1));
    }

    #[test]
    fn arrivals_by_chance_have_their_rate_and_no_memory_and_follow_from_the_seed() {
        let of =
            |seed| due(Schedule::open(Arrivals::Poisson, 100_000.0, seed), Duration::from_secs(1));
        let found = of(7);
        assert!((99_000..101_000).contains(&found.len()), "{}", found.len());
        let longer = |than| found.windows(2).filter(|it| it[1] - it[0] > than).count() as f64;
        // e^-1 and e^-3 of them.
        let share = longer(Duration::from_micros(10)) / found.len() as f64;
        assert!((share - 0.368).abs() < 0.01, "{share}");
        let share = longer(Duration::from_micros(30)) / found.len() as f64;
        assert!((share - 0.0498).abs() < 0.005, "{share}");
        assert_eq!(found, of(7));
        assert_ne!(found, of(8));
    }

    #[test]
    fn arrivals_of_several_threads_are_together_as_many_and_as_even_as_of_one() {
        let all = |arrivals| {
            let of = Schedule::open_of(3, arrivals, 30_000.0, 7).into_iter();
            let mut all: Vec<_> = of.flat_map(|it| due(it, Duration::from_secs(1))).collect();
            all.sort_unstable();
            all
        };
        let one = due(Schedule::open(Arrivals::Even, 30_000.0, 7), Duration::from_secs(1));
        let apart = |(a, b): (&Duration, &Duration)| a.abs_diff(*b) <= Duration::from_nanos(1);
        let even = all(Arrivals::Even);
        assert!(even.len() == one.len() && even.iter().zip(&one).all(apart));
        let by_chance = all(Arrivals::Poisson);
        assert!((29_300..30_700).contains(&by_chance.len()), "{}", by_chance.len());
        let same = by_chance.windows(2).filter(|it| it[0] == it[1]).count();
        assert!(same < 10, "threads draw the same: {same}");
    }

    #[test]
    fn an_op_that_is_due_stays_due_until_it_is_taken() {
        let mut schedule = Schedule::open(Arrivals::Even, 1000.0, 1);
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        schedule.start(at(0));
        assert_eq!(schedule.take(at(0)), None);
        assert_eq!(schedule.take(at(40)), Some(at(1)));
        assert_eq!(schedule.take(at(40)), Some(at(2)));
    }
}
