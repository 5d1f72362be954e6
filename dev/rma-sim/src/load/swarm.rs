//! Options drawn from a seed, so that many seeds try many networks, and the line that repeats a
//! failure.

use core::{fmt, time::Duration};

use rma_core::{
    addr::{HostAddr, LocalAddresses},
    crypto::EngineId,
    limits::OP_SIZE_MAX,
    nic::{NicConfigBuilder, NicPlace, Timing},
    time::Instant,
    wire::FRAME_LEN_MIN,
};

use crate::{
    load::{
        scenario::{Failure, OP_WIRE_LEN, Options, Report, run},
        workload::REGIONS_PER_NODE,
    },
    net::{
        beside::Spread,
        clock::ClockOptions,
        counter::CounterOptions,
        frame::ip_udp_len,
        link::{Faults, JitterLaw, LinkOptions},
        mishap::MishapOptions,
        node::{NodeOptions, Pace},
        queue::{QueueOptions, serialization},
        trace::Seen,
    },
    prng::{Chance, Prng},
};

/// The smallest MTU that carries 1RMA over IPv6.
const MTU_MIN: u16 = (FRAME_LEN_MIN + ip_udp_len(false)) as u16;

const RATES: [u64; 3] = [125_000_000, 1_250_000_000, 12_500_000_000];

impl Options {
    /// The options of swarm run number `seed`.
    ///
    /// Timeouts are drawn above what an op needs when each node has one outstanding and nothing is
    /// lost, so that the liveness phase may demand what it demands.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let options = Self::of_one_engine(seed);
        let mut engines = Prng::new(seed).fork(0x5eed + 9);
        if engines.below(ENGINES_EVERY) == 0 { spread(options, &mut engines) } else { options }
    }

    /// The same, where each host has one engine.
    #[must_use]
    pub(crate) fn of_one_engine(seed: u64) -> Self {
        let prng = Prng::new(seed);
        let [mut prng, mut mishaps, mut clocks, mut floods, mut counters, mut useless, mut paces] =
            [0, 1, 2, 3, 4, 5, 6].map(|part| prng.fork(0x5eed + part));
        let mut records = Prng::new(seed).fork(0x5eed + 8);
        let count = prng.between(2, 6);
        let (v4, v6) = prng.choose(&[(true, false), (false, true), (true, true)]);
        let link = draw_link(&mut prng);
        let switch = draw_switch(&mut prng);
        let rate = prng.choose(&RATES);
        let turn_max = paces.choose(&[0, 1_000, 20_000]);
        let turnaround = turnaround(count, &link, switch, rate, Duration::from_nanos(turn_max));
        let mut longest = Duration::ZERO;
        let in_step = clocks.below(4) == 0;
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
                let clock = draw_clock(&mut clocks);
                let clock = if in_step { ClockOptions::default() } else { clock };
                let timing = draw_timing(&mut prng, turnaround);
                longest = longest.max(timing.timeout);
                let drawn = draw_node(&mut prng, addresses, timing, rate);
                let nic = drawn.nic.with(|it| {
                    it.rtt = turnaround / 2;
                    it.outcome_records = records.choose(&[1, 4, 64, 64]);
                });
                let turn = Duration::from_nanos(paces.below(turn_max + 1));
                NodeOptions { clock, nic, pace: Pace::Engine { turn }, ..drawn }
            })
            .collect();
        let hopeless = prng.choose(&[0, 50_000, 300_000]);
        let gap_max = turnaround.as_nanos() as u64;
        let safety_ops = prng.between(1, 40) as u32;
        let gap = Duration::from_nanos(prng.magnitude(gap_max));
        let options = Self {
            seed,
            nodes,
            link,
            switch,
            mishaps: draw_mishaps(&mut mishaps, longest, gap * safety_ops),
            counters: draw_counters(&mut counters, turnaround),
            safety_ops,
            liveness_ops: prng.between(1, 6) as u32,
            mutations: Chance::ppm(prng.choose(&[0, 300_000, 700_000, 1_000_000])),
            rekeys: Chance::ppm(prng.choose(&[0, 50_000, 300_000])),
            recorded: Chance::ppm(records.choose(&[0, 0, 500_000, 1_000_000])),
            gap,
            together: 1,
            hopeless: Chance::ppm(hopeless),
            old_keys: Chance::NEVER,
            recordings: if useless.below(8) == 0 { useless.between(1, 16) as u32 } else { 0 },
            silent: if useless.below(8) == 0 { useless.between(1, count - 1) as u16 } else { 0 },
            spread: Spread::default(),
        };
        let mut lots = Prng::new(seed).fork(0x5eed + 7);
        if floods.below(FLOOD_EVERY) == 0 {
            flooded(options, &mut floods)
        } else if lots.below(BUSY_EVERY) == 0 {
            busy(options, &mut lots)
        } else {
            options
        }
    }
}

