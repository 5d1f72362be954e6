//! The verdicts of the steering program, frame by frame.
//!
//! Besides, how much of a receive ring it takes: see [`room`].
//!
//! Three ways to the same table. Without privileges the program's own header code runs over slices,
//! which covers also what the kernel does not let in. With them the built object runs in the kernel
//! (`BPF_PROG_TEST_RUN`), loaded by libbpf, a second loader beside the one that ships, and by aya,
//! the one that ships. No frame travels: redirection over a wire is tested where there are two
//! hosts.

use std::{fs, ops::Range, path::Path, process::Command, thread};

use aya::programs::TestRun as _;
use libbpf_rs::{
    MapCore, MapFlags, Object, ObjectBuilder,
    btf::{
        Btf,
        types::{DataSec, Var},
    },
    libbpf_sys::{XDP_DROP, XDP_PASS, XDP_REDIRECT},
};
use proptest::prelude::*;
use rma_core::port::PORTS_MAX;
use rma_tests::frames::{self, Case, PORT, Version, cases};
use rustix::{
    fd::{AsRawFd as _, OwnedFd},
    net::{AddressFamily, SocketType, sockopt},
};
use sha2::{Digest as _, Sha256};

#[path = "../../../ebpf/src/headers.rs"]
mod headers;
#[path = "../../../ebpf/src/room.rs"]
mod room;

const OBJECT: &str = "rma-steer.bpf.o";

/// The kernel takes no frame below an Ethernet header as input of a test run:
/// <https://github.com/torvalds/linux/blob/v6.18/net/bpf/test_run.c>, `bpf_test_init`.
const TEST_RUN_LEN_MIN: usize = 14;

fn ebpf_dir() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../ebpf"))
}

fn object() -> Vec<u8> {
    fs::read(ebpf_dir().join(OBJECT)).expect("the built object is kept in git")
}

// --- The object in git ---

#[test]
fn the_object_is_not_older_than_its_sources() {
    let recorded = fs::read_to_string(ebpf_dir().join(format!("{OBJECT}.source-hash"))).unwrap();
    let mut listed = Vec::new();
    for line in recorded.lines().filter(|line| !line.starts_with('#')) {
        let (digest, file) = line.split_once("  ").expect("the format of sha256sum");
        let bytes = fs::read(ebpf_dir().join(file)).unwrap();
        let now: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            now, digest,
            "ebpf/{file} has changed: run `cargo xtask ebpf`, commit the result"
        );
        listed.push(file.to_owned());
    }
    for file in [".cargo/config.toml", "Cargo.lock", "Cargo.toml", OBJECT] {
        assert!(listed.contains(&file.to_owned()), "{file} is not in the list");
    }
    for entry in fs::read_dir(ebpf_dir().join("src")).unwrap() {
        let file = format!("src/{}", entry.unwrap().file_name().into_string().unwrap());
        assert!(listed.contains(&file), "{file} is not in the list: run `cargo xtask ebpf`");
    }
}

#[test]
fn the_object_names_no_folder_of_the_machine_that_built_it() {
    let object = object();
    for string in object.split(|byte| !(b' '..=b'~').contains(byte)) {
        let string = String::from_utf8_lossy(string);
        assert!(!string.starts_with('/') || string.len() < 4, "{string}");
    }
}

// --- The table and the header code, without a kernel ---

/// The destination of the fixtures.
struct Fixtures;

impl headers::Addresses for Fixtures {
    fn v4(&self) -> u32 {
        u32::from_ne_bytes(frames::DESTINATION_V4)
    }

    fn v6(&self) -> [u64; 2] {
        address_v6(frames::DESTINATION_V6)
    }
}

/// The global `ADDRESS_V6` for this address.
fn address_v6(octets: [u8; 16]) -> [u64; 2] {
    let bits = u128::from_be_bytes(octets);
    [(bits >> 64) as u64, bits as u64].map(u64::to_be)
}

