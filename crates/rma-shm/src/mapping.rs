//! Memory with an owner, that threads and processes look at together.
//!
//! Regions, rings and doorbells lie in mappings. A mapping knows words and where they are, not what
//! they mean: who may name which bytes of a region is told elsewhere, and what lies at which offset
//! is agreed on by those who share it (a [`Label`] says what was agreed on).
//!
//! Always true: all its words are mapped for reading and writing for as long as the value lives,
//! and nobody has a reference to them but as atomic words, each accessed whole. So whatever
//! somebody else writes there, at any time, is a value, never undefined behaviour.
//!
//! | made by | what it is | who else has it |
//! |---|---|---|
//! | [`Mapping::heap`] | memory of the allocator | nobody |
//! | [`Mapping::memfd`] | shared memory, sealed against shrinking | who is given [`Mapping::fd`] |
//! | [`Mapping::join`] | the same, made by another process | that process, and whom it gives it to |
//!
//! (A [`Region`](crate::Region) has more kinds: huge pages and files.)
//!
//! # Whom joined memory is to be had from
//!
//! A process that shares a mapping can write anything anywhere in it, and nothing here depends on
//! its honesty. It cannot make the memory shorter: memory is only joined if it is sealed against
//! that, or an access would be SIGBUS. What the seal does not forbid is a hole (`fallocate` with
//! `FALLOC_FL_PUNCH_HOLE`): bytes become zero, which whoever may write can have in other ways, and
//! the next access takes a page fault and a page. So the availability of a process that joins
//! depends on the other's good will, and its memory safety does not.

mod label;
mod part;

