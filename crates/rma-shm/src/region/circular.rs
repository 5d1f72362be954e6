//! Regions in which the first byte comes after the last.
//!
//! Here is all that is done for them: what offsets mean, and the accesses that end beyond the last
//! byte. Everything before the end is done as in any region, and every function here hands on to
//! those that do it, twice if need be. What all of this means for users is told in
//! [`region`](super), under *Circular regions*.
//!
//! Always true: an access that comes here and lies in the region has a part before the end and a
//! part from the region's begin on, either of which may be empty, and the two share no byte.

use super::{OutOfBounds, Region, WordError};
use crate::{error::MemoryError, mapping::WORD, sync::RegionWord};

/// The unit of a circular region's length, in bytes: a cache line, so that a line is never in part
/// at the end and in part at the begin.
const LINE: usize = 64;

impl Region {
    /// [`Region::new`], circular: `len` bytes of zeros, after the last of which comes the first.
    ///
    /// ```
    /// let ring = rma_shm::Region::circular(128)?;
    /// ring.copy_in(125, b"around").expect("it goes on at the begin");
    /// let mut found = [0; 3];
    /// ring.copy_out(0, &mut found).expect("inside");
    /// assert_eq!(&found, b"und");
    /// assert_eq!((ring.len(), ring.reach()), (128, 256));
    /// # Ok::<(), rma_shm::MemoryError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Region::new`], and as [`Region::into_circular`].
    pub fn circular(len: usize) -> Result<Self, MemoryError> {
        // Before any page is touched.
        check_circular(len)?;
        Self::new(len)?.into_circular()
    }

    /// The same memory, of whatever kind, as a circular region.
    ///
    /// # Errors
    ///
    /// [`MemoryError::CircularLen`] unless its length is a multiple of 64.
    pub fn into_circular(self) -> Result<Self, MemoryError> {
        check_circular(self.len)?;
        Ok(Self { is_circular: true, ..self })
    }

    /// Returns the end of valid offsets, in bytes: [`Region::len`], or twice that in a circular
    /// region. No access ends beyond it. The region's own length may be smaller.
    #[must_use]
    pub const fn reach(&self) -> u64 {
        let len = self.len as u64;
        if self.is_circular { 2 * len } else { len }
    }

    /// Whether `len` bytes at `offset` lie in the region, so that they can be copied: they end at
    /// its [`reach`](Region::reach) at the latest, and are no more than it has.
    #[inline]
    #[must_use]
    pub fn holds(&self, offset: u64, len: u64) -> bool {
        match offset.checked_add(len) {
            Some(end) if end <= self.len as u64 => true,
            _ => self.around(offset, len).is_ok(),
        }
    }

    /// Returns the start of `len` bytes at `offset`, and the number of them that come before the
    /// end. For accesses that do not end before it.
    #[cold]
    #[inline(never)]
    fn around(&self, offset: u64, len: u64) -> Result<(u64, usize), OutOfBounds> {
        let region_len = self.len as u64;
        let ends_within = offset.checked_add(len).is_some_and(|end| end <= self.reach());
        if !self.is_circular || !ends_within || len > region_len {
            return Err(OutOfBounds { offset, len, region_len });
        }
        let start = offset % region_len;
        Ok((start, len.min(region_len - start) as usize))
    }

    /// As [`Region::copy_in`].
    #[cold]
    #[inline(never)]
    pub(super) fn copy_in_around(&self, offset: u64, bytes: &[u8]) -> Result<(), OutOfBounds> {
        let (start, before_end) = self.around(offset, bytes.len() as u64)?;
        let (front, rest) = bytes.split_at(before_end);
        self.copy_in(start, front)?;
        self.copy_in(0, rest)
    }

    /// As [`Region::copy_out`]. The two copies are in order, as any that one thread makes.
    #[cold]
    #[inline(never)]
    pub(super) fn copy_out_around(&self, offset: u64, bytes: &mut [u8]) -> Result<(), OutOfBounds> {
        let (start, before_end) = self.around(offset, bytes.len() as u64)?;
        let (front, rest) = bytes.split_at_mut(before_end);
        self.copy_out(start, front)?;
        self.copy_out(0, rest)
    }

    /// As [`Region::prefetch`].
    #[cold]
    #[inline(never)]
    pub(super) fn prefetch_around(&self, offset: u64, len: usize) {
        if let Ok((start, before_end)) = self.around(offset, len as u64) {
            self.prefetch(start, before_end);
            self.prefetch(0, len - before_end);
        }
    }

    /// As [`Region::copy_in_ordered`], of whole words. The last of the two copies that is not empty
    /// is the ordered one: its last word comes after all of both.
    #[cold]
    #[inline(never)]
    pub(super) fn copy_in_ordered_around(
        &self,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), WordError> {
        let (start, before_end) = self.around(offset, bytes.len() as u64)?;
        let (front, rest) = bytes.split_at(before_end);
        if rest.is_empty() {
            return self.copy_in_ordered(start, front);
        }
        self.copy_in(start, front)?;
        self.copy_in_ordered(0, rest)
    }

    /// The word at `offset`, a multiple of eight. None lies across the end.
    #[cold]
    #[inline(never)]
    pub(super) fn word_around(&self, offset: u64) -> Result<&RegionWord, WordError> {
        let (start, _) = self.around(offset, WORD as u64)?;
        Ok(&self.words()[start as usize / WORD])
    }
}

/// Whether a circular region may have `len` bytes.
const fn check_circular(len: usize) -> Result<(), MemoryError> {
    if len.is_multiple_of(LINE) { Ok(()) } else { Err(MemoryError::CircularLen { len }) }
}

#[cfg(test)]
mod tests;
