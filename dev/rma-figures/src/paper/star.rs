//! Figures of StaR (ICNP 2021).

use super::figure::Figure;

/// All of them, in the paper's order.
pub(super) const FIGURES: &[&dyn Figure] = &[];
