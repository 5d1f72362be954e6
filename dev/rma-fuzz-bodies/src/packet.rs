//! Packets: any octets taken apart, and any frames put together.

use std::collections::BTreeSet;

use rma_core::{
    addr::HostAddr,
    backend::{LINK_LEN, RxPacket, Transmit, TxFrame},
    op::ClassOfService,
    packet::{FRAMES_MAX, Frames, Packets, SMALL},
    port::{Port, SourcePort},
    wire::{self, FrameView},
};

use super::script::Script;

/// Any octets, taken apart as a packet; or frames of any lengths and ways, put into packets.
///
/// Asserts of the first: a walk goes forward, never beyond the end, and finds as many frames as a
/// packet may have at most, each as long as it says; a tail is the last. Of the second: each frame
/// is in one packet, once and whole, or was not to begin one; in a packet are frames that go one
/// way, in their order, and no more octets than path, buffer and receivers take.
pub fn packet(data: &[u8]) {
    let mut script = Script(data);
    if script.number() % 2 == 0 { take_apart(script.0) } else { put_together(&mut script) }
}

fn take_apart(octets: &[u8]) {
    let mut bytes = octets.to_vec();
    let mut packet = received(&mut bytes);
    let (mut frames, mut at, mut count, mut is_over) = (Frames::of(&mut packet), 0, 0, false);
    while let Some(frame) = frames.next(wire::frame_len) {
        assert!(!is_over, "something came behind a tail");
        match frame {
            Ok(frame) => {
                let len = frame.bytes.len();
                assert!(len > 0 && *frame.bytes == octets[at..at + len], "not what was there");
                assert_eq!(wire::frame_len(&octets[at..]), Ok(len));
                assert_eq!(frame.is_first, at == 0);
                // It may be none for another reason, but it is no longer than it says.
                let shorter = FrameView::parse(&octets[at..at + len - 1]);
                assert!(shorter.is_err(), "a frame is shorter than it says");
                (at, count) = (at + len, count + 1);
            }
            Err(tail) => {
                assert_eq!(tail.octets, octets.len() - at);
                (at, is_over) = (octets.len(), true);
            }
        }
    }
    assert!(at == octets.len() && count <= FRAMES_MAX, "{count} frames, {at} octets");
}

fn received(bytes: &mut [u8]) -> RxPacket<'_> {
    RxPacket {
        source: host(1),
        destination: host(2),
        port: Port::ONE_RMA,
        source_port: SourcePort::FIRST,
        reply_len_max: 0,
        link: None,
        bytes,
    }
}

fn host(number: u8) -> HostAddr {
    [192, 0, 2, number].into()
}

/// Frames say which they are in their first octet, and repeat it to their end.
fn put_together(script: &mut Script<'_>) {
    let movable = [0, SMALL, usize::MAX][script.number() % 3];
    let (path, room) = (script.wide() as usize, LINK_LEN + 1 + script.wide() as usize % 9_000);
    let mut buffers = vec![vec![0; room]; script.number() % (FRAMES_MAX + 1)];
    let mut frames: Vec<TxFrame<'_>> = Vec::new();
    for (number, buffer) in buffers.iter_mut().enumerate() {
        let flags = script.number();
        let len = 1 + script.wide() as usize % (room - LINK_LEN);
        let ends = [host(1 + (flags as u8 & 1)), host(3 + (flags as u8 >> 1 & 1))];
        let class = ClassOfService::ALL[flags >> 2 & 1];
        let mut transmit = Transmit::new(ends, Port::ONE_RMA, class, len);
        transmit.source_port = SourcePort(50_000 + (flags as u16 >> 3 & 1));
        transmit.link_behind = flags & 0x10 != 0;
        transmit.opens_packet = flags & 0x20 == 0;
        if flags & 0x40 != 0 {
            transmit.packet_len_max = script.wide() as u16;
        }
        buffer[..len].fill(number as u8 + 1);
        buffer[len..len + LINK_LEN].fill(0xf0 | flags as u8 & 1);
        let transmit = (flags & 0x80 == 0).then_some(transmit);
        frames.push(TxFrame { bytes: buffer, transmit });
    }
    let written: Vec<_> = frames.iter().map(|it| it.transmit).collect();
    let mut plan = Packets::new();
    plan.plan(&frames, movable, |_, head| path.min(head.packet_room()));
    let mut seen = BTreeSet::new();
    for packet in plan.list() {
        plan.gather(packet, &mut frames);
        let members: Vec<_> = plan.frames_of(packet).collect();
        assert!(
            members.len() == packet.frames() && members.is_sorted() && members.len() <= FRAMES_MAX
        );
        assert_eq!(members[0], packet.first());
        let head = written[members[0]].expect("what holds nothing is in no packet");
        assert!(head.opens_packet, "it may not begin a packet");
        let mut at = 0;
        for member in members {
            assert!(seen.insert(member), "frame {member} is in two packets");
            let transmit = written[member].expect("what holds nothing is in no packet");
            let way = |it: &Transmit| (it.source, it.destination, it.source_port, it.link_behind);
            assert_eq!(way(&transmit), way(&head));
            let bytes = &frames[packet.first()].bytes[at..at + transmit.len];
            assert!(
                bytes.iter().all(|&octet| octet == member as u8 + 1),
                "frame {member} is not whole"
            );
            at += transmit.len;
            if packet.frames() > 1 {
                assert!(
                    packet.octets() <= path
                        && packet.octets() <= usize::from(transmit.packet_len_max)
                );
            }
        }
        assert_eq!(at, packet.octets());
        if head.link_behind {
            let link = &frames[packet.first()].bytes[at..at + LINK_LEN];
            assert!(link.iter().all(|&octet| octet >= 0xf0), "the way back is behind the last");
        }
    }
    let to_send = written.iter().flatten().count();
    assert_eq!(seen.len() + plan.unpaid(), to_send, "each frame is in a packet or left out");
    let left_out = (0..written.len()).filter(|it| !seen.contains(it));
    let mut left_out = left_out.filter_map(|it| written[it]);
    assert!(left_out.all(|it| !it.opens_packet), "a frame that may begin a packet was left out");
}
