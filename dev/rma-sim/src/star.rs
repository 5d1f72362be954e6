//! StaR in simulation.
//!
//! | module | what it is |
//! |---|---|
//! | [`engines`] | shipped engines on a network: loss, many that send to one, a host that dies |
//! | [`model`] | what the paper's experiments cost, in frames and cache misses: figures 1, 10 and 11 |

pub mod engines;
pub mod model;
