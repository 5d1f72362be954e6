//! Packets of several frames, good and bad, at an engine: each frame is served or refused by
//! itself, whatever it came with (P6, P7), and strangers get no more than they have paid for (P10).

use std::collections::{BTreeMap, VecDeque};

use super::{
    refusals::{Asker, Flight, WRONG, register},
    *,
};
use crate::{
    backend::ReceiveLenMax,
    crypto::{KeyBinding, RegionKey, RegionKeySchedule},
    error::DropReason,
    packet::{FRAMES_MAX, Packets, SMALL},
    wire::{self, FrameType, mutation, read},
};

/// A packet that the test carries.
#[derive(Clone)]
struct Parcel {
    from: HostAddr,
    to: HostAddr,
    source_port: SourcePort,
    bytes: Vec<u8>,
}

/// A device that holds the packets that were brought, and those that were sent. Its path carries
/// packets of 3,400 octets.
#[derive(Default)]
struct Post {
    inbox: VecDeque<Parcel>,
    outbox: Vec<Parcel>,
    plan: Packets,
}

/// Octets of its buffers.
const PATH: usize = 3_400;

impl Backend for Post {
    fn rx_burst(&mut self, max: usize, mut on_packets: impl FnMut(&mut [RxPacket<'_>])) -> usize {
        let count = max.min(self.inbox.len());
        let mut parcels: Vec<Parcel> = self.inbox.drain(..count).collect();
        let packets = parcels.iter_mut().map(|it| RxPacket {
            source: it.from,
            destination: it.to,
            port: Port::ONE_RMA,
            source_port: it.source_port,
            reply_len_max: PATH,
            link: None,
            bytes: &mut it.bytes,
        });
        let mut packets: Vec<_> = packets.collect();
        if !packets.is_empty() {
            on_packets(&mut packets);
        }
        count
    }

    fn tx_burst(&mut self, max: usize, mut fill: impl FnMut(&mut [TxFrame<'_>]) -> usize) -> usize {
        let mut buffers = vec![[0_u8; PATH]; FRAMES_MAX];
        let mut taken = 0;
        while taken < max {
            let wanted = FRAMES_MAX.min(max - taken);
            let mut frames: Vec<_> =
                buffers[..wanted].iter_mut().map(|it| TxFrame::new(it)).collect();
            let filled = fill(&mut frames);
            self.plan.plan(&frames[..filled], SMALL, |_, frame| frame.packet_room());
            for packet in self.plan.list() {
                self.plan.gather(packet, &mut frames);
                let TxFrame { bytes, transmit } = &frames[packet.first()];
                let transmit = transmit.expect("what is empty is in no packet");
                self.outbox.push(Parcel {
                    from: transmit.source,
                    to: transmit.destination,
                    source_port: transmit.source_port,
                    bytes: bytes[..packet.octets()].to_vec(),
                });
            }
            taken += filled;
            if filled < wanted {
                break;
            }
        }
        taken
    }

    fn flush(&mut self, _: Instant) {}
}

const KEY: RegionKey = RegionKey::from_bytes([1; 16]);
const LATENCY: ClassOfService = ClassOfService::Latency;
const BULK: ClassOfService = ClassOfService::Throughput;

/// A server, and a host that asks it.
struct Scene {
    server: Engine<Post, HandClock>,
    region: RegionId,
    asker: Asker,
    /// The status of each of the asker's ops, by slot.
    ends: BTreeMap<u16, OpStatus>,
}

impl Scene {
    fn new() -> Self {
        let settings = NicConfigBuilder::default().with(|it| it.notices_per_second = 100_000_000);
        let mut nic = Nic::new(settings.build(NicPlace::at(local())).unwrap());
        let (region, _) = register(&mut nic, &KEY);
        let server = Engine::new(OneRma::new(nic), Post::default(), HandClock::default());
        pass(&server, Duration::from_micros(10));
        Self { server, region, asker: Asker::new(2), ends: BTreeMap::new() }
    }

    /// Requests for 64 B, by slots from `slots` on.
    fn requests_as(
        &mut self,
        class: ClassOfService,
        slots: Range<u16>,
        key: &RegionKey,
    ) -> Vec<Vec<u8>> {
        let now = self.server.clock.now();
        let requests = self.asker.requests(now, (class, slots), (self.region, key));
        requests.into_iter().map(|Flight { bytes, .. }| bytes).collect()
    }

    fn requests(&mut self, slots: Range<u16>) -> Vec<Vec<u8>> {
        self.requests_as(LATENCY, slots, &KEY)
    }

    /// The request of a write that the region permits to nobody.
    fn write_request(&mut self, slot: u16) -> Vec<u8> {
        let (now, initiator) = (self.server.clock.now(), self.asker.addr);
        let binding =
            KeyBinding { initiator, responder: local(), pid: PID, op_type: OpType::Write };
        let local_region = self.asker.sink;
        let write = Transfer { op_size: 64, remote_offset: 0, local_region, local_offset: 0 };
        let command = Command {
            slot: CommandSlotId(slot),
            class: LATENCY,
            responder: local(),
            remote_region: self.region,
            key: RegionKeySchedule::new(&KEY).derive(&binding),
            op: CommandOp::Write(write),
        };
        self.asker.nic.handle_command(now, command).unwrap();
        let mut out = [0; wire::FRAME_LEN_MAX];
        let transmit = self.asker.nic.poll_transmit(now, &mut out).unwrap();
        out[..transmit.len].to_vec()
    }

    /// A packet comes, and its answers are carried back. Returns these.
    fn bring(&mut self, packet: Vec<u8>) -> Vec<Parcel> {
        let (from, source_port) = (self.asker.addr, SourcePort(50_000));
        self.bring_from(from, source_port, packet)
    }

    fn bring_from(
        &mut self,
        from: HostAddr,
        source_port: SourcePort,
        bytes: Vec<u8>,
    ) -> Vec<Parcel> {
        let parcel = Parcel { from, to: local(), source_port, bytes };
        self.server.backend.inbox.push_back(parcel);
        while self.server.turn() > 0 {}
        let now = self.server.clock.now();
        let sent = core::mem::take(&mut self.server.backend.outbox);
        for parcel in sent.iter().filter(|it| it.to == self.asker.addr) {
            let mut bytes = parcel.bytes.clone();
            let mut packet = RxPacket {
                source: parcel.from,
                destination: parcel.to,
                port: Port::ONE_RMA,
                source_port: parcel.source_port,
                reply_len_max: PATH,
                link: None,
                bytes: &mut bytes,
            };
            let mut frames = Frames::of(&mut packet);
            while let Some(frame) = frames.next(wire::frame_len) {
                let _ = self.asker.nic.handle_frame(now, &now, frame.expect("answers are whole"));
            }
        }
        while let Some(completion) = self.asker.nic.poll_completion() {
            self.ends.insert(completion.slot.0, completion.status);
        }
        pass(&self.server, Duration::from_micros(10));
        sent
    }

    /// The slots of the ops that have ended so.
    fn ended(&self, status: OpStatus) -> Vec<u16> {
        self.ends.iter().filter(|&(_, end)| *end == status).map(|(slot, _)| *slot).collect()
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.server.service().nic().counters().drops(reason)
    }

    fn all_drops(&self) -> Vec<(DropReason, u64)> {
        self.server.service().nic().counters().all_drops().collect()
    }

    fn tail_octets(&self) -> u64 {
        self.server.service().nic().counters().tail_octets()
    }
}

fn slots(range: Range<u16>) -> Vec<u16> {
    range.collect()
}

#[test]
fn requests_of_a_packet_are_served_in_any_order_and_their_answers_share_one() {
    let mut scene = Scene::new();
    let mut requests = scene.requests(0..5);
    requests.reverse();
    requests.swap(1, 3);
    let sent = scene.bring(requests.concat());
    assert_eq!(scene.ended(OpStatus::Ok), slots(0..5));
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].bytes.len(), 5 * (read::RESPONSE_OVERHEAD + 64));
    assert_eq!(sent[0].source_port, SourcePort(50_000), "the port of the requests");
    assert_eq!(scene.all_drops(), []);
}

#[test]
fn a_packet_that_is_cut_at_any_octet_serves_the_frames_that_are_whole() {
    let mut scene = Scene::new();
    for cut in 0..3 * read::REQUEST_LEN {
        let first = 3 * cut as u16;
        let requests = scene.requests(first..first + 3);
        let (whole, rest) = (cut / read::REQUEST_LEN, cut % read::REQUEST_LEN);
        let (before, octets) = (scene.drops(DropReason::Length), scene.tail_octets());
        scene.bring(requests.concat()[..cut].to_vec());
        scene.ends.retain(|&slot, _| slot >= first);
        assert_eq!(scene.ended(OpStatus::Ok), slots(first..first + whole as u16), "cut at {cut}");
        let tails = u64::from(rest > 0 || cut == 0);
        assert_eq!(scene.drops(DropReason::Length) - before, tails, "cut at {cut}");
        assert_eq!(scene.tail_octets() - octets, rest as u64, "cut at {cut}");
    }
    assert_eq!(scene.all_drops().len(), 1, "nothing else was dropped");
}

#[test]
fn of_a_hundred_frames_as_many_are_served_as_a_packet_may_have() {
    let mut scene = Scene::new();
    let requests = scene.requests(0..100);
    scene.bring(requests.concat());
    assert_eq!(scene.ended(OpStatus::Ok), slots(0..FRAMES_MAX as u16));
    assert_eq!(scene.all_drops(), [(DropReason::TooManyFrames, 1)]);
    assert_eq!(scene.tail_octets(), 68 * read::REQUEST_LEN as u64);
    // The rest stops nobody.
    let more = scene.requests(100..101);
    scene.bring(more.concat());
    assert!(scene.ended(OpStatus::Ok).contains(&100));
}

/// A host of version 1 has one frame in a packet; its type 7 has no length. Both drop the other's.
#[test]
fn a_frame_of_another_version_ends_the_walk_and_is_counted_as_that() {
    let mut scene = Scene::new();
    let last = |scene: &Scene| {
        let counters = scene.server.service().nic().counters();
        counters.other_version().map(|it| (it.host, it.version))
    };
    assert_eq!(last(&scene), None);
    let mut requests = scene.requests(0..4);
    requests[2][0] = 1;
    scene.bring(requests.concat());
    assert_eq!(scene.ended(OpStatus::Ok), [0, 1]);
    assert_eq!(scene.all_drops(), [(DropReason::Version, 1)]);
    assert_eq!(scene.tail_octets(), 2 * read::REQUEST_LEN as u64);
    assert_eq!(last(&scene), Some((scene.asker.addr, 1)));
    for octet in [0, 1, 3, 255] {
        let mut alone = scene.requests(10 + octet..11 + octet).concat();
        alone[0] = octet as u8;
        let from: HostAddr = [192, 0, 2, 100 + octet as u8 % 100].into();
        let sent = scene.bring_from(from, SourcePort(50_000), alone);
        assert!(sent.is_empty(), "no answer is defined for other versions");
        assert_eq!(last(&scene), Some((from, octet as u8)), "who it was can be found");
    }
    assert_eq!(scene.all_drops(), [(DropReason::Version, 5)]);
}

#[test]
fn a_frame_that_is_twice_in_a_packet_is_a_duplicate() {
    let mut scene = Scene::new();
    // Reading twice changes nothing: it is answered twice, and lands once.
    let request = scene.requests(0..1).concat();
    let sent = scene.bring([&request[..], &request].concat());
    assert_eq!(sent[0].bytes.len(), 2 * (read::RESPONSE_OVERHEAD + 64));
    assert_eq!((scene.ended(OpStatus::Ok), scene.all_drops()), (vec![0], vec![]));
    // A refusal under the region's key is told for each, too; the second finds no op.
    let write = scene.write_request(1);
    let sent = scene.bring([&write[..], &write].concat());
    assert_eq!(sent.len(), 1);
    assert_eq!(scene.ended(OpStatus::RemotePermissionDenied), [1]);
}

#[test]
fn a_forged_frame_anywhere_in_a_packet_is_refused_and_the_others_are_served() {
    for place in 0..3 {
        let mut scene = Scene::new();
        let mut requests = scene.requests(0..2);
        let forged = scene.requests_as(BULK, 7..8, &WRONG).concat();
        requests.insert(place, forged);
        let sent = scene.bring(requests.concat());
        assert_eq!(scene.ended(OpStatus::Ok), [0, 1], "forged at {place}");
        assert_eq!(scene.ended(OpStatus::RemoteAuthenticationFailure), [7]);
        assert_eq!(scene.all_drops(), [(DropReason::RequestUnauthenticated, 1)]);
        assert!(sent.len() <= 2, "{} packets for one", sent.len());
    }
}

#[test]
fn classes_may_share_a_packet() {
    let mut scene = Scene::new();
    let (latency, bulk) = (scene.requests(0..2), scene.requests_as(BULK, 2..4, &KEY));
    let mixed: Vec<u8> = latency.into_iter().zip(bulk).flat_map(|(a, b)| [a, b].concat()).collect();
    let sent = scene.bring(mixed);
    assert_eq!(scene.ended(OpStatus::Ok), slots(0..4));
    assert_eq!((sent.len(), scene.all_drops()), (1, vec![]));
}

#[test]
fn a_bad_length_in_the_midst_drops_what_is_behind_it_and_nothing_before() {
    for (len, reason) in
        [(0, DropReason::Field), (1_000, DropReason::Length), (u16::MAX, DropReason::Length)]
    {
        let mut scene = Scene::new();
        let requests = scene.requests(0..3);
        let mut data = vec![0; mutation::DATA_OVERHEAD];
        data[..2].copy_from_slice(&[wire::VERSION, FrameType::SolicitedData as u8]);
        data[30..32].copy_from_slice(&len.to_be_bytes());
        let packet = [&requests[0][..], &requests[1], &data, &requests[2]].concat();
        scene.bring(packet);
        // A length of 0 is in the packet, and no frame of that type has it: it dies alone.
        let served = if len == 0 { 0..3 } else { 0..2 };
        assert_eq!(scene.ended(OpStatus::Ok), slots(served), "length {len}");
        assert_eq!(scene.all_drops(), [(reason, 1)], "length {len}");
    }
}

#[test]
fn an_answer_among_requests_dies_alone() {
    let mut scene = Scene::new();
    let requests = scene.requests(0..3);
    // The answer to a request of the asker comes back to whoever sent it.
    let answer = scene.bring(requests[0].clone()).remove(0).bytes;
    let packet = [&requests[1][..], &answer, &requests[2]].concat();
    scene.bring(packet);
    assert_eq!(scene.ended(OpStatus::Ok), slots(0..3));
    let drops = scene.all_drops();
    assert_eq!(drops.iter().map(|(_, count)| count).sum::<u64>(), 1, "{drops:?}");
    assert_eq!(scene.tail_octets(), 0, "what is behind it can be found");
}

#[test]
fn a_packet_of_answers_is_no_longer_than_any_of_its_requests_allows() {
    let mut scene = Scene::new();
    let receive = |scene: &mut Scene, ipv4| {
        let receive = ReceiveLenMax { ipv4, ..ReceiveLenMax::default() };
        scene.asker.nic.set_receive_len_max(receive).unwrap();
    };
    receive(&mut scene, 3_000);
    let large = scene.requests(0..25);
    let sent = scene.bring(large.concat());
    assert_eq!(sent.len(), 1, "the host has said that it receives so much");
    assert_eq!(sent[0].bytes.len(), 25 * (read::RESPONSE_OVERHEAD + 64));
    // Its MTU shrinks between two of the requests that share the next packet.
    let before = scene.requests(25..35);
    receive(&mut scene, 600);
    let after = scene.requests(35..45);
    let sent = scene.bring([before, after].concat().concat());
    assert_eq!(scene.ended(OpStatus::Ok), slots(0..45));
    for Parcel { bytes, .. } in &sent {
        let mut copy = bytes.clone();
        let mut found = Vec::new();
        while let Ok(len) = wire::frame_len(&copy) {
            found.push(u16::from_be_bytes([copy[12], copy[13]]));
            copy.drain(..len);
        }
        let is_small = found.iter().any(|&slot| slot >= 35);
        assert!(!is_small || bytes.len() <= 600, "{} octets for slots {found:?}", bytes.len());
    }
}

/// P10: packets and octets.
#[test]
fn strangers_get_one_packet_for_a_packet_at_most_and_it_is_shorter() {
    let mut scene = Scene::new();
    let forged = scene.requests_as(BULK, 0..25, &WRONG);
    let sent = scene.bring(forged.concat());
    // They share a packet if they leave in one turn; those that cannot join one are not sent.
    assert_eq!(sent.len(), 1);
    assert!(sent[0].bytes.len() < 25 * read::REQUEST_LEN);
    let told = sent[0].bytes.len() / wire::failure::FAILURE_LEN;
    assert_eq!(scene.ended(OpStatus::RemoteAuthenticationFailure).len(), told);
    assert!(told >= 16, "{told} of 25 were told");
}

/// Numbers without a pattern, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % bound
    }

