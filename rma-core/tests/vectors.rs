//! The golden vectors of `docs/vectors/1rma-v1.json`: two NICs with fixed keys and counters must produce every
//! octet of the file, in both address families. `docs/vectors/check.py` checks the same file against another
//! implementation of AES.
//!
//! A difference means that the wire format has changed: then `VERSION` changes, and a new file is written by
//! `cargo test -p rma-core --test vectors -- --ignored`.

use std::{path::PathBuf, sync::Arc};

use rma_core::{
    addr::{HostAddr, Pid},
    backend::{RxFrame, Transmit},
    command::{Command, CommandSlotId},
    crypto::{
        AeadProvider, DerivedRegionKey, Direction, EngineId, KeyBinding, OpenJob, PortableAead,
        RegionKey, RegionKeySchedule,
    },
    limits::TAG_LEN,
    nic::{Nic, NicConfigBuilder, ReceiveLenMax, RegionEntry},
    op::{ClassOfService, OpStatus, OpType},
    region::{Permissions, RegionId},
    time::Instant,
    wire::{self, FrameView, Header, failure, read},
};
use rma_shm::Region;
use serde_json::{Value, json};

const PID: Pid = Pid(0x0102_0304);
const SLOT: u16 = 5;
const WRONG_KEY: [u8; 16] = [0xee; 16];

fn file() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/vectors/1rma-v1.json"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn region_key() -> [u8; 16] {
    core::array::from_fn(|i| i as u8)
}

/// The octet at `offset` of the responder's region.
fn content(offset: u64) -> u8 {
    (offset * 7 + 3) as u8
}

struct Vectors {
    family: &'static str,
    initiator: Nic,
    responder: Nic,
    addrs: [HostAddr; 2],
    readable: RegionId,
    forbidden: RegionId,
    sink: RegionId,
    frames: Vec<Value>,
}

/// Registers a region of 4096 bytes, filled by [`content`].
fn register(nic: &mut Nic, permissions: Permissions) -> RegionId {
    let memory = Arc::new(Region::new(4096).expect("4 KiB"));
    memory.copy_in(0, &(0..4096).map(content).collect::<Vec<_>>()).expect("it has that length");
    let entry = RegionEntry::new(memory, &RegionKey::from_bytes(region_key()), permissions, PID);
    let registered = nic.regions_mut().register(Box::new(entry));
    registered.map_err(|(error, _)| error).expect("the table has room")
}

impl Vectors {
    fn new(family: &'static str, addrs: [&str; 2]) -> Self {
        let addrs = addrs.map(|addr| addr.parse::<HostAddr>().expect("an address"));
        let nic = |addr: HostAddr, engine, counter_start| {
            let settings = NicConfigBuilder {
                addresses: addr.into(),
                engine: EngineId(engine),
                counter_start,
                regions: 3,
                inbound_queue: 1,
                // One granule in a response, so that an op of 100 bytes has two.
                receive_len_max: ReceiveLenMax {
                    ipv4: wire::FRAME_LEN_MIN,
                    ipv6: wire::FRAME_LEN_MIN,
                },
                ..NicConfigBuilder::default()
            };
            Nic::new(settings.build().expect("these settings work"))
        };
        let mut initiator = nic(addrs[0], 3, 0x0102_0304_0506_0708);
        let mut responder = nic(addrs[1], 7, 0x1112_1314_1516_1718);
        initiator.configure_slots(0..16, Some(PID));
        let sink = register(&mut initiator, Permissions::NONE);
        // Index 2, generation 1: no field of the frames is zero by chance.
        register(&mut responder, Permissions::READ);
        let forbidden = register(&mut responder, Permissions::NONE);
        let gone = register(&mut responder, Permissions::READ);
        responder.regions_mut().deregister(gone).expect("registered above");
        let readable = register(&mut responder, Permissions::READ);
        assert_eq!(readable.to_bits(), 0x0001_0002);
        let frames = Vec::new();
        Self { family, initiator, responder, addrs, readable, forbidden, sink, frames }
    }

    fn binding(&self) -> KeyBinding {
        let [initiator, responder] = self.addrs;
        KeyBinding { initiator, responder, pid: PID, op_type: OpType::Read }
    }

    fn key(&self) -> DerivedRegionKey {
        RegionKeySchedule::new(&RegionKey::from_bytes(region_key())).derive(&self.binding())
    }

    fn command(&self, offset: u64, op_size: u32) -> Command {
        Command {
            slot: CommandSlotId(SLOT),
            op_type: OpType::Read,
            class: ClassOfService::Latency,
            op_size,
            responder: self.addrs[1],
            remote_region: self.readable,
            remote_offset: offset,
            local_region: self.sink,
            local_offset: 0,
            key: self.key(),
        }
    }

