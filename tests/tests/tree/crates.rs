//! The picture of the crates in ARCHITECTURE.md, held against the manifests.
//!
//! A line of the picture is `crate -> crate, crate` or `crate, crate -> nothing`; what follows
//! after two spaces is for people. It shows what is linked by whoever depends on a crate, not what
//! its tests link besides, and not the tool that runs it all.

use std::collections::BTreeMap;

use super::{crate_folders, file, root, sources};

/// The crates that a crate stands on, in order.
type Picture = BTreeMap<String, Vec<String>>;

/// The crate that a manifest is of, and those of this project that it depends on.
fn manifest(text: &str) -> (String, Vec<String>) {
    let (mut section, mut name, mut on) = ("", None, Vec::new());
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        match (section, key.trim()) {
            ("[package]", "name") => name = Some(value.trim().trim_matches('"').to_owned()),
            ("[dependencies]", key) if key.starts_with("rma-") => on.push(key.to_owned()),
            _ => {}
        }
    }
    on.sort();
    (name.expect("a package has a name"), on)
}

/// The arrows below the heading of the crates.
fn drawn(document: &str) -> Picture {
    let section = document.split("\n## ").find(|it| it.starts_with("Crates\n")).unwrap_or_default();
    let arrows = section.lines().filter_map(|line| line.trim().split_once(" -> "));
    let arrow = |(from, to): (&str, &str)| {
        let to = to.split("  ").next().unwrap().split(',').map(|it| it.trim().to_owned());
        let mut to: Vec<String> = to.filter(|it| it != "nothing").collect();
        to.sort();
        let from: Vec<String> = from.split(',').map(|it| it.trim().to_owned()).collect();
        from.into_iter().map(move |from| (from, to.clone()))
    };
    arrows.flat_map(arrow).collect()
}

/// Returns the differences of the picture from the manifests.
fn faults(drawn: &Picture, real: &Picture) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, on) in real {
        match drawn.get(name) {
            None => faults.push(format!("{name} is not drawn")),
            Some(drawn) if drawn != on => {
                faults.push(format!("{name} is drawn on {drawn:?}, and stands on {on:?}"));
            }
            Some(_) => {}
        }
    }
    let gone = drawn.keys().filter(|name| !real.contains_key(*name));
    faults.extend(gone.map(|name| format!("{name} is drawn, and there is no such crate")));
    faults
}

