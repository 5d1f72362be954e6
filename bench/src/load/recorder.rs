//! The record of a load's loop: latencies for each op of the mix, how each ended, how late ops of
//! an open loop were issued, gaps of the core, and the time that the engine was busy.
//!
//! Not here: what is made of it ([`row`](super::row)). Nothing is allocated between
//! [`Recorder::begin`] and the last [`Recorder::end_round`].

use core::time::Duration;

use rma_core::time::Instant;
use rma_xdp::OpStatus;

use super::work::Ended;
use crate::{cpu::CpuTime, latency::Latencies};

/// Nanoseconds between two turns above which the thread did not run.
const GAP: u64 = 100_000;

/// Nanoseconds by which an op of an open loop may be issued late. A longer backlog is not worked
/// off any more, and the loop is saturated.
const LATE_MAX: u64 = 1_000_000_000;

/// The window of the best and the worst rate.
const WINDOW: Duration = Duration::from_millis(100);

/// An op that ended, when its end was seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) end: Ended,
    pub(crate) now: Instant,
}

/// The record of one kind of op.
#[derive(Debug)]
pub(crate) struct Kind {
    /// From when it was due.
    pub(crate) response: Latencies,
    /// From when it was issued, in an open loop.
    pub(crate) service: Latencies,
    /// Those of `response` that a gap of this core fell into.
    pub(crate) disturbed: Latencies,
    round: Latencies,
    of_round: Moved,
    /// Medians of the rounds, in microseconds.
    pub(crate) medians: Vec<f64>,
    /// Rates of the rounds.
    pub(crate) rates: Vec<Rate>,
    /// Bytes of payload that were moved.
    pub(crate) bytes: u64,
    /// Ops that were issued again, by an executor.
    pub(crate) retries: u64,
    /// By status.
    pub(crate) outcomes: [u64; OpStatus::ALL.len()],
}

/// Times at which the thread did not run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gaps {
    pub(crate) count: u64,
    /// In nanoseconds.
    pub(crate) longest: u64,
    /// The end of the last one.
    until: Instant,
}

/// The fewest and the most ops and bytes in a full window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Windows {
    pub(crate) worst: Option<Moved>,
    pub(crate) best: Option<Moved>,
    end: Instant,
    pub(crate) now: Moved,
}

/// Ops that were OK, and the bytes that they moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moved {
    pub(crate) ops: u64,
    pub(crate) bytes: u64,
}

impl Moved {
    /// The same in a second.
    pub(crate) fn per_second(self, elapsed: Duration) -> Rate {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let gbit_per_s = self.bytes as f64 * 8.0 / seconds / 1e9;
        Rate { ops_per_s: self.ops as f64 / seconds, gbit_per_s }
    }
}

/// Ops and payload in a second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    pub(crate) ops_per_s: f64,
    pub(crate) gbit_per_s: f64,
}

/// An interval, told while a row is measured.
#[derive(Clone, Debug)]
pub(crate) struct Interval {
    pub(crate) start: Instant,
    pub(crate) end: Instant,
    pub(crate) moved: Moved,
    pub(crate) latencies: Latencies,
    /// Ops that did not end with OK.
    pub(crate) not_ok: u64,
}

/// The record of some rounds.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) kinds: Box<[Kind]>,
    pub(crate) gaps: Gaps,
    /// The times by which ops of an open loop were issued late, of those that no gap fell into.
    pub(crate) lateness: Latencies,
    /// Nanoseconds by which the latest of all was late.
    pub(crate) latest: u64,
    pub(crate) windows: Windows,
    pub(crate) is_saturated: bool,
    /// Whether ops are due at times of their own: then their service is noted beside the response.
    pub(crate) is_open: bool,
    pub(crate) elapsed: Duration,
    /// All ops of a run that were OK, those before and after the measurement among them: a server
    /// counts these.
    pub(crate) all: Moved,
    /// Nanoseconds in which turns had something to do.
    pub(crate) busy: u64,
    pub(crate) cpu: CpuTime,
    start: Instant,
    round_start: Instant,
    last: Instant,
    cpu_at_start: CpuTime,
    /// The end of the last time at which the engine did not turn, if another thread turns it.
    pub(crate) engine_gap_until: Instant,
    /// The interval that is told next, if somebody wants to know.
    interval: Option<Interval>,
}

impl Kind {
    fn new(rounds: usize) -> Self {
        let new = Latencies::new;
        Self {
            response: new(),
            service: new(),
            disturbed: new(),
            round: new(),
            of_round: Moved::default(),
            medians: Vec::with_capacity(rounds),
            rates: Vec::with_capacity(rounds),
            bytes: 0,
            retries: 0,
            outcomes: [0; OpStatus::ALL.len()],
        }
    }

