//! Writes the seed corpus of the fuzz targets: honest frames from simulated runs for `wire`, short
//! stories of two NICs for `nic`. Run it from the root of the repository:
//!
//! ```text
//! cargo run -p rma-fuzz-bodies --example fuzz_corpus
//! ```

use std::{collections::BTreeMap, fs, io, path::Path};

use rma_core::wire::FrameView;
use rma_sim::{load::swarm::run_seed, net::trace::What};

fn main() -> io::Result<()> {
    let corpus = Path::new("fuzz/corpus");
    for (target, files) in [("wire", wire()), ("nic", nic())] {
        let directory = corpus.join(target);
        fs::create_dir_all(&directory)?;
        for (name, bytes) in files {
            fs::write(directory.join(name), bytes)?;
        }
    }
    Ok(())
}

/// One frame of each kind and, for responses, of some lengths; and what lies just outside.
fn wire() -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for seed in 0..40 {
        let run = run_seed(seed, |seen| {
            if let What::Sent { frame, .. } = &seen.what
                && let Some(name) = name(&frame.bytes)
            {
                files.entry(name).or_insert_with(|| frame.bytes.to_vec());
            }
        });
        run.expect("the swarm has run these seeds");
    }
    let request = files["request-throughput"].clone();
    let changed = |at: usize, octets: &[u8]| {
        let mut frame = request.clone();
        frame[at..at + octets.len()].copy_from_slice(octets);
        frame
    };
    files.insert("version-2".into(), changed(0, &[2]));
    files.insert("type-9".into(), changed(1, &[9]));
    files.insert("class-2".into(), changed(2, &[2]));
    files.insert("request-op-size-0".into(), changed(36, &[0, 0]));
    files.insert("request-op-size-4097".into(), changed(36, &[0x10, 0x01]));
    files.insert("request-payload-len-63".into(), changed(38, &[0, 63]));
    files.insert("request-truncated".into(), request[..55].to_vec());
    files.insert("header-only".into(), request[..28].to_vec());
    files.insert("empty".into(), Vec::new());
    files
}

fn name(frame: &[u8]) -> Option<String> {
    Some(
        match FrameView::parse(frame).ok()? {
            FrameView::ReadRequest(view) => format!("request-{:?}", view.claims().header.class),
            FrameView::Failure(view) => format!("failure-{:?}", view.claims().status),
            FrameView::ReadResponse(view) => match view.claims().payload_len {
                len @ (1 | 63 | 64 | 65 | 512) => format!("response-{len}"),
                _ => return None,
            },
            FrameView::MutationRequest(view) => format!("{:?}", view.claims().mutation.op_type()),
            FrameView::Solicitation(_) => "solicitation".into(),
            FrameView::SolicitedData(view) => match view.claims().payload_len {
                len @ (1 | 16 | 63 | 64 | 65) => format!("data-{len}"),
                _ => return None,
            },
            FrameView::Acknowledgement(view) => {
                format!("acknowledgement-{:?}", view.claims().status)
            }
        }
        .to_lowercase(),
    )
}

/// The first bytes of a story: shape, dispatch timeout, timeout, window, MTU.
const SHAPE: [u8; 5] = [0b0100, 20, 40, 64, 168];

/// Steps, in the numbering of `rma_fuzz_bodies::nic`; the highest bit chooses the host.
const ISSUE: u8 = 0;
const LINE: u8 = 2;
const TRANSMIT: u8 = 3;
const DELIVER: u8 = 5;
const CHANGED: u8 = 7;
const INVENTED: u8 = 9;
const ASTRAY: u8 = 10;
const PASS: u8 = 11;
const COMPLETE: u8 = 13;
const RENEW: u8 = 14;
const MTU: u8 = 15;
/// Before a step: the engine that takes the next frame is stopped in the midst of it.
const STOPPED: u8 = 0x10;
const B: u8 = 0x80;

