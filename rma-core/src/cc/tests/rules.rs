//! Each rule of section 6 and of Algorithm 1, by hand-computed examples.

use super::*;

const UNCONGESTED: (OpStatus, f64, f64) = (OpStatus::Ok, 0.0, 5.0);

/// Both windows after one completion, from 16 ops each.
fn after((status, issue_delay, remote_delay): (OpStatus, f64, f64)) -> (f64, f64) {
    let mut pair = Pair::of(Algorithm::Aimd);
    pair.give(&feedback(RTT, status, issue_delay, remote_delay));
    pair.cwnds()
}

//= 1rma#6-additive-increase
//= type=test
#[test]
fn a_delay_below_target_adds_a_quarter_op_in_a_window_of_completions() {
    let (local, remote) = after(UNCONGESTED);
    assert_near(local, 16.0 + 0.25 / 16.0);
    assert_near(remote, 16.0 + 0.25 / 16.0);
}

//= 1rma#6-additive-increase
//= type=test
#[test]
fn below_one_op_a_completion_adds_a_whole_increment() {
    let mut pair = Pair::new(|builder| builder.cwnd_initial = 0.5);
    pair.give(&feedback(RTT, OpStatus::Ok, 0.0, 5.0));
    assert_eq!(pair.cwnds(), (0.75, 0.75));
    pair.give(&feedback(RTT, OpStatus::Ok, 0.0, 5.0));
    assert_eq!(pair.cwnds(), (1.0, 1.0));
    pair.give(&feedback(RTT, OpStatus::Ok, 0.0, 5.0));
    assert_eq!(pair.cwnds(), (1.25, 1.25));
    pair.give(&feedback(RTT, OpStatus::Ok, 0.0, 5.0));
    assert_near(pair.cwnds().0, 1.25 + 0.25 / 1.25);
}

//= 1rma#6-additive-increase
//= type=test
#[test]
fn no_window_grows_beyond_its_maximum() {
    let mut pair = Pair::new(|builder| builder.cwnd_max = 16.0);
    pair.give(&feedback(RTT, OpStatus::Ok, 0.0, 5.0));
    assert_eq!(pair.cwnds(), (16.0, 16.0));
}

//= 1rma#6-multiplicative-decrease
//= type=test
#[test]
fn a_decrease_is_in_proportion_to_the_excess_over_the_target() {
    // The target is 1.5 us: 0.5 us more is a quarter of the delay, times 0.8.
    assert_near(after((OpStatus::Ok, 2.0, 5.0)).0, 16.0 * (1.0 - 0.8 * 0.25));
    // The target is 7.5 us.
    assert_near(after((OpStatus::Ok, 0.0, 10.0)).1, 16.0 * (1.0 - 0.8 * 0.25));
}

//= 1rma#6-multiplicative-decrease
//= type=test
#[test]
fn a_delay_takes_half_a_window_at_most() {
    assert_eq!(after((OpStatus::Ok, 100.0, 5.0)).0, 8.0);
    assert_eq!(after((OpStatus::Ok, 0.0, 1e6)).1, 8.0);
}

#[test]
fn a_delay_right_at_its_target_changes_nothing_and_does_not_hold_up_a_decrease() {
    let mut pair = Pair::of(Algorithm::Aimd);
    pair.give(&feedback(RTT, OpStatus::Ok, 1.5, 7.5));
    assert_eq!(pair.cwnds(), (16.0, 16.0));
    pair.give(&feedback(RTT + 1, OpStatus::Ok, 100.0, 100.0));
    assert_eq!(pair.cwnds(), (8.0, 8.0));
}

