//! `cargo xtask package`: a Debian package of the programs that operators run.
//!
//! `dpkg-deb` makes it, which is on every machine that takes it. What is in it comes from the
//! release build, and from the programs themselves: they write their man pages and completions.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    cargo::{self, Cargo, target_folder, workspace},
    host,
    not_run::NotRun,
    requirements,
};

/// The reason why there is no package.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// The machine lacks something that the build needs.
    #[error(transparent)]
    Requirements(#[from] requirements::Error),
    /// Cargo did not build the programs.
    #[error(transparent)]
    Cargo(#[from] cargo::Error),
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A program is not there.
    #[error("`{command}` cannot be run: {source}; as root, `apt-get install dpkg binutils gzip`")]
    Spawn {
        /// The command line.
        command: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A program failed.
    #[error("`{command}` failed: {said}")]
    Failed {
        /// The command line.
        command: String,
        /// Its words.
        said: String,
    },
}

const NAME: &str = "1rma-tools";
const VERSION: &str = env!("CARGO_PKG_VERSION");
const PROGRAMS: [&str; 2] = ["rma-bench", "rmactl"];

/// The folders of programs, man pages and units, and the unit.
const BIN: &str = "usr/bin";
const MAN: &str = "usr/share/man/man1";
const UNITS: &str = "usr/lib/systemd/system";
const UNIT: &str = "rma-bench@.service";

/// Folders of completions, by shell.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions"),
    ("zsh", "usr/share/zsh/vendor-completions"),
    ("fish", "usr/share/fish/vendor_completions.d"),
];

/// Files of the tree, and the folders that they are put into.
const FILES: [(&str, &str); 8] = [
    ("bench/rma-bench@.service", UNITS),
    ("bench/policy.toml", "usr/share/doc/1rma-tools/examples"),
    ("docs/dissector.lua", "usr/share/doc/1rma-tools/examples"),
    ("docs/OPERATING.md", "usr/share/doc/1rma-tools"),
    ("docs/KEYS.md", "usr/share/doc/1rma-tools"),
    ("docs/RMA-BENCH.md", "usr/share/doc/1rma-tools"),
    ("LICENSE-MIT", "usr/share/doc/1rma-tools"),
    ("LICENSE-APACHE", "usr/share/doc/1rma-tools"),
];

/// Builds the programs and packs them; then unpacks that elsewhere and looks at it.
pub(crate) fn run(not_run: &mut NotRun) -> Result<(), Error> {
    requirements::to_build()?;
    let build = Cargo::new(&["build", "--release"]);
    build.args(PROGRAMS.iter().flat_map(|program| ["--package", program])).run()?;
    let target = target_folder();
    let folder = target.join("debian");
    let root = folder.join(NAME);
    if root.exists() {
        fs::remove_dir_all(&root).map_err(of(&root))?;
    }
    for program in PROGRAMS {
        let built = target.join("release").join(program);
        let installed = copy(&built, &root.join(BIN))?;
        call("strip", &[text(&installed)])?;
        let generate = |kind: &[&str], out: &str| {
            let out = root.join(out);
            call(text(&installed), &[&["generate"], kind, &["--out", text(&out)]].concat())
        };
        generate(&["man"], MAN)?;
        for (shell, out) in COMPLETIONS {
            generate(&["completions", "--shell", shell], out)?;
        }
    }
    let man = root.join(MAN);
    for page in fs::read_dir(&man).map_err(of(&man))? {
        call("gzip", &["-9", "--no-name", text(&page.map_err(of(&man))?.path())])?;
    }
    for (file, into) in FILES {
        copy(&workspace().join(file), &root.join(into))?;
    }
    let architecture = call("dpkg", &["--print-architecture"])?;
    let architecture = architecture.trim();
    let control = root.join("DEBIAN/control");
    write(&control, &fields(architecture, call("getconf", &["GNU_LIBC_VERSION"])?.trim()))?;
    // Whatever the umask here is.
    call("chmod", &["-R", "u=rwX,go=rX", text(&root)])?;
    let package = folder.join(format!("{NAME}_{VERSION}_{architecture}.deb"));
    let deb = ["--root-owner-group", "--build", text(&root), text(&package)];
    println!("{}", call("dpkg-deb", &deb)?.trim());
    check(&package, &folder.join("unpacked"), not_run)
}

/// The package's description for dpkg. `libc` is of this machine, as `getconf` tells it: the
/// programs may need all that it has.
fn fields(architecture: &str, libc: &str) -> String {
    let libc = libc.trim_start_matches("glibc ");
    format!(
        "Package: {NAME}\nVersion: {VERSION}\nArchitecture: {architecture}\nSection: net\nPriority: optional\n\
         Maintainer: whoever ran cargo xtask package <root@localhost>\n\
         Depends: libc6 (>= {libc}), libgcc-s1\n\
         Description: one-sided remote memory access: measurements and keys\n \
         rma-bench serves memory to other hosts, and measures and verifies reads and writes of it.\n \
         rmactl issues certificates for a lab and queries the key service.\n"
    )
}

/// Unpacks the package into an empty folder, and runs what is there.
fn check(package: &Path, root: &Path, not_run: &mut NotRun) -> Result<(), Error> {
    if root.exists() {
        fs::remove_dir_all(root).map_err(of(root))?;
    }
    call("dpkg-deb", &["--extract", text(package), text(root)])?;
    for program in PROGRAMS {
        println!("{}", call(text(&root.join(BIN).join(program)), &["--version"])?.trim());
    }
    if host::find_program("systemd-analyze").is_none() {
        not_run.add("a look at the unit, as there is no systemd-analyze here");
        return Ok(());
    }
    // It looks whether the program is there, which it is under `root` alone.
    let unit = root.join(UNIT);
    let installed = root.join(UNITS).join(UNIT);
    let words = fs::read_to_string(&installed).map_err(of(&installed))?;
    write(&unit, &words.replace("/usr/bin/", &format!("{}/", text(&root.join(BIN)))))?;
    let said = call("systemd-analyze", &["verify", "--man=no", text(&unit)])?;
    // It succeeds where it only warns: of a misspelt setting, for example.
    if said.contains(UNIT) {
        return Err(Error::Failed { command: "systemd-analyze verify".into(), said });
    }
    println!("systemd-analyze verify finds no fault in {UNIT}");
    Ok(())
}

/// Runs a program and returns what it printed, on either output.
fn call(program: &str, arguments: &[&str]) -> Result<String, Error> {
    let command = format!("{program} {}", arguments.join(" "));
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|source| Error::Spawn { command: command.clone(), source })?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() { Ok(said) } else { Err(Error::Failed { command, said }) }
}

