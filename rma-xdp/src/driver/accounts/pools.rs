//! Values for each pool, and the charge of an allocation on pools.
//!
//! Most pools are the host's. StaR's tables of protection domains, memory regions and connections
//! are an engine's: a portal is one engine's, and all that it has must fit in there. So each engine
//! has a pool for each of these, as large as its table. What a tenant may have at most counts over
//! all engines; what it reserves is at one, as a reservation in parts could be used by no portal.
//! That is the engine which has most room for it, and the tenant's portals go there while any of it
//! is free.

use core::ops::{Index, IndexMut};

use arrayvec::ArrayVec;

use crate::driver::{
    pool::{Pool, Share, Source},
    tenant::{DriverConfig, PoolUsage, Quotas, Resource, TenantId},
};

/// How much engines have room for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Capacities {
    /// Of each NIC's table of regions.
    pub(crate) regions: u32,
    /// Of StaR's tables. Default: it is not served.
    pub(crate) star: StarCapacities,
}

/// How much StaR has room for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StarCapacities {
    /// Of each engine's table of protection domains.
    pub(crate) pds: u32,
    /// Of each engine's table of memory regions and windows.
    pub(crate) mrs: u32,
    /// Of each engine's table of connections.
    pub(crate) connections: u32,
    /// For work requests, of all portals of the host.
    pub(crate) work_requests: u64,
}

impl Capacities {
    /// The size of a pool, where there are so many command slots.
    pub(super) fn of(&self, resource: Resource, slots: u64, config: &DriverConfig) -> u64 {
        match resource {
            Resource::CommandSlots => slots,
            Resource::Regions => self.regions.into(),
            Resource::RegisteredBytes => config.registered_bytes,
            Resource::ProtectionDomains => self.star.pds.into(),
            Resource::MemoryRegions => self.star.mrs.into(),
            Resource::WorkRequests => self.star.work_requests,
            Resource::StatefulConnections => self.star.connections.into(),
        }
    }
}

/// The pools of a host. What is the host's is found by its resource, as if it were each engine's.
#[derive(Debug)]
pub(super) struct Pools {
    engines: usize,
    pools: PerResource<Box<[Pool]>>,
}

impl Pools {
    /// Pools of these sizes, of a host of so many engines.
    pub(super) fn new(engines: usize, capacity: impl Fn(Resource) -> u64) -> Self {
        let pools = PerResource::each(|resource| {
            let count = if resource.is_of_engine() { engines } else { 1 };
            (0..count).map(|_| Pool::new(capacity(resource))).collect()
        });
        Self { engines, pools }
    }

    /// The pool that what an engine has of a resource comes from.
    pub(super) fn at(&self, resource: Resource, engine: usize) -> &Pool {
        let pools = &self.pools[resource];
        &pools[engine.min(pools.len() - 1)]
    }

    pub(super) fn at_mut(&mut self, resource: Resource, engine: usize) -> &mut Pool {
        let pools = &mut self.pools[resource];
        &mut pools[engine.min(pools.len() - 1)]
    }

    /// The engine that has most room for what is to be reserved.
    pub(super) fn roomiest(&self, quotas: &Quotas) -> usize {
        let times = |engine: &usize| {
            let reserved = Resource::ALL.into_iter().filter(|it| it.is_of_engine());
            let times = reserved.filter_map(|resource| {
                let free = self.at(resource, *engine).rest_free();
                free.checked_div(quotas.of(resource).reserved)
            });
            times.min()
        };
        // The first of several.
        (0..self.engines).rev().max_by_key(times).unwrap_or(0)
    }

    /// The usage of a share, and the most that it can have at one engine.
    pub(super) fn usage(&self, resource: Resource, share: &Share, percent: u8) -> PoolUsage {
        let usages = self.pools[resource].iter().map(|pool| pool.usage(share, percent));
        usages.max_by_key(|usage| usage.available).expect("there is a pool")
    }
}

impl Index<Resource> for Pools {
    type Output = Pool;

    fn index(&self, resource: Resource) -> &Pool {
        self.at(resource, 0)
    }
}

impl IndexMut<Resource> for Pools {
    fn index_mut(&mut self, resource: Resource) -> &mut Pool {
        self.at_mut(resource, 0)
    }
}

/// Something of each pool.
#[derive(Debug)]
pub(super) struct PerResource<T>([T; Resource::ALL.len()]);

impl<T> PerResource<T> {
    /// Makes the value of each resource by `make`.
    pub(super) fn each(make: impl FnMut(Resource) -> T) -> Self {
        Self(Resource::ALL.map(make))
    }

    /// All, with what they are of.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Resource, &T)> {
        Resource::ALL.into_iter().zip(&self.0)
    }
}

impl<T> Index<Resource> for PerResource<T> {
    type Output = T;

    fn index(&self, resource: Resource) -> &T {
        &self.0[resource as usize]
    }
}

impl<T> IndexMut<Resource> for PerResource<T> {
    fn index_mut(&mut self, resource: Resource) -> &mut T {
        &mut self.0[resource as usize]
    }
}

/// The amounts that an allocation takes of the pools, and from where. No allocation takes of more
/// than two.
#[derive(Clone, Debug)]
pub(crate) struct Charge {
    pub(super) tenant: TenantId,
    /// The engine whose pools it is on, where they are engines'.
    pub(crate) engine: usize,
    pub(super) parts: ArrayVec<(Resource, Source, u64), 2>,
}

impl Charge {
    /// Nothing yet.
    pub(super) const fn at(engine: usize, tenant: TenantId) -> Self {
        Self { tenant, engine, parts: ArrayVec::new_const() }
    }
}
