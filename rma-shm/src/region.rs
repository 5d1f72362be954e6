//! Registered-region memory: bytes that remote hosts read and write while the application uses
//! them.
//!
//! It knows offsets and lengths only. Region ids, keys and permissions are `rma-core`'s.
//!
//! # The memory model, once
//!
//! A remote write lands whenever the network pleases, also while the application or another engine
//! reads the same bytes. A reference (`&[u8]`) into such memory would be undefined behaviour
//! however careful the protocol is, so none is ever made: bytes go in and out by copies.
//!
//! A region is an array of 8-byte atomic words, and *every* access to it is a relaxed atomic access
//! to one whole, aligned word. Where a copy begins or ends inside a word, reading loads the whole
//! word and uses a part; writing merges the new bytes into the word by compare-and-exchange, so
//! that a concurrent write to the neighbouring bytes is not undone. (Byte-sized stores at the edges
//! would save two locked instructions per copy that is not aligned, but racing atomic accesses of
//! different sizes to the same bytes are outside [what the language
//! defines](https://doc.rust-lang.org/1.92.0/std/sync/atomic/index.html).) So within one process
//! nothing here is formally open.
//!
//! What follows for users:
//!
//! - Each aligned 8-byte word is read and written whole. Larger copies can be torn at word
//!   boundaries by a concurrent write, and there is no order between the words: 1RMA promises no
//!   order between ops. Who needs a consistent larger value puts a version or a checksum into it,
//!   or waits for the completion before reading.
//! - The relaxed accesses order nothing else. A completion travels through a [`ring`](crate::spsc),
//!   whose Release and Acquire make the bytes that the engine copied before it visible to whoever
//!   took it out.
//!
//! # What it costs
//!
//! One run on the machine of the project's other figures (Zen 5 class, warm caches), in ns, against
//! `copy_from_slice` on plain memory:
//!
//! | bytes | plain | aligned offset | offset 3, out | offset 3, in |
//! |---|---|---|---|---|
//! | 64 | 3 | 2.5 | 6 | 19 |
//! | 1440 | 11 | 24 | 30 | 39 |
//! | 4096 | 42 | 64 | 74 | 78 |
//!
//! The alignment of the caller's buffer makes no difference worth a column. The price of the model
//! is some 20 ns per 4 KiB, less than 3 % of what sealing them costs, and another 15 ns where a
//! write is not aligned.
//!
//! # Pages
//!
//! The memory is zeroed and aligned to pages. All pages are touched when the region is made, so the
//! engine thread never takes a first-touch fault.

use crate::{
    prefetch::prefetch_line,
    sync::{Ordering, RegionWord},
};
use std::{collections::TryReserveError, fmt};

/// Alignment of a region, and the granularity of its memory, in bytes. The page size of x86-64 and
/// of most arm64 kernels; on a kernel with larger pages two regions may share one.
pub const PAGE_SIZE: usize = 4096;

const WORD: usize = size_of::<RegionWord>();
const WORDS_PER_PAGE: usize = PAGE_SIZE / WORD;
/// Words of a cache line, for prefetching.
const LINE_WORDS: usize = 64 / WORD;
/// A transparent huge page of x86-64 and of arm64 with 4 KiB pages. Smaller regions have none.
const HUGE_PAGE_SIZE: usize = 2 << 20;

/// Why a region could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// There is nothing to register.
    #[error("a region of 0 bytes cannot be made: ask for at least 1")]
    Empty,
    /// More than an address space can hold.
    #[error("a region of {len} bytes cannot be made: the largest possible one has {max} bytes")]
    TooLarge {
        /// The bytes asked for.
        len: usize,
        /// The most that any allocation may have.
        max: usize,
    },
    /// The allocator had no such memory.
    #[error(
        "no memory for a region of {len} bytes: ask for less, or check `free -h`, the cgroup's memory.max \
         and `ulimit -v`"
    )]
    OutOfMemory {
        /// The bytes asked for.
        len: usize,
        /// What the allocator said.
        source: TryReserveError,
    },
}

