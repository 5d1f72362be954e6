//! Values for each pool, and the charge of an allocation on pools.
//!
//! Most pools are the host's. Tables of services besides 1RMA are an engine's: one engine serves a
//! portal, and has all that the portal has. So each engine has a pool for each of these, as large
//! as its table. What a tenant may have at most counts over all engines. What it reserves is at
//! one, as no portal could use a reservation in parts: at the engine that has most room for it. The
//! tenant's portals go there while any of it is free.

use core::ops::{Index, IndexMut};

use arrayvec::ArrayVec;

use crate::driver::{
    pool::{Pool, Share, Source},
    tenant::{PoolUsage, Quotas, Resource, TenantId},
};

/// How much engines have room for: of each resource that is a table's, and of services' own pools.
pub(crate) type Capacities = PerResource<u64>;

impl Capacities {
    /// Of NICs with so many regions, and of no other service.
    pub(crate) fn of_regions(regions: u32) -> Self {
        let mut none = Self::each(|_| 0);
        none[Resource::Regions] = regions.into();
        none
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
pub(crate) struct PerResource<T>([T; Resource::ALL.len()]);

impl<T> PerResource<T> {
    /// Makes the value of each resource by `make`.
    pub(crate) fn each(make: impl FnMut(Resource) -> T) -> Self {
        Self(Resource::ALL.map(make))
    }

    /// All, with what they are of.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Resource, &T)> {
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
    pub(crate) tenant: TenantId,
    /// The engine whose pools it is on, where they are engines'.
    pub(crate) engine: usize,
    pub(crate) parts: ArrayVec<(Resource, Source, u64), 2>,
}

impl Charge {
    /// Nothing yet.
    pub(crate) const fn at(engine: usize, tenant: TenantId) -> Self {
        Self { tenant, engine, parts: ArrayVec::new_const() }
    }
}
