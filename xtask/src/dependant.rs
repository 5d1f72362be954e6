//! A program in a workspace of its own that links the host, as somebody has it who depends on the
//! crate.
//!
//! Neither this workspace's settings nor its features reach it. It is built with nothing on the
//! `PATH` but Rust and the linker, with AF_XDP and without: whatever else the build asks for is
//! missing.
//!
//! The application's end alone, for whoever issues ops and runs no engine, is not built apart; what
//! it links is looked at.
//!
//! Not here: that a library or a header is looked for past the `PATH`. Which packages are in the
//! tree says that.

use std::{collections::BTreeSet, env, fs, io, os::unix::fs::symlink, path::PathBuf, process};

use crate::{
    cargo::{self, Cargo, workspace},
    host,
};

/// The reason why a program could not use the host as others do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// It does not build or run.
    #[error(transparent)]
    Cargo(#[from] cargo::Error),
    /// Cargo does not say what is linked.
    #[error("`{command}` failed: run it by hand to see why")]
    Tree {
        /// The command line.
        command: String,
    },
    /// Something is linked that is to be left out.
    #[error("{by} depends on {package}: make it optional, or have another crate do what needs it")]
    Linked {
        /// The program that is linked, and its features.
        by: &'static str,
        /// The package.
        package: String,
    },
    /// The application's end has grown.
    #[error(
        "rma-app with all features links {packages} packages, more than {APP_PACKAGES_MAX}: do without the new one, or \
         have another crate do what needs it"
    )]
    Large {
        /// How many packages it links.
        packages: usize,
    },
    /// The folder of the program could not be made.
    #[error("cannot make a program in {}: {source}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// The packages that a program over UDP alone must not bring: AF_XDP's loader, and netlink, which
/// finds paths for AF_XDP. Beginnings of names.
const NOT_OVER_UDP: &[&str] = &["aya", "netlink-"];

/// The packages by which others compile C, or look for C that is installed.
const COMPILE_C: &[&str] = &["bindgen ", "cc ", "cmake ", "pkg-config "];

/// How many packages the application's end is with all that it links: the protocol and its
/// cryptography are most of them. More: every service that issues ops has to trust and build them.
const APP_PACKAGES_MAX: usize = 42;

/// All that may be on the `PATH`.
const PROGRAMS: [&str; 6] = ["cargo", "rustc", "cc", "ld", "as", "ar"];

/// The program's manifest; it is not in this repository's folder, whose `.cargo/config.toml` would
/// be read there.
fn manifest() -> String {
    let host = workspace().join("rma-xdp");
    format!(
        "[package]\nname = \"dependant\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [features]\ndefault = [\"rma-xdp/default\"]\n\n\
         [dependencies]\nrma-xdp = {{ path = {host:?}, default-features = false }}\n"
    )
}

/// Looks at what is linked, and builds and runs the README's first example.
pub(crate) fn run() -> Result<(), Error> {
    check("rma-xdp", &linked(&["rma-xdp"])?, COMPILE_C)?;
    let over_udp = linked(&["rma-xdp", "--no-default-features"])?;
    check("rma-xdp without the feature `xdp`", &over_udp, NOT_OVER_UDP)?;
    let of_app = linked(&["rma-app", "--all-features"])?;
    check("rma-app with all features", &of_app, NOT_OVER_UDP)?;
    println!(
        "rma-app with all features links {} packages, of at most {APP_PACKAGES_MAX}",
        of_app.len()
    );
    if of_app.len() > APP_PACKAGES_MAX {
        return Err(Error::Large { packages: of_app.len() });
    }
    let folder = env::temp_dir().join(format!("rma-dependant-{}", process::id()));
    let made = make(&folder).map_err(|source| Error::Folder { folder: folder.clone(), source });
    let target = workspace().join("target/dependant");
    let run = |features: &[&str]| {
        let cargo = Cargo::new(&["run", "--quiet"]).args(features.iter().copied());
        let cargo = cargo.directory(folder.clone());
        let cargo = cargo.variable("PATH", &folder.join("bin").to_string_lossy());
        cargo.variable("CARGO_TARGET_DIR", &target.to_string_lossy()).run()
    };
    let ran = made.and_then(|()| Ok(run(&[]).and_then(|()| run(&["--no-default-features"]))?));
    // Nothing of it is needed any longer; what is left if this fails is a few small files.
    let _ = fs::remove_dir_all(&folder);
    ran
}

/// The packages that are linked into what depends on `package`, or build that.
fn linked(package: &[&str]) -> Result<BTreeSet<String>, Error> {
    let tree = Cargo::new(&["tree", "--package"]).args(package);
    let tree = tree.args(["--edges", "normal,build", "--prefix", "none", "--no-dedupe"]);
    let command = tree.line();
    let Some(text) = tree.output() else { return Err(Error::Tree { command }) };
    // A line is a name, a version, and perhaps a path.
    let first_two = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    Ok(text.lines().map(first_two).collect())
}

/// An error if one of `packages`, which are those of `by`, begins with one of `barred`.
fn check(by: &'static str, packages: &BTreeSet<String>, barred: &[&str]) -> Result<(), Error> {
    let is_barred = |package: &&String| barred.iter().any(|barred| package.starts_with(barred));
    match packages.iter().find(is_barred) {
        Some(package) => Err(Error::Linked { by, package: package.clone() }),
        None => Ok(()),
    }
}

fn make(folder: &std::path::Path) -> io::Result<()> {
    fs::create_dir_all(folder.join("src"))?;
    fs::create_dir_all(folder.join("bin"))?;
    fs::write(folder.join("Cargo.toml"), manifest())?;
    // The versions that are tested here.
    fs::copy(workspace().join("Cargo.lock"), folder.join("Cargo.lock"))?;
    let example = workspace().join("rma-xdp/examples/one_sided.rs");
    fs::copy(example, folder.join("src/main.rs"))?;
    for name in PROGRAMS {
        if let Some(program) = host::find_program(name) {
            symlink(program, folder.join("bin").join(name))?;
        }
    }
    Ok(())
}
