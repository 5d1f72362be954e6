//! Walks and plans by themselves: what is in a frame is of no interest here, so frames say their
//! length in their first two octets.

use proptest::prelude::*;

use super::*;
use crate::{error::DropReason, limits::UNANNOUNCED_LEN_MAX};

const PORT: Port = Port(7);

fn host(number: u8) -> HostAddr {
    HostAddr::from_octets([number; 16])
}

/// A frame of `len` octets, all the same but for its length.
fn frame(number: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![number; len];
    bytes[..2].copy_from_slice(&(len as u16).to_be_bytes());
    bytes
}

fn frame_len(octets: &[u8]) -> Result<usize, DropReason> {
    let len: &[u8; 2] = octets.first_chunk().ok_or(DropReason::Length)?;
    let len = usize::from(u16::from_be_bytes(*len));
    if len < 2 || len > octets.len() { Err(DropReason::Length) } else { Ok(len) }
}

/// Walks a packet and returns its frames, and the reason and the length of the tail.
fn walk(bytes: &[u8]) -> (Vec<Vec<u8>>, Option<(DropReason, usize)>) {
    let (whole, mut bytes) = (bytes, bytes.to_vec());
    let mut packet = RxPacket {
        source: host(1),
        destination: host(2),
        port: PORT,
        source_port: SourcePort(50_000),
        reply_len_max: 1_452,
        link: None,
        bytes: &mut bytes,
    };
    let (mut frames, mut found, mut end) = (Frames::of(&mut packet), Vec::new(), None);
    while let Some(frame) = frames.next(frame_len) {
        assert_eq!(end, None, "a tail is the last");
        match frame {
            Ok(RxFrame { source, source_port, is_first, bytes, .. }) => {
                assert_eq!((source, source_port.0), (host(1), 50_000));
                assert_eq!(is_first, found.is_empty());
                found.push(bytes.to_vec());
            }
            Err(Tail { reason, octets, first, source }) => {
                assert_eq!(source, host(1));
                let begins = whole.len() - octets;
                assert_eq!(first, whole.get(begins).copied().unwrap_or_default());
                end = Some((reason, octets));
            }
        }
    }
    (found, end)
}

fn tail(reason: DropReason, octets: usize) -> Option<(DropReason, usize)> {
    Some((reason, octets))
}

#[test]
fn a_packet_is_taken_apart_where_its_frames_end() {
    for count in [1, 2, FRAMES_MAX] {
        let frames: Vec<_> = (0..count).map(|it| frame(it as u8, 2 + it * 7 % 50)).collect();
        assert_eq!(walk(&frames.concat()), (frames, None));
    }
    assert_eq!(walk(&[]), (vec![], tail(DropReason::Length, 0)));
}

#[test]
fn frames_before_a_bad_length_are_served_and_those_behind_it_are_not() {
    let (one, two) = (frame(1, 60), frame(2, 48));
    let cut = [&one[..], &two[..47]].concat();
    assert_eq!(walk(&cut), (vec![one.clone()], tail(DropReason::Length, 47)));
    let amid = [&one[..], &[0, 1, 9], &two].concat();
    assert_eq!(walk(&amid), (vec![one.clone()], tail(DropReason::Length, 51)));
    assert_eq!(walk(&one[..1]), (vec![], tail(DropReason::Length, 1)));
}

#[test]
fn frames_beyond_those_that_a_packet_may_have_are_one_tail() {
    let frames: Vec<_> = (0..100).map(|it| frame(it, 50)).collect();
    let (found, end) = walk(&frames.concat());
    assert_eq!((found.len(), end), (FRAMES_MAX, tail(DropReason::TooManyFrames, 68 * 50)));
}

