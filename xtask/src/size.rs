//! `cargo xtask size`: lines by crate, and packages that a program links, against the limits of
//! `xtask/size.toml`.
//!
//! A code line is neither blank nor a comment, and is not of a test. Modules behind `#[cfg(test)]`
//! or a feature are found as rustfmt leaves them: the attribute in a line of its own above a `mod`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::cargo::{Cargo, workspace};

/// The reason why the size is not known, or not within its limits.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// A file could not be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The limits are not understood.
    #[error("xtask/size.toml: {0}")]
    Limits(#[from] toml::de::Error),
    /// Cargo did not list the packages.
    #[error("`cargo tree --package rma-xdp` failed; run it to see why")]
    Packages,
    /// There is more than there may be.
    #[error("beyond the limits of xtask/size.toml: {}; delete something, or move the limit and say why", names.join(", "))]
    Beyond {
        /// The limits.
        names: Vec<String>,
    },
}

#[derive(Debug, Deserialize)]
struct Limit {
    what: String,
    limit: usize,
    goal: usize,
}

/// The crates that ship.
const PRODUCT: [&str; 11] = [
    "rma-core",
    "rma-xdp",
    "crates/rma-app",
    "crates/rma-shm",
    "crates/rma-crypto",
    "crates/rma-star",
    "crates/rma-channel",
    "crates/rma-keys",
    "crates/rma-doctor",
    "crates/rmactl",
    "ebpf",
];

/// Those of them that a program compiles which READs and WRITEs over AF_XDP.
const PLAIN: usize = 5;

/// The features that such a program does not ask for.
const FEATURES: [&str; 6] = ["capture", "channel", "keylog", "keys", "metrics-endpoint", "star"];

/// The system whose packages are counted: others need others.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Prints the lines by crate and the packages, and fails beyond a limit.
pub(crate) fn run() -> Result<(), Error> {
    let root = workspace();
    let mut counts = BTreeMap::from([("total", 0), ("product", 0), ("plain", 0)]);
    counts.insert("packages", packages(&[])?);
    counts.insert("packages_without_xdp", packages(&["--no-default-features"])?);
    for path in sources(&root)? {
        *counts.entry("total").or_default() += read(&path)?.lines().count();
    }
    for (index, name) in PRODUCT.iter().enumerate() {
        let src = root.join(name).join("src");
        let all = code_lines(&src, &is_of_tests)?;
        *counts.entry("product").or_default() += all;
        if index < PLAIN {
            let left_out = |attribute: &str| is_of_tests(attribute) || is_of_feature(attribute);
            *counts.entry("plain").or_default() += code_lines(&src, &left_out)?;
        }
        println!("{all:>9}  {name}");
    }
    let limits: BTreeMap<String, Limit> = toml::from_str(&read(&root.join("xtask/size.toml"))?)?;
    let mut names = Vec::new();
    for (name, Limit { what, limit, goal }) in limits {
        let count = counts.get(name.as_str()).copied().unwrap_or(usize::MAX);
        println!("{count:>9}  {name}: {what}; limit {limit}, goal {goal}");
        if count > limit {
            names.push(name);
        }
    }
    if names.is_empty() { Ok(()) } else { Err(Error::Beyond { names }) }
}

/// The packages that a program links with `rma-xdp`, ours among them: without build scripts and
/// procedural macros.
fn packages(features: &[&str]) -> Result<usize, Error> {
    let edges = ["--edges", "normal,no-proc-macro", "--prefix", "none", "--target", TARGET];
    let tree = Cargo::new(&["tree", "--package", "rma-xdp"]).args(edges).args(features);
    let lines = tree.output().ok_or(Error::Packages)?;
    let names: BTreeSet<_> = lines.lines().map(|it| it.trim_end_matches(" (*)")).collect();
    Ok(names.len())
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|source| Error::File { path: path.to_owned(), source })
}

