//! `rmactl`: certificates for a lab, what a policy decides, and one fetch by hand.
//!
//! It is no daemon and keeps nothing but the files that it is told to write. No key is ever shown;
//! files with keys are its user's alone, and no file that is there is written over unasked.

mod ca;
mod files;
mod generate;
mod keys;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use rma_keys::io::core_dumps;

/// Issues certificates for a lab, and queries the key service of 1RMA.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Issues certificates of a trust domain, for labs; in production use SPIRE, step-ca or your
    /// own CA
    #[command(subcommand)]
    Ca(ca::Command),
    /// Queries a policy, or a key service
    #[command(subcommand)]
    Keys(keys::Command),
    /// Writes the man pages, or what a shell completes, for packages
    #[command(hide = true)]
    Generate(generate::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Err(error) = core_dumps::switch_off() {
        eprintln!("rmactl: core dumps cannot be switched off, and keys would be in one: {error}");
        return ExitCode::FAILURE;
    }
    let done = match arguments.command {
        Command::Ca(command) => ca::run(&command).map_err(|error| error.to_string()),
        Command::Keys(command) => keys::run(&command).map_err(|error| error.to_string()),
        Command::Generate(arguments) => {
            generate::run(&arguments, Arguments::command()).map_err(|error| error.to_string())
        }
    };
    match done {
        Ok(said) => {
            print!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("rmactl: {error}");
            ExitCode::FAILURE
        }
    }
}
