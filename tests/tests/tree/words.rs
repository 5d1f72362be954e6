//! Words: a doc states, and does not ask.
//!
//! A doc that opens with "What" or "Who" makes its reader find the noun. The rule is for every doc,
//! those that clap prints as help among them; names of tests begin with no "what" and no "who".
//! "Whether" and "How many" are usual, and allowed. As in `comments`, the steering program is left
//! out.

use std::fs;

use super::{crate_folders, root, sources};

/// The words that no doc opens with.
const QUESTIONS: [&str; 8] = ["What", "Who", "Whose", "Whom", "Which", "How", "Where", "Why"];

/// The words after which "How" asks for a number.
const AMOUNTS: [&str; 5] = ["many", "much", "long", "often", "far"];

/// The words that no name of a test begins with. "where_…" may name a condition.
const ACTORS: [&str; 4] = ["what_", "who_", "whose_", "whom_"];

/// Returns the docs and the names of tests that open with a question, each with its line.
fn faults(text: &str) -> Vec<(usize, String)> {
    let mut faults = Vec::new();
    let mut last = "";
    let mut is_test = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        let marker = ["///", "//!"].into_iter().find(|it| line.starts_with(it)).unwrap_or_default();
        if !marker.is_empty() && marker != last && asks(&line[marker.len()..]) {
            faults.push((number, format!("this doc asks: {line:?}")));
        }
        last = marker;
        let name = line.strip_prefix("fn ").or_else(|| line.split_once(" fn ").map(|it| it.1));
        if let Some(name) = name.filter(|_| is_test && marker.is_empty()) {
            if ACTORS.iter().any(|it| name.starts_with(it)) {
                faults.push((number, format!("the name of this test asks: {line:?}")));
            }
            is_test = false;
        }
        is_test |= line == "#[test]";
    }
    faults
}

/// Whether `text` opens with a question that is not one for a number.
fn asks(text: &str) -> bool {
    let mut words = text.split(|it: char| !it.is_alphabetic()).filter(|it| !it.is_empty());
    let first = words.next().unwrap_or_default();
    QUESTIONS.contains(&first) && words.next().is_none_or(|it| !AMOUNTS.contains(&it))
}

#[test]
fn docs_and_names_of_tests_open_with_no_question() {
    let mut all = Vec::new();
    for folder in crate_folders().iter().map(String::as_str).chain(["fuzz"]) {
        for path in sources(&root().join(folder)) {
            let text = fs::read_to_string(&path).unwrap();
            let name = path.strip_prefix(root()).unwrap().display().to_string();
            all.extend(faults(&text).iter().map(|(line, fault)| format!("{name}:{line}: {fault}")));
        }
    }
    assert!(all.is_empty(), "\n{}", all.join("\n"));
}

#[test]
fn questions_are_found_and_nothing_else() {
    let lines = |text: &str| faults(text).into_iter().map(|it| it.0).collect::<Vec<_>>();
    for (text, wrong) in [
        ("/// What a peer is told.\npub struct Answer;", &[1][..]),
        ("    /// Where it lies.\n    place: u64,", &[1]),
        ("//! Who asks.\n\n/// Whose.\nfn f() {}", &[1, 3]),
        ("/// The answer.\n/// Which goes at once.\nfn f() {}", &[]),
        ("/// Whether it lies there.\n/// How many there are.\nfn f() {}", &[]),
        ("/// How many there are.\nfn f() {}", &[]),
        ("/// How it ended.\nfn f() {}", &[1]),
        ("// What it was.\nlet x = 1;", &[]),
        ("#[test]\n#[ignore = \"needs root\"]\nfn what_is_sent_arrives() {", &[3]),
        ("#[test]\nfn a_message_arrives() {\n    fn who_asks() {}", &[]),
        ("#[test]\nfn where_nobody_waits_all_is_sent() {", &[]),
        ("fn who_makes_room() {", &[]),
    ] {
        assert_eq!(lines(text), wrong, "{text}");
    }
}
