//! Two inline hosts in one process: a server with a region that holds the pattern, and a client
//! that reads and writes it.
//!
//! Each runs on a thread of its own, pinned to a core of its own where there are two. Nothing else
//! happens on those threads, so what is measured is the engines and the device.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use rma_lab::{Lab, LabError, Pattern};
use rma_xdp::{
    DeviceInfo, HostAddr, HostConfig, HostError, InlineHost, NicConfigBuilder, OpStatus, OpType,
    Permissions, RegisteredRegion, SubmitError, WaitError,
};

use crate::{aead, client::Client, grants::Grants, model::Model, transfers::TransferError};

/// Ops that a verifying client keeps in flight.
pub const VERIFY_DEPTH: u16 = 16;

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
        "byte {at} of the remote region is not what it should be: unless somebody else writes there, this must never \
         happen, please report it"
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
    /// An op failed where none may.
    #[error(
        "a {op_type} ended with {status}, and every op of this measurement must succeed; {hint}"
    )]
    Failed {
        /// Its type.
        op_type: OpType,
        /// How it ended.
        status: OpStatus,
        /// What to look at.
        hint: &'static str,
    },
    /// Transfers could not be measured.
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// There is no grant for ops of this type.
    #[error("{op_type} is not granted: run `rma-bench serve` with --op and all that is needed")]
    NotGranted {
        /// The type.
        op_type: OpType,
    },
    /// Ops did not complete, which breaks promise P1.
    #[error(
        "{ops} ops have not completed long after their bound: this must never happen, please report it"
    )]
    NeverEnded {
        /// How many.
        ops: u64,
    },
    /// A new grant could not be fetched out of band.
    #[error("fetching a grant, over TCP or from a file: {0}")]
    Fetch(#[from] std::io::Error),
    /// A server was started and has not granted anything.
    #[error(
        "a server that was started did not serve within {within:?}; look whether the machine is too busy"
    )]
    NotServed {
        /// How long it was given.
        within: core::time::Duration,
    },
    /// IPv6 was asked for where there is one IPv6 address only.
    #[error("over loopback the two hosts speak IPv4 only; leave out --ipv6, or run as root")]
    NoIpv6OnLoopback,
    /// A raw floor was asked for where there are no raw sockets. A bug of the bench.
    #[error("the raw floor needs AF_XDP sockets")]
    NoRawSockets,
    /// A round of a measurement is worth nothing. Whoever measures in several rounds
    /// ([`rates::in_turns`](crate::rates::in_turns)) does without it.
    #[error("{0}; look whether the machine is too busy")]
    SpoiledRound(String),
    /// Too few rounds of a measurement are worth anything.
    #[error(
        "only {counted} of {rounds} rounds count, which says nothing; the last that does not: {why}; look whether the \
         machine is too busy"
    )]
    SpoiledRounds {
        /// How many count.
        counted: usize,
        /// How many there were.
        rounds: u64,
        /// What was wrong with the last one that does not.
        why: String,
    },
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
    /// Both NICs.
    pub nic: NicConfigBuilder,
}

/// Bytes of the served region, if nothing else is asked for: more than a cache holds.
const REGION_LEN: usize = 64 << 20;

impl Default for PairConfig {
    fn default() -> Self {
        Self {
            region_len: REGION_LEN,
            seed: 1,
            port: rma_xdp::DEFAULT_PORT,
            ipv6: false,
            nic: NicConfigBuilder::default(),
        }
    }
}

/// The two hosts.
#[derive(Debug)]
pub struct Pair {
    /// The one that reads and writes.
    pub client: Client,
    /// The one that has the region.
    pub server: InlineHost,
    /// The region. It permits everything.
    pub region: RegisteredRegion,
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

/// Runs `work` on a thread of its own that is pinned to `core`, so that nothing else that this
/// process does later is.
///
/// # Panics
/// As `work` does.
pub fn pinned<R: Send>(core: Option<usize>, work: impl FnOnce() -> R + Send) -> R {
    let work = || {
        pin(core);
        work()
    };
    thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

impl Pair {
    /// Opens both hosts, fills the server's region, and makes grants of all types for the client.
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
            let device = match place {
                Place::Lab(_) => HostConfig::xdp(Lab::INTERFACE),
                Place::Loopback => HostConfig::udp(address),
            };
            let &PairConfig { port, nic, .. } = config;
            let aead = aead::chosen();
            InlineHost::open(device.with(|it| {
                it.addresses = vec![address];
                it.port = port;
                it.nic = nic;
                it.aead = aead;
            }))
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
        let everything = Permissions::READ | Permissions::WRITE | Permissions::REKEY;
        let region = server_host.register(config.region_len, everything)?;
        pattern.fill_region(&region);
        let initiator = (client, client_host.pid());
        let grants = Grants::make(&mut server_host, &region, initiator, &OpType::ALL)?;
        let mut client = Client::new(client_host, grants, pattern, VERIFY_DEPTH)?;
        let mut bytes = vec![0; config.region_len];
        pattern.fill(0, &mut bytes);
        client.model = Some(Model::new(bytes));
        Ok(Self { client, server: server_host, region, port: config.port })
    }

    /// Compares the whole region with what it should hold. Returns how many bytes that were.
    ///
    /// # Errors
    /// If one is wrong.
    pub fn compare(&self) -> Result<u64, PairError> {
        let Some(model) = &self.client.model else { return Ok(0) };
        match model.first_difference_in(&self.region) {
            Some(at) => Err(PairError::WrongByte { at }),
            None => Ok(model.len()),
        }
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
        self.run_beside(|_| (), client)
    }

    /// [`Pair::run`], with something to do for the server between any two turns of its engine.
    ///
    /// # Errors
    /// What `client` returns.
    ///
    /// # Panics
    /// If `client` does.
    pub fn run_beside<T: Send>(
        &mut self,
        mut between_turns: impl FnMut(&mut InlineHost) + Send,
        client: impl FnOnce(&mut Client) -> Result<T, PairError> + Send,
    ) -> Result<T, PairError> {
        let Self { client: initiator, server, .. } = self;
        let (client_core, server_core) = cores();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                pin(server_core);
                while !stop.load(Relaxed) {
                    if server.turn() == 0 && server_core.is_none() {
                        thread::yield_now();
                    }
                    between_turns(server);
                }
            });
            let client = scope.spawn(|| {
                pin(client_core);
                client(initiator)
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

/// Counts a failure among those in a row.
///
/// # Errors
/// If there were too many.
pub(crate) fn count_failure(failures: u32, status: OpStatus) -> Result<u32, PairError> {
    let failures = failures + 1;
    if failures < FAILURES_MAX {
        return Ok(failures);
    }
    Err(PairError::Failing { failures, status, hint: hint(status) })
}

/// What to look at when ops end like this.
pub(crate) const fn hint(status: OpStatus) -> &'static str {
    match status {
        OpStatus::Timeout => {
            "nothing came back from the other host: look whether a firewall here drops the hosts' UDP port, and whether \
             the machine is too busy"
        }
        OpStatus::RemoteAuthenticationFailure => {
            "the grant is for an older key of the region: make a new one"
        }
        OpStatus::RemoteOutOfBounds => "the region is shorter than the grant says: make a new one",
        _ => "the documentation of `OpStatus` in rma-core says what this status means",
    }
}
