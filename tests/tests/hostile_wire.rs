//! Hosts at the two ends of a wire that loses, delays, repeats, changes and forges frames, on a real kernel.

use core::time::Duration;

use rma_sim::prng::Prng;
use rma_tests::hostile_wire::{
    attackers,
    faults::Faults,
    lab::{End, Ends, Setup},
    reads, seeds,
    table::Circumstances,
};
use rma_xdp::{NicConfigBuilder, Timing, xdp::Mode};

/// Short, so that losses cost little; long enough that a busy machine seldom loses an op on a good wire.
fn nic() -> NicConfigBuilder {
    let timing =
        Timing { dispatch_timeout: Duration::from_millis(50), timeout: Duration::from_millis(30) };
    NicConfigBuilder { timing, ..NicConfigBuilder::default() }
}

fn xdp(seed: u64) -> Setup {
    Setup { seed, udp: false, mode: Mode::Native, ipv6: seed.is_multiple_of(2), nic: nic() }
}

fn reads_over(setup: Setup, count: usize, circumstances: Circumstances) {
    let faults = Faults::drawn(&mut Prng::new(setup.seed), 6);
    eprintln!("seed {}: {faults}", setup.seed);
    let report = reads::run(&Ends::new(setup), count, &faults, circumstances);
    eprintln!("seed {}: {report}", setup.seed);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn reads_over_xdp_are_right_or_fail_for_a_reason() {
    seeds::run("reads_over_xdp_are_right_or_fail_for_a_reason", 4, |seed| {
        reads_over(xdp(seed), 2000, Circumstances::default());
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn reads_over_udp_are_right_or_fail_for_a_reason() {
    seeds::run("reads_over_udp_are_right_or_fail_for_a_reason", 2, |seed| {
        reads_over(Setup { udp: true, ..xdp(seed) }, 2000, Circumstances::default());
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn reads_between_small_tables_are_right_or_fail_for_a_reason() {
    seeds::run("reads_between_small_tables_are_right_or_fail_for_a_reason", 2, |seed| {
        let nic = NicConfigBuilder { solicitation_window: 8192, inbound_queue: 2, ..nic() };
        let setup = Setup { nic, mode: Mode::Generic, ..xdp(seed) };
        reads_over(setup, 1500, Circumstances { tight: true });
    });
}

/// A1 of the paper's section 4.2.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn attacker_a1_a_process_without_the_key_gets_nothing() {
    seeds::run("attacker_a1_a_process_without_the_key_gets_nothing", 2, |seed| {
        attackers::a1_a_process_without_the_key(&mut Ends::new(xdp(seed)));
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn attacker_a1_gets_nothing_from_a_udp_host_either() {
    seeds::run("attacker_a1_gets_nothing_from_a_udp_host_either", 1, |seed| {
        attackers::a1_a_process_without_the_key(&mut Ends::new(Setup { udp: true, ..xdp(seed) }));
    });
}

/// A2 of the paper's section 4.2.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn attacker_a2_with_full_control_of_the_wire_gets_nothing() {
    seeds::run("attacker_a2_with_full_control_of_the_wire_gets_nothing", 2, |seed| {
        let faults = Faults::drawn(&mut Prng::new(seed), 15);
        attackers::a2_full_control_of_the_wire(&Ends::new(xdp(seed)), 3000, &faults);
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn attacker_a2_gets_nothing_from_udp_hosts_either() {
    seeds::run("attacker_a2_gets_nothing_from_udp_hosts_either", 1, |seed| {
        let faults = Faults::drawn(&mut Prng::new(seed), 15);
        let ends = Ends::new(Setup { udp: true, ..xdp(seed) });
        attackers::a2_full_control_of_the_wire(&ends, 3000, &faults);
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn nothing_is_left_of_a_wire_whose_test_panics() {
    let (names, named) = std::sync::mpsc::channel();
    let panicked = std::panic::catch_unwind(move || {
        let ends = Ends::new(xdp(1));
        ends.wire().set_faults(Faults::drawn(&mut Prng::new(1), 6));
        for end in End::BOTH {
            names.send(ends.lab.netns(end).name().to_owned()).expect("somebody listens");
        }
        panic!("a test has found something");
    });
    assert!(panicked.is_err());
    let left = std::fs::read_dir("/run/netns").expect("namespaces were made here");
    let left: Vec<_> = left.map(|entry| entry.expect("a name").file_name()).collect();
    let names: Vec<String> = named.iter().collect();
    assert_eq!(names.len(), 2);
    assert!(names.iter().all(|name| !left.iter().any(|left| left == name.as_str())), "{left:?}");
}
