//! An interface that gets more receive queues while a host runs on it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::net::UdpSocket;

use rma_lab::{Lab, LabConfig};
use rma_tests::hosts::{Hosts, Setup};
use rma_xdp::{Host, config::DEFAULT_PORT, device::xdp::Mode};

use super::interface_lost::{Scene, wait_attachments, wait_for};

const FLOWS: u64 = 64;

fn counter(host: &Host, name: &str) -> u64 {
    let counters = host.metrics().device.counters;
    counters.iter().find(|it| it.name == name).expect("the device counts it").value
}

/// Two hosts, of which the server's interface has one queue, and room for four.
fn hosts_with_one_queue(mode: Mode) -> Hosts {
    let setup = Setup { mode, ..Setup::default() };
    let lab = Lab::new(&LabConfig { queues: 4, ..LabConfig::default() }).unwrap();
    // veth wants no more queues to send from than the other end has to receive on.
    lab.a().exec(&["ethtool", "-L", Lab::INTERFACE, "tx", "1"]).unwrap();
    lab.b().exec(&["ethtool", "-L", Lab::INTERFACE, "rx", "1"]).unwrap();
    Hosts::in_this(lab, &setup)
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn receive_queues_that_are_added_while_a_host_runs_are_polled() {
    for mode in [Mode::Native, Mode::Generic] {
        let hosts = hosts_with_one_queue(mode);
        let (lab, server) = (hosts.lab.as_ref().unwrap(), hosts.server());
        let queues = || {
            let interface = server.interface().unwrap();
            (interface.queues, interface.queues_polled)
        };
        assert_eq!(queues(), (1, 1));
        lab.b().exec(&["ethtool", "-L", Lab::INTERFACE, "rx", "4"]).unwrap();
        lab.a().exec(&["ethtool", "-L", Lab::INTERFACE, "tx", "4"]).unwrap();
        wait_attachments(server, 2);
        assert_eq!(queues(), (4, 4));
        let device = server.interface().unwrap().device;
        assert!(device.contains(", 4 queue(s), "), "{device}");

        // Datagrams of many flows, which the kernel spreads over the queues.
        let received = || counter(server, "rma_xdp_rx_packets_total");
        let before = received();
        let inside = lab.a().enter().unwrap();
        for _ in 0..FLOWS {
            let sender = UdpSocket::bind((Lab::A_V4, 0)).unwrap();
            sender.send_to(&[0; 64], (Lab::B_V4, DEFAULT_PORT)).unwrap();
        }
        drop(inside);
        wait_for("a packet of each flow", || (received() >= before + FLOWS).then_some(()));
        Scene::new(&hosts).assert_works_again();
        assert_eq!(server.interface().unwrap().attachments, 2, "nothing else has changed");
    }
}
