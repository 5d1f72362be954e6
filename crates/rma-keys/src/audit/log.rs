//! The audit log as files: a line for each event, written before the reply that it is about.
//!
//! Lines are appended; what the last second wrote is brought to the disk once a second, so a crash
//! of the machine may lose that second. A line that could not be written whole is taken back, or
//! ended before the next one, so that none is ever taken for whole that is not. When the file is
//! full it is named `FILE.1`, what was `FILE.1` becomes `FILE.2`, and so on; the oldest goes, once
//! there is a new file: where none can be made, the log goes on in the one that is full.
//!
//! Lines are written where they are looked for: before each write, the file at the path is compared
//! with the one that is open. One that was named anew or removed, as by `logrotate`, is left, and
//! another begun; one that was cut off goes on at its new end. Both are counted and told.
//!
//! Time is an argument. What is written holds no key, as no event does.

use core::{fmt, fmt::Write as _, time::Duration};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write as _},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rma_core::time::Instant;

use crate::audit::Event;

/// How often what has been written is brought to the disk.
pub const SYNC_EVERY: Duration = Duration::from_secs(1);

/// The treatment of a reply whose events cannot be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// No record, no grant: the client is told to come back.
    #[default]
    Refuse,
    /// It is sent all the same, and counted.
    Serve,
}

/// The settings of a log.
#[derive(Clone, Copy, Debug)]
pub struct LogConfig {
    /// How long a file may become, in octets. Default: 64 MiB.
    pub len_max: u64,
    /// How many full files are kept. Default: 9.
    pub files_max: u32,
    /// The treatment of a reply whose events cannot be written. Default: it is not sent.
    pub on_full: OnFull,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { len_max: 64 << 20, files_max: 9, on_full: OnFull::default() }
    }
}

/// The counters of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounters {
    /// Events that were written.
    pub written: u64,
    /// Events that could not be.
    pub lost: u64,
    /// Replies that were sent although their events could not be written.
    pub served_unrecorded: u64,
    /// Times that the disk did not take what was written.
    pub not_synced: u64,
    /// Files that were full.
    pub rotated: u64,
    /// Files that were full and could not be moved: the log goes on in the same.
    pub not_rotated: u64,
    /// Files that somebody else had moved or removed: another was begun at the path.
    pub moved: u64,
    /// Times that somebody else had cut the file off.
    pub cut_off: u64,
}

/// The reason why a log cannot be kept, or an event not written.
#[derive(Debug, thiserror::Error)]
#[error("the audit log {}: {why}", path.display())]
pub struct LogError {
    /// The file.
    pub path: PathBuf,
    /// The system's reason.
    pub why: io::Error,
}

/// The sink that a log writes to.
trait Sink: Send {
    /// How long the file is, if it is the one at `path`. `None`: another one is there, or none.
    fn len_at(&self, path: &Path) -> io::Result<Option<u64>>;
    fn append(&mut self, octets: &[u8]) -> io::Result<()>;
    fn cut(&mut self, len: u64) -> io::Result<()>;
    fn len(&self) -> io::Result<u64>;
    /// Whether what is written stays there: not in a device such as `/dev/null`.
    fn keeps(&self) -> bool {
        true
    }
    fn sync(&mut self) -> io::Result<()>;
}

