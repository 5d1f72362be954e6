//! Options drawn from a seed, so that many seeds try many networks, and the line that repeats a failure.

use core::{fmt, time::Duration};

use rma_core::{
    addr::{HostAddr, LocalAddresses},
    crypto::EngineId,
    limits::OP_SIZE_MAX,
    nic::{NicConfigBuilder, Timing},
    wire::{FRAME_LEN_MIN, read::RESPONSE_OVERHEAD},
};

use crate::{
    link::{Faults, LinkOptions},
    node::{NodeOptions, ip_udp_len},
    prng::{Chance, Prng},
    scenario::{Failure, Options, Report, run},
    trace::Seen,
    workload::REGIONS_PER_NODE,
};

/// The smallest MTU that carries 1RMA over IPv6.
const MTU_MIN: u16 = (FRAME_LEN_MIN + ip_udp_len(false)) as u16;

/// Everything that goes out for one op at the smallest MTU, with headers: an upper bound.
const OP_WIRE_LEN: u64 = OP_SIZE_MAX as u64 + 65 * (RESPONSE_OVERHEAD as u64 + 48 + 38);

impl Options {
    /// The options of swarm run number `seed`.
    ///
    /// Timeouts are drawn above what an op needs when each node has one outstanding and nothing is lost, so
    /// that the liveness phase may demand what it demands.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut prng = Prng::new(seed).fork(0x5eed);
        let count = prng.between(2, 6);
        let (v4, v6) = prng.choose(&[(true, false), (false, true), (true, true)]);
        let link = draw_link(&mut prng);
        let rates = [125_000_000, 1_250_000_000, 12_500_000_000];
        let rate = prng.choose(&rates);
        let turnaround = {
            let op = OP_WIRE_LEN * 1_000_000_000;
            // Its request may wait for another op's responses on one link, its responses on the other.
            let serialized = 2 * op / link.rate + (count + 1) * op / rate;
            (link.delay + link.jitter) * 2 + Duration::from_nanos(serialized + 1_000)
        };
        let timing = Timing {
            dispatch_timeout: turnaround * prng.between(1, 3) as u32,
            timeout: turnaround * prng.between(1, 4) as u32,
        };
        let nodes = (0..count)
            .map(|number| {
                let mut addresses = LocalAddresses::default();
                let host = number as u8 + 1;
                if v4 {
                    addresses.insert(core::net::Ipv4Addr::new(192, 0, 2, host).into());
                }
                if v6 {
                    addresses.insert(v6_addr(host));
                }
                draw_node(&mut prng, addresses, timing, rate)
            })
            .collect();
        let hopeless = prng.choose(&[0, 50_000, 300_000]);
        let gap_max = turnaround.as_nanos() as u64;
        Self {
            seed,
            nodes,
            link,
            safety_ops: prng.between(1, 40) as u32,
            liveness_ops: prng.between(1, 6) as u32,
            gap: Duration::from_nanos(prng.magnitude(gap_max)),
            hopeless: Chance::ppm(hopeless),
        }
    }
}

fn v6_addr(host: u8) -> HostAddr {
    core::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host.into()).into()
}

fn draw_link(prng: &mut Prng) -> LinkOptions {
    let delay = prng.magnitude(50_000);
    // One link in eight keeps frames in order; on the others reordering is the rule.
    let jitter = prng.magnitude(4 * delay + 1_000) * u64::from(prng.below(8) > 0);
    let mut fault = |most| {
        let chance = prng.magnitude(most) as u32;
        Chance::ppm(chance * u32::from(prng.below(2) > 0))
    };
    let (loss, duplicate, replay, corrupt) =
        (fault(200_000), fault(300_000), fault(50_000), fault(100_000));
    LinkOptions {
        delay: Duration::from_nanos(delay),
        jitter: Duration::from_nanos(jitter),
        rate: prng.choose(&[125_000_000, 1_250_000_000, 12_500_000_000]),
        queue: prng.choose(&[16 << 10, 64 << 10, 1 << 20]),
        faults: Faults {
            loss,
            duplicate,
            replay,
            replay_within: Duration::from_nanos(prng.magnitude(10_000_000)),
            corrupt,
        },
    }
}

fn draw_node(prng: &mut Prng, addresses: LocalAddresses, timing: Timing, rate: u64) -> NodeOptions {
    let window = [OP_SIZE_MAX, OP_SIZE_MAX + 1, 2 * OP_SIZE_MAX, 16 << 10, 64 << 10, 256 << 10];
    NodeOptions {
        nic: NicConfigBuilder {
            addresses,
            engine: EngineId(prng.below(4) as u16),
            counter_start: prng.below(1 << 62),
            command_slots: prng.magnitude(32) as u32,
            regions: REGIONS_PER_NODE + prng.below(3) as u32,
            inbound_queue: prng.magnitude(16) as u32,
            solicitation_window: prng.choose(&window),
            timing,
            notices_per_second: prng.choose(&[0, 1_000, 100_000, 100_000]),
            ..NicConfigBuilder::default()
        },
        mtu: prng.choose(&[MTU_MIN, 300, 576, 1280, 1500, 1500, 3400, 9000]),
        rate,
    }
}

/// A run that broke a promise: what was drawn, what broke, and how to see it again.
#[derive(Debug)]
pub struct Found {
    options: Options,
    failure: Failure,
}

impl Found {
    /// What broke.
    #[must_use]
    pub const fn failure(&self) -> &Failure {
        &self.failure
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { options, failure } = self;
        write!(f, "{options}\n{failure}\n{}", replay_line(options.seed))
    }
}

impl core::error::Error for Found {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.failure)
    }
}

/// The command that repeats the run of `seed`.
#[must_use]
pub fn replay_line(seed: u64) -> String {
    format!("RMA_SIM_SEED={seed} cargo test -p rma-sim swarm -- --nocapture")
}

/// Runs one seed. `watch` is shown all that happens. If the run panics, its options and the line that repeats
/// it are printed.
///
/// # Errors
/// The first promise that was not kept.
pub fn run_seed(seed: u64, watch: impl FnMut(&Seen)) -> Result<Report, Box<Found>> {
    let options = Options::from_seed(seed);
    let told = TellOnPanic(&options);
    let result = run(&options, watch);
    core::mem::forget(told);
    result.map_err(|failure| Box::new(Found { options, failure }))
}

/// A panic inside a NIC must not lose the seed.
struct TellOnPanic<'a>(&'a Options);

impl Drop for TellOnPanic<'_> {
    fn drop(&mut self) {
        eprintln!("{}\n{}", self.0, replay_line(self.0.seed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{node::NodeId, violation::Violation};

    #[test]
    fn a_failure_shows_what_was_drawn_and_then_the_line_that_repeats_it() {
        let violation = Violation::SourceChanged { node: NodeId(1), at: 9 };
        let failure = Failure::Violation { at: Default::default(), violation };
        let found = Found { options: Options::from_seed(5), failure }.to_string();
        assert!(found.starts_with("seed 5: "), "{found}");
        let line = "RMA_SIM_SEED=5 cargo test -p rma-sim swarm -- --nocapture";
        assert!(found.ends_with(line), "{found}");
    }

    #[test]
    fn every_seed_draws_settings_that_work() {
        for seed in 0..500 {
            for node in Options::from_seed(seed).nodes {
                assert!(node.nic.build().is_ok(), "seed {seed}");
                assert!(node.mtu >= MTU_MIN);
            }
        }
    }
}
