//! The tasks' needs of the machine, how that is looked for, and how it is got.
//!
//! A requirement is looked for by what it does (a program runs, a header compiles and links), not
//! by a package's name, so that the search is right on every distribution and for hand-installed
//! tools. Only the remedy is Debian's and Ubuntu's: as root with apt, missing packages are
//! installed; otherwise the error holds the command that does.

use std::{
    io,
    process::{Command, Stdio},
};

use crate::host;

/// Something that the machine must have, and the package that brings it.
#[derive(Clone, Copy, Debug)]
struct Requirement {
    look_for: Look,
    /// Of Debian and Ubuntu.
    package: &'static str,
    /// The task that fails without it.
    needed_by: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Look {
    Program(&'static str),
    /// A C header, and the library that belongs to it.
    Library(&'static str, &'static str),
}

impl Look {
    fn finds(self) -> bool {
        match self {
            Self::Program(name) => host::find_program(name).is_some(),
            Self::Library(header, library) => host::links(header, library),
        }
    }
}

/// Shortens the table below.
const fn needs(look_for: Look, package: &'static str, needed_by: &'static str) -> Requirement {
    Requirement { look_for, package, needed_by }
}

/// To compile and link programs.
const TO_BUILD: &[Requirement] = &[
    needs(Look::Program("cc"), "gcc", "every Rust program, as its linker"),
    needs(Look::Library("stdio.h", "c"), "libc6-dev", "every Rust program, as its linker's input"),
];

/// To build libbpf, by which tests load XDP programs a second way.
const TO_BUILD_TESTS: &[Requirement] = &[
    needs(Look::Program("make"), "make", "the build of libbpf"),
    needs(Look::Program("pkg-config"), "pkg-config", "the build of libbpf"),
    needs(Look::Library("gelf.h", "elf"), "libelf-dev", "libbpf"),
    needs(Look::Library("zlib.h", "z"), "zlib1g-dev", "libbpf"),
];

/// To make namespaces and interfaces.
const FOR_THE_LAB: &[Requirement] = &[
    needs(Look::Program("ip"), "iproute2", "network namespaces and veth pairs"),
    needs(Look::Program("ethtool"), "ethtool", "interfaces that get more queues while hosts run"),
];

/// To see what Wireshark makes of a capture. Without it, its tests say that they did not run.
const FOR_CAPTURES: &[Requirement] =
    &[needs(Look::Program("tshark"), "tshark", "the tests of docs/dissector.lua")];

/// To count instructions.
const TO_COUNT: &[Requirement] =
    &[needs(Look::Program("valgrind"), "valgrind", "figures that are a count of instructions")];

/// To emulate machines, and for what runs in them.
const FOR_MACHINES: &[Requirement] = &[
    needs(Look::Program("qemu-system-x86_64"), "qemu-system-x86", "virtual machines"),
    needs(Look::Program("busybox"), "busybox-static", "the system inside virtual machines"),
    needs(Look::Program("strip"), "binutils", "small programs inside virtual machines"),
];

/// The reason why a task cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// Packages are missing and cannot be installed from here.
    #[error(
        "this machine lacks{missing}\nInstall what is missing, then run this again:\n  {command}"
    )]
    Missing {
        /// The missing things, and their purposes.
        missing: String,
        /// For a shell.
        command: String,
    },
    /// The package manager could not be run.
    #[error("cannot run {program}")]
    Start {
        /// The package manager.
        program: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The package manager failed.
    #[error("`{command}` failed:\n{output}")]
    Install {
        /// The command line.
        command: String,
        /// The output.
        output: String,
    },
    /// Packages were installed, and still something is not found.
    #[error("{packages} installed, and still this machine lacks{missing}")]
    StillMissing {
        /// The packages that were installed.
        packages: String,
        /// The missing things, and their purposes.
        missing: String,
    },
    /// The lab cannot be had as the user who asks.
    #[error(
        "{task} needs root, for network namespaces and AF_XDP. Run:\n  \
         sudo -E env \"PATH=$PATH\" cargo xtask {task}"
    )]
    NotRoot {
        /// The task, as it is called.
        task: String,
    },
    /// Root's powers are curbed, or the kernel lacks something.
    #[error("{task} cannot run: {lacks}. {advice}")]
    NoLab {
        /// The task, as it is called.
        task: String,
        /// The missing thing.
        lacks: Lacks,
        /// The next step.
        advice: &'static str,
    },
}

