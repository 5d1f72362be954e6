//! `rma-bench serve`: a region and a receive queue for another process, on another machine or in
//! another namespace. What measures there is [`load`](crate::load).

use core::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};
use std::{
    cell::RefCell,
    env,
    path::{Path, PathBuf},
    thread,
};

use clap::{Args, ValueEnum};
use rma_keys::io::addresses::Addresses;
use rma_lab::Pattern;
use rma_xdp::{
    Host, HostAddr, HostConfig, HostError, HostOf, InlineHost, OpType, Permissions, Pid,
    RegisteredRegion,
    capture::{CaptureEndpoint, CaptureEndpointError, DIRECTORY},
    config::{DEFAULT_PORT, Timing},
    device::Engines,
    engine::EngineKind,
    keys::{InlineKeyServer, OpSet, Peer, RegionName},
    metrics::{EndpointError, MetricsEndpoint},
};

use crate::{
    backend::{DeviceArgs, DeviceError},
    bytes::Bytes,
    capture::{CapturingError, SNAP, begin_own},
    conditions::{Conditions, Pinning, interface_of},
    cores::{self, Cores, CoresError},
    cpu::CoreTimes,
    error::{NOTHING_COMES_BACK, PairError},
    grant_file::{GrantFile, GrantFileError},
    grants::Grants,
    inbox::{Inbox, Received},
    interface_news::InterfaceNews,
    interrupt::Interrupt,
    invite::Invitation,
    keys::{KeysError, PORT, Published, SEED, ServeKeyArgs, asked_at, queue_name},
    line,
    machine::Machine,
    numa::{self, NumaError},
    pair::pin,
    session::{Hello, Lane, Meter, Serving, Sessions, Usage, Versions, examine, in_a_line},
};

mod engines;
mod status;

use engines::Turned;
use status::Status;

/// Once in how many turns of the engine keys are served. More often, and ops wait for the system
/// calls; less often, and clients do.
const KEYS_EVERY: u64 = 1024;

/// How long the engine leaves its core to a peer that is compared with, if nothing has come: what
/// comes meanwhile waits. More often it would be seen in one exchange of a hundred.
const NAP: Duration = Duration::from_millis(10);

/// Looks for messages without one after which the thread that serves keys rests between two, where
/// engines have threads of their own: about a millisecond, as any thread yields that long.
const QUIET: u64 = 1024;

/// How long it rests. More often costs a part of a core, less often is late for clients and for the
/// first messages of many.
const REST: Duration = Duration::from_micros(250);

/// Once in how many turns of the engine it is looked how the interface is: some hundredths of a
/// second. More often costs turns, less often tells late.
const NEWS_EVERY: u64 = 1 << 16;

/// The arguments about this host that both commands take.
#[derive(Args, Clone, Debug)]
pub struct HostArgs {
    #[command(flatten)]
    device: DeviceArgs,
    /// Address of this host, if the interface has several. A link-local address may name its
    /// interface: fe80::1%eth1.
    #[arg(long, value_name = "ADDRESS", value_parser = own_address)]
    address: Vec<OwnAddress>,
    /// Cores to pin threads to: engines' first, then one for each thread that issues ops, if there
    /// are several; separated by commas, or as 2-5.
    #[arg(long, alias = "core", value_name = "LIST")]
    cores: Option<Cores>,
    /// auto: stay on the NUMA node of the network interface, with all memory, and refuse --cores of
    /// another.
    #[arg(long, value_enum, value_name = "HOW")]
    numa: Option<Numa>,
    /// Write this host's packets to a file, as pcapng, with what became of each frame.
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Octets that `--capture` keeps of each packet, headers included. `rma-bench decrypt` needs
    /// whole packets: 65535.
    #[arg(long, value_name = "OCTETS", default_value_t = SNAP, value_parser = clap::value_parser!(u32).range(0..=65_535))]
    capture_snap: u32,
    /// Keep the machine's cores out of idle states that take long to leave. Needs root.
    #[arg(long)]
    pub(crate) low_latency: bool,
}

/// The use that is made of NUMA nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Numa {
    Auto,
}

impl HostArgs {
    /// Of a device, with all else as it is by default.
    pub(crate) fn of_device(device: DeviceArgs) -> Self {
        let (address, cores, numa, low_latency, capture) = (Vec::new(), None, None, false, None);
        Self { device, address, cores, numa, low_latency, capture, capture_snap: SNAP }
    }

