//! Directories for a test alone.
//!
//! Invariant: a directory is gone when its [`Scratch`] is dropped, also when the test panics.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
};

/// A directory that nobody else uses. Where the machine has a file system that has nothing to wait
/// for, it is there: what a test syncs need not survive the machine.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// An empty directory.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it makes a directory")]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let memory = PathBuf::from("/dev/shm");
        let parent = if memory.is_dir() { memory } else { env::temp_dir() };
        let path =
            parent.join(format!("1rma-test-{}-{}", process::id(), NEXT.fetch_add(1, Relaxed)));
        fs::create_dir(&path)
            .unwrap_or_else(|error| panic!("{} cannot be made: {error}", path.display()));
        Self(path)
    }

    /// Returns the directory's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_gone_after_a_panic_too() {
        let (path, made) = std::sync::mpsc::channel();
        let panicked = std::panic::catch_unwind(move || {
            let scratch = Scratch::new();
            fs::write(scratch.path().join("file"), "x").unwrap();
            path.send(scratch.path().to_owned()).unwrap();
            panic!("a test has found something");
        });
        assert!(panicked.is_err());
        assert!(!made.recv().unwrap().exists());
    }
}
