//! The addresses of a host, their changes, and the source address of route questions.

#![expect(clippy::unwrap_used, reason = "a test's fixtures fail as the test itself does")]

use std::{thread, time::Duration};

use rma_core::addr::LocalAddresses;
use rma_lab::{Lab, LabConfig, Netns};
use rma_xdp::{
    Host, HostAddr, HostConfig, HostError,
    device::{
        Device, DeviceInfo,
        net::{NetMonitor, PathError},
    },
};
use rustix::time::{ClockId, clock_gettime};

const PATIENCE: Duration = Duration::from_secs(60);

fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = monotonic();
    while !condition() {
        assert!(monotonic() - start < PATIENCE, "not in {PATIENCE:?}: {what}");
        thread::yield_now();
    }
}

fn ip(netns: &Netns, command: &str) {
    netns.ip(&command.split(' ').collect::<Vec<_>>()).unwrap();
}

fn open(netns: &Netns, config: HostConfig) -> Result<Host, HostError> {
    let _inside = netns.enter().unwrap();
    Host::open(config)
}

fn is_there(host: &Host) -> Vec<bool> {
    host.address_status().iter().map(|it| it.is_there).collect()
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_address_that_goes_and_comes_back_is_told() {
    for is_udp in [false, true] {
        for address in [HostAddr::from(Lab::A_V4), Lab::A_V6.into()] {
            let lab = Lab::new(&LabConfig::default()).unwrap();
            let device = if is_udp { Device::udp() } else { Device::xdp(Lab::INTERFACE) };
            let host =
                open(lab.a(), HostConfig::udp(address).with(|it| it.device = device)).unwrap();
            eventually("that it is there", || is_there(&host) == [true]);
            let metric = |value: u8| {
                let mut text = String::new();
                host.metrics().prometheus(&mut text).unwrap();
                text.contains(&format!("rma_address_present{{address=\"{address}\"}} {value}"))
            };
            assert!(metric(1));
            let prefix = if address.is_ipv4() { Lab::V4_PREFIX } else { Lab::V6_PREFIX };
            // The interface keeps another.
            let other = if address.is_ipv4() { "192.0.2.77/24" } else { "fd00::77/64" };
            ip(lab.a(), &format!("addr add {other} dev {} noprefixroute", Lab::INTERFACE));
            ip(lab.a(), &format!("addr del {address}/{prefix} dev {}", Lab::INTERFACE));
            eventually("that it is gone", || is_there(&host) == [false] && metric(0));
            if !is_udp {
                let peer = if address.is_ipv4() { Lab::B_V4.into() } else { Lab::B_V6.into() };
                eventually("that it is told to who asks for a way", || {
                    matches!(
                        host.resolve(peer),
                        Err(HostError::Path(PathError::SourceGone { source_address, .. }))
                            if source_address == address
                    )
                });
            }
            let nodad = if address.is_ipv4() { "" } else { " nodad" };
            ip(lab.a(), &format!("addr add {address}/{prefix} dev {}{nodad}", Lab::INTERFACE));
            eventually("that it is back", || is_there(&host) == [true] && metric(1));
        }
    }
}

/// With two addresses next to each other the route from one to the other is loopback's.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_mtu_of_a_udp_host_is_that_of_the_device_which_has_its_address() {
    let lab = Lab::new(&LabConfig { mtu: 1400, ..LabConfig::default() }).unwrap();
    ip(lab.a(), &format!("addr add 192.0.2.0/24 dev {}", Lab::INTERFACE));
    ip(lab.a(), &format!("addr add 192.0.2.3/24 dev {}", Lab::INTERFACE));
    ip(lab.a(), "addr add 198.51.100.7/32 dev lo");
    for (address, mtu) in [
        (HostAddr::from(Lab::A_V4), 1400),
        (Lab::A_V6.into(), 1400),
        // A service's address, which other devices carry.
        ([198, 51, 100, 7].into(), 1400),
        ([127, 0, 0, 1].into(), 65_536),
    ] {
        let host = open(lab.a(), HostConfig::udp(address)).unwrap();
        let DeviceInfo::Udp(description) = host.info() else { unreachable!() };
        assert_eq!((description.sockets[0].mtu, description.sockets[0].mtu_assumed), (mtu, false));
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_address_that_is_tentative_is_waited_for() {
    for is_udp in [false, true] {
        let lab =
            Lab::new(&LabConfig { ipv4: false, ipv6: false, ..LabConfig::default() }).unwrap();
        lab.a().sysctl("ipv6/conf/rma0/disable_ipv6", "0").unwrap();
        lab.a().sysctl("ipv6/conf/all/accept_dad", "1").unwrap();
        lab.a().sysctl("ipv6/conf/rma0/accept_dad", "1").unwrap();
        lab.a().sysctl("ipv6/conf/rma0/dad_transmits", "2").unwrap();
        ip(lab.a(), &format!("addr add fd00::7/64 dev {}", Lab::INTERFACE));
        let tentative =
            lab.a().ip(&["-6", "addr", "show", "dev", Lab::INTERFACE, "tentative"]).unwrap();
        assert!(tentative.contains("fd00::7"), "{tentative}");
        let address: HostAddr = "fd00::7".parse().unwrap();
        let config =
            if is_udp { HostConfig::udp(address) } else { HostConfig::xdp(Lab::INTERFACE) };
        let host = open(lab.a(), config).unwrap();
        assert!(host.addresses().contains(address));
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_interface_with_a_link_local_address_alone_is_told_what_to_say() {
    let lab = Lab::new(&LabConfig { ipv4: false, ..LabConfig::default() }).unwrap();
    ip(lab.a(), &format!("addr del {}/64 dev {}", Lab::A_V6, Lab::INTERFACE));
    let error = open(lab.a(), HostConfig::xdp(Lab::INTERFACE)).unwrap_err();
    let HostError::LinkLocalAlone { address, .. } = &error else { panic!("{error}") };
    assert!(error.to_string().contains(&format!("--address {address}%rma0")), "{error}");
}

/// A monitor of an interface in the namespace.
fn monitor(netns: &Netns, interface: &str, source: HostAddr) -> NetMonitor {
    let _inside = netns.enter().unwrap();
    let monitor = NetMonitor::start(interface).unwrap();
    monitor.send_from(LocalAddresses::from(source));
    monitor
}

/// Another pair beside the lab's, into the same network at `b`.
fn second_link(lab: &Lab) {
    ip(lab.a(), &format!("link add second type veth peer name second netns {}", lab.b().name()));
    ip(lab.b(), "link add br0 type bridge");
    for (netns, command) in [
        (lab.b(), "link set second master br0 up"),
        (lab.b(), "link set rma0 master br0"),
        (lab.b(), "link set br0 up"),
        (lab.b(), "addr del 192.0.2.2/24 dev rma0"),
        (lab.b(), "addr add 192.0.2.2/24 dev br0"),
        (lab.a(), "link set second up"),
    ] {
        ip(netns, command);
    }
    lab.a().sysctl("ipv4/conf/all/arp_ignore", "1").unwrap();
    lab.a().sysctl("ipv4/conf/all/arp_announce", "2").unwrap();
    lab.a().wait_ready("second").unwrap();
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_route_is_asked_for_with_the_address_that_frames_come_from() {
    let lab = Lab::new(&LabConfig { ipv6: false, ..LabConfig::default() }).unwrap();
    second_link(&lab);
    ip(lab.a(), "addr add 192.0.2.201/32 dev second");
    ip(lab.a(), "route add 192.0.2.0/24 dev second src 192.0.2.201 table 20");
    ip(lab.a(), "rule add from 192.0.2.201 lookup 20");
    let peer = HostAddr::from(Lab::B_V4);
    let second = monitor(lab.a(), "second", [192, 0, 2, 201].into());
    let path = second.resolve(peer, PATIENCE).unwrap();
    assert_eq!(path.source_mac, lab.a().interface_mac("second").unwrap());
    // The other link's host goes its own way.
    let first = monitor(lab.a(), Lab::INTERFACE, Lab::A_V4.into());
    let path = first.resolve(peer, PATIENCE).unwrap();
    assert_eq!(path.source_mac, lab.a().interface_mac(Lab::INTERFACE).unwrap());
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_next_hop_of_several_that_is_the_interfaces_is_taken() {
    let lab = Lab::new(&LabConfig { ipv6: false, ..LabConfig::default() }).unwrap();
    second_link(&lab);
    ip(lab.a(), "addr add 192.0.2.201/32 dev second");
    ip(
        lab.a(),
        "route add 203.0.113.0/24 nexthop via 192.0.2.2 dev rma0 onlink nexthop via 192.0.2.2 dev second onlink",
    );
    for (interface, source) in
        [(Lab::INTERFACE, HostAddr::from(Lab::A_V4)), ("second", [192, 0, 2, 201].into())]
    {
        let monitor = monitor(lab.a(), interface, source);
        for last in 1..20 {
            let path = monitor.resolve([203, 0, 113, last].into(), PATIENCE).unwrap();
            assert_eq!(path.source_mac, lab.a().interface_mac(interface).unwrap());
        }
    }
    // One that is better leads elsewhere.
    ip(lab.a(), "route add 203.0.113.9/32 via 192.0.2.2 dev rma0 onlink");
    let monitor = monitor(lab.a(), "second", [192, 0, 2, 201].into());
    let error = monitor.resolve([203, 0, 113, 9].into(), PATIENCE).unwrap_err();
    assert!(matches!(error, PathError::WrongInterface { .. }), "{error}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn two_ports_of_one_machine_are_told_as_such() {
    let lab = Lab::new(&LabConfig { ipv6: false, ..LabConfig::default() }).unwrap();
    ip(lab.a(), "addr add 198.51.100.1/32 dev lo");
    let monitor = monitor(lab.a(), Lab::INTERFACE, Lab::A_V4.into());
    let error = monitor.resolve([198, 51, 100, 1].into(), PATIENCE).unwrap_err();
    assert!(matches!(error, PathError::ThisHost { .. }), "{error}");
    let text = error.to_string();
    for part in ["this machine itself", "ip netns add", "--udp"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
