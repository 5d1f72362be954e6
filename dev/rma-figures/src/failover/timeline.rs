//! The results of the tasks, and the figures that follow.

use core::{fmt, ops::Range, time::Duration};

/// The length of a tick: ops that end in one tick are counted together.
pub(super) const TICK: Duration = Duration::from_millis(10);

/// Ticks in a row of the timeline, and in a rate.
const ROW: usize = 10;

/// A rate of at least this part of that before is the full one.
const FULL: f64 = 0.9;

/// The ops that ended in one tick.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tick {
    /// Lookups of keys that both servers have, that were OK.
    pub lookups: u64,
    /// Calls to each server that ended in this tick and were OK.
    pub ok: [u64; 2],
    /// Calls to each server that ended in this tick and were not OK.
    pub failed: [u64; 2],
    /// The longest call to each server that ended.
    pub calls: [Duration; 2],
    /// The longest lookup that ended, at one server or both.
    pub lookup: Duration,
    /// The longest part after the first server's death of a call to it that ended.
    pub wait: Duration,
}

/// When what happened, since the tasks began.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// From when on it counts.
    pub from: Duration,
    /// The first server was killed.
    pub killed: Duration,
    /// It was started again.
    pub started: Duration,
    /// Its new grant was handed over.
    pub returned: Duration,
    /// When the run ended.
    pub ended: Duration,
}

/// A run: what became of the tasks' calls, tick by tick, through a kill and a return.
#[derive(Clone, Debug)]
pub struct Failover {
    /// The NICs' timeout.
    pub timeout: Duration,
    /// The times of the events.
    pub times: Times,
    /// The ops that ended in each 10 ms.
    pub ticks: Vec<Tick>,
}

const fn tick_of(at: Duration) -> usize {
    (at.as_nanos() / TICK.as_nanos()) as usize
}

impl Failover {
    /// In a second.
    fn rate(&self, ticks: Range<usize>, what: impl Fn(&Tick) -> u64) -> f64 {
        let span = ticks.len().max(1) as f64 * TICK.as_secs_f64();
        let there = ticks.start.min(self.ticks.len())..ticks.end.min(self.ticks.len());
        self.ticks[there].iter().map(what).sum::<u64>() as f64 / span
    }

    fn before(&self) -> Range<usize> {
        tick_of(self.times.from)..tick_of(self.times.killed)
    }

    /// Lookups a second before the server was killed, and from three timeouts after it until it is
    /// started again.
    #[must_use]
    pub fn lookups(&self) -> (f64, f64) {
        let after = tick_of(self.times.killed + 3 * self.timeout) + 1;
        let lookups = |tick: &Tick| tick.lookups;
        let after = self.rate(after..tick_of(self.times.started), lookups);
        (self.rate(self.before(), lookups), after)
    }

    fn longest(&self, from: Duration, to: Duration, what: impl Fn(&Tick) -> Duration) -> Duration {
        self.ticks[tick_of(from)..tick_of(to)].iter().map(what).max().unwrap_or_default()
    }

    /// The longest that a call waited for the killed server after its death, if it ended before the
    /// server's return. That it had waited for its turn before is no matter of the death.
    #[must_use]
    pub fn longest_wait(&self) -> Duration {
        self.longest(self.times.killed, self.times.returned, |tick| tick.wait)
    }

    /// The longest call to the killed server that ended from its death to its return, counted from
    /// when it began.
    #[must_use]
    pub fn longest_call(&self) -> Duration {
        self.longest(self.times.killed, self.times.returned, |tick| tick.calls[0])
    }

    /// The longest lookup before the server was killed, and from then to its return.
    #[must_use]
    pub fn longest_lookups(&self) -> (Duration, Duration) {
        let Times { from, killed, returned, .. } = self.times;
        let lookup = |tick: &Tick| tick.lookup;
        (self.longest(from, killed, lookup), self.longest(killed, returned, lookup))
    }

    /// How long after its return there was a tenth of a second in which the server served nine
    /// tenths of what it had served before, and as many lookups were OK as well; `None` if there
    /// was none.
    #[must_use]
    pub fn recovery(&self) -> Option<Duration> {
        let (lookups, served) = (|tick: &Tick| tick.lookups, |tick: &Tick| tick.ok[0]);
        let is_full = |&from: &usize| {
            let full = |what: fn(&Tick) -> u64| {
                self.rate(from..from + ROW, what) >= FULL * self.rate(self.before(), what)
            };
            full(lookups) && full(served)
        };
        let from = (tick_of(self.times.returned)..self.ticks.len() - ROW).find(is_full)?;
        Some((TICK * from as u32).saturating_sub(self.times.returned))
    }
}

impl fmt::Display for Failover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Times { from, killed, started, returned, ended } = self.times;
        let head = ["ms", "lookups/s", "first/s", "second/s", "failed/s", "longest ms"];
        let [at, lookups, first, second, failed, longest] = head;
        writeln!(f, "  {at:>6} {lookups:>10} {first:>10} {second:>10} {failed:>10} {longest:>10}")?;
        for row in tick_of(from) / ROW..tick_of(ended) / ROW {
            let ticks = row * ROW..(row + 1) * ROW;
            let longest =
                self.longest(TICK * ticks.start as u32, TICK * ticks.end as u32, |tick| {
                    tick.lookup.max(tick.calls[0]).max(tick.calls[1])
                });
            let of = |what: fn(&Tick) -> u64| self.rate(ticks.clone(), what);
            write!(
                f,
                "  {:>6} {:>10.0} {:>10.0} {:>10.0} {:>10.0} {:>10.1}",
                (TICK * ROW as u32 * row as u32).as_millis(),
                of(|tick| tick.lookups),
                of(|tick| tick.ok[0]),
                of(|tick| tick.ok[1]),
                of(|tick| tick.failed[0] + tick.failed[1]),
                longest.as_secs_f64() * 1e3
            )?;
            let what = [
                (killed, "the first server is killed"),
                (started, "it is started again"),
                (returned, "its new grant is handed over"),
            ];
            for (at, what) in what {
                if ticks.contains(&tick_of(at)) {
                    write!(f, "  {} ms: {what}", at.as_millis())?;
                }
            }
            writeln!(f)?;
        }
        let (before, after) = self.lookups();
        write!(
            f,
            "  lookups {before:.0}/s before, {after:.0}/s from three timeouts after the death on ({:.2}); longest wait \
             for the dead server {:.1} ms, longest call to it {:.1} ms, timeout {} ms; ",
            after / before,
            self.longest_wait().as_secs_f64() * 1e3,
            self.longest_call().as_secs_f64() * 1e3,
            self.timeout.as_millis()
        )?;
        match self.recovery() {
            Some(time) => write!(f, "full rate {} ms after the return", time.as_millis()),
            None => write!(f, "no full rate after the return"),
        }
    }
}
