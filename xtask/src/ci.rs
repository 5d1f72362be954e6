//! `cargo xtask ci`: everything that must pass before a change is merged.
//!
//! The tests, and what depends on more than the code: formatting and lints (on the compiler's
//! version), the steering program's object, a swarm of simulated networks, the example of the
//! README, here and in a workspace of its own, and other kernels.

use std::ops::Range;

use crate::{
    cargo::{self, Cargo},
    dependant, ebpf, host,
    not_run::NotRun,
    requirements, size,
    swarm::{self, Test},
    test, vms,
};

/// The reason why a change cannot be merged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// Something is missing.
    #[error(transparent)]
    Requirements(#[from] requirements::Error),
    /// A lint or an example failed.
    #[error(transparent)]
    Cargo(#[from] cargo::Error),
    /// The object is not what its source gives.
    #[error(transparent)]
    Ebpf(#[from] ebpf::Error),
    /// The golden vectors are not what `docs/WIRE.md` says, or not what another AES makes of it.
    #[error("the golden vectors are wrong; `python3 {VECTORS}` says which")]
    Vectors,
    /// Not all tests passed.
    #[error(transparent)]
    Test(#[from] test::Error),
    /// A simulated network broke a promise.
    #[error(transparent)]
    Swarm(#[from] swarm::Error),
    /// A program that depends on the host could not be built or run.
    #[error(transparent)]
    Dependant(#[from] dependant::Error),
    /// The tree has more lines than it may have.
    #[error(transparent)]
    Size(#[from] size::Error),
    /// Two virtual machines did not work with each other.
    #[error(transparent)]
    Vms(#[from] vms::Error),
}

/// The folders that are workspaces of their own, and so are not covered by a command in the root.
const OTHER_WORKSPACES: [&str; 2] = ["ebpf", "fuzz"];

/// Another processor, and the crates that can be checked for it here: those without C.
const OTHER_TARGET: &str = "aarch64-unknown-linux-gnu";
const PORTABLE: [&str; 5] = ["rma-shm", "rma-crypto", "rma-core", "rma-channel", "rma-sim"];

/// The script that checks the golden vectors with another AES than ours, and what it needs.
const VECTORS: &str = "docs/vectors/check.py";
const VECTORS_NEED: &str = "import cryptography";

/// The seeds of the simulated networks that are run here: those behind the ones that the tests run.
/// `CONTRIBUTING.md` says why so many.
const NETWORKS: Range<u64> = 2_000..25_000;

/// The features of a host, each of which is linted alone: first none.
const FEATURES: [&str; 7] = ["", "xdp", "channel", "star", "keys", "keylog", "capture"];

/// The examples that run in one process.
const EXAMPLES: [&str; 9] = [
    "one_sided",
    "any_size",
    "mailbox",
    "counter",
    "lock",
    "rpc",
    "broadcast",
    "star_rpc",
    KEYS_EXAMPLE,
];

/// The key service over an RPC of the application's own: it needs no TLS, and so no C.
const KEYS_EXAMPLE: &str = "own_rpc";

/// Runs it all, and ends with what could not be run.
pub(crate) fn run() -> Result<(), Error> {
    let mut not_run = NotRun::default();
    let result = run_all(&mut not_run);
    not_run.conclude(result)
}

/// The cheap things first; stops at the first that fails.
fn run_all(not_run: &mut NotRun) -> Result<(), Error> {
    println!("\n== lints ==");
    requirements::to_lint()?;
    Cargo::new(&["fmt", "--all", "--check"]).run()?;
    for folder in OTHER_WORKSPACES {
        let manifest = format!("{folder}/Cargo.toml");
        Cargo::new(&["fmt", "--check", "--manifest-path", &manifest]).run()?;
    }
    size::run()?;
    ebpf::check(not_run)?;
    check_vectors(not_run)?;
    requirements::to_test()?;
    let clippy =
        ["clippy", "--workspace", "--all-targets", "--keep-going", "--", "--deny", "warnings"];
    Cargo::new(&clippy).run()?;
    // The host with each of its features alone, as users compile it: all other builds here have all
    // of them.
    for feature in FEATURES {
        let clippy = ["clippy", "--package", "rma-xdp", "--no-default-features", "--lib"];
        let clippy = Cargo::new(&clippy).args(["--features", feature]);
        clippy.args(["--", "--deny", "warnings"]).run()?;
    }
    let clippy = ["clippy", "--package", "rma-keys", "--no-default-features", "--example"];
    Cargo::new(&clippy).args([KEYS_EXAMPLE, "--", "--deny", "warnings"]).run()?;
    // Off in all other builds of it: one brings QUIC, the other logs keys.
    let clippy = ["clippy", "--package", "rma-bench", "--lib", "--features", "quic,keylog"];
    Cargo::new(&clippy).args(["--", "--deny", "warnings"]).run()?;
    let doc = Cargo::new(&["doc", "--workspace", "--no-deps"]);
    doc.flags("RUSTDOCFLAGS", "--deny warnings").run()?;
    if requirements::for_target(OTHER_TARGET) {
        let clippy = Cargo::new(&["clippy", "--target", OTHER_TARGET]);
        let packages = PORTABLE.iter().flat_map(|package| ["--package", package]);
        clippy.args(packages).args(["--", "--deny", "warnings"]).run()?;
        // With TLS it has C.
        let clippy = Cargo::new(&["clippy", "--target", OTHER_TARGET]);
        let keys = ["--package", "rma-keys", "--no-default-features"];
        clippy.args(keys).args(["--", "--deny", "warnings"]).run()?;
    } else {
        not_run.add(format_args!(
            "lints for {OTHER_TARGET}, as `rustup target add {OTHER_TARGET}` fails here"
        ));
    }

    test::run(&test::Options::default(), not_run)?;

    println!("\n== simulated networks {NETWORKS:?} ==");
    swarm::run_few(Test::Networks, &NETWORKS)?;

    println!("\n== the README's examples ==");
    // As the tests have built them: by package they would have other features, and be built anew.
    Cargo::new(&["build", "--workspace", "--examples"]).run()?;
    EXAMPLES.iter().try_for_each(|example| cargo::run_example(example))?;
    println!("\n== a program that depends on the host ==");
    dependant::run()?;
    println!("\n== other kernels, in virtual machines ==");
    vms::run(&vms::Options::short(), not_run)?;
    Ok(())
}

/// With a program that shares no line with ours, where there is one to run it.
fn check_vectors(not_run: &mut NotRun) -> Result<(), Error> {
    if !host::succeeds("python3", &["-c", VECTORS_NEED]) {
        not_run.add(format_args!("{VECTORS}, as `python3 -c '{VECTORS_NEED}'` fails here"));
        return Ok(());
    }
    let path = cargo::workspace().join(VECTORS);
    if host::succeeds("python3", &[&path.to_string_lossy()]) {
        println!("{VECTORS} makes the same golden vectors");
        Ok(())
    } else {
        Err(Error::Vectors)
    }
}
