//! Windows over time for scripted feedback, as tables in `curves/`: a change of behaviour is a
//! readable diff.
//!
//! `RMA_BLESS=1 cargo test -p rma-core --lib curves` writes the tables anew.

use core::fmt::Write;
use std::{env, fs, path::Path};

use super::*;

/// A number of round trips in which all completions are alike.
struct Phase {
    name: &'static str,
    round_trips: u64,
    status: OpStatus,
    issue_delay: f64,
    remote_delay: f64,
}

const fn phase(
    name: &'static str,
    round_trips: u64,
    (status, issue_delay, remote_delay): (OpStatus, f64, f64),
) -> Phase {
    Phase { name, round_trips, status, issue_delay, remote_delay }
}

/// Delays in microseconds. The paper's round trip of 5 us, its dispatch timeout of two and timeout
/// of four.
const IDLE: (OpStatus, f64, f64) = (OpStatus::Ok, 0.2, 5.0);

const SCRIPT: &[Phase] = &[
    phase("steady", 8, IDLE),
    phase("local step", 6, (OpStatus::Ok, 3.0, 5.0)),
    phase("recovery", 4, IDLE),
    phase("remote step", 6, (OpStatus::Ok, 0.2, 12.0)),
    phase("recovery", 4, IDLE),
    phase("slight excess", 6, (OpStatus::Ok, 1.6, 8.0)),
    phase("recovery", 4, IDLE),
    phase("NACK", 1, (OpStatus::Nack, 0.2, 5.0)),
    phase("recovery", 6, IDLE),
    phase("TIMEOUT", 4, (OpStatus::Timeout, 0.2, 20.0)),
    phase("recovery", 6, IDLE),
    phase("DISPATCH_TIMEOUT", 2, (OpStatus::DispatchTimeout, 10.0, 0.0)),
    phase("recovery", 6, IDLE),
    phase("wrong key", 2, (OpStatus::RemoteAuthenticationFailure, 0.2, 5.0)),
    phase("steady", 4, IDLE),
];

/// Eight completions in each 5 us, evenly spread; one line for each 5 us.
fn curve(algorithm: Algorithm) -> String {
    const COMPLETIONS: u64 = 8;
    let mut pair = Pair::of(algorithm);
    let mut table = format!(
        "# {}, settings of the paper. Delays, RTT and time in us, windows in ops, interval in ns.\n\
         # Each line: the state after 8 completions of 4 KiB ops in 5 us.\n\
         {:>5} {:<16} {:>5} {:>6} {:>7} {:>7} {:>7} {:>8}  window\n",
        algorithm.name(),
        "time",
        "phase",
        "issue",
        "remote",
        "local",
        "remote",
        "RTT",
        "interval",
    );
    let mut now = 0;
    for phase in SCRIPT {
        for _ in 0..phase.round_trips {
            for _ in 0..COMPLETIONS {
                now += RTT / COMPLETIONS;
                pair.give(&feedback(now, phase.status, phase.issue_delay, phase.remote_delay));
            }
            let (local, remote) = pair.cwnds();
            let window = pair.window();
            writeln!(
                table,
                "{:>5} {:<16} {:>5.1} {:>6.1} {local:>7.3} {remote:>7.3} {:>7.3} {:>8}  {}",
                now / 1_000,
                phase.name,
                phase.issue_delay,
                phase.remote_delay,
                window.rtt().nanos() / 1e3,
                window.pacing_interval_nanos(4096),
                "#".repeat(window.cwnd().ceil() as usize),
            )
            .unwrap();
        }
    }
    table
}

fn compare(algorithm: Algorithm) {
    let name = format!("src/cc/tests/curves/{}.txt", algorithm.name());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&name);
    let curve = curve(algorithm);
    if env::var_os("RMA_BLESS").is_some() {
        fs::write(&path, &curve).unwrap();
        return;
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let differs = committed.lines().zip(curve.lines()).find(|(old, new)| old != new);
    assert!(
        committed == curve,
        "{name} is not what the controller does; first difference:\n  {}\n  {}\n\
         If it is meant: RMA_BLESS=1 cargo test -p rma-core --lib curves",
        differs.map_or("(length)", |lines| lines.0),
        differs.map_or("(length)", |lines| lines.1),
    );
}

#[test]
fn algorithm_1_follows_its_committed_curve() {
    compare(Algorithm::Aimd);
}

//= 1rma#7.4-total-delay-only
//= type=test
#[test]
fn the_total_delay_baseline_follows_its_committed_curve() {
    compare(Algorithm::TotalDelayOnly);
}

#[test]
fn fixed_windows_follow_their_committed_curve() {
    compare(Algorithm::Fixed);
}

#[test]
fn swift_follows_its_committed_curve() {
    compare(Algorithm::Swift);
}
