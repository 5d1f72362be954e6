//! StaR in simulation.
//!
//! | module | what it is |
//! |---|---|
//! | [`model`] | what the paper's experiments cost, in frames and cache misses: figures 1, 10 and 11 |

pub mod model;
