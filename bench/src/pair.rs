//! Two inline hosts in one process: a server whose region holds the pattern, and a client that reads it.
//!
//! Each runs on a thread of its own, pinned to a core of its own where there are two. Nothing else happens on
//! those threads, so what is measured is the engines and the device.

use core::time::Duration;
use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use rand::{Rng, SeedableRng, rngs::StdRng};
use rma_xdp::{
    Clock, CommandSlotId, Completion, DeviceInfo, Grant, HostAddr, HostConfig, HostError,
    InlineHost, OpStatus, OpType, Permissions, Portal, RegisteredRegion, SubmitError, TscClock,
    WaitError,
};

use crate::{
    interrupt::Interrupt,
    lab::{Lab, LabError},
    latency::Latencies,
    pattern::Pattern,
};

/// Ops that a verifying client keeps in flight.
pub const VERIFY_DEPTH: u16 = 16;

/// The largest op.
const OP_SIZE_MAX: u32 = rma_xdp::OP_SIZE_MAX;

/// Why a pair could not be opened, or a run ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PairError {
    /// A host could not be opened or did not do what it was asked.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A namespace could not be entered.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// An op was refused. A bug of the bench.
    #[error("an op was refused: {0}")]
    Submit(#[from] SubmitError),
    /// A completion cannot come. A bug of the bench.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// A byte was not what it should be.
    #[error(
        "byte {at} of the remote region arrived wrong: this must never happen, please report it"
    )]
    WrongByte {
        /// Where in the remote region.
        at: u64,
    },
    /// Too many ops in a row did not complete with OK.
    #[error("{failures} ops in a row ended with {status}; {hint}")]
    Failing {
        /// How many.
        failures: u32,
        /// How the last one ended.
        status: OpStatus,
        /// What to look at.
        hint: &'static str,
    },
    /// IPv6 was asked for where there is one IPv6 address only.
    #[error("over loopback the two hosts speak IPv4 only; leave out --ipv6, or run as root")]
    NoIpv6OnLoopback,
    /// A raw floor was asked for where there are no raw sockets. A bug of the bench.
    #[error("the raw floor needs AF_XDP sockets")]
    NoRawSockets,
    /// Somebody pressed Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

/// Ops that may fail in a row before a run is given up.
const FAILURES_MAX: u32 = 50;

/// Where the two hosts are.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// In the namespaces of a lab, over AF_XDP.
    Lab(&'a Lab),
    /// On loopback, over kernel UDP sockets.
    Loopback,
}

/// How the pair is set up.
#[derive(Clone, Copy, Debug)]
pub struct PairConfig {
    /// Bytes of the served region.
    pub region_len: usize,
    /// Seed of its pattern and of the client's choices.
    pub seed: u64,
    /// The UDP port.
    pub port: u16,
    /// Whether the hosts talk over IPv6.
    pub ipv6: bool,
}

/// The two hosts.
#[derive(Debug)]
pub struct Pair {
    /// The one that reads.
    pub client: Client,
    /// The one that is read from.
    pub server: InlineHost,
    /// Their UDP port.
    pub port: u16,
}

/// Cores for the client's and the server's thread; `None` on a machine with one core.
#[must_use]
pub fn cores() -> (Option<usize>, Option<usize>) {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    match cores[..] {
        [first, second, ..] => (Some(first.id), Some(second.id)),
        _ => (None, None),
    }
}

/// Pins the calling thread, if there is a core to pin it to.
pub fn pin(core: Option<usize>) {
    if let Some(id) = core {
        core_affinity::set_for_current(core_affinity::CoreId { id });
    }
}

