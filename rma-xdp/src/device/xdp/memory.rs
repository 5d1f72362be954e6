//! Memory that this process shares with the kernel: a UMEM, a ring, a map of the steering program.
//!
//! It knows bytes and where they are, not what they mean, and hands out pointers only: whoever
//! follows one says why it may.
//!
//! Invariant: all of it is mapped for reading and writing for as long as the value lives, and a
//! pointer that it gives is aligned and stays inside.

use core::ptr::NonNull;
use std::os::fd::BorrowedFd;

use rustix::{
    io,
    mm::{MapFlags, ProtFlags},
};

/// Mapped memory. See the [module](self).
#[derive(Debug)]
pub(super) struct Memory {
    first: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the value and to no thread; by itself the value gives no access.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeroed memory of its own, whose pages are there before the first access.
    pub(super) fn anonymous(len: usize) -> io::Result<Self> {
        let (anywhere, access) = (core::ptr::null_mut(), ProtFlags::READ | ProtFlags::WRITE);
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping, wherever the kernel has room, disturbs no other.
        let first = unsafe { rustix::mm::mmap_anonymous(anywhere, len, access, flags) }?;
        Ok(Self::mapped(first, len))
    }

    /// The part of a descriptor's memory that begins at `offset`.
    pub(super) fn of(file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        let (anywhere, access) = (core::ptr::null_mut(), ProtFlags::READ | ProtFlags::WRITE);
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: as in `anonymous`.
        let first = unsafe { rustix::mm::mmap(anywhere, len, access, flags, file, offset) }?;
        Ok(Self::mapped(first, len))
    }

    fn mapped(first: *mut core::ffi::c_void, len: usize) -> Self {
        let first = NonNull::new(first.cast()).expect("the kernel maps nothing at address 0");
        Self { first, len }
    }

    /// Size in bytes.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The first byte.
    #[inline]
    pub(super) const fn first(&self) -> NonNull<u8> {
        self.first
    }

    /// So many values from `offset` on.
    ///
    /// # Panics
    /// If they leave the memory, or are not aligned.
    pub(super) fn slice<T>(&self, offset: usize, count: usize) -> NonNull<[T]> {
        let end = count.checked_mul(size_of::<T>()).and_then(|len| len.checked_add(offset));
        assert!(end.is_some_and(|end| end <= self.len), "{count} at {offset} of {}", self.len);
        assert!(offset.is_multiple_of(align_of::<T>()), "{offset} is not aligned");
        // SAFETY: the offset is inside the mapping (asserted above), which is one allocation.
        let first = unsafe { self.first.add(offset) };
        NonNull::slice_from_raw_parts(first.cast(), count)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the range is this value's own mapping; whoever follows a pointer to it keeps the
        // value.
        let unmapped = unsafe { rustix::mm::munmap(self.first.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}
