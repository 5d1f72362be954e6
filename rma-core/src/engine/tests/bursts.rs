//! How much a turn moves each way, and what the device holds.

use super::*;

/// A device with one buffer: a frame that it has no room for is held until the next `tx_burst`, as
/// sockets do.
#[derive(Default)]
struct Holding {
    is_blocked: bool,
    held: bool,
    tries: usize,
}

impl Holding {
    fn send_held(&mut self) -> bool {
        self.tries += usize::from(self.held);
        self.held &= self.is_blocked;
        !self.held
    }
}

impl Backend for Holding {
    fn rx_burst(&mut self, _: usize, _: impl FnMut(&mut [RxPacket<'_>])) -> usize {
        0
    }

    fn tx_burst(&mut self, max: usize, mut fill: impl FnMut(&mut [TxFrame<'_>]) -> usize) -> usize {
        let held = usize::from(self.held);
        let mut out = [0; crate::wire::FRAME_LEN_MAX];
        let mut taken = 0;
        while self.send_held() && taken < max {
            let mut frame = [TxFrame::new(&mut out)];
            if fill(&mut frame) == 0 {
                break;
            }
            taken += 1;
            self.held = frame[0].transmit.is_some();
        }
        taken.max(held)
    }

    fn flush(&mut self, _: Instant) {}
}

/// A device with as many large frames as it is asked for, whoever they are for.
#[derive(Default)]
struct Flood {
    bytes: usize,
}

/// Bytes of each.
const LARGE: usize = 3400;

impl Backend for Flood {
    fn rx_burst(&mut self, max: usize, mut on_packets: impl FnMut(&mut [RxPacket<'_>])) -> usize {
        let mut buffers = vec![[0_u8; LARGE]; max];
        let frames = buffers.iter_mut().map(|bytes| RxPacket {
            source_port: SourcePort::FIRST,
            source: "192.0.2.2".parse().unwrap(),
            destination: local(),
            port: Port::ONE_RMA,
            reply_len_max: LARGE,
            link: None,
            bytes,
        });
        on_packets(&mut frames.collect::<Vec<_>>());
        self.bytes += max * LARGE;
        max
    }

    fn tx_burst(&mut self, _: usize, _: impl FnMut(&mut [TxFrame<'_>]) -> usize) -> usize {
        0
    }

    fn flush(&mut self, _: Instant) {}
}

/// An engine with one portal, which may seal frames up to `counter_end`.
fn engine_on<B: Backend>(
    backend: B,
    counter_end: u64,
) -> (Engine<B, HandClock>, CommandPortal, RegisteredRegion) {
    let addresses = local().into();
    let place = NicPlace { counter_end, ..NicPlace::at(addresses) };
    let mut nic = Nic::new(NicConfigBuilder::default().build(place).unwrap());
    let memory = Arc::new(rma_shm::Region::new(64).unwrap());
    let key = crate::crypto::RegionKey::from_bytes([1; 16]);
    let entry = RegionEntry::new(memory.clone(), &key, Permissions::NONE, PID);
    let sink = nic.regions_mut().register(Box::new(entry)).unwrap();
    let sink = RegisteredRegion::new(sink, memory, NicTag(1));
    let mut engine = Engine::new(OneRma::new(nic), backend, HandClock::default());
    let slots = 0..SLOTS;
    engine.service_mut().nic_mut().configure_slots(slots.clone(), Some(PID));
    let (portal, port) =
        portal(PortalConfig { slots, pid: PID, addresses, bell: None, flag: None, nic: NicTag(1) });
    engine.service_mut().attach(port);
    (engine, portal, sink)
}

#[test]
fn a_frame_that_the_device_holds_is_sent_as_soon_as_it_can_be() {
    let (mut engine, mut portal, sink) =
        engine_on(Holding { is_blocked: true, ..Holding::default() }, u64::MAX);
    read(&mut portal, &sink);
    engine.turn();
    assert!(engine.backend.held);
    for _ in 0..3 {
        assert!(engine.turn() > 0, "nobody sleeps over it");
    }
    engine.backend.is_blocked = false;
    engine.turn();
    assert!(!engine.backend.held, "though there is nothing else to send");
    assert_eq!(engine.turn(), 0);
}

#[test]
fn a_device_without_room_is_asked_once_a_turn() {
    let (mut engine, mut portal, sink) =
        engine_on(Holding { is_blocked: true, ..Holding::default() }, u64::MAX);
    read(&mut portal, &sink);
    engine.turn();
    read(&mut portal, &sink);
    let before = engine.backend.tries;
    engine.turn();
    assert_eq!(engine.backend.tries - before, 1);
}

#[test]
fn a_request_that_cannot_be_sealed_is_counted() {
    let (mut engine, mut portal, sink) = engine_on(Lost::default(), 1);
    read(&mut portal, &sink);
    engine.turn();
    assert_eq!(
        (
            engine.service.nic().counter_values_left(),
            engine.service.nic().counters().seals_refused()
        ),
        (0, 0)
    );
    read(&mut portal, &sink);
    engine.turn();
    assert_eq!(engine.service.nic().counters().seals_refused(), 1);
}

#[test]
fn a_turn_takes_in_a_quantum() {
    let (mut engine, ..) = engine_on(Flood::default(), u64::MAX);
    let received = |engine: &mut Engine<Flood, HandClock>| {
        let before = engine.backend.bytes;
        engine.turn();
        engine.backend.bytes - before
    };
    // How long frames are is known after the first turn.
    received(&mut engine);
    assert_eq!(received(&mut engine), QUANTUM / LARGE * LARGE);
}

#[test]
fn beside_ops_of_the_latency_class_requests_to_one_host_count_by_their_bytes() {
    let (mut engine, mut portal, sink) = engine_on(Lost::default(), u64::MAX);
    let sent = |engine: &mut Engine<Lost, HandClock>| {
        engine.turn();
        core::mem::take(&mut engine.backend.0).len()
    };
    for _ in 0..10 {
        read_as(ClassOfService::Throughput, &mut portal, &sink);
    }
    read(&mut portal, &sink);
    assert_eq!(sent(&mut engine), 11, "they share a packet, and count by their bytes");
    for _ in 0..20 {
        read(&mut portal, &sink);
    }
    assert_eq!(sent(&mut engine), 20, "of the latency class there may be many");
    for _ in 0..10 {
        read_as(ClassOfService::Throughput, &mut portal, &sink);
    }
    pass(&engine, Duration::from_nanos(LATENCY_LASTS_NANOS));
    assert_eq!(sent(&mut engine), 10, "there is none of the latency class any more");
}

/// A device whose frames get lost but for the first, which a peer refuses.
struct RefusingOne {
    peer: Nic,
    /// The notice that is under way.
    notice: Option<(Transmit, [u8; crate::wire::FRAME_LEN_MAX])>,
    sent: usize,
}

impl Backend for RefusingOne {
    fn rx_burst(&mut self, _: usize, mut on_packets: impl FnMut(&mut [RxPacket<'_>])) -> usize {
        let Some((transmit, mut bytes)) = self.notice.take() else { return 0 };
        on_packets(&mut [rx_packet(&transmit, &mut bytes)]);
        1
    }

    fn tx_burst(&mut self, max: usize, mut fill: impl FnMut(&mut [TxFrame<'_>]) -> usize) -> usize {
        let mut out = [0; crate::wire::FRAME_LEN_MAX];
        let mut taken = 0;
        while taken < max {
            let mut frame = [TxFrame::new(&mut out)];
            if fill(&mut frame) == 0 {
                break;
            }
            let [TxFrame { bytes, transmit }] = frame;
            if let (0, Some(transmit)) = (self.sent, transmit) {
                let now = Instant::from_nanos(1);
                let _ =
                    self.peer.handle_frame(now, &now, RxFrame::alone(rx_packet(&transmit, bytes)));
                let mut notice = [0; crate::wire::FRAME_LEN_MAX];
                self.notice = self.peer.poll_transmit(now, &mut notice).map(|it| (it, notice));
            }
            (taken, self.sent) = (taken + 1, self.sent + 1);
        }
        taken
    }

    fn flush(&mut self, _: Instant) {}
}

fn rx_packet<'a>(transmit: &Transmit, bytes: &'a mut [u8]) -> RxPacket<'a> {
    let &Transmit { source, destination, port, source_port, len, .. } = transmit;
    RxPacket {
        source_port,
        source,
        destination,
        port,
        reply_len_max: LARGE,
        link: None,
        bytes: &mut bytes[..len],
    }
}

#[test]
fn requests_of_the_throughput_class_gather_while_many_are_under_way() {
    let place = NicPlace::at(HostAddr::from([192, 0, 2, 2]));
    let peer = Nic::new(NicConfigBuilder::default().build(place).unwrap());
    let (mut engine, mut portal, sink) =
        engine_on(RefusingOne { peer, notice: None, sent: 0 }, u64::MAX);
    let issue = |portal: &mut CommandPortal| read_as(ClassOfService::Throughput, portal, &sink);
    for _ in 0..17 {
        issue(&mut portal);
    }
    engine.turn();
    assert_eq!(engine.backend.sent, 17);
    engine.turn();
    assert_eq!(portal.poll().unwrap().status, OpStatus::RemoteAuthenticationFailure);

    for _ in 0..3 {
        issue(&mut portal);
        assert!(engine.turn() > 0);
        assert_eq!(engine.backend.sent, 17);
    }
    assert!(engine.turn() > 0 && !engine.is_idle(), "nobody goes to sleep over them");
    // The fourth makes them a quarter of those under way.
    issue(&mut portal);
    engine.turn();
    assert_eq!(engine.backend.sent, 21);

    issue(&mut portal);
    engine.turn();
    assert_eq!(engine.backend.sent, 21);
    pass(&engine, Duration::from_micros(10));
    engine.turn();
    assert_eq!(engine.backend.sent, 22, "though no other has come");
    assert_eq!(engine.turn(), 0);
}
