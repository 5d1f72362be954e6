//! The options of a run, and its results.

use core::time::Duration;

use rma_star::{config::StarConfigBuilder, library::VerbsConfig};

use crate::prng::Chance;

/// The workload of both applications of a connection, without a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// The paper's RPC (§V): three SENDs of 32 B to the server, which answers by one.
    Rpc,
    /// The paper's machine learning (§V): the same, but the server answers all connections once it
    /// has the SENDs of all. A connection that fails stops all.
    Ml,
    /// WRITEs of so many bytes to the server, two at a time.
    Write(u32),
    /// READs of so many bytes from the server, two at a time.
    Read(u32),
}

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The seed of its random numbers.
    pub seed: u64,
    /// Client hosts.
    pub clients: u16,
    /// Connections, spread over them evenly.
    pub connections: u32,
    /// The workload of the connections.
    pub workload: Workload,
    /// Whether the server is the stateless side.
    pub server_is_stateless: bool,
    /// How many packets of a million are lost.
    pub loss: Chance,
    /// Bytes a second of each link, headers included.
    pub rate: u64,
    /// How long a packet takes from a host to the switch, and from there to another.
    pub hop: Duration,
    /// How many bytes may wait before the link to a host. More are lost.
    pub port_len: u64,
    /// How many packets may wait for an engine. More are lost.
    pub receive_ring: usize,
    /// Settings of all engines.
    pub star: StarConfigBuilder,
    /// Settings of all libraries.
    pub verbs: VerbsConfig,
}

impl Default for Options {
    /// Eight clients with eight connections each, 10 Gbit/s, 4 µs from host to host.
    fn default() -> Self {
        Self {
            seed: 1,
            clients: 8,
            connections: 64,
            workload: Workload::Rpc,
            server_is_stateless: true,
            loss: Chance::ppm(0),
            rate: 1_250_000_000,
            hop: Duration::from_micros(2),
            port_len: 1 << 20,
            receive_ring: 2048,
            star: StarConfigBuilder::default(),
            verbs: VerbsConfig::default(),
        }
    }
}

impl Options {
    /// The same with the timers of a simulation, which go by the round trip: W and the time until
    /// something is sent again are four of them, and the least more that is allowed.
    #[must_use]
    pub fn with_timers_of(mut self, rtt: Duration) -> Self {
        let valid = 4 * rtt;
        let again = valid + valid / 8;
        (self.star.valid, self.verbs.valid) = (valid, valid);
        self.star.retransmit_timeout = again;
        (self.verbs.repost_timeout, self.verbs.repost_timeout_max) = (again, 16 * again);
        self
    }
}

/// The outcome of a part of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Calls, WRITEs or READs that have ended well.
    pub done: u64,
    /// How long each of those took, in nanoseconds.
    pub took: Vec<u64>,
    /// The longest time between two of them of one connection.
    pub longest_gap: Duration,
    /// Changes of roles that hosts have carried out.
    pub switched: u64,
    /// By connection, how many ended well.
    pub by_connection: Vec<u64>,
    /// Work requests that have failed.
    pub failed: u64,
    /// The longest time from when a host had died, or later when it was posted, until a work
    /// request of another had completed.
    pub slowest_end: Duration,
    /// Work requests of hosts that live and have not completed.
    pub open: usize,
    /// Packets that were sent, and how many of them were lost by chance.
    pub sent: u64,
    /// Packets that were lost by chance, before a link that was full, before an engine that was.
    pub lost: [u64; 3],
    /// Frames that engines have sent once more.
    pub again: u64,
    /// The most bytes that waited before the link to the server.
    pub queued_max: u64,
    /// Turns of engines.
    pub turns: u64,
}
