//! Debian's kernels: found, downloaded and unpacked below `target/vms`, never installed.
//!
//! A kernel that is there is taken as it is, so that a second run asks nobody; remove
//! `target/vms/kernels` for newer ones.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{
    error::Setup,
    packages::{self, Lists},
};
use crate::host;

/// A kernel that a machine can be started with.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// The file to boot.
    pub(super) vmlinuz: PathBuf,
    /// The folder of its modules.
    pub(super) modules: PathBuf,
    /// As `uname -r` says it.
    pub(super) release: String,
}

/// A series of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Series {
    /// Of upstream: `6.12`.
    pub(super) version: &'static str,
    /// Debian's flavour: `cloud` has few drivers and is small, `` has all.
    pub(super) flavour: &'static str,
    /// The suite whose packages it is in, if not in those that this machine's lists name.
    pub(super) suite: Option<&'static str>,
}

/// The prefix of packages with kernels.
const IMAGE: &str = "linux-image-";
/// The end of those whose kernel is not signed. There are signed ones as well, or instead.
const UNSIGNED: &str = "-unsigned";
/// The packages that newer kernels come in, where a package of the image's name holds nothing.
const PARTS: [&str; 3] = ["linux-binary-", "linux-modules-", "linux-base-"];

impl Series {
    /// Whether `package` is such a kernel's.
    fn is_of(self, package: &str) -> bool {
        let Some(rest) = package.strip_prefix(IMAGE) else { return false };
        let release = rest.strip_suffix(UNSIGNED).unwrap_or(rest);
        let flavoured = |arch: &str| match self.flavour {
            "" => format!("-{arch}"),
            flavour => format!("-{flavour}-{arch}"),
        };
        let Some(abi) = release.strip_suffix(&flavoured("amd64")) else { return false };
        let of_version = abi.strip_prefix(self.version).is_some_and(|rest| rest.starts_with('.'));
        // `6.12.9-rt` would be another flavour.
        of_version && !has_flavour(abi)
    }

    /// Gets the kernel, or says why it cannot be had.
    pub(super) fn get(self, cache: &Path) -> Result<Result<Kernel, String>, Setup> {
        let kernels = cache.join("kernels");
        if let Some(package) = self.newest(packages::unpacked(&kernels)) {
            return find(&kernels.join(package)).map(Ok);
        }
        if host::find_program("apt-get").is_none() {
            return Ok(Err(
                "kernels come from Debian's packages, and there is no apt-get here".into()
            ));
        }
        fs::create_dir_all(&kernels).map_err(file("making", &kernels))?;
        let lists = match self.suite.map(|suite| Lists::of_suite(suite, cache)).transpose()? {
            None => Lists::of_machine(),
            Some(Ok(lists)) => lists,
            Some(Err(why)) => return Ok(Err(why)),
        };
        let flavour =
            if self.flavour.is_empty() { String::new() } else { format!("-{}", self.flavour) };
        let (place, others) = match self.suite {
            Some(suite) => (format!("{suite} has"), ""),
            None => (
                "the package lists here have".to_owned(),
                "; those of Debian 12 have, with its security updates",
            ),
        };
        let mut why = format!("{place} no {IMAGE}{}.*{flavour}-amd64{others}", self.version);
        for lists_are_new in [false, true] {
            // There may be no lists, as in a fresh container, and old ones name what is no longer
            // there.
            if lists_are_new {
                lists.update();
            }
            let Some(package) = self.newest(lists.names(IMAGE)) else { continue };
            eprintln!("downloading {package} …");
            let folder = kernels.join(&package);
            match lists.unpack(&parts(&package, &lists), &folder) {
                Ok(()) => return find(&folder).map(Ok),
                Err(error) => why = format!("{package} could not be downloaded: {error}"),
            }
        }
        Ok(Err(why))
    }

    fn newest(self, packages: Vec<String>) -> Option<String> {
        let mine = packages.into_iter().filter(|package| self.is_of(package));
        mine.max_by_key(|package| numbers(package))
    }
}

