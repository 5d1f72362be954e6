//! The golden messages. `docs/vectors/check.py` builds the same octets anew from what the file says
//! of them, by the CDDL of docs/KEYS.md.
//!
//! A difference means that the messages have changed: then `VERSION` changes, if a release has
//! spoken it, and a new file is written by
//! `RMA_BLESS=1 cargo test -p rma-keys --test service vectors`.

use std::{fs, path::PathBuf, time::Duration};

use rma_core::{
    addr::{LocalAddresses, Pid},
    op::OpType,
    region::RegionId,
};
use rma_keys::{
    epoch::{Epoch, Life},
    message::{
        frame, number,
        reply::{Answer, EpochKeys, Granted, Refusal, Reply},
        request::{Request, Wanted},
    },
    ops::OpSet,
    secret::GrantedKey,
    time::WallTime,
};
use serde_json::{Value, json};

fn file() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vectors/keys-v1.json"))
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

const LIFE: Life = Life([0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7]);

/// The number of each request, and what its reply repeats.
const NUMBER: u32 = 300;

/// The number of a reply: who does not know its version, reads no number.
fn of(reply: &Reply) -> Option<u32> {
    (*reply != Reply::Refused(Refusal::Version)).then_some(NUMBER)
}

const fn epoch(number: u64) -> Epoch {
    Epoch { life: LIFE, number }
}

fn addresses(texts: &[&str]) -> LocalAddresses {
    let mut addresses = LocalAddresses::default();
    for text in texts {
        addresses.insert(text.parse().expect("an address"));
    }
    addresses
}

fn wanted(name: &str, ops: &[OpType], have: Option<Epoch>) -> Wanted {
    let ops = ops.iter().copied().collect::<OpSet>();
    Wanted { name: name.parse().expect("a name"), ops, have }
}

/// The requests, each with what it shows.
pub(crate) fn requests() -> Vec<(&'static str, Request)> {
    let one = Request {
        initiators: addresses(&["192.0.2.1"]),
        pid: Pid(7),
        regions: vec![wanted("kv/index", &[OpType::Read], None)],
    };
    let longest = "x".repeat(255);
    let two = Request {
        initiators: addresses(&["2001:db8::1", "192.0.2.1"]),
        pid: Pid(u32::MAX),
        regions: vec![
            wanted("kv/values", &[OpType::Read, OpType::Write], Some(epoch(5))),
            wanted(&longest, &OpType::ALL, Some(epoch(u64::MAX))),
        ],
    };
    vec![("one region", one), ("two families, two regions", two)]
}

fn keys(number: u64, lifetime: u64, ops: &[OpType]) -> EpochKeys {
    let key = |&op_type: &OpType| {
        let octets = core::array::from_fn(|at| number as u8 ^ (op_type as u8) << 4 ^ at as u8);
        (op_type, GrantedKey::from_octets(&octets))
    };
    let lifetime = Duration::from_millis(lifetime);
    EpochKeys { epoch: epoch(number), lifetime, keys: ops.iter().map(key).collect() }
}

/// The replies, each with what it shows.
pub(crate) fn replies() -> Vec<(&'static str, Reply)> {
    let steady = Answer::Granted(Granted {
        responder: "192.0.2.2".parse().expect("an address"),
        region: RegionId::from_bits(5),
        region_len: 4096,
        present: keys(1, 3_600_000, &[OpType::Read]),
        refresh: Duration::from_millis(3_240_000),
        next: None,
    });
    let announced = Answer::Granted(Granted {
        responder: "2001:db8::2".parse().expect("an address"),
        region: RegionId::from_bits(u32::MAX),
        region_len: u64::MAX,
        present: keys(5, 0, &[OpType::Read, OpType::Rekey]),
        refresh: Duration::from_millis(1),
        next: Some(keys(6, 86_400_000, &[OpType::Read, OpType::Rekey])),
    });
    let current = Answer::Current {
        lifetime: Duration::from_millis(5000),
        refresh: Duration::from_millis(4000),
    };
    let refused = |refusal| Reply::Refused(refusal);
    vec![
        ("keys of one epoch", Reply::Answers(vec![steady])),
        (
            "keys of two epochs, and the other answers",
            Reply::Answers(vec![announced, current, Answer::Denied, Answer::NoAddressOfFamily]),
        ),
        ("not now", refused(Refusal::NotNow { retry: Duration::from_millis(250) })),
        ("wrong", refused(Refusal::Wrong { field: "regions[3].name".into() })),
        ("version", refused(Refusal::Version)),
        (
            "certificate ended",
            refused(Refusal::CertificateEnded {
                seen: WallTime::from_unix_millis(1_798_761_600_000),
            }),
        ),
    ]
}

