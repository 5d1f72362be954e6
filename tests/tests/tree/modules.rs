//! The modules of a crate, and which of them import from which, read from the text of their files.
//!
//! It reads what rustfmt leaves: a `use` begins its line, an inline module ends with a brace under
//! its first letter. Modules for tests alone are left out. Paths that begin with `crate` or a
//! crate's name count wherever they stand; other paths only in a `use`. Macros are not expanded,
//! and a name that was re-exported counts as the re-exporting module's.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// The name of a module with its crate's: `rma_core::nic::responder`.
pub(super) type Module = String;

/// The imports of modules, of its own crate or of another.
#[derive(Debug, Default)]
pub(super) struct Imports {
    texts: BTreeMap<Module, String>,
}

/// Whether `module` is `room` or stands in it.
pub(super) fn is_in(module: &str, room: &str) -> bool {
    module.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

impl Imports {
    /// Adds the files below a crate's `src`.
    pub(super) fn add_crate(&mut self, name: &str, src: &Path) {
        for path in super::sources(src) {
            let inside = path.strip_prefix(src).unwrap().with_extension("");
            let parts: Vec<_> = inside.iter().map(|it| it.to_str().unwrap()).collect();
            // A program is a crate of its own, which stands on the library.
            let module = match parts[..] {
                ["lib"] => name.to_owned(),
                ["main"] => format!("{name}::main"),
                _ => format!("{name}::{}", parts.join("::")),
            };
            self.add(&module, &fs::read_to_string(&path).unwrap());
        }
    }

    /// Adds one module by its text.
    pub(super) fn add(&mut self, module: &str, text: &str) {
        self.texts.insert(module.to_owned(), text.to_owned());
    }

    /// All modules.
    pub(super) fn modules(&self) -> impl Iterator<Item = &str> {
        let only_tests = self.only_tests();
        let modules = self.texts.keys().map(String::as_str);
        modules.filter(move |module| !only_tests.iter().any(|it| is_in(module, it)))
    }

    /// Modules that are built for tests alone.
    fn only_tests(&self) -> BTreeSet<Module> {
        let mut found = BTreeSet::new();
        for (module, text) in &self.texts {
            let mut for_tests = false;
            for line in text.lines() {
                if let Some(name) = declared(line).filter(|_| for_tests) {
                    found.insert(format!("{module}::{name}"));
                }
                for_tests = line.trim() == "#[cfg(test)]" || for_tests && line.starts_with('#');
            }
        }
        found
    }

    /// The modules that each module imports from, itself left out.
    pub(super) fn arrows(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let modules: BTreeSet<&str> = self.modules().collect();
        let arrows_of = |&module: &&'_ str| {
            let paths = paths(&self.texts[module]);
            let to = paths.iter().filter_map(|(depth, path)| self.target(module, *depth, path));
            to.filter(|to| *to != module && modules.contains(to)).collect()
        };
        modules.iter().map(|module| (*module, arrows_of(module))).collect()
    }

    /// The module that a path leads to, which stands below `depth` inline modules of `module`.
    fn target(&self, module: &str, depth: usize, path: &[String]) -> Option<&str> {
        let crate_name = module.split("::").next().unwrap();
        let mut at: Vec<&str> = module.split("::").collect();
        let mut inline = depth;
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => (at, rest) = (vec![crate_name], &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while let Some(("super", more)) = rest.split_first().map(|(a, b)| (a.as_str(), b)) {
                    match inline.checked_sub(1) {
                        Some(less) => inline = less,
                        None => drop(at.pop()),
                    }
                    rest = more;
                }
            }
            first if self.texts.contains_key(first) => (at, rest) = (vec![first], &path[1..]),
            first if self.texts.contains_key(&format!("{module}::{first}")) => {}
            _ => return None,
        }
        let mut name = at.join("::");
        for part in rest {
            let longer = format!("{name}::{part}");
            if !self.texts.contains_key(&longer) {
                break;
            }
            name = longer;
        }
        self.texts.get_key_value(&name).map(|(name, _)| name.as_str())
    }

    /// Sets of modules that import from each other in a circle, each in order. With `up`, what a
    /// module takes from those that it stands in counts as well.
    pub(super) fn circles(&self, up: bool) -> Vec<BTreeSet<&str>> {
        let mut arrows = self.arrows();
        if !up {
            arrows.iter_mut().for_each(|(from, to)| to.retain(|to| !is_in(from, to)));
        }
        let reached: BTreeMap<_, _> = arrows.keys().map(|&it| (it, reached(&arrows, it))).collect();
        let mut circles: Vec<BTreeSet<&str>> = Vec::new();
        for (&module, from_here) in &reached {
            let and_back = |other: &&str| reached[other].contains(module);
            let circle: BTreeSet<&str> = from_here.iter().copied().filter(and_back).collect();
            if !circle.is_empty() && !circles.contains(&circle) {
                circles.push(circle);
            }
        }
        circles
    }
}