    /// The cores that were asked for, engines' first.
    pub(crate) fn cores(&self) -> &[usize] {
        self.cores.as_ref().map_or(&[], Cores::all)
    }

    /// Pins the calling thread, whose engine it is.
    pub(crate) fn pin(&self) {
        pin(self.cores().first().copied());
    }

    /// Looks whether a server on this machine, whose engine and threads have these cores, has
    /// others than were asked for here.
    pub(crate) fn check_other_side(&self, servers: &[usize]) -> Result<(), ServeError> {
        Ok(self.cores.as_ref().map_or(Ok(()), |it| it.check_other_side(servers))?)
    }

    /// The part of it that conditions tell.
    pub(crate) fn pinning(&self, yields: bool) -> Pinning<'_> {
        Pinning { cores: self.cores(), low_latency: self.low_latency, yields }
    }
}

/// The settings of a host beside its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) port: u16,
    pub(crate) pid: Pid,
    /// The server toward which it is opened, if no device is named.
    pub(crate) server: Option<SocketAddr>,
    pub(crate) tuning: Tuning,
}

/// Settings that not all hosts of this program have alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    /// Threads that are pinned.
    pub(crate) threads: usize,
    /// Command slots that are needed.
    pub(crate) slots: u32,
    /// How long an op may wait for its data, if that was said.
    pub(crate) timeout: Option<Duration>,
    pub(crate) engines: Engines,
}

impl Default for Tuning {
    /// Of one thread.
    fn default() -> Self {
        Self { threads: 1, slots: 0, timeout: None, engines: Engines::One }
    }
}

/// An address of this host, as people type it.
#[derive(Clone, Debug)]
struct OwnAddress {
    address: HostAddr,
    /// The interface that it is on, if that was said.
    zone: Option<String>,
}

fn own_address(text: &str) -> Result<OwnAddress, AddressError> {
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) => (address, Some(zone.to_owned())),
        None => (text, None),
    };
    Ok(OwnAddress { address: address.parse()?, zone })
}

/// A type of op, as people type it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Op {
    /// READ: copy bytes of the region to the reader.
    Read,
    /// WRITE: copy bytes of the writer into the region.
    Write,
    /// Rekey: install a new key for the region.
    Rekey,
    /// SEND: send messages into a receive queue.
    Send,
    /// COMPARE_SWAP: replace a word of the region if it has the expected value.
    CompareSwap,
    /// FETCH_ADD: add to a word of the region.
    FetchAdd,
}

impl Op {
    const fn op_type(self) -> OpType {
        match self {
            Self::Read => OpType::Read,
            Self::Write => OpType::Write,
            Self::Rekey => OpType::Rekey,
            Self::Send => OpType::Send,
            Self::CompareSwap => OpType::CompareSwap,
            Self::FetchAdd => OpType::FetchAdd,
        }
    }
}

/// Arguments of `serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    keys: ServeKeyArgs,
    /// Write a grant to a file, for the host of this address, instead of serving keys.
    #[arg(long, value_name = "ADDRESS", value_parser = one_host, conflicts_with = "keys")]
    initiator: Option<HostAddr>,
    /// Process number that the grant is for. `read-lat` and `write-lat` take it from the grant.
    #[arg(long, default_value_t = 1)]
    pid: u32,
    /// Ops that are allowed, separated by commas. `write-lat` needs read and write, since it reads
    /// its bytes back. `send` goes to a receive queue of 64 messages of up to 4096 B. A grant file
    /// is for that alone, or for the others. Default: read; for those who are invited, all but
    /// rekey.
    #[arg(long = "op", value_enum, value_delimiter = ',', value_name = "OPS")]
    ops: Vec<Op>,
    /// File to write the grant to. It holds a key, and is created with mode 0600.
    #[arg(
        long = "grant-file",
        alias = "grant",
        value_name = "FILE",
        default_value = "rma-grant.json",
        requires = "initiator"
    )]
    grant: PathBuf,
    /// Size of the served region, in bytes. K, M and G are powers of two.
    #[arg(long, default_value = "64M", value_name = "BYTES")]
    region_len: Bytes,
    /// How many clients may write at once, each to a part of the region's second half that is its
    /// own. Nobody writes to the first half.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    lanes: u32,
    /// Seed of the pattern that fills the region.
    #[arg(long, default_value_t = SEED)]
    seed: u64,
    /// Engines over AF_XDP: a number, or per-queue for one for each queue. Where there are several,
    /// each has receive queues and a thread, and a core of --cores.
    #[arg(long, value_name = "N", default_value_t, value_parser = engines::parse)]
    engines: Engines,
    /// UDP port, the same on all hosts.
    #[arg(long, default_value_t = DEFAULT_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Serve metrics for Prometheus at http://ADDRESS:PORT/metrics, to anybody who can connect:
    /// prefer a loopback address.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<Addresses>,
    /// Directory for the socket by which `rma-bench capture` reaches this host. Default: /run/1rma,
    /// if this user may write there.
    #[arg(long, value_name = "DIRECTORY")]
    capture_directory: Option<PathBuf>,
    /// Say on standard error how it goes, each so many seconds; 0 for never. Default: each second,
    /// if that is a terminal.
    #[arg(long, value_name = "SECONDS")]
    interval: Option<u64>,
    /// Stop after this many seconds. Default: serve until Ctrl-C.
    #[arg(long, value_name = "SECONDS")]
    duration: Option<u64>,
}

