//! A figure of a paper: the interface that each one implements in a file of its own.

use rma_bench::drawing::Picture;

pub(crate) use super::{
    about::{About, Kind},
    failed::FigureFailed,
};
use super::{claims::Claim, points::Points, run::Run};

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
