//! The applications' objects of StaR: portals, protection domains of those, memory regions and
//! windows of these.
//!
//! Invariant: what is in here is charged. With a portal all goes that it has, and with a protection
//! domain all its memory regions.

use std::{collections::BTreeMap, sync::Arc};

use rma_app::home::StarTag;
use rma_shm::Region;
use rma_star::names::{MrId, PdId};

use super::pools::Charge;

/// The portals of StaR.
pub(super) type StarPortals = BTreeMap<StarTag, StarPortal>;

/// A portal of StaR.
#[derive(Debug)]
pub(super) struct StarPortal {
    /// Its number on this host.
    pub(super) number: u16,
    /// Work requests and stateful connections, and which engine serves it.
    pub(super) charge: Charge,
    pub(super) pds: BTreeMap<PdId, ProtectionDomain>,
}

/// A protection domain of a portal, and its memory.
#[derive(Debug)]
pub(super) struct ProtectionDomain {
    pub(super) charge: Charge,
    pub(super) mrs: BTreeMap<MrId, MemoryRegion>,
}

/// A memory region or window.
#[derive(Debug)]
pub(super) struct MemoryRegion {
    pub(super) charge: Charge,
    /// So that no engine is who frees it, when it ends a protection domain.
    pub(super) _memory: Option<Arc<Region>>,
}

impl ProtectionDomain {
    /// All that it is charged for.
    pub(super) fn charges(&self) -> impl Iterator<Item = &Charge> {
        core::iter::once(&self.charge).chain(self.mrs.values().map(|mr| &mr.charge))
    }
}

impl StarPortal {
    /// All that it is charged for.
    pub(super) fn charges(&self) -> impl Iterator<Item = &Charge> {
        let pds = self.pds.values().flat_map(ProtectionDomain::charges);
        core::iter::once(&self.charge).chain(pds)
    }
}