/// The Rust files below a folder, without build output.
fn sources(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| Error::File { path: folder.to_owned(), source };
    let (mut found, mut folders) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            folders.push(path);
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push(path);
        }
    }
    for folder in folders.iter().filter(|it| !is_output(it)) {
        found.append(&mut sources(folder)?);
    }
    Ok(found)
}

/// Whether a folder is what cargo or git made.
fn is_output(folder: &Path) -> bool {
    folder.ends_with(".git") || folder.join("CACHEDIR.TAG").exists()
}

fn is_of_tests(attribute: &str) -> bool {
    let is_word = |word: &str| {
        attribute.split(|it: char| !it.is_alphanumeric() && it != '_').any(|it| it == word)
    };
    attribute.starts_with("#[cfg(") && (is_word("test") || is_word("loom"))
}

fn is_of_feature(attribute: &str) -> bool {
    FEATURES.iter().any(|name| attribute == format!("#[cfg(feature = \"{name}\")]"))
}

/// The code lines below `src`, without modules behind an attribute of which `left_out` holds.
fn code_lines(src: &Path, left_out: &dyn Fn(&str) -> bool) -> Result<usize, Error> {
    let mut texts = BTreeMap::new();
    for path in sources(src)? {
        let text = read(&path)?;
        texts.insert(path, text);
    }
    let mut gone = Vec::new();
    for (path, text) in &texts {
        let is_root = path.ends_with("lib.rs") || path.ends_with("main.rs");
        let beside = if is_root { src.to_owned() } else { path.with_extension("") };
        gone.extend(modules_behind(text, left_out).map(|name| beside.join(name)));
    }
    let is_gone = |path: &Path| {
        let inside = path.with_extension("");
        gone.iter().any(|module| inside.starts_with(module))
    };
    Ok(texts.iter().filter(|(path, _)| !is_gone(path)).map(|(_, text)| of_text(text)).sum())
}

/// The files' modules that stand behind such an attribute.
fn modules_behind<'a>(
    text: &'a str,
    left_out: &'a dyn Fn(&str) -> bool,
) -> impl Iterator<Item = &'a str> {
    let mut is_behind = false;
    text.lines().filter_map(move |line| {
        let line = line.trim();
        if line.starts_with("#[") || line.starts_with("//") {
            is_behind |= left_out(line);
            return None;
        }
        let name = line.strip_suffix(';').and_then(|it| it.rsplit_once("mod ")).map(|it| it.1);
        name.filter(|_| core::mem::take(&mut is_behind))
    })
}

/// The code lines of a file, without modules of tests that stand in it.
fn of_text(text: &str) -> usize {
    let (mut count, mut is_behind, mut inside) = (0, false, false);
    for line in text.lines() {
        let code = line.trim();
        if inside {
            inside = line != "}";
        } else if line == "#[cfg(test)]" {
            is_behind = true;
        } else if is_behind && line.starts_with("mod ") {
            (is_behind, inside) = (false, line.ends_with('{'));
        } else if !code.is_empty() && !code.starts_with("//") {
            is_behind &= code.starts_with("#[");
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_blank_lines_and_tests_are_no_code() {
        let text = "//! A.\n\nuse a::B;\n\n/// C.\nfn c() {}\n\n#[cfg(test)]\nmod tests {\n    fn d() {}\n}\n";
        assert_eq!(of_text(text), 2);
        assert_eq!(of_text("#[cfg(test)]\nmod tests;\nfn a() {}"), 1);
    }

    #[test]
    fn modules_behind_tests_and_features_are_found() {
        let text =
            "#[cfg(feature = \"star\")]\npub mod star;\n#[cfg(test)]\nmod tests;\nmod plain;\n";
        let of = |left_out: &dyn Fn(&str) -> bool| {
            modules_behind(text, left_out).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(of(&is_of_tests), ["tests"]);
        assert_eq!(of(&|it| is_of_tests(it) || is_of_feature(it)), ["star", "tests"]);
        assert!(of(&|_| false).is_empty());
    }
}
