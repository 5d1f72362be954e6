//! The twenty channels of the paper's Table 2, and what each offers and costs.

mod kind;
mod rows;

pub use kind::Kind;
pub use rows::{Count, Growth, Mark, Offer, Ours};