#[test]
fn a_service_that_tells_lengths_that_cannot_be_ends_the_walk() {
    for told in [0, 5, usize::MAX] {
        let mut bytes = [0; 4];
        let mut packet = RxPacket {
            source: host(1),
            destination: host(2),
            port: PORT,
            source_port: SourcePort::FIRST,
            reply_len_max: 0,
            link: None,
            bytes: &mut bytes,
        };
        let mut frames = Frames::of(&mut packet);
        let end = frames.next(|_| Ok(told)).unwrap().unwrap_err();
        assert_eq!((end.reason, end.octets), (DropReason::Length, 4));
        assert!(frames.next(|_| Ok(1)).is_none());
    }
}

/// A frame as it was written, and the way that it goes.
#[derive(Clone, Debug)]
struct Written {
    transmit: Transmit,
    bytes: Vec<u8>,
}

fn written(number: u8, to: u8, class: ClassOfService, len: usize) -> Written {
    let transmit = Transmit::new([host(1), host(to)], PORT, class, len);
    Written { transmit, bytes: frame(number, len) }
}

const LATENCY: ClassOfService = ClassOfService::Latency;
const BULK: ClassOfService = ClassOfService::Throughput;

/// Room in each buffer.
const ROOM: usize = 3_400;

/// The packets that frames are sent in, and how many frames are left out.
fn sent(frames: &[Written], movable: usize, path: usize) -> (Vec<(Transmit, Vec<u8>)>, usize) {
    let mut buffers = vec![vec![0; ROOM]; frames.len()];
    let mut filled: Vec<TxFrame<'_>> = Vec::new();
    for (buffer, Written { transmit, bytes }) in buffers.iter_mut().zip(frames) {
        buffer[..bytes.len()].copy_from_slice(bytes);
        filled.push(TxFrame { bytes: buffer, transmit: Some(*transmit) });
    }
    let mut packets = Packets::new();
    packets.plan(&filled, movable, |_, frame| frame.packet_room().min(path));
    let mut sent = Vec::new();
    for packet in packets.list() {
        packets.gather(packet, &mut filled);
        let TxFrame { bytes, transmit } = &filled[packet.first()];
        assert_eq!(packets.frames_of(packet).count(), packet.frames());
        sent.push((transmit.unwrap(), bytes[..packet.octets()].to_vec()));
    }
    (sent, packets.unpaid())
}

fn lens(frames: &[Written]) -> Vec<usize> {
    sent(frames, SMALL, ROOM).0.iter().map(|(_, bytes)| bytes.len()).collect()
}

#[test]
fn small_frames_to_one_host_share_a_packet_and_others_do_not() {
    let to = |host| written(0, host, LATENCY, 56);
    assert_eq!(lens(&[to(2), to(2), to(2)]), [168]);
    assert_eq!(lens(&[to(2), to(3), to(2), to(3), to(4)]), [112, 112, 56]);
    let other = |change: fn(&mut Transmit)| {
        let mut other = to(2);
        change(&mut other.transmit);
        lens(&[to(2), other]).len()
    };
    assert_eq!(other(|_| ()), 1);
    assert_eq!(other(|it| it.port = Port(8)), 2);
    assert_eq!(other(|it| it.source_port = SourcePort(60_000)), 2);
    assert_eq!(other(|it| it.source = host(9)), 2);
    assert_eq!(other(|it| it.may_resolve = false), 2);
    assert_eq!(other(|it| it.class = BULK), 1);
}

#[test]
fn classes_that_the_network_tells_apart_share_no_packet() {
    let classes = [LATENCY, BULK, LATENCY, BULK];
    let mut buffers = vec![vec![0; ROOM]; classes.len()];
    let of = |(bytes, class): (_, &ClassOfService)| TxFrame {
        bytes,
        transmit: Some(written(0, 2, *class, 56).transmit),
    };
    let frames: Vec<TxFrame<'_>> =
        buffers.iter_mut().map(Vec::as_mut_slice).zip(&classes).map(of).collect();
    for (apart, expected) in
        [(false, vec![[0, 1, 2, 3].to_vec()]), (true, vec![vec![0, 2], vec![1, 3]])]
    {
        let mut packets = Packets::new().with_classes_apart(apart);
        packets.plan(&frames, SMALL, |_, frame| frame.packet_room());
        let planned: Vec<Vec<usize>> =
            packets.list().iter().map(|it| packets.frames_of(it).collect()).collect();
        assert_eq!(planned, expected);
    }
}

