//! The protection domains that a maker of portals gives out, and the memory in them.
//!
//! These are names, and hold no memory but that of their own regions: what they name is there until
//! the maker takes it back, or the portal is dropped.

use core::ops::Range;
use std::sync::Arc;

use rma_shm::{OutOfBounds, Region};
use rma_star::{
    library::{Mr, Remote, Sge},
    names::{MrId, PdId},
};

use crate::home::PortalTag;

/// A protection domain: `struct ibv_pd`. Queue pairs and memory of one work together. Clones name
/// the same one.
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    id: PdId,
    portal: PortalTag,
}

impl ProtectionDomain {
    /// That of this number, of this portal. For makers of portals.
    #[must_use]
    pub const fn new(id: PdId, portal: PortalTag) -> Self {
        Self { id, portal }
    }

    /// Its number.
    #[must_use]
    pub const fn id(&self) -> PdId {
        self.id
    }

    /// The portal that it is of.
    #[must_use]
    pub const fn portal(&self) -> PortalTag {
        self.portal
    }
}

/// Registered memory: `struct ibv_mr`. It keeps the memory.
///
/// Bytes are copied in and out: peers and work requests change them with no regard to Rust's
/// borrows, so there are no slices.
#[derive(Clone, Debug)]
pub struct MemoryRegion {
    mr: Mr,
    /// The offset of its first byte in the memory, in bytes.
    start: u64,
    portal: PortalTag,
}

impl MemoryRegion {
    /// `span` of `memory`, in bytes, which the engine has registered in `pd` by this number. For
    /// makers of portals.
    #[must_use]
    pub const fn new(
        id: MrId,
        pd: &ProtectionDomain,
        memory: Arc<Region>,
        span: Range<u64>,
    ) -> Self {
        let start = span.start;
        Self { mr: Mr::new(id, pd.id, memory, span), start, portal: pd.portal }
    }

    /// Its number.
    #[must_use]
    pub const fn id(&self) -> MrId {
        self.mr.id()
    }

    /// Its number as applications tell it to their peers: `rkey`. Whoever has it and a connection
    /// of the protection domain may do what the region allows.
    #[must_use]
    pub const fn rkey(&self) -> u32 {
        self.mr.id().0
    }

    /// The protection domain that it is of.
    #[must_use]
    pub const fn pd(&self) -> PdId {
        self.mr.pd()
    }

    /// The portal that it is of.
    #[must_use]
    pub const fn portal(&self) -> PortalTag {
        self.portal
    }

    /// Returns its first byte's offset in the memory.
    pub(crate) const fn start(&self) -> u64 {
        self.start
    }

    /// The memory that it is a span of.
    #[must_use]
    pub const fn memory(&self) -> &Arc<Region> {
        self.mr.memory()
    }

    /// How long it is, in bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.mr.len()
    }

    /// Whether it has no byte.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.mr.is_empty()
    }

    /// `length` bytes from `offset` on, for a work request: `struct ibv_sge`. That they are there
    /// is checked when they are posted.
    #[must_use]
    pub const fn slice(&self, offset: u64, length: u32) -> Sge<'_> {
        self.mr.slice(offset, length)
    }

    /// Names the place at `offset`, as a READ or WRITE of a peer names it.
    #[must_use]
    pub const fn remote(&self, offset: u64) -> Remote {
        Remote { mr: self.id(), offset }
    }

    /// Copies `bytes` into it.
    ///
    /// # Errors
    /// If they do not fit at `offset`; then nothing is copied.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), OutOfBounds> {
        self.memory().copy_in(self.place(offset, bytes.len())?, bytes)
    }

    /// Copies bytes out of it.
    ///
    /// # Errors
    /// If it has not that many at `offset`; then `bytes` is unchanged.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), OutOfBounds> {
        self.memory().copy_out(self.place(offset, bytes.len())?, bytes)
    }

    /// Returns the offset in the memory of `len` bytes at `offset`.
    fn place(&self, offset: u64, len: usize) -> Result<u64, OutOfBounds> {
        let is_within = offset.checked_add(len as u64).is_some_and(|end| end <= self.len());
        match self.start.checked_add(offset) {
            Some(at) if is_within => Ok(at),
            _ => Err(OutOfBounds { region_len: self.len(), offset, len: len as u64 }),
        }
    }
}

/// A memory window: `struct ibv_mw`. What peers may do with a part of a memory region, which can be
/// taken back while the region stays.
#[derive(Clone, Debug)]
pub struct MemoryWindow {
    id: MrId,
    pd: PdId,
    portal: PortalTag,
}

impl MemoryWindow {
    /// That of this number, on `mr`. For makers of portals.
    #[must_use]
    pub const fn new(id: MrId, mr: &MemoryRegion) -> Self {
        Self { id, pd: mr.pd(), portal: mr.portal }
    }

    /// Its number.
    #[must_use]
    pub const fn id(&self) -> MrId {
        self.id
    }

    /// Its number as applications tell it to their peers: `rkey`.
    #[must_use]
    pub const fn rkey(&self) -> u32 {
        self.id.0
    }

    /// The protection domain that it is of.
    #[must_use]
    pub const fn pd(&self) -> PdId {
        self.pd
    }

    /// The portal that it is of.
    #[must_use]
    pub const fn portal(&self) -> PortalTag {
        self.portal
    }

    /// Names the place at `offset` of the window, as a READ or WRITE of a peer names it.
    #[must_use]
    pub const fn remote(&self, offset: u64) -> Remote {
        Remote { mr: self.id, offset }
    }
}
