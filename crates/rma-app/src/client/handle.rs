//! What keeps the state that the clones of one client share alive: clients and their futures by a
//! [`Handle`], whoever polls for them by an [`Owner`].

use core::{future::poll_fn, pin::pin};
use std::{sync::Arc, thread};

use super::{
    seat::block_on,
    tasks::{After, Shared, State},
};
use crate::{error::WaitError, executor::Executor};

/// What clients, futures and receivers have, and pollers have not.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) owner: Arc<Owner>,
}

impl Handle {
    pub(super) fn new(executor: Executor) -> Self {
        Self { owner: Arc::new(Owner { shared: Arc::new(Shared::new(executor)) }) }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.owner.shared
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.owner.shared.with(State::close);
    }
}

/// What keeps buffers of calls until these are over.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        let unfinished =
            |state: &mut State, _: &mut After| state.calls() > 0 && state.gone.is_none();
        if self.shared.sleep.is_some() && self.shared.with(unfinished) {
            // If there can be no thread, the buffers stay out of their pools: see `State`.
            let _ = spawn(self.shared.clone());
        }
    }
}

/// Starts a thread that polls until there is nothing to poll for.
fn spawn(shared: Arc<Shared>) -> std::io::Result<thread::JoinHandle<()>> {
    let body = move || {
        // Only of an inline engine, which has no thread.
        let _ = poll_until_done(&shared);
    };
    thread::Builder::new().name("rma-client".into()).spawn(body)
}

/// Polls until the last client and future are gone and their calls over, or the engine is.
pub(super) fn poll_until_done(shared: &Shared) -> Result<(), WaitError> {
    let over = poll_fn(|context| shared.with(|state, _| state.poll_done(context)));
    block_on(shared, pin!(over))
}
