//! Debian's packages: looked for, downloaded and unpacked below `target/vms`, never installed.
//!
//! They come from the package lists of this machine, or from those of a suite that it has none of.
//! Such a list is asked for from the mirror that the machine itself uses, and kept apart, so that
//! nothing changes for the machine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{
    error::Setup,
    kernels::{file, run},
};

/// Package lists.
#[derive(Debug)]
pub(super) struct Lists {
    /// The suite, if they are not this machine's.
    suite: Option<String>,
    /// For `apt-get` and `apt-cache`.
    options: Vec<String>,
}

impl Lists {
    /// Those of this machine.
    pub(super) const fn of_machine() -> Self {
        Self { suite: None, options: Vec::new() }
    }

    /// Those of a suite of Debian's, which are kept in `folder`. Says why if there is no mirror.
    pub(super) fn of_suite(suite: &str, folder: &Path) -> Result<Result<Self, String>, Setup> {
        let Some(mirror) = targets().into_iter().next() else {
            return Ok(Err(format!(
                "this machine's package lists name no mirror of Debian, which {suite} is asked from"
            )));
        };
        let folder = folder.join("lists").join(suite);
        let (source, none, lists) =
            (folder.join("sources.list"), folder.join("none"), folder.join("lists"));
        for folder in [&none, &lists.join("partial")] {
            fs::create_dir_all(folder).map_err(file("making", folder))?;
        }
        let line = format!("deb {} {suite} main\n", mirror.uri);
        fs::write(&source, line).map_err(file("writing", &source))?;
        let option = |name: &str, path: &Path| format!("-o{name}={}", path.display());
        let options = vec![
            option("Dir::Etc::sourcelist", &source),
            option("Dir::Etc::sourceparts", &none),
            option("Dir::State::Lists", &lists),
            option("Dir::Cache", &folder),
        ];
        Ok(Ok(Self { suite: Some(suite.to_owned()), options }))
    }

    /// Has the lists fetched anew. If they cannot be had, nothing changes.
    pub(super) fn update(&self) {
        let _ = run(Command::new("apt-get").args(&self.options).args(["--quiet=2", "update"]));
    }

    /// The names of packages that begin so.
    pub(super) fn names(&self, prefix: &str) -> Vec<String> {
        let mut command = Command::new("apt-cache");
        command.args(&self.options).args(["pkgnames", prefix]);
        lines_of(&mut command)
    }

    /// Downloads packages and unpacks all of them together: to `folder`, at once, so that half of
    /// them is never taken for all.
    pub(super) fn unpack(&self, packages: &[String], folder: &Path) -> Result<(), Setup> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let half = folder.with_file_name(format!(".{name}"));
        // Of a run that was killed; mostly there is none.
        let _ = fs::remove_dir_all(&half);
        let archives = half.join("archives");
        fs::create_dir_all(&archives).map_err(file("making", &archives))?;
        let of_suite = self.suite.as_ref().map(|suite| format!("/{suite}")).unwrap_or_default();
        let wanted = packages.iter().map(|package| format!("{package}{of_suite}"));
        let mut command = Command::new("apt-get");
        command.args(&self.options).args(["--quiet=2", "download"]).args(wanted);
        run(command.current_dir(&archives))?;
        for archive in fs::read_dir(&archives).map_err(file("listing", &archives))?.flatten() {
            run(Command::new("dpkg").arg("-x").arg(archive.path()).arg(&half))?;
        }
        fs::remove_dir_all(&archives).map_err(file("removing", &archives))?;
        fs::rename(&half, folder).map_err(file("renaming", &half))
    }
}

/// A list that this machine has of Debian's main packages.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    uri: String,
    codename: String,
}

/// Those lists, the release's first: it comes before its updates, and those of security have a
/// mirror of their own.
fn targets() -> Vec<Target> {
    let mut command = Command::new("apt-get");
    let filters = ["Created-By: Packages", "Origin: Debian", "Component: main"];
    command.args(["indextargets", "--format", "$(REPO_URI) $(CODENAME)"]).args(filters);
    targets_in(&lines_of(&mut command))
}

fn targets_in(lines: &[String]) -> Vec<Target> {
    let target = |line: &String| {
        let (uri, codename) = line.split_once(' ')?;
        (!codename.ends_with("-security"))
            .then(|| Target { uri: uri.to_owned(), codename: codename.to_owned() })
    };
    let mut targets: Vec<Target> = lines.iter().filter_map(target).collect();
    targets.sort_by_key(|target| target.codename.contains('-'));
    targets
}

/// The suite of newer packages for this machine's release: `bookworm-backports`.
pub(super) fn backports() -> Option<String> {
    let release = targets().into_iter().next()?.codename;
    Some(format!("{}-backports", release.split('-').next().unwrap_or_default()))
}

/// Returns the output lines of a command. Where it cannot be asked, nothing is known.
fn lines_of(command: &mut Command) -> Vec<String> {
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().map(str::to_owned).collect()
}

/// Lists the names of files unpacked in a folder.
pub(super) fn unpacked(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| !name.starts_with('.')).collect()
}

/// The first of these that is there.
pub(super) fn first(paths: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    paths.into_iter().find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_the_releases_and_not_that_of_its_security_updates() {
        let lines = [
            "http://a.example/debian-security/ trixie-security",
            "http://b.example/debian/ trixie-updates",
            "http://b.example/debian/ trixie",
        ];
        let targets = targets_in(&lines.map(str::to_owned));
        let first = targets.first().unwrap();
        assert_eq!((&*first.uri, &*first.codename), ("http://b.example/debian/", "trixie"));
        assert_eq!(targets.len(), 2);
        assert_eq!(targets_in(&[]), []);
    }
}
