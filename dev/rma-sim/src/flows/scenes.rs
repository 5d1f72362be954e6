//! The paper's experiments with congestion control and isolation (figures 12 and 15), as networks,
//! and the numbers that come out of them.
//!
//! One configuration is used for all: congestion control as it is by default, but for the baseline
//! of figure 15c, and a solicitation window of the bandwidth-delay product, the middle one of the
//! paper's (§7.5). What a seed draws is when flows begin within a round trip, and how much longer
//! each frame takes than the shortest.
//!
//! # What "settled" means
//!
//! The paper shows curves and says "~8 RTTs" and "~5 RTTs". Here: from when on, until the end of
//! the run, in every window of four round trips, at least 95 % of the link is used, and each flow's
//! share is within 20 % of an equal one. Four round trips are the shortest time over which shares
//! mean anything: ops of a flow come in clumps of up to a window, and with a queue a round trip is
//! twice an idle one. A time counts from the call's submission to the end of the first of these
//! windows, so each has one round trip in it in which nothing can have come, and nearly a whole
//! window in which all is well already.

use core::{fmt, time::Duration};

use rma_core::{
    cc::{Algorithm, CcConfigBuilder},
    op::OpStatus,
    time::Instant,
};

use super::{
    RTT,
    network::{Arrivals, CallRecord, Flow, FlowOptions, Keep, Log, OpRecord, run, run_into},
    rates::{Demand, Rates, rtts},
};
use crate::{check::watch::Checks, net::model_aead::Seals, prng::Prng};

/// An experiment of which a seed makes a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scene {
    /// A client begins to read 4 MiB at a time from a server, back to back: figure 15a.
    Ramp,
    /// After 400 µs it begins to read from a second server: figure 15b and d.
    Join,
    /// The same with congestion control that looks at `total_delay` only: figure 15c.
    JoinTotalDelayOnly,
    /// After 400 µs a second client begins to read from the server of the first.
    TwoClients,
}

impl Scene {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Ramp, Self::Join, Self::JoinTotalDelayOnly, Self::TwoClients];

    /// A short name, for command lines and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ramp => "ramp",
            Self::Join => "join",
            Self::JoinTotalDelayOnly => "join-total-delay-only",
            Self::TwoClients => "two-clients",
        }
    }

    /// The run of `seed`.
    #[must_use]
    pub fn options(self, seed: u64) -> FlowOptions {
        let mut phases = Prng::new(seed).fork(0xf10);
        let mut begin = |at| at + Duration::from_nanos(phases.below(RTT.as_nanos() as u64));
        let (first, second) = (begin(Duration::ZERO), begin(JOINED_AFTER));
        let flow = |client, server, from| Flow {
            client,
            server,
            len: 4 << 20,
            arrivals: Arrivals::BackToBack { from, overlapped: true },
        };
        let flows = match self {
            Self::Ramp => vec![flow(0, 1, first)],
            Self::Join | Self::JoinTotalDelayOnly => vec![flow(0, 1, first), flow(0, 2, second)],
            Self::TwoClients => vec![flow(0, 2, first), flow(1, 2, second)],
        };
        let algorithm = match self {
            Self::JoinTotalDelayOnly => Algorithm::TotalDelayOnly,
            Self::Ramp | Self::Join | Self::TwoClients => Algorithm::Aimd,
        };
        let length = match self {
            Self::Ramp => Duration::from_millis(1),
            Self::Join | Self::JoinTotalDelayOnly | Self::TwoClients => Duration::from_millis(3),
        };
        let cc = CcConfigBuilder::default().with(|it| it.algorithm = algorithm);
        FlowOptions { length, cc, ..options(seed, flows) }
    }
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// When the second flow begins: the paper's.
const JOINED_AFTER: Duration = Duration::from_micros(400);

/// The solicitation window, in bytes.
const SOLICITATION_WINDOW: u32 = 64 << 10;

/// A frame takes up to so much longer than another each way, about what one frame in a queue makes
/// of it.
const JITTER: Duration = Duration::from_nanos(200);

/// The definition of "settled", in numbers: windows of four round trips of 5 µs, and how much of
/// the link and of an equal share.
pub const DEMAND: Demand = Demand { window: Duration::from_micros(20), full: 0.95, band: 0.2 };

