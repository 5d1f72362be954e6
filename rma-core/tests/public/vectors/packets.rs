//! Packets of the golden frames, good and bad, and what a receiver finds in them.

use std::collections::BTreeSet;

use rma_core::{
    backend::RxPacket,
    error::DropReason,
    packet::{FRAMES_MAX, Frames, Tail},
    port::{Port, SourcePort},
    wire,
};
use serde_json::{Value, json};

use crate::vectors::hex;

/// The offset of a frame's version; the next ones are those of its type, and of the length of its
/// payload.
const VERSION: usize = 0;
const FRAME_TYPE: usize = 1;
const PAYLOAD_LEN: usize = 30;
const RECORDED_FLAGS: usize = 39;

/// The end of a packet that is no frame: why, by the words of the wire document, and its octets.
type End = Option<(&'static str, usize)>;

/// The frames of one family, by name.
struct Book<'a> {
    family: &'a str,
    frames: &'a [Value],
}

impl Book<'_> {
    fn named(&self, name: &str) -> Part {
        let name = format!("{} {name}", self.family);
        let frame = self.frames.iter().find(|frame| frame["name"] == *name);
        let octets = frame.unwrap_or_else(|| panic!("no frame {name}"))["frame"].as_str();
        Part { octets: octets_of(octets.expect("octets")), name: Some(name) }
    }

    /// Frames that go this way: first one of each type, then all in their order, and again.
    fn of_all_types(&self, direction: u8, count: usize) -> Vec<Part> {
        let going = self.frames.iter().filter(|frame| frame["direction"] == direction);
        let mut types = BTreeSet::new();
        let firsts = going.clone().filter(|frame| types.insert(frame["frame_type"].to_string()));
        let firsts: Vec<&Value> = firsts.collect();
        let names = firsts.into_iter().chain(going.cycle()).take(count);
        let names = names.map(|frame| frame["name"].as_str().expect("a name"));
        names.map(|name| self.named(&name[self.family.len() + 1..])).collect()
    }
}

/// A piece of a packet: a frame of the vectors, or other octets.
#[derive(Clone)]
struct Part {
    name: Option<String>,
    octets: Vec<u8>,
}

impl Part {
    /// The same, but for what `change` does to it.
    fn but(&self, change: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut octets = self.octets.clone();
        change(&mut octets);
        Self { name: None, octets }
    }
}

fn octets_of(hex: &str) -> Vec<u8> {
    let pairs = (0..hex.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal")).collect()
}

/// The packets of the family of `frames`.
pub(crate) fn packets(family: &str, frames: &[Value]) -> Vec<Value> {
    let book = Book { family, frames };
    let (read, write) = (book.named("read request"), book.named("write request"));
    let data = book.named("solicited data, last part");
    let recorded = book.named("recorded request of a FETCH_ADD");
    let requests = book.of_all_types(0, FRAMES_MAX + 1);
    let most = requests[..FRAMES_MAX].to_vec();
    let last = requests[FRAMES_MAX].octets.len();
    let answers = book.of_all_types(1, FRAMES_MAX);
    let (read_len, write_len) = (read.octets.len(), write.octets.len());
    let three = |amid: Part| vec![read.clone(), amid, read.clone()];

    let old = three(write.but(|it| it[VERSION] = 1));
    let untyped_end = Some(("frame type", write_len + read_len));
    let untyped = three(write.but(|it| it[FRAME_TYPE] = 200));
    let long = three(data.but(|it| it[PAYLOAD_LEN..PAYLOAD_LEN + 2].fill(0xff)));
    let long_len = data.octets.len() + read_len;
    let forged = three(read.but(|it| *it.last_mut().expect("a tag") ^= 1));
    let wrong = three(write.but(|it| it[2] = 9));
    let thirteen = three(write.but(|it| it[FRAME_TYPE] = 13));
    let flagged = three(recorded.but(|it| it[RECORDED_FLAGS] = 2));
    let recorded_len = recorded.octets.len();
    let cut_recorded = vec![read.clone(), recorded.but(|it| it.truncate(recorded_len - 1))];
    let cut_recorded_end = Some(("length", recorded_len - 1));
    let cut = vec![read.clone(), write.but(|it| it.truncate(write_len - 1))];
    let short = vec![read.clone(), write.but(|it| it.truncate(31))];
    let rubbish = vec![read.clone(), write.clone(), read.but(|it| it.truncate(1))];
    let rows: [(&str, Vec<Part>, usize, End); 18] = [
        ("one frame", vec![read.clone()], 1, None),
        ("two frames", vec![read.clone(), write.clone()], 2, None),
        ("the same frame twice", vec![read.clone(), read.clone()], 2, None),
        ("32 frames of all types to a responder", most, FRAMES_MAX, None),
        ("32 frames of all types to an initiator", answers, FRAMES_MAX, None),
        ("a forged frame in the midst", forged, 3, None),
        ("a class that is not defined in the midst", wrong, 3, None),
        ("flags that are not defined in the midst", flagged, 3, None),
        ("no octets", vec![], 0, Some(("length", 0))),
        ("an end in the midst of the second frame", cut, 1, Some(("length", write_len - 1))),
        ("an end before the second frame says its length", short, 1, Some(("length", 31))),
        ("an octet behind the last frame", rubbish, 2, Some(("length", 1))),
        ("a bad payload length in the midst", long, 1, Some(("length", long_len))),
        ("another version in the midst", old, 1, Some(("version", write_len + read_len))),
        ("no type in the midst", untyped, 1, untyped_end),
        ("the first number of no type in the midst", thirteen, 1, untyped_end),
        ("an end in the midst of a recorded request", cut_recorded, 1, cut_recorded_end),
        ("33 frames", requests, FRAMES_MAX, Some(("too many frames", last))),
    ];
    rows.map(|(name, parts, found, end)| {
        let packet: Vec<u8> = parts.iter().flat_map(|part| part.octets.clone()).collect();
        let ends: Vec<usize> = parts.iter().map(|part| part.octets.len()).collect();
        assert_eq!(walk(&packet), (ends[..found].to_vec(), end), "{family} {name}");
        let part = |part: &Part| match &part.name {
            Some(name) => json!({ "frame": name }),
            None => json!({ "octets": hex(&part.octets) }),
        };
        json!({
            "name": format!("{family} {name}"),
            "parts": parts.iter().map(part).collect::<Vec<_>>(),
            "packet": hex(&packet),
            "frames": found,
            "tail": end.map(|(reason, octets)| json!({ "reason": reason, "octets": octets })),
        })
    })
    .into()
}

/// The lengths of the frames that a receiver finds, and the tail.
fn walk(packet: &[u8]) -> (Vec<usize>, End) {
    let source = [192, 0, 2, 1].into();
    let mut bytes = packet.to_vec();
    let mut packet = RxPacket {
        source,
        destination: source,
        port: Port::ONE_RMA,
        source_port: SourcePort::FIRST,
        reply_len_max: 0,
        link: None,
        bytes: &mut bytes,
    };
    let (mut frames, mut lens, mut end) = (Frames::of(&mut packet), Vec::new(), None);
    while let Some(frame) = frames.next(wire::frame_len) {
        match frame {
            Ok(frame) => lens.push(frame.bytes.len()),
            Err(Tail { reason, octets, .. }) => end = Some((name(reason), octets)),
        }
    }
    (lens, end)
}

fn name(reason: DropReason) -> &'static str {
    match reason {
        DropReason::Length => "length",
        DropReason::Version => "version",
        DropReason::FrameType => "frame type",
        DropReason::TooManyFrames => "too many frames",
        other => panic!("{other:?} ends no walk"),
    }
}
