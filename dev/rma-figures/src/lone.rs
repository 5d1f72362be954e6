//! Reads of 64 B one at a time: what of a lone op is neither kernel nor wire.

use rma_bench::latency::Latencies;
use rma_core::{crypto::AeadProvider, one_rma::OneRma};
use rma_xdp::time::TscClock;

use crate::turn::{Engines, Keys};

/// Measures the turns of both engines for a read of 64 B that is alone, summed up: `warm_up` times
/// for nothing, then `count` times. All reads come under one key.
///
/// # Panics
/// As [`measure`](crate::turn::measure).
#[must_use]
pub fn turns(aead: &'static dyn AeadProvider, (warm_up, count): (u64, u64)) -> Latencies {
    let clock = TscClock::new();
    let mut engines = Engines::<OneRma>::new(aead, Keys::One, clock.clone());
    let mut latencies = Latencies::new();
    for index in 0..warm_up + count {
        let [initiator, responder] = engines.reads(1, &clock);
        if index >= warm_up {
            latencies.record_nanos(initiator + responder);
        }
    }
    latencies
}

#[cfg(test)]
mod tests {
    use rma_core::crypto::fastest;

    use super::*;

    #[test]
    fn each_read_that_is_counted_took_some_time() {
        let latencies = turns(fastest(), (10, 200));
        assert_eq!(latencies.count(), 200);
        assert!(latencies.quantile_us(0.0) > 0.0);
    }
}