#[test]
fn a_packet_is_as_long_as_path_and_receiver_take_and_has_as_many_frames_as_it_may() {
    let requests = vec![written(0, 2, LATENCY, 56); FRAMES_MAX];
    // 22 of them are 1232 octets, which a host takes that has said nothing.
    assert_eq!(lens(&requests[..22]), [22 * 56]);
    assert_eq!(lens(&requests[..23]), [12 * 56, 11 * 56]);
    assert_eq!(lens(&requests), [16 * 56, 16 * 56]);
    let mut announced = requests.clone();
    announced.iter_mut().for_each(|it| it.transmit.packet_len_max = 9_000);
    assert_eq!(lens(&announced), [FRAMES_MAX * 56]);
    let (on_path, _) = sent(&announced, SMALL, 600);
    assert!(on_path.iter().all(|(_, bytes)| bytes.len() <= 600) && on_path.len() == 4);
    // The smaller of what two frames say.
    announced[1].transmit.packet_len_max = 112;
    assert_eq!(lens(&announced[..3]), [112, 56]);
    assert_eq!(lens(&vec![written(0, 2, LATENCY, 2); FRAMES_MAX]), [64]);
}

#[test]
fn packets_to_one_host_are_as_few_as_can_be_and_about_equally_long() {
    let to = |host, len| written(0, host, LATENCY, len);
    // Three would fit two packets of 750 octets only if they could be cut.
    assert_eq!(lens(&[to(2, 500), to(2, 500), to(2, 500)]), [1_000, 500]);
    // Frames to others have no part in it.
    let mut many = vec![to(2, 56); 14];
    many.extend(vec![to(3, 56); 4]);
    many.extend(vec![to(2, 56); 14]);
    assert_eq!(lens(&many), [14 * 56, 4 * 56, 14 * 56]);
    // Of a few that are long and many that are short the short ones make up for it.
    let mut mixed = vec![to(2, 500), to(2, 400)];
    mixed.extend(vec![to(2, 50); 24]);
    assert_eq!(lens(&mixed), [1_050, 1_050]);
    // Whatever their lengths, at most one packet more than if frames could be cut.
    for seed in 0..200_usize {
        let len = |at: usize| 2 + (seed * 7_919 + at * 104_729) % 510;
        let frames: Vec<_> = (0..FRAMES_MAX).map(|at| to(2, len(at))).collect();
        let total: usize = (0..FRAMES_MAX).map(len).sum();
        let found = lens(&frames);
        assert_eq!(found.iter().sum::<usize>(), total);
        let fewest = total.div_ceil(usize::from(UNANNOUNCED_LEN_MAX));
        assert!((fewest..=fewest + 1).contains(&found.len()), "{found:?} of {total}");
    }
}

#[test]
fn large_frames_begin_packets_that_small_ones_may_join() {
    let large = |class| {
        let mut large = written(0, 2, class, 3_000);
        large.transmit.packet_len_max = 3_400;
        large
    };
    let small = |class| {
        let mut small = written(0, 2, class, 100);
        small.transmit.packet_len_max = 3_400;
        small
    };
    assert_eq!(lens(&[large(BULK), large(BULK), small(BULK)]), [3_000, 3_100]);
    // A frame of the latency class is not put behind so much of the other.
    assert_eq!(lens(&[large(BULK), small(LATENCY), small(BULK)]), [3_000, 200]);
    assert_eq!(lens(&[large(LATENCY), small(LATENCY)]), [3_100]);
    // The case where it costs nothing to put any frame behind another.
    let (both, _) = sent(&[small(BULK), large(BULK)], usize::MAX, ROOM);
    assert_eq!(both.len(), 1);
}

