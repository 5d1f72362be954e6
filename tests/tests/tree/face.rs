//! The face of `rma-xdp`: the names at its root, which a stranger reads first, are few, and no name
//! stands in two places.

use std::collections::{BTreeMap, BTreeSet};

use super::{file, modules::flatten};

/// The most names that the root may have with all features on, its modules among them.
const NAMES_MAX: usize = 55;

/// The words before the name of an item.
const KEYWORDS: [&str; 9] =
    ["async", "const", "enum", "fn", "static", "struct", "trait", "type", "unsafe"];

/// A name that a module exports, with the crate that it is of.
type Export = (String, String);

/// Returns the modules that the text of a module of `rma-xdp` makes public, and all other names.
fn exports(text: &str) -> (BTreeSet<String>, Vec<Export>) {
    let (mut modules, mut names) = (BTreeSet::new(), Vec::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(item) = line.strip_prefix("pub ") else { continue };
        if let Some(name) = item.strip_prefix("mod ") {
            modules.insert(name.trim_end_matches(';').to_owned());
        } else if let Some(begun) = item.strip_prefix("use ") {
            let mut tree = begun.to_owned();
            while !tree.contains(';') {
                tree.push_str(lines.next().expect("an import ends"));
            }
            let mut paths = Vec::new();
            flatten(tree.trim_end_matches(';'), &[], &mut paths);
            names.extend(paths.iter().map(|path| {
                let (first, last) = (&path[0], &path[path.len() - 1]);
                (if first.starts_with("rma_") { first } else { "rma_xdp" }.into(), last.clone())
            }));
        } else {
            let words = item.split(|it: char| !it.is_alphanumeric() && it != '_');
            let name = words.filter(|it| !it.is_empty()).find(|it| !KEYWORDS.contains(it));
            names.extend(name.map(|it| ("rma_xdp".to_owned(), it.to_owned())));
        }
    }
    (modules, names)
}

/// Returns the names that stand in two places, each with them.
fn twice<'a>(places: &[(&'a str, Vec<Export>)]) -> BTreeMap<Export, Vec<&'a str>> {
    let mut all: BTreeMap<Export, Vec<&str>> = BTreeMap::new();
    for (place, name) in places.iter().flat_map(|(it, names)| names.iter().map(move |n| (it, n))) {
        all.entry(name.clone()).or_default().push(place);
    }
    all.retain(|_, places| places.len() > 1);
    all
}

#[test]
fn the_root_of_rma_xdp_has_few_names_and_none_in_two_places() {
    let (modules, names) = exports(&file("rma-xdp/src/lib.rs"));
    let count = modules.len() + names.len();
    assert!(
        count <= NAMES_MAX,
        "{count} names at the root of rma_xdp, and {NAMES_MAX} may be: put the second circle into \
         a module"
    );
    let mut places = vec![("", names)];
    for module in &modules {
        places.push((module, exports(&file(&format!("rma-xdp/src/{module}.rs"))).1));
    }
    assert_eq!(twice(&places), BTreeMap::new());
}

#[test]
fn exports_are_found_however_they_are_written() {
    let text = "pub mod ops;\nmod host;\npub(crate) mod engine;\n#[doc(inline)]\n\
                pub use rma_app::{\n    Client,\n    cells::{Cells, Lens},\n};\n\
                pub use host::Host;\npub(crate) use host::Inner;\n\
                pub struct Timing {\n    pub slot: u64,\n}\npub const fn made() {}\n";
    let (modules, names) = exports(text);
    assert_eq!(modules, ["ops".to_owned()].into());
    let names: Vec<_> = names.iter().map(|(of, name)| format!("{of}::{name}")).collect();
    let of_app = ["Client", "Cells", "Lens"].map(|it| format!("rma_app::{it}"));
    let own = ["Host", "Timing", "made"].map(|it| format!("rma_xdp::{it}"));
    assert_eq!(names, [of_app, own].concat());
}

#[test]
fn a_name_in_two_places_is_found_and_two_crates_names_are_not() {
    let export = |of: &str, name: &str| (of.to_owned(), name.to_owned());
    let places = [
        ("", vec![export("rma_app", "Client"), export("rma_core", "Source")]),
        ("keys", vec![export("rma_keys", "Source")]),
        ("ops", vec![export("rma_app", "Client")]),
    ];
    assert_eq!(twice(&places), [(export("rma_app", "Client"), vec!["", "ops"])].into());
}