/// The bytes named do not all lie in the region. None was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at offset {offset} do not lie in a region of {region_len} bytes")]
pub struct OutOfBounds {
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// Size of the region in bytes.
    pub region_len: u64,
}

/// A page of a region.
#[repr(C, align(4096))]
struct Page([RegionWord; WORDS_PER_PAGE]);

const _: () = assert!(size_of::<Page>() == PAGE_SIZE && align_of::<Page>() == PAGE_SIZE);

impl Page {
    fn zeroed() -> Self {
        Self([const { RegionWord::new(0) }; WORDS_PER_PAGE])
    }
}

/// Zeroed, page-aligned memory that this process owns and that many threads copy in and out of at
/// once. See the [module](self) for what concurrent copies may see.
pub struct Region {
    pages: Box<[Page]>,
    /// In bytes; the rest of the last page is never copied out.
    len: usize,
}

impl Region {
    /// Allocates `len` bytes of zeros and touches every page. Slow on purpose (some 0.5 ms per
    /// MiB): call it at start-up.
    ///
    /// Whether the machine has that much memory to spare is the kernel's judgement: where it
    /// overcommits, touching the pages may still bring in the out-of-memory killer.
    ///
    /// # Errors
    ///
    /// See [`RegionError`]: zero bytes, more than `isize::MAX`, or no memory.
    pub fn new(len: usize) -> Result<Self, RegionError> {
        const MAX: usize = isize::MAX as usize;
        if len == 0 {
            return Err(RegionError::Empty);
        }
        if len > MAX {
            return Err(RegionError::TooLarge { len, max: MAX });
        }
        let count = len.div_ceil(PAGE_SIZE);
        let mut pages = Vec::new();
        pages
            .try_reserve_exact(count)
            .map_err(|source| RegionError::OutOfMemory { len, source })?;
        advise_huge_pages(&mut pages);
        pages.resize_with(count, Page::zeroed);
        let region = Self { pages: pages.into_boxed_slice(), len };
        // An allocator may know memory that is zero without being there. An atomic store is not
        // optimised away.
        for page in &region.pages {
            page.0[0].store(0, Ordering::Relaxed);
        }
        Ok(region)
    }

    /// Size in bytes, as asked for.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no region is empty: `new` refuses it")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Copies `bytes` into the region, beginning at `offset`.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] if not all of them fit; then nothing is copied. Zero bytes fit at every
    /// offset up to the end.
    #[inline]
    pub fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<(), OutOfBounds> {
        let start = self.checked_start(offset, bytes.len())?;
        let (mut first, skip) = (start / WORD, start % WORD);
        let words = self.words();
        let mut bytes = bytes;
        if skip != 0 && !bytes.is_empty() {
            let (edge, rest) = bytes.split_at(bytes.len().min(WORD - skip));
            merge(&words[first], skip, edge);
            bytes = rest;
            first += 1;
        }
        let (whole, edge) = bytes.as_chunks::<WORD>();
        for (word, bytes) in words[first..].iter().zip(whole) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        if !edge.is_empty() {
            merge(&words[first + whole.len()], 0, edge);
        }
        Ok(())
    }

    /// Asks for the cache lines of `len` bytes at `offset`, so that a copy out soon afterwards finds
    /// them. Bytes that are not there are not asked for.
    #[inline]
    pub fn prefetch(&self, offset: u64, len: usize) {
        if let Ok(start) = self.checked_start(offset, len) {
            let words = self.words();
            let last = (start + len).div_ceil(WORD).min(words.len());
            for line in words[start / WORD..last].chunks(LINE_WORDS) {
                prefetch_line((&raw const line[0]).cast());
            }
        }
    }

