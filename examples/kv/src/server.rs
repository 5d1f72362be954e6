//! A server: a host with an index and values, the service of their keys, and that of puts.
//!
//! Its part in a get is over when it has registered its regions: clients read them one-sided.

use core::time::{Duration, TryFromFloatSecsError};
use std::{
    io::{self, Write},
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    sync::{Arc, Mutex},
    thread,
};

use clap::Args;
use rma_xdp::{
    Host, HostAddr, HostConfig, HostError, OpType, Permissions,
    config::{IdlePolicy, Timing},
    device::Device,
    keys::{KeyServer, KeyServerConfig, KeyServerError, Schedule},
};

use crate::{
    layout::BUCKET_LEN,
    puts::{CONNECTION_TIME, PutServer},
    store::Store,
};

/// By which name clients ask for the index.
pub const INDEX: &str = "kv/index";
/// By which name they ask for the values.
pub const VALUES: &str = "kv/values";

/// How often it is looked whether keys have changed, to say so.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The settings of a server.
#[derive(Args, Clone, Debug)]
pub struct ServerArgs {
    /// Use kernel UDP sockets, bound to this address
    #[arg(long, required_unless_present = "interface")]
    pub udp: Option<HostAddr>,
    /// Use AF_XDP on this interface: faster, and needs privileges
    #[arg(long, conflicts_with = "udp")]
    pub interface: Option<String>,
    /// UDP port of 1RMA, the same on all hosts
    #[arg(long, default_value_t = rma_xdp::config::DEFAULT_PORT)]
    pub port: u16,
    /// Address to serve keys on
    #[arg(long)]
    pub keys: SocketAddr,
    /// Address to take puts on
    #[arg(long)]
    pub puts: SocketAddr,
    /// Directory of credentials, as `rmactl ca issue` makes it
    #[arg(long)]
    pub credentials: PathBuf,
    /// Policy file: who may have which keys, and who may put
    #[arg(long)]
    pub policy: PathBuf,
    /// File for an audit log of keys
    #[arg(long)]
    pub audit: Option<PathBuf>,
    /// Buckets in the index, of eight keys each
    #[arg(long, default_value_t = 4096)]
    pub buckets: u32,
    /// Memory for values, in MiB
    #[arg(long, default_value_t = 64)]
    pub memory: usize,
    /// Seconds between changes of each region's key
    #[arg(long, default_value_t = 3600.0)]
    pub rotate: f64,
}

/// The reason why a server does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The host cannot be opened, or has no memory.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Keys are not served.
    #[error(transparent)]
    Keys(#[from] KeyServerError),
    /// Puts are not taken, or nobody hears what is told.
    #[error("puts at {address}: {source}")]
    Puts {
        /// The address for them.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// No such time can be.
    #[error("a key every {seconds} seconds: {why}; say a number of seconds, such as 3600")]
    Rotate {
        /// The given number.
        seconds: f64,
        /// The fault.
        why: TryFromFloatSecsError,
    },
}

/// Returns the timing of the cache's hosts. A get to a server that is gone waits for a TIMEOUT, so
/// this is shorter than the default; but one that is wrong sends gets elsewhere, and makes more
/// load where there is too much, so it is some time slices of cores that others use as well. Where
/// engines have cores of their own, 5 ms will do.
pub fn timing() -> Timing {
    Timing::software(Duration::from_micros(50), Duration::from_millis(50))
}

/// Returns the idle policy of hosts over UDP: they sleep at once. A demo has more of them than a
/// machine has cores, and whoever waits awake takes a core from whom it waits for.
pub fn idle() -> IdlePolicy {
    let mut idle = IdlePolicy::default();
    (idle.spin, idle.yield_for) = (Duration::ZERO, Duration::ZERO);
    idle
}

/// A host of the cache, which is set to [`timing`], and to [`idle`] where it is over UDP.
///
/// # Errors
/// If it cannot be opened.
pub fn host(config: HostConfig, port: u16) -> Result<Host, HostError> {
    let mut config = config;
    config.port = port;
    config.nic.timing = timing();
    if matches!(config.device, Device::Udp { .. }) {
        config.idle = idle();
    }
    Host::open(config)
}

/// Serves until the process ends. Says on its standard output when it is ready, and when a key has
/// changed.
///
/// # Errors
/// The error names what is missing or wrong.
pub fn serve(args: &ServerArgs) -> Result<(), ServeError> {
    let seconds = args.rotate;
    let rotate =
        Duration::try_from_secs_f64(seconds).map_err(|why| ServeError::Rotate { seconds, why })?;
    let config = match (&args.interface, args.udp) {
        (Some(interface), _) => HostConfig::xdp(interface),
        (None, Some(address)) => HostConfig::udp(address),
        (None, None) => unreachable!("one of them is required"),
    };
    let host = Arc::new(host(config, args.port)?);
    let index = host.register(args.buckets as usize * BUCKET_LEN, Permissions::READ)?;
    let values = host.register(args.memory << 20, Permissions::READ)?;
    let config = KeyServerConfig::new(args.keys, &args.credentials, &args.policy)
        .with(|it| it.audit.clone_from(&args.audit));
    // Clients that wait for a server that starts again are never told that it has no such region.
    let schedule = Schedule::every(rotate);
    let regions = [(INDEX, &index, schedule), (VALUES, &values, schedule)];
    let keys = KeyServer::start_with(Arc::clone(&host), &config, &regions)?;

    let rests = timing().bound(OpType::Read) * 2;
    let store = Arc::new(Mutex::new(Store::new(index, values, rests)));
    let address = args.puts;
    let failed = |source| ServeError::Puts { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let (credentials, policy) = (args.credentials.clone(), args.policy.clone());
    let puts = PutServer { credentials, policy, store, connection_time: CONNECTION_TIME };
    let taking = thread::spawn(move || puts.serve(&listener));
    let say = |what: &str| {
        let mut out = io::stdout().lock();
        writeln!(out, "{what}").and_then(|()| out.flush()).map_err(failed)
    };
    say("ready")?;
    let mut rotated = 0;
    while !taking.is_finished() {
        thread::park_timeout(LOOK_EVERY);
        let now = keys.counters().keys.rotations.rotated;
        for _ in rotated..now {
            say("rotated")?;
        }
        rotated = now;
    }
    let panicked = || Err(io::Error::other("the thread that takes them panicked"));
    taking.join().unwrap_or_else(|_| panicked()).map_err(failed)
}
