//! The side that measures against a host that serves: what `rma-bench read-lat` and its siblings
//! share, and `read-lat` itself.

use clap::Args;
use rma_xdp::OpType;
use serde::Serialize;

use crate::{
    alone::LoneOp,
    client::{Client, Verified},
    error::PairError,
    interrupt::Interrupt,
    latency::{Latencies, Summary, Table},
    line,
    machine::{Machine, mode_and_mtu},
    remote::{RemoteArgs, open_client},
    serve::{ServeError, tell_ways},
};

/// The arguments that all clients take.
#[derive(Args, Clone, Debug)]
pub struct ClientArgs {
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
    /// Ops to measure.
    #[arg(short = 'n', long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub(crate) iters: u64,
    /// Print one line of JSON instead of text.
    #[arg(long)]
    pub(crate) json: bool,
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
        core: args.remote.host.core,
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
    let (mut client, remote) =
        open_client(&args.remote, (*size, &[OpType::Read]), args.json, interrupt)?;
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
