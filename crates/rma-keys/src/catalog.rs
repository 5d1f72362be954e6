//! The regions that a service gives keys to, by name, with the keys of their epochs.
//!
//! A region has a present key, which its responder goes by, and at most one announced: the next.
//! The life of a key is `announce`, then the responder's Rekey, then `install`; while the Rekey is
//! under way, or its outcome unknown, both are here, as whoever fetches then needs both (§5.2).
//!
//! Invariants: each epoch has a key of its own, and numbers ascend over the whole catalog. So a key
//! that somebody may hold who must not have it any more never comes back: [`Catalog::replace`]
//! drops an announced key for good. A region has one name: it goes by one key, and under two names
//! it would have the epochs of two rotations, of which each ends the other's keys unannounced.
//!
//! Nothing is kept of who got what (§4.2): K_d follows from K_r. Nor does the catalog keep K_r
//! itself, only what keys are derived with. Who may have them is asked elsewhere, and *when* a key
//! changes is decided by whoever rotates it; here is only what holds.

use std::collections::BTreeMap;

use rma_core::{
    addr::{HostAddr, LocalAddresses, Pid},
    crypto::{KeyBinding, RegionKeySchedule},
    op::OpType,
    region::RegionId,
    time::Instant,
};

use crate::{
    epoch::{Epoch, Life},
    limits::CATALOG_MAX,
    name::RegionName,
    secret::{GrantedKey, RegionSecret},
};

/// A region's registration: its host, its name there, its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The addresses of the host that it is registered at: its owner's.
    pub responders: LocalAddresses,
    /// Its name there.
    pub id: RegionId,
    /// Its length in bytes.
    pub len: u64,
}

/// How long an epoch is meant to last. A rotator that is late makes it longer: the key is good
/// until it acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// When the key after this one will be announced; not after `ends_at`.
    pub announce_at: Instant,
    /// When the epoch ends, in time since boot.
    pub ends_at: Instant,
}

impl Term {
    /// Ends at `ends_at`, if it does not end before.
    fn hasten(&mut self, ends_at: Instant) {
        self.ends_at = self.ends_at.min(ends_at);
        self.announce_at = self.announce_at.min(self.ends_at);
    }
}

/// The key of one epoch of a region.
#[derive(Debug)]
pub struct EpochKey {
    epoch: Epoch,
    schedule: RegionKeySchedule,
    term: Term,
}

impl EpochKey {
    /// Its epoch.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// How long the epoch is meant to last.
    #[must_use]
    pub const fn term(&self) -> Term {
        self.term
    }

    /// K_d for one process, responder and type of op.
    //= 1rma#4.2-derived-key
    #[must_use]
    pub fn derive(&self, binding: &KeyBinding) -> GrantedKey {
        GrantedKey::new(&self.schedule.derive(binding))
    }
}

/// A region with its keys.
#[derive(Debug)]
pub struct Entry {
    region: Region,
    present: EpochKey,
    next: Option<EpochKey>,
}

impl Entry {
    /// Returns the region.
    #[must_use]
    pub const fn region(&self) -> &Region {
        &self.region
    }

    /// The key that its responder goes by, as far as is known.
    #[must_use]
    pub const fn present(&self) -> &EpochKey {
        &self.present
    }

    /// The key that it will go by.
    #[must_use]
    pub const fn next(&self) -> Option<&EpochKey> {
        self.next.as_ref()
    }

    /// The later of its keys.
    #[must_use]
    pub fn latest(&self) -> &EpochKey {
        self.next.as_ref().unwrap_or(&self.present)
    }
}

