//! `rma-bench compare`: a row for each peer, and an error for those who may not.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, TcpListener},
    process::{Child, Command, Output, Stdio},
};

use rma_lab::udp_port_is_unused;
use serde_json::Value;

/// Those that are measured, and those that are only in some builds or where others are installed.
const MEASURED: [&str; 8] =
    ["raw", "1rma", "udp", "udp-batched", "tcp", "tcp-no-gso", "tls", "tls-no-gso"];
const PERHAPS: [&str; 5] = ["quic", "ucx", "libfabric", "sockperf", "iperf3"];

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
    assert_eq!(rows.len(), MEASURED.len() + PERHAPS.len());
    let row = |name: &str| rows.iter().find(|it| it["peer"] == name).unwrap();
    for name in MEASURED {
        let row = row(name);
        assert!(row["reason"].is_null() && row["ops_per_s"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row["p50_us"].is_null(), name == "udp-batched", "{row}");
        let has_goodput = name == "1rma" || name.starts_with('t');
        assert_eq!(row["payload_gbit_per_s"].is_null(), !has_goodput, "{row}");
        assert_eq!(row["rma_over"].is_null(), name == "1rma", "{row}");
    }
    for name in PERHAPS {
        let row = row(name);
        let figures = ["p50_us", "ops_per_s", "payload_gbit_per_s"];
        let has_number = figures.iter().any(|it| row[it].is_number());
        assert_eq!(row["reason"].is_string(), !has_number, "{row}");
        assert!(row["mark"].is_string(), "{row}");
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn some_peers_are_compared_in_a_table() {
    let output = compare(&["--only", "1rma,udp,ucx", "-t", "8"]);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{table}");
    for wanted in ["rate d8", "1RMA as a multiple of", "kernel UDP ", "UCX over TCP"] {
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
    for line in
        ["compare", "compare --lab --only rdma", "compare --lab -t 0", "compare --lab 192.0.2.1"]
    {
        assert_eq!(status(line), Some(2), "{line}");
    }
    assert_eq!(status("compare 192.0.2.1"), Some(1), "nothing to show there");
}

/// Ends with its value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_opens_what_it_is_compared_with_and_each_peer_has_a_row() {
    let program = env!("CARGO_BIN_EXE_rma-bench");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let keys = listener.local_addr().unwrap().to_string();
    drop(listener);
    let first = std::process::id() * 47;
    let mut ports = (0..20_000).map(|it| (12_000 + (first + it) % 20_000) as u16);
    let port = ports.find(|&it| udp_port_is_unused(it).unwrap()).unwrap().to_string();
    let mut serve = Command::new(program);
    serve.args(["serve", "--udp", "127.0.0.2", "--keys", &keys, "--port", &port]);
    serve.args(["--region-len", "16M"]).stdout(Stdio::piped());
    let mut server = Server(serve.spawn().unwrap());
    let said = BufReader::new(server.0.stdout.take().unwrap());
    let mut lines = said.lines().map(Result::unwrap);
    let code = lines.find_map(|it| it.split_once("--invite ").map(|it| it.1.to_owned())).unwrap();
    let compare = |more: &[&str]| {
        let mut command = Command::new(program);
        command.args([
            "compare",
            &keys,
            "--udp",
            "127.0.0.1",
            "--rounds",
            "1",
            "-n",
            "100",
            "--json",
        ]);
        command.args(more).env("RMA_BENCH_INVITE", &code).output().unwrap()
    };
    let output = compare(&["--quick"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let events: Vec<Value> = text.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let rows = &events[1..];
    assert_eq!(rows.len(), MEASURED.len() + PERHAPS.len(), "{text}");
    for row in rows {
        let name = row["peer"].as_str().unwrap();
        let is_measured = ["1rma", "udp", "udp-batched", "tcp", "tls"].contains(&name)
            || cfg!(feature = "quic") && name == "quic";
        assert_eq!(row["reason"].is_null(), is_measured, "{row}");
        assert_eq!(row["ops_per_s"].is_number(), is_measured, "{row}");
    }
    assert!(events[0]["notes"].as_array().unwrap().len() > 1, "{text}");
}
