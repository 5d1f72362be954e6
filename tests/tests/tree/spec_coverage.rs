//! Every requirement of the papers is cited in code and in a test, or says why not.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use rma_lab::evidence;
use serde::Deserialize;

use super::{file, root, sources};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    requirement: Vec<Requirement>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Requirement {
    id: String,
    section: String,
    text: String,
    deviation: Option<String>,
    pending: Option<String>,
}

/// The places where one requirement is cited.
#[derive(Debug, Default)]
struct Cited {
    code: usize,
    deviation: usize,
    test: usize,
}

/// A file of requirements: what its ids are cited with, and where they are from.
const SPECS: [(&str, &str); 3] = [
    ("1rma", "the paper's requirements"),
    ("channels", "requirements of messages and atomics"),
    ("star", "requirements of StaR"),
];

/// All citations of one file in the tree: an id, then at most one line that says of which type it
/// is.
fn citations(prefix: &str) -> BTreeMap<String, Cited> {
    let folders = ["rma-core", "rma-xdp", "crates", "dev", "bench", "tests"];
    let files = folders.iter().flat_map(|folder| sources(&root().join(folder)));
    let mut citations: BTreeMap<String, Cited> = BTreeMap::new();
    // Built at run time, so that this file does not cite anything itself.
    let mark = ["//", "= ", prefix, "#"].concat();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (at, line) in lines.iter().enumerate() {
            let Some(id) = line.strip_prefix(mark.as_str()) else { continue };
            let cited = citations.entry(id.trim().to_owned()).or_default();
            match lines.get(at + 1).and_then(|next| next.split_once("= type=")) {
                Some(("//", "test")) => cited.test += 1,
                Some(("//", "deviation")) => cited.deviation += 1,
                Some(("//", other)) => panic!("{}: type {other} is not known", file.display()),
                _ => cited.code += 1,
            }
        }
    }
    citations
}

#[test]
fn every_requirement_has_code_and_a_test_or_a_reason() {
    let faults: Vec<String> =
        SPECS.iter().flat_map(|(prefix, what)| faults_of(prefix, what)).collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Returns the faults of one file's requirements, or with what cites them.
fn faults_of(prefix: &str, what: &str) -> Vec<String> {
    let text = file(&format!("docs/spec/{prefix}.toml"));
    let spec: Spec = toml::from_str(&text).unwrap();
    let mut citations = citations(prefix);
    let mut faults = Vec::new();
    let mut ids = BTreeSet::new();
    let (mut all, mut not_yet) = (Cited::default(), 0);
    for Requirement { id, section, text, deviation, pending } in &spec.requirement {
        if !ids.insert(id) || section.is_empty() || text.is_empty() {
            faults.push(format!("{id}: listed twice, or without section or text"));
        }
        let cited = citations.remove(id).unwrap_or_default();
        if pending.is_some() {
            println!("{id:40} pending");
            not_yet += 1;
            if cited.code + cited.deviation + cited.test > 0 {
                faults.push(format!("{id}: pending, but cited"));
            }
            continue;
        }
        println!("{id:40} code {}, tests {}", cited.code + cited.deviation, cited.test);
        all.code += cited.code;
        all.deviation += cited.deviation;
        all.test += cited.test;
        if cited.code + cited.deviation == 0 {
            faults.push(format!("{id}: no line of code"));
        }
        if cited.test == 0 {
            faults.push(format!("{id}: no test"));
        }
        if cited.deviation > 0 && deviation.is_none() {
            faults.push(format!("{id}: a deviation in code, but no reason in the file"));
        }
    }
    evidence::show(format_args!(
        "{what}: {} done, cited {} times in code and {} in tests, with {} deviations; {not_yet} pending",
        spec.requirement.len() - not_yet,
        all.code + all.deviation,
        all.test,
        spec.requirement.iter().filter(|it| it.deviation.is_some()).count(),
    ));
    faults.extend(citations.into_keys().map(|id| format!("{id}: cited, but not in the file")));
    faults
}
