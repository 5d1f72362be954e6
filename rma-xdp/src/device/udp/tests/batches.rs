//! Several datagrams at once: what arrives is what was sent, whichever ways are used, and those
//! that are asked for are used.

use super::*;
use crate::device::{
    TrafficClasses,
    udp::{batching::Use, option::set_option, peers::CREDIT},
};

/// Two backends, of which the first knows that the second has kernel sockets too.
fn acquainted() -> (UdpBackend, UdpBackend) {
    let (mut a, b) = on_loopback();
    a.peers.note(own(&b, 0), true);
    (a, b)
}

/// Sends `frames` in one burst, all of them from the first address of `from`.
fn send_all(from: &mut UdpBackend, frames: &[(HostAddr, Vec<u8>)]) {
    let (source, port) = (own(from, 0), Port(port(from)));
    let mut left = frames.iter();
    let mut next = |out: &mut [u8]| {
        let (destination, bytes) = left.next()?;
        out[..bytes.len()].copy_from_slice(bytes);
        Some(Transmit { port, ..transmit(source, *destination, bytes.len()) })
    };
    let taken = from.tx_burst(usize::MAX, |frames| TxFrame::fill_each(frames, &mut next));
    assert_eq!(taken, frames.len());
}

//= 1rma#6-own-traffic-class
//= type=test
#[test]
fn each_class_of_service_leaves_with_its_own_dscp() {
    let traffic: TrafficClasses = "46/10".parse().unwrap();
    for address in ["127.0.0.1", "::1"] {
        let mut backend = on_free_port(|port| {
            UdpBackend::open(&config(&[address], port).with(|it| it.traffic = traffic))
        })
        .unwrap();
        let own = own(&backend, 0);
        for (class, dscp) in [
            (ClassOfService::Throughput, 10),
            (ClassOfService::Latency, 46),
            (ClassOfService::Latency, 46),
            (ClassOfService::Throughput, 10),
        ] {
            let to = Transmit { class, ..transmit(own, own, 3) };
            assert_eq!(send(&mut backend, to, b"abc"), 1);
            let socket = &backend.sockets[0].fd;
            let octet = match own.ip() {
                core::net::IpAddr::V4(_) => sockopt::ip_tos(socket).unwrap().into(),
                core::net::IpAddr::V6(_) => sockopt::ipv6_tclass(socket).unwrap(),
            };
            assert_eq!(octet, dscp << 2, "{class:?}");
        }
        assert_eq!(receive_all(&mut backend, 64).len(), 4);
    }
}

/// Takes bursts of at most `max` until nothing is left of what has come.
fn receive_all(backend: &mut UdpBackend, max: usize) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let before = all.len();
        let count = backend.rx_burst(max, |frames| {
            assert!(frames.len() <= max);
            all.extend(frames.iter().map(|frame| frame.bytes.to_vec()));
        });
        assert!(count <= max && all.len() == before + count);
        if count == 0 {
            return all;
        }
    }
}

#[test]
fn requested_batching_is_used_and_saves_calls() {
    with_every_batching(|batching| {
        let (mut a, mut b) = acquainted();
        let there = own(&b, 0);
        let frames: Vec<_> = (0..12).map(|seed| (there, pattern(700, seed))).collect();
        send_all(&mut a, &frames);
        let got = receive_all(&mut b, 64);
        assert!(got.iter().eq(frames.iter().map(|(_, bytes)| bytes)), "{batching:?}");

        let (out, into) = (a.counters(), b.counters());
        assert_eq!((out.tx_packets.load(), into.rx_packets.load()), (12, 12));
        assert_eq!(out.tx_gso_packets.load(), if batching.gso { 12 } else { 0 });
        // The kernel cuts a run apart for a socket that does not want it whole.
        let whole = batching.gso && batching.gro;
        assert_eq!(into.rx_gro_packets.load(), if whole { 12 } else { 0 });
        let sends = if batching.gso || batching.sendmmsg { 1 } else { 12 };
        let receives = if whole || batching.recvmmsg { 1 } else { 12 };
        assert_eq!((out.tx_calls.load(), into.rx_calls.load()), (sends, receives), "{batching:?}");
    });
}

