//! Memory regions and windows of this host (§II-A): where they lie, of which protection domain they
//! are, and who may do what.
//!
//! Both sides have one. At the stateful side it is the local end of every work request; at the
//! stateless side it is looked at for every frame whose key was right, whatever the stateful side's
//! whitelist has let through: deregistering takes effect at once, and asks nobody.
//!
//! A memory window is a row of its own, over a part of a region's row: it has a name, rights and a
//! span, and can be taken back while the region stays.
//!
//! Invariants: a number finds its row exactly while it is registered. A name never comes twice, as
//! a key that is derived from it would (K_m, section 3 of `docs/STAR-WIRE.md`): it counts the uses
//! of its row in 48 bits, of which 16 are in the number. So a number may come again after 2^16 uses
//! of a row, and no key does; nobody can use up what there is of names. Every access lies within
//! the span of one row.

use core::ops::{BitOr, Range};
use std::sync::Arc;

use rma_shm::Region;
use thiserror::Error;

use crate::names::{MrId, MrName, PdId};

/// The most rows: 16 bits of a name are the row.
pub const MRS_MAX: u32 = 1 << 16;

/// The accesses that a memory region permits: `ibv_access_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Access(u8);

impl Access {
    /// This application's work requests may send from it.
    pub const LOCAL_READ: Self = Self(0);
    /// This application's RECVs and READs may land in it.
    pub const LOCAL_WRITE: Self = Self(1);
    /// Peers may write into it.
    pub const REMOTE_WRITE: Self = Self(2);
    /// Peers may read it.
    pub const REMOTE_READ: Self = Self(4);

    /// Whether everything that `wanted` names is allowed.
    #[must_use]
    pub const fn allows(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// Returns the part of it that concerns peers.
    #[must_use]
    pub const fn remote(self) -> Self {
        Self(self.0 & (Self::REMOTE_READ.0 | Self::REMOTE_WRITE.0))
    }

    /// As a number: bit 0 local write, bit 1 remote write, bit 2 remote read.
    #[must_use]
    pub const fn to_bits(self) -> u8 {
        self.0
    }

    /// Of a number, whose other bits mean nothing.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & 7)
    }
}

impl BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The reason why memory cannot be registered, or bound, or taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MrError {
    /// All rows are in use.
    #[error(
        "all {capacity} memory regions and windows are in use: deregister one, or allow for more"
    )]
    TableFull {
        /// How many there may be.
        capacity: usize,
    },
    /// No region or window of that name is registered.
    #[error("there is no memory region or window {0:?}: it was deregistered, or never registered")]
    NoSuchMr(MrId),
    /// There are windows on the region.
    #[error("memory region {mr:?} has {windows} windows: take these back first")]
    HasWindows {
        /// The region.
        mr: MrId,
        /// How many windows.
        windows: u32,
    },
    /// No protection domain has that name.
    #[error("there is no protection domain {0:?}: it was deallocated, or never allocated")]
    NoSuchPd(PdId),
    /// The span is not within the memory.
    #[error("{len} bytes at {offset} are not within a memory region of {mr_len} bytes")]
    OutOfBounds {
        /// The offset of the span.
        offset: u64,
        /// How long it was to be.
        len: u64,
        /// How long the memory is.
        mr_len: u64,
    },
    /// A window on a window, or one that allows more than its region.
    #[error(
        "a window must lie on a memory region, not on another window, and allow no more than the \
         region does"
    )]
    NotBindable,
}

/// The reason why an access is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no such row, or it is of another protection domain. Whoever asks is not told which.
    NoSuchMr,
    /// The row does not allow it.
    Rights,
    /// It is not within the row's span.
    Bounds,
}

/// The span that an access goes to.
#[derive(Clone, Debug)]
pub struct Span<'a> {
    /// The memory that is accessed.
    pub memory: &'a Arc<Region>,
    /// The offset in it at which the access begins, in bytes.
    pub offset: u64,
}

/// A memory region or window.
#[derive(Debug)]
struct Entry {
    memory: Arc<Region>,
    /// The offset and length of the row's span in the memory.
    offset: u64,
    len: u64,
    pd: PdId,
    access: Access,
    /// The row of the region that this is a window on.
    parent: Option<u16>,
    /// How many windows are on it.
    windows: u32,
}

