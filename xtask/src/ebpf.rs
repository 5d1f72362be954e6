//! `cargo xtask ebpf`: builds the steering program and keeps the built object honest.
//!
//! The object is in git beside its source, so that building the project takes no BPF tools. Two
//! things keep it from drifting away. `rma-steer.bpf.o.source-hash` lists the digest of each file
//! that goes into the object, and of the object, in the format of `sha256sum`; a test reads it too.
//! And where the same tools are at hand as built the committed object, `--check` builds it again
//! and compares every byte.
//!
//! Not here: what the object does. Its verdicts are tested in `tests/tests/steering.rs`.

use std::{
    env,
    ffi::OsString,
    fmt::Write as _,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use sha2::{Digest as _, Sha256};

use crate::not_run::NotRun;

/// Other versions work, but make other bytes.
const BPF_LINKER: &str = "bpf-linker@0.13.0";
/// The least release of rustc for aya-ebpf: 1.87. Debian's plain `rustc` is older.
const RUSTC_MINOR_MIN: u32 = 87;
const TARGET: &str = "bpfel-unknown-none";
const OBJECT: &str = "rma-steer.bpf.o";
const SOURCE_HASH: &str = "rma-steer.bpf.o.source-hash";
/// Everything that decides the object, apart from `src/` and the tools.
const MANIFESTS: [&str; 3] = [".cargo/config.toml", "Cargo.lock", "Cargo.toml"];
/// Debian's own compiler brings the sources of `core`, which the BPF target is built from.
const DEBIAN_PACKAGES: [&str; 7] = [
    "rustc-web",
    "rust-web-src",
    "cargo-web",
    "llvm-22-dev",
    "libpolly-22-dev",
    "libzstd-dev",
    "libxml2-dev",
];
/// Variables that would change the object, by their beginnings. Others (mirrors, proxies) stay.
const BUILD_VARIABLES: [&str; 8] = [
    "CARGO_BUILD_",
    "CARGO_ENCODED_",
    "CARGO_PROFILE_",
    "CARGO_TARGET_",
    "CARGO_UNSTABLE_",
    "RUSTC",
    "RUSTFLAGS",
    "RUSTUP_TOOLCHAIN",
];
const DEBIAN_LLVM: &str = "/usr/lib/llvm-22";

/// The reason why the object could not be built, or is not what it should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// A file could not be read or written.
    #[error("cannot use {}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A program could not be started.
    #[error("cannot run {program}: is it installed?")]
    Spawn {
        /// The program, with its path.
        program: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A program ran and failed; what it printed says why.
    #[error("`{command}` failed; its own message is above")]
    Failed {
        /// The command line, as far as a person needs it.
        command: String,
    },
    /// There is nothing to build the object with, and it cannot be installed from here.
    #[error(
        "no tools to build for {TARGET}. Install one of these sets, then run this again:\n{hint}"
    )]
    NoToolchain {
        /// The commands.
        hint: String,
    },
    /// The committed object was not built from the committed sources.
    #[error(
        "{OBJECT} is not what the sources give ({changed}): run `cargo xtask ebpf` and commit the result"
    )]
    Stale {
        /// The files whose digests differ.
        changed: String,
    },
    /// The same sources and the same tools gave another object.
    #[error(
        "a rebuild of {OBJECT} with the recorded tools differs from the committed one: run `cargo xtask ebpf`, \
         look at the difference, and commit it if it is meant"
    )]
    NotReproducible,
    /// The object names a folder of the machine that built it.
    #[error("the built object contains the path {path}: remap it in xtask/src/ebpf.rs")]
    MachinePath {
        /// The path found.
        path: String,
    },
}

/// Rebuilds the object and its source hash.
pub(crate) fn run() -> Result<(), Error> {
    let dir = ebpf_dir();
    let tools = match Toolchain::find() {
        Some(tools) => tools,
        None => {
            install()?;
            Toolchain::find().ok_or_else(no_toolchain)?
        }
    };
    let made_with = tools.describe()?;
    println!("building {OBJECT} with {made_with}");
    let object = tools.build(&dir)?;
    let path = dir.join(OBJECT);
    let changed = fs::read(&path).ok().as_deref() != Some(&object);
    fs::write(&path, &object).map_err(|source| Error::File { path, source })?;
    let path = dir.join(SOURCE_HASH);
    fs::write(&path, source_hash(&dir, &made_with)?)
        .map_err(|source| Error::File { path, source })?;
    let verb = if changed { "changed" } else { "same as before" };
    println!("{OBJECT}: {} bytes, {verb}", object.len());
    Ok(())
}

