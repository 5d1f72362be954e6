//! The high-water mark in a directory of the file system, and who may reserve when.
//!
//! How a block is reserved, step by step, is [`rma_core::counter_mark`]; here are the files, and
//! the lock that reserving asks for.
//!
//! One file for all hosts of the machine that share the directory, whatever their addresses: values
//! are plenty, and one file has no names to get wrong.
//!
//! The lock is on a file that is never renamed, so that who waits for it does not wait for a file
//! of the past; and whoever has it looks whether it is still the one in the directory, as people
//! remove files. The kernel releases it however its holder ends.
//!
//! Files belong to the directory's owner, whoever makes them: root may reserve today, and a user
//! with capabilities, who was given the directory, tomorrow. Root trusts the directory's owner with
//! counter values, and with nothing else: he is given only what was made just now, and what is
//! there under the name of ours and leads elsewhere is never written to.

use core::time::Duration;
use std::{
    fs::{self, File, OpenOptions},
    io::{
        self,
        ErrorKind::{AlreadyExists, NotADirectory, NotFound},
        Write,
    },
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown},
    path::{Path, PathBuf},
};

use rma_app::TscClock;
use rma_core::{
    counter_mark::{Disk, Fault, Lengths, Wish, parse, reserve, salvage},
    crypto::CounterBlock,
    time::Clock,
};
use rma_shm::Shortage;
use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
};

use super::{error::CounterError, wall_clock::WallClock};

/// How long to wait for others who reserve. Each takes about a millisecond.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// How much of a foreign file is shown: all of a damaged mark.
const SHOWN: usize = 70;

/// How many values a host's first block has at most: 0.13 s of clock.
///
/// A first block begins at the clock or above, so each opening of a host moves the mark on by as
/// much. So short, hosts may be opened seven times a second for ever, and the mark stays behind the
/// clock. And long enough for the next block to arrive: half of it lasts for 13 s at five million
/// frames a second, which is more than waiting for the lock and for another attempt takes.
pub(super) const FIRST_LEN: u64 = 1 << 27;

/// The state directory.
#[derive(Debug)]
pub(super) struct Store {
    directory: Directory,
    lock: PathBuf,
    clock: WallClock,
    lengths: Lengths,
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
        if let Err(source) = made {
            let is_shortage = Shortage::of(&source).is_some();
            return Err(if !is_shortage && is_certainly_absent(&directory.dir) {
                CounterError::NoneMade { path: directory.dir, source }
            } else {
                directory.error("making the directory", source)
            });
        }
        let lengths = Lengths { first: block_len.min(FIRST_LEN), most: block_len };
        Ok(Self { directory, lock, clock, lengths, patience: PATIENCE })
    }

    /// The mark's file.
    pub(super) fn mark(&self) -> &Path {
        &self.directory.mark
    }

    /// Reserves a host's first block, of values not below `floor` that nobody has had or will have.
    /// May block for as long as the disk takes and others reserve.
    pub(super) fn reserve(&self, floor: u64) -> Result<CounterBlock, CounterError> {
        self.grant(Wish::First { floor }, || false)
    }

    /// Reserves the block to go on with, for a host whose last one ended with `after`. Others that
    /// reserve are waited for until `give_up` says so; it is asked often.
    pub(super) fn reserve_next(
        &self,
        after: u64,
        give_up: impl Fn() -> bool,
    ) -> Result<CounterBlock, CounterError> {
        self.grant(Wish::Next { after }, give_up)
    }

    fn grant(&self, wish: Wish, give_up: impl Fn() -> bool) -> Result<CounterBlock, CounterError> {
        let _lock = self.lock(give_up)?;
        reserve(&self.directory, self.clock.now(), wish, self.lengths)
            .map_err(|fault| self.directory.explain(fault))
    }

    /// Waits for the lock. It is gone when the file is closed.
    fn lock(&self, give_up: impl Fn() -> bool) -> Result<File, CounterError> {
        let clock = TscClock::new();
        let mut file = self.open_lock()?;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if is_at(&file, &self.lock) => return Ok(file),
                // Somebody has removed the file: others lock another one now.
                Ok(()) => file = self.open_lock()?,
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(errno) => return Err(self.directory.error("taking the lock", errno.into())),
            }
            let waited = Duration::from_nanos(clock.now().as_nanos());
            if waited > self.patience || give_up() {
                return Err(CounterError::Locked { path: self.lock.clone(), waited });
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// Opens the lock's file, which is made if it is not there.
    fn open_lock(&self) -> Result<File, CounterError> {
        let there = || {
            let mut options = OpenOptions::new();
            let no_follow = OFlags::NOFOLLOW.bits().cast_signed();
            options.read(true).write(true).custom_flags(no_follow).open(&self.lock)
        };
        let opened = loop {
            match self.directory.make(&self.lock) {
                // It was there, or another process was faster.
                Err(error) if error.kind() == AlreadyExists => {}
                made => break made,
            }
            match there() {
                // Not any longer.
                Err(error) if error.kind() == NotFound => {}
                opened => break opened,
            }
        };
        opened.map_err(|source| self.directory.error("opening the lock", source))
    }
}