#[derive(Debug, Default)]
struct Row {
    /// How often it has been used: 48 bits are enough for ever.
    uses: u64,
    entry: Option<Entry>,
}

impl Row {
    /// The name that it has in its last use.
    const fn name(&self, row: u16) -> MrName {
        MrName(self.uses << 16 | row as u64)
    }
}

/// The table of memory regions and windows.
#[derive(Debug)]
pub struct MrTable {
    rows: Box<[Row]>,
    /// Rows that are free and have names left, least recently used first.
    free: std::collections::VecDeque<u16>,
}

const fn row_of(id: MrId) -> usize {
    (id.0 & 0xffff) as usize
}

/// Whether `len` bytes at `offset` are within a span of `of` bytes.
const fn is_within(offset: u64, len: u64, of: u64) -> bool {
    matches!(offset.checked_add(len), Some(end) if end <= of)
}

impl MrTable {
    /// Bytes that each row takes.
    pub const ENTRY_LEN: usize = size_of::<Row>() + size_of::<u16>();

    /// A table of `capacity` rows, at most [`MRS_MAX`].
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        let capacity = capacity.min(MRS_MAX);
        Self {
            rows: (0..capacity).map(|_| Row::default()).collect(),
            free: (0..capacity).map(|row| row as u16).collect(),
        }
    }

    /// Registers `span` of `memory` in `pd`: `ibv_reg_mr`.
    ///
    /// # Errors
    /// [`MrError::TableFull`], [`MrError::OutOfBounds`].
    pub fn register(
        &mut self,
        pd: PdId,
        memory: Arc<Region>,
        span: Range<u64>,
        access: Access,
    ) -> Result<MrId, MrError> {
        let (offset, len) = (span.start, span.end.saturating_sub(span.start));
        let mr_len = memory.len() as u64;
        if span.end < span.start || !is_within(offset, len, mr_len) {
            return Err(MrError::OutOfBounds { offset, len, mr_len });
        }
        self.enter(Entry { memory, offset, len, pd, access, parent: None, windows: 0 })
    }

    /// Binds a window to a part of a region, with rights of its own: `ibv_bind_mw`.
    ///
    /// # Errors
    /// Any [`MrError`] but [`MrError::HasWindows`].
    pub fn bind(&mut self, mr: MrId, span: Range<u64>, access: Access) -> Result<MrId, MrError> {
        let region = self.get(mr).ok_or(MrError::NoSuchMr(mr))?;
        let (offset, len) = (span.start, span.end.saturating_sub(span.start));
        if span.end < span.start || !is_within(offset, len, region.len) {
            return Err(MrError::OutOfBounds { offset, len, mr_len: region.len });
        }
        if region.parent.is_some() || !region.access.allows(access) {
            return Err(MrError::NotBindable);
        }
        let window = Entry {
            memory: Arc::clone(&region.memory),
            offset: region.offset + offset,
            len,
            pd: region.pd,
            access,
            parent: Some(row_of(mr) as u16),
            windows: 0,
        };
        let id = self.enter(window)?;
        if let Some(region) = &mut self.rows[row_of(mr)].entry {
            region.windows += 1;
        }
        Ok(id)
    }

    fn enter(&mut self, entry: Entry) -> Result<MrId, MrError> {
        let full = MrError::TableFull { capacity: self.rows.len() };
        let index = self.free.pop_front().ok_or(full)?;
        let row = &mut self.rows[usize::from(index)];
        row.uses += 1;
        // No number is that of a row alone: those are of nothing, 0 among them.
        if row.uses as u16 == 0 {
            row.uses += 1;
        }
        row.entry = Some(entry);
        Ok(row.name(index).id())
    }

    /// Takes a region or a window back. No access to it succeeds any longer.
    ///
    /// # Errors
    /// [`MrError::NoSuchMr`], [`MrError::HasWindows`].
    pub fn deregister(&mut self, mr: MrId) -> Result<Arc<Region>, MrError> {
        let windows = self.get(mr).ok_or(MrError::NoSuchMr(mr))?.windows;
        if windows > 0 {
            return Err(MrError::HasWindows { mr, windows });
        }
        let row = &mut self.rows[row_of(mr)];
        let entry = row.entry.take().ok_or(MrError::NoSuchMr(mr))?;
        self.free.push_back(row_of(mr) as u16);
        if let Some(parent) = entry.parent
            && let Some(region) = &mut self.rows[usize::from(parent)].entry
        {
            region.windows -= 1;
        }
        Ok(entry.memory)
    }

    /// Takes back everything that is of `pd`.
    pub fn deregister_all(&mut self, pd: PdId) {
        for (index, row) in (0_u16..=u16::MAX).zip(&mut self.rows) {
            if row.entry.take_if(|entry| entry.pd == pd).is_some() {
                self.free.push_back(index);
            }
        }
    }

    fn get(&self, mr: MrId) -> Option<&Entry> {
        let row = self.rows.get(row_of(mr))?;
        row.entry.as_ref().filter(|_| row.name(row_of(mr) as u16).id() == mr)
    }

    //= star#ours-name-of-64-bits
    /// The name with this number that is registered, or was last: what a peer that has the number
    /// can have a key for, if it is no more than 2^16 uses of its row old.
    #[must_use]
    pub fn name(&self, mr: MrId) -> MrName {
        let uses = self.rows.get(row_of(mr)).map_or(0, |row| row.uses);
        let told = mr.0 >> 16;
        // Of a number that has not been there yet nobody has a key.
        let since = u64::from((uses as u16).wrapping_sub(told as u16));
        MrName(uses.checked_sub(since).map_or(mr.0.into(), |uses| uses << 16 | row_of(mr) as u64))
    }

    /// The protection domain of a region or window.
    #[must_use]
    pub fn pd(&self, mr: MrId) -> Option<PdId> {
        self.get(mr).map(|entry| entry.pd)
    }

    /// Finds the span of `len` bytes at `offset` of `mr`, for an access of kind `access` by an
    /// owner of `pd`.
    ///
    /// # Errors
    /// The reason why there is no such access.
    #[inline]
    pub fn span(
        &self,
        pd: PdId,
        mr: MrId,
        access: Access,
        offset: u64,
        len: u64,
    ) -> Result<Span<'_>, Refused> {
        let entry = self.get(mr).filter(|entry| entry.pd == pd).ok_or(Refused::NoSuchMr)?;
        if !entry.access.allows(access) {
            return Err(Refused::Rights);
        }
        if !is_within(offset, len, entry.len) {
            return Err(Refused::Bounds);
        }
        Ok(Span { memory: &entry.memory, offset: entry.offset + offset })
    }

    /// How long a region or window of `pd` is, in bytes, and what it allows peers.
    #[must_use]
    pub fn remote(&self, pd: PdId, mr: MrId) -> Option<(u64, Access)> {
        let entry = self.get(mr).filter(|entry| entry.pd == pd)?;
        Some((entry.len, entry.access.remote()))
    }

    /// How many rows there are.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.rows.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PD: PdId = PdId(1);

    fn memory(len: usize) -> Arc<Region> {
        Arc::new(Region::new(len).expect("a page can be had"))
    }

    fn outcome(
        table: &MrTable,
        pd: PdId,
        mr: MrId,
        access: Access,
        at: (u64, u64),
    ) -> Result<u64, Refused> {
        table.span(pd, mr, access, at.0, at.1).map(|span| span.offset)
    }

    #[test]
    fn an_access_needs_the_domain_the_rights_and_the_span() {
        let mut table = MrTable::new(4);
        let mr = table.register(PD, memory(100), 10..60, Access::REMOTE_READ).unwrap();
        let read = Access::REMOTE_READ;
        assert_eq!(outcome(&table, PD, mr, read, (0, 50)), Ok(10));
        assert_eq!(outcome(&table, PD, mr, read, (50, 0)), Ok(60));
        assert_eq!(outcome(&table, PD, mr, read, (1, 50)), Err(Refused::Bounds));
        assert_eq!(outcome(&table, PD, mr, read, (u64::MAX, 2)), Err(Refused::Bounds));
        assert_eq!(outcome(&table, PD, mr, Access::REMOTE_WRITE, (0, 1)), Err(Refused::Rights));
        assert_eq!(outcome(&table, PdId(2), mr, read, (0, 1)), Err(Refused::NoSuchMr));
        assert_eq!(outcome(&table, PD, MrId(mr.0 ^ 1 << 16), read, (0, 1)), Err(Refused::NoSuchMr));
        assert_eq!(outcome(&table, PD, MrId(u32::MAX), read, (0, 1)), Err(Refused::NoSuchMr));
        let beyond = table.register(PD, memory(100), 50..101, read).unwrap_err();
        assert_eq!(beyond, MrError::OutOfBounds { offset: 50, len: 51, mr_len: 100 });
    }

    #[test]
    fn a_window_is_a_part_of_its_region_and_can_be_taken_back_alone() {
        let mut table = MrTable::new(4);
        let both = Access::REMOTE_READ | Access::LOCAL_WRITE;
        let mr = table.register(PD, memory(100), 20..100, both).unwrap();
        let window = table.bind(mr, 10..30, Access::REMOTE_READ).unwrap();
        let read = Access::REMOTE_READ;
        assert_eq!(outcome(&table, PD, window, read, (0, 20)), Ok(30));
        assert_eq!(outcome(&table, PD, window, read, (0, 21)), Err(Refused::Bounds));
        assert_eq!(table.remote(PD, window), Some((20, read)));
        assert_eq!(table.bind(window, 0..1, read), Err(MrError::NotBindable));
        assert_eq!(table.bind(mr, 0..1, Access::REMOTE_WRITE), Err(MrError::NotBindable));
        assert!(matches!(table.bind(mr, 70..81, read), Err(MrError::OutOfBounds { .. })));
        let busy = table.deregister(mr).unwrap_err();
        assert_eq!(busy, MrError::HasWindows { mr, windows: 1 });
        table.deregister(window).unwrap();
        assert_eq!(outcome(&table, PD, window, read, (0, 1)), Err(Refused::NoSuchMr));
        assert_eq!(outcome(&table, PD, mr, read, (0, 1)), Ok(20));
        table.deregister(mr).unwrap();
        assert_eq!(table.deregister(mr).unwrap_err(), MrError::NoSuchMr(mr));
    }

    #[test]
    fn no_name_comes_twice_however_often_a_row_is_used() {
        let mut table = MrTable::new(1);
        let memory = memory(8);
        let mut last = MrName(0);
        let mut numbers = std::collections::HashSet::new();
        for _ in 0..3 * (1 << 16) {
            let mr = table.register(PD, Arc::clone(&memory), 0..8, Access::LOCAL_READ).unwrap();
            let name = table.name(mr);
            assert!(name > last && name.id() == mr && mr.0 > 0, "{name:?} after {last:?}");
            // The one before is known as what it was.
            assert!(last == MrName(0) || table.name(last.id()) == last);
            numbers.insert(mr);
            last = name;
            table.deregister(mr).unwrap();
            assert_eq!(table.name(mr), name);
        }
        assert_eq!(numbers.len(), usize::from(u16::MAX), "numbers come again");
        let strange = MrId(77 << 16 | 9);
        assert_eq!(table.name(strange), MrName(strange.0.into()), "a row that there is not");
    }

    #[test]
    fn a_domain_that_ends_takes_its_regions_along_and_no_others() {
        let mut table = MrTable::new(3);
        let read = Access::REMOTE_READ;
        let mine = table.register(PD, memory(8), 0..8, read).unwrap();
        let window = table.bind(mine, 0..4, read).unwrap();
        let other = table.register(PdId(2), memory(8), 0..8, read).unwrap();
        table.deregister_all(PD);
        for gone in [mine, window] {
            assert_eq!(outcome(&table, PD, gone, read, (0, 1)), Err(Refused::NoSuchMr));
        }
        assert_eq!(outcome(&table, PdId(2), other, read, (0, 8)), Ok(0));
        assert!(table.register(PD, memory(8), 0..8, read).is_ok());
        assert!(table.register(PD, memory(8), 0..8, read).is_ok());
    }
}