//= 1rma#6-one-decrease-a-round-trip
//= type=test
#[test]
fn a_window_is_not_decreased_twice_in_one_round_trip() {
    let mut pair = Pair::of(Algorithm::Aimd);
    // Timeouts leave the RTT as it is.
    for (after, remote) in [(0, 1.6), (1, 1.6), (RTT - 1, 1.6), (RTT, 0.16)] {
        pair.give(&feedback(RTT + after, OpStatus::Timeout, 0.0, 20.0));
        assert_near(pair.cwnds().1, remote);
    }
    // The window that grows in the meantime stays.
    pair.give(&feedback(2 * RTT + 1, OpStatus::Ok, 0.0, 5.0));
    pair.give(&feedback(2 * RTT + 2, OpStatus::Nack, 0.0, 5.0));
    assert_near(pair.cwnds().1, 0.41);
}

//= 1rma#6-one-decrease-a-round-trip
//= type=test
#[test]
fn the_round_trip_to_wait_for_includes_what_local_congestion_adds() {
    let mut pair = Pair::of(Algorithm::Aimd);
    pair.give(&feedback(RTT, OpStatus::Ok, 40.0, 5.0));
    assert_eq!(pair.cwnds().0, 8.0);
    // RTT is 5 us and an eighth of the 40 us that a sample differs by.
    assert_near(pair.window().rtt().nanos(), 10_000.0);
    pair.give(&feedback(RTT + 9_999, OpStatus::DispatchTimeout, 10.0, 0.0));
    assert_eq!(pair.cwnds().0, 8.0);
    pair.give(&feedback(RTT + 10_000, OpStatus::DispatchTimeout, 10.0, 0.0));
    assert_near(pair.cwnds().0, 0.8);
}

//= 1rma#6-one-decrease-a-round-trip
//= type=test
#[test]
fn an_op_that_joined_the_queue_of_the_last_decrease_is_no_reason_for_another() {
    // A second transfer has begun, and ops wait for 6 us: for a moment the smoothed RTT does not
    // know.
    let mut pair = Pair::of(Algorithm::Aimd);
    pair.give(&feedback(RTT, OpStatus::Ok, 6.0, 5.0));
    assert_eq!(pair.cwnds().0, 8.0);
    // The second was issued after the decrease, but into the queue that it was for.
    for after in [10_999, 16_999] {
        pair.give(&feedback(RTT + after, OpStatus::Ok, 6.0, 5.0));
        assert_eq!(pair.cwnds().0, 8.0, "{after}");
    }
    pair.give(&feedback(RTT + 17_000, OpStatus::Ok, 6.0, 5.0));
    assert_eq!(pair.cwnds().0, 4.0);
}

//= 1rma#6-dispatch-timeout
//= type=test
#[test]
fn a_dispatch_timeout_cuts_the_local_window_tenfold_and_only_it() {
    let (local, remote) = after((OpStatus::DispatchTimeout, 10.0, 0.0));
    assert_near(local, 1.6);
    assert_eq!(remote, 16.0);
}

//= 1rma#6-remote-failures
//= type=test
#[test]
fn a_timeout_and_a_nack_cut_the_remote_window_tenfold_and_only_it() {
    for status in [OpStatus::Timeout, OpStatus::Nack] {
        let (local, remote) = after((status, 0.0, 20.0));
        assert_eq!(local, 16.0);
        assert_near(remote, 1.6);
    }
}

#[test]
fn no_window_falls_below_its_minimum() {
    let mut pair = Pair::new(|builder| builder.cwnd_min = 0.5);
    for round in 1..9 {
        pair.give(&feedback(round * RTT, OpStatus::Timeout, 0.0, 20.0));
        pair.give(&feedback(round * RTT, OpStatus::DispatchTimeout, 10.0, 0.0));
    }
    assert_eq!(pair.cwnds(), (0.5, 0.5));
}

#[test]
fn a_callers_mistake_is_no_congestion() {
    for status in OpStatus::ALL {
        let congestion =
            [OpStatus::Ok, OpStatus::Nack, OpStatus::Timeout, OpStatus::DispatchTimeout];
        if !congestion.contains(&status) {
            assert_eq!(after((status, 100.0, 100.0)), (16.0, 16.0), "{status}");
        }
    }
}

