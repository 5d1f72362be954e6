//! Fixed networks: what must be seen on each, and that a run can be repeated.

use core::{net::Ipv4Addr, time::Duration};

use rma_core::{
    error::{DropReason, NotSent},
    limits::OP_SIZE_MAX,
    nic::{NicConfigBuilder, NicPlace, Timing},
    op::{OpStatus, OpType},
    time::Instant,
};
use rma_sim::{
    load::{
        scenario::{Failure, Options, Report, run},
        swarm::run_seed,
    },
    net::{
        clock::ClockOptions,
        counter::CounterOptions,
        link::{Faults, LinkOptions},
        mishap::MishapOptions,
        node::{NodeOptions, Pace},
        queue::QueueOptions,
        trace::What,
    },
    prng::Chance,
};

fn node(number: u8) -> NodeOptions {
    NodeOptions {
        place: NicPlace::at(rma_core::addr::HostAddr::from(Ipv4Addr::new(192, 0, 2, number))),
        nic: NicConfigBuilder::default().with(|it| {
            it.command_slots = 16;
            it.regions = 8;
            it.timing = Timing::new(Duration::from_millis(1), Duration::from_millis(2));
        }),
        mtu: 1500,
        rate: 12_500_000_000,
        pace: Pace::Engine { turn: Duration::from_micros(1) },
        receive_ring: 64,
        clock: ClockOptions::default(),
    }
}

fn network(nodes: u8) -> Options {
    Options {
        seed: 7,
        nodes: (1..=nodes).map(node).collect(),
        link: LinkOptions::default(),
        switch: None,
        mishaps: MishapOptions::default(),
        counters: CounterOptions::default(),
        safety_ops: 200,
        liveness_ops: 20,
        gap: Duration::from_micros(2),
        mutations: Chance::NEVER,
        recorded: Chance::NEVER,
        rekeys: Chance::NEVER,
        hopeless: Chance::NEVER,
        old_keys: Chance::NEVER,
        recordings: 0,
        silent: 0,
        spread: Default::default(),
        together: 1,
    }
}

fn outcome(options: &Options) -> Report {
    let report = run(options, |_| ());
    report.unwrap_or_else(|failure| panic!("{options}\n{failure}"))
}

fn count(report: &Report, status: OpStatus) -> u64 {
    report.ended_with(status)
}

#[test]
fn without_faults_every_honest_read_ends_with_ok_although_frames_are_reordered() {
    let report = outcome(&network(4));
    assert_eq!(count(&report, OpStatus::Ok), 4 * 220);
    assert_eq!(report.drops.iter().sum::<u64>(), 0, "{report}");
}

#[test]
fn with_every_frame_lost_every_op_ends_with_timeout() {
    let faults = Faults { loss: Chance::ppm(1_000_000), ..Faults::default() };
    let link = LinkOptions { faults, ..LinkOptions::default() };
    let report = outcome(&Options { link, liveness_ops: 0, ..network(3) });
    assert_eq!(
        count(&report, OpStatus::Timeout) + count(&report, OpStatus::DispatchTimeout),
        3 * 200
    );
    assert_eq!(report.drops.iter().sum::<u64>(), 0);
}

#[test]
fn with_every_frame_corrupted_nothing_is_accepted() {
    let faults = Faults { corrupt: Chance::ppm(1_000_000), ..Faults::default() };
    let link = LinkOptions { faults, ..LinkOptions::default() };
    let mut options = Options { link, liveness_ops: 0, ..network(3) };
    // Frames that share a packet with the one that was hit are served.
    options.nodes.iter_mut().for_each(|node| node.pace = Pace::Hardware);
    let report = outcome(&options);
    assert_eq!(count(&report, OpStatus::Ok), 0);
    let refused = report.drops[DropReason::RequestUnauthenticated as usize];
    assert!(refused > 0, "{report}");
}

#[test]
fn with_every_frame_copied_twice_every_read_still_ends_once_and_with_right_data() {
    let always = Chance::ppm(1_000_000);
    let faults = Faults {
        duplicate: always,
        replay: always,
        replay_within: Duration::from_millis(3),
        ..Faults::default()
    };
    let link = LinkOptions { faults, ..LinkOptions::default() };
    let report = outcome(&Options { link, ..network(3) });
    assert!(count(&report, OpStatus::Ok) > 600, "{report}");
    assert!(report.drops[DropReason::LateOrUnsolicited as usize] > 1000, "{report}");
}

