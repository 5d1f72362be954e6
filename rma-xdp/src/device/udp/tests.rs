use std::{
    cell::Cell,
    net::UdpSocket,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use rma_core::{
    addr::HostAddr,
    backend::Transmit,
    op::ClassOfService,
    port::{Port, PortsError, SourcePort},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::sockopt,
};

use super::*;

mod batches;

thread_local! {
    /// The batching that this thread's helpers open backends with.
    static BATCHING: Cell<UdpBatching> = const { Cell::new(UdpBatching::ALL) };
}

/// Runs `body` with each choice of ways to move several datagrams at once.
fn with_every_batching(body: impl Fn(UdpBatching)) {
    for bits in 0..16 {
        let is_set = |bit: u32| bits >> bit & 1 == 1;
        let batching = UdpBatching {
            recvmmsg: is_set(0),
            sendmmsg: is_set(1),
            gso: is_set(2),
            gro: is_set(3),
        };
        BATCHING.set(batching);
        body(batching);
    }
}

fn config(texts: &[&str], port: u16) -> UdpConfig {
    let addresses = texts.iter().map(|text| addr(text)).collect();
    UdpConfig::new(addresses, &[Port(port)]).with(|it| it.batching = BATCHING.get())
}

fn addr(text: &str) -> HostAddr {
    text.parse().unwrap()
}

/// Calls `open` with ports that were free a moment ago, until one of them still is.
fn on_free_port<T>(open: impl Fn(u16) -> Result<T, UdpError>) -> Result<T, UdpError> {
    let mut results = (0..100).map(|_| {
        let taken_by_the_kernel = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        let port = taken_by_the_kernel.local_addr().unwrap().port();
        drop(taken_by_the_kernel);
        open(port)
    });
    // Or it is one that `open` has had already.
    let is_taken = |it: &_| matches!(it, Err(UdpError::PortInUse { .. } | UdpError::Ports(_)));
    let is_final = |result: &_| !is_taken(result);
    results.find(is_final).expect("of a hundred free ports one stays free for a moment")
}

/// A backend on each of two sets of addresses.
fn pair(first: &[&str], second: &[&str]) -> (UdpBackend, UdpBackend) {
    let open = |texts: &[&str], port| UdpBackend::open(&config(texts, port));
    on_free_port(|port| Ok((open(first, port)?, open(second, port)?))).unwrap()
}

fn on_loopback() -> (UdpBackend, UdpBackend) {
    pair(&["127.0.0.1"], &["127.0.0.2"])
}

fn own(backend: &UdpBackend, index: usize) -> HostAddr {
    backend.describe().sockets[index].address
}

fn port(backend: &UdpBackend) -> u16 {
    backend.describe().sockets[0].port.0
}

/// A frame whose every byte depends on its place and on `seed`.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + seed * 7 + (i >> 8)) as u8).collect()
}

/// A frame that shares no packet.
fn transmit(source: HostAddr, destination: HostAddr, len: usize) -> Transmit {
    let addresses = [source, destination];
    let transmit = Transmit::new(addresses, Port::ONE_RMA, ClassOfService::Throughput, len);
    Transmit { packet_len_max: 0, ..transmit }
}

/// Offers one frame; returns how many were taken.
fn send(backend: &mut UdpBackend, to: Transmit, frame: &[u8]) -> usize {
    let mut frames = [frame].into_iter();
    let to = Transmit { port: Port(port(backend)), ..to };
    let mut next = |out: &mut [u8]| {
        let frame = frames.next()?;
        out[..frame.len()].copy_from_slice(frame);
        Some(to)
    };
    backend.tx_burst(64, |frames| TxFrame::fill_each(frames, &mut next))
}

#[derive(Debug, PartialEq, Eq)]
struct Got {
    source: HostAddr,
    destination: HostAddr,
    reply_len_max: usize,
    bytes: Vec<u8>,
}

