//! `cargo xtask bench`: the figures that the documentation quotes, from a release build.
//!
//! With `--json` the standard output holds the figures' lines and nothing else.

use clap::Args;

use crate::{cargo::Cargo, program::Error, requirements};

/// The measurements to run: the options of `rma-figures measure`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Print one line of JSON for each figure.
    #[arg(long)]
    json: bool,
    /// Figures to measure, by name, separated by commas. Default: those that say most.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Measure all figures.
    #[arg(long, conflicts_with = "only")]
    all: bool,
    /// Fail if a figure misses its limit. Such a figure is measured three times, since the machine
    /// may be busy, and the median decides. Every value is shown.
    #[arg(long, conflicts_with = "list")]
    check: bool,
    /// List the figures' names: those that are measured by default, or with `--all` all.
    #[arg(long)]
    list: bool,
}

/// Becomes `rma-figures measure`.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    requirements::to_build()?;
    if !options.list {
        requirements::for_the_lab()?.map_err(|lacks| lacks.into_error("bench"))?;
    }
    let of = ["--release", "--package", "rma-figures"];
    if !options.list {
        // What operators run is measured as a process.
        let programs = ["build", "--release", "--package", "rma-figures", "--package", "rma-bench"];
        Cargo::new(&programs).args(["--bins"]).run()?;
        // The programs whose instructions valgrind counts lie beside this one then.
        requirements::to_count_instructions()?;
        for example in ["turn", "turn_beside", "receive", "star"] {
            Cargo::new(&["build"]).args(of).args(["--example", example]).run()?;
        }
    }
    let bench = [&["run"], &of[..]].concat();
    let mut cargo = Cargo::new(&bench).args(["--", "measure"]);
    for (is_set, flag) in [
        (options.json, "--json"),
        (options.all, "--all"),
        (options.check, "--check"),
        (options.list, "--list"),
    ] {
        if is_set {
            cargo = cargo.args([flag]);
        }
    }
    if let Some(name) = &options.only {
        cargo = cargo.args(["--only", name]);
    }
    Err(cargo.exec().into())
}
