//! Figures of StaR (ICNP 2021).
//!
//! | module | figures |
//! |---|---|
//! | [`curves`] | the runs that figures 10 and 11 are of: the cost model, and the shipped engines |
//! | [`reads`] | 1 |
//! | [`throughput`] | 10a, 10b |
//! | [`latency`] | 11a, 11b |
//! | [`security`] | 12 |
//! | [`tables`] | tables II and III |
//!
//! The cost model is [`rma_sim::star::model`]: no measurement of the shipped service. Every
//! parameter of it stands in its `figures`, with where it is from.

mod curves;
mod latency;
mod reads;
mod security;
mod tables;
mod throughput;

use super::figure::Figure;

/// All of them, in the paper's order.
pub(super) const FIGURES: &[&dyn Figure] = &[
    &reads::Reads,
    &throughput::RPC,
    &throughput::ML,
    &latency::RPC,
    &latency::ML,
    &security::Security,
    &tables::Tables,
];