/// The verdict by the program's own header code; that there is a socket is taken for granted.
fn verdict_of_headers(frame: &[u8]) -> bool {
    let bytes = frame.as_ptr_range();
    // SAFETY: the cursor is used up before `frame`, which holds these bytes, is given back.
    let mut cursor = unsafe { headers::Cursor::new(bytes.start.addr(), bytes.end.addr()) };
    headers::udp_destination(&mut cursor, &Fixtures) == Some(PORT)
}

#[test]
fn every_fixture_is_named_once_and_long_enough_to_be_run() {
    let cases = cases();
    for (index, case) in cases.iter().enumerate() {
        assert!(cases[..index].iter().all(|other| other.name != case.name), "{} twice", case.name);
        assert!(case.bytes.len() >= TEST_RUN_LEN_MIN, "{}", case.name);
        assert_eq!(case.redirected, case.headers_len > 0, "{}", case.name);
        assert!(case.headers_len <= case.bytes.len(), "{}", case.name);
    }
}

#[test]
fn every_honest_fixture_of_ours_has_true_lengths_and_checksums() {
    for case in cases().iter().filter(|case| case.redirected) {
        let udp = case.headers_len - frames::UDP_LEN;
        let length = usize::from(u16::from_be_bytes([case.bytes[udp + 4], case.bytes[udp + 5]]));
        let ip = frames::ETHERNET_LEN + tags_len(case);
        let (version, total, header) = match case.bytes[ip] >> 4 {
            4 => {
                let ihl = usize::from(case.bytes[ip] & 15) * 4;
                (Version::V4, 0, frames::checksum(&[&case.bytes[ip..ip + ihl]]))
            }
            _ => (Version::V6, frames::IPV6_LEN, 0),
        };
        let field = if version == Version::V4 { ip + 2 } else { ip + 4 };
        let total =
            total + usize::from(u16::from_be_bytes([case.bytes[field], case.bytes[field + 1]]));
        let fits = ip + total == udp + length && ip + total <= case.bytes.len();
        let sums =
            || frames::transport_checksum(version, frames::UDP, &case.bytes[udp..udp + length]);
        let honest = fits && header == 0 && length >= frames::UDP_LEN && sums() == 0;
        assert_eq!(honest, case.honest, "{}", case.name);
    }
}

fn tags_len(case: &Case) -> usize {
    let ethertypes = case.bytes[12..].chunks(4);
    ethertypes.take_while(|tag| matches!(tag[..2], [0x81, 0x00] | [0x88, 0xa8])).count() * 4
}

#[test]
fn the_header_code_steers_every_fixture_as_the_table_says() {
    for case in cases() {
        assert_eq!(verdict_of_headers(&case.bytes), case.redirected, "{}", case.name);
    }
}

#[test]
fn the_header_code_passes_ours_cut_at_every_byte_of_its_headers() {
    for case in cases().iter().filter(|case| case.redirected) {
        for len in 0..=case.bytes.len() {
            // A copy of this length, so that reading past it is an error to a memory checker.
            let cut = case.bytes[..len].to_vec().into_boxed_slice();
            let expected = len >= case.headers_len;
            assert_eq!(verdict_of_headers(&cut), expected, "{} cut to {len} bytes", case.name);
        }
    }
}

