//! Comments: a doc says more than one word and more than the name that it stands before, and no
//! line is wider than a page.
//!
//! A field of a variant may be told by its name alone: its variant's doc says the rest. The
//! steering program is left out: its object in git is bound to every octet of its source.

use std::fs;

use super::{crate_folders, root, sources};

/// The widest line of a comment. Tables and what is quoted in fences may be wider.
const WIDTH: usize = 100;

/// Returns the faults of a file's comments, each with its line.
fn faults(text: &str) -> Vec<(usize, String)> {
    let mut faults = Vec::new();
    let mut in_fence = false;
    // The doc comment so far, and where it began.
    let mut doc: Option<(usize, String)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let trimmed = line.trim_start();
        let Some(comment) = trimmed.strip_prefix("//") else {
            in_fence = false;
            // Attributes stand between a doc and what it is of.
            if !trimmed.starts_with("#[") {
                let of_variant = line.len() - trimmed.len() > 4;
                let stub = doc.take().filter(|(_, doc)| says_nothing(doc, trimmed, of_variant));
                faults
                    .extend(stub.map(|(at, doc)| (at, format!("this doc says nothing: {doc:?}"))));
            }
            continue;
        };
        let said = comment.trim_start_matches(['/', '!']).trim();
        if said.starts_with("```") {
            in_fence = !in_fence;
        }
        let is_exempt = in_fence || said.starts_with('|') || !said.contains(' ');
        if line.chars().count() > WIDTH && !is_exempt {
            faults.push((number, format!("a comment of {} columns", line.chars().count())));
        }
        if comment.starts_with('/') {
            let (_, so_far) = doc.get_or_insert((number, String::new()));
            so_far.push_str(said);
            so_far.push('\n');
        }
    }
    faults
}

/// Whether a doc is one word, or the name of the item that `line` begins, unless it is `named`.
fn says_nothing(doc: &str, line: &str, named: bool) -> bool {
    let only_letters = |text: &str| {
        let letters = text.chars().filter(|it| it.is_alphanumeric());
        letters.flat_map(char::to_lowercase).collect::<String>()
    };
    let words: Vec<&str> = doc.split_whitespace().collect();
    let rest = match words[..] {
        [] | [_] => return true,
        _ if named => return false,
        ["The" | "A" | "An", ref rest @ ..] => rest,
        ref all => all,
    };
    let is_name = |it: &&str| it.starts_with(|it: char| it.is_alphabetic() || it == '_');
    let keywords =
        ["pub", "crate", "super", "const", "fn", "struct", "enum", "type", "mod", "trait"];
    let parts = line.split(|it: char| !(it.is_alphanumeric() || it == '_'));
    let name = parts.filter(is_name).find(|it| !keywords.contains(it)).unwrap_or_default();
    only_letters(&rest.concat()) == only_letters(name)
}

#[test]
fn docs_say_something_and_comments_are_as_wide_as_a_page() {
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
fn stubs_and_wide_lines_are_found_and_nothing_else() {
    let lines = |text: &str| faults(text).into_iter().map(|it| it.0).collect::<Vec<_>>();
    let wide = "x ".repeat(60);
    for (text, wrong) in [
        ("/// Which.\npub piece: usize,", &[1][..]),
        ("/// Which piece\n/// it was.\npub piece: usize,", &[]),
        ("/// [`Order::only`].\n#[must_use]\nfn f() {}", &[1]),
        ("/// The region table.\npub struct RegionTable;", &[1]),
        ("/// The table of regions.\npub struct RegionTable;", &[]),
        ("/// READ.\n    Read,", &[1]),
        ("        /// The node.\n        node: NodeId,", &[]),
        ("        /// Which.\n        node: NodeId,", &[1]),
        ("// Why.\nlet x = 1;", &[]),
        ("/// Says\n///\n/// # Panics\nfn f() {}", &[]),
        (&format!("fn f() {{}}\n// {wide}\n//! {wide}"), &[2, 3]),
        (&format!("/// It is\n/// ```text\n/// {wide}\n/// ```\n/// {wide}\nfn f() {{}}"), &[5]),
        (
            &format!(
                "//! | a table | {wide} |\n// https://{}\nlet x = \"{wide}\";",
                "x".repeat(100)
            ),
            &[],
        ),
    ] {
        assert_eq!(lines(text), wrong, "{text}");
    }
}
