//! The golden vectors of `docs/vectors/star-v1.json`: a frame of every kind in both address
//! families, sealed under keys that are derived from fixed names. `docs/vectors/check.py` checks
//! the same file against another implementation of AES, and builds every octet anew.
//!
//! A difference means that the wire format has changed: then `VERSION` changes, and a new file is
//! written by `RMA_BLESS=1 cargo test -p rma-star --test hosts vectors`.

mod dissector;
mod frames;

use std::{collections::BTreeSet, path::PathBuf};

use rma_core::{addr::HostAddr, crypto::Iv, limits::TAG_LEN, seal};
use rma_crypto::{AeadProvider, Portable, SealJob, Text};
use rma_star::{
    aad,
    clock::ZTime,
    keys::{Binding, FrameKey, KeyMessage, PdKey, PdKeySchedule},
    wire::{self, FrameView},
};
use serde_json::{Value, json};

use frames::{Answers, Frame, KeyName};

fn file() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vectors/star-v1.json"))
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// The vectors of one address family.
struct Vectors {
    family: &'static str,
    binding: Binding,
    pd: PdKeySchedule,
    keys: Vec<Value>,
    frames: Vec<Value>,
    sealed: Vec<(&'static str, Iv)>,
}

impl Vectors {
    fn new(family: &'static str, f: &str, z: &str) -> Self {
        let address = |it: &str| it.parse::<HostAddr>().expect("an address");
        let binding = Binding { connection: frames::CONNECTION, f: address(f), z: address(z) };
        let pd = PdKeySchedule::new(&Portable, &PdKey::from_bytes(frames::PD_KEY));
        Self { family, binding, pd, keys: Vec::new(), frames: Vec::new(), sealed: Vec::new() }
    }

    /// The key of this name; noted when it is met first.
    fn key(&mut self, name: &KeyName) -> (String, FrameKey) {
        let message = match name {
            KeyName::Connection => KeyMessage::of_connection(&self.binding),
            KeyName::Half => KeyMessage::of_half(&self.binding),
            KeyName::Wqe(span) => KeyMessage::of_wqe(&self.binding, span),
            KeyName::Mr(op, mr) => KeyMessage::of_mr(&self.binding, *op, frames::name_of(*mr)),
        };
        // The key under which this one is derived: K_p, or of a half the K_c of whoever connects.
        let (under, key) = if let KeyName::Half = name {
            let (_, connection) = self.key(&KeyName::Connection);
            (*connection.expose(), connection.of_half(&Portable, &self.binding))
        } else {
            (frames::PD_KEY, self.pd.derive(&Portable, &message))
        };
        let label = format!("{} {}", self.family, name.label());
        if self.keys.iter().all(|it| it["name"] != label) {
            self.keys.push(json!({
                "name": label,
                "pd_key": hex(&under),
                "f": self.binding.f.to_string(),
                "z": self.binding.z.to_string(),
                "connection": frames::connection_fields(),
                "bound_to": name.fields(),
                "message": hex(message.octets()),
                "key": hex(key.expose()),
            }));
        }
        (label, key)
    }

    fn answered(&self, name: &str) -> &Iv {
        &self.sealed.iter().find(|it| it.0 == name).expect("what is answered comes first").1
    }

    /// Seals `frame`, and notes all that goes into it.
    fn seal(&mut self, frame: &Frame) {
        let (key_name, key) = self.key(&frame.key);
        let mut octets = frame.header.clone();
        octets.extend(&frame.payload);
        octets.extend([0; TAG_LEN]);
        let view = FrameView::parse(&octets).expect("a frame");
        assert_eq!(view.header_len(), frame.header.len(), "{}", frame.name);
        let told = view
            .key_message(&self.binding, frames::name_of)
            .map(|it| self.pd.derive(&Portable, &it));
        assert!(told.is_none_or(|told| told == key), "{}: its header tells its key", frame.name);

        let time = ZTime(frame.time);
        let tail = match frame.answers {
            Answers::Nothing => aad::tail(time).to_vec(),
            Answers::Iv(name) => aad::answer_tail(time, self.answered(name)).to_vec(),
        };
        let aad = [&frame.header[..], &tail].concat();
        let parts = seal::split(&mut octets, frame.header.len()).expect("header and tag");
        let text = Text::in_place(parts.payload);
        let iv = *view.iv().octets();
        let key_of_job = key.as_key().into();
        Portable.seal(&mut [SealJob { key: key_of_job, iv, aad: &aad, text, tag: parts.tag }]);
        let (ciphertext, tag) =
            octets[frame.header.len()..].split_last_chunk::<TAG_LEN>().expect("a tag");

        let answers = match frame.answers {
            Answers::Nothing => None,
            Answers::Iv(name) => Some(format!("{} {name}", self.family)),
        };
        self.frames.push(json!({
            "name": format!("{} {}", self.family, frame.name),
            "kind": frame.kind,
            "from_z": frame.from_z,
            "key_name": key_name,
            "answers": answers,
            "header": frame.common,
            "time": format!("{:016x}", frame.time),
            "fields": frame.fields,
            "entries": frame.entries,
            "iv": hex(&iv),
            "aad": hex(&aad),
            "plaintext": hex(&frame.payload),
            "ciphertext": hex(ciphertext),
            "tag": hex(tag),
            "frame": hex(&octets),
        }));
        self.sealed.push((frame.name, view.iv()));
    }
}

fn vectors() -> Value {
    let families = [("ipv4", "192.0.2.1", "192.0.2.2"), ("ipv6", "2001:db8::1", "2001:db8::2")];
    let all = families.map(|(family, f, z)| {
        let mut vectors = Vectors::new(family, f, z);
        // WQEs carry the keys of their spans, which differ by family.
        let [recv, send] =
            [frames::recv_span(), frames::send_span()].map(|it| vectors.key(&KeyName::Wqe(it)).1);
        for frame in frames::frames(recv, send) {
            vectors.seal(&frame);
        }
        (vectors.keys, vectors.frames)
    });
    let (keys, frames): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    json!({
        "format": "StaR frames, version 1; see docs/STAR-WIRE.md. Octet strings are hexadecimal.",
        "version": wire::VERSION,
        "keys": keys.concat(),
        "frames": frames.concat(),
    })
}

/// With `RMA_BLESS` set the file is written anew: for a new version of the wire format only.
#[test]
fn the_code_produces_every_octet_of_the_golden_vectors() {
    if std::env::var_os("RMA_BLESS").is_some() {
        let text = serde_json::to_string_pretty(&vectors()).expect("plain data");
        std::fs::write(file(), text + "\n").expect("the directory is writable");
    }
    let text = std::fs::read_to_string(file()).expect("docs/vectors/star-v1.json is in git");
    let golden: Value = serde_json::from_str(&text).expect("the file is JSON");
    let ours = vectors();
    let frames = |all: &Value| all["frames"].as_array().cloned().expect("a list of frames");
    for (golden, ours) in frames(&golden).iter().zip(&frames(&ours)) {
        assert_eq!(golden, ours);
    }
    assert_eq!(golden, ours);
}

#[test]
fn no_two_frames_of_one_key_have_the_same_iv() {
    let all = vectors();
    let mut seen = BTreeSet::new();
    for frame in all["frames"].as_array().expect("a list of frames") {
        let part = |name: &str| frame[name].as_str().expect("a string").to_owned();
        assert!(seen.insert((part("key_name"), part("iv"))), "{}", part("name"));
    }
    assert!(seen.len() >= 2 * 12, "{} frames", seen.len());
}
