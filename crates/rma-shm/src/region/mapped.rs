//! Regions over memory that the kernel maps: huge pages, shared memory, files.
//!
//! It decides which memory is safe to map and with what it is refused; how it is mapped is in
//! [`mapping`](crate::mapping).

use super::{Backing, HugePageSize, Region};
use crate::{
    error::MemoryError,
    mapping::{Mapping, checked_len, is_of_huge_pages},
};
use rustix::{
    fs::{FallocateFlags, FileType},
    io::Errno,
    mm::MapFlags,
};
use std::{
    fs::File,
    os::fd::{BorrowedFd, OwnedFd},
};

/// Bytes that are read from a file at once.
const CHUNK: usize = 64 << 10;

impl HugePageSize {
    /// Bytes of a page.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::TwoMiB => 2 << 20,
            Self::OneGiB => 1 << 30,
        }
    }

    pub(crate) const fn kib(self) -> usize {
        self.bytes() >> 10
    }

    /// Returns the directory in which the kernel tells how many there are.
    pub(crate) fn directory(self) -> String {
        format!("/sys/kernel/mm/hugepages/hugepages-{}kB", self.kib())
    }

    /// Pages that are neither in use nor promised to somebody.
    fn free(self) -> Option<u64> {
        let read = |name| {
            let text = std::fs::read_to_string(format!("{}/{name}", self.directory())).ok()?;
            text.trim().parse::<u64>().ok()
        };
        Some(read("free_hugepages")?.saturating_sub(read("resv_hugepages")?))
    }
}

impl Region {
    /// Zeroed memory of huge pages that the machine has reserved beforehand. The kernel promises
    /// them now or never: it does not take them back, and does not swap them.
    ///
    /// # Errors
    ///
    /// As [`Region::new`], and [`MemoryError::NoHugePages`].
    pub fn huge_pages(len: usize, page: HugePageSize) -> Result<Self, MemoryError> {
        let pages = checked_len(len)?.div_ceil(page.bytes());
        let refused = |errno: Errno| MemoryError::NoHugePages {
            len,
            page,
            pages,
            free: page.free(),
            errno: errno.raw_os_error(),
        };
        let flags = match page {
            HugePageSize::TwoMiB => MapFlags::HUGETLB | MapFlags::HUGE_2MB,
            HugePageSize::OneGiB => MapFlags::HUGETLB | MapFlags::HUGE_1GB,
        };
        let size = pages.checked_mul(page.bytes()).ok_or_else(|| refused(Errno::NOMEM))?;
        let mapping = Mapping::anonymous(size, flags, Backing::HugePages(page)).map_err(refused)?;
        Ok(Self::over(mapping, len))
    }

    /// [`Region::huge_pages`], or ordinary memory where there are none; then the second is why. Say
    /// it to someone: nothing else does.
    ///
    /// # Errors
    ///
    /// As [`Region::new`].
    pub fn prefer_huge_pages(
        len: usize,
        page: HugePageSize,
    ) -> Result<(Self, Option<MemoryError>), MemoryError> {
        match Self::huge_pages(len, page) {
            Err(why @ MemoryError::NoHugePages { .. }) => Ok((Self::new(len)?, Some(why))),
            region => Ok((region?, None)),
        }
    }

    /// Zeroed memory that other processes can map, too: a process that is given [`Region::fd`] can
    /// read and write all of it, whatever remote hosts are permitted. Its length is sealed. `name`
    /// is for people who look into `/proc`.
    ///
    /// **Give the descriptor only to processes that you trust with this process's availability.**
    /// The seal forbids to make the memory shorter, but not to punch holes into it (`fallocate`):
    /// then bytes are zero, which whoever may write them can have in other ways, and the next
    /// access to them, also the engine's, takes a page fault and memory. Where there is none, the
    /// process may be killed: by the cgroup's limit, or under strict overcommit with SIGBUS.
    ///
    /// # Errors
    ///
    /// As [`Region::new`], and whatever the kernel refuses.
    pub fn memfd(name: &str, len: usize) -> Result<Self, MemoryError> {
        Ok(Self::over(Mapping::memfd(name, len)?, len))
    }

    /// All of the shared memory that another process has made, as [`Region::memfd`] does, and
    /// passed on.
    ///
    /// That process, and whoever else it gives the descriptor to, can read and write the region at
    /// any time, as they can their own memory. They can also take its pages away by punching holes:
    /// the bytes are then zero, the engine faults, and where there is no memory this process may be
    /// killed ([`Region::memfd`]). So map only what comes from whom you trust with this process's
    /// availability.
    ///
    /// # Errors
    ///
    /// [`MemoryError::NotSealed`] if somebody could shrink it; and whatever the kernel refuses, as
    /// where it is sealed against writing.
    pub fn map_memfd(fd: OwnedFd) -> Result<Self, MemoryError> {
        let mapping = Mapping::join(fd)?;
        let len = mapping.len();
        Ok(Self::over(mapping, len))
    }