impl Sink for File {
    fn len_at(&self, path: &Path) -> io::Result<Option<u64>> {
        let (own, found) = match (self.metadata()?, fs::metadata(path)) {
            (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            (own, found) => (own, found?),
        };
        let is_own = (own.dev(), own.ino()) == (found.dev(), found.ino());
        Ok(is_own.then_some(found.len()))
    }

    fn append(&mut self, octets: &[u8]) -> io::Result<()> {
        self.write_all(octets)
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn keeps(&self) -> bool {
        self.metadata().map_or(true, |it| it.is_file())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// An audit log that is being written.
pub struct Log {
    path: PathBuf,
    config: LogConfig,
    sink: Box<dyn Sink>,
    /// How much of the file is whole lines.
    len: u64,
    /// Whether something follows those that could not be taken back.
    is_torn: bool,
    /// When to bring what was written to the disk.
    sync_at: Option<Instant>,
    /// When to try again to begin another file, if that has failed.
    rotate_at: Option<Instant>,
    /// Whether people were told that it cannot be written, since it last was.
    is_told: bool,
    counters: LogCounters,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Log {
    /// Goes on with the log at `path`, or begins it, for nobody but its owner and group to read.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn open(path: &Path, config: LogConfig) -> Result<Self, LogError> {
        let failed = |why| LogError { path: path.to_owned(), why };
        let (file, len, is_torn) = open(path).map_err(failed)?;
        let (path, sink) = (path.to_owned(), Box::new(file));
        let counters = LogCounters::default();
        let (sync_at, rotate_at, is_told) = (None, None, false);
        Ok(Self { path, config, sink, len, is_torn, sync_at, rotate_at, is_told, counters })
    }

    /// Returns its counters.
    #[must_use]
    pub const fn counters(&self) -> LogCounters {
        self.counters
    }

    /// When [`Self::poll`] must be called.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.sync_at
    }

    /// Writes events, all or none. Returns whether the reply that they are about may be sent: they
    /// are written, or it must be sent all the same.
    ///
    /// # Errors
    /// If they could not be written, and the reply is not to be sent.
    pub fn write(&mut self, now: Instant, events: &[Event]) -> Result<(), LogError> {
        let Err(why) = self.append(now, events) else {
            if core::mem::take(&mut self.is_told) {
                tracing::info!(path = %self.path.display(), "the audit log is written again");
            }
            return Ok(());
        };
        self.counters.lost += events.len() as u64;
        if !core::mem::replace(&mut self.is_told, true) {
            tracing::error!(
                path = %self.path.display(), %why, on_full = ?self.config.on_full,
                "the audit log cannot be written; with Refuse, no keys are given until it can be"
            );
        }
        match self.config.on_full {
            OnFull::Serve => {
                self.counters.served_unrecorded += 1;
                Ok(())
            }
            OnFull::Refuse => Err(LogError { path: self.path.clone(), why }),
        }
    }

    fn append(&mut self, now: Instant, events: &[Event]) -> io::Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let mut lines = String::new();
        for event in events {
            writeln!(lines, "{event}").map_err(io::Error::other)?;
        }
        self.find()?;
        let is_full = self.len > 0 && self.len + lines.len() as u64 > self.config.len_max;
        if is_full && self.rotate_at.is_none_or(|at| at <= now) {
            self.rotate(now);
        }
        if self.is_torn {
            // Octets that could not be taken back get a line of their own, which is none of JSON.
            self.sink.append(b"\n")?;
            self.len = self.sink.len()?;
            self.is_torn = false;
        }
        if let Err(why) = self.sink.append(lines.as_bytes()) {
            // A part may have been written. To cut a shorter file would make it longer, by zeros.
            let is_longer = |len| len > self.len;
            self.is_torn = match self.sink.len().map(is_longer) {
                Ok(false) => false,
                _ => self.sink.cut(self.len).is_err(),
            };
            return Err(why);
        }
        if self.sink.keeps() {
            self.len += lines.len() as u64;
        }
        self.counters.written += events.len() as u64;
        self.sync_at.get_or_insert(now + SYNC_EVERY);
        Ok(())
    }

    /// Sees to it that what is open is the file at the path, and how long that is.
    fn find(&mut self) -> io::Result<()> {
        let path = self.path.display();
        match self.sink.len_at(&self.path)? {
            Some(len) => {
                if len < self.len {
                    self.counters.cut_off += 1;
                    // Perhaps in the midst of a line.
                    self.is_torn = len > 0;
                    tracing::warn!(%path, "somebody has cut the audit log off");
                }
                self.len = len;
            }
            None => {
                let (file, len, is_torn) = open(&self.path)?;
                self.counters.not_synced += u64::from(self.sink.sync().is_err());
                (self.sink, self.len, self.is_torn) = (Box::new(file), len, is_torn);
                (self.counters.moved, self.rotate_at) = (self.counters.moved + 1, None);
                tracing::info!(%path, "somebody has moved or removed the audit log: it begins anew");
            }
        }
        Ok(())
    }

    /// Brings what was written to the disk, if it is time to.
    pub fn poll(&mut self, now: Instant) {
        if self.sync_at.is_some_and(|at| at <= now) {
            self.sync_at = None;
            self.counters.not_synced += u64::from(self.sink.sync().is_err());
        }
    }

    fn rotate(&mut self, now: Instant) {
        let sync = self.sink.sync();
        self.counters.not_synced += u64::from(sync.is_err());
        match self.begin_anew() {
            Ok(file) => {
                (self.sink, self.len, self.is_torn) = (Box::new(file), 0, false);
                (self.counters.rotated, self.rotate_at) = (self.counters.rotated + 1, None);
            }
            Err(_) => {
                self.counters.not_rotated += 1;
                self.rotate_at = Some(now + SYNC_EVERY);
            }
        }
    }

    /// Makes a new file, and then names the others anew, the oldest first. Nothing is named anew
    /// before there is a new file: else each try in vain would push out the oldest.
    fn begin_anew(&self) -> io::Result<File> {
        let name = |suffix: &str| {
            let mut name = self.path.clone().into_os_string();
            name.push(suffix);
            PathBuf::from(name)
        };
        let numbered =
            |number: u32| name(&if number > 0 { format!(".{number}") } else { "".into() });
        let new = name(".new");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            // Files that a killed run has left are gone.
            _ => {}
        }
        let (file, ..) = open(&new)?;
        // A free number, such as that of a file which could not be renamed, is filled.
        let is_free = |&number: &u32| numbered(number).symlink_metadata().is_err();
        let last = (1..self.config.files_max).find(is_free).unwrap_or(self.config.files_max);
        for number in (0..last).rev() {
            match fs::rename(numbered(number), numbered(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(&new, &self.path)?;
        Ok(file)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        _ = self.sink.sync();
    }
}

/// The file, how long it is, and whether its last line is torn.
fn open(path: &Path) -> io::Result<(File, u64, bool)> {
    let mut options = OpenOptions::new();
    let mut file = options.read(true).append(true).create(true).mode(0o640).open(path)?;
    let len = file.seek(SeekFrom::End(0))?;
    if len == 0 {
        return Ok((file, 0, false));
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok((file, len, last != *b"\n"))
}

#[cfg(test)]
mod tests;
