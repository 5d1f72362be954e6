//! The hosts' part in receive queues: [`ReceiveQueue`] (not in the paper).

use std::sync::Arc;

use rma_core::{
    crypto::RegionKey,
    receive_queue::{ReceiveQueue, ReceiveQueueLayout},
    region::{Permissions, RegisteredRegion},
};
use rma_shm::Region;

#[cfg(doc)]
use super::Host;
use super::{HostOf, gate::HostFor};
use crate::{
    driver::queues::{QueueParts, charged_len},
    engine::EngineKind,
    error::HostError,
    random::random_region_key,
};

impl<P: EngineKind> HostOf<P> {
    /// Registers a receive queue under a fresh region key: where SEND, NOTIFY and WRITE_WITH_IMM of
    /// other hosts make events. It counts as a region, and its buffers and rings count as
    /// registered bytes. `permissions` are of [`Permissions::SEND`], [`Permissions::NOTIFY`] and
    /// [`Permissions::REKEY`].
    ///
    /// An application looks for its events now and then. Those of a queue of [`Host::waking`] wake
    /// the thread that waits for completions of that portal, so that one descriptor is for both.
    /// Once the portal is dropped the queue goes on, and its events wake nobody. For futures, make
    /// the queue before the executor over its portal:
    /// [`Client::receiver`](rma_app::Client::receiver).
    ///
    /// Senders get a [`Host::grant`] for [`ReceiveQueue::region`], which also
    /// [`Host::rekey`] and [`Host::deregister`] take. A queue that is dropped and not deregistered
    /// stays: its senders are told REMOTE_NOT_READY.
    ///
    /// ```
    /// # use rma_xdp::{
    /// #     Host, HostConfig, OpStatus, OpType, Permissions, messages::ReceiveQueueLayout,
    /// # };
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let sender = Host::open(HostConfig::udp([127, 0, 0, 32]))?;
    /// let host = Host::open(HostConfig::udp([127, 0, 0, 31]))?;
    /// let layout = ReceiveQueueLayout::new(16, 256)?; // 16 messages of up to 256 bytes
    /// let mut queue = host.receive_queue(layout, Permissions::SEND)?;
    /// queue.post_all(); // what comes before is refused
    ///
    /// let grant = host.grant(queue.region(), [127, 0, 0, 32].into(), sender.pid(), OpType::Send)?;
    /// assert_eq!(grant.region_len, 256);
    /// # let message = sender.register(256, Permissions::NONE)?;
    /// # message.write(0, b"hello")?;
    /// # let mut portal = sender.portal(1)?;
    /// portal.send(&grant, &message, 0, 5, 7)?; // 7 is the immediate: a number beside the message
    /// assert_eq!(portal.wait()?.status, OpStatus::Ok);
    ///
    /// let event = queue.poll().expect("the event was there before the op was OK");
    /// let mut bytes = [0; 5];
    /// queue.read(&event, &mut bytes)?;
    /// assert_eq!((&bytes, event.immediate), (b"hello", 7));
    /// assert_eq!(event.initiator, [127, 0, 0, 32].into());
    /// queue.post(event.receive)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the host has no region or bytes left ([`crate::tenant::AllocationError`]), or
    /// `permissions` are not such as the queue can have.
    pub fn receive_queue(
        &self,
        layout: ReceiveQueueLayout,
        permissions: Permissions,
    ) -> Result<ReceiveQueue, HostError> {
        self.own().receive_queue(layout, permissions)
    }

    /// [`Host::register`] of a region whose WRITE_WITH_IMMs make events in `queue`. They need
    /// [`Permissions::WRITE`] and [`Permissions::NOTIFY`] of the region, and a grant for it. The
    /// region is charged to whom the queue is for. Once the queue is deregistered, such ops are
    /// refused with REMOTE_PERMISSION_DENIED; all others go on.
    ///
    /// # Errors
    /// As [`Host::register`]; and if the queue is not registered at this host.
    pub fn register_with_events(
        &self,
        queue: &ReceiveQueue,
        len: usize,
        permissions: Permissions,
    ) -> Result<RegisteredRegion, HostError> {
        self.driver()?.admits_beside(queue.region(), len)?;
        let (memory, key) = (Arc::new(Region::new(len)?), random_region_key()?);
        self.register_memory_with_events(queue, memory, key, permissions)
    }

    /// [`Host::register_memory`] of a region with events, as [`Host::register_with_events`].
    ///
    /// # Errors
    /// As [`Host::register_with_events`].
    pub fn register_memory_with_events(
        &self,
        queue: &ReceiveQueue,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
    ) -> Result<RegisteredRegion, HostError> {
        self.driver()?.register_with_events(None, queue.region(), memory, key, permissions)
    }
}

impl<P: EngineKind> HostFor<'_, P> {
    /// As [`Host::receive_queue`], for the portal of [`HostFor::waking`], which is the tenant's.
    ///
    /// # Errors
    /// As [`Host::receive_queue`], by the tenant's quotas; and if the portal is not the tenant's.
    pub fn receive_queue(
        &self,
        layout: ReceiveQueueLayout,
        permissions: Permissions,
    ) -> Result<ReceiveQueue, HostError> {
        self.host.driver()?.admits(self.tenant, charged_len(layout))?;
        let (memory, key) = (Arc::new(Region::new(layout.memory_len())?), random_region_key()?);
        let parts = QueueParts { layout, memory, key, permissions };
        self.host.driver()?.receive_queue(self.tenant, self.portal, parts)
    }
}