#[test]
fn frames_of_any_lengths_to_any_destinations_arrive_once_and_in_order() {
    with_every_batching(|batching| {
        let texts = [["127.0.0.1"], ["127.0.0.2"], ["127.0.0.3"]];
        let open = |port| {
            let [a, b, c] = texts.map(|text| UdpBackend::open(&config(&text, port)));
            Ok((a?, [b?, c?]))
        };
        let (mut from, mut to) = on_free_port(open).unwrap();
        to.iter().for_each(|backend| from.peers.note(own(backend, 0), true));
        let mut state = 1_u32;
        let mut random = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % below
        };
        for seed in 0..40 {
            let frames: Vec<_> = (0..1 + random(70))
                .map(|_| {
                    let len = [1, 64, 64, 64, 65, 700, 700, FRAME_LEN_MAX][random(8) as usize];
                    let there = own(&to[random(2) as usize], 0);
                    (there, pattern(len, random(1000) as usize))
                })
                .collect();
            send_all(&mut from, &frames);
            for backend in &mut to {
                let here = own(backend, 0);
                let got = receive_all(backend, 1 + seed % 20);
                let want = frames.iter().filter(|(there, _)| *there == here);
                assert!(got.iter().eq(want.map(|(_, bytes)| bytes)), "{batching:?}, {seed}");
            }
        }
        assert_eq!(from.counters().tx_gso_refused.load(), 0);
        assert_eq!(from.counters().tx_gso_packets.load() > 0, batching.gso);
    });
}

#[test]
fn frames_share_packets_as_planned_and_packets_of_one_length_go_as_one() {
    with_every_batching(|batching| {
        let (mut a, mut b) = acquainted();
        let addresses = [own(&a, 0), own(&b, 0)];
        let port = Port(port(&a));
        let mut seed = 0;
        let mut next = |out: &mut [u8]| {
            let frame = pattern(100, seed);
            seed += 1;
            out[..100].copy_from_slice(&frame);
            let transmit = Transmit::new(addresses, port, ClassOfService::Throughput, 100);
            // The socket has one port, whatever is wished for.
            let source_port = SourcePort(50_000 + seed as u16);
            (seed <= 31).then_some(Transmit { packet_len_max: 450, source_port, ..transmit })
        };
        assert_eq!(a.tx_burst(64, |frames| TxFrame::fill_each(frames, &mut next)), 31);
        let got = receive_all(&mut b, 64);
        let lens: Vec<_> = got.iter().map(Vec::len).collect();
        assert_eq!(lens, [400, 400, 400, 400, 400, 400, 400, 300]);
        assert_eq!(got.concat(), (0..31).flat_map(|it| pattern(100, it)).collect::<Vec<_>>());

        let counters = a.counters();
        assert_eq!((counters.tx_packets.load(), counters.tx_frames.load()), (8, 31));
        assert_eq!(counters.tx_gso_packets.load(), if batching.gso { 8 } else { 0 });
        let calls = if batching.gso || batching.sendmmsg { 1 } else { 8 };
        assert_eq!(counters.tx_calls.load(), calls);
    });
}

#[test]
fn a_notice_that_may_not_begin_a_packet_and_finds_none_is_counted() {
    let (mut a, b) = on_loopback();
    let (source, destination) = (own(&a, 0), own(&b, 0));
    let unpaid = Transmit { opens_packet: false, ..transmit(source, destination, 8) };
    assert_eq!(send(&mut a, unpaid, &[0; 8]), 1);
    assert_eq!((a.counters().tx_unpaid.load(), a.counters().tx_frames.load()), (1, 0));
}

#[test]
fn a_run_ends_where_the_longest_packet_does() {
    let (mut a, mut b) = acquainted();
    let there = own(&b, 0);
    let frames: Vec<_> = (0..SLOTS).map(|seed| (there, pattern(FRAME_LEN_MAX, seed))).collect();
    send_all(&mut a, &frames);
    assert_eq!(a.counters().tx_gso_refused.load(), 0);
    assert_eq!(a.counters().tx_gso_packets.load(), SLOTS as u64);
    let got = receive_all(&mut b, 64);
    assert!(got.iter().eq(frames.iter().map(|(_, bytes)| bytes)));
}

#[test]
fn several_as_one_go_to_those_alone_who_have_kernel_sockets_too() {
    let (mut a, mut b) = on_loopback();
    let (here, there) = (own(&a, 0), own(&b, 0));
    let frames: Vec<_> = (0..10).map(|seed| (there, pattern(100, seed))).collect();
    let as_one = |a: &mut UdpBackend, b: &mut UdpBackend| {
        let before = a.counters().tx_gso_packets.load();
        send_all(a, &frames);
        assert!(receive_all(b, 64).iter().eq(frames.iter().map(|(_, bytes)| bytes)));
        a.counters().tx_gso_packets.load() - before
    };
    assert_eq!(as_one(&mut a, &mut b), 0, "nothing is known of it");
    cross(&mut b, &mut a, 0, b"from the service's port");
    assert_eq!(as_one(&mut a, &mut b), 10);
    // As an AF_XDP host does.
    let stranger = UdpSocket::bind((there.ip(), 0)).unwrap();
    stranger.send_to(b"from another port", (here.ip(), port(&a))).unwrap();
    assert_eq!(receive_burst(&mut a, 64).len(), 1);
    assert_eq!(as_one(&mut a, &mut b), 0);
    cross(&mut b, &mut a, 0, b"from the service's port");
    assert_eq!(as_one(&mut a, &mut b), 10);
}

