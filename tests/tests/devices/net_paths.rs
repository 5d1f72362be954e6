//! Routes, neighbours, MTU and link state as the kernel has them, over a veth pair: what the
//! network monitor finds, and that it follows every change.

#![expect(clippy::unwrap_used, reason = "a test's fixtures fail as the test itself does")]

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
    thread,
    time::Duration,
};

use rma_core::{addr::HostAddr, tenant::TenantIndex};
use rma_lab::{Lab, LabConfig, Netns};
use rma_xdp::device::net::{Interface, NetError, NetMonitor, Path, PathError, PathTable};
use rustix::time::{ClockId, clock_gettime};

/// Longer than the kernel needs to give a neighbour up (three solicitations, one second apart).
const PATIENCE: Duration = Duration::from_secs(8);

/// A lab with a monitor of `a`'s end, started inside `a`.
struct Fixture {
    monitor: NetMonitor,
    lab: Lab,
}

impl Fixture {
    fn new(config: &LabConfig) -> Self {
        let lab = Lab::new(config).unwrap();
        // Left again at once: the monitor must go on living in the namespace it was started in.
        let monitor = {
            let _inside = lab.a().enter().unwrap();
            NetMonitor::start(Lab::INTERFACE).unwrap()
        };
        Self { monitor, lab }
    }

    fn table(&self) -> Arc<PathTable> {
        self.monitor.table()
    }

    fn resolve(&self, destination: impl Into<IpAddr>) -> Result<Path, PathError> {
        self.monitor.resolve(destination.into().into(), PATIENCE)
    }

    /// The path that is right for every destination behind `b` while nothing is changed.
    fn path_to_b(&self, mtu: u32) -> Path {
        Path {
            source_mac: self.lab.a().interface_mac(Lab::INTERFACE).unwrap(),
            next_hop_mac: self.lab.b().interface_mac(Lab::INTERFACE).unwrap(),
            mtu,
        }
    }

    fn ip_a(&self, command: &str) {
        ip(self.lab.a(), command);
    }

    fn ip_b(&self, command: &str) {
        ip(self.lab.b(), command);
    }
}

fn ip(netns: &Netns, command: &str) {
    netns.ip(&command.split(' ').collect::<Vec<_>>()).unwrap();
}

fn host(address: impl Into<IpAddr>) -> HostAddr {
    address.into().into()
}

fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
}