//= 1rma#4.3-eager-shedding
//= type=test
#[test]
fn a_small_window_is_filled_never_exceeded_and_what_waits_too_long_is_shed() {
    let mut options = network(6);
    let window = 2 * OP_SIZE_MAX;
    for node in &mut options.nodes {
        node.nic.solicitation_window = window;
        node.nic.timing.dispatch_timeout = Duration::from_micros(20);
        node.rate = 1_250_000_000;
    }
    options.gap = Duration::from_nanos(100);
    let report = outcome(&options);
    assert!(count(&report, OpStatus::DispatchTimeout) > 0, "{report}");
    let peak = report.peak_in_flight;
    assert!(peak > u64::from(window) / 2 && peak <= window.into(), "{peak} of {window}");
}

//= 1rma#4.5-nack
//= type=test
#[test]
fn a_busy_responder_says_so_and_its_queue_does_not_grow() {
    let mut options = network(6);
    for node in &mut options.nodes {
        node.nic.inbound_queue = 2;
        node.rate = 125_000_000;
    }
    options.gap = Duration::from_nanos(100);
    let report = outcome(&options);
    assert!(count(&report, OpStatus::Nack) > 0, "{report}");
}

/// The run itself checks that each NACK has its reason, and that none is missing. Here no queue can
/// be full, so the reason is how many bytes wait: more than are sent in the time that is left
/// (section 6.1).
//= 1rma#6.1-nack-threshold
//= type=test
#[test]
fn a_responder_that_would_answer_too_late_says_so_though_its_queue_has_places() {
    let mut options = network(6);
    for node in &mut options.nodes {
        node.nic.rtt = Duration::from_micros(10);
        // The rest of the timeout is 990 us.
        node.nic.bandwidth = 20_000_000;
        node.rate = 125_000_000;
    }
    options.gap = Duration::from_nanos(100);
    options.liveness_ops = 0;
    let slow = outcome(&options);
    assert!(count(&slow, OpStatus::Nack) > 50, "{slow}");
    options.nodes.iter_mut().for_each(|node| node.nic.bandwidth = 125_000_000_000);
    let fast = outcome(&options);
    assert_eq!(count(&fast, OpStatus::Nack), 0, "{fast}");
}

#[test]
fn hopeless_ops_end_in_the_way_that_they_deserve() {
    let report = outcome(&Options { hopeless: Chance::ppm(1_000_000), ..network(3) });
    for status in [
        OpStatus::RemoteAuthenticationFailure,
        OpStatus::RemoteOutOfBounds,
        OpStatus::RemotePermissionDenied,
        OpStatus::InvalidCommand,
    ] {
        assert!(count(&report, status) > 20, "{status}");
    }
    assert_eq!(count(&report, OpStatus::Ok) + count(&report, OpStatus::Timeout), 0);
}

/// P10: that they are no more is checked by the run itself.
#[test]
fn strangers_are_told_so_at_first_and_then_at_the_configured_rate() {
    let mut options = Options { hopeless: Chance::ppm(1_000_000), ..network(2) };
    options.nodes.iter_mut().for_each(|node| node.nic.notices_per_second = 1_000);
    options.link.faults.duplicate = Chance::ppm(1_000_000);
    options.safety_ops = 400;
    let report = outcome(&options);
    assert!(report.not_sent[NotSent::NoticeRateLimited as usize] > 50, "{report}");
    assert!(count(&report, OpStatus::RemoteAuthenticationFailure) > 150, "{report}");
}

#[test]
fn hosts_with_every_mtu_understand_each_other() {
    let mut options = network(6);
    for (node, mtu) in options.nodes.iter_mut().zip([160, 576, 1280, 1500, 3400, 9000]) {
        node.mtu = mtu;
    }
    let report = outcome(&options);
    assert_eq!(count(&report, OpStatus::Ok), 6 * 220, "{report}");
}

#[test]
fn clocks_that_start_anywhere_and_drift_change_no_outcome() {
    let mut options = network(4);
    let clocks = [(0, 1000), (1 << 60, -1000), (77, 0), (1 << 40, 50)];
    for (node, (starts_at, drift_ppm)) in options.nodes.iter_mut().zip(clocks) {
        node.clock = ClockOptions { starts_at: Instant::from_nanos(starts_at), drift_ppm };
    }
    let report = outcome(&options);
    assert_eq!(count(&report, OpStatus::Ok), 4 * 220);
}

