//! `rma-bench serve` and `rma-bench read-lat`: two processes, on two machines or in two namespaces.

use core::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use rma_lab::Pattern;
use rma_xdp::{
    Clock, EndpointError, HostAddr, HostConfig, HostError, InlineHost, MetricsEndpoint, NotSent,
    OpStatus, OpType, Permissions, Pid, TscClock, net::PathError,
};
use serde::Serialize;

use crate::{
    client::{Client, REACH},
    error::PairError,
    grant_file::{GrantFile, GrantFileError},
    grants::Grants,
    interrupt::Interrupt,
    latency::{Summary, Table},
    line,
    machine::{Machine, mode_and_mtu},
    mode,
    pair::{VERIFY_DEPTH, pin},
};

/// Which device carries the frames.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct DeviceArgs {
    /// AF_XDP on this network interface. Needs root.
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// Kernel UDP sockets, bound to this address of this host.
    #[arg(long, value_name = "ADDRESS")]
    pub udp: Option<HostAddr>,
}

/// What both commands are told about this host.
#[derive(Args, Clone, Debug)]
pub struct HostArgs {
    #[command(flatten)]
    device: DeviceArgs,
    /// This host's address, if the interface has several.
    #[arg(long, value_name = "ADDRESS")]
    address: Vec<HostAddr>,
    /// The core to pin the engine to.
    #[arg(long)]
    pub(crate) core: Option<usize>,
}

/// A type of op, as people type it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Op {
    /// READ: bytes of the region come to the reader.
    Read,
    /// WRITE: bytes of the writer go into the region.
    Write,
    /// Rekey: install a new key for the region.
    Rekey,
}

impl Op {
    const fn op_type(self) -> OpType {
        match self {
            Self::Read => OpType::Read,
            Self::Write => OpType::Write,
            Self::Rekey => OpType::Rekey,
        }
    }
}

/// Arguments of `serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    #[command(flatten)]
    host: HostArgs,
    /// The address of the host that is granted something.
    #[arg(long, value_name = "ADDRESS", value_parser = one_host)]
    initiator: HostAddr,
    /// The PID that is granted something. `read-lat` and `write-lat` take it from the grant.
    #[arg(long, default_value_t = 1)]
    pid: u32,
    /// What it may do, separated by commas. `write-lat` wants read and write: it reads back what it
    /// wrote.
    #[arg(
        long = "op",
        value_enum,
        value_delimiter = ',',
        default_value = "read",
        value_name = "OPS"
    )]
    ops: Vec<Op>,
    /// Where to write the grant; made with mode 0600.
    #[arg(long, value_name = "FILE", default_value = "rma-grant.json")]
    grant: PathBuf,
    /// Bytes of the served region.
    #[arg(long, default_value_t = 64 << 20, value_parser = clap::value_parser!(u64).range(1..))]
    region_len: u64,
    /// Seed of the pattern that the region holds.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The UDP port, the same on all hosts.
    #[arg(long, default_value_t = rma_xdp::DEFAULT_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Serve metrics for Prometheus at http://ADDRESS:PORT/metrics. To whoever can connect:
    /// loopback is safest.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Stop after so many seconds; without it, serve until Ctrl-C.
    #[arg(long, value_name = "SECONDS")]
    duration: Option<u64>,
}

