//! `rma-bench diff` and `report`: files of rows, and exit statuses.

use std::{
    fs,
    process::{Command, Output},
};

use rma_lab::Scratch;

/// A row with this median, as far as it is asked for.
fn row(p50: f64) -> String {
    let (low, high) = (p50 * 0.99, p50 * 1.01);
    format!(
        r#"{{"schema":"rma-bench/1","event":"row","command":"read-lat","load":{{"op":"READ",
        "loop":"closed","depth":1,"size":64}},"latency_us":{{"p50":{p50},"p50_ci95":[{low},{high}]}},
        "throughput":{{}}}}"#
    )
    .replace('\n', "")
}

#[test]
fn a_run_that_is_worse_than_the_limit_has_an_exit_status_of_its_own() {
    let scratch = Scratch::new();
    fs::write(scratch.path().join("before"), row(4.0)).unwrap();
    fs::write(scratch.path().join("after"), row(5.0)).unwrap();
    fs::write(scratch.path().join("none"), "").unwrap();
    let run = |line: &str| -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rma-bench"));
        command.args(line.split(' ')).current_dir(scratch.path()).output().unwrap()
    };
    for (line, status) in [
        ("diff before after", 0),
        ("diff before before --limit 0%", 0),
        ("diff after before --limit 5%", 0),
        ("diff before after --limit 30", 0),
        ("diff before none", 1),
        ("diff before", 2),
        ("diff before after --limit much", 2),
        ("diff before after --limit 5%", 3),
        ("diff before after --limit 5% --json", 3),
        ("report --out page before after", 0),
        ("report --out page none", 1),
        ("report --out before/page after", 1),
        ("report --out page", 2),
    ] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(status), "{line}: {output:?}");
    }
    let output = run("diff before after --json");
    let diff: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(diff["pairs"][0]["values"][0]["verdict"], "worse");
    let page = fs::read_to_string(scratch.path().join("page/index.html")).unwrap();
    assert!(page.contains("before: read-lat READ 64 B"), "{page}");
}
