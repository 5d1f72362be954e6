//! The files that name StaR besides its own: those that a third service would touch as well.
//!
//! Files of bench and of proofs are not looked at: a program may know the services that it uses.

use std::fs;

use super::{file, root, sources};

/// The page that lists them, and the section.
const PAGE: &str = "docs/decisions/structure.md";
const SECTION: &str = "\n## The files that a third service touches\n";

/// The most that there may be.
const FILES_MAX: usize = 8;

/// Folders of the product that StaR's own code is not all of.
const FOLDERS: [&str; 6] = [
    "rma-core/src",
    "rma-xdp/src",
    "crates/rma-app/src",
    "crates/rma-channel/src",
    "crates/rma-shm/src",
    "crates/rma-crypto/src",
];

/// Whether a file's code, but for comments and tests at its end, has a word of StaR's.
fn names_star(text: &str) -> bool {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    let mut words = lines.flat_map(|line| line.split(|it: char| !it.is_alphanumeric()));
    words.any(|word| {
        let rest = word.strip_prefix("Star").or_else(|| word.strip_prefix("StaR"));
        word == "star"
            || word == "STAR"
            || rest.is_some_and(|it| !it.starts_with(char::is_lowercase))
    })
}

/// Whether a file is StaR's own, or a test.
fn is_apart(path: &str) -> bool {
    let mut parts = path.split('/');
    parts.any(|it| matches!(it, "star" | "star.rs" | "tests" | "tests.rs"))
}

/// Returns the files that the section of the page lists.
fn listed(page: &str) -> Vec<&str> {
    let (_, section) = page.split_once(SECTION).expect("the page has the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    section.lines().filter_map(|line| line.strip_prefix("- `")?.split('`').next()).collect()
}

#[test]
fn few_files_name_the_second_service_and_the_page_lists_them() {
    let mut found = Vec::new();
    for path in FOLDERS.iter().flat_map(|folder| sources(&root().join(folder))) {
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        if !is_apart(&name) && names_star(&fs::read_to_string(&path).unwrap()) {
            found.push(name);
        }
    }
    found.sort();
    assert_eq!(
        found,
        listed(&file(PAGE)),
        "on the left the files that name StaR, on the right {PAGE}"
    );
    assert!(found.len() <= FILES_MAX, "{} files; at most {FILES_MAX}", found.len());
}

#[test]
fn words_of_star_are_found_in_code_alone() {
    for names in [
        "use rma_star::X;",
        "f(StarConfig)",
        "cfg(feature = \"star\")",
        "a.take_star_back()",
        "\"StaR\"",
    ] {
        assert!(names_star(names), "{names}");
    }
    for none in
        ["start()", "Starved", "// StaR", "let restart = 1;", "#[cfg(test)]\nmod tests { star }"]
    {
        assert!(!names_star(none), "{none}");
    }
}
