//! Hosts at the two ends of a wire that loses, delays, repeats, changes and forges frames, on a
//! real kernel.

use core::time::Duration;

use rma_core::{addr::HostAddr, backend::Backend, port::Port};
use rma_lab::{Lab, LabConfig, evidence};
use rma_sim::prng::{Chance, Prng};
use rma_star::config::{STATEFUL_PORT, STATELESS_PORT};
use rma_tests::hostile_wire::{
    attackers,
    faults::{Fault, Faults},
    lab::{End, Ends, Namespaces, Setup},
    recorded::{
        Tickets, Wholes,
        events::{Events, Notify, Send, WriteWithImm},
        swaps::Swaps,
    },
    scenarios::{self, Report},
    seeds,
    star::{attacks as star, changes, hostile_peer, world::World},
    table::{Circumstances, REFUSALS},
};
use rma_xdp::{
    OpType,
    config::{NicConfigBuilder, Timing},
    device::{
        net::{Path, PathTable},
        udp::{UdpBackend, UdpConfig},
        xdp::{Mode, XdpBackend, XdpConfig},
    },
};

/// A timeout that is short, so that losses cost little, and long enough that a busy machine seldom
/// loses an op on a good wire. Tables that lost and forged requests do not fill.
fn nic() -> NicConfigBuilder {
    NicConfigBuilder::default().with(|it| {
        it.timing = Timing::software(Duration::from_micros(10), Duration::from_millis(40));
        it.solicitation_window = 1 << 20;
        it.pending_writes = 256;
    })
}

fn small_tables() -> NicConfigBuilder {
    nic().with(|it| {
        it.solicitation_window = 8192;
        it.inbound_queue = 2;
        it.pending_writes = 2;
    })
}

/// IPv4 and IPv6 in turns.
fn xdp(seed: u64) -> Setup {
    Setup { seed, udp: false, mode: Mode::Native, ipv6: seed.is_multiple_of(2), nic: nic() }
}

fn udp(seed: u64) -> Setup {
    Setup { udp: true, ..xdp(seed) }
}

fn faults(seed: u64) -> Faults {
    Faults::drawn(&mut Prng::new(seed), 6)
}