//= 1rma#6-remote-window
//= type=test
#[test]
fn local_and_remote_delay_are_held_against_targets_of_their_own() {
    // 5 us of remote delay are below the remote target, 5 us of issue delay above the local one.
    let (local, remote) = after((OpStatus::Ok, 5.0, 5.0));
    assert!(local < 16.0 && remote > 16.0);
    let (local, remote) = after((OpStatus::Ok, 0.5, 20.0));
    assert!(local > 16.0 && remote < 16.0);
}

//= 1rma#6-remote-window
//= type=test
#[test]
fn writes_have_a_target_with_room_for_their_second_round_trip() {
    let mut pair = Pair::of(Algorithm::Aimd);
    let outbound = pair.cc.hold([192, 0, 2, 7].into(), Moves::Out).unwrap().id;
    pair.cc.on_completion(outbound, &feedback(RTT, OpStatus::Ok, 0.0, 10.0), USED);
    assert!(pair.cc.remote_cwnd(outbound) > 16.0, "10 us are nothing to a write");
    pair.give(&feedback(RTT, OpStatus::Ok, 0.0, 10.0));
    assert!(pair.cwnds().1 < 16.0, "and much to a read");
}

//= 1rma#6-smaller-window-rules
//= type=test
#[test]
fn the_more_restrictive_window_rules() {
    let mut pair = Pair::of(Algorithm::Aimd);
    pair.give(&feedback(RTT, OpStatus::DispatchTimeout, 10.0, 0.0));
    assert_near(pair.window().cwnd(), 1.6);
    let mut pair = Pair::of(Algorithm::Aimd);
    pair.give(&feedback(RTT, OpStatus::Nack, 0.0, 5.0));
    assert_near(pair.window().cwnd(), 1.6);
}

//= 1rma#6-outstanding-ops
//= type=test
#[test]
fn a_window_admits_as_many_ops_as_it_has_room_for() {
    let window = Pair::new(|builder| builder.cwnd_initial = 2.5).window();
    assert_eq!(window.bytes(), 2.5 * 4096.0);
    assert!(window.admits(4096, 4096));
    assert!(!window.admits(2 * 4096, 4096));
    // Every op counts as one, whatever its size.
    assert_eq!(window.charge(64), 4096);
    assert!(!window.admits(2 * 4096, 64));
}

#[test]
fn small_ops_that_are_charged_less_fill_the_rest_of_a_window() {
    let mut pair = Pair::new(|builder| {
        builder.cwnd_initial = 2.5;
        builder.op_charge_min = 1024;
    });
    let window = pair.window();
    assert_eq!((window.charge(64), window.charge(2048)), (1024, 2048));
    assert!(window.admits(2 * 4096, 64));
    assert!(window.admits(2 * 4096 + 1024, 64));
    assert!(!window.admits(2 * 4096 + 2048, 64));
    assert_eq!(window.pacing_interval_nanos(64), 500, "a quarter of 5 us / 2.5");
    pair.give(&Feedback { op_size: 64, ..feedback(RTT, OpStatus::Ok, 0.0, 5.0) });
    assert_near(pair.cwnds().1, 2.5 + 0.25 * 0.25 / 2.5);
}

//= 1rma#6-outstanding-ops
//= type=test
#[test]
fn below_one_op_a_single_op_is_admitted_and_paced() {
    let window = Pair::new(|builder| builder.cwnd_initial = 0.1).window();
    assert!(window.admits(0, 4096));
    assert!(!window.admits(4096, 64));
    assert_eq!(window.pacing_interval_nanos(4096), 10 * RTT);
}

//= 1rma#6-issue-rate
//= type=test
#[test]
fn ops_follow_each_other_at_op_size_times_cwnd_over_rtt() {
    let window = Pair::of(Algorithm::Aimd).window();
    assert_eq!(window.pacing_interval_nanos(4096), RTT / 16, "16 ops in a round trip");
}