    /// Fills `bytes` with what the region holds from `offset` on.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] if the region ends before; then `bytes` is left alone. Zero bytes can be
    /// read at every offset up to the end.
    #[inline]
    pub fn copy_out(&self, offset: u64, bytes: &mut [u8]) -> Result<(), OutOfBounds> {
        let start = self.checked_start(offset, bytes.len())?;
        let (mut first, skip) = (start / WORD, start % WORD);
        let words = self.words();
        let mut bytes = bytes;
        if skip != 0 && !bytes.is_empty() {
            let (edge, rest) = bytes.split_at_mut(bytes.len().min(WORD - skip));
            extract(&words[first], skip, edge);
            bytes = rest;
            first += 1;
        }
        let (whole, edge) = bytes.as_chunks_mut::<WORD>();
        for (word, bytes) in words[first..].iter().zip(&mut *whole) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        if !edge.is_empty() {
            extract(&words[first + whole.len()], 0, edge);
        }
        Ok(())
    }

    /// `offset`, once all of `offset..offset + len` is known to lie in the region.
    fn checked_start(&self, offset: u64, len: usize) -> Result<usize, OutOfBounds> {
        let (len, region_len) = (len as u64, self.len as u64);
        match offset.checked_add(len) {
            Some(end) if end <= region_len => Ok(offset as usize),
            _ => Err(OutOfBounds { offset, len, region_len }),
        }
    }

    fn words(&self) -> &[RegionWord] {
        let first = self.pages.as_ptr().cast::<RegionWord>();
        // SAFETY: `pages` owns this memory for as long as `self` is borrowed. A `Page` is an array
        // of words without padding (asserted above), so `pages` is one long array of them.
        unsafe { core::slice::from_raw_parts(first, self.pages.len() * WORDS_PER_PAGE) }
    }
}

/// Asks the kernel for huge pages under the memory that `pages` has reserved and not touched yet: remote
/// hosts read at random, and each small page that is not in the TLB costs a walk. A hint: a kernel that
/// has none gives ordinary pages.
fn advise_huge_pages(pages: &mut Vec<Page>) {
    let reserved = pages.spare_capacity_mut();
    let len = size_of_val(reserved);
    if len >= HUGE_PAGE_SIZE {
        // SAFETY: the range is memory that `pages` has allocated and nobody uses yet; the advice changes
        // how it is backed, not what it holds.
        let _ = unsafe {
            rustix::mm::madvise(
                reserved.as_mut_ptr().cast(),
                len,
                rustix::mm::Advice::LinuxHugepage,
            )
        };
    }
}

/// Writes `bytes` into `word`, from its byte `at` on, and keeps its other bytes, also those that
/// someone else writes meanwhile. Ends at the first try unless someone does.
fn merge(word: &RegionWord, at: usize, bytes: &[u8]) {
    let mut old = word.load(Ordering::Relaxed);
    loop {
        let mut new = old.to_ne_bytes();
        new[at..at + bytes.len()].copy_from_slice(bytes);
        let new = u64::from_ne_bytes(new);
        match word.compare_exchange_weak(old, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(current) => old = current,
        }
    }
}

/// Reads the bytes of `word` from byte `at` on.
fn extract(word: &RegionWord, at: usize, bytes: &mut [u8]) {
    let value = word.load(Ordering::Relaxed).to_ne_bytes();
    bytes.copy_from_slice(&value[at..at + bytes.len()]);
}

