//! Ways that carry less than the interfaces at both their ends, over AF_XDP and UDP, in both
//! families: long ops live on them, and hosts say what they found.

#![expect(clippy::unwrap_used, reason = "a test's fixtures fail as the test itself does")]

use std::{net::IpAddr, thread, time::Duration};

use rma_lab::Netns;
use rma_tests::hosts::{CLIENT_PID, Setup};
use rma_xdp::{
    Grant, Host, HostAddr, HostConfig, OpStatus, OpType, Permissions, Portal, RegisteredRegion,
    device::{Device, NarrowPath},
};
use rustix::time::{ClockId, clock_gettime};

const INTERFACE: &str = "rma0";
const OP: u32 = 4096;

/// Longer than anything takes that is waited for, on a busy machine.
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

/// Two hosts' namespaces, and a switch between them whose ports carry `carries` bytes: it drops
/// what is longer, and tells nobody.
struct Network {
    ends: [Netns; 2],
    switch: Netns,
}

impl Network {
    fn new(carries: u32) -> Self {
        let ends = [Netns::create("near").unwrap(), Netns::create("far").unwrap()];
        let network = Self { ends, switch: Netns::create("switch").unwrap() };
        ip(&network.switch, "link add br0 type bridge");
        ip(&network.switch, "link set br0 up");
        for (index, end) in network.ends.iter().enumerate() {
            let (port, number) = (format!("p{index}"), index + 1);
            let peer = format!("peer name {port} netns {}", network.switch.name());
            ip(end, &format!("link add {INTERFACE} type veth {peer}"));
            ip(&network.switch, &format!("link set {port} mtu {carries} master br0 up"));
            ip(end, &format!("addr add 192.0.2.{number}/24 dev {INTERFACE}"));
            ip(end, &format!("addr add fd00::{number}/64 dev {INTERFACE} nodad"));
            ip(end, &format!("link set {INTERFACE} up"));
            end.wait_ready(INTERFACE).unwrap();
        }
        network
    }

    fn carries(&self, bytes: u32) {
        for port in ["p0", "p1"] {
            self.switch.set_mtu(port, bytes).unwrap();
        }
    }
}

/// A client and a server on a network.
struct Pair {
    client: Host,
    server: Host,
    far: HostAddr,
    region: RegisteredRegion,
    grants: [Grant; 2],
    portal: Portal,
    local: RegisteredRegion,
}

impl Pair {
    fn open(network: &Network, is_udp: bool, is_ipv6: bool) -> Self {
        let [near, far]: [HostAddr; 2] = if is_ipv6 {
            ["fd00::1", "fd00::2"].map(|it| it.parse::<IpAddr>().unwrap().into())
        } else {
            [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()]
        };
        let setup = Setup { udp: (is_udp, is_udp), ..Setup::default() };
        let open = |index: usize, config: HostConfig| {
            let _inside = network.ends[index].enter().unwrap();
            let device = if is_udp { Device::udp() } else { Device::xdp(INTERFACE) };
            Host::open(config.with(|it| {
                it.device = device;
                it.nic.timing = rma_xdp::config::Timing::default();
            }))
            .unwrap()
        };
        let (client, server) = (open(0, setup.client(near)), open(1, setup.server(far)));
        let region = server.register(OP as usize, Permissions::READ | Permissions::WRITE).unwrap();
        let grants = [OpType::Read, OpType::Write]
            .map(|op_type| server.grant(&region, near, CLIENT_PID, op_type).unwrap());
        let portal = client.portal(4).unwrap();
        let local = client.register(OP as usize, Permissions::NONE).unwrap();
        client.resolve(far).unwrap();
        Self { client, server, far, region, grants, portal, local }
    }

    fn read(&mut self) -> OpStatus {
        self.portal.read(&self.grants[0], 0, &self.local, 0, OP).unwrap();
        self.portal.wait().unwrap().status
    }

    fn write(&mut self) -> OpStatus {
        self.portal.write(&self.grants[1], 0, &self.local, 0, OP).unwrap();
        self.portal.wait().unwrap().status
    }

    fn mtus(&self) -> Vec<(HostAddr, u32, u32)> {
        let of = |it: NarrowPath| (it.peer, it.mtu, it.device_mtu);
        self.client.narrow_paths().into_iter().map(of).collect()
    }
}

fn each(run: impl Fn(bool, bool)) {
    for is_udp in [false, true] {
        for is_ipv6 in [false, true] {
            println!("is_udp {is_udp}, is_ipv6 {is_ipv6}");
            run(is_udp, is_ipv6);
        }
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn long_ops_live_on_a_way_that_drops_what_is_too_long_for_it_without_a_word() {
    each(|is_udp, is_ipv6| {
        let network = Network::new(1300);
        let mut pair = Pair::open(&network, is_udp, is_ipv6);
        let bytes: Vec<u8> = (0..OP).map(|it| it as u8).collect();
        pair.region.write(0, &bytes).unwrap();
        assert_eq!(pair.read(), OpStatus::Timeout, "nobody knows yet");
        eventually("a READ of 4 KiB", || pair.read() == OpStatus::Ok);
        let mut read = vec![0; bytes.len()];
        pair.local.read(0, &mut read).unwrap();
        assert_eq!(read, bytes);
        eventually("a WRITE of 4 KiB", || pair.write() == OpStatus::Ok);
        // Once the host is sure, which costs an op, all of them live.
        eventually("that the path is told", || {
            pair.read();
            pair.mtus() == [(pair.far, 1280, 1500)]
        });
        for _ in 0..20 {
            assert_eq!((pair.read(), pair.write()), (OpStatus::Ok, OpStatus::Ok));
        }
        let mut text = String::new();
        pair.client.metrics().prometheus(&mut text).unwrap();
        let line = format!("rma_path_mtu_bytes{{peer=\"{}\"}} 1280", pair.far);
        assert!(text.contains(&line), "{line}");
        let told = pair.client.narrow_paths()[0].to_string();
        assert!(told.contains("carries packets of 1280 bytes, and the device 1500"), "{told}");
    });
}

/// The asking end says in its requests what the way carries, and cuts its own data to that.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_mtu_of_a_route_at_the_asking_end_alone_is_enough() {
    each(|is_udp, is_ipv6| {
        let network = Network::new(1300);
        let route = if is_ipv6 { "-6 route add fd00::2" } else { "route add 192.0.2.2" };
        ip(&network.ends[0], &format!("{route} dev {INTERFACE} mtu 1300"));
        let mut pair = Pair::open(&network, is_udp, is_ipv6);
        assert_eq!(pair.mtus(), [(pair.far, 1300, 1500)]);
        // It is told before the first op; the engine's next look at it is in the op itself.
        for _ in 0..10 {
            assert_eq!((pair.read(), pair.write()), (OpStatus::Ok, OpStatus::Ok));
        }
        assert!(pair.server.narrow_paths().is_empty(), "it was told in each request");
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_mtu_of_the_device_that_changes_is_followed() {
    each(|is_udp, is_ipv6| {
        let network = Network::new(3400);
        let mut pair = Pair::open(&network, is_udp, is_ipv6);
        for mtu in [1500, 1400, 3000, 1280, 1500] {
            network.carries(mtu);
            for end in &network.ends {
                end.set_mtu(INTERFACE, mtu).unwrap();
            }
            eventually("ops at the new MTU", || {
                pair.read() == OpStatus::Ok && pair.write() == OpStatus::Ok
            });
            for _ in 0..10 {
                assert_eq!((pair.read(), pair.write()), (OpStatus::Ok, OpStatus::Ok), "{mtu}");
            }
        }
    });
}
