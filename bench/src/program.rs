//! A program of measurements from its command line to its exit status: the options that all
//! commands have, signals, and a reader of its output that leaves.

use std::{error::Error, process::ExitCode};

use clap::{ArgAction, Args};
use rma_xdp::keys::core_dumps;
use tracing_subscriber::filter::LevelFilter;

use crate::{capture, interrupt::Interrupt, out};

/// The options of all commands.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Log to standard error. Once: the settings that hosts choose. Twice: each portal, region and
    /// grant as well.
    #[arg(short, long, action = ArgAction::Count, global = true)]
    verbose: u8,
    /// Log the keys of all frames to this file, behind what is in it, to decrypt captures by.
    /// Whoever reads it reads and forges all that they seal.
    #[cfg(feature = "keylog")]
    #[arg(long, value_name = "FILE", global = true)]
    keylog: Option<std::path::PathBuf>,
    /// Log the keys of this host's regions as well: those of all initiators follow from them.
    #[cfg(feature = "keylog")]
    #[arg(long, requires = "keylog", global = true)]
    keylog_regions: bool,
}

impl Common {
    /// Whether more was asked for than results.
    #[must_use]
    pub const fn is_verbose(&self) -> bool {
        self.verbose > 0
    }

    /// Logs keys, if that is asked for.
    #[cfg(feature = "keylog")]
    fn log_keys(&self) -> Result<(), Failure> {
        use rma_xdp::keylog::{KEYLOG_VARIABLE, start};
        let named = self.keylog.clone();
        if let Some(path) = &named {
            start(path, self.keylog_regions)?;
        }
        let asked = named.or_else(|| std::env::var_os(KEYLOG_VARIABLE).map(Into::into));
        if let Some(path) = asked.filter(|it| !it.as_os_str().is_empty()) {
            let path = path.display();
            eprintln!(
                "warning: keys are logged to {path}: who reads it reads and forges all that they \
                 seal; switch it off and rotate the keys when you are done"
            );
        }
        Ok(())
    }

    #[cfg(not(feature = "keylog"))]
    #[expect(clippy::unnecessary_wraps, reason = "builds with a key log can fail")]
    fn log_keys(&self) -> Result<(), Failure> {
        if std::env::var_os("RMA_KEYLOGFILE").is_some_and(|it| !it.is_empty()) {
            eprintln!(
                "warning: no keys are logged, as this build has no key log; build it with \
                 `--features keylog`, or take RMA_KEYLOGFILE out of the environment"
            );
        }
        Ok(())
    }
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
    common: &Common,
    command: impl FnOnce(&Interrupt) -> Result<(), Failure>,
) -> ExitCode {
    trace(common.verbose);
    if let Err(error) = core_dumps::switch_off() {
        eprintln!("{name}: core dumps cannot be switched off, and keys would be in one: {error}");
        return ExitCode::FAILURE;
    }
    let interrupt = Interrupt::on_signals();
    let result = match &interrupt {
        Ok(interrupt) => common.log_keys().and_then(|()| command(interrupt)),
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
