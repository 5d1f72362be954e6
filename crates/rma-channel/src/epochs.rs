//! Epochs: how what is shared by many is taken back from one who has gone silent with it (not in
//! the paper).
//!
//! RDMA has no way to take a reservation back: who was stopped for a minute after it reserved, and
//! goes on then, writes into what is another's by now. Keys have one: **a Rekey is a fence**. The
//! owner gives its regions keys *that nobody has*. From then on nothing lands in them, so what the
//! owner finds is final: each thing that was reserved has been used in whole or never will be. It
//! puts things in order, and only then installs the keys of the next *epoch*. (With those at once
//! somebody would use again what is just being put in order.)
//!
//! The others hold grants for several epochs from the beginning ([`Ahead`]). Whose op is refused
//! with REMOTE_AUTHENTICATION_FAILURE knows that it was not applied, and looks for the present
//! epoch: the next one, or one after it, or, as such a refusal can be forged, the one that it had.
//! What it had reserved is void then. Whoever wakes up late is refused, as its grants are of old.
//!
//! Invariant: between [`Epochs::fence`] and [`Epochs::resume`] nobody but the owner changes the
//! regions, and no key is ever installed twice.

use std::collections::VecDeque;

use rma_core::{
    crypto::RegionKey,
    gate::{Gate, Peer, Refused},
    grant::Grant,
    op::OpType,
    region::RegisteredRegion,
};

use crate::terms::OpenError;

/// The owner's side: `N` regions that are fenced together.
#[derive(Debug)]
pub(crate) struct Epochs<const N: usize> {
    /// In the order in which they are fenced.
    regions: [RegisteredRegion; N],
    /// Of the present epoch and those after it.
    keys: VecDeque<[RegionKey; N]>,
    epoch: u64,
}

impl<const N: usize> Epochs<N> {
    /// The regions that `register` makes under the keys that it is given. `ahead`: how many epochs
    /// others are given grants for, the present one among them; at least 1.
    pub(crate) fn open(
        host: &dyn Gate,
        ahead: usize,
        register: impl FnOnce(&dyn Gate, [RegionKey; N]) -> Result<[RegisteredRegion; N], OpenError>,
    ) -> Result<Self, OpenError> {
        let keys = (0..ahead).map(|_| keys(host)).collect::<Result<VecDeque<_>, _>>();
        let keys = keys.map_err(OpenError::Host)?;
        let regions = register(host, keys[0])?;
        Ok(Self { regions, keys, epoch: 0 })
    }

    /// How many epochs there were before the present one.
    pub(crate) const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The regions, in the order in which they are fenced.
    pub(crate) const fn regions(&self) -> &[RegisteredRegion; N] {
        &self.regions
    }

    /// Makes the grants that `peer` needs for the present epoch and all whose keys there are: for
    /// each epoch, a grant for each of `each`, by region and type of op.
    pub(crate) fn grants(
        &self,
        host: &dyn Gate,
        peer: Peer,
        each: &[(usize, OpType)],
    ) -> Result<Vec<Grant>, Refused> {
        let mut present = Vec::with_capacity(each.len());
        for &(region, op_type) in each {
            present.push((region, host.grant(&self.regions[region], peer, op_type)?));
        }
        let of = |keys: &[RegionKey; N]| -> Vec<Grant> {
            present.iter().map(|(region, grant)| grant.under(&keys[*region])).collect()
        };
        Ok(self.keys.iter().flat_map(of).collect())
    }

    /// Gives all regions keys that nobody has: nothing of others lands from now on. Fenced already,
    /// or in part, they are once more.
    pub(crate) fn fence(&self, host: &dyn Gate) -> Result<(), Refused> {
        for region in &self.regions {
            let nobodys = host.key()?;
            host.rekey(region, nobodys)?;
        }
        Ok(())
    }

    /// Begins the next epoch: the regions have its keys now. They were fenced. After an error it
    /// must be tried again.
    pub(crate) fn resume(&mut self, host: &dyn Gate) -> Result<(), Refused> {
        let last = keys(host)?;
        let next = *self.keys.get(1).unwrap_or(&last);
        // The first is what is used first: who gets at it finds the others in their places.
        for (region, key) in self.regions.iter().zip(next).rev() {
            host.rekey(region, key)?;
        }
        self.keys.push_back(last);
        self.keys.pop_front();
        self.epoch += 1;
        Ok(())
    }
}

fn keys<const N: usize>(host: &dyn Gate) -> Result<[RegionKey; N], Refused> {
    let mut keys = [RegionKey::from_bytes([0; 16]); N];
    for key in &mut keys {
        *key = host.key()?;
    }
    Ok(keys)
}

/// The others' side: grants for the epoch that is thought to be the present one, and for those
/// after it.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// By epoch, and for each the same ones.
    grants: Vec<Grant>,
    each: usize,
    /// The index of the epoch that is thought to be the present one: from 0 on, in those that there
    /// are grants for.
    at: usize,
}

impl Ahead {
    /// `grants` has `each` for each epoch.
    pub(crate) fn new(grants: Vec<Grant>, each: usize) -> Self {
        Self { grants, each, at: 0 }
    }

    /// Returns the epoch that is believed to be the present one.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// How many epochs there are grants for.
    pub(crate) fn count(&self) -> usize {
        self.grants.len() / self.each
    }

    /// A grant for the present epoch.
    pub(crate) fn grant(&self, which: usize) -> &Grant {
        self.grant_in(self.at, which)
    }

    /// A grant for an epoch, which is one of those.
    pub(crate) fn grant_in(&self, epoch: usize, which: usize) -> &Grant {
        &self.grants[epoch * self.each + which]
    }

    /// This epoch is the present one. It never goes back.
    pub(crate) fn advance(&mut self, epoch: usize) {
        self.at = self.at.max(epoch);
    }
}
