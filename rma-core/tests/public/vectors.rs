//! The golden vectors of `docs/vectors/1rma-v2.json`: two NICs with fixed keys and counters must
//! produce every octet of the file, in both address families. `docs/vectors/check.py` checks the
//! same file against another implementation of AES.
//!
//! A difference means that the wire format has changed: then `VERSION` changes, and a new file is
//! written by `RMA_BLESS=1 cargo test -p rma-core --test public vectors`.

mod dissector;
mod packets;
mod parts;
mod recorded_stories;
mod stories;

use std::{path::PathBuf, sync::Arc};

use rma_core::{
    addr::{HostAddr, Pid},
    backend::{RxFrame, Transmit},
    command::{Command, CommandOp, CommandSlotId, Completion, Transfer},
    crypto::{AeadProvider, DerivedRegionKey, EngineId, KeyBinding, RegionKey, RegionKeySchedule},
    limits::TAG_LEN,
    nic::{Nic, NicConfigBuilder, NicPlace, ReceiveLenMax, RegionEntry, Timing},
    op::{ClassOfService, OpStatus, OpType},
    port::Port,
    receive_queue::{ReceiveQueue, ReceiveQueueLayout, ReceiveQueueMemory},
    region::{NicTag, Permissions, RegionId, RegisteredRegion},
    time::Instant,
    wire::{self, Acknowledgement, Failure},
};
use rma_crypto::{OpenJob, Portable, Text};
use rma_shm::Region;
use serde_json::{Value, json};

use parts::Parts;

const PID: Pid = Pid(0x0102_0304);
const SLOT: u16 = 5;
const RECEIVES: u16 = 8;
const NOW: Instant = Instant::ZERO;

/// The parts of each frame type's AAD, in order.
const AAD: [(&str, &[&str]); 12] = [
    ("read request", &["header"]),
    ("read response", &["header", "answers.iv"]),
    ("failure", &["header", "answers.iv", "answers.tag"]),
    ("write request", &["header"]),
    ("rekey request", &["header"]),
    ("solicitation", &["header", "answers.iv"]),
    ("solicited data", &["header", "answers.iv"]),
    ("acknowledgement", &["header", "answers.iv"]),
    ("recorded request", &["header"]),
    ("acknowledgement with result", &["header", "answers.iv"]),
    ("settle request", &["header"]),
    ("settlement", &["header", "answers.iv"]),
];

fn file() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/vectors/1rma-v2.json"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn region_key() -> [u8; 16] {
    core::array::from_fn(|i| i as u8)
}

/// The key that a Rekey installs.
fn next_region_key() -> [u8; 16] {
    core::array::from_fn(|i| 0xf0 - i as u8)
}

/// The octet at `offset` of every region.
fn content(offset: u64) -> u8 {
    (offset * 7 + 3) as u8
}

fn contents(range: core::ops::Range<u64>) -> Vec<u8> {
    range.map(content).collect()
}

/// A K_d that frames are sealed under.
#[derive(Clone)]
struct Key {
    name: String,
    key: DerivedRegionKey,
}

/// A frame that was sent, as others answer it.
struct Sent {
    name: String,
    octets: Vec<u8>,
}

struct Vectors {
    family: &'static str,
    initiator: Nic,
    responder: Nic,
    addrs: [HostAddr; 2],
    target: RegionId,
    forbidden: RegionId,
    /// A receive queue, and its application's end.
    queue: ReceiveQueue,
    /// The region that recorded ops change that are no messages. Its events go to the queue.
    words: RegionId,
    words_memory: Arc<Region>,
    /// The region that reads land in, and writes come from.
    local: RegionId,
    keys: Vec<Value>,
    frames: Vec<Value>,
}

/// 4096 bytes, filled by [`content`].
fn memory() -> Arc<Region> {
    let memory = Arc::new(Region::new(4096).expect("4 KiB"));
    memory.copy_in(0, &contents(0..4096)).expect("it has that length");
    memory
}

