//! The paper's experiments with congestion control, in numbers and as tables in `tables/`: a change
//! of behaviour is a readable diff.
//!
//! `RMA_BLESS=1 cargo test -p rma-sim --lib flows` writes the tables anew.

use std::{env, fs, path::Path};

use super::{
    plot::{rows, table},
    rates::Demand,
    scenes::{DEMAND, Scene, settling, settlings, small_beside},
    *,
};
use crate::{check::watch::Checks, net::model_aead::Seals};

/// Compares a table with the one that is committed.
fn compare(name: &str, new: &str) {
    let name = format!("src/flows/tables/{name}.txt");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&name);
    if env::var_os("RMA_BLESS").is_some() {
        fs::write(&path, new).unwrap();
        return;
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let differs = committed.lines().zip(new.lines()).find(|(old, new)| old != new);
    assert!(
        committed == new,
        "{name} is not what happens; first difference:\n  {}\n  {}\n\
         If it is meant: RMA_BLESS=1 cargo test -p rma-sim --lib flows",
        differs.map_or("(length)", |lines| lines.0),
        differs.map_or("(length)", |lines| lines.1),
    );
}

/// The first round trips of the run of seed 1 after the last flow has begun, one line each; then
/// one line for ten.
fn plotted(scene: Scene, from: u64) -> String {
    let micros = Duration::from_micros;
    let options = FlowOptions { length: micros(from + 500), ..scene.options(1) };
    let log = run(&options);
    let near = rows(&options, &log, (micros(from), micros(from + 150)), RTT);
    let far = rows(&options, &log, (micros(from + 150), micros(from + 500)), RTT * 10);
    let header = "# Gbit/s with all headers, delays in us, the local window in ops, at the client of flow 1.\n";
    format!("# {scene}, seed 1\n{header}{}\n{}", table(&near), table(&far))
}

#[test]
fn a_ramp_to_line_rate_follows_its_committed_table() {
    compare("ramp", &plotted(Scene::Ramp, 0));
}

#[test]
fn two_servers_at_one_client_follow_their_committed_table() {
    compare("join", &plotted(Scene::Join, 380));
}

//= 1rma#7.4-total-delay-only
//= type=test
#[test]
fn two_servers_at_one_client_without_a_local_window_follow_their_committed_table() {
    compare("join-total-delay-only", &plotted(Scene::JoinTotalDelayOnly, 380));
}

#[test]
fn two_clients_at_one_server_follow_their_committed_table() {
    compare("two-clients", &plotted(Scene::TwoClients, 380));
}

#[test]
fn a_transfer_has_the_whole_link_within_eight_round_trips_and_no_op_fails() {
    for settling in settlings(Scene::Ramp, 0..5) {
        assert!(settling.happened && settling.rtts <= 8.0, "{settling:?}");
        assert_eq!(settling.failures, 0);
    }
}

//= 1rma#6-congestion-control
//= type=test
//= 1rma#7.4-total-delay-only
//= type=test
#[test]
fn two_transfers_share_a_client_within_five_round_trips_and_without_a_local_window_need_twenty_times_as_many()
 {
    let split = settlings(Scene::Join, 0..5);
    for settling in &split {
        assert!(settling.happened && settling.rtts <= 5.0, "{settling:?}");
        assert_eq!(settling.failures, 0);
    }
    let slowest = split.last().unwrap().rtts;
    for settling in settlings(Scene::JoinTotalDelayOnly, 0..3) {
        assert!(settling.rtts >= 20.0 * slowest, "{settling:?}");
    }
}

#[test]
fn two_clients_share_a_server() {
    // Clients know of each other by their remote delays only, and these rise and fall for both at
    // once. Fair shares are a matter of hundreds of round trips, and only over longer times.
    let options = FlowOptions { length: Duration::from_millis(4), ..Scene::TwoClients.options(0) };
    let demand = Demand { window: Duration::from_micros(200), band: 0.25, ..DEMAND };
    let settling = settling(&options, &run(&options), &demand);
    assert!(settling.happened && settling.failures == 0, "{settling:?}");
}

