//! Errors of tasks that become a program of this project.

use crate::{cargo, requirements};

/// The reason why the program was not run, or failed.
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
