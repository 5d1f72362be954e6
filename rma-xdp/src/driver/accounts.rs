//! Who has what: the host's tenants, and what of each pool has been allocated for them.
//!
//! It decides and keeps the books; it does not speak with the engine. The rules are those of
//! [`crate::driver::tenant`].

use core::ops::Range;
use std::{collections::BTreeMap, sync::Arc};

use rma_core::{
    addr::Pid,
    receive_queue::{QueueWatch, ReceiveQueueMemory},
    region::RegionId,
};

use super::{
    pool::{Pool, Share, Source},
    slots::FreeSlots,
};
use crate::driver::tenant::{
    AllocationError, DriverConfig, KeptFree, PoolUsage, Priority, Quota, Quotas, Resource,
    TenantId, TenantUsage, Usage,
};

/// The host's own account.
pub(super) const HOST: TenantId = TenantId(0);

#[derive(Debug)]
pub(crate) struct Accounts {
    slots: Pool,
    /// Those of the rest.
    free_slots: FreeSlots,
    regions: Pool,
    bytes: Pool,
    kept_free: KeptFree,
    tenants: BTreeMap<TenantId, Account>,
    next: u64,
    /// By their first slot.
    portals: BTreeMap<u16, PortalCharge>,
    registered: BTreeMap<RegionId, Registered>,
}

#[derive(Debug)]
struct Account {
    name: Box<str>,
    pid: Pid,
    priority: Priority,
    slots: Share,
    /// The slots that are reserved, and those of them that are free.
    reserved_slots: Range<u16>,
    free_slots: FreeSlots,
    regions: Share,
    bytes: Share,
    /// Shared with the tenant's handles. The host's own account stays without one.
    alive: Option<Arc<()>>,
}

impl Account {
    /// Whether it can still be asked for more.
    fn is_held(&self) -> bool {
        self.alive.as_ref().is_none_or(|alive| Arc::strong_count(alive) > 1)
    }
}

#[derive(Debug)]
struct PortalCharge {
    tenant: TenantId,
    source: Source,
    /// Receive queues whose events wake it.
    queues: Vec<RegionId>,
}

/// Where a region and its bytes come from.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionCharge {
    tenant: TenantId,
    region: Source,
    bytes: Source,
    len: u64,
}

#[derive(Debug)]
struct Registered {
    charge: RegionCharge,
    queue: Option<QueueAccount>,
}

/// What is known of a region that is a receive queue.
#[derive(Debug)]
pub(super) struct QueueAccount {
    /// The index of the engine that serves it.
    pub(super) engine: usize,
    /// The first slot of the portal that its events wake.
    pub(super) portal: Option<u16>,
    /// Its rings, to look at.
    pub(super) memory: ReceiveQueueMemory,
}

impl Accounts {
    /// Accounts of NICs that have `slots`, and each as many `regions`.
    pub(super) fn new(
        slots: impl Iterator<Item = Range<u16>> + Clone,
        regions: u64,
        config: &DriverConfig,
        pid: Pid,
    ) -> Result<Self, AllocationError> {
        let mut accounts = Self {
            slots: Pool::new(slots.clone().map(|slots| slots.len() as u64).sum()),
            free_slots: FreeSlots::new(slots),
            regions: Pool::new(regions),
            bytes: Pool::new(config.registered_bytes),
            kept_free: config.kept_free,
            tenants: BTreeMap::new(),
            next: 0,
            portals: BTreeMap::new(),
            registered: BTreeMap::new(),
        };
        let host = accounts.open("host", pid, config.priority, &config.quotas, None)?;
        debug_assert_eq!(host, HOST);
        Ok(accounts)
    }