use crate::{
    error::MemoryError,
    region::Backing,
    sync::{MappingWord, Ordering},
};
use core::{fmt, ptr::NonNull};
use rustix::{
    fs::{MemfdFlags, SealFlags},
    mm::{Advice, MapFlags, ProtFlags},
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub use label::{Label, LayoutError};
#[cfg(not(loom))]
pub(crate) use part::{Lone, Part, Words};

/// The granularity of memory that the kernel maps, and the alignment of a region, in bytes. The
/// page size of x86-64 and of most arm64 kernels; on a kernel with larger pages two mappings may
/// share one.
pub const PAGE_SIZE: usize = 4096;

/// The alignment of everything in a mapping, in bytes: two cache lines, because the adjacent-line
/// prefetcher fetches pairs.
pub const ALIGN: usize = 128;

pub(crate) const WORD: usize = size_of::<MappingWord>();
const WORDS_PER_PAGE: usize = PAGE_SIZE / WORD;
const WORDS_PER_BLOCK: usize = ALIGN / WORD;
/// A transparent huge page of x86-64 and of arm64 with 4 KiB pages. Smaller mappings have none.
const HUGE_PAGE_SIZE: usize = 2 << 20;

/// A page of a region.
#[repr(C, align(4096))]
struct Page([MappingWord; WORDS_PER_PAGE]);

const _: () = assert!(size_of::<Page>() == PAGE_SIZE && align_of::<Page>() == PAGE_SIZE);

impl Page {
    fn zeroed() -> Self {
        Self([const { MappingWord::new(0) }; WORDS_PER_PAGE])
    }
}

/// The least that [`Mapping::heap`] consists of.
#[repr(C, align(128))]
struct Block([MappingWord; WORDS_PER_BLOCK]);

const _: () = assert!(size_of::<Block>() == ALIGN && align_of::<Block>() == ALIGN);

impl Block {
    fn zeroed() -> Self {
        Self([const { MappingWord::new(0) }; WORDS_PER_BLOCK])
    }
}

/// Memory that is shared by threads, and may be shared with other processes. See the
/// [module](self).
pub struct Mapping {
    first: NonNull<MappingWord>,
    /// A whole number of blocks, or of pages.
    words: usize,
    /// In bytes, as asked for.
    len: usize,
    owner: Owner,
}

/// The way in which it is freed.
enum Owner {
    /// A box of blocks.
    Blocks,
    /// A box of pages.
    Pages,
    /// A mapping of the kernel's, and the file that it is of.
    Mapped(Backing, Option<OwnedFd>),
}

// SAFETY: the memory belongs to the value alone and not to a thread; it is freed once, by the last
// owner.
unsafe impl Send for Mapping {}
// SAFETY: a shared `Mapping` gives access to atomic words, which are `Sync`, and to nothing else.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed memory of this process alone, all of it touched. Small mappings lie close together,
    /// as what the allocator gives does. Without memory the process is aborted, as by a `Box`.
    #[must_use]
    pub fn heap(len: usize) -> Self {
        let count = len.div_ceil(ALIGN);
        let blocks: Box<[Block]> = (0..count).map(|_| Block::zeroed()).collect();
        let first = NonNull::from(Box::leak(blocks)).cast();
        Self { first, words: count * WORDS_PER_BLOCK, len, owner: Owner::Blocks }
    }

    /// Zeroed memory that other processes can join, too: a process that is given [`Mapping::fd`]
    /// can read and write all of it. Its length is sealed. `name` is for people who look into
    /// `/proc`.
    ///
    /// # Errors
    ///
    /// For zero bytes, or more than `isize::MAX`; and whatever the kernel refuses.
    pub fn memfd(name: &str, len: usize) -> Result<Self, MemoryError> {
        let file_len = checked_len(len)? as u64;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(name, flags)
            .map_err(MemoryError::system("creating shared memory", len))?;
        rustix::fs::ftruncate(&file, file_len)
            .map_err(MemoryError::system("sizing shared memory", len))?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(MemoryError::system("sealing shared memory", len))?;
        Self::shared(len, file, Backing::Memfd)
            .map_err(MemoryError::system("mapping shared memory", len))
    }

    /// All of the shared memory that another process has made, as [`Mapping::memfd`] does, and
    /// passed on. See the [module](self) for what that process may do to it.
    ///
    /// # Errors
    ///
    /// [`MemoryError::NotSealed`] if somebody could shrink it; and whatever the kernel refuses, as
    /// where it is sealed against writing.
    pub fn join(fd: OwnedFd) -> Result<Self, MemoryError> {
        let len = sealed_len(&fd)?;
        Self::join_checked(fd, len)
    }

    /// [`Mapping::join`], of memory that has `len` bytes, no more and no less: as many as both
    /// sides have agreed on, so that the other side cannot have this one map more.
    ///
    /// # Errors
    ///
    /// As [`Mapping::join`], and [`MemoryError::OtherLength`].
    pub fn join_of_len(fd: OwnedFd, len: usize) -> Result<Self, MemoryError> {
        match sealed_len(&fd)? {
            found if found == len => Self::join_checked(fd, len),
            found => Err(MemoryError::OtherLength { len, found }),
        }
    }

    /// Maps `fd`, which is sealed and not shorter than `len`.
    fn join_checked(fd: OwnedFd, len: usize) -> Result<Self, MemoryError> {
        let len = checked_len(len)?;
        Self::shared(len, fd, Backing::Memfd)
            .map_err(MemoryError::system("mapping shared memory", len))
    }

    /// Zeroed memory of the allocator's, in whole pages, all touched.
    pub(crate) fn pages(len: usize) -> Result<Self, MemoryError> {
        let count = len.div_ceil(PAGE_SIZE);
        let mut pages = Vec::new();
        pages
            .try_reserve_exact(count)
            .map_err(|source| MemoryError::OutOfMemory { len, source })?;
        advise_huge_pages(&mut pages);
        pages.resize_with(count, Page::zeroed);
        let words = pages.len() * WORDS_PER_PAGE;
        let first = NonNull::from(Box::leak(pages.into_boxed_slice())).cast();
        let mapping = Self { first, words, len, owner: Owner::Pages };
        // An allocator may know memory that is zero without being there. An atomic store is not
        // optimised away.
        for word in mapping.words().iter().step_by(WORDS_PER_PAGE) {
            word.store(0, Ordering::Relaxed);
        }
        Ok(mapping)
    }

    /// Zeroed memory of its own, of a kind that `flags` says. `len` is a multiple of its page size.
    pub(crate) fn anonymous(
        len: usize,
        flags: MapFlags,
        backing: Backing,
    ) -> rustix::io::Result<Self> {
        let (anywhere, access) = (core::ptr::null_mut(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping, wherever the kernel has room, disturbs no other.
        let first = unsafe {
            rustix::mm::mmap_anonymous(anywhere, len, access, MapFlags::PRIVATE | flags)
        }?;
        Self::mapped(first, len, Owner::Mapped(backing, None))
    }

    /// The first `len` bytes of a file, shared with all who have it. What is behind the file's end
    /// is zero in its last page, and SIGBUS after that.
    pub(crate) fn shared(len: usize, file: OwnedFd, backing: Backing) -> rustix::io::Result<Self> {
        let (anywhere, access) = (core::ptr::null_mut(), ProtFlags::READ | ProtFlags::WRITE);
        let whole = len.next_multiple_of(PAGE_SIZE);
        // SAFETY: a new mapping, wherever the kernel has room, disturbs no other. What other
        // processes do to the same memory meets atomic words here.
        let first =
            unsafe { rustix::mm::mmap(anywhere, whole, access, MapFlags::SHARED, &file, 0) }?;
        Self::mapped(first, len, Owner::Mapped(backing, Some(file)))
    }

    fn mapped(first: *mut core::ffi::c_void, len: usize, owner: Owner) -> rustix::io::Result<Self> {
        let first = NonNull::new(first.cast()).expect("the kernel maps nothing at address 0");
        let words = len.next_multiple_of(PAGE_SIZE) / WORD;
        let mapping = Self { first, words, len, owner };
        mapping.populate()?;
        Ok(mapping)
    }

    /// Brings in all pages, for writing. An error where an access would be SIGBUS.
    fn populate(&self) -> rustix::io::Result<()> {
        let (first, len) = (self.first.as_ptr().cast(), self.words * WORD);
        // SAFETY: the range is this value's own mapping; the advice changes no byte of it.
        match unsafe { rustix::mm::madvise(first, len, Advice::LinuxPopulateWrite) } {
            // A kernel older than 5.14. Then by hand, without changing what others write meanwhile.
            Err(rustix::io::Errno::INVAL) => {
                for word in self.words().iter().step_by(WORDS_PER_PAGE) {
                    word.fetch_or(0, Ordering::Relaxed);
                }
                Ok(())
            }
            populated => populated,
        }
    }

    /// Writes what has changed to the file, and waits for it.
    pub(crate) fn sync(&self) -> rustix::io::Result<()> {
        let (first, len) = (self.first.as_ptr().cast(), self.words * WORD);
        // SAFETY: the range is this value's own mapping; writing it back changes no byte of it.
        unsafe { rustix::mm::msync(first, len, rustix::mm::MsyncFlags::SYNC) }
    }

    pub(crate) const fn backing(&self) -> Backing {
        match self.owner {
            Owner::Blocks | Owner::Pages => Backing::Ordinary,
            Owner::Mapped(backing, _) => backing,
        }
    }

    /// The file descriptor of shared memory, to pass on to another process; `None` for memory of
    /// this process alone.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.owner {
            Owner::Mapped(_, Some(file)) => Some(file.as_fd()),
            Owner::Blocks | Owner::Pages | Owner::Mapped(_, None) => None,
        }
    }

    /// Size in bytes, as asked for.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Every word of the memory, as whoever shares it has it: any of them may change at any time.
    /// What is behind [`Mapping::len`] fills up the last block or page.
    #[inline]
    #[must_use]
    pub const fn words(&self) -> &[MappingWord] {
        // SAFETY: these words are there for as long as `self` is borrowed; a `Page` and a `Block`
        // are arrays of words without padding (asserted above), and a mapping of the kernel's is
        // any number of bytes, aligned to pages.
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.words) }
    }

    /// The words of `len` bytes at offset `at`, where something must lie, or lies.
    pub(crate) fn part(&self, at: usize, len: usize) -> Result<&[MappingWord], LayoutError> {
        if !at.is_multiple_of(ALIGN) {
            return Err(LayoutError::Misaligned { at });
        }
        match at.checked_add(len) {
            Some(end) if end <= self.len => Ok(&self.words()[at / WORD..end.div_ceil(WORD)]),
            _ => Err(LayoutError::TooShort { at, len, mapping_len: self.len }),
        }
    }
}