impl ServeArgs {
    fn opening(&self) -> Opening {
        let threads = match self.engines {
            Engines::Count(engines) => engines as usize,
            // As many as there are queues, which is known when they are open.
            Engines::PerQueue => self.host.cores().len(),
            Engines::One => 1,
        };
        let tuning = Tuning { threads, engines: self.engines, ..Tuning::default() };
        Opening { port: self.port, pid: Pid(std::process::id()), server: None, tuning }
    }

    /// The ops that are served.
    fn op_types(&self) -> Vec<OpType> {
        let is_invitation = self.initiator.is_none() && self.keys.id.is_none();
        let ops = match &*self.ops {
            [] if is_invitation => &[Op::Read, Op::Write, Op::CompareSwap, Op::FetchAdd, Op::Send],
            [] => &[Op::Read][..],
            ops => ops,
        };
        ops.iter().map(|op| op.op_type()).collect()
    }
}

/// The reason why an address is no host's.
#[derive(Debug, thiserror::Error)]
enum AddressError {
    /// It is no address.
    #[error("{0}: give one such as 192.0.2.1 or fd00::1; names are not looked up")]
    Syntax(#[from] core::net::AddrParseError),
    /// Nobody sends from it, so a grant for it could not be used.
    #[error("{what} is not the address of one host: give the one that the granted host sends from")]
    NotOneHost {
        /// The kind of address that it is.
        what: &'static str,
    },
}

/// Reads the address of one host.
fn one_host(text: &str) -> Result<HostAddr, AddressError> {
    let address: HostAddr = text.parse()?;
    let ip = address.ip();
    let what = if ip.is_unspecified() {
        "the unspecified address"
    } else if ip.is_multicast() {
        "a multicast address"
    } else if ip == IpAddr::V4(Ipv4Addr::BROADCAST) {
        "the broadcast address"
    } else {
        return Ok(address);
    };
    Err(AddressError::NotOneHost { what })
}

/// An error that ended one of the commands early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The host could not be opened or did not do what it was asked.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Metrics cannot be served.
    #[error(transparent)]
    Metrics(#[from] EndpointError),
    /// The grant file is of no use.
    #[error(transparent)]
    Grant(#[from] GrantFileError),
    /// The cores that were asked for cannot be had.
    #[error(transparent)]
    Cores(#[from] CoresError),
    /// The node of the interface cannot be kept to.
    #[error(transparent)]
    Numa(#[from] NumaError),
    /// The device that was asked for cannot be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The host cannot be captured.
    #[error(transparent)]
    Capture(#[from] CapturingError),
    /// Captures by others cannot be served.
    #[error(transparent)]
    CaptureEndpoint(#[from] CaptureEndpointError),
    /// Keys cannot be served, or not fetched.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// The server does not answer, though its key service does.
    #[error(
        "{failures} ops in a row ended with TIMEOUT: nothing comes back from {responder}, UDP port {port}, whose key service \
         answers; look whether `rma-bench serve` has it as --port; or there is {NOTHING_COMES_BACK}"
    )]
    Silent {
        /// How many ops were tried.
        failures: u32,
        /// The server.
        responder: HostAddr,
        /// Its UDP port.
        port: u16,
    },
    /// The server has ended, or is another one.
    #[error(
        "`rma-bench serve` at {responder} has ended, or was started again, or the way there is cut: look there, start it if need \
         be, and take the line that it prints then"
    )]
    Ended {
        /// The server.
        responder: HostAddr,
    },
    /// Bytes that were this client's alone are not any more.
    #[error(
        "byte {at} is not what it should be, and the session with {responder} was lost: another writer may have been given these \
         bytes; run it again"
    )]
    LaneLost {
        /// The offset in the region.
        at: u64,
        /// The server.
        responder: HostAddr,
    },
    /// The key was changed.
    #[error(
        "{responder} refuses the key of {region} with REMOTE_AUTHENTICATION_FAILURE: it was changed since this run fetched \
         it, or somebody forges refusals; run it again, and `rma-bench serve` with a longer --rotate"
    )]
    KeyChanged {
        /// The server.
        responder: HostAddr,
        /// The region.
        region: RegionName,
    },
    /// An op went wrong.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// A writer was interrupted, and could not write back what it had found.
    #[error(
        "interrupted, and what was in the region before is not restored ({why}): some of its bytes {offset} to {end} hold what \
         was written last; start `rma-bench serve` again, which fills the region anew"
    )]
    NotRestored {
        /// The error of restoring.
        why: PairError,
        /// The first byte that may hold something else.
        offset: u64,
        /// The one after the last.
        end: u64,
    },
    /// The region is longer than this machine can address.
    #[error("a region of {len} bytes does not fit this machine's address space")]
    RegionLen {
        /// The length.
        len: u64,
    },
    /// An address was named with an interface that is not the one to open.
    #[error(
        "{address}%{zone} is on interface {zone}: give --interface {zone}, or the address without %{zone}"
    )]
    OtherZone {
        /// The address.
        address: HostAddr,
        /// The interface that it was named with.
        zone: String,
    },
    /// The grant is for another host.
    #[error(
        "the grant in {path} is for initiator {granted}, and this host has {here}; run `rma-bench serve` with --initiator and one of these"
    )]
    NotThisHost {
        /// The grant file.
        path: PathBuf,
        /// The host that the grant is for.
        granted: HostAddr,
        /// This host's addresses.
        here: String,
    },
    /// The server does not answer.
    #[error(
        "{failures} ops in a row ended with TIMEOUT: nothing comes back from {responder}, UDP port {port}; look whether \
         `rma-bench serve` runs there, and whether {grant} is the grant that it wrote when it was last started: if in \
         doubt, carry that over again; or there is {NOTHING_COMES_BACK}"
    )]
    Unanswered {
        /// How many ops were tried.
        failures: u32,
        /// The server.
        responder: HostAddr,
        /// Its UDP port.
        port: u16,
        /// The grant file.
        grant: PathBuf,
    },
    /// The server does not know the grant.
    #[error(
        "{responder} refuses the grant in {grant} with REMOTE_AUTHENTICATION_FAILURE: it has other keys since it was \
         started again or its region was rekeyed; carry over the grant file that `rma-bench serve` wrote last"
    )]
    Refused {
        /// The server.
        responder: HostAddr,
        /// The grant file.
        grant: PathBuf,
    },
    /// Ops for a queue and ops for a region cannot be in one grant file.
    #[error(
        "--op send is for a receive queue and the others are for a region, and a grant file is for one of these: give send \
         alone, or leave out --initiator and serve both by invitation"
    )]
    QueueAndRegion,
    /// An op of that size does not fit the bytes that readers have.
    #[error(
        "a READ of {size} bytes does not fit the {len} bytes that nobody writes to: give a smaller --size, or start `rma-bench \
         serve` with --region-len {} or more", size.max(&64).next_multiple_of(64).saturating_mul(2)
    )]
    ReadersHalf {
        /// The size.
        size: u64,
        /// The bytes.
        len: u64,
    },
    /// An op of that size does not fit the region.
    #[error(
        "an op of {size} bytes does not fit the granted region of {region_len} bytes; give a smaller --size, or start \
         `rma-bench serve` there with --region-len {size} or more"
    )]
    Size {
        /// The size.
        size: u32,
        /// The region's length.
        region_len: u64,
    },
}