    /// Opens an account, and sets aside what it reserves.
    pub(super) fn open(
        &mut self,
        name: &str,
        pid: Pid,
        priority: Priority,
        quotas: &Quotas,
        alive: Option<Arc<()>>,
    ) -> Result<TenantId, AllocationError> {
        let Quotas { slots, regions, bytes } = *quotas;
        let wanted = [
            (Resource::CommandSlots, slots, &self.slots),
            (Resource::Regions, regions, &self.regions),
            (Resource::RegisteredBytes, bytes, &self.bytes),
        ];
        for (resource, Quota { reserved, max }, pool) in wanted {
            if reserved > max {
                let tenant = name.into();
                return Err(AllocationError::QuotaBelowReservation {
                    resource,
                    tenant,
                    reserved,
                    max,
                });
            }
            let free = match resource {
                Resource::CommandSlots => self.free_slots.longest().into(),
                Resource::Regions | Resource::RegisteredBytes => pool.rest_free(),
            };
            if reserved > free {
                let (tenant, wanted, capacity) = (name.into(), reserved, pool.capacity());
                return Err(AllocationError::Reservation {
                    resource,
                    tenant,
                    wanted,
                    free,
                    capacity,
                });
            }
        }
        let reserved_slots = match u16::try_from(slots.reserved).expect("checked above") {
            0 => 0..0,
            reserved => self.free_slots.take(reserved).expect("checked above"),
        };
        let open = |pool: &mut Pool, quota| pool.open(quota).expect("checked above");
        let account = Account {
            name: name.into(),
            pid,
            priority,
            slots: open(&mut self.slots, slots),
            free_slots: FreeSlots::new([reserved_slots.clone()]),
            reserved_slots,
            regions: open(&mut self.regions, regions),
            bytes: open(&mut self.bytes, bytes),
            alive,
        };
        let id = TenantId(self.next);
        self.next += 1;
        self.tenants.insert(id, account);
        Ok(id)
    }

    /// Closes the accounts of tenants that are gone and have given everything back.
    pub(super) fn close_abandoned(&mut self) {
        let Self { slots, free_slots, regions, bytes, tenants, .. } = self;
        tenants.retain(|_, account| {
            let shares = [&account.slots, &account.regions, &account.bytes];
            if account.is_held() || shares.iter().any(|share| share.used() > 0) {
                return true;
            }
            slots.close(&account.slots);
            free_slots.give_back(account.reserved_slots.clone());
            regions.close(&account.regions);
            bytes.close(&account.bytes);
            false
        });
    }

    /// The PID of a tenant's portals and regions.
    pub(super) fn pid(&self, tenant: TenantId) -> Pid {
        self.tenants[&tenant].pid
    }

    /// Which share of the rest this tenant leaves free.
    fn percent(&self, tenant: TenantId) -> u8 {
        let priority = self.tenants[&tenant].priority;
        if self.tenants.values().all(|other| other.priority <= priority) {
            return 0;
        }
        match priority {
            Priority::Low => self.kept_free.by_low,
            Priority::Normal => self.kept_free.by_normal,
            Priority::High => 0,
        }
    }

    /// The first range of slots that the tenant may have.
    pub(super) fn take_slots(
        &mut self,
        tenant: TenantId,
        wanted: u16,
    ) -> Result<Range<u16>, AllocationError> {
        let percent = self.percent(tenant);
        let account = self.tenants.get_mut(&tenant).expect("it has a handle");
        let (pool, share) = (&mut self.slots, &mut account.slots);
        let amount = u64::from(wanted);
        let (resource, name) = (Resource::CommandSlots, &account.name);
        within_quota(resource, name, share, amount)?;
        let mut longest = 0;
        for source in [Source::Reservation, Source::Rest] {
            let free = match source {
                Source::Reservation => &mut account.free_slots,
                Source::Rest => &mut self.free_slots,
            };
            if !pool.has(share, source, amount, percent) {
                continue;
            }
            let Some(range) = free.take(wanted) else {
                longest = longest.max(free.longest().into());
                continue;
            };
            pool.charge(share, source, amount);
            self.portals.insert(range.start, PortalCharge { tenant, source, queues: Vec::new() });
            return Ok(range);
        }
        if pool.source(share, amount, percent).is_none() {
            return Err(empty(resource, name, pool, share, amount, percent));
        }
        let free = share.reserved_free().max(pool.rest_for(percent).0);
        Err(AllocationError::Fragmented { tenant: name.clone(), wanted: amount, free, longest })
    }

