//! Access to the aligned words of a region: a copy whose last word comes last, and atomics.
//!
//! Not in the 1RMA paper, which has no ordered ops and no atomics: the NIC's COMPARE_SWAP and
//! FETCH_ADD are these, and so is what the application does to the same words meanwhile. A word is
//! the eight bytes at an offset that is a multiple of eight, as a number in the byte order of this
//! machine. Other widths there are not: each access to a region is one to whole words, or it would
//! be outside what the language defines.

use super::{OutOfBounds, Region, put};
use crate::{
    mapping::WORD,
    sync::{Ordering, RegionWord, fence},
};

/// The reason why an access to whole words was refused. No byte was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WordError {
    /// The words do not all lie in the region.
    #[error(transparent)]
    OutOfBounds(#[from] OutOfBounds),
    /// The bytes are not whole words: the offset or their number is not a multiple of 8.
    #[error("{len} bytes at offset {offset} are not whole words: both must be multiples of 8")]
    Misaligned {
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
}

impl Region {
    /// Copies `bytes` into the region, beginning at `offset`: the last word after all others, with
    /// Release, and the others in any order. Whoever loads the last word with Acquire, and finds
    /// there what this copy stored, sees all of the copy ([`Region::load_acquire`]).
    ///
    /// # Errors
    ///
    /// [`WordError`] if not all of them fit, or if `offset` or their number is not a multiple of 8;
    /// then nothing is copied. Zero bytes fit at every multiple of 8 up to the end.
    #[inline]
    pub fn copy_in_ordered(&self, offset: u64, bytes: &[u8]) -> Result<(), WordError> {
        check_words(offset, bytes.len())?;
        let Some(start) = self.start_of(offset, bytes.len()) else {
            return self.copy_in_ordered_around(offset, bytes);
        };
        let words = &self.words()[start / WORD..][..bytes.len() / WORD];
        let (bytes, _) = bytes.as_chunks::<WORD>();
        if let (Some((last, words)), Some((last_bytes, bytes))) =
            (words.split_last(), bytes.split_last())
        {
            put(words, bytes);
            last.store(u64::from_ne_bytes(*last_bytes), Ordering::Release);
        }
        Ok(())
    }

    /// The word at `offset`, loaded with Acquire: what was stored before the
    /// [`Region::store_release`] that it sees is seen by what follows.
    ///
    /// # Errors
    ///
    /// [`WordError`] unless a whole word of the region lies at `offset`, as for all that follows.
    #[inline]
    pub fn load_acquire(&self, offset: u64) -> Result<u64, WordError> {
        Ok(self.word(offset)?.load(Ordering::Acquire))
    }

    /// Stores `value` into the word at `offset` with Release: who loads it with Acquire sees all
    /// that this thread stored before.
    ///
    /// # Errors
    ///
    /// As [`Region::load_acquire`].
    #[inline]
    pub fn store_release(&self, offset: u64, value: u64) -> Result<(), WordError> {
        self.word(offset)?.store(value, Ordering::Release);
        Ok(())
    }

    /// Stores `value` into the word at `offset` before all that this thread stores later: with
    /// Release, and a Release fence behind it. Whoever sees anything that was stored after it, by a
    /// load that acquires, finds this or something newer in the word, too. It says that bytes are
    /// going to change.
    ///
    /// # Errors
    ///
    /// As [`Region::load_acquire`].
    #[inline]
    pub fn store_first(&self, offset: u64, value: u64) -> Result<(), WordError> {
        self.store_release(offset, value)?;
        fence(Ordering::Release);
        Ok(())
    }

    /// Stores `new` into the word at `offset` if `expected` is there, in one step with the look.
    /// Returns what was there before: `expected` if and only if `new` was stored. Acquire, and
    /// Release where it stores.
    ///
    /// # Errors
    ///
    /// As [`Region::load_acquire`].
    #[inline]
    pub fn compare_exchange(&self, offset: u64, expected: u64, new: u64) -> Result<u64, WordError> {
        let word = self.word(offset)?;
        let (stored, failed) = (Ordering::AcqRel, Ordering::Acquire);
        Ok(word.compare_exchange(expected, new, stored, failed).unwrap_or_else(|before| before))
    }

    /// Adds `addend` to the word at `offset`, modulo 2^64, in one step. Returns what was there
    /// before. Acquire and Release.
    ///
    /// # Errors
    ///
    /// As [`Region::load_acquire`].
    #[inline]
    pub fn fetch_add(&self, offset: u64, addend: u64) -> Result<u64, WordError> {
        Ok(self.word(offset)?.fetch_add(addend, Ordering::AcqRel))
    }

    #[inline]
    fn word(&self, offset: u64) -> Result<&RegionWord, WordError> {
        check_words(offset, WORD)?;
        match self.start_of(offset, WORD) {
            Some(start) => Ok(&self.words()[start / WORD]),
            None => self.word_around(offset),
        }
    }
}

/// Whether `len` bytes at `offset` are whole words, wherever they lie.
#[inline]
fn check_words(offset: u64, len: usize) -> Result<(), WordError> {
    if !offset.is_multiple_of(WORD as u64) || !len.is_multiple_of(WORD) {
        return Err(WordError::Misaligned { offset, len: len as u64 });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
