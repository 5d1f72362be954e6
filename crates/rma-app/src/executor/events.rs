//! Waiting for the events of a receive queue beside an [`Executor`]'s transfers, which go on
//! meanwhile (not in the paper).

use core::time::Duration;

use rma_core::{
    receive_queue::{Event, ReceiveQueue},
    time::Instant,
};

use super::Executor;
use crate::{error::WaitError, executor::waiting::Turn, idle::IdleTracker};

impl Executor {
    /// Waits for the next event of `queue`, which must be bound to the portal of this executor.
    /// Calls go on meanwhile, and their outcomes are kept. There need not be a call.
    ///
    /// It waits for as long as nobody sends. Of a queue that is bound to another portal, an event
    /// does not wake this thread.
    ///
    /// # Errors
    /// If no event can come: the engine is gone, or it is inline and so does nothing while this
    /// thread waits.
    pub fn wait_event(&mut self, queue: &mut ReceiveQueue) -> Result<Event, WaitError> {
        let event = self.wait_event_until(queue, None, None)?;
        Ok(event.expect("only a time that comes ends a wait without one"))
    }

    /// Waits for the next event of `queue`, for no longer than `timeout`: `None` if there is none
    /// by then.
    ///
    /// # Errors
    /// As [`Executor::wait_event`].
    pub fn wait_event_timeout(
        &mut self,
        queue: &mut ReceiveQueue,
        timeout: Duration,
    ) -> Result<Option<Event>, WaitError> {
        let until = self.now() + timeout;
        self.wait_event_until(queue, None, Some(until))
    }

    pub(crate) fn wait_event_until(
        &mut self,
        queue: &mut ReceiveQueue,
        mut engine: Option<Turn<'_>>,
        until: Option<Instant>,
    ) -> Result<Option<Event>, WaitError> {
        let mut idle = IdleTracker::new(self.idle);
        loop {
            // Looked at first: events given before the engine ended are still there.
            self.lease.check_process()?;
            let ended = if engine.is_some() { Ok(()) } else { self.lease.ended() };
            let work = self.poll();
            if let Some(event) = queue.poll() {
                return Ok(Some(event));
            }
            ended?;
            if until.is_some_and(|until| self.now() >= until) {
                return Ok(None);
            }
            match &mut engine {
                Some(turn) => {
                    turn();
                }
                None if work > 0 => idle.busy(),
                None => self.rest(&mut idle, until, || queue.has_event()),
            }
        }
    }

    /// [`Executor::arm`] for a thread that waits for an event of `queue` as well: `false` if it
    /// must not sleep, as there is an event or something else to do already, or the engine has
    /// ended. Without a call it may sleep.
    #[must_use = "whoever sleeps beside an event that is there already sleeps for ever"]
    pub fn arm_with(&mut self, queue: &ReceiveQueue) -> bool {
        self.arm_unless(|| queue.has_event())
    }
}
