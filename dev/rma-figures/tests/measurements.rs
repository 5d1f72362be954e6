//! The measurements of the demo and the figures, as tests of what must hold.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use core::time::Duration;
use std::{
    net::UdpSocket,
    process::{Command, Output},
};

use rma_bench::{
    amount::Amount,
    compare::{self, Sockets, Transport},
    error::PairError,
    floor::{self, Exchange, Link, Side, Sides},
    interrupt::Interrupt,
    load::LoadOp,
    measure::{Links, What, in_turns},
    one_way::Step,
    pair::{Pair, PairConfig, Place},
    pipelined,
    rotation::{By, NextGrant, Stage},
};
use rma_figures::{
    clients::{self, Work},
    death::{self, Death},
    phases::{self, Op, PhasesArgs},
    settle,
};
use rma_lab::{Lab, LabConfig};
use rma_xdp::{
    OpStatus, OpType,
    config::{NicConfigBuilder, Timing},
    device::DeviceInfo,
};

/// A pair of its own port. `timeout`: of both NICs.
fn config(timeout: Duration) -> PairConfig {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let port = socket.local_addr().unwrap().port();
    let timing = Timing::software(Duration::from_micros(10), timeout);
    let nic = NicConfigBuilder::default().with(|it| it.timing = timing);
    PairConfig { region_len: 1 << 20, port, nic, ..PairConfig::default() }
}

/// Longer than a busy machine stops an engine for.
const PATIENT: Duration = Duration::from_secs(20);

fn assert_rotations(place: Place<'_>) {
    let mut pair = Pair::open(place, &config(PATIENT)).unwrap();
    let mut stage = Stage::new(&mut pair, place).unwrap();
    for by in [By::Host, By::RekeyOp] {
        for next_grant in [NextGrant::Beforehand, NextGrant::Fetched] {
            let kind = (by, next_grant);
            let seen = stage.rotate(&mut pair, kind, 20, &Interrupt::default()).unwrap();
            assert_eq!((seen.count(), seen.failed, seen.failed_otherwise), (20, 20, 0), "{kind:?}");
            assert!(seen.other_ops > 0 && seen.other_failed == 0, "{kind:?}");
            let drawn = seen.timeline();
            assert!(drawn.contains('X') && drawn.contains("rotation"), "{drawn}");
            assert!(seen.ops().iter().any(|op| !op.ok && op.issued_us == 0.0), "{:?}", seen.ops());
        }
    }
}

fn assert_bounded(death: &Death, ops: u64) {
    assert_eq!((death.ops, death.statuses.iter().sum::<u64>()), (ops, ops), "{death:?}");
    assert!(death.ended(OpStatus::Timeout) > 0 && death.writes > 0, "{death:?}");
    // Whatever the machine was busy with meanwhile. By how much bounds are exceeded at all is what
    // a figure judges.
    assert_eq!(death.unexplained, [0, 0], "{death:?}");
}

fn assert_writes(place: Place<'_>) {
    let mut pair = Pair::open(place, &config(PATIENT)).unwrap();
    let uninterrupted = Interrupt::default();
    let done = pair.run(|client| client.verify(OpType::Write, 500, &uninterrupted, |_| ()));
    assert_eq!(done.unwrap().writes, 500);
    let sizes = [1, 64, 4096];
    for size in sizes {
        let counts = (0, 200);
        pair.run(|client| client.measure(LoadOp::Write, (size, u64::MAX), counts, &uninterrupted))
            .unwrap();
    }
    assert_eq!(pair.compare().unwrap(), 1 << 20);
    let read = pair.run(|client| client.read_all(client.area(), &uninterrupted)).unwrap();
    let mut held = vec![0; 1 << 20];
    pair.region.read(0, &mut held).unwrap();
    assert!(read == held, "what is read is what the region holds");
    // And back to what it was.
    let mut pattern = vec![0; 1 << 20];
    pair.client.pattern.fill(0, &mut pattern);
    assert_ne!(pair.client.pattern.first_difference(0, &held), None);
    pair.run(|client| client.restore(&pattern, &uninterrupted)).unwrap();
    pair.region.read(0, &mut held).unwrap();
    assert_eq!(pair.client.pattern.first_difference(0, &held), None);
    // A byte that nobody wrote is found.
    pair.region.write(777, &[!held[777]]).unwrap();
    assert!(pair.compare().unwrap_err().to_string().contains("byte 777 "));
}