    /// The first `len` bytes of a file, shared: what remote hosts write changes the file, and what
    /// others write to the file remote hosts read. [`Region::sync`] makes it durable.
    ///
    /// # What can go wrong later
    ///
    /// - **Whoever makes the file shorter kills this process** (SIGBUS), at the next access to what
    ///   is gone: of the application, or of the engine for a remote host. No seal and no lock of
    ///   the kernel prevents it. So a file that other users may write is refused. What remains are
    ///   the programs of the same user, and root's; and whoever had opened the file for writing
    ///   when it still could, or was passed such a descriptor, whatever its mode is now. Map only
    ///   files that nothing else truncates: best, ones that this process has made. Where that
    ///   cannot be promised, use [`Region::load_file`].
    /// - An error of the disk at writing back is seen by [`Region::sync`] alone; one at reading a
    ///   page that the kernel had dropped is SIGBUS, too.
    /// - The kernel may write pages back and drop them. Then an access waits for the disk; on the
    ///   engine's thread all ops wait. Files on `tmpfs` (`/dev/shm`) have no disk.
    ///
    /// # Errors
    ///
    /// If the file is too short, not a regular file, made of huge pages, or may be written by
    /// others; if the disk is full; and whatever the kernel refuses.
    pub fn map_file(file: impl Into<OwnedFd>, len: usize) -> Result<Self, MemoryError> {
        let (file, file_len) = (file.into(), checked_len(len)? as u64);
        let stat =
            rustix::fs::fstat(&file).map_err(MemoryError::system("asking about the file", len))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(MemoryError::NotARegularFile);
        }
        if is_of_huge_pages(&file) {
            return Err(MemoryError::FileOfHugePages);
        }
        let (owner, mode, user) =
            (stat.st_uid, stat.st_mode & 0o7777, rustix::process::geteuid().as_raw());
        if owner != user || mode & 0o022 != 0 {
            return Err(MemoryError::FileOfOthers { owner, mode, user });
        }
        let there = u64::try_from(stat.st_size).unwrap_or(0);
        if there < file_len {
            return Err(MemoryError::FileTooShort { len, file_len: there });
        }
        // A hole takes its blocks when it is written to, which would be SIGBUS on a full disk.
        match rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, file_len) {
            // Some file systems cannot; most of those take the blocks when the pages are brought
            // in.
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(errno) => {
                return Err(MemoryError::system("allocating the file's blocks", len)(errno));
            }
        }
        let mapping = Mapping::shared(len, file, Backing::File)
            .map_err(MemoryError::system("mapping the file", len))?;
        Ok(Self::over(mapping, len))
    }

    /// A copy of a whole file in memory of this process. The file is not looked at again, so
    /// nothing that happens to it matters, and nothing that happens to the region changes it.
    ///
    /// # Errors
    ///
    /// As [`Region::new`], if the file cannot be read, or gets shorter meanwhile.
    pub fn load_file(file: &File) -> Result<Self, MemoryError> {
        let stat =
            rustix::fs::fstat(file).map_err(MemoryError::system("asking about the file", 0))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(MemoryError::NotARegularFile);
        }
        let region = Self::new(usize::try_from(stat.st_size).unwrap_or(0))?;
        let len = region.len();
        let (mut chunk, mut at) = (vec![0; len.min(CHUNK)], 0);
        while at < len {
            let most = chunk.len().min(len - at);
            match rustix::io::pread(file, &mut chunk[..most], at as u64) {
                Ok(0) => return Err(MemoryError::FileTooShort { len, file_len: at as u64 }),
                Ok(read) => {
                    region.copy_in(at as u64, &chunk[..read]).expect("inside the region");
                    at += read;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(MemoryError::system("reading the file", len)(errno)),
            }
        }
        Ok(region)
    }

    /// The file descriptor of shared memory or of a file, to pass on to another process; `None` for
    /// other memory.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.mapping.fd()
    }

    /// Writes a file's changes to its disk and waits until they are there: slow. Nothing to do for
    /// other memory.
    ///
    /// # Errors
    ///
    /// The error of the disk. Then the file may have any mixture of old and new bytes.
    pub fn sync(&self) -> Result<(), MemoryError> {
        match self.backing() {
            Backing::File => {
                self.mapping.sync().map_err(MemoryError::system("writing the file", self.len()))
            }
            Backing::Ordinary | Backing::HugePages(_) | Backing::Memfd => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
