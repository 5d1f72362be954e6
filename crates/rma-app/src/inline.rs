//! Waiting on the thread that turns an inline engine: [`Turning`].
//!
//! Such an engine does nothing while its thread waits, so its portals, executors and clients refuse
//! to wait ([`WaitError::InlineEngine`]). The thread that has the engine waits here instead, and
//! turns the engine meanwhile.

use core::pin::pin;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
};

use rma_core::{
    command::Completion,
    executor::{Call, OpCall, Outcome},
    receive_queue::{Event, ReceiveQueue},
};

use crate::{
    client::Client,
    error::{TransferError, WaitError},
    executor::Executor,
    home::Home,
    portal::Portal,
};

/// An engine that is turned while its thread waits for what it does.
#[derive(Debug)]
pub struct Turning<'a, F> {
    pub(crate) home: &'a dyn Home,
    pub(crate) turn: F,
}

impl<'a, F: FnMut() -> usize> Turning<'a, F> {
    /// `turn` is one turn of the engine whose portals have this home.
    pub const fn new(home: &'a dyn Home, turn: F) -> Self {
        Self { home, turn }
    }

    /// Waits until `portal` has a completion.
    ///
    /// # Errors
    /// If no op is in flight, or another maker made the portal.
    pub fn wait(mut self, portal: &mut Portal) -> Result<Completion, WaitError> {
        if !portal.is_of(self.home) {
            return Err(WaitError::AnotherHost);
        }
        loop {
            if let Some(completion) = portal.poll() {
                return Ok(completion);
            }
            if portal.outstanding() == 0 {
                return Err(WaitError::NothingOutstanding);
            }
            (self.turn)();
        }
    }

    /// Waits until `queue`, which may be bound to any portal of the engine, has an event.
    pub fn wait_event(mut self, queue: &mut ReceiveQueue) -> Event {
        loop {
            if let Some(event) = queue.poll() {
                return event;
            }
            (self.turn)();
        }
    }

    /// Waits until `queue` has an event, and lets the calls of `executor` go on meanwhile.
    ///
    /// # Errors
    /// If another maker made the executor's portal.
    pub fn wait_event_beside(
        mut self,
        executor: &mut Executor,
        queue: &mut ReceiveQueue,
    ) -> Result<Event, WaitError> {
        self.check(executor)?;
        let event = executor.wait_event_until(queue, Some(&mut self.turn), None)?;
        Ok(event.expect("only a time that comes ends a wait without one"))
    }

    /// Submits a call and waits until it is over: [`Executor::run`].
    ///
    /// # Errors
    /// If the call is refused, or another maker made the executor's portal.
    pub fn run(
        mut self,
        executor: &mut Executor,
        call: &Call<'_>,
    ) -> Result<Outcome, TransferError> {
        self.check(executor)?;
        executor.run_with(call, Some(&mut self.turn))
    }

    /// Submits a call of one recorded op and waits until it is over: [`Executor::run_op`].
    ///
    /// # Errors
    /// As [`Turning::run`].
    pub fn run_op(
        mut self,
        executor: &mut Executor,
        call: &OpCall<'_>,
    ) -> Result<Outcome, TransferError> {
        self.check(executor)?;
        executor.run_op_with(call, Some(&mut self.turn))
    }

    /// Waits until any call is over: [`Executor::wait_any`].
    ///
    /// # Errors
    /// If there is no call, or another maker made the executor's portal.
    pub fn wait_any(mut self, executor: &mut Executor) -> Result<Outcome, WaitError> {
        self.check(executor)?;
        executor.wait_with(None, Some(&mut self.turn))
    }

    /// Runs a future to its end, polling `client` between its wake-ups. The future may also wait
    /// for what other threads do.
    ///
    /// # Errors
    /// If another maker made the portal of the client's executor.
    pub fn block_on<T: Future>(
        mut self,
        client: &Client,
        future: T,
    ) -> Result<T::Output, WaitError> {
        client.with_executor(|executor| self.check(executor))??;
        let mut future = pin!(future);
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Waker::from(woken.clone());
        loop {
            if woken.0.swap(false, SeqCst)
                && let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker))
            {
                return Ok(output);
            }
            (self.turn)();
            client.poll();
        }
    }

    fn check(&self, executor: &Executor) -> Result<(), WaitError> {
        if executor.is_of(self.home) { Ok(()) } else { Err(WaitError::AnotherHost) }
    }
}

/// Whether a future must be polled again.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}