/// Registers a region of 4096 bytes, filled by [`content`].
fn register(nic: &mut Nic, permissions: Permissions) -> RegionId {
    let key = RegionKey::from_bytes(region_key());
    register_entry(nic, RegionEntry::new(memory(), &key, permissions, PID))
}

fn register_entry(nic: &mut Nic, entry: RegionEntry) -> RegionId {
    let registered = nic.regions_mut().register(Box::new(entry));
    registered.map_err(|(error, _)| error).expect("the table has room")
}

/// Registers a receive queue of [`RECEIVES`] receives, none of them posted.
fn register_queue(nic: &mut Nic) -> ReceiveQueue {
    let layout = ReceiveQueueLayout::new(RECEIVES, 128).expect("a queue may be so large");
    let rings = ReceiveQueueMemory::heap(layout);
    let memory = Arc::new(Region::new(layout.memory_len()).expect("its buffers"));
    let permissions = Permissions::SEND | Permissions::NOTIFY;
    let (port, key) = (rings.clone().into_port(None), RegionKey::from_bytes(region_key()));
    let entry = RegionEntry::receive_queue(port, memory.clone(), &key, permissions, PID);
    let id = register_entry(nic, entry);
    rings.into_application(RegisteredRegion::new(id, memory, NicTag(0)))
}

impl Vectors {
    fn new(family: &'static str, addrs: [&str; 2]) -> Self {
        let addrs = addrs.map(|addr| addr.parse::<HostAddr>().expect("an address"));
        // On the wire it is rounded down to microseconds.
        let timeout = core::time::Duration::from_nanos(100_000_999);
        let nic = |addr: HostAddr, engine, counter_start| {
            let settings = NicConfigBuilder::default().with(|it| {
                it.regions = 5;
                it.inbound_queue = 1;
                it.timing = Timing::default().with(|it| it.timeout = timeout);
            });
            let place = NicPlace::at(addr).with(|it| {
                it.engine = EngineId(engine);
                it.counter_start = counter_start;
                // One granule in a frame, so that an op of 100 bytes has two.
                it.receive_len_max =
                    ReceiveLenMax { ipv4: wire::FRAME_LEN_MIN, ipv6: wire::FRAME_LEN_MIN };
            });
            Nic::new(settings.build(place).expect("these settings work"))
        };
        let mut initiator = nic(addrs[0], 3, 0x0102_0304_0506_0708);
        let mut responder = nic(addrs[1], 7, 0x1112_1314_1516_1718);
        initiator.configure_slots(0..16, Some(PID));
        let local = register(&mut initiator, Permissions::NONE);
        // Index 2, generation 1: no field of the frames is zero by chance.
        register(&mut responder, Permissions::READ);
        let forbidden = register(&mut responder, Permissions::NONE);
        let gone: [RegionId; 3] =
            core::array::from_fn(|_| register(&mut responder, Permissions::READ));
        for gone in gone {
            responder.deregister(gone).expect("registered above");
        }
        let all = Permissions::READ | Permissions::WRITE | Permissions::REKEY;
        let target = register(&mut responder, all);
        assert_eq!(target.to_bits(), 0x0001_0002);
        let queue = register_queue(&mut responder);
        let words_memory = memory();
        let permissions = Permissions::WRITE | Permissions::NOTIFY | Permissions::ATOMIC;
        let key = RegionKey::from_bytes(region_key());
        let entry = RegionEntry::new(words_memory.clone(), &key, permissions, PID);
        let words = register_entry(&mut responder, entry.with_events(queue.id()));
        Self {
            family,
            initiator,
            responder,
            addrs,
            target,
            forbidden,
            queue,
            words,
            words_memory,
            local,
            keys: Vec::new(),
            frames: Vec::new(),
        }
    }