/// A second, plainer reading of the rules.
fn verdict_of_oracle(frame: &[u8]) -> Option<bool> {
    let word = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    let mut at = 12;
    let mut tags = 0;
    while tags < 2 && matches!(word(at)?, frames::VLAN | frames::PROVIDER_VLAN) {
        at += 4;
        tags += 1;
    }
    let ethertype = word(at)?;
    at += 2;
    let version = frame.get(at)? >> 4;
    let udp = match (ethertype, version) {
        (frames::IPV4, 4) => {
            let ihl = usize::from(frame[at] & 15);
            let fragment = word(at + 6)? & 0x3fff;
            let to_us = *frame.get(at + 16..at + 20)? == frames::DESTINATION_V4;
            (ihl >= 5 && fragment == 0 && frame[at + 9] == frames::UDP && to_us)
                .then_some(at + ihl * 4)?
        }
        (frames::IPV6, 6) => {
            let mut next = *frame.get(at + 6)?;
            (*frame.get(at + 24..at + 40)? == frames::DESTINATION_V6).then_some(())?;
            at += 40;
            for _ in 0..4 {
                if [frames::HOP_BY_HOP, frames::ROUTING, frames::DESTINATION].contains(&next) {
                    next = *frame.get(at)?;
                    at += (usize::from(*frame.get(at + 1)?) + 1) * 8;
                }
            }
            (next == frames::UDP).then_some(at)?
        }
        _ => return None,
    };
    frame.get(udp + 7)?;
    Some(word(udp + 2)? == PORT)
}

proptest! {
    #[test]
    fn the_header_code_agrees_with_a_plainer_reading_on_damaged_fixtures(
        row in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        len in any::<prop::sample::Index>(),
        whole in any::<bool>(),
    ) {
        let cases = cases();
        let mut frame = row.get(&cases).bytes.clone();
        // Most rows are short headers: damage past 96 bytes would hit payload.
        let reach = frame.len().min(96);
        for (at, value) in damage {
            frame[at.index(reach)] = value;
        }
        if !whole {
            frame.truncate(len.index(frame.len() + 1));
        }
        let expected = verdict_of_oracle(&frame).unwrap_or(false);
        prop_assert_eq!(verdict_of_headers(&frame), expected, "{:02x?}", frame);
    }

    #[test]
    fn the_header_code_takes_any_bytes(frame in prop::collection::vec(any::<u8>(), 0..256)) {
        prop_assert_eq!(verdict_of_headers(&frame), verdict_of_oracle(&frame).unwrap_or(false));
    }
}

// --- How much of a receive ring is taken ---

/// A receive ring, its reader, and the program before it.
#[derive(Debug, Default)]
struct Ring {
    room: room::Room,
    chunks_max: u32,
    /// Unread chunks, and of these how many the reader has seen.
    unread: u32,
    seen: u32,
    /// How often the reader has emptied what it saw.
    emptied: u32,
}

impl Ring {
    /// A frame comes. It may be lost behind the program. Returns whether the program let it in.
    fn frame(&mut self, chunks: u32, is_lost: bool) -> bool {
        let emptied = self.emptied;
        let is_let_in = self.room.take(chunks, self.chunks_max, || emptied);
        if is_let_in && !is_lost {
            self.unread += chunks;
        }
        is_let_in
    }

    /// The reader asks for so many chunks. It looks at the ring's index when it has taken all that
    /// it saw at its last look, and once more if there is nothing.
    fn read(&mut self, most: u32) {
        if self.seen == 0 {
            self.seen = self.unread;
        }
        if self.seen == 0 {
            self.emptied = self.emptied.wrapping_add(1);
        }
        let taken = self.seen.min(most);
        (self.seen, self.unread) = (self.seen - taken, self.unread - taken);
        if taken < most {
            self.emptied = self.emptied.wrapping_add(1);
        }
    }
}

