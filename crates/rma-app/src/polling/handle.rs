//! The owners of a state that futures share: futures and their makers hold a [`Handle`], those that
//! poll for them an [`Owner`].

use core::{fmt, future::poll_fn, pin::pin, task::Poll};
use std::{sync::Arc, thread};

use super::{
    seat::block_on,
    shared::{After, Polled, Shared},
};
use crate::{
    error::{StartError, WaitError},
    sleep::Sleep,
};

/// The handle of clients, channels' ends and their futures; pollers have none.
#[derive(Debug)]
pub(crate) struct Handle<S: Polled> {
    owner: Arc<Owner<S>>,
}

impl<S: Polled> Handle<S> {
    pub(crate) fn new(state: S, sleep: Option<Sleep>) -> Self {
        Self { owner: Arc::new(Owner { shared: Arc::new(Shared::new(state, sleep)) }) }
    }

    pub(crate) fn shared(&self) -> &Shared<S> {
        &self.owner.shared
    }

    /// Returns the poller, which may run anywhere.
    pub(crate) fn poller(&self) -> Poller {
        Poller { owner: self.owner.clone() }
    }

    /// Starts a thread that polls for it.
    ///
    /// # Errors
    /// If the engine is inline, or there can be no thread.
    pub(crate) fn start(&self) -> Result<(), StartError> {
        self.shared().check_process().map_err(WaitError::from)?;
        if self.shared().sleep.is_none() {
            return Err(WaitError::InlineEngine.into());
        }
        let poller = self.poller();
        thread::Builder::new().name(THREAD.into()).spawn(move || poller.run())?;
        Ok(())
    }
}

impl<S: Polled> Drop for Handle<S> {
    fn drop(&mut self) {
        self.owner.shared.with_own(S::close);
    }
}

/// The owner of a state, which keeps buffers until nobody uses them any longer.
#[derive(Debug)]
struct Owner<S: Polled> {
    shared: Arc<Shared<S>>,
}

impl<S: Polled> Drop for Owner<S> {
    fn drop(&mut self) {
        let unfinished = |state: &mut S, _: &mut After| state.is_busy() && state.gone().is_none();
        if self.shared.sleep.is_some() && self.shared.with(unfinished) == Ok(true) {
            // If there can be no thread, the buffers stay out of their pools: see the state.
            let _ = spawn(self.shared.clone());
        }
    }
}

/// The name of threads that poll for futures.
const THREAD: &str = "rma-client";

/// Starts a thread that polls until there is nothing to poll for.
fn spawn<S: Polled>(shared: Arc<Shared<S>>) -> std::io::Result<thread::JoinHandle<()>> {
    let body = move || {
        // Only of an inline engine, which has no thread.
        let _ = poll_until_done(&shared);
    };
    thread::Builder::new().name(THREAD.into()).spawn(body)
}

/// Polls until the last handle is gone and what has buffers over, or the engine is gone.
fn poll_until_done<S: Polled>(shared: &Shared<S>) -> Result<(), WaitError> {
    let over = poll_fn(|context| match shared.with(|state, _| state.poll_done(context)) {
        Ok(polled) => polled.map(Ok),
        Err(forked) => Poll::Ready(Err(forked.into())),
    });
    block_on(shared, pin!(over))?
}

/// A state that can be polled until there is nothing left to poll for.
trait Polls: fmt::Debug + Send + Sync {
    fn poll_until_done(&self) -> Result<(), WaitError>;
}

impl<S: Polled> Polls for Owner<S> {
    fn poll_until_done(&self) -> Result<(), WaitError> {
        poll_until_done(&self.shared)
    }
}

/// Polls the executor of a [`Client`](crate::Client) or of [`AsyncChannels`], so that their futures
/// are woken on whatever async executor they run.
///
/// [`AsyncChannels`]: crate::AsyncChannels
#[derive(Debug)]
#[must_use = "it polls while it runs"]
pub struct Poller {
    owner: Arc<dyn Polls>,
}

impl Poller {
    /// Polls until the last client, or end of a channel, and the last future are gone, and nothing
    /// uses their buffers any longer; or the engine is gone. Sleeps when there is nothing to do.
    ///
    /// # Errors
    /// If the engine is inline.
    pub fn run(self) -> Result<(), WaitError> {
        self.owner.poll_until_done()
    }
}