/// Polls until `condition` holds.
fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = monotonic();
    while !condition() {
        assert!(monotonic() - start < PATIENCE, "not in {PATIENCE:?}: {what}");
        thread::yield_now();
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_facts_are_those_of_the_entered_namespace() {
    let config = LabConfig { mtu: 3400, queues: 3, ..LabConfig::default() };
    let lab = Lab::new(&config).unwrap();
    let interface = {
        let _inside = lab.a().enter().unwrap();
        Interface::open(Lab::INTERFACE).unwrap()
    };
    assert_eq!(&*interface.name, Lab::INTERFACE);
    assert_eq!(interface.mac, lab.a().interface_mac(Lab::INTERFACE).unwrap());
    assert_eq!(interface.mtu, 3400);
    assert_eq!(interface.rx_queues, 3);
    assert!(interface.is_up && interface.is_running);
    let addresses: Vec<HostAddr> = interface.addresses.iter().map(|a| a.address).collect();
    assert!(addresses.contains(&host(Lab::A_V4)), "{addresses:?}");
    assert!(addresses.contains(&host(Lab::A_V6)), "{addresses:?}");
    let v4 = interface.addresses.iter().find(|a| a.address == host(Lab::A_V4)).unwrap();
    assert_eq!(v4.prefix_length, Lab::V4_PREFIX);

    // Outside there is no such interface, and loopback is no Ethernet.
    let error = Interface::open(Lab::INTERFACE).unwrap_err();
    assert!(matches!(error, NetError::NoSuchInterface { .. }), "{error}");
    for name in ["", "name-longer-than-fifteen-bytes", "a\0b", &"x".repeat(300)] {
        let error = Interface::open(name).unwrap_err();
        assert!(matches!(error, NetError::NoSuchInterface { .. }), "{name}: {error}");
    }
    let _inside = lab.b().enter().unwrap();
    let error = Interface::open("lo").unwrap_err();
    assert!(matches!(error, NetError::NotEthernet { .. }), "{error}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn fewer_queues_in_use_than_the_interface_has_are_counted_as_such() {
    let lab = Lab::new(&LabConfig { queues: 1, ..LabConfig::default() }).unwrap();
    let _inside = lab.a().enter().unwrap();
    assert_eq!(Interface::open(Lab::INTERFACE).unwrap().rx_queues, 1);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn on_link_hosts_resolve_in_both_families() {
    let fixture = Fixture::new(&LabConfig::default());
    let expected = fixture.path_to_b(1500);
    let table = fixture.table();
    for destination in [host(Lab::B_V4), host(Lab::B_V6)] {
        assert_eq!(table.lookup(destination), None);
        assert_eq!(fixture.monitor.resolve(destination, PATIENCE).unwrap(), expected);
        assert_eq!(table.lookup(destination), Some(expected));
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_link_local_host_resolves_on_the_monitored_interface() {
    let fixture = Fixture::new(&LabConfig::default());
    let b = {
        let _inside = fixture.lab.b().enter().unwrap();
        Interface::open(Lab::INTERFACE).unwrap()
    };
    let is_link_local = |ip: IpAddr| matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let link_local = b.addresses.iter().find(|a| is_link_local(a.address.ip())).unwrap().address;
    assert_eq!(fixture.resolve(link_local.ip()).unwrap(), fixture.path_to_b(1500));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_request_from_the_engine_is_answered_in_the_table() {
    let fixture = Fixture::new(&LabConfig::default());
    let expected = fixture.path_to_b(1500);
    let table = fixture.table();
    let start = monotonic();
    assert!(table.request(TenantIndex::HOST, host(Lab::B_V4)));
    eventually("a path", || table.lookup(host(Lab::B_V4)).is_some());
    println!("a path {:?} after the request, ARP included", monotonic() - start);
    assert_eq!(table.lookup(host(Lab::B_V4)), Some(expected));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn hosts_behind_a_gateway_have_the_gateways_hardware_address() {
    let fixture = Fixture::new(&LabConfig::default());
    fixture.ip_a(&format!("route add 198.51.100.0/24 via {} mtu 1400", Lab::B_V4));
    fixture.ip_a(&format!("-6 route add 2001:db8::/32 via {}", Lab::B_V6));
    let far_v4 = Ipv4Addr::new(198, 51, 100, 7);
    let far_v6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);
    assert_eq!(fixture.resolve(far_v4).unwrap(), fixture.path_to_b(1400), "the route has an MTU");
    assert_eq!(fixture.resolve(far_v6).unwrap(), fixture.path_to_b(1500));
    // An IPv4 route over an IPv6 gateway.
    fixture.ip_a(&format!("route add 203.0.113.0/24 via inet6 {}", Lab::B_V6));
    let over_v6 = fixture.resolve(Ipv4Addr::new(203, 0, 113, 1)).unwrap();
    assert_eq!(over_v6, fixture.path_to_b(1500));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_changed_route_changes_the_path() {
    let fixture = Fixture::new(&LabConfig::default());
    let far = Ipv4Addr::new(198, 51, 100, 7);
    fixture.ip_a(&format!("route add 198.51.100.0/24 via {}", Lab::B_V4));
    assert_eq!(fixture.resolve(far).unwrap(), fixture.path_to_b(1500));
    let table = fixture.table();

    fixture.ip_a(&format!("route change 198.51.100.0/24 via {} mtu 1300", Lab::B_V4));
    eventually("the route's MTU", || table.lookup(host(far)) == Some(fixture.path_to_b(1300)));

    // Another gateway: a second address, which somebody else on the link could have.
    let gateway = Ipv4Addr::new(192, 0, 2, 77);
    let mac = [2, 0, 0, 0, 0, 0x77];
    fixture.ip_a(&format!("neigh add {gateway} lladdr 02:00:00:00:00:77 dev rma0 nud permanent"));
    fixture.ip_a(&format!("route change 198.51.100.0/24 via {gateway}"));
    eventually("the new gateway", || {
        table.lookup(host(far)).is_some_and(|path| path.next_hop_mac == mac)
    });

    fixture.ip_a("route del 198.51.100.0/24");
    eventually("no path without a route", || table.lookup(host(far)).is_none());
    let error = fixture.resolve(far).unwrap_err();
    assert!(matches!(error, PathError::NoRoute { .. }), "{error}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn each_reason_for_having_no_path_is_its_own_error() {
    let fixture = Fixture::new(&LabConfig::default());

    let nowhere = Ipv4Addr::new(198, 51, 100, 1);
    let error = fixture.resolve(nowhere).unwrap_err();
    assert!(matches!(error, PathError::NoRoute { .. }), "{error}");
    let nowhere = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    let error = fixture.resolve(nowhere).unwrap_err();
    assert!(matches!(error, PathError::NoRoute { .. }), "{error}");
    for kind in ["unreachable", "prohibit", "blackhole"] {
        for (version, network, host) in
            [("-4", "203.0.113.0/24", "203.0.113.1"), ("-6", "2001:db8:1::/48", "2001:db8:1::1")]
        {
            fixture.ip_a(&format!("{version} route add {kind} {network}"));
            let error = fixture.resolve(host.parse::<IpAddr>().unwrap()).unwrap_err();
            assert!(matches!(error, PathError::NoRoute { .. }), "{kind} {version}: {error}");
            fixture.ip_a(&format!("{version} route del {kind} {network}"));
        }
    }

    // This host itself, by its own address and by the loopback address.
    for own in [
        IpAddr::V4(Lab::A_V4),
        IpAddr::V6(Lab::A_V6),
        Ipv4Addr::LOCALHOST.into(),
        Ipv6Addr::LOCALHOST.into(),
    ] {
        match fixture.resolve(own).unwrap_err() {
            PathError::ThisHost { interface, .. } => {
                assert_eq!(&*interface, Lab::INTERFACE, "{own}");
            }
            other => panic!("{own}: {other}"),
        }
    }
    // Another interface of this host.
    fixture.ip_a("link add other type veth peer name other-peer");
    fixture.ip_a("addr add 203.0.113.1/24 dev other");
    fixture.ip_a("link set other up");
    fixture.ip_a("link set other-peer up");
    match fixture.resolve(Ipv4Addr::new(203, 0, 113, 2)).unwrap_err() {
        PathError::WrongInterface { route_interface, .. } => assert_eq!(&*route_interface, "other"),
        other => panic!("{other}"),
    }

    for many in [
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, 255)),
        Ipv4Addr::BROADCAST.into(),
        Ipv4Addr::new(224, 0, 0, 1).into(),
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).into(),
        Ipv4Addr::UNSPECIFIED.into(),
        Ipv6Addr::UNSPECIFIED.into(),
    ] {
        let error = fixture.resolve(many).unwrap_err();
        assert!(matches!(error, PathError::NotUnicast { .. }), "{many}: {error}");
    }

    fixture.monitor.check_source(host(Lab::A_V4)).unwrap();
    fixture.monitor.check_source(host(Lab::A_V6)).unwrap();
    for other in [host(Lab::B_V4), host(Lab::B_V6), host(Ipv4Addr::new(198, 51, 100, 1))] {
        let error = fixture.monitor.check_source(other).unwrap_err();
        assert!(matches!(error, PathError::SourceNotLocal { .. }), "{error}");
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_host_that_does_not_answer_is_an_unresolved_neighbour() {
    let fixture = Fixture::new(&LabConfig::default());
    let absent_v4 = Ipv4Addr::new(192, 0, 2, 200);
    let absent_v6 = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 200);
    // The kernel's own verdict comes before the caller's patience ends.
    for absent in [IpAddr::V4(absent_v4), absent_v6.into()] {
        let start = monotonic();
        match fixture.resolve(absent).unwrap_err() {
            PathError::NeighbourUnresolved { next_hop, interface } => {
                assert_eq!((next_hop, &*interface), (absent, Lab::INTERFACE));
            }
            other => panic!("{other}"),
        }
        assert!(monotonic() - start < PATIENCE, "{absent} took the whole of the caller's patience");
        assert_eq!(fixture.table().lookup(host(absent)), None);
    }
    // And the caller's patience may end first.
    let error = fixture.monitor.resolve(host(absent_v4), Duration::from_millis(20)).unwrap_err();
    assert!(matches!(error, PathError::NeighbourUnresolved { .. }), "{error}");
    // When the host appears, it resolves.
    fixture.ip_b(&format!("addr add {absent_v4}/24 dev rma0"));
    assert_eq!(fixture.resolve(absent_v4).unwrap(), fixture.path_to_b(1500));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_announced_change_of_the_peers_hardware_address_is_followed() {
    let fixture = Fixture::new(&LabConfig::default());
    for (setting, value) in
        [("ipv4/conf/rma0/arp_notify", "1"), ("ipv6/conf/rma0/ndisc_notify", "1")]
    {
        fixture.lab.b().sysctl(setting, value).unwrap();
    }
    let table = fixture.table();
    let before = fixture.resolve(Lab::B_V4).unwrap();
    assert_eq!(fixture.resolve(Lab::B_V6).unwrap(), before);

    fixture.ip_b("link set dev rma0 address 02:00:00:00:00:0b");
    let after = Path { next_hop_mac: [2, 0, 0, 0, 0, 0x0b], ..before };
    for destination in [host(Lab::B_V4), host(Lab::B_V6)] {
        eventually("the announced hardware address", || table.lookup(destination) == Some(after));
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_deleted_neighbour_entry_is_looked_for_afresh() {
    let fixture = Fixture::new(&LabConfig::default());
    let table = fixture.table();
    let before = fixture.resolve(Lab::B_V4).unwrap();
    fixture.ip_b("link set dev rma0 address 02:00:00:00:00:0c");
    fixture.ip_a(&format!("neigh del {} dev rma0", Lab::B_V4));
    let after = Path { next_hop_mac: [2, 0, 0, 0, 0, 0x0c], ..before };
    eventually("the new hardware address", || table.lookup(host(Lab::B_V4)) == Some(after));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_silent_change_of_the_peers_hardware_address_is_noticed_by_probing() {
    let fixture = Fixture::new(&LabConfig::default());
    // The kernel's usual pace is some 30 s: shorter here, so that the test is.
    for (setting, value) in [
        ("ipv4/neigh/rma0/base_reachable_time_ms", "1000"),
        ("ipv4/neigh/rma0/delay_first_probe_time", "1"),
        ("ipv4/neigh/rma0/retrans_time_ms", "200"),
    ] {
        fixture.lab.a().sysctl(setting, value).unwrap();
    }
    let table = fixture.table();
    let before = fixture.resolve(Lab::B_V4).unwrap();
    fixture.ip_b("link set dev rma0 address 02:00:00:00:00:0d");
    let after = Path { next_hop_mac: [2, 0, 0, 0, 0, 0x0d], ..before };
    let start = monotonic();
    // The monitor uses the neighbour every five seconds; then come delay and probes.
    while table.lookup(host(Lab::B_V4)) != Some(after) {
        assert!(monotonic() - start < 3 * PATIENCE);
        thread::yield_now();
    }
    println!("silent change of the hardware address noticed after {:?}", monotonic() - start);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn changes_of_our_own_interface_are_followed() {
    let fixture = Fixture::new(&LabConfig::default());
    let table = fixture.table();
    let before = fixture.resolve(Lab::B_V4).unwrap();
    assert_eq!(table.interface_mtu(), 1500);

    fixture.lab.a().set_mtu(Lab::INTERFACE, 1400).unwrap();
    eventually("the smaller MTU", || {
        table.interface_mtu() == 1400
            && table.lookup(host(Lab::B_V4)) == Some(Path { mtu: 1400, ..before })
    });
    fixture.lab.a().set_mtu(Lab::INTERFACE, 9000).unwrap();
    eventually("the larger MTU", || {
        table.interface_mtu() == 9000
            && table.lookup(host(Lab::B_V4)) == Some(Path { mtu: 9000, ..before })
    });

    fixture.ip_a("link set dev rma0 address 02:00:00:00:00:0a");
    eventually("our new hardware address", || {
        table.lookup(host(Lab::B_V4)).is_some_and(|path| path.source_mac == [2, 0, 0, 0, 0, 0x0a])
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn no_path_survives_the_link_and_paths_come_back_with_it() {
    let fixture = Fixture::new(&LabConfig::default());
    let table = fixture.table();
    let path = fixture.resolve(Lab::B_V4).unwrap();
    assert!(table.is_link_up());

    // Carrier lost: the peer's end is down.
    fixture.ip_b("link set dev rma0 down");
    eventually("no path", || !table.is_link_up() && table.lookup(host(Lab::B_V4)).is_none());
    let error = fixture.resolve(Lab::B_V4).unwrap_err();
    assert!(matches!(error, PathError::LinkDown { .. }), "{error}");
    fixture.ip_b("link set dev rma0 up");
    eventually("the path again, as the engine goes on asking", || {
        table.request(TenantIndex::HOST, host(Lab::B_V4));
        table.is_link_up() && table.lookup(host(Lab::B_V4)) == Some(path)
    });

    // Our own end down.
    fixture.ip_a("link set dev rma0 down");
    eventually("no path", || !table.is_link_up() && table.lookup(host(Lab::B_V4)).is_none());
    fixture.ip_a("link set dev rma0 up");
    eventually("the path again", || {
        table.request(TenantIndex::HOST, host(Lab::B_V4));
        table.lookup(host(Lab::B_V4)) == Some(path)
    });

    // The interface is gone for good: nothing is promised, and nothing panics.
    fixture.ip_a("link del dev rma0");
    eventually("no path", || !table.is_link_up() && table.lookup(host(Lab::B_V4)).is_none());
    let error = fixture.resolve(Lab::B_V4).unwrap_err();
    assert!(matches!(error, PathError::InterfaceGone { .. }), "{error}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_flood_of_news_loses_nothing_that_matters() {
    let fixture = Fixture::new(&LabConfig::default());
    let table = fixture.table();
    fixture.ip_a(&format!("route add 198.51.100.0/24 via {}", Lab::B_V4));
    let far = Ipv4Addr::new(198, 51, 100, 7);
    fixture.resolve(far).unwrap();
    // Thousands of routes at once, in one process.
    let routes: String = (0..20_000)
        .map(|n| format!("route add 10.{}.{}.0/24 dev rma0\n", n / 256, n % 256))
        .collect();
    let file = std::env::temp_dir().join(format!("rma-routes-{}", std::process::id()));
    std::fs::write(&file, routes).unwrap();
    let added = fixture.lab.a().ip(&["-batch".as_ref(), file.as_os_str()]);
    std::fs::remove_file(&file).unwrap();
    added.unwrap();
    fixture.ip_a(&format!("route change 198.51.100.0/24 via {} mtu 1300", Lab::B_V4));
    eventually("the route's MTU", || table.lookup(host(far)).is_some_and(|path| path.mtu == 1300));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_stopped_monitor_leaves_an_empty_table_and_no_thread() {
    let fixture = Fixture::new(&LabConfig::default());
    fixture.resolve(Lab::B_V4).unwrap();
    let table = fixture.table();
    let Fixture { monitor, lab: _lab } = fixture;
    drop(monitor);
    assert_eq!(table.lookup(host(Lab::B_V4)), None);
    assert!(!table.is_link_up());
    // Asking is still allowed, it just has no effect.
    table.request(TenantIndex::HOST, host(Lab::B_V4));
}
