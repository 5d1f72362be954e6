//! `cargo xtask demo`: gets what it takes, then becomes `rma-bench demo`.

use std::ffi::OsString;

use crate::{
    cargo::{self, Cargo},
    program::Error,
    requirements::{self, Lacks},
};

/// Runs the demo with `options`. Where there can be no lab, the demo is told to show what it can.
pub(crate) fn run(options: Vec<OsString>) -> Result<(), Error> {
    let options = prepare(options)?;
    Err(Cargo::new(&["run", "--release", "--package", "rma-bench", "--"])
        .args(options)
        .exec()
        .into())
}

/// The same, by the program that the tests have built, for a caller that has more to do: an
/// optimised one would take minutes to build.
pub(crate) fn run_as_tested(options: Vec<OsString>) -> Result<(), Error> {
    Ok(cargo::run_built("rma-bench", &prepare(options)?)?)
}

/// Gets what is missing, and returns the arguments of the program.
fn prepare(mut options: Vec<OsString>) -> Result<Vec<OsString>, Error> {
    requirements::to_build()?;
    match requirements::for_the_lab()? {
        // Without root the demo itself says what it cannot show.
        Ok(()) | Err(Lacks::Root) => {}
        Err(lacks) => {
            eprintln!("note: {lacks}, so the demo runs over kernel UDP sockets (--udp)");
            options.push("--udp".into());
        }
    }
    options.insert(0, "demo".into());
    Ok(options)
}