/// The packages that a kernel comes in.
fn parts(image: &str, lists: &Lists) -> Vec<String> {
    let release = image.strip_prefix(IMAGE).unwrap_or(image);
    let parts = PARTS.map(|part| format!("{part}{release}"));
    if lists.names(&parts[0]).contains(&parts[0]) { parts.into() } else { vec![image.to_owned()] }
}

/// Whether the part before architecture and flavour ends with a word that is a flavour's:
/// `6.1.0-50-cloud`.
fn has_flavour(abi: &str) -> bool {
    abi.rsplit('-').next().is_some_and(|last| last.chars().all(|c| c.is_ascii_lowercase()))
}

/// The numbers in a package's name, which order its versions.
fn numbers(package: &str) -> Vec<u64> {
    let parts = package.split(|c: char| !c.is_ascii_digit());
    parts.filter_map(|part| part.parse().ok()).collect()
}

fn find(folder: &Path) -> Result<Kernel, Setup> {
    let lacks = |what: &str| Setup::NotInPackage { what: what.into(), folder: folder.into() };
    // Debian's newer packages have them below `usr`, and the kernel beside them.
    let places = ["lib/modules", "usr/lib/modules"].map(|at| folder.join(at));
    let modules = packages::first(places).ok_or_else(|| lacks("lib/modules"))?;
    let mut releases = packages::unpacked(&modules);
    let release = releases.pop().ok_or_else(|| lacks("lib/modules/*"))?;
    let modules = modules.join(&release);
    let places = [folder.join(format!("boot/vmlinuz-{release}")), modules.join("vmlinuz")];
    let vmlinuz = packages::first(places).ok_or_else(|| lacks("vmlinuz"))?;
    Ok(Kernel { vmlinuz, modules, release })
}

/// For errors about a file.
pub(super) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Setup {
    let path = path.to_owned();
    move |source| Setup::File { doing, path, source }
}

/// Runs a command and gives what it printed.
pub(super) fn run(command: &mut Command) -> Result<Vec<u8>, Setup> {
    let line = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|source| {
        let program = command.get_program().to_string_lossy().into_owned();
        Setup::Start { program, source }
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Setup::Command { command: line, said })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOUD: Series = Series { version: "6.1", flavour: "cloud", suite: None };
    const FULL: Series = Series { version: "6.12", flavour: "", suite: None };

    #[test]
    fn a_series_knows_its_packages_and_no_others() {
        for package in [
            "linux-image-6.1.0-56-cloud-amd64-unsigned",
            "linux-image-6.1.9+deb12-cloud-amd64-unsigned",
            "linux-image-6.1.9+deb13-cloud-amd64",
        ] {
            assert!(CLOUD.is_of(package), "{package}");
            assert!(!FULL.is_of(package), "{package}");
        }
        assert!(FULL.is_of("linux-image-6.12.117+deb12-amd64-unsigned"));
        for other in [
            "linux-image-6.1.0-56-amd64-unsigned",
            "linux-image-6.12.1-cloud-amd64-unsigned",
            "linux-image-6.1.0-56-cloud-amd64-dbg",
            "linux-headers-6.1.0-56-cloud-amd64-unsigned",
        ] {
            assert!(!CLOUD.is_of(other), "{other}");
        }
        for other in
            ["linux-image-6.12.1-rt-amd64-unsigned", "linux-image-6.12.1-cloud-amd64-unsigned"]
        {
            assert!(!FULL.is_of(other), "{other}");
        }
    }

    #[test]
    fn the_newest_is_the_one_with_the_highest_number_not_the_last_in_the_alphabet() {
        let names =
            ["9", "56", "10"].map(|n| format!("linux-image-6.1.0-{n}-cloud-amd64-unsigned"));
        assert_eq!(CLOUD.newest(names.to_vec()), Some(names[1].clone()));
    }
}
