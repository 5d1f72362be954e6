//! Figures of 1RMA (SIGCOMM 2020).

use super::figure::Figure;

/// All of them, in the paper's order.
pub(super) const FIGURES: &[&dyn Figure] = &[];
