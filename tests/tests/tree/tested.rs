//! Pages that say which test shows what: each test that they name is there.

use std::{collections::BTreeSet, fs};

use super::{root, sources};

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