/// The victim is an AF_XDP host, as it sends from other ports, and would lose what comes as one.
#[test]
fn forging_a_hosts_address_and_port_changes_only_how_many_packets_go_to_it() {
    let (mut a, b) = on_loopback();
    let (here, there, port) = (own(&a, 0), own(&b, 0), port(&b));
    drop(b);
    let at_a = (here.ip(), port);
    let forger = UdpSocket::bind((there.ip(), port)).unwrap();
    let victim = UdpSocket::bind((there.ip(), 0)).unwrap();
    let forge = |a: &mut UdpBackend, times: usize| {
        (0..times).for_each(|_| assert_eq!(forger.send_to(b"forged", at_a).unwrap(), 6));
        assert_eq!(receive_all(a, 64).len(), times);
    };
    let frames: Vec<_> = (0..10).map(|seed| (there, pattern(100, seed))).collect();
    let as_one = |a: &mut UdpBackend, bursts: usize| {
        let before = a.counters().tx_gso_packets.load();
        for _ in 0..bursts {
            send_all(a, &frames);
            // All of them arrive, as kernel sockets take packets apart.
            let mut bytes = [0; 100];
            frames.iter().for_each(|_| assert_eq!(forger.recv(&mut bytes).unwrap(), 100));
        }
        a.counters().tx_gso_packets.load() - before
    };
    assert_eq!(as_one(&mut a, 5), 0);
    for times in [1, 7] {
        forge(&mut a, times);
        let lost = as_one(&mut a, 100);
        assert!((1..=u64::from(CREDIT)).contains(&lost), "{lost} for {times}");
        assert_eq!(as_one(&mut a, 20), 0, "then all go alone, and one that arrives is answered");
    }
    // One true packet ends it at once.
    forge(&mut a, 1);
    assert_eq!(as_one(&mut a, 1), 10);
    victim.send_to(b"true", at_a).unwrap();
    assert_eq!(receive_all(&mut a, 64).len(), 1);
    assert_eq!(as_one(&mut a, 20), 0);
}

/// A socket of a stranger who sends several datagrams as one.
fn segmenting(len: i32) -> UdpSocket {
    let socket = UdpSocket::bind(("127.0.0.3", 0)).unwrap();
    set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, len).unwrap();
    socket
}

#[test]
fn of_what_came_as_one_no_more_is_handed_on_than_was_asked_for() {
    let (_a, mut b) = on_loopback();
    let bytes = pattern(2950, 5);
    segmenting(100).send_to(&bytes, ("127.0.0.2", port(&b))).unwrap();
    let mut got = Vec::new();
    for max in [1, 3, 20, 20] {
        let mut count = 0;
        let handed = b.rx_burst(max, |frames| {
            count += frames.len();
            got.extend(frames.iter().map(|frame| frame.bytes.to_vec()));
        });
        assert_eq!((handed, count), (max.min(30 - (got.len() - count)), handed));
    }
    assert!(got.iter().map(Vec::as_slice).eq(bytes.chunks(100)));
    assert_eq!(b.counters().rx_calls.load(), 1);
    assert_eq!(b.rx_burst(9, |_| panic!("nothing is left")), 0);
}

#[test]
fn datagrams_that_are_too_long_are_counted_one_by_one_also_if_they_come_as_one() {
    let (mut a, mut b) = on_loopback();
    segmenting(5000).send_to(&[0; 60_000], ("127.0.0.2", port(&b))).unwrap();
    assert_eq!(receive_all(&mut b, 64), <[Vec<u8>; 0]>::default());
    assert_eq!(b.counters().rx_truncated.load(), 12);
    cross(&mut a, &mut b, 0, b"still alive");
}

