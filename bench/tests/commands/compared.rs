//! `rma-bench compare`: a row for each peer, and an error for those who may not.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::process::{Command, Output};

use serde_json::Value;

/// Those that are measured, and those that are not.
const MEASURED: [&str; 7] =
    ["raw", "1rma", "udp", "udp-batched", "tcp", "tcp-no-gso", "tls-no-gso"];
const NOT: [&str; 5] = ["quic", "ucx", "libfabric", "sockperf", "iperf3"];

fn compare(more: &[&str]) -> Output {
    let args = ["compare", "--lab", "--quick", "--rounds", "1", "-n", "200"];
    Command::new(env!("CARGO_BIN_EXE_rma-bench")).args(args).args(more).output().unwrap()
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn each_peer_has_a_row_and_none_is_left_out() {
    let output = compare(&["--json"]);
    assert!(output.status.success(), "{output:?}");
    let events: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(events.iter().all(|it| it["schema"] == "rma-bench/1"), "{events:?}");
    assert_eq!(events[0]["event"], "start");
    let rows = &events[1..];
    assert!(rows.iter().all(|it| it["event"] == "peer"), "{rows:?}");
    assert_eq!(rows.len(), MEASURED.len() + NOT.len());
    let row = |name: &str| rows.iter().find(|it| it["peer"] == name).unwrap();
    for name in MEASURED {
        let row = row(name);
        assert!(row["reason"].is_null() && row["ops_per_s"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row["p50_us"].is_null(), name == "udp-batched", "{row}");
        let has_goodput = name == "1rma" || name.starts_with('t');
        assert_eq!(row["payload_gbit_per_s"].is_null(), !has_goodput, "{row}");
        assert_eq!(row["rma_over"].is_null(), name == "1rma", "{row}");
    }
    for name in NOT {
        let row = row(name);
        assert!(row["reason"].is_string() && row["ops_per_s"].is_null(), "{row}");
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn some_peers_are_compared_in_a_table() {
    let output = compare(&["--only", "1rma,udp,ucx", "-t", "8"]);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{table}");
    for wanted in ["rate d8", "1RMA as a multiple of", "kernel UDP ", "of the package ucx-utils"] {
        assert!(table.contains(wanted), "{wanted}: {table}");
    }
    assert!(!table.contains("TLS"), "{table}");
}

#[test]
fn unknown_peers_and_places_are_refused() {
    let status = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rma-bench"));
        command.args(line.split(' ')).output().unwrap().status.code()
    };
    for line in ["compare", "compare --lab --only rdma", "compare --lab -t 0", "compare 192.0.2.1"]
    {
        assert_eq!(status(line), Some(2), "{line}");
    }
}
