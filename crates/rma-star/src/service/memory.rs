//! The requests of applications to an engine beside their posts: protection domains, memory regions
//! and windows. Quotas are not checked here: the driver has checked them.
//!
//! Invariant: what is another portal's is as what there is not.

use core::ops::Range;
use std::sync::Arc;

use rma_shm::Region;

use super::Star;
use crate::{
    keys::PdKey,
    mr_table::{Access, MrError},
    names::{MrId, PdId},
    pd_table::PdError,
};

impl Star {
    /// A protection domain for a portal: `ibv_alloc_pd`. `key` is its secret, K_p, and new.
    ///
    /// # Errors
    /// [`PdError::TableFull`].
    pub fn alloc_pd(&mut self, portal: u16, key: &PdKey) -> Result<PdId, PdError> {
        self.pds.alloc(self.sealer.aead, portal, key)
    }

    /// Ends a protection domain of a portal with all its memory regions: `ibv_dealloc_pd`. No frame
    /// of its connections is authentic any longer.
    ///
    /// # Errors
    /// [`PdError::NoSuchPd`], also if it is another portal's.
    pub fn dealloc_pd(&mut self, portal: u16, pd: PdId) -> Result<(), PdError> {
        if self.pds.owner(pd) != Some(portal) {
            return Err(PdError::NoSuchPd(pd));
        }
        self.pds.dealloc(pd)?;
        self.mrs.deregister_all(pd);
        Ok(())
    }

    /// Registers memory in a protection domain of a portal: `ibv_reg_mr`.
    ///
    /// # Errors
    /// [`MrError`]. In a protection domain that there is not nothing is registered: it could be
    /// another application's one day, which has the same name. Nor in another portal's.
    pub fn reg_mr(
        &mut self,
        portal: u16,
        pd: PdId,
        memory: Arc<Region>,
        span: Range<u64>,
        access: Access,
    ) -> Result<MrId, MrError> {
        if self.pds.owner(pd) != Some(portal) {
            return Err(MrError::NoSuchPd(pd));
        }
        self.mrs.register(pd, memory, span, access)
    }

    /// Binds a memory window to a region of a portal's: `ibv_bind_mw`.
    ///
    /// # Errors
    /// [`MrError`]. A region of another portal is no region.
    pub fn bind_mw(
        &mut self,
        portal: u16,
        mr: MrId,
        span: Range<u64>,
        access: Access,
    ) -> Result<MrId, MrError> {
        self.check_mr(portal, mr)?;
        self.mrs.bind(mr, span, access)
    }

    /// Takes back a memory region or window of a portal: `ibv_dereg_mr`, `ibv_dealloc_mw`. Once
    /// this returns, no frame changes it or reads it, whatever the peers know.
    ///
    /// # Errors
    /// [`MrError::NoSuchMr`], also if it is another portal's, and [`MrError::HasWindows`].
    pub fn dereg_mr(&mut self, portal: u16, mr: MrId) -> Result<Arc<Region>, MrError> {
        self.check_mr(portal, mr)?;
        self.mrs.deregister(mr)
    }

    /// Whether a memory region or window is of a portal: of one of its protection domains.
    fn check_mr(&self, portal: u16, mr: MrId) -> Result<(), MrError> {
        let owner = self.mrs.pd(mr).and_then(|pd| self.pds.owner(pd));
        if owner == Some(portal) { Ok(()) } else { Err(MrError::NoSuchMr(mr)) }
    }
}
