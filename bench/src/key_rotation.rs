//! Rotations of a region's key as clients of its key service live them: figure 14 of the paper
//! (§5.2, §7.3), with the service and its connections of TLS in the path.
//!
//! The clients probe one region without a pause. Each is a process of its own in all that concerns
//! keys: it has a portal, a cache of grants and a connection to the service, which it turns itself
//! while it waits for a key, as a thread's wake-up would take longer than a round trip. All portals
//! are of one host, and one thread drives them: what one of them does takes time from the others,
//! as it would on one NIC. On the other core, the owner of the region turns its host's engine and
//! its service between two turns of that.
//!
//! *Unavailability* of a client, its gap, is the time from the issue of its first op that failed to
//! that of the first that then succeeded. A reader of another region of the same host must not
//! notice.

use core::time::Duration;

use rma_keys::{
    io::clock,
    name::RegionName,
    ring::Holder,
    rotation::{Plan, Schedule, Way},
    tls::directory::Directory,
};
use rma_xdp::{InlineHost, NicConfigBuilder, OpType, Permissions, Timing};
use serde::Serialize;

mod beat;
mod command;
mod desk;
mod history;
mod keys;
mod owner;
mod party;
mod prober;
mod run;
pub mod transfers;

pub use command::{KeyRotationArgs, KeyRotationError, key_rotation};
pub use history::{Deed, History, What};

use crate::{
    client::Client,
    error::PairError,
    interrupt::Interrupt,
    key_service::Identities,
    latency::Latencies,
    pair::{Pair, PairConfig, Place},
};
use beat::Beaten;
use desk::Desk;
use keys::Keys;
use owner::{Owner, Served};
use party::{Other, ThirdParty};
use prober::Prober;
use run::Run;