/// `len`, if an allocation can be that long.
pub(crate) fn checked_len(len: usize) -> Result<usize, MemoryError> {
    const MAX: usize = isize::MAX as usize;
    match len {
        0 => Err(MemoryError::Empty),
        1..=MAX => Ok(len),
        _ => Err(MemoryError::TooLarge { len, max: MAX }),
    }
}

/// How long the shared memory is, which nobody can make shorter any longer.
fn sealed_len(fd: &OwnedFd) -> Result<usize, MemoryError> {
    let seals = rustix::fs::fcntl_get_seals(fd).unwrap_or(SealFlags::empty());
    if !seals.contains(SealFlags::SHRINK) || is_of_huge_pages(fd) {
        return Err(MemoryError::NotSealed);
    }
    let stat = rustix::fs::fstat(fd).map_err(MemoryError::system("asking for the length", 0))?;
    Ok(usize::try_from(stat.st_size).unwrap_or(usize::MAX))
}

/// The type by which `statfs` reports files that are made of huge pages. An access to them may be
/// SIGBUS though they are sealed and of full length, once somebody has punched a hole into them:
/// there need not be a page for it again.
const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;

pub(crate) fn is_of_huge_pages(file: &OwnedFd) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|it| it.f_type == HUGETLBFS_MAGIC)
}

