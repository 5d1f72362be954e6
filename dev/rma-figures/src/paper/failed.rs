//! Reasons why a figure has no points.

use rma_bench::error::PairError;

use super::points::PointsError;

/// A reason why a figure has no points.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FigureFailed {
    /// Somebody asked the program to end.
    #[error("interrupted")]
    Interrupted,
    /// Hosts could not be set up, or an op failed.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// A value cannot be stored.
    #[error(transparent)]
    Points(#[from] PointsError),
    /// A run cannot be made with these settings.
    #[error("{0}")]
    Settings(String),
}

impl FigureFailed {
    /// Whether it is the same however often one tries.
    pub(crate) const fn is_lasting(&self) -> bool {
        !matches!(self, Self::Pair(error) if !matches!(error, PairError::Lab(_) | PairError::Interrupted))
    }

    /// Whether the program may not do here what the figure needs.
    pub(crate) const fn is_forbidden(&self) -> bool {
        use rma_lab::LabError::{MissingCapability, NotRoot};
        matches!(self, Self::Pair(PairError::Lab(NotRoot { .. } | MissingCapability { .. })))
    }
}
