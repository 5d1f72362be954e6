//! The AF_XDP backend on a real kernel: two namespaces, a veth pair, a backend at one or both ends.
//!
//! What a frame says is of no interest here; frames are patterns that must arrive as they were
//! sent.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{
    env,
    io::{BufRead, BufReader, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    num::NonZeroU32,
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use rma_core::{
    addr::HostAddr,
    backend::{Backend, LINK_LEN, Transmit, TxFrame},
    op::ClassOfService,
    port::{Port, Ports, SourcePort},
    time::Instant,
};
use rma_lab::{Lab, LabConfig, Netns};
use rma_xdp::device::{
    Dscp,
    net::{Path, PathTable},
    xdp::{
        AttachMode, Feature, Mode, SteeredSockets, XdpBackend, XdpConfig, XdpError,
        packet::{self, HEADERS_V4, HEADERS_V6, Headers},
    },
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities},
    time::{ClockId, clock_gettime},
};

const PORT: u16 = 4791;
const DEADLINE: Duration = Duration::from_secs(5);

/// Both of them, whichever is chosen where nothing is asked for.
const BOTH: [Mode; 2] = [Mode::Native, Mode::Generic];

/// The variable in which the child of the kill test finds the namespace to work in.
const CHILD_NETNS: &str = "RMA_TEST_CHILD_NETNS";

fn clock() -> Instant {
    let now = clock_gettime(ClockId::Monotonic);
    Instant::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// Calls `ask` until it has an answer.
pub(super) fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = clock();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(clock().since(start) < DEADLINE, "waited {DEADLINE:?} for {what}");
        thread::yield_now();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    A,
    B,
}

impl End {
    fn other(self) -> Self {
        if self == Self::A { Self::B } else { Self::A }
    }

    pub(super) fn netns(self, lab: &Lab) -> &Netns {
        if self == Self::A { lab.a() } else { lab.b() }
    }

    fn address(self, version: u8) -> HostAddr {
        match (self, version) {
            (Self::A, 4) => Lab::A_V4.into(),
            (Self::B, 4) => Lab::B_V4.into(),
            (Self::A, _) => Lab::A_V6.into(),
            (Self::B, _) => Lab::B_V6.into(),
        }
    }

    fn mac(self, lab: &Lab) -> [u8; 6] {
        self.netns(lab).interface_mac(Lab::INTERFACE).unwrap()
    }
}

fn lab(mtu: u32) -> Lab {
    Lab::new(&LabConfig { mtu, ..LabConfig::default() }).unwrap()
}

pub(super) fn config(end: End) -> XdpConfig {
    XdpConfig::new(Lab::INTERFACE, &[Port(PORT)], &[end.address(4), end.address(6)])
}

/// Paths to the other end, and to nobody else.
pub(super) fn paths(lab: &Lab, end: End, mtu: u32) -> Arc<PathTable> {
    let path = Path { source_mac: end.mac(lab), next_hop_mac: end.other().mac(lab), mtu };
    let other = end.other();
    PathTable::fixed(mtu, &[(other.address(4), path), (other.address(6), path)]).unwrap()
}

fn try_open(lab: &Lab, end: End, mtu: u32, config: &XdpConfig) -> Result<XdpBackend, XdpError> {
    let paths = paths(lab, end, mtu);
    let _inside = end.netns(lab).enter().unwrap();
    XdpBackend::open(config, paths)
}

fn open(lab: &Lab, end: End, mtu: u32) -> XdpBackend {
    try_open(lab, end, mtu, &config(end)).unwrap()
}

fn open_in(lab: &Lab, end: End, mode: Mode) -> XdpBackend {
    try_open(lab, end, 1500, &config(end).with(|it| it.mode = mode)).unwrap()
}

fn open_both(lab: &Lab, mtu: u32, mode: Mode) -> [XdpBackend; 2] {
    [End::A, End::B]
        .map(|end| try_open(lab, end, mtu, &config(end).with(|it| it.mode = mode)).unwrap())
}

/// Opens A after a backend was dropped. Not at the first attempt, perhaps: other tests start
/// processes, and a process holds every open descriptor of this one from its fork to its exec.
fn reopen(lab: &Lab, config: &XdpConfig) -> XdpBackend {
    wait_for("the interface to be free", || try_open(lab, End::A, 1500, config).ok())
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + seed * 7 + i / 256) as u8).collect()
}

fn transmit(from: End, version: u8, len: usize) -> Transmit {
    let ends = [from.address(version), from.other().address(version)];
    let transmit = Transmit::new(ends, Port(PORT), ClassOfService::Throughput, len);
    Transmit { source_port: SourcePort(49_152 + 7), ..transmit }
}

pub(super) fn send(backend: &mut XdpBackend, from: End, version: u8, frame: &[u8]) {
    let mut frame = Some(frame);
    let mut next = |buffer: &mut [u8]| {
        let frame = frame.take()?;
        // Longer than the buffer: only the length is told, as a careless caller would.
        let fits = frame.len().min(buffer.len());
        buffer[..fits].copy_from_slice(&frame[..fits]);
        Some(transmit(from, version, frame.len()))
    };
    let sent = backend.tx_burst(1, |frames| TxFrame::fill_each(frames, &mut next));
    assert_eq!(sent, 1);
    backend.flush(clock());
}