fn options(seed: u64, flows: Vec<Flow>) -> FlowOptions {
    let nodes = flows.iter().map(|flow| flow.client.max(flow.server)).max();
    FlowOptions {
        seed,
        nodes: nodes.map_or(0, |last| last + 1),
        flows,
        length: Duration::from_millis(1),
        cc: CcConfigBuilder::default(),
        solicitation_window: SOLICITATION_WINDOW,
        // So that it takes that long on average.
        rtt: RTT - JITTER,
        jitter: JITTER,
        seals: Seals::default(),
        checks: Checks::default(),
    }
}

/// How long it took a run to settle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settling {
    /// In round trips; if it did not happen, for how long that was observed.
    pub rtts: f64,
    /// Whether it happened.
    pub happened: bool,
    /// How many ops did not end with OK.
    pub failures: usize,
}

/// How long it takes `options` to settle after the last of its flows has begun, all of which share
/// one link.
#[must_use]
pub fn settling(options: &FlowOptions, log: &Log, demand: &Demand) -> Settling {
    let begins = options.flows.iter().map(|flow| match flow.arrivals {
        Arrivals::BackToBack { from, .. } | Arrivals::Once { from } => from,
        Arrivals::Poisson { .. } => Duration::ZERO,
    });
    let since = Instant::ZERO + begins.max().unwrap_or_default();
    let flows: Vec<usize> = (0..options.flows.len()).collect();
    let rates = Rates::new(log, flows.len(), options.length);
    let settled = rates.settled(&flows, since, demand);
    Settling {
        rtts: rtts(settled.unwrap_or_else(|| rates.end().since(since))),
        happened: settled.is_some(),
        failures: log.ops.iter().filter(|op| op.status != OpStatus::Ok).count(),
    }
}

/// The settling of `scene` with each of `seeds`, the quickest first.
#[must_use]
pub fn settlings(scene: Scene, seeds: core::ops::Range<u64>) -> Vec<Settling> {
    let settling = |seed| {
        let options = scene.options(seed);
        settling(&options, &run(&options), &DEMAND)
    };
    let mut all: Vec<Settling> = seeds.map(settling).collect();
    all.sort_by(|a, b| a.rtts.total_cmp(&b.rtts));
    all
}

/// Small reads beside a large transfer between the same two hosts: figure 12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// How many small reads there were.
    pub samples: usize,
    /// Their median latency, as the application sees it.
    pub median: Duration,
    /// The latency that one in a hundred exceeds.
    pub p99: Duration,
    /// How many ops did not end with OK.
    pub failures: usize,
}

/// The small reads: 64 B, ten thousand a second, by chance.
const SMALL: Arrivals = Arrivals::Poisson { mean_gap: Duration::from_micros(100) };

/// Measures small reads for `length`, beside one transfer of `large` bytes after the other; `None`:
/// alone.
#[must_use]
pub fn small_beside(large: Option<u64>, seed: u64, length: Duration) -> Beside {
    let flow = |len, arrivals| Flow { client: 0, server: 1, len, arrivals };
    let one_after_the_other = Arrivals::BackToBack { from: Duration::ZERO, overlapped: false };
    let large = large.map(|len| flow(len, one_after_the_other));
    let flows = [flow(64, SMALL)].into_iter().chain(large).collect();
    let (seals, checks) = (Seals::Model, Checks::Light);
    let options = FlowOptions { length, seals, checks, ..options(seed, flows) };
    let small = run_into(&options, Small::default());
    let Small { mut latencies, failures } = small;
    latencies.sort();
    let at = |part: usize| latencies.get(latencies.len() * part / 100).copied().unwrap_or_default();
    Beside { samples: latencies.len(), median: at(50), p99: at(99), failures }
}

/// The log of a run with small reads: nothing of the large ones, of which there are many.
#[derive(Debug, Default)]
struct Small {
    latencies: Vec<Duration>,
    failures: usize,
}

impl Keep for Small {
    fn op(&mut self, op: OpRecord) {
        self.failures += usize::from(op.status != OpStatus::Ok);
    }

    fn call(&mut self, call: CallRecord) {
        if call.flow == 0 {
            self.latencies.push(call.ended.since(call.submitted));
        }
    }
}
