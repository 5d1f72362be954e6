//! Protection domains of this host (§II-A): whose they are, and the secret of each.
//!
//! The secret K_p is what the stateless side derives all keys of its connections from, so this
//! table is what its engine has to know to tell who may do what: as many rows as there are domains,
//! however many connections they have.
//!
//! Invariant: a name finds its row exactly from [`PdTable::alloc`] to [`PdTable::dealloc`]. A name
//! may come again after 2^16 uses of its row. Its secret is another one then, so that nothing that
//! was made under the first is right under the second.

use rma_crypto::AeadProvider;
use thiserror::Error;

use crate::{
    keys::{PdKey, PdKeySchedule},
    names::PdId,
};

/// The most protection domains that a host may have: 16 bits of a name are the row.
pub const PDS_MAX: u32 = 1 << 16;

/// The reason why there is no protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PdError {
    /// All rows are in use.
    #[error("all {capacity} protection domains are in use: deallocate one, or allow for more")]
    TableFull {
        /// How many there may be.
        capacity: usize,
    },
    /// No domain has that name.
    #[error("there is no protection domain {0:?}: it was deallocated, or never allocated")]
    NoSuchPd(PdId),
}

/// A protection domain.
#[derive(Debug)]
pub struct Pd {
    /// The portal whose application has it. It alone posts for connections of the domain.
    pub owner: u16,
    /// K_p, expanded.
    pub key: PdKeySchedule,
}

#[derive(Debug, Default)]
struct Row {
    generation: u16,
    pd: Option<Pd>,
}

/// The table of protection domains.
#[derive(Debug)]
pub struct PdTable {
    rows: Box<[Row]>,
    /// Rows that are free, least recently used first.
    free: std::collections::VecDeque<u16>,
}

const fn row_of(id: PdId) -> usize {
    (id.0 & 0xffff) as usize
}

impl PdTable {
    /// Bytes that each row takes.
    pub const ENTRY_LEN: usize = size_of::<Row>() + size_of::<u16>();

    /// A table of `capacity` rows, at most [`PDS_MAX`].
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        let capacity = capacity.min(PDS_MAX);
        Self {
            rows: (0..capacity).map(|_| Row::default()).collect(),
            free: (0..capacity).map(|row| row as u16).collect(),
        }
    }

    /// A new protection domain of portal `owner`, with a secret that nobody else has.
    ///
    /// # Errors
    /// [`PdError::TableFull`].
    pub fn alloc(
        &mut self,
        aead: &dyn AeadProvider,
        owner: u16,
        key: &PdKey,
    ) -> Result<PdId, PdError> {
        let full = PdError::TableFull { capacity: self.rows.len() };
        let index = self.free.pop_front().ok_or(full)?;
        let row = &mut self.rows[usize::from(index)];
        row.generation = row.generation.wrapping_add(1);
        row.pd = Some(Pd { owner, key: PdKeySchedule::new(aead, key) });
        Ok(PdId(u32::from(row.generation) << 16 | u32::from(index)))
    }

    /// Ends a protection domain. From now on no frame of any of its connections is authentic, so
    /// nothing of any of its memory regions changes any longer.
    ///
    /// # Errors
    /// [`PdError::NoSuchPd`].
    pub fn dealloc(&mut self, id: PdId) -> Result<Pd, PdError> {
        self.get(id).ok_or(PdError::NoSuchPd(id))?;
        let pd = self.rows[row_of(id)].pd.take().ok_or(PdError::NoSuchPd(id))?;
        self.free.push_back(row_of(id) as u16);
        Ok(pd)
    }

    /// The protection domain of that name.
    #[must_use]
    #[inline]
    pub fn get(&self, id: PdId) -> Option<&Pd> {
        let row = self.rows.get(row_of(id))?;
        row.pd.as_ref().filter(|_| u32::from(row.generation) == id.0 >> 16)
    }

    /// The name of the domain in a row; `None` if it is free.
    #[must_use]
    pub fn at(&self, row: usize) -> Option<PdId> {
        let generation = self.rows.get(row).filter(|row| row.pd.is_some())?.generation;
        Some(PdId(u32::from(generation) << 16 | row as u32))
    }

    /// Returns the portal that has the domain of that name.
    #[must_use]
    pub fn owner(&self, id: PdId) -> Option<u16> {
        self.get(id).map(|pd| pd.owner)
    }

    /// How many there may be.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.rows.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_finds_its_domain_until_that_is_deallocated() {
        let aead = rma_crypto::fastest();
        let key = |octet| PdKey::from_bytes([octet; 16]);
        let mut table = PdTable::new(2);
        let (one, two) =
            (table.alloc(aead, 3, &key(1)).unwrap(), table.alloc(aead, 4, &key(2)).unwrap());
        assert_eq!(table.alloc(aead, 5, &key(3)), Err(PdError::TableFull { capacity: 2 }));
        assert_eq!((table.owner(one), table.owner(two)), (Some(3), Some(4)));
        assert_eq!(table.dealloc(one).unwrap().owner, 3);
        assert!(table.get(one).is_none() && table.get(two).is_some());
        assert_eq!(table.dealloc(one).unwrap_err(), PdError::NoSuchPd(one));
        let again = table.alloc(aead, 6, &key(4)).unwrap();
        assert_eq!(row_of(again), row_of(one));
        assert_ne!(again, one);
        assert_eq!((table.owner(one), table.owner(again)), (None, Some(6)));
        for bits in [u32::MAX, 2, 0x1_0002, 0] {
            assert!(table.get(PdId(bits)).is_none(), "{bits:#x}");
        }
    }
}
