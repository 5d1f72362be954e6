//! Waiting for the events of a receive queue beside [`Transfers`], which go on
//! meanwhile (not in the paper).

use core::time::Duration;

use rma_core::receive_queue::{Event, ReceiveQueue};

use super::Transfers;
use crate::{
    error::WaitError,
    wait::{Look, wait},
};

impl Transfers {
    /// Waits for the next event of `queue`, which must be bound to the portal of these transfers.
    /// Calls go on meanwhile, and their outcomes are kept. There need not be a call.
    ///
    /// It waits for as long as nobody sends. Of a queue that is bound to another portal, an event
    /// does not wake this thread.
    ///
    /// # Errors
    /// If no event can come: the engine is gone, or it is inline and so does nothing while this
    /// thread waits.
    pub fn wait_event(&mut self, queue: &mut ReceiveQueue) -> Result<Event, WaitError> {
        let event = self.wait_event_for(queue, None)?;
        Ok(event.expect("only a time that comes ends a wait without one"))
    }

    /// Waits for the next event of `queue`, for no longer than `timeout`: `None` if there is none
    /// by then.
    ///
    /// # Errors
    /// As [`Transfers::wait_event`].
    pub fn wait_event_timeout(
        &mut self,
        queue: &mut ReceiveQueue,
        timeout: Duration,
    ) -> Result<Option<Event>, WaitError> {
        self.wait_event_for(queue, Some(timeout))
    }

    fn wait_event_for(
        &mut self,
        queue: &mut ReceiveQueue,
        timeout: Option<Duration>,
    ) -> Result<Option<Event>, WaitError> {
        wait(self, timeout, |executor| {
            let work = executor.poll();
            Ok(Look::of(queue.poll(), work))
        })
    }

    /// [`Transfers::arm`] for a thread that waits for an event of `queue` as well: `false` if it
    /// must not sleep, as there is an event or something else to do already, or the engine has
    /// ended. Without a call it may sleep.
    #[must_use = "whoever sleeps beside an event that is there already sleeps for ever"]
    pub fn arm_with(&mut self, queue: &ReceiveQueue) -> bool {
        self.arm_unless(|| queue.has_event())
    }
}