/// Compares the object with its source. Comparing digests takes no tools. If the tools that the
/// source hash records are present, it also rebuilds the object elsewhere and compares bytes; that
/// it cannot goes to `not_run`.
pub(crate) fn check(not_run: &mut NotRun) -> Result<(), Error> {
    verify(&ebpf_dir(), not_run)
}

fn verify(dir: &Path, not_run: &mut NotRun) -> Result<(), Error> {
    let recorded = read_text(&dir.join(SOURCE_HASH))?;
    let made_with = recorded.lines().find_map(|line| line.strip_prefix(MADE_WITH)).unwrap_or("");
    let current = source_hash(dir, made_with)?;
    if recorded != current {
        return Err(Error::Stale { changed: changed_files(&recorded, &current) });
    }
    println!("{OBJECT} was built from the sources beside it");
    match Toolchain::find() {
        Some(tools) if tools.describe()? == made_with => {
            let path = dir.join(OBJECT);
            let committed = fs::read(&path).map_err(|source| Error::File { path, source })?;
            if tools.build(dir)? != committed {
                return Err(Error::NotReproducible);
            }
            println!("{OBJECT} rebuilds to the same bytes");
        }
        Some(tools) => {
            let here = tools.describe()?;
            not_run.add(format_args!(
                "{OBJECT} rebuilt: it was made with {made_with}, here is {here}"
            ));
        }
        None => not_run.add(format_args!(
            "{OBJECT} rebuilt: no BPF tools here, `cargo xtask ebpf` says which"
        )),
    }
    Ok(())
}

/// The folder of the steering program, wherever `cargo xtask` was called from.
fn ebpf_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("ebpf")
}

const MADE_WITH: &str = "# Made with ";

/// The text of the source-hash file: `sha256sum -c` reads it, comments and all.
fn source_hash(dir: &Path, made_with: &str) -> Result<String, Error> {
    let mut files: Vec<PathBuf> = MANIFESTS.iter().map(PathBuf::from).collect();
    files.push(OBJECT.into());
    let src = dir.join("src");
    let entries = fs::read_dir(&src).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    for entry in entries.map_err(|source| Error::File { path: src, source })? {
        files.push(Path::new("src").join(entry.file_name()));
    }
    files.sort();
    let mut text = format!(
        "# What {OBJECT} was built from. Written by `cargo xtask ebpf`; read it with `sha256sum -c` in ebpf/.\n\
         {MADE_WITH}{made_with}\n"
    );
    for file in files {
        let path = dir.join(&file);
        let bytes = fs::read(&path).map_err(|source| Error::File { path, source })?;
        for byte in Sha256::digest(&bytes) {
            write!(text, "{byte:02x}").expect("a String takes all text");
        }
        writeln!(text, "  {}", file.display()).expect("a String takes all text");
    }
    Ok(text)
}

fn changed_files(recorded: &str, current: &str) -> String {
    let missing = |from: &str, of: &str| {
        let of: Vec<&str> = of.lines().collect();
        let lines = from.lines().filter(|line| !line.starts_with('#') && !of.contains(line));
        lines
            .filter_map(|line| line.split_once("  "))
            .map(|(_, f)| f.to_owned())
            .collect::<Vec<_>>()
    };
    let mut files = [missing(recorded, current), missing(current, recorded)].concat();
    files.sort();
    files.dedup();
    if files.is_empty() { SOURCE_HASH.to_owned() } else { files.join(", ") }
}

/// A compiler that has the sources of `core`, and what goes with it.
#[derive(Debug)]
struct Toolchain {
    cargo: PathBuf,
    rustc: PathBuf,
    /// Holds the sources of `core`.
    sysroot: PathBuf,
    objcopy: PathBuf,
}

