//! Checks of the tree, read from its files: nothing here opens a host.
//!
//! | module | what is held against what |
//! |---|---|
//! | `spec_coverage` | the paper's requirements against their citations |
//! | `readme` | what documents show and link to against what there is |
//! | `layers` | the layering, as a table of nevers, and circles against the modules' imports |
//! | `crates` | the picture of the crates in ARCHITECTURE.md against the manifests |
//! | `tested` | tests that pages name against those that there are; tests where none would run |
//! | `comments` | docs that say nothing, and comments that are too wide |
//! | `face` | the names at the root of `rma-xdp` |
//! | `parameters` | tuples among the parameters of functions |
//! | `services` | the files that name the second service against the page that lists them |
//! | `words` | docs and names of tests that open with a question |
//!
//! `modules` reads imports for `layers`. Each check has tests of its own, with input that is wrong.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod comments;
mod crates;
mod face;
mod layers;
mod modules;
mod parameters;
mod readme;
mod services;
mod spec_coverage;
mod tested;
mod words;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The tree's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A file of the tree, by its name from the root.
fn file(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The Rust files below `folder`, in order, without what was built.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The folders of the workspace's crates, by their names from the root.
fn crate_folders() -> Vec<String> {
    let mut folders: Vec<String> =
        ["rma-core", "rma-xdp", "bench", "tests", "xtask"].map(Into::into).into();
    for parent in ["crates", "dev", "examples"] {
        for entry in fs::read_dir(root().join(parent)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            folders.push(format!("{parent}/{name}"));
        }
    }
    folders.sort();
    folders
}
