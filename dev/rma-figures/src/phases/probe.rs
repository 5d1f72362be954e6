//! A backend and an AES-GCM provider that do nothing but look at the clock around those that they
//! stand for, and what one thread has spent in each phase.

use core::cell::RefCell;

use rma_core::{
    backend::{Backend, RxPacket, TxFrame},
    engine::Engine,
    time::{Clock, Instant},
};
use rma_crypto::{
    AeadProvider, DeriveJob, Key, KeySchedule, OpenJob, PreparedKey, ProviderKind, SealJob,
};
use rma_xdp::time::TscClock;

/// The task that a thread works on, AES-GCM calls apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The device: rings, headers, addresses of what came.
    Receive,
    /// The service handles frames that came, copies into memory included.
    Handle,
    /// Deriving K_d.
    Derive,
    /// Opening frames.
    Open,
    /// Sealing frames.
    Seal,
    /// The service writes frames that go, copies out of memory included.
    Write,
    /// The device: paths, headers, rings of what goes.
    Transmit,
    /// The doorbell: `sendto`.
    Doorbell,
    /// The rest of a turn: commands, timeouts, completions.
    Turn,
    /// The application: issuing and polling.
    Application,
    /// Turns in which there was nothing to do.
    Idle,
}

impl Phase {
    pub(super) const ALL: [Self; 11] = [
        Self::Application,
        Self::Turn,
        Self::Receive,
        Self::Handle,
        Self::Derive,
        Self::Open,
        Self::Write,
        Self::Seal,
        Self::Transmit,
        Self::Doorbell,
        Self::Idle,
    ];

    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Receive => "receive: rings, headers",
            Self::Handle => "parse, look up, handle, copy in",
            Self::Derive => "derive K_d",
            Self::Open => "AEAD open",
            Self::Seal => "AEAD seal",
            Self::Write => "choose and write frames, copy out",
            Self::Transmit => "transmit: paths, headers, rings",
            Self::Doorbell => "doorbell (`sendto`)",
            Self::Turn => "rest of a turn: commands, timeouts, completions",
            Self::Application => "application: issue, poll",
            Self::Idle => "idle turns",
        }
    }
}

/// The time that a thread has spent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    /// Nanoseconds, by phase.
    nanos: [u64; Phase::ALL.len()],
    /// Turns that did something.
    pub(super) turns: u64,
    /// Nanoseconds of phases within the one that is under way.
    within: u64,
}

impl Spent {
    pub(super) const fn nanos(&self, phase: Phase) -> f64 {
        self.nanos[phase as usize] as f64
    }
}

thread_local! {
    static SPENT: RefCell<(Spent, TscClock)> = RefCell::new((Spent::default(), TscClock::new()));
}

fn now() -> Instant {
    SPENT.with_borrow(|(_, clock)| clock.now())
}

/// Forgets what this thread has spent so far, and returns it.
pub(super) fn take() -> Spent {
    SPENT.with_borrow_mut(|(spent, _)| core::mem::take(spent))
}

/// Does `work`, and counts its time for `phase`, less that of phases within it.
pub(super) fn timed<T>(phase: Phase, work: impl FnOnce() -> T) -> T {
    let before = SPENT.with_borrow_mut(|(spent, _)| core::mem::take(&mut spent.within));
    let start = now();
    let result = work();
    let took = now().nanos_since(start);
    SPENT.with_borrow_mut(|(spent, _)| {
        spent.nanos[phase as usize] += took.saturating_sub(spent.within);
        spent.within = before + took;
    });
    result
}

/// One turn of the engine. If there was nothing to do, all of its time is idle.
pub(super) fn turn<B: Backend>(engine: &mut Engine<B, TscClock>) {
    let (before, start) = (SPENT.with_borrow(|(spent, _)| *spent), now());
    let did = timed(Phase::Turn, || engine.turn());
    let took = now().nanos_since(start);
    SPENT.with_borrow_mut(|(spent, _)| {
        if did > 0 {
            spent.turns += 1;
        } else {
            *spent = before;
            spent.nanos[Phase::Idle as usize] += took;
            spent.within += took;
        }
    });
}

/// A backend that looks at the clock around each call of another, and around what it calls itself.
#[derive(Debug)]
pub(super) struct Timed<B>(pub(super) B);

impl<B: Backend> Backend for Timed<B> {
    fn rx_burst(&mut self, max: usize, mut on_packets: impl FnMut(&mut [RxPacket<'_>])) -> usize {
        timed(Phase::Receive, || {
            self.0.rx_burst(max, |packets| timed(Phase::Handle, || on_packets(packets)))
        })
    }

    fn tx_burst(&mut self, max: usize, mut fill: impl FnMut(&mut [TxFrame<'_>]) -> usize) -> usize {
        timed(Phase::Transmit, || {
            self.0.tx_burst(max, |frames| timed(Phase::Write, || fill(frames)))
        })
    }

    fn flush(&mut self, now: Instant) {
        timed(Phase::Doorbell, || self.0.flush(now));
    }
}

/// A provider that looks at the clock around each call of another.
#[derive(Debug)]
pub(super) struct TimedAead(pub(super) &'static dyn AeadProvider);

impl AeadProvider for TimedAead {
    fn kind(&self) -> ProviderKind {
        self.0.kind()
    }

    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn schedule(&self, key: &Key) -> KeySchedule {
        self.0.schedule(key)
    }

    fn derive(&self, jobs: &[DeriveJob<'_>], keys: &mut [Key]) {
        timed(Phase::Derive, || self.0.derive(jobs, keys));
    }

    fn prepare(&self, key: &Key) -> PreparedKey {
        self.0.prepare(key)
    }

    fn seal(&self, jobs: &mut [SealJob<'_>]) {
        timed(Phase::Seal, || self.0.seal(jobs));
    }

    fn open(&self, jobs: &mut [OpenJob<'_>]) {
        timed(Phase::Open, || self.0.open(jobs));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spin(nanos: u64) {
        let start = now();
        while now().nanos_since(start) < nanos {}
    }

    #[test]
    fn a_phase_within_another_counts_once() {
        take();
        timed(Phase::Receive, || {
            spin(10_000);
            timed(Phase::Handle, || {
                timed(Phase::Open, || spin(200_000));
                timed(Phase::Open, || spin(200_000));
            });
        });
        let spent = take();
        assert!(spent.nanos(Phase::Receive) >= 10_000.0, "{spent:?}");
        assert!(spent.nanos(Phase::Open) >= 400_000.0, "{spent:?}");
        // All of it is in `within` once, and none of it counts twice.
        let sum: u64 = spent.nanos.iter().sum();
        assert_eq!(sum, spent.within, "{spent:?}");
        assert_eq!(take().nanos(Phase::Open), 0.0);
    }

    #[test]
    fn every_phase_has_a_row_of_its_own() {
        let mut seen = [false; Phase::ALL.len()];
        for phase in Phase::ALL {
            assert!(!core::mem::replace(&mut seen[phase as usize], true), "{phase:?}");
        }
    }
}
