//! Fixed networks: what must be seen on each, and that a run can be repeated.

use core::{net::Ipv4Addr, time::Duration};

use rma_core::{
    error::DropReason,
    limits::OP_SIZE_MAX,
    nic::{NicConfigBuilder, Timing},
    op::OpStatus,
};
use rma_sim::{
    link::{Faults, LinkOptions},
    node::NodeOptions,
    prng::Chance,
    scenario::{Failure, Options, Report, run},
    swarm::run_seed,
    trace::What,
};

fn node(number: u8) -> NodeOptions {
    NodeOptions {
        nic: NicConfigBuilder {
            addresses: rma_core::addr::HostAddr::from(Ipv4Addr::new(192, 0, 2, number)).into(),
            command_slots: 16,
            regions: 8,
            timing: Timing {
                dispatch_timeout: Duration::from_millis(1),
                timeout: Duration::from_millis(1),
            },
            ..NicConfigBuilder::default()
        },
        mtu: 1500,
        rate: 12_500_000_000,
    }
}

fn network(nodes: u8) -> Options {
    Options {
        seed: 7,
        nodes: (1..=nodes).map(node).collect(),
        link: LinkOptions::default(),
        safety_ops: 200,
        liveness_ops: 20,
        gap: Duration::from_micros(2),
        hopeless: Chance::NEVER,
    }
}

fn outcome(options: &Options) -> Report {
    let report = run(options, |_| ());
    report.unwrap_or_else(|failure| panic!("{options}\n{failure}"))
}

fn count(report: &Report, status: OpStatus) -> u64 {
    report.statuses[status as usize]
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
    let report = outcome(&Options { link, liveness_ops: 0, ..network(3) });
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

#[test]
fn hosts_with_every_mtu_understand_each_other() {
    let mut options = network(6);
    for (node, mtu) in options.nodes.iter_mut().zip([160, 576, 1280, 1500, 3400, 9000]) {
        node.mtu = mtu;
    }
    let report = outcome(&options);
    assert_eq!(count(&report, OpStatus::Ok), 6 * 220, "{report}");
}

/// P12.
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

/// A change of this digest means that frames, timing or random streams have changed: expected when the wire
/// format or the NIC's order of work changes, a mistake otherwise.
#[test]
fn the_run_of_a_fixed_seed_has_a_fixed_digest() {
    let report = run_seed(163, |_| ()).unwrap_or_else(|found| panic!("{found}"));
    assert_eq!(report.to_string(), SEED_163);
}

const SEED_163: &str = "\
digest 63fa3e10903eeb6b, 973 events, 472 frames, 3327870 ns
at most 896 B solicited and in flight; 2 refused
     104 OK
       1 REMOTE_AUTHENTICATION_FAILURE
       1 NACK
       6 TIMEOUT
      24 DISPATCH_TIMEOUT
       1 REMOTE_OUT_OF_BOUNDS
       1 REMOTE_PERMISSION_DENIED
       2 INVALID_COMMAND
       1 dropped: FrameType
       1 dropped: Field
       3 dropped: RequestUnauthenticated
       1 dropped: RequestOutOfBounds
       1 dropped: RequestNotPermitted
       1 dropped: InboundQueueFull
       1 dropped: NoticeRateLimited
       1 dropped: UnknownSlot
       1 dropped: LateOrUnsolicited
       1 dropped: ResponseUnauthenticated
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
    let mut kinds = [0; 4];
    let options = Options { safety_ops: 1, liveness_ops: 0, ..network(2) };
    let report = run(&options, |seen| {
        kinds[match seen.what {
            What::Issued { .. } => 0,
            What::Sent { .. } => 1,
            What::Received { .. } => 2,
            What::Completed(_) => 3,
        }] += 1;
    });
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!((kinds[0], kinds[3]), (2, 2));
    assert_eq!((kinds[1], kinds[2]), (report.frames, report.frames));
}
