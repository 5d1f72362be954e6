//! Figures of "Efficient RDMA Communication Protocols".

use super::figure::Figure;

/// All of them, in the paper's order.
pub(super) const FIGURES: &[&dyn Figure] = &[];
