//! Values for each pool, and the charge of an allocation on pools.

use core::ops::{Index, IndexMut};

use arrayvec::ArrayVec;

use crate::driver::{
    pool::Source,
    tenant::{DriverConfig, Resource, TenantId},
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
    /// Of its table of protection domains.
    pub(crate) pds: u32,
    /// Of its table of memory regions and windows.
    pub(crate) mrs: u32,
    /// Of its table of connections.
    pub(crate) connections: u32,
    /// For work requests, of all its portals.
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
    pub(super) parts: ArrayVec<(Resource, Source, u64), 2>,
}

impl Charge {
    /// Nothing yet.
    pub(super) const fn of(tenant: TenantId) -> Self {
        Self { tenant, parts: ArrayVec::new_const() }
    }
}