impl ServeError {
    /// The exit status of a program that ends with it: 4 where a byte was wrong or a promise
    /// broken.
    #[must_use]
    pub const fn status(&self) -> u8 {
        match self {
            Self::Pair(
                PairError::WrongByte { .. }
                | PairError::WrongMessages { .. }
                | PairError::MissingEvents { .. },
            ) => 4,
            // The command line makes no sense.
            Self::Keys(KeysError::NoServer { .. })
            | Self::Cores(CoresError::Count { .. } | CoresError::Servers { .. }) => 2,
            _ => 1,
        }
    }
}

/// Opens the host, on the interface toward `server` if no device is named. The caller pins itself
/// afterwards: threads that the host starts must not share the engine's core.
pub(crate) fn open(host: &HostArgs, opening: Opening) -> Result<InlineHost, ServeError> {
    open_as(host, opening, InlineHost::open)
}

/// [`open`], of either kind.
fn open_as<P: EngineKind>(
    host: &HostArgs,
    opening: Opening,
    open: impl Fn(HostConfig) -> Result<HostOf<P>, HostError>,
) -> Result<HostOf<P>, ServeError> {
    let Opening { port, pid, server, tuning } = opening;
    host.cores.as_ref().map_or(Ok(()), |it| it.check(tuning.threads))?;
    for OwnAddress { address, zone } in &host.address {
        let is_other = |zone: &String| Some(zone) != host.device.interface.as_ref();
        if let Some(zone) = zone.clone().filter(is_other) {
            return Err(ServeError::OtherZone { address: *address, zone });
        }
    }
    if host.numa.is_some()
        && let Some(interface) = host.device.interface_toward(server)
    {
        numa::stay_near(&interface, host.cores())?;
    }
    if host.low_latency {
        cores::keep_awake()?;
    }
    let opened = host.device.open(server, !host.address.is_empty(), |config| {
        open(config.with(|it| {
            it.engines = tuning.engines;
            it.cores = host.cores().to_vec();
            it.addresses.extend(host.address.iter().map(|it| it.address));
            it.port = port;
            it.pid = pid;
            it.nic.command_slots = it.nic.command_slots.max(tuning.slots);
            if let Some(timeout) = tuning.timeout {
                it.nic.timing = Timing::software(Duration::ZERO, timeout);
            }
        }))
    });
    let opened = opened?;
    if let Some(path) = &host.capture {
        begin_own(&opened, path, host.capture_snap)?;
    }
    Ok(opened)
}