/// In one network of so many, hosts have several engines.
const ENGINES_EVERY: u64 = 3;

/// Hosts of one to four engines, each with the settings that the host had. What an op takes is
/// longer by the looks into rings, once for each hop at both ends.
fn spread(options: Options, prng: &mut Prng) -> Options {
    let Options { mut nodes, mut counters, .. } = options;
    let turn = nodes.iter().map(|node| node.look()).max().unwrap_or_default();
    let engines: Vec<u16> = nodes.iter().map(|_| prng.between(1, 4) as u16).collect();
    if engines.iter().all(|&it| it == 1) {
        return Options { nodes, counters, ..options };
    }
    for (node, engines) in nodes.iter_mut().zip(engines) {
        let timing = &mut node.nic.timing;
        (timing.dispatch_timeout, timing.timeout) =
            (timing.dispatch_timeout * 2 + turn * 8, timing.timeout * 2 + turn * 16);
        node.place = node.place.with(|it| {
            it.engines = engines;
            it.engine = if engines == 1 { it.engine } else { EngineId(0) };
        });
    }
    counters.first *= 4;
    counters.most *= 4;
    let every = prng.magnitude(options.gap.as_nanos() as u64 * 16 + 1);
    let spread = prng.choose(&[
        Spread::Right,
        Spread::Wrong,
        Spread::Hash,
        Spread::WithoutPorts,
        Spread::Changing(Duration::from_nanos(every)),
    ]);
    Options { nodes, counters, spread, ..options }
}

/// One network in so many is flooded. They take long.
const FLOOD_EVERY: u64 = 64;

/// Nodes that ask each other for what they must not have, so often that not all are told so: the
/// limits on notices let some hundreds pass at first, and some hundreds may wait. Strangers ask, or
/// those whose keys are rotated all the time, and the network plays each request twice or three
/// times: recordings of other hosts, for whoever else asks.
fn flooded(options: Options, prng: &mut Prng) -> Options {
    let Options { mut nodes, mut link, mut mishaps, .. } = options;
    nodes.truncate(3);
    for node in &mut nodes {
        node.nic.notices_per_second = prng.choose(&[1_000, 30_011, 700_000]);
        node.nic.command_slots = 256;
        node.nic.solicitation_window = 1 << 20;
    }
    link.faults.duplicate = Chance::ppm(1_000_000);
    link.faults.replay = Chance::ppm(prng.choose(&[0, 500_000, 1_000_000]));
    let safety_ops = prng.between(400, 600) as u32;
    let (hopeless, old_keys) = prng.choose(&[(1_000_000, 0), (800_000, 1_000_000)]);
    if old_keys > 0 {
        let change = Chance::ppm(1_000_000);
        let gap = options.gap * safety_ops / 8;
        mishaps = MishapOptions { count: 8, gap, change, ..MishapOptions::default() };
    }
    let (hopeless, old_keys) = (Chance::ppm(hopeless), Chance::ppm(old_keys));
    Options { nodes, link, mishaps, safety_ops, hopeless, old_keys, ..options }
}

/// In one network of so many, nodes issue several ops at once.
const BUSY_EVERY: u64 = 16;

/// Nodes that issue lots of ops, each lot in one turn and to one responder, which has room for it:
/// so most frames share packets.
fn busy(options: Options, prng: &mut Prng) -> Options {
    let Options { mut nodes, gap, .. } = options;
    let together = prng.choose(&[4, 8, 24]);
    for node in &mut nodes {
        node.nic.command_slots = 32;
        node.nic.inbound_queue = node.nic.inbound_queue.max(prng.choose(&[1, 64]));
        node.nic.pending_writes = node.nic.pending_writes.max(prng.choose(&[1, 64]));
        node.nic.solicitation_window = node.nic.solicitation_window.max(64 << 10);
        node.receive_ring = 128;
        node.mtu = node.mtu.max(prng.choose(&[1280, 1500, 9000]));
    }
    let safety_ops = together * prng.between(1, 6) as u32;
    Options { nodes, together, safety_ops, gap: gap * together, ..options }
}

/// How long an op may take when each of `count` nodes has one outstanding and nothing is lost, by
/// the fastest of clocks. Frames may wait for `turn` before they are received.
fn turnaround(
    count: u64,
    link: &LinkOptions,
    switch: Option<QueueOptions>,
    rate: u64,
    turn: Duration,
) -> Duration {
    let op = |rate| serialization(rate, OP_WIRE_LEN);
    // Of two hops in turn, each may wait for another op's data on its link, and for everything else
    // that goes to the same node, in a device and in a switch.
    let serialized = op(link.rate) * 2
        + op(rate) * 2 * (count as u32 + 1)
        + switch.map_or(Duration::ZERO, |port| op(port.rate) * 2 * (count as u32 + 1));
    let turnaround = (link.delay + link.jitter + turn) * 2 + serialized + Duration::from_micros(1);
    // The guard is an eighth of the limit.
    turnaround + turnaround / 4 + turnaround * DRIFT_PPM_MAX as u32 / 1_000_000
}

