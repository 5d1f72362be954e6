//! The scene of a rotation, its readers, and the results.
//!
//! It knows neither clients nor owners, which fill in what is here.

use core::time::Duration;

use rma_bench::{
    error::PairError,
    latency::Latencies,
    pair::{Pair, PairConfig, Place},
};
use rma_keys::rotation::{Plan, Schedule, Way};
use rma_xdp::config::{NicConfigBuilder, Timing};
use serde::Serialize;

use super::history::History;

/// The way in which a key changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// At once, on command: clients learn of it by a refusal, and fetch the new key.
    Reactive,
    /// At an announced time: clients have fetched the next key before it.
    Proactive,
    /// At announced times, ten a second, on a schedule.
    Scheduled,
    /// On the same schedule; a third party installs the keys with the Rekey op.
    RekeyOp,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Reactive, Self::Proactive, Self::Scheduled, Self::RekeyOp];

    /// Names the way in which the key changes, for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Reactive => {
                "reactive: the key changes on command, and whoever is refused fetches"
            }
            Self::Proactive => {
                "proactive: by the region's host, the next key fetched before its turn"
            }
            Self::Scheduled => "the same on a schedule, ten times a second",
            Self::RekeyOp => {
                "by the Rekey op of a third party, ten times a second, the next key fetched before its turn"
            }
        }
    }

    /// Returns the plan of the rotation, if a [`Rotation`](rma_keys::rotation::Rotation) does.
    pub(super) fn plan(self) -> Option<Plan> {
        let (way, schedule) = match self {
            Self::Proactive => return None,
            Self::Reactive => (Way::Host, Schedule::default()),
            Self::Scheduled => (Way::Host, Schedule::every(PERIOD)),
            Self::RekeyOp => (Way::Rekey, Schedule::every(PERIOD)),
        };
        Some(Plan { way, schedule, seed: 1 })
    }
}

/// A beat at which each of so many clients can fetch.
pub(super) fn beat(clients: usize) -> Duration {
    Duration::from_micros(4_000 + 600 * clients as u64)
}

/// How often a key changes that does so on a schedule.
const PERIOD: Duration = Duration::from_millis(100);

/// Bytes of each probing read.
pub(super) const SIZE: u32 = 64;

/// Bytes of each region.
pub(super) const REGION_LEN: usize = 64 << 10;

/// Turns of an engine between two looks at what else its thread has to do.
pub(super) const TURNS_PER_LOOK: u32 = 16;

/// Looks between the moment that a host has a new key and the one when the service is told, which
/// writes that into its log: meanwhile the service gives both keys, and whoever is refused need not
/// wait for a disk.
pub(super) const LOOKS_PER_INSTALL: u32 = 32;

/// The NICs' timeout: a core that the scheduler takes away fails no op, so what fails does so for
/// the key.
const PATIENT: Duration = Duration::from_secs(2);

/// The most clients that there may be: each needs four files, of 1024 that a process may have where
/// nobody has said otherwise.
pub const CLIENTS_MAX: usize = 200;

/// The results of many rotations of one kind.
#[derive(Clone, Debug)]
pub struct Rotations {
    /// The way in which the keys changed.
    pub kind: Kind,
    /// How many clients there were.
    pub clients: usize,
    /// How many rotations.
    pub count: u64,
    /// Unavailability of each client in each rotation.
    pub gaps: Latencies,
    /// The same without what it spent fetching its key.
    pub extra: Latencies,
    /// How long they waited for a fetch, from asking their connection to the grant.
    pub fetching: Latencies,
    /// Reads of the clients that succeeded while none of them waited for a key: round trips.
    pub reads: Latencies,
    /// Requests to the service.
    pub fetches: u64,
    /// Fetches that brought nothing new to keys that were refused.
    pub spurious: u64,
    /// Ops of the clients that failed with REMOTE_AUTHENTICATION_FAILURE.
    pub refused: u64,
    /// Those that failed otherwise.
    pub failed_otherwise: u64,
    /// Reads of the other region.
    pub other_ops: u64,
    /// Those that failed.
    pub other_failed: u64,
    /// Each of the last rotations.
    pub(super) histories: Vec<History>,
}

impl Rotations {
    pub(super) fn new(kind: Kind, clients: usize) -> Self {
        Self {
            kind,
            clients,
            count: 0,
            gaps: Latencies::new(),
            extra: Latencies::new(),
            fetching: Latencies::new(),
            reads: Latencies::new(),
            fetches: 0,
            spurious: 0,
            refused: 0,
            failed_otherwise: 0,
            other_ops: 0,
            other_failed: 0,
            histories: Vec::new(),
        }
    }

    /// A round trip of these clients: the median of their reads, in microseconds.
    #[must_use]
    pub fn rtt_us(&self) -> f64 {
        self.reads.quantile_us(0.5)
    }

    /// How often a client has asked the service for each rotation.
    #[must_use]
    pub fn fetches_per_client(&self) -> f64 {
        self.fetches as f64 / (self.clients as u64 * self.count).max(1) as f64
    }

    /// The rotation that took a median time from the first op that failed until all clients were
    /// back; `None` if no op failed.
    #[must_use]
    pub fn median(&self) -> Option<&History> {
        let lengths = self.histories.iter().filter_map(|it| Some((it.length()?, it)));
        let mut lengths: Vec<_> = lengths.collect();
        lengths.sort_by_key(|it| it.0);
        lengths.get(lengths.len() / 2).map(|it| it.1)
    }
}

/// The rotations of a run: the region, its number of readers, the number of rotations.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// The way in which the key changes.
    pub kind: Kind,
    /// Clients that probe, at most [`CLIENTS_MAX`].
    pub clients: usize,
    /// How often it changes.
    pub rotations: u64,
    /// Histories that are kept: of so many of the first rotations.
    pub histories: usize,
    /// UDP port of both hosts.
    pub port: u16,
}

/// Two hosts whose ops are patient.
pub(super) fn open(place: Place<'_>, port: u16) -> Result<Pair, PairError> {
    let timing = Timing::software(Duration::from_micros(10), PATIENT);
    let nic = NicConfigBuilder::default().with(|it| it.timing = timing);
    Pair::open(place, &PairConfig { nic, port, ..PairConfig::default() })
}
