//! The cost of a call to Z's engine with one connection and with many: the same, as it keeps
//! nothing of any (S4).
//!
//! Calls come one after the other, so that as many frames belong to each whichever connection it
//! is on. Z's portal has room for as many connections in both cases.

use rma_core::{crypto::AeadProvider, time::Clock};
use rma_xdp::time::TscClock;

use super::{Settings, Stations, Stepped};
use crate::scale::{OneAndMany, Random, median};

/// Connections, where there are many.
pub const MANY: u32 = 100_000;

/// Calls with one connection, and as many with many, in each round.
const CALLS: usize = 64;

/// Applications of Z: a portal has not room for all. And hosts at the other side.
const PORTALS: u32 = 10;
const HOSTS: u32 = 5;

/// With so many connections, of as many as there is room for.
pub(super) fn settings(connections: u32, aead: &'static dyn AeadProvider) -> Settings {
    let qps = MANY / PORTALS;
    Settings { hosts: HOSTS, portals: PORTALS, qps, ..Settings::of(connections, aead) }
}

/// Runs `calls` calls, each on any of so many connections, and nothing else after they are set up,
/// for a profiler: Z's turns are those of `stateless_turn`.
///
/// # Panics
/// If a call does not end well.
pub fn profile(connections: u32, calls: u64, aead: &'static dyn AeadProvider) {
    let mut stations = Stations::new(settings(connections, aead), Stepped::default());
    let mut random = Random::default();
    for _ in 0..calls {
        stations.calls(&[random.below(connections as usize) as u32]);
    }
    assert_eq!(stations.mishaps(), 0, "no frame is lost here");
}

/// Measures `rounds` rounds of calls with one connection and with many, in turns: what either
/// leaves in the caches is the same for both.
///
/// So is what is touched: messages go through a megabyte of buffers, slots are the same, and of
/// the words and records of connections, which lie in the application's memory, those of any of
/// as many are read right before a call, as part of it. With many connections it is the one that is
/// called.
///
/// # Panics
/// If a call does not end well.
#[must_use]
pub fn time(rounds: usize, aead: &'static dyn AeadProvider) -> OneAndMany {
    let clock = TscClock::new();
    let mut ends =
        [1, MANY].map(|connections| Stations::new(settings(connections, aead), clock.clone()));
    let mut random = Random::default();
    let (mut all, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
    for round in 0..=rounds {
        let mut samples = [const { Vec::new() }; 2];
        for _ in 0..CALLS {
            for (stations, samples) in ends.iter_mut().zip(&mut samples) {
                samples.push(call(stations, random.below(MANY as usize) as u32, &clock));
            }
        }
        let medians = samples.map(|mut samples| median(&mut samples));
        // The first round warms up.
        if round > 0 {
            ratios.push(medians[1] / medians[0]);
            all.iter_mut().zip(medians).for_each(|(all, median)| all.push(median));
        }
    }
    let [one, many] = all.map(|mut all| median(&mut all));
    OneAndMany { one, many, ratio: median(&mut ratios) }
}

/// A call, in nanoseconds of Z's engine.
fn call(stations: &mut Stations<TscClock>, any: u32, clock: &TscClock) -> f64 {
    let (memory, qp) = (stations.verbs(any).portal_memory(), any / PORTALS);
    let start = clock.now();
    core::hint::black_box((memory.record(qp), memory.qp_word(qp), memory.taken(qp)));
    let touched = clock.now().nanos_since(start);
    let before = stations.spent().stateless;
    stations.calls(&[any % stations.settings().connections]);
    (stations.spent().stateless - before + touched) as f64
}