/// Copies a file into a folder.
fn copy(file: &Path, folder: &Path) -> Result<PathBuf, Error> {
    let to = folder.join(file.file_name().expect("a file"));
    fs::create_dir_all(folder).map_err(of(folder))?;
    fs::copy(file, &to).map_err(of(file))?;
    Ok(to)
}

fn write(file: &Path, text: &str) -> Result<(), Error> {
    let folder = file.parent().expect("a file in a folder");
    fs::create_dir_all(folder).map_err(of(folder))?;
    fs::write(file, text).map_err(of(file))
}

fn of(path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::File { path: path.to_owned(), source }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("cargo names no folder that is not UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_to_pack_are_in_the_tree_and_described_as_dpkg_reads_it() {
        for (file, _) in FILES {
            assert!(workspace().join(file).is_file(), "{file}");
        }
        let fields = fields("amd64", "glibc 2.36");
        assert!(fields.contains("\nDepends: libc6 (>= 2.36), "), "{fields}");
        let is_field = |line: &str| line.starts_with(' ') || line.contains(": ");
        assert!(fields.ends_with('\n') && fields.lines().all(is_field), "{fields}");
    }

    #[test]
    fn the_unit_has_the_capabilities_and_the_folder_that_operators_are_told() {
        let read = |file: &str| fs::read_to_string(workspace().join(file)).unwrap();
        let (unit, operating) = (read("bench/rma-bench@.service"), read("docs/OPERATING.md"));
        let told = operating.lines().find_map(|line| line.strip_prefix("sudo setcap ")).unwrap();
        let told = told.split('+').next().unwrap().to_uppercase().replace(',', " ");
        assert!(unit.contains(&format!("\nAmbientCapabilities={told}\n")), "{told}");
        assert!(unit.contains("\nStateDirectory=1rma\n"));
    }
}