impl Toolchain {
    /// Debian's compiler first: it made the committed object. Then rustup's nightly.
    fn find() -> Option<Self> {
        let debian = Path::new("/usr/bin").to_owned();
        let nightly = stdout("rustup", &["which", "--toolchain", "nightly", "rustc"])
            .and_then(|rustc| Path::new(&rustc).parent().map(Path::to_owned));
        stdout("bpf-linker", &["--version"])?;
        [Some(debian), nightly].into_iter().flatten().find_map(|bin| {
            let rustc = bin.join("rustc");
            let release = stdout(&rustc, &["--version"])?;
            let minor = release.strip_prefix("rustc 1.")?.split('.').next()?.parse::<u32>().ok()?;
            if minor < RUSTC_MINOR_MIN {
                return None;
            }
            let sysroot = PathBuf::from(stdout(&rustc, &["--print", "sysroot"])?);
            let cargo = bin.join("cargo");
            let has_core = sysroot.join("lib/rustlib/src/rust/library/core/src/lib.rs").exists();
            let objcopy = find_objcopy(&sysroot)?;
            (has_core && cargo.exists()).then_some(Self { cargo, rustc, sysroot, objcopy })
        })
    }

    /// The versions that decide the bytes, in one line.
    fn describe(&self) -> Result<String, Error> {
        let version = |program: &Path, arguments: &[&str]| {
            stdout(program, arguments).ok_or_else(|| Error::Failed {
                command: format!("{} {}", program.display(), arguments.join(" ")),
            })
        };
        let rustc = version(&self.rustc, &["--version"])?;
        let linker = version(Path::new("bpf-linker"), &["--version"])?;
        let objcopy = version(&self.objcopy, &["--version"])?;
        let objcopy = objcopy
            .lines()
            .find_map(|line| line.split_once("LLVM version "))
            .map_or("of an unknown version", |(_, version)| version);
        Ok(format!("{rustc}; {linker}; llvm-objcopy {objcopy}"))
    }

    /// Cargo in `dir`, out of reach of the flags and wrappers of the surrounding build.
    fn cargo(&self, dir: &Path) -> Command {
        let mut cargo = Command::new(&self.cargo);
        for (name, _) in env::vars_os() {
            if BUILD_VARIABLES.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
                cargo.env_remove(&name);
            }
        }
        cargo
            .current_dir(dir)
            .env("PATH", path_with_cargo_bin())
            .env("RUSTC", &self.rustc)
            // `-Z build-std` on a compiler that is not a nightly.
            .env("RUSTC_BOOTSTRAP", "1");
        cargo
    }

    fn build(&self, dir: &Path) -> Result<Vec<u8>, Error> {
        // The sources must be there before their folders can be given short names.
        let mut fetch = self.cargo(dir);
        fetch.args(["fetch", "--quiet", "--locked"]);
        run_command(fetch)?;
        let mut build = self.cargo(dir);
        build
            .args(["build", "--quiet", "--locked", "--release", "--target-dir", "target"])
            .arg("--config")
            .arg(remaps(dir, &self.sysroot));
        run_command(build)?;
        let built = dir.join("target").join(TARGET).join("release/rma-steer");
        let stripped = built.with_extension("bpf.o");
        let mut objcopy = Command::new(&self.objcopy);
        // DWARF goes, `.BTF` stays.
        objcopy.arg("--strip-debug").args([&built, &stripped]);
        run_command(objcopy)?;
        let object =
            fs::read(&stripped).map_err(|source| Error::File { path: stripped, source })?;
        match machine_path(&object) {
            Some(path) => Err(Error::MachinePath { path }),
            None => Ok(object),
        }
    }
}

/// The compiler writes the paths of sources into `.BTF`: short names for them, so that every
/// machine builds the same bytes and none is named.
fn remaps(dir: &Path, sysroot: &Path) -> String {
    let mut pairs = vec![(dir.to_owned(), "ebpf"), (sysroot.join("lib/rustlib/src/rust"), "rust")];
    if let Ok(real) = fs::canonicalize(sysroot.join("lib/rustlib/src/rust")) {
        pairs.push((real, "rust"));
    }
    // One folder for each registry; its name holds a hash of the registry's address.
    let registries = cargo_home().join("registry/src");
    for entry in fs::read_dir(&registries).into_iter().flatten().flatten() {
        pairs.push((entry.path(), "registry"));
    }
    let mut flags = String::new();
    for (from, to) in pairs {
        let from = from.display();
        write!(flags, "'--remap-path-prefix={from}={to}',").expect("a String takes all text");
    }
    format!("target.{TARGET}.rustflags=[{flags}]")
}

/// The first absolute path among the strings of `object`.
fn machine_path(object: &[u8]) -> Option<String> {
    let strings = object.split(|byte| !(b' '..=b'~').contains(byte));
    let mut paths = strings.filter(|string| string.len() > 3 && string[0] == b'/');
    paths.next().map(|path| String::from_utf8_lossy(path).into_owned())
}

