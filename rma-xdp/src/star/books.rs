//! The driver's books of StaR: portals, protection domains of those, memory regions and windows of
//! these; and what engines have and nobody knows of ([`Orphan`]).
//!
//! Invariant: what is in here is charged. With a portal all goes that it has, and with a protection
//! domain all its memory regions.

use std::{collections::BTreeMap, sync::Arc};

use rma_app::home::PortalTag;
use rma_core::portal::FlagLender;
use rma_shm::Region;
use rma_star::names::{MrId, PdId};

use crate::driver::accounts::pools::Charge;

/// The books of StaR.
#[derive(Debug, Default)]
pub(crate) struct StarBooks {
    pub(crate) portals: BTreeMap<PortalTag, StarPortal>,
    pub(crate) orphans: Vec<Orphan>,
    /// Of the flags of its portals, which are looked at apart from those of 1RMA's.
    pub(crate) flags: FlagLender,
}

/// A portal of StaR.
#[derive(Debug)]
pub(crate) struct StarPortal {
    /// Its number on this host.
    pub(crate) number: u16,
    /// Work requests and stateful connections, and which engine serves it.
    pub(crate) charge: Charge,
    pub(crate) pds: BTreeMap<PdId, ProtectionDomain>,
}

/// A protection domain of a portal, and its memory.
#[derive(Debug)]
pub(crate) struct ProtectionDomain {
    pub(crate) charge: Charge,
    pub(crate) mrs: BTreeMap<MrId, MemoryRegion>,
}

/// A memory region or window.
#[derive(Debug)]
pub(crate) struct MemoryRegion {
    pub(crate) charge: Charge,
    /// So that no engine is who frees it, when it ends a protection domain.
    pub(crate) _memory: Option<Arc<Region>>,
}

impl ProtectionDomain {
    /// All that it is charged for.
    pub(crate) fn charges(&self) -> impl Iterator<Item = &Charge> {
        core::iter::once(&self.charge).chain(self.mrs.values().map(|mr| &mr.charge))
    }
}

impl StarPortal {
    /// All that it is charged for.
    pub(crate) fn charges(&self) -> impl Iterator<Item = &Charge> {
        let pds = self.pds.values().flat_map(ProtectionDomain::charges);
        core::iter::once(&self.charge).chain(pds)
    }
}

/// For whom something is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asker {
    pub(crate) tag: PortalTag,
    /// The portal's number on this host.
    pub(crate) number: u16,
    /// The index of the engine that serves it.
    pub(crate) engine: usize,
}

/// A thing that an engine has and nobody knows of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Orphan {
    Pd(Asker, PdId),
    Mr(Asker, PdId, MrId),
}

impl Orphan {
    /// For whom it was asked.
    pub(crate) const fn asker(&self) -> Asker {
        let (&Self::Pd(asker, _) | &Self::Mr(asker, ..)) = self;
        asker
    }
}