/// Something that happens to a [`Ring`].
#[derive(Clone, Copy, Debug)]
enum Step {
    Frames { count: u32, chunks: u32, are_lost: bool },
    Read(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let frames = (1..300_u32, 1..4_u32, prop::bool::weighted(0.3));
    prop_oneof![
        frames.prop_map(|(count, chunks, are_lost)| Step::Frames { count, chunks, are_lost }),
        (1..=64_u32).prop_map(Step::Read),
    ]
}

proptest! {
    #[test]
    fn the_ring_never_holds_more_than_the_limit_and_losses_do_not_close_it(
        chunks_max in 16..2000_u32,
        emptied in any::<u32>(),
        steps in prop::collection::vec(step(), 0..100),
    ) {
        let mut ring = Ring { chunks_max, emptied, ..Ring::default() };
        for step in steps {
            match step {
                Step::Frames { count, chunks, are_lost } => for _ in 0..count {
                    ring.frame(chunks, are_lost);
                    prop_assert!(ring.unread <= chunks_max, "{ring:?}");
                },
                Step::Read(most) => ring.read(most),
            }
        }
        // Whatever was lost: for a reader that has read all, and sleeps, there is room.
        while ring.unread > 0 {
            ring.read(64);
        }
        ring.read(64);
        let all = (0..chunks_max / 2).all(|_| ring.frame(1, false));
        prop_assert!(all, "{ring:?}");
    }
}

#[test]
fn frames_that_are_lost_behind_the_program_never_close_a_queue_that_is_read() {
    let mut ring = Ring { chunks_max: 48, ..Ring::default() };
    for number in 0..1_000_000 {
        assert!(ring.frame(1, number % 3 > 0), "frame {number}: {ring:?}");
        ring.read(8);
    }
}

// --- The object in the kernel ---

/// As many chunks as no test run takes.
const ENDLESS: u32 = 1 << 30;

/// Octets of an element of the map `QUEUES`, and where the frames are counted that were dropped.
const QUEUE_LEN: usize = 256;
const DROPPED_AT: usize = 144;

/// The object, loaded by libbpf.
#[derive(Debug)]
struct Steering {
    object: Object,
}

impl Steering {
    /// Loaded for the fixtures' addresses and these ports.
    fn load(ports: &[u16]) -> Self {
        Self::load_with(ports, &[])
    }

    /// The same, with some globals set otherwise.
    fn load_with(ports: &[u16], others: &[(&str, &[u8])]) -> Self {
        let object = object();
        let mut globals = vec![
            ("PORTS", ports.iter().flat_map(|port| port.to_ne_bytes()).collect()),
            ("ADDRESS_V4", frames::DESTINATION_V4.to_vec()),
            ("ADDRESS_V6", frames::DESTINATION_V6.to_vec()),
            ("CHUNKS_MAX", ENDLESS.to_ne_bytes().to_vec()),
        ];
        globals.extend(others.iter().map(|&(name, value)| (name, value.to_vec())));
        let mut open =
            ObjectBuilder::default().open_memory(&object).expect("libbpf reads the object");
        let mut rodata = open
            .maps_mut()
            .find(|map| map.name().to_string_lossy().ends_with(".rodata"))
            .expect("the globals are read-only data");
        let values = rodata.initial_value_mut().expect("read-only data has a value");
        for (name, value) in globals {
            let place = global(&object, name);
            assert!(value.len() <= place.len(), "{name} has {} octets", place.len());
            values[place.start..][..value.len()].copy_from_slice(&value);
        }
        Self { object: open.load().expect("the verifier takes the program") }
    }

    /// Loaded for [`PORT`], with a socket at queue 0, which is where test runs arrive.
    fn with_socket() -> (Self, OwnedFd) {
        Self::with_socket_and(&[])
    }

    fn with_socket_and(others: &[(&str, &[u8])]) -> (Self, OwnedFd) {
        let steering = Self::load_with(&[PORT], others);
        let socket = xdp_socket();
        steering.set(0, &socket).expect("queue 0 is within the map");
        (steering, socket)
    }

    fn map(&self, name: &str) -> impl MapCore {
        self.object.maps().find(|map| map.name() == name).expect("a map of the object")
    }

    fn set(&self, queue: u32, socket: &OwnedFd) -> libbpf_rs::Result<()> {
        let socket = socket.as_raw_fd().to_ne_bytes();
        self.map("XSKS").update(&queue.to_ne_bytes(), &socket, MapFlags::ANY)
    }

    fn unset(&self, queue: u32) {
        let xsks = self.map("XSKS");
        xsks.delete(&queue.to_ne_bytes()).expect("there is a socket at this queue");
    }

