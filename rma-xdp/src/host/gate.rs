//! The hosts' answers at the [`Gate`]: for themselves, and for a tenant.

use std::sync::Arc;

use rma_app::Portal;
use rma_core::{
    addr::HostAddr,
    crypto::RegionKey,
    gate::{Gate, Identity, Peer, Refused},
    grant::Grant,
    op::OpType,
    receive_queue::{ReceiveQueue, ReceiveQueueLayout},
    region::{Permissions, RegisteredRegion},
};
use rma_shm::Region;

#[cfg(doc)]
use super::Host;
use super::HostOf;
use crate::{
    driver::tenant::Tenant, engine::EngineKind, error::HostError, random::random_region_key,
};

/// A host as one application asks it: for a tenant ([`Host::for_tenant`]), or so that what comes
/// wakes a portal's thread ([`Host::waking`]), or both. Ends of channels are opened with one.
#[derive(Debug)]
pub struct HostFor<'a, P> {
    pub(crate) host: &'a HostOf<P>,
    pub(crate) tenant: Option<&'a Tenant>,
    pub(crate) portal: Option<&'a Portal>,
}

impl<'a, P> HostFor<'a, P> {
    /// The same, so that events of receive queues wake whoever sleeps at `portal`.
    #[must_use]
    pub const fn waking(self, portal: &'a Portal) -> Self {
        Self { portal: Some(portal), ..self }
    }
}

impl<P> HostOf<P> {
    /// The host for a tenant, to whose quotas all is charged.
    #[must_use]
    pub const fn for_tenant<'a>(&'a self, tenant: &'a Tenant) -> HostFor<'a, P> {
        HostFor { host: self, tenant: Some(tenant), portal: None }
    }

    /// The host, so that events of receive queues wake whoever sleeps at `portal`.
    #[must_use]
    pub const fn waking<'a>(&'a self, portal: &'a Portal) -> HostFor<'a, P> {
        HostFor { host: self, tenant: None, portal: Some(portal) }
    }

    /// The host for itself.
    pub(crate) const fn own(&self) -> HostFor<'_, P> {
        HostFor { host: self, tenant: None, portal: None }
    }
}

impl<P: EngineKind> Gate for HostFor<'_, P> {
    fn identity(&self) -> Identity {
        let pid = self.tenant.map_or(self.host.pid, Tenant::pid);
        Identity { addresses: self.host.addresses, pid }
    }

    fn key(&self) -> Result<RegionKey, Refused> {
        Ok(random_region_key()?)
    }

    fn register(
        &self,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
        events: Option<&ReceiveQueue>,
    ) -> Result<RegisteredRegion, Refused> {
        let mut driver = self.host.driver().map_err(HostError::from)?;
        Ok(match events {
            Some(queue) => {
                driver.register_with_events(self.tenant, queue.region(), memory, key, permissions)
            }
            None => driver.register(self.tenant, memory, key, permissions),
        }?)
    }

    fn receive_queue(
        &self,
        layout: ReceiveQueueLayout,
        permissions: Permissions,
    ) -> Result<ReceiveQueue, Refused> {
        Ok(Self::receive_queue(self, layout, permissions)?)
    }

    fn deregister(&self, region: &RegisteredRegion) -> Result<(), Refused> {
        Ok(self.host_of(region)?.deregister(region)?)
    }

    fn grant(
        &self,
        region: &RegisteredRegion,
        Peer { address, pid }: Peer,
        op_type: OpType,
    ) -> Result<Grant, Refused> {
        Ok(self.host_of(region)?.grant(region, address, pid, op_type)?)
    }

    fn rekey(&self, region: &RegisteredRegion, key: RegionKey) -> Result<(), Refused> {
        Ok(self.host_of(region)?.rekey(region, key)?)
    }

    fn prepare(&self, initiator: HostAddr) {
        self.host.prepare(initiator);
    }
}

impl<P: EngineKind> Gate for HostOf<P> {
    fn identity(&self) -> Identity {
        self.own().identity()
    }

    fn key(&self) -> Result<RegionKey, Refused> {
        self.own().key()
    }

    fn register(
        &self,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
        events: Option<&ReceiveQueue>,
    ) -> Result<RegisteredRegion, Refused> {
        Gate::register(&self.own(), memory, key, permissions, events)
    }

    fn receive_queue(
        &self,
        layout: ReceiveQueueLayout,
        permissions: Permissions,
    ) -> Result<ReceiveQueue, Refused> {
        Gate::receive_queue(&self.own(), layout, permissions)
    }

    fn deregister(&self, region: &RegisteredRegion) -> Result<(), Refused> {
        self.own().deregister(region)
    }

    fn grant(
        &self,
        region: &RegisteredRegion,
        peer: Peer,
        op_type: OpType,
    ) -> Result<Grant, Refused> {
        self.own().grant(region, peer, op_type)
    }

    fn rekey(&self, region: &RegisteredRegion, key: RegionKey) -> Result<(), Refused> {
        self.own().rekey(region, key)
    }

    fn prepare(&self, initiator: HostAddr) {
        self.own().prepare(initiator);
    }
}
