//! What both kinds of host do for tenants: [`crate::driver::tenant`].

use std::sync::Arc;

use rma_app::Portal;
use rma_core::{
    crypto::RegionKey,
    region::{Permissions, RegisteredRegion},
};
use rma_shm::Region;

use super::{Control, Host, InlineHost, random_region_key};
use crate::{
    driver::tenant::{Tenant, TenantConfig, Usage},
    error::HostError,
};

impl Host {
    /// Makes a tenant: one of several applications that share this host, each within its quotas.
    /// Sets aside what it reserves.
    ///
    /// # Errors
    /// If that much cannot be reserved.
    pub fn tenant(&self, config: TenantConfig) -> Result<Tenant, HostError> {
        let Control { thread, driver } = &mut *self.control();
        driver.tenant(thread, config)
    }

    /// [`Host::portal`] for a tenant, with its PID.
    ///
    /// # Errors
    /// If the tenant cannot have that many slots: see [`crate::AllocationError`].
    pub fn portal_for(&self, tenant: &Tenant, slots: u16) -> Result<Portal, HostError> {
        self.portal_as(Some(tenant), slots)
    }

    pub(super) fn portal_as(
        &self,
        tenant: Option<&Tenant>,
        slots: u16,
    ) -> Result<Portal, HostError> {
        loop {
            if let Some(portal) = self.try_portal(tenant, slots)? {
                return Ok(portal);
            }
            // Others may use the host meanwhile: ops take their time.
            std::thread::yield_now();
        }
    }

    fn try_portal(&self, tenant: Option<&Tenant>, slots: u16) -> Result<Option<Portal>, HostError> {
        let Control { thread, driver } = &mut *self.control();
        driver.portal(thread, tenant, slots)
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
        let Control { thread, driver } = &mut *self.control();
        driver.register(thread, Some(tenant), memory, key, permissions)
    }

    /// What a tenant has and could have; without one, the host itself.
    ///
    /// # Errors
    /// If the tenant is another host's, or the engine is gone.
    pub fn usage(&self, tenant: Option<&Tenant>) -> Result<Usage, HostError> {
        let Control { thread, driver } = &mut *self.control();
        driver.usage(thread, tenant)
    }

    pub(super) fn register_as(
        &self,
        tenant: Option<&Tenant>,
        len: usize,
        permissions: Permissions,
    ) -> Result<RegisteredRegion, HostError> {
        // Before any page is touched; and the lock is free meanwhile, as that takes its time.
        self.admits(tenant, len)?;
        let (memory, key) = (Arc::new(Region::new(len)?), random_region_key()?);
        let Control { thread, driver } = &mut *self.control();
        driver.register(thread, tenant, memory, key, permissions)
    }

    fn admits(&self, tenant: Option<&Tenant>, len: usize) -> Result<(), HostError> {
        let Control { thread, driver } = &mut *self.control();
        driver.admits(thread, tenant, len)
    }
}

impl InlineHost {
    /// See [`Host::tenant`].
    ///
    /// # Errors
    /// As [`Host::tenant`].
    pub fn tenant(&mut self, config: TenantConfig) -> Result<Tenant, HostError> {
        self.driver.tenant(&mut self.engine, config)
    }

    /// See [`Host::portal_for`].
    ///
    /// # Errors
    /// As [`Host::portal_for`].
    pub fn portal_for(&mut self, tenant: &Tenant, slots: u16) -> Result<Portal, HostError> {
        self.portal_as(Some(tenant), slots)
    }

    pub(super) fn portal_as(
        &mut self,
        tenant: Option<&Tenant>,
        slots: u16,
    ) -> Result<Portal, HostError> {
        loop {
            if let Some(portal) = self.driver.portal(&mut self.engine, tenant, slots)? {
                return Ok(portal);
            }
            self.engine.turn();
        }
    }

    /// See [`Host::register_for`].
    ///
    /// # Errors
    /// As [`Host::register_for`].
    pub fn register_for(
        &mut self,
        tenant: &Tenant,
        len: usize,
        permissions: Permissions,
    ) -> Result<RegisteredRegion, HostError> {
        self.register_as(Some(tenant), len, permissions)
    }

    /// See [`Host::register_memory_for`].
    ///
    /// # Errors
    /// As [`Host::register_memory_for`].
    pub fn register_memory_for(
        &mut self,
        tenant: &Tenant,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
    ) -> Result<RegisteredRegion, HostError> {
        self.driver.register(&mut self.engine, Some(tenant), memory, key, permissions)
    }

    /// See [`Host::usage`].
    ///
    /// # Errors
    /// As [`Host::usage`].
    pub fn usage(&mut self, tenant: Option<&Tenant>) -> Result<Usage, HostError> {
        self.driver.usage(&mut self.engine, tenant)
    }

    pub(super) fn register_as(
        &mut self,
        tenant: Option<&Tenant>,
        len: usize,
        permissions: Permissions,
    ) -> Result<RegisteredRegion, HostError> {
        self.driver.admits(&mut self.engine, tenant, len)?;
        let (memory, key) = (Arc::new(Region::new(len)?), random_region_key()?);
        self.driver.register(&mut self.engine, tenant, memory, key, permissions)
    }
}