#[test]
fn senders_share_a_port_of_the_switch_and_what_it_has_no_room_for_times_out() {
    let with_port = |rate, len| {
        let switch = Some(QueueOptions { rate, len });
        outcome(&Options { switch, gap: Duration::from_nanos(100), ..network(6) })
    };
    let roomy = with_port(1_250_000_000, 1 << 20);
    assert_eq!((roomy.lost, count(&roomy, OpStatus::Timeout)), (0, 0), "{roomy}");
    let shallow = with_port(125_000_000, 8 << 10);
    assert!(shallow.lost > 10 && count(&shallow, OpStatus::Timeout) > 5, "{shallow}");
}

fn mutating(nodes: u8, rekeys: Chance) -> Options {
    Options { mutations: Chance::ppm(600_000), rekeys, ..network(nodes) }
}

#[test]
fn without_faults_every_honest_write_ends_with_ok_although_frames_are_reordered() {
    let report = outcome(&mutating(4, Chance::NEVER));
    assert_eq!(count(&report, OpStatus::Ok), 4 * 220, "{report}");
    assert!(report.ended(OpType::Write, OpStatus::Ok) > 400, "{report}");
    assert_eq!(report.drops.iter().sum::<u64>(), 0, "{report}");
}

/// P11: which ops fail is checked for each of them by the run itself.
#[test]
fn a_rekey_fails_ops_on_its_region_alone_and_only_with_authentication_failure() {
    let report = outcome(&mutating(4, Chance::ppm(100_000)));
    let refused = count(&report, OpStatus::RemoteAuthenticationFailure);
    assert_eq!(count(&report, OpStatus::Ok) + refused, 4 * 220, "{report}");
    assert!(report.ended(OpType::Rekey, OpStatus::Ok) > 30 && refused > 0, "{report}");
    assert!(report.drops[DropReason::OldKey as usize] > 0, "{report}");
}

/// P11, of recorded ops: that those which fail were not applied is checked by the run itself.
#[test]
fn a_rekey_of_a_queue_or_of_words_fails_ops_on_it_alone_and_only_with_authentication_failure() {
    let recorded = Chance::ppm(1_000_000);
    let report = outcome(&Options { recorded, ..mutating(4, Chance::ppm(150_000)) });
    use OpStatus::{Ok, RemoteAuthenticationFailure, RemoteNotReady};
    let others =
        |status: &OpStatus| ![Ok, RemoteAuthenticationFailure, RemoteNotReady].contains(status);
    let failed: u64 = OpStatus::ALL.into_iter().filter(others).map(|it| count(&report, it)).sum();
    assert_eq!(failed, 0, "{report}");
    let refused = |op_type| report.ended(op_type, RemoteAuthenticationFailure);
    let queue = refused(OpType::Send) + refused(OpType::Notify);
    let words = refused(OpType::CompareSwap) + refused(OpType::FetchAdd);
    assert!(report.queue_rekeys > 10 && queue > 0 && words > 0, "{report}");
}

/// P3: many writers, and a window for two ops.
#[test]
fn writers_share_the_targets_window_and_those_who_wait_too_long_are_refused() {
    let mut options = mutating(6, Chance::NEVER);
    options.mutations = Chance::ppm(1_000_000);
    options.gap = Duration::from_nanos(100);
    let window = 2 * OP_SIZE_MAX;
    for node in &mut options.nodes {
        node.nic.solicitation_window = window;
        node.nic.timing.dispatch_timeout = Duration::from_micros(20);
        node.rate = 1_250_000_000;
    }
    let report = outcome(&options);
    assert!(report.ended(OpType::Write, OpStatus::Nack) > 0, "{report}");
    let peak = report.peak_in_flight;
    assert!(peak > u64::from(window) / 2 && peak <= window.into(), "{peak} of {window}");
}

/// P2: what an engine applied while it was stopped for too long is counted, and nothing is applied
/// later.
#[test]
fn an_engine_that_is_stopped_between_its_clock_and_the_copy_counts_what_may_have_been_late() {
    let mut options = mutating(3, Chance::ppm(100_000));
    // Few of the stalls are as long as that, and between the two looks at the clock.
    options.safety_ops = 1000;
    options.mishaps.stall = Chance::ppm(300_000);
    options.mishaps.pause_max = Duration::from_millis(8);
    let report = outcome(&options);
    assert!(report.stalls > 50 && report.late_effects > 0, "{report}");
    assert!(report.drops[DropReason::DataLate as usize] > 0, "{report}");
    assert!(report.ended(OpType::Write, OpStatus::Ok) > 100, "{report}");
    // Shorter than the guard of an eighth: nothing is late.
    options.mishaps.pause_max = Duration::from_micros(200);
    let report = outcome(&options);
    assert!(report.stalls > 50 && report.late_effects == 0, "{report}");
}

