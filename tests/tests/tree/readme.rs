//! README against the tree: what it shows is what there is.

use std::{fs, path::Path};

use super::{file, root};

#[test]
fn the_programs_in_the_readme_are_the_examples_that_are_tested() {
    let readme = file("README.md");
    let shown = ["one_sided", "any_size"];
    for name in shown {
        let example = file(&format!("rma-xdp/examples/{name}.rs"));
        assert!(readme.contains(&format!("```rust\n{example}```")), "{name} differs");
        assert!(example.lines().count() <= 30, "{name} is a short program");
    }
    assert_eq!(readme.matches("```rust\n").count(), shown.len(), "no other program is there");
}

/// The documents of the tree, by their names from its root.
fn documents() -> Vec<String> {
    let mut documents = Vec::new();
    for folder in ["", "docs/", "docs/decisions/", "ebpf/", "examples/kv/"] {
        let path = root().join(folder);
        let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.map(|name| name.to_string_lossy().into_owned());
        documents.extend(
            names.filter(|name| name.ends_with(".md")).map(|name| format!("{folder}{name}")),
        );
    }
    assert!(documents.len() > 10, "the tree has more documents than {documents:?}");
    documents
}

#[test]
fn files_that_the_documents_link_to_exist() {
    for document in documents() {
        let folder = Path::new(&document).parent().unwrap().to_owned();
        for link in file(&document).split("](").skip(1) {
            let target = link.split(')').next().unwrap();
            if target.contains("://") || target.starts_with('#') {
                continue;
            }
            let (target, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = root().join(&folder).join(target);
            assert!(path.exists(), "{document} links to {target}");
            let is_there = heading.is_empty() || headings(&path).iter().any(|it| it == heading);
            assert!(is_there, "{document} links to #{heading}, which {target} does not have");
        }
    }
}

/// The headings of a document, as links name them.
fn headings(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| line.starts_with('#'));
    let words = lines.map(|line| line.trim_start_matches('#').trim().to_lowercase());
    let is_kept = |it: &char| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_');
    words.map(|it| it.chars().filter(is_kept).collect::<String>().replace(' ', "-")).collect()
}

#[test]
fn the_table_of_parts_in_the_readme_has_a_line_for_each_folder_with_a_manifest() {
    let readme = file("README.md");
    let table = readme.split("## The parts").nth(1).unwrap().split("\n## ").next().unwrap();
    let root = root();
    let mut found = 0;
    for folder in ["", "crates/", "examples/"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let entry = entry.unwrap();
            if entry.path().join("Cargo.toml").exists() {
                let name = format!("{folder}{}", entry.file_name().to_string_lossy());
                assert!(
                    table.contains(&format!("[{name}]({name})")),
                    "README tells nothing of {name}"
                );
                found += 1;
            }
        }
    }
    assert!(found > 10, "the tree has more crates than {found}");
}