/// How a key changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// At once, on command: clients learn of it by a refusal, and fetch.
    Reactive,
    /// At a beat: clients have fetched the next key before its turn comes.
    Proactive,
    /// The same ten times a second, on a schedule.
    Scheduled,
    /// The same, installed by a third party with the Rekey op.
    RekeyOp,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Reactive, Self::Proactive, Self::Scheduled, Self::RekeyOp];

    /// In words.
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

    /// How it is rotated, if a [`Rotation`](rma_keys::rotation::Rotation) does.
    fn plan(self) -> Option<Plan> {
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
fn beat(clients: usize) -> Duration {
    Duration::from_micros(4_000 + 600 * clients as u64)
}

/// How often a key changes that does so on a schedule.
const PERIOD: Duration = Duration::from_millis(100);

/// Bytes of each probing read.
const SIZE: u32 = 64;

/// Bytes of each region.
const REGION_LEN: usize = 64 << 10;

/// Turns of an engine between two looks at what else its thread has to do.
const TURNS_PER_LOOK: u32 = 16;

/// Looks between the moment that a host has a new key and the one when the service is told, which
/// writes that into its log: meanwhile the service gives both keys, and whoever is refused need not
/// wait for a disk.
const LOOKS_PER_INSTALL: u32 = 32;

/// The NICs' timeout: a core that the scheduler takes away fails no op, so what fails does so for
/// the key.
const PATIENT: Duration = Duration::from_secs(2);

/// The most clients that there may be: each needs four files, of 1024 that a process may have where
/// nobody has said otherwise.
pub const CLIENTS_MAX: usize = 200;

/// What became of many rotations of one kind.
#[derive(Clone, Debug)]
pub struct Rotations {
    /// Of which.
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
    histories: Vec<History>,
}

impl Rotations {
    fn new(kind: Kind, clients: usize) -> Self {
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

/// What is to be rotated, before how many, how often.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// How.
    pub kind: Kind,
    /// Clients that probe, at most [`CLIENTS_MAX`].
    pub clients: usize,
    /// Rotations.
    pub rotations: u64,
    /// Histories that are kept: of so many of the first rotations.
    pub histories: usize,
    /// UDP port of both hosts.
    pub port: u16,
}

/// Two hosts whose ops are patient.
fn open(place: Place<'_>, port: u16) -> Result<Pair, PairError> {
    let timing = Timing::software(Duration::from_micros(10), PATIENT);
    let nic = NicConfigBuilder::default().with(|it| it.timing = timing);
    Pair::open(place, &PairConfig { nic, port, ..PairConfig::default() })
}

/// Opens two hosts at `place`, and rotates the key of a region of one under the eyes of clients at
/// the other.
///
/// # Errors
/// If hosts, slots, sockets or keys cannot be had, or op after op fails.
///
/// # Panics
/// If there are more clients than [`CLIENTS_MAX`], or no directory for certificates.
pub fn rotate(
    place: Place<'_>,
    scene: Scene,
    interrupt: &Interrupt,
) -> Result<Rotations, PairError> {
    let Scene { kind, clients, rotations: count, histories, port } = scene;
    assert!((1..=CLIENTS_MAX).contains(&clients), "{clients} clients");
    let mut pair = open(place, port)?;
    let identities = Identities::new();
    let one = *pair.client.grants.any();
    let region = pair.server.register(REGION_LEN, Permissions::READ | Permissions::REKEY)?;
    let other = pair.server.register(REGION_LEN, Permissions::READ)?;
    let other = pair.server.grant(&other, one.initiator, one.pid, OpType::Read)?;
    let name: RegionName = "kv/values".parse().expect("a name");
    let served = Served::open(place, one.responder, &identities)?;
    let published = (name.clone(), region.clone());
    let clock = pair.client.clock.clone();
    let address = served.turns.address();
    let mut owner = match kind.plan() {
        Some(plan) => {
            let owner = Owner::open(&pair.server, served, published, one.responder, plan, clock)?;
            AnyOwner::Rotating(Box::new(owner))
        }
        None => {
            let mut owner = Beaten::new(served, published, one.responder, clock);
            owner.publish(&pair.server, Some(beat(clients)));
            AnyOwner::Beaten(Box::new(owner))
        }
    };
    let rekey = pair.server.grant(&region, one.initiator, one.pid, OpType::Rekey)?;
    let desk = &Desk::default();
    let mut turns = 0_u32;
    let (_, credentials) = Directory::open(&identities.client).expect("they are in order");
    let holder = Holder { initiators: one.initiator.into(), pid: one.pid };
    pair.run_beside(
        move |host, _| {
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(TURNS_PER_LOOK) {
                owner.turn(host, desk);
            }
        },
        |client: &mut Client| {
            // Sockets are of the namespace that their thread is in.
            let _inside = place.lab().map(|lab| lab.a().enter()).transpose()?;
            let mut probers = Vec::with_capacity(clients);
            for i in 0..clients {
                let who = (holder, i as u64);
                let keys = Keys::open(&credentials, address, name.clone(), who)?;
                let sink = client.host.register(SIZE as usize, Permissions::NONE)?;
                probers.push(Prober::new(keys, client.host.portal(1)?, sink));
            }
            let third = ThirdParty::new(client.host.portal(1)?, rekey);
            let other = Other::new(client.host.portal(1)?, other);
            let rotations = (Rotations::new(kind, clients), histories);
            Run::new(client, (probers, other, third), desk, rotations).all(count, interrupt)
        },
    )
}

/// Who rotates.
enum AnyOwner {
    Rotating(Box<Owner>),
    Beaten(Box<Beaten>),
}

impl AnyOwner {
    fn turn(&mut self, host: &InlineHost, desk: &Desk) {
        let now = clock::now();
        match self {
            Self::Rotating(owner) => owner.turn(now, host, desk),
            Self::Beaten(owner) => {
                if let Some(swapped) = owner.turn(now, host) {
                    desk.swapped.put(swapped);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every rotation is survived by every client, over loopback, and nobody else notices.
    #[test]
    fn clients_outlast_rotations_of_each_kind_with_one_fetch_each() {
        for (i, kind) in Kind::ALL.into_iter().enumerate() {
            let port = 10_480 + std::process::id() as u16 % 4_000 + i as u16;
            let scene = Scene { kind, clients: 5, rotations: 4, histories: 4, port };
            let rotations = rotate(Place::Loopback, scene, &Interrupt::default()).unwrap();
            assert_eq!(rotations.count, 4, "{kind:?}");
            assert_eq!((rotations.other_failed, rotations.failed_otherwise), (0, 0), "{kind:?}");
            assert!(rotations.other_ops > 0 && rotations.reads.count() > 0, "{kind:?}");
            assert_eq!(rotations.spurious, 0, "{kind:?}");
            if kind == Kind::Reactive {
                assert_eq!((rotations.gaps.count(), rotations.fetches), (20, 20));
            }
            // Who has the next key already may be stopped while the key changes, and notice
            // nothing.
            if kind == Kind::Reactive {
                let drawn = rotations.median().map(History::text);
                assert!(drawn.is_some_and(|it| it.contains("client ")), "{kind:?}");
            }
        }
    }
}
