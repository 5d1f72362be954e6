//! The hosts' part in tenants: [`crate::driver::tenant`].

use std::sync::Arc;

use rma_app::Portal;
use rma_core::{
    crypto::RegionKey,
    region::{Permissions, RegisteredRegion},
};
use rma_shm::Region;

#[cfg(doc)]
use super::Host;
use super::HostOf;
use crate::{
    driver::{
        control::ControlPath,
        tenant::{Tenant, TenantConfig, Usage},
    },
    error::HostError,
    random::random_region_key,
};

#[expect(
    private_bounds,
    reason = "nobody else can run an engine: two kinds of host are all there are"
)]
impl<P: ControlPath> HostOf<P> {
    /// Makes a tenant: one of several applications that share this host, each within its quotas.
    /// Sets aside what it reserves.
    ///
    /// # Errors
    /// If that much cannot be reserved.
    pub fn tenant(&self, config: TenantConfig) -> Result<Tenant, HostError> {
        self.driver()?.tenant(config)
    }

    /// [`Host::portal`] for a tenant, with its PID.
    ///
    /// # Errors
    /// If the tenant cannot have that many slots: see [`crate::tenant::AllocationError`].
    pub fn portal_for(&self, tenant: &Tenant, slots: u16) -> Result<Portal, HostError> {
        self.portal_as(Some(tenant), slots)
    }

    pub(super) fn portal_as(
        &self,
        tenant: Option<&Tenant>,
        slots: u16,
    ) -> Result<Portal, HostError> {
        loop {
            let mut driver = self.driver()?;
            if let Some(portal) = driver.portal(tenant, slots)? {
                return Ok(portal);
            }
            let has_gone_on = driver.go_on();
            drop(driver);
            if !has_gone_on {
                // Others may use the host meanwhile: ops take their time.
                std::thread::yield_now();
            }
        }
    }

    /// [`Host::register`] for a tenant.
    ///
    /// # Errors
    /// As [`Host::register`], by the tenant's quotas.
    pub fn register_for(
        &self,
        tenant: &Tenant,
        len: usize,
        permissions: Permissions,
    ) -> Result<RegisteredRegion, HostError> {
        self.register_as(Some(tenant), len, permissions)
    }

    /// [`Host::register_memory`] for a tenant.
    ///
    /// # Errors
    /// As [`Host::register_memory`], by the tenant's quotas.
    pub fn register_memory_for(
        &self,
        tenant: &Tenant,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
    ) -> Result<RegisteredRegion, HostError> {
        self.driver()?.register(Some(tenant), memory, key, permissions)
    }

    /// Returns the usage and limits of a tenant; without one, the host itself.
    ///
    /// # Errors
    /// If the tenant is another host's, or the engine is gone.
    pub fn usage(&self, tenant: Option<&Tenant>) -> Result<Usage, HostError> {
        self.driver()?.usage(tenant)
    }

    pub(super) fn register_as(
        &self,
        tenant: Option<&Tenant>,
        len: usize,
        permissions: Permissions,
    ) -> Result<RegisteredRegion, HostError> {
        // Before any page is touched; and the lock is free meanwhile, as that takes its time.
        self.driver()?.admits(tenant, len)?;
        let (memory, key) = (Arc::new(Region::new(len)?), random_region_key()?);
        self.driver()?.register(tenant, memory, key, permissions)
    }
}
