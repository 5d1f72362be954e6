//! The state that futures of any number of tasks share, under one lock, [`Shared`], which somebody
//! polls ([`Polled`]).

use core::{
    fmt,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    task::{Context, Poll, Waker},
};
use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    thread::Thread,
};

use rma_core::time::Instant;
use rma_shm::{Forked, Process};

use crate::{buffer::Bufs, error::WaitError, idle::IdlePolicy, sleep::Sleep};

/// A state that makes progress when it is polled, by whichever thread.
pub(crate) trait Polled: fmt::Debug + Send + 'static {
    /// Makes what progress can be made. Returns how much there was to do.
    fn turn(&mut self, after: &mut After) -> usize;

    /// When [`Polled::turn`] has something to do even if nothing comes.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Whether the one who polls may sleep: there is nothing that the engine has rung for, and it
    /// lives.
    fn may_sleep(&self) -> bool;

    /// Whether something has buffers, so that it must be waited for though nobody awaits it.
    fn is_busy(&self) -> bool;

    /// The time that [`Polled::poll_timeout`] is of.
    fn now(&self) -> Instant;

    /// Returns the idle policy of the thread that polls.
    fn idle(&self) -> IdlePolicy;

    fn seat(&self) -> &Seat;

    fn seat_mut(&mut self) -> &mut Seat;

    /// The one who polls is going to sleep.
    fn tell(&mut self) {}

    /// Somebody else has done something while the one who polls sleeps.
    fn tell_news(&mut self) {}

    /// Returns the error after which nothing will ever be over.
    fn gone(&self) -> Option<WaitError> {
        self.seat().gone
    }

    /// Whether there is nothing left to poll for.
    fn is_done(&self) -> bool {
        self.seat().closing && (!self.is_busy() || self.gone().is_some())
    }

    /// Wakes those that wait for the last thing to be over, if it is. To be called in each turn.
    fn stop_if_done(&mut self, after: &mut After) {
        if self.is_done() {
            after.wakers.append(&mut self.seat_mut().stopping);
        }
    }

    /// Ready when there is nothing left to poll for.
    fn poll_done(&mut self, context: &Context<'_>) -> Poll<()> {
        if self.is_done() {
            return Poll::Ready(());
        }
        let stopping = &mut self.seat_mut().stopping;
        stopping.retain(|waker| !waker.will_wake(context.waker()));
        stopping.push(context.waker().clone());
        Poll::Pending
    }

    /// Nobody is left who would begin anything.
    fn close(&mut self, after: &mut After) {
        self.seat_mut().closing = true;
        self.turn(after);
    }

    /// Whether the one who sleeps would now sleep too long.
    fn has_news_for_sleeper(&mut self) -> bool {
        let (Some(until), Some(at)) = (self.seat().sleeps_until, self.poll_timeout()) else {
            return false;
        };
        let earlier = until.is_none_or(|until| at < until);
        if earlier {
            // Told once.
            self.seat_mut().sleeps_until = Some(Some(at));
        }
        earlier
    }
}

/// The seat of the thread that polls while no future does, one at a time; and for how long anybody
/// has to.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    pub(crate) taken: bool,
    /// Those who would take it. They are in [`std::thread::park`].
    pub(crate) queue: VecDeque<Thread>,
    /// The one who has it sleeps, and until when.
    pub(crate) sleeps_until: Option<Option<Instant>>,
    /// Another thread has slept in its place, and taken its wake-ups.
    pub(crate) is_robbed: bool,
    /// The error after which nothing will ever be over.
    pub(crate) gone: Option<WaitError>,
    /// All handles and their futures are gone.
    pub(crate) closing: bool,
    /// Wakes those that wait for the last thing to be over, once `closing`.
    stopping: Vec<Waker>,
}

/// Tasks left for after the lock is released: wakers and pools may do anything.
#[derive(Debug, Default)]
pub(crate) struct After {
    pub(crate) wakers: Vec<Waker>,
    /// To be dropped: with the last one, its whole task may go.
    pub(crate) unused: Vec<Waker>,
    pub(crate) buffers: Vec<Bufs>,
}

impl After {
    fn run(&mut self) {
        // A future that is woken may look for a buffer.
        self.buffers.clear();
        self.wakers.drain(..).for_each(Waker::wake);
        self.unused.clear();
    }
}

/// The state that futures share: the state under its lock, and what a thread needs before it has
/// the lock.
#[derive(Debug)]
pub(crate) struct Shared<S> {
    state: Mutex<S>,
    /// The sleep of the thread that has the seat; `None` if the engine is inline.
    pub(crate) sleep: Option<Sleep>,
    /// How many threads want the lock. A thread that polls all the time lets them have it.
    wanted: AtomicUsize,
    /// In a child a thread of the parent's may hold the lock, for ever.
    process: Process,
}

impl<S: Polled> Shared<S> {
    pub(crate) fn new(state: S, sleep: Option<Sleep>) -> Self {
        let process = Process::this();
        Self { state: Mutex::new(state), sleep, wanted: AtomicUsize::new(0), process }
    }

    /// An error if the engine is the parent's.
    pub(crate) fn check_process(&self) -> Result<(), Forked> {
        self.process.check()
    }

    /// [`Shared::with`], for what a child need not do, such as a drop.
    pub(crate) fn with_own(&self, act: impl FnOnce(&mut S, &mut After)) {
        // The one error is that it is a child.
        let _ = self.with(act);
    }

    /// Does something with the state, and afterwards what that leads to.
    ///
    /// # Errors
    /// [`Forked`]. Nothing waits for the lock then.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut S, &mut After) -> T) -> Result<T, Forked> {
        self.process.check()?;
        self.wanted.fetch_add(1, Relaxed);
        let state = self.lock();
        self.wanted.fetch_sub(1, Relaxed);
        let mut locked = Locked { shared: self, state: Some(state), after: After::default() };
        let Locked { state, after, .. } = &mut locked;
        Ok(act(state.as_mut().expect("it is locked until this is dropped"), after))
    }

    /// [`Polled::turn`] of the thread that has the seat. Steps back when others want the lock: they
    /// poll, too.
    pub(crate) fn turn(&self, after: &mut After) -> usize {
        if self.wanted.load(Relaxed) > 0 {
            std::thread::yield_now();
            return 0;
        }
        let work = self.lock().turn(after);
        after.run();
        work
    }

    fn lock(&self) -> MutexGuard<'_, S> {
        // The application's code in `AsyncVerbs::with` may panic, and otherwise nothing but a bug
        // does. Buffers stay where they are then.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state under its lock. When it is dropped, also by a panic, the one who sleeps is told what
/// has changed.
struct Locked<'a, S: Polled> {
    shared: &'a Shared<S>,
    /// Until it is dropped.
    state: Option<MutexGuard<'a, S>>,
    after: After,
}

impl<S: Polled> Drop for Locked<'_, S> {
    fn drop(&mut self) {
        let Some(mut state) = self.state.take() else { return };
        let sleeps = state.seat().sleeps_until.is_some();
        if sleeps {
            state.tell_news();
        }
        let rouse = state.has_news_for_sleeper();
        let wake = core::mem::take(&mut state.seat_mut().is_robbed) && sleeps;
        drop(state);
        match &self.shared.sleep {
            Some(sleep) if wake => sleep.wake(),
            Some(sleep) if rouse => sleep.rouse(),
            _ => {}
        }
        self.after.run();
    }
}
