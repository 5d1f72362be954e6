//! An echo beside 1RMA: frames find their service, and neither waits for the other.

use core::{cell::RefCell, time::Duration};
use std::{collections::VecDeque, rc::Rc, sync::Arc};

use super::*;
use crate::{
    addr::{HostAddr, Pid},
    backend::{Backend, Transmit},
    crypto::{KeyBinding, RegionKey, RegionKeySchedule},
    engine::Engine,
    grant::Grant,
    nic::{Nic, NicConfigBuilder, RegionEntry},
    one_rma::OneRma,
    op::{OpStatus, OpType},
    portal::{CommandPortal, PortalConfig, portal},
    region::{NicTag, Permissions, RegisteredRegion},
    wire,
};
use echo::{Echo, PATIENCE};

mod echo;

const ECHO: Port = Port(7);
const PID: Pid = Pid(5);

/// A clock that stands until it is set; one for both hosts.
type HandClock = Rc<core::cell::Cell<Instant>>;

impl Clock for HandClock {
    fn now(&self) -> Instant {
        self.get()
    }
}

type Way = Rc<RefCell<VecDeque<(Transmit, Vec<u8>)>>>;

/// One end of a wire in memory.
struct Wire {
    inbound: Way,
    outbound: Way,
}

impl Backend for Wire {
    fn rx_burst(&mut self, max: usize, mut on_frames: impl FnMut(&mut [RxFrame<'_>])) -> usize {
        let count = max.min(self.inbound.borrow().len());
        let mut flights: Vec<_> = self.inbound.borrow_mut().drain(..count).collect();
        let mut frames: Vec<_> = flights.iter_mut().map(|(it, bytes)| rx(it, bytes)).collect();
        if count > 0 {
            on_frames(&mut frames);
        }
        count
    }

    fn tx_burst(&mut self, max: usize, mut fill: impl FnMut(&mut [TxFrame<'_>]) -> usize) -> usize {
        let mut buffers = vec![[0; wire::FRAME_LEN_MAX]; max];
        let mut frames: Vec<_> = buffers.iter_mut().map(|bytes| TxFrame::new(bytes)).collect();
        let filled = if max > 0 { fill(&mut frames) } else { 0 };
        for TxFrame { bytes, transmit } in &frames[..filled] {
            // Those of this host to itself have no `transmit`.
            let sent = transmit.map(|transmit| (transmit, bytes[..transmit.len].to_vec()));
            self.outbound.borrow_mut().extend(sent);
        }
        filled
    }

    fn flush(&mut self, _: Instant) {}
}

fn rx<'a>(transmit: &Transmit, bytes: &'a mut [u8]) -> RxFrame<'a> {
    let &Transmit { source, destination, port, .. } = transmit;
    RxFrame { source, destination, port, reply_len_max: wire::FRAME_LEN_MAX, link: None, bytes }
}

fn address(host: u8) -> HostAddr {
    [192, 0, 2, host].into()
}

type Host = Engine<Wire, HandClock, Both<OneRma, Echo>>;

fn services(host: u8) -> Both<OneRma, Echo> {
    let addresses = address(host).into();
    let config = NicConfigBuilder { addresses, ..NicConfigBuilder::default() };
    let one_rma = OneRma::new(Nic::new(config.build().unwrap()));
    Both::new(one_rma, Echo::new(addresses, ECHO))
}

fn register(host: &mut Both<OneRma, Echo>, key: &RegionKey, bytes: &[u8]) -> RegisteredRegion {
    let memory = Arc::new(rma_shm::Region::new(bytes.len()).unwrap());
    memory.copy_in(0, bytes).unwrap();
    let entry = RegionEntry::new(memory.clone(), key, Permissions::READ, PID);
    let id = host.first.nic_mut().regions_mut().register(Box::new(entry)).unwrap();
    RegisteredRegion::new(id, memory, NicTag(1))
}

/// Two hosts, of which the first reads from the other and calls it.
struct Scene {
    clock: HandClock,
    hosts: [Host; 2],
    portal: CommandPortal,
    sink: RegisteredRegion,
    grant: Grant,
    source: Vec<u8>,
}

impl Scene {
    fn new() -> Self {
        let ways: [Way; 2] = Default::default();
        let [mut near, mut far] = [services(1), services(2)];
        let source: Vec<u8> = (0..wire::FRAME_LEN_MAX).map(|at| (at * 7 / 3) as u8).collect();
        let key = RegionKey::from_bytes([1; 16]);
        let region = register(&mut far, &key, &source);
        let sink = register(&mut near, &key, &vec![0; source.len()]);
        let [initiator, responder] = [1, 2].map(address);
        let binding = KeyBinding { initiator, responder, pid: PID, op_type: OpType::Read };
        let grant = Grant {
            responder,
            region: region.id(),
            region_len: source.len() as u64,
            initiator,
            pid: PID,
            op_type: OpType::Read,
            key: RegionKeySchedule::new(&key).derive(&binding),
        };
        let config = PortalConfig {
            slots: 0..32,
            pid: PID,
            addresses: initiator.into(),
            bell: None,
            nic: NicTag(1),
        };
        near.first.nic_mut().configure_slots(0..32, Some(PID));
        let (portal, port) = portal(config);
        near.first.attach(port);
        let clock = HandClock::default();
        let [there, back] = ways;
        let wires = [
            Wire { inbound: back.clone(), outbound: there.clone() },
            Wire { inbound: there, outbound: back },
        ];
        let mut ends = [near, far].into_iter().zip(wires);
        let hosts = core::array::from_fn(|_| {
            let (services, wire) = ends.next().unwrap();
            Engine::new(services, wire, clock.clone())
        });
        Self { clock, hosts, portal, sink, grant, source }
    }

    fn read(&mut self, at: usize, len: usize) {
        let offset = at as u64;
        self.portal.read(&self.grant, offset, &self.sink, offset, len as u32).unwrap();
    }

    fn echo(&mut self) -> &mut Echo {
        &mut self.hosts[0].service_mut().second
    }

    /// Turns of both hosts, a microsecond each, until neither has anything to do.
    fn run(&mut self) {
        while self.hosts.iter_mut().map(Engine::turn).sum::<usize>() > 0 {
            self.clock.set(self.clock.get() + Duration::from_micros(1));
        }
    }
}

#[test]
fn an_echo_beside_1rma_answers_while_reads_go_on_and_both_are_right() {
    let mut scene = Scene::new();
    for round in 0..20_u8 {
        for at in 0..16 {
            scene.read(at * 256, 256);
            scene.echo().call(address(2), round * 12 + at as u8 % 12, 40 + at);
        }
        scene.run();
        for _ in 0..16 {
            assert_eq!(scene.portal.poll().map(|it| it.status), Some(OpStatus::Ok));
        }
    }
    let mut landed = vec![0; 4096];
    scene.sink.memory().copy_out(0, &mut landed).unwrap();
    assert_eq!(landed, scene.source[..4096]);
    let told = core::mem::take(&mut scene.echo().told);
    assert_eq!(told.len(), 320);
    assert!(told.iter().all(|&(_, answered)| answered));
    let counters = scene.hosts[0].service().first.nic().counters();
    assert_eq!(counters.completions(OpStatus::Ok), 320, "no frame of the echo disturbed it");
}

#[test]
fn a_host_calls_itself_on_every_service() {
    let mut scene = Scene::new();
    scene.echo().call(address(1), 9, 64);
    scene.run();
    assert_eq!(scene.echo().told, [(9, true)]);
    assert!(scene.hosts[0].backend().outbound.borrow().is_empty(), "nothing went to the device");
}

#[test]
fn the_engine_wakes_for_the_first_timeout_of_either_service() {
    let mut scene = Scene::new();
    let timeout = |scene: &Scene| scene.hosts[0].service().poll_timeout();
    assert_eq!(timeout(&scene), None);
    scene.read(0, 64);
    assert!(!scene.hosts[0].is_idle());
    scene.hosts[0].turn();
    assert!(scene.hosts[0].is_idle());
    let of_read = timeout(&scene).unwrap();
    scene.echo().call(address(2), 1, 64);
    assert!(!scene.hosts[0].is_idle(), "the echo has a command");
    scene.hosts[0].turn();
    assert_eq!(timeout(&scene), Some(scene.clock.get() + PATIENCE));
    scene.clock.set(scene.clock.get() + PATIENCE);
    scene.hosts[0].turn();
    assert_eq!(scene.echo().told, [(1, false)], "in vain, while the read still waits");
    assert_eq!(timeout(&scene), Some(of_read));
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
