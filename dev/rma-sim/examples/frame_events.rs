//! How many frame events a second a simulation does on one core, real cryptography and all checks
//! included. Run it optimised:
//!
//! ```text
//! cargo run --release -p rma-sim --example frame_events
//! ```

use std::time::Instant;

use rma_sim::load::{scenario, swarm};

#[expect(clippy::disallowed_methods, reason = "it measures the simulator, from outside")]
fn main() -> Result<(), scenario::Failure> {
    let options = swarm::load();
    let started = Instant::now();
    let report = scenario::run(&options, |_| ())?;
    let elapsed = started.elapsed();
    println!("{options}\n{report}");
    let per_second = report.frame_events() as f64 / elapsed.as_secs_f64();
    println!("{} frame events in {elapsed:?}: {per_second:.0} a second", report.frame_events());
    Ok(())
}