    /// Returns the bytes through which the program and the owner of a queue's socket tell each
    /// other.
    fn queue(&self, queue: u32) -> Vec<u8> {
        let element = self.map("QUEUES").lookup(&queue.to_ne_bytes(), MapFlags::ANY);
        element.expect("an array can be read").expect("it has all its elements")
    }

    /// How many frames of a queue there was no room for.
    fn dropped(&self, queue: u32) -> u64 {
        let element = self.queue(queue);
        u64::from_ne_bytes(*element[DROPPED_AT..].first_chunk().expect("eight octets"))
    }

    /// The owner of the socket has emptied its ring so many times.
    fn empty(&self, queue: u32, times: u32) {
        let mut element = self.queue(queue);
        let before = u32::from_ne_bytes(*element.first_chunk().expect("four octets"));
        element[..4].copy_from_slice(&before.wrapping_add(times).to_ne_bytes());
        let written = self.map("QUEUES").update(&queue.to_ne_bytes(), &element, MapFlags::ANY);
        written.expect("an array can be written");
    }

    fn run(&self, frame: &[u8]) -> libbpf_rs::Result<u32> {
        self.run_with(frame, None)
    }

    /// Runs at queue 0 of the loopback interface, or where the `xdp_md` says.
    fn run_with(&self, frame: &[u8], context: Option<&mut [u8]>) -> libbpf_rs::Result<u32> {
        let mut programs = self.object.progs_mut();
        let program = programs.find(|program| program.name() == "rma_steer").expect("the program");
        let input = libbpf_rs::ProgramInput {
            data_in: Some(frame),
            context_in: context,
            ..Default::default()
        };
        Ok(program.test_run(input)?.return_value)
    }
}

/// Returns the place of a global in the read-only data of the object.
fn global(object: &[u8], name: &str) -> Range<usize> {
    let btf = Btf::from_raw("steering", object).expect("an object").expect("it has BTF");
    let section: DataSec<'_> = btf.type_by_name(".rodata").expect("it has globals");
    let variable = section.iter().find(|variable| {
        let named: Option<Var<'_>> = btf.type_by_id(variable.ty);
        named.is_some_and(|it| it.name().is_some_and(|it| it == name))
    });
    let variable = variable.unwrap_or_else(|| panic!("no global {name}"));
    variable.offset as usize..variable.offset as usize + variable.size
}

/// A socket that may be put into the map. It need not be bound: a test run asks for the verdict
/// alone.
fn xdp_socket() -> OwnedFd {
    let socket = rustix::net::socket(AddressFamily::XDP, SocketType::RAW, None)
        .expect("the kernel has AF_XDP, and the caller CAP_NET_RAW");
    // Older kernels refuse a socket without a ring.
    sockopt::set_xdp_rx_ring_size(&socket, 64).expect("a power of two");
    socket
}

/// The names of `XDP_*` verdicts that a test can meet.
fn name(verdict: u32) -> &'static str {
    match verdict {
        XDP_DROP => "DROP",
        XDP_PASS => "PASS",
        XDP_REDIRECT => "REDIRECT",
        _ => "none of DROP, PASS and REDIRECT",
    }
}

