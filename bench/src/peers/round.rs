//! One round of one peer: its amounts, and its figures.

use crate::latency::Latencies;

/// MTU of all veth pairs.
pub(super) const MTU: u32 = 3400;
/// Bytes of the memory that is fetched from.
pub(super) const MEMORY: usize = 64 << 20;
/// Seed of its pattern.
pub(super) const SEED: u64 = 1;
/// Bytes of a short fetch.
pub(super) const SHORT: u32 = 64;
/// Bytes of a long one.
pub(super) const LONG: u64 = 4 << 20;
/// Long fetches under way at once, so that one begins while the other ends.
pub(super) const LONG_AT_ONCE: u32 = 2;
/// Long fetches in a round: for nothing, and measured.
pub(super) const LONGS: (u64, u64) = (4, 24);

/// The amounts of one round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) depth: u16,
    pub(super) counts: (u64, u64),
    pub(super) longs: (u64, u64),
}

/// The figures of a peer in a round; not a number where it has none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values {
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) ops_per_s: f64,
    /// Of the client's thread, with that many under way.
    pub(super) cpu_ns_per_op: f64,
    pub(super) payload_gbit_per_s: f64,
}

impl Values {
    pub(super) const NONE: Self = Self {
        p50_us: f64::NAN,
        p99_us: f64::NAN,
        ops_per_s: f64::NAN,
        cpu_ns_per_op: f64::NAN,
        payload_gbit_per_s: f64::NAN,
    };

    pub(super) fn of(latencies: &Latencies) -> Self {
        let p99_us = latencies.percentile_us(0.99).unwrap_or(f64::NAN);
        Self { p50_us: latencies.quantile_us(0.5), p99_us, ..Self::NONE }
    }
}
