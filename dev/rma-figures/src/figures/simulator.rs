//! The speed of a simulation, on one core, beside the turns of engines that it is made of.

use core::time::Duration;

use rma_bench::{aead, pair};
use rma_sim::load::{scenario, swarm};
use rma_xdp::time::{Clock, TscClock};

use super::turns::{PER_S, Side};
use crate::lone;

/// READs that are alone in a round: for nothing, and counted.
const READS: (u64, u64) = (2_000, 20_000);
/// Frames that are sent or received for a READ of 64 B: a request and a response, at both ends.
const FRAME_EVENTS: f64 = 4.0;

pub(super) const SIMULATED: Side = Side {
    words: "frames sent and received in the simulator on one core, AES-128-GCM on, every promise checked after every event",
    unit: PER_S,
    open: |_| {
        let options = swarm::load();
        Ok(Box::new(move |_, _| {
            pair::pinned(pair::cores().0, || {
                let clock = TscClock::new();
                let report = scenario::run(&options, |_| ());
                let events =
                    report.expect("the load is fixed, and keeps every promise").frame_events();
                Ok(events as f64 / Duration::from_nanos(clock.now().as_nanos()).as_secs_f64())
            })
        }))
    },
};

pub(super) const SHIPPED: Side = Side {
    words: "frames sent and received in the turns of two engines for a READ of 64 B that is alone",
    unit: PER_S,
    open: |_| {
        Ok(Box::new(|_, _| {
            let reads = pair::pinned(pair::cores().0, || lone::turns(aead::chosen(), READS));
            Ok(FRAME_EVENTS * 1e6 / reads.quantile_us(0.5))
        }))
    },
};
