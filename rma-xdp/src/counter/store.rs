//! The high-water mark on disk, and how a block is reserved.
//!
//! One file for all hosts of the machine that share the directory, whatever their addresses: values are
//! plenty, and one file has no names to get wrong. Reserving, under an exclusive lock on a second file:
//!
//! 1. read the mark
//! 2. write the new mark into a temporary file, and sync that
//! 3. rename it over the old one, and sync the directory
//! 4. only now hand the block out
//!
//! A rename and not a write in place: after a crash or a power cut at any step the file is the old one or
//! the new one, whole. So a file that is not well-formed is damage, never the trace of a crash, and is
//! refused. With a write in place the two could not be told apart, and to take the older of two marks
//! because the newer one is damaged would repeat values. The price is a second sync, once every few
//! thousand million frames.
//!
//! The lock is on a file that is never renamed, so that who waits for it does not wait for a file of the
//! past. The kernel releases it however its holder ends.

use core::time::Duration;
use std::{
    fs::{self, File, OpenOptions},
    io::{
        self,
        ErrorKind::{AlreadyExists, NotADirectory, NotFound, PermissionDenied},
        Write,
    },
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rma_core::{crypto::CounterBlock, time::Clock};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use super::{CounterError, WallClock};
use crate::clock::TscClock;

/// How long to wait for others who reserve. Each takes about a millisecond.
const PATIENCE: Duration = Duration::from_secs(5);

/// How much of a foreign file is shown.
const SHOWN: usize = 60;

/// The state directory.
#[derive(Debug)]
pub(super) struct Store {
    directory: Directory,
    lock: PathBuf,
    clock: WallClock,
    block_len: u64,
    /// How long to wait for the lock.
    pub(super) patience: Duration,
}

impl Store {
    /// Makes the directory if it is not there.
    pub(super) fn open(
        dir: PathBuf,
        clock: WallClock,
        block_len: u64,
    ) -> Result<Self, CounterError> {
        if block_len == 0 {
            return Err(CounterError::EmptyBlocks);
        }
        let made = make_dir(&dir);
        let directory =
            Directory { mark: dir.join("counter"), temporary: dir.join("counter.new"), dir };
        let lock = directory.dir.join("lock");
        made.map_err(|source| directory.error("making the directory", source))?;
        Ok(Self { directory, lock, clock, block_len, patience: PATIENCE })
    }

    /// The mark's file.
    pub(super) fn mark(&self) -> &Path {
        &self.directory.mark
    }

    /// Reserves a block that nobody has had or will have, of values not below `floor`. May block for as
    /// long as the disk takes and others reserve.
    pub(super) fn reserve(&self, floor: u64) -> Result<CounterBlock, CounterError> {
        let _lock = self.lock()?;
        reserve(&self.directory, self.clock.floor(floor), self.block_len)
            .map_err(|fault| self.directory.explain(fault, self.block_len))
    }

    /// Waits for the lock. It is gone when the file is closed.
    fn lock(&self) -> Result<File, CounterError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options
            .open(&self.lock)
            .map_err(|source| self.directory.error("opening the lock", source))?;
        let mut waiting = None;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(errno) => return Err(self.directory.error("taking the lock", errno.into())),
            }
            let clock = waiting.get_or_insert_with(TscClock::new);
            let waited = Duration::from_nanos(clock.now().as_nanos());
            if waited > self.patience {
                return Err(CounterError::Locked { path: self.lock.clone(), waited });
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

/// What reserving does to a disk, step by step.
pub(super) trait Disk {
    /// The mark's file. `None` if there is none.
    fn read_mark(&self) -> io::Result<Option<Vec<u8>>>;
    /// Replaces the contents of the temporary file.
    fn write_temporary(&self, contents: &[u8]) -> io::Result<()>;
    /// The temporary file's contents are durable when this returns.
    fn sync_temporary(&self) -> io::Result<()>;
    /// The temporary file becomes the mark's file.
    fn rename_to_mark(&self) -> io::Result<()>;
    /// The rename is durable when this returns.
    fn sync_directory(&self) -> io::Result<()>;
}

/// What stops a reservation.
#[derive(Debug)]
pub(super) enum Fault {
    Io { doing: &'static str, source: io::Error },
    Damaged(Vec<u8>),
    UsedUp { mark: u64 },
    NoClock,
}

//= 1rma#A-iv-counter-and-sender
/// Reserves `len` values, not below the mark and not below `floor`. The caller has the lock.
pub(super) fn reserve(
    disk: &impl Disk,
    floor: Option<u64>,
    len: u64,
) -> Result<CounterBlock, Fault> {
    let failed = |doing| move |source| Fault::Io { doing, source };
    let mark = match disk.read_mark().map_err(failed("reading it"))? {
        Some(contents) => Some(parse(&contents).ok_or(Fault::Damaged(contents))?),
        None => None,
    };
    // Without a mark there may have been one, once: then the clock must stand in for it.
    let first = mark.max(floor).ok_or(Fault::NoClock)?;
    let end = first.checked_add(len).ok_or(Fault::UsedUp { mark: first })?;
    disk.write_temporary(&render(end)).map_err(failed("writing a new one"))?;
    disk.sync_temporary().map_err(failed("syncing the new one"))?;
    disk.rename_to_mark().map_err(failed("renaming the new one"))?;
    disk.sync_directory().map_err(failed("syncing the directory"))?;
    Ok(CounterBlock::new(first, end))
}

/// The contents of the mark's file: the mark twice, once with every bit inverted, so that no damage goes
/// unnoticed.
pub(super) fn render(mark: u64) -> Vec<u8> {
    format!("1RMA counter 1\nmark  {mark:020}\ncheck {:020}\n", !mark).into_bytes()
}

/// The mark, if these are the contents of its file, octet by octet.
pub(super) fn parse(contents: &[u8]) -> Option<u64> {
    let text = str::from_utf8(contents).ok()?;
    let mark = text.lines().nth(1)?.strip_prefix("mark  ")?.parse().ok()?;
    (contents == render(mark)).then_some(mark)
}

/// A directory of the file system.
#[derive(Debug)]
struct Directory {
    dir: PathBuf,
    mark: PathBuf,
    temporary: PathBuf,
}

impl Directory {
    fn explain(&self, fault: Fault, len: u64) -> CounterError {
        let path = self.mark.clone();
        match fault {
            Fault::Io { doing, source } => self.error(doing, source),
            Fault::Damaged(contents) => {
                let shown = &contents[..contents.len().min(SHOWN)];
                CounterError::Damaged { path, found: String::from_utf8_lossy(shown).into() }
            }
            Fault::UsedUp { mark } => CounterError::UsedUp { path, mark, len },
            Fault::NoClock => CounterError::NoClock,
        }
    }

    /// `doing` failed: with what consequence depends on whether there is a mark.
    fn error(&self, doing: &'static str, source: io::Error) -> CounterError {
        let path = self.mark.clone();
        match self.read_mark() {
            Ok(Some(contents)) => match parse(&contents) {
                Some(mark) => CounterError::NotMoved { path, mark, doing, source },
                None => self.explain(Fault::Damaged(contents), 0),
            },
            Ok(None) => CounterError::Unusable { path, doing, source },
            // Another user's, or no place for files at all.
            Err(error) if matches!(error.kind(), PermissionDenied | NotADirectory) => {
                CounterError::Unusable { path, doing, source }
            }
            Err(source) => CounterError::Unreadable { path, source },
        }
    }
}

impl Disk for Directory {
    fn read_mark(&self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(&self.mark) {
            Ok(contents) => Ok(Some(contents)),
            Err(error) if error.kind() == NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write_temporary(&self, contents: &[u8]) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&self.temporary)?.write_all(contents)
    }

    fn sync_temporary(&self) -> io::Result<()> {
        // The kernel syncs the file, not the descriptor that wrote it.
        File::open(&self.temporary)?.sync_all()
    }

    fn rename_to_mark(&self) -> io::Result<()> {
        fs::rename(&self.temporary, &self.mark)
    }

    fn sync_directory(&self) -> io::Result<()> {
        sync_dir(&self.dir)
    }
}

/// Makes a directory and what is missing above it, and sees that it stays.
fn make_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        make_dir(parent)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        // Another process was faster.
        Err(error) if error.kind() == AlreadyExists && dir.is_dir() => {}
        result => result?,
    }
    sync_dir(parent.unwrap_or(Path::new(".")))
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
