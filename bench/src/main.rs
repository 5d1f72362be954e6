//! `rma-bench`: shows that 1RMA works on this machine and between two, and how fast.

#![deny(clippy::print_stdout)]

use std::{error::Error, process::ExitCode};

use clap::{Parser, Subcommand};
use rma_bench::{
    atomic_lat::{self, AtomicLatArgs},
    demo::{self, DemoArgs},
    interrupt::Interrupt,
    lat::{self, LatArgs},
    program::{self, Common},
    send_lat::{self, SendLatArgs},
    serve::{self, ServeArgs},
    verify::{self, VerifyArgs},
    write_lat,
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
    /// Verifies reads and writes on a host that runs `serve`, through key rotations and lost links,
    /// and through restarts of a server that has certificates or a grant file.
    Verify(VerifyArgs),
}

fn main() -> ExitCode {
    let Cli { common, command } = Cli::parse();
    program::run("rma-bench", common, |interrupt| run(&command, interrupt))
}

fn run(command: &Command, interrupt: &Interrupt) -> Result<(), Box<dyn Error>> {
    match command {
        Command::Demo(args) => demo::run(args, interrupt)?,
        Command::Serve(args) => serve::serve(args, interrupt)?,
        Command::ReadLat(args) => lat::read_lat(args, interrupt)?,
        Command::WriteLat(args) => write_lat::write_lat(args, interrupt)?,
        Command::SendLat(args) => send_lat::send_lat(args, interrupt)?,
        Command::CasLat(args) => atomic_lat::cas_lat(args, interrupt)?,
        Command::FetchAddLat(args) => atomic_lat::fetch_add_lat(args, interrupt)?,
        Command::Verify(args) => verify::verify(args, interrupt)?,
    }
    Ok(())
}