    /// A frame that a stranger sends: mostly a request that nobody sealed.
    fn strange(&mut self, templates: &[Vec<u8>]) -> Vec<u8> {
        let mut frame = templates[self.below(templates.len())].clone();
        let len = frame.len();
        // Slot, generation, counter, and the tag.
        for at in (12..28).chain(len - 16..len) {
            frame[at] = self.below(256) as u8;
        }
        match self.below(40) {
            0 => frame[0] = 1,
            1 => frame[1] = self.below(256) as u8,
            2 => frame[2] = self.below(256) as u8,
            3 => frame.truncate(self.below(len)),
            4 => frame = (0..self.below(100)).map(|_| self.below(256) as u8).collect(),
            5 => frame[8..12].fill(self.below(256) as u8),
            _ => {}
        }
        frame
    }
}

#[test]
fn random_packets_of_strangers_are_answered_by_no_more_packets_and_octets() {
    let mut scene = Scene::new();
    let templates = [scene.requests(0..1).concat(), scene.write_request(1)];
    let mut numbers = Numbers(1);
    // By host: packets, and octets.
    let (mut paid, mut got) = ([[0; 2]; 8], [[0; 2]; 8]);
    for _ in 0..10_000 {
        let host = numbers.below(8);
        let from = HostAddr::from([198, 51, 100, host as u8]);
        let source_port = SourcePort([10_472, 50_000, 60_000][numbers.below(3)]);
        let count = [1, 1, 2, 5, 26, 40][numbers.below(6)];
        let frames: Vec<_> = (0..count).map(|_| numbers.strange(&templates)).collect();
        let packet = frames.concat();
        paid[host] = [paid[host][0] + 1, paid[host][1] + packet.len()];
        for parcel in scene.bring_from(from, source_port, packet) {
            let to = (0..8).find(|&host| HostAddr::from([198, 51, 100, host as u8]) == parcel.to);
            let to = to.expect("answers go to who asked");
            got[to] = [got[to][0] + 1, got[to][1] + parcel.bytes.len()];
        }
        for (paid, got) in paid.iter().zip(&got) {
            assert!(got[0] <= paid[0] && got[1] <= paid[1], "{got:?} for {paid:?}");
        }
    }
    let sent: usize = got.iter().map(|[packets, _]| packets).sum();
    assert!(sent > 5_000, "{sent} of 10,000 packets were answered: too few to tell");
}
