//! Registered regions as their owner sees them (1RMA §4.3). The NIC's view is
//! [`crate::nic::RegionTable`].

use core::{fmt, ops::BitOr};
use std::sync::Arc;

use rma_shm::region::{OutOfBounds, Region};

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

    pub(crate) const fn index(self) -> usize {
        (self.0 & 0xffff) as usize
    }
}

impl fmt::Display for RegionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// What remote hosts may do with a region. The owner may always use it as the local end of its own
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

    /// Whether everything that `wanted` names is permitted.
    #[must_use]
    pub const fn contains(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }
}

impl BitOr for Permissions {
    type Output = Self;

    /// Everything that either permits.
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Which NIC of this process a region or a portal belongs to: [`RegionId`]s of different NICs may
/// be equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NicTag(pub u64);

/// A region that is registered with a NIC: its name, and access to its memory.
///
/// Clones name the same region. The memory lives until the last clone is gone and the region is
/// deregistered, so neither the NIC nor the application can touch freed memory.
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

    /// The region's length in bytes, never 0.
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.memory.len() as u64
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

    /// The memory itself.
    #[must_use]
    pub const fn memory(&self) -> &Arc<Region> {
        &self.memory
    }
}