/// The next frame, and the largest answer to it.
fn receive(backend: &mut XdpBackend, from: End, version: u8) -> (Vec<u8>, usize) {
    wait_for("a frame", || {
        let mut got = None;
        backend.rx_burst(1, |frames| {
            let [frame] = frames else { panic!("at most one was asked for") };
            assert_eq!(frame.source, from.address(version));
            assert_eq!(frame.destination, from.other().address(version));
            got = Some((frame.bytes.to_vec(), frame.reply_len_max));
        });
        got
    })
}

/// Frames of many sizes there and back, over both families.
fn carry_all_sizes(backends: &mut [XdpBackend; 2], mtu: u32) {
    let [a, b] = backends;
    for (version, headers) in [(4, 28), (6, 48)] {
        let max = mtu as usize - headers;
        let steps = [0, 1, 17, 18, 63, 64, 1000, 3769, 3770, 3777, 3778, 3779, 7600, max - 1, max];
        for (seed, len) in steps.into_iter().filter(|&len| len <= max).enumerate() {
            let frame = pattern(len, seed);
            send(a, End::A, version, &frame);
            assert_eq!(receive(b, End::A, version), (frame.clone(), max), "{len} bytes");
            send(b, End::B, version, &frame);
            assert_eq!(receive(a, End::B, version), (frame, max), "{len} bytes");
        }
    }
}