/// P11, and the other ends of ops: regions change while ops on them are under way.
#[test]
fn regions_that_go_and_come_back_fail_the_ops_on_them_and_no_others() {
    let mut options = mutating(4, Chance::ppm(100_000));
    options.mishaps = MishapOptions {
        change: Chance::ppm(1_000_000),
        count: 100,
        gap: Duration::from_micros(5),
        ..MishapOptions::default()
    };
    let report = outcome(&options);
    assert_eq!(report.changes, 400);
    for reason in [DropReason::OldKey, DropReason::UnknownRegion, DropReason::LocalRegionGone] {
        assert!(report.drops[reason as usize] > 0, "{reason:?}: {report}");
    }
    assert!(count(&report, OpStatus::Ok) > 400, "{report}");
}

fn struck(crash: Chance) -> Options {
    let mishaps = MishapOptions {
        count: 20,
        gap: Duration::from_micros(20),
        crash,
        change: Chance::NEVER,
        stall: Chance::NEVER,
        pause_max: Duration::from_millis(4),
        down_max: Duration::from_micros(20),
        new_keys: Chance::NEVER,
        clock_step_max: Duration::from_secs(3600),
    };
    Options { mishaps, ..mutating(3, Chance::ppm(50_000)) }
}

/// P1: a node that was stopped completes everything that is due as soon as it runs.
#[test]
fn a_paused_node_goes_on_with_what_its_device_held_and_with_all_that_is_due() {
    let report = outcome(&struck(Chance::NEVER));
    assert_eq!((report.pauses, report.crashes, report.lost), (60, 0, 0), "{report}");
    assert!(count(&report, OpStatus::Ok) > 400 && count(&report, OpStatus::Timeout) > 0);
    let mut options = struck(Chance::NEVER);
    options.nodes.iter_mut().for_each(|node| node.receive_ring = 1);
    let report = outcome(&options);
    assert!(report.lost > 20, "{report}");
}

/// P4 and P7 in the worst case: regions have the names and keys of before, counters go on a few
/// values above, clocks step, and every frame of before arrives again.
#[test]
fn a_restarted_node_is_not_taken_in_by_frames_of_its_former_life() {
    let mut options = struck(Chance::ppm(1_000_000));
    options.counters = CounterOptions { first: 8, most: 8, latency_max: Duration::ZERO };
    options.link.faults = Faults {
        replay: Chance::ppm(1_000_000),
        replay_within: Duration::from_micros(100),
        ..Faults::default()
    };
    let report = outcome(&options);
    assert_eq!((report.pauses, report.crashes), (0, 60), "{report}");
    assert!(count(&report, OpStatus::Ok) > 400, "{report}");
    for reason in [DropReason::LateOrUnsolicited, DropReason::ResponseUnauthenticated] {
        assert!(report.drops[reason as usize] > 0, "{reason:?}: {report}");
    }
}

/// P4: blocks so small that each is used up before the next one is there.
#[test]
fn a_node_without_counter_values_sends_nothing_until_it_has_some_again() {
    let mut options = mutating(3, Chance::NEVER);
    options.counters = CounterOptions { first: 8, most: 64, latency_max: Duration::ZERO };
    let report = outcome(&options);
    assert_eq!(count(&report, OpStatus::Ok), 3 * 220, "{report}");
    options.counters.latency_max = Duration::from_millis(5);
    let report = outcome(&options);
    let late = count(&report, OpStatus::Timeout) + count(&report, OpStatus::DispatchTimeout);
    assert!(late > 50 && count(&report, OpStatus::Ok) > 3 * 20, "{report}");
}

/// P12: a run is a function of its seed.
#[test]
fn the_same_seed_is_the_same_run_and_another_seed_is_another() {
    let trace = |seed| {
        let mut lines = Vec::new();
        let report = run_seed(seed, |seen| lines.push(seen.to_string()));
        (lines, report.unwrap_or_else(|found| panic!("{found}")))
    };
    for seed in 0..20 {
        let ((lines, report), (again, report_again)) = (trace(seed), trace(seed));
        assert_eq!(lines, again);
        assert_eq!(report, report_again);
        assert_ne!(report.digest, trace(seed + 1).1.digest);
    }
}