/// Says what is done before, and how it went after.
fn show(seed: u64, faults: Faults, run: impl FnOnce(&Faults) -> Report) {
    eprintln!("seed {seed}: {faults}");
    eprintln!("{}", run(&faults));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn reads_over_xdp_are_right_or_fail_for_a_reason() {
    seeds::run("reads_over_xdp_are_right_or_fail_for_a_reason", 3, |seed| {
        show(seed, faults(seed), |faults| {
            let ends = Ends::new(xdp(seed));
            scenarios::one_type(&ends, OpType::Read, 2000, faults, Circumstances::default())
        });
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn writes_over_xdp_are_right_or_fail_for_a_reason() {
    seeds::run("writes_over_xdp_are_right_or_fail_for_a_reason", 3, |seed| {
        show(seed, faults(seed), |faults| {
            let ends = Ends::new(xdp(seed));
            scenarios::one_type(&ends, OpType::Write, 1500, faults, Circumstances::default())
        });
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn reads_and_writes_over_udp_are_right_or_fail_for_a_reason() {
    seeds::run("reads_and_writes_over_udp_are_right_or_fail_for_a_reason", 2, |seed| {
        show(seed, faults(seed), |faults| {
            scenarios::both_types(&Ends::new(udp(seed)), 1500, faults)
        });
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn ops_that_find_small_tables_are_right_or_fail_for_a_reason() {
    seeds::run("ops_that_find_small_tables_are_right_or_fail_for_a_reason", 2, |seed| {
        let setup = Setup { nic: small_tables(), mode: Mode::Generic, ..xdp(seed) };
        let op_type = [OpType::Read, OpType::Write][seed as usize % 2];
        let tight = Circumstances { tight: true, ..Circumstances::default() };
        show(seed, faults(seed), |faults| {
            scenarios::one_type(&Ends::new(setup), op_type, 1000, faults, tight)
        });
    });
}

//= channels#2.4-once
//= type=test
#[test]
#[ignore = "needs root: cargo xtask test"]
fn every_fetch_add_is_applied_once_or_known_not_to_be() {
    seeds::run("every_fetch_add_is_applied_once_or_known_not_to_be", 2, |seed| {
        show(seed, faults(seed), |faults| {
            scenarios::all_or_nothing::<Tickets>(&Ends::new(xdp(seed)), 2000, faults)
        });
    });
}

//= channels#2.1-all-or-nothing
//= type=test
#[test]
#[ignore = "needs root: cargo xtask test"]
fn every_ordered_write_is_there_in_whole_or_not_at_all() {
    seeds::run("every_ordered_write_is_there_in_whole_or_not_at_all", 2, |seed| {
        show(seed, faults(seed), |faults| {
            let setup = if seed.is_multiple_of(2) { udp(seed) } else { xdp(seed) };
            scenarios::all_or_nothing::<Wholes>(&Ends::new(setup), 1500, faults)
        });
    });
}

//= channels#2.4-once
//= type=test
#[test]
#[ignore = "needs root: cargo xtask test"]
fn every_compare_swap_is_a_link_of_the_chain_of_its_word_or_known_not_to_be() {
    let name = "every_compare_swap_is_a_link_of_the_chain_of_its_word_or_known_not_to_be";
    seeds::run(name, 2, |seed| {
        show(seed, faults(seed), |faults| {
            let setup = if seed.is_multiple_of(2) { udp(seed) } else { xdp(seed) };
            scenarios::all_or_nothing::<Swaps>(&Ends::new(setup), 1500, faults)
        });
    });
}

//= channels#2.2-one-receive-each
//= type=test
//= channels#2.2-sender-is-known
//= type=test
//= channels#P7-once
//= type=test
#[test]
#[ignore = "needs root: cargo xtask test"]
fn every_message_is_delivered_once_and_whole_or_known_not_to_be() {
    let name = "every_message_is_delivered_once_and_whole_or_known_not_to_be";
    seeds::run(name, 3, |seed| {
        show(seed, faults(seed), |faults| {
            let ends = Ends::new(xdp(seed));
            scenarios::all_or_nothing::<Events<Send>>(&ends, 2000, faults)
        });
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn every_message_over_udp_is_delivered_once_and_whole_or_known_not_to_be() {
    let name = "every_message_over_udp_is_delivered_once_and_whole_or_known_not_to_be";
    seeds::run(name, 1, |seed| {
        show(seed, faults(seed), |faults| {
            let ends = Ends::new(udp(seed));
            scenarios::all_or_nothing::<Events<Send>>(&ends, 1500, faults)
        });
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn every_notification_is_one_event_or_known_to_be_none() {
    seeds::run("every_notification_is_one_event_or_known_to_be_none", 2, |seed| {
        show(seed, faults(seed), |faults| {
            let setup = if seed.is_multiple_of(2) { xdp(seed) } else { udp(seed) };
            scenarios::all_or_nothing::<Events<Notify>>(&Ends::new(setup), 1500, faults)
        });
    });
}

//= channels#2.2-applied-by-publishing
//= type=test
#[test]
#[ignore = "needs root: cargo xtask test"]
fn every_event_of_a_write_comes_once_and_after_its_bytes_or_never() {
    seeds::run("every_event_of_a_write_comes_once_and_after_its_bytes_or_never", 2, |seed| {
        show(seed, faults(seed), |faults| {
            let setup = if seed.is_multiple_of(2) { udp(seed) } else { xdp(seed) };
            scenarios::all_or_nothing::<Events<WriteWithImm>>(&Ends::new(setup), 1500, faults)
        });
    });
}

/// An attacker who replays others' frames, as often as they send, has no key.
//= channels#P13-no-starvation
//= type=test
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_flood_of_replays_holds_up_no_recorded_op_for_good_and_applies_none_again() {
    let name = "a_flood_of_replays_holds_up_no_recorded_op_for_good_and_applies_none_again";
    seeds::run(name, 2, |seed| {
        // Some are lost, so that there is something to ask about.
        let faults = Faults::NONE
            .with(Fault::Replay, Chance::ppm(500_000))
            .with(Fault::Duplicate, Chance::ppm(100_000))
            .with(Fault::Drop, Chance::ppm(50_000));
        show(seed, faults, |faults| {
            let ends = Ends::new(xdp(seed));
            if seed.is_multiple_of(2) {
                scenarios::all_or_nothing::<Events<Send>>(&ends, 2000, faults)
            } else {
                scenarios::all_or_nothing::<Tickets>(&ends, 2000, faults)
            }
        });
    });
}

/// Nothing on this wire excuses REMOTE_AUTHENTICATION_FAILURE but the rotation itself.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_rekey_in_mid_run_fails_ops_of_its_region_alone_and_what_was_before_does_nothing() {
    let name = "a_rekey_in_mid_run_fails_ops_of_its_region_alone_and_what_was_before_does_nothing";
    seeds::run(name, 2, |seed| {
        let without = |faults: Faults, fault| faults.with(fault, Chance::NEVER);
        let faults = REFUSALS.into_iter().fold(faults(seed), without);
        show(seed, faults, |faults| scenarios::rekeys(&Ends::new(xdp(seed)), 30, faults));
    });
}

/// As above, of words and queues.
//= channels#P11-rekey
//= type=test
#[test]
#[ignore = "needs root: cargo xtask test"]
fn recorded_ops_whose_key_changes_are_not_applied_and_asked_about_under_the_next() {
    let name = "recorded_ops_whose_key_changes_are_not_applied_and_asked_about_under_the_next";
    seeds::run(name, 3, |seed| {
        let without = |faults: Faults, fault| faults.with(fault, Chance::NEVER);
        let faults = REFUSALS.into_iter().fold(faults(seed), without);
        show(seed, faults, |faults| {
            let ends = Ends::new(xdp(seed));
            match seed % 3 {
                0 => scenarios::recorded_rekeys::<Tickets>(&ends, 30, faults),
                1 => scenarios::recorded_rekeys::<Events<Send>>(&ends, 30, faults),
                _ => scenarios::recorded_rekeys::<Events<WriteWithImm>>(&ends, 30, faults),
            }
        });
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_rekey_among_forged_frames_happens_at_once_or_never() {
    seeds::run("a_rekey_among_forged_frames_happens_at_once_or_never", 2, |seed| {
        show(seed, faults(seed), |faults| {
            let setup = if seed.is_multiple_of(2) { udp(seed) } else { xdp(seed) };
            scenarios::rekeys(&Ends::new(setup), 30, faults)
        });
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn hosts_that_restart_in_mid_run_are_not_moved_by_old_frames() {
    seeds::run("hosts_that_restart_in_mid_run_are_not_moved_by_old_frames", 2, |seed| {
        show(seed, faults(seed), |faults| {
            scenarios::restarts(&mut Ends::new(xdp(seed)), 5, faults)
        });
    });
}

/// A1 of the paper's section 4.2.
//= 1rma#4.2-attacker-without-key
//= type=test
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
        attackers::a1_a_process_without_the_key(&mut Ends::new(udp(seed)));
    });
}

/// A2 of the paper's section 4.2.
//= 1rma#4.2-attacker-on-the-wire
//= type=test
//= channels#P6-authentic-first
//= type=test
#[test]
#[ignore = "needs root: cargo xtask test"]
fn attacker_a2_with_full_control_of_the_wire_gets_nothing() {
    seeds::run("attacker_a2_with_full_control_of_the_wire_gets_nothing", 2, |seed| {
        let faults = Faults::drawn(&mut Prng::new(seed), 12);
        attackers::a2_full_control_of_the_wire(&Ends::new(xdp(seed)), 1000, &faults);
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn attacker_a2_gets_nothing_from_udp_hosts_either() {
    seeds::run("attacker_a2_gets_nothing_from_udp_hosts_either", 1, |seed| {
        let faults = Faults::drawn(&mut Prng::new(seed), 12);
        attackers::a2_full_control_of_the_wire(&Ends::new(udp(seed)), 1000, &faults);
    });
}

/// Every attack on StaR, one after the other.
fn attack_star<B: Backend>(addresses: [HostAddr; 2], open: impl Fn(&Namespaces, End) -> B) {
    let mut world = World::new(addresses, open);
    let mut prng = Prng::new(7);
    let bits = star::each_bit(&mut world);
    let keyless = star::no_keys(&mut world, &mut prng);
    let keyed = hostile_peer::real_keys(&mut world);
    let again = star::each_frame_again(&mut world);
    let floods = star::floods(&mut world, &mut prng);
    evidence::show(format_args!(
        "StaR on a hostile wire: {bits} frames with a bit changed, {keyless} others without keys, \
         {keyed} under real keys, {again} again, {floods} in floods"
    ));
    let changes::Done { changes, again, lost } = changes::changes_of_roles(&mut world);
    evidence::show(format_args!(
        "StaR on a hostile wire: {changes} changes of roles, {again} packets again, {lost} lost"
    ));
}

const STAR_PORTS: [Port; 2] = [STATELESS_PORT, STATEFUL_PORT];

#[test]
#[ignore = "needs root: cargo xtask test"]
fn nothing_moves_star_over_udp_but_what_it_was_meant_for() {
    let addresses = [Lab::A_V4, Lab::B_V4].map(HostAddr::from);
    attack_star(addresses, |namespaces, end| {
        let _inside = namespaces.host(end).enter().expect("a namespace");
        let mut config = UdpConfig::new(vec![addresses[end as usize]], &STAR_PORTS);
        // A packet that the kernel sends as one is longer than the wire between them carries.
        config.batching.gso = false;
        UdpBackend::open(&config).expect("sockets")
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn nothing_moves_star_over_xdp_but_what_it_was_meant_for() {
    let addresses = [Lab::A_V6, Lab::B_V6].map(HostAddr::from);
    attack_star(addresses, |namespaces, end| {
        let [near, far] = [end, end.other()];
        let mac = |end| namespaces.host(end).interface_mac(Lab::INTERFACE).expect("an interface");
        let mtu = LabConfig::default().mtu;
        let path = Path { source_mac: mac(near), next_hop_mac: mac(far), mtu };
        let paths = PathTable::fixed(mtu, &[(addresses[far as usize], path)]).expect("one path");
        let _inside = namespaces.host(near).enter().expect("a namespace");
        let own = [addresses[near as usize]];
        XdpBackend::open(&XdpConfig::new(Lab::INTERFACE, &STAR_PORTS, &own), paths)
            .expect("sockets")
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn nothing_is_left_of_a_wire_whose_test_panics() {
    let (names, named) = std::sync::mpsc::channel();
    let panicked = std::panic::catch_unwind(move || {
        let ends = Ends::new(xdp(1));
        ends.wire().set_faults(faults(1));
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
