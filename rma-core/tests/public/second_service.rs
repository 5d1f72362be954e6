//! An echo beside 1RMA: frames find their service, and neither waits for the other.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use core::time::Duration;

use rma_core::{
    addr::HostAddr,
    backend::{RxFrame, TxFrame},
    port::{Port, SourcePort},
    quantum::Quantum,
    service::{Both, Service},
    time::{Clock, Instant},
};
use rma_lab::{
    HandClock, MemoryBackend,
    echo::{Echo, PATIENCE},
    scene::Scene,
};

const ECHO: Port = Port(7);

fn address(host: u8) -> HostAddr {
    [192, 0, 2, host].into()
}

/// Two hosts whose devices are in memory.
type Hosts = Scene<MemoryBackend, HandClock>;

fn scene() -> Hosts {
    let ports = [Port::ONE_RMA, ECHO];
    Scene::new(Default::default(), [1, 2].map(address), ports, &HandClock::default())
}

fn wait(scene: &Hosts, time: Duration) {
    scene.hosts.iter().for_each(|host| host.clock().advance(time));
}

/// A turn of each host, and of what they have sent to its arrival.
fn turn(scene: &mut Hosts) -> usize {
    let work = scene.turn();
    let [near, far] = scene.hosts.each_mut().map(|host| host.backend_mut());
    near.arriving.append(&mut far.sent);
    far.arriving.append(&mut near.sent);
    work
}

#[test]
fn an_echo_beside_1rma_answers_while_reads_go_on_and_both_are_right() {
    scene().reads_beside_calls(|scene| {
        wait(scene, Duration::from_micros(1));
        turn(scene) > 0
    });
}

#[test]
fn a_host_calls_itself_on_every_service() {
    let mut scene = scene();
    scene.echo().call(address(1), 9, 64);
    while scene.turn() > 0 {}
    assert_eq!(scene.echo().told, [(9, true)]);
    assert!(scene.hosts[0].backend().sent.is_empty(), "nothing went to the device");
}

#[test]
fn the_engine_wakes_for_the_first_timeout_of_either_service() {
    let mut scene = scene();
    let timeout = |scene: &Hosts| scene.hosts[0].service().poll_timeout();
    assert_eq!(timeout(&scene), None);
    scene.echo().call(address(2), 1, 64);
    assert!(!scene.hosts[0].is_idle(), "the echo has a command");
    scene.hosts[0].turn();
    assert!(scene.hosts[0].is_idle());
    let of_call = scene.hosts[0].clock().now() + PATIENCE;
    assert_eq!(timeout(&scene), Some(of_call));
    wait(&scene, PATIENCE / 2);
    scene.read(0);
    assert!(!scene.hosts[0].is_idle());
    scene.hosts[0].turn();
    assert_eq!(timeout(&scene), Some(of_call), "the read's comes later");
    wait(&scene, PATIENCE / 2);
    scene.hosts[0].turn();
    assert_eq!(scene.echo().told, [(1, false)], "in vain, while the read still waits");
    assert!(timeout(&scene) > Some(of_call));
}

#[test]
fn frames_are_sorted_by_service_and_stay_in_order() {
    let mut both = Both::new(
        Echo::new(address(1).into(), Port(1)),
        Both::new(Echo::new(address(1).into(), Port(2)), Echo::new(address(1).into(), Port(3))),
    );
    let ports = [3, 1, 1, 2, 3, 2, 1, 3, 2];
    let mut bytes: Vec<[u8; 2]> = (0..ports.len() as u8).map(|number| [1, number]).collect();
    let mut frames: Vec<_> = bytes
        .iter_mut()
        .zip(ports)
        .map(|(bytes, port)| RxFrame {
            source_port: SourcePort::FIRST,
            is_first: true,
            is_handed_over: false,
            source: address(2),
            destination: address(1),
            port: Port(port),
            reply_len_max: 100,
            link: None,
            bytes,
        })
        .collect();
    both.handle_frames(Instant::ZERO, &Instant::ZERO, &mut frames);
    assert_eq!(both.frames_waiting(), ports.len());
    assert_eq!(sent(&mut both, 3, usize::MAX), [(1, 1), (1, 2), (2, 3)]);
    assert_eq!(sent(&mut both, 9, usize::MAX).len(), 6);
    assert!(!both.wants_transmit());
    for port in 0..5 {
        assert_eq!(both.serves(Port(port)), (1..=3).contains(&port));
    }
}

/// The ports and numbers of what is sent in one call, with so many buffers and bytes.
fn sent(service: &mut impl Service, buffers: usize, bytes: usize) -> Vec<(u16, u8)> {
    let mut octets = vec![[0; 2048]; buffers];
    let mut frames: Vec<_> = octets.iter_mut().map(|octets| TxFrame::new(octets)).collect();
    let mut quantum = Quantum::new(bytes);
    let count = service.poll_transmits(Instant::ZERO, &mut frames, &mut quantum);
    let number = |frame: &TxFrame<'_>| (frame.transmit.unwrap().port.0, frame.bytes[1]);
    frames[..count].iter().map(number).collect()
}

/// Two echoes, each with `count` frames of `len` octets.
fn busy(count: [u8; 2], len: [usize; 2]) -> Both<Echo, Echo> {
    let mut both = [1, 2].map(|port| Echo::new(address(1).into(), Port(port)));
    for (service, (count, len)) in both.iter_mut().zip(count.into_iter().zip(len)) {
        (0..count).for_each(|number| service.call(address(2), number, len));
        service.take_commands(Instant::ZERO);
    }
    let [first, second] = both;
    Both::new(first, second)
}

#[test]
fn services_that_both_have_frames_share_the_buffers_and_one_alone_has_all() {
    let of = |sent: &[(u16, u8)], port| sent.iter().filter(|it| it.0 == port).count();
    let mut both = busy([20, 100], [64, 64]);
    for _ in 0..2 {
        let sent = sent(&mut both, 16, usize::MAX);
        assert_eq!((of(&sent, 1), of(&sent, 2)), (8, 8));
    }
    let rest = sent(&mut both, 16, usize::MAX);
    assert_eq!((of(&rest, 1), of(&rest, 2)), (4, 12), "what one leaves is the other's");
    assert_eq!(of(&sent(&mut both, 16, usize::MAX), 2), 16);
    let mut both = busy([4, 4], [64, 64]);
    let alone: Vec<_> = (0..4).flat_map(|_| sent(&mut both, 1, usize::MAX)).collect();
    assert_eq!(alone, [(1, 0), (2, 0), (1, 1), (2, 1)], "with one buffer they take turns");
}

#[test]
fn large_frames_of_one_service_leave_the_next_turn_to_the_other() {
    let mut both = busy([100, 100], [2000, 64]);
    let mut bytes = [0; 2];
    for _ in 0..20 {
        for (port, _) in sent(&mut both, 16, 8000) {
            bytes[usize::from(port) - 1] += if port == 1 { 2000 } else { 64 };
        }
    }
    // Four large frames are all that a turn may send. In the other turns eight small ones go first.
    assert_eq!(bytes, [10 * 8000 + 10 * 3 * 2000, 10 * 8 * 64]);
}