#[test]
fn a_frame_that_may_not_begin_a_packet_joins_one_or_is_left_out() {
    let mut notice = written(1, 2, LATENCY, 48);
    notice.transmit.opens_packet = false;
    let (packets, unpaid) = sent(&[notice.clone(), notice.clone()], SMALL, ROOM);
    assert_eq!((packets.len(), unpaid), (0, 2));
    let first = written(0, 2, LATENCY, 48);
    let (packets, unpaid) = sent(&[first, notice.clone(), notice], SMALL, ROOM);
    assert_eq!((packets.len(), packets[0].1.len(), unpaid), (1, 144, 0));
}

#[test]
fn links_behind_frames_for_their_way_back_are_behind_the_packet() {
    let notice = |number: u8, link: u8| {
        let mut notice = written(number, 2, LATENCY, 48);
        notice.transmit.link_behind = true;
        notice.bytes.extend([link; LINK_LEN]);
        notice
    };
    let mut buffers = vec![vec![0; 200]; 3];
    let mut frames: Vec<TxFrame<'_>> = Vec::new();
    for (buffer, it) in buffers.iter_mut().zip([notice(1, 7), notice(2, 7), notice(3, 8)]) {
        buffer[..it.bytes.len()].copy_from_slice(&it.bytes);
        frames.push(TxFrame { bytes: buffer, transmit: Some(it.transmit) });
    }
    let mut packets = Packets::new();
    packets.plan(&frames, SMALL, |_, frame| frame.packet_room());
    assert_eq!(packets.list().len(), 2, "the third goes another way back");
    let first = packets.list()[0];
    packets.gather(&first, &mut frames);
    assert_eq!(frames[0].bytes[96..96 + LINK_LEN], [7; LINK_LEN]);
    assert_eq!(frames[0].bytes[..96], [frame(1, 48), frame(2, 48)].concat());
}

proptest! {
    /// Whatever is sent arrives, in order for each way, and nothing else.
    #[test]
    fn packed_frames_are_taken_apart_as_they_were_written(
        frames in prop::collection::vec((2_u8..5, any::<bool>(), 2_usize..800, 0_u16..3), 0..=32),
        movable in prop::sample::select(vec![0, SMALL, usize::MAX]),
        path in 800_usize..3_400,
    ) {
        let frames: Vec<_> = frames.into_iter().enumerate().map(|(at, (to, bulk, len, port))| {
            let class = if bulk { BULK } else { LATENCY };
            let mut frame = written(at as u8, to, class, len);
            frame.transmit.source_port = SourcePort(50_000 + port);
            frame
        }).collect();
        let (packets, unpaid) = sent(&frames, movable, path);
        prop_assert_eq!(unpaid, 0);
        let way = |it: &Transmit| (it.destination, it.source_port);
        for (transmit, bytes) in &packets {
            let (found, end) = walk(bytes);
            prop_assert_eq!(end, None);
            prop_assert!(bytes.len() <= path.min(UNANNOUNCED_LEN_MAX.into()) || found.len() == 1);
            for frame in found {
                let frames = frames.iter().filter(|it| it.bytes == frame);
                prop_assert!(frames.map(|it| way(&it.transmit)).any(|it| it == way(transmit)));
            }
        }
        let mut all: Vec<_> = packets.iter().flat_map(|(_, bytes)| walk(bytes).0).collect();
        let mut written: Vec<_> = frames.iter().map(|it| it.bytes.clone()).collect();
        all.sort();
        written.sort();
        prop_assert_eq!(all, written);
    }

    /// No octets make a walk panic, stand still or go beyond the end.
    #[test]
    fn any_octets_can_be_walked(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let (found, end) = walk(&bytes);
        let octets = found.iter().map(Vec::len).sum::<usize>() + end.map_or(0, |(_, octets)| octets);
        prop_assert_eq!(octets, bytes.len());
    }

    /// Nor do they make the wire's lengths.
    #[test]
    fn any_octets_have_a_length_or_a_reason(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(len) = crate::wire::frame_len(&bytes) {
            prop_assert!((44..=bytes.len()).contains(&len));
        }
    }
}
