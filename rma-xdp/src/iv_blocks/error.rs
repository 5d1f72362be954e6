//! Errors of reserving counter values.

use core::{fmt, time::Duration};
use std::{io, path::PathBuf};

use rma_shm::{Shortage, Told};

/// The next step after a mark is lost.
macro_rules! begin_anew {
    () => {
        "without the mark, IVs could repeat. To begin anew, with the file removed or another directory in \
         `counter.state_dir` of the host, is safe only above every value that was ever reserved: open the first host \
         with `nic.counter_start` above them (they are nanoseconds since 1970; a day after any time that the system \
         clock has shown), or give new keys to all regions that hosts of this address serve or have grants for"
    };
}

/// The reason why a message counter has no values that are certain to be fresh.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CounterError {
    /// The environment does not say where state is kept.
    #[error(
        "neither XDG_STATE_HOME nor HOME is an absolute path, so there is no place for the message counter's \
         high-water mark; set one of them, or `counter.state_dir` of the host"
    )]
    NoDirectory,
    /// There is no state directory, and none can be made.
    #[error(
        "there is no directory {path} for the message counter's high-water mark, and it cannot be made: {source}; make \
         it, writable for this user (`sudo install -d -m 700 -o USER {path}`), or name another in `counter.state_dir` of the host"
    )]
    NoneMade {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The state directory cannot be used. It has no mark; it may have had one.
    #[error(
        "the message counter's high-water mark cannot be kept in {path}: {doing}: {source}; make the directory \
         writable, or, if no host of this address ever used it, name another in `counter.state_dir` of the host"
    )]
    Unusable {
        /// The mark's file.
        path: PathBuf,
        /// The action that failed.
        doing: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// A limit of this process was met. Nothing is wrong with the mark.
    #[error(
        "a block of counter values cannot be reserved with {path} ({doing}: {source}), which is in order: {shortage}"
    )]
    Shortage {
        /// The mark's file.
        path: PathBuf,
        /// The action that failed.
        doing: &'static str,
        /// The limit.
        shortage: Shortage,
        /// The error of the system.
        source: io::Error,
    },
    /// There is a mark, or there may be one, and it cannot be read.
    #[error(
        "the message counter's high-water mark in {path} cannot be read: {source}; give it and its directory to this user \
         (`sudo chown -R USER`; root goes on using it), or repair the disk: {}", begin_anew!()
    )]
    Unreadable {
        /// The mark's file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// There is a mark, and it cannot be moved on.
    #[error(
        "the message counter's high-water mark in {path} is {mark}, which is {}, and cannot be moved on: {doing}: \
         {source}; make its directory writable and see that the disk has room; or name another in \
         `counter.state_dir` of the host, and {mark} in `nic.counter_start`: without it, IVs could repeat", Moment(*mark)
    )]
    NotMoved {
        /// The mark's file.
        path: PathBuf,
        /// The mark.
        mark: u64,
        /// The action that failed.
        doing: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is damaged, or is something else.
    #[error(
        "{path} is not a message counter's high-water mark of version 1: it holds {found:?}{}; {}", Readable(*mark), begin_anew!()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The beginning of its content.
        found: Box<str>,
        /// The number that may have been the mark, if there is something to be read. Where the file
        /// is damaged in one place, the mark was no higher.
        mark: Option<u64>,
    },
    /// Another process has the lock and does not go on.
    #[error(
        "{path} has been locked by another process for {waited:?}; a stopped process? `fuser {path}` names it"
    )]
    Locked {
        /// The lock's file.
        path: PathBuf,
        /// For how long this process has waited.
        waited: Duration,
    },
    /// There are no values left.
    #[error(
        "the message counter's high-water mark in {path} is {mark}: less than {len} values are left below 2^64; give \
         this host another address or its peers' regions other keys, and only then remove the file"
    )]
    UsedUp {
        /// The mark's file.
        path: PathBuf,
        /// The mark, or the clock or floor above it.
        mark: u64,
        /// How many values were wanted.
        len: u64,
    },
    /// There is no mark, and the clock cannot be right.
    #[error(
        "the system clock is not set (it must be between 2025 and 2262), and there is no high-water mark of the \
         message counter yet; set the clock once"
    )]
    NoClock,
    /// A start was chosen that the clock does not confirm, and nothing would remember that it was
    /// used.
    #[error(
        "`nic.counter_start` is {start}, the system clock is not set or behind that, and no mark is kept, so that the \
         next start would repeat its values: set the clock, or see that the mark can be kept: {reason}"
    )]
    StartNotKept {
        /// The start.
        start: u64,
        /// The reason why no mark is kept.
        reason: Box<str>,
    },
    /// A block without values.
    #[error("`counter.block_len` is 0: it must be at least 1")]
    EmptyBlocks,
    /// No thread could be started.
    #[error(
        "the thread that reserves counter values could not be started: {}",
        Told::of_thread(source)
    )]
    Thread {
        /// The error of the system.
        source: io::Error,
    },
}

impl CounterError {
    /// Whether there is no state directory and none can be made: the wall clock is then as good as
    /// it gets. Where there is one, there may be or have been a mark.
    pub(super) const fn no_directory(&self) -> bool {
        matches!(self, Self::NoDirectory | Self::NoneMade { .. })
    }
}

/// The readable part of a damaged mark, for people.
struct Readable(Option<u64>);

impl fmt::Display for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(mark) => write!(f, ", maybe a mark of {mark}, which is {}", Moment(mark)),
            None => Ok(()),
        }
    }
}

/// A counter value, read as nanoseconds since 1970, as a date.
pub(super) struct Moment(pub(super) u64);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // When the clock shows this second, the value is past.
        let seconds = self.0.div_ceil(1_000_000_000);
        let (mut day, second) = (seconds / 86_400, seconds % 86_400);
        let mut year: u64 = 1970;
        let is_leap = |year: u64| {
            year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
        };
        while day >= 365 + u64::from(is_leap(year)) {
            day -= 365 + u64::from(is_leap(year));
            year += 1;
        }
        let mut month = 1;
        for len in [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30] {
            if day < len {
                break;
            }
            day -= len;
            month += 1;
        }
        let (day, hour, minute, second) = (day + 1, second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
    }
}
