//! Ways that carry less than the interfaces at both their ends, over AF_XDP and UDP, in both
//! families: long ops live on them, and hosts say what they found.

#![expect(clippy::unwrap_used, reason = "a test's fixtures fail as the test itself does")]

use std::net::IpAddr;

use rma_tests::hosts::Setup;
use rma_xdp::{
    Host, HostAddr, HostConfig, OpStatus,
    device::{Device, NarrowPath},
};

use super::networks::{
    Network,
    flow::{Flow, OP, eventually},
};

const INTERFACE: &str = "eth0";

/// A switch whose ports carry `bytes`: it drops what is longer, and tells nobody.
fn switch(bytes: u32) -> Network {
    let network = Network::switch();
    carries(&network, bytes);
    network
}

fn carries(network: &Network, bytes: u32) {
    for port in ["p0", "p1"] {
        network.middle.set_mtu(port, bytes).unwrap();
    }
}

/// A client and a server on a network.
struct Pair {
    client: Host,
    server: Host,
    flow: Flow,
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
        let flow = Flow::new([&client, &server], [near, far]).unwrap();
        Self { client, server, flow }
    }

    fn read(&mut self) -> OpStatus {
        self.flow.read(OP)
    }

    fn write(&mut self) -> OpStatus {
        self.flow.write(OP)
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
        let network = switch(1300);
        let mut pair = Pair::open(&network, is_udp, is_ipv6);
        assert_eq!(pair.read(), OpStatus::Timeout, "nobody knows yet");
        eventually("a READ of 4 KiB", || pair.read() == OpStatus::Ok);
        eventually("a WRITE of 4 KiB", || pair.write() == OpStatus::Ok);
        // Once the host is sure, which costs an op, all of them live.
        eventually("that the path is told", || {
            pair.read();
            pair.mtus() == [(pair.flow.far, 1280, 1500)]
        });
        for _ in 0..20 {
            assert_eq!((pair.read(), pair.write()), (OpStatus::Ok, OpStatus::Ok));
        }
        let mut text = String::new();
        pair.client.metrics().prometheus(&mut text).unwrap();
        let line = format!("rma_path_mtu_bytes{{peer=\"{}\"}} 1280", pair.flow.far);
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
        let network = switch(1300);
        let route = if is_ipv6 { "-6 route add fd00::2" } else { "route add 192.0.2.2" };
        network.run(&format!("near ip {route} dev {INTERFACE} mtu 1300")).unwrap();
        let mut pair = Pair::open(&network, is_udp, is_ipv6);
        assert_eq!(pair.mtus(), [(pair.flow.far, 1300, 1500)]);
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
        let network = switch(3400);
        let mut pair = Pair::open(&network, is_udp, is_ipv6);
        for mtu in [1500, 1400, 3000, 1280, 1500] {
            carries(&network, mtu);
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