    /// Whether `take_slots` could succeed once the portals with these slots are given back. Where
    /// they lie is not looked at: then it may still fail.
    pub(super) fn may_have(&self, tenant: TenantId, wanted: u16, returning: &[Range<u16>]) -> bool {
        let (account, wanted) = (&self.tenants[&tenant], u64::from(wanted));
        let (mut own, mut own_reserved, mut to_rest) = (0, 0, 0);
        let mut tenant_ends = false;
        for slots in returning {
            let charge = &self.portals[&slots.start];
            let len = slots.len() as u64;
            own += if charge.tenant == tenant { len } else { 0 };
            match charge.source {
                Source::Reservation if charge.tenant == tenant => own_reserved += len,
                Source::Reservation => {}
                Source::Rest => to_rest += len,
            }
            tenant_ends |= !self.tenants[&charge.tenant].is_held();
        }
        if wanted > account.slots.max().saturating_sub(account.slots.used() - own) {
            return false;
        }
        // A tenant that ends gives back a reservation, and others may leave less free then: no use
        // in counting.
        tenant_ends
            || wanted <= account.slots.reserved_free() + own_reserved
            || wanted <= self.slots.rest_after(to_rest, self.percent(tenant))
    }

    /// Takes back what `take_slots` has given.
    pub(super) fn give_slots_back(&mut self, slots: Range<u16>) {
        let PortalCharge { tenant, source, queues } =
            self.portals.remove(&slots.start).expect("these slots are a portal's");
        for queue in queues {
            if let Some(queue) = self.queue_mut(queue) {
                queue.portal = None;
            }
        }
        let account = self.tenants.get_mut(&tenant).expect("it has a portal");
        self.slots.refund(&mut account.slots, source, slots.len() as u64);
        match source {
            Source::Reservation => account.free_slots.give_back(slots),
            Source::Rest => self.free_slots.give_back(slots),
        }
    }

    /// Whether the tenant may register `len` bytes, and at whose expense.
    pub(super) fn admit_region(
        &self,
        tenant: TenantId,
        len: u64,
    ) -> Result<RegionCharge, AllocationError> {
        let (account, percent) = (&self.tenants[&tenant], self.percent(tenant));
        let admit = |resource, pool: &Pool, share: &Share, amount| {
            within_quota(resource, &account.name, share, amount)?;
            pool.source(share, amount, percent)
                .ok_or_else(|| empty(resource, &account.name, pool, share, amount, percent))
        };
        let region = admit(Resource::Regions, &self.regions, &account.regions, 1)?;
        let bytes = admit(Resource::RegisteredBytes, &self.bytes, &account.bytes, len)?;
        Ok(RegionCharge { tenant, region, bytes, len })
    }

    /// The region that was just admitted has been registered.
    pub(super) fn registered(&mut self, id: RegionId, charge: RegionCharge) {
        let account = self.tenants.get_mut(&charge.tenant).expect("it has a handle");
        self.regions.charge(&mut account.regions, charge.region, 1);
        self.bytes.charge(&mut account.bytes, charge.bytes, charge.len);
        self.registered.insert(id, Registered { charge, queue: None });
    }

    /// It is a receive queue.
    pub(super) fn registered_queue(&mut self, id: RegionId, queue: QueueAccount) {
        let portal = queue.portal.and_then(|first| self.portals.get_mut(&first));
        portal.into_iter().for_each(|portal| portal.queues.push(id));
        if let Some(registered) = self.registered.get_mut(&id) {
            registered.queue = Some(queue);
        }
    }

