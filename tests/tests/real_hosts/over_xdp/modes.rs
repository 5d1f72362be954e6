//! In which mode the steering program runs: the one that is chosen, the one that is asked for, one
//! at each end; and what a host does when frames get lost for the mode that it chose.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use core::time::Duration;
use std::net::UdpSocket;

use rma_lab::Lab;
use rma_tests::{
    hosts::{Hosts, Setup},
    scenario,
};
use rma_xdp::{
    Host, OpStatus, OpType,
    config::{DEFAULT_PORT, NicConfigBuilder, Timing},
    device::{
        DeviceInfo,
        xdp::{AttachMode, Mode, ModeReason},
    },
};

use super::{
    interface_lost::{Scene, wait_attachments, wait_for},
    run,
};

fn chosen(mode: Mode) -> Setup {
    Setup { mode, ..Setup::default() }
}

/// The mode that a host was opened in.
fn mode(host: &Host) -> (AttachMode, ModeReason) {
    let DeviceInfo::Xdp(xdp) = host.info() else { panic!("{}", host.info()) };
    (xdp.mode, xdp.mode_reason)
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn generic_mode_is_chosen_on_veth_and_the_reason_is_told() {
    let mut hosts = Hosts::in_lab(&chosen(Mode::Auto));
    for host in [&hosts.client, hosts.server()] {
        assert_eq!(mode(host), (AttachMode::Generic, ModeReason::FasterOnVeth));
        let told = "AF_XDP on rma0: generic (faster on veth), copy, 1 queue(s), MTU 1500";
        assert_eq!(host.info().to_string(), told);
        assert_eq!(&*host.interface().unwrap().device, told);
        assert_eq!(&*host.metrics().device.description, told);
        // The mode is no makeshift.
        assert_eq!(host.fallbacks(), ["copy mode instead of zero-copy: generic XDP has none"]);
    }
    scenario::everything(&mut hosts);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_requested_mode_is_attached() {
    for (wanted, attached) in
        [(Mode::Native, AttachMode::Native), (Mode::Generic, AttachMode::Generic)]
    {
        let hosts = Hosts::in_lab(&chosen(wanted));
        for host in [&hosts.client, hosts.server()] {
            assert_eq!(mode(host), (attached, ModeReason::AskedFor));
            assert!(host.info().to_string().contains("(as asked for)"), "{}", host.info());
        }
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn hosts_of_different_modes_understand_each_other() {
    for (client, server) in [(Mode::Native, Mode::Generic), (Mode::Generic, Mode::Native)] {
        run(&Setup { client_mode: Some(client), ..chosen(server) });
    }
}

/// Sends datagrams of `len` bytes to the server's port, from a socket of the client's kernel, until
/// the server has changed its mode, and does `beside` after each; looks what it says of it.
pub(super) fn assert_given_up(hosts: &Hosts, len: usize, mut beside: impl FnMut()) {
    let sender = {
        let _inside = hosts.lab.as_ref().unwrap().a().enter().unwrap();
        UdpSocket::bind((Lab::A_V4, 0)).unwrap()
    };
    let server = hosts.server();
    assert_eq!(mode(server), (AttachMode::Generic, ModeReason::FasterOnVeth));
    let datagram = vec![0; len];
    wait_for("another mode", || {
        sender.send_to(&datagram, (Lab::B_V4, DEFAULT_PORT)).unwrap();
        beside();
        server.interface().unwrap().device.contains(": native ").then_some(())
    });
    wait_attachments(server, 2);
    let device = server.interface().unwrap().device;
    assert!(device.contains("native (in generic mode frames were lost)"), "{device}");
}

/// As packets of several datagrams are, which only native mode has cut apart.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn generic_mode_is_given_up_when_packets_come_that_no_chunk_holds() {
    let mut hosts = Hosts::in_lab(&chosen(Mode::Auto));
    let set_mtu = |hosts: &Hosts, mtu| {
        let lab = hosts.lab.as_ref().unwrap();
        for end in [lab.a(), lab.b()] {
            end.set_mtu(Lab::INTERFACE, mtu).unwrap();
        }
    };
    set_mtu(&hosts, 9000);
    assert_given_up(&hosts, 5000, || ());
    set_mtu(&hosts, 1500);
    scenario::everything(&mut hosts);
}

/// As packets do that somebody redirects. These are in fragments.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn generic_mode_is_given_up_when_frames_pass_by_the_program() {
    let mut hosts = Hosts::in_lab(&chosen(Mode::Auto));
    assert_given_up(&hosts, 4000, || ());
    // It stays so, and an interface that comes back is another.
    assert_eq!(mode(&hosts.client), (AttachMode::Generic, ModeReason::FasterOnVeth));
    let lab = hosts.lab.as_ref().unwrap();
    lab.a().ip(&["link", "del", "dev", Lab::INTERFACE]).unwrap();
    lab.link(&rma_lab::LabConfig::default()).unwrap();
    wait_attachments(hosts.server(), 3);
    wait_attachments(&hosts.client, 2);
    for host in [&hosts.client, hosts.server()] {
        let device = host.interface().unwrap().device;
        assert!(device.contains("generic (faster on veth)"), "{device}");
    }
    hosts.client.resolve(hosts.server_addr).unwrap();
    hosts.server().resolve(hosts.client_addr).unwrap();
    scenario::everything(&mut hosts);
}

/// The server is attached anew while it is asked for as much as the client's slots hold.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn ops_under_way_when_generic_mode_is_given_up_end_in_time_and_later_ones_succeed() {
    let timing = Timing::software(Duration::from_micros(10), Duration::from_secs(1));
    let nic = NicConfigBuilder::default().with(|it| it.timing = timing);
    let hosts = Hosts::in_lab(&Setup { nic, ..chosen(Mode::Auto) });
    let mut scene = Scene::new(&hosts);
    scene.assert_works_again();
    let mut ended = Vec::new();
    assert_given_up(&hosts, 4000, || {
        let issued = scene.issue_all();
        assert_eq!(issued, 8, "no slot is kept");
        ended.extend(scene.take_all(issued));
    });
    let as_they_may = |&status| matches!(status, OpStatus::Ok | OpStatus::Timeout);
    assert!(ended.iter().all(as_they_may), "{ended:?}");
    assert!(ended.contains(&OpStatus::Ok));
    // P1, and as much again for an engine that does not run.
    let bound = timing.bound(OpType::Write);
    assert!(scene.slowest <= 2 * bound, "{:?} of {bound:?}", scene.slowest);
    scene.assert_works_again();
}