/// Waits until the backend can be read, then takes a burst.
fn receive_burst(backend: &mut UdpBackend, max: usize) -> Vec<Got> {
    {
        let fds: Vec<_> = backend.poll_fds().collect();
        let mut fds: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let deadline = Timespec { tv_sec: 5, tv_nsec: 0 };
        assert!(poll(&mut fds, Some(&deadline)).unwrap() > 0, "nothing arrived within 5 s");
    }
    let mut got = Vec::new();
    let count = backend.rx_burst(max, |frames| {
        got.extend(frames.iter().map(|frame| Got {
            source: frame.source,
            destination: frame.destination,
            reply_len_max: frame.reply_len_max,
            bytes: frame.bytes.to_vec(),
        }));
    });
    assert_eq!(count, got.len());
    got
}

fn cross(from: &mut UdpBackend, to: &mut UdpBackend, index: usize, frame: &[u8]) {
    let (source, destination) = (own(from, index), own(to, index));
    assert_eq!(send(from, transmit(source, destination, frame.len()), frame), 1);
    let bytes = frame.to_vec();
    let want = Got { source, destination, reply_len_max: FRAME_LEN_MAX, bytes };
    assert_eq!(receive_burst(to, 64), [want]);
}

#[test]
fn frames_of_every_length_cross_both_ways() {
    with_every_batching(|_| {
        let (mut a, mut b) = on_loopback();
        for len in (1..=FRAME_LEN_MAX).step_by(61).chain([2, 1472, 4096, FRAME_LEN_MAX]) {
            cross(&mut a, &mut b, 0, &pattern(len, 1));
            cross(&mut b, &mut a, 0, &pattern(len, 2));
        }
        assert_eq!(a.counters().tx_frames.load(), b.counters().rx_packets.load());
    });
}

#[test]
fn one_backend_serves_both_families() {
    with_every_batching(|_| {
        let (mut a, mut b) = pair(&["127.0.0.1"], &["127.0.0.2", "::1"]);
        cross(&mut a, &mut b, 0, &pattern(100, 0));
        cross(&mut b, &mut a, 0, &pattern(100, 0));
        // IPv6 loopback has one address only: the host sends to itself.
        for len in [1, 4096, FRAME_LEN_MAX] {
            let itself = own(&b, 1);
            let frame = pattern(len, 3);
            send(&mut b, transmit(itself, itself, len), &frame);
            let got = receive_burst(&mut b, 64);
            assert_eq!((got.len(), got[0].source, got[0].destination), (1, itself, itself));
            assert_eq!(got[0].bytes, frame);
        }
    });
}

#[test]
fn each_port_has_a_socket_of_its_own_and_a_frame_tells_which_it_came_by() {
    let open = |first| {
        on_free_port(|second| {
            let ports = [first, second].map(Port);
            let open = |text| UdpBackend::open(&UdpConfig::new(vec![addr(text)], &ports));
            Ok((open("127.0.0.1")?, open("127.0.0.2")?))
        })
    };
    let (mut a, mut b) = on_free_port(open).unwrap();
    let ports: Vec<Port> = b.describe().ports.iter().collect();
    assert!(a.describe().to_string().contains(&format!("ports {}, {}, ", ports[0], ports[1])));
    for (seed, &port) in ports.iter().chain(ports.iter().rev()).enumerate() {
        let frame = pattern(100, seed);
        let to = Transmit { port, ..transmit(own(&a, 0), own(&b, 0), frame.len()) };
        let mut frames = Some(&frame).into_iter();
        let mut next = |out: &mut [u8]| {
            out[..frame.len()].copy_from_slice(frames.next()?);
            Some(to)
        };
        assert_eq!(a.tx_burst(9, |frames| TxFrame::fill_each(frames, &mut next)), 1);
        let mut got = Vec::new();
        while got.is_empty() {
            b.rx_burst(9, |frames| {
                got.extend(frames.iter().map(|it| (it.port, it.bytes.to_vec())));
            });
        }
        assert_eq!(got, [(port, frame)]);
    }
    // Nobody listens there, so nothing can be sent from it.
    let to = transmit(own(&a, 0), own(&b, 0), 8);
    assert_eq!(a.tx_burst(1, |frames| TxFrame::fill_each(frames, |_| Some(to))), 1);
    assert_eq!(a.counters().tx_no_socket.load(), 1);
}

