//! Figures of "Efficient RDMA Communication Protocols".
//!
//! | module | figures |
//! |---|---|
//! | [`stand`] | the hosts that they are measured on, rounds, ratios, panels |
//! | [`copies`] | 4: requests through send/recv whose server copies them into a log, or does not |
//! | [`round_trips`] | 5: median round trips by the size of messages |
//! | [`distribution`] | 6: times of messages through a read ring, and those of a ring |
//! | [`throughput`] | 7: throughput of rings and send/recv |
//! | [`fan_in`] | 9a: what eight senders get through one shared ring |
//! | [`broadcast`] | 9b: what four receivers of a read ring get |
//! | [`prefetching`] | 10: one receiver, by how much it prefetches |
//! | [`tables`] | tables 1 and 2 |
//!
//! Shapes are compared, not values: the paper's are in its plots alone, on InfiniBand NICs. Figure
//! 8 has no counterpart: it moves the head of a shared ring to memory of the NIC, and an engine in
//! software has it in its cache anyway.

mod broadcast;
mod copies;
mod distribution;
mod fan_in;
mod prefetching;
mod round_trips;
mod stand;
mod tables;
mod throughput;

use super::figure::Figure;

/// All of them, in the paper's order.
pub(super) const FIGURES: &[&dyn Figure] = &[
    &tables::Transports,
    &tables::Protocols,
    &copies::Copies,
    &round_trips::RoundTrips,
    &distribution::Distribution,
    &throughput::Throughput,
    &fan_in::FanIn,
    &broadcast::Broadcast,
    &prefetching::Prefetching,
];
