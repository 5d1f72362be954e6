//! The memory under regions: where it is, and how it goes back.
//!
//! It knows words, not offsets. Always true: all its words are mapped for reading and writing for
//! as long as the value lives, and nobody has a reference to them but as atomic words.

use crate::{
    error::MemoryError,
    region::Backing,
    sync::{Ordering, RegionWord},
};
use core::ptr::NonNull;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Alignment of a mapping, and the granularity of its memory, in bytes. The page size of x86-64 and
/// of most arm64 kernels; on a kernel with larger pages two mappings may share one.
pub(crate) const PAGE_SIZE: usize = 4096;

const WORD: usize = size_of::<RegionWord>();
const WORDS_PER_PAGE: usize = PAGE_SIZE / WORD;
/// A transparent huge page of x86-64 and of arm64 with 4 KiB pages. Smaller regions have none.
const HUGE_PAGE_SIZE: usize = 2 << 20;

/// A page of a region.
#[repr(C, align(4096))]
struct Page([RegionWord; WORDS_PER_PAGE]);

const _: () = assert!(size_of::<Page>() == PAGE_SIZE && align_of::<Page>() == PAGE_SIZE);

impl Page {
    fn zeroed() -> Self {
        Self([const { RegionWord::new(0) }; WORDS_PER_PAGE])
    }
}

pub(crate) struct Mapping {
    first: NonNull<RegionWord>,
    /// A whole number of pages.
    words: usize,
    owner: Owner,
}

/// How it goes back.
enum Owner {
    /// A box of pages.
    Heap,
    /// A mapping, and the file that it is of.
    Mapped(Backing, Option<OwnedFd>),
}

// SAFETY: the memory belongs to the value alone and not to a thread; it is freed once, by the last
// owner.
unsafe impl Send for Mapping {}
// SAFETY: a shared `Mapping` gives access to atomic words, which are `Sync`, and to nothing else.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed memory of the allocator's, all pages touched.
    pub(crate) fn heap(len: usize) -> Result<Self, MemoryError> {
        let count = len.div_ceil(PAGE_SIZE);
        let mut pages = Vec::new();
        pages
            .try_reserve_exact(count)
            .map_err(|source| MemoryError::OutOfMemory { len, source })?;
        advise_huge_pages(&mut pages);
        pages.resize_with(count, Page::zeroed);
        let words = pages.len() * WORDS_PER_PAGE;
        let first = NonNull::from(Box::leak(pages.into_boxed_slice())).cast();
        let memory = Self { first, words, owner: Owner::Heap };
        // An allocator may know memory that is zero without being there. An atomic store is not
        // optimised away.
        for word in memory.words().iter().step_by(WORDS_PER_PAGE) {
            word.store(0, Ordering::Relaxed);
        }
        Ok(memory)
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
        Self::mapping(first, len, backing, None)
    }

    /// The first `len` bytes of a file, shared with all who have it. What is behind the file's end
    /// is zero in its last page, and SIGBUS after that.
    pub(crate) fn shared(len: usize, file: OwnedFd, backing: Backing) -> rustix::io::Result<Self> {
        let (anywhere, access) = (core::ptr::null_mut(), ProtFlags::READ | ProtFlags::WRITE);
        let len = len.next_multiple_of(PAGE_SIZE);
        // SAFETY: a new mapping, wherever the kernel has room, disturbs no other. What other
        // processes do to the same memory meets atomic words here.
        let first = unsafe { rustix::mm::mmap(anywhere, len, access, MapFlags::SHARED, &file, 0) }?;
        Self::mapping(first, len, backing, Some(file))
    }

    fn mapping(
        first: *mut core::ffi::c_void,
        len: usize,
        backing: Backing,
        file: Option<OwnedFd>,
    ) -> rustix::io::Result<Self> {
        let first = NonNull::new(first.cast()).expect("the kernel maps nothing at address 0");
        let memory = Self { first, words: len / WORD, owner: Owner::Mapped(backing, file) };
        memory.populate()?;
        Ok(memory)
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

    pub(crate) fn backing(&self) -> Backing {
        match self.owner {
            Owner::Heap => Backing::Ordinary,
            Owner::Mapped(backing, _) => backing,
        }
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.owner {
            Owner::Mapped(_, Some(file)) => Some(file.as_fd()),
            Owner::Heap | Owner::Mapped(_, None) => None,
        }
    }

    #[inline]
    pub(crate) fn words(&self) -> &[RegionWord] {
        // SAFETY: these words are there for as long as `self` is borrowed; a `Page` is an array of
        // words without padding (asserted above), and a mapping is any number of bytes, aligned to
        // pages.
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.words) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        match self.owner {
            Owner::Heap => {
                let pages = core::ptr::slice_from_raw_parts_mut(
                    self.first.as_ptr().cast::<Page>(),
                    self.words / WORDS_PER_PAGE,
                );
                // SAFETY: `heap` leaked a box of so many pages here, and nobody else frees it.
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