/// Says which ways carry less than the device, and which of its addresses the host has lost.
pub(crate) fn tell_ways(host: &HostOf<impl EngineKind>) {
    for narrow in host.narrow_paths() {
        line!("  path      {narrow}");
    }
    for status in host.address_status().iter().filter(|it| !it.is_there) {
        let address = status.address;
        line!("  address   {address} is not one of this machine any more: see `ip addr`");
    }
}

pub(crate) fn introduce(host: &HostOf<impl EngineKind>) {
    line!("  device    {}", host.info());
    for fallback in host.fallbacks() {
        line!("  fallback  {fallback}");
    }
}

/// A region and a queue that are served: one of these at least.
struct Served {
    region: Option<RegisteredRegion>,
    inbox: Option<Box<Inbox>>,
}

impl Served {
    fn open(
        host: &HostOf<impl EngineKind>,
        args: &ServeArgs,
        ops: OpSet,
    ) -> Result<Self, ServeError> {
        let sent = ops.and(OpSet::NONE.with(OpType::Send));
        let permissions =
            |ops: OpSet| ops.iter().fold(Permissions::NONE, |all, op| all | op.shape().permission);
        let inbox = (!sent.is_empty()).then(|| Inbox::open(host, args.seed, permissions(sent)));
        let inbox = inbox.transpose()?.map(Box::new);
        if ops == sent {
            return Ok(Self { region: None, inbox });
        }
        let len = usize::try_from(args.region_len.0)
            .ok()
            .ok_or(ServeError::RegionLen { len: args.region_len.0 })?;
        let region = host.register(len, permissions(of_region(ops)))?;
        Pattern::new(args.seed).fill_region(&region);
        Ok(Self { region: Some(region), inbox })
    }

    /// The one that grant files are for: the region, or a queue that is served alone.
    fn any(&self) -> &RegisteredRegion {
        let queue = || self.inbox.as_ref().map(|it| it.queue().region());
        self.region.as_ref().or_else(queue).expect("something is served")
    }

