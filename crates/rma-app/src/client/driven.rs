//! A future on the thread that turns an inline engine: [`Driven`].

use core::{
    pin::Pin,
    task::{Context, Poll, Waker},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::Wake,
};

use super::tasks::State;
use crate::{
    error::WaitError,
    home::Home,
    polling::shared::{Polled as _, Shared},
    wait::{Awaited, Look},
};

/// The end of a future, with the state of the client that is polled meanwhile.
pub(super) struct Driven<'a, F> {
    state: &'a Shared<State>,
    future: Pin<&'a mut F>,
    woken: Arc<Woken>,
    waker: Waker,
}

impl<'a, F> Driven<'a, F> {
    pub(super) fn new(state: &'a Shared<State>, future: Pin<&'a mut F>) -> Self {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        Self { state, future, waker: Waker::from(woken.clone()), woken }
    }
}

impl<F: Future> Awaited for Driven<'_, F> {
    type Found = F::Output;
    type Error = WaitError;

    fn is_of(&self, home: &dyn Home) -> bool {
        self.state.with(|state, _| Awaited::is_of(&state.executor, home)).unwrap_or(false)
    }

    fn look(&mut self) -> Result<Look<F::Output>, WaitError> {
        let work = self.state.with(State::turn).unwrap_or(0);
        let mut polled = Poll::Pending;
        if self.woken.0.swap(false, SeqCst) {
            polled = self.future.as_mut().poll(&mut Context::from_waker(&self.waker));
        }
        match polled {
            Poll::Ready(output) => {
                // Whoever waits for it again is told as the future tells it.
                self.woken.0.store(true, SeqCst);
                Ok(Look::Found(output))
            }
            Poll::Pending => Ok(Look::of(None, work)),
        }
    }
}

/// Whether a future must be polled again.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}
