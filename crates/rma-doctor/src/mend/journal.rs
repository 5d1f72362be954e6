//! The journal of what was set: a file for each interface, which outlives whoever wrote it and not
//! the machine's boot.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use super::kernel::{Interface, KernelError};
use crate::setting::Setting;

/// The version of the file. Another one is refused.
const VERSION: u32 = 1;

/// More than a journal ever has, in bytes.
const LEN_MAX: u64 = 1 << 20;

/// How often it is looked whether somebody still writes journals, and for how long each time.
const LOCK_TRIES: u32 = 20;
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The directory of journals.
pub const DIRECTORY: &str = "/run/rma-bench/doctor";

/// An error that kept everything from being set, or undone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MendError {
    /// A file or a directory cannot be had.
    #[error("{}: {why}; nothing is set without a journal: mend that, or run it as root", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        why: io::Error,
    },
    /// Somebody else could have written it.
    #[error(
        "{}: {fault}, so somebody else may have written it, and nothing of it is set: look into it, and remove it",
        path.display()
    )]
    Foreign {
        /// The path.
        path: PathBuf,
        /// The thing that is wrong with it.
        fault: String,
    },
    /// It is no journal.
    #[error(
        "{} is no journal of this version ({why}), and nothing of it is set: look into it for what was there, and remove it",
        path.display()
    )]
    Cut {
        /// The path.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// The interface was made anew, or has another name.
    #[error(
        "{} is of {noted}, which is now {is}: what was set there is not here any more, and nothing of it is set: remove the file",
        path.display()
    )]
    OtherInterface {
        /// The path.
        path: PathBuf,
        /// The interface of the journal.
        noted: String,
        /// That of now.
        is: String,
    },
    /// Somebody else is at it.
    #[error("process {holder} mends or undoes at this moment: wait until it has ended")]
    Locked {
        /// The process.
        holder: String,
    },
    /// There is no such interface.
    #[error(transparent)]
    Interface(#[from] KernelError),
}

/// The thing that a journal is of.
#[derive(Clone, Debug)]
pub struct Place {
    /// The directory of journals.
    pub directory: PathBuf,
    /// The network namespace.
    pub netns: u64,
    /// The boot, by the kernel's own name for it.
    pub boot: String,
    /// The interface; none for the settings of the machine.
    pub interface: Option<Interface>,
}

/// The values that were set, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    version: u32,
    boot: String,
    interface: Option<Interface>,
    pub(super) steps: Vec<Step>,
}

/// A value that was set, or is about to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Step {
    pub(super) check: String,
    /// The value before.
    pub(super) was: Setting,
    /// The value that was asked for.
    pub(super) set: Setting,
    /// The value that was read back; none where nobody lived to read it.
    pub(super) made: Option<Setting>,
}

impl Step {
    /// Whether a value is the one that was set here.
    pub(super) fn is_ours(&self, is: &Setting) -> bool {
        is == self.made.as_ref().unwrap_or(&self.set)
    }
}

/// The right to write journals, until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Place {
    /// That of an interface of this name and index, or of the machine, in this process' namespace.
    ///
    /// # Errors
    /// If there is no `/proc`.
    pub fn here(interface: Option<Interface>) -> Result<Self, MendError> {
        let path = PathBuf::from("/proc/thread-self/ns/net");
        let netns = fs::metadata(&path).map_err(|why| failed(&path, why))?.ino();
        let path = PathBuf::from("/proc/sys/kernel/random/boot_id");
        let boot = fs::read_to_string(&path).map_err(|why| failed(&path, why))?;
        let boot = boot.trim().to_owned();
        Ok(Self { directory: DIRECTORY.into(), netns, boot, interface })
    }

    /// The journal's file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        let index = self.interface.as_ref().map_or(0, |it| it.index);
        self.directory.join(format!("{}-{index}.json", self.netns))
    }

    /// Makes the directory, and keeps everybody else from writing there.
    pub(super) fn lock(&self) -> Result<Lock, MendError> {
        let directory = &self.directory;
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|why| failed(directory, why))?;
        for path in [directory.parent(), Some(directory)].into_iter().flatten() {
            let found = fs::symlink_metadata(path).map_err(|why| failed(path, why))?;
            // Of a directory such as /tmp nobody can move what is another's.
            let is_sticky = found.mode() & 0o1000 != 0 && path != directory;
            let is_directory = found.file_type().is_dir();
            own(path, &found, if is_directory { 0o022 } else { 0o777 }, is_sticky)?;
        }
        let path = directory.join("lock");
        let opened = open(OpenOptions::new().read(true).write(true).create(true), &path);
        let mut file = opened.map_err(|why| failed(&path, why))?;
        let found = file.metadata().map_err(|why| failed(&path, why))?;
        own(&path, &found, 0o022, false)?;
        let lock = || flock(&file, FlockOperation::NonBlockingLockExclusive);
        let mut locked = lock();
        // A process that another thread is about to start has it for a moment, and does not know.
        for _ in 0..LOCK_TRIES {
            if locked != Err(Errno::WOULDBLOCK) {
                break;
            }
            thread::park_timeout(LOOK_EVERY);
            locked = lock();
        }
        match locked {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                // It may not have said yet who it is.
                _ = file.take(64).read_to_string(&mut holder);
                let holder = holder.replace(char::is_control, "");
                return Err(MendError::Locked { holder });
            }
            Err(why) => return Err(failed(&path, why.into())),
        }
        let written = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
        // On a full disk nothing more is set either, which is told by what cannot be stored.
        _ = written;
        Ok(Lock { _file: file })
    }
}

