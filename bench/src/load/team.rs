//! The counts that several threads of a load have in common: when to begin, when a round is over,
//! when to end.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use rma_core::time::Instant;

use super::recorder::{Moved, Recorder};
use crate::latency::Latencies;

/// The ops of one thread: on lines of the cache of its own, as it writes at each op.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Member {
    /// Ops that were OK while it warmed up.
    warm: AtomicU64,
    /// Ops that were OK since, and their bytes.
    ops: AtomicU64,
    bytes: AtomicU64,
}

/// Distributions of one round, one for each kind of op, and of how many threads they are.
type Round = (usize, Vec<Latencies>);

/// The threads of a load, which measure together.
#[derive(Debug)]
pub(crate) struct Team {
    members: Box<[Member]>,
    /// Ops of the measurement that were issued, but for those that failed.
    claimed: AtomicU64,
    /// When the measurement began, in nanoseconds. 0: they warm up.
    began: AtomicU64,
    /// When the engine last stood still, in nanoseconds: the end of that.
    gap_until: AtomicU64,
    stops: AtomicBool,
    /// Whether one of them has measured all that it is to.
    is_over: AtomicBool,
    there: AtomicUsize,
    /// Rounds that not all threads have ended, by their number.
    rounds: Mutex<Vec<Option<Round>>>,
    /// The medians of rounds, for each kind of op.
    medians: Mutex<Vec<Vec<f64>>>,
}

/// A thread that is there, until it is dropped.
#[derive(Debug)]
pub(crate) struct There<'a>(&'a Team);

impl Drop for There<'_> {
    fn drop(&mut self) {
        self.0.there.fetch_sub(1, Relaxed);
        // Of a thread that panics the others do not wait for a round that never ends.
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}

impl Team {
    /// Of so many threads, for so many kinds of op.
    pub(crate) fn new(count: usize, kinds: usize) -> Self {
        Self {
            members: (0..count).map(|_| Member::default()).collect(),
            claimed: AtomicU64::new(0),
            began: AtomicU64::new(0),
            gap_until: AtomicU64::new(0),
            stops: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            there: AtomicUsize::new(count),
            rounds: Mutex::default(),
            medians: Mutex::new(vec![Vec::new(); kinds]),
        }
    }

    /// One of the threads is there.
    pub(crate) const fn join(&self) -> There<'_> {
        There(self)
    }

    /// Whether one still is, or will be.
    pub(crate) fn is_there(&self) -> bool {
        self.there.load(Relaxed) > 0
    }

    /// All are to end.
    pub(crate) fn stop(&self) {
        self.stops.store(true, Relaxed);
    }

    /// Whether all are to end.
    #[inline]
    pub(crate) fn stops(&self) -> bool {
        self.stops.load(Relaxed)
    }

    /// One of them has measured all that it is to.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Relaxed);
    }

    /// Whether one of them has.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    /// When the measurement began.
    pub(crate) fn began(&self) -> Option<Instant> {
        let began = self.began.load(Relaxed);
        (began > 0).then(|| Instant::from_nanos(began))
    }

    /// It begins now, if it has not: returns when it did. So many ops of this thread are under way
    /// already.
    pub(crate) fn begin(&self, now: Instant, under_way: u32) -> Instant {
        self.claimed.fetch_add(under_way.into(), Relaxed);
        let now = now.as_nanos().max(1);
        let began = self.began.compare_exchange(0, now, Relaxed, Relaxed);
        Instant::from_nanos(began.map_or_else(|began| began, |_| now))
    }

    /// An op of a member was OK.
    #[inline]
    pub(crate) fn ok(&self, member: usize, is_measured: bool, bytes: u64) {
        let Member { warm, ops, bytes: all } = &self.members[member];
        // Nobody else writes there.
        let add = |to: &AtomicU64, more| to.store(to.load(Relaxed) + more, Relaxed);
        if is_measured {
            add(ops, 1);
            add(all, bytes);
        } else {
            add(warm, 1);
        }
    }

    /// Ops of all that were OK: of the measurement, or before.
    pub(crate) fn count(&self, is_measured: bool) -> u64 {
        let of =
            |it: &Member| if is_measured { it.ops.load(Relaxed) } else { it.warm.load(Relaxed) };
        self.members.iter().map(of).sum()
    }

    /// Ops of all in the measurement, and their bytes.
    pub(crate) fn moved(&self) -> Moved {
        let mut all = Moved::default();
        for Member { ops, bytes, .. } in &self.members {
            all.add(Moved { ops: ops.load(Relaxed), bytes: bytes.load(Relaxed) });
        }
        all
    }

    /// Whether there may be one of so many ops left to issue.
    #[inline]
    pub(crate) fn may_claim(&self, count: u64) -> bool {
        self.claimed.load(Relaxed) < count
    }

    /// Takes one of so many ops, if there is one left.
    #[inline]
    pub(crate) fn claim(&self, count: u64) -> bool {
        let is_left = self.claimed.fetch_add(1, Relaxed) < count;
        if !is_left {
            self.give_back();
        }
        is_left
    }

    /// One that was taken has failed.
    pub(crate) fn give_back(&self) {
        self.claimed.fetch_sub(1, Relaxed);
    }

    /// The engine did not turn for a while, until now.
    pub(crate) fn engine_stood_still(&self, now: Instant) {
        self.gap_until.store(now.as_nanos(), Relaxed);
    }

    /// Until when the engine stood still last.
    #[inline]
    pub(crate) fn gap_until(&self) -> Instant {
        Instant::from_nanos(self.gap_until.load(Relaxed))
    }

    /// A thread ends a round with what is in its recorder.
    pub(crate) fn end_round(&self, round: usize, recorder: &Recorder) {
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        if rounds.len() <= round {
            rounds.resize(round + 1, None);
        }
        let new = || (0, vec![Latencies::new(); recorder.kinds.len()]);
        let (threads, all) = rounds[round].get_or_insert_with(new);
        all.iter_mut().zip(recorder.of_round()).for_each(|(all, it)| all.merge(it));
        *threads += 1;
        if *threads < self.members.len() {
            return;
        }
        let mut medians = self.medians.lock().unwrap_or_else(PoisonError::into_inner);
        for (medians, all) in medians.iter_mut().zip(all).filter(|(_, all)| all.count() > 0) {
            medians.push(all.quantile_us(0.5));
        }
        rounds[round] = None;
    }

    /// The medians of all rounds so far, for each kind of op.
    pub(crate) fn medians(&self) -> Vec<Vec<f64>> {
        core::mem::take(&mut *self.medians.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
