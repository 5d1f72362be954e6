//! A backend whose interface gets more receive queues than can be had. As no second program can be
//! on an interface, it takes a socket of this crate's own to be in the way.

use rma_core::port::Port;
use rma_lab::{Lab, LabConfig};
use xsk_rs::config::QueueSize;

use super::*;
use crate::device::{
    net::index_of,
    xdp::{
        choice::Copying,
        config::Mode,
        queues::ReadSign,
        socket::{Options, Socket},
    },
};

/// Only for what never comes.
const DEADLINE: Duration = Duration::from_secs(30);

fn set_queues(lab: &Lab, of: &str, count: &str) {
    lab.a().exec(&["ethtool", "-L", Lab::INTERFACE, of, count]).unwrap();
}

/// Drives the backend until the interface is attached to for the `attachments`-th time.
fn follow(backend: &mut XdpBackend, watch: &InterfaceWatch, attachments: u64) -> InterfaceStatus {
    let deadline = monotonic() + DEADLINE;
    loop {
        backend.follow();
        let status = watch.status();
        if (status.state, status.attachments) == (InterfaceState::Up, attachments) {
            return status;
        }
        assert!(monotonic() < deadline, "waited {DEADLINE:?}: {status}");
        thread::yield_now();
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn added_queues_that_cannot_be_had_are_told_and_the_others_are_polled_as_before() {
    let lab = Lab::new(&LabConfig { queues: 4, ..LabConfig::default() }).unwrap();
    lab.b().exec(&["ethtool", "-L", Lab::INTERFACE, "tx", "1"]).unwrap();
    set_queues(&lab, "rx", "1");
    let _inside = lab.a().enter().unwrap();
    // A socket may be on a queue that only sends.
    let ring = |size| QueueSize::new(size).unwrap();
    let options = Options {
        interface: Lab::INTERFACE,
        queue: 2,
        rx_ring: ring(64),
        tx_ring: ring(64),
        rx_chunks: 64,
        tx_chunks: 0,
        copying: Copying::Either,
        multi_buffer: false,
        busy_poll_us: None,
    };
    let taken = Socket::open(&options, ReadSign::alone(), Arc::default()).unwrap();

    let mut config = XdpConfig::new(Lab::INTERFACE, &[Port::ONE_RMA], &[Lab::A_V4.into()]);
    config.mode = Mode::Native;
    let (paths, mut writer) = PathTable::new(1500);
    writer.set_interface_index(index_of(Lab::INTERFACE).unwrap());
    let mut backend = XdpBackend::open(&config, paths).unwrap();
    let follower = Follower::start(config, &backend).unwrap();
    let watch = follower.watch();
    assert_eq!((watch.status().queues, watch.status().queues_polled), (1, 1));

    set_queues(&lab, "rx", "4");
    let status = follow(&mut backend, &watch, 2);
    assert_eq!((status.queues, status.queues_polled), (4, 1));
    let told = "interface rma0 is up with 1 of its 4 receive queues polled";
    assert_eq!(status.to_string(), told);
    assert!(status.device.contains(", 1 of 4 queue(s), "), "{}", status.device);
    let fallbacks = watch.description().fallbacks;
    let fallbacks: String = fallbacks.iter().map(|it| format!("{it}\n")).collect();
    let told = "some receive queues instead of all receive queues: an AF_XDP socket for each: ";
    assert!(fallbacks.contains(told), "{fallbacks}");

    // When their number is another one, all are tried.
    drop(taken);
    set_queues(&lab, "rx", "3");
    let status = follow(&mut backend, &watch, 3);
    assert_eq!((status.queues, status.queues_polled), (3, 3));
}
