//! `rma-bench`: shows that 1RMA works on this machine, and how fast.

#![deny(clippy::print_stdout)]

use std::process::ExitCode;

use clap::{ArgAction, Parser, Subcommand};
use rma_bench::{
    allocator::Counting,
    atomic_lat::{self, AtomicLatArgs},
    crypto::{self, CryptoArgs},
    curve::{self, CurveArgs},
    demo::{self, DemoArgs},
    failover::{self, FailoverArgs, ReplicaArgs},
    figures::{self, FiguresArgs},
    flows::{self, FlowsArgs},
    interrupt::Interrupt,
    key_rotation::{self, KeyRotationArgs},
    lat::{self, LatArgs},
    mode::XdpMode,
    out,
    phases::{self, PhasesArgs},
    plots::{self, PlotsArgs},
    send_lat::{self, SendLatArgs},
    serve::{self, ServeArgs},
    simulated,
    star::{self, StarArgs},
    verify::{self, VerifyArgs},
    write_lat,
};
use rma_kv::server::ServerArgs;
use rma_xdp::keys::core_dumps;
use tracing_subscriber::filter::LevelFilter;

/// Measures and verifies 1RMA: one-sided, encrypted reads and writes of another host's memory.
#[derive(Debug, Parser)]
#[command(name = "rma-bench", version)]
struct Cli {
    /// Log to standard error. Once: the settings that hosts choose. Twice: each portal, region and
    /// grant as well.
    #[arg(short, long, action = ArgAction::Count, global = true)]
    verbose: u8,
    /// Mode in which AF_XDP hosts, and the floors beside them, attach their steering program.
    #[arg(long, value_enum, default_value_t, global = true, value_name = "MODE")]
    xdp_mode: XdpMode,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs two hosts on this machine: verified reads and writes, their latency beside raw AF_XDP,
    /// and key rotations.
    Demo(DemoArgs),
    /// Serves a region, or a receive queue, to another host.
    Serve(ServeArgs),
    /// Reads from a host that runs `serve`, and shows the latency.
    ReadLat(LatArgs),
    /// Writes to a host that runs `serve`, reads the bytes back, and shows the latency.
    WriteLat(LatArgs),
    /// Sends messages to a host that runs `serve --op send`, and shows the latency.
    SendLat(SendLatArgs),
    /// Swaps words on a host that runs `serve`, and shows the latency.
    CasLat(AtomicLatArgs),
    /// Adds to words on a host that runs `serve`, and shows the latency.
    FetchAddLat(AtomicLatArgs),
    /// Verifies reads and writes on a host that runs `serve`, through restarts, key rotations and
    /// lost links.
    Verify(VerifyArgs),
    /// Measures AES-128-GCM with each provider that this processor can run.
    Crypto(CryptoArgs),
    /// Measures every figure that the documentation quotes.
    Figures(FiguresArgs),
    /// Draws READs a second over the number under way, beside raw frames and kernel UDP. Needs
    /// root.
    Curve(CurveArgs),
    /// Breaks the time of an op down by phase, on both hosts. Needs root.
    Phases(PhasesArgs),
    /// Kills one of two servers under a thousand tasks, restarts it, and shows the tasks' rate
    /// throughout. Needs root.
    Failover(FailoverArgs),
    /// A server of `failover`.
    #[command(hide = true)]
    Replica(ReplicaArgs),
    /// Rotates a region's key while clients fetch keys from its key service, and draws one rotation
    /// of each kind.
    KeyRotation(KeyRotationArgs),
    /// A server of the cache, for its figures.
    #[command(hide = true)]
    KvServer(ServerArgs),
    /// Draws the convergence of congestion control, in simulation.
    Flows(FlowsArgs),
    /// Measures and draws a figure of the channels' paper. Needs root.
    Channels(PlotsArgs),
    /// Draws figures of the StaR paper from a cost model: the paper's numbers beside ours, and
    /// sweeps.
    Star(StarArgs),
    /// Prints Table 2 of the channels' paper, with our rows beside it, measured in simulation.
    Table2,
    /// Shows, in simulation, how long other senders wait when one dies or sleeps with a reserved
    /// place.
    DeadWriter,
}

/// Figures of memory need it; what it adds to a call is an addition.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The exit status of a program that SIGPIPE has ended: 128 and the signal's number.
const SIGPIPE_STATUS: u8 = 128 + signal_hook::consts::SIGPIPE as u8;

fn main() -> ExitCode {
    let cli = Cli::parse();
    trace(cli.verbose);
    cli.xdp_mode.ask_for();
    if let Err(error) = core_dumps::switch_off() {
        eprintln!(
            "rma-bench: core dumps cannot be switched off, and keys would be in one: {error}"
        );
        return ExitCode::FAILURE;
    }
    let result = run(&cli.command);
    if out::reader_is_gone() {
        // Quietly, and with the status that shells know from programs that SIGPIPE ended.
        return ExitCode::from(SIGPIPE_STATUS);
    }
    if let Some(error) = out::failure() {
        eprintln!("rma-bench: results could not be written to standard output: {error}");
        return ExitCode::FAILURE;
    }
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rma-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Sends events to standard error. The library has none on the path of frames, so this disturbs no
/// measurement.
fn trace(verbose: u8) {
    let level = match verbose {
        0 => return,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).init();
}

fn run(command: &Command) -> Result<(), Box<dyn std::error::Error>> {
    let interrupt = Interrupt::on_signals()?;
    match command {
        Command::Demo(args) => demo::run(args, &interrupt)?,
        Command::Serve(args) => serve::serve(args, &interrupt)?,
        Command::ReadLat(args) => lat::read_lat(args, &interrupt)?,
        Command::WriteLat(args) => write_lat::write_lat(args, &interrupt)?,
        Command::SendLat(args) => send_lat::send_lat(args, &interrupt)?,
        Command::CasLat(args) => atomic_lat::cas_lat(args, &interrupt)?,
        Command::FetchAddLat(args) => atomic_lat::fetch_add_lat(args, &interrupt)?,
        Command::Verify(args) => verify::verify(args, &interrupt)?,
        Command::Crypto(args) => interrupt.leaving_at_once(|| crypto::crypto(args)),
        Command::Figures(args) => figures::run(args, &interrupt)?,
        Command::Curve(args) => curve::run(args, &interrupt)?,
        Command::Phases(args) => phases::run(args, &interrupt)?,
        Command::Failover(args) => failover::failover(args, &interrupt)?,
        Command::Replica(args) => failover::replica(args, &interrupt)?,
        Command::KeyRotation(args) => key_rotation::key_rotation(args, &interrupt)?,
        Command::KvServer(args) => interrupt.leaving_at_once(|| rma_kv::server::serve(args))?,
        Command::Flows(args) => flows::run(args, &interrupt)?,
        Command::Channels(args) => plots::run(args, &interrupt)?,
        Command::Star(args) => star::run(args, &interrupt)?,
        Command::Table2 => interrupt.leaving_at_once(simulated::table2),
        Command::DeadWriter => interrupt.leaving_at_once(simulated::dead_writer),
    }
    Ok(())
}
