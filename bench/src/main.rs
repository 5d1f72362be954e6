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
    mode, out,
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
use rma_xdp::{keys::core_dumps, xdp};
use tracing_subscriber::filter::LevelFilter;

/// One-sided, encrypted reads and writes of another host's memory: demo, server, latency.
#[derive(Debug, Parser)]
#[command(name = "rma-bench", version)]
struct Cli {
    /// Say on standard error what hosts do: once, what is decided for them; twice, each portal,
    /// region and grant.
    #[arg(short, long, action = ArgAction::Count, global = true)]
    verbose: u8,
    /// In which mode hosts over AF_XDP, and the floors that they are compared with, have their
    /// steering program: auto is the faster one, as the driver is, and the output says which, and
    /// why; native is in the driver or not at all, without zero-copy (native-copy) or with it
    /// (native-zc), also where it is known to lose frames; generic is in the network stack.
    #[arg(long, value_parser = mode::parser(), default_value = "auto", global = true, value_name = "MODE")]
    xdp_mode: xdp::Mode,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Two hosts on this machine: verified reads and writes, their latency beside raw AF_XDP, and
    /// key rotations.
    Demo(DemoArgs),
    /// Serves a region to another host.
    Serve(ServeArgs),
    /// Reads from a host that serves, and shows the latency.
    ReadLat(LatArgs),
    /// Writes to a host that serves, reads it back, and shows the latency.
    WriteLat(LatArgs),
    /// Sends to a host that serves a receive queue, and shows the latency.
    SendLat(SendLatArgs),
    /// Swaps words of a host that serves, and shows the latency.
    CasLat(AtomicLatArgs),
    /// Adds to words of a host that serves, and shows the latency.
    FetchAddLat(AtomicLatArgs),
    /// Verifies reads and writes of a host that serves, also while it is restarted, its key
    /// rotated, a link lost.
    Verify(VerifyArgs),
    /// What AES-128-GCM costs with each provider that this processor can run.
    Crypto(CryptoArgs),
    /// Measures every figure that the documentation quotes.
    Figures(FiguresArgs),
    /// READs a second by how many are under way, beside raw frames and kernel UDP. Needs root.
    Curve(CurveArgs),
    /// Where the time of an op goes, phase by phase, on both hosts. Needs root.
    Phases(PhasesArgs),
    /// Kills one of two servers under a thousand tasks, starts it again, and shows what gets done
    /// meanwhile. Needs root.
    Failover(FailoverArgs),
    /// A server of `failover`.
    #[command(hide = true)]
    Replica(ReplicaArgs),
    /// Rotates a region's key under clients that get theirs from its key service, and draws one
    /// rotation of each kind.
    KeyRotation(KeyRotationArgs),
    /// A server of the cache, for its figures.
    #[command(hide = true)]
    KvServer(ServerArgs),
    /// Draws how congestion control converges, in simulation.
    Flows(FlowsArgs),
    /// Measures and draws figures of the channels' paper. Needs root.
    Channels(PlotsArgs),
    /// Figures of the StaR paper, from a cost model: the paper's numbers beside ours, and sweeps.
    Star(StarArgs),
    /// Table 2 of the channels' paper, its rows beside ours, measured in simulation.
    Table2,
    /// What others see of a sender that dies, or sleeps, with a place in what they share, in
    /// simulation.
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
    mode::ask_for(cli.xdp_mode);
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