    /// Names what is published.
    fn published(&self, name: &RegionName, ops: OpSet) -> Result<Vec<Published<'_>>, KeysError> {
        let region = self
            .region
            .as_ref()
            .map(|region| Ok(Published { name: name.clone(), region, ops: of_region(ops) }));
        let queue = self.inbox.as_ref().map(|inbox| {
            let (name, region) = (queue_name(name)?, inbox.queue().region());
            Ok(Published { name, region, ops: OpSet::NONE.with(OpType::Send) })
        });
        region.into_iter().chain(queue).collect()
    }

    fn words(&self) -> String {
        let region =
            self.region.as_ref().map(|it| format!("{} bytes as region {}", it.len(), it.id()));
        let queue = self.inbox.as_ref().map(|inbox| {
            let (layout, id) = (inbox.queue().layout(), inbox.queue().region().id());
            let (receives, len) = (layout.receives(), layout.buffer_len());
            format!("{receives} receives of {len} bytes as queue {id}")
        });
        region.into_iter().chain(queue).collect::<Vec<_>>().join(" and ")
    }

    /// Fills a part of the region with its pattern, while the engine waits: 64 KiB take 10 µs.
    fn fill(&self, Lane { offset, len }: Lane, seed: u64) {
        let Some(region) = self.region.as_ref().filter(|_| len > 0) else { return };
        let mut bytes = vec![0; len as usize];
        Pattern::new(seed).fill(offset, &mut bytes);
        region.write(offset, &bytes).expect("a lane is inside the region");
    }

    /// Does its application's work between turns. Returns whether there was some.
    fn between_turns(&mut self) -> bool {
        self.inbox.as_mut().is_some_and(|inbox| inbox.take())
    }
}

/// The ops that go to a region.
fn of_region(ops: OpSet) -> OpSet {
    ops.iter().filter(|&it| it != OpType::Send).collect()
}

/// Returns the measurement that does such ops.
fn command(op_types: &[OpType]) -> &'static str {
    let commands = [
        (OpType::Read, "read-lat"),
        (OpType::Write, "write-lat"),
        (OpType::Send, "send-lat"),
        (OpType::CompareSwap, "atomic-lat -A COMPARE_SWAP"),
        (OpType::FetchAdd, "atomic-lat"),
    ];
    let found = commands.into_iter().find(|(op_type, _)| op_types.contains(op_type));
    found.map_or("verify", |(_, it)| it)
}

/// Says how many clients' keys come from the service, and how to ask.
fn say_keys(
    args: &ServeArgs,
    keys: &InlineKeyServer,
    host: &HostOf<impl EngineKind>,
    op_types: &[OpType],
) {
    let (listen, region) = (keys.address(), args.keys.region());
    let address = asked_at(listen, host.addresses());
    line!("  keys      of {region} at {listen}, to whom the policy allows them");
    line!(
        "            there: rma-bench {} {address} --expect IDENTITY --id DIR ...",
        command(op_types)
    );
}

/// Prints the line to type on the other host.
fn say_invitation(
    args: &ServeArgs,
    keys: &InlineKeyServer,
    host: &HostOf<impl EngineKind>,
    (op_types, invitation): (&[OpType], &Invitation),
) {
    let address = asked_at(keys.address(), host.addresses());
    let server =
        if address.port() == PORT { address.ip().to_string() } else { address.to_string() };
    let (sudo, device) =
        if args.host.device.udp.is_some() { ("", " --udp ADDRESS") } else { ("sudo ", "") };
    let mut options = String::new();
    // Without READ it cannot compare what it has written.
    if command(op_types) == "write-lat" {
        options.push_str(" --verify 0");
    }
    // The program as it was called here: where it was built, that is not in everybody's PATH.
    let program = env::args_os().next().unwrap_or_else(|| "rma-bench".into());
    line!(
        "  there     {sudo}{} {} {server}{device}{options} --invite {}",
        program.display(),
        command(op_types),
        invitation.code()
    );
    line!(
        "            the code is a secret: whoever has it may use all that is served, until this serve ends; with `--invite -`, which \
         reads it from standard input, other users there do not see it"
    );
}

