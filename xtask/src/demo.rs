//! `cargo xtask demo`: gets what it takes, then becomes `rma-bench demo`.

use std::ffi::OsString;

use crate::{
    cargo::Cargo,
    program::Error,
    requirements::{self, Lacks},
};

/// Runs the demo with `options`. Where there can be no lab, the demo is told to show what it can.
pub(crate) fn run(mut options: Vec<OsString>) -> Result<(), Error> {
    requirements::to_build()?;
    match requirements::for_the_lab()? {
        // Without root the demo itself says what it cannot show.
        Ok(()) | Err(Lacks::Root) => {}
        Err(lacks) => {
            eprintln!("note: {lacks}, so the demo runs over kernel UDP sockets (--udp)");
            options.push("--udp".into());
        }
    }
    let demo = ["run", "--release", "--package", "rma-bench", "--", "demo"];
    Err(Cargo::new(&demo).args(options).exec().into())
}