    /// Derives a K_d from `region_key`, and notes how: field by field, as the wire document has it.
    fn key(&mut self, name: &str, region_key: [u8; 16], op_type: OpType) -> Key {
        let [initiator, responder] = self.addrs;
        let binding = KeyBinding { initiator, responder, pid: PID, op_type };
        let key = RegionKeySchedule::new(&RegionKey::from_bytes(region_key)).derive(&binding);
        let mut input = vec![if initiator.is_ipv4() { 4 } else { 6 }, op_type as u8, 0, 0];
        input.extend(PID.0.to_be_bytes());
        for addr in [initiator, responder] {
            let octets = addr.to_octets();
            input.extend(if addr.is_ipv4() { &octets[12..] } else { &octets[..] });
        }
        let name = format!("{} {name}", self.family);
        self.keys.push(json!({
            "name": name,
            "region_key": hex(&region_key),
            "initiator": initiator.to_string(),
            "responder": responder.to_string(),
            "pid": PID.0,
            "op_type": op_type as u8,
            "function": if initiator.is_ipv4() { "AES-128 block" } else { "AES-128-CMAC" },
            "input": hex(&input),
            "derived_key": hex(key.expose()),
        }));
        Key { name, key }
    }

    fn transfer(&self, remote_offset: u64, op_size: u32) -> Transfer {
        Transfer { op_size, remote_offset, local_region: self.local, local_offset: 0 }
    }

    fn command(&self, op: CommandOp) -> Command {
        Command {
            slot: CommandSlotId(SLOT),
            class: ClassOfService::Latency,
            responder: self.addrs[1],
            remote_region: self.target,
            key: DerivedRegionKey::RESERVED,
            op,
        }
    }

    fn read(&self, offset: u64, op_size: u32) -> Command {
        self.command(CommandOp::Read(self.transfer(offset, op_size)))
    }

    /// A write to `offset` of bytes that begin at offset 200 of the local region.
    fn write(&self, offset: u64, op_size: u32) -> Command {
        let transfer = Transfer { local_offset: 200, ..self.transfer(offset, op_size) };
        self.command(CommandOp::Write(transfer))
    }

    fn rekey(&self) -> Command {
        self.command(CommandOp::Rekey(RegionKey::from_bytes(next_region_key())))
    }

    /// Issues a command, and returns its request.
    fn request(&mut self, name: &str, key: &Key, command: Command) -> Sent {
        let command = Command { key: key.key, ..command };
        self.initiator.handle_command(NOW, command).expect("the slot is free");
        self.ask(name, key, None, &[])
    }

    /// The initiator's next frame.
    fn ask(&mut self, name: &str, key: &Key, answers: Option<&Sent>, plaintext: &[u8]) -> Sent {
        let mut out = [0; wire::FRAME_LEN_MAX];
        let transmit = self.initiator.poll_transmit(NOW, &mut out).expect("a frame");
        self.record(name, key, answers, &out[..transmit.len], plaintext)
    }

    /// The responder takes `frame`, whatever it thinks of it.
    fn serve(&mut self, frame: &Sent) {
        let [source, destination] = self.addrs;
        let bytes = &mut frame.octets.clone();
        let frame = RxFrame {
            source_port: rma_core::port::SourcePort::FIRST,
            is_first: true,
            is_handed_over: false,
            source,
            destination,
            port: Port::ONE_RMA,
            reply_len_max: wire::FRAME_LEN_MAX,
            link: None,
            bytes,
        };
        let _ = self.responder.handle_frame(NOW, &NOW, frame);
    }

    /// The responder's next frame, which answers `request`; the initiator takes it.
    fn answer(&mut self, name: &str, key: &Key, answers: &Sent, plaintext: &[u8]) -> Sent {
        let mut out = [0; wire::FRAME_LEN_MAX];
        let transmit = self.responder.poll_transmit(NOW, &mut out).expect("an answer");
        let Transmit { source, destination, port, len, .. } = transmit;
        let sent = self.record(name, key, Some(answers), &out[..len], plaintext);
        let reply_len_max = wire::FRAME_LEN_MAX;
        let frame = RxFrame {
            source_port: rma_core::port::SourcePort::FIRST,
            is_first: true,
            is_handed_over: false,
            source,
            destination,
            port,
            reply_len_max,
            link: None,
            bytes: &mut out[..len],
        };
        self.initiator.handle_frame(NOW, &NOW, frame).expect("the answer is authentic");
        sent
    }

