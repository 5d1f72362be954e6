//! How fast a simulation goes.

use core::time::Duration;

use rma_core::crypto::fastest;
use rma_sim::load::{scenario, swarm};
use rma_xdp::{Clock, TscClock};

use super::spec::Measured;
use crate::{error::PairError, interrupt::Interrupt};

/// How fast a simulation goes, on one core.
pub(super) fn events(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let options = swarm::load();
    let mut rates: Vec<(f64, u64, Duration)> = (0..5)
        .map(|_| {
            let clock = TscClock::new();
            let report = scenario::run(&options, |_| ());
            let events = report.expect("the load is fixed, and keeps every promise").frame_events();
            let took = Duration::from_nanos(clock.now().as_nanos());
            (events as f64 / took.as_secs_f64(), events, took)
        })
        .collect();
    rates.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (value, events, took) = rates[rates.len() / 2];
    let detail = format!(
        "the median of {} runs: {events} frames sent and received in {took:.2?} on one core, {} nodes, AES-128-GCM on ({}), \
         every promise checked after every event",
        rates.len(),
        options.nodes.len(),
        fastest().name(),
    );
    Ok(vec![Measured { name: "sim_events_per_s", value, detail }])
}
