//! The scenarios over kernel UDP sockets on loopback, regions over memory that others have,
//! circular ones, several applications on one host, and StaR beside 1RMA. No privileges needed.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod circular;
mod messages;
mod region_memory;
mod star;
mod star_futures;
mod tenants;

use rma_core::port::Port;
use rma_tests::{
    hosts::{self, Hosts, Loopback},
    scenario, services,
    star::{everything_of_star, roles::a_full_table_keeps_roles_as_they_are},
};
use rma_xdp::{
    Host, HostConfig, HostError, InlineHost, OpStatus, OpType, Permissions,
    config::NicConfigBuilder,
    device::udp::{UdpBackend, UdpConfig},
};

#[test]
fn everything_holds_over_udp() {
    scenario::everything(&mut Hosts::over_udp(NicConfigBuilder::default()));
}

#[test]
fn everything_of_star_holds_over_udp() {
    let hosts = Hosts::over_udp_with_star(hosts::star());
    everything_of_star([&hosts.client, hosts.server()]);
}

#[test]
fn a_full_table_keeps_roles_as_they_are_over_udp() {
    let hosts = Hosts::over_udp_with_star(hosts::star_with_a_small_table());
    a_full_table_keeps_roles_as_they_are([&hosts.client, hosts.server()]);
}

#[test]
fn everything_of_star_holds_within_one_host_over_ipv6() {
    let open = || {
        let ports = [(); 3].map(|()| Loopback::unused().port);
        Host::open(HostConfig::udp(std::net::Ipv6Addr::LOCALHOST).with(|it| {
            it.star = Some(hosts::star());
            [it.port, it.stateless_port, it.stateful_port] = ports;
        }))
    };
    // There is one such address, for all processes of this machine.
    let host = (0..99).find_map(|_| open().ok()).unwrap_or_else(|| open().unwrap());
    everything_of_star([&host, &host]);
}

#[test]
fn an_echo_beside_1rma_answers_while_reads_go_on() {
    let [Loopback { addresses, port }, Loopback { port: echo, .. }] =
        [(); 2].map(|()| Loopback::unused());
    let ports = [port, echo].map(Port);
    let backends = addresses.map(|it| UdpBackend::open(&UdpConfig::new(vec![it], &ports)).unwrap());
    services::an_echo_beside_1rma(backends, addresses, ports);
}

#[test]
fn everything_holds_with_a_solicitation_window_of_one_op() {
    let nic = NicConfigBuilder::default().with(|it| it.solicitation_window = 4096);
    let hosts = Hosts::over_udp(nic);
    scenario::reads_of_every_kind_of_size_arrive(&hosts);
    scenario::several_threads_each_with_a_portal(&hosts);
}

#[test]
fn a_host_reads_from_itself_over_ipv6() {
    let addr = std::net::Ipv6Addr::LOCALHOST;
    // There is one such address, for all processes of this machine.
    let open = || {
        let port = Loopback::unused().port;
        InlineHost::open(HostConfig::udp(addr).with(|it| it.port = port))
    };
    let mut host = (0..99).find_map(|_| open().ok()).unwrap_or_else(|| open().unwrap());
    let region = host.register(5000, Permissions::READ).unwrap();
    region.write(904, &[9; 4096]).unwrap();
    let grant = host.grant(&region, addr.into(), host.pid(), OpType::Read).unwrap();
    let sink = host.register(4096, Permissions::NONE).unwrap();
    let mut portal = host.portal(1).unwrap();
    portal.read(&grant, 904, &sink, 0, 4096).unwrap();
    assert_eq!(host.wait(&mut portal).unwrap().status, OpStatus::Ok);
    let mut bytes = [0; 4096];
    sink.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [9; 4096]);
    assert_eq!(host.wait(&mut portal), Err(rma_xdp::WaitError::NothingOutstanding));
}

#[test]
fn waiting_with_another_host_is_refused_and_does_not_hang() {
    let Loopback { addresses: [here, there], port } = Loopback::unused();
    let open = |address| InlineHost::open(HostConfig::udp(address).with(|it| it.port = port));
    let (mut owner, mut other) = (open(here).unwrap(), open(there).unwrap());
    let region = owner.register(64, Permissions::READ).unwrap();
    let grant = owner.grant(&region, here, owner.pid(), OpType::Read).unwrap();
    let mut portal = owner.portal(1).unwrap();
    portal.read(&grant, 0, &region, 0, 64).unwrap();
    assert_eq!(other.wait(&mut portal), Err(rma_xdp::WaitError::AnotherHost));
    assert_eq!(owner.wait(&mut portal).unwrap().status, OpStatus::Ok);
}

#[test]
fn a_port_in_use_by_another_instance_is_named() {
    let Loopback { addresses: [address, _], port } = Loopback::unused();
    let config = HostConfig::udp(address).with(|it| it.port = port);
    let _first = Host::open(config.clone()).unwrap();
    let error = Host::open(config.clone()).unwrap_err();
    assert!(matches!(error, HostError::Udp(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&config.port.to_string()) && text.contains("in use"), "{text}");
}

#[test]
fn configurations_that_cannot_work_are_refused_with_their_values() {
    let Loopback { addresses: [address, second], port } = Loopback::unused();
    let refused = |change: &dyn Fn(&mut HostConfig)| {
        let mut config = HostConfig::udp(address).with(|it| it.port = port);
        change(&mut config);
        Host::open(config).unwrap_err().to_string()
    };
    let two = refused(&|c| c.addresses.push(second));
    assert!(two.contains(&format!("{address} and {second}")), "{two}");
    let elsewhere = refused(&|c| c.addresses = vec![[192, 0, 2, 77].into()]);
    assert!(elsewhere.contains("192.0.2.77"), "{elsewhere}");
    let wildcard = refused(&|c| c.addresses = vec![[0, 0, 0, 0].into()]);
    assert!(wildcard.contains("0.0.0.0"), "{wildcard}");
    let none = refused(&|c| c.addresses.clear());
    assert!(none.contains("address"), "{none}");
    let core = refused(&|c| c.cores = vec![9999]);
    assert!(core.contains("core 9999"), "{core}");
    let window = refused(&|c| c.nic.solicitation_window = 4095);
    assert!(window.contains("4095"), "{window}");
    let slots = refused(&|c| c.nic.command_slots = 0);
    assert!(slots.contains("`command_slots` is 0"), "{slots}");
}

#[test]
fn a_region_of_another_host_is_not_taken_for_ones_own() {
    let hosts = Hosts::over_udp(NicConfigBuilder::default());
    let here = hosts.client.register(64, Permissions::READ).unwrap();
    let there = hosts.server().register(64, Permissions::READ).unwrap();
    assert_eq!(here.id(), there.id(), "the names alone do not tell");
    assert!(
        hosts.client.grant(&there, hosts.server_addr, hosts.client.pid(), OpType::Read).is_err()
    );
    assert!(hosts.client.deregister(&there).is_err());
    let grant =
        hosts.server().grant(&there, hosts.client_addr, hosts.client.pid(), OpType::Read).unwrap();
    let mut portal = hosts.client.portal(1).unwrap();
    let refused = portal.read(&grant, 0, &there, 0, 1);
    assert!(matches!(refused, Err(rma_xdp::SubmitError::RegionOfAnotherHost { .. })));
    portal.read(&grant, 0, &here, 0, 1).unwrap();
    assert_eq!(portal.wait().unwrap().status, OpStatus::Ok);
}
