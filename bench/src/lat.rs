//! The side that measures against a host that serves: what `rma-bench read-lat` and its siblings
//! share, and `read-lat` itself.

use core::time::Duration;
use std::path::{Path, PathBuf};

use clap::Args;
use rma_lab::Pattern;
use rma_xdp::{
    HostAddr, HostError, InlineHost, OpStatus, OpType, Pid,
    device::net::PathError,
    keys::RegionName,
    time::{Clock, TscClock},
};
use serde::Serialize;

use crate::{
    alone::LoneOp,
    client::{Client, REACH, Verified},
    error::PairError,
    grant_file::GrantFile,
    grants::Grants,
    interrupt::Interrupt,
    keys::{ClientKeyArgs, RegionKeys, Service},
    latency::{Latencies, Summary, Table},
    line,
    machine::{Machine, mode_and_mtu},
    pair::{VERIFY_DEPTH, pin},
    serve::{HostArgs, ServeError, introduce, open, tell_ways},
};

/// The arguments that all clients take.
#[derive(Args, Clone, Debug)]
pub struct ClientArgs {
    #[command(flatten)]
    pub(crate) host: HostArgs,
    #[command(flatten)]
    permit: PermitArgs,
    /// Ops to measure.
    #[arg(short = 'n', long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub(crate) iters: u64,
    /// Print one line of JSON instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The source of a client's keys.
#[derive(Args, Clone, Debug)]
pub struct PermitArgs {
    #[command(flatten)]
    pub(crate) keys: ClientKeyArgs,
    /// Grant file that `serve` wrote: a key in a file, without the key service.
    #[arg(
        long = "grant-file",
        alias = "grant",
        value_name = "FILE",
        default_value = "rma-grant.json",
        conflicts_with = "service"
    )]
    pub(crate) grant: PathBuf,
}

/// The arguments of commands whose ops are spread over a region.
#[derive(Args, Clone, Debug)]
pub struct SpanArgs {
    /// Spread the ops at random over this many bytes from the region's beginning. If it exceeds the
    /// server's cache, the latency includes its memory's.
    #[arg(long, default_value_t = 64 << 10, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) span: u64,
    /// Random ops to verify first, byte by byte; 0 for none.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) verify: u64,
}

/// The arguments of commands whose ops have a size.
#[derive(Args, Clone, Copy, Debug)]
pub struct SizeArgs {
    /// Bytes of each op: 1 to 4096.
    #[arg(short, long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) size: u32,
}

/// Arguments of `read-lat` and `write-lat`.
#[derive(Args, Clone, Debug)]
pub struct LatArgs {
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    #[command(flatten)]
    pub(crate) size: SizeArgs,
    #[command(flatten)]
    pub(crate) span: SpanArgs,
}

/// The server that a client talks to, and the source of its keys: what to look at if it does not
/// answer.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    responder: HostAddr,
    port: u16,
    permit: Permit,
}

/// The source of a client's keys.
#[derive(Clone, Debug)]
enum Permit {
    File(PathBuf),
    Service(RegionName),
}

impl Remote {
    /// Whether a run was ended early by somebody: then there is something to tell of it. All else
    /// that ends one is an error, with what the host knows of the ways that may have to do with it.
    pub(crate) fn is_interrupted(
        &self,
        done: Result<(), PairError>,
        client: &Client,
        quiet: bool,
    ) -> Result<bool, ServeError> {
        match done {
            Ok(()) => Ok(false),
            Err(PairError::Interrupted) => Ok(true),
            Err(error) => {
                if !quiet {
                    tell_ways(&client.host);
                }
                Err(self.explain(error))
            }
        }
    }