#[test]
fn a_burst_is_bounded_in_both_directions() {
    with_every_batching(|_| {
        let (mut a, mut b) = on_loopback();
        let to = Transmit { port: Port(port(&a)), ..transmit(own(&a, 0), own(&b, 0), 10) };
        let mut offered = 0_u8;
        let mut next = |out: &mut [u8]| {
            offered += 1;
            out[0] = offered;
            Some(to)
        };
        let taken = a.tx_burst(5, |frames| TxFrame::fill_each(frames, &mut next));
        assert_eq!((taken, offered), (5, 5));
        assert_eq!(a.tx_burst(0, |_| panic!("no room was offered")), 0);
        let first: Vec<u8> = receive_burst(&mut b, 3).iter().map(|got| got.bytes[0]).collect();
        let rest: Vec<u8> = receive_burst(&mut b, 3).iter().map(|got| got.bytes[0]).collect();
        assert_eq!((first, rest), (vec![1, 2, 3], vec![4, 5]));
        assert_eq!(b.rx_burst(3, |_| panic!("nothing is there")), 0);
    });
}

#[test]
fn a_datagram_longer_than_any_frame_is_counted_and_dropped() {
    with_every_batching(|_| {
        let (mut a, mut b) = on_loopback();
        let stranger = UdpSocket::bind(("127.0.0.3", 0)).unwrap();
        stranger.send_to(&[0; FRAME_LEN_MAX + 1], ("127.0.0.2", port(&b))).unwrap();
        stranger.send_to(&[0; 60_000], ("127.0.0.2", port(&b))).unwrap();
        assert_eq!(receive_burst(&mut b, 64), []);
        assert_eq!(b.counters().rx_truncated.load(), 2);
        cross(&mut a, &mut b, 0, b"still alive");
    });
}

#[test]
fn replies_go_to_the_service_port_whatever_the_source_port_was() {
    let (mut a, mut b) = on_loopback();
    // An AF_XDP host spreads its source ports.
    let peer = UdpSocket::bind((own(&a, 0).ip(), 0)).unwrap();
    peer.send_to(b"request", (own(&b, 0).ip(), port(&b))).unwrap();
    let got = receive_burst(&mut b, 64);
    assert_eq!((got[0].source, &got[0].bytes[..]), (own(&a, 0), &b"request"[..]));
    cross(&mut b, &mut a, 0, b"reply");
}

#[test]
fn an_empty_datagram_is_a_frame_of_no_bytes() {
    with_every_batching(|_| {
        let (mut a, mut b) = on_loopback();
        cross(&mut a, &mut b, 0, b"");
    });
}

#[test]
fn nobody_listening_harms_no_later_frame() {
    with_every_batching(|_| {
        let (mut a, mut b) = on_loopback();
        let nobody = addr("127.0.0.9");
        for _ in 0..100 {
            let source = own(&a, 0);
            send(&mut a, transmit(source, nobody, 8), &[0; 8]);
            cross(&mut a, &mut b, 0, b"to somebody");
            cross(&mut b, &mut a, 0, b"from somebody");
        }
        assert_eq!(a.counters().rx_packets.load(), 100);
    });
}

