//! The scenarios over AF_XDP on a veth pair, in every mode and between both kinds of host, those of
//! messages and atomics among them; keys by name; and what only such a host meets: an interface
//! that goes away, is renamed, is in use or gets more queues, a mode that is chosen, capabilities
//! that are missing, a peer to whom no way is known, and queues that a patch panel picks.

mod capabilities;
mod captures;
mod channels;
mod engines;
mod first_op;
mod interface_lost;
mod jumbo;
mod keys;
mod messages;
mod modes;
mod names;
mod occupied;
mod patch_panel;
mod queues;
mod stale_grants;
use rma_core::port::Port;
use rma_lab::{Lab, LabConfig};
use rma_tests::{
    hosts::{self, Hosts, Setup},
    scenario, services,
    star::{everything_of_star, roles::a_full_table_keeps_roles_as_they_are},
};
use rma_xdp::{
    HostAddr,
    device::{
        Engines,
        net::{Path, PathTable},
        xdp::{Mode, XdpBackend, XdpConfig},
    },
};

fn run(setup: &Setup) {
    scenario::everything(&mut Hosts::in_lab(setup));
}

fn run_in_both_modes(setup: &Setup) {
    for mode in [Mode::Native, Mode::Generic] {
        run(&Setup { mode, ..setup.clone() });
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn everything_holds_in_native_mode_at_mtu_1500() {
    run(&Setup::default());
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn everything_holds_in_generic_mode_over_ipv6() {
    run(&Setup { mode: Mode::Generic, ipv6: true, ..Setup::default() });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn everything_holds_at_mtu_3400_over_ipv6() {
    let lab = LabConfig { mtu: 3400, ..LabConfig::default() };
    run(&Setup { lab, ipv6: true, ..Setup::default() });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn everything_holds_with_jumbo_frames_in_several_buffers() {
    let lab = LabConfig { mtu: 9000, ..LabConfig::default() };
    run_in_both_modes(&Setup { lab, ..Setup::default() });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn everything_holds_on_an_interface_with_several_queues() {
    let lab = LabConfig { queues: 2, ..LabConfig::default() };
    run_in_both_modes(&Setup { lab, ..Setup::default() });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn everything_holds_between_hosts_of_several_engines() {
    let lab = LabConfig { queues: 4, ..LabConfig::default() };
    for engines in [[2, 2], [4, 3]] {
        run(&Setup { lab, engines: engines.map(Engines::Count), ..Setup::default() });
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_host_of_several_engines_and_one_over_udp_serve_each_other() {
    let lab = LabConfig { queues: 2, ..LabConfig::default() };
    for (udp, engines) in [((true, false), [1, 2]), ((false, true), [2, 1])] {
        run(&Setup { lab, udp, engines: engines.map(Engines::Count), ..Setup::default() });
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_udp_host_reads_from_an_xdp_host() {
    run_in_both_modes(&Setup { udp: (true, false), ..Setup::default() });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_xdp_host_reads_from_a_udp_host() {
    run_in_both_modes(&Setup { udp: (false, true), ipv6: true, ..Setup::default() });
}

fn run_star(setup: &Setup) {
    let hosts = Hosts::in_lab(&Setup { star: Some(hosts::star()), ..setup.clone() });
    everything_of_star([&hosts.client, hosts.server()]);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn everything_of_star_holds_in_native_mode() {
    run_star(&Setup::default());
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn everything_of_star_holds_in_generic_mode_over_ipv6() {
    run_star(&Setup { mode: Mode::Generic, ipv6: true, ..Setup::default() });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn everything_of_star_holds_between_hosts_of_several_engines() {
    let lab = LabConfig { queues: 2, ..LabConfig::default() };
    run_star(&Setup { lab, engines: [Engines::Count(2); 2], ..Setup::default() });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_full_table_keeps_roles_as_they_are_in_native_mode() {
    let star = Some(hosts::star_with_a_small_table());
    let hosts = Hosts::in_lab(&Setup { star, ..Setup::default() });
    a_full_table_keeps_roles_as_they_are([&hosts.client, hosts.server()]);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn everything_of_star_holds_between_a_udp_host_and_an_xdp_host() {
    run_star(&Setup { udp: (true, false), ..Setup::default() });
}

/// Generic XDP sees what the kernel would cut apart only later: several frames as one.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_udp_host_sends_an_xdp_host_in_generic_mode_nothing_that_is_too_large_for_it() {
    for udp in [(true, false), (false, true)] {
        run(&Setup { udp, mode: Mode::Generic, ..Setup::default() });
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_echo_beside_1rma_answers_while_reads_go_on() {
    let config = LabConfig::default();
    let lab = Lab::new(&config).unwrap();
    let namespaces = [lab.a(), lab.b()];
    let addresses: [HostAddr; 2] = [Lab::A_V4, Lab::B_V4].map(HostAddr::from);
    let macs = namespaces.map(|it| it.interface_mac(Lab::INTERFACE).unwrap());
    let ports = [Port::ONE_RMA, Port(10_473)];
    let open = |near: usize| {
        let far = 1 - near;
        let path = Path { source_mac: macs[near], next_hop_mac: macs[far], mtu: config.mtu };
        let paths = PathTable::fixed(config.mtu, &[(addresses[far], path)]).unwrap();
        let _inside = namespaces[near].enter().unwrap();
        XdpBackend::open(&XdpConfig::new(Lab::INTERFACE, &ports, &[addresses[near]]), paths)
    };
    let backends = [0, 1].map(|host| open(host).unwrap());
    services::an_echo_beside_1rma(backends, addresses, ports);
}
