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
use super::{HostOf, gate::HostFor};
use crate::{
    driver::tenant::{Tenant, TenantConfig, Usage},
    engine::EngineKind,
    error::HostError,
    random::random_region_key,
};

impl<P: EngineKind> HostOf<P> {
    /// Makes a tenant: one of several applications that share this host, each within its quotas.
    /// Sets aside what it reserves.
    ///
    /// # Errors
    /// If that much cannot be reserved.
    pub fn tenant(&self, config: TenantConfig) -> Result<Tenant, HostError> {
        self.driver()?.tenant(config)
    }

    /// Returns what the host itself uses, and what it may.
    ///
    /// # Errors
    /// If the engine is gone.
    pub fn usage(&self) -> Result<Usage, HostError> {
        self.own().usage()
    }
}

impl<P: EngineKind> HostFor<'_, P> {
    /// Returns what the tenant uses, and what it may.
    ///
    /// # Errors
    /// If the tenant is another host's, or the engine is gone.
    pub fn usage(&self) -> Result<Usage, HostError> {
        self.host.driver()?.usage(self.tenant)
    }

    /// The host, if `region` is the tenant's: another's it neither grants, nor rekeys, nor takes
    /// back.
    pub(super) fn host_of(&self, region: &RegisteredRegion) -> Result<&HostOf<P>, HostError> {
        self.host.driver()?.check_for(self.tenant, region)?;
        Ok(self.host)
    }

    /// As [`Host::portal`], with the tenant's PID.
    ///
    /// # Errors
    /// If the tenant cannot have that many slots: see [`crate::tenant::AllocationError`].
    pub fn portal(&self, slots: u16) -> Result<Portal, HostError> {
        self.portal_at(slots, None)
    }

    /// As [`Host::portal_on`], with the tenant's PID.
    ///
    /// # Errors
    /// As [`HostFor::portal`], and if the engine has fewer free slots.
    pub fn portal_on(&self, engine: usize, slots: u16) -> Result<Portal, HostError> {
        self.portal_at(slots, Some(engine))
    }

    fn portal_at(&self, slots: u16, engine: Option<usize>) -> Result<Portal, HostError> {
        loop {
            let mut driver = self.host.driver()?;
            if let Some(portal) = driver.portal(self.tenant, slots, engine)? {
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

    /// As [`Host::register`].
    ///
    /// # Errors
    /// As [`Host::register`], by the tenant's quotas.
    pub fn register(
        &self,
        len: usize,
        permissions: Permissions,
    ) -> Result<RegisteredRegion, HostError> {
        // Before any page is touched; and the lock is free meanwhile, as that takes its time.
        self.host.driver()?.admits(self.tenant, len)?;
        self.register_memory(Arc::new(Region::new(len)?), random_region_key()?, permissions)
    }

    /// As [`Host::register_memory`].
    ///
    /// # Errors
    /// As [`Host::register_memory`], by the tenant's quotas.
    pub fn register_memory(
        &self,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
    ) -> Result<RegisteredRegion, HostError> {
        self.host.driver()?.register(self.tenant, memory, key, permissions)
    }
}
