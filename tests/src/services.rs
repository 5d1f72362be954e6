//! A second service, an echo, beside 1RMA on one engine, over any backend. `rma-core` tests the
//! same scene over a wire in memory.

use core::time::Duration;

use rma_core::{
    addr::HostAddr,
    backend::Backend,
    port::Port,
    time::{Clock as _, Instant},
};
use rma_lab::scene::Scene;
use rma_xdp::time::TscClock;

/// How long the scene may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A host on each of `backends`, whose ports are 1RMA's and the echo's: reads go on while calls are
/// answered, and both are right.
///
/// # Panics
/// If one is not.
pub fn an_echo_beside_1rma<B: Backend>(
    backends: [B; 2],
    addresses: [HostAddr; 2],
    ports: [Port; 2],
) {
    let clock = TscClock::new();
    let end: Instant = clock.now() + PATIENCE;
    Scene::new(backends, addresses, ports, &clock).reads_beside_calls(|scene| {
        scene.turn();
        clock.now() < end
    });
}
