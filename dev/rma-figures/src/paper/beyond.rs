//! Figures that no paper has: the shipped code where the papers did not look. Their claims are this
//! project's own, so no paper's number stands beside them.

mod control;
mod fast;
mod incast;
mod loss;
mod state;

use super::figure::Figure;

/// All of them.
pub(super) const FIGURES: &[&dyn Figure] =
    &[&incast::Incast, &loss::Loss, &control::Control, &state::State];