#[track_caller]
fn assert_verdict(verdict: u32, redirected: bool, what: std::fmt::Arguments<'_>) {
    let expected = if redirected { XDP_REDIRECT } else { XDP_PASS };
    assert_eq!(name(verdict), name(expected), "{what}: verdict {verdict}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn every_fixture_gets_the_verdict_of_the_table() {
    let (steering, _socket) = Steering::with_socket();
    for case in cases() {
        let verdict = steering.run(&case.bytes).unwrap();
        assert_verdict(verdict, case.redirected, format_args!("{}", case.name));
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn ours_cut_at_every_byte_of_its_headers_passes() {
    let (steering, _socket) = Steering::with_socket();
    for case in cases().iter().filter(|case| case.redirected) {
        for len in 0..=case.bytes.len() {
            let verdict = steering.run(&case.bytes[..len]);
            let what = format_args!("{} cut to {len} bytes", case.name);
            if len < TEST_RUN_LEN_MIN {
                // The kernel's refusal, not the program's verdict: that is tested on the header
                // code above.
                let kind = verdict.expect_err("shorter than an Ethernet header").kind();
                assert_eq!(kind, libbpf_rs::ErrorKind::InvalidInput, "{what}");
            } else {
                assert_verdict(verdict.unwrap(), len >= case.headers_len, what);
            }
        }
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn everything_passes_while_no_socket_is_at_the_queue() {
    let steering = Steering::load(&[PORT]);
    let all_pass = |when: &str| {
        for case in cases() {
            let verdict = steering.run(&case.bytes).unwrap();
            assert_verdict(verdict, false, format_args!("{}, {when}", case.name));
        }
    };
    all_pass("before any socket is there");
    let socket = xdp_socket();
    steering.set(1, &socket).unwrap();
    all_pass("with a socket at another queue");
    steering.set(0, &socket).unwrap();
    let ours = &cases()[0].bytes;
    assert_verdict(steering.run(ours).unwrap(), true, format_args!("with a socket at the queue"));
    steering.unset(0);
    all_pass("after the socket was taken out");
    steering.set(0, &socket).unwrap();
    drop(socket);
    all_pass("after the socket was closed");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_port_of_zero_steers_nothing() {
    for ports in [&[][..], &[0]] {
        let steering = Steering::load(ports);
        let socket = xdp_socket();
        steering.set(0, &socket).unwrap();
        for case in cases() {
            let verdict = steering.run(&case.bytes).unwrap();
            assert_verdict(verdict, false, format_args!("{}, ports {ports:?}", case.name));
        }
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_port_is_the_loaders_choice() {
    for port in [1, 255, 256, PORT.swap_bytes(), u16::MAX] {
        let steering = Steering::load(&[port]);
        let socket = xdp_socket();
        steering.set(0, &socket).unwrap();
        for destination in [port, PORT] {
            let datagram = frames::udp(Version::V6, 1, destination, b"op");
            let packet = frames::ipv6(frames::UDP, &datagram);
            let verdict = steering.run(&frames::ethernet(&[], frames::IPV6, &packet)).unwrap();
            let what = format_args!("loaded for {port}, sent to {destination}");
            assert_verdict(verdict, port == destination, what);
        }
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_frame_to_each_of_the_ports_is_steered_and_to_no_other() {
    // With places left over, and with none.
    for count in [2, PORTS_MAX as u16] {
        let ports: Vec<u16> = (0..count).map(|number| PORT + 3 * number).collect();
        let steering = Steering::load(&ports);
        let socket = xdp_socket();
        steering.set(0, &socket).unwrap();
        for destination in [0, PORT - 1].into_iter().chain(PORT..PORT + 30) {
            let datagram = frames::udp(Version::V4, 1, destination, b"op");
            let packet = frames::ipv4(frames::UDP, &[], 0, &datagram);
            let verdict = steering.run(&frames::ethernet(&[], frames::IPV4, &packet)).unwrap();
            let what = format_args!("loaded for {ports:?}, sent to {destination}");
            assert_verdict(verdict, ports.contains(&destination), what);
        }
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_address_that_is_not_set_steers_nothing() {
    for (name, zeros, version) in
        [("ADDRESS_V4", &[0; 4][..], Version::V4), ("ADDRESS_V6", &[0; 16], Version::V6)]
    {
        let (steering, _socket) = Steering::with_socket_and(&[(name, zeros)]);
        for case in cases().iter().filter(|case| case.redirected) {
            let of_version = case.name.contains("IPv4") == (version == Version::V4);
            let verdict = steering.run(&case.bytes).unwrap();
            assert_verdict(verdict, !of_version, format_args!("{}, no {name}", case.name));
        }
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn frames_are_dropped_before_the_ring_of_a_socket_that_is_not_read_is_full() {
    let (steering, socket) = Steering::with_socket_and(&[("CHUNKS_MAX", &100_u32.to_ne_bytes())]);
    let ours = &cases()[0].bytes;
    let redirected = || (0..300).filter(|_| steering.run(ours).unwrap() == XDP_REDIRECT).count();
    assert_eq!(redirected(), 100);
    assert_eq!(name(steering.run(ours).unwrap()), "DROP");
    assert_eq!(steering.dropped(0), 201);
    // Others do not notice.
    for case in cases().iter().filter(|case| !case.redirected) {
        assert_verdict(steering.run(&case.bytes).unwrap(), false, format_args!("{}", case.name));
    }
    // Emptied once, it may have been as it was before the last frames came.
    steering.empty(0, 1);
    assert_eq!(redirected(), 0);
    steering.empty(0, 1);
    assert_eq!(redirected(), 100, "it goes on as before");
    // A socket that is gone has no ring to be full.
    drop(socket);
    assert_verdict(steering.run(ours).unwrap(), false, format_args!("without a socket"));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_program_without_a_limit_drops_ours_and_counts_them_by_queue() {
    let (steering, _socket) = Steering::with_socket_and(&[("CHUNKS_MAX", &[0; 4])]);
    for case in cases().iter().filter(|case| case.redirected) {
        assert_eq!(name(steering.run(&case.bytes).unwrap()), "DROP", "{}", case.name);
    }
    assert!(steering.dropped(0) > 0);
    assert_eq!(steering.dropped(1), 0);
    assert_eq!(steering.queue(63).len(), QUEUE_LEN);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_frame_in_several_buffers_takes_room_by_the_chunks_that_it_will_need() {
    let (chunks_max, chunk_data) = (30_u32.to_ne_bytes(), 3840_u32.to_ne_bytes());
    let limits = [("CHUNKS_MAX", &chunks_max[..]), ("CHUNK_DATA", &chunk_data[..])];
    for (payload, chunks) in [(10, 1), (3840 - 42, 1), (3841 - 42, 2), (8900, 3)] {
        let (steering, _socket) = Steering::with_socket_and(&limits);
        let datagram = frames::udp(Version::V4, 1, PORT, &vec![0x5a; payload]);
        let packet = frames::ipv4(frames::UDP, &[], 0, &datagram);
        let ours = frames::ethernet(&[], frames::IPV4, &packet);
        let runs = (0..60).filter(|_| steering.run(&ours).unwrap() == XDP_REDIRECT).count();
        assert_eq!(runs, 30 / chunks, "frames of {} octets", ours.len());
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_maps_have_room_for_64_queues() {
    let steering = Steering::load(&[PORT]);
    let socket = xdp_socket();
    steering.set(63, &socket).unwrap();
    steering.set(64, &socket).expect_err("one past the last");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_frame_in_several_buffers_is_steered_by_the_headers_in_its_first() {
    let (steering, _socket) = Steering::with_socket();
    // More than a page: the kernel lays the rest out in fragments, which it does for xdp.frags
    // programs only.
    let payload = vec![0x5a; 8900];
    let ours = frames::udp(Version::V4, 1, PORT, &payload);
    let ours = frames::ethernet(&[], frames::IPV4, &frames::ipv4(frames::UDP, &[], 0, &ours));
    assert_verdict(steering.run(&ours).unwrap(), true, format_args!("ours"));
    let other = frames::udp(Version::V4, 1, PORT + 1, &payload);
    let other = frames::ethernet(&[], frames::IPV4, &frames::ipv4(frames::UDP, &[], 0, &other));
    assert_verdict(steering.run(&other).unwrap(), false, format_args!("another port"));
    // Headers that go past the first buffer are not looked for there.
    let datagram = frames::udp(Version::V6, 1, PORT, b"op");
    let chain = [(frames::DESTINATION, 256); 4];
    let far = frames::ipv6_with_extensions(&chain, frames::UDP, &datagram);
    let far = frames::ethernet(&[], frames::IPV6, &far);
    assert!(verdict_of_headers(&far), "it is ours to a reader that sees it in one piece");
    assert_verdict(steering.run(&far).unwrap(), false, format_args!("8 KiB of extensions"));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_frame_goes_to_the_socket_of_its_own_receive_queue() {
    // In a thread of its own, whose network namespace ends with it, and the interfaces with that.
    let test = thread::spawn(|| {
        let flags = rustix::thread::UnshareFlags::NEWNET;
        // SAFETY: file descriptors stay shared between the threads; the flag for those is not
        // given.
        unsafe { rustix::thread::unshare_unsafe(flags) }.expect("the caller has CAP_SYS_ADMIN");
        ip(
            "link add rma0 numrxqueues 2 numtxqueues 2 type veth peer name rma1 numrxqueues 2 numtxqueues 2",
        );
        let any = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        let index = rustix::net::netdevice::name_to_index(&any, "rma0").unwrap();
        let steering = Steering::load(&[PORT]);
        // A veth registers its receive queues with XDP when a program is attached.
        let program = steering.object.progs_mut().next().unwrap();
        let _link = program.attach_xdp(index.cast_signed()).expect("veth takes XDP programs");
        let socket = xdp_socket();
        let ours = &cases()[0].bytes;
        for socket_at in [0, 1] {
            steering.set(socket_at, &socket).unwrap();
            for queue in [0, 1] {
                let mut context = context(ours, index, queue);
                let verdict = steering.run_with(ours, Some(&mut context)).unwrap();
                let what = format_args!("socket at queue {socket_at}, frame at queue {queue}");
                assert_verdict(verdict, queue == socket_at, what);
            }
            steering.unset(socket_at);
        }
    });
    if let Err(panic) = test.join() {
        std::panic::resume_unwind(panic);
    }
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().expect("iproute2");
    assert!(status.success(), "ip {arguments}");
}

/// A `struct xdp_md`: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
fn context(frame: &[u8], ifindex: u32, queue: u32) -> Vec<u8> {
    let end = u32::try_from(frame.len()).expect("a fixture is small");
    [0, end, 0, ifindex, queue, 0].into_iter().flat_map(u32::to_ne_bytes).collect()
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn aya_loads_the_same_object_with_the_same_verdicts() {
    let mut ebpf = aya::EbpfLoader::new()
        .override_global("PORTS", &[PORT, 0, 0, 0, 0, 0, 0, 0], true)
        .override_global("ADDRESS_V4", &u32::from_ne_bytes(frames::DESTINATION_V4), true)
        .override_global("ADDRESS_V6", &address_v6(frames::DESTINATION_V6), true)
        .override_global("CHUNKS_MAX", &ENDLESS, true)
        .load(&object())
        .expect("aya reads the object");
    let socket = xdp_socket();
    let mut xsks = aya::maps::XskMap::try_from(ebpf.take_map("XSKS").unwrap()).unwrap();
    assert_eq!(xsks.len(), 64);
    let program: &mut aya::programs::Xdp =
        ebpf.program_mut("rma_steer").unwrap().try_into().unwrap();
    program.load().expect("the verifier takes the program");
    let run = |frame: &[u8]| {
        let input = aya::programs::TestRunOptions { data_in: Some(frame), ..Default::default() };
        program.test_run(input).unwrap().return_value
    };
    for case in cases() {
        assert_verdict(run(&case.bytes), false, format_args!("{}, no socket", case.name));
    }
    xsks.set(0, socket.as_raw_fd(), 0).unwrap();
    for case in cases() {
        assert_verdict(run(&case.bytes), case.redirected, format_args!("{}", case.name));
    }
}