#[test]
fn the_picture_of_the_crates_shows_what_their_manifests_say() {
    let folders = crate_folders().into_iter().filter(|it| it != "xtask").chain(["fuzz".into()]);
    let real: Picture =
        folders.map(|folder| manifest(&file(&format!("{folder}/Cargo.toml")))).collect();
    let faults = faults(&drawn(&file("ARCHITECTURE.md")), &real);
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Whether a manifest has `name` among its dependencies, of whatever kind.
fn names(manifest: &str, name: &str) -> bool {
    manifest
        .lines()
        .any(|line| line.strip_prefix(name).is_some_and(|it| it.starts_with([' ', '.'])))
}

#[test]
fn tests_link_no_benchmark_and_a_benchmark_no_tests() {
    let pairs =
        [("tests", "rma-bench"), ("tests", "rma-figures"), ("dev/rma-figures", "rma-tests")];
    for (folder, other) in pairs {
        let manifest = file(&format!("{folder}/Cargo.toml"));
        assert!(names(&manifest, "rma-core"), "{folder} stands on what it is about");
        assert!(!names(&manifest, other), "{folder} stands on {other}");
    }
    assert!(names("[dev-dependencies]\nrma-bench = { workspace = true }", "rma-bench"));
    assert!(names("[dev-dependencies]\nrma-bench.workspace = true", "rma-bench"));
    assert!(!names("[package]\nname = \"rma-bench\"", "rma-bench"));
}

#[test]
fn nothing_that_ships_links_what_proves_it() {
    let is_dev = |folder: &&String| folder.starts_with("dev/");
    let folders = crate_folders();
    let of = |folder: &String| manifest(&file(&format!("{folder}/Cargo.toml")));
    let dev: Vec<String> = folders.iter().filter(is_dev).map(|it| of(it).0).collect();
    assert!(dev.contains(&"rma-sim".to_owned()), "{dev:?}");
    let ships = |folder: &&String| folder.starts_with("rma-") || folder.starts_with("crates/");
    for folder in folders.iter().filter(ships) {
        let (name, on) = of(folder);
        let links: Vec<_> = on.iter().filter(|it| dev.contains(it)).collect();
        assert!(links.is_empty(), "{name} links {links:?}, which is in dev/");
    }
}

/// The files that a file takes as modules of its own though they are another crate's, by the path
/// from the root. `folder` is that of its crate.
fn borrowed(folder: &str, file: &str, text: &str) -> Vec<String> {
    let paths =
        text.lines().filter_map(|it| it.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]"));
    let beside = file.rsplit_once('/').map_or("", |(parent, _)| parent);
    let resolve = |path: &str| {
        let mut at: Vec<&str> = beside.split('/').collect();
        for part in path.split('/') {
            match part {
                ".." => at.truncate(at.len().saturating_sub(1)),
                part => at.push(part),
            }
        }
        at.join("/")
    };
    paths.map(resolve).filter(|it| !it.starts_with(&format!("{folder}/"))).collect()
}

#[test]
fn no_crate_compiles_files_of_another() {
    let mut found = Vec::new();
    for folder in crate_folders() {
        for path in sources(&root().join(&folder)) {
            let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            found.extend(borrowed(&folder, &name, &text).into_iter().map(|it| (name.clone(), it)));
        }
    }
    // The steering program is a workspace of its own; its parser is run here on made-up packets.
    found.retain(|(_, it)| !it.starts_with("ebpf/src/"));
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_file_of_another_crate_is_found_however_its_path_is_written() {
    let text = "#[path = \"../../a/tests/x.rs\"]\nmod x;\n    #[path = \"y.rs\"]\nmod y;";
    assert_eq!(borrowed("crates/b", "crates/b/src/lib.rs", text), ["crates/a/tests/x.rs"]);
    assert!(borrowed("crates/b", "crates/b/tests/main.rs", "#[path = \"../c/z.rs\"]").is_empty());
}

#[test]
fn a_picture_that_shows_it_otherwise_is_a_fault() {
    let manifests = [
        "[package]\nname = \"low\"\n[dev-dependencies]\nrma-x = { path = \"x\" }",
        "[package]\nname = \"high\"\n\n[dependencies]\nlibc = \"1\"\nrma-low = { workspace = true }",
    ];
    let real = manifests.map(manifest).into();
    let picture = |lines: &str| drawn(&format!("# All\n\n## Crates\n\n{lines}\n\n## More\nx -> y"));
    let right = "low -> nothing  for all\nhigh -> rma-low";
    assert_eq!(faults(&picture(right), &real), [""; 0]);
    assert_eq!(drawn("\n## Crates\na, b -> c").into_keys().collect::<Vec<_>>(), ["a", "b"]);
    for wrong in [
        "",
        "low -> nothing",
        "low -> rma-x\nhigh -> rma-low",
        "low -> nothing\nhigh -> nothing",
        "low -> nothing\nhigh -> rma-low, rma-x",
        "low -> nothing\nhigh -> rma-low\nold -> rma-low",
    ] {
        assert!(!faults(&picture(wrong), &real).is_empty(), "{wrong}");
    }
}

/// Returns the reasons why the package of a crate would not stand by itself. `files` are those in
/// its folder.
fn gaps(manifest: &str, readme: &str, files: &[&str]) -> Vec<String> {
    let wanted = ["LICENSE-APACHE", "LICENSE-MIT", "README.md"];
    let missing = wanted.iter().filter(|file| !files.contains(file));
    let mut gaps: Vec<_> = missing.map(|file| format!("has no {file}")).collect();
    if !manifest.lines().any(|line| line == "readme = \"README.md\"") {
        gaps.push("does not name its own README.md".into());
    }
    for field in ["description = \"", "keywords", "categories", "[package.metadata.docs.rs]"] {
        if !manifest.lines().any(|line| line.starts_with(field)) {
            gaps.push(format!("has no {field} in its manifest"));
        }
    }
    if readme.contains("](") && !readme.contains("](https://") {
        gaps.push("links from its README.md to what its package does not have".into());
    }
    gaps
}

#[test]
fn a_package_that_does_not_stand_by_itself_is_found() {
    let all = ["LICENSE-APACHE", "LICENSE-MIT", "README.md"];
    let manifest = "[package]\nreadme = \"README.md\"\ndescription = \"A crate.\"\n\
        keywords.workspace = true\ncategories = []\n[package.metadata.docs.rs]\n";
    assert!(gaps(manifest, "A [page](https://docs.rs).", &all).is_empty());
    assert_eq!(gaps(manifest, "", &all[1..]), ["has no LICENSE-APACHE"]);
    let without = manifest.replace("categories = []\n", "");
    assert_eq!(gaps(&without, "", &all), ["has no categories in its manifest"]);
    let readme_of_all = manifest.replace("readme = \"README.md\"", "readme.workspace = true");
    assert_eq!(gaps(&readme_of_all, "A [page](docs/a.md).", &all).len(), 2);
}

#[test]
fn each_published_crate_brings_its_licences_and_a_readme_of_its_own() {
    let mut published = 0;
    for folder in crate_folders() {
        let manifest = file(&format!("{folder}/Cargo.toml"));
        if manifest.lines().any(|line| line == "publish = false") {
            continue;
        }
        published += 1;
        let files: Vec<_> = std::fs::read_dir(root().join(&folder))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let files: Vec<_> = files.iter().map(String::as_str).collect();
        let readme = std::fs::read_to_string(root().join(&folder).join("README.md"));
        let gaps = gaps(&manifest, &readme.unwrap_or_default(), &files);
        assert!(gaps.is_empty(), "{folder} {}", gaps.join("; "));
    }
    assert!(published >= 9, "{published} crates are published");
}
