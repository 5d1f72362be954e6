//! The accounts of the host's tenants, and of the allocations from each pool.
//!
//! It decides and keeps the books; it does not speak with the engine. The rules are those of
//! [`crate::driver::tenant`].

pub(crate) mod pools;

use core::ops::Range;
use std::{collections::BTreeMap, sync::Arc};

use rma_core::{
    addr::Pid,
    nic::TenantIndex,
    receive_queue::{QueueWatch, ReceiveQueueMemory},
    region::RegionId,
};

pub(crate) use self::pools::Capacities;
pub(crate) use self::pools::Charge;
use self::pools::{PerResource, Pools};
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
    pools: Pools,
    /// Command slots of the rest.
    free_slots: FreeSlots,
    kept_free: KeptFree,
    pub(crate) tenants: BTreeMap<TenantId, Account>,
    next: u64,
    /// By their first slot.
    portals: BTreeMap<u16, PortalCharge>,
    registered: BTreeMap<RegionId, Registered>,
}

#[derive(Debug)]
pub(crate) struct Account {
    name: Box<str>,
    pid: Pid,
    /// The index by which engines know the tenant.
    index: TenantIndex,
    priority: Priority,
    pub(crate) shares: PerResource<Share>,
    /// The engine that has what is reserved of engines' pools.
    pub(crate) engine: usize,
    /// The slots that are reserved, and those of them that are free.
    reserved_slots: Range<u16>,
    free_slots: FreeSlots,
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

#[derive(Debug)]
struct Registered {
    charge: Charge,
    /// The index of the engine that is its home.
    home: usize,
    queue: Option<QueueAccount>,
}

/// The account of a region that is a receive queue.
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
    /// Accounts of engines that have `slots`, and each tables of so many `capacities`.
    pub(super) fn new(
        slots: impl Iterator<Item = Range<u16>> + Clone,
        capacities: &Capacities,
        config: &DriverConfig,
        pid: Pid,
    ) -> Result<Self, AllocationError> {
        let all_slots = slots.clone().map(|slots| slots.len() as u64).sum();
        let capacity = |resource| match resource {
            Resource::CommandSlots => all_slots,
            Resource::RegisteredBytes => config.registered_bytes,
            of_tables => capacities[of_tables],
        };
        let mut accounts = Self {
            pools: Pools::new(slots.clone().count(), capacity),
            free_slots: FreeSlots::new(slots),
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
        let engine = self.pools.roomiest(quotas);
        for resource in Resource::ALL {
            let (Quota { reserved, max }, pool) =
                (quotas.of(resource), self.pools.at(resource, engine));
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
                _ => pool.rest_free(),
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
        let reserved_slots = match u16::try_from(quotas.slots.reserved).expect("checked above") {
            0 => 0..0,
            reserved => self.free_slots.take(reserved, |_| true).expect("checked above"),
        };
        let mut open = |resource| self.pools.at_mut(resource, engine).open(quotas.of(resource));
        let shares = PerResource::each(|resource| open(resource).expect("checked above"));
        let account = Account {
            name: name.into(),
            pid,
            index: self.next_index(),
            priority,
            shares,
            engine,
            free_slots: FreeSlots::new([reserved_slots.clone()]),
            reserved_slots,
            alive,
        };
        let id = TenantId(self.next);
        self.next += 1;
        self.tenants.insert(id, account);
        Ok(id)
    }

    /// Returns the index of a new tenant among those that engines tell apart: where there are more
    /// tenants, several are one.
    fn next_index(&self) -> TenantIndex {
        let mut counts = [0; TenantIndex::COUNT];
        self.tenants.values().for_each(|account| counts[account.index.index()] += 1);
        let fewest = counts.iter().enumerate().min_by_key(|&(_, count)| *count);
        TenantIndex::of(fewest.map_or(0, |(index, _)| index))
    }

    /// Closes the accounts of tenants that are gone and have given everything back.
    pub(super) fn close_abandoned(&mut self) {
        let Self { pools, free_slots, tenants, .. } = self;
        tenants.retain(|_, account| {
            let mut shares = account.shares.iter();
            if account.is_held() || shares.any(|(_, share)| share.used() > 0) {
                return true;
            }
            let close = |(resource, share)| pools.at_mut(resource, account.engine).close(share);
            account.shares.iter().for_each(close);
            free_slots.give_back(account.reserved_slots.clone());
            false
        });
    }

    /// The PID of a tenant's portals and regions, and which tenant engines take it for.
    pub(crate) fn identity(&self, tenant: TenantId) -> (Pid, TenantIndex) {
        let Account { pid, index, .. } = self.tenants[&tenant];
        (pid, index)
    }

    /// Returns the share of the rest that this tenant leaves free.
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

    /// A range of slots that the tenant may have, of those that `may` be had.
    pub(super) fn take_slots(
        &mut self,
        tenant: TenantId,
        wanted: u16,
        may: impl Fn(u16) -> bool,
    ) -> Result<Range<u16>, AllocationError> {
        let percent = self.percent(tenant);
        let account = self.tenants.get_mut(&tenant).expect("it has a handle");
        let (resource, name) = (Resource::CommandSlots, &account.name);
        let (pool, share) = (&mut self.pools[resource], &mut account.shares[resource]);
        let amount = u64::from(wanted);
        let largest = self.free_slots.largest();
        if wanted > largest && amount <= pool.capacity() {
            return Err(AllocationError::PortalOfSeveralEngines { wanted, largest });
        }
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
            let Some(range) = free.take(wanted, &may) else {
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

    /// The most slots side by side that the tenant could have at once, of those that `may` be had,
    /// if no other limit were in the way.
    pub(super) fn longest_slots(&self, tenant: TenantId, may: impl Fn(u16) -> bool) -> u16 {
        let reserved = self.tenants[&tenant].free_slots.longest_of(&may);
        self.free_slots.longest_of(&may).max(reserved)
    }

    /// Whether `take_slots` could succeed once the portals with these slots are given back. Where
    /// they lie is not looked at: then it may still fail.
    pub(super) fn may_have(&self, tenant: TenantId, wanted: u16, returning: &[Range<u16>]) -> bool {
        if returning.is_empty() || wanted > self.free_slots.largest() {
            return false;
        }
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
        let (pool, share) =
            (&self.pools[Resource::CommandSlots], &account.shares[Resource::CommandSlots]);
        if wanted > share.max().saturating_sub(share.used() - own) {
            return false;
        }
        // A tenant that ends gives back a reservation, and others may leave less free then: no use
        // in counting.
        tenant_ends
            || wanted <= share.reserved_free() + own_reserved
            || wanted <= pool.rest_after(to_rest, self.percent(tenant))
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
        let (pool, share) =
            (&mut self.pools[Resource::CommandSlots], &mut account.shares[Resource::CommandSlots]);
        pool.refund(share, source, slots.len() as u64);
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
    ) -> Result<Charge, AllocationError> {
        self.admit(tenant, 0, &[(Resource::Regions, 1), (Resource::RegisteredBytes, len)])
    }

    /// Whether the tenant may have so much of some pools, where they are engines' of this one's,
    /// and at whose expense.
    pub(crate) fn admit(
        &self,
        tenant: TenantId,
        engine: usize,
        wanted: &[(Resource, u64)],
    ) -> Result<Charge, AllocationError> {
        let (account, percent) = (&self.tenants[&tenant], self.percent(tenant));
        let mut charge = Charge::at(engine, tenant);
        for &(resource, amount) in wanted {
            let (pool, share) = (self.pools.at(resource, engine), &account.shares[resource]);
            within_quota(resource, &account.name, share, amount)?;
            let is_reserved_there = engine == account.engine || !resource.is_of_engine();
            let source = if is_reserved_there {
                pool.source(share, amount, percent)
            } else {
                Some(Source::Rest).filter(|&rest| pool.has(share, rest, amount, percent))
            };
            let source = source.ok_or_else(|| {
                let mut refused = empty(resource, &account.name, pool, share, amount, percent);
                if let AllocationError::PoolEmpty { reserved_free, .. } = &mut refused
                    && !is_reserved_there
                {
                    *reserved_free = 0;
                }
                refused
            })?;
            charge.parts.push((resource, source, amount));
        }
        Ok(charge)
    }

    /// Takes what was just admitted.
    pub(crate) fn charge(&mut self, charge: &Charge) {
        let account = self.tenants.get_mut(&charge.tenant).expect("it has a handle");
        for &(resource, source, amount) in &charge.parts {
            let pool = self.pools.at_mut(resource, charge.engine);
            pool.charge(&mut account.shares[resource], source, amount);
        }
    }

    /// Gives back what was charged.
    pub(crate) fn refund(&mut self, charge: &Charge) {
        let account = self.tenants.get_mut(&charge.tenant).expect("it has what was charged");
        for &(resource, source, amount) in &charge.parts {
            let pool = self.pools.at_mut(resource, charge.engine);
            pool.refund(&mut account.shares[resource], source, amount);
        }
    }

    /// The region that was just admitted has been registered.
    pub(super) fn registered(&mut self, id: RegionId, charge: Charge, home: usize) {
        self.charge(&charge);
        self.registered.insert(id, Registered { charge, home, queue: None });
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

    /// Returns the owner of the portal with these slots.
    pub(super) fn owner_of(&self, slots: &Range<u16>) -> Option<TenantId> {
        self.portals.get(&slots.start).map(|portal| portal.tenant)
    }

    /// Returns the account of a receive queue, and its owner.
    pub(super) fn queue(&self, id: RegionId) -> Option<(&QueueAccount, TenantId)> {
        let Registered { charge, queue, .. } = self.registered.get(&id)?;
        queue.as_ref().map(|queue| (queue, charge.tenant))
    }

    /// The length of a receive queue's buffers.
    pub(super) fn buffer_len(&self, id: RegionId) -> Option<u64> {
        self.queue(id).map(|(queue, _)| queue.memory.layout().buffer_len().into())
    }

    fn queue_mut(&mut self, id: RegionId) -> Option<&mut QueueAccount> {
        self.registered.get_mut(&id)?.queue.as_mut()
    }

    /// The index of the engine that is a region's home.
    pub(super) fn home_of(&self, id: RegionId) -> usize {
        self.registered.get(&id).map_or(0, |it| it.home)
    }

    /// The regions whose home this engine is, but for receive queues.
    pub(super) fn bereft(&self, engine: usize) -> Vec<RegionId> {
        let its = self.registered.iter().filter(|(_, it)| it.home == engine && it.queue.is_none());
        its.map(|(&id, _)| id).collect()
    }

    /// The home of these regions is another engine now.
    pub(super) fn move_homes(&mut self, regions: &[RegionId], to: usize) {
        for region in regions {
            if let Some(registered) = self.registered.get_mut(region) {
                registered.home = to;
            }
        }
    }

    /// How many receive queues each of so many engines serves.
    pub(super) fn queues_by_engine(&self, engines: usize) -> Vec<usize> {
        let mut counts = vec![0; engines];
        let queues = self.registered.values().filter_map(|it| it.queue.as_ref());
        queues.for_each(|queue| counts[queue.engine] += 1);
        counts
    }

    /// Lists the fill of each receive queue.
    pub(super) fn queues(&self) -> impl Iterator<Item = QueueWatch> {
        self.registered.values().filter_map(|it| it.queue.as_ref()).map(|it| it.memory.watch())
    }

    /// Returns the owner of the region with this name.
    pub(super) fn owner_of_region(&self, id: RegionId) -> Option<TenantId> {
        self.registered.get(&id).map(|it| it.charge.tenant)
    }

    /// A region is registered no longer.
    pub(super) fn deregistered(&mut self, id: RegionId) {
        let Some(Registered { charge, queue, .. }) = self.registered.remove(&id) else { return };
        let portal = queue.and_then(|it| it.portal).and_then(|it| self.portals.get_mut(&it));
        portal.into_iter().for_each(|portal| portal.queues.retain(|&queue| queue != id));
        self.refund(&charge);
    }

    /// Lists the usage and limits of every tenant.
    pub(super) fn usages(&self) -> impl Iterator<Item = TenantUsage> {
        self.tenants.iter().map(|(&tenant, account)| TenantUsage {
            tenant: account.name.clone(),
            id: tenant.0,
            usage: self.usage(tenant),
        })
    }

    pub(super) fn usage(&self, tenant: TenantId) -> Usage {
        let (account, percent) = (&self.tenants[&tenant], self.percent(tenant));
        let of = |resource| self.pools.usage(resource, &account.shares[resource], percent);
        let (slots, pool) = (of(Resource::CommandSlots), &self.pools[Resource::CommandSlots]);
        let reserved = account.free_slots.longest();
        let rest = u64::from(self.free_slots.longest()).min(pool.rest_for(percent).0);
        let available = slots.available.min(rest.max(reserved.into()));
        Usage { slots: PoolUsage { available, ..slots }, ..Usage::by(of) }
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
