//! An initiator that is refused learns of it, whatever strangers and recordings ask for meanwhile
//! (P10, P11). What waits is drained as an engine does it: by turns, beside traffic of the latency
//! class.

use std::collections::VecDeque;

use super::*;
use crate::{
    crypto::{KeyBinding, RegionKey, RegionKeySchedule},
    error::DropReason,
};

/// A frame that the test carries.
#[derive(Clone)]
pub(super) struct Flight {
    pub(super) transmit: Transmit,
    pub(super) bytes: Vec<u8>,
}

/// A device that holds what was brought, and what was sent.
#[derive(Default)]
struct Carried {
    inbox: VecDeque<Flight>,
    outbox: Vec<Flight>,
}

impl Backend for Carried {
    fn rx_burst(&mut self, max: usize, mut on_packets: impl FnMut(&mut [RxPacket<'_>])) -> usize {
        let count = max.min(self.inbox.len());
        let mut flights: Vec<Flight> = self.inbox.drain(..count).collect();
        let frames =
            flights.iter_mut().map(|it| {
                let Flight {
                    transmit: Transmit { source, destination, port, source_port, .. },
                    bytes,
                } = it;
                RxPacket {
                    source_port: *source_port,
                    source: *source,
                    destination: *destination,
                    port: *port,
                    reply_len_max: 1472,
                    link: None,
                    bytes,
                }
            });
        let mut frames: Vec<_> = frames.collect();
        if !frames.is_empty() {
            on_packets(&mut frames);
        }
        count
    }

    fn tx_burst(&mut self, max: usize, mut fill: impl FnMut(&mut [TxFrame<'_>]) -> usize) -> usize {
        let mut out = [0; crate::wire::FRAME_LEN_MAX];
        for sent in 0..max {
            let mut frame = [TxFrame::new(&mut out)];
            if fill(&mut frame) == 0 {
                return sent;
            }
            let [TxFrame { bytes, transmit }] = frame;
            let transmit = transmit.expect("no frame is for the server itself");
            self.outbox.push(Flight { transmit, bytes: bytes[..transmit.len].to_vec() });
        }
        max
    }

    fn flush(&mut self, _: Instant) {}
}

/// A host that asks. Its NIC is driven by hand.
pub(super) struct Asker {
    pub(super) addr: HostAddr,
    pub(super) nic: Nic,
    pub(super) sink: RegionId,
}

impl Asker {
    /// Slots of each asker.
    const SLOTS: u16 = 5_000;

    pub(super) fn new(host: u8) -> Self {
        let addr = HostAddr::from([192, 0, 2, host]);
        let config = NicConfigBuilder {
            command_slots: Self::SLOTS.into(),
            solicitation_window: 1 << 30,
            ..NicConfigBuilder::default()
        };
        let mut nic = Nic::new(config.build(NicPlace::at(addr)).unwrap());
        nic.configure_slots(0..Self::SLOTS, Some(PID));
        let sink = register(&mut nic, &RegionKey::from_bytes([0; 16])).0;
        Self { addr, nic, sink }
    }

    /// Issues reads of 64 B under `key`, from slot `first` on, and returns their requests.
    pub(super) fn requests(
        &mut self,
        now: Instant,
        (class, slots): (ClassOfService, Range<u16>),
        (remote_region, key): (RegionId, &RegionKey),
    ) -> Vec<Flight> {
        let (initiator, op_type) = (self.addr, OpType::Read);
        let binding = KeyBinding { initiator, responder: local(), pid: PID, op_type };
        let key = RegionKeySchedule::new(key).derive(&binding);
        for slot in slots.map(CommandSlotId) {
            let (responder, local_region) = (local(), self.sink);
            let read = Transfer { op_size: 64, remote_offset: 0, local_region, local_offset: 0 };
            let op = CommandOp::Read(read);
            let command = Command { slot, class, responder, remote_region, key, op };
            self.nic.handle_command(now, command).unwrap();
        }
        let mut out = [0; crate::wire::FRAME_LEN_MAX];
        let requests = core::iter::from_fn(|| {
            let transmit = self.nic.poll_transmit(now, &mut out)?;
            Some(Flight { transmit, bytes: out[..transmit.len].to_vec() })
        });
        requests.collect()
    }
}

pub(super) fn register(nic: &mut Nic, key: &RegionKey) -> (RegionId, Arc<rma_shm::Region>) {
    let memory = Arc::new(rma_shm::Region::new(4096).unwrap());
    let entry = RegionEntry::new(memory.clone(), key, Permissions::READ, PID);
    (nic.regions_mut().register(Box::new(entry)).unwrap(), memory)
}

const OLD: RegionKey = RegionKey::from_bytes([1; 16]);
pub(super) const WRONG: RegionKey = RegionKey::from_bytes([0xee; 16]);
const TURN: Duration = Duration::from_micros(10);
const BULK: ClassOfService = ClassOfService::Throughput;

/// A server, an honest host, another one, and one that reads 64 B of the latency class in every
/// turn.
struct Scene {
    server: Engine<Carried, HandClock>,
    rotated: RegionId,
    steady: RegionId,
    honest: Asker,
    other: Asker,
    reader: Asker,
    /// The counts of the honest host's ops by their end.
    ends: [usize; OpStatus::ALL.len()],
    /// Notices to the honest host, and to the other.
    notices: [usize; 2],
}

impl Scene {
    fn new(notices_per_second: u32) -> Self {
        let settings = NicConfigBuilder { notices_per_second, ..NicConfigBuilder::default() };
        let mut nic = Nic::new(settings.build(NicPlace::at(local())).unwrap());
        let [rotated, steady] = [0, 1].map(|_| register(&mut nic, &OLD).0);
        let server = Engine::new(OneRma::new(nic), Carried::default(), HandClock::default());
        pass(&server, TURN);
        let [honest, other, reader] = [2, 3, 4].map(Asker::new);
        let (ends, notices) = (Default::default(), [0; 2]);
        Self { server, rotated, steady, honest, other, reader, ends, notices }
    }

    fn now(&self) -> Instant {
        self.server.clock.now()
    }

    fn rotate(&mut self, key: u8) {
        let key = RegionKey::from_bytes([key; 16]);
        let rotated = self.rotated;
        self.server.service_mut().nic_mut().regions_mut().rekey(rotated, &key).unwrap();
    }

    /// A turn in which `frames` and a read of the latency class come.
    fn turn(&mut self, frames: impl IntoIterator<Item = Flight>) {
        let now = self.now();
        let read = (ClassOfService::Latency, 0..1);
        let small = self.reader.requests(now, read, (self.steady, &OLD));
        self.server.backend.inbox.extend(frames);
        self.server.backend.inbox.extend(small);
        while !self.server.backend.inbox.is_empty() {
            self.server.turn();
        }
        for Flight { transmit, mut bytes } in core::mem::take(&mut self.server.backend.outbox) {
            let Self { honest, other, reader, .. } = self;
            let (index, to) = [honest, other, reader]
                .into_iter()
                .enumerate()
                .find(|(_, asker)| asker.addr == transmit.destination)
                .expect("answers go to who asked");
            if index < 2 && matches!(FrameView::parse(&bytes), Ok(FrameView::Failure(_))) {
                self.notices[index] += 1;
            }
            let _ = to.nic.handle_frame(now, &now, rx_frame(&transmit, &mut bytes));
        }
        for asker in [&mut self.honest, &mut self.other, &mut self.reader] {
            asker.nic.handle_timeout(now);
        }
        while let Some(completion) = self.honest.nic.poll_completion() {
            self.ends[completion.status as usize] += 1;
        }
        assert_eq!(self.reader.nic.poll_completion().unwrap().status, OpStatus::Ok);
        pass(&self.server, TURN);
    }

    fn told(&self) -> usize {
        self.ends[OpStatus::RemoteAuthenticationFailure as usize]
    }

    /// Turns in which nothing else comes, until all of the honest host's ops have ended. Returns
    /// how many were told.
    fn told_at_the_end(&mut self, ops: usize) -> usize {
        while self.ends.iter().sum::<usize>() < ops {
            self.turn([]);
        }
        self.told()
    }
}

fn rx_frame<'a>(transmit: &Transmit, bytes: &'a mut [u8]) -> RxFrame<'a> {
    let &Transmit { source, destination, port, source_port, .. } = transmit;
    RxFrame::alone(RxPacket {
        source,
        destination,
        port,
        source_port,
        reply_len_max: 1472,
        link: None,
        bytes,
    })
}

/// Of how many ops under an old key the honest host asks.
const OPS: u16 = 100;

/// The key is rotated; then `recordings` requests under the old one come again and again, `copies`
/// in each turn, and the honest host asks for something in every tenth.
fn flooded(recordings: u16, copies: usize, of_honest: bool) -> Scene {
    let mut scene = Scene::new(100_000);
    let (now, region) = (scene.now(), scene.rotated);
    let recorded = if of_honest { &mut scene.honest } else { &mut scene.other };
    let recorded = recorded.requests(now, (BULK, OPS..OPS + recordings), (region, &OLD));
    assert_eq!(recorded.len(), usize::from(recordings));
    scene.rotate(2);
    let mut copied = recorded.iter().cycle();
    for turn in 0..10 * OPS {
        let mut frames: Vec<Flight> = copied.by_ref().take(copies).cloned().collect();
        if turn % 10 == 0 {
            let slot = turn / 10;
            let now = scene.now();
            let request = scene.honest.requests(now, (BULK, slot..slot + 1), (region, &OLD));
            frames.extend(request);
        }
        scene.turn(frames);
    }
    scene
}

/// P11: whatever other hosts' recordings ask.
#[test]
fn recordings_of_another_host_do_not_keep_a_refusal_from_anybody() {
    let mut untold = Vec::new();
    for recordings in [1, 256, 4096] {
        for copies in [1, 5, 60] {
            let mut scene = flooded(recordings, copies, false);
            let told = scene.told_at_the_end(OPS.into());
            if told < usize::from(OPS) {
                untold.push((recordings, copies, usize::from(OPS) - told));
            }
        }
    }
    assert_eq!(untold, [], "recordings, copies a turn, honest ops that ended with TIMEOUT");
}

/// P11: recordings of the host itself, as far as its own turns reach.
#[test]
fn recordings_of_a_host_itself_do_not_keep_a_refusal_from_it_within_its_turns() {
    let mut untold = Vec::new();
    for (recordings, copies) in [(1, 1), (1, 5), (1, 60), (256, 1), (256, 5), (256, 60), (4096, 1)]
    {
        let mut scene = flooded(recordings, copies, true);
        // The recordings are of ops that are under way themselves.
        let all = usize::from(OPS + recordings);
        let late = all - scene.told_at_the_end(all);
        // Those that never came again time out.
        let never = usize::from(recordings).saturating_sub(1000 * copies);
        if late > never {
            untold.push((recordings, copies, late - never));
        }
    }
    assert_eq!(untold, [], "recordings, copies a turn, ops that came and ended with TIMEOUT");
}

/// P10: one notice for a request within a timeout, however often it comes.
#[test]
fn a_recording_is_answered_once_in_a_timeout() {
    for copies in [1, 60] {
        // It goes on for 10 ms, a tenth of the timeout.
        let scene = flooded(1, copies, false);
        assert_eq!(scene.notices[1], 1, "{copies} copies a turn");
    }
}

/// P10: two rates, and no others.
#[test]
fn recordings_get_no_more_notices_than_the_rate_allows() {
    let scene = flooded(4096, 60, false);
    // A burst, and 100,000 a second for 10 ms.
    let most = 256 + 1000;
    let notices: usize = scene.notices.iter().sum();
    assert!(notices <= most, "{notices} of {most}");
}

/// P11: strangers have a queue and a rate of their own.
#[test]
fn strangers_before_a_rotation_do_not_keep_a_refusal_from_anybody() {
    for per_second in [0, 1, 100_000] {
        let mut scene = Scene::new(per_second);
        let (now, region) = (scene.now(), scene.rotated);
        let forged = scene.other.requests(now, (BULK, 0..256), (region, &WRONG));
        let honest = scene.honest.requests(now, (BULK, 0..50), (region, &OLD));
        scene.rotate(2);
        // There has been something of the latency class before.
        scene.turn([]);
        scene.turn(forged);
        scene.turn(honest);
        assert_eq!(scene.told_at_the_end(50), 50, "{per_second} notices a second");
    }
}

/// A notice that waits for a token is no work before the token comes.
#[test]
fn an_engine_sleeps_over_notices_that_must_wait_and_knows_until_when() {
    let mut scene = Scene::new(1_000);
    let (now, region) = (scene.now(), scene.rotated);
    let forged = scene.other.requests(now, (BULK, 0..300), (region, &WRONG));
    scene.server.backend.inbox.extend(forged);
    while scene.server.turn() > 0 {}
    assert!(scene.server.is_idle());
    let sent = |scene: &mut Scene| core::mem::take(&mut scene.server.backend.outbox).len();
    assert_eq!(sent(&mut scene), 256);
    for _ in 0..3 {
        let next = scene.server.service().nic().poll_timeout().unwrap();
        assert_eq!(next.since(scene.now()), Duration::from_millis(1));
        pass(&scene.server, Duration::from_millis(1) - Duration::from_nanos(1));
        assert_eq!((scene.server.turn(), sent(&mut scene)), (0, 0));
        pass(&scene.server, Duration::from_nanos(1));
        assert_eq!((scene.server.turn(), sent(&mut scene)), (1, 1));
        assert_eq!(scene.server.turn(), 0);
    }
}

/// P11: up to four rotations in an op's flight.
#[test]
fn an_op_is_refused_as_under_an_old_key_after_up_to_four_rotations_in_its_flight() {
    for rotations in 1..=5 {
        // A host that tells strangers nothing.
        let mut scene = Scene::new(0);
        let (now, region) = (scene.now(), scene.rotated);
        let requests = scene.honest.requests(now, (BULK, 0..10), (region, &OLD));
        for key in 2..2 + rotations {
            scene.rotate(key);
            scene.turn([]);
        }
        scene.turn(requests);
        let told = scene.told_at_the_end(10);
        assert_eq!(told, if rotations <= 4 { 10 } else { 0 }, "{rotations} rotations");
        let reason =
            if rotations <= 4 { DropReason::OldKey } else { DropReason::RequestUnauthenticated };
        assert_eq!(scene.server.service().nic().counters().drops(reason), 10);
    }
}
