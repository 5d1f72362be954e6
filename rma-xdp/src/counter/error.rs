//! Why counter values could not be reserved.

use core::time::Duration;
use std::{io, path::PathBuf};

/// Why a message counter has no values that are certain to be fresh.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CounterError {
    /// The environment does not say where state is kept.
    #[error(
        "neither XDG_STATE_HOME nor HOME is an absolute path, so there is no place for the message counter's \
         high-water mark; set one of them, or `counter.state_dir` of the host"
    )]
    NoDirectory,
    /// The state directory cannot be used, and no mark is known.
    #[error(
        "the message counter's high-water mark cannot be kept in {path}: {doing}: {source}; make the directory \
         writable, or name another in `counter.state_dir` of the host"
    )]
    Unusable {
        /// The mark's file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// There is a mark, and it cannot be read.
    #[error(
        "the message counter's high-water mark in {path} cannot be read: {source}; without it, IVs could repeat: \
         repair the disk, or name another directory in `counter.state_dir` of the host if the system clock is right \
         and has never been set back"
    )]
    Unreadable {
        /// The mark's file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is a mark, and it cannot be moved on.
    #[error(
        "the message counter's high-water mark in {path} is {mark} and cannot be moved on: {doing}: {source}; make \
         its directory writable and see that the disk has room: without it, IVs could repeat"
    )]
    NotMoved {
        /// The mark's file.
        path: PathBuf,
        /// The mark.
        mark: u64,
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The file is damaged, or is something else.
    #[error(
        "{path} is not a message counter's high-water mark of version 1: it holds {found:?}; restore it, or remove \
         it if the system clock is right and has never been set back"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How it begins.
        found: Box<str>,
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
    /// A block without values.
    #[error("`counter.block_len` is 0: it must be at least 1")]
    EmptyBlocks,
    /// No thread could be started.
    #[error("the thread that reserves counter values could not be started: {source}")]
    Thread {
        /// What the system said.
        source: io::Error,
    },
}

impl CounterError {
    /// Whether no mark is known, and none could be: the wall clock is then as good as it gets.
    pub(super) const fn nothing_is_known(&self) -> bool {
        matches!(self, Self::NoDirectory | Self::Unusable { .. })
    }
}