/// Makes the grant, writes it to its file and says so.
fn grant(
    args: &ServeArgs,
    host: &HostOf<impl EngineKind>,
    region: &RegisteredRegion,
    (initiator, op_types): (HostAddr, &[OpType]),
) -> Result<(), ServeError> {
    let grants = Grants::make(host, region, (initiator, Pid(args.pid)), op_types)?;
    let file = GrantFile { grants, port: args.port, seed: args.seed };
    let replaced = file.save(&args.grant)?;
    let names: Vec<&str> = grants.all().map(|grant| grant.op_type.name()).collect();
    line!(
        "  grant     {} for {initiator}, PID {}: {}",
        args.grant.display(),
        args.pid,
        names.join(", ")
    );
    if let Some(old) = replaced.map(|file| *file.grants.any()) {
        line!(
            "            it replaces an older one, for {}, PID {}: copies of that one are of no use here",
            old.initiator,
            old.pid
        );
    }
    line!(
        "            carry it over as a secret, then there: rma-bench {} --grant-file FILE ...",
        command(op_types)
    );
    Ok(())
}

/// Serves a region and a receive queue until interrupted.
///
/// # Errors
/// If something could not be set up.
pub fn serve(args: &ServeArgs, interrupt: &Interrupt) -> Result<(), ServeError> {
    let op_types = args.op_types();
    let ops: OpSet = op_types.iter().copied().collect();
    if args.initiator.is_some() {
        if ops.contains(OpType::Send) && ops.len() > 1 {
            return Err(ServeError::QueueAndRegion);
        }
        // Before anything is opened: what is there must not be lost.
        GrantFile::replaceable(&args.grant)?;
    }
    match args.engines {
        Engines::One | Engines::Count(1) => serve_from(InlineHost::open, args, ops, interrupt),
        _ => serve_from(Host::open, args, ops, interrupt),
    }
}

/// Serves from a host that `open` opens.
fn serve_from<P: EngineKind>(
    open: fn(HostConfig) -> Result<HostOf<P>, HostError>,
    args: &ServeArgs,
    ops: OpSet,
    interrupt: &Interrupt,
) -> Result<(), ServeError>
where
    HostOf<P>: Turned,
{
    let op_types = args.op_types();
    let mut host = interrupt.leaving_at_once(|| open_as(&args.host, args.opening(), open))?;
    let source = host.metrics_source();
    let start = |at: &Addresses| MetricsEndpoint::start(at.first(), source.clone());
    let metrics = args.metrics.as_ref().map(start).transpose()?;
    let captures = serve_captures(args, &host)?;
    // The cores of a pinned thread are one.
    let machine = Machine::here();
    if HostOf::<P>::IS_HERE {
        args.host.pin();
    }
    introduce(&host);
    if let Some(dscp) = args.host.device.dscp {
        line!("  dscp      {dscp}");
    }
    engines::introduce(&host.engines());
    if let Some(text) = interface_of(&host).and_then(|it| in_a_line(&it)) {
        line!("  doctor    {text}");
    }
    let mut served = Served::open(&host, args, ops)?;
    let mut keys = None;
    if args.initiator.is_none() {
        keys = Some(args.keys.open(&host, &served.published(args.keys.region(), ops)?)?);
    }
    let here: Vec<String> = host.addresses().iter().map(|it| it.to_string()).collect();
    line!("  serving   {} at {}, port {}", served.words(), here.join(" and "), args.port);
    match &keys {
        None => {}
        Some((keys, None)) => say_keys(args, keys, &host, &op_types),
        Some((keys, Some(it))) => say_invitation(args, keys, &host, (&op_types, it)),
    }
    if let Some(initiator) = args.initiator {
        grant(args, &host, served.any(), (initiator, &op_types))?;
    }
    if let Some(metrics) = &metrics {
        line!("  metrics   http://{}/metrics", metrics.address());
    }
    if let Some(captures) = &captures {
        line!("  capture   rma-bench capture {} -w FILE", captures.path().display());
    }
    line!("  stop      with Ctrl-C");
    let serving = keys.map(|(keys, _)| {
        let hello = hello(args, (&host, machine), &served, &op_types);
        (keys, Sessions::new(hello).with_doctor(examine(interface_of(&host))))
    });
    let (used, refused) = turn(args, &mut host, &mut served, serving, interrupt);
    report(&used, refused);
    engines::report(&host.engines());
    served.inbox.map_or(Ok(()), |inbox| Ok(inbox.report()?))
}

/// Serves captures, if that can be done where nobody has said where.
fn serve_captures(
    args: &ServeArgs,
    host: &HostOf<impl EngineKind>,
) -> Result<Option<CaptureEndpoint>, CaptureEndpointError> {
    let source = host.capture_source().clone();
    match &args.capture_directory {
        Some(directory) => CaptureEndpoint::start(directory, source).map(Some),
        None => Ok(CaptureEndpoint::start(Path::new(DIRECTORY), source)
            .inspect_err(|error| line!("  capture   none: {error} (--capture-directory)"))
            .ok()),
    }
}

