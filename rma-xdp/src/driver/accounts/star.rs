//! The books of StaR: what is charged for portals, protection domains, memory regions and windows.
//!
//! Each is charged before an engine is asked for it, and refunded if there is none. A portal is
//! charged at the engine that is to serve it, and so is all that it has. A window is a row, and no
//! bytes: those are its region's.

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
    driver::{
        orphans::Asker,
        tenant::{AllocationError, Resource, TenantId},
    },
    error::{HostError, StarError},
};

impl Accounts {
    /// Charges a tenant for so much of some pools, where they are engines' of this one's.
    fn take(
        &mut self,
        tenant: TenantId,
        engine: usize,
        wanted: &[(Resource, u64)],
    ) -> Result<Charge, AllocationError> {
        let charge = self.admit(tenant, engine, wanted)?;
        self.charge(&charge);
        Ok(charge)
    }

    /// Charges a tenant for a portal of so many work requests and stateful connections, at the
    /// first of these engines that has room: the one with the tenant's reservation, while any of
    /// that is free, and then those with the fewest portals. The error is of the one with most.
    pub(in crate::driver) fn take_star_portal(
        &mut self,
        tenant: TenantId,
        work_requests: u32,
        stateful_connections: u32,
        mut engines: Vec<usize>,
    ) -> Result<Charge, AllocationError> {
        let wanted = [
            (Resource::WorkRequests, work_requests.into()),
            (Resource::StatefulConnections, stateful_connections.into()),
        ];
        let account = &self.tenants[&tenant];
        let has_reserved = account
            .shares
            .iter()
            .any(|(resource, share)| resource.is_of_engine() && share.reserved_free() > 0);
        let home = has_reserved.then_some(account.engine);
        let portals = |at| self.star.values().filter(|it| it.charge.engine == at).count();
        engines.sort_by_cached_key(|&engine| (Some(engine) != home, portals(engine)));
        let mut refused: Option<AllocationError> = None;
        for engine in engines {
            match self.take(tenant, engine, &wanted) {
                Ok(charge) => return Ok(charge),
                Err(error) if refused.as_ref().is_none_or(|it| it.most() < error.most()) => {
                    refused = Some(error);
                }
                Err(_) => {}
            }
        }
        Err(refused.expect("a host has an engine"))
    }

    /// An engine serves a portal that is charged for, under this number.
    pub(in crate::driver) fn star_attached(&mut self, tag: StarTag, number: u16, charge: Charge) {
        self.star.insert(tag, StarPortal { number, charge, pds: BTreeMap::new() });
    }

    /// The owner of the portal of this tag, which asks for something.
    pub(in crate::driver) fn star_asker(&self, tag: StarTag) -> Result<Asker, StarError> {
        let &StarPortal { number, ref charge, .. } =
            self.star.get(&tag).ok_or(StarError::NoSuchPortal)?;
        Ok(Asker { tag, number, engine: charge.engine })
    }

    /// No engine serves a portal any longer, and all that it had is free.
    pub(in crate::driver) fn star_detached(&mut self, tag: StarTag) {
        let portal = self.star.remove(&tag);
        portal.iter().flat_map(StarPortal::charges).for_each(|charge| self.refund(charge));
    }

    /// Charges who has a portal for so much of a pool.
    fn take_of(&mut self, tag: StarTag, wanted: &[(Resource, u64)]) -> Result<Charge, HostError> {
        let portal = self.star.get(&tag).ok_or(StarError::NoSuchPortal)?;
        let Charge { tenant, engine, .. } = portal.charge;
        Ok(self.take(tenant, engine, wanted)?)
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
