//! `cargo xtask`: one entry point for people and CI.
//!
//! Each task first looks for what it needs and, as root on Debian or Ubuntu, installs what is
//! missing; otherwise it prints the one command that does. Then it runs cargo, and prints the
//! command lines it runs, so that they can be repeated by hand.
//!
//! Not a build system: whatever it does, plain cargo can do as well. It depends on nothing that
//! needs a system package, as it has to build where those are not installed yet.

use std::{ffi::OsString, process::ExitCode};

use clap::{Parser, Subcommand};

mod bench;
mod cargo;
mod ci;
mod demo;
mod dependant;
mod ebpf;
mod host;
mod not_run;
mod package;
mod program;
mod requirements;
mod size;
mod swarm;
mod targets;
mod test;
mod vms;

use not_run::NotRun;

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "Demo, tests and figures of 1RMA."
)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run two hosts on this machine: verified reads and writes, their latency beside raw AF_XDP,
    /// and key rotations.
    Demo {
        /// Options of `rma-bench demo`; `cargo xtask demo -- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// Run all tests, tier by tier.
    Test(test::Options),
    /// Run the tests that take seeds, with many more of them than `ci` runs.
    Swarm(swarm::Options),
    /// Measure every figure that the documentation quotes.
    Bench(bench::Options),
    /// Run pairs of virtual machines with other kernels and NICs against each other and a UDP host.
    Vms(vms::Options),
    /// Run all checks that a change must pass: lints, all tests, the object check, two pairs of
    /// virtual machines.
    Ci,
    /// Build and run a program that depends on the host, in a workspace of its own.
    Dependant,
    /// Make a Debian package of `rma-bench` and `rmactl`.
    Package,
    /// Count lines by crate and packages linked, against the limits of xtask/size.toml.
    Size,
    /// Rebuild the steering program's object beside its source.
    Ebpf {
        /// Compare the object with its source, and rebuild nothing.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                eprintln!("  because: {cause}");
                source = cause.source();
            }
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<(), Box<dyn std::error::Error>> {
    match task {
        Task::Demo { options } => demo::run(options)?,
        Task::Test(options) => {
            let mut not_run = NotRun::default();
            let result = test::run(&options, &mut not_run);
            not_run.conclude(result)?;
        }
        Task::Swarm(options) => swarm::run(&options)?,
        Task::Bench(options) => bench::run(&options)?,
        Task::Vms(options) => {
            let mut not_run = NotRun::default();
            let result = vms::run_alone(&options, &mut not_run);
            not_run.conclude(result)?;
        }
        Task::Ci => ci::run()?,
        Task::Dependant => dependant::run()?,
        Task::Package => {
            let mut not_run = NotRun::default();
            let result = package::run(&mut not_run);
            not_run.conclude(result)?;
        }
        Task::Size => size::run()?,
        Task::Ebpf { check: true } => ebpf::check(&mut NotRun::default())?,
        Task::Ebpf { check: false } => ebpf::run()?,
    }
    Ok(())
}