    /// The receive queues whose events wake the portal with these slots.
    pub(super) fn queues_of(&self, slots: &Range<u16>) -> Box<[RegionId]> {
        self.portals.get(&slots.start).map(|portal| &*portal.queues).unwrap_or_default().into()
    }

    /// Whose the portal with these slots is.
    pub(super) fn owner_of(&self, slots: &Range<u16>) -> Option<TenantId> {
        self.portals.get(&slots.start).map(|portal| portal.tenant)
    }

    /// What is known of a receive queue, and whose it is.
    pub(super) fn queue(&self, id: RegionId) -> Option<(&QueueAccount, TenantId)> {
        let Registered { charge, queue } = self.registered.get(&id)?;
        queue.as_ref().map(|queue| (queue, charge.tenant))
    }

    /// The length of a receive queue's buffers.
    pub(super) fn buffer_len(&self, id: RegionId) -> Option<u64> {
        self.queue(id).map(|(queue, _)| queue.memory.layout().buffer_len().into())
    }

    fn queue_mut(&mut self, id: RegionId) -> Option<&mut QueueAccount> {
        self.registered.get_mut(&id)?.queue.as_mut()
    }

    /// How full each receive queue is.
    pub(super) fn queues(&self) -> impl Iterator<Item = QueueWatch> {
        self.registered.values().filter_map(|it| it.queue.as_ref()).map(|it| it.memory.watch())
    }

    /// Whether `id` is registered.
    pub(super) fn has_region(&self, id: RegionId) -> bool {
        self.registered.contains_key(&id)
    }

    /// A region is registered no longer.
    pub(super) fn deregistered(&mut self, id: RegionId) {
        let Some(Registered { charge, queue }) = self.registered.remove(&id) else { return };
        let portal = queue.and_then(|it| it.portal).and_then(|it| self.portals.get_mut(&it));
        portal.into_iter().for_each(|portal| portal.queues.retain(|&queue| queue != id));
        let account = self.tenants.get_mut(&charge.tenant).expect("it has a region");
        self.regions.refund(&mut account.regions, charge.region, 1);
        self.bytes.refund(&mut account.bytes, charge.bytes, charge.len);
    }

    /// What every tenant has, and could have.
    pub(super) fn usages(&self) -> impl Iterator<Item = TenantUsage> {
        self.tenants.iter().map(|(&tenant, account)| TenantUsage {
            tenant: account.name.clone(),
            id: tenant.0,
            usage: self.usage(tenant),
        })
    }

    pub(super) fn usage(&self, tenant: TenantId) -> Usage {
        let (account, percent) = (&self.tenants[&tenant], self.percent(tenant));
        let slots = self.slots.usage(&account.slots, percent);
        let reserved = account.free_slots.longest();
        let rest = u64::from(self.free_slots.longest()).min(self.slots.rest_for(percent).0);
        let available = slots.available.min(rest.max(reserved.into()));
        Usage {
            slots: PoolUsage { available, ..slots },
            regions: self.regions.usage(&account.regions, percent),
            bytes: self.bytes.usage(&account.bytes, percent),
        }
    }
}

fn within_quota(
    resource: Resource,
    tenant: &str,
    share: &Share,
    wanted: u64,
) -> Result<(), AllocationError> {
    let (used, max) = (share.used(), share.max());
    if wanted <= max.saturating_sub(used) {
        return Ok(());
    }
    Err(AllocationError::Quota { resource, tenant: tenant.into(), wanted, used, max })
}

fn empty(
    resource: Resource,
    tenant: &str,
    pool: &Pool,
    share: &Share,
    wanted: u64,
    percent: u8,
) -> AllocationError {
    let (rest_free, kept_free) = pool.rest_for(percent);
    AllocationError::PoolEmpty {
        resource,
        tenant: tenant.into(),
        wanted,
        reserved_free: share.reserved_free(),
        rest_free,
        kept_free,
        capacity: pool.capacity(),
    }
}

#[cfg(test)]
mod tests;