#[test]
fn frames_that_cannot_be_sent_are_counted_by_reason() {
    with_every_batching(|_| {
        let (mut a, mut b) = on_loopback();
        let (here, there) = (own(&a, 0), own(&b, 0));
        let mut drop_one = |to| assert_eq!(send(&mut a, to, &[0; 8]), 1, "taken, and then lost");
        drop_one(transmit(here, addr("::1"), 8));
        drop_one(transmit(addr("127.0.0.77"), there, 8));
        drop_one(transmit(here, there, FRAME_LEN_MAX + 1));
        drop_one(transmit(here, there, usize::MAX));
        drop_one(transmit(here, addr("255.255.255.255"), 8));
        let counters = Arc::clone(a.counters());
        assert_eq!(counters.tx_no_socket.load(), 2);
        assert_eq!(counters.tx_too_long.load(), 2);
        assert_eq!(
            counters.tx_forbidden.load() + counters.tx_unreachable.load(),
            1,
            "{counters:?}"
        );
        cross(&mut a, &mut b, 0, b"still alive");
    });
}

#[test]
fn every_errno_has_its_counter() {
    let counters = UdpCounters::default();
    let name = |errno| send::loss_counter(&counters, errno);
    assert!(core::ptr::eq(name(Errno::MSGSIZE), &raw const counters.tx_too_long));
    assert!(core::ptr::eq(name(Errno::CONNREFUSED), &raw const counters.tx_refused));
    assert!(core::ptr::eq(name(Errno::NOBUFS), &raw const counters.tx_no_buffers));
    assert!(core::ptr::eq(name(Errno::HOSTUNREACH), &raw const counters.tx_unreachable));
    assert!(core::ptr::eq(name(Errno::PERM), &raw const counters.tx_forbidden));
    assert!(core::ptr::eq(name(Errno::INVAL), &raw const counters.tx_failed));
}

#[test]
fn frame_lengths_follow_the_mtu_and_are_capped() {
    let lens = |mtu, address: &str| {
        let backend = on_free_port(|port| {
            UdpBackend::open(&UdpConfig {
                mtu,
                ..UdpConfig::new(vec![addr(address)], &[Port(port)])
            })
        });
        let backend = backend.unwrap();
        let ReceiveLenMax { ipv4, ipv6 } = backend.receive_len_max();
        (ipv4, ipv6, backend.outbox.len_max)
    };
    assert_eq!(lens(Some(1500), "127.0.0.1"), (1472, 1452, 1472));
    assert_eq!(lens(Some(1500), "::1"), (1472, 1452, 1452));
    assert_eq!(lens(Some(9000), "127.0.0.1"), (FRAME_LEN_MAX, FRAME_LEN_MAX, FRAME_LEN_MAX));
    assert_eq!(lens(None, "127.0.0.1"), (FRAME_LEN_MAX, FRAME_LEN_MAX, FRAME_LEN_MAX));
}

#[test]
fn a_second_instance_on_the_port_is_told_so() {
    // No other test binds this address, so nobody takes the port between drop and the last open.
    let open = |port| UdpBackend::open(&UdpConfig::new(vec![addr("127.0.0.57")], &[Port(port)]));
    let first = on_free_port(open).unwrap();
    let port = port(&first);
    let error = open(port).unwrap_err();
    assert!(matches!(error, UdpError::PortInUse { port: got, .. } if got == port));
    assert!(error.to_string().contains(&format!("ss -ulpn 'sport = :{port}'")), "{error}");
    drop(first);
    // A process that another test is just starting has a copy of the socket until its exec.
    let mut tries = core::iter::repeat_with(|| open(port)).take(100_000);
    assert!(tries.any(|result| result.is_ok()), "the port stays taken");
}

