//! The cause of a system call's failure, in a form that can be kept and compared: [`Cause`].

use core::fmt;
use std::io;

use rma_core::shortage::Shortage;

/// The system's reason: the limit that was met, if it is one, or else the kind of error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    kind: io::ErrorKind,
    shortage: Option<Shortage>,
}

impl Cause {
    /// The kind of error.
    #[must_use]
    pub const fn kind(self) -> io::ErrorKind {
        self.kind
    }
}

impl From<&io::Error> for Cause {
    fn from(error: &io::Error) -> Self {
        Self { kind: error.kind(), shortage: Shortage::of(error) }
    }
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        Self::from(&error)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shortage {
            Some(shortage) => shortage.fmt(f),
            None => self.kind.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_told_as_one_and_all_else_by_its_kind() {
        // EMFILE, and ENOENT.
        let told = |errno| Cause::from(io::Error::from_raw_os_error(errno)).to_string();
        assert!(told(24).contains("ulimit -n"), "{}", told(24));
        assert_eq!(told(2), "entity not found");
    }
}