impl Drop for Mapping {
    fn drop(&mut self) {
        match self.owner {
            Owner::Blocks => {
                let blocks = core::ptr::slice_from_raw_parts_mut(
                    self.first.as_ptr().cast::<Block>(),
                    self.words / WORDS_PER_BLOCK,
                );
                // SAFETY: `heap` leaked a box of so many blocks here, and nobody else frees it.
                drop(unsafe { Box::from_raw(blocks) });
            }
            Owner::Pages => {
                let pages = core::ptr::slice_from_raw_parts_mut(
                    self.first.as_ptr().cast::<Page>(),
                    self.words / WORDS_PER_PAGE,
                );
                // SAFETY: `pages` leaked a box of so many pages here, and nobody else frees it.
                drop(unsafe { Box::from_raw(pages) });
            }
            Owner::Mapped(..) => {
                let (first, len) = (self.first.as_ptr().cast(), self.words * WORD);
                // SAFETY: the range is this value's own mapping, and no borrow of it is left. It
                // fails only for ranges that are none.
                let _ = unsafe { rustix::mm::munmap(first, len) };
            }
        }
    }
}

impl fmt::Debug for Mapping {
    /// Not the words: they may change under our eyes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping")
            .field("len", &self.len)
            .field("backing", &self.backing())
            .finish_non_exhaustive()
    }
}

/// Asks the kernel for huge pages under the memory that `pages` has reserved and not touched yet:
/// remote hosts read at random, and each small page that is not in the TLB costs a walk. A hint: a
/// kernel that has none gives ordinary pages.
fn advise_huge_pages(pages: &mut Vec<Page>) {
    let reserved = pages.spare_capacity_mut();
    let len = size_of_val(reserved);
    if len >= HUGE_PAGE_SIZE {
        // SAFETY: the range is memory that `pages` has allocated and nobody uses yet; the advice
        // changes how it is backed, not what it holds.
        let _ = unsafe {
            rustix::mm::madvise(reserved.as_mut_ptr().cast(), len, Advice::LinuxHugepage)
        };
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
