//! The list of all figures.

use super::{beyond, channels, figure::Figure, one_rma, star};

/// All figures, in the order of the page.
pub(crate) fn figures() -> impl Iterator<Item = &'static dyn Figure> {
    [one_rma::FIGURES, star::FIGURES, channels::FIGURES, beyond::FIGURES]
        .into_iter()
        .flatten()
        .copied()
}
