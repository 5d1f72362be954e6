mod dissector;

use std::{collections::BTreeMap, io::Seek as _};

use rma_core::addr::HostAddr;
use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::Value;

use super::{
    reader::{PacketBlock, Stamp},
    *,
};

const PORTS: Ports = Ports::DEFAULT;
/// A block of a type that nobody knows.
const STRANGE: u32 = 0x0bad_cafe;

/// The golden vectors of a wire.
fn vectors(name: &str) -> Value {
    let path = format!("{}/../docs/vectors/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&fs::read(path).expect("in git")).expect("JSON")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn octets(value: &Value) -> Vec<u8> {
    let pairs = text(value).as_bytes().as_chunks::<2>().0.iter();
    pairs.map(|it| u8::from_str_radix(str::from_utf8(it).unwrap(), 16).unwrap()).collect()
}

/// A packet: its frames, between two hosts.
struct Sent {
    ends: [HostAddr; 2],
    port: u16,
    frames: Vec<u8>,
}

fn address(text: &str) -> HostAddr {
    HostAddr::from(text.parse::<std::net::IpAddr>().unwrap())
}

impl Sent {
    fn ethernet(&self) -> Vec<u8> {
        let [source, destination] = self.ends.map(|it| it.to_octets());
        let udp_len = (self.frames.len() + 8) as u16;
        let mut packet = vec![2; 12];
        if self.ends[0].is_ipv4() {
            // Behind a VLAN tag.
            packet.extend([0x81, 0, 0, 7, 8, 0, 0x45, 0]);
            packet.extend((udp_len + 20).to_be_bytes());
            packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
            packet.extend(&source[12..]);
            packet.extend(&destination[12..]);
        } else {
            packet.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            packet.extend(udp_len.to_be_bytes());
            packet.extend([17, 64]);
            packet.extend(source);
            packet.extend(destination);
        }
        packet.extend(50_000_u16.to_be_bytes());
        packet.extend(self.port.to_be_bytes());
        packet.extend(udp_len.to_be_bytes());
        packet.extend([0, 0]);
        packet.extend(&self.frames);
        packet
    }
}

/// A form of captures.
#[derive(Clone, Copy, Debug)]
struct Form {
    is_big: bool,
    /// Classic pcap: whether with nanoseconds.
    classic: Option<bool>,
    snap: usize,
}

const PCAPNG: Form = Form { is_big: false, classic: None, snap: 65_535 };

impl Form {
    fn words(self, words: &[u32]) -> Vec<u8> {
        let octets = |it: &u32| if self.is_big { it.to_be_bytes() } else { it.to_le_bytes() };
        words.iter().flat_map(octets).collect()
    }

    fn halves(self, halves: [u16; 2]) -> Vec<u8> {
        let octets = |it: u16| if self.is_big { it.to_be_bytes() } else { it.to_le_bytes() };
        halves.into_iter().flat_map(octets).collect()
    }

    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let mut body = body.to_vec();
        body.resize(body.len().next_multiple_of(4), 0);
        let len = self.words(&[body.len() as u32 + 12]);
        [self.words(&[kind]), len.clone(), body, len].concat()
    }

    fn capture(self, packets: &[Vec<u8>]) -> Vec<u8> {
        let cut = |packet: &Vec<u8>| packet[..packet.len().min(self.snap)].to_vec();
        if let Some(nanos) = self.classic {
            let magic = if nanos { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
            let rest = self.words(&[0, 0, 65_535, 1]);
            let mut all = [self.words(&[magic]), self.halves([2, 4]), rest].concat();
            for packet in packets {
                let there = cut(packet);
                all.extend(self.words(&[7, 5, there.len() as u32, packet.len() as u32]));
                all.extend(there);
            }
            return all;
        }
        let section = [self.words(&[0x1a2b_3c4d]), self.halves([1, 0]), vec![0xff; 8]].concat();
        let interface = [self.halves([1, 0]), self.words(&[65_535])].concat();
        let mut all = [self.block(0x0a0d_0d0a, &section), self.block(1, &interface)].concat();
        for packet in packets {
            all.extend(self.block(STRANGE, b"kept as it is"));
            let there = cut(packet);
            let (len, wire_len) = (there.len() as u32, packet.len() as u32);
            let mut body = self.words(&[0, 3, 9, len, wire_len]);
            body.extend(there);
            body.resize(body.len().next_multiple_of(4), 0);
            // A comment of its own, and the end of the options.
            body.extend([self.halves([1, 5]), b"1rma!\0\0\0".to_vec(), vec![0; 4]].concat());
            all.extend(self.block(6, &body));
        }
        all
    }
}

fn file(bytes: &[u8]) -> File {
    let mut file = File::from(memfd_create("capture", MemfdFlags::empty()).unwrap());
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

/// A capture decrypted.
struct Done {
    tally: Tally,
    bytes: Vec<u8>,
    cut: Option<String>,
}

fn decrypted(capture: &[u8], keys: &str) -> Done {
    decrypted_by(capture, Keys::read(keys.as_bytes()).unwrap())
}

fn decrypted_by(capture: &[u8], keys: Keys) -> Done {
    let mut capture = Capture::open(file(capture)).expect("a capture");
    let mut bytes = Vec::new();
    let tally =
        Decrypter::new(keys, PORTS).run(&mut capture, &mut bytes, false, || false).expect("room");
    Done { tally, bytes, cut: capture.cut().map(str::to_owned) }
}

/// The packets of a capture.
fn packets(capture: &[u8]) -> Vec<Vec<u8>> {
    let mut capture = Capture::open(file(capture)).expect("a capture");
    let mut packets = Vec::new();
    while let Some(block) = capture.next() {
        if let Kind::Packet(packet) = &block.kind {
            packets.push(capture.raw(&block)[packet.data.clone()].to_vec());
        }
        capture.consume(&block);
    }
    assert_eq!(capture.cut(), None);
    packets
}

/// The golden frames of 1RMA, a packet each; with a key log of K_r, and one of K_d.
struct Golden {
    packets: Vec<Vec<u8>>,
    /// The payload of each in clear, of those that can be opened.
    plain: Vec<Option<Vec<u8>>>,
    key_log: String,
    of_regions: String,
}

fn one_rma() -> Golden {
    let all = vectors("1rma-v2");
    let keys: BTreeMap<&str, &Value> =
        all["keys"].as_array().unwrap().iter().map(|it| (text(&it["name"]), it)).collect();
    let mut golden = Golden {
        packets: Vec::new(),
        plain: Vec::new(),
        key_log: "# keys\n\n".to_owned(),
        of_regions: String::new(),
    };
    for frame in all["frames"].as_array().unwrap() {
        let family = text(&frame["name"]).split(' ').next().unwrap();
        let read = keys[&*format!("{family} READ")];
        let mut ends = ["initiator", "responder"].map(|end| address(text(&read[end])));
        let (region, pid) = (&frame["header"]["region"], &frame["header"]["pid"]);
        if let Some(key) = keys.get(text(&frame["key_name"])) {
            let [initiator, responder] = ends;
            let (op, derived) = (&key["op_type"], text(&key["derived_key"]));
            golden.key_log +=
                &format!("1RMA_KD {initiator} {responder} {pid} {op} {region} {derived}\n");
            let key = text(&key["region_key"]);
            golden.of_regions += &format!("1RMA_KR {responder} {region} {key}\n");
        }
        if frame["direction"] == 1 {
            ends.reverse();
        }
        let frames = octets(&frame["frame"]);
        golden.packets.push(Sent { ends, port: 10472, frames }.ethernet());
        let is_wrong = frame["key_name"] == "wrong"
            || text(&frame["name"]).ends_with("rekey request under a key for writes");
        golden.plain.push((!is_wrong).then(|| octets(&frame["plaintext"])));
    }
    golden
}

/// Whether each golden payload is in its packet in clear.
fn assert_plain(golden: &Golden, done: &Done, name: &str) {
    let found = packets(&done.bytes);
    assert_eq!(found.len(), golden.packets.len(), "{name}");
    for ((found, plain), before) in found.iter().zip(&golden.plain).zip(&golden.packets) {
        match plain {
            None => assert_eq!(found, before, "{name}"),
            Some(plain) => {
                let end = found.len() - 16;
                assert_eq!(found[end - plain.len()..end], **plain, "{name}");
                assert_eq!(found[..end - plain.len()], before[..end - plain.len()], "{name}");
            }
        }
    }
}

#[test]
fn golden_frames_of_1rma_open_through_their_rekey_in_captures_of_every_form() {
    let golden = one_rma();
    for is_big in [false, true] {
        for classic in [None, Some(false), Some(true)] {
            let form = Form { is_big, classic, ..PCAPNG };
            for log in [&golden.key_log, &golden.of_regions] {
                let done = decrypted(&form.capture(&golden.packets), log);
                let wrong = golden.plain.iter().filter(|it| it.is_none()).count() as u64;
                assert_eq!(done.tally.shut, [(Shut::WrongTag, wrong)].into(), "{form:?}");
                assert_eq!((done.tally.opened, &done.cut), (192 - wrong, &None));
                assert_plain(&golden, &done, &format!("{form:?}"));
                let (with, strange) = (b"1rma plain".as_slice(), b"kept as it is".as_slice());
                let count = |of: &[u8]| done.bytes.windows(of.len()).filter(|it| *it == of).count();
                let plain = golden.plain.iter().flatten().filter(|it| !it.is_empty()).count();
                assert_eq!(count(with), plain);
                let is_ng = classic.is_none();
                assert_eq!(count(strange), if is_ng { 192 } else { 0 });
                assert_eq!(count(b"1rma!"), if is_ng { 192 } else { 0 }, "comments stay");
            }
        }
    }
}

/// The golden frames of StaR, a packet each, with a key log of K_c.
fn star() -> Golden {
    let all = vectors("star-v1");
    let keys: BTreeMap<&str, &Value> =
        all["keys"].as_array().unwrap().iter().map(|it| (text(&it["name"]), it)).collect();
    let (mut packets, mut plain) = (Vec::new(), Vec::new());
    let (mut key_log, of_regions) = (String::new(), String::new());
    for (name, key) in &keys {
        if name.ends_with("K_c") {
            let of = |field: &str| key["connection"][field].as_u64().unwrap();
            let names = ["pd", "qpn_z", "qpn_f", "nonce", "era"].map(of).map(|it| it.to_string());
            let (z, f, key) = (text(&key["z"]), text(&key["f"]), text(&key["key"]));
            key_log += &format!("STAR_KC {z} {f} {} {} {key}\n", names.join(" "), 5_u64 << 32);
        }
    }
    for frame in all["frames"].as_array().unwrap() {
        let key = keys[text(&frame["key_name"])];
        let mut ends = [address(text(&key["z"])), address(text(&key["f"]))];
        if frame["from_z"] != true {
            ends.reverse();
        }
        packets.push(Sent { ends, port: 10475, frames: octets(&frame["frame"]) }.ethernet());
        // No rule is among the vectors, and so no K_m.
        let is_told = !text(&frame["key_name"]).contains("K_m");
        plain.push(is_told.then(|| octets(&frame["plaintext"])));
    }
    Golden { packets, plain, key_log, of_regions }
}

#[test]
fn golden_frames_of_star_open_but_those_whose_keys_were_never_told() {
    let golden = star();
    let done = decrypted(&PCAPNG.capture(&golden.packets), &golden.key_log);
    assert_plain(&golden, &done, &done.tally.to_string());
    let untold = golden.plain.iter().filter(|it| it.is_none()).count() as u64;
    assert_eq!(done.tally.shut.values().sum::<u64>(), untold, "{}", done.tally);
}

#[test]
fn a_frame_that_stays_shut_says_why() {
    let golden = one_rma();
    let whole = PCAPNG.capture(&golden.packets);
    let shut = |capture: &[u8], log: &str| decrypted(capture, log).tally.shut;
    let without = shut(&whole, "");
    assert!(without[&Shut::NoKey] > 150, "{without:?}");

    let wrong = golden.key_log.lines().map(|line| {
        line.rsplit_once(' ').map_or(line.to_owned(), |(rest, _)| format!("{rest} {:032x}", 7))
    });
    let wrong = shut(&whole, &wrong.collect::<Vec<_>>().join("\n"));
    assert!(wrong[&Shut::WrongTag] > 150 && !wrong.contains_key(&Shut::NoKey), "{wrong:?}");

    let answers = shut(&PCAPNG.capture(&golden.packets[1..3]), &golden.key_log);
    assert_eq!(answers, [(Shut::NoRequest, 2)].into());

    let cut = shut(&Form { snap: 100, ..PCAPNG }.capture(&golden.packets), &golden.key_log);
    assert!(cut[&Shut::Cut] > 10, "{cut:?}");
    let nothing = shut(&Form { snap: 0, ..PCAPNG }.capture(&golden.packets), &golden.key_log);
    assert_eq!(nothing, BTreeMap::new());

    let mut other = golden.packets[0].clone();
    let first = other.len() - 56;
    other[first] = 1;
    let other = shut(&PCAPNG.capture(&[other]), &golden.key_log);
    assert_eq!(other, [(Shut::OtherVersion, 1)].into());
}

#[test]
fn a_capture_that_ends_anywhere_is_copied_up_to_there() {
    let golden = one_rma();
    for classic in [None, Some(true)] {
        let form = Form { classic, ..PCAPNG };
        let whole = form.capture(&golden.packets[..3]);
        let all = packets(&decrypted(&whole, &golden.key_log).bytes);
        for end in 60..whole.len() {
            let done = decrypted(&whole[..end], &golden.key_log);
            let found = packets(&done.bytes);
            assert_eq!(found, all[..found.len()], "{form:?} {end}");
            assert!(found.len() < 3 && done.cut.is_none_or(|it| it.contains("ends inside")));
        }
        for at in (24..whole.len()).step_by(3) {
            let mut mutated = whole.clone();
            mutated[at] ^= 0x55;
            if let Some(mut capture) = Capture::open(file(&mutated)) {
                let keys = Keys::read(golden.key_log.as_bytes()).unwrap();
                let mut decrypter = Decrypter::new(keys, PORTS);
                decrypter.run(&mut capture, &mut Vec::new(), false, || false).unwrap();
            }
        }
    }
}

#[test]
fn lines_that_are_no_keys_are_counted_and_a_million_lines_are_read() {
    let golden = one_rma();
    let strange = "1RMA_KD 192.0.2.1\nfoo\n1RMA_KR 192.0.2.2 5 00\n\u{0}\n";
    let long = "x".repeat(5_000);
    let many: String = (0..1_000_000)
        .map(|it| format!("1RMA_KD 192.0.2.9 192.0.2.8 {it} 1 5 {it:032x}\n"))
        .collect();
    let log = format!("{strange}{long}\n{many}{}", golden.key_log);
    let keys = Keys::read(log.as_bytes()).unwrap();
    assert_eq!(keys.notes(), ["5 lines are no keys, the first is line 1"]);
    let done = decrypted_by(&PCAPNG.capture(&golden.packets), keys);
    assert_plain(&golden, &done, "many lines");
    assert_eq!(Keys::read(&b""[..]).unwrap().notes().len(), 1);
}

#[test]
fn a_packet_of_frames_of_which_some_open_says_which() {
    let frame = |payload, shut| FrameSeen {
        name: "frame",
        source: [192, 0, 2, 1].into(),
        destination: [192, 0, 2, 2].into(),
        payload,
        shut,
    };
    let (open, short) = (frame(5, None), frame(0, None));
    let shut = frame(5, Some(Shut::NoKey));
    assert_eq!(shut::comments(&[open, short]), ["1rma plain"]);
    assert_eq!(shut::comments(&[short, open, shut]), ["1rma 2/3 plain"]);
    assert!(shut::comments(&[short, shut]).is_empty());
}
