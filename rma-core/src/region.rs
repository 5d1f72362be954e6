//! Registered regions as their owner sees them (1RMA §4.3). The NIC's view is
//! [`crate::nic::RegionTable`].

use core::{fmt, ops::BitOr};
use std::{collections::VecDeque, sync::Arc};

use rma_shm::region::{OutOfBounds, Region, WordError};

/// The architectural name of a registered region (§3.1): an index into one host's registered region
/// table, and a generation so that the name of a region that is gone names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId(u32);

impl RegionId {
    /// The name of entry `index` in its `generation`th use.
    #[must_use]
    pub(crate) const fn new(index: u16, generation: u16) -> Self {
        Self((generation as u32) << 16 | index as u32)
    }

    /// The RegionId with this number on the wire.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The number on the wire.
    #[must_use]
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// The entry of the table that it names.
    #[must_use]
    pub const fn index(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    /// The number of the use of its entry that it names.
    pub(crate) const fn generation(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// The name of the next use of its entry.
    pub(crate) const fn next_use(self) -> Self {
        Self::new(self.index() as u16, self.generation().wrapping_add(1))
    }
}

/// The names that a host has for regions, the same at all its NICs. Each table follows
/// ([`RegionTable::register_as`](crate::nic::RegionTable::register_as)).
#[derive(Debug)]
pub struct RegionNames {
    /// Least recently used first, so that a name's entry is used again as late as can be.
    free: VecDeque<RegionId>,
    count: usize,
}

impl RegionNames {
    /// The names of so many entries, at most [`crate::limits::REGIONS_MAX`].
    #[must_use]
    pub fn new(entries: u32) -> Self {
        let free: VecDeque<_> = (0..entries).map(|index| RegionId::new(index as u16, 0)).collect();
        Self { count: free.len(), free }
    }

    /// How many there are, free or not.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// A name that no region has. `None` if there is none.
    pub fn take(&mut self) -> Option<RegionId> {
        self.free.pop_front()
    }

    /// Takes a name back that no table has a region under. It will mean nothing until 2^16 later
    /// uses of its entry.
    pub fn give_back(&mut self, name: RegionId) {
        self.free.push_back(name.next_use());
    }
}

impl fmt::Display for RegionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// The rights of remote hosts on a region. The owner may always use it as the local end of its own
/// ops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Permissions(u8);

impl Permissions {
    /// Nothing: a region that only sinks or sources this process's own ops.
    pub const NONE: Self = Self(0);
    /// Remote hosts with a key may read.
    pub const READ: Self = Self(1);
    /// Remote hosts with a key may write.
    pub const WRITE: Self = Self(2);
    /// Remote hosts with a key may install a new region key.
    pub const REKEY: Self = Self(4);
    /// Remote hosts with a key may send messages. Of a receive queue only.
    pub const SEND: Self = Self(8);
    /// Remote hosts with a key may make events: of a receive queue, by NOTIFY; of a region that
    /// names a queue, by WRITE_WITH_IMM, which needs [`Permissions::WRITE`] as well.
    pub const NOTIFY: Self = Self(16);
    /// Remote hosts with a key may compare and swap the region's words, and add to them.
    pub const ATOMIC: Self = Self(32);

    /// Whether everything that `wanted` names is permitted.
    #[must_use]
    pub const fn contains(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// Everything that either permits.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOr for Permissions {
    type Output = Self;

    /// Everything that either permits.
    fn bitor(self, other: Self) -> Self {
        self.and(other)
    }
}

/// The NIC of this process that a region or a portal belongs to: [`RegionId`]s of different NICs
/// may be equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NicTag(pub u64);

/// A region that is registered with a NIC: its name, and access to its memory.
///
/// Clones name the same region. The memory lives until the last clone is gone and the region is
/// deregistered, so neither the NIC nor the application can touch freed memory.
///
/// # Words that others change, too
///
/// [`load`](Self::load), [`store`](Self::store), [`compare_exchange`](Self::compare_exchange) and
/// [`fetch_add`](Self::fetch_add) are atomic on an aligned word of eight bytes, as the NIC's
/// COMPARE_SWAP and FETCH_ADD are, and as READ and WRITE are on each such word that they cover
/// whole. For each word all of these, of the application's threads and of remote hosts, are
/// linearizable: they take effect one after the other, each between its begin and its end, and what
/// one thread does after it has learnt that another op is over comes after that op. (Verbs promise
/// this among remote ops, and with the processor's own only where `IBV_ATOMIC_GLOB` is reported.)
/// Between *different* words a load is Acquire, a store Release, the other two both, and the bytes
/// of READ and WRITE are in the order that [`rma_shm::region`] tells.
#[derive(Clone, Debug)]
pub struct RegisteredRegion {
    id: RegionId,
    memory: Arc<Region>,
    nic: NicTag,
}

impl RegisteredRegion {
    /// Pairs a name with its memory. For the driver that registered it.
    #[must_use]
    pub const fn new(id: RegionId, memory: Arc<Region>, nic: NicTag) -> Self {
        Self { id, memory, nic }
    }

    /// The NIC that the region is registered with.
    #[must_use]
    pub const fn nic(&self) -> NicTag {
        self.nic
    }

    /// The region's name on its host.
    #[must_use]
    pub const fn id(&self) -> RegionId {
        self.id
    }

    /// How many bytes the region has, never 0. Offsets of a circular region go further, up to its
    /// [`reach`](Self::reach).
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.memory.len() as u64
    }

    /// Returns the end of valid offsets into the region, in bytes: its length, or twice that if it
    /// is circular ([`Region::reach`]). Grants for the region carry this value.
    #[must_use]
    pub fn reach(&self) -> u64 {
        self.memory.reach()
    }

    /// Copies `bytes` into the region.
    ///
    /// # Errors
    /// If they do not fit at `offset`; then nothing is copied.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), OutOfBounds> {
        self.memory.copy_in(offset, bytes)
    }

    /// Copies bytes out of the region. A remote write that lands meanwhile may be seen in part.
    ///
    /// # Errors
    /// If the region has not that many bytes at `offset`; then `bytes` is unchanged.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), OutOfBounds> {
        self.memory.copy_out(offset, bytes)
    }