    /// The input of the key derivation, field by field, as the wire document has it.
    fn key_vector(&self) -> Value {
        let [initiator, responder] = self.addrs;
        let mut input = vec![if initiator.is_ipv4() { 4 } else { 6 }, OpType::Read as u8, 0, 0];
        input.extend(PID.0.to_be_bytes());
        for addr in [initiator, responder] {
            let octets = addr.to_octets();
            input.extend(if addr.is_ipv4() { &octets[12..] } else { &octets[..] });
        }
        json!({
            "name": self.family,
            "region_key": hex(&region_key()),
            "initiator": initiator.to_string(),
            "responder": responder.to_string(),
            "pid": PID.0,
            "op_type": OpType::Read as u8,
            "function": if initiator.is_ipv4() { "AES-128 block" } else { "AES-128-CMAC" },
            "input": hex(&input),
            "derived_key": hex(self.key().expose()),
        })
    }

    /// Issues a read, and returns its request.
    fn request(&mut self, name: &str, key: (&str, DerivedRegionKey), command: Command) -> Vec<u8> {
        let command = Command { key: key.1, ..command };
        self.initiator.handle_command(Instant::ZERO, command).expect("the slot is free");
        let mut out = [0; wire::FRAME_LEN_MAX];
        let transmit = self.initiator.poll_transmit(Instant::ZERO, &mut out).expect("a request");
        let frame = out[..transmit.len].to_vec();
        self.record(name, key, None, &frame, &[]);
        frame
    }

    /// The responder takes `request`, whatever it thinks of it.
    fn serve(&mut self, request: &[u8]) {
        let [source, destination] = self.addrs;
        let mut bytes = request.to_vec();
        let reply_len_max = wire::FRAME_LEN_MAX;
        let frame = RxFrame { source, destination, reply_len_max, bytes: &mut bytes };
        let _ = self.responder.handle_frame(Instant::ZERO, frame);
    }

    /// The responder's next frame, which answers `request`; the initiator takes it.
    fn answer(
        &mut self,
        name: &str,
        key: (&str, DerivedRegionKey),
        request: (&str, &[u8]),
        plaintext: &[u8],
    ) {
        let mut out = [0; wire::FRAME_LEN_MAX];
        let transmit = self.responder.poll_transmit(Instant::ZERO, &mut out).expect("an answer");
        let Transmit { source, destination, len, .. } = transmit;
        self.record(name, key, Some(request), &out[..len], plaintext);
        let reply_len_max = wire::FRAME_LEN_MAX;
        let frame = RxFrame { source, destination, reply_len_max, bytes: &mut out[..len] };
        self.initiator.handle_frame(Instant::ZERO, frame).expect("the answer is authentic");
    }

    fn completes_with(&mut self, status: OpStatus) {
        assert_eq!(self.initiator.poll_completion().expect("it has completed").status, status);
    }

