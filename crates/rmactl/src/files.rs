//! Files that are written once, whole, and for the right eyes.
//!
//! A file appears under its name when all of it is there; one that is there already is replaced
//! only where that was asked for.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Why a file cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum FileError {
    /// It is there already.
    #[error("{} is there already and is not written over; {advice}", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
        /// What to do.
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

/// Fails if there is one of these files.
pub(crate) fn absent(paths: &[&Path], advice: &'static str) -> Result<(), FileError> {
    match paths.iter().find(|path| path.symlink_metadata().is_ok()) {
        None => Ok(()),
        Some(path) => Err(FileError::Exists { path: path.to_path_buf(), advice }),
    }
}

/// Writes files whole, each with its permissions. None appears under its name before all of them
/// are on the disk, so they are as good as replaced together; if one cannot be written, none is.
pub(crate) fn write(files: &[(&Path, &str, u32)]) -> Result<(), FileError> {
    let failed = |path: &Path, why| FileError::Write { path: path.to_owned(), why };
    let write = || {
        for &(path, contents, mode) in files {
            write_new(&new(path), contents, mode).map_err(|why| failed(path, why))?;
        }
        for &(path, ..) in files {
            fs::rename(new(path), path).map_err(|why| failed(path, why))?;
        }
        Ok(())
    };
    write().inspect_err(|_| {
        for &(path, ..) in files {
            // It may be in its place, or never have been; the error that is told came first.
            _ = fs::remove_file(new(path));
        }
    })
}

/// Where a file is until it is whole.
fn new(path: &Path) -> PathBuf {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    PathBuf::from(new)
}

fn write_new(new: &Path, contents: &str, mode: u32) -> io::Result<()> {
    // What a run that was killed has left.
    match fs::remove_file(new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(new)?;
    file.write_all(contents.as_bytes())?;
    file.sync_all()
}
