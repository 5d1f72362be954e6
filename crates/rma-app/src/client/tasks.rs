//! The state that the clones of one [`Client`](super::Client) share: an executor, and what each
//! future waits for: for the end of its call, for a place to begin one, or for an event.
//!
//! A future that waits for a place is not woken to take it. Its order and its buffers lie here, so
//! the thread that sees that a call is over submits the next one: no place stays empty because a
//! future is not polled, and none is lost with a future that is dropped.
//!
//! Invariant: the buffers that a call has stay here until the executor says that the call is over,
//! which it does only when none of its ops is under way, or until the engine has ended. What the
//! future does meanwhile, and whether it still exists, changes nothing.

mod begin;

use core::{
    mem,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    task::{Context, Poll, Waker},
};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::Thread,
};

use rma_core::{
    executor::{CallId, Outcome},
    op::ClassOfService,
    receive_queue::Event,
    time::Instant,
};

use super::{
    inbox::Inbox,
    line::{Line, Places, Ticket},
    order::Order,
};
use crate::{
    buffer::Bufs,
    error::{TransferError, WaitError},
    executor::Executor,
    sleep::Sleep,
};

/// What the clones of one client share: the state under its lock, and what a thread needs before it
/// has the lock.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// How the thread that has the seat sleeps; `None` if the engine is inline.
    pub(super) sleep: Option<Sleep>,
    /// How many threads want the lock. A thread that polls all the time lets them have it.
    wanted: AtomicUsize,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) executor: Executor,
    /// As many as there have been futures at once.
    tasks: Vec<Task>,
    free: Vec<u32>,
    /// The task of each call, by [`CallId::index`].
    by_call: Box<[u32]>,
    /// For the calls that are not over.
    places: Places,
    /// The transfers that wait for a place.
    line: Line,
    /// How many may wait.
    pub(super) waiting_max: usize,
    /// The receive queues that are awaited here.
    inboxes: Vec<Arc<Inbox>>,
    /// Why no call will ever be over.
    pub(super) gone: Option<WaitError>,
    /// All clients and their futures are gone.
    pub(super) closing: bool,
    /// Wakes those that wait for the last call to be over, once `closing`.
    stopping: Vec<Waker>,
    pub(super) seat: Seat,
}

/// Which thread polls while no future does: one at a time.
#[derive(Debug, Default)]
pub(super) struct Seat {
    pub(super) taken: bool,
    /// Those who would take it. They are in [`std::thread::park`].
    pub(super) queue: VecDeque<Thread>,
    /// The one who has it sleeps, and until when.
    pub(super) sleeps_until: Option<Option<Instant>>,
}

#[derive(Debug)]
enum Task {
    Free,
    /// A future waits for a place.
    InLine(Box<InLine>),
    /// A future waits for the end of its call. Without a waker while it is being polled.
    Waiting {
        call: CallId,
        class: ClassOfService,
        bufs: Bufs,
        waker: Option<Waker>,
    },
    /// The future was dropped, and the call is not over.
    Abandoned {
        class: ClassOfService,
        bufs: Bufs,
    },
    /// The future has not been told.
    Over {
        result: Result<Outcome, TransferError>,
        bufs: Bufs,
    },
}

/// What a future wants that waits for a place.
#[derive(Debug)]
struct InLine {
    ticket: Ticket,
    class: ClassOfService,
    order: Order,
    deadline: Option<Instant>,
    bufs: Bufs,
    /// As that of [`Task::Waiting`].
    waker: Option<Waker>,
}

impl Task {
    /// Of a future that waits.
    const fn waker(&mut self) -> Option<&mut Option<Waker>> {
        match self {
            Self::InLine(it) => Some(&mut it.waker),
            Self::Waiting { waker, .. } => Some(waker),
            Self::Free | Self::Abandoned { .. } | Self::Over { .. } => None,
        }
    }
}

/// What is to be done without the lock: wakers and pools may do anything.
#[derive(Debug, Default)]
pub(super) struct After {
    wakers: Vec<Waker>,
    /// To be dropped: with the last one, its whole task may go.
    unused: Vec<Waker>,
    buffers: Vec<Bufs>,
}

/// A task, by its place. Of one future, until it is told or dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TaskId(u32);