#[test]
fn packets_that_the_kernel_refuses_as_one_are_sent_one_by_one_and_reported() {
    const SO_NO_CHECK: i32 = 11;
    let (mut a, mut b) = acquainted();
    let there = own(&b, 0);
    let frames: Vec<_> = (0..10).map(|seed| (there, pattern(100, seed))).collect();
    let is_whole =
        |b: &mut UdpBackend| receive_all(b, 64).iter().eq(frames.iter().map(|(_, bytes)| bytes));
    // Without checksums it cuts nothing apart: EINVAL.
    let checksums = |a: &UdpBackend, off| {
        set_option(a.sockets[0].fd.as_fd(), libc::SOL_SOCKET, SO_NO_CHECK, off).unwrap();
    };
    checksums(&a, 1);
    for _ in 0..3 {
        send_all(&mut a, &frames);
        assert!(is_whole(&mut b));
    }
    let counters = Arc::clone(a.counters());
    assert_eq!(counters.tx_frames.load(), 30);
    assert_eq!((counters.tx_gso_refused.load(), counters.tx_gso_packets.load()), (1, 0));
    let said: Vec<_> = a.describe().batching.fallbacks(&counters).collect();
    assert_eq!(said, ["single datagrams instead of GSO at times: the kernel refused 1 sends"]);

    // Some bursts later it is tried again.
    checksums(&a, 0);
    let bursts = (0..10_000).take_while(|_| {
        a.peers.note(there, true);
        send_all(&mut a, &frames);
        assert!(is_whole(&mut b));
        counters.tx_gso_packets.load() == 0
    });
    assert!((100..9_000).contains(&bursts.count()));
    assert_eq!(counters.tx_gso_refused.load(), 1);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn of_a_run_that_a_path_has_become_too_narrow_for_the_short_end_is_sent() {
    in_own_network(|| {
        let name = silent_interface(1500);
        let mut backend = UdpBackend::open(&config(&["192.0.2.1"], 10_472)).unwrap();
        ip(&format!("link set {name} mtu 1300"));
        let there = addr("192.0.2.2");
        backend.peers.note(there, true);
        let lens = [1400, 1400, 1400, 900, 800, 800];
        let frames: Vec<_> = lens.iter().map(|&len| (there, pattern(len, len))).collect();
        send_all(&mut backend, &frames);
        let counters = backend.counters();
        assert_eq!((counters.tx_too_long.load(), counters.tx_frames.load()), (3, 3));
        assert_eq!(counters.tx_gso_refused.load(), 1);
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn of_a_packet_that_a_path_has_become_too_narrow_for_each_frame_is_sent_that_may_be_alone() {
    in_own_network(|| {
        let name = silent_interface(1500);
        let mut backend = UdpBackend::open(&config(&["192.0.2.1"], 10_472)).unwrap();
        ip(&format!("link set {name} mtu 1300"));
        let (here, there) = (addr("192.0.2.1"), addr("192.0.2.2"));
        for knows_it in [false, true] {
            // With runs, too.
            backend.peers.note(there, knows_it);
            let mut lens = [500, 500, 400, 600, 600, 200, 1_350].into_iter();
            let mut next = |_: &mut [u8]| {
                let len = lens.next()?;
                let ends = [here, there];
                let transmit = Transmit::new(ends, Port(10_472), ClassOfService::Throughput, len);
                Some(Transmit { opens_packet: len != 400, packet_len_max: 1_452, ..transmit })
            };
            assert_eq!(backend.tx_burst(64, |frames| TxFrame::fill_each(frames, &mut next)), 7);
        }
        // Packets of 1,400 octets, twice, and a frame of more: both times.
        let counters = backend.counters();
        assert_eq!((counters.tx_split.load(), counters.tx_unpaid.load()), (4, 2));
        assert_eq!((counters.tx_frames.load(), counters.tx_too_long.load()), (10, 2));
        assert!(backend.outbox.is_empty());
    });
}

#[test]
fn a_kernel_without_them_is_believed_and_it_is_said() {
    // Sockets of no UDP know no options of UDP.
    let (socket, _peer) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let of = |wanted| BatchingInUse::ask(socket.as_fd(), wanted);
    let all = of(UdpBatching::ALL);
    assert_eq!(all.of(Mechanism::Recvmmsg), Use::Used);
    assert_eq!(all.of(Mechanism::Sendmmsg), Use::Used);
    for mechanism in [Mechanism::Gso, Mechanism::Gro] {
        assert!(matches!(all.of(mechanism), Use::Refused(_)), "{all}");
    }
    let counters = UdpCounters::default();
    let none = of(UdpBatching::NONE);
    assert_eq!(none.fallbacks(&counters).count(), 4);
    assert!(none.to_string().starts_with("no recvmmsg (not asked for), no sendmmsg (not asked"));
    // A feature that one socket lacks is not in use.
    let (a, _b) = on_loopback();
    let udp = BatchingInUse::ask(a.sockets[0].fd.as_fd(), UdpBatching::ALL);
    assert_eq!(udp.to_string(), "recvmmsg, sendmmsg, GSO, GRO");
    assert_eq!((udp.and(all), all.and(udp), udp.and(udp)), (all, all, udp));
    assert_eq!(udp.fallbacks(&counters).count(), 0);
}
