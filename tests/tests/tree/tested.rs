//! Tests that would not run: those that a page names and that are gone, and those in programs.

use std::{collections::BTreeSet, fs};

use super::{crate_folders, root, sources};

/// The words in backquotes of a page that are sentences, as the names of tests are.
fn named(page: &str) -> BTreeSet<&str> {
    let words = page.split('`').skip(1).step_by(2);
    let is_letter = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_';
    let is_sentence = |it: &&str| it.matches('_').count() >= 3 && it.chars().all(is_letter);
    words.filter(is_sentence).collect()
}

/// Those of them that are no functions of these sources.
fn missing<'a>(named: &BTreeSet<&'a str>, sources: &[String]) -> Vec<&'a str> {
    let is_there = |name: &&str| sources.iter().any(|it| it.contains(&format!("fn {name}(")));
    named.iter().copied().filter(|name| !is_there(name)).collect()
}

#[test]
fn tests_that_the_page_of_attacks_on_keys_names_are_there() {
    let sources = ["crates", "dev"].into_iter().flat_map(|it| sources(&root().join(it)));
    let sources: Vec<String> = sources.map(|it| fs::read_to_string(it).unwrap()).collect();
    let page = fs::read_to_string(root().join("docs/decisions/key-attacks.md")).unwrap();
    let named = named(&page);
    assert!(named.len() > 40, "{}", named.len());
    assert_eq!(missing(&named, &sources), [""; 0]);
}

#[test]
fn a_test_that_is_named_and_not_there_is_found() {
    let named = named("`a_b_c_d` does `A_B_C_D`, `two words`, `x_y` and `e_f_g_h`");
    assert_eq!(named.iter().collect::<Vec<_>>(), [&"a_b_c_d", &"e_f_g_h"]);
    let sources = ["    fn a_b_c_d() {}\n// e_f_g_h()".to_owned()];
    assert_eq!(missing(&named, &sources), ["e_f_g_h"]);
}

/// `cargo xtask test` compiles no program as a test whose package has a library, and no example.
#[test]
fn programs_with_a_library_and_examples_have_no_tests() {
    let mut found = Vec::new();
    for folder in crate_folders() {
        let folder = root().join(folder);
        if !folder.join("src/lib.rs").exists() {
            continue;
        }
        let mut programs = vec![folder.join("src/main.rs")];
        let folders = ["src/bin", "examples"].map(|it| folder.join(it));
        programs.extend(folders.iter().filter(|it| it.exists()).flat_map(|it| sources(it)));
        programs.retain(|it| fs::read_to_string(it).is_ok_and(|text| text.contains("#[test]")));
        found.extend(programs);
    }
    assert!(found.is_empty(), "move tests to the library, or below tests/: {found:?}");
}