impl Journal {
    /// An empty one.
    fn new(place: &Place) -> Self {
        let Place { boot, interface, .. } = place.clone();
        Self { version: VERSION, boot, interface, steps: Vec::new() }
    }

    /// Reads it. One of another boot is told of on standard error, and removed.
    pub(super) fn load(place: &Place) -> Result<Self, MendError> {
        let own = place.path();
        let text = read(&own)?;
        let Some(text) = text else {
            made_anew(place)?;
            return Ok(Self::new(place));
        };
        let cut = |why: String| MendError::Cut { path: own.clone(), why };
        let journal: Self = serde_json::from_str(&text).map_err(|why| cut(why.to_string()))?;
        if journal.version != VERSION {
            return Err(cut(format!("it is of version {}", journal.version)));
        }
        if journal.boot != place.boot {
            eprintln!(
                "{} is of an earlier boot, which has taken its settings with it: it is removed",
                own.display()
            );
            remove(place)?;
            return Ok(Self::new(place));
        }
        if journal.interface != place.interface {
            return Err(other(own, journal.interface.as_ref(), place.interface.as_ref()));
        }
        let name = place.interface.as_ref().map(|it| &*it.name);
        let is_of_it = |it: &Setting| it.interface().is_none_or(|it| Some(it) == name);
        let is_whole = |step: &Step| {
            let all = [Some(&step.was), Some(&step.set), step.made.as_ref()];
            all.into_iter().flatten().all(|it| is_of_it(it) && it.is_of_same(&step.set))
        };
        if let Some(step) = journal.steps.iter().find(|it| !is_whole(it)) {
            return Err(cut(format!("{} is none of its settings", step.set)));
        }
        Ok(journal)
    }

    /// Writes it, file and directory. One without steps is removed.
    pub(super) fn store(&self, place: &Place) -> Result<(), MendError> {
        if self.steps.is_empty() {
            return remove(place);
        }
        let path = place.path();
        let new = path.with_extension("new");
        let text = serde_json::to_string_pretty(self).map_err(io::Error::from);
        let write = |text: String| {
            // One that a process left that was killed.
            gone(fs::remove_file(&new))?;
            let mut file = open(OpenOptions::new().write(true).create_new(true), &new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&place.directory)?.sync_all()
        };
        let written = text.and_then(write);
        if written.is_err() {
            _ = fs::remove_file(&new);
        }
        written.map_err(|why| failed(&path, why))
    }
}

/// Removes it, if there is one.
fn remove(place: &Place) -> Result<(), MendError> {
    let path = place.path();
    let removed = gone(fs::remove_file(&path));
    let removed = removed.and_then(|()| File::open(&place.directory)?.sync_all());
    removed.map_err(|why| failed(&path, why))
}

/// Looks for the journal of an interface that had this name, and is not there any more.
fn made_anew(place: &Place) -> Result<(), MendError> {
    let Some(interface) = &place.interface else { return Ok(()) };
    let directory = fs::read_dir(&place.directory).map_err(|why| failed(&place.directory, why))?;
    let of_namespace = format!("{}-", place.netns);
    for entry in directory.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with(&of_namespace) || !name.ends_with(".json") {
            continue;
        }
        // What is wrong with another's journal is told to whoever mends that.
        let Ok(Some(text)) = read(&entry.path()) else { continue };
        let Ok(journal) = serde_json::from_str::<Journal>(&text) else { continue };
        let is_of_name = journal.interface.as_ref().is_some_and(|it| it.name == interface.name);
        if is_of_name && journal.boot == place.boot {
            return Err(other(entry.path(), journal.interface.as_ref(), Some(interface)));
        }
    }
    Ok(())
}

fn other(path: PathBuf, noted: Option<&Interface>, is: Option<&Interface>) -> MendError {
    let words = |it: Option<&Interface>| {
        let of = |it: &Interface| format!("{} with index {}", it.name, it.index);
        it.map_or_else(|| "the machine".to_owned(), of)
    };
    MendError::OtherInterface { path, noted: words(noted), is: words(is) }
}

/// Reads a file that nobody else can have written, if it is there.
fn read(path: &Path) -> Result<Option<String>, MendError> {
    let file = match open(OpenOptions::new().read(true), path) {
        Ok(file) => file,
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(failed(path, why)),
    };
    let found = file.metadata().map_err(|why| failed(path, why))?;
    own(path, &found, 0o022, false)?;
    let mut text = String::new();
    match file.take(LEN_MAX).read_to_string(&mut text) {
        Ok(_) => Ok(Some(text)),
        Err(why) if why.kind() == ErrorKind::InvalidData => {
            Err(MendError::Cut { path: path.to_owned(), why: why.to_string() })
        }
        Err(why) => Err(failed(path, why)),
    }
}

/// Opens a file, and follows no link.
fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    options.mode(0o600).custom_flags(flags.cast_signed()).open(path)
}

/// Refuses what somebody else can write, or could have written.
fn own(
    path: &Path,
    found: &fs::Metadata,
    forbidden: u32,
    is_sticky: bool,
) -> Result<(), MendError> {
    let (owner, mode) = (found.uid(), found.mode() & 0o7777);
    let us = rustix::process::geteuid().as_raw();
    let path = path.to_owned();
    if owner != us && owner != 0 {
        let fault = format!("it belongs to user {owner}, neither to root nor to {us}");
        return Err(MendError::Foreign { path, fault });
    }
    if mode & forbidden != 0 && !is_sticky {
        return Err(MendError::Foreign {
            path,
            fault: format!("others can write it (mode {mode:o})"),
        });
    }
    Ok(())
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(why) if why.kind() != ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}

fn failed(path: &Path, why: io::Error) -> MendError {
    MendError::File { path: path.to_owned(), why }
}
