//! Seeds of StaR's targets.

use std::{collections::BTreeMap, fs, io};

type Files = BTreeMap<String, Vec<u8>>;

/// The golden frames, what is in them before they are sealed, and frames that are too short, too
/// long or of other versions.
pub(crate) fn frames() -> io::Result<Files> {
    let text = fs::read_to_string("docs/vectors/star-v1.json")?;
    let all = text.split_once("\"frames\": [").map_or("", |(_, frames)| frames);
    let value = |object: &str, name: &str| {
        let (_, rest) = object.split_once(&format!("\"{name}\": \""))?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    let mut files = Files::new();
    // The addresses are in no frame, so those of one family are enough.
    for object in all.split("\"aad\":").filter(|it| it.contains("\"name\": \"ipv4 ")) {
        let [Some(name), Some(frame)] = ["name", "frame"].map(|it| value(object, it)) else {
            return Err(io::Error::other("a frame has a name and octets"));
        };
        let name = name.trim_start_matches("ipv4 ").to_lowercase().replace('\'', "");
        let name = name.replace(' ', "-");
        let octets = octets(&frame);
        if ["wqep", "gd", "ea-of-f"].contains(&name.as_str()) {
            files.insert(format!("{name}-too-short"), octets[..octets.len() - 1].to_vec());
            files.insert(format!("{name}-too-long"), [&octets[..], &[0]].concat());
            files.insert(format!("{name}-of-version-2"), [&[2], &octets[1..]].concat());
        }
        let plaintext = octets_of_payload(value(object, "plaintext"));
        if ["wqep", "cqep", "ea-of-z", "ea-of-f"].contains(&name.as_str()) {
            files.insert(format!("{name}-entries"), plaintext);
        }
        files.insert(name, octets);
    }
    Ok(files)
}

fn octets_of_payload(hexadecimal: Option<String>) -> Vec<u8> {
    hexadecimal.map_or_else(Vec::new, |it| octets(&it))
}

fn octets(hexadecimal: &str) -> Vec<u8> {
    let digits = hexadecimal.as_bytes().chunks(2);
    let octet = |it| u8::from_str_radix(str::from_utf8(it).unwrap_or("00"), 16).unwrap_or(0);
    digits.map(octet).collect()
}

const SEND: u8 = 0;
const RECV: u8 = 1;
const WRITE: u8 = 2;
const READ: u8 = 3;

fn named(stories: Vec<(&str, Vec<Vec<u8>>)>) -> Files {
    stories.into_iter().map(|(name, steps)| (name.to_owned(), steps.concat())).collect()
}

/// Stories of a station that is connected with itself. See `star_station` for what the steps are.
pub(crate) fn stations() -> Files {
    const Z: u8 = 0;
    const F: u8 = 1;
    let post = |qp: u8, op: u8, slot: u8, len: u16| {
        let [high, low] = len.to_be_bytes();
        vec![0, qp, op, slot, 0, 64, high, low, 4, 0]
    };
    let turn = || vec![1];
    let all = |times: usize| vec![7; times];
    let later = |shift: u8| vec![5, 0xff, 0xff, shift];
    let message = |len: u16| [post(F, RECV, 0, len), post(Z, SEND, 1, len)].concat();
    let back = |len: u16| [post(Z, RECV, 0, len), post(F, SEND, 1, len)].concat();
    let any = |which: u8, how: [u8; 4]| [&[3, which][..], &how].concat();
    named(vec![
        ("send-to-f", vec![message(64), all(9)]),
        ("send-to-z", vec![back(64), all(9)]),
        ("send-to-f-in-chunks", vec![message(3000), all(12)]),
        ("send-to-z-in-chunks", vec![back(3000), all(12)]),
        ("write-of-z", vec![post(Z, WRITE, 0, 500), all(9)]),
        ("write-of-f", vec![post(F, WRITE, 0, 500), all(9)]),
        ("read-of-z", vec![post(Z, READ, 0, 500), all(9)]),
        ("read-of-f", vec![post(F, READ, 0, 500), all(9)]),
        ("message-of-no-octets", vec![back(0), message(0), all(12)]),
        (
            "both-ways-at-once",
            vec![message(200), post(Z, RECV, 2, 90), post(F, SEND, 3, 90), all(12)],
        ),
        ("recv-is-too-short", vec![post(F, RECV, 0, 10), post(Z, SEND, 1, 500), all(12)]),
        ("recv-of-z-is-too-short", vec![post(Z, RECV, 0, 10), post(F, SEND, 1, 500), all(12)]),
        ("no-recv", vec![post(Z, SEND, 1, 64), all(4), later(20), later(20), later(23), all(9)]),
        ("slot-twice", vec![message(64), all(6), message(64), all(9)]),
        ("slot-twice-at-once", vec![post(Z, SEND, 1, 64), post(Z, SEND, 1, 64), all(9)]),
        ("no-such-slot", vec![post(Z, SEND, 8, 64), post(F, SEND, 8, 64), all(9)]),
        ("memory-ends-before", vec![vec![0, Z, WRITE, 0, 15, 255, 8, 0, 15, 255], all(9)]),
        ("wqep-is-lost", vec![message(64), turn(), vec![2, 0], all(4), later(20), all(9)]),
        ("wqep-comes-again", vec![message(64), turn(), any(0, [2, 0, 0, 0]), all(3), all(9)]),
        ("rd-comes-again", vec![back(64), all(2), any(0, [2, 0, 0, 0]), all(9)]),
        ("rd-comes-late", vec![back(64), all(2), later(9), later(9), all(9)]),
        ("bits-change", vec![message(64), turn(), any(0, [0, 0, 36, 3]), back(99), turn(), all(9)]),
        ("wrong-port", vec![message(64), turn(), any(0, [1, 0, 0, 0]), all(9)]),
        ("peer-is-silent", vec![message(64), turn(), vec![2, 0], later(23), later(23), later(23)]),
        ("garbage-arrives", vec![vec![4, 36], (1..=36).collect(), vec![12, 9, 1, 0x21], all(2)]),
        ("garbage-is-posted", vec![vec![6], vec![1; 32], all(2), message(64), all(9)]),
    ])
}

/// Stories of applications that write into their portals. See `star_ring` for what the steps are.
pub(crate) fn rings() -> Files {
    const A: u8 = 0;
    const B: u8 = 132;
    let turns = |times: usize| vec![0; times];
    let post = |host: u8, qp: u8, op: u8, slot: u8, len: u16| {
        let [high, low] = len.to_be_bytes();
        vec![host + 7, qp << 2 | op, slot, 0, 64, high, low, 4, 0]
    };
    let index = |host: u8, which: u8, by: i8| vec![host + which, 0, by.cast_unsigned()];
    let anywhere = |host: u8, which: u8| vec![host + which, 1, 0x7f, 0xff, 0x12, 0x34];
    // A bit of a word, by how far from the end of the memory it is.
    let flip = |host: u8, from_end: u8, bit: u8| vec![host + 10, 4, 0, from_end, bit];
    let (record, guard, qp_word) = (31_u8, 47_u8, 63_u8);
    let command = |host: u8, kind: u8, qp: u8| vec![host + 11, kind, qp];
    let to_z = |len: u16| [post(A, 0, RECV, 0, len), post(B, 0, SEND, 0, len)].concat();
    let to_f = |len: u16| [post(B, 0, RECV, 1, len), post(A, 0, SEND, 1, len)].concat();
    let both = |len: u16| [vec![0], to_z(len), to_f(len)].concat();
    let opens = |times: usize| [command(A, 40, 2), turns(1)].concat().repeat(times);
    named(vec![
        ("honest-messages", vec![both(300), turns(12)]),
        (
            "honest-writes",
            vec![vec![1], post(A, 0, WRITE, 0, 300), post(B, 0, WRITE, 0, 300), turns(12)],
        ),
        (
            "honest-reads",
            vec![vec![1], post(A, 1, READ, 0, 300), post(B, 1, READ, 0, 300), turns(12)],
        ),
        ("posts-tail-ahead", vec![both(300), index(A, 3, 9), index(B, 3, 40), turns(12)]),
        ("posts-tail-back", vec![both(300), turns(2), index(A, 3, -4), index(B, 3, -9), turns(12)]),
        ("posts-tail-anywhere", vec![both(300), anywhere(A, 3), anywhere(B, 3), turns(12)]),
        ("posts-head", vec![both(300), index(A, 4, 5), index(B, 4, -5), turns(12)]),
        (
            "reports-head-ahead",
            vec![both(300), turns(3), index(A, 5, 40), index(B, 5, 1), turns(12)],
        ),
        ("reports-head-anywhere", vec![both(300), anywhere(A, 5), anywhere(B, 5), turns(12)]),
        ("reports-tail", vec![both(300), index(A, 6, 30), anywhere(B, 6), turns(12)]),
        ("reports-are-not-taken", vec![vec![0], opens(90), to_z(300), turns(9)]),
        (
            "guard-opens-again",
            vec![both(300), turns(9), flip(A, guard, 0), flip(A, guard, 1), to_z(99), turns(9)],
        ),
        ("guard-is-of-another-qp", vec![both(1500), turns(1), flip(A, guard, 12), turns(12)]),
        (
            "guard-of-another-generation",
            vec![both(1500), turns(1), flip(A, guard - 1, 32), turns(12)],
        ),
        ("qp-word-closes", vec![both(1500), turns(1), flip(A, qp_word, 0), turns(12)]),
        ("qp-word-of-another-nonce", vec![both(1500), turns(1), flip(A, qp_word, 33), turns(12)]),
        ("taken-goes-back", vec![both(300), turns(4), flip(A, qp_word - 1, 32), turns(12)]),
        (
            "record-of-another-peer",
            vec![both(300), flip(A, record - 1, 1), turns(9), to_f(64), turns(9)],
        ),
        ("record-of-another-domain", vec![both(300), flip(A, record - 2, 32), turns(9)]),
        (
            "record-of-another-key",
            vec![both(300), flip(B, record - 4, 7), command(B, 40, 0), turns(12)],
        ),
        (
            "roles-change-by-what-nobody-gave",
            vec![
                both(300),
                [command(B, 47, 0), vec![0], turns(2), command(A, 47 + 64, 0), vec![1]].concat(),
                turns(3),
                [command(A, 47 + 192, 0), vec![1, 0x3e, 0x80, 1, 1, 20, 0, 2, 0]].concat(),
                turns(12),
            ],
        ),
        (
            "a-switch-is-refused",
            vec![both(99), command(B, 47, 0), command(A, 47 + 128, 0), turns(9)],
        ),
        ("closes-in-flight", vec![both(1500), turns(1), command(A, 44, 0), turns(12)]),
        (
            "opens-as-the-other-side",
            vec![both(300), command(A, 40, 0), command(B, 41, 0), to_f(99), turns(12)],
        ),
        ("another-nonce", vec![both(300), command(A, 1, 0), command(B, 0, 0), to_z(99), turns(12)]),
        (
            "a-peer-that-there-is-not",
            vec![vec![0], vec![A + 11, 16, 2, 3], post(A, 2, SEND, 0, 64), turns(9)],
        ),
        ("posted-again", vec![both(300), vec![A + 7, 0x80, 1, 0, 0, 0, 9, 0, 0], turns(12)]),
        (
            "posts-past-its-memory",
            vec![vec![0, B + 7, SEND, 1, 15, 255, 7, 0, 0, 0], turns(9), to_f(64), turns(9)],
        ),
        (
            "garbage",
            vec![
                vec![0, A + 9],
                vec![1; 32],
                vec![B + 9],
                vec![2; 32],
                turns(4),
                both(64),
                turns(9),
            ],
        ),
        (
            "time-passes",
            vec![both(1500), vec![2, 0xff, 0xff, 6], turns(1), vec![2, 0xff, 0xff, 6], turns(12)],
        ),
    ])
}
