//! Waiting for the events of a receive queue, and for events and completions at once, by one
//! descriptor (not in the paper).
//!
//! The engine wakes the thread of the portal that a queue is bound to
//! ([`ReceiveQueueMemory::into_port`](rma_core::receive_queue::ReceiveQueueMemory::into_port)).
//! Events come by themselves, so unlike a completion one can be waited for with no op in flight.

use core::time::Duration;

use rma_core::receive_queue::{Event, ReceiveQueue};

use super::Portal;
use crate::error::WaitError;

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
        loop {
            if let Some(event) = self.wait_event_for(queue, None)? {
                return Ok(event);
            }
        }
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
        let Self { lease, idle, clock, .. } = self;
        lease.wait(*idle, clock, timeout, queue, ReceiveQueue::poll, ReceiveQueue::has_event)
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

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, atomic::AtomicBool},
        thread,
    };

    use rma_core::{
        addr::{HostAddr, Pid},
        command::CommandSlotId,
        executor::ExecutorConfig,
        op::OpType,
        portal::{PortalConfig, portal},
        receive_queue::{Receive, ReceiveQueueLayout, ReceiveQueueMemory},
        region::{NicTag, RegionId, RegisteredRegion},
        time::Instant,
    };
    use rma_shm::{Consumer, Producer, Region};

    use super::*;
    use crate::{
        Executor, IdlePolicy, gauges::ExecutorWatch, home::Home, home::PortalParts, life::Life,
        sleep::Sleep,
    };

    #[derive(Debug)]
    struct Nobody;

    impl Home for Nobody {
        fn executor_made(&self, _: ExecutorWatch) {}
        fn slots_returned(&self, _: core::ops::Range<u16>) {}
    }

    /// What an engine has of a portal and of a queue that is bound to it.
    struct EnginesEnd {
        posts: Consumer,
        events: Producer,
        sleep: Sleep,
    }

    impl EnginesEnd {
        /// Publishes an event for the receive that was posted first, once one is.
        fn publish(&mut self, immediate: u64) {
            let post = loop {
                match self.posts.pop() {
                    Some(post) => break post,
                    None => thread::yield_now(),
                }
            };
            let receive = post.0[0] as u16;
            let event = Event {
                op_type: OpType::Notify,
                receive: Receive(receive),
                len: 0,
                immediate,
                initiator: HostAddr::from([192, 0, 2, 2]),
                pid: Pid(2),
                region: RegionId::from_bits(5),
                region_offset: 0,
                at: Instant::ZERO,
            };
            self.events.push(&event.to_line()).unwrap();
            let bell = self.sleep.bell();
            if bell.doorbell.needs_ring() {
                bell.wake.wake();
            }
        }
    }

    /// A portal and a queue of four receives, all posted, and the engine's end of both.
    fn portal_and_queue() -> (Portal, ReceiveQueue, EnginesEnd, Arc<AtomicBool>) {
        let (pid, nic) = (Pid(1), NicTag(1));
        let addresses = HostAddr::from([192, 0, 2, 1]).into();
        let config = PortalConfig { slots: 0..4, pid, addresses, bell: None, flag: None, nic };
        let (rings, _) = portal(config);
        let (ended, sleep) = (Arc::new(AtomicBool::new(false)), Sleep::new().unwrap());
        let (life, home) = (Life::Thread(ended.clone()), Arc::new(Nobody));
        let mut portal = Portal::new(PortalParts { rings, home, life, sleep: Some(sleep.clone()) });
        // Sleeps at once.
        let at_once = Duration::ZERO;
        portal.set_idle(
            IdlePolicy::default().with(|it| (it.spin, it.yield_for) = (at_once, at_once)),
        );
        let layout = ReceiveQueueLayout::new(4, 0).unwrap();
        let memory = ReceiveQueueMemory::heap(layout);
        let (posts, events) =
            (memory.posts().clone().into_consumer(), memory.events().clone().into_producer());
        let bytes = Arc::new(Region::new(layout.memory_len()).unwrap());
        let region = RegisteredRegion::new(RegionId::from_bits(5), bytes, nic);
        let mut queue = memory.into_application(region);
        queue.post_all();
        assert_eq!(portal.rings.slots().start, CommandSlotId(0).0);
        (portal, queue, EnginesEnd { posts, events, sleep }, ended)
    }

    #[test]
    fn a_thread_that_sleeps_with_nothing_in_flight_gets_every_event() {
        let (mut portal, mut queue, mut engine, _) = portal_and_queue();
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
        let (portal, mut queue, mut engine, _) = portal_and_queue();
        let mut executor = Executor::new(portal, ExecutorConfig::default()).unwrap();
        let engine = thread::spawn(move || engine.publish(77));
        assert_eq!(executor.wait_event(&mut queue).unwrap().immediate, 77);
        engine.join().unwrap();
        let none = executor.wait_event_timeout(&mut queue, Duration::from_millis(1)).unwrap();
        assert_eq!(none, None);
    }

    #[test]
    fn nobody_is_armed_beside_an_event_and_one_without_ops_may_be() {
        let (mut portal, mut queue, mut engine, ended) = portal_and_queue();
        assert!(!portal.arm(), "no completion can come");
        portal.disarm();
        assert!(portal.arm_with(&queue));
        portal.disarm();
        engine.publish(1);
        assert!(!portal.arm_with(&queue));
        portal.disarm();
        assert!(queue.poll().is_some());
        ended.store(true, std::sync::atomic::Ordering::SeqCst);
        assert!(!portal.arm_with(&queue));
        portal.disarm();
        assert_eq!(portal.wait_event(&mut queue), Err(WaitError::EngineGone));
    }
}
