//! Errors of the system that are about a limit, whatever was being done: [`Shortage`].
//!
//! A process that has as many open files as it may can open no file, socket or map. Each caller
//! sees that as a failure of its own, and its advice would be about the wrong thing: a file that is
//! in order, a kernel that is new enough. So errors ask here first, and say the limit and how to
//! raise it.

use core::fmt;
use std::io;

use rustix::{
    event::{EventfdFlags, eventfd},
    io::Errno,
    process::{Resource, getrlimit},
};

/// How many descriptors a library may want at once, to load a program. It gives them back when it
/// fails, and may tell another error then.
const WANTED_AT_ONCE: usize = 8;

/// The limit that was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shortage {
    /// Open files of this process.
    Files,
    /// Open files of the machine.
    FilesOfMachine,
    /// Memory that the machine or the control group has left.
    Memory,
    /// Threads and processes of this user or control group.
    Threads,
}

impl Shortage {
    /// The limit that `error` is about, if it is about one.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<Self> {
        match Errno::from_io_error(error)? {
            Errno::MFILE => Some(Self::Files),
            Errno::NFILE => Some(Self::FilesOfMachine),
            Errno::NOMEM => Some(Self::Memory),
            _ => None,
        }
    }

    /// The limit that `error` of starting a thread is about. There EAGAIN is one as well.
    #[must_use]
    pub fn of_thread(error: &io::Error) -> Option<Self> {
        match Errno::from_io_error(error)? {
            Errno::AGAIN => Some(Self::Threads),
            _ => Self::of(error),
        }
    }

    /// The limit that `error` of a library is about, which may tell another error than the one that
    /// it met: if only a few more files could be opened, that is why it failed.
    #[must_use]
    pub fn of_library(error: &io::Error) -> Option<Self> {
        Self::of(error).or_else(|| {
            let opened: Result<Vec<_>, _> =
                (0..WANTED_AT_ONCE).map(|_| eventfd(0, EventfdFlags::CLOEXEC)).collect();
            opened.err().and_then(|errno| Self::of(&errno.into()))
        })
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files => {
                f.write_str("this process has about as many open files as it may have")?;
                if let Some(limit) = getrlimit(Resource::Nofile).current {
                    write!(f, " ({limit})")?;
                }
                f.write_str(
                    ": raise the limit with `ulimit -n 1024` before it starts, or LimitNOFILE= of its systemd unit",
                )
            }
            Self::FilesOfMachine => f.write_str(
                "this machine has as many open files as it may have: raise the limit with `sysctl -w fs.file-max=NUMBER`, \
                 or end a program that has many",
            ),
            Self::Memory => f.write_str(
                "there is no memory left for it: see `free -m`, `ulimit -v` and `ulimit -l` of this process, and MemoryMax= \
                 of its systemd unit or the limit of its container",
            ),
            Self::Threads => f.write_str(
                "this user or this service has as many threads as it may have: raise the limit with `ulimit -u`, or TasksMax= \
                 of its systemd unit",
            ),
        }
    }
}

/// An error of the system as a person is told it: with the limit, if it is about one.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    error: &'a io::Error,
    shortage: Option<Shortage>,
}

impl<'a> Told<'a> {
    /// Of a system call.
    #[must_use]
    pub fn of(error: &'a io::Error) -> Self {
        Self { error, shortage: Shortage::of(error) }
    }

    /// Of starting a thread.
    #[must_use]
    pub fn of_thread(error: &'a io::Error) -> Self {
        Self { error, shortage: Shortage::of_thread(error) }
    }
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)?;
        match self.shortage {
            Some(shortage) => write!(f, "; {shortage}"),
            None => Ok(()),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_is_about_a_limit_names_it_and_how_to_raise_it() {
        let told = |errno: Errno| Told::of(&errno.into()).to_string();
        for (errno, named) in [
            (Errno::MFILE, "ulimit -n"),
            (Errno::MFILE, "LimitNOFILE="),
            (Errno::NFILE, "fs.file-max"),
            (Errno::NOMEM, "MemoryMax="),
        ] {
            assert!(told(errno).contains(named), "{}", told(errno));
        }
        let busy = io::Error::from(Errno::AGAIN);
        assert_eq!(Told::of(&busy).to_string(), busy.to_string(), "of a call that would block");
        assert!(Told::of_thread(&busy).to_string().contains("TasksMax="));
        let other = io::Error::from(Errno::NOENT);
        assert_eq!(Told::of_thread(&other).to_string(), other.to_string());
        assert_eq!(Shortage::of_library(&other), None, "this process may open many files");
    }
}
