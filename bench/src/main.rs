//! `rma-bench`: shows that 1RMA works on this machine and between two, and how fast.

#![deny(clippy::print_stdout)]

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use rma_bench::{
    capture::{self, CaptureArgs},
    decrypt::{self, DecryptArgs},
    demo::{self, DemoArgs},
    diff::{self, DiffArgs},
    doctor::{self, DoctorArgs},
    generate::{self, GenerateArgs},
    interrupt::Interrupt,
    load::{
        self, LoadOp, Task,
        args::{AtomicArgs, LoadArgs, MixedArgs},
    },
    peers::{self, CompareArgs},
    program::{self, Common, Failure},
    report::{self, ReportArgs},
    serve::{self, ServeArgs},
    stat::{self, StatArgs},
    verify::{self, VerifyArgs},
};

/// Measures and verifies 1RMA: one-sided, encrypted reads and writes of another host's memory.
#[derive(Debug, Parser)]
#[command(name = "rma-bench", version)]
struct Cli {
    #[command(flatten)]
    common: Common,
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
    /// Reads from a host that runs `serve`, and shows how long a READ takes.
    ReadLat(LoadArgs),
    /// Writes to a host that runs `serve`, reads the bytes back, and shows how long a WRITE takes.
    WriteLat(LoadArgs),
    /// Sends messages to a host that runs `serve`, and shows how long a SEND takes.
    SendLat(LoadArgs),
    /// Changes words on a host that runs `serve`, and shows how long an atomic takes.
    AtomicLat(AtomicArgs),
    /// Reads from a host that runs `serve`, many at once, and shows how much gets through.
    ReadBw(LoadArgs),
    /// Writes to a host that runs `serve`, many at once, and shows how much gets through.
    WriteBw(LoadArgs),
    /// Sends messages to a host that runs `serve`, and shows how much gets through.
    SendBw(LoadArgs),
    /// Changes words on a host that runs `serve`, many at once, and shows how many get through.
    AtomicBw(AtomicArgs),
    /// Several types of op at once on a host that runs `serve`, and how long each takes.
    Mixed(MixedArgs),
    /// Verifies reads and writes on a host that runs `serve`, through key rotations and lost links,
    /// and through restarts of a server that has certificates or a grant file.
    Verify(VerifyArgs),
    /// Compares 1RMA with what else carries bytes: on this machine, or with a host that runs
    /// `serve`.
    Compare(CompareArgs),
    /// Shows what changes at a host with metrics, a line a second: ops, frames, delays, drops.
    Stat(StatArgs),
    /// Writes the packets of a host that runs to a file, with what became of each frame.
    Capture(CaptureArgs),
    /// Says what is wrong with this machine and its interfaces, and what mends it. Changes
    /// nothing unless it is told to.
    Doctor(DoctorArgs),
    /// Compares the rows of two runs: conditions that are not alike, and what became worse.
    Diff(DiffArgs),
    /// Puts what was encrypted in place in a capture, by the keys of a key log.
    Decrypt(DecryptArgs),
    /// Makes one page of saved rows, with their figures.
    Report(ReportArgs),
    /// Writes the man pages, or what a shell completes, for packages.
    #[command(hide = true)]
    Generate(GenerateArgs),
}

fn main() -> ExitCode {
    let Cli { common, command } = Cli::parse();
    program::run("rma-bench", &common, |interrupt| run(&command, &common, interrupt))
}

fn run(command: &Command, common: &Common, interrupt: &Interrupt) -> Result<(), Failure> {
    use LoadOp::{Read, Send, Write};
    let task = match command {
        Command::Demo(args) => return Ok(demo::run(args, interrupt)?),
        Command::Serve(args) => {
            let served = serve::serve(args, interrupt);
            return served.map_err(|it| Failure::with_status(it.status(), it));
        }
        Command::Verify(args) => {
            let verified = verify::verify(args, interrupt);
            return verified.map_err(|it| Failure::with_status(it.status(), it));
        }
        Command::Compare(args) => {
            let compared = peers::run(args, interrupt);
            return compared.map_err(|it| Failure::with_status(it.status(), it));
        }
        Command::Capture(args) => return Ok(capture::capture(args, interrupt)?),
        Command::Stat(args) => return Ok(stat::stat(args, interrupt)?),
        Command::Generate(args) => return Ok(generate::generate(args, Cli::command())?),
        Command::Diff(args) => {
            return diff::run(args).map_err(|it| Failure::with_status(it.status(), it));
        }
        Command::Decrypt(args) => return Ok(decrypt::run(args, common.is_verbose(), interrupt)?),
        Command::Doctor(args) => {
            return doctor::run(args, interrupt)
                .map_err(|it| Failure::with_status(it.status(), it));
        }
        Command::Report(args) => return Ok(report::run(args)?),
        Command::ReadLat(args) => Task::latency("read-lat", Read, args),
        Command::WriteLat(args) => Task::latency("write-lat", Write, args),
        Command::SendLat(args) => Task::latency("send-lat", Send, args),
        Command::AtomicLat(args) => Task::atomic_latency(args),
        Command::ReadBw(args) => Task::bandwidth("read-bw", Read, args),
        Command::WriteBw(args) => Task::bandwidth("write-bw", Write, args),
        Command::SendBw(args) => Task::bandwidth("send-bw", Send, args),
        Command::AtomicBw(args) => Task::atomic_bandwidth(args),
        Command::Mixed(args) => Task::mixed(args),
    };
    load::run(&task, interrupt).map_err(|it| Failure::with_status(it.status(), it))
}
