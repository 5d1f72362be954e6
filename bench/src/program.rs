//! A program of measurements from its command line to its exit status: the options that all
//! commands have, signals, and a reader of its output that leaves.

use std::{error::Error, process::ExitCode};

use clap::{ArgAction, Args};
use rma_xdp::keys::core_dumps;
use tracing_subscriber::filter::LevelFilter;

use crate::{capture, interrupt::Interrupt, out};

/// The options of all commands.
#[derive(Args, Clone, Copy, Debug)]
pub struct Common {
    /// Log to standard error. Once: the settings that hosts choose. Twice: each portal, region and
    /// grant as well.
    #[arg(short, long, action = ArgAction::Count, global = true)]
    verbose: u8,
}

/// An error that ends a program, with its exit status.
#[derive(Debug)]
pub struct Failure {
    status: u8,
    why: Box<dyn Error>,
}

impl<E: Into<Box<dyn Error>>> From<E> for Failure {
    fn from(why: E) -> Self {
        Self { status: 1, why: why.into() }
    }
}

impl Failure {
    /// One with this exit status.
    pub fn with_status(status: u8, why: impl Into<Box<dyn Error>>) -> Self {
        Self { status, why: why.into() }
    }
}

/// The exit status of a program that SIGPIPE has ended: 128 and the signal's number.
const SIGPIPE_STATUS: u8 = 128 + signal_hook::consts::SIGPIPE as u8;

/// Runs a command of the program `name`, and says on standard error why it failed.
pub fn run(
    name: &str,
    common: Common,
    command: impl FnOnce(&Interrupt) -> Result<(), Failure>,
) -> ExitCode {
    trace(common.verbose);
    if let Err(error) = core_dumps::switch_off() {
        eprintln!("{name}: core dumps cannot be switched off, and keys would be in one: {error}");
        return ExitCode::FAILURE;
    }
    let interrupt = Interrupt::on_signals();
    let result = match &interrupt {
        Ok(interrupt) => command(interrupt),
        Err(error) => Err(format!("signals cannot be handled: {error}").into()),
    };
    capture::end_own(name);
    if out::reader_is_gone() {
        // Quietly, and with the status that shells know from programs that SIGPIPE ended.
        return ExitCode::from(SIGPIPE_STATUS);
    }
    if let Some(error) = out::failure() {
        eprintln!("{name}: results could not be written to standard output: {error}");
        return ExitCode::FAILURE;
    }
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { status, why }) => {
            eprintln!("{name}: {why}");
            // That of shells for programs that a signal ended.
            let signal = interrupt.as_ref().ok().and_then(Interrupt::signal);
            ExitCode::from(signal.map_or(status, |it| 128 + it))
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