impl Pair {
    /// Opens both hosts, fills the server's region, and makes a grant for the client.
    ///
    /// # Errors
    /// What could not be opened, and why.
    pub fn open(place: Place<'_>, config: &PairConfig) -> Result<Self, PairError> {
        let (client, server) = match (place, config.ipv6) {
            (Place::Lab(_), false) => (Lab::A_V4.into(), Lab::B_V4.into()),
            (Place::Lab(_), true) => (Lab::A_V6.into(), Lab::B_V6.into()),
            (Place::Loopback, false) => {
                (HostAddr::from([127, 0, 0, 1]), HostAddr::from([127, 0, 0, 2]))
            }
            // ::1 is one address, and two hosts need two.
            (Place::Loopback, true) => return Err(PairError::NoIpv6OnLoopback),
        };
        let open = |address: HostAddr| {
            let config = match place {
                Place::Lab(_) => HostConfig {
                    addresses: vec![address],
                    port: config.port,
                    ..HostConfig::xdp(Lab::INTERFACE)
                },
                Place::Loopback => HostConfig { port: config.port, ..HostConfig::udp(address) },
            };
            InlineHost::open(config)
        };
        let mut server_host = {
            let _inside = if let Place::Lab(lab) = place { Some(lab.b().enter()?) } else { None };
            open(server)?
        };
        let client_host = {
            let _inside = if let Place::Lab(lab) = place { Some(lab.a().enter()?) } else { None };
            let client_host = open(client)?;
            client_host.resolve(server)?;
            server_host.resolve(client)?;
            client_host
        };
        let pattern = Pattern::new(config.seed);
        let region = server_host.register(config.region_len, Permissions::READ)?;
        pattern.fill_region(&region);
        let grant = server_host.grant(&region, client, client_host.pid(), OpType::Read)?;
        let client = Client::new(client_host, grant, pattern, VERIFY_DEPTH)?;
        Ok(Self { client, server: server_host, port: config.port })
    }

    /// Runs `client` on the first core while the server's engine turns on the second.
    ///
    /// # Errors
    /// What `client` returns.
    ///
    /// # Panics
    /// If `client` does.
    pub fn run<T: Send>(
        &mut self,
        client: impl FnOnce(&mut Client) -> Result<T, PairError> + Send,
    ) -> Result<T, PairError> {
        let Self { client: reader, server, .. } = self;
        let (client_core, server_core) = cores();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                pin(server_core);
                while !stop.load(Relaxed) {
                    if server.turn() == 0 && server_core.is_none() {
                        thread::yield_now();
                    }
                }
            });
            let client = scope.spawn(|| {
                pin(client_core);
                client(reader)
            });
            let result = client.join();
            stop.store(true, Relaxed);
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Which devices the hosts opened; both are of one kind.
    #[must_use]
    pub fn device(&self) -> &DeviceInfo {
        self.client.host.info()
    }

    /// What works less well than it could, at both hosts.
    #[must_use]
    pub fn fallbacks(&self) -> Vec<String> {
        let mut fallbacks = self.client.host.fallbacks();
        fallbacks.extend(self.server.fallbacks());
        fallbacks.sort_unstable();
        fallbacks.dedup();
        fallbacks
    }
}

/// A host that reads, with everything that it needs for that.
#[derive(Debug)]
pub struct Client {
    /// The host.
    pub host: InlineHost,
    /// Its command slots.
    pub portal: Portal,
    /// Where data lands: one op's worth for each slot.
    pub sink: RegisteredRegion,
    /// The permission to read.
    pub grant: Grant,
    /// What the granted region holds.
    pub pattern: Pattern,
    /// For measuring.
    pub clock: TscClock,
}

/// What a verifying run has done.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Verified {
    /// Reads that completed with OK and whose bytes were all right.
    pub reads: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Ops that ended otherwise and were issued again.
    pub retried: u64,
}

impl Client {
    /// A client of `host` that keeps up to `depth` ops in flight.
    ///
    /// # Errors
    /// If slots or memory cannot be had.
    pub fn new(
        mut host: InlineHost,
        grant: Grant,
        pattern: Pattern,
        depth: u16,
    ) -> Result<Self, HostError> {
        let portal = host.portal(depth)?;
        let sink_len = usize::from(depth) * OP_SIZE_MAX as usize;
        let sink = host.register(sink_len, Permissions::NONE)?;
        Ok(Self { host, portal, sink, grant, pattern, clock: TscClock::new() })
    }