/// Every op that is measured alone, messages one way, and clients that share a word: the region
/// holds afterwards what the model says, and each number was given once.
fn assert_changes(place: Place<'_>) {
    let mut pair = Pair::open(place, &config(PATIENT)).unwrap();
    let (amount, uninterrupted) = (Amount { count: 200, rounds: 2 }, Interrupt::default());
    let ops = [
        LoadOp::OrderedWrite,
        LoadOp::WriteWithImm,
        LoadOp::CompareSwap,
        LoadOp::FetchAdd,
        LoadOp::Write,
        LoadOp::Read,
    ];
    for size in [64, 4096] {
        let [send, write] = [Step::Send, Step::OrderedWrite].map(|push| What::OneWay(push, size));
        let whats = [send, write, What::warm(LoadOp::Read, size)];
        let turns = in_turns(&mut pair, Links::default(), whats, amount, &uninterrupted).unwrap();
        assert_eq!(turns.latencies.map(|it| it.count()), [200; 3]);
        let whats = ops.map(|op| What::warm(op, size));
        let turns = in_turns(&mut pair, Links::default(), whats, amount, &uninterrupted).unwrap();
        assert_eq!(turns.latencies.map(|it| it.count()), [200; 6]);
    }
    let mut portals: Vec<_> = (0..3).map(|_| pair.client.host.portal(1).unwrap()).collect();
    for work in [Work::Count, Work::Write] {
        let rate =
            pair.run(|client| clients::per_second(client, &mut portals, work, (10, 300))).unwrap();
        assert!(rate > 0.0);
    }
    assert_eq!(pair.compare().unwrap(), 1 << 20);
    assert_eq!(pair.queue.posted(), usize::from(pair.queue.layout().receives()));
    // An atomic that finds another word than should be there says so.
    for place in 0..=(64 << 10) / 64 {
        pair.region.fetch_add(place * 64, 1).unwrap();
    }
    for op in [LoadOp::CompareSwap, LoadOp::FetchAdd] {
        let found = pair.run(|client| client.measure(op, (8, 64), (0, 1), &uninterrupted));
        assert!(matches!(found, Err(PairError::WrongByte { .. })), "{found:?}");
    }
}

