//! A figure of a paper: the interface that each one implements in a file of its own.

use core::fmt;

use rma_bench::{drawing::Picture, error::PairError};

use super::{
    claims::Claim,
    points::{Points, PointsError},
    run::Run,
};

/// A figure or table of a paper.
pub(crate) trait Figure: Sync {
    /// Its name and subject.
    fn about(&self) -> About;

    /// Computes or measures it. At [`Scale::Quick`](super::run::Scale) the points are some of those
    /// at full scale: equal to the bit, unless they are measured.
    ///
    /// # Errors
    /// If it cannot run here, as without root; on Ctrl-C.
    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed>;

    /// The paper's claims about it, held against `points`, which may be those of either scale. A
    /// claim whose points are not there is left out.
    fn claims(&self, points: &Points) -> Vec<Claim>;

    /// The picture of `points`; none for a table. What it says of its conditions is what the points
    /// say of theirs.
    fn picture(&self, points: &Points) -> Option<Picture>;
}

/// The name and subject of a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    /// The paper's short name and the number there, such as `1rma-10`.
    pub(crate) id: &'static str,
    /// The quantity, in a few words.
    pub(crate) title: &'static str,
    /// The paper's statement, in our words.
    pub(crate) says: &'static str,
    /// The kind of run that makes its points.
    pub(crate) kind: Kind,
    /// About how long it takes at full scale on two idle cores, in seconds.
    pub(crate) seconds: u32,
}

/// The kind of run that makes a figure's points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// The shipped code over a network in virtual time.
    Simulation,
    /// A cost model.
    Model,
    /// The shipped code in memory: measured.
    Memory,
    /// The shipped code on a real kernel over a veth pair: measured, and needs root.
    Veth,
}

impl Kind {
    /// Whether its points depend on the machine.
    #[cfg(test)]
    pub(crate) const fn is_measured(self) -> bool {
        matches!(self, Self::Memory | Self::Veth)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Simulation => "simulation",
            Self::Model => "model",
            Self::Memory => "memory",
            Self::Veth => "veth",
        })
    }
}

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
