//! What README shows is what there is.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{fs, path::Path};

fn file(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)).unwrap()
}

#[test]
fn the_program_in_the_readme_is_the_example_that_is_tested() {
    let (readme, example) = (file("README.md"), file("rma-xdp/examples/one_sided.rs"));
    assert!(readme.contains(&format!("```rust\n{example}```")), "they differ");
    assert!(example.lines().count() <= 30, "a short program");
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
