//! README against the tree: what it shows is what there is.

use std::{fs, path::Path};

use super::{file, root, sources};

#[test]
fn the_readme_is_short() {
    let readme = file("README.md");
    let (lines, words) = (readme.lines().count(), readme.split_whitespace().count());
    assert!(lines <= 150, "{lines} lines: move details to a page of docs/");
    assert!(words <= 1400, "{words} words: move details to a page of docs/");
}

/// The names of the promises: `P1` to `P13`, then `S1` to `S6`.
fn promises() -> Vec<String> {
    let of = |letter: char, count: u8| (1..=count).map(move |number| format!("{letter}{number}"));
    of('P', 13).chain(of('S', 6)).collect()
}

#[test]
fn each_promise_has_a_line_in_the_readme_and_a_section_with_tests_on_its_page() {
    let (readme, page) = (file("README.md"), file("docs/PROMISES.md"));
    let lines = readme.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let titles: Vec<&str> = lines
        .map(|(title, _)| title)
        .filter(|title| promises().iter().any(|it| title.starts_with(&format!("{it} "))))
        .collect();
    assert_eq!(titles.len(), promises().len(), "one line each: {titles:?}");
    for title in titles {
        let section = page.split("\n## ").find(|it| it.starts_with(&format!("{title}\n")));
        let section = section.unwrap_or_else(|| panic!("docs/PROMISES.md has no section {title}"));
        assert!(section.contains("| tests | |"), "{title} names no tests");
    }
}

#[test]
fn test_files_that_the_page_of_promises_names_exist() {
    let folders = ["rma-core", "rma-xdp", "crates", "tests"];
    let sources: Vec<String> = folders
        .iter()
        .flat_map(|folder| sources(&root().join(folder)))
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    let page = file("docs/PROMISES.md");
    let named = page.split('`').skip(1).step_by(2).filter(|it| it.ends_with(".rs"));
    let mut count = 0;
    for name in named {
        let is_there = sources.iter().any(|it| it.ends_with(&format!("/{name}")));
        assert!(is_there, "docs/PROMISES.md names {name}");
        count += 1;
    }
    assert!(count > 50, "the page names more files than {count}");
}

#[test]
fn the_programs_in_the_readme_are_the_examples_that_are_tested() {
    let readme = file("README.md");
    let shown = ["one_sided"];
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
fn the_table_of_crates_has_a_line_for_each_folder_with_a_manifest() {
    let document = file("ARCHITECTURE.md");
    let table = document.split("\n## Crates\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let root = root();
    let mut found = 0;
    for folder in ["", "crates/", "dev/", "examples/"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let entry = entry.unwrap();
            if entry.path().join("Cargo.toml").exists() {
                let name = format!("{folder}{}", entry.file_name().to_string_lossy());
                assert!(
                    table.contains(&format!("[{name}]({name})")),
                    "ARCHITECTURE.md tells nothing of {name}"
                );
                found += 1;
            }
        }
    }
    assert!(found > 10, "the tree has more crates than {found}");
}