#[test]
fn a_small_read_waits_for_a_chunk_of_a_large_transfer_and_not_for_all_of_it() {
    let length = Duration::from_millis(8);
    let alone = small_beside(None, 1, length);
    for large in [64 << 10, 4 << 20] {
        let beside = small_beside(Some(large), 1, length);
        assert!(beside.samples > 50 && beside.failures == 0, "{beside:?}");
        assert!(beside.median < alone.median + alone.median / 2, "{beside:?}, {alone:?}");
        assert!(beside.p99 < alone.p99 * 2, "{beside:?}, {alone:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_another() {
    let run = |seed| {
        run(&FlowOptions { length: Duration::from_micros(600), ..Scene::Join.options(seed) })
    };
    let log = run(3);
    assert!(log.ops.len() > 1000);
    assert_eq!(log, run(3));
    assert_ne!(log, run(4));
}

#[test]
fn a_run_with_a_model_of_aes_gcm_and_few_checks_has_the_same_log_as_with_all_of_both() {
    for scene in [Scene::Join, Scene::TwoClients] {
        let run = |seals, checks| {
            let length = Duration::from_micros(600);
            run(&FlowOptions { length, seals, checks, ..scene.options(5) })
        };
        let log = run(Seals::AesGcm, Checks::Every);
        assert!(log.ops.len() > 1000);
        for (seals, checks) in [
            (Seals::Model, Checks::Light),
            (Seals::Model, Checks::Every),
            (Seals::AesGcm, Checks::Light),
        ] {
            assert!(run(seals, checks) == log, "{scene}, {seals}, {checks}");
        }
    }
}

#[test]
fn a_single_read_of_4_kib_takes_the_papers_round_trip() {
    let options = FlowOptions {
        length: Duration::from_millis(1),
        flows: vec![Flow {
            client: 0,
            server: 1,
            len: 4096,
            arrivals: Arrivals::BackToBack { from: Duration::ZERO, overlapped: false },
        }],
        ..Scene::Ramp.options(1)
    };
    let log = run(&options);
    let sum: Duration = log.ops.iter().map(|op| op.total_delay).sum();
    let mean = sum / log.ops.len() as u32;
    assert!(mean.abs_diff(RTT) < Duration::from_nanos(20), "{mean:?}");
}

mod shares {
    use super::*;
    use rma_core::{op::OpStatus, time::Instant};

    /// Ops of two flows, each of which takes its share of the link in turns.
    fn log(ops: &[(u64, usize)]) -> Log {
        let op = |&(at, flow): &(u64, usize)| OpRecord {
            at: Instant::from_nanos(at),
            flow,
            op_size: 4096,
            status: OpStatus::Ok,
            issue_delay: Duration::ZERO,
            total_delay: RTT,
            local_cwnd: 0.0,
        };
        Log { ops: ops.iter().map(op).collect(), calls: Vec::new() }
    }

    #[test]
    fn a_full_link_is_used_without_gaps_and_an_op_counts_while_it_is_sent() {
        let each = network::wire_time(4096).as_nanos() as u64;
        let ops: Vec<_> = (1..=300).map(|op| (op * each, (op % 3 == 0).into())).collect();
        let rates = Rates::new(&log(&ops), 2, Duration::from_micros(100));
        let at = Instant::from_nanos;
        let total = |from, to| rates.share(0, at(from), at(to)) + rates.share(1, at(from), at(to));
        assert!((total(0, 100_000) - 1.0).abs() < 1e-9);
        assert!((total(50_000, 50_125) - 1.0).abs() < 1e-9);
        assert!((rates.share(1, at(0), at(100_000)) - 1.0 / 3.0).abs() < 0.01);
    }

    #[test]
    fn shares_are_settled_from_the_first_window_after_which_none_is_wrong() {
        let each = network::wire_time(4096).as_nanos() as u64;
        // Flow 1 begins after 30 us; at 60 us it misses 6 turns in a row.
        let flow = |op: u64| match op * each {
            30_000..60_000 | 64_000.. => (op % 2) as usize,
            _ => 0,
        };
        let ops: Vec<_> = (1..=900).map(|op| (op * each, flow(op))).collect();
        let rates = Rates::new(&log(&ops), 2, Duration::from_micros(300));
        let demand = Demand { window: Duration::from_micros(20), full: 0.95, band: 0.1 };
        let settled = rates.settled(&[0, 1], at(30_000), &demand).unwrap();
        assert!((50_000..54_000).contains(&(settled.as_nanos())), "{settled:?}");
        let wide = Demand { band: 0.25, ..demand };
        let settled = rates.settled(&[0, 1], at(30_000), &wide).unwrap();
        assert!((14_000..20_000).contains(&(settled.as_nanos())), "{settled:?}");
        assert_eq!(rates.settled(&[0], at(30_000), &demand), None, "half of the link");
        fn at(nanos: u64) -> Instant {
            Instant::from_nanos(nanos)
        }
    }
}
