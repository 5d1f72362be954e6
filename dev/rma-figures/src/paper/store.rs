//! The folder that figures are written to, each file at once or not at all.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
};

use super::{figure::About, points::Points};

/// A folder of figures.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
}

/// An error of a folder.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file cannot be written.
    #[error("{}: cannot be written: {error}; {}", path.display(), advice(error))]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// A file is not what `paper` writes.
    #[error("{}: {why}; remove it, or run the figure again", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "make room and run the figures that are missing, or give another folder"
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "give a folder that you may write to"
        }
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => "give a folder, not a file",
        _ => "give another folder",
    }
}

impl Folder {
    /// A folder, which is made if it is not there.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(crate) fn at(path: &Path) -> Result<Self, StoreError> {
        let made = fs::create_dir_all(path);
        made.map_err(|error| StoreError::Write { path: path.to_owned(), error })?;
        Ok(Self { path: path.to_owned() })
    }

    /// Writes a file: who reads it meanwhile sees the one that was there, or all of this one.
    ///
    /// # Errors
    /// If it cannot be written. What was there is there still.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), StoreError> {
        let (path, half) = (self.path.join(name), self.path.join(format!(".{name}.half")));
        let written = (|| {
            let mut file = File::create(&half)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&half, &path)
        })();
        written.map_err(|error| {
            // It is of no use to anybody, and may be why there is no room.
            let _ = fs::remove_file(&half);
            StoreError::Write { path, error }
        })
    }

    /// Removes a file that is of another run.
    pub(crate) fn remove(&self, name: &str) {
        let _ = fs::remove_file(self.path.join(name));
    }

    /// The points of a figure; `None` if it has none here.
    ///
    /// # Errors
    /// If there is a file that is not what [`Folder::write`] wrote of this figure.
    pub(crate) fn points(&self, about: &About) -> Result<Option<Points>, StoreError> {
        let path = self.path.join(format!("{}.json", about.id));
        let fault = |why: String| StoreError::Read { path: path.clone(), why };
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| fault(error.to_string()))?,
        };
        let points: Points = serde_json::from_str(&text).map_err(|it| fault(it.to_string()))?;
        points.check().map_err(|it| fault(it.to_string()))?;
        if points.id != about.id || points.kind != about.kind {
            let Points { id, kind, .. } = &points;
            return Err(fault(format!("has points of {id}, {kind}, and not of {}", about.id)));
        }
        Ok(Some(points))
    }
}

#[cfg(test)]
mod tests {
    use rma_lab::Scratch;

    use super::*;
    use crate::paper::figure::Kind;

    const ABOUT: About =
        About { id: "1rma-0", title: "", says: "", kind: Kind::Simulation, seconds: 1 };

    #[test]
    fn a_file_is_written_at_once_and_others_are_told_from_it() {
        let scratch = Scratch::new();
        let folder = Folder::at(&scratch.path().join("a/b")).unwrap();
        assert!(folder.points(&ABOUT).unwrap().is_none());
        let points = Points::new(&ABOUT, "two hosts");
        folder.write("1rma-0.json", &points.json()).unwrap();
        assert_eq!(folder.points(&ABOUT).unwrap(), Some(points.clone()));
        assert_eq!(fs::read_dir(&folder.path).unwrap().count(), 1);
        let other = Points { id: "1rma-1".to_owned(), ..points };
        for text in ["{", &other.json(), "{\"id\": 1}"] {
            folder.write("1rma-0.json", text).unwrap();
            let error = folder.points(&ABOUT).unwrap_err().to_string();
            assert!(error.ends_with("run the figure again"), "{error}");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_says_which_and_what_to_do() {
        let scratch = Scratch::new();
        let file = scratch.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [file.clone(), file.join("below")] {
            let error = Folder::at(&path).unwrap_err().to_string();
            assert!(
                error.contains("/file") && error.contains("give a folder, not a file"),
                "{error}"
            );
        }
        let folder = Folder::at(scratch.path()).unwrap();
        fs::create_dir(scratch.path().join("taken")).unwrap();
        assert!(folder.write("taken", "text").is_err());
        assert!(!scratch.path().join(".taken.half").exists());
    }
}
