//! The end of a receive queue that a client looks after: who waits for its next event.
//!
//! Whoever polls for the client looks for events of those queues that somebody waits for, and wakes
//! that future; the event stays in its ring until the future takes it. So none is lost with a
//! future that is dropped, and nobody but the future that gives it to the application takes one.

use core::task::{Context, Waker};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rma_core::{
    error::ReceiveQueueError,
    receive_queue::{Event, Receive, ReceiveQueue},
};
use rma_shm::{Forked, Process};

/// A receive queue, and its waiter. Its lock is taken under that of the client's state, never
/// around it, and in a child not at all where that state is not asked first: a thread of the
/// parent's may hold it for ever.
#[derive(Debug)]
pub(super) struct Inbox {
    inner: Mutex<Inner>,
    process: Process,
}

#[derive(Debug)]
struct Inner {
    queue: ReceiveQueue,
    /// Of the one future that waits.
    waker: Option<Waker>,
}

impl Inbox {
    /// An inbox of `queue`, of which all receives are posted.
    pub(super) fn new(mut queue: ReceiveQueue) -> Self {
        queue.post_all();
        Self { inner: Mutex::new(Inner { queue, waker: None }), process: Process::this() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing that could panic happens under this lock.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn own(&self) -> Result<MutexGuard<'_, Inner>, Forked> {
        self.process.check()?;
        Ok(self.lock())
    }

    /// The next event, if there is one; in a child there is none.
    pub(super) fn take(&self) -> Option<Event> {
        self.own().ok()?.queue.poll()
    }

    /// The next event; or the future with this `context` waits for it from now on, whose last
    /// waker was `last`. Returns a waker that is of no more use, too.
    pub(super) fn take_or_wait(
        &self,
        context: &Context<'_>,
        last: Option<Waker>,
    ) -> (Option<Event>, Option<Waker>) {
        let mut inner = self.lock();
        let event = inner.queue.poll();
        if event.is_some() {
            return (event, last);
        }
        match last {
            Some(last) if last.will_wake(context.waker()) => {
                inner.waker = Some(last);
                (None, None)
            }
            last => {
                inner.waker = Some(context.waker().clone());
                (None, last)
            }
        }
    }

    /// Nobody waits any longer. Returns the waker of the last waiter.
    pub(super) fn stop_waiting(&self) -> Option<Waker> {
        self.lock().waker.take()
    }

    /// Whether there is an event that somebody waits for and has not been woken for.
    pub(super) fn has_news(&self) -> bool {
        let inner = self.lock();
        inner.waker.is_some() && inner.queue.has_event()
    }

    /// The waker of the waiter, if there is an event: woken once.
    pub(super) fn news(&self) -> Option<Waker> {
        let mut inner = self.lock();
        if inner.waker.is_some() && inner.queue.has_event() { inner.waker.take() } else { None }
    }

    /// How many receives are posted: none of a child's.
    pub(super) fn posted(&self) -> usize {
        self.own().map_or(0, |inner| inner.queue.posted())
    }

    /// The application is done with an event.
    pub(super) fn post(&self, receive: Receive) {
        let Ok(mut inner) = self.own() else { return };
        let posted = inner.queue.post(receive);
        // The lock first: it would be poisoned.
        drop(inner);
        posted.expect("one event has a receive, until it is posted again");
    }

    /// Copies a message out.
    pub(super) fn read(&self, event: &Event, bytes: &mut [u8]) -> Result<(), ReceiveQueueError> {
        self.own()?.queue.read(event, bytes)
    }
}