/// Returns what is told to clients.
fn hello(
    args: &ServeArgs,
    (host, machine): (&HostOf<impl EngineKind>, Machine),
    served: &Served,
    op_types: &[OpType],
) -> Hello {
    Hello {
        // This and the lanes' room are the session's own.
        versions: Versions::own(),
        writable: Lane::default(),
        port: args.port,
        region: args.keys.region().to_string(),
        region_len: served.region.as_ref().map_or(0, |it| it.len()),
        seed: args.seed,
        ops: op_types.iter().map(|it| it.name().to_owned()).collect(),
        lanes: args.lanes,
        boot: cores::boot_id(),
        conditions: Conditions::new(machine, host, args.host.pinning(false)),
    }
}

/// Turns the host, and serves keys and sessions between turns, until it is to end. Returns what was
/// used, and how many messages of sessions were refused.
fn turn<P: EngineKind>(
    args: &ServeArgs,
    host: &mut HostOf<P>,
    served: &mut Served,
    mut serving: Option<(InlineKeyServer, Sessions)>,
    interrupt: &Interrupt,
) -> (Usage, u64)
where
    HostOf<P>: Turned,
{
    let is_here = HostOf::<P>::IS_HERE;
    let end = args.duration.map(Duration::from_secs);
    let mut interface = InterfaceNews::new(host);
    let busy = if is_here { "engine busy" } else { "processor" };
    let mut status = Status::new(args.interval, busy, interface_of(host));
    let meter = RefCell::new(Meter::new(is_here));
    let cores = match args.host.cores() {
        [] => cores::available(),
        pinned => pinned.to_vec(),
    };
    let (mut turns, mut quiet): (u64, u64) = (0, 0);
    while !interrupt.is_set() {
        let worked = host.turn_here() > 0;
        let elapsed = meter.borrow_mut().turned(worked);
        let has_come = served.between_turns();
        // Who is compared with spins on this core.
        let lends = serving.as_ref().is_some_and(|(_, sessions)| sessions.lends_core());
        quiet = if has_come { 0 } else { quiet + 1 };
        turns += 1;
        if (is_here && lends) || (!is_here && quiet > QUIET) {
            if !worked {
                thread::park_timeout(if is_here { NAP } else { REST });
            }
            turns = turns.next_multiple_of(KEYS_EVERY);
        } else if !is_here {
            thread::yield_now();
        }
        if !turns.is_multiple_of(KEYS_EVERY) {
            continue;
        }
        let received = served.inbox.as_ref().map(|it| it.received()).unwrap_or_default();
        let usage = || meter.borrow().usage(host, received);
        let whole_usage = || {
            // This takes longer than a turn, and is over before whoever asks goes on.
            let times = CoreTimes::of(&cores);
            meter.borrow_mut().turned(false);
            usage().with_cores(times)
        };
        if let Some((keys, sessions)) = &mut serving {
            let fill = |lane| served.fill(lane, args.seed);
            let may_write = |peer: &Peer| args.keys.may_write(peer);
            let fill = &fill;
            let serving =
                &mut Serving { fill, sessions, usage: &whole_usage, may_write: &may_write };
            keys.turn_beside(host, serving);
        }
        if status.is_due(elapsed) {
            status.say(usage(), serving.as_ref().map(|(_, sessions)| sessions));
        }
        if turns.is_multiple_of(NEWS_EVERY) {
            interface.say(host);
        }
        if end.is_some_and(|end| elapsed >= end) {
            break;
        }
    }
    status.end();
    let used = meter.borrow().usage(host, Received::default());
    (used, serving.map_or(0, |(_, sessions)| sessions.refused()))
}

/// Says what came and went.
fn report(Usage { frames_received, frames_sent, drops, not_sent, .. }: &Usage, refused: u64) {
    line!("\n  received  {frames_received} frames, sent {frames_sent}");
    for (reason, count) in drops {
        line!("  dropped   {count} ({reason})");
    }
    for (reason, count) in not_sent {
        line!("  not sent  {count} ({reason})");
    }
    if refused > 0 {
        line!("  refused   {refused} messages that were of no session of this version");
    }
}