    /// Reads random parts of the granted region, `count` times, and checks every byte that arrives.
    ///
    /// # Errors
    /// If a byte is wrong, or op after op fails.
    pub fn verify(
        &mut self,
        count: u64,
        interrupt: &Interrupt,
        mut progress: impl FnMut(&Verified),
    ) -> Result<Verified, PairError> {
        let mut random = StdRng::seed_from_u64(self.pattern.seed());
        let mut in_flight: HashMap<CommandSlotId, (u64, u32)> = HashMap::new();
        let mut done = Verified::default();
        let mut again: Vec<(u64, u32)> = Vec::new();
        let mut failures = 0;
        let mut issued = 0;
        let mut bytes = [0; OP_SIZE_MAX as usize];
        while done.reads < count {
            while self.portal.outstanding() < self.portal.slots().len()
                && (issued < count || !again.is_empty())
            {
                let (offset, size) = again.pop().unwrap_or_else(|| {
                    issued += 1;
                    let most = u64::from(OP_SIZE_MAX).min(self.grant.region_len);
                    let size = random.random_range(1..=most);
                    (random.random_range(0..=self.grant.region_len - size), size as u32)
                });
                // Data lands at the place of its slot, which is free as long as the slot is.
                let place = self.portal.next_slot().map_or(0, |slot| self.place(slot));
                let slot = self.portal.read(&self.grant, offset, &self.sink, place, size)?;
                in_flight.insert(slot, (offset, size));
            }
            let completion = self.host.wait(&mut self.portal)?;
            let (offset, size) = in_flight
                .remove(&completion.slot)
                .expect("completions name slots that were issued");
            if completion.status == OpStatus::Ok {
                failures = 0;
                let arrived = &mut bytes[..size as usize];
                self.sink.read(self.place(completion.slot), arrived).expect("inside the sink");
                if let Some(at) = self.pattern.first_difference(offset, arrived) {
                    return Err(PairError::WrongByte { at });
                }
                done.reads += 1;
                done.bytes += u64::from(size);
            } else {
                again.push((offset, size));
                done.retried += 1;
                failures = count_failure(failures, completion.status)?;
            }
            if done.reads % 1024 == 0 {
                progress(&done);
                if interrupt.is_set() {
                    return Err(PairError::Interrupted);
                }
            }
        }
        Ok(done)
    }

    fn place(&self, slot: CommandSlotId) -> u64 {
        u64::from(slot.0 - self.portal.slots().start) * u64::from(OP_SIZE_MAX)
    }

    /// Reads `size` bytes at random offsets in the first `span` bytes of the region, one op after the other:
    /// `warm_up` times, then `count` times with the clock running. From before the command is issued until its
    /// completion has been polled.
    ///
    /// # Errors
    /// If op after op fails.
    pub fn measure(
        &mut self,
        size: u32,
        span: u64,
        (warm_up, count): (u64, u64),
        interrupt: &Interrupt,
    ) -> Result<Latencies, PairError> {
        let mut random = StdRng::seed_from_u64(self.pattern.seed() ^ u64::from(size));
        let mut latencies = Latencies::new();
        let mut failures = 0;
        let mut read = 0;
        // Whole cache lines, as one would lay out what is to be read fast.
        let span = span.min(self.grant.region_len);
        let places = span.saturating_sub(size.into()) / 64;
        while read < warm_up + count {
            let offset = random.random_range(0..=places) * 64;
            let start = self.clock.now();
            self.portal.read(&self.grant, offset, &self.sink, 0, size)?;
            let Completion { status, .. } = self.host.wait(&mut self.portal)?;
            let took: Duration = self.clock.now().since(start);
            if status == OpStatus::Ok {
                failures = 0;
                read += 1;
                if read > warm_up {
                    latencies.record(took);
                }
            } else {
                failures = count_failure(failures, status)?;
            }
            if read % 4096 == 0 && interrupt.is_set() {
                return Err(PairError::Interrupted);
            }
        }
        Ok(latencies)
    }
}

fn count_failure(failures: u32, status: OpStatus) -> Result<u32, PairError> {
    let failures = failures + 1;
    if failures < FAILURES_MAX {
        return Ok(failures);
    }
    let hint = match status {
        OpStatus::Timeout => {
            "is the other host running, and does a firewall let its UDP port through?"
        }
        OpStatus::RemoteAuthenticationFailure => {
            "the grant does not fit the region: make a new one, and give its PID and address here"
        }
        OpStatus::RemoteOutOfBounds => "the region is shorter than the grant says: make a new one",
        _ => "see ARCHITECTURE.md for what this status means",
    };
    Err(PairError::Failing { failures, status, hint })
}
