//! The grants of one process of one host on one region: at most one for each type of op.
//!
//! Invariant: there is at least one, and all are for the same region, initiator and process.

use rma_xdp::{
    Grant, HostAddr, HostError, HostOf, OpType, Pid, RegionKey, RegisteredRegion,
    crypto::DerivedRegionKey, engine::EngineKind,
};

use crate::error::PairError;

/// The grants of one initiator on one region: a key for each type of op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grants {
    /// One of them, for what they have in common.
    one: Grant,
    /// K_d for each type of op, in the order of [`OpType::ALL`].
    keys: [Option<DerivedRegionKey>; OpType::ALL.len()],
}

impl Grants {
    /// `grant` and no other.
    #[must_use]
    pub const fn new(grant: Grant) -> Self {
        let mut keys = [None; OpType::ALL.len()];
        keys[grant.op_type.index()] = Some(grant.key);
        Self { one: grant, keys }
    }

    /// These, and `key` for ops of `op_type`.
    #[must_use]
    pub const fn with(mut self, op_type: OpType, key: DerivedRegionKey) -> Self {
        self.keys[op_type.index()] = Some(key);
        self
    }

    /// Makes the grants that process `pid` of `initiator` needs for ops of each of `op_types` on
    /// `region` of `host`.
    ///
    /// # Errors
    /// As [`HostOf::grant`].
    ///
    /// # Panics
    /// If `op_types` is empty.
    pub fn make(
        host: &HostOf<impl EngineKind>,
        region: &RegisteredRegion,
        (initiator, pid): (HostAddr, Pid),
        op_types: &[OpType],
    ) -> Result<Self, HostError> {
        let mut grants: Option<Self> = None;
        for &op_type in op_types {
            let grant = host.grant(region, initiator, pid, op_type)?;
            grants = Some(match grants {
                None => Self::new(grant),
                Some(grants) => grants.with(op_type, grant.key),
            });
        }
        Ok(grants.expect("at least one type of op"))
    }

    /// The grant for ops of `op_type`.
    ///
    /// # Errors
    /// If there is none.
    pub fn get(&self, op_type: OpType) -> Result<Grant, PairError> {
        let key = self.keys[op_type.index()].ok_or(PairError::NotGranted { op_type })?;
        Ok(Grant { op_type, key, ..self.one })
    }

    /// Whether ops of `op_type` are granted.
    #[must_use]
    pub const fn has(&self, op_type: OpType) -> bool {
        self.keys[op_type.index()].is_some()
    }

    /// The same permissions under another region key.
    #[must_use]
    pub fn under(&self, key: &RegionKey) -> Self {
        let mut keys = self.keys;
        for grant in self.all() {
            keys[grant.op_type.index()] = Some(grant.under(key).key);
        }
        Self { one: self.one.under(key), keys }
    }

    /// One of the grants, for what all have in common: everything but the op type and the key.
    #[must_use]
    pub const fn any(&self) -> &Grant {
        &self.one
    }

    /// All grants.
    pub fn all(&self) -> impl Iterator<Item = Grant> {
        OpType::ALL.into_iter().filter_map(|op_type| self.get(op_type).ok())
    }
}
