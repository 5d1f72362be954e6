//! `rma-bench doctor`: what it sees, saves and judges again, its exit statuses, and mends that are
//! made and taken back.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use rma_lab::{Netns, Scratch};
use serde_json::Value;

fn doctor(at: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rma-bench"));
    command.arg("doctor").args(line.split_whitespace()).current_dir(at).output().unwrap()
}

/// The state and the words of this check about an interface.
fn finding(output: &Output, id: &str) -> Value {
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], "rma-bench doctor 1");
    let findings = report["findings"].as_array().unwrap();
    findings.iter().find(|it| it["id"] == id).unwrap().clone()
}

#[test]
fn a_saved_look_is_judged_as_it_was_seen_and_each_end_has_its_exit_status() {
    let scratch = Scratch::new();
    let run = |line: &str, status: i32| {
        let output = doctor(scratch.path(), line);
        assert_eq!(output.status.code(), Some(status), "{line}: {output:?}");
        output
    };
    // Loopback is no Ethernet, which is to be mended.
    let seen = run("lo --json --save seen", 3);
    assert_eq!(finding(&seen, "kind")["state"], "mend");
    let again = run("--from seen --json", 3);
    assert_eq!(seen.stdout, again.stdout);
    let page = String::from_utf8(run("--from seen", 3).stdout).unwrap();
    assert!(page.contains("machine: ") && page.contains("not Ethernet"), "{page}");
    let all = String::from_utf8(run("--from seen --all", 3).stdout).unwrap();
    assert!(all.lines().count() > page.lines().count(), "{all}");

    fs::write(scratch.path().join("none"), "{}").unwrap();
    for (line, status, words) in [
        ("nosuch0", 1, "nosuch0"),
        ("--from none", 1, "none: "),
        ("--from nosuch", 1, "nosuch: "),
        ("lo --apply nosuch", 1, "no check nosuch"),
        ("lo --from seen", 2, "--from"),
        ("--from seen --apply safe", 2, "--apply"),
        ("lo --invite CODE", 2, "--peer"),
    ] {
        let output = run(line, status);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains(words), "{line}: {told}");
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn mends_are_made_once_and_taken_back_once() {
    let netns = Netns::create("doctor").unwrap();
    netns.ip(&"link add veth0 type veth peer name veth1".split(' ').collect::<Vec<_>>()).unwrap();
    for interface in ["veth0", "veth1"] {
        netns.ip(&["link", "set", "dev", interface, "up"]).unwrap();
    }
    netns.exec(&["ethtool", "-K", "veth0", "rx-gro-list", "on"]).unwrap();
    let _inside = netns.enter().unwrap();
    let scratch = Scratch::new();
    let run = |line: &str| doctor(scratch.path(), line);
    let told = |line: &str| {
        let output = run(line);
        assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let is = || finding(&run("veth0 --json"), "gro_generic")["state"].clone();

    assert_eq!(is(), "mend");
    let applied = told("veth0 --apply gro_generic");
    assert!(applied.contains("rx-gro-list of veth0: on -> off: applied"), "{applied}");
    assert_eq!(is(), "ok");
    let already = told("veth0 --apply gro_generic");
    assert!(already.contains("already"), "{already}");
    let undone = told("veth0 --undo");
    assert!(undone.contains("rx-gro-list of veth0: on again"), "{undone}");
    assert_eq!(is(), "mend");
    let nothing = told("veth0 --undo");
    assert!(nothing.contains("nothing is to be undone"), "{nothing}");
}