/// Returns the modules that can be reached from `from` by one arrow or more, within its crate.
fn reached<'a>(arrows: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let crate_name = from.split("::").next().unwrap();
    let (mut found, mut ahead) = (BTreeSet::new(), vec![from]);
    while let Some(next) = ahead.pop() {
        for &to in arrows.get(next).into_iter().flatten() {
            if is_in(to, crate_name) && found.insert(to) {
                ahead.push(to);
            }
        }
    }
    found
}

/// The name of a module that a line declares, whose text is in another file.
fn declared(line: &str) -> Option<&str> {
    let (before, name) = line.trim().strip_suffix(';')?.rsplit_once("mod ")?;
    (before.is_empty() || before.starts_with("pub")).then_some(name)
}

/// Whether a line begins an inline module.
fn begins_module(line: &str) -> bool {
    let line = line.trim().strip_prefix("pub").unwrap_or(line.trim());
    let line =
        if line.starts_with('(') { line.split_once(')').map_or("", |it| it.1) } else { line };
    line.trim_start().starts_with("mod ") && line.ends_with('{')
}

/// All paths that a module's text names, each with how many inline modules it is in. Without those
/// for tests.
fn paths(text: &str) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    // The spaces before the braces that end the inline modules around a line, and whether each is
    // for tests.
    let mut around: Vec<(usize, bool)> = Vec::new();
    let mut for_tests = false;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        if line.trim() == "}" && around.last().is_some_and(|it| it.0 == indent) {
            around.pop();
        }
        if begins_module(line) {
            around.push((indent, for_tests));
        }
        for_tests = line.trim() == "#[cfg(test)]" || for_tests && line.trim().starts_with("#[");
        let code = line.split("//").next().unwrap();
        if around.iter().any(|it| it.1) {
            continue;
        }
        if let Some(begun) = use_tree(code) {
            let mut tree = begun.to_owned();
            while !tree.contains(';') {
                let Some(more) = lines.next() else { break };
                tree.push_str(more.split("//").next().unwrap());
            }
            let tree: String = tree.split(';').next().unwrap().to_owned();
            let mut paths = Vec::new();
            flatten(&tree, &[], &mut paths);
            found.extend(paths.into_iter().map(|path| (around.len(), path)));
        } else {
            found.extend(named(code).map(|path| (around.len(), path)));
        }
    }
    found
}

/// Returns the text of a line after `use`, if it begins with that.
fn use_tree(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let rest = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1,
        Some(rest) => rest,
        None => line,
    };
    rest.trim_start().strip_prefix("use ")
}

