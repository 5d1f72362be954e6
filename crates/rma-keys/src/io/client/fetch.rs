//! One fetch, from the side of whoever waits for it.
//!
//! It is given its outcome once, by the loop. Whoever drops it is not waited for: it is not sent,
//! or its reply is erased.

use core::{
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};
use std::{
    net::SocketAddr,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
};

use crate::{
    identity::SpiffeId,
    io::client::hindrance::Hindrance,
    message::{malformed::Malformed, reply::Reply},
};

/// The reason why nothing was fetched.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The service did not answer in time.
    #[error("no answer in time from {expected} at {address}: {why}")]
    Unanswered {
        /// The expected identity.
        expected: SpiffeId,
        /// The address that was tried last.
        address: SocketAddr,
        /// The last hindrance.
        why: Hindrance,
    },
    /// It answered what is no reply.
    #[error("{expected} at {address} answered what is no reply: {why}")]
    Malformed {
        /// The identity of the service that answered.
        expected: SpiffeId,
        /// From where.
        address: SocketAddr,
        /// The fault.
        why: Box<Malformed>,
    },
    /// It wants to be asked later.
    #[error("{expected} at {address} is asked more than it allows, and says: in {} ms again", retry.as_millis())]
    NotNow {
        /// The identity of the service that answered.
        expected: SpiffeId,
        /// From where.
        address: SocketAddr,
        /// How long it is not to be asked.
        retry: Duration,
    },
    /// Too much waits for this service already.
    #[error("too many fetches wait for {expected}; ask for several regions with one")]
    Full {
        /// The identity of the service that they wait for.
        expected: SpiffeId,
    },
    /// The client has ended.
    #[error("the client that fetches keys has ended; make a new one")]
    Stopped,
}

/// The result of a fetch.
pub(super) type Outcome = Result<Reply, FetchError>;

/// A fetch that is under way.
#[derive(Debug)]
#[must_use = "a fetch that is dropped is not sent"]
pub struct Fetch(Arc<Inner>);

/// The loop's end of it.
#[derive(Debug)]
pub(super) struct Slot(Weak<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    is_there: Condvar,
}

#[derive(Debug, Default)]
struct State {
    outcome: Option<Outcome>,
    /// Whether there has been one.
    is_given: bool,
    waker: Option<Waker>,
}

pub(super) fn pair() -> (Fetch, Slot) {
    let inner = Arc::new(Inner::default());
    let slot = Slot(Arc::downgrade(&inner));
    (Fetch(inner), slot)
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that could panic happens under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// Whether somebody still waits.
    pub(super) fn is_awaited(&self) -> bool {
        self.0.strong_count() > 0
    }

    pub(super) fn give(self, outcome: Outcome) {
        self.put(outcome);
    }

    fn put(&self, outcome: Outcome) {
        let Some(inner) = self.0.upgrade() else { return };
        let waker = {
            let mut state = inner.lock();
            if core::mem::replace(&mut state.is_given, true) {
                return;
            }
            state.outcome = Some(outcome);
            state.waker.take()
        };
        inner.is_there.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A slot that goes without an outcome, with the loop, leaves nobody waiting.
impl Drop for Slot {
    fn drop(&mut self) {
        self.put(Err(FetchError::Stopped));
    }
}

impl Fetch {
    /// Waits for the outcome on this thread: no longer than the fetch's patience, and a turn.
    ///
    /// # Errors
    /// If the service did not answer, or what is no reply.
    pub fn wait(self) -> Result<Reply, FetchError> {
        let mut state = self.0.lock();
        loop {
            match state.outcome.take() {
                Some(outcome) => return outcome,
                None => {
                    let woken = self.0.is_there.wait(state);
                    state = woken.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// The outcome, if it is there: for those who turn the loop themselves. It is given once.
    ///
    /// # Errors
    /// If the service did not answer, or what is no reply.
    pub fn take(&mut self) -> Option<Result<Reply, FetchError>> {
        self.0.lock().outcome.take()
    }
}

impl Future for Fetch {
    type Output = Result<Reply, FetchError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.lock();
        match state.outcome.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
