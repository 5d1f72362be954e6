//! Debian's kernels: found, downloaded and unpacked below `target/vms`, never installed.
//!
//! A kernel that is there is taken as it is, so that a second run asks nobody; remove
//! `target/vms/kernels` for newer ones.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::error::Setup;
use crate::{host, requirements};

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

/// Which kernel is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Series {
    /// Of upstream: `6.12`.
    pub(super) version: &'static str,
    /// Debian's flavour: `cloud` has few drivers and is small, `` has all.
    pub(super) flavour: &'static str,
}

impl Series {
    /// Whether `package` is such a kernel's. Those that are not signed hold the kernel itself; the
    /// signed ones need nothing else, but are not built for every version.
    fn is_of(self, package: &str) -> bool {
        let Some(rest) = package.strip_prefix("linux-image-") else { return false };
        let Some(release) = rest.strip_suffix("-unsigned") else { return false };
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
        let (kernels, downloads) = (cache.join("kernels"), cache.join("downloads"));
        if let Some(package) = self.newest(unpacked(&kernels)) {
            return find(&kernels.join(package)).map(Ok);
        }
        if host::find_program("apt-get").is_none() {
            return Ok(Err(
                "kernels come from Debian's packages, and there is no apt-get here".into()
            ));
        }
        for folder in [&kernels, &downloads] {
            fs::create_dir_all(folder).map_err(file("making", folder))?;
        }
        let flavour =
            if self.flavour.is_empty() { String::new() } else { format!("-{}", self.flavour) };
        let mut why = format!(
            "the package lists here have no linux-image-{}.*{flavour}-amd64-unsigned; those of Debian 12 have, with its \
             security updates",
            self.version
        );
        for lists_are_new in [false, true] {
            // There may be no lists, as in a fresh container, and old ones name what is there no
            // more. If they cannot be had, nothing changes.
            if lists_are_new {
                let _ = requirements::apt(&["update"]);
            }
            let Some(package) = self.newest(known_to_apt()) else { continue };
            eprintln!("downloading {package} …");
            match download(&package, &downloads) {
                Ok(()) => return find(&unpack(&package, &downloads, &kernels)?).map(Ok),
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

fn unpacked(kernels: &Path) -> Vec<String> {
    let entries = fs::read_dir(kernels).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn known_to_apt() -> Vec<String> {
    let mut command = Command::new("apt-cache");
    command.args(["pkgnames", "linux-image-"]).stdin(Stdio::null()).stderr(Stdio::null());
    // Where it cannot be asked, nothing is known.
    let output = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().map(str::to_owned).collect()
}

fn download(package: &str, folder: &Path) -> Result<(), Setup> {
    let mut command = Command::new("apt-get");
    command.args(["--quiet=2", "download", package]).current_dir(folder);
    run(&mut command).map(drop)
}

/// Unpacks it under another name first, so that half of it is never taken for all.
fn unpack(package: &str, downloads: &Path, kernels: &Path) -> Result<PathBuf, Setup> {
    let archives = fs::read_dir(downloads).map_err(file("listing", downloads))?.flatten();
    let prefix = format!("{package}_");
    let mut archives = archives.map(|entry| entry.path());
    let archive = archives
        .find(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
        })
        .ok_or_else(|| Setup::NotInPackage { what: package.into(), folder: downloads.into() })?;
    let (folder, half) = (kernels.join(package), kernels.join(format!(".{package}")));
    // Of a run that was killed; mostly there is none.
    let _ = fs::remove_dir_all(&half);
    run(Command::new("dpkg").arg("-x").arg(&archive).arg(&half))?;
    fs::rename(&half, &folder).map_err(file("renaming", &half))?;
    fs::remove_file(&archive).map_err(file("removing", &archive))?;
    Ok(folder)
}

fn find(folder: &Path) -> Result<Kernel, Setup> {
    let lacks = |what: &str| Setup::NotInPackage { what: what.into(), folder: folder.into() };
    let boot = fs::read_dir(folder.join("boot")).into_iter().flatten().flatten();
    let vmlinuz = boot
        .map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("vmlinuz-")))
        .ok_or_else(|| lacks("boot/vmlinuz-*"))?;
    let name = vmlinuz.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let release = name.strip_prefix("vmlinuz-").unwrap_or_default().to_owned();
    // Debian's newer packages have it below `usr`.
    let places = ["lib/modules", "usr/lib/modules"].map(|at| folder.join(at).join(&release));
    let modules =
        places.into_iter().find(|path| path.is_dir()).ok_or_else(|| lacks("lib/modules"))?;
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

    const CLOUD: Series = Series { version: "6.1", flavour: "cloud" };
    const FULL: Series = Series { version: "6.12", flavour: "" };

    #[test]
    fn a_series_knows_its_packages_and_no_others() {
        for package in [
            "linux-image-6.1.0-56-cloud-amd64-unsigned",
            "linux-image-6.1.9+deb12-cloud-amd64-unsigned",
        ] {
            assert!(CLOUD.is_of(package), "{package}");
            assert!(!FULL.is_of(package), "{package}");
        }
        assert!(FULL.is_of("linux-image-6.12.117+deb12-amd64-unsigned"));
        for other in [
            "linux-image-6.1.0-56-amd64-unsigned",
            "linux-image-6.1.0-56-cloud-amd64",
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