/// Arguments of `read-lat` and `write-lat`.
#[derive(Args, Clone, Debug)]
pub struct LatArgs {
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// The grant that `serve` wrote.
    #[arg(long, value_name = "FILE", default_value = "rma-grant.json")]
    pub(crate) grant: PathBuf,
    /// Bytes of each op: 1 to 4096.
    #[arg(short, long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) size: u32,
    /// How many ops to measure.
    #[arg(short = 'n', long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub(crate) iters: u64,
    /// Go to random places of the region's first so many bytes. More than a cache holds measures
    /// the server's memory as well.
    #[arg(long, default_value_t = 64 << 10, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) span: u64,
    /// How many random ops to verify first, byte by byte; 0: none.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) verify: u64,
    /// Print one line of JSON instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Why an address is no host's.
#[derive(Debug, thiserror::Error)]
enum AddressError {
    /// It is no address.
    #[error("{0}: give one such as 192.0.2.1 or fd00::1; names are not looked up")]
    Syntax(#[from] core::net::AddrParseError),
    /// Nobody sends from it, so a grant for it could not be used.
    #[error("{what} is not the address of one host: give the one that the granted host sends from")]
    NotOneHost {
        /// What it is instead.
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

/// Why one of the commands ended early.
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
    /// An op went wrong.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// The region is longer than this machine can address.
    #[error("a region of {len} bytes does not fit this machine's address space")]
    RegionLen {
        /// The length.
        len: u64,
    },
    /// The grant is for another host.
    #[error(
        "the grant in {path} is for initiator {granted}, and this host has {here}; run `rma-bench serve` with --initiator and one of these"
    )]
    NotThisHost {
        /// The grant file.
        path: PathBuf,
        /// Whom the grant is for.
        granted: HostAddr,
        /// This host's addresses.
        here: String,
    },
    /// The server does not answer.
    #[error(
        "{failures} ops in a row ended with TIMEOUT: nothing comes back from {responder}, UDP port {port}; look whether \
         `rma-bench serve` runs there, whether a firewall on either side drops UDP port {port}, and whether {grant} is \
         the grant that it wrote when it was last started: if in doubt, carry that over again"
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
    /// An op of that size does not fit the region.
    #[error(
        "an op of {size} bytes does not fit the granted region of {region_len} bytes; give a smaller --size"
    )]
    Size {
        /// The size.
        size: u32,
        /// The region's length.
        region_len: u64,
    },
}

/// Opens the host. The caller pins itself afterwards: threads that the host starts must not share
/// the engine's core.
fn open(host: &HostArgs, port: u16, pid: Pid) -> Result<InlineHost, HostError> {
    host.core.map_or(Ok(()), HostError::check_core)?;
    let config = match (&host.device.interface, host.device.udp) {
        (Some(interface), _) => mode::host(interface),
        (None, Some(address)) => HostConfig::udp(address),
        (None, None) => unreachable!("one of the two is required"),
    };
    let mut addresses = config.addresses.clone();
    addresses.extend(&host.address);
    InlineHost::open(config.with(|it| {
        it.addresses = addresses;
        it.port = port;
        it.pid = pid;
    }))
}

fn introduce(host: &InlineHost) {
    line!("  device    {}", host.info());
    for fallback in host.fallbacks() {
        line!("  fallback  {fallback}");
    }
}

