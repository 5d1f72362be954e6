//! Files that are written once, whole, and for the right eyes.
//!
//! A file appears under its name when all of it is there; one that is there already is replaced
//! only where that was asked for. Of several, all are replaced or none.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// The reason why a file cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum FileError {
    /// It is there already.
    #[error("{} is there already and is not written over; {advice}", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
        /// The next step.
        advice: &'static str,
    },
    /// It cannot be read.
    #[error("cannot read {}: {why}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        why: io::Error,
    },
    /// It cannot be written.
    #[error("cannot write {}: {why}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        why: io::Error,
    },
}

/// Makes a directory that only its owner may look into, unless it is there.
pub(crate) fn directory(path: &Path) -> Result<(), FileError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|why| FileError::Write { path: path.to_owned(), why })
}

pub(crate) fn read(path: &Path) -> Result<String, FileError> {
    fs::read_to_string(path).map_err(|why| FileError::Read { path: path.to_owned(), why })
}

pub(crate) fn octets(path: &Path) -> Result<Vec<u8>, FileError> {
    fs::read(path).map_err(|why| FileError::Read { path: path.to_owned(), why })
}

/// Fails if there is one of these files.
pub(crate) fn absent(paths: &[&Path], advice: &'static str) -> Result<(), FileError> {
    match paths.iter().find(|path| path.symlink_metadata().is_ok()) {
        None => Ok(()),
        Some(path) => Err(FileError::Exists { path: path.to_path_buf(), advice }),
    }
}

/// Writes files whole, each with its permissions. None appears under its name before all of them
/// are on the disk; if one cannot be written, or not be put in its place, all are as they were.
///
/// A run that is killed while it puts them in their places may leave some that are new and some
/// that are not, and what was there before as `NAME.old`. Another run replaces all of them.
pub(crate) fn write(files: &[(&Path, &str, u32)]) -> Result<(), FileError> {
    let failed = |path: &Path, why| FileError::Write { path: path.to_owned(), why };
    let write = || {
        for &(path, contents, mode) in files {
            write_new(&new(path), contents, mode).map_err(|why| failed(path, why))?;
        }
        for (at, &(path, ..)) in files.iter().enumerate() {
            if let Err(why) = replace(path) {
                files[..at].iter().rev().for_each(|&(path, ..)| put_back(path));
                return Err(failed(path, why));
            }
        }
        Ok(())
    };
    write().inspect_err(|_| {
        for &(path, ..) in files {
            // It may be in its place, or never have been; the error that is told came first.
            _ = fs::remove_file(new(path));
        }
    })?;
    for &(path, ..) in files {
        // There is none if nothing was replaced.
        _ = fs::remove_file(old(path));
    }
    Ok(())
}

/// Puts a file in its place. What was there is kept beside it.
fn replace(path: &Path) -> io::Result<()> {
    let old = old(path);
    remove(&old)?;
    match fs::hard_link(path, &old) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::rename(new(path), path).inspect_err(|_| _ = fs::remove_file(&old))
}

/// Undoes [`replace`]. Where that cannot be done, what was there stays beside it.
fn put_back(path: &Path) {
    let old = old(path);
    _ = if old.symlink_metadata().is_ok() { fs::rename(&old, path) } else { fs::remove_file(path) };
}

/// Returns the path of a file until it is whole.
fn new(path: &Path) -> PathBuf {
    beside(path, ".new")
}

/// Returns the path of a file that was there before, until all are replaced.
fn old(path: &Path) -> PathBuf {
    beside(path, ".old")
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(ending);
    PathBuf::from(beside)
}

/// Removes a file that a run which was killed has left, if it has.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn write_new(new: &Path, contents: &str, mode: u32) -> io::Result<()> {
    remove(new)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(new)?;
    file.write_all(contents.as_bytes())?;
    file.sync_all()
}
