//! The speed of a simulation, on one core.

use core::time::Duration;

use rma_bench::{aead, error::PairError, interrupt::Interrupt, pair, rates};
use rma_core::crypto::fastest;
use rma_sim::load::{scenario, swarm};
use rma_xdp::time::{Clock, TscClock};

use super::spec::Measured;
use crate::lone;

/// Rounds. An odd number has a middle one.
const ROUNDS: u64 = 5;
/// READs that are alone in each: for nothing, and counted.
const READS: (u64, u64) = (2_000, 20_000);
/// Frames that are sent or received for a READ of 64 B: a request and a response, at both ends.
const FRAME_EVENTS: f64 = 4.0;

pub(super) fn events(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let options = swarm::load();
    let core = pair::cores().0;
    let mut events = 0;
    let mut simulated = |(): &mut ()| {
        pair::pinned(core, || {
            let clock = TscClock::new();
            let report = scenario::run(&options, |_| ());
            events = report.expect("the load is fixed, and keeps every promise").frame_events();
            let took = Duration::from_nanos(clock.now().as_nanos());
            Ok(events as f64 / took.as_secs_f64())
        })
    };
    let mut shipped = |(): &mut ()| {
        let reads = pair::pinned(core, || lone::turns(aead::chosen(), READS));
        Ok(FRAME_EVENTS * 1e6 / reads.quantile_us(0.5))
    };
    let measures: [&mut rates::Measure<'_, ()>; 2] = [&mut simulated, &mut shipped];
    let [simulated, shipped] = rates::in_turns(&mut (), measures, ROUNDS, interrupt)?;
    let detail = format!(
        "{ROUNDS} runs: {events} frames sent and received at {:.0} ns each on one core, {} nodes, AES-128-GCM on ({}), every promise \
         checked after every event; a frame sent or received in the turns of two engines for a READ that is alone {:.0} ns",
        1e9 / simulated.median(),
        options.nodes.len(),
        fastest().name(),
        1e9 / shipped.median(),
    );
    Ok(vec![
        Measured {
            name: "sim_frame_over_turn",
            value: shipped.over(&simulated),
            detail: detail.clone(),
        },
        Measured { name: "sim_events_per_s", value: simulated.median(), detail },
    ])
}