/// The reason why the catalog was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// No region has this name.
    #[error("no region {name} has been published")]
    Unknown {
        /// The name.
        name: RegionName,
    },
    /// It holds as many regions as it may.
    #[error("{name} would be region {} of the catalog, which holds {CATALOG_MAX}", CATALOG_MAX + 1)]
    Full {
        /// The region that has no room.
        name: RegionName,
    },
    /// The region has another name already.
    #[error(
        "{name} is the region that is published as {other}: take that out first, or use that name"
    )]
    SameRegion {
        /// The name that was asked for.
        name: RegionName,
        /// The name that it has.
        other: RegionName,
    },
    /// The region's host has no address.
    #[error("the host of {name} has no address: publish it with one")]
    NoAddress {
        /// The region.
        name: RegionName,
    },
    /// A term that ends before the next key is announced.
    #[error("the epoch of {name} would end before its successor is announced")]
    Term {
        /// The region.
        name: RegionName,
    },
    /// A key is announced already, and one region has one rotator.
    #[error("epoch {epoch} of {name} is announced already: install it, or replace it")]
    Announced {
        /// The region.
        name: RegionName,
        /// The epoch that is announced.
        epoch: Epoch,
    },
    /// The key to install is not the announced one.
    #[error("epoch {epoch} of {name} is not the one that is announced")]
    NotAnnounced {
        /// The region.
        name: RegionName,
        /// The epoch to install.
        epoch: Epoch,
    },
    /// A key that the region has, or that was announced.
    #[error("this is a key that {name} has already: draw a fresh one")]
    SameKey {
        /// The region.
        name: RegionName,
    },
}

/// The regions of one service, in one life.
#[derive(Debug)]
pub struct Catalog {
    life: Life,
    /// The highest number of an epoch so far.
    last: u64,
    regions: BTreeMap<RegionName, Entry>,
    /// The names of each host's regions.
    names: BTreeMap<(HostAddr, RegionId), RegionName>,
}

impl Catalog {
    /// A catalog without regions. `life` is 8 octets that no other life of this service has had: of
    /// a secure random source.
    #[must_use]
    pub const fn new(life: Life) -> Self {
        Self { life, last: 0, regions: BTreeMap::new(), names: BTreeMap::new() }
    }

    /// The life of the service.
    #[must_use]
    pub const fn life(&self) -> Life {
        self.life
    }

    /// The names of all regions, in order.
    pub fn names(&self) -> impl Iterator<Item = &RegionName> {
        self.regions.keys()
    }

    /// A region, if there is one of this name.
    #[must_use]
    pub fn find(&self, name: &RegionName) -> Option<&Entry> {
        self.regions.get(name)
    }

    /// Whether a region can be put in under this name: an owner asks before it changes its key.
    ///
    /// # Errors
    /// If the catalog is full, or the region has no address, or another name.
    pub fn admits(&self, name: &RegionName, region: &Region) -> Result<(), CatalogError> {
        if region.responders.is_empty() {
            return Err(CatalogError::NoAddress { name: name.clone() });
        }
        if self.regions.len() >= CATALOG_MAX && !self.regions.contains_key(name) {
            return Err(CatalogError::Full { name: name.clone() });
        }
        let mut called = places(region).filter_map(|it| self.names.get(&it));
        called.find(|it| *it != name).map_or(Ok(()), |other| {
            Err(CatalogError::SameRegion { name: name.clone(), other: other.clone() })
        })
    }

    /// Puts a region in, whose responder goes by `secret`. One of the same name goes out: its owner
    /// has registered it anew.
    ///
    /// # Errors
    /// As [`Catalog::admits`], or if the term makes no sense.
    pub fn publish(
        &mut self,
        name: RegionName,
        region: Region,
        secret: &RegionSecret,
        term: Term,
    ) -> Result<Epoch, CatalogError> {
        self.admits(&name, &region)?;
        let present = self.next_key(&name, secret, term)?;
        let epoch = present.epoch;
        _ = self.remove(&name);
        self.names.extend(places(&region).map(|it| (it, name.clone())));
        self.regions.insert(name, Entry { region, present, next: None });
        Ok(epoch)
    }

