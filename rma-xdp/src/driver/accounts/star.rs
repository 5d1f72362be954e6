//! The books of StaR: what is charged for portals, protection domains, memory regions and windows.
//!
//! Each is charged before an engine is asked for it, and refunded if there is none. A window is a
//! row, and no bytes: those are its region's.

use std::{collections::BTreeMap, sync::Arc};

use rma_app::home::StarTag;
use rma_shm::Region;
use rma_star::names::{MrId, PdId};

use super::{
    Accounts,
    pools::Charge,
    star_portals::{MemoryRegion, ProtectionDomain, StarPortal},
};
use crate::{
    driver::tenant::{AllocationError, Resource, TenantId},
    error::{HostError, StarError},
};

impl Accounts {
    /// Charges a tenant for so much of some pools.
    fn take(
        &mut self,
        tenant: TenantId,
        wanted: &[(Resource, u64)],
    ) -> Result<Charge, AllocationError> {
        let charge = self.admit(tenant, wanted)?;
        self.charge(&charge);
        Ok(charge)
    }

    /// Charges a tenant for a portal of so many work requests and stateful connections.
    pub(in crate::driver) fn take_star_portal(
        &mut self,
        tenant: TenantId,
        work_requests: u32,
        stateful_connections: u32,
    ) -> Result<Charge, AllocationError> {
        let wanted = [
            (Resource::WorkRequests, work_requests.into()),
            (Resource::StatefulConnections, stateful_connections.into()),
        ];
        self.take(tenant, &wanted)
    }

    /// An engine serves a portal that is charged for, under this number.
    pub(in crate::driver) fn star_attached(&mut self, tag: StarTag, number: u16, charge: Charge) {
        self.star.insert(tag, StarPortal { number, charge, pds: BTreeMap::new() });
    }

    /// The number of a portal at its engine.
    pub(in crate::driver) fn star_number(&self, tag: StarTag) -> Result<u16, StarError> {
        self.star.get(&tag).map(|portal| portal.number).ok_or(StarError::NoSuchPortal)
    }

    /// No engine serves a portal any longer, and all that it had is free.
    pub(in crate::driver) fn star_detached(&mut self, tag: StarTag) {
        let portal = self.star.remove(&tag);
        portal.iter().flat_map(StarPortal::charges).for_each(|charge| self.refund(charge));
    }

    /// Charges who has a portal for so much of a pool.
    fn take_of(&mut self, tag: StarTag, wanted: &[(Resource, u64)]) -> Result<Charge, HostError> {
        let tenant = self.star.get(&tag).ok_or(StarError::NoSuchPortal)?.charge.tenant;
        Ok(self.take(tenant, wanted)?)
    }

    /// Charges for a protection domain of a portal.
    pub(in crate::driver) fn take_pd(&mut self, tag: StarTag) -> Result<Charge, HostError> {
        self.take_of(tag, &[(Resource::ProtectionDomains, 1)])
    }

    /// A portal has a protection domain that is charged for.
    pub(in crate::driver) fn pd_allocated(&mut self, tag: StarTag, pd: PdId, charge: Charge) {
        let Some(portal) = self.star.get_mut(&tag) else { return self.refund(&charge) };
        portal.pds.insert(pd, ProtectionDomain { charge, mrs: BTreeMap::new() });
    }

    /// A protection domain and its memory regions have gone.
    pub(in crate::driver) fn pd_deallocated(&mut self, tag: StarTag, pd: PdId) {
        let pd = self.star.get_mut(&tag).and_then(|portal| portal.pds.remove(&pd));
        pd.iter().flat_map(ProtectionDomain::charges).for_each(|charge| self.refund(charge));
    }

    /// Charges for a memory region of `bytes`; for a window if there are none.
    pub(in crate::driver) fn take_mr(
        &mut self,
        tag: StarTag,
        bytes: Option<u64>,
    ) -> Result<Charge, HostError> {
        let row = (Resource::MemoryRegions, 1);
        match bytes {
            Some(bytes) => self.take_of(tag, &[row, (Resource::RegisteredBytes, bytes)]),
            None => self.take_of(tag, &[row]),
        }
    }

    /// A protection domain has a memory region, or a window, that is charged for.
    pub(in crate::driver) fn mr_registered(
        &mut self,
        tag: StarTag,
        pd: PdId,
        mr: MrId,
        charge: Charge,
        memory: Option<Arc<Region>>,
    ) {
        let pd = self.star.get_mut(&tag).and_then(|portal| portal.pds.get_mut(&pd));
        let Some(pd) = pd else { return self.refund(&charge) };
        pd.mrs.insert(mr, MemoryRegion { charge, _memory: memory });
    }

    /// A memory region or window is registered no longer.
    pub(in crate::driver) fn mr_deregistered(&mut self, tag: StarTag, pd: PdId, mr: MrId) {
        let pd = self.star.get_mut(&tag).and_then(|portal| portal.pds.get_mut(&pd));
        if let Some(mr) = pd.and_then(|pd| pd.mrs.remove(&mr)) {
            self.refund(&mr.charge);
        }
    }
}