    /// The responder's next frame gets lost.
    fn lose_answer(&mut self) {
        let mut out = [0; wire::FRAME_LEN_MAX];
        let _ = self.responder.poll_transmit(NOW, &mut out).expect("an answer");
    }

    fn completes_with(&mut self, status: OpStatus) {
        assert_eq!(self.completion().status, status);
    }

    fn completion(&mut self) -> Completion {
        self.initiator.poll_completion().expect("it has completed")
    }

    /// Takes a frame apart, opens it, and notes all that went into it.
    fn record(
        &mut self,
        name: &str,
        key: &Key,
        answers: Option<&Sent>,
        frame: &[u8],
        plaintext: &[u8],
    ) -> Sent {
        let Parts { frame_type, header, header_len, direction, fields } = Parts::of(frame);
        let (ciphertext, tag) = frame[header_len..].split_last_chunk::<TAG_LEN>().expect("a tag");
        let (_, aad_parts) = AAD.into_iter().find(|&(name, _)| name == frame_type).expect("all");
        let mut aad = Vec::new();
        for &part in aad_parts {
            let answered = || &answers.expect("this frame answers another").octets;
            match part {
                "header" => aad.extend(&frame[..header_len]),
                "answers.iv" => aad.extend(Parts::of(answered()).iv().octets()),
                "answers.tag" => aad.extend(answered().last_chunk::<TAG_LEN>().expect("a tag")),
                _ => unreachable!("{part}"),
            }
        }

        let iv = header.iv(direction);
        let mut payload = ciphertext.to_vec();
        let mut jobs = [OpenJob {
            key: key.key.as_key().into(),
            iv: *iv.octets(),
            aad: &aad,
            text: Text::in_place(&mut payload),
            tag,
            authentic: false,
        }];
        Portable.open(&mut jobs);
        assert!(jobs[0].authentic, "{name}: the AAD is what the wire document says");
        assert_eq!(payload, plaintext, "{name}");

        let name = format!("{} {name}", self.family);
        self.frames.push(json!({
            "name": name,
            "frame_type": frame_type,
            "direction": direction as u8,
            "key_name": key.name,
            "key": hex(key.key.expose()),
            "answers": answers.map(|answered| &answered.name),
            "header": {
                "version": wire::VERSION,
                "class": header.class as u8,
                "status": frame[3],
                "pid": header.pid.0,
                "region": header.region.to_bits(),
                "slot": header.slot.0,
                "engine": header.engine.0,
                "generation": header.generation,
                "counter": format!("{:016x}", header.counter),
            },
            "fields": fields,
            "iv": hex(iv.octets()),
            "aad": hex(&aad),
            "plaintext": hex(plaintext),
            "ciphertext": hex(ciphertext),
            "tag": hex(tag),
            "frame": hex(frame),
        }));
        Sent { name, octets: frame.to_vec() }
    }
}

fn vectors() -> Value {
    let v4 = Vectors::new("ipv4", ["192.0.2.1", "192.0.2.2"]);
    let v6 = Vectors::new("ipv6", ["2001:db8::1", "2001:db8::2"]);
    let (keys, frames): (Vec<_>, Vec<_>) = [v4.build(), v6.build()].into_iter().unzip();
    let packets = ["ipv4", "ipv6"].into_iter().zip(&frames);
    let packets: Vec<_> =
        packets.flat_map(|(family, frames)| packets::packets(family, frames)).collect();
    let aad = AAD.map(|(frame_type, parts)| (frame_type.to_owned(), json!(parts)));
    json!({
        "format": "1RMA frames and packets, version 2; see docs/WIRE.md. Octet strings are hexadecimal.",
        "aad": Value::Object(aad.into_iter().collect()),
        "aad_parts": {
            "header": "the octets of this frame that come before its payload and tag",
            "answers.iv": "the IV of the frame whose name is in `answers`",
            "answers.tag": "the tag of that frame",
        },
        "reserved_key": hex(DerivedRegionKey::RESERVED.expose()),
        "keys": keys.concat(),
        "frames": frames.concat(),
        "packets": packets,
    })
}

