//! `rma-bench generate`, which people do not see: what a package has besides the program, made from
//! its own description of its commands and options.

use std::{fs, io, path::PathBuf};

use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;

/// Arguments of `generate`.
#[derive(Args, Clone, Debug)]
pub struct GenerateArgs {
    /// The kind of files.
    #[arg(value_enum)]
    kind: Kind,
    /// The shell that completes.
    #[arg(long, value_enum, default_value = "bash")]
    shell: Shell,
    /// Folder to write to; made if it is not there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// The kind of files.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// A man page for the program and one for each of its commands.
    Man,
    /// The completions of a shell.
    Completions,
}

/// The reason why nothing, or not all, was written.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be written to: {source}; give a folder of your own as --out", out.display())]
pub struct GenerateError {
    out: PathBuf,
    source: io::Error,
}

/// Writes the files of `program`, but for commands and options that are hidden.
///
/// # Errors
/// If the system refuses.
pub fn generate(args: &GenerateArgs, program: Command) -> Result<(), GenerateError> {
    let GenerateArgs { kind, shell, out } = args;
    let mut program = program.disable_help_subcommand(true);
    let name = program.get_name().to_owned();
    let written = fs::create_dir_all(out).and_then(|()| match kind {
        Kind::Man => clap_mangen::generate_to(program, out),
        Kind::Completions => {
            clap_complete::generate_to(*shell, &mut program, name, out).map(|_| ())
        }
    });
    written.map_err(|source| GenerateError { out: out.clone(), source })
}
