//! Errors of memory.

use crate::region::HugePageSize;
use rustix::io::Errno;
use std::{collections::TryReserveError, io};

/// The reason why memory could not be had: for a region, or to be shared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// There is nothing to register.
    #[error("memory of 0 bytes cannot be had: ask for at least 1")]
    Empty,
    /// More than an address space can hold.
    #[error("{len} bytes of memory cannot be had: the largest possible one has {max} bytes")]
    TooLarge {
        /// The bytes asked for.
        len: usize,
        /// The most that any allocation may have.
        max: usize,
    },
    /// The allocator had no such memory.
    #[error(
        "no memory of {len} bytes: ask for less, or check `free -h`, the cgroup's memory.max \
         and `ulimit -v`"
    )]
    OutOfMemory {
        /// The bytes asked for.
        len: usize,
        /// The error of the allocator.
        source: TryReserveError,
    },
    /// Too few huge pages have been reserved on this machine, or this process may not have them.
    #[error(
        "no huge pages for {len} bytes: it takes {pages} of {} KiB and {} are free ({}); reserve some, \
         as root: echo {pages} >> {}/nr_hugepages; or check the cgroup's hugetlb limits",
        .page.kib(),
        .free.map_or_else(|| "an unknown number".to_owned(), |free| free.to_string()),
        io::Error::from_raw_os_error(*.errno),
        .page.directory()
    )]
    NoHugePages {
        /// The bytes asked for.
        len: usize,
        /// The size of a page.
        page: HugePageSize,
        /// The pages that they need.
        pages: usize,
        /// The pages that are neither in use nor promised to others, if the kernel tells.
        free: Option<u64>,
        /// The error of the kernel.
        errno: i32,
    },
    /// A circular region consists of whole cache lines.
    #[error(
        "a circular region cannot have {len} bytes: its length must be a multiple of 64; round it up"
    )]
    CircularLen {
        /// The bytes asked for.
        len: usize,
    },
    /// The kernel refused something.
    #[error("{what} of {len} bytes: {}", io::Error::from_raw_os_error(*.errno))]
    System {
        /// The request.
        what: &'static str,
        /// The bytes of the memory.
        len: usize,
        /// The error of the kernel.
        errno: i32,
    },
    /// A process that has the file descriptor could shrink the memory, and so kill this process.
    #[error(
        "the file descriptor is not shared memory that is sealed against shrinking; its maker should add F_SEAL_SHRINK \
         to a memfd (`Mapping::memfd` and `Region::memfd` do), and it must not be made of huge pages"
    )]
    NotSealed,
    /// It is not the memory that both sides have agreed on.
    #[error(
        "the shared memory has {found} bytes and not {len}: both sides must compute its length alike, \
         and pass on the right descriptor"
    )]
    OtherLength {
        /// The bytes agreed on.
        len: usize,
        /// The bytes that there are.
        found: usize,
    },
    /// Only regular files have a length that stays.
    #[error("only a regular file can be mapped; this is none")]
    NotARegularFile,
    /// Huge pages of a file may be gone though the file is as long as ever, which kills this
    /// process.
    #[error(
        "the file is made of huge pages (hugetlbfs): once somebody punches a hole into it, there need not be a page again, \
         which would kill this process; use `Region::huge_pages`, or a file on another file system"
    )]
    FileOfHugePages,
    /// Others could shrink the file, and so kill this process.
    #[error(
        "the file belongs to user {owner} and has mode {mode:o}: users other than this process's ({user}) may write \
         it, and could kill this process by making it shorter; chown it and `chmod go-w`, or use `Region::load_file`"
    )]
    FileOfOthers {
        /// The file's owner.
        owner: u32,
        /// Its permissions.
        mode: u32,
        /// The effective user of this process.
        user: u32,
    },
    /// The file is shorter than the region must be, or became so.
    #[error(
        "the file has {file_len} bytes and the region needs {len}; extend it first, or ask for less"
    )]
    FileTooShort {
        /// The bytes asked for.
        len: usize,
        /// The bytes of the file.
        file_len: u64,
    },
}

impl MemoryError {
    /// The kernel refused `what`, for memory of `len` bytes.
    pub(crate) fn system(what: &'static str, len: usize) -> impl Fn(Errno) -> Self {
        move |errno| Self::System { what, len, errno: errno.raw_os_error() }
    }
}
