//! Two threads that sleep on one doorbell: the one that has the *seat* without the lock, another
//! with the lock (`rma_app`'s `polling/seat.rs`). The engine rings for whichever has said that it
//! sleeps. A run in which a thread sleeps on beside what it waits for is a deadlock, which loom
//! reports.
//!
//! Tried by weakening the model: if the seat's thread says that it sleeps before it has the lock,
//! there is such a run.

use loom::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};
use rma_shm::Doorbell;

/// An eventfd: readable until it is drained, for all who sleep on it.
struct EventFd {
    is_readable: Mutex<bool>,
    changed: Condvar,
}

impl EventFd {
    fn new() -> Self {
        Self { is_readable: Mutex::new(false), changed: Condvar::new() }
    }

    fn wake(&self) {
        *self.is_readable.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn sleep(&self) {
        let mut is_readable = self.is_readable.lock().unwrap();
        while !*is_readable {
            is_readable = self.changed.wait(is_readable).unwrap();
        }
    }

    fn drain(&self) {
        *self.is_readable.lock().unwrap() = false;
    }
}

/// The event that each of the two waits for.
const OF_SEAT: usize = 0;
const OF_OTHER: usize = 1;

/// The state under the lock.
#[derive(Default)]
struct State {
    /// The reports of the engine that were taken.
    taken: [bool; 2],
    seat_sleeps: bool,
    is_robbed: bool,
}

struct Shared {
    state: Mutex<State>,
    reports: [AtomicBool; 2],
    doorbell: Doorbell,
    eventfd: EventFd,
}

impl Shared {
    fn has_report(&self, taken: [bool; 2]) -> bool {
        (0..2).any(|at| !taken[at] && self.reports[at].load(Ordering::Acquire))
    }

    /// Takes all reports, whoever waits for them.
    fn turn(&self, state: &mut State) {
        for (taken, report) in state.taken.iter_mut().zip(&self.reports) {
            *taken |= report.load(Ordering::Acquire);
        }
    }

    fn end_sleep(&self) {
        self.doorbell.awake();
        self.eventfd.drain();
    }

    /// The engine reports, and rings if somebody sleeps.
    fn report(&self, at: usize) {
        self.reports[at].store(true, Ordering::Release);
        if self.doorbell.needs_ring() {
            self.eventfd.wake();
        }
    }

    fn sit(&self) {
        loop {
            let mut state = self.state.lock().unwrap();
            self.doorbell.prepare_sleep();
            let must_look = self.has_report(state.taken);
            self.turn(&mut state);
            if state.taken[OF_SEAT] {
                self.end_sleep();
                return;
            }
            if must_look {
                self.end_sleep();
                continue;
            }
            state.seat_sleeps = true;
            drop(state);
            self.eventfd.sleep();
            let mut state = self.state.lock().unwrap();
            state.seat_sleeps = false;
            self.end_sleep();
        }
    }

    fn wait_with_lock(&self) {
        let mut state = self.state.lock().unwrap();
        loop {
            self.turn(&mut state);
            if state.taken[OF_OTHER] {
                break;
            }
            state.is_robbed = true;
            self.doorbell.prepare_sleep();
            if !self.has_report(state.taken) {
                self.eventfd.sleep();
            }
            self.end_sleep();
        }
        self.unlock(state);
    }

    fn unlock(&self, mut state: MutexGuard<'_, State>) {
        let is_robbed = core::mem::take(&mut state.is_robbed);
        let must_wake = state.seat_sleeps && is_robbed;
        let has_news = state.seat_sleeps && state.taken[OF_SEAT];
        drop(state);
        if must_wake || (has_news && self.doorbell.needs_ring()) {
            self.eventfd.wake();
        }
    }
}

#[test]
fn nobody_sleeps_on_when_another_sleeps_with_the_lock() {
    let mut model = loom::model::Builder::new();
    // Three switches that nobody has asked for are enough for the mistakes above.
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::default()),
            reports: [AtomicBool::new(false), AtomicBool::new(false)],
            doorbell: Doorbell::new(),
            eventfd: EventFd::new(),
        });
        let threads = [Shared::sit as fn(&Shared), Shared::wait_with_lock].map(|act| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || act(&shared))
        });
        // The event that the holder of the lock waits for comes first: the other's comes when
        // nobody has the lock.
        shared.report(OF_OTHER);
        shared.report(OF_SEAT);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}