/// With `RMA_BLESS` set the file is written anew: for a new version of the wire format only.
//= 1rma#3.1-response-sealed
//= type=test
#[test]
fn the_code_produces_every_octet_of_the_golden_vectors() {
    if std::env::var_os("RMA_BLESS").is_some() {
        let text = serde_json::to_string_pretty(&vectors()).expect("plain data");
        std::fs::write(file(), text + "\n").expect("the directory is writable");
    }
    let text = std::fs::read_to_string(file()).expect("docs/vectors/1rma-v2.json is in git");
    let golden: Value = serde_json::from_str(&text).expect("the file is JSON");
    let ours = vectors();
    let frames = |all: &Value| all["frames"].as_array().cloned().expect("a list of frames");
    for (golden, ours) in frames(&golden).iter().zip(&frames(&ours)) {
        assert_eq!(golden, ours);
    }
    assert_eq!(golden, ours);
}

#[test]
fn the_golden_vectors_have_every_frame_type_every_status_and_every_type_of_key() {
    let all = vectors();
    let frames = all["frames"].as_array().expect("a list of frames");
    let has = |frame_type: &str, status: OpStatus| {
        frames.iter().any(|frame| {
            frame["frame_type"] == frame_type && frame["header"]["status"] == status as u8
        })
    };
    for (frame_type, _) in AAD {
        let statuses: Vec<_> = match frame_type {
            "failure" => OpStatus::ALL.into_iter().filter(|&it| Failure::may_carry(it)).collect(),
            "acknowledgement" => {
                OpStatus::ALL.into_iter().filter(|&it| Acknowledgement::may_carry(it)).collect()
            }
            _ => vec![OpStatus::Ok],
        };
        for status in statuses {
            assert!(has(frame_type, status), "{frame_type} with {status}");
        }
    }
    let keys = all["keys"].as_array().expect("a list of keys");
    for function in ["AES-128 block", "AES-128-CMAC"] {
        for op_type in OpType::ALL {
            let is_it =
                |key: &Value| key["function"] == function && key["op_type"] == op_type as u8;
            assert!(keys.iter().any(is_it), "{function}, {op_type}");
        }
    }
}

//= channels#P4-fresh-ivs
//= type=test
#[test]
fn no_two_frames_of_one_key_have_the_same_iv() {
    let all = vectors();
    let mut seen = std::collections::BTreeSet::new();
    for frame in all["frames"].as_array().expect("a list of frames") {
        let part = |name: &str| frame[name].as_str().expect("a string").to_owned();
        let name = part("key_name");
        // Keys that everybody knows or that nobody derives keep no secret.
        if name != "reserved" && name != "wrong" {
            assert!(seen.insert((name, part("iv"))), "{}", part("name"));
        }
    }
    assert!(seen.len() > 100);
}

//= channels#P10-answers-shorter
//= type=test
#[test]
fn no_answer_is_longer_than_its_request_but_of_reads() {
    let all = vectors();
    let frames = all["frames"].as_array().expect("a list of frames");
    let len = |frame: &Value| frame["frame"].as_str().expect("octets").len() / 2;
    let (mut answers, mut recorded) = (0, 0);
    for frame in frames.iter().filter(|it| it["frame_type"] != "read response") {
        let request = frames.iter().find(|it| it["name"] == frame["answers"]);
        let Some(request) = request.filter(|it| it["answers"].is_null()) else { continue };
        assert!(len(frame) < len(request), "{}", frame["name"]);
        answers += 1;
        recorded += usize::from(request["frame_type"] == "recorded request");
    }
    assert!(answers > 30 && recorded > 20, "{answers} answers, {recorded} of recorded requests");
}