fn find_objcopy(sysroot: &Path) -> Option<PathBuf> {
    let mut found = vec![Path::new(DEBIAN_LLVM).join("bin/llvm-objcopy")];
    // The llvm-tools component of rustup.
    let hosts = fs::read_dir(sysroot.join("lib/rustlib")).into_iter().flatten().flatten();
    found.extend(hosts.map(|host| host.path().join("bin/llvm-objcopy")));
    found.push("llvm-objcopy".into());
    found.into_iter().find(|objcopy| stdout(objcopy, &["--version"]).is_some())
}

/// Installs Debian's tools where that is possible: as root, with these packages in the archive.
fn install() -> Result<(), Error> {
    let root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if !root || stdout("apt-get", &["--version"]).is_none() {
        return Err(no_toolchain());
    }
    let mut update = Command::new("apt-get");
    update.arg("update");
    run_command(update)?;
    if stdout("apt-cache", &[&["show"][..], &DEBIAN_PACKAGES].concat()).is_none() {
        return Err(no_toolchain());
    }
    let mut install = Command::new("apt-get");
    install.env("DEBIAN_FRONTEND", "noninteractive").args(["install", "-y"]).args(DEBIAN_PACKAGES);
    run_command(install)?;
    if stdout("bpf-linker", &["--version"]).is_some() {
        return Ok(());
    }
    let mut linker = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let mut path = OsString::from(format!("{DEBIAN_LLVM}/bin:"));
    path.push(path_with_cargo_bin());
    linker.env("LLVM_PREFIX", DEBIAN_LLVM).env("PATH", path);
    linker.args(["install", BPF_LINKER, "--no-default-features", "--features", "llvm-22"]);
    run_command(linker)
}

fn no_toolchain() -> Error {
    let packages = DEBIAN_PACKAGES.join(" ");
    let hint = format!(
        "  Debian 12 and later, as root:\n    \
         apt-get update && apt-get install -y {packages}\n    \
         LLVM_PREFIX={DEBIAN_LLVM} PATH={DEBIAN_LLVM}/bin:$PATH \
         cargo install {BPF_LINKER} --no-default-features --features llvm-22\n  \
         elsewhere, with rustup:\n    \
         rustup toolchain install nightly --component rust-src,llvm-tools\n    \
         cargo +nightly install {BPF_LINKER}"
    );
    Error::NoToolchain { hint }
}

fn cargo_home() -> PathBuf {
    let home = || Path::new(&env::var_os("HOME").unwrap_or_default()).join(".cargo");
    env::var_os("CARGO_HOME").map_or_else(home, PathBuf::from)
}

/// `bpf-linker` lives where `cargo install` puts it, which need not be on the caller's `PATH`.
fn path_with_cargo_bin() -> OsString {
    let mut path = cargo_home().join("bin").into_os_string();
    path.push(":");
    path.push(env::var_os("PATH").unwrap_or_default());
    path
}

/// Returns the output of `program`, or `None` if it is missing or fails.
fn stdout(program: impl AsRef<Path>, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program.as_ref())
        .args(arguments)
        .env("PATH", path_with_cargo_bin())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim_end().to_owned())
}

fn run_command(mut command: Command) -> Result<(), Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => {
            let arguments = command.get_args().map(|argument| argument.to_string_lossy());
            let words: Vec<_> = std::iter::once(program.into()).chain(arguments).collect();
            Err(Error::Failed { command: words.join(" ") })
        }
        Err(source) => Err(Error::Spawn { program, source }),
    }
}

fn read_text(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|source| Error::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_is_named() {
        let recorded = "# Made with x\naa  src/main.rs\nbb  Cargo.toml\n";
        let current = "# Made with x\nac  src/main.rs\nbb  Cargo.toml\ndd  src/new.rs\n";
        assert_eq!(changed_files(recorded, current), "src/main.rs, src/new.rs");
    }

    #[test]
    fn an_absolute_path_in_the_object_is_found_and_a_relative_one_is_not() {
        assert_eq!(machine_path(b"\0src/main.rs\0/home/me/x\0"), Some("/home/me/x".to_owned()));
        assert_eq!(machine_path(b"\0ebpf/src/main.rs\0rust/library\0/\0"), None);
    }
}
