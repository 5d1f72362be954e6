//! The keys of a whole run are in none of its output: not in what its threads log, in no error, no
//! panic, no `Debug`, and not in the audit log.
//!
//! The run is a process of its own, so that all that it writes is seen, with the backtraces of its
//! panics. It has a service with its log, clients, rotations, a withdrawal, a reload, bad input and
//! files that are half there. It tells its keys in a file aside.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod run;
mod search;

use std::{env, fs, process::Command};

use rma_lab::{Scratch, evidence};

use crate::secrets::search::shown;

/// The variable that names the folder for the run's keys and log.
const PLACE: &str = "RMA_SECRETS_PLACE";

#[test]
fn no_key_of_a_run_is_in_anything_that_it_puts_out() {
    if let Some(place) = env::var_os(PLACE) {
        return run::run(place.as_ref());
    }
    let scratch = Scratch::new();
    let name = "secrets::no_key_of_a_run_is_in_anything_that_it_puts_out";
    let ran = Command::new(env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(PLACE, scratch.path())
        .env("RUST_BACKTRACE", "full")
        .output()
        .unwrap();
    let mut output = [ran.stdout, ran.stderr].concat();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&output));
    let logs = fs::read(scratch.path().join("audit.log")).unwrap();
    let keys = fs::read_to_string(scratch.path().join("keys")).unwrap();
    // Each of these must have had something to say.
    for said in ["a connection ended", "refused a certificate", "panicked at", "GrantedKey(secret)"]
    {
        assert!(search_text(&output, said), "nobody said {said:?}");
    }
    for event in
        ["granted", "denied", "malformed", "announced", "replaced", "installed", "reloaded"]
    {
        assert!(search_text(&logs, &format!("\"event\":\"{event}\"")), "no {event} in the log");
    }
    let (own, log) = (output.len(), logs.len());
    output.extend(logs);
    let keys: Vec<Vec<u8>> = keys.lines().map(octets).collect();
    for (number, key) in keys.iter().enumerate() {
        let form = shown(&output, key);
        assert_eq!(form, None, "key {number} is in the output");
    }
    assert!(keys.len() > 30, "{} keys", keys.len());
    evidence::show(format_args!(
        "secrets: {} keys are in none of {own} octets of output and {log} of the audit log",
        keys.len()
    ));
}

fn search_text(output: &[u8], text: &str) -> bool {
    output.windows(text.len()).any(|it| it == text.as_bytes())
}

fn octets(digits: &str) -> Vec<u8> {
    let pairs = (0..digits.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}
