//! The seat of the thread that polls while no future does.
//!
//! One thread at a time has the *seat*: it polls the executor, and sleeps on the portal when there
//! is nothing to do. The others that block on futures are parked, and are woken by the futures'
//! wakers. A thread that leaves the seat wakes one of those, which takes it. It leaves the seat to
//! poll its future, which may take long, and may block on others itself.
//!
//! # Why no wake-up is lost
//!
//! A waker sets a flag, and then looks whether its thread sleeps on the portal. That thread says
//! that it is going to sleep, and then looks at the flag, at completions, events and timeouts:
//! [`rma_shm::doorbell`] with more than one kind of news. A thread that is parked is unparked,
//! which is never lost.
//!
//! What says that a thread sleeps changes under the lock alone. So a thread that sleeps on the
//! portal with the lock ([`AsyncVerbs::with`](crate::star::AsyncVerbs::with)) knows whether the
//! seat's sleeps as well: then it has taken that one's wake-ups, and wakes it when it is done. A
//! model in `rma-shm/tests/loom` has all of this, and what is lost without it.

use core::{
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    task::{Context, Poll, Waker},
};
use std::{
    sync::Arc,
    task::Wake,
    thread::{self, Thread},
};

use rma_core::time::Clock;
use rma_shm::Forked;

use super::shared::{After, Polled, Shared};
use crate::{
    clock::TscClock,
    error::WaitError,
    idle::{Idle, IdleTracker},
    sleep::Sleep,
};

/// How often a thread that spins looks at nothing between two polls: so long the lock is free for
/// others.
const SPINS: u32 = 16;

/// Wakes one thread that blocks on a future.
struct Parker {
    woken: AtomicBool,
    /// It has, or had, the seat.
    leads: AtomicBool,
    thread: Thread,
    sleep: Sleep,
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, SeqCst);
        if self.leads.load(SeqCst) {
            self.sleep.rouse();
        }
        self.thread.unpark();
    }
}

/// The place of one thread in line. Left when dropped, also by a panic of the future.
struct Place<'a, S: Polled> {
    shared: &'a Shared<S>,
    parker: Arc<Parker>,
    has_seat: bool,
}

impl<S: Polled> Place<'_, S> {
    /// Whether this thread has the seat, which it takes if nobody has it.
    fn sit(&mut self) -> Result<bool, Forked> {
        if self.has_seat {
            return Ok(true);
        }
        let me = self.parker.thread.id();
        self.has_seat = self.shared.with(|state, _| {
            let seat = state.seat_mut();
            seat.queue.retain(|other| other.id() != me);
            // Once the engine is gone there is nothing to poll for.
            let sits = seat.gone.is_none() && !seat.taken;
            if sits {
                seat.taken = true;
            } else {
                seat.queue.push_back(self.parker.thread.clone());
            }
            sits
        })?;
        if self.has_seat {
            self.parker.leads.store(true, SeqCst);
        }
        Ok(self.has_seat)
    }

    /// Leaves the seat or the queue. If the seat is free then, wakes the next for it.
    fn leave(&mut self) {
        let me = self.parker.thread.id();
        let next = self.shared.with(|state, _| {
            let seat = state.seat_mut();
            seat.queue.retain(|other| other.id() != me);
            seat.taken &= !self.has_seat;
            if seat.taken { None } else { seat.queue.front().cloned() }
        });
        self.has_seat = false;
        if let Ok(Some(next)) = next {
            next.unpark();
        }
    }

    /// Sleeps until there is something to do. Leaves the seat if there will never be.
    fn sleep(&mut self) {
        let Parker { sleep, woken, .. } = &*self.parker;
        let mut is_over = false;
        let timeout = self.shared.with(|state, _| {
            sleep.prepare();
            is_over = state.gone().is_some();
            if woken.load(SeqCst) || !state.may_sleep() {
                sleep.end();
                return None;
            }
            state.tell();
            let until = state.poll_timeout();
            state.seat_mut().sleeps_until = Some(until);
            let now = state.now();
            Some(until.map(|at| at.since(now)))
        });
        if let Ok(Some(timeout)) = timeout {
            sleep.sleep(timeout);
            self.shared.with_own(|state, _| {
                state.seat_mut().sleeps_until = None;
                sleep.end();
            });
        }
        if is_over {
            self.leave();
        }
    }
}

impl<S: Polled> Drop for Place<'_, S> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Runs a future to its end on this thread, which polls the executor meanwhile if no other does.
pub(crate) fn block_on<S: Polled, F: Future>(
    shared: &Shared<S>,
    mut future: Pin<&mut F>,
) -> Result<F::Output, WaitError> {
    let idle = shared.with(|state, _| state.idle())?;
    let sleep = shared.sleep.clone().ok_or(WaitError::InlineEngine)?;
    let parker = Arc::new(Parker {
        woken: AtomicBool::new(true),
        leads: AtomicBool::new(false),
        thread: thread::current(),
        sleep,
    });
    let waker = Waker::from(parker.clone());
    let mut place = Place { shared, parker, has_seat: false };
    let (clock, mut after) = (TscClock::new(), After::default());
    let mut idle = IdleTracker::new(idle);
    loop {
        if place.parker.woken.swap(false, SeqCst) {
            place.leave();
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Ok(output);
            }
            idle.busy();
        }
        if !place.sit()? {
            if !place.parker.woken.load(SeqCst) {
                thread::park();
            }
            continue;
        }
        if shared.turn(&mut after) > 0 {
            idle.busy();
            continue;
        }
        match idle.idle(clock.now()) {
            Idle::Spin => (0..SPINS).for_each(|_| core::hint::spin_loop()),
            Idle::Yield => thread::yield_now(),
            Idle::Sleep => place.sleep(),
        }
    }
}