/// The reason why there can be no lab on this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Lacks {
    /// The effective user is not root.
    #[error("this is not root")]
    Root,
    /// Root, in a container for example, without these.
    #[error("root lacks {} here", _0.join(", "))]
    Capabilities(Vec<&'static str>),
    /// The running kernel was built without these.
    #[error("this kernel lacks {}", _0.join(", "))]
    Features(Vec<&'static str>),
    /// Some other thing forbids it.
    #[error("a veth pair cannot be made: `{}` said: {}", _0.command, _0.said)]
    Veth(host::Refusal),
}

impl Lacks {
    /// As the error of a task that cannot do without.
    pub(crate) fn into_error(self, task: &str) -> Error {
        let task = task.to_owned();
        let advice = match &self {
            Self::Root => return Error::NotRoot { task },
            Self::Capabilities(_) => {
                "Run it outside the container, or start that with these capabilities"
            }
            Self::Veth(_) => "A container may need more privileges, a kernel the module veth",
            Self::Features(_) => "Run it on a kernel that has them; those of Debian and Ubuntu do",
        };
        Error::NoLab { task, lacks: self, advice }
    }
}

/// Sees to it that all but the tests can be built.
pub(crate) fn to_build() -> Result<(), Error> {
    ensure(TO_BUILD)
}

/// Sees to it that the tests can be built, and that those which need no root can run.
pub(crate) fn to_test() -> Result<(), Error> {
    ensure(&[TO_BUILD, TO_BUILD_TESTS, FOR_THE_LAB, FOR_CAPTURES].concat())
}

/// Sees to it that instructions can be counted.
pub(crate) fn to_count_instructions() -> Result<(), Error> {
    ensure(TO_COUNT)
}

/// Sees to it that machines can be emulated.
pub(crate) fn for_machines() -> Result<(), Error> {
    ensure(FOR_MACHINES)
}

/// Sees to it that formatting and lints can be checked. A minimal toolchain has neither tool.
pub(crate) fn to_lint() -> Result<(), Error> {
    for (tool, component) in [("cargo-fmt", "rustfmt"), ("cargo-clippy", "clippy")] {
        let works = || host::succeeds(tool, &["--version"]);
        if works() || host::succeeds("rustup", &["component", "add", component]) && works() {
            continue;
        }
        return Err(Error::Missing {
            missing: format!("\n  {component:12} for the lints"),
            command: format!("rustup component add {component}"),
        });
    }
    Ok(())
}

/// Whether there is a standard library for `target`, which rustup is asked for.
pub(crate) fn for_target(target: &str) -> bool {
    host::succeeds("rustup", &["target", "add", target])
}

/// Sees to it that the lab can be built, and gives the reason if this user, container or kernel
/// cannot.
pub(crate) fn for_the_lab() -> Result<Result<(), Lacks>, Error> {
    if !host::is_root() {
        return Ok(Err(Lacks::Root));
    }
    let capabilities = host::missing_capabilities();
    if !capabilities.is_empty() {
        return Ok(Err(Lacks::Capabilities(capabilities)));
    }
    ensure(FOR_THE_LAB)?;
    let features = host::missing_features();
    if !features.is_empty() {
        return Ok(Err(Lacks::Features(features)));
    }
    Ok(host::try_veth().map_err(Lacks::Veth))
}

fn ensure(requirements: &[Requirement]) -> Result<(), Error> {
    let missing = missing(requirements);
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|requirement| requirement.package).collect();
    if !host::is_root() || host::find_program("apt-get").is_none() {
        return Err(Error::Missing { missing: list(&missing), command: by_hand(&packages) });
    }
    eprintln!("this machine lacks{}", list(&missing));
    eprintln!("installing {} …", packages.join(" "));
    // A list of packages that cannot be had, a third party's say, need not matter. If it does, it
    // is the reason.
    let updated = apt(&["update"]);
    apt(&[&INSTALL[..], &packages].concat()).map_err(|error| updated.err().unwrap_or(error))?;
    let missing = self::missing(requirements);
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::StillMissing { packages: packages.join(" "), missing: list(&missing) })
}

fn missing(requirements: &[Requirement]) -> Vec<Requirement> {
    requirements.iter().filter(|requirement| !requirement.look_for.finds()).copied().collect()
}

/// One line for each requirement.
fn list(missing: &[Requirement]) -> String {
    let lines = missing.iter().map(|requirement| {
        let name = match requirement.look_for {
            Look::Program(name) => name,
            Look::Library(header, _) => header,
        };
        format!("\n  {name:12} for {}", requirement.needed_by)
    });
    lines.collect()
}

/// Recommended packages would more than double what is downloaded.
const INSTALL: [&str; 3] = ["install", "--yes", "--no-install-recommends"];

/// The command for a person: packages are named after Debian's also where there is no apt.
fn by_hand(packages: &[&str]) -> String {
    let packages = packages.join(" ");
    let sudo = if host::is_root() { "" } else { "sudo " };
    if host::find_program("apt-get").is_some() {
        return format!("{sudo}apt-get update && {sudo}apt-get {} {packages}", INSTALL.join(" "));
    }
    format!("(your package manager; on Debian and Ubuntu:) {sudo}apt-get install {packages}")
}

/// Quiet, unless it fails.
pub(crate) fn apt(arguments: &[&str]) -> Result<(), Error> {
    let program = "apt-get";
    let output = Command::new(program)
        // A machine that has just started may be upgrading itself.
        .args(["-o", "DPkg::Lock::Timeout=120"])
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .map_err(|source| Error::Start { program, source })?;
    if output.status.success() {
        return Ok(());
    }
    let command = format!("{program} {}", arguments.join(" "));
    let output = [output.stdout, output.stderr].concat();
    Err(Error::Install { command, output: String::from_utf8_lossy(&output).trim_end().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABSENT: Requirement =
        needs(Look::Program("no-such-program"), "no-such-package", "this test");

    #[test]
    fn an_installed_requirement_is_not_missing() {
        let shell = needs(Look::Program("sh"), "dash", "this test");
        let missing = missing(&[shell, ABSENT]);
        assert_eq!(missing.iter().map(|one| one.package).collect::<Vec<_>>(), [ABSENT.package]);
    }

    #[test]
    fn a_missing_requirement_is_named_with_its_use() {
        assert_eq!(list(&[ABSENT]), "\n  no-such-program for this test");
    }

    #[test]
    fn a_task_that_needs_root_says_how_to_become_it() {
        let error = Lacks::Root.into_error("bench").to_string();
        assert!(error.contains("sudo -E env \"PATH=$PATH\" cargo xtask bench"), "{error}");
        let error = Lacks::Capabilities(vec!["CAP_BPF"]).into_error("test").to_string();
        assert!(error.starts_with("test cannot run: root lacks CAP_BPF here"), "{error}");
    }
}
