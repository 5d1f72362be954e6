//! Parameters of the product's functions: hardly any is a tuple. One hides how many values a
//! function takes from the lint that counts them, and from its callers what they are called.

use std::fs;

use super::{crate_folders, root, sources};

/// The most parameters that may be tuples.
const TUPLES_MAX: usize = 20;

/// Returns each letter of `text` with its place, and how many brackets are open behind it.
fn letters(text: &str) -> impl Iterator<Item = (usize, char, usize)> {
    let (mut depth, mut last) = (0_usize, ' ');
    text.char_indices().map(move |(at, letter)| {
        match letter {
            '(' | '[' | '{' | '<' => depth += 1,
            '>' if matches!(last, '-' | '=') => {}
            ')' | ']' | '}' | '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        last = letter;
        (at, letter, depth)
    })
}

/// Returns what stands in the bracket that `text` begins with, and what stands behind it.
fn bracket(text: &str) -> Option<(&str, &str)> {
    let (end, ..) = letters(text).find(|it| it.2 == 0)?;
    Some((text.get(1..end)?, &text[end + 1..]))
}

/// Splits `text` at each `separator` that stands in no bracket.
fn split(text: &str, separator: char) -> Vec<&str> {
    let ends = letters(text).filter(|it| (it.1, it.2) == (separator, 0)).map(|it| it.0);
    let mut start = 0;
    let part = |end| &text[core::mem::replace(&mut start, end + 1)..end];
    ends.chain([text.len()]).map(part).collect()
}

/// Whether a pattern or a type is a tuple, or a reference to one.
fn is_tuple(text: &str) -> bool {
    let text = text.trim().trim_start_matches('&');
    let is_named = text.starts_with('\'');
    let text = text.split_once(' ').filter(|_| is_named).map_or(text, |it| it.1);
    let text = text.strip_prefix("mut ").unwrap_or(text);
    text.starts_with('(') && bracket(text).is_some_and(|(inner, _)| split(inner, ',').len() > 1)
}

/// Returns the tuples among the parameters of a file's functions, tests aside, each with the line
/// of its function.
fn tuples(text: &str) -> Vec<(usize, String)> {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let code = lines.collect::<Vec<_>>().join("\n");
    let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut found = Vec::new();
    for (at, keyword) in code.match_indices("fn ") {
        let signature = &code[at + keyword.len()..];
        let name_len = signature.find(|it: char| !it.is_alphanumeric() && it != '_').unwrap_or(0);
        let (name, mut rest) = signature.split_at(name_len);
        if rest.starts_with('<') {
            rest = bracket(rest).map_or("", |it| it.1);
        }
        let Some((parameters, _)) = bracket(rest).filter(|_| rest.starts_with('(')) else {
            continue;
        };
        for parameter in split(parameters, ',') {
            let pattern = split(parameter, ':')[0];
            let of_type = parameter[pattern.len()..].trim_start_matches(':');
            if is_tuple(pattern) || is_tuple(of_type) {
                let said = parameter.split_whitespace().collect::<Vec<_>>().join(" ");
                found.push((code[..at].matches('\n').count() + 1, format!("{name}: {said}")));
            }
        }
    }
    found
}

#[test]
fn hardly_any_function_of_the_product_takes_a_tuple() {
    let is_of_product = |it: &String| it.starts_with("crates/") || it.starts_with("rma-");
    let mut found = Vec::new();
    for folder in crate_folders().iter().filter(|it| is_of_product(it)) {
        for path in sources(&root().join(folder).join("src")) {
            if path.iter().any(|it| it == "tests" || it == "tests.rs") {
                continue;
            }
            let of_file = tuples(&fs::read_to_string(&path).unwrap());
            let path = path.strip_prefix(root()).unwrap().display();
            found.extend(of_file.iter().map(|(line, tuple)| format!("{path}:{line}: {tuple}")));
        }
    }
    assert!(
        found.len() <= TUPLES_MAX,
        "{} parameters are tuples, and {TUPLES_MAX} may be: pass what they have one by one, or as \
         a struct\n{}",
        found.len(),
        found.join("\n")
    );
}

#[test]
fn tuples_are_found_in_patterns_and_in_types_and_nowhere_else() {
    let found = |text: &str| tuples(text).into_iter().map(|it| it.0).collect::<Vec<_>>();
    for one in [
        "\nfn f((a, b): (A, B)) {}",
        "\npub(crate) const fn f(&self, at: (u64, u32)) -> u64 {}",
        "\nfn f<T: Fn(u8) -> u8>(\n    &mut self,\n    it: &'a mut (A<B, C>, D),\n) {}",
        "\nfn f(&Thing { a, .. }: &Thing, (mut a, _): (A, B)) {}",
    ] {
        assert_eq!(found(one), [2], "{one}");
    }
    for none in [
        "fn f(stream: &mut (impl Read + Write), error: &(dyn Error + 'static), (): ()) {}",
        "fn f(at: Option<(A, B)>, of: impl Fn((A, B)) -> C, [a, b]: [A; 2]) -> (A, B) {}",
        "// fn f(at: (A, B)) {}\ntype F = fn((A, B));\nlet g = |(a, b): (A, B)| a;",
        "#[cfg(test)]\nmod tests {\n    fn f(at: (A, B)) {}\n}",
    ] {
        assert!(found(none).is_empty(), "{none}");
    }
}
