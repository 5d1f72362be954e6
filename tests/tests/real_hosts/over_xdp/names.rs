//! By which name an interface is opened, and with which addresses; and what becomes of a host whose
//! interface is renamed: the interface is the one that it was, whatever it is called.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use rma_lab::{Lab, LabConfig, Netns};
use rma_tests::hosts::{Hosts, Setup};
use rma_xdp::{
    Host, HostAddr, HostConfig, HostError,
    device::{InterfaceState, xdp::Mode},
};

use super::{
    interface_lost::{Scene, wait_attachments, wait_state},
    modes::assert_given_up,
};

fn rename(netns: &Netns, from: &str, to: &str) {
    netns.ip(&["link", "set", "dev", from, "name", to]).unwrap();
}

/// Makes the pair of a lab again, whose end in `b` has another name.
fn link_as(lab: &Lab, name_in_b: &str) {
    let [a, b] = [lab.a(), lab.b()];
    let peer = ["peer", "name", Lab::INTERFACE, "netns", a.name()];
    b.ip(&[&["link", "add", name_in_b, "type", "veth"][..], &peer].concat()).unwrap();
    let ends = [(a, Lab::INTERFACE, Lab::A_V4, Lab::A_V6), (b, name_in_b, Lab::B_V4, Lab::B_V6)];
    for (netns, name, v4, v6) in ends {
        let (v4, v6) = (format!("{v4}/{}", Lab::V4_PREFIX), format!("{v6}/{}", Lab::V6_PREFIX));
        netns.ip(&["addr", "add", &v4, "dev", name]).unwrap();
        netns.ip(&["addr", "add", &v6, "dev", name, "nodad"]).unwrap();
        netns.ip(&["link", "set", "dev", name, "up"]).unwrap();
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_mode_is_given_up_on_an_interface_that_was_renamed_and_whose_name_another_has() {
    let hosts = Hosts::in_lab(&Setup { mode: Mode::Auto, ..Setup::default() });
    let b = hosts.lab.as_ref().unwrap().b();
    rename(b, Lab::INTERFACE, "rail0");
    b.ip(&["link", "add", Lab::INTERFACE, "type", "bridge"]).unwrap();
    assert_given_up(&hosts, 4000, || ());
    let interface = hosts.server().interface().unwrap();
    assert_eq!(&*interface.interface, "rail0");
    assert!(interface.device.starts_with("AF_XDP on rail0: native"), "{}", interface.device);
    Scene::new(&hosts).assert_works_again();
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_renamed_interface_that_is_made_again_under_either_name_is_used_again() {
    let hosts = Hosts::in_lab(&Setup::default());
    let (lab, server) = (hosts.lab.as_ref().unwrap(), hosts.server());
    let mut scene = Scene::new(&hosts);
    rename(lab.b(), Lab::INTERFACE, "rail0");
    scene.assert_works_again();
    // By its last name, and then by the one that it was opened by.
    for (attachments, name) in [(2, "rail0"), (3, "rail0"), (4, Lab::INTERFACE)] {
        lab.a().ip(&["link", "del", "dev", Lab::INTERFACE]).unwrap();
        wait_state(server, InterfaceState::Gone);
        link_as(lab, name);
        wait_attachments(server, attachments);
        assert_eq!(&*server.interface().unwrap().interface, name);
        scene.assert_works_again();
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn every_name_that_an_interface_has_opens_it() {
    let lab = Lab::new(&LabConfig::default()).unwrap();
    // As long as a first name may be, and as long as another may be.
    let (longest, also) = ("fifteen-letters", "x".repeat(127));
    rename(lab.b(), Lab::INTERFACE, longest);
    for name in ["short", &also] {
        lab.b().ip(&["link", "property", "add", "dev", longest, "altname", name]).unwrap();
    }
    for name in [longest, "short", &also] {
        let _inside = lab.b().enter().unwrap();
        let host = Host::open(HostConfig::xdp(name)).unwrap();
        assert_eq!(&*host.interface().unwrap().interface, longest);
        let told = format!("AF_XDP on {longest}: ");
        assert!(host.info().to_string().starts_with(&told), "{}", host.info());
    }
}

fn open_at(netns: &Netns, addresses: &[HostAddr]) -> Result<Host, HostError> {
    let _inside = netns.enter().unwrap();
    Host::open(HostConfig::xdp(Lab::INTERFACE).with(|it| it.addresses = addresses.to_vec()))
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn addresses_that_frames_do_not_come_in_for_are_refused_with_the_next_step() {
    let lab = Lab::new(&LabConfig::default()).unwrap();
    let a = lab.a();
    a.ip(&["link", "add", "mgmt0", "type", "veth", "peer", "name", "mgmt1"]).unwrap();
    let address = |address: &str, interface: &str| {
        a.ip(&["addr", "add", address, "dev", interface, "nodad"]).unwrap();
    };
    address("198.51.100.1/24", "mgmt0");
    address("2001:db8:1::1/64", "mgmt0");
    let refusal = |address: &str| {
        open_at(a, &[address.parse().unwrap()]).map(|_| address.to_owned()).unwrap_err().to_string()
    };
    for loopback in ["127.0.0.1", "127.1.2.3", "::1"] {
        let text = refusal(loopback);
        assert!(text.contains(&format!("{loopback} is a loopback address")), "{text}");
        assert!(text.contains("`ip addr show dev rma0`"), "{text}");
    }
    for elsewhere in ["198.51.100.1", "2001:db8:1::1"] {
        let text = refusal(elsewhere);
        let said = format!("{elsewhere} is an address of interface mgmt0, and frames to it");
        assert!(text.starts_with(&said) && text.contains("open mgmt0"), "{text}");
    }
    // Services have addresses that are the machine's, or on top of the interface.
    a.ip(&["link", "add", "service0", "type", "ifb"]).unwrap();
    let on_top = ["link", "add", "link", Lab::INTERFACE, "name", "router0", "type", "macvlan"];
    a.ip(&on_top).unwrap();
    for (ours, interface) in
        [("203.0.113.1", "lo"), ("203.0.113.2", "service0"), ("203.0.113.3", "router0")]
    {
        address(&format!("{ours}/32"), interface);
        a.ip(&["link", "set", "dev", interface, "up"]).unwrap();
        open_at(a, &[ours.parse().unwrap()]).unwrap();
    }
    // The address that both have is here as well.
    address("198.51.100.1/32", Lab::INTERFACE);
    open_at(a, &["198.51.100.1".parse().unwrap()]).unwrap();
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_port_without_an_address_names_the_bridge_that_has_it() {
    let lab = Lab::new(&LabConfig { ipv4: false, ipv6: false, ..LabConfig::default() }).unwrap();
    let a = lab.a();
    let text = open_at(a, &[]).map(drop).unwrap_err().to_string();
    assert!(text.contains("ip addr add ADDRESS/PREFIX dev rma0"), "{text}");
    a.ip(&["link", "add", "bridge0", "type", "bridge"]).unwrap();
    a.ip(&["link", "set", "dev", Lab::INTERFACE, "master", "bridge0"]).unwrap();
    a.ip(&["addr", "add", "192.0.2.1/24", "dev", "bridge0"]).unwrap();
    a.ip(&["link", "set", "dev", "bridge0", "up"]).unwrap();
    let text = open_at(a, &[]).map(drop).unwrap_err().to_string();
    let told =
        "interface rma0 has no address of its own, as a port of bridge0, which has 192.0.2.1";
    assert!(text.starts_with(told) && text.ends_with(": open bridge0"), "{text}");
    let _inside = a.enter().unwrap();
    Host::open(HostConfig::xdp("bridge0")).unwrap();
}
