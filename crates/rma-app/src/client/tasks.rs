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
    task::{Context, Poll, Waker},
};
use std::sync::Arc;

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
    idle::IdlePolicy,
    polling::shared::{After, Polled, Seat},
    transfers::Transfers,
};

#[derive(Debug)]
pub(super) struct State {
    pub(super) executor: Transfers,
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
    pub(super) seat: Seat,
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

/// A future's order that waits for a place.
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

/// A task, by its place. Of one future, until it is told or dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TaskId(u32);

impl State {
    /// The state of a client of this executor.
    ///
    /// # Panics
    /// If a call of the executor is not over.
    pub(super) fn new(executor: Transfers) -> Self {
        assert_eq!(executor.calls(), 0, "a client has its executor to itself");
        let (calls, places) = (usize::from(executor.calls), Places::new(executor.calls));
        Self {
            executor,
            tasks: Vec::with_capacity(calls),
            free: Vec::with_capacity(calls),
            by_call: vec![0; calls].into(),
            places,
            line: Line::default(),
            waiting_max: usize::MAX,
            inboxes: Vec::new(),
            seat: Seat::default(),
        }
    }

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

    /// The end of a task's call; or its future must be woken then. Polls meanwhile.
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

    /// Nobody awaits events of this receive queue any longer.
    pub(super) fn forget(&mut self, inbox: &Arc<Inbox>) {
        self.inboxes.retain(|it| !Arc::ptr_eq(it, inbox));
    }

    /// The next event of a receive queue that is awaited here; or its future must be woken then.
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
        let (event, unused) = match self.seat.gone {
            None => inbox.take_or_wait(context, last),
            // The earlier event is still there.
            Some(_) => (inbox.take(), last),
        };
        after.unused.extend(unused);
        match (event, self.seat.gone) {
            (Some(event), _) => Poll::Ready(Ok(event)),
            (None, Some(gone)) => Poll::Ready(Err(gone)),
            (None, None) => Poll::Pending,
        }
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
}

impl Polled for State {
    /// Lets the executor make progress and notes what is over. Returns how much there was to do.
    fn turn(&mut self, after: &mut After) -> usize {
        // Looked at first: completions given before the engine ended are still there.
        let ended = self.executor.ended();
        let mut work = self.executor.poll();
        while let Some(outcome) = self.executor.poll_outcome() {
            let id = self.by_call[outcome.call.index()];
            self.end(id, Ok(outcome), after);
        }
        if let (Err(gone), None) = (ended, self.seat.gone)
            && gone.is_for_good()
        {
            // Nobody writes to the buffers any longer.
            self.seat.gone = Some(gone);
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
        self.stop_if_done(after);
        work
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.executor.poll_timeout(), self.line.first_deadline()].into_iter().flatten().min()
    }

    /// Whether there is no completion, no event that somebody waits for, and the engine lives.
    fn may_sleep(&self) -> bool {
        self.executor.may_sleep() && !self.inboxes.iter().any(|it| it.has_news())
    }

    fn is_busy(&self) -> bool {
        self.calls() > 0
    }

    fn now(&self) -> Instant {
        self.executor.now()
    }

    fn idle(&self) -> IdlePolicy {
        self.executor.idle
    }

    fn seat(&self) -> &Seat {
        &self.seat
    }

    fn seat_mut(&mut self) -> &mut Seat {
        &mut self.seat
    }

    fn tell(&mut self) {
        self.executor.tell();
    }

    fn tell_news(&mut self) {
        self.executor.tell_news();
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // Only if nobody can wait for them: an inline engine, or no thread could be started. They
        // stay out of their pools for good.
        if self.seat.gone.is_none() {
            for task in self.tasks.drain(..) {
                if let Task::Waiting { bufs, .. } | Task::Abandoned { bufs, .. } = task {
                    mem::forget(bufs);
                }
            }
        }
    }
}