    fn forget(&mut self) {
        let all = [&mut self.response, &mut self.service, &mut self.disturbed, &mut self.round];
        all.into_iter().for_each(Latencies::clear);
        self.medians.clear();
        self.rates.clear();
        (self.of_round, self.bytes, self.retries) = (Moved::default(), 0, 0);
        self.outcomes = [0; OpStatus::ALL.len()];
    }

    fn end_round(&mut self, elapsed: Duration) {
        self.rates.push(core::mem::take(&mut self.of_round).per_second(elapsed));
        self.response.merge(&self.round);
        if self.round.count() > 0 {
            self.medians.push(self.round.quantile_us(0.5));
        }
        self.round.clear();
    }

    fn join(&mut self, part: Self) {
        self.response.merge(&part.response);
        self.service.merge(&part.service);
        self.disturbed.merge(&part.disturbed);
        self.bytes += part.bytes;
        self.retries += part.retries;
        self.outcomes.iter_mut().zip(part.outcomes).for_each(|(all, it)| *all += it);
        // Rounds are those of all threads, each with its share.
        let rounds = self.rates.len().max(part.rates.len());
        self.rates.resize(rounds, Rate::default());
        for (all, Rate { ops_per_s, gbit_per_s }) in self.rates.iter_mut().zip(part.rates) {
            all.ops_per_s += ops_per_s;
            all.gbit_per_s += gbit_per_s;
        }
    }

    /// Ops that were OK, and the bytes that they moved.
    pub(crate) const fn moved(&self) -> Moved {
        Moved { ops: self.outcomes[OpStatus::Ok as usize], bytes: self.bytes }
    }
}

impl Recorder {
    /// For so many kinds of op.
    pub(crate) fn new(kinds: usize, rounds: usize) -> Self {
        Self {
            kinds: (0..kinds).map(|_| Kind::new(rounds)).collect(),
            gaps: Gaps::default(),
            lateness: Latencies::new(),
            latest: 0,
            windows: Windows::default(),
            is_saturated: false,
            is_open: false,
            elapsed: Duration::ZERO,
            all: Moved::default(),
            busy: 0,
            cpu: CpuTime::default(),
            start: Instant::ZERO,
            round_start: Instant::ZERO,
            last: Instant::ZERO,
            cpu_at_start: CpuTime::default(),
            engine_gap_until: Instant::ZERO,
            interval: None,
        }
    }

    /// From now on it notes as well what is told each interval, unless it does already.
    pub(crate) fn note_intervals(&mut self, start: Instant) {
        self.interval.get_or_insert_with(|| Interval {
            start,
            end: start,
            moved: Moved::default(),
            latencies: Latencies::new(),
            not_ok: 0,
        });
    }

    /// Has what was seen in an interval told, if it is over.
    pub(crate) fn tell(&mut self, now: Instant, every: Duration, say: &dyn Fn(&Interval)) {
        if let Some(interval) = self.interval.as_mut().filter(|it| now.since(it.start) >= every) {
            interval.end = now;
            say(interval);
            (interval.start, interval.moved, interval.not_ok) = (now, Moved::default(), 0);
            interval.latencies.clear();
        }
    }

    /// The measurement begins now: nothing that was seen before counts.
    pub(crate) fn begin(&mut self, now: Instant) {
        for kind in &mut self.kinds {
            kind.forget();
        }
        (self.gaps, self.latest, self.busy) = (Gaps::default(), 0, 0);
        self.lateness.clear();
        (self.cpu, self.cpu_at_start) = (CpuTime::default(), CpuTime::of_this_thread());
        (self.start, self.round_start, self.last) = (now, now, now);
        self.windows = Windows { end: now + WINDOW, ..Windows::default() };
        self.is_saturated = false;
    }

    /// An op of an open loop that was due then is issued now. Of what was due while this machine
    /// stood still nobody can say that the load is too much.
    #[inline]
    pub(crate) fn issued(&mut self, due: Instant, now: Instant) {
        let late = now.nanos_since(due);
        self.latest = self.latest.max(late);
        if due >= self.gaps.until.max(self.engine_gap_until) {
            self.lateness.record_nanos(late);
            self.is_saturated |= late > LATE_MAX;
        }
    }

    /// The engine has turned. Returns whether this thread stood still before.
    #[inline]
    pub(crate) fn turned(&mut self, now: Instant, worked: bool) -> bool {
        let step = now.nanos_since(self.last);
        self.last = now;
        self.busy += if worked { step } else { 0 };
        if step > GAP {
            self.gaps.count += 1;
            self.gaps.longest = self.gaps.longest.max(step);
            self.gaps.until = now;
        }
        if self.windows.ends(now) {
            self.windows.over(now);
        }
        step > GAP
    }