/// A change of this digest means that frames, timing or random streams have changed: expected when
/// the wire format or the NIC's order of work changes, a mistake otherwise.
#[test]
fn the_run_of_a_fixed_seed_has_a_fixed_digest() {
    let report = run_seed(132, |_| ()).unwrap_or_else(|found| panic!("{found}"));
    assert_eq!(report.to_string(), SEED_132);
}

const SEED_132: &str = "\
digest e6f908bcd9f7fccd, 524 events, 43820022 ns
292 frames sent, 286 copies received, 6 had no room
283 packets, 17 frames in shared ones, 0 in none
0 tails without frames
8 bursts received, 0 turns with requests that gathered
9 pauses, 6 crashes, 5 changes, 3 stalls
0 late effects counted
0 parked, 0 of them forgotten; 0 pushed out
36 words, 75 ops on them, 0 unknown
0 changes of boards, read 4 times, and 0 meanwhile
4 rekeys of receive queues
       1 settled: APPLIED
       0 settled: NOT_APPLIED
       0 settled: FORGOTTEN
       1 SETTLE OK
at most 4096 B solicited and in flight; 5 refused
      12 Read OK
       3 Read REMOTE_AUTHENTICATION_FAILURE
       6 Read TIMEOUT
       3 Read DISPATCH_TIMEOUT
       1 Read REMOTE_OUT_OF_BOUNDS
       1 Read REMOTE_PERMISSION_DENIED
       3 Read INVALID_COMMAND
       7 Write OK
       1 Write REMOTE_AUTHENTICATION_FAILURE
       5 Write NACK
       3 Write TIMEOUT
       2 Write REMOTE_OUT_OF_BOUNDS
       2 Write INVALID_COMMAND
      10 Rekey OK
       3 Rekey REMOTE_AUTHENTICATION_FAILURE
       1 Rekey NACK
       6 Rekey TIMEOUT
       1 Send REMOTE_AUTHENTICATION_FAILURE
       1 Send TIMEOUT
       2 Send INVALID_COMMAND
       1 Send REMOTE_NOT_READY
       1 WriteWithImm NACK
       1 Notify REMOTE_AUTHENTICATION_FAILURE
       2 Notify REMOTE_PERMISSION_DENIED
       1 Notify REMOTE_NOT_READY
       1 CompareSwap OK
       3 CompareSwap NACK
       1 CompareSwap TIMEOUT
       1 CompareSwap INVALID_COMMAND
       4 FetchAdd OK
       1 FetchAdd REMOTE_AUTHENTICATION_FAILURE
       2 FetchAdd NACK
       1 FetchAdd TIMEOUT
       5 dropped: UnknownRegion
      14 dropped: RequestUnauthenticated
       3 dropped: RequestOutOfBounds
       3 dropped: RequestNotPermitted
       2 dropped: PendingWritesFull
       2 dropped: LateOrUnsolicited
       2 dropped: OldKey
       3 dropped: PendingWriteShareFull
       4 dropped: NotSolicitedInTime
       3 dropped: OutcomeRecordsFull
       3 dropped: NoReceivePosted
      10 not sent: NoticeRateLimited
";

/// A network that is broken on purpose: the liveness phase must notice.
#[test]
fn a_network_that_loses_frames_without_faults_is_found_by_the_liveness_phase() {
    let link = LinkOptions { queue: 0, ..LinkOptions::default() };
    let failure = run(&Options { link, ..network(2) }, |_| ()).expect_err("nothing gets through");
    assert!(matches!(failure, Failure::Violation { .. }), "{failure}");
    assert!(failure.to_string().contains("ended with TIMEOUT: expected OK"), "{failure}");
}

#[test]
fn a_trace_tells_the_life_of_a_read() {
    let mut kinds = [0; 6];
    let options = Options { safety_ops: 1, liveness_ops: 0, ..network(2) };
    let report = run(&options, |seen| {
        kinds[match seen.what {
            What::Issued { .. } => 0,
            What::Sent { .. } => 1,
            What::Received { .. } => 2,
            What::Completed(_) => 3,
            What::Left { .. } | What::Came { .. } => 4,
            _ => 5,
        }] += 1;
    });
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!((kinds[0], kinds[3]), (2, 2));
    assert_eq!((kinds[1], kinds[2], kinds[5]), (report.frames, report.frames, 0));
    assert_eq!(kinds[4], 2 * report.packets);
}