#[test]
fn addresses_that_name_no_single_local_host_are_refused() {
    let refused = |texts: &[&str]| {
        let addresses: Vec<_> = texts.iter().map(|text| addr(text)).collect();
        let open = |port| UdpBackend::open(&UdpConfig::new(addresses.clone(), &[Port(port)]));
        on_free_port(open).unwrap_err()
    };
    assert!(matches!(refused(&[]), UdpError::NoAddress));
    assert!(matches!(refused(&["0.0.0.0"]), UdpError::Wildcard { .. }));
    assert!(matches!(refused(&["::"]), UdpError::Wildcard { .. }));
    assert!(matches!(refused(&["224.0.0.1"]), UdpError::NotUnicast { .. }));
    assert!(matches!(refused(&["255.255.255.255"]), UdpError::NotUnicast { .. }));
    assert!(matches!(refused(&["ff02::1"]), UdpError::NotUnicast { .. }));
    assert!(matches!(refused(&["fe80::1"]), UdpError::LinkLocal { .. }));
    assert!(matches!(refused(&["192.0.2.1"]), UdpError::AddressNotLocal { .. }));
    assert!(matches!(refused(&["2001:db8::1"]), UdpError::AddressNotLocal { .. }));
    let two = refused(&["127.0.0.1", "127.0.0.2"]);
    assert_eq!(
        two.to_string(),
        "127.0.0.1 and 127.0.0.2 are both IPv4: give one address of each family"
    );
}

#[test]
fn port_zero_and_a_tiny_mtu_are_refused() {
    let config = UdpConfig::new(vec![addr("127.0.0.1")], &[Port(0)]);
    assert!(matches!(UdpBackend::open(&config), Err(UdpError::Ports(PortsError::Zero))));
    let config =
        UdpConfig { mtu: Some(100), ..UdpConfig::new(vec![addr("127.0.0.1")], &[Port(9)]) };
    let error = UdpBackend::open(&config).unwrap_err();
    assert!(matches!(error, UdpError::MtuTooSmall { mtu: 100, .. }), "{error}");
}

#[test]
fn the_description_reads_as_a_sentence() {
    let (a, _b) = on_loopback();
    let port = port(&a);
    let text = a.describe().to_string();
    let batching = "recvmmsg, sendmmsg, GSO, GRO";
    let start =
        format!("kernel UDP sockets, port {port}, {batching}; 127.0.0.1, MTU 65536, buffers ");
    assert!(text.starts_with(&start) && text.ends_with(" KiB out"), "{text}");
}

/// Runs `body` on a thread in a network namespace of its own, which goes when the thread ends.
fn in_own_network(body: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        // SAFETY: only this thread's network namespace changes; it shares no memory or descriptors
        // by it.
        let rc = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(rc, 0, "{}", io::Error::last_os_error());
        body();
    });
    thread.join().unwrap();
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