/// All messages, as octets.
pub(crate) fn messages() -> Vec<(&'static str, bool, Vec<u8>)> {
    let requests =
        requests().into_iter().map(|(name, it)| (name, true, it.encode(NUMBER).to_vec()));
    let replies =
        replies().into_iter().map(|(name, it)| (name, false, it.encode(of(&it)).to_vec()));
    requests.chain(replies).collect()
}

fn epoch_value(epoch: Epoch) -> Value {
    json!({ "life": hex(&epoch.life.0), "number": epoch.number })
}

fn keys_value(keys: &EpochKeys) -> Value {
    let key = |(op_type, key): &(OpType, GrantedKey)| {
        json!([*op_type as u8, hex(key.derived_key().expose())])
    };
    json!({
        "epoch": epoch_value(keys.epoch),
        "lifetime_ms": keys.lifetime.as_millis() as u64,
        "keys": keys.keys.iter().map(key).collect::<Vec<_>>(),
    })
}

fn request_value(request: &Request) -> Value {
    let region = |it: &Wanted| {
        json!({
            "name": &*it.name,
            "ops": it.ops.iter().map(|op_type| op_type as u8).collect::<Vec<_>>(),
            "have": it.have.map(epoch_value),
        })
    };
    json!({
        "initiators": request.initiators.iter().map(|it| it.to_string()).collect::<Vec<_>>(),
        "pid": request.pid.0,
        "regions": request.regions.iter().map(region).collect::<Vec<_>>(),
    })
}

fn answer_value(answer: &Answer) -> Value {
    match answer {
        Answer::Granted(it) => json!({
            "responder": it.responder.to_string(),
            "region": it.region.to_bits(),
            "region_len": it.region_len,
            "present": keys_value(&it.present),
            "refresh_ms": it.refresh.as_millis() as u64,
            "next": it.next.as_ref().map(keys_value),
        }),
        Answer::Current { lifetime, refresh } => json!({
            "lifetime_ms": lifetime.as_millis() as u64,
            "refresh_ms": refresh.as_millis() as u64,
        }),
        Answer::Denied => json!("denied"),
        Answer::NoAddressOfFamily => json!("no address of family"),
    }
}

fn reply_value(reply: &Reply) -> Value {
    match reply {
        Reply::Answers(answers) => json!({
            "answers": answers.iter().map(answer_value).collect::<Vec<_>>(),
        }),
        Reply::Refused(Refusal::NotNow { retry }) => {
            json!({ "not_now": { "retry_ms": retry.as_millis() as u64 } })
        }
        Reply::Refused(Refusal::Wrong { field }) => json!({ "wrong": { "field": field } }),
        Reply::Refused(Refusal::Version) => json!({ "version": {} }),
        Reply::Refused(Refusal::CertificateEnded { seen }) => {
            json!({ "certificate_ended": { "seen": seen.unix_millis() / 1000 } })
        }
    }
}

#[test]
fn messages_are_the_golden_ones_octet_by_octet() {
    let with_octets = |name: &str, mut value: Value, octets: &[u8]| {
        value["message"] = json!(name);
        value["octets"] = json!(hex(octets));
        value["number"] = json!(number(octets));
        value["length"] = json!(hex(&frame::length(octets.len())));
        value
    };
    let requests: Vec<Value> = requests()
        .iter()
        .map(|(name, it)| with_octets(name, request_value(it), &it.encode(NUMBER)))
        .collect();
    let replies: Vec<Value> = replies()
        .iter()
        .map(|(name, it)| with_octets(name, reply_value(it), &it.encode(of(it))))
        .collect();
    let made = json!({ "version": 1, "requests": requests, "replies": replies });
    if std::env::var_os("RMA_BLESS").is_some() {
        let text = serde_json::to_string_pretty(&made).expect("JSON");
        fs::write(file(), text + "\n").expect("docs/vectors can be written to");
    }
    let text = fs::read_to_string(file()).expect("docs/vectors/keys-v1.json is in git");
    let golden: Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(made, golden);
}

#[test]
fn golden_messages_are_read_as_what_they_were_written_from() {
    for (name, request) in requests() {
        assert_eq!(Request::decode(&request.encode(NUMBER)), Ok(request), "{name}");
    }
    for (name, reply) in replies() {
        assert_eq!(Reply::decode(&reply.encode(of(&reply))), Ok(reply), "{name}");
    }
}
