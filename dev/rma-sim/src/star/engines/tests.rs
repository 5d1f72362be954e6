//! Congestion control and bounds of StaR's engines, as runs in virtual time show them.

use core::time::Duration;

use rma_star::config::StarConfigBuilder;

use super::{
    deaths::deaths,
    options::{Options, Outcome, Workload},
    run::Run,
};
use crate::prng::Chance;

/// Bytes of a WRITE or READ.
const LEN: u32 = 64 << 10;

/// Returns the outcome of two parts of a run.
fn parts(options: Options, first: Duration, second: Duration) -> [Outcome; 2] {
    let mut run = Run::new(options);
    [first, second].map(|time| {
        run.run_for(time);
        run.outcome()
    })
}

/// 64 hosts that WRITE to one as fast as they may.
fn incast(change: impl FnOnce(&mut StarConfigBuilder)) -> [Outcome; 2] {
    let mut star = StarConfigBuilder::default();
    change(&mut star);
    let workload = Workload::Write(LEN);
    let options = Options { clients: 64, connections: 64, workload, star, ..Options::default() };
    parts(options, Duration::from_millis(60), Duration::from_millis(60))
}

/// Returns the part of the link that the data of 60 ms uses.
fn use_of_link(outcome: &Outcome) -> f64 {
    let rate = Options::default().rate as f64;
    outcome.done as f64 * f64::from(LEN) / (rate * 0.06)
}

//= star#ours-congestion-control
//= type=test
#[test]
fn sixty_four_senders_share_one_stateless_host_and_its_queue_stays_short() {
    let [first, then] = incast(|_| ());
    for outcome in [&first, &then] {
        assert_eq!(outcome.failed, 0);
        assert!(use_of_link(outcome) > 0.8, "{}", use_of_link(outcome));
    }
    // An op of each: 4 KiB in four frames, whose headers are a fifth more.
    assert!(then.queued_max < 64 * 4096 * 6 / 5, "{}", then.queued_max);
    assert_eq!((then.lost, then.again), ([0; 3], 0), "only the first windows are too many");
    let (least, most) =
        (then.by_connection.iter().min().unwrap(), then.by_connection.iter().max().unwrap());
    assert!(least + 2 >= *most, "{least} to {most} WRITEs by connection");
}

//= star#ours-congestion-control
//= type=test
#[test]
fn windows_below_one_op_leave_hardly_a_queue() {
    let [first, then] = incast(|star| (star.cc.cwnd_min, star.cc.cwnd_delay_min) = (0.01, 0.01));
    assert_eq!(first.failed + then.failed, 0);
    assert!(use_of_link(&then) > 0.75, "{}", use_of_link(&then));
    assert!(then.queued_max < 64 * 4096 / 2, "{}", then.queued_max);
}

//= star#ours-congestion-control
//= type=test
#[test]
fn connections_of_one_host_share_its_window_evenly() {
    for workload in [Workload::Write(LEN), Workload::Read(LEN)] {
        let options = Options { clients: 1, connections: 8, workload, ..Options::default() };
        let [_, then] = parts(options, Duration::from_millis(5), Duration::from_millis(20));
        let (least, most) =
            (then.by_connection.iter().min().unwrap(), then.by_connection.iter().max().unwrap());
        assert!(*least >= 20 && least + 2 >= *most, "{workload:?}: {:?}", then.by_connection);
        assert_eq!((then.failed, then.lost), (0, [0; 3]));
    }
}

/// With the fewest answers that may wait at the server, and a short ring before its engine: a
/// connection failed here without any loss when frames that were dropped together were sent again
/// together.
#[test]
fn many_clients_at_once_fail_nowhere_though_tables_are_small() {
    for clients in [1, 4, 64] {
        let mut options = Options { clients, receive_ring: 64, ..Options::default() };
        options.star.answers = 128;
        let [first, then] = parts(options, Duration::from_millis(5), Duration::from_millis(5));
        assert_eq!(first.failed + then.failed, 0, "{clients} clients");
        assert!(then.by_connection.iter().all(|&done| done > 0), "{clients} clients");
    }
}

#[test]
fn a_hundredth_of_all_packets_lost_leaves_nearly_all_calls_and_repeats_exactly() {
    let run = |ppm| {
        let options = Options { loss: Chance::ppm(ppm), ..Options::default() };
        let options = options.with_timers_of(Duration::from_micros(20));
        parts(options, Duration::from_millis(1), Duration::from_millis(2))
    };
    let ([_, all], lossy) = (run(0), run(10_000));
    assert_eq!(lossy, run(10_000));
    let [_, lossy] = lossy;
    assert_eq!((all.failed, lossy.failed, all.lost), (0, 0, [0; 3]));
    assert!(lossy.lost[0] * 150 > lossy.sent && lossy.lost[0] * 70 < lossy.sent);
    assert!(lossy.done * 10 > all.done * 8, "{} of {}", lossy.done, all.done);
}

/// S1: everything that is posted completes, RECVs included, within a bound that can be asked for.
#[test]
fn whichever_host_dies_at_whichever_step_all_of_the_other_ends_in_time() {
    let mut count = 0;
    for death in deaths() {
        assert!(death.over_bound() <= 1.0, "{}: {death:?}", death.over_bound());
        assert!(death.outcome.failed > 0, "RECVs are open: {death:?}");
        count += 1;
    }
    assert_eq!(count, 3 * 2 * 2 * 32, "each workload, role, host and step");
}

#[test]
fn no_connection_is_a_call_ahead_of_another_where_all_are_answered_together() {
    let options = Options { connections: 16, workload: Workload::Ml, ..Options::default() };
    let [_, then] = parts(options, Duration::from_millis(1), Duration::from_millis(2));
    let (least, most) =
        (then.by_connection.iter().min().unwrap(), then.by_connection.iter().max().unwrap());
    assert!(*least > 10 && least + 2 >= *most, "{:?}", then.by_connection);
    assert_eq!(then.failed, 0);
}