impl fmt::Debug for Region {
    /// The size only: the bytes are the application's, and may change under our eyes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 7 + 1) as u8).collect()
    }

    #[test]
    fn sizes_that_no_machine_has_are_errors() {
        assert_eq!(Region::new(0).unwrap_err(), RegionError::Empty);
        let len = isize::MAX as usize + 1;
        assert_eq!(
            Region::new(len).unwrap_err(),
            RegionError::TooLarge { len, max: isize::MAX as usize }
        );
        for len in [isize::MAX as usize, isize::MAX as usize - PAGE_SIZE, 1 << 60] {
            let error = Region::new(len).unwrap_err();
            assert!(matches!(error, RegionError::OutOfMemory { len: got, .. } if got == len));
            assert!(error.to_string().contains(&len.to_string()));
        }
    }

    #[test]
    fn a_new_region_is_zero_and_starts_at_a_page() {
        for len in [1, 7, 8, PAGE_SIZE, PAGE_SIZE + 1] {
            let region = Region::new(len).unwrap();
            assert_eq!(region.words().as_ptr() as usize % PAGE_SIZE, 0);
            let mut bytes = vec![0xff; len];
            region.copy_out(0, &mut bytes).unwrap();
            assert_eq!((region.len(), bytes), (len, vec![0; len]));
        }
    }

    #[test]
    fn bounds_are_checked_without_overflow() {
        let region = Region::new(100).unwrap();
        let mut one = [0xee];
        for offset in [100, 101, u64::from(u32::MAX) + 1, u64::MAX - 1, u64::MAX] {
            let error = OutOfBounds { offset, len: 1, region_len: 100 };
            assert_eq!(region.copy_in(offset, &[1]), Err(error));
            assert_eq!(region.copy_out(offset, &mut one), Err(error));
        }
        assert_eq!(one, [0xee]);
        assert_eq!(
            region.copy_in(37, &[1; 64]),
            Err(OutOfBounds { offset: 37, len: 64, region_len: 100 })
        );
        assert!(region.copy_in(36, &[1; 64]).is_ok());
        assert!(region.copy_in(100, &[]).is_ok() && region.copy_out(100, &mut []).is_ok());
        assert!(region.copy_in(101, &[]).is_err() && region.copy_in(u64::MAX, &[]).is_err());
    }

    #[test]
    fn every_offset_length_and_buffer_alignment_copies_just_those_bytes() {
        let region = Region::new(64).unwrap();
        let source = pattern(48);
        for offset in 0..17 {
            for len in 0..33 {
                for skew in 0..8 {
                    region.copy_in(0, &[0xaa; 64]).unwrap();
                    region.copy_in(offset, &source[skew..skew + len]).unwrap();
                    let mut expected = [0xaa; 64];
                    expected[offset as usize..][..len].copy_from_slice(&source[skew..skew + len]);
                    let mut all = [0; 64];
                    region.copy_out(0, &mut all).unwrap();
                    assert_eq!(all, expected);
                    let mut part = [0; 48];
                    region.copy_out(offset, &mut part[skew..skew + len]).unwrap();
                    assert_eq!(part[skew..skew + len], source[skew..skew + len]);
                    assert!(part[..skew].iter().chain(&part[skew + len..]).all(|&byte| byte == 0));
                }
            }
        }
    }

    #[test]
    fn concurrent_writes_to_neighbouring_bytes_do_not_undo_each_other() {
        const ROUNDS: u32 = 20_000;
        let region = Region::new(24).unwrap();
        std::thread::scope(|scope| {
            // Thread t owns bytes t, t + 3, t + 6, ..: every word is shared by all three.
            for thread in 0..3_u64 {
                let region = &region;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        for offset in (thread..24).step_by(3) {
                            region.copy_in(offset, &[round as u8]).unwrap();
                            let mut seen = [0];
                            region.copy_out(offset, &mut seen).unwrap();
                            assert_eq!(seen, [round as u8]);
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn aligned_words_are_never_torn() {
        const ROUNDS: usize = 20_000;
        let region = Region::new(PAGE_SIZE).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    region.copy_in(0, &[round as u8; 256]).unwrap();
                }
            });
            let mut bytes = [0; 256];
            for _ in 0..ROUNDS {
                region.copy_out(0, &mut bytes).unwrap();
                for word in bytes.as_chunks::<8>().0 {
                    assert!(word.iter().all(|byte| byte == &word[0]), "{word:?}");
                }
            }
        });
    }
}