/// Serves a region until interrupted.
///
/// # Errors
/// What could not be set up, and why.
pub fn serve(args: &ServeArgs, interrupt: &Interrupt) -> Result<(), ServeError> {
    // Before anything is opened: what is there must not be lost.
    GrantFile::replaceable(&args.grant)?;
    let mut host = open(&args.host, args.port, Pid(std::process::id()))?;
    let source = host.metrics_source();
    let start = |address| MetricsEndpoint::start(address, source.clone());
    let metrics = args.metrics.map(start).transpose()?;
    pin(args.host.core);
    introduce(&host);
    let len = usize::try_from(args.region_len)
        .ok()
        .ok_or(ServeError::RegionLen { len: args.region_len })?;
    let op_types: Vec<OpType> = args.ops.iter().map(|op| op.op_type()).collect();
    let permissions =
        op_types.iter().fold(Permissions::NONE, |all, &op_type| all | op_type.shape().permission);
    let region = host.register(len, permissions)?;
    let pattern = Pattern::new(args.seed);
    pattern.fill_region(&region);
    let grants = Grants::make(&mut host, &region, (args.initiator, Pid(args.pid)), &op_types)?;
    let file = GrantFile { grants, port: args.port, seed: args.seed };
    let replaced = file.save(&args.grant)?;
    let grant = grants.any();
    line!(
        "  serving   {} bytes as region {} at {}, port {}",
        args.region_len,
        grant.region,
        grant.responder,
        args.port
    );
    let names: Vec<&str> = grants.all().map(|grant| grant.op_type.name()).collect();
    line!(
        "  grant     {} for {}, PID {}: {}",
        args.grant.display(),
        args.initiator,
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
    let command = if grants.has(OpType::Write) { "write-lat" } else { "read-lat" };
    line!(
        "            carry it over as a secret, then there: rma-bench {command} --grant FILE ..."
    );
    if let Some(metrics) = &metrics {
        line!("  metrics   http://{}/metrics", metrics.address());
    }
    line!("  stop      with Ctrl-C");
    let clock = TscClock::new();
    let end = args.duration.map(Duration::from_secs);
    let mut turns: u32 = 0;
    while !interrupt.is_set() {
        host.turn();
        turns = turns.wrapping_add(1);
        if turns.is_multiple_of(4096)
            && end.is_some_and(|end| Duration::from_nanos(clock.now().as_nanos()) >= end)
        {
            break;
        }
    }
    let counters = host.counters();
    line!("\n  received  {} frames, sent {}", counters.frames_received(), counters.frames_sent());
    for (reason, count) in counters.all_drops() {
        line!("  dropped   {count} ({reason:?})");
    }
    for reason in NotSent::ALL {
        let count = counters.not_sent(reason);
        if count > 0 {
            line!("  not sent  {count} ({reason:?})");
        }
    }
    Ok(())
}

/// Which server a client talks to, and why it may: what to look at if it does not answer.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    responder: HostAddr,
    port: u16,
    grant: PathBuf,
}

impl Remote {
    /// What `error` means between two machines.
    pub(crate) fn explain(&self, error: PairError) -> ServeError {
        let Self { responder, port, grant } = self.clone();
        match error {
            PairError::Failing { failures, status: OpStatus::Timeout, .. } => {
                ServeError::Unanswered { failures, responder, port, grant }
            }
            PairError::Failing { status: OpStatus::RemoteAuthenticationFailure, .. } => {
                ServeError::Refused { responder, grant }
            }
            other => other.into(),
        }
    }
}