fn draw_timing(prng: &mut Prng, turnaround: Duration) -> Timing {
    let dispatch_timeout = turnaround * prng.between(1, 3) as u32;
    // So that by the formula of §6.1 some answers may wait.
    let timeout = dispatch_timeout + turnaround * prng.between(1, 4) as u32;
    Timing::new(dispatch_timeout, timeout)
}

/// The largest error of a clock: far worse than any quartz.
const DRIFT_PPM_MAX: i32 = 1000;

fn draw_clock(prng: &mut Prng) -> ClockOptions {
    let drift_ppm = prng.below(2 * DRIFT_PPM_MAX as u64 + 1) as i32 - DRIFT_PPM_MAX;
    ClockOptions { starts_at: Instant::from_nanos(prng.magnitude(1 << 60)), drift_ppm }
}

/// Half of all networks have a switch.
fn draw_switch(prng: &mut Prng) -> Option<QueueOptions> {
    let len = prng.choose(&[16 << 10, 64 << 10, 1 << 20]);
    let port = QueueOptions { rate: prng.choose(&RATES), len };
    (prng.below(2) > 0).then_some(port)
}

/// In half of all runs nodes are spared. `timeout` is the longest, `length` is about how long the
/// safety phase takes.
fn draw_mishaps(prng: &mut Prng, timeout: Duration, length: Duration) -> MishapOptions {
    let count = prng.between(1, 4) as u32;
    let most = |prng: &mut Prng, most: Duration| {
        Duration::from_nanos(prng.magnitude(most.as_nanos().max(1) as u64))
    };
    let mishaps = MishapOptions {
        count,
        gap: length / count,
        crash: Chance::ppm(prng.choose(&[0, 300_000, 300_000, 1_000_000])),
        change: Chance::ppm(prng.choose(&[0, 300_000, 700_000])),
        stall: Chance::ppm(prng.choose(&[0, 50_000, 300_000])),
        pause_max: most(prng, timeout * 8),
        down_max: most(prng, timeout * 4),
        new_keys: Chance::ppm(prng.choose(&[0, 500_000])),
        clock_step_max: most(prng, Duration::from_secs(86_400)),
    };
    if prng.below(2) > 0 { mishaps } else { MishapOptions::default() }
}

/// Blocks so small that they are used up while the next one is being reserved, and larger ones.
fn draw_counters(prng: &mut Prng, turnaround: Duration) -> CounterOptions {
    let first = prng.choose(&[8, 8, 64, 1 << 20]);
    let most = first * prng.choose(&[1, 4, 1 << 20]);
    let latency = prng.magnitude(4 * turnaround.as_nanos() as u64);
    CounterOptions { first, most, latency_max: Duration::from_nanos(latency) }
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
        law: JitterLaw::Uniform,
        rate: prng.choose(&RATES),
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
    // Drawn in this order, which seeds go by.
    let (engine, counter_start) = (EngineId(prng.below(4) as u16), prng.below(1 << 62));
    NodeOptions {
        place: NicPlace::at(addresses).with(|it| {
            it.engine = engine;
            it.counter_start = counter_start;
        }),
        nic: NicConfigBuilder::default().with(|it| {
            it.command_slots = prng.magnitude(32) as u32;
            it.regions = REGIONS_PER_NODE + prng.below(3) as u32;
            it.inbound_queue = prng.magnitude(16) as u32;
            it.pending_writes = prng.magnitude(16) as u32;
            // An eighth is the least that no timing drawn here is too short for.
            it.bandwidth = prng.choose(&[rate / 8, rate / 8, rate, 4 * rate]);
            it.solicitation_window = prng.choose(&window);
            it.timing = timing;
            it.notices_per_second = prng.choose(&[0, 1_000, 100_000, 100_000]);
        }),
        mtu: prng.choose(&[MTU_MIN, 300, 576, 1280, 1500, 1500, 3400, 9000]),
        rate,
        pace: Pace::Hardware,
        receive_ring: prng.magnitude(128) as u32,
        clock: ClockOptions::default(),
    }
}

