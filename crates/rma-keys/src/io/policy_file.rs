//! A policy in a file, and what becomes of it when that changes.
//!
//! As of credentials ([`crate::tls::directory`]): the file is compared by what is in it, and what
//! has changed is taken when two looks in a row see the same, and it is a policy. Until then, what
//! was taken before holds. Time is an argument.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rma_core::time::Instant;

use crate::{
    cause::Cause,
    policy::{Policy, PolicyError},
    tls::directory::LOOK_EVERY,
};

/// The reason why a file holds no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyFileError {
    /// It cannot be read.
    #[error("cannot read the policy {}: {why}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        why: Cause,
    },
    /// It is no text, or one in two octets a character.
    #[error("the policy {} is not UTF-8; `iconv -f UTF-16 -t UTF-8 OLD > NEW` makes it so", path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
    },
    /// It can be read, and is no policy.
    #[error("{}: {why}", path.display())]
    Policy {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: Box<PolicyError>,
    },
}

/// The source of a policy: paths are of files.
#[derive(Clone, Debug)]
pub enum PolicyFrom {
    /// A file. It is read anew when it changes.
    File(PathBuf),
    /// Memory. It never changes.
    Memory(Policy),
}

impl<T: AsRef<Path> + ?Sized> From<&T> for PolicyFrom {
    fn from(path: &T) -> Self {
        Self::File(path.as_ref().to_owned())
    }
}

impl From<PathBuf> for PolicyFrom {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

impl From<Policy> for PolicyFrom {
    fn from(policy: Policy) -> Self {
        Self::Memory(policy)
    }
}

/// The result of a look at the file.
type Look = Result<String, Cause>;

/// A file that is looked at again and again.
#[derive(Debug)]
pub(super) struct PolicyFile {
    path: PathBuf,
    /// The file's content when it was taken.
    held: Look,
    /// The file's content at the last look, if it is another.
    seen: Option<Look>,
    /// Whether that has been told.
    is_told: bool,
    next: Option<Instant>,
}

impl PolicyFile {
    pub(super) fn open(path: &Path) -> Result<(Self, Policy), PolicyFileError> {
        let held = read(path);
        let policy = parse(path, &held)?;
        let path = path.to_owned();
        Ok((Self { path, held, seen: None, is_told: false, next: None }, policy))
    }

    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.next
    }

    /// Looks at the file, if it is time to. A new policy is given once, an error once for each
    /// state that the file is in.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Result<Policy, PolicyFileError>> {
        if self.next.is_some_and(|next| now < next) {
            return None;
        }
        self.next = Some(now + LOOK_EVERY);
        let look = read(&self.path);
        if look == self.held {
            self.seen = None;
            return None;
        }
        if self.seen.as_ref() != Some(&look) {
            (self.seen, self.is_told) = (Some(look), false);
            return None;
        }
        if core::mem::replace(&mut self.is_told, true) {
            return None;
        }
        Some(self.take(look))
    }

    /// Reads the file now, whoever writes to it.
    pub(super) fn read_now(&mut self) -> Result<Policy, PolicyFileError> {
        self.take(read(&self.path))
    }

    fn take(&mut self, look: Look) -> Result<Policy, PolicyFileError> {
        let policy = parse(&self.path, &look)?;
        (self.held, self.seen) = (look, None);
        Ok(policy)
    }
}

fn read(path: &Path) -> Look {
    fs::read_to_string(path).map_err(Cause::from)
}

fn parse(path: &Path, look: &Look) -> Result<Policy, PolicyFileError> {
    let text = look.as_ref();
    let text = text.map_err(|&why| match (why.kind(), path.to_owned()) {
        (io::ErrorKind::InvalidData, path) => PolicyFileError::NotUtf8 { path },
        (_, path) => PolicyFileError::Read { path, why },
    })?;
    Policy::parse(text)
        .map_err(|why| PolicyFileError::Policy { path: path.to_owned(), why: Box::new(why) })
}

#[cfg(test)]
mod tests {
    use rma_lab::Scratch;

    use super::*;

    #[test]
    fn a_changed_policy_is_taken_when_two_looks_agree_and_a_broken_one_is_told_once() {
        let scratch = Scratch::new();
        let path = scratch.path().join("policy.toml");
        fs::write(&path, "allow = []").unwrap();
        let (mut file, _) = PolicyFile::open(&path).unwrap();
        let at = |looks: u32| Instant::ZERO + LOOK_EVERY * looks;
        assert!(file.poll(at(0)).is_none());
        fs::write(&path, "allow = []\nrefuse = []").unwrap();
        assert!(file.poll(at(1)).is_none(), "it may be half written");
        assert!(file.poll(at(1) + LOOK_EVERY / 2).is_none(), "it is not time");
        assert!(matches!(file.poll(at(2)), Some(Ok(_))));
        assert!(file.poll(at(3)).is_none());
        fs::write(&path, "alow = []").unwrap();
        assert!(file.poll(at(4)).is_none());
        let error = file.poll(at(5)).unwrap().unwrap_err().to_string();
        assert!(error.contains("policy.toml: the policy cannot be read"), "{error}");
        assert!(file.poll(at(6)).is_none(), "told once");
        fs::remove_file(&path).unwrap();
        assert!(file.poll(at(7)).is_none());
        let error = file.poll(at(8)).unwrap().unwrap_err().to_string();
        assert!(error.starts_with("cannot read the policy"), "{error}");
        let utf16: Vec<u8> =
            "\u{feff}allow = []".encode_utf16().flat_map(u16::to_le_bytes).collect();
        fs::write(&path, utf16).unwrap();
        let error = file.read_now().unwrap_err().to_string();
        assert!(error.contains("policy.toml is not UTF-8"), "{error}");
        fs::write(&path, "\u{feff}allow = []").unwrap();
        assert!(file.read_now().is_ok(), "a mark");
        fs::write(&path, "allow = []").unwrap();
        assert!(file.read_now().is_ok());
        assert!(file.poll(at(9)).is_none(), "it has been taken");
    }
}
