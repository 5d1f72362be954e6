//! Errors of virtual machines: while they are made, and in a row of the matrix.

use std::{io, path::PathBuf};

use crate::{cargo, host, requirements};

/// The reason why the matrix could not be run, or not all of it is as it should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// A package could not be had.
    #[error(transparent)]
    Requirements(#[from] requirements::Error),
    /// `rma-bench` could not be built.
    #[error(transparent)]
    Cargo(#[from] cargo::Error),
    /// Making the machines failed.
    #[error(transparent)]
    Setup(#[from] Setup),
    /// Rows did not go as they should.
    #[error(
        "{failed} of {ran} rows failed; each has its reason and the ends of its consoles above"
    )]
    Failed {
        /// How many failed.
        failed: usize,
        /// How many ran.
        ran: usize,
    },
    /// Nothing was shown.
    #[error("no row was run, for the reasons above")]
    NothingRan,
}

/// The reason why a machine, or a part of it, cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Setup {
    /// A file could not be read or written.
    #[error("{doing} {path}: {source}")]
    File {
        /// The action that failed.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A program could not be started.
    #[error("cannot run {program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A program ran and failed.
    #[error("`{command}` failed: {said}")]
    Command {
        /// The command line.
        command: String,
        /// The output.
        said: String,
    },
    /// The network between the machines could not be made.
    #[error("`{}` said: {}", _0.command, _0.said)]
    Ip(host::Refusal),
    /// The kernel's package lacks something.
    #[error("there is no {what} in {folder}: remove that folder, so that it is unpacked again")]
    NotInPackage {
        /// The file that is missing.
        what: String,
        /// The folder of the unpacked package.
        folder: PathBuf,
    },
}

/// The reason why a row of the matrix failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Trouble {
    /// Its machines could not be made.
    #[error(transparent)]
    Setup(#[from] Setup),
    /// A machine ended.
    #[error("{host} ended while {waiting_for} was awaited")]
    Ended {
        /// The machine, by its name.
        host: String,
        /// The thing that was awaited.
        waiting_for: String,
    },
    /// A machine said nothing for too long.
    #[error("{host} was silent for {seconds} s while {waiting_for} was awaited")]
    Silent {
        /// The machine, by its name.
        host: String,
        /// For how long.
        seconds: u64,
        /// The thing that was awaited.
        waiting_for: String,
    },
    /// A line is not one of those that are known.
    #[error("{host} said {line:?}, which is not understood")]
    Unknown {
        /// The machine, by its name.
        host: String,
        /// The line.
        line: String,
    },
    /// A command in a machine failed.
    #[error("{host}: `{command}` ended with {status}: {said}")]
    Command {
        /// The machine that it ran in.
        host: String,
        /// The command line.
        command: String,
        /// Its exit status.
        status: String,
        /// The output.
        said: String,
    },
    /// `rma-bench` ended before its time.
    #[error("{host}: rma-bench {program} ended with status {status}: {said}")]
    Exited {
        /// The machine that it ran in.
        host: String,
        /// Its subcommand.
        program: &'static str,
        /// Its exit status.
        status: String,
        /// The output.
        said: String,
    },
    /// It went on, otherwise than it should.
    #[error("{host}: {expected} was expected, and this came: {came}")]
    Unexpected {
        /// The machine that it ran in.
        host: String,
        /// The expected line.
        expected: String,
        /// The line that came.
        came: String,
    },
    /// The machine's monitor did not do what it was asked.
    #[error("the monitor of {host}: {said}")]
    Monitor {
        /// The machine whose monitor it is.
        host: String,
        /// The answer, or the reason why there is none.
        said: String,
    },
}
