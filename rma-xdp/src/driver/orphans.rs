//! The objects of StaR that engines have and nobody knows of: [`Orphan`].

use rma_app::home::StarTag;
use rma_star::names::{MrId, PdId};

/// For whom something is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asker {
    pub(super) tag: StarTag,
    /// The portal's number at its engine.
    pub(super) number: u16,
}

/// A thing that an engine has and nobody knows of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Orphan {
    Pd(Asker, PdId),
    Mr(Asker, PdId, MrId),
}

impl Orphan {
    /// Whether it goes with this portal.
    pub(super) fn is_of(&self, portal: StarTag) -> bool {
        let (Self::Pd(asker, _) | Self::Mr(asker, ..)) = self;
        asker.tag == portal
    }
}
