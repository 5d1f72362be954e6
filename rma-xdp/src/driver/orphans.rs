//! The objects of StaR that engines have and nobody knows of: [`Orphan`].

use rma_app::home::StarTag;
use rma_star::names::{MrId, PdId};

/// For whom something is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asker {
    pub(super) tag: StarTag,
    /// The portal's number on this host.
    pub(super) number: u16,
    /// The index of the engine that serves it.
    pub(super) engine: usize,
}

/// A thing that an engine has and nobody knows of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Orphan {
    Pd(Asker, PdId),
    Mr(Asker, PdId, MrId),
}

impl Orphan {
    /// For whom it was asked.
    pub(super) const fn asker(&self) -> Asker {
        let (&Self::Pd(asker, _) | &Self::Mr(asker, ..)) = self;
        asker
    }
}