fn frames_are_carried(mtu: u32, mode: Mode) {
    let lab = lab(mtu);
    let mut backends = open_both(&lab, mtu, mode);
    let wanted = if mode == Mode::Native { AttachMode::Native } else { AttachMode::Generic };
    for backend in &backends {
        let description = backend.describe().unwrap();
        assert_eq!(description.mode, wanted);
        assert_eq!(description.multi_buffer, mtu == 9000);
        assert!(!description.zero_copy, "veth has no zero-copy");
        let fallbacks: Vec<_> = description.fallbacks.iter().map(|f| (f.wanted, f.got)).collect();
        assert_eq!(fallbacks, [(Feature::ZeroCopy, Feature::Copy)], "and nothing else");
    }
    carry_all_sizes(&mut backends, mtu);
    for backend in &backends {
        let counters = backend.counters();
        assert_eq!(counters.rx_packets.load(), counters.tx_packets.load());
        assert_eq!(counters.rx_multi_buffer.load() > 0, mtu == 9000);
        assert_eq!(counters.tx_multi_buffer.load() > 0, mtu == 9000);
        assert_eq!(counters.descriptors_refused.load() + counters.chunks_lost.load(), 0);
        assert!(backend.failure().is_none());
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn frames_are_carried_in_native_mode_at_mtu_1500() {
    frames_are_carried(1500, Mode::Native);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn frames_are_carried_in_native_mode_at_mtu_3400() {
    frames_are_carried(3400, Mode::Native);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn frames_are_carried_in_native_mode_at_mtu_9000() {
    frames_are_carried(9000, Mode::Native);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn frames_are_carried_in_generic_mode_at_mtu_1500() {
    frames_are_carried(1500, Mode::Generic);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn frames_are_carried_in_generic_mode_at_mtu_3400() {
    frames_are_carried(3400, Mode::Generic);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn frames_are_carried_in_the_mode_that_is_chosen() {
    frames_are_carried(3400, Mode::Auto);
    frames_are_carried(9000, Mode::Auto);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn frames_are_carried_in_generic_mode_at_mtu_9000() {
    frames_are_carried(9000, Mode::Generic);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn zero_copy_that_is_asked_for_is_had_or_refused_with_the_reason() {
    let lab = lab(1500);
    let asked = |mode| config(End::A).with(|it| it.mode = mode);
    let error = try_open(&lab, End::A, 1500, &asked(Mode::NativeZeroCopy)).unwrap_err();
    assert!(matches!(error, XdpError::ZeroCopy { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("interface rma0: zero-copy was asked for, and the driver "), "{text}");
    for mode in [Mode::Native, Mode::NativeCopy] {
        let open = || try_open(&lab, End::A, 1500, &asked(mode)).ok();
        let backend = wait_for("the port to be free", open);
        let description = backend.describe().unwrap();
        assert!(!description.zero_copy && description.mode == AttachMode::Native);
        let told = description.fallbacks.iter().map(ToString::to_string).collect::<String>();
        assert!(told.starts_with("copy mode instead of zero-copy: the driver "), "{told}");
    }
}

/// Opens an interface of the first namespace with an address of loopback.
fn open_other(lab: &Lab, interface: &str, mode: Mode) -> Result<XdpBackend, XdpError> {
    let _inside = lab.a().enter().unwrap();
    let address = "127.0.0.1".parse().unwrap();
    let config = XdpConfig::new(interface, &[Port(PORT)], &[address]).with(|it| it.mode = mode);
    XdpBackend::open(&config, PathTable::fixed(1500, &[]).unwrap())
}

/// A bridge has no XDP in its driver, and several queues if they are wanted, though it does not
/// tell how many are in use.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn each_fallback_is_reported() {
    let lab = lab(1500);
    lab.a().ip(&["link", "add", "several", "numrxqueues", "2", "type", "bridge"]).unwrap();
    lab.a().ip(&["link", "set", "several", "up"]).unwrap();
    let open = |mode| open_other(&lab, "several", mode);
    let error = open(Mode::Native).unwrap_err();
    assert!(matches!(error, XdpError::AttachFailed { .. }), "{error}");
    assert!(error.to_string().contains("generic: not asked for"), "{error}");
    let backend = wait_for("the port to be free", || open(Mode::Auto).ok());
    let description = backend.describe().unwrap();
    assert_eq!(description.mode, AttachMode::Generic);
    let fallbacks: Vec<_> = description.fallbacks.iter().map(|f| (f.wanted, f.got)).collect();
    let wanted = [(Feature::NativeMode, Feature::GenericMode), (Feature::ZeroCopy, Feature::Copy)];
    assert_eq!(fallbacks, wanted);
    assert_eq!(description.queues, 2);
    let reasons: String = description.fallbacks.iter().map(|f| format!("{f}\n")).collect();
    assert!(reasons.contains("generic XDP instead of native XDP: BPF_LINK_CREATE: "), "{reasons}");
}

/// As with the loopback interface, e1000e does not tell how many queues are in use, but it has just
/// one.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn one_queue_is_no_fallback_where_there_is_only_one() {
    let lab = lab(1500);
    let backend = open_other(&lab, "lo", Mode::Auto).unwrap();
    let description = backend.describe().unwrap();
    assert_eq!(description.queues, 1);
    let wanted: Vec<_> = description.fallbacks.iter().map(|fallback| fallback.wanted).collect();
    assert_eq!(wanted, [Feature::NativeMode, Feature::ZeroCopy]);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn busy_polling_can_be_asked_for() {
    let lab = lab(1500);
    let mut backends = [End::A, End::B].map(|end| {
        let config = config(end).with(|it| it.busy_poll_us = NonZeroU32::new(20));
        try_open(&lab, end, 1500, &config).unwrap()
    });
    carry_all_sizes(&mut backends, 1500);
}

/// More than a ring, in bursts: chunks come back and nothing is lost as long as the peer keeps up.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn many_bursts_arrive_in_order_through_small_rings() {
    for (mtu, mode) in [1500, 9000].into_iter().flat_map(|mtu| BOTH.map(|mode| (mtu, mode))) {
        let lab = lab(mtu);
        let [mut a, mut b] = [End::A, End::B].map(|end| {
            let small = config(end).with(|it| {
                it.mode = mode;
                it.rx_ring = 128;
                it.tx_ring = 64;
                it.chunk_count = 192;
            });
            try_open(&lab, end, mtu, &small).unwrap()
        });
        let len = mtu as usize - 28;
        let (mut sent, mut received) = (0_usize, 0_usize);
        while received < 5000 {
            let next = &mut sent;
            let mut fill = |buffer: &mut [u8]| {
                buffer[..len].copy_from_slice(&pattern(len, *next));
                *next += 1;
                Some(transmit(End::A, 4, len))
            };
            a.tx_burst(40, |frames| TxFrame::fill_each(frames, &mut fill));
            a.flush(clock());
            wait_for("every frame of the burst", || {
                b.rx_burst(64, |frames| {
                    for frame in frames {
                        assert_eq!(frame.bytes, pattern(len, received));
                        received += 1;
                    }
                });
                (received == sent).then_some(())
            });
            // As an engine looks again: until then the ring may be taken for half full.
            assert_eq!(b.rx_burst(64, |_| ()), 0);
        }
        let statistics = b.statistics().unwrap();
        assert_eq!(statistics.rx_dropped + statistics.rx_fill_ring_empty_descs, 0);
        assert_eq!(statistics.rx_unread, 0);
        assert_eq!(b.counters().chunks_lost.load(), 0);
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn tcp_on_the_same_interface_keeps_flowing() {
    for mode in BOTH {
        let lab = lab(1500);
        let mut backends = open_both(&lab, 1500, mode);
        let listener = {
            let _inside = lab.b().enter().unwrap();
            TcpListener::bind((Lab::B_V4, 80)).unwrap()
        };
        let mut client = {
            let _inside = lab.a().enter().unwrap();
            TcpStream::connect((Lab::B_V4, 80)).unwrap()
        };
        let (mut server, _) = listener.accept().unwrap();
        let text = pattern(1 << 20, 1);
        thread::scope(|scope| {
            scope.spawn(|| client.write_all(&text).unwrap());
            let reader = scope.spawn(|| {
                let mut got = vec![0; text.len()];
                server.read_exact(&mut got).unwrap();
                got
            });
            carry_all_sizes(&mut backends, 1500);
            assert!(reader.join().unwrap() == text);
        });
        // UDP to another port goes to its socket.
        let listener = {
            let _inside = lab.b().enter().unwrap();
            UdpSocket::bind((Lab::B_V4, PORT + 1)).unwrap()
        };
        let sender = {
            let _inside = lab.a().enter().unwrap();
            UdpSocket::bind((Lab::A_V4, 0)).unwrap()
        };
        sender.send_to(b"other port", (Lab::B_V4, PORT + 1)).unwrap();
        listener.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut buffer = [0; 32];
        assert_eq!(listener.recv(&mut buffer).unwrap(), 10);
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_kernel_socket_understands_what_is_sent_and_the_other_way_round() {
    BOTH.into_iter().for_each(a_kernel_socket_understands_what_is_sent_and_the_other_way_round_in);
}

fn a_kernel_socket_understands_what_is_sent_and_the_other_way_round_in(mode: Mode) {
    let lab = lab(1500);
    let mut a = open_in(&lab, End::A, mode);
    for version in [4, 6] {
        let ip = |end: End| -> IpAddr { end.address(version).ip() };
        let kernel = {
            let _inside = lab.b().enter().unwrap();
            UdpSocket::bind((ip(End::B), PORT)).unwrap()
        };
        kernel.set_read_timeout(Some(DEADLINE)).unwrap();
        for len in [0, 1, 100, 1400] {
            let frame = pattern(len, 3);
            // The kernel verifies the checksum over IPv6.
            send(&mut a, End::A, version, &frame);
            let mut buffer = [0; 2000];
            let (got, from) = kernel.recv_from(&mut buffer).unwrap();
            assert_eq!(&buffer[..got], frame);
            assert_eq!(from, SocketAddr::new(ip(End::A), 49152 + 7));
            // The kernel's own checksum is only partial on veth.
            kernel.send_to(&frame, (ip(End::A), PORT)).unwrap();
            assert_eq!(receive(&mut a, End::B, version).0, frame);
        }
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn every_receive_queue_is_polled() {
    let lab = Lab::new(&LabConfig { queues: 2, ..LabConfig::default() }).unwrap();
    // In generic mode veth forgets the queue: all come in on the first one.
    let mut b = open_in(&lab, End::B, Mode::Native);
    assert_eq!(b.describe().unwrap().queues, 2);
    // The kernel spreads senders over its transmit queues, and veth keeps the number.
    let senders: Vec<UdpSocket> = {
        let _inside = lab.a().enter().unwrap();
        (0..64).map(|_| UdpSocket::bind((Lab::A_V4, 0)).unwrap()).collect()
    };
    for (number, sender) in senders.iter().enumerate() {
        sender.send_to(&[number as u8], (Lab::B_V4, PORT)).unwrap();
    }
    let mut seen = [0; 64];
    wait_for("a frame of every sender", || {
        b.rx_burst(8, |frames| {
            frames.iter().for_each(|frame| seen[usize::from(frame.bytes[0])] += 1);
        });
        seen.iter().all(|&count| count == 1).then_some(())
    });
    drop(b);
    let mut b = open_sockets_in(&lab, End::B, 1500, Mode::Native);
    let mut per_queue = [0, 0];
    for (number, sender) in senders.iter().enumerate() {
        sender.send_to(&[number as u8], (Lab::B_V4, PORT)).unwrap();
    }
    wait_for("the same again, by queue", || {
        for (queue, count) in per_queue.iter_mut().enumerate() {
            b.socket_mut(queue).unwrap().receive(64, |_, _| *count += 1);
        }
        (per_queue[0] + per_queue[1] == 64).then_some(())
    });
    assert!(per_queue.iter().all(|&count| count > 0), "{per_queue:?}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn frames_that_cannot_be_sent_are_counted_and_the_next_one_is_sent() {
    let lab = lab(1500);
    let [mut a, mut b] = open_both(&lab, 1500, Mode::Native);
    let counters = Arc::clone(a.counters());
    send(&mut a, End::A, 4, &pattern(1473, 0));
    assert_eq!(counters.tx_too_long.load(), 1);
    send(&mut a, End::A, 6, &pattern(1453, 0));
    assert_eq!(counters.tx_too_long.load(), 2);
    let frame = Transmit { destination: "192.0.2.77".parse().unwrap(), ..transmit(End::A, 4, 5) };
    let mut frames = vec![frame];
    a.tx_burst(9, |buffers| TxFrame::fill_each(buffers, |_| frames.pop()));
    assert_eq!(counters.tx_no_path.load(), 1);
    let frame = Transmit { destination: Lab::B_V6.into(), ..transmit(End::A, 4, 5) };
    let mut frames = vec![frame];
    a.tx_burst(9, |buffers| TxFrame::fill_each(buffers, |_| frames.pop()));
    assert_eq!(counters.tx_family.load(), 1);
    assert_eq!(counters.tx_frames.load(), 0);
    send(&mut a, End::A, 4, b"fine");
    assert_eq!(receive(&mut b, End::A, 4).0, b"fine");
}

/// The sockets alone, perhaps where a backend was dropped: see [`reopen`].
fn open_sockets(lab: &Lab, end: End, mtu: u32) -> SteeredSockets {
    open_sockets_in(lab, end, mtu, Mode::Auto)
}

fn open_sockets_in(lab: &Lab, end: End, mtu: u32, mode: Mode) -> SteeredSockets {
    let config = config(end).with(|it| it.mode = mode);
    let _inside = end.netns(lab).enter().unwrap();
    wait_for("the interface to be free", || SteeredSockets::open(&config, mtu).ok())
}

/// Any bytes as an Ethernet packet, past a backend.
fn send_raw(sockets: &mut SteeredSockets, packet: &[u8]) {
    let socket = sockets.socket_mut(0).unwrap();
    assert!(socket.room() > 0);
    let mut frame = socket.take().unwrap();
    socket.bytes_mut(&mut frame)[..packet.len()].copy_from_slice(packet);
    socket.stage(frame, packet.len(), false);
    socket.commit();
    socket.flush(clock());
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn each_reason_to_drop_what_was_steered_to_us_has_its_counter() {
    let lab = lab(1500);
    let (mut a, mut b) = (open_sockets(&lab, End::A, 1500), open(&lab, End::B, 1500));
    let headers = |version: u8| Headers {
        source_mac: End::A.mac(&lab),
        next_hop_mac: End::B.mac(&lab),
        source: End::A.address(version),
        destination: End::B.address(version),
        source_port: SourcePort::FIRST,
        port: Port(PORT),
        dscp: Dscp::default(),
    };
    let packet = |version: u8| {
        let mut packet = vec![1; if version == 4 { HEADERS_V4 } else { HEADERS_V6 } + 20];
        headers(version).write(&mut packet);
        packet
    };
    let mut ip_length = packet(4);
    ip_length[16] = 0x7f;
    let mut udp_length = packet(6);
    udp_length[58] = 0x7f;
    let mut mapped = packet(6);
    mapped[22..32].fill(0);
    mapped[32..34].fill(0xff);
    let mut not_local = packet(4);
    not_local[33] = 99;
    for packet in [&ip_length, &udp_length, &mapped, &not_local] {
        send_raw(&mut a, packet);
    }
    drop(a);
    let mut a = reopen(&lab, &config(End::A));
    send(&mut a, End::A, 4, b"still alive");
    assert_eq!(receive(&mut b, End::A, 4).0, b"still alive");
    let counters = b.counters();
    assert_eq!(counters.rx_ip_length.load(), 1);
    assert_eq!(counters.rx_udp_length.load(), 1);
    assert_eq!(counters.rx_mapped_address.load(), 1);
    assert_eq!(counters.rx_not_local.load(), 0, "it went to the kernel");
    assert_eq!(counters.rx_packets.load(), 1);
}

/// A backend at B that knows no path, but its own hardware address.
fn open_without_paths(lab: &Lab) -> XdpBackend {
    let (paths, mut writer) = PathTable::new(1500);
    writer.set_interface_mac(Some(End::B.mac(lab)));
    let _inside = lab.b().enter().unwrap();
    XdpBackend::open(&config(End::B), paths).unwrap()
}

/// Receives `packet` at B, which has come from A, and answers it with a notice that has no path.
fn answer_by_link(a: &mut SteeredSockets, b: &mut XdpBackend, version: u8, packet: &[u8]) {
    const NOTICE: &[u8] = b"notice";
    send_raw(a, packet);
    let link = wait_for("a packet with its link header", || {
        let mut link = None;
        b.rx_burst(1, |frames| link = frames[0].link.copied());
        link
    });
    assert_eq!(link, packet[..LINK_LEN]);
    let mut transmits = vec![Transmit {
        may_resolve: false,
        link_behind: true,
        ..transmit(End::B, version, NOTICE.len())
    }];
    let mut fill = |buffer: &mut [u8]| {
        buffer[..NOTICE.len()].copy_from_slice(NOTICE);
        buffer[NOTICE.len()..][..LINK_LEN].copy_from_slice(&link);
        transmits.pop()
    };
    assert_eq!(b.tx_burst(1, |frames| TxFrame::fill_each(frames, &mut fill)), 1);
    b.flush(clock());
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_notice_without_a_path_goes_back_as_its_cause_came_with_its_tags() {
    let lab = lab(1500);
    let (mut a, mut b) = (open_sockets(&lab, End::A, 1500), open_without_paths(&lab));
    let tags: [&[u8]; 3] = [&[], &[0x81, 0, 0xf0, 7], &[0x88, 0xa8, 0x20, 9, 0x81, 0, 0x00, 7]];
    let without_priority: [&[u8]; 3] =
        [&[], &[0x81, 0, 0, 7], &[0x88, 0xa8, 0, 9, 0x81, 0, 0x00, 7]];
    for version in [4, 6, 4] {
        for (tags, expected) in tags.into_iter().zip(without_priority) {
            let plain = packet_to_b(version, End::A.mac(&lab), End::B.mac(&lab));
            let packet = [&plain[..12], tags, &plain[12..]].concat();
            answer_by_link(&mut a, &mut b, version, &packet);
            let answer = wait_for("the notice", || {
                let mut got = None;
                let socket = a.socket_mut(0).unwrap();
                socket.receive(1, |bytes, _| got = Some(bytes.to_vec()));
                got
            });
            let macs = [End::A.mac(&lab), End::B.mac(&lab)].concat();
            assert_eq!(answer[..12 + tags.len()], [&macs, expected].concat());
            let datagram = packet::parse(&answer, &Ports::new(&[Port(PORT)]).unwrap()).unwrap();
            assert_eq!(datagram.source, End::B.address(version));
            assert_eq!(datagram.destination, End::A.address(version));
            assert_eq!(&answer[datagram.payload], b"notice");
        }
    }
    assert_eq!((b.counters().tx_link_return.load(), b.counters().tx_frames.load()), (9, 9));
    // Nothing was learnt from it: what is no notice still has no path.
    send(&mut b, End::B, 4, b"data");
    assert_eq!(b.counters().tx_no_path.load(), 1);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn no_notice_goes_back_to_a_group_to_nobody_to_ourselves_or_for_what_was_not_to_us() {
    let lab = lab(1500);
    let (mut a, mut b) = (open_sockets(&lab, End::A, 1500), open_without_paths(&lab));
    let (of_a, of_b) = (End::A.mac(&lab), End::B.mac(&lab));
    for (refused, source) in (1..).zip([[0xff; 6], [3, 0, 0, 0, 0, 1], [0; 6], of_b]) {
        answer_by_link(&mut a, &mut b, 4, &packet_to_b(4, source, of_b));
        assert_eq!(b.counters().tx_link_refused.load(), refused);
    }
    // As a switch floods it, or somebody who sends to all.
    for (flooded, destination) in (1..).zip([[2, 0, 0, 0, 0, 0x77], [0xff; 6]]) {
        answer_by_link(&mut a, &mut b, 4, &packet_to_b(4, of_a, destination));
        assert_eq!(b.counters().tx_no_path.load(), flooded);
    }
    let counters = b.counters();
    assert_eq!((counters.tx_link_return.load(), counters.tx_frames.load()), (0, 0));
}

/// A packet to B's address, from and to these hardware addresses.
fn packet_to_b(version: u8, source_mac: [u8; 6], next_hop_mac: [u8; 6]) -> Vec<u8> {
    let (source, destination) = (End::A.address(version), End::B.address(version));
    let headers = Headers {
        source_mac,
        next_hop_mac,
        source,
        destination,
        source_port: SourcePort::FIRST,
        port: Port(PORT),
        dscp: Dscp::default(),
    };
    let mut packet = vec![1; if version == 4 { HEADERS_V4 } else { HEADERS_V6 } + 20];
    headers.write(&mut packet);
    packet
}

/// A receive ring cannot be full, and no descriptor of ours is invalid: rings are as large as the
/// chunks that may be on them, and the steering program leaves a quarter of them. These two
/// statistics are what remains.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn packets_dropped_before_us_are_counted() {
    BOTH.into_iter().for_each(packets_dropped_before_us_are_counted_in);
}

fn packets_dropped_before_us_are_counted_in(mode: Mode) {
    let lab = lab(1500);
    let mut a = open(&lab, End::A, 1500);
    let small = config(End::B).with(|it| {
        it.mode = mode;
        it.rx_ring = 64;
        it.tx_ring = 64;
        it.chunk_count = 128;
    });
    let mut b = try_open(&lab, End::B, 1500, &small).unwrap();
    for number in 0..100_usize {
        send(&mut a, End::A, 4, &pattern(100, number));
    }
    wait_for("frames without room", || (b.statistics().unwrap().rx_unread == 52).then_some(()));
    for number in 0..48 {
        assert_eq!(receive(&mut b, End::A, 4).0, pattern(100, number));
    }
    assert_eq!(b.rx_burst(1, |_| ()), 0);
    send(&mut a, End::A, 4, b"room again");
    assert_eq!(receive(&mut b, End::A, 4).0, b"room again");

    // The interface grows after it was opened for one buffer a packet.
    drop(a);
    for end in [End::A, End::B] {
        end.netns(&lab).set_mtu(Lab::INTERFACE, 9000).unwrap();
    }
    let mut a =
        wait_for("the interface to be free", || try_open(&lab, End::A, 9000, &config(End::A)).ok());
    let before = b.statistics().unwrap().rx_dropped;
    send(&mut a, End::A, 4, &pattern(5000, 0));
    wait_for("a packet that is too long", || {
        (b.statistics().unwrap().rx_dropped > before).then_some(())
    });
    send(&mut a, End::A, 4, b"short");
    assert_eq!(receive(&mut b, End::A, 4).0, b"short");
}

/// As that of a container with a macvlan of the interface, or of a UDP host that has another of
/// this machine's addresses.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_frame_to_our_port_and_another_address_goes_to_the_kernels_sockets() {
    for mode in BOTH {
        let lab = lab(1500);
        let [_a, mut b] = open_both(&lab, 1500, mode);
        for (other, ours) in [("192.0.2.77", Lab::B_V4.into()), ("fd00::77", Lab::B_V6.into())] {
            let other: IpAddr = other.parse().unwrap();
            let ours: IpAddr = ours;
            let prefix = if other.is_ipv4() { 24 } else { 64 };
            let address = format!("{other}/{prefix}");
            lab.b().ip(&["addr", "add", &address, "dev", Lab::INTERFACE, "nodad"]).unwrap();
            let socket = {
                let _inside = lab.b().enter().unwrap();
                UdpSocket::bind((other, PORT)).unwrap()
            };
            socket.set_read_timeout(Some(DEADLINE)).unwrap();
            let sender = {
                let _inside = lab.a().enter().unwrap();
                UdpSocket::bind((if other.is_ipv4() { "0.0.0.0" } else { "::" }, 0)).unwrap()
            };
            sender.send_to(b"theirs", (other, PORT)).unwrap();
            let mut buffer = [0; 32];
            assert_eq!(socket.recv(&mut buffer).unwrap(), 6);
            sender.send_to(b"ours", (ours, PORT)).unwrap();
            let mut received = Vec::new();
            wait_for("what is for us", || {
                b.rx_burst(8, |frames| received.push(frames[0].bytes.to_vec()));
                (!received.is_empty()).then_some(())
            });
            assert_eq!(received, [b"ours"]);
        }
        assert_eq!(b.counters().rx_not_local.load(), 0);
    }
}

/// As of a process that is stopped: with a driver that has no other chunks, more would take the
/// machine off the network.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_backend_that_is_not_polled_leaves_a_quarter_of_its_chunks_alone_and_goes_on_when_it_is() {
    for (mtu, mode) in [1500, 9000].into_iter().flat_map(|mtu| BOTH.map(|mode| (mtu, mode))) {
        let lab = lab(mtu);
        let mut b = try_open(&lab, End::B, mtu, &config(End::B).with(|it| it.mode = mode)).unwrap();
        let chunks = config(End::B).rx_ring as usize;
        let sender = {
            let _inside = lab.a().enter().unwrap();
            UdpSocket::bind((Lab::A_V4, 0)).unwrap()
        };
        // With a large MTU three chunks each.
        let (frame, chunks_each) =
            if mtu == 9000 { (pattern(8900, 7), 3) } else { (pattern(100, 7), 1) };
        let send = || sender.send_to(&frame, (Lab::B_V4, PORT)).unwrap();
        wait_for("frames without room", || {
            (0..100).for_each(|_| assert_eq!(send(), frame.len()));
            (b.statistics().unwrap().rx_unread >= 500).then_some(())
        });
        let mut received = 0;
        wait_for("all that the ring holds", || {
            let before = received;
            b.rx_burst(64, |frames| {
                assert!(frames.iter().all(|it| it.bytes == frame));
                received += frames.len();
            });
            (received == before).then_some(())
        });
        assert_eq!(received, chunks / 4 * 3 / chunks_each, "MTU {mtu}, {mode:?}");
        let statistics = b.statistics().unwrap();
        assert_eq!(statistics.rx_ring_full + statistics.rx_fill_ring_empty_descs, 0);
        for number in 0..3 * chunks {
            send();
            wait_for("a frame", || (b.rx_burst(1, |_| ()) == 1).then_some(()));
            assert_eq!(b.rx_burst(1, |_| ()), 0, "frame {number}");
        }
        assert_eq!(b.statistics().unwrap().rx_unread, statistics.rx_unread);
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn polling_the_descriptors_wakes_when_a_frame_comes() {
    BOTH.into_iter().for_each(polling_the_descriptors_wakes_when_a_frame_comes_in);
}

fn polling_the_descriptors_wakes_when_a_frame_comes_in(mode: Mode) {
    let lab = lab(1500);
    let [mut a, mut b] = open_both(&lab, 1500, mode);
    let poll_for = |backend: &mut XdpBackend, timeout: Timespec| {
        let fds: Vec<_> = backend.poll_fds().collect();
        let mut fds: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        poll(&mut fds, Some(&timeout)).unwrap()
    };
    assert_eq!(poll_for(&mut b, Timespec { tv_sec: 0, tv_nsec: 1_000_000 }), 0);
    thread::scope(|scope| {
        let b = &mut b;
        let sleeper = scope.spawn(move || poll_for(b, Timespec { tv_sec: 5, tv_nsec: 0 }));
        send(&mut a, End::A, 4, b"wake up");
        assert_eq!(sleeper.join().unwrap(), 1);
    });
    assert_eq!(receive(&mut b, End::A, 4).0, b"wake up");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_interface_that_goes_down_and_comes_back_is_used_again() {
    BOTH.into_iter().for_each(an_interface_that_goes_down_and_comes_back_is_used_again_in);
}

fn an_interface_that_goes_down_and_comes_back_is_used_again_in(mode: Mode) {
    let lab = lab(1500);
    let [mut a, mut b] = open_both(&lab, 1500, mode);
    let link = |state: &str| {
        lab.a().ip(&["link", "set", "dev", Lab::INTERFACE, state]).unwrap();
    };
    link("down");
    send(&mut a, End::A, 4, b"late");
    assert!(a.counters().tx_wakeups_down.load() > 0);
    assert!(a.failure().is_none(), "an interface that is down is not gone");
    link("up");
    wait_for("the frame that waited", || {
        a.flush(clock());
        let mut got = false;
        b.rx_burst(8, |frames| got |= frames.iter().any(|frame| frame.bytes == b"late"));
        got.then_some(())
    });
    send(&mut a, End::A, 4, b"again");
    assert_eq!(receive(&mut b, End::A, 4).0, b"again");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_interface_that_is_deleted_is_a_failure_not_a_panic() {
    BOTH.into_iter().for_each(an_interface_that_is_deleted_is_a_failure_not_a_panic_in);
}

fn an_interface_that_is_deleted_is_a_failure_not_a_panic_in(mode: Mode) {
    let lab = lab(1500);
    let mut a = open_in(&lab, End::A, mode);
    lab.a().ip(&["link", "del", "dev", Lab::INTERFACE]).unwrap();
    wait_for("the failure to be seen", || {
        send(&mut a, End::A, 4, b"to nowhere");
        a.failure()
    });
    assert!(a.counters().tx_wakeups_failed.load() > 0);
    a.rx_burst(8, |_| panic!("nothing can arrive"));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_second_backend_is_told_what_is_in_its_way() {
    let lab = lab(1500);
    let first = open(&lab, End::A, 1500);
    let error = try_open(&lab, End::A, 1500, &config(End::A)).unwrap_err();
    assert!(matches!(error, XdpError::PortInUse { port: PORT, .. }), "{error}");
    assert!(error.to_string().contains("in use by another instance"), "{error}");

    for mode in BOTH {
        let other_port = config(End::A).with(|it| {
            it.ports = vec![Port(PORT + 1)];
            it.mode = mode;
        });
        let error = try_open(&lab, End::A, 1500, &other_port).unwrap_err();
        let XdpError::ProgramAttached { program: Some(program), .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(&*program.name, "rma_steer");
        let link = lab.a().ip(&["-d", "link", "show", "dev", Lab::INTERFACE]).unwrap();
        assert!(link.contains(&format!("id {}", program.id)), "{link}");
    }
    // A failed attempt leaves the first one in place.
    drop(first);
    reopen(&lab, &config(End::A));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_kernel_socket_on_the_port_is_a_clear_error() {
    let lab = lab(1500);
    for address in ["0.0.0.0", "192.0.2.1", "::"] {
        // The one before may be held by a process that is being started.
        let _service = wait_for("the port to be free", || {
            let _inside = lab.a().enter().unwrap();
            UdpSocket::bind((address, PORT)).ok()
        });
        let error = try_open(&lab, End::A, 1500, &config(End::A)).unwrap_err();
        assert!(matches!(error, XdpError::PortInUse { .. }), "{address}: {error}");
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn start_up_errors_name_the_interface_and_the_next_step() {
    let lab = lab(1500);
    let text = |config: XdpConfig, mtu: u32, wanted: &[&str]| {
        let error = try_open(&lab, End::A, mtu, &config).unwrap_err().to_string();
        for wanted in wanted {
            assert!(error.contains(wanted), "{wanted:?} in {error:?}");
        }
    };
    for interface in ["no-such-if", "", "a-name-that-is-far-too-long", "nul\0nul"] {
        let config = config(End::A).with(|it| it.interface = interface.into());
        text(config, 1500, &[&format!("{interface:?}"), "`ip link`"]);
    }
    text(config(End::A), 1279, &["rma0", "1279", "IPv6", "1280"]);
    let v4_only = || XdpConfig::new(Lab::INTERFACE, &[Port(PORT)], &[Lab::A_V4.into()]);
    text(v4_only(), 575, &["rma0", "575", "IPv4", "576"]);
    let foreign = XdpConfig::new(Lab::INTERFACE, &[Port(PORT)], &["192.0.2.200".parse().unwrap()]);
    text(foreign, 1500, &["192.0.2.200", "rma0", "ip addr show"]);
    text(config(End::A).with(|it| it.ports = vec![Port(0)]), 1500, &["UDP port 0 cannot"]);
    lab.a().ip(&["link", "set", "dev", Lab::INTERFACE, "down"]).unwrap();
    text(v4_only(), 1500, &["rma0", "is down", "ip link set rma0 up"]);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_missing_capability_is_named() {
    let lab = lab(1500);
    // The kernel takes CAP_SYS_ADMIN, which root has, for the other two.
    let admin = CapabilitySet::SYS_ADMIN;
    for missing in [
        CapabilitySet::NET_ADMIN | admin,
        CapabilitySet::BPF | admin,
        CapabilitySet::NET_RAW,
        CapabilitySet::all(),
    ] {
        let paths = paths(&lab, End::A, 1500);
        thread::scope(|scope| {
            // Capabilities belong to a thread, and this one ends.
            let unprivileged = scope.spawn(|| {
                let _inside = lab.a().enter().unwrap();
                let all = capabilities(None).unwrap();
                let fewer = CapabilitySets { effective: all.effective - missing, ..all };
                set_capabilities(None, fewer).unwrap();
                let error = XdpBackend::open(&config(End::A), paths).unwrap_err();
                // Leaving the namespace needs them again.
                set_capabilities(None, all).unwrap();
                error
            });
            let error = unprivileged.join().unwrap();
            assert!(matches!(error, XdpError::MissingCapability { .. }), "{missing:?}: {error}");
            assert!(error.to_string().contains("setcap"), "{error}");
        });
    }
    reopen(&lab, &config(End::A));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn dropping_a_backend_detaches_and_the_next_one_opens() {
    let lab = lab(1500);
    let attached =
        || lab.a().ip(&["-d", "link", "show", "dev", Lab::INTERFACE]).unwrap().contains("prog/xdp");
    for mode in [Mode::Native, Mode::Generic, Mode::Auto].into_iter().cycle().take(30) {
        let config = config(End::A).with(|it| it.mode = mode);
        let backend = reopen(&lab, &config);
        assert!(attached());
        drop(backend);
        wait_for("the program to be detached", || (!attached()).then_some(()));
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn after_kill_9_nothing_stays_attached_and_the_next_start_succeeds() {
    let lab = lab(1500);
    let name = "xdp_backend::holds_a_backend_until_it_is_killed";
    let mut child = Command::new(env::current_exe().unwrap())
        .args([name, "--exact", "--ignored", "--nocapture"])
        .env(CHILD_NETNS, lab.a().name())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let ready = output.lines().map_while(Result::ok).any(|line| line.contains("backend is open"));
    assert!(ready, "the child opened its backend");
    let error = try_open(&lab, End::A, 1500, &config(End::A)).unwrap_err();
    assert!(matches!(error, XdpError::PortInUse { .. }), "{error}");
    child.kill().unwrap();
    child.wait().unwrap();
    let [mut a, mut b] = open_both(&lab, 1500, Mode::Auto);
    send(&mut a, End::A, 4, b"alive");
    assert_eq!(receive(&mut b, End::A, 4).0, b"alive");
}

/// Not a test: the child of the one above, in the same program.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn holds_a_backend_until_it_is_killed() {
    let Ok(netns) = env::var(CHILD_NETNS) else { return };
    let file = std::fs::File::open(std::path::Path::new("/run/netns").join(netns)).unwrap();
    let kind = rustix::thread::LinkNameSpaceType::Network;
    rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), Some(kind)).unwrap();
    let paths = PathTable::fixed(1500, &[]).unwrap();
    let _backend = XdpBackend::open(&config(End::A), paths).unwrap();
    println!("backend is open");
    loop {
        thread::park();
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_kernel_answers_no_port_unreachable_while_a_backend_is_open() {
    BOTH.into_iter().for_each(the_kernel_answers_no_port_unreachable_while_a_backend_is_open_in);
}

fn the_kernel_answers_no_port_unreachable_while_a_backend_is_open_in(mode: Mode) {
    let lab = lab(1500);
    let b = open_in(&lab, End::B, mode);
    let sender = {
        let _inside = lab.a().enter().unwrap();
        UdpSocket::bind((Lab::A_V4, 0)).unwrap()
    };
    sender.connect((Lab::B_V4, PORT)).unwrap();
    sender.set_nonblocking(true).unwrap();
    // Longer than the MTU: fragments pass the steering program and end at the reserved socket.
    for _ in 0..10 {
        sender.send(&pattern(4000, 0)).unwrap();
    }
    assert!(sender.take_error().unwrap().is_none());
    drop(b);
    // The proof that an answer would have been seen.
    wait_for("port unreachable", || {
        sender.send(&pattern(4000, 0)).err().or_else(|| sender.take_error().unwrap())
    });
}
