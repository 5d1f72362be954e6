//! Waiting for the events of a receive queue, and for events and completions at once, by one
//! descriptor (not in the paper).
//!
//! The engine wakes the thread of the portal that a queue is bound to
//! ([`ReceiveQueueMemory::into_port`](rma_core::receive_queue::ReceiveQueueMemory::into_port)).
//! Events come by themselves, so unlike a completion one can be waited for with no op in flight.

use core::time::Duration;

use rma_core::receive_queue::{Event, ReceiveQueue};

use super::Portal;
use crate::{
    error::WaitError,
    home::Home,
    wait::{Awaited, Look, wait},
};

impl Portal {
    /// Waits for the next event of `queue`, which must be bound to this portal, as
    /// [`Portal::set_idle`] says. Completions that come meanwhile are left for [`Portal::poll`].
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
    /// As [`Portal::wait_event`].
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
        wait(self, timeout, |_| queue.look())
    }

    /// [`Portal::arm`] for a thread that waits for an event of `queue` as well: `false` if it must
    /// not sleep, as there is an event or a completion already, or the engine has ended. With no op
    /// in flight it may sleep.
    #[must_use = "whoever sleeps beside an event that is there already sleeps for ever"]
    pub fn arm_with(&mut self, queue: &ReceiveQueue) -> bool {
        let Some(sleep) = self.lease.sleep() else { return false };
        sleep.prepare();
        !queue.has_event() && self.lease.may_sleep(&self.rings)
    }
}

/// Its next event.
impl Awaited for ReceiveQueue {
    type Found = Event;
    type Error = WaitError;

    /// It may be bound to a portal of any maker, or to none.
    fn is_of(&self, _: &dyn Home) -> bool {
        true
    }

    fn look(&mut self) -> Result<Look<Event>, WaitError> {
        Ok(Look::of(self.poll(), 0))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rma_core::{executor::ExecutorConfig, receive_queue::Receive};

    use super::*;
    use crate::{Transfers, scripted::portal_and_queue};

    #[test]
    fn a_thread_that_sleeps_with_nothing_in_flight_gets_every_event() {
        let (mut portal, mut queue, mut engine) = portal_and_queue();
        queue.post_all();
        const EVENTS: u64 = 2000;
        let engine = thread::spawn(move || {
            for number in 0..EVENTS {
                engine.publish(number);
            }
        });
        for number in 0..EVENTS {
            let event = portal.wait_event(&mut queue).unwrap();
            assert_eq!((event.immediate, event.receive), (number, Receive((number % 4) as u16)));
            queue.post(event.receive).unwrap();
        }
        engine.join().unwrap();
        let none = portal.wait_event_timeout(&mut queue, Duration::from_millis(1)).unwrap();
        assert_eq!(none, None);
    }

    #[test]
    fn an_executor_waits_for_an_event_with_no_call() {
        let (portal, mut queue, mut engine) = portal_and_queue();
        queue.post_all();
        let mut executor = Transfers::new(portal, ExecutorConfig::default()).unwrap();
        let engine = thread::spawn(move || engine.publish(77));
        assert_eq!(executor.wait_event(&mut queue).unwrap().immediate, 77);
        engine.join().unwrap();
        let none = executor.wait_event_timeout(&mut queue, Duration::from_millis(1)).unwrap();
        assert_eq!(none, None);
    }

    #[test]
    fn nobody_is_armed_beside_an_event_and_one_without_ops_may_be() {
        let (mut portal, mut queue, mut engine) = portal_and_queue();
        queue.post_all();
        assert!(!portal.arm(), "no completion can come");
        portal.disarm();
        assert!(portal.arm_with(&queue));
        portal.disarm();
        engine.publish(1);
        assert!(!portal.arm_with(&queue));
        portal.disarm();
        assert!(queue.poll().is_some());
        engine.end_engine();
        assert!(!portal.arm_with(&queue));
        portal.disarm();
        assert_eq!(portal.wait_event(&mut queue), Err(WaitError::EngineGone));
    }
}
