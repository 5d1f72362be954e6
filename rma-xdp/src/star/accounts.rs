//! The books of StaR: what is charged for portals, protection domains, memory regions and windows.
//!
//! Each is charged before an engine is asked for it, and refunded if there is none. A portal is
//! charged at the engine that is to serve it, and so is all that it has. A window is a row, and no
//! bytes: those are its region's.

use std::{collections::BTreeMap, sync::Arc};

use rma_app::home::PortalTag;
use rma_shm::Region;
use rma_star::names::{MrId, PdId};

use super::{
    books::{Asker, MemoryRegion, ProtectionDomain, StarPortal},
    error::StarError,
};
use crate::{
    driver::{
        accounts::{Account, Accounts, pools::Charge},
        ledger::Ledger,
        pool::Share,
        tenant::{AllocationError, Resource, TenantId},
    },
    error::HostError,
};

impl Accounts {
    /// The engine that has what is reserved of engines' pools for a tenant, while any is free.
    fn reserved_at(&self, tenant: TenantId) -> Option<usize> {
        let Account { shares, engine, .. } = &self.tenants[&tenant];
        let mut shares = shares.iter();
        let has_reserved =
            |(of, share): (Resource, &Share)| of.is_of_engine() && share.reserved_free() > 0;
        shares.any(has_reserved).then_some(*engine)
    }
}

impl Ledger {
    /// Charges a tenant for so much of some pools, where they are engines' of this one's.
    fn take(
        &self,
        tenant: TenantId,
        engine: usize,
        wanted: &[(Resource, u64)],
    ) -> Result<Charge, AllocationError> {
        let mut accounts = self.accounts();
        let charge = accounts.admit(tenant, engine, wanted)?;
        accounts.charge(&charge);
        Ok(charge)
    }

    /// Gives back what was charged.
    pub(crate) fn refund(&self, charge: &Charge) {
        self.accounts().refund(charge);
    }

    /// Notes a dropped portal that the driver takes back once nothing of it is under way.
    pub(crate) fn retire_tag(&self, portal: PortalTag) {
        self.home.retired_tags.push(portal);
    }

    /// Charges a tenant for a portal of so many work requests and stateful connections, at the
    /// first of these engines that has room: the one with the tenant's reservation, while any of
    /// that is free, and then those with the fewest portals. The error is of the one with most.
    pub(crate) fn take_star_portal(
        &self,
        tenant: TenantId,
        work_requests: u32,
        stateful_connections: u32,
        mut engines: Vec<usize>,
    ) -> Result<Charge, AllocationError> {
        let wanted = [
            (Resource::WorkRequests, work_requests.into()),
            (Resource::StatefulConnections, stateful_connections.into()),
        ];
        let home = self.accounts().reserved_at(tenant);
        let portals =
            |at| self.services.star.portals.values().filter(|it| it.charge.engine == at).count();
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
    pub(crate) fn star_attached(&mut self, tag: PortalTag, number: u16, charge: Charge) {
        self.services.star.portals.insert(tag, StarPortal { number, charge, pds: BTreeMap::new() });
    }

    /// The owner of the portal of this tag, which asks for something.
    pub(crate) fn star_asker(&self, tag: PortalTag) -> Result<Asker, StarError> {
        let &StarPortal { number, ref charge, .. } =
            self.services.star.portals.get(&tag).ok_or(StarError::NoSuchPortal)?;
        Ok(Asker { tag, number, engine: charge.engine })
    }

    /// No engine serves a portal any longer, and all that it had is free.
    pub(crate) fn star_detached(&mut self, tag: PortalTag) {
        let portal = self.services.star.portals.remove(&tag);
        portal.iter().flat_map(StarPortal::charges).for_each(|charge| self.refund(charge));
    }

    /// Charges who has a portal for so much of a pool.
    fn take_of(&self, tag: PortalTag, wanted: &[(Resource, u64)]) -> Result<Charge, HostError> {
        let portal = self.services.star.portals.get(&tag).ok_or(StarError::NoSuchPortal)?;
        let Charge { tenant, engine, .. } = portal.charge;
        Ok(self.take(tenant, engine, wanted)?)
    }

    /// Charges for a protection domain of a portal.
    pub(crate) fn take_pd(&self, tag: PortalTag) -> Result<Charge, HostError> {
        self.take_of(tag, &[(Resource::ProtectionDomains, 1)])
    }

    /// A portal has a protection domain that is charged for.
    pub(crate) fn pd_allocated(&mut self, tag: PortalTag, pd: PdId, charge: Charge) {
        let Some(portal) = self.services.star.portals.get_mut(&tag) else {
            return self.refund(&charge);
        };
        portal.pds.insert(pd, ProtectionDomain { charge, mrs: BTreeMap::new() });
    }

    /// A protection domain and its memory regions have gone.
    pub(crate) fn pd_deallocated(&mut self, tag: PortalTag, pd: PdId) {
        let pd = self.services.star.portals.get_mut(&tag).and_then(|portal| portal.pds.remove(&pd));
        pd.iter().flat_map(ProtectionDomain::charges).for_each(|charge| self.refund(charge));
    }

    /// Charges for a memory region of `bytes`; for a window if there are none.
    pub(crate) fn take_mr(&self, tag: PortalTag, bytes: Option<u64>) -> Result<Charge, HostError> {
        let row = (Resource::MemoryRegions, 1);
        match bytes {
            Some(bytes) => self.take_of(tag, &[row, (Resource::RegisteredBytes, bytes)]),
            None => self.take_of(tag, &[row]),
        }
    }

    /// A protection domain has a memory region, or a window, that is charged for.
    pub(crate) fn mr_registered(
        &mut self,
        tag: PortalTag,
        pd: PdId,
        mr: MrId,
        charge: Charge,
        memory: Option<Arc<Region>>,
    ) {
        let pd =
            self.services.star.portals.get_mut(&tag).and_then(|portal| portal.pds.get_mut(&pd));
        let Some(pd) = pd else { return self.refund(&charge) };
        pd.mrs.insert(mr, MemoryRegion { charge, _memory: memory });
    }

    /// A memory region or window is registered no longer.
    pub(crate) fn mr_deregistered(&mut self, tag: PortalTag, pd: PdId, mr: MrId) {
        let pd =
            self.services.star.portals.get_mut(&tag).and_then(|portal| portal.pds.get_mut(&pd));
        if let Some(mr) = pd.and_then(|pd| pd.mrs.remove(&mr)) {
            self.refund(&mr.charge);
        }
    }
}