/// The paths of a tree of imports such as `a::{b, c::{self, d}}`.
pub(super) fn flatten(tree: &str, before: &[String], paths: &mut Vec<Vec<String>>) {
    let tree = tree.trim();
    if let Some(inner) = tree.strip_prefix('{') {
        let inner = inner.strip_suffix('}').unwrap_or(inner);
        let (mut depth, mut start) = (0_usize, 0);
        for (at, letter) in inner.char_indices() {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    flatten(&inner[start..at], before, paths);
                    start = at + 1;
                }
                _ => {}
            }
        }
        flatten(&inner[start..], before, paths);
    } else if let Some((first, rest)) = tree.split_once("::") {
        flatten(rest, &[before, &[first.to_owned()]].concat(), paths);
    } else if !tree.is_empty() {
        let name = tree.split(" as ").next().unwrap().to_owned();
        let last = if name == "self" { vec![] } else { vec![name] };
        paths.push([before, &last].concat());
    }
}

/// Paths in a line of code that begin with `crate` or a crate of this workspace.
fn named(code: &str) -> impl Iterator<Item = Vec<String>> {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    let words = code.split(move |letter| !is_part(letter));
    words.filter(|word| word.starts_with("crate::") || word.starts_with("rma_")).filter_map(
        |word| {
            let path: Vec<String> = word.split("::").map(str::to_owned).collect();
            (path.len() > 1).then_some(path)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(modules: &[(&str, &str)]) -> Imports {
        let mut imports = Imports::default();
        modules.iter().for_each(|(module, text)| imports.add(module, text));
        imports
    }

    const NOTHING: &str = "";

    #[test]
    fn imports_are_found_however_they_are_written() {
        let others = ["b", "b::c", "b::d", "e", "e::f"].map(|it| format!("a::{it}"));
        let found = |text: &str| {
            let mut modules: Vec<(&str, &str)> =
                others.iter().map(|it| (it.as_str(), NOTHING)).collect();
            modules.extend([("a", NOTHING), ("other", NOTHING), ("other::g", NOTHING)]);
            modules.push(("a::e::h", text));
            let imports = imports(&modules);
            imports.arrows()["a::e::h"].iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()
        };
        for (text, expected) in [
            ("use crate::b::Thing;", &["a::b"][..]),
            (
                "pub(crate) use crate::{\n    b::{c::Thing, d},\n    e::f as x,\n};",
                &["a::b::c", "a::b::d", "a::e::f"],
            ),
            ("use super::{f::Thing, Other};", &["a::e", "a::e::f"]),
            ("use super::super::b::{self, Thing};", &["a::b"]),
            ("fn f(it: crate::b::c::Thing) {}", &["a::b::c"]),
            ("use other::{g::Thing, Other};", &["other", "other::g"]),
            (
                "mod inner {\n    use super::Thing;\n    use super::super::f::Thing;\n}",
                &["a::e::f"],
            ),
            ("// use crate::b;\n/// [`crate::b`]\nuse std::fmt;", &[]),
            ("#[cfg(test)]\nmod tests {\n    use crate::b;\n}\nuse crate::e::f;", &["a::e::f"]),
        ] {
            assert_eq!(found(text), expected, "{text}");
        }
    }

    #[test]
    fn a_circle_is_found_through_any_number_of_modules_and_through_no_test() {
        let modules = [
            ("a", "mod b;\nmod c;\nmod d;\n#[cfg(test)]\nmod tests;"),
            ("a::b", "use crate::c::C;"),
            ("a::c", "use super::d::D;"),
            ("a::d", NOTHING),
            ("a::tests", "use super::b;"),
        ];
        assert!(imports(&modules).circles(true).is_empty());
        let mut closed = modules;
        closed[3].1 = "fn f() { crate::b::f() }";
        assert_eq!(imports(&closed).circles(true), [["a::b", "a::c", "a::d"].into()]);
        closed[3].1 = "use crate::tests::f;";
        assert!(imports(&closed).circles(true).is_empty(), "a module for tests is no way round");
    }

    #[test]
    fn imports_from_the_parent_module_may_be_left_out() {
        let found = imports(&[("a", NOTHING), ("a::b", "use c::C;"), ("a::b::c", "use super::B;")]);
        assert_eq!(found.circles(true), [["a::b", "a::b::c"].into()]);
        assert!(found.circles(false).is_empty());
    }
}