impl Shared {
    pub(super) fn new(executor: Executor) -> Self {
        assert_eq!(executor.calls(), 0, "a client has its executor to itself");
        let sleep = executor.sleep().cloned();
        let (calls, places) = (usize::from(executor.calls), Places::new(executor.calls));
        let state = State {
            executor,
            tasks: Vec::with_capacity(calls),
            free: Vec::with_capacity(calls),
            by_call: vec![0; calls].into(),
            places,
            line: Line::default(),
            waiting_max: usize::MAX,
            inboxes: Vec::new(),
            gone: None,
            closing: false,
            stopping: Vec::new(),
            seat: Seat::default(),
        };
        Self { state: Mutex::new(state), sleep, wanted: AtomicUsize::new(0) }
    }

    /// Does something with the state, and afterwards what that leads to.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut State, &mut After) -> T) -> T {
        let mut after = After::default();
        self.wanted.fetch_add(1, Relaxed);
        let mut state = self.lock();
        self.wanted.fetch_sub(1, Relaxed);
        let result = act(&mut state, &mut after);
        if state.seat.sleeps_until.is_some() {
            state.executor.tell_news();
        }
        let rouse = state.has_news_for_sleeper();
        drop(state);
        if rouse && let Some(sleep) = &self.sleep {
            sleep.rouse();
        }
        after.run();
        result
    }

    /// [`State::turn`] of the thread that has the seat. Steps back when others want the lock: they
    /// poll, too.
    pub(super) fn turn(&self, after: &mut After) -> usize {
        if self.wanted.load(Relaxed) > 0 {
            std::thread::yield_now();
            return 0;
        }
        let work = self.lock().turn(after);
        after.run();
        work
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing but a bug panics under this lock, and buffers of calls stay where they are then.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl After {
    fn run(&mut self) {
        // A future that is woken may look for a buffer.
        self.buffers.clear();
        self.wakers.drain(..).for_each(Waker::wake);
        self.unused.clear();
    }
}

impl State {
    /// How many calls are not over.
    pub(super) const fn calls(&self) -> usize {
        self.places.taken()
    }

    /// How many futures wait for a place.
    pub(super) fn waiting(&self) -> usize {
        self.line.len()
    }

    /// From now on, what comes waits until everything is over that came before.
    pub(super) const fn fence(&mut self) {
        self.line.fence();
    }

    /// When [`State::turn`] has something to do even if no completion comes.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        [self.executor.poll_timeout(), self.line.first_deadline()].into_iter().flatten().min()
    }

    /// The end of a task's call; or its future is to be woken then. Polls meanwhile.
    pub(super) fn poll_task(
        &mut self,
        TaskId(id): TaskId,
        context: &Context<'_>,
        after: &mut After,
    ) -> Poll<(Result<Outcome, TransferError>, Bufs)> {
        // A future that is being polled need not be woken.
        let last = self.tasks[id as usize].waker().and_then(Option::take);
        self.turn(after);
        let task = &mut self.tasks[id as usize];
        if let Some(waker) = task.waker() {
            if last.as_ref().is_some_and(|last| last.will_wake(context.waker())) {
                *waker = last;
            } else {
                after.unused.extend(last);
                *waker = Some(context.waker().clone());
            }
            return Poll::Pending;
        }
        match mem::replace(task, Task::Free) {
            Task::Over { result, bufs } => {
                after.unused.extend(last);
                self.free.push(id);
                Poll::Ready((result, bufs))
            }
            other => unreachable!("its future exists: {other:?}"),
        }
    }

    /// The future of a task is gone: gives up its place in the line, or its call, whose buffers
    /// stay until it is over.
    pub(super) fn abandon(&mut self, TaskId(id): TaskId, after: &mut After) {
        match mem::replace(&mut self.tasks[id as usize], Task::Free) {
            Task::InLine(it) => {
                self.line.remove(it.ticket);
                self.free.push(id);
                after.unused.extend(it.waker);
                after.buffers.push(it.bufs);
                self.tell_waiting();
                // Others may have waited for this one.
                self.turn(after);
            }
            Task::Waiting { call, class, bufs, waker } => {
                self.tasks[id as usize] = Task::Abandoned { class, bufs };
                after.unused.extend(waker);
                self.executor.cancel(call);
                self.turn(after);
            }
            Task::Over { bufs, .. } => {
                self.free.push(id);
                after.buffers.push(bufs);
            }
            other => unreachable!("its future existed: {other:?}"),
        }
    }

    /// Events of this receive queue are awaited from now on.
    pub(super) fn watch(&mut self, inbox: Arc<Inbox>) {
        self.inboxes.push(inbox);
    }

    /// Nobody awaits events of this receive queue any more.
    pub(super) fn forget(&mut self, inbox: &Arc<Inbox>) {
        self.inboxes.retain(|it| !Arc::ptr_eq(it, inbox));
    }

    /// The next event of a receive queue that is awaited here; or its future is to be woken then.
    /// Polls meanwhile.
    pub(super) fn poll_event(
        &mut self,
        inbox: &Inbox,
        context: &Context<'_>,
        after: &mut After,
    ) -> Poll<Result<Event, WaitError>> {
        // A future that is being polled need not be woken.
        let last = inbox.stop_waiting();
        self.turn(after);
        let (event, unused) = match self.gone {
            None => inbox.take_or_wait(context, last),
            // What came before is still there.
            Some(_) => (inbox.take(), last),
        };
        after.unused.extend(unused);
        match (event, self.gone) {
            (Some(event), _) => Poll::Ready(Ok(event)),
            (None, Some(gone)) => Poll::Ready(Err(gone)),
            (None, None) => Poll::Pending,
        }
    }

    /// Whether the one who polls may sleep: there is no completion, no event that somebody waits
    /// for, and the engine lives.
    pub(super) fn may_sleep(&self) -> bool {
        self.executor.may_sleep() && !self.inboxes.iter().any(|it| it.has_news())
    }

    /// Lets the executor make progress and notes what is over. Returns how much there was to do.
    pub(super) fn turn(&mut self, after: &mut After) -> usize {
        // Looked at first: completions given before the engine ended are still there.
        let ended = self.executor.ended();
        let mut work = self.executor.poll();
        while let Some(outcome) = self.executor.poll_outcome() {
            let id = self.by_call[outcome.call.index()];
            self.end(id, Ok(outcome), after);
        }
        if let (Err(gone @ WaitError::EngineGone), None) = (ended, self.gone) {
            // Nobody writes to the buffers any more.
            self.gone = Some(gone);
            for id in 0..self.tasks.len() as u32 {
                self.end(id, Err(gone.into()), after);
            }
            self.line.clear();
            self.tell_waiting();
            after.wakers.extend(self.inboxes.iter().filter_map(|it| it.stop_waiting()));
        }
        for inbox in &self.inboxes {
            let woken = inbox.news();
            work += usize::from(woken.is_some());
            after.wakers.extend(woken);
        }
        if !self.line.is_empty() {
            work += self.expire(after) + self.admit(after);
        }
        if self.is_done() {
            after.wakers.append(&mut self.stopping);
        }
        work
    }

    /// The call of a task is over, or will never be.
    fn end(&mut self, id: u32, result: Result<Outcome, TransferError>, after: &mut After) {
        let task = &mut self.tasks[id as usize];
        match mem::replace(task, Task::Free) {
            Task::Waiting { class, bufs, waker, .. } => {
                *task = Task::Over { result, bufs };
                after.wakers.extend(waker);
                self.places.give_back(class);
            }
            Task::Abandoned { class, bufs } => {
                self.free.push(id);
                after.buffers.push(bufs);
                self.places.give_back(class);
            }
            Task::InLine(it) => {
                let InLine { bufs, waker, .. } = *it;
                *task = Task::Over { result, bufs };
                after.wakers.extend(waker);
            }
            other => *task = other,
        }
    }

    /// Whether there is nothing left to poll for.
    fn is_done(&self) -> bool {
        self.closing && (self.calls() == 0 || self.gone.is_some())
    }

    /// Ready when there is nothing left to poll for.
    pub(super) fn poll_done(&mut self, context: &Context<'_>) -> Poll<()> {
        if self.is_done() {
            return Poll::Ready(());
        }
        self.stopping.retain(|waker| !waker.will_wake(context.waker()));
        self.stopping.push(context.waker().clone());
        Poll::Pending
    }

    /// No client is left.
    pub(super) fn close(&mut self, after: &mut After) {
        self.closing = true;
        self.turn(after);
    }

    /// Whether the one who sleeps would now sleep too long.
    fn has_news_for_sleeper(&mut self) -> bool {
        let (Some(until), Some(at)) = (self.seat.sleeps_until, self.poll_timeout()) else {
            return false;
        };
        let earlier = until.is_none_or(|until| at < until);
        if earlier {
            // Told once.
            self.seat.sleeps_until = Some(Some(at));
        }
        earlier
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // Only if nobody can wait for them: an inline engine, or no thread could be started. They
        // stay out of their pools for good.
        if self.gone.is_none() {
            for task in self.tasks.drain(..) {
                if let Task::Waiting { bufs, .. } | Task::Abandoned { bufs, .. } = task {
                    mem::forget(bufs);
                }
            }
        }
    }
}
