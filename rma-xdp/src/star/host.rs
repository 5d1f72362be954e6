//! The hosts' part in StaR: [`StarVerbs`], and protection domains and memory of it.

use core::ops::Range;
use std::sync::Arc;

use rma_app::star::{MemoryRegion, MemoryWindow, ProtectionDomain, StarVerbs};
use rma_shm::Region;
use rma_star::{keys::PdKey, mr_table::Access};

#[cfg(doc)]
use crate::Host;
use crate::{
    engine::EngineKind,
    error::HostError,
    host::{HostOf, gate::HostFor},
    random::random_bytes,
    star::{
        driver::{StarPortalConfig, StarTerms},
        error::StarError,
    },
};

impl<P: EngineKind> HostOf<P> {
    /// Allocates a portal of StaR, and what verbs call a context over it: `ibv_open_device`. Waits
    /// for what dropped portals have under way if their share may be enough; an inline engine turns
    /// meanwhile.
    ///
    /// # Errors
    /// [`StarError`] if the host serves no StaR, or no portal has that size;
    /// [`crate::tenant::AllocationError`] if that much is not free.
    pub fn verbs(&self, config: StarPortalConfig) -> Result<StarVerbs, HostError> {
        self.own().verbs(config)
    }

    /// Returns the facts about this host that portals must know.
    fn star_terms(&self) -> Result<StarTerms, StarError> {
        let star = self.star.as_ref().ok_or(StarError::NotServed)?;
        let receive = self.receive_len_max;
        let longest = self
            .addresses
            .iter()
            .map(|address| if address.is_ipv4() { receive.ipv4 } else { receive.ipv6 });
        let packet_len_max = longest.min().unwrap_or(0).try_into().unwrap_or(u16::MAX);
        Ok(StarTerms { packet_len_max, valid: star.valid })
    }

    /// A protection domain: `ibv_alloc_pd`. It has a secret of its own, from the kernel's random
    /// source, that all keys of its connections follow from.
    ///
    /// # Errors
    /// [`crate::tenant::AllocationError`] if no more are free for the portal's tenant.
    pub fn alloc_pd(&self, verbs: &StarVerbs) -> Result<ProtectionDomain, HostError> {
        let key = PdKey::from_bytes(random_bytes()?);
        self.driver()?.alloc_pd(verbs.tag(), key)
    }

    /// Ends a protection domain with all its memory regions and windows: `ibv_dealloc_pd`. No frame
    /// of its connections has any effect from now on.
    ///
    /// # Errors
    /// [`StarError`] if there is none.
    pub fn dealloc_pd(&self, pd: &ProtectionDomain) -> Result<(), HostError> {
        self.driver()?.dealloc_pd(pd)
    }

    /// Registers `len` bytes of zeroed memory in a protection domain: `ibv_reg_mr`.
    ///
    /// # Errors
    /// If the memory cannot be had; otherwise as [`Host::reg_mr_of`].
    pub fn reg_mr(
        &self,
        pd: &ProtectionDomain,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion, HostError> {
        // Before any page is touched; and the lock is free meanwhile, as that takes its time.
        self.driver()?.admits_mr(pd, len as u64)?;
        let memory = Arc::new(Region::new(len)?);
        self.driver()?.reg_mr(pd, memory, 0..len as u64, access)
    }

    /// Registers a span of memory, in bytes, in a protection domain: `ibv_reg_mr`. The memory may
    /// be that of a [`RegisteredRegion`](crate::RegisteredRegion), or of another memory region:
    /// each time it counts as registered.
    ///
    /// # Errors
    /// [`StarError`] if the span is not within the memory, or there is no such protection domain;
    /// [`crate::tenant::AllocationError`] if no regions or bytes are free for the portal's tenant.
    pub fn reg_mr_of(
        &self,
        pd: &ProtectionDomain,
        memory: Arc<Region>,
        span: Range<u64>,
        access: Access,
    ) -> Result<MemoryRegion, HostError> {
        self.driver()?.reg_mr(pd, memory, span, access)
    }

    /// Binds a memory window to a span of a memory region, in bytes of that: `ibv_bind_mw`. Peers
    /// may do with the span what `access` says, which is no more than what the region allows.
    ///
    /// # Errors
    /// [`StarError`] if that cannot be; [`crate::tenant::AllocationError`] if no rows are free for
    /// the portal's tenant.
    pub fn bind_mw(
        &self,
        mr: &MemoryRegion,
        span: Range<u64>,
        access: Access,
    ) -> Result<MemoryWindow, HostError> {
        self.driver()?.bind_mw(mr, span, access)
    }

    /// Takes a memory region back: `ibv_dereg_mr`. From now on no frame changes it or reads it,
    /// whatever the peers know. The memory lives on as long as a handle to it.
    ///
    /// # Errors
    /// [`StarError`] if it is not registered, or has windows.
    pub fn dereg_mr(&self, mr: &MemoryRegion) -> Result<(), HostError> {
        self.driver()?.dereg_mr(mr)
    }

    /// Takes a memory window back: `ibv_dealloc_mw`. From now on peers can do nothing by it.
    ///
    /// # Errors
    /// [`StarError`] if there is none.
    pub fn dealloc_mw(&self, mw: &MemoryWindow) -> Result<(), HostError> {
        self.driver()?.dealloc_mw(mw)
    }
}

impl<P: EngineKind> HostFor<'_, P> {
    /// As [`Host::verbs`]. By the tenant's quotas goes all that is allocated for them.
    ///
    /// # Errors
    /// As [`Host::verbs`].
    pub fn verbs(&self, config: StarPortalConfig) -> Result<StarVerbs, HostError> {
        let terms = self.host.star_terms()?;
        loop {
            let mut driver = self.host.driver()?;
            if let Some(verbs) = driver.star_portal(self.tenant, &config, terms)? {
                return Ok(verbs);
            }
            let has_gone_on = driver.go_on();
            drop(driver);
            if !has_gone_on {
                // Others may use the host meanwhile: what is under way takes its time.
                std::thread::yield_now();
            }
        }
    }
}