fn nic() -> BTreeMap<String, Vec<u8>> {
    let read = |flags: u8, slot: u8, size: u16, offset: u16| {
        let ([s0, s1], [o0, o1]) = (size.to_be_bytes(), offset.to_be_bytes());
        vec![ISSUE, flags, slot, s0, s1, o0, o1]
    };
    let serve = [TRANSMIT, DELIVER, 0];
    let answer = [B | TRANSMIT, DELIVER, 0];
    let whole = |read: Vec<u8>, answers: usize| {
        [read, serve.to_vec(), answer.repeat(answers), vec![COMPLETE]].concat()
    };
    // Flags of a write and of a rekey: see `rma_fuzz_bodies::nic`.
    let write = |flags: u8, slot: u8, size: u16| read(0x40 | flags, slot, size, 0);
    let rekey = |flags: u8, slot: u8, key: u16| read(0x60 | flags, slot, 0, key);
    let mutated = |issued: Vec<u8>, frames: usize| {
        let hops = [serve.to_vec(), answer.to_vec(), serve.repeat(frames), answer.to_vec()];
        [issued, hops.concat(), vec![COMPLETE]].concat()
    };
    let both = [whole(read(0, 0, 100, 0), 1), whole(read(0, 1, 4096, 77), 3)].concat();
    let stories = [
        ("read-small", SHAPE, whole(read(0, 0, 100, 5), 1)),
        ("read-whole", SHAPE, whole(read(4, 1, 4096, 64), 3)),
        ("read-v6", [0b0101, 20, 40, 64, 168], whole(read(0, 0, 4096, 1), 3)),
        ("read-smallest-mtu", [0b0100, 20, 40, 64, 0], whole(read(0, 0, 640, 1), 10)),
        ("read-from-self", SHAPE, [whole(read(1, 0, 64, 0), 0), serve.to_vec()].concat()),
        ("reads-in-turn", SHAPE, both.clone()),
        ("write-small", SHAPE, mutated(write(0, 0, 100), 1)),
        ("write-whole", SHAPE, mutated(write(4, 1, 4096), 3)),
        ("write-to-self", SHAPE, [write(1, 0, 9), serve.repeat(4), vec![COMPLETE]].concat()),
        ("write-wrong-key", SHAPE, mutated(write(2, 0, 100), 0)),
        ("write-no-permission", SHAPE, mutated(write(8, 0, 100), 0)),
        ("rekey", SHAPE, [mutated(rekey(0, 0, 7), 1), mutated(write(0, 1, 65), 1)].concat()),
        (
            "write-duplicated",
            // Room for two mutations.
            [0b1_0100, 20, 40, 64, 168],
            [
                write(0, 0, 100),
                serve.to_vec(),
                vec![DELIVER, 0],
                answer.repeat(2),
                serve.to_vec(),
                vec![DELIVER, 0],
                answer.to_vec(),
                vec![COMPLETE],
            ]
            .concat(),
        ),
        (
            "write-rekeyed-under-way",
            SHAPE,
            [
                write(0, 0, 4096),
                serve.to_vec(),
                answer.to_vec(),
                serve.to_vec(),
                vec![B | RENEW, 5],
                serve.to_vec(),
                answer.to_vec(),
                vec![COMPLETE],
            ]
            .concat(),
        ),
        (
            "write-applied-late",
            SHAPE,
            [
                write(0, 0, 100),
                serve.to_vec(),
                answer.to_vec(),
                vec![TRANSMIT, STOPPED | DELIVER, 255, 255, 0],
                answer.to_vec(),
                vec![COMPLETE],
            ]
            .concat(),
        ),
        (
            "write-too-late",
            SHAPE,
            [
                write(0, 0, 100),
                serve.to_vec(),
                answer.to_vec(),
                vec![TRANSMIT, PASS, 255, 255, 1, DELIVER, 0, PASS, 255, 255, 2, COMPLETE],
            ]
            .concat(),
        ),
        ("wrong-key", SHAPE, whole(read(2, 0, 100, 0), 1)),
        ("no-permission", SHAPE, whole(read(8, 0, 100, 0), 1)),
        ("out-of-bounds", SHAPE, whole(read(0, 0, 100, 12_300), 1)),
        ("foreign-local-region", SHAPE, whole(read(16, 0, 100, 0), 0)),
        ("op-size-0", SHAPE, whole(read(0, 0, 0, 0), 0)),
        ("slot-twice", SHAPE, [read(0, 0, 9, 0), read(0, 0, 9, 0), read(0, 8, 9, 0)].concat()),
        (
            "nack",
            [0b0100, 20, 40, 64, 168],
            [
                read(0, 0, 9, 0),
                read(0, 1, 9, 0),
                serve.repeat(2),
                answer.repeat(2),
                vec![COMPLETE, COMPLETE],
            ]
            .concat(),
        ),
        (
            "window-full",
            [0b0110, 20, 40, 0, 168],
            [read(0, 0, 9, 0), read(0, 1, 9, 0), serve.repeat(2), vec![PASS, 255, 255, 1]].concat(),
        ),
        (
            "reordered-and-duplicated",
            SHAPE,
            [
                read(0, 0, 4096, 9),
                serve.to_vec(),
                vec![B | TRANSMIT, B | TRANSMIT, B | TRANSMIT],
                vec![DELIVER, 2, DELIVER, 2, DELIVER, 0, DELIVER, 1, DELIVER, 1, COMPLETE],
            ]
            .concat(),
        ),
        (
            "request-replayed",
            SHAPE,
            [read(0, 0, 9, 0), serve.to_vec(), vec![DELIVER, 0], answer.repeat(2)].concat(),
        ),
        (
            "late",
            SHAPE,
            [read(0, 0, 9, 0), serve.to_vec(), vec![PASS, 255, 255, 2], answer.to_vec()].concat(),
        ),
        (
            "changed",
            SHAPE,
            [
                read(0, 0, 100, 0),
                vec![TRANSMIT, CHANGED, 0, 0, 0, 30, 1, DELIVER, 0],
                vec![B | TRANSMIT, CHANGED, 0, 1, 0, 33, 128, 0, 3, 4, DELIVER, 0, COMPLETE],
            ]
            .concat(),
        ),
        (
            "invented",
            SHAPE,
            [vec![INVENTED, 1, 56], vec![0; 56], vec![B | INVENTED, 3, 48], vec![0; 48]].concat(),
        ),
        (
            "astray",
            SHAPE,
            [
                read(0, 0, 100, 0),
                vec![
                    TRANSMIT, ASTRAY, 0, 0, ASTRAY, 0, 1, ASTRAY, 0, 2, ASTRAY, 0, 3, ASTRAY, 0, 4,
                ],
            ]
            .concat(),
        ),
        (
            "region-gone",
            SHAPE,
            [
                read(0, 0, 100, 0),
                serve.to_vec(),
                vec![B | RENEW, 0],
                answer.to_vec(),
                read(0, 1, 100, 0),
                serve.to_vec(),
                vec![RENEW, 1],
                answer.to_vec(),
            ]
            .concat(),
        ),
        ("mtu-changes", SHAPE, [vec![MTU, 8, MTU, 0], whole(read(0, 0, 128, 0), 2)].concat()),
        ("line-of-zeros", SHAPE, [vec![LINE], vec![0; 64], vec![COMPLETE]].concat()),
        (
            "line-unreadable",
            SHAPE,
            [vec![LINE], vec![0; 4], vec![0xff; 60], vec![COMPLETE]].concat(),
        ),
        ("no-notices", [0b1000_0100, 20, 40, 64, 168], whole(read(2, 0, 100, 0), 1)),
    ];
    let file = |(name, shape, steps): (&str, [u8; 5], Vec<u8>)| {
        (name.to_owned(), [shape.to_vec(), steps].concat())
    };
    stories.map(file).into()
}
