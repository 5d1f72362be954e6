//! A server of the cache: `kv-server --help`.

use std::process::ExitCode;

use clap::Parser;
use rma_kv::server::{ServerArgs, serve};

/// Serves a part of a replicated cache, which clients read one-sided.
#[derive(Debug, Parser)]
#[command(name = "kv-server", version)]
struct Cli {
    #[command(flatten)]
    server: ServerArgs,
}

fn main() -> ExitCode {
    match serve(&Cli::parse().server) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kv-server: {error}");
            ExitCode::FAILURE
        }
    }
}
