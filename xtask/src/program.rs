//! Why a task that becomes a program of this project did not.

use crate::{cargo, requirements};

/// Why the program was not run, or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// The machine lacks something that the program or its build needs.
    #[error(transparent)]
    Requirements(#[from] requirements::Error),
    /// Cargo did not build or run it.
    #[error(transparent)]
    Cargo(#[from] cargo::Error),
}