//= 1rma#6-issue-rate
//= type=test
#[test]
fn the_rate_follows_the_best_round_trip_time_that_ops_measure() {
    let mut pair = Pair::new(|builder| builder.cwnd_max = 16.0);
    let mut give = |count: u64, remote_delay| {
        for step in 1..=count {
            pair.give(&feedback(step * RTT, OpStatus::Ok, 0.5, remote_delay));
        }
        pair.window().pacing_interval_nanos(4096) as f64 * pair.window().cwnd()
    };
    // Sooner down than up: a peer that was slow a few times is not asked slowly from then on.
    assert!((give(20, 3.5) / 4_000.0 - 1.0).abs() < 0.01);
    assert!(give(3, 3_000.0) < 14_000.0);
    assert!((give(20, 3.5) / 4_000.0 - 1.0).abs() < 0.01);
    assert!((give(10_000, 6.5) / 7_000.0 - 1.0).abs() < 0.01);
}

//= 1rma#7.4-total-delay-only
//= type=test
#[test]
fn the_baseline_cannot_tell_local_from_remote_congestion() {
    let cwnd = |status, issue_delay, remote_delay| {
        let mut pair = Pair::of(Algorithm::TotalDelayOnly);
        pair.give(&feedback(RTT, status, issue_delay, remote_delay));
        pair.window().cwnd()
    };
    // One target, the sum of both: 9 us.
    assert!(cwnd(OpStatus::Ok, 3.9, 5.0) > 16.0);
    assert!(cwnd(OpStatus::Ok, 4.1, 5.0) < 16.0);
    assert_eq!(cwnd(OpStatus::Ok, 12.0, 5.0), cwnd(OpStatus::Ok, 0.0, 17.0));
    for status in [OpStatus::DispatchTimeout, OpStatus::Timeout, OpStatus::Nack] {
        assert_near(cwnd(status, 10.0, 0.0), 1.6);
    }
}

#[test]
fn fixed_windows_neither_react_nor_are_they_paced() {
    for status in OpStatus::ALL {
        let mut pair = Pair::of(Algorithm::Fixed);
        pair.give(&feedback(RTT, status, 100.0, 100.0));
        assert_eq!(pair.window().cwnd(), 16.0);
        assert_eq!(pair.window().pacing_interval_nanos(4096), 0);
    }
}

#[test]
fn swift_paces_only_windows_below_one_op() {
    let window = |cwnd| {
        let pair = Pair::new(|builder| {
            builder.algorithm = Algorithm::Swift;
            builder.cwnd_initial = cwnd;
        });
        pair.window()
    };
    assert_eq!(window(1.0).pacing_interval_nanos(4096), 0);
    assert_eq!(window(0.5).pacing_interval_nanos(4096), 2 * RTT);
}

#[test]
fn swift_leaves_small_windows_a_larger_target() {
    // Base target 7.5 us, and up to 10 us more.
    let grows = |cwnd, remote_delay| {
        let mut pair = Pair::new(|builder| {
            builder.algorithm = Algorithm::Swift;
            builder.cwnd_initial = cwnd;
            builder.cwnd_max = 2000.0;
        });
        pair.give(&feedback(RTT, OpStatus::Ok, 0.0, remote_delay));
        pair.cwnds().1 > cwnd
    };
    for cwnd in [0.01, 0.1] {
        assert!(grows(cwnd, 17.49) && !grows(cwnd, 17.5), "all of the range at {cwnd}");
    }
    for cwnd in [100.0, 1000.0] {
        assert!(grows(cwnd, 7.49) && !grows(cwnd, 7.51), "nothing at {cwnd}");
    }
    // (1 / sqrt 1 - 1 / sqrt 100) / (1 / sqrt 0.1 - 1 / sqrt 100) of 10 us.
    assert!(grows(1.0, 10.43) && !grows(1.0, 10.45));
}