/// Finds the way to the server. A link that has just come up may lose its carrier once more, and
/// neighbours are not asked for meanwhile: that is waited for, for up to `patience`; for nothing
/// else.
fn resolve(host: &InlineHost, responder: HostAddr, patience: Duration) -> Result<(), HostError> {
    let clock = TscClock::new();
    loop {
        let result = host.resolve(responder);
        let passing = matches!(
            result,
            Err(HostError::Path(
                PathError::LinkDown { .. } | PathError::NeighbourUnresolved { .. }
            ))
        );
        if !passing || Duration::from_nanos(clock.now().as_nanos()) >= patience {
            return result;
        }
        // A link takes longer than this to come up.
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// Opens this host for what a grant file allows.
pub(crate) fn open_client(
    args: &LatArgs,
    interrupt: &Interrupt,
) -> Result<(Client, Remote), ServeError> {
    let file = GrantFile::load(&args.grant)?;
    let region_len = file.grants.any().region_len;
    if u64::from(args.size) > region_len {
        return Err(ServeError::Size { size: args.size, region_len });
    }
    let (mut client, remote) = open_granted(&args.host, (&args.grant, file), REACH, args.json)?;
    let op_type = [OpType::Read, OpType::Write].into_iter().find(|&it| file.grants.has(it));
    if let Some(op_type) = op_type {
        client.reach(op_type, interrupt).map_err(|error| remote.explain(error))?;
    }
    Ok((client, remote))
}

/// Opens a host for what is in a grant file, and says which device it has unless it is to be
/// `quiet`. Looks again for a way to the responder for as long as `patience`, where there is none.
pub(crate) fn open_granted(
    host_args: &HostArgs,
    (path, file): (&Path, GrantFile),
    patience: Duration,
    quiet: bool,
) -> Result<(Client, Remote), ServeError> {
    let GrantFile { grants, port, seed } = file;
    let grant = grants.any();
    let host = open(host_args, port, grant.pid)?;
    pin(host_args.core);
    if !host.addresses().contains(grant.initiator) {
        let here: Vec<String> = host.addresses().iter().map(|addr| addr.to_string()).collect();
        return Err(ServeError::NotThisHost {
            path: path.to_owned(),
            granted: grant.initiator,
            here: here.join(" and "),
        });
    }
    resolve(&host, grant.responder, patience)?;
    if !quiet {
        introduce(&host);
    }
    let remote = Remote { responder: grant.responder, port, grant: path.to_owned() };
    Ok((Client::new(host, grants, Pattern::new(seed), VERIFY_DEPTH)?, remote))
}

/// What `read-lat --json` and `write-lat --json` print.
#[derive(Debug, Serialize)]
struct Report<V> {
    #[serde(flatten)]
    machine: Machine,
    device: String,
    mode: String,
    mtu: u32,
    size: u32,
    #[serde(flatten)]
    verified: V,
    core: Option<usize>,
    #[serde(flatten)]
    latency: Summary,
}

/// Prints the line of JSON that `--json` asks for, with what was `verified`.
pub(crate) fn print_json<V: Serialize>(
    args: &LatArgs,
    client: &Client,
    verified: V,
    latency: Summary,
) {
    let (mode, mtu) = mode_and_mtu(client.host.info());
    let report = Report {
        machine: Machine::here(),
        device: client.host.info().to_string(),
        mode,
        mtu,
        size: args.size,
        verified,
        core: args.host.core,
        latency,
    };
    line!("{}", serde_json::to_string(&report).expect("plain data"));
}

/// What `read-lat` has verified.
#[derive(Debug, Serialize)]
struct VerifiedReads {
    verified_reads: u64,
}

/// Verifies some reads and measures many.
///
/// # Errors
/// What could not be set up, and why; a wrong byte; op after op that fails.
pub fn read_lat(args: &LatArgs, interrupt: &Interrupt) -> Result<(), ServeError> {
    let (mut client, remote) = open_client(args, interrupt)?;
    let grant = client.grants.get(OpType::Read)?;
    let verified = client.verify(OpType::Read, args.verify, interrupt, |_| ());
    let verified = verified.map_err(|error| remote.explain(error))?;
    let counts = (args.iters / 10, args.iters);
    let latencies = client.measure(OpType::Read, (args.size, args.span), counts, interrupt);
    let latencies = latencies.map_err(|error| remote.explain(error))?;
    let latency = latencies.summary(&format!("READ {} B", args.size));
    if args.json {
        print_json(args, &client, VerifiedReads { verified_reads: verified.reads }, latency);
    } else {
        line!(
            "  verified  {} reads from {}, {:.1} MB, every byte right{}\n",
            verified.reads,
            grant.responder,
            verified.bytes as f64 / 1e6,
            if verified.retried > 0 { ", some repeated" } else { "" }
        );
        line!("{}", Table(&[latency]));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_answer_is_named_with_its_port_and_the_grant_file() {
        let remote = Remote {
            responder: HostAddr::from([192, 0, 2, 9]),
            port: 10_999,
            grant: "here/grant.json".into(),
        };
        let failing = |status| PairError::Failing { failures: 50, status, hint: "" };
        let explain = |error| remote.explain(error).to_string();
        let text = explain(failing(OpStatus::Timeout));
        for part in ["50 ops", "TIMEOUT", "192.0.2.9", "10999", "here/grant.json", "carry"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = explain(failing(OpStatus::RemoteAuthenticationFailure));
        assert!(text.contains("192.0.2.9") && text.contains("here/grant.json"), "{text}");
        assert_eq!(explain(PairError::Interrupted), "interrupted", "all else is what it was");
    }
}
