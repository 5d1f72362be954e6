//! The registrar that channel ends are set up on: a host ([`rma_channel::Registrar`]).

use std::sync::Arc;

use rma_app::Portal;
use rma_channel::{Peer, Registrar};
use rma_core::{
    addr::HostAddr,
    crypto::RegionKey,
    grant::Grant,
    op::OpType,
    receive_queue::{ReceiveQueue, ReceiveQueueLayout},
    region::{Permissions, RegisteredRegion},
};
use rma_shm::Region;

use super::HostOf;
use crate::{
    driver::{
        control::ControlPath,
        queues::{QueueParts, charged_len},
        tenant::Tenant,
    },
    error::HostError,
    random::random_region_key,
};

/// A process of a host, as the ends of channels ([`rma_channel`]) are set up for it.
#[derive(Debug)]
pub struct HostRegistrar<'a, P> {
    host: &'a HostOf<P>,
    address: HostAddr,
    tenant: Option<&'a Tenant>,
    portal: Option<&'a Portal>,
}

#[expect(
    private_bounds,
    reason = "nobody else can run an engine: two kinds of host are all there are"
)]
impl<'a, P: ControlPath> HostRegistrar<'a, P> {
    /// Of the host itself, which others reach at `address`, one of its own.
    #[must_use]
    pub const fn new(host: &'a HostOf<P>, address: HostAddr) -> Self {
        Self { host, address, tenant: None, portal: None }
    }

    /// The same for a tenant, to whose quotas all is charged.
    #[must_use]
    pub const fn for_tenant(self, tenant: &'a Tenant) -> Self {
        Self { tenant: Some(tenant), ..self }
    }

    /// The same, so that what comes for a channel wakes whoever sleeps at `portal`.
    #[must_use]
    pub const fn waking(self, portal: &'a Portal) -> Self {
        Self { portal: Some(portal), ..self }
    }
}

impl<P: ControlPath> Registrar for HostRegistrar<'_, P> {
    type Error = HostError;

    fn peer(&self) -> Peer {
        let pid = self.tenant.map_or(self.host.pid, Tenant::pid);
        Peer { address: self.address, pid }
    }

    fn key(&mut self) -> Result<RegionKey, HostError> {
        random_region_key()
    }

    fn register(
        &mut self,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
        events: Option<&ReceiveQueue>,
    ) -> Result<RegisteredRegion, HostError> {
        let mut driver = self.host.driver()?;
        match events {
            Some(queue) => driver.register_with_events(queue.region(), memory, key, permissions),
            None => driver.register(self.tenant, memory, key, permissions),
        }
    }

    fn receive_queue(
        &mut self,
        layout: ReceiveQueueLayout,
        permissions: Permissions,
    ) -> Result<ReceiveQueue, HostError> {
        let mut driver = self.host.driver()?;
        driver.admits(self.tenant, charged_len(layout))?;
        let (memory, key) = (Arc::new(Region::new(layout.memory_len())?), random_region_key()?);
        let parts = QueueParts { layout, memory, key, permissions };
        driver.receive_queue(self.tenant, self.portal, parts)
    }

    fn deregister(&mut self, region: &RegisteredRegion) -> Result<(), HostError> {
        self.host.deregister(region)
    }

    fn grant(
        &mut self,
        region: &RegisteredRegion,
        peer: Peer,
        op_type: OpType,
    ) -> Result<Grant, HostError> {
        self.host.grant(region, peer.address, peer.pid, op_type)
    }

    fn rekey(&mut self, region: &RegisteredRegion, key: RegionKey) -> Result<(), HostError> {
        self.host.rekey(region, key)
    }
}