/// A fixed load on a small network: reads, writes and rekeys of all sizes, some loss, duplicates
/// and pauses. To measure how fast simulations run, with the cryptography and all checks of every
/// run, time [`run`] of it and divide [`Report::frame_events`] by that: the figure
/// `sim_events_per_s`.
///
/// ```
/// let mut options = rma_sim::load::swarm::load();
/// options.safety_ops = 50;
/// let report = rma_sim::load::scenario::run(&options, |_| ())?;
/// assert!(report.frame_events() > 500);
/// # Ok::<(), rma_sim::load::scenario::Failure>(())
/// ```
#[must_use]
pub fn load() -> Options {
    let node = |host: u8| NodeOptions {
        place: NicPlace::at(HostAddr::from([192, 0, 2, host])),
        nic: NicConfigBuilder::default().with(|it| {
            it.command_slots = 32;
            it.regions = REGIONS_PER_NODE;
            it.timing = Timing::software(Duration::from_micros(20), Duration::from_millis(1));
        }),
        mtu: 1500,
        rate: 12_500_000_000,
        pace: Pace::Engine { turn: Duration::from_micros(1) },
        receive_ring: 256,
        clock: ClockOptions::default(),
    };
    let faults = Faults {
        loss: Chance::ppm(1_000),
        duplicate: Chance::ppm(1_000),
        corrupt: Chance::ppm(100),
        ..Faults::default()
    };
    Options {
        seed: 1,
        nodes: (1..=4).map(node).collect(),
        link: LinkOptions { faults, ..LinkOptions::default() },
        switch: Some(QueueOptions { rate: 12_500_000_000, len: 1 << 20 }),
        mishaps: MishapOptions {
            count: 20,
            gap: Duration::from_micros(500),
            pause_max: Duration::from_micros(500),
            ..MishapOptions::default()
        },
        counters: CounterOptions::default(),
        safety_ops: 10_000,
        liveness_ops: 100,
        gap: Duration::from_micros(1),
        together: 1,
        mutations: Chance::ppm(400_000),
        rekeys: Chance::ppm(10_000),
        recorded: Chance::NEVER,
        hopeless: Chance::ppm(10_000),
        old_keys: Chance::NEVER,
        recordings: 0,
        silent: 0,
        spread: Spread::default(),
    }
}

/// A run that broke a promise: what was drawn, what broke, and how to see it again.
#[derive(Debug)]
pub struct Found {
    options: Options,
    failure: Failure,
}

impl Found {
    /// Returns the failure.
    #[must_use]
    pub const fn failure(&self) -> &Failure {
        &self.failure
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { options, failure } = self;
        writeln!(f, "{options}\n{failure}")?;
        writeln!(
            f,
            "with RMA_SIM_PCAP=directory before it, this captures the packets of each node:"
        )?;
        f.write_str(&replay_line(options.seed))
    }
}

impl core::error::Error for Found {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.failure)
    }
}

/// The command that repeats the run of `seed`. With the variable `RMA_SIM_PCAP` it writes a capture
/// of each node's packets into the directory that this names.
#[must_use]
pub fn replay_line(seed: u64) -> String {
    format!("RMA_SIM_SEED={seed} cargo test -p rma-sim swarm -- --nocapture")
}

/// Runs one seed. `watch` is shown all that happens. If the run panics, its options and the line
/// that repeats it are printed.
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
    use crate::{check::violation::Violation, net::frame::NodeId};

    #[test]
    fn a_failure_shows_what_was_drawn_and_then_the_line_that_repeats_it() {
        let violation = Violation::SourceChanged { node: NodeId(1), at: 9 };
        let failure = Failure::Violation { at: Default::default(), violation };
        let found = Found { options: Options::from_seed(5), failure }.to_string();
        assert!(found.starts_with("seed 5: "), "{found}");
        let line = "RMA_SIM_SEED=5 cargo test -p rma-sim swarm -- --nocapture";
        assert!(found.ends_with(line) && found.contains("RMA_SIM_PCAP="), "{found}");
    }

    #[test]
    fn where_nodes_issue_lots_of_ops_most_frames_share_packets() {
        let busy = (0..400).filter(|&seed| Options::from_seed(seed).together > 1);
        let shares: Vec<(u64, u64)> = busy
            .map(|seed| run_seed(seed, |_| ()).unwrap_or_else(|found| panic!("{found}")))
            .map(|report| (report.shared, report.frames))
            .collect();
        assert!(shares.len() > 10, "{shares:?}");
        let most = shares.iter().filter(|&&(shared, frames)| 2 * shared > frames).count();
        assert!(2 * most > shares.len(), "{shares:?}");
    }

    #[test]
    fn every_seed_draws_settings_that_work() {
        for seed in 0..500 {
            for node in Options::from_seed(seed).nodes {
                assert!(node.nic.build(node.place).is_ok(), "seed {seed}");
                assert!(node.mtu >= MTU_MIN);
            }
        }
    }
}
