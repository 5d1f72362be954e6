//! The test targets of the workspace, each in its tier.
//!
//! They are asked of cargo, not listed: a new file under some `tests/` runs in a tier without
//! anybody having to think of it.

use serde::Deserialize;

use crate::cargo::Cargo;

/// Packages whose integration tests run whole networks, simulated or on loopback.
const NETWORK_PACKAGES: [&str; 3] = ["rma-kv", "rma-sim", "rma-tests"];

/// The targets of the workspace that have tests, by name; libraries aside.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Targets {
    /// Programs without a library: with one, all that can be tested is in there.
    pub(crate) programs: Vec<String>,
    /// Of one crate each.
    pub(crate) crates: Vec<String>,
    /// Of whole networks.
    pub(crate) networks: Vec<String>,
    /// Those that replay a fuzzer's corpus, and models of protocols.
    pub(crate) models: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

impl Target {
    fn is(&self, kind: &str) -> bool {
        self.kind.iter().any(|it| it == kind)
    }
}

/// The reason why the targets are not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// Cargo cannot read the workspace.
    #[error("`cargo metadata` failed: run it by hand to see why")]
    Metadata,
    /// Cargo describes the workspace in words that are not known here.
    #[error("the output of `cargo metadata` cannot be read; run it by hand to see why")]
    Format(#[from] serde_json::Error),
    /// Cargo would run both wherever one is meant.
    #[error("two packages have an integration test {name:?}, in different tiers: rename one")]
    Ambiguous {
        /// The name.
        name: String,
    },
}

impl Targets {
    /// Asks cargo.
    pub(crate) fn of_the_workspace() -> Result<Self, Error> {
        let metadata = Cargo::new(&["metadata", "--no-deps", "--format-version=1"]).output();
        Self::read(&metadata.ok_or(Error::Metadata)?)
    }

    fn read(metadata: &str) -> Result<Self, Error> {
        let metadata: Metadata = serde_json::from_str(metadata)?;
        let mut all = Self::default();
        for package in metadata.packages {
            let (tests, others): (Vec<_>, Vec<_>) =
                package.targets.into_iter().partition(|it| it.is("test"));
            if !others.iter().any(|it| it.is("lib")) {
                let programs = others.into_iter().filter(|it| it.is("bin"));
                all.programs.extend(programs.map(|it| it.name));
            }
            for Target { name, .. } in tests {
                // Loom's tests are empty without its cfg; they have a run of their own.
                if name == "loom" {
                    continue;
                }
                let of_networks = NETWORK_PACKAGES.contains(&package.name.as_str());
                let of_models = name.contains("corpus") || name.ends_with("_model");
                let tier = match (of_models, of_networks) {
                    (true, _) => &mut all.models,
                    (false, true) => &mut all.networks,
                    (false, false) => &mut all.crates,
                };
                if !tier.contains(&name) {
                    tier.push(name);
                }
            }
        }
        for tier in [&mut all.crates, &mut all.networks, &mut all.models] {
            tier.sort();
        }
        match all.crates.iter().find(|name| all.networks.contains(name)) {
            Some(name) => Err(Error::Ambiguous { name: name.clone() }),
            None => Ok(all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(packages: &[(&str, &[&str])]) -> Result<Targets, Error> {
        let packages = packages.iter().map(|(name, tests)| {
            let tests = tests.iter().map(|test| format!(r#"{{"name":"{test}","kind":["test"]}}"#));
            let lib = format!(r#"{{"name":"{name}","kind":["lib"]}}"#);
            let targets = std::iter::once(lib).chain(tests).collect::<Vec<_>>().join(",");
            format!(r#"{{"name":"{name}","targets":[{targets}]}}"#)
        });
        let packages = packages.collect::<Vec<_>>().join(",");
        Targets::read(&format!(r#"{{"packages":[{packages}]}}"#))
    }

    #[test]
    fn each_test_target_is_in_one_tier() {
        let targets = read(&[
            ("rma-core", &["golden"]),
            ("rma-shm", &["model", "loom"]),
            ("rma-sim", &["swarm", "four_hop_model"]),
            ("rma-tests", &["steering", "fuzz_corpus"]),
        ]);
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let expected = Targets {
            programs: Vec::new(),
            crates: names(&["golden", "model"]),
            networks: names(&["steering", "swarm"]),
            models: names(&["four_hop_model", "fuzz_corpus"]),
        };
        assert_eq!(targets.unwrap(), expected);
    }

    #[test]
    fn a_name_in_two_tiers_is_refused() {
        let error = read(&[("rma-core", &["same"]), ("rma-sim", &["same"])]).unwrap_err();
        assert!(matches!(error, Error::Ambiguous { name } if name == "same"));
    }

    #[test]
    fn the_workspace_has_tests_of_crates_of_networks_and_of_programs() {
        let targets = Targets::of_the_workspace().unwrap();
        assert_eq!(targets.programs, ["rmactl", "xtask"]);
        assert!(targets.crates.contains(&"model".to_owned()), "{targets:?}");
        assert!(targets.networks.contains(&"devices".to_owned()), "{targets:?}");
    }

    /// Each is compiled and linked by itself, with all that it tests.
    #[test]
    fn the_workspace_has_at_most_26_integration_tests() {
        let Targets { crates, networks, models, .. } = Targets::of_the_workspace().unwrap();
        // Loom's is in no tier.
        let count = crates.len() + networks.len() + models.len() + 1;
        assert!(count <= 26, "{count}: {crates:?} {networks:?} {models:?}");
    }
}