    /// The word at `offset`: eight bytes at a multiple of eight, as a number in the byte order of
    /// this host. What was written before it is seen, too ([`Region::load_acquire`]).
    ///
    /// # Errors
    /// [`WordError`] unless a whole word of the region lies there, as for all that follows.
    pub fn load(&self, offset: u64) -> Result<u64, WordError> {
        self.memory.load_acquire(offset)
    }

    /// Stores `value` into the word at `offset`. Whoever then loads it, or reads it with a READ
    /// that begins there, sees what was written before, too ([`Region::store_release`]).
    ///
    /// # Errors
    /// As [`RegisteredRegion::load`].
    pub fn store(&self, offset: u64, value: u64) -> Result<(), WordError> {
        self.memory.store_release(offset, value)
    }

    /// Stores `new` into the word at `offset` if `expected` is there, in one step. Returns what was
    /// there before: `expected` if and only if `new` was stored.
    ///
    /// # Errors
    /// As [`RegisteredRegion::load`].
    pub fn compare_exchange(&self, offset: u64, expected: u64, new: u64) -> Result<u64, WordError> {
        self.memory.compare_exchange(offset, expected, new)
    }

    /// Adds `addend` to the word at `offset`, modulo 2^64, in one step. Returns what was there
    /// before.
    ///
    /// # Errors
    /// As [`RegisteredRegion::load`].
    pub fn fetch_add(&self, offset: u64, addend: u64) -> Result<u64, WordError> {
        self.memory.fetch_add(offset, addend)
    }

    /// The memory itself.
    #[must_use]
    pub const fn memory(&self) -> &Arc<Region> {
        &self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_registered_region_are_those_of_its_memory() {
        let memory = Arc::new(Region::new(20).unwrap());
        let region = RegisteredRegion::new(RegionId::new(1, 2), Arc::clone(&memory), NicTag(3));
        region.store(8, u64::MAX).unwrap();
        assert_eq!((region.load(0), region.load(8)), (Ok(0), Ok(u64::MAX)));
        assert_eq!(region.fetch_add(8, 6), Ok(u64::MAX));
        assert_eq!((region.compare_exchange(8, 4, 9), region.load(8)), (Ok(5), Ok(5)));
        assert_eq!((region.compare_exchange(8, 5, 9), memory.load_acquire(8)), (Ok(5), Ok(9)));
        assert_eq!(region.load(4), Err(WordError::Misaligned { offset: 4, len: 8 }));
        let beyond = OutOfBounds { offset: 16, len: 8, region_len: 20 };
        assert_eq!(region.store(16, 0), Err(WordError::OutOfBounds(beyond)));
    }
}