/// An interface with an MTU, whose neighbours never answer.
fn silent_interface(mtu: u32) -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let id = format!("{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
    let name = format!("u{id}");
    ip(&format!("link add {name} mtu {mtu} type veth peer name v{id} mtu {mtu}"));
    ip(&format!("link set v{id} up"));
    ip(&format!("address add 192.0.2.1/24 dev {name}"));
    ip(&format!("address add 2001:db8::1/64 dev {name} nodad"));
    ip(&format!("link set {name} up"));
    name
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn packets_without_room_in_a_full_send_buffer_are_held_back_and_go_first() {
    with_every_batching(|batching| {
        in_own_network(move || {
            BATCHING.set(batching);
            full_send_buffer(&silent_interface(1500));
        });
    });
}

fn full_send_buffer(name: &str) {
    const COUNT: u8 = 200;
    // Frames wait in the send buffer until the neighbour answers, which it never does.
    let config = config(&["192.0.2.1"], Port::ONE_RMA.0).with(|it| it.send_buffer = 1);
    let mut backend = UdpBackend::open(&config).unwrap();
    backend.peers.note(addr("192.0.2.2"), true);
    let to = transmit(addr("192.0.2.1"), addr("192.0.2.2"), 1400);
    let filled = Cell::new(0);
    let burst = |backend: &mut UdpBackend| {
        let next = |out: &mut [u8]| {
            (filled.get() < COUNT).then(|| {
                filled.set(filled.get() + 1);
                out[..1400].fill(filled.get());
                to
            })
        };
        backend.tx_burst(64, |frames| TxFrame::fill_each(frames, next))
    };
    let taken = burst(&mut backend);
    assert!(taken <= 64, "the send buffer should be full");
    let counters = Arc::clone(backend.counters());
    let held = taken - counters.tx_frames.load() as usize;
    assert!(held > 0 && held <= SLOTS, "{held} of {taken}");
    let last = |backend: &UdpBackend| backend.outbox.written().last().unwrap().to_vec();
    assert_eq!(backend.outbox.written().count(), held);
    for blocked in 2..5 {
        assert_eq!(burst(&mut backend), 1, "there is work");
        assert_eq!(usize::from(filled.get()), taken, "no frame is asked for");
        assert_eq!(last(&backend), [filled.get(); 1400]);
        assert_eq!(counters.tx_blocked.load(), blocked);
    }

    let neighbour = "neighbour replace 192.0.2.2 lladdr 02:00:00:00:00:02 nud permanent dev";
    ip(&format!("{neighbour} {name}"));
    // The kernel sends what waited, and takes the rest as fast as the device drains.
    let bursts = (0..1_000_000).take_while(|_| {
        burst(&mut backend);
        counters.tx_frames.load() < u64::from(COUNT)
    });
    assert!(bursts.count() < 1_000_000, "{counters:?}");
    assert_eq!(counters.tx_frames.load(), u64::from(COUNT));
    assert!(backend.outbox.is_empty());
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn frame_lengths_follow_the_interface_that_has_the_address() {
    in_own_network(|| {
        silent_interface(3400);
        let addresses = vec![addr("192.0.2.1"), addr("2001:db8::1")];
        let mut backend = UdpBackend::open(&UdpConfig::new(addresses, &[Port::ONE_RMA])).unwrap();
        let sockets = &backend.describe().sockets;
        assert!(sockets.iter().all(|socket| (socket.mtu, socket.mtu_assumed) == (3400, false)));
        assert_eq!(backend.receive_len_max(), ReceiveLenMax { ipv4: 3372, ipv6: 3352 });

        // One byte more than fits into IPv6, in a buffer that IPv4 needs: not fragmented.
        let to = transmit(addr("2001:db8::1"), addr("2001:db8::2"), 3353);
        send(&mut backend, to, &[0; 3353]);
        assert_eq!(backend.counters().tx_too_long.load(), 1);
    });
}

/// A socket of a stranger who lets the kernel cut what is too long.
fn fragmenting(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind((address, 0)).unwrap();
    sockopt::set_ip_mtu_discover(&socket, sockopt::Ipv4PathMtuDiscovery::DONT)
        .or_else(|_| sockopt::set_ipv6_mtu_discover(&socket, sockopt::Ipv6PathMtuDiscovery::DONT))
        .unwrap();
    socket
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_datagram_that_came_in_fragments_is_counted_and_dropped() {
    // Each in a network of its own: while another test starts a child, the child has copies of the
    // sockets, and their port stays in use.
    with_every_batching(|batching| {
        in_own_network(move || {
            BATCHING.set(batching);
            ip("link set lo mtu 1500 up");
            fragments();
        });
    });
}

fn fragments() {
    let config = config(&["127.0.0.1", "::1"], Port::ONE_RMA.0);
    let mut backend = UdpBackend::open(&config).unwrap();
    for (count, address) in [(1, "127.0.0.1"), (2, "::1")] {
        let stranger = fragmenting(address);
        stranger.send_to(&pattern(4000, 1), (address, 10_472)).unwrap();
        assert_eq!(receive_burst(&mut backend, 64), [], "from {address}");
        assert_eq!(backend.counters().rx_fragments.load(), count);
        // Whole ones are frames.
        stranger.send_to(&pattern(1400, 2), (address, 10_472)).unwrap();
        let got = receive_burst(&mut backend, 64);
        assert_eq!(got.len(), 1);
        assert_eq!((got[0].source, &got[0].bytes), (addr(address), &pattern(1400, 2)));
    }
}