/// A directory of the file system.
#[derive(Debug)]
struct Directory {
    dir: PathBuf,
    mark: PathBuf,
    temporary: PathBuf,
}

impl Directory {
    /// Makes a file that was not there, whatever leads elsewhere under its name, and gives it to
    /// the directory's owner. A process that may not do that is not root, and the file stays its
    /// own.
    fn make(&self, path: &Path) -> io::Result<File> {
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        if let (Ok(file_is), Ok(dir)) = (file.metadata(), fs::metadata(&self.dir))
            && file_is.uid() != dir.uid()
        {
            let _ = fchown(&file, Some(dir.uid()), Some(dir.gid()));
        }
        Ok(file)
    }

    fn explain(&self, fault: Fault) -> CounterError {
        let path = self.mark.clone();
        match fault {
            Fault::Io { doing, source } => self.error(doing, source),
            Fault::Damaged(contents) => {
                let shown = &contents[..contents.len().min(SHOWN)];
                let found = String::from_utf8_lossy(shown).into();
                CounterError::Damaged { path, found, mark: salvage(&contents) }
            }
            Fault::UsedUp { mark, len } => CounterError::UsedUp { path, mark, len },
            Fault::NoClock => CounterError::NoClock,
        }
    }

    /// `doing` failed: with what consequence depends on whether there is a mark. Where that cannot
    /// be told, there may be one.
    fn error(&self, doing: &'static str, source: io::Error) -> CounterError {
        let path = self.mark.clone();
        if let Some(shortage) = Shortage::of(&source) {
            return CounterError::Shortage { path, doing, shortage, source };
        }
        match self.read_mark() {
            Ok(Some(contents)) => match parse(&contents) {
                Some(mark) => CounterError::NotMoved { path, mark, doing, source },
                None => self.explain(Fault::Damaged(contents)),
            },
            Ok(None) => CounterError::Unusable { path, doing, source },
            // The directory is a file.
            Err(error) if error.kind() == NotADirectory => {
                CounterError::Unusable { path, doing, source }
            }
            Err(source) => match Shortage::of(&source) {
                Some(shortage) => CounterError::Shortage { path, doing, shortage, source },
                None => CounterError::Unreadable { path, source },
            },
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
        // Of a reservation that was cut short; mostly there is none.
        match fs::remove_file(&self.temporary) {
            Err(error) if error.kind() != NotFound => Err(error),
            _ => self.make(&self.temporary)?.write_all(contents),
        }
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

/// Whether there is no such directory, and so no mark in it. A directory that cannot be looked for
/// may be there, and a link that leads nowhere shows that something was.
fn is_certainly_absent(dir: &Path) -> bool {
    for path in dir.ancestors() {
        match fs::symlink_metadata(path) {
            // The nearest thing that is there.
            Ok(_) => return path != dir && fs::metadata(path).is_ok(),
            Err(error) if matches!(error.kind(), NotFound | NotADirectory) => {}
            Err(_) => return false,
        }
    }
    false
}

/// Whether the open file is the one at `path`.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(open), Ok(there)) => (open.dev(), open.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_the_process_is_never_told_as_a_mark_that_is_lost() {
        let path = |name: &str| Path::new("/nowhere").join(name);
        let (mark, temporary) = (path("counter"), path("counter.new"));
        let directory = Directory { dir: path(""), mark, temporary };
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            let error = directory.error("opening the lock", errno.into());
            assert!(!error.no_directory(), "the wall clock is no stand-in: {error}");
            let text = error.to_string();
            assert!(text.contains("is in order") && text.contains("limit"), "{text}");
            for wrong in ["chown", "repair", "anew", "writable"] {
                assert!(!text.contains(wrong), "{wrong}: {text}");
            }
        }
    }
}
