//! Man pages and completions, for packages: people do not see the command.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use clap_complete::Shell;

use crate::files::FileError;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The kind of files
    #[arg(value_enum)]
    kind: Kind,
    /// The shell that completes
    #[arg(long, value_enum, default_value = "bash")]
    shell: Shell,
    /// Folder to write to
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// A man page for the program and one for each of its commands
    Man,
    /// The completions of a shell
    Completions,
}

/// Writes the files of `program`.
pub(crate) fn run(arguments: &Arguments, program: clap::Command) -> Result<String, FileError> {
    let Arguments { kind, shell, out } = arguments;
    let mut program = program.disable_help_subcommand(true);
    let written = std::fs::create_dir_all(out).and_then(|()| match kind {
        Kind::Man => clap_mangen::generate_to(program, out),
        Kind::Completions => {
            clap_complete::generate_to(*shell, &mut program, "rmactl", out).map(|_| ())
        }
    });
    written.map_err(|why| FileError::Write { path: out.clone(), why })?;
    Ok(String::new())
}