#[test]
fn swift_falls_to_the_minimum_after_several_round_trips_with_timeouts_only() {
    let mut pair = Pair::of(Algorithm::Swift);
    let mut now = 0;
    let mut cwnd_after = |status| {
        now += RTT;
        // Two at once, as ops time out that were issued together.
        for after in 0..2 {
            pair.give(&feedback(now + after, status, 0.0, 20.0));
        }
        pair.cwnds().1
    };
    for cwnd in [8.0, 4.0, 2.0, 1.0] {
        assert_eq!(cwnd_after(OpStatus::Timeout), cwnd);
    }
    assert_eq!(cwnd_after(OpStatus::Nack), 0.5, "somebody answers");
    for cwnd in [0.25, 0.125, 0.0625, 0.03125, 0.01] {
        assert_eq!(cwnd_after(OpStatus::Timeout), cwnd);
    }
}

#[test]
fn each_setting_that_cannot_work_is_named_with_its_value() {
    let refused = |change: fn(&mut CcConfigBuilder), text: &str| {
        let mut builder = CcConfigBuilder::default();
        change(&mut builder);
        let error = builder.build().unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    refused(|b| b.op_size = 0, "`op_size` is 0: it must be in 1..=4096");
    refused(|b| b.op_size = 4097, "`op_size` is 4097");
    refused(|b| b.op_size = 2048, "`op_charge_min` is 4096: it must be in 1..=2048");
    refused(|b| b.remotes = 0, "`remotes` is 0");
    refused(|b| b.rtt = Duration::ZERO, "`rtt` is 0ns: it must be in 1ns..=1s");
    refused(|b| b.rtt = Duration::MAX, "`rtt`");
    refused(|b| b.issue_target_delay = Duration::ZERO, "`issue_target_delay` is 0ns");
    refused(|b| b.inbound_target_delay = Duration::MAX, "`inbound_target_delay`");
    refused(|b| b.outbound_target_delay = Duration::ZERO, "`outbound_target_delay`");
    refused(|b| b.ai = 0.0, "`ai` is 0");
    refused(|b| b.ai = f64::NAN, "`ai` is NaN");
    refused(|b| b.md = -0.5, "`md` is -0.5");
    refused(|b| b.beta = 1.5, "`beta` is 1.5: it must be in 0.000001..=1");
    refused(|b| b.timeout_decr = f64::INFINITY, "`timeout_decr` is inf");
    refused(|b| b.cwnd_min = 0.0, "`cwnd_min` is 0");
    refused(|b| b.cwnd_max = 65_536.0, "`cwnd_max` is 65536");
    refused(|b| b.cwnd_initial = 65.0, "`cwnd_initial` is 65: it must be in 0.01..=64");
    refused(|b| b.swift.max_mdf = 1.0, "`swift.max_mdf` is 1");
    refused(|b| b.swift.fs_min_cwnd = 100.0, "`swift.fs_min_cwnd` is 100");
    refused(|b| b.swift.fs_range = Duration::MAX, "`swift.fs_range`");
    refused(|b| b.swift.retx_reset_threshold = 0, "`swift.retx_reset_threshold` is 0");
}

#[test]
fn the_software_profile_follows_the_measured_round_trip() {
    for rtt in [Duration::from_nanos(500), Duration::from_micros(50), Duration::from_millis(200)] {
        let settings = *CcConfigBuilder::software(rtt).build().unwrap().settings();
        assert_eq!(settings.inbound_target_delay, 2 * rtt);
        assert_eq!(settings.outbound_target_delay, 3 * rtt);
        assert_eq!(settings.issue_target_delay, rtt);
        assert_eq!((settings.ai, settings.md, settings.beta), (0.25, 0.5, 0.8), "the paper's");
    }
    assert!(CcConfigBuilder::software(Duration::MAX).build().is_err());
}