    /// Takes a region out: no client is given its keys any longer. Only its responder keeps out
    /// clients that hold a key.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn remove(&mut self, name: &RegionName) -> Result<(), CatalogError> {
        let removed = self.regions.remove(name);
        let removed = removed.ok_or_else(|| CatalogError::Unknown { name: name.clone() })?;
        places(&removed.region).for_each(|it| _ = self.names.remove(&it));
        Ok(())
    }

    /// Announces the key that the region will go by: from now on clients are given both. The
    /// present epoch ends at `swap_at`, if it does not end before.
    ///
    /// # Errors
    /// If there is no such region, a key is announced, the key is one that the region has, or the
    /// term makes no sense.
    //= 1rma#5.2-predistributed
    pub fn announce(
        &mut self,
        name: &RegionName,
        secret: &RegionSecret,
        swap_at: Instant,
        term: Term,
    ) -> Result<Epoch, CatalogError> {
        if let Some(next) = &self.entry(name)?.next {
            return Err(CatalogError::Announced { name: name.clone(), epoch: next.epoch });
        }
        self.put_next(name, secret, swap_at, term)
    }

    /// Announces `secret` in place of what is announced, if anything is: for withdrawals, as
    /// whoever is shut out may hold that. The present epoch ends `now`.
    ///
    /// # Errors
    /// As [`Catalog::announce`], but that something may be announced.
    pub fn replace(
        &mut self,
        name: &RegionName,
        secret: &RegionSecret,
        now: Instant,
        term: Term,
    ) -> Result<Epoch, CatalogError> {
        self.put_next(name, secret, now, term)
    }

    /// The responder goes by what was announced: the key before it is dropped.
    ///
    /// # Errors
    /// If there is no such region, or `epoch` is not what is announced.
    pub fn install(&mut self, name: &RegionName, epoch: Epoch) -> Result<(), CatalogError> {
        let entry = self.entry(name)?;
        match entry.next.take_if(|next| next.epoch == epoch) {
            Some(next) => {
                entry.present = next;
                Ok(())
            }
            None => Err(CatalogError::NotAnnounced { name: name.clone(), epoch }),
        }
    }

    /// The present epoch ends at `ends_at`, if it does not end before.
    ///
    /// # Errors
    /// If there is no such region.
    pub fn hasten(&mut self, name: &RegionName, ends_at: Instant) -> Result<(), CatalogError> {
        self.entry(name)?.present.term.hasten(ends_at);
        Ok(())
    }

    /// No key of a region that is given from now on is good beyond `ends_at`: the present epoch
    /// ends by then, and so does the next one, if it is announced.
    ///
    /// # Errors
    /// If there is no such region.
    pub fn limit(&mut self, name: &RegionName, ends_at: Instant) -> Result<(), CatalogError> {
        let entry = self.entry(name)?;
        entry.present.term.hasten(ends_at);
        if let Some(next) = &mut entry.next {
            next.term.hasten(ends_at);
        }
        Ok(())
    }

    fn entry(&mut self, name: &RegionName) -> Result<&mut Entry, CatalogError> {
        let entry = self.regions.get_mut(name);
        entry.ok_or_else(|| CatalogError::Unknown { name: name.clone() })
    }

    fn put_next(
        &mut self,
        name: &RegionName,
        secret: &RegionSecret,
        swap_at: Instant,
        term: Term,
    ) -> Result<Epoch, CatalogError> {
        let next = self.next_key(name, secret, term)?;
        let epoch = next.epoch;
        let entry = self.entry(name)?;
        let sample = next.derive(&probe());
        let is_known = |key: &EpochKey| key.derive(&probe()) == sample;
        if is_known(&entry.present) || entry.next.as_ref().is_some_and(is_known) {
            return Err(CatalogError::SameKey { name: name.clone() });
        }
        entry.present.term.hasten(swap_at);
        entry.next = Some(next);
        Ok(epoch)
    }

    /// A key with the next number.
    fn next_key(
        &mut self,
        name: &RegionName,
        secret: &RegionSecret,
        term: Term,
    ) -> Result<EpochKey, CatalogError> {
        if term.announce_at > term.ends_at {
            return Err(CatalogError::Term { name: name.clone() });
        }
        self.last += 1;
        let epoch = Epoch { life: self.life, number: self.last };
        Ok(EpochKey { epoch, schedule: RegionKeySchedule::new(&secret.region_key()), term })
    }
}

/// Returns the binding by which two keys are compared, without looking at them.
fn probe() -> KeyBinding {
    let nobody = HostAddr::from([0; 4]);
    KeyBinding { initiator: nobody, responder: nobody, pid: Pid(0), op_type: OpType::Read }
}

/// Lists the places of a region: at each address of its host.
fn places(region: &Region) -> impl Iterator<Item = (HostAddr, RegionId)> {
    let id = region.id;
    region.responders.iter().map(move |responder| (responder, id))
}
