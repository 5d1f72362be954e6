//! `rma-figures`: measures the figures that the documentation quotes, and those of the papers.

#![deny(clippy::print_stdout)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use rma_bench::{
    interrupt::Interrupt,
    mode::ModeArgs,
    program::{self, Common, Failure},
};
use rma_figures::{
    allocator::Counting,
    crypto::{self, CryptoArgs},
    failover::{self, FailoverArgs, ReplicaArgs},
    figures::{self, FiguresArgs},
    key_rotation::{self, KeyRotationArgs},
    paper::{self, PaperArgs},
    phases::{self, PhasesArgs},
    simulated,
};
use rma_kv::server::ServerArgs;

/// Figures of this project and of the papers that it implements.
#[derive(Debug, Parser)]
#[command(name = "rma-figures", version)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    mode: ModeArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures the figures that the documentation quotes, all or some. Most need root.
    Measure(FiguresArgs),
    /// Measures AES-128-GCM with each provider that this processor can run.
    Crypto(CryptoArgs),
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
    /// Runs figures of the three papers, and shows what holds here of what the papers say of them,
    /// on one page. Those on veth pairs need root.
    Paper(PaperArgs),
    /// Shows, in simulation, how long other senders wait when one dies or sleeps with a reserved
    /// place.
    DeadWriter,
}

/// Figures of memory need it; what it adds to a call is an addition.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    let Cli { common, mode, command } = Cli::parse();
    mode.ask_for();
    program::run("rma-figures", &common, |interrupt| run(&command, interrupt))
}

fn run(command: &Command, interrupt: &Interrupt) -> Result<(), Failure> {
    match command {
        Command::Measure(args) => figures::run(args, interrupt)?,
        Command::Crypto(args) => interrupt.leaving_at_once(|| crypto::crypto(args)),
        Command::Phases(args) => phases::run(args, interrupt)?,
        Command::Failover(args) => failover::failover(args, interrupt)?,
        Command::Replica(args) => failover::replica(args, interrupt)?,
        Command::KeyRotation(args) => key_rotation::key_rotation(args, interrupt)?,
        Command::KvServer(args) => interrupt.leaving_at_once(|| rma_kv::server::serve(args))?,
        Command::Paper(args) => paper::paper(args, interrupt)
            .map_err(|error| Failure::with_status(error.status(), error))?,
        Command::DeadWriter => interrupt.leaving_at_once(simulated::dead_writer),
    }
    Ok(())
}