    /// Explains what `error` means between two machines.
    pub(crate) fn explain(&self, error: PairError) -> ServeError {
        let Self { responder, port, permit } = self.clone();
        let PairError::Failing { failures, status, .. } = error else { return error.into() };
        match (status, permit) {
            (OpStatus::Timeout, Permit::File(grant)) => {
                ServeError::Unanswered { failures, responder, port, grant }
            }
            (OpStatus::Timeout, Permit::Service(_)) => {
                ServeError::Silent { failures, responder, port }
            }
            (OpStatus::RemoteAuthenticationFailure, Permit::File(grant)) => {
                ServeError::Refused { responder, grant }
            }
            (OpStatus::RemoteAuthenticationFailure, Permit::Service(region)) => {
                ServeError::KeyChanged { responder, region }
            }
            _ => error.into(),
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

/// Opens this host for what a grant file or a key service allows, for ops of `size` bytes. From the
/// service it wants keys for all of `op_types`.
pub(crate) fn open_client(
    args: &ClientArgs,
    (size, op_types): (u32, &[OpType]),
    interrupt: &Interrupt,
) -> Result<(Client, Remote), ServeError> {
    let PermitArgs { keys, grant } = &args.permit;
    let open = || match keys.service()? {
        Some(service) => {
            let named = (keys, &service, op_types);
            let (client, remote, _) = open_named(&args.host, named, REACH, args.json)?;
            Ok((client, remote))
        }
        None => {
            let file = GrantFile::load(grant)?;
            check_size(size, &file.grants)?;
            open_granted(&args.host, (grant, file), REACH, args.json)
        }
    };
    let (mut client, remote) = interrupt.leaving_at_once(open)?;
    check_size(size, &client.grants)?;
    client.reach(interrupt).map_err(|error| remote.explain(error))?;
    Ok((client, remote))
}

fn check_size(size: u32, grants: &Grants) -> Result<(), ServeError> {
    let region_len = grants.any().region_len;
    if u64::from(size) > region_len {
        return Err(ServeError::Size { size, region_len });
    }
    Ok(())
}

/// Opens a host, and fetches keys for it, for ops of these types. Otherwise as [`open_granted`].
pub(crate) fn open_named(
    host_args: &HostArgs,
    (args, service, op_types): (&ClientKeyArgs, &Service, &[OpType]),
    patience: Duration,
    quiet: bool,
) -> Result<(Client, Remote, RegionKeys), ServeError> {
    let ClientKeyArgs { port, seed, .. } = *args;
    let host = open(host_args, port, Pid(std::process::id()), Some(service.address()))?;
    let keys = service.fetch(&host, op_types)?;
    pin(host_args.core);
    let responder = keys.grants().any().responder;
    resolve(&host, responder, patience)?;
    if !quiet {
        introduce(&host);
    }
    let remote = Remote { responder, port, permit: Permit::Service(service.region().clone()) };
    let client = Client::new(host, *keys.grants(), Pattern::new(seed), VERIFY_DEPTH)?;
    Ok((client, remote, keys))
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
    let host = open(host_args, port, grant.pid, None)?;
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
    let permit = Permit::File(path.to_owned());
    let remote = Remote { responder: grant.responder, port, permit };
    Ok((Client::new(host, grants, Pattern::new(seed), VERIFY_DEPTH)?, remote))
}

/// The output of `read-lat --json` and its siblings.
#[derive(Debug, Serialize)]
struct Report<V> {
    #[serde(flatten)]
    machine: Machine,
    device: String,
    mode: String,
    mtu: u32,
    /// The MTU of the path, if it is less.
    path_mtu: Option<u32>,
    size: u32,
    #[serde(flatten)]
    verified: V,
    core: Option<usize>,
    #[serde(flatten)]
    latency: Summary,
    /// How often nothing came back for a moment.
    pauses: u32,
    /// Whether somebody ended it early.
    interrupted: bool,
}

/// Prints the line of JSON that `--json` asks for, with what was `verified`.
pub(crate) fn print_json<V: Serialize>(
    args: &ClientArgs,
    size: u32,
    client: &Client,
    verified: V,
    (latency, interrupted): (Summary, bool),
) {
    let (mode, mtu) = mode_and_mtu(client.host.info());
    let report = Report {
        machine: Machine::here(),
        device: client.host.info().to_string(),
        mode,
        mtu,
        path_mtu: client.host.narrow_paths().first().map(|narrow| narrow.mtu),
        size,
        verified,
        core: args.host.core,
        latency,
        pauses: client.failures.pauses().count(),
        interrupted,
    };
    line!("{}", serde_json::to_string(&report).expect("plain data"));
}

/// The counts of a verified `read-lat`.
#[derive(Debug, Serialize)]
struct VerifiedReads {
    verified_reads: u64,
}

/// Verifies some reads and measures many.
///
/// # Errors
/// If something could not be set up; on a wrong byte; if op after op fails.
pub fn read_lat(args: &LatArgs, interrupt: &Interrupt) -> Result<(), ServeError> {
    let LatArgs { client: args, size: SizeArgs { size }, span: SpanArgs { span, verify } } = args;
    let (mut client, remote) = open_client(args, (*size, &[OpType::Read]), interrupt)?;
    let grant = client.grants.get(OpType::Read)?;
    let (mut verified, mut latencies) = (Verified::default(), Latencies::new());
    let all = client.verify(OpType::Read, *verify, interrupt, |done| verified = *done);
    let done = all.and_then(|all| {
        verified = all;
        let counts = (args.iters / 10, args.iters);
        let into = (&mut latencies, interrupt);
        client.measure_into(LoneOp::Read, (*size, *span), counts, into)
    });
    let interrupted = remote.is_interrupted(done, &client, args.json)?;
    let latency = latencies.summary(&format!("READ {size} B"));
    if args.json {
        let verified = VerifiedReads { verified_reads: verified.reads };
        print_json(args, *size, &client, verified, (latency, interrupted));
    } else {
        say_partial(interrupted);
        line!(
            "  verified  {} reads from {}, {:.1} MB, every byte right{}\n",
            verified.reads,
            grant.responder,
            verified.bytes as f64 / 1e6,
            if verified.retried > 0 { ", some repeated" } else { "" }
        );
        client.failures.pauses().say();
        tell_ways(&client.host);
        line!("{}", Table(&[latency]));
    }
    end(interrupted)
}

/// Marks what is printed next, if the run was ended early.
pub(crate) fn say_partial(interrupted: bool) {
    if interrupted {
        line!("\n  partial   it was interrupted: what follows is what there was until then");
    }
}

/// The end of a run whose results have been printed.
pub(crate) fn end(interrupted: bool) -> Result<(), ServeError> {
    if interrupted { Err(PairError::Interrupted.into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_answer_is_named_with_its_port_and_the_grant_file() {
        let of = |permit| Remote { responder: [192, 0, 2, 9].into(), port: 10_999, permit };
        let remote = of(Permit::File("here/grant.json".into()));
        let failing = |status| PairError::Failing { failures: 50, status, hint: "" };
        let explain = |error| remote.explain(error).to_string();
        let text = explain(failing(OpStatus::Timeout));
        for part in ["50 ops", "TIMEOUT", "192.0.2.9", "10999", "here/grant.json", "carry"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = explain(failing(OpStatus::RemoteAuthenticationFailure));
        assert!(text.contains("192.0.2.9") && text.contains("here/grant.json"), "{text}");
        assert_eq!(explain(PairError::Interrupted), "interrupted", "all else is what it was");
        let remote = of(Permit::Service("kv/index".parse().unwrap()));
        let text = remote.explain(failing(OpStatus::Timeout)).to_string();
        assert!(text.contains("10999, whose key service answers"), "{text}");
        let text = remote.explain(failing(OpStatus::RemoteAuthenticationFailure)).to_string();
        assert!(text.contains("the key of kv/index") && text.contains("--rotate"), "{text}");
    }
}