#[test]
fn changes_and_messages_are_measured_and_leave_what_the_model_says() {
    assert_changes(Place::Loopback);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn outcomes_are_known_whichever_frame_was_lost() {
    let lab = Lab::new(&LabConfig::default()).unwrap();
    // So long that a busy machine does not make ops late.
    let timeout = Duration::from_millis(200);
    let settled = settle::run(&lab, 1500, timeout, 10, &Interrupt::default()).unwrap();
    assert_eq!((settled.applied, settled.not_applied), (5, 5), "{settled:?}");
    assert!(settled.slowest > Duration::ZERO, "{settled:?}");
}

#[test]
fn each_rotation_is_seen_once_and_on_its_own_region_alone() {
    assert_rotations(Place::Loopback);
}

#[test]
fn every_op_ends_within_its_bound_when_the_peer_is_dead() {
    let config = config(Duration::from_millis(20));
    let death = death::run(Place::Loopback, &config, 2000, &Interrupt::default()).unwrap();
    assert_bounded(&death, 2000);
}

#[test]
fn written_bytes_are_compared_one_by_one() {
    assert_writes(Place::Loopback);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn over_xdp_as_well() {
    let lab = Lab::new(&LabConfig::default()).unwrap();
    let place = Place::Lab(&lab);
    assert_writes(place);
    assert_changes(place);
    assert_rotations(place);
    let config = config(Duration::from_millis(20));
    let death = death::run(place, &config, 2000, &Interrupt::default()).unwrap();
    assert_bounded(&death, 2000);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_floor_is_in_the_mode_of_the_hosts() {
    let lab = Lab::new(&LabConfig::default()).unwrap();
    let pair = Pair::open(Place::Lab(&lab), &PairConfig::default()).unwrap();
    let mut link = Link::open(&LabConfig::default(), rma_xdp::config::DEFAULT_PORT, false).unwrap();
    let Sides { client, server, .. } = link.sides();
    for side in [client, server] {
        let floor = DeviceInfo::Xdp(side.sockets.describe().clone());
        for host in [pair.client.host.info(), pair.server.info()] {
            assert_eq!(host.to_string(), floor.to_string());
        }
    }
}

/// Not how fast: whether the measurement itself works, also with packets of several chunks.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_floor_measures_without_losing_packets() {
    const PORT: u16 = 4791;
    let config = LabConfig { mtu: 9000, ..LabConfig::default() };
    let mut link = Link::open(&config, PORT, false).unwrap();
    fn sides(link: &mut Link) -> [Side<'_>; 2] {
        let Sides { client, server, .. } = link.sides();
        [client, server].map(|side| Side { core: None, ..side })
    }
    let exchange = Exchange { request_len: 64, response_len: 5000, responses: 2 };
    for _ in 0..2 {
        let [client, server] = sides(&mut link);
        let result = floor::ping_pong(client, server, PORT, exchange, (10, 500));
        assert_eq!((result.times.len(), result.lost), (500, 0));
    }
    let [client, server] = sides(&mut link);
    let rate = floor::pipeline(client, server, PORT, exchange, 32, (100, 2000));
    assert!(rate.count > 0 && rate.count <= 2100 && rate.per_second() > 0.0, "{rate:?}");
    assert_eq!(rate.lost, 0);
    for len in [22, 3358, 5000] {
        let [to, from] = sides(&mut link);
        let rate = floor::flood(from, to, PORT, len, (100, 5000));
        assert!(rate.count > 0 && rate.count + rate.lost <= 5100, "{len}: {rate:?}");
        assert!(rate.bytes_per_second(len) > 0.0, "{len}: {rate:?}");
    }
    assert_eq!(sides(&mut link).map(|it| it.sockets.counters().chunks_lost.load()), [0, 0]);
}

/// Not how fast: whether all that is sent comes back.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn floors_are_measured_without_losses() {
    let config = LabConfig { mtu: 3400, ..LabConfig::default() };
    let sockets = Sockets::open(&config).unwrap();
    for transport in [Transport::Udp, Transport::Tcp] {
        let trips = compare::ping_pong(&sockets, transport, 64, (10, 500)).unwrap();
        assert_eq!((trips.times.len(), trips.lost), (500, 0), "{transport:?}");
    }
    for depth in [1, 32] {
        let rate = compare::echo(&sockets, 64, depth, (100, 2000)).unwrap();
        assert_eq!((rate.count, rate.lost), (2000, 0), "{depth}");
    }
    let rate = compare::segmented(&sockets, 3372, (100, 3000)).unwrap();
    // The count begins with the first call after the warm-up.
    assert!((2900..=3100).contains(&rate.count) && rate.lost == 0, "{rate:?}");
    // Hosts over the same sockets.
    let mut pair = Pair::open(Place::LabUdp(sockets.lab()), &self::config(PATIENT)).unwrap();
    let mut portal = pair.client.host.portal(32).unwrap();
    let reads = pair
        .run(|client| pipelined::ops_per_second(client, &mut portal, OpType::Read, 32, (10, 500)));
    assert!(reads.unwrap() > 0.0);
}

/// Every phase that an op cannot do without has taken some time, on the side that has it.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn phases_are_seen_on_both_sides() {
    for (op, size, depth) in [(Op::Read, 64, 1), (Op::Read, 4096, 32), (Op::Write, 64, 8)] {
        let args = PhasesArgs { op, size, depth, count: 500, rounds: 1, mtu: 3400, json: false };
        let report = phases::measure(&args, &Interrupt::default()).unwrap();
        let of = |words: &str| {
            let row = report.phases.iter().find(|row| row.phase.contains(words)).unwrap();
            (row.initiator_ns, row.responder_ns)
        };
        for words in ["receive", "parse", "open", "choose", "seal", "transmit", "doorbell"] {
            let (initiator, responder) = of(words);
            assert!(initiator > 0.0 && responder > 0.0, "{words}: {report:?}");
        }
        assert!(of("application").0 > 0.0 && of("derive").1 > 0.0, "{report:?}");
        let initiator: f64 = report.phases.iter().map(|row| row.initiator_ns).sum();
        assert!(initiator > 0.0 && report.op_ns > 0.0, "{report:?}");
    }
}

/// The output of the program, which has ended.
fn program(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rma-figures")).args(args).output().unwrap()
}

#[test]
fn figures_that_cannot_be_measured_or_checked_are_refused_with_the_next_step() {
    let refused = |args: &[&str]| {
        let output = program(args);
        assert!(!output.status.success(), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let figure = refused(&["measure", "--only", "nosuch"]);
    assert!(figure.contains("read64_over_floor"), "{figure}");
    let limitless = refused(&["measure", "--check", "--only", "floor_echo_rate"]);
    assert!(limitless.contains("nothing to check"), "{limitless}");
    let list = refused(&["measure", "--check", "--list"]);
    assert!(list.contains("--check") && list.contains("--list"), "{list}");
}

#[test]
fn the_names_of_all_figures_are_listed() {
    let output = program(&["measure", "--list"]);
    assert!(output.status.success());
    let names = String::from_utf8(output.stdout).unwrap();
    assert!(names.lines().any(|line| line.contains("read64_over_floor")), "{names}");
}