    /// Takes a frame apart, opens it, and notes all that went into it.
    fn record(
        &mut self,
        name: &str,
        (key_name, key): (&str, DerivedRegionKey),
        answers: Option<(&str, &[u8])>,
        frame: &[u8],
        plaintext: &[u8],
    ) {
        let (frame_type, header, header_len, direction, fields) = fields(frame);
        let iv = header.iv(direction);
        let request_iv = answers.map(|(_, request)| {
            let (_, header, ..) = self::fields(request);
            header.iv(Direction::ToResponder)
        });
        let mut aad = frame[..header_len].to_vec();
        aad.extend(request_iv.iter().flat_map(|iv| iv.octets()));
        let (ciphertext, tag) = frame[header_len..].split_last_chunk::<TAG_LEN>().expect("a tag");

        let prepared = PortableAead.prepare(&key);
        let mut payload = ciphertext.to_vec();
        let mut jobs = [OpenJob {
            key: &prepared,
            iv,
            aad: &aad,
            payload: &mut payload,
            tag,
            authentic: false,
        }];
        PortableAead.open(&mut jobs);
        assert!(jobs[0].authentic, "{name}: the AAD is what the wire document says");
        assert_eq!(payload, plaintext, "{name}");

        let name = format!("{} {name}", self.family);
        self.frames.push(json!({
            "name": name,
            "frame_type": frame_type,
            "direction": direction as u8,
            "key_name": key_name,
            "key": hex(key.expose()),
            "answers": answers.map(|(request, _)| format!("{} {request}", self.family)),
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
    }

    fn build(&mut self) {
        let own = (self.family, self.key());
        let reserved = ("reserved", DerivedRegionKey::RESERVED);
        let bytes = |range: core::ops::Range<u64>| range.map(content).collect::<Vec<_>>();

        // The first use of the slot, so that the frames below are of generation 2 and later.
        let bad = Command { op_size: 0, ..self.command(0, 1) };
        self.initiator.handle_command(Instant::ZERO, bad).expect("the slot is free");
        self.completes_with(OpStatus::InvalidCommand);

        let request = self.request("read request", own, self.command(1000, 100));
        self.serve(&request);
        let of = ("read request", &request[..]);
        self.answer("read response, first part", own, of, &bytes(1000..1064));
        self.answer("read response, last part", own, of, &bytes(1064..1100));
        self.completes_with(OpStatus::Ok);

        let one = Command { class: ClassOfService::Throughput, ..self.command(4095, 1) };
        let request = self.request("read request of one byte", own, one);
        self.serve(&request);
        let of = ("read request of one byte", &request[..]);
        self.answer("read response of one byte", own, of, &bytes(4095..4096));
        self.completes_with(OpStatus::Ok);

        let wrong = ("wrong", DerivedRegionKey::from_bytes(WRONG_KEY));
        let name = "read request under a wrong key";
        let request = self.request(name, wrong, self.command(0, 64));
        self.serve(&request);
        self.answer("REMOTE_AUTHENTICATION_FAILURE", reserved, (name, &request), &[]);
        self.completes_with(OpStatus::RemoteAuthenticationFailure);

        let name = "read request out of bounds";
        let request = self.request(name, own, self.command(u64::MAX - 3, 4));
        self.serve(&request);
        self.answer("REMOTE_OUT_OF_BOUNDS", own, (name, &request), &[]);
        self.completes_with(OpStatus::RemoteOutOfBounds);

        let name = "read request without permission";
        let command = Command { remote_region: self.forbidden, ..self.command(0, 4096) };
        let request = self.request(name, own, command);
        self.serve(&request);
        self.answer("REMOTE_PERMISSION_DENIED", own, (name, &request), &[]);
        self.completes_with(OpStatus::RemotePermissionDenied);

        let name = "read request of a busy responder";
        let request = self.request(name, own, self.command(0, 64));
        // The same request twice: the inbound queue has one entry.
        self.serve(&request);
        self.serve(&request);
        self.answer("NACK", own, (name, &request), &[]);
        self.completes_with(OpStatus::Nack);
    }
}

/// Type, common header, header length, direction, and the fields that are of this type only.
fn fields(frame: &[u8]) -> (&'static str, Header, usize, Direction, Value) {
    match FrameView::parse(frame).expect("a NIC sends frames") {
        FrameView::ReadRequest(view) => {
            let claims = view.claims();
            let fields = json!({
                "region_offset": format!("{:016x}", claims.region_offset),
                "op_size": claims.op_size,
                "payload_len_max": claims.payload_len_max,
            });
            let direction = Direction::ToResponder;
            ("read request", claims.header, read::REQUEST_HEADER_LEN, direction, fields)
        }
        FrameView::ReadResponse(view) => {
            let claims = view.claims();
            let fields = json!({
                "op_offset": claims.op_offset,
                "payload_len": claims.payload_len,
            });
            let direction = Direction::ToInitiator;
            ("read response", claims.header, read::RESPONSE_HEADER_LEN, direction, fields)
        }
        FrameView::Failure(view) => {
            let header = view.claims().header;
            let fields = json!({ "reserved": 0 });
            ("failure", header, failure::FAILURE_HEADER_LEN, Direction::ToInitiator, fields)
        }
    }
}

fn vectors() -> Value {
    let mut v4 = Vectors::new("ipv4", ["192.0.2.1", "192.0.2.2"]);
    let mut v6 = Vectors::new("ipv6", ["2001:db8::1", "2001:db8::2"]);
    v4.build();
    v6.build();
    let frames: Vec<Value> = v4.frames.iter().chain(&v6.frames).cloned().collect();
    json!({
        "format": "1RMA frames, version 1; see docs/WIRE.md. Octet strings are hexadecimal.",
        "reserved_key": hex(DerivedRegionKey::RESERVED.expose()),
        "keys": [v4.key_vector(), v6.key_vector()],
        "frames": frames,
    })
}

#[test]
fn the_code_produces_every_octet_of_the_golden_vectors() {
    let text = std::fs::read_to_string(file()).expect("docs/vectors/1rma-v1.json is in git");
    let golden: Value = serde_json::from_str(&text).expect("the file is JSON");
    let ours = vectors();
    let frames = |all: &Value| all["frames"].as_array().cloned().expect("a list of frames");
    for (golden, ours) in frames(&golden).iter().zip(&frames(&ours)) {
        assert_eq!(golden, ours);
    }
    assert_eq!(golden, ours);
}

#[test]
fn the_golden_vectors_have_every_frame_type_and_every_status_of_a_notice() {
    let all = vectors();
    let frames = all["frames"].as_array().expect("a list of frames");
    let has = |key: &str, value: &Value| {
        frames.iter().any(|frame| &frame[key] == value || &frame["header"][key] == value)
    };
    for frame_type in ["read request", "read response", "failure"] {
        assert!(has("frame_type", &json!(frame_type)), "{frame_type}");
    }
    for status in OpStatus::ALL.into_iter().filter(|&status| wire::Failure::may_carry(status)) {
        assert!(has("status", &json!(status as u8)), "{status}");
    }
}

/// Writes the file anew. For a new version of the wire format only.
#[test]
#[ignore = "writes docs/vectors/1rma-v1.json: run by name when the wire format changes"]
fn write_the_golden_vectors() {
    let text = serde_json::to_string_pretty(&vectors()).expect("plain data");
    std::fs::write(file(), text + "\n").expect("the directory is writable");
}