    /// An op has ended.
    #[inline]
    pub(crate) fn record(&mut self, Sample { end, now }: Sample) {
        let kind = &mut self.kinds[end.kind];
        kind.outcomes[end.status as usize] += 1;
        kind.retries += u64::from(end.retries);
        if end.status != OpStatus::Ok {
            if let Some(interval) = &mut self.interval {
                interval.not_ok += 1;
            }
            return;
        }
        kind.bytes += end.bytes;
        let moved = Moved { ops: 1, bytes: end.bytes };
        kind.of_round.add(moved);
        self.windows.now.add(moved);
        let response = now.nanos_since(end.at.due);
        if let Some(interval) = &mut self.interval {
            interval.moved.add(moved);
            interval.latencies.record_nanos(response);
        }
        kind.round.record_nanos(response);
        if self.is_open {
            kind.service.record_nanos(now.nanos_since(end.at.issued));
        }
        if end.at.due < self.gaps.until.max(self.engine_gap_until) {
            kind.disturbed.record_nanos(response);
        }
    }

    /// A round is over, and the next one begins.
    pub(crate) fn end_round(&mut self, now: Instant) {
        self.cpu = CpuTime::of_this_thread().since(self.cpu_at_start);
        self.elapsed = now.since(self.start);
        let elapsed = now.since(core::mem::replace(&mut self.round_start, now));
        for kind in &mut self.kinds {
            kind.end_round(elapsed);
        }
    }

    /// The distributions of the round that goes on, one for each kind of op.
    pub(crate) fn of_round(&self) -> impl Iterator<Item = &Latencies> {
        self.kinds.iter().map(|it| &it.round)
    }

    /// Adds what another thread has seen, but for medians: those are of all threads together.
    pub(crate) fn join(&mut self, part: Self) {
        for (kind, part) in self.kinds.iter_mut().zip(part.kinds) {
            kind.join(part);
        }
        self.gaps.count += part.gaps.count;
        self.gaps.longest = self.gaps.longest.max(part.gaps.longest);
        self.lateness.merge(&part.lateness);
        self.latest = self.latest.max(part.latest);
        self.is_saturated |= part.is_saturated;
        self.is_open |= part.is_open;
        self.elapsed = self.elapsed.max(part.elapsed);
        self.all.add(part.all);
        self.busy += part.busy;
        self.cpu = CpuTime {
            user: self.cpu.user + part.cpu.user,
            system: self.cpu.system + part.cpu.system,
        };
    }

    /// The medians of the rounds of all threads, for each kind of op.
    pub(crate) fn set_medians(&mut self, medians: Vec<Vec<f64>>) {
        self.kinds.iter_mut().zip(medians).for_each(|(kind, it)| kind.medians = it);
    }

    /// Ops that were OK in all rounds, and the bytes that they moved.
    pub(crate) fn moved(&self) -> Moved {
        let mut all = Moved::default();
        self.kinds.iter().for_each(|kind| all.add(kind.moved()));
        all
    }

    /// The latencies of all ops, of one kind.
    pub(crate) fn into_latencies(self) -> Latencies {
        let mut kinds = self.kinds.into_iter();
        kinds.next().map_or_else(Latencies::new, |it| it.response)
    }
}

impl Interval {
    /// Adds what another thread saw meanwhile.
    pub(crate) fn join(&mut self, part: &Self) {
        self.start = self.start.min(part.start);
        self.end = self.end.max(part.end);
        self.moved.add(part.moved);
        self.latencies.merge(&part.latencies);
        self.not_ok += part.not_ok;
    }
}

impl Moved {
    /// The difference between an earlier count and this.
    pub(crate) const fn since(self, earlier: Self) -> Self {
        let ops = self.ops.saturating_sub(earlier.ops);
        Self { ops, bytes: self.bytes.saturating_sub(earlier.bytes) }
    }

    pub(crate) const fn add(&mut self, other: Self) {
        self.ops += other.ops;
        self.bytes += other.bytes;
    }
}

impl Windows {
    /// The length of each.
    pub(crate) const LEN: Duration = WINDOW;

    /// Whether the window of now ends with this.
    pub(crate) fn ends(&self, now: Instant) -> bool {
        now >= self.end
    }

    #[cold]
    fn over(&mut self, now: Instant) {
        let moved = core::mem::take(&mut self.now);
        self.worst = Some(self.worst.map_or(moved, |it| it.min(moved)));
        self.best = Some(self.best.map_or(moved, |it| it.max(moved)));
        // Of a gap that is longer than a window, the rest counts as one.
        self.end = now + WINDOW;
    }
}
