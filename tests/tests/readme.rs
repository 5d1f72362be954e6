//! What README shows is what there is.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{fs, path::Path};

fn file(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)).unwrap()
}

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

#[test]
fn files_that_the_documents_link_to_exist() {
    for document in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "ebpf/README.md"] {
        let folder = Path::new(document).parent().unwrap().to_owned();
        for link in file(document).split("](").skip(1) {
            let target = link.split(')').next().unwrap();
            if target.contains("://") || target.starts_with('#') {
                continue;
            }
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(&folder).join(target);
            assert!(path.exists(), "{document} links to {target}");
        }
    }
}
